"""Test the cause `recompilation`: the host compiles between two steps."""

from __future__ import annotations

import unittest

from tests.builders.pauses import MS, answer_of, row, thread

TRAIN = "$train.py:20 main"
COMPILE = "$pxla.py:1499 _cached_compilation"


class Recompilation(unittest.TestCase):
    def test_pause_in_which_the_host_compiles_is_found_at_the_line_that_calls(self) -> None:
        call = "$train.py:31 evaluate"
        calls = (TRAIN, -10, 300), (call, 81, 99), (COMPILE, 82, 98)
        found, other = answer_of(thread(*calls))["causes"]
        self.assertEqual(other["cause"], "pause_between_steps")
        self.assertEqual((found["cause"], found["source_user"]), ("recompilation", "train.py:31"))
        self.assertEqual((found["confidence"], found["gain_ps"]), ("likely", 10 * MS))

    def test_compiling_for_less_than_half_of_a_pause_does_not_explain_it(self) -> None:
        feed = "$feed.py:17 get_batch"
        found = row((feed, 81, 99), (COMPILE, 82, 89), (feed, 181, 199))
        self.assertEqual(found["cause"], "pause_between_steps")
