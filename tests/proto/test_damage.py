"""Test that damage is reported with its offset, unless the mode does not need the damaged part."""

from __future__ import annotations

import unittest
from typing import Any

from tests import harness
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    StatMetadata,
    bytes_field,
    compressed,
    double_field,
    encode,
    int_field,
    memory_access_breakdown,
    op,
    raw,
    text_field,
    trace,
    varint,
)
from tests.fuzz import DEVICE, check_outcome, damaged_at

NAME = "%fusion.1 = f32[2]{0} fusion()"


def trace_with(
    event: bytes = b"", events: bytes = b"", op: bytes = b"", stat: bytes = b""
) -> bytes:
    """Return a trace of one op of 10 ps; append the given fields to its event, line, metadata and
    stat."""
    category = int_field(1, 1) + text_field(5, "loop fusion") + stat
    metadata = EventMetadata(1, NAME, extra=bytes_field(5, category) + op)
    line = Line("XLA Ops", [Event(1, 0, 10, extra=event)], extra=events)
    names = [StatMetadata(1, "hlo_category")]
    return encode(Space([Plane(DEVICE, [line], [metadata], names)]))


class WrongWireTypes(unittest.TestCase):
    """Test that fields of a wrong type are reported: protobuf would silently ignore them."""

    def assert_rejected(self, data: bytes) -> None:
        outcome = harness.run(data, "summary")
        check_outcome(outcome)
        reason = outcome.object.get("reason")
        self.assertEqual(reason, "unreadable_xplane_pb", f"damage went unseen: {outcome.object}")

    def test_wrong_wire_type_in_a_line_is_rejected(self) -> None:
        for wrong in (int_field(4, 1), double_field(4, 1.0), int_field(2, 1), bytes_field(3, b"7")):
            with self.subTest(wrong=wrong):
                self.assert_rejected(trace_with(events=wrong))

    def test_wrong_wire_type_in_an_event_is_rejected(self) -> None:
        for number in (1, 2, 3, 5):
            for wrong in (
                double_field(number, 1.0),
                varint(number << 3 | 5) + bytes(4),
                bytes_field(number, b"\x07"),
            ):
                with self.subTest(number=number, wrong=wrong):
                    self.assert_rejected(trace_with(event=wrong))

    def test_offset_with_a_wrong_wire_type_is_rejected(self) -> None:
        ordinary = encode(Event(1, 20, 5))
        for wrong in (bytes_field(2, b""), double_field(2, 20.0)):
            with self.subTest(wrong=wrong):
                event = ordinary.replace(int_field(2, 20), wrong)
                self.assert_rejected(trace_with(events=bytes_field(4, event)))

    def test_wrong_wire_type_in_a_stat_is_rejected(self) -> None:
        for number in (1, 3, 4):
            for wrong in (double_field(number, 1.0), bytes_field(number, b"\x07")):
                for stat in (wrong, int_field(1, 8) + wrong + int_field(3, 5)):
                    with self.subTest(number=number, stat=stat):
                        self.assert_rejected(trace_with(event=bytes_field(4, stat)))

    def test_event_tag_with_a_flipped_bit_is_rejected(self) -> None:
        # With this tag, the event's fields look like fields of the line.
        data = bytearray(trace_with(events=bytes_field(4, encode(Event(1, 20, 5)))))
        data[data.rindex(encode(Event(1, 20, 5))) - 2] ^= 2
        self.assert_rejected(bytes(data))


class Breakdowns(unittest.TestCase):
    """Test damage in the stat memory_access_breakdown, whose value is an encoded message."""

    def run_with(self, breakdown: bytes, mode: str = "by_source") -> tuple[harness.Outcome, bytes]:
        facts: dict[str, Any] = {"bytes_accessed": 9, "memory_access_breakdown": raw(breakdown)}
        data = trace([op("fusion.1", "loop fusion", 0, 10, **facts)])
        outcome = harness.run(data, mode)
        check_outcome(outcome)
        return outcome, data

    def test_damage_in_the_breakdown_is_reported_at_its_offset(self) -> None:
        whole = memory_access_breakdown((1, 1, 100))
        for what, damage in {"an access cut off": b"\x0a\x7f", "no field": b"\0"}.items():
            with self.subTest(what):
                outcome, data = self.run_with(whole + damage)
                at = data.index(whole + damage) + len(whole)
                self.assertEqual(damaged_at(outcome), at, outcome.object)

    def test_negative_number_of_bytes_is_rejected(self) -> None:
        for accesses in ([(1, 1, -1)], [(1, 1, 100), (2, 1, -50)], [(1, 2, -1)]):
            with self.subTest(accesses):
                outcome, _ = self.run_with(memory_access_breakdown(*accesses))
                self.assertEqual(outcome.object.get("reason"), "unreadable_xplane_pb")
                self.assertIn("negative", outcome.object["detail"])

    def test_modes_that_do_not_read_the_breakdown_ignore_its_damage(self) -> None:
        outcome, _ = self.run_with(b"\0", "comm")
        self.assertEqual(outcome.object["status"], "ok")


class CompressedStrings(unittest.TestCase):
    def test_damaged_string_is_reported_only_by_modes_that_read_it(self) -> None:
        facts: dict[str, Any] = {"shape_with_layout": compressed("f32[2]{0}")}
        data = trace([op("fusion.1", "loop fusion", 0, 10, **facts)])
        self.assertEqual(harness.answer(data, "by_source")["groups"][0]["shapes"], ["f32[2]{0}"])
        broken = data.replace(b"\x1f\x8b", b"\x1f\x8c")
        self.assertEqual(harness.run(broken, "summary").object["status"], "ok")
        outcome = harness.run(broken, "by_source")
        check_outcome(outcome)
        self.assertEqual(damaged_at(outcome), broken.index(b"\x1f\x8c") - 2)
