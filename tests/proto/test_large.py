"""Large traces: the right answer at any size, in memory that does not grow with it.

Sizes and memory are measured on real processes. Other tests make pieces so small that every event
meets a boundary, and compare the decoding in columns with a model of random legal events.
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
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from unittest import mock

from _proto.trace import lines, open_trace, source
from tests.builders.make_trace import Shape, write_sparse_trace, write_trace
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    Stat,
    StatMetadata,
    bytes_field,
    encode,
    int_field,
    op,
    raw,
    tpu_plane,
    uint64,
)
from tests.harness import FULL, MODES_OF_TRACE, SCRIPT, InFolder, answer, sampled

GIB = 1 << 30
MIB = 1 << 20
PROGRAM = (sys.executable, str(SCRIPT))
LINUX_ONLY = unittest.skipUnless(sys.platform.startswith("linux"), "needs the limits of Linux")

# Runs in its own process, because the peak memory of a child includes that of its parent.
PEAK_OF = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(peak if sys.platform == "darwin" else peak << 10)
"""


def facts(path: Path, mode: str) -> dict[str, Any]:
    """Return the answer without the fields that name the file."""
    said = answer(path, mode)
    elsewhere = ("profile_dir", "xplane_file", "capture")
    return {key: said[key] for key in said if key not in elsewhere}


def pieces_of(size: int) -> AbstractContextManager[object]:
    return mock.patch.object(lines, "_PIECE_BYTES", size)


class RealSize(unittest.TestCase):
    """A trace of 120 MB with 316 000 ops."""

    takes_seconds = 10
    trace: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.trace = Path(folder.name) / "large.xplane.pb"
        write_trace(cls.trace)

    def test_every_event_counts(self) -> None:
        summary = facts(self.trace, "summary")
        n_events = [step["n_xla_ops_events"] for step in summary["steps"]]
        self.assertEqual(n_events, [39250, 39500, 39500, 39500, 39500, 39750, 39500, 39500])
        self.assertEqual(summary["step_id"], 5)
        totals = summary["totals"]
        self.assertEqual(totals["n_events_total"] + totals["n_events_container"], 39750)
        self.assertEqual(totals["n_events_unresolved"], 0)

    def test_several_processes_at_once_give_the_same_answer(self) -> None:
        command = [*PROGRAM, str(self.trace), "--mode", "roofline"]
        n = 8 if FULL else 2
        running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(n)]
        said = [process.communicate()[0] for process in running]
        self.assertEqual([process.returncode for process in running], [0] * n)
        self.assertIn(b'"status":"ok"', said[0])
        self.assertEqual(said, [said[0]] * n)

    @LINUX_ONLY
    def test_400_MB_of_address_space_are_enough(self) -> None:
        limited = ("sh", "-c", 'ulimit -v 400000 && exec "$@"', "sh", *PROGRAM)
        done = subprocess.run(
            [*limited, str(self.trace), "--mode", "by_source"],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn('"status":"ok"', done.stdout)


class Memory(InFolder):
    takes_seconds = 5

    def test_memory_does_not_grow_with_the_step(self) -> None:
        trace = self.folder / "x.xplane.pb"
        factor = 2 if FULL else 1
        shape = Shape(factor=factor, n_steps=1, n_devices=1, n_hosts=0)
        self.assertGreater(sum(shape.trips) * 250, factor * 300_000)
        write_trace(trace, shape)
        for mode, *options in sampled((("by_source",), ("summary", "--step", "all")), 1):
            with self.subTest(mode=mode, options=options):
                done = subprocess.run(
                    [sys.executable, "-c", PEAK_OF, *PROGRAM, str(trace), "--mode", mode, *options],
                    stdout=subprocess.PIPE,
                    check=True,
                )
                self.assertLess(int(done.stdout), 64 * MIB)


class OtherPlanes(InFolder):
    def read_counting(self, shape: Shape, modes: Sequence[str]) -> tuple[list[dict[str, Any]], int]:
        """Return the answers of the modes, and how many bytes they read for them."""
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

    def test_other_planes_are_not_read(self) -> None:
        modes = sampled(MODES_OF_TRACE, 1)
        said, n_bytes = self.read_counting(Shape(factor=0.1), modes)
        said_of_double, n_bytes_of_double = self.read_counting(Shape(factor=0.1, others=2), modes)
        self.assertEqual(said_of_double, said)
        # Of eight more planes of 2 MB only the beginning is read.
        self.assertLess(n_bytes_of_double - n_bytes, 8 * len(modes) * 10_000)


class Sparse(InFolder):
    """A sparse file of 8 GiB."""

    # More than 32 bits can count.
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
    """Return ops, some larger than a small piece, some instant, some without metadata."""
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
    def test_answer_does_not_depend_on_pieces_or_order_of_fields(self) -> None:
        rng = random.Random(5)
        arrangements = {
            "as written": list[bytes],
            "backwards": lambda fields: fields[::-1],
            "shuffled": lambda fields: rng.sample(fields, len(fields)),
        }
        for name, arrange in arrangements.items():
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


class Meaning(NamedTuple):
    """The meaning of an event's bytes."""

    metadata_id: int
    # None if the event says how often something occurred, not when.
    offset: int | None
    duration: int


def ordinary_event(rng: random.Random) -> tuple[bytes, Meaning]:
    meaning = Meaning(rng.randrange(1, 300), rng.randrange(2**45), rng.choice((0, 9, 10**9)))
    event = Event(meaning.metadata_id, meaning.offset, meaning.duration or None)
    return encode(event), meaning


def odd_event(rng: random.Random, surplus: bool) -> tuple[bytes, Meaning]:
    """Return a legal event with any fields in any order, some twice, some not at all.

    The fields 2 (when) and 5 (how often) occur once or more with a surplus, else at most once.
    """
    numbers = rng.choices((1, 3, 4, 99), k=rng.randrange(5))
    numbers += rng.choices((2, 2, 5), k=rng.randrange(1, 4) if surplus else rng.randrange(2))
    rng.shuffle(numbers)
    metadata_id = duration = 0
    offset: int | None = 0
    fields = []
    for number in numbers:
        value = rng.choice((0, 1, 127, 128, 10**12, -1))
        match number:
            case 1:
                metadata_id = value
            case 2:
                offset = value
            case 3:
                duration = value
            case 5:
                offset = None
        if number == 4:
            fields.append(bytes_field(4, int_field(1, 1) + int_field(3, value)))
        else:
            fields.append(int_field(number, value))
    return b"".join(fields), Meaning(metadata_id, offset, duration)


class Columns(InFolder):
    """Decode in columns without confusing which value belongs to which event."""

    def write_events(self, events: list[bytes]) -> Path:
        return self.write_line(b"".join(bytes_field(4, event) for event in events))

    def write_line(self, fields: bytes) -> Path:
        trace = self.folder / "trace.xplane.pb"
        line = Line("XLA Ops", extra=fields)
        trace.write_bytes(encode(Space([Plane("/device:TPU:0", [line])])))
        return trace

    def check(self, events: list[tuple[bytes, Meaning]], *windows: tuple[int, int]) -> None:
        """Compare the events that are read, all and in windows, with their meaning."""
        windows = ((-(1 << 63), 1 << 63), *windows)
        timed = [m for _, m in events if m.offset is not None]
        with open_trace(str(self.write_events([data for data, _ in events]))) as (trace,):
            (line,) = trace.plane("/device:TPU:0").lines("XLA Ops")
            offsets = list(chain.from_iterable(line.starts()))
            found = [
                [row for events in line.events(*window) for row in events.rows()]
                for window in windows
            ]
        self.assertEqual(line.n_events, len(events))
        self.assertEqual(line.n_aggregated, len(events) - len(timed))
        self.assertEqual(sorted(offsets), sorted(m.offset or 0 for m in timed))
        for window, of_window in zip(windows, found, strict=True):
            start, end = window
            expected = [m for m in timed if start <= (m.offset or 0) < end]
            # None of the stats here has a time that the core measured.
            self.assertEqual(of_window, [(*m, None) for m in expected])

    def test_absent_and_repeated_fields(self) -> None:
        for data, meaning in (
            (b"", Meaning(0, 0, 0)),
            (int_field(1, 5), Meaning(5, 0, 0)),
            (int_field(2, 5), Meaning(0, 5, 0)),
            (int_field(3, 5), Meaning(0, 0, 5)),
            (int_field(5, 5), Meaning(0, None, 0)),
            (int_field(2, 5) + int_field(2, 6), Meaning(0, 6, 0)),
            (int_field(2, 5) + int_field(5, 6), Meaning(0, None, 0)),
            (int_field(5, 5) + int_field(2, 6), Meaning(0, 6, 0)),
            (
                int_field(3, 5) + int_field(3, 6) + int_field(1, 7) + int_field(1, 8),
                Meaning(8, 0, 6),
            ),
        ):
            with self.subTest(data=data):
                self.check([(data, meaning)])

    def test_one_event_with_two_times_and_one_without(self) -> None:
        neither = (int_field(1, 1), Meaning(1, 0, 0))
        both = (int_field(2, 500) + int_field(5, 3), Meaning(0, None, 0))
        for events in ([both, neither], [neither, both]):
            with self.subTest(events=events):
                self.check(events)
            # In several pieces with as many offsets as events, and in one large piece.
            for size in (40, GIB):
                with self.subTest(pieces_of=events, size=size), pieces_of(size):
                    self.check(events * 8)
            with self.subTest(many=events):
                self.check(events * 10_000)

    def test_random_events(self) -> None:
        for seed in sampled(range(400), 40):
            rng = random.Random(seed)
            surplus = rng.random() < 0.5
            share = rng.choice((0, 0.1, 0.9))
            events = [
                odd_event(rng, surplus) if rng.random() < share else ordinary_event(rng)
                for _ in range(rng.randrange(1, 30))
            ]
            size = rng.choice((1, 40, 300, GIB))
            with self.subTest(seed=seed), pieces_of(size):
                self.check(events, (0, 128), (10**12, 2**44))


class ForeignFields(unittest.TestCase):
    """A newer profiler may add a field to every event. Columns take a quarter of the time."""

    def test_events_with_a_foreign_field_are_still_read_in_columns(self) -> None:
        def totals(of_event: bytes, of_stat: bytes) -> dict[str, Any]:
            events = []
            for i in range(3000):
                stats = b"".join(
                    bytes_field(4, encode(Stat(j, uint64(value))) + of_stat)
                    for j, value in ((1, 100 * i), (2, 50))
                )
                events.append(Event(1, 100 * i, 50, extra=stats + of_event))
            names = [StatMetadata(1, "device_offset_ps"), StatMetadata(2, "device_duration_ps")]
            ops = [EventMetadata(1, "%fusion.1 = f32[2]{0} fusion()")]
            plane = Plane("/device:TPU:0", [Line("XLA Ops", events)], ops, names)
            found: dict[str, Any] = answer(encode(Space([plane])), "summary")["totals"]
            return found

        plain = totals(b"", b"")
        self.assertEqual(plain["n_events_total"], 3000)
        for fields in ((int_field(9, 77), b""), (b"", int_field(9, 77))):
            refused = mock.patch.object(lines, "_timed_events", side_effect=AssertionError)
            with self.subTest(fields=fields), refused:
                self.assertEqual(totals(*fields), plain)


if __name__ == "__main__":
    unittest.main()
