"""Test the cause `host_sync`: the host reads a result before it launches the next step."""

from __future__ import annotations

import unittest

from tests.builders.pauses import LAUNCHES, MS, answer_of, row, thread

LOG, VALUE = "$log.py:12 log", "$array.py:615 _value"


class HostSync(unittest.TestCase):
    def test_pause_in_which_the_host_reads_a_result_is_a_sync_at_the_line_that_reads(self) -> None:
        calls = [
            (name, 100 * i + start, 100 * i + 98)
            for i in range(2)
            for name, start in ((LOG, 10), ("$array.py:298 __float__", 11), (VALUE, 12))
        ]
        found = row(("$train.py:20 main", -10, 300), *calls)
        self.assertEqual((found["cause"], found["confidence"]), ("host_sync", "seen"))
        self.assertEqual((found["source_user"], found["gain_ps"]), ("log.py:12", 20 * MS))
        self.assertEqual(found["gain_range_ps"], [18 * MS, 20 * MS])

    def test_sync_that_ends_when_the_pause_begins_is_likely(self) -> None:
        calls = [(LOG, 10, 82), (VALUE, 11, 81), (LOG, 110, 182), (VALUE, 111, 181)]
        found = row(("$train.py:20 main", -10, 300), *calls)
        self.assertEqual((found["cause"], found["confidence"]), ("host_sync", "likely"))
        self.assertEqual(found["source_user"], "log.py:12")
        self.assertIn("the host still waits for a result in log.py:12 log >", found["says"])

    def test_input_that_is_loaded_after_a_sync_is_the_reason_of_the_pause(self) -> None:
        # Near miss: the host reads a result when the pause begins, but then it loads a batch.
        calls = [(VALUE, 11, 81), ("$feed.py:17 get_batch", 81, 99)]
        later = [(name, 100 + start, 100 + end) for name, start, end in calls]
        found = row(*calls, *later)
        self.assertEqual(
            (found["cause"], found["source_user"]), ("pause_between_steps", "feed.py:17")
        )

    def test_array_that_device_put_reads_and_sends_back_is_to_stay_on_the_device(self) -> None:
        replicate, put = "$eagle.py:6 replicate", "$api.py:2035 device_put"

        def helps(*calls: tuple[str, int, int]) -> str:
            later = [(name, 100 + start, 100 + end) for name, start, end in calls]
            found = row(*calls, *later)
            self.assertEqual((found["cause"], found["source_user"]), ("host_sync", "eagle.py:6"))
            return str(found["what_helps"])

        around = (replicate, 60, 99)
        for start in (61, 81):
            says = helps(around, (put, start, 98), (VALUE, start + 1, 97))
            self.assertTrue(says.startswith("Leave the array on the device"), says)
        # Near miss: one call reads a result, and another one sends something.
        says = helps(around, (VALUE, 61, 96), (put, 96, 98))
        self.assertTrue(says.startswith("Launch the next step before"), says)

    def test_reads_in_a_loop_are_apart_from_pauses_that_nothing_explains(self) -> None:
        found = answer_of(thread(("$train.py:20 main", -10, 300), (VALUE, 75, 98), *LAUNCHES))
        self.assertEqual(
            [(row["cause"], row["gain_ps"]) for row in found["causes"]],
            [("host_sync", 10 * MS), ("pause_between_steps", 10 * MS)],
        )

    def test_function_of_the_users_that_waits_for_another_reason_is_no_sync(self) -> None:
        calls = [("$feed.py:17 value", 75, 99), ("$feed.py:17 value", 175, 199)]
        self.assertEqual(row(*calls)["cause"], "pause_between_steps")
