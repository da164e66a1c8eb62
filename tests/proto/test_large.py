"""Test that large traces give correct answers and that memory does not grow with the trace.

Memory is measured in real processes. Other tests read small traces in tiny pieces, so that events
cross the boundaries between pieces.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from _proto.trace import lines, source
from tests.builders.make_trace import Shape, write_sparse_trace, write_trace
from tests.builders.xspace import Plane, Space, Stat, encode, op, raw, tpu_plane
from tests.harness import MODES_OF_TRACE, SCRIPT, InFolder, answer, sampled

GIB = 1 << 30
MIB = 1 << 20
PROGRAM = (sys.executable, str(SCRIPT))
LINUX_ONLY = unittest.skipUnless(sys.platform.startswith("linux"), "needs the limits of Linux")

# This code runs in a new process, because a child's peak memory includes its parent's memory.
PEAK_OF = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(peak if sys.platform == "darwin" else peak << 10)
"""


def facts(path: Path, mode: str) -> dict[str, Any]:
    """Return a mode's answer about one device, without the fields that contain the file's name."""
    result = answer(path, mode, *(["--no-peers"] if mode == "bottleneck" else []))
    elsewhere = ("profile_dir", "xplane_file", "capture")
    return {key: result[key] for key in result if key not in elsewhere}


def pieces_of(size: int) -> AbstractContextManager[object]:
    return mock.patch.object(lines, "_PIECE_BYTES", size)


class RealSize(unittest.TestCase):
    """Test a trace of 120 MB with 316 000 ops per device."""

    takes_seconds = 10
    trace: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.trace = Path(folder.name) / "large.xplane.pb"
        write_trace(cls.trace)

    def test_every_event_is_counted(self) -> None:
        summary = facts(self.trace, "summary")
        n_events = [step["n_xla_ops_events"] for step in summary["steps"]]
        self.assertEqual(n_events, [39250, 39500, 39500, 39500, 39500, 39750, 39500, 39500])
        self.assertEqual(summary["step_id"], 5)
        totals = summary["totals"]
        self.assertEqual(totals["n_events_total"] + totals["n_events_container"], 39750)
        self.assertEqual(totals["n_events_unresolved"], 0)

    @LINUX_ONLY
    def test_400_MB_of_address_space_suffice(self) -> None:
        limited = ("sh", "-c", 'ulimit -v 400000 && exec "$@"', "sh", *PROGRAM)
        done = subprocess.run(
            [*limited, str(self.trace), "--mode", "by_source"],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn('"status":"ok"', done.stdout)

    def test_memory_stays_below_64_MiB_for_the_ops_of_all_steps(self) -> None:
        for mode in sampled(("by_source", "summary"), 1):
            with self.subTest(mode=mode):
                asked = "--mode", mode, "--step", "all"
                done = subprocess.run(
                    [sys.executable, "-c", PEAK_OF, *PROGRAM, str(self.trace), *asked],
                    stdout=subprocess.PIPE,
                    check=True,
                )
                self.assertLess(int(done.stdout), 64 * MIB)


class OtherPlanes(InFolder):
    def read_counting(self, shape: Shape, modes: Sequence[str]) -> tuple[list[dict[str, Any]], int]:
        """Return the modes' answers and the number of bytes read."""
        trace = self.folder / "trace.xplane.pb"
        write_trace(trace, shape)
        n_bytes = 0
        read = source.Source.read

        def counted(source: source.Source, start: int, length: int) -> bytes:
            nonlocal n_bytes
            n_bytes += length
            return read(source, start, length)

        with mock.patch.object(source.Source, "read", counted):
            return [facts(trace, mode) for mode in modes], n_bytes

    def test_unneeded_planes_are_not_read(self) -> None:
        modes = sampled(MODES_OF_TRACE, 1)
        result, n_bytes = self.read_counting(Shape(factor=0.02), modes)
        result_of_double, n_bytes_of_double = self.read_counting(
            Shape(factor=0.02, others=2), modes
        )
        self.assertEqual(result_of_double, result)
        # The second file has eight more planes of 1.4 MB, of which only the beginning is read.
        self.assertLess(n_bytes_of_double - n_bytes, 8 * len(modes) * 10_000)


class Sparse(InFolder):
    """Test a sparse file of more than 8 GiB."""

    # Offsets after the hole need more than 32 bits.
    hole = 4 * GIB + MIB

    def test_file_larger_than_a_protobuf_message_is_read(self) -> None:
        self.skip_without_sparse_files()
        sparse, dense = self.folder / "sparse.xplane.pb", self.folder / "dense.xplane.pb"
        write_sparse_trace(dense, 0)
        try:
            write_sparse_trace(sparse, self.hole)
        except OSError as error:
            self.skipTest(f"no file of that size here: {error}")
        self.assertGreater(sparse.stat().st_size, 2 * self.hole)
        for mode in sampled(MODES_OF_TRACE, 1):
            with self.subTest(mode=mode):
                self.assertEqual(facts(sparse, mode), facts(dense, mode))

    def skip_without_sparse_files(self) -> None:
        if shutil.disk_usage(self.folder).free < GIB:
            self.skipTest("the disk is too small")
        probe = self.folder / "probe"
        with open(probe, "wb") as file:
            file.truncate(64 * MIB)
        if probe.stat().st_blocks * 512 > MIB:
            self.skipTest("the disk has no sparse files")


def awkward_plane() -> Plane:
    """Return a plane with unusual events: some are larger than a piece, some take 0 ps, and some
    have no metadata."""
    rng = random.Random(4)
    ops = []
    now = 0
    for i in range(1500):
        duration = rng.choice((0, 5, 130, 70_000))
        ops.append(op(f"fusion.{i % 40}", "loop fusion", now, duration, flops=8, stack="a.py:1:2"))
        now += duration + rng.randrange(3)
    plane = tpu_plane(ops, steps=[("0", 0, now // 3), ("1", now // 3, now)], ops_timestamp_ns=7)
    events = plane.lines[-1].events
    for event in events[::7]:
        event.stats = [Stat(1, raw(bytes(rng.choice((1, 90, 130, 300, 5000)))))]
    for event in events[::101]:
        event.metadata_id = 999
    return plane


class Pieces(InFolder):
    def test_answer_does_not_depend_on_piece_size_or_order_of_fields(self) -> None:
        rng = random.Random(5)
        arrangements = {
            "as written": list[bytes],
            "backwards": lambda fields: fields[::-1],
            "shuffled": lambda fields: rng.sample(fields, len(fields)),
        }
        for name, arrange in sampled(arrangements.items(), 2):
            plane = awkward_plane()
            trace = self.folder / f"{name}.xplane.pb"
            trace.write_bytes(encode(Space([plane]), arrange))
            expected = facts(trace, "summary")
            step_start = plane.lines[0].events[1].offset_ps or 0
            self.assertEqual(expected["step_window_ps"][0], step_start - 7000)
            self.assertEqual(sum(s["n_xla_ops_events"] for s in expected["steps"]), 1500)
            self.assertGreater(expected["totals"]["n_events_unresolved"], 5)
            for size in (1, 64, 257, 4096):
                with self.subTest(name, size=size), pieces_of(size):
                    self.assertEqual(facts(trace, "summary"), expected)
