"""What would go wrong without a word: fields that a parser drops, facts that can't be read.

Each case is either answered as its bytes say, or refused by the offset of what is wrong.
"""

from __future__ import annotations

import os
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from tests import harness
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    Stat,
    StatMetadata,
    bytes_field,
    compressed,
    double_field,
    encode,
    int_field,
    memory_access_breakdown,
    op,
    raw,
    string,
    text_field,
    tpu_plane,
    trace,
    varint,
)
from tests.fuzz import DEVICE, check_outcome, damaged_at, padded
from tests.harness import sampled

VARINT, LENGTH = 0, 2
NAME = "%fusion.1 = f32[2]{0} fusion()"


def trace_with(
    event: bytes = b"", events: bytes = b"", op: bytes = b"", stat: bytes = b""
) -> bytes:
    """A trace of one op of 10 ps, with more fields in its parts."""
    category = int_field(1, 1) + text_field(5, "loop fusion") + stat
    metadata = EventMetadata(1, NAME, extra=bytes_field(5, category) + op)
    line = Line("XLA Ops", [Event(1, 0, 10, extra=event)], extra=events)
    names = [StatMetadata(1, "hlo_category")]
    return encode(Space([Plane(DEVICE, [line], [metadata], names)]))


def tag(number: int, wire: int, size: int) -> bytes:
    """A tag in so many bytes, more than it takes."""
    return padded(varint(number << 3 | wire), size)


class OverLongTags(unittest.TestCase):
    """protobuf's parser in Python takes a field with such a tag for an unknown one."""

    def totals(self, data: bytes, implementation: str) -> dict[str, Any]:
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.dict(os.environ, {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}),
        ):
            path = Path(folder) / "x.xplane.pb"
            path.write_bytes(data)
            outcome = harness.command(path, "--mode", "by_source", "--include-data-move")
        check_outcome(outcome)
        self.assertEqual(outcome.object["status"], "ok", outcome.object)
        return {
            **outcome.object["totals"],
            "text": outcome.object["groups"][-1]["example_hlo_op"],
        }

    def test_no_parser_loses_a_field(self) -> None:
        event = encode(Event(1, 20, 5))
        renamed = b"%other.1 = f32[2]{0} fusion()"
        for size in (2, 5):
            cases: dict[str, tuple[bytes, dict[str, Any]]] = {
                "duration": (
                    trace_with(event=tag(3, VARINT, size) + varint(77)),
                    {"compute_duration_ps": 77},
                ),
                "event": (
                    trace_with(events=tag(4, LENGTH, size) + varint(len(event)) + event),
                    {"compute_duration_ps": 15, "n_events_total": 2},
                ),
                "name": (
                    trace_with(op=tag(2, LENGTH, size) + varint(len(renamed)) + renamed),
                    {"text": renamed.decode()},
                ),
                "category": (
                    trace_with(stat=tag(5, LENGTH, size) + varint(4) + b"copy"),
                    {"data_move_duration_ps": 10},
                ),
            }
            for what, (data, expected) in sampled(cases.items(), 1):
                for implementation in ("upb", "python"):
                    with self.subTest(what, size=size, implementation=implementation):
                        totals = self.totals(data, implementation)
                        self.assertEqual({key: totals[key] for key in expected}, expected)


class Breakdowns(unittest.TestCase):
    """The stat memory_access_breakdown is a message of its own."""

    def hbm_bytes(self, breakdown: bytes) -> tuple[int | None, harness.Outcome]:
        facts: dict[str, Any] = {"bytes_accessed": 9, "memory_access_breakdown": raw(breakdown)}
        data = trace([op("fusion.1", "loop fusion", 0, 10, **facts)])
        outcome = harness.run(data, "by_source")
        check_outcome(outcome)
        at = damaged_at(outcome)
        if at is not None:
            return at - data.index(breakdown), outcome
        return outcome.object["groups"][0]["hbm_bytes_sum"], outcome

    def test_damage_is_told_by_its_place(self) -> None:
        whole = memory_access_breakdown((1, 1, 100))
        for what, damage in {
            "a count of a wrong type": bytes_field(1, double_field(3, 5.0)),
            "a memory space of a wrong type": bytes_field(1, text_field(2, "HBM")),
            "an access of a wrong type": int_field(1, 5),
            "an access cut off": b"\x0a\x7f",
            "no field": b"\0",
        }.items():
            with self.subTest(what):
                at, outcome = self.hbm_bytes(whole + damage)
                self.assertIn(at, (len(whole), len(whole) + 2), outcome.object)

    def test_a_negative_number_of_bytes_is_damage(self) -> None:
        for accesses in ([(1, 1, -1)], [(1, 1, 100), (2, 1, -50)], [(1, 2, -1)]):
            with self.subTest(accesses):
                _, outcome = self.hbm_bytes(memory_access_breakdown(*accesses))
                self.assertEqual(outcome.object.get("reason"), "unreadable_xplane_pb")
                self.assertIn("negative", outcome.object["detail"])

    def test_what_is_oddly_written_counts(self) -> None:
        for what, odd in {
            "over-long": bytes_field(1, tag(2, VARINT, 3) + b"\x01" + tag(3, VARINT, 2) + b"\x07"),
            "unknown fields": bytes_field(
                1, int_field(2, 1) + text_field(9, "x") + int_field(3, 7)
            ),
            "given twice": bytes_field(1, int_field(2, 1) + int_field(3, 5) + int_field(3, 7)),
        }.items():
            with self.subTest(what):
                found, outcome = self.hbm_bytes(memory_access_breakdown((1, 1, 100)) + odd)
                self.assertEqual((found, outcome.object["status"]), (107, "ok"))

    def test_no_other_answer_needs_them(self) -> None:
        facts: dict[str, Any] = {"memory_access_breakdown": raw(b"\0")}
        data = trace([op("fusion.1", "loop fusion", 0, 10, **facts)])
        self.assertEqual(harness.run(data, "summary").object["status"], "ok")


class GivenTwice(unittest.TestCase):
    """Of what is given twice the last counts."""

    def test_stats_of_one_name(self) -> None:
        again = bytes_field(5, int_field(1, 1) + text_field(5, "copy"))
        for what, behind in {
            "a value": again,
            "no value behind it": again + bytes_field(5, int_field(1, 1)),
            "a reference to nothing behind it": again
            + bytes_field(5, int_field(1, 1) + int_field(7, 99)),
        }.items():
            with self.subTest(what):
                said = harness.answer(trace_with(op=behind), "summary")
                self.assertEqual(said["totals"]["data_move_duration_ps"], 10)

    def test_another_name_of_the_device_or_its_line(self) -> None:
        # By its last name it is another one: not for us to answer.
        plane = bytes_field(2, b"/device:TPU:1")
        line = bytes_field(2, b"XLA Modules")
        space = Space([tpu_plane([op("fusion.1", "loop fusion", 0, 10)])])
        space.planes[0].extra = plane
        for what, data, at in (
            ("plane", encode(space), len(encode(space)) - len(plane)),
            ("line", trace_with(events=line), None),
        ):
            with self.subTest(what):
                outcome = harness.run(data, "summary")
                check_outcome(outcome)
                self.assertEqual(outcome.object.get("reason"), "unreadable_xplane_pb")
                if at is not None:
                    self.assertIn(damaged_at(outcome), (at, at + 2))

    def test_the_same_name_once_more(self) -> None:
        said = harness.answer(trace_with(events=bytes_field(2, b"XLA Ops")), "summary")
        self.assertEqual(said["totals"]["n_events_total"], 1)


class OffsetsGivenTwice(unittest.TestCase):
    """Beside an event with two offsets one with none: of both together no count tells."""

    N_LATER = 40_000

    def said(self, step: int) -> dict[str, Any]:
        first = [Event(1, 100 * i, 50) for i in range(9)]
        later = [Event(1, 5_000 + 10 * i, 5) for i in range(self.N_LATER)]
        # In another piece of the line than the first.
        later[-2:] = [Event(1, None, 7), Event(1, 6_000, 5, extra=int_field(2, 6_001))]
        steps = Line("Steps", [Event(2, 0, 1_000), Event(2, 5_000, 10 * self.N_LATER)])
        metadata = EventMetadata(1, NAME, [Stat(1, string("loop fusion"))])
        lines = [steps, Line("XLA Ops", first + later)]
        names = [StatMetadata(1, "hlo_category")]
        plane = Plane(DEVICE, lines, [metadata, EventMetadata(2, "0")], names)
        return harness.answer(encode(Space([plane])), "summary", "--step", str(step))

    def test_what_has_none_begins_at_0(self) -> None:
        said = self.said(0)
        self.assertEqual(said["totals"]["n_events_total"], 10)
        self.assertEqual(said["totals"]["compute_duration_ps"], 9 * 50 + 7)

    def test_a_note_tells_of_what_is_counted_otherwise(self) -> None:
        for step, n, n_counted in ((0, 10, 9), (1, self.N_LATER - 1, self.N_LATER)):
            with self.subTest(step=step):
                said = self.said(step)
                self.assertEqual(said["totals"]["n_events_total"], n)
                self.assertEqual(said["steps"][step]["n_xla_ops_events"], n)
                self.assertTrue(
                    any(
                        f"{n_counted} events counted in this step, {n} " in note
                        for note in said["notes"]
                    ),
                    said["notes"],
                )


class CompressedStrings(unittest.TestCase):
    def test_only_what_is_asked_for_is_inflated(self) -> None:
        """A mode that asks for it tells of the damage, another doesn't see it."""
        facts: dict[str, Any] = {"shape_with_layout": compressed("f32[2]{0}")}
        data = trace([op("fusion.1", "loop fusion", 0, 10, **facts)])
        self.assertEqual(harness.answer(data, "by_source")["groups"][0]["shapes"], ["f32[2]{0}"])
        broken = data.replace(b"\x1f\x8b", b"\x1f\x8c")
        self.assertEqual(harness.run(broken, "summary").object["status"], "ok")
        outcome = harness.run(broken, "by_source")
        check_outcome(outcome)
        self.assertEqual(damaged_at(outcome), broken.index(b"\x1f\x8c") - 2)


if __name__ == "__main__":
    unittest.main()
