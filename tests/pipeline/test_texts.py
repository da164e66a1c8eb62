"""Test long texts and large numbers in answers."""

from __future__ import annotations

import unittest
from typing import Any

from _breakdown.pipeline.texts import LONGEST_TEXT, cut_texts, exact

LONG = "x" * LONGEST_TEXT


class LongTexts(unittest.TestCase):
    def cut(self, value: Any) -> tuple[Any, list[str]]:
        fields = {"notes": [], "value": value}
        cut_texts(fields)
        return fields["value"], fields["notes"]

    def test_only_texts_above_the_limit_are_shortened(self) -> None:
        self.assertEqual(self.cut(LONG), (LONG, []))
        note = "cut 1 text to 65536 characters"
        self.assertEqual(self.cut(LONG + "y"), (LONG + "…", [note]))

    def test_long_texts_in_lists_and_objects_are_shortened(self) -> None:
        value, notes = self.cut([{"a": [LONG + "y", 1]}, LONG + "z", None])
        self.assertEqual(value, [{"a": [LONG + "…", 1]}, LONG + "…", None])
        self.assertEqual(notes, ["cut 2 texts to 65536 characters"])

    def test_shortened_keys_remain_distinct_and_in_order(self) -> None:
        value, _ = self.cut({LONG + "1": 1, "short": 2, LONG + "2": 3})
        self.assertEqual(list(value.items()), [(LONG + "…", 1), ("short", 2), (LONG + "……", 3)])


class LargeNumbers(unittest.TestCase):
    def test_integers_beyond_float_precision_become_strings(self) -> None:
        self.assertEqual([exact(2**53), exact(-(2**53))], [2**53, -(2**53)])
        self.assertEqual(
            [exact(2**53 + 1), exact(-(2**53) - 1)], [str(2**53 + 1), str(-(2**53) - 1)]
        )
