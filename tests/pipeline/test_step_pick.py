"""Which step is taken, and what is one."""

from __future__ import annotations

import re
import unittest
from typing import Any

from tests.builders.xspace import Event, EventMetadata, Line, Space, encode, op, trace
from tests.harness import MODES_OF_TRACE, answer, run
from tests.pipeline.small_steps import NO_STEPS, Steps, leaf, plane

NO_OP = "no op starts in this step: it shows idle time only"

# What is said of all steps, whichever is taken.
OF_ALL_STEPS = re.compile(r" steps have no op \(\d+ ps\)$| are in no step$")


def notes_of_pick(step: dict[str, Any]) -> list[str]:
    return [note for note in step["notes"] if not OF_ALL_STEPS.search(note)]


class StepPick(unittest.TestCase):
    OPS = tuple(leaf(t, 1) for t in (5, 15, 16, 25, 26, 90))
    STEPS: Steps = [("a", 0, 10), ("b", 10, 10), ("c", 20, 10), ("d", 30, 10)]  # noqa: RUF012

    def pick(self, *options: str, steps: Steps | None = None) -> dict[str, Any]:
        return answer(
            trace(list(self.OPS), self.STEPS if steps is None else steps), "summary", *options
        )

    def test_the_busiest(self) -> None:
        step = self.pick(steps=[("a", 0, 10), ("b", 10, 16), ("c", 26, 10)])
        self.assertEqual((step["step_id"], step["step_name"]), (1, "b"))
        self.assertEqual((step["step_window_ps"], step["step_duration_ps"]), ([10, 26], 16))
        self.assertEqual(step["step_source"], "steps")
        self.assertEqual(
            notes_of_pick(step),
            ["auto-picked busiest step (idx=1, n_xla_ops_events=3 of 6 in 3 steps)"],
        )

    def test_of_steps_as_busy_the_typical(self) -> None:
        """By duration, then start, the one in the middle; of two middle ones the shorter."""
        for durations, typical in (
            ((10, 10), 0),
            ((10, 9), 1),
            ((9, 10), 0),
            ((10, 10, 10), 1),
            ((8, 10, 9), 2),
            ((10, 8, 9), 2),
            ((9, 8, 10), 0),
            ((10, 7, 9, 8), 3),
            ((5, 5, 5, 5), 1),
        ):
            with self.subTest(durations=durations):
                m = len(durations)
                steps = [(str(i), 10 * i, dur) for i, dur in enumerate(durations)]
                # One more op than steps: a step of two ops would be the busiest.
                ops = [leaf(10 * i + 1, 1) for i in range(m)] + [leaf(900, 1)]
                # Idle steps don't count among the busy, however typical.
                step = answer(trace(ops, [*steps, ("idle", 500, 9)]), "summary")
                self.assertEqual(step["step_id"], typical)
                self.assertEqual(
                    notes_of_pick(step),
                    [
                        f"auto-picked busiest step (idx={typical}, n_xla_ops_events=1 of {m + 1}"
                        f" in {m + 1} steps; typical of {m} as busy)"
                    ],
                )

    def test_busy_is_who_has_most_starts_not_most_time(self) -> None:
        ops = [leaf(0, 9), leaf(10, 1), leaf(12, 1)]
        self.assertEqual(answer(trace(ops, self.STEPS), "summary")["step_id"], 1)

    def test_a_step_may_start_with_the_last_op(self) -> None:
        self.assertEqual(self.pick(steps=[("z", 90, 5)])["steps"][0]["n_xla_ops_events"], 1)

    def test_steps_are_sorted_by_their_start(self) -> None:
        step = self.pick(steps=self.STEPS[::-1])
        self.assertEqual((step["step_id"], step["step_name"]), (1, "b"))
        self.assertEqual([each["name"] for each in step["steps"]], ["a", "b", "c", "d"])

    def test_by_index(self) -> None:
        for index, name in ((0, "a"), (3, "d"), (-1, "d"), (-4, "a")):
            step = self.pick("--step", str(index))
            self.assertEqual((step["step_id"], step["step_name"]), ("abcd".index(name), name))
            self.assertEqual(notes_of_pick(step), [NO_OP] if name == "d" else [])

    def test_by_name(self) -> None:
        step = self.pick("--step-id", "c")
        self.assertEqual((step["step_id"], notes_of_pick(step)), (2, []))

    def test_of_several_of_one_name_as_among_all_with_a_note(self) -> None:
        # Of the two named x the latter holds two ops, of those of y both none.
        steps = [("x", 20, 10), ("y", 0, 5), ("x", 10, 5), ("y", 40, 9)]
        step = self.pick("--step-id", "x", steps=steps)
        self.assertEqual((step["step_id"], step["step_window_ps"]), (2, [20, 30]))
        self.assertEqual(
            notes_of_pick(step), ["2 steps are named 'x'; took idx=2, typical of 1 as busy"]
        )
        step = self.pick("--step-id", "y", steps=steps)
        self.assertEqual((step["step_id"], step["step_window_ps"]), (3, [40, 49]))
        self.assertEqual(
            notes_of_pick(step), ["2 steps are named 'y'; took idx=3, the middle one", NO_OP]
        )

    def test_no_such_step(self) -> None:
        for options in (["--step", "4"], ["--step", "-5"], ["--step-id", "A"], ["--step-id", ""]):
            with self.subTest(options=options):
                outcome = run(trace(list(self.OPS), self.STEPS), "summary", *options)
                self.assertEqual(outcome.status, 1)
                self.assertEqual(outcome.stderr.count("\n"), 1)
                self.assertEqual(outcome.object["reason"], "step_not_found")
                self.assertEqual(outcome.object["available_steps"], ["a", "b", "c", "d"])

    def test_a_name_given_as_a_number_is_told(self) -> None:
        steps = [("101", 0, 10), ("102", 10, 10)]
        for step, is_told in (("101", True), ("10", False), ("2", False)):
            detail = run(trace([leaf(0, 5)], steps), "summary", "--step", step).object["detail"]
            self.assertEqual(detail.endswith(f"; one is named so: --step-id {step}"), is_told)

    def test_a_step_asked_for_where_there_are_none(self) -> None:
        for steps in NO_STEPS:
            for options in (["--step", "0"], ["--step", "-1"], ["--step-id", "a"]):
                outcome = run(trace(list(self.OPS), steps), "summary", *options)
                self.assertEqual((outcome.status, outcome.object["reason"]), (1, "step_not_found"))
                self.assertEqual(outcome.object["available_steps"], [])

    def test_ops_in_no_step_pick_the_middle_one(self) -> None:
        for n, middle in ((1, 0), (2, 1), (3, 1), (4, 2)):
            steps = [(str(i), 1000 + i, 1) for i in range(n)]
            step = answer(trace(list(self.OPS), steps), "summary")
            self.assertEqual(step["step_id"], middle)
            self.assertEqual(
                notes_of_pick(step),
                [f"no op starts in any step; took the middle one (idx={middle})", NO_OP],
            )

    def test_without_steps_the_whole_line(self) -> None:
        for steps in NO_STEPS:
            ops = [leaf(50, 5), leaf(20, 100), leaf(60, 1)]
            step = answer(trace(ops, steps), "summary")
            self.assertEqual((step["step_id"], step["step_name"]), (None, None))
            self.assertIsNone(step["step_source"])
            self.assertEqual(step["step_window_ps"], [20, 120])
            self.assertEqual(step["totals"]["n_events_total"], 3)
            self.assertEqual(notes_of_pick(step), ["no Steps line; using the whole XLA Ops window"])

    def test_all_is_every_op_whatever_the_steps(self) -> None:
        ops = [leaf(50, 5), leaf(20, 100), leaf(60, 1)]
        for steps in (None, [], self.STEPS, [("z", 500, 10)]):
            step = answer(trace(ops, steps), "summary", "--step", "all")
            self.assertEqual((step["step_id"], step["step_name"]), (None, None))
            self.assertIsNone(step["step_source"])
            self.assertEqual(step["step_window_ps"], [20, 120])
            self.assertEqual(step["totals"]["n_events_total"], 3)
            self.assertEqual([row["name"] for row in step["steps"]], [s[0] for s in steps or []])
            self.assertFalse(any("picked" in row for row in step["steps"]))
            whole = ["no Steps line; using the whole XLA Ops window"]
            self.assertEqual(notes_of_pick(step), [] if steps else whole)

    def test_all_of_nothing_is_nothing_to_measure(self) -> None:
        outcome = run(trace([], self.STEPS), "summary", "--step", "all")
        self.assertEqual(outcome.object["reason"], "empty_xla_ops_line")
        said = "compute_breakdown: empty_xla_ops_line\n"
        self.assertEqual((outcome.status, outcome.stderr), (0, said))

    def test_every_step_is_listed_with_the_events_that_start_in_it(self) -> None:
        ops = [*self.OPS, op("w", "while", 5, 80)]
        self.assertEqual(
            answer(trace(ops, self.STEPS), "summary", "--step", "0")["steps"],
            [
                {"index": 0, "name": "a", "duration_ps": 10, "n_xla_ops_events": 2, "picked": True},
                {"index": 1, "name": "b", "duration_ps": 10, "n_xla_ops_events": 2},
                {"index": 2, "name": "c", "duration_ps": 10, "n_xla_ops_events": 2},
                {"index": 3, "name": "d", "duration_ps": 10, "n_xla_ops_events": 0},
            ],
        )


class StepsRollup(unittest.TestCase):
    """What all steps add up to, and the time that none of them shows."""

    def said(
        self, steps: Steps, *options: str, mode: str = "summary"
    ) -> tuple[dict[str, Any], list[str]]:
        ops = [leaf(t, 1) for t in (5, 15, 25)]
        said = answer(trace(ops, steps), mode, *options)
        return said, [note for note in said["notes"] if OF_ALL_STEPS.search(note)]

    def test_numbered_steps_are_one_row_and_named_ones_stand_by_time_then_name(self) -> None:
        steps: Steps = [
            *[("0", 0, 10), ("eval", 10, 8), ("1", 20, 10), ("12", 30, 3), ("train 2", 40, 8)],
            *[("", 50, 1), ("\u0665", 60, 1)],
        ]
        said, _ = self.said(steps)
        self.assertEqual(
            said["steps_rollup"],
            {
                "n": 7,
                "n_without_ops": 4,
                "between_steps_ps": 20,
                "between_steps_pct": 32.787,
                "by_name": [
                    {
                        "name": name,
                        "n": n,
                        "total_dur_ps": total,
                        "median_dur_ps": median,
                        "min_dur_ps": least,
                        "max_dur_ps": most,
                    }
                    for name, n, total, median, least, most in (
                        (None, 3, 23, 10, 3, 10),
                        ("eval", 1, 8, 8, 8, 8),
                        ("train 2", 1, 8, 8, 8, 8),
                        ("<none>", 1, 1, 1, 1, 1),
                        # Digits, but of another script.
                        ("\u0665", 1, 1, 1, 1, 1),
                    )
                ],
            },
        )

    def test_the_median_is_the_lower_and_null_stands_last_of_equals(self) -> None:
        said, _ = self.said([("0", 0, 4), ("1", 4, 6), ("a", 10, 3), ("a", 13, 7)])
        self.assertEqual(
            [(row["name"], row["median_dur_ps"]) for row in said["steps_rollup"]["by_name"]],
            [("a", 3), (None, 4)],
        )

    def test_notes_tell_what_no_step_shows_in_every_mode(self) -> None:
        steps: Steps = [("0", 0, 10), ("1", 10, 10), ("2", 20, 10), ("3", 31, 20), ("4", 51, 60)]
        expected = ["2 of 5 steps have no op (80 ps)"]
        for mode in MODES_OF_TRACE:
            for options in ([], ["--step", "1"], ["--step", "all"]):
                with self.subTest(mode=mode, options=options):
                    self.assertEqual(self.said(steps, *options, mode=mode)[1], expected)
        # One percent of it is not more than that; one picosecond more is.
        steps[-1] = "4", 51, 49
        self.assertEqual(self.said(steps)[1], ["2 of 5 steps have no op (69 ps)"])
        steps[-1] = "4", 51, 48
        said, notes = self.said(steps)
        self.assertEqual(said["steps_rollup"]["between_steps_pct"], 1.01)
        between = "1 ps between steps (1.01 % of the capture) are in no step"
        self.assertEqual(notes, ["2 of 5 steps have no op (68 ps)", between])

    def test_steps_that_overlap_leave_nothing_between_them(self) -> None:
        said, notes = self.said([("0", 0, 20), ("1", 10, 20)])
        self.assertEqual(said["steps_rollup"]["between_steps_ps"], 0)
        self.assertEqual(notes, [])

    def test_executions_keep_names_of_digits(self) -> None:
        modules = Line("XLA Modules", [Event(8, 0, 10), Event(99, 20, 10)])
        device = plane(modules, Line("XLA Ops", [Event(7, 5, 1)]))
        device.event_metadata.append(EventMetadata(8, "12"))
        said = answer(encode(Space([device])), "summary")
        self.assertEqual([row["name"] for row in said["steps_rollup"]["by_name"]], ["12", "<none>"])

    def test_without_steps_there_is_nothing(self) -> None:
        for steps in NO_STEPS:
            said = answer(trace([leaf(0, 5)], steps), "summary")
            self.assertEqual(
                said["steps_rollup"],
                {
                    "n": 0,
                    "n_without_ops": 0,
                    "between_steps_ps": 0,
                    "between_steps_pct": None,
                    "by_name": [],
                },
            )


class ExecutionsAsSteps(unittest.TestCase):
    """Without steps, the executions of programs are the steps."""

    NOTE = "no Steps line; executions of programs (XLA Modules) are taken as steps"

    def said(
        self, *options: str, steps: Line | None = None, events: list[Event] | None = None
    ) -> dict[str, Any]:
        modules = Line(
            "XLA Modules",
            [Event(8, 2000, 1000), Event(9, 0, 500), Event(99, 4000, 10)]
            if events is None
            else events,
            timestamp_ns=2,
        )
        ops = Line("XLA Ops", [Event(7, t, 10) for t in (1000, 3000, 3500, 9000)], timestamp_ns=1)
        device = plane(*([steps] if steps else []), modules, ops)
        device.event_metadata += [EventMetadata(8, "jit_f(12)"), EventMetadata(9, "jit_g(3)")]
        return answer(encode(Space([device])), "summary", *options)

    def test_they_are_sorted_by_start_and_named_by_their_metadata(self) -> None:
        for steps in (None, Line("Steps")):
            step = self.said(steps=steps)
            # 2 ns + 2000 ps are 1 ns + 3000 ps on the base of the ops.
            self.assertEqual(
                step["steps"],
                [
                    {"index": 0, "name": "jit_g(3)", "duration_ps": 500, "n_xla_ops_events": 1},
                    {
                        "index": 1,
                        "name": "jit_f(12)",
                        "duration_ps": 1000,
                        "n_xla_ops_events": 2,
                        "picked": True,
                    },
                    {"index": 2, "name": None, "duration_ps": 10, "n_xla_ops_events": 0},
                ],
            )
            self.assertEqual(step["step_window_ps"], [3000, 4000])
            self.assertEqual(step["step_source"], "modules")
            self.assertEqual(
                notes_of_pick(step),
                [
                    self.NOTE,
                    "auto-picked busiest step (idx=1, n_xla_ops_events=2 of 4 in 3 steps)",
                ],
            )

    def test_by_index_and_by_name(self) -> None:
        self.assertEqual(self.said("--step", "0")["step_name"], "jit_g(3)")
        self.assertEqual(self.said("--step", "-1")["step_name"], None)
        self.assertEqual(self.said("--step-id", "jit_g(3)")["step_id"], 0)

    def test_all_is_of_no_execution(self) -> None:
        step = self.said("--step", "all")
        self.assertEqual((step["step_source"], step["step_id"]), (None, None))
        self.assertEqual(step["step_window_ps"], [1000, 9010])
        self.assertEqual(len(step["steps"]), 3)
        self.assertFalse(any("picked" in row for row in step["steps"]))

    def test_steps_are_preferred(self) -> None:
        step = self.said(steps=Line("Steps", [Event(7, 8000, 2000)], timestamp_ns=1))
        self.assertEqual((step["step_source"], step["step_window_ps"]), ("steps", [8000, 10000]))
        self.assertEqual(len(step["steps"]), 1)

    def test_without_either_the_whole_line(self) -> None:
        for events in ([], [Event(8, None, 10, num_occurrences=2)], [Event(8, 0, -1)]):
            step = self.said(events=events)
            self.assertEqual((step["step_source"], step["step_window_ps"]), (None, [1000, 9010]))
            self.assertEqual(
                notes_of_pick(step)[-1:], ["no Steps line; using the whole XLA Ops window"]
            )
            left_out = "1 events of the XLA Modules line left out: they have no valid time"
            self.assertEqual(notes_of_pick(step)[:-1], [left_out] * len(events))


if __name__ == "__main__":
    unittest.main()
