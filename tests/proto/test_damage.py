"""Test that damage is reported with its offset, unless the mode does not need the damaged part."""

from __future__ import annotations

import unittest
from typing import Any

from tests import harness
from tests.builders.xspace import compressed, memory_access_breakdown, op, raw, trace
from tests.fuzz import check_outcome, damaged_at

NAME = "%fusion.1 = f32[2]{0} fusion()"


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

    def test_modes_that_do_not_read_the_breakdown_ignore_its_damage(self) -> None:
        outcome, _ = self.run_with(b"\0", "comm")
        self.assertEqual(outcome.object["status"], "ok")


class CompressedStrings(unittest.TestCase):
    def test_damaged_string_is_reported_at_its_op(self) -> None:
        facts: dict[str, Any] = {"shape_with_layout": compressed("f32[2]{0}")}
        data = trace([op("fusion.1", "loop fusion", 0, 10, **facts)])
        self.assertEqual(harness.answer(data, "by_source")["groups"][0]["shapes"], ["f32[2]{0}"])
        broken = data.replace(b"\x1f\x8b", b"\x1f\x8c")
        outcome = harness.run(broken, "by_source")
        check_outcome(outcome)
        at = damaged_at(outcome)
        assert at is not None
        # The op's entry begins with its key, and its name follows.
        self.assertLess(at, broken.index(b"fusion.1", at))
        self.assertLess(broken.index(b"fusion.1", at), broken.index(b"\x1f\x8c"))
