"""Test the sentences below the causes of `bottleneck` in text."""

from __future__ import annotations

import unittest

from _breakdown.output.causes import with_sentences
from tests.harness import Json


def cause(advice: str, gain: int | None, unknown_ps: int | None = None) -> Json:
    return {
        "source_user": "m.py:1",
        "gain_ps": gain,
        "says": "It waits. It waits long.",
        "what_helps": advice,
        **({} if unknown_ps is None else {"unknown_ps": unknown_ps}),
    }


class Sentences(unittest.TestCase):
    def test_cause_of_unknown_gain_has_advice_if_its_ops_take_longer_than_the_largest_gain(
        self,
    ) -> None:
        rows = with_sentences(
            [
                cause("Mend it.", 10),
                cause("Wait less. Or not.", None, unknown_ps=11),
                cause("Wait more.", None, unknown_ps=10),
                # Short answers leave out figures that are null.
                cause("Wait.", None),
            ]
        )
        expected = [
            "What to do: Mend it. Why: It waits.",
            "What to do: Wait less. Why: It waits.",
            "It waits.",
            "It waits.",
        ]
        self.assertEqual([row["in_short"] for row in rows], expected)
