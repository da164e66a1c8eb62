"""Test the cause `pause_between_steps`: the gain, and the host's activity during the pause."""

from __future__ import annotations

import unittest
from typing import Any

from _output.leads.phrases import pause_sentence
from tests.builders.xspace import Plane, Space, encode, tpu_plane
from tests.harness import answer
from tests.modes.small_steps import leaf
from tests.modes.test_idle import Calls, drawn_line, host

MS = 10**9
# There are three steps of 80 ms, with pauses of 20 ms.
STEPS = [(str(i), 100 * i * MS, 80 * MS) for i in range(3)]
FEED = "$feed.py:17 get_batch"
TOKENIZE = "$feed.py:44 tokenize"


def device(steps: list[tuple[str, int, int]] = STEPS) -> Plane:
    return tpu_plane([leaf(start, dur) for _, start, dur in steps], steps)


def thread(*calls: tuple[str, int, int], name: str = "main") -> Calls:
    """Return a thread that launches programs; `calls` have times in milliseconds."""
    launch = ("PjitFunction(f)", -2 * MS, -MS)
    return name, [launch, *((call, start * MS, end * MS) for call, start, end in calls)]


def row(*threads: Calls, steps: list[tuple[str, int, int]] = STEPS) -> dict[str, Any] | None:
    """Return the cause `pause_between_steps` for the step with index 1, or None."""
    result = answer(encode(Space([device(steps), host(*threads)])), "bottleneck", "--step", "1")
    return next((row for row in result["causes"] if row["cause"] == "pause_between_steps"), None)


def lines(*threads: Calls) -> tuple[str | None, str | None]:
    found = row(*threads)
    assert found is not None
    return found["source_user"], found["source_inner"]


class PauseBetweenSteps(unittest.TestCase):
    def test_line_of_a_pause_is_the_outermost_call_within_a_period(self) -> None:
        # The two pauses are equal, so the first is taken as the typical pause. The call of `main`
        # spans all periods, so it is ignored.
        main = ("$run.py:20 main", -10, 300)
        found = row(thread(main, (FEED, 5, 99), (TOKENIZE, 6, 98), ("$log.py:3 log", 98, 99)))
        assert found is not None
        self.assertEqual((found["gain_ps"], found["gain_pct_of_step"]), (20 * MS, 20.0))
        self.assertEqual(found["source_user"], "feed.py:17")
        self.assertEqual(found["source_inner"], "feed.py:44")
        self.assertEqual((found["confidence"], found["scope"]), ("seen", None))
        self.assertEqual(
            found["says"],
            "The device waits 20.0 ms between steps (20.0 % of the 100 ms period), while the host"
            " is in feed.py:17 get_batch > feed.py:44 tokenize. The call of get_batch takes 94.0"
            " ms.",
        )
        self.assertEqual((found["evidence"]["ops"], found["evidence"]["dur_ps"]), ([], 0))

    def test_line_of_a_pause_is_the_outermost_call_as_short_as_twice_the_pause(self) -> None:
        # The pauses take 20 ms. `fit` also waits for the step, so `save` causes the pause.
        fit, save = ("$loop.py:61 fit", 5, 99), ("$save.py:58 save", 59, 99)
        found = row(thread(fit, save, (FEED, 60, 99)))
        assert found is not None
        self.assertEqual(
            (found["source_user"], found["source_inner"]), ("save.py:58", "feed.py:17")
        )
        self.assertIn("loop.py:61 fit > save.py:58 save > feed.py:17", found["says"])
        self.assertTrue(found["says"].endswith("The call of save takes 40.0 ms."), found["says"])
        self.assertEqual(lines(thread(fit, (save[0], 58, 99)))[0], "loop.py:61")

    def test_headlines_mention_a_pause_above_one_percent(self) -> None:
        data = encode(Space([device(), host(thread((FEED, 5, 99)))]))
        self.assertIn(
            "Between steps, the device waits 20.0 of 100.0 ms (20.0 %) for the host at feed.py:17.",
            answer(data, "bottleneck")["headline"],
        )
        sentence = "A step starts every 100.0 ms, with a pause of 20.0 ms (20.0 %)."
        for mode in ("summary", "idle"):
            self.assertIn(sentence, answer(data, mode)["headline"])
        self.assertEqual(pause_sentence(100, 1), "")
        self.assertIn("(2.0 %)", pause_sentence(100, 2))

    def test_call_must_overlap_half_of_the_pause(self) -> None:
        self.assertEqual(lines(thread((FEED, 50, 90))), ("feed.py:17", "feed.py:17"))
        self.assertEqual(lines(thread((FEED, 50, 89))), (None, None))
        # The call may begin before the step, but must not take longer than the period.
        self.assertEqual(lines(thread((FEED, -5, 95)))[0], "feed.py:17")
        self.assertEqual(lines(thread((FEED, -6, 95)))[0], None)

    def test_call_without_source_line_is_reported_by_name(self) -> None:
        found = row(thread(("np.asarray(jax.Array)", 50, 99), (FEED, 60, 99)))
        assert found is not None
        self.assertIn("is in np.asarray(jax.Array) > feed.py:17 get_batch.", found["says"])
        self.assertEqual(found["source_user"], "feed.py:17")

    def test_calls_outside_the_thread_that_launches_programs_are_ignored(self) -> None:
        writer: Calls = ("writer", [("$write.py:1 write", 0, 100 * MS)])
        self.assertEqual(lines(writer, thread((FEED, 50, 99))), ("feed.py:17", "feed.py:17"))
        found = row(writer, thread((FEED, 50, 89)))
        assert found is not None
        self.assertEqual((found["source_user"], found["confidence"]), (None, "likely"))
        self.assertIn(
            "No single call of the thread that launches the steps covers half", found["says"]
        )

    def test_pause_without_host_events_has_no_line(self) -> None:
        for threads in ((), (thread((FEED, 0, 70)),)):
            found = row(*threads)
            assert found is not None
            self.assertEqual((found["source_user"], found["confidence"]), (None, "likely"))
            self.assertIn("no host events in that time", found["says"])

    def test_unreadable_host_plane_counts_as_empty(self) -> None:
        damaged = host(thread((FEED, 50, 99)))
        damaged.lines[0].extra = b"\x22\x03\x10"
        data = encode(Space([device(), damaged]))
        (found,) = answer(data, "bottleneck")["causes"]
        self.assertIn("no host events in that time", found["says"])

    def test_pause_below_half_a_percent_is_not_reported(self) -> None:
        for pause, is_cause in ((5 * MS, True), (5 * MS - 1, False)):
            steps = [(str(i), 1000 * MS * i, 1000 * MS - pause) for i in range(3)]
            self.assertEqual(row(steps=steps) is not None, is_cause)

    def test_pause_excludes_time_in_other_steps(self) -> None:
        others = [("eval", (100 * i + 80) * MS, 20 * MS) for i in range(2)]
        steps = sorted([*STEPS, *others], key=lambda step: step[1])
        result = answer(encode(Space([device(steps)])), "bottleneck", "--step-id", "0")
        self.assertEqual(result["causes"], [])

    def test_single_step_has_no_pause(self) -> None:
        self.assertIsNone(row(steps=[("eval", 0, MS), *STEPS[1:2]]))

    def test_gap_between_programs_of_one_step_is_not_a_pause(self) -> None:
        plane = tpu_plane([leaf(0, MS), leaf(50 * MS, 30 * MS)], [("0", 0, 80 * MS)])
        plane.lines.append(drawn_line("XLA Modules", [("m", 0, MS)], plane))
        self.assertEqual(answer(encode(Space([plane])), "bottleneck")["causes"], [])


if __name__ == "__main__":
    unittest.main()
