"""Test continuous captures: `*.xplane.riegeli`."""

from __future__ import annotations

import gzip
import importlib.util
import io
import itertools
import random
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from _proto import xplane_pb2 as pb
from _proto.errors import Damage
from _proto.trace import riegeli as reader
from tests.builders.riegeli import Chunk, chunk_of, hashed, records_of, riegeli
from tests.builders.xspace import op, trace
from tests.harness import (
    DEMO,
    MODES_OF_TRACE,
    ROOT,
    SAMPLES,
    InFolder,
    Outcome,
    answer,
    run,
    sampled,
)

HAS_BROTLI = any(importlib.util.find_spec(name) for name in ("brotli", "brotlicffi"))
SMALL = trace([op("fusion.1", "loop fusion", 0, 100, flops=800), op("copy.2", "copy", 100, 50)])
# These fields differ between a plain and a continuous capture of the same data.
NOT_COMPARED = ("profile_dir", "xplane_file", "notes", "run", "host")


def unpacked(data: bytes) -> tuple[list[bytes], Damage | None]:
    out = io.BytesIO()
    found = reader.unpack(lambda start, n: data[start : start + n], len(data), out.write)
    written = out.getvalue()
    return [written[record.start : record.end] for record in found.records], found.damage


def compared(fields: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in fields.items() if name not in NOT_COMPARED}
    kept.pop("capture", None)
    return kept


class Container(unittest.TestCase):
    def test_header_hashes_of_the_signature_are_correct(self) -> None:
        block, chunk = reader.SIGNATURE[:24], reader.SIGNATURE[24:]
        for header in (block, chunk):
            self.assertEqual(hashed(header[8:]), header)

    def test_records_of_any_size_are_read_unchanged(self) -> None:
        rng = random.Random(1)
        for case in range(60):
            sizes = [rng.choice((0, 1, 90, 65_000, 65_472, 65_512, 200_000)) for _ in range(5)]
            records = [rng.randbytes(max(0, size + rng.randint(-3, 3))) for size in sizes]
            cuts = sorted(rng.sample(range(1, 5), 2))
            groups = [records[: cuts[0]], records[cuts[0] : cuts[1]], records[cuts[1] :]]
            data = riegeli([chunk_of(group) for group in groups], padded=rng.random() < 0.5)
            with self.subTest(case=case):
                self.assertEqual(unpacked(data), (records, None))

    def test_chunk_with_more_records_than_bytes_is_read(self) -> None:
        records = [b""] * 1000
        self.assertEqual(unpacked(riegeli([chunk_of(records), chunk_of([b"x"])]))[0][-1], b"x")

    def test_damaged_chunk_is_reported_and_later_chunks_are_unpacked(self) -> None:
        # Each record is longer than a block, so a block header contains the offset of the next
        # chunk.
        records = [bytes([i]) * 70_000 for i in range(4)]
        data = riegeli([chunk_of([record]) for record in records])
        begins = [
            record.chunk
            for record in reader.unpack(
                lambda start, n: data[start : start + n], len(data), lambda part: None
            ).records
        ]
        for place in (0, 8, 32, 39):
            damaged = bytearray(data)
            damaged[begins[1] + place] ^= 1
            with self.subTest(place=place):
                found, damage = unpacked(bytes(damaged))
                assert damage is not None
                self.assertEqual(damage.offset, begins[1])
                self.assertEqual(found, [records[0], *records[2:]])

    def test_truncated_file_is_reported_at_the_incomplete_chunk(self) -> None:
        data = riegeli([chunk_of([b"a" * 100]), chunk_of([b"b" * 100])], padded=False)
        second = (len(data) + 64) // 2
        for end in range(65, len(data)):
            _, damage = unpacked(data[:end])
            if end == second:
                # A file truncated between chunks looks complete. Its length is noted, which
                # `test_length_that_is_not_a_multiple_of_a_block_is_noted` tests.
                self.assertIsNone(damage)
                continue
            assert damage is not None, end
            self.assertEqual(damage.offset, 64 if end < second else second)

    def test_unreadable_chunks_are_reported_with_the_cause(self) -> None:
        cases: list[tuple[Chunk, str]] = [
            ((b"", "t", 1, 1), "transposed"),
            ((b"", "q", 1, 1), "type 113"),
            ((b"z\1\0\0", "r", 1, 1), "zstd"),
            ((b"s\1\0\0", "r", 1, 1), "snappy"),
            ((b"\0\5\0", "r", 1, 1), "cut off"),
            ((b"", "r", 1, 1), "inside a number"),
            ((b"\0\1\2x", "r", 1, 2), "2 bytes in 1 bytes of data"),
            ((b"\0\2\1\1xx", "r", 1, 2), "the chunk has 2 records"),
            ((b"\0" + b"\xff" * 10 + b"\1", "r", 1, 2), "more than 10 bytes"),
        ]
        for chunk, what in cases:
            with self.subTest(what=what):
                found, damage = unpacked(riegeli([chunk, chunk_of([b"a"])]))
                self.assertEqual(found, [b"a"])
                assert damage is not None
                self.assertIn(what, damage.what)
                self.assertEqual(damage.offset, 64)


class Answers(InFolder):
    def test_records_with_different_ids_give_the_same_answers_as_the_trace(self) -> None:
        space = pb.XSpace.FromString(demo())
        planes = [plane for plane in space.planes if plane.name != "/host:metadata"]
        whole = pb.XSpace(planes=planes).SerializeToString()
        plain = self.write("h.xplane.pb", whole)
        records = records_of(whole, 4)
        # Profilers put several small records into one chunk.
        chunks = [chunk_of(records[:2]), chunk_of(records[2:])]
        joined = self.write("r/h.xplane.riegeli", riegeli(chunks))
        for mode in sampled([*MODES_OF_TRACE, "record"], 1):
            with self.subTest(mode=mode):
                # Starts of steps are not compared: they are relative to the earliest record.
                options = ["--step", "1"] if mode != "record" else []
                expected, got = (answer(path, mode, *options) for path in (plain, joined))
                self.assertEqual(without_base(compared(got)), without_base(compared(expected)))
        for mode in sampled(("bottleneck", "idle"), 1):
            # Compare all executions, because their order decides which of two equal ops comes
            # first.
            expected, got = (answer(path, mode, "--step", "all") for path in (plain, joined))
            self.assertEqual(without_base(compared(got)), without_base(compared(expected)))

    def test_anatomy_sums_the_records(self) -> None:
        whole = demo()
        joined = self.write("h.xplane.riegeli", riegeli([chunk_of(records_of(whole, 4))]))
        plain = answer(self.write("h.xplane.pb", whole), "anatomy", "--plane", "0")
        fields = answer(joined, "anatomy", "--plane", "0")
        self.assertEqual(fields["file_bytes"], joined.stat().st_size)
        of_line = ["name", "n_events", "busy_ps", "event_stats", "names", "n_names"]
        for line, expected in zip(lines_by_name(fields), lines_by_name(plain), strict=True):
            for name in of_line:
                with self.subTest(line=line["name"], name=name):
                    self.assertEqual(line[name], expected[name])

    def test_ops_with_the_same_name_in_two_programs_stay_separate(self) -> None:
        ops = [op("fusion.1", "loop fusion", 0, 100, program_id=7)]
        others = [op("fusion.1", "loop fusion", 200, 300, program_id=8)]
        same = [op("fusion.1", "loop fusion", 600, 50, program_id=7)]
        data = riegeli([chunk_of(list(map(trace, (ops, others, same))))])
        rows = answer(self.write("h.xplane.riegeli", data), "by_op")["ops"]
        self.assertEqual(
            [(row["program_id"], row["n_executions"], row["total_dur_ps"]) for row in rows],
            [("8", 1, 300), ("7", 2, 150)],
        )

    def test_ops_that_differ_only_in_stats_of_their_executions_stay_separate(self) -> None:
        data = riegeli([chunk_of([of_two_programs(0), of_two_programs(1000)])])
        plain = self.write("p.xplane.pb", of_two_programs(0, 1000))
        joined = self.write("h.xplane.riegeli", data)
        expected = [("8", 2, 600), ("7", 2, 200)]
        for path in (plain, joined):
            rows = answer(path, "by_op", "--step", "all")["ops"]
            found = [(row["program_id"], row["n_executions"], row["total_dur_ps"]) for row in rows]
            self.assertEqual(found, expected)

    def test_stat_comes_from_the_earliest_execution_even_if_its_record_comes_last(self) -> None:
        late, early = (
            with_stat_on_events(trace([op("fusion.1", "add", at, 10)]), "tf_op", f"jit(f)/{name}")
            for at, name in ((500, "late"), (0, "early"))
        )
        data = riegeli([chunk_of([late, early])])
        (group,) = answer(self.write("h.xplane.riegeli", data), "by_source")["groups"]
        self.assertEqual(group["tf_op"], "jit(f)/early")

    def test_format_is_detected_by_the_first_bytes(self) -> None:
        data = riegeli([chunk_of([SMALL])])
        expected = compared(answer(self.write("h.xplane.pb", SMALL), "summary"))
        named = self.write("named.xplane.pb", data)
        zipped = self.write("z.xplane.pb.gz", gzip.compress(data))
        for path in (named, zipped):
            self.assertEqual(compared(answer(path, "summary")), expected)
        for piped in (data, gzip.compress(data)):
            done = subprocess.run(
                [sys.executable, str(ROOT / "compute_breakdown.py"), "-", "--mode", "summary"],
                input=piped,
                capture_output=True,
                check=True,
            )
            self.assertIn(b'"xplane_file":"-"', done.stdout)

    def test_host_is_the_file_name_and_missing_programs_are_noted(self) -> None:
        path = self.write("vm-3.xplane.riegeli", riegeli([chunk_of([SMALL])]))
        self.assertEqual(answer(path, "record")["host"], "vm-3")
        self.assertIn("contain no programs", " ".join(answer(path, "summary")["notes"]))
        plain = answer(self.write("a.xplane.pb", SMALL), "summary")
        self.assertNotIn("contain no programs", " ".join(plain["notes"]))

    def test_file_without_records_is_unreadable(self) -> None:
        path = self.write("h.xplane.riegeli", riegeli([]))
        for mode in ("summary", "anatomy"):
            outcome = run(path, mode)
            self.assertEqual(outcome.object["reason"], "unreadable_xplane_pb")
            self.assertIn("holds no records", outcome.object["detail"])

    def test_damage_in_a_record_is_reported_at_the_chunk(self) -> None:
        broken = SMALL[:-1]
        data = riegeli([chunk_of([SMALL]), chunk_of([broken])])
        second = 64 + 40 + len(chunk_of([SMALL])[0])
        for mode in ("summary", "anatomy"):
            outcome = run(self.write("h.xplane.riegeli", data), mode)
            self.assertEqual(outcome.object["reason"], "unreadable_xplane_pb")
            self.assertIn(f"byte {second}:", outcome.object["detail"])

    def test_missing_brotli_is_reported_with_the_install_command(self) -> None:
        chunk = b"b\1\1\1" + b"compressed", "r", 1, 100
        self.write("run/a.xplane.riegeli", riegeli([chunk]))
        with mock.patch.dict(sys.modules, {"brotli": None, "brotlicffi": None}):
            outcome = run(self.folder / "run", "summary")
            self.assertEqual(outcome.object["reason"], "missing_dependency")
            self.assertEqual(outcome.status, 1)
            self.assertIn("pip install brotli", outcome.object["detail"])
            self.write("run/b.xplane.pb", b"no trace")
            outcome = run(self.folder / "run", "summary")
            self.assertEqual(outcome.object["reason"], "missing_dependency")
            # Reading an uncompressed file does not need brotli.
            self.write("run/c.xplane.riegeli", riegeli([chunk_of([SMALL])]))
            self.assertEqual(answer(self.folder / "run", "summary")["xplane_file"][0], "c")


class Folders(InFolder):
    def files(self, **sizes: bytes) -> Outcome:
        for suffix, data in sizes.items():
            self.write(f"run/h.xplane.{suffix.replace('_', '.')}", data)
        return run(self.folder / "run", "summary")

    def test_plain_file_is_preferred_to_the_riegeli_file_and_a_note_says_so(self) -> None:
        outcome = self.files(pb=SMALL, riegeli=riegeli([chunk_of([SMALL])]))
        self.assertEqual(outcome.object["xplane_file"], "h.xplane.pb")
        self.assertIn("using h.xplane.pb instead of h.xplane.riegeli", outcome.object["notes"])


def of_two_programs(*starts: int) -> bytes:
    """Return a trace of two ops with equal metadata, whose events have different program ids."""
    ops = []
    for start in starts:
        ops += [op("fusion.1", "add", start, 100), op("fusion.2", "add", start + 200, 300)]
    space = pb.XSpace.FromString(trace(ops))
    (plane,) = space.planes
    plane.stat_metadata[99].name = "program_id"
    names = sorted(metadata.name for metadata in plane.event_metadata.values())
    for event in plane.lines[0].events:
        number = names.index(plane.event_metadata[event.metadata_id].name)
        event.stats.add(metadata_id=99, uint64_value=7 + number)
    for metadata in plane.event_metadata.values():
        metadata.name, metadata.display_name = names[0], ""
    return space.SerializeToString()


def with_stat_on_events(trace: bytes, name: str, value: str) -> bytes:
    space = pb.XSpace.FromString(trace)
    (plane,) = space.planes
    plane.stat_metadata[99].name = name
    for event in plane.lines[0].events:
        event.stats.add(metadata_id=99, str_value=value)
    return space.SerializeToString()


def demo() -> bytes:
    (path,) = DEMO.glob("plugins/profile/*/*.gz")
    return gzip.decompress(path.read_bytes())


def lines_by_name(fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the plane's lines sorted by name, except lines without events, which records omit."""
    lines: list[dict[str, Any]] = fields["planes"][0]["lines"]
    return sorted((line for line in lines if line["n_events"]), key=lambda line: line["name"])


def without_base(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the `start_ps` of each step set to 0, because joining can change the
    base time of a line, which starts are relative to.
    """
    steps = fields.get("steps")
    if not isinstance(steps, list):
        # `bottleneck` has figures over all steps here.
        return fields
    return {**fields, "steps": [{**step, "start_ps": 0} for step in steps]}


@unittest.skipUnless(SAMPLES.exists() and HAS_BROTLI, "needs the samples and brotli")
class Samples(unittest.TestCase):
    def assert_same(self, sample: str, expected_from: Path, *modes: str) -> None:
        for mode in modes:
            expected, got = (
                without_base(compared(answer(path, mode, *(["--step", "1"] * (mode != "record")))))
                for path in (expected_from, SAMPLES / sample)
            )
            with self.subTest(sample=sample, mode=mode):
                self.assertEqual(got, expected)

    def test_samples_with_programs_give_the_same_answers_as_the_demo(self) -> None:
        modes = ("record", "memory", "bottleneck", "summary", "comm", "program", "by_op")
        for sample in ("demo-one", "demo-ids-hlo", "demo-sameids"):
            self.assert_same(sample, DEMO, *sampled(modes, 1))

    def test_damaged_samples_are_rejected_with_the_offset_of_the_chunk(self) -> None:
        for sample, begin, n_events in (
            ("demo-damaged", 69_694, 6765),
            ("demo-hole", 64, 4708),
            ("demo-truncated", 216_584, 6766),
        ):
            with self.subTest(sample=sample):
                outcome = run(SAMPLES / sample, "summary")
                self.assertEqual(outcome.object["reason"], "unreadable_xplane_pb")
                self.assertIn(f"byte {begin}:", outcome.object["detail"])
                planes = run(SAMPLES / sample, "anatomy").object["planes"]
                lines = itertools.chain.from_iterable(plane["lines"] for plane in planes)
                found = sum(line["n_events"] for line in lines if line["name"] == "XLA Ops")
                self.assertEqual(found, n_events)
