"""Test errors and notes about the picked step, and where steps come from.

The naive implementation picks the steps of random traces, too.
"""

from __future__ import annotations

import re
import unittest
from typing import Any

from tests.builders.xspace import Event, EventMetadata, Line, Space, encode, trace
from tests.harness import MODES_OF_TRACE, answer, run, sampled
from tests.modes.small_steps import column
from tests.pipeline.small_steps import Steps, leaf, plane

WHOLE_LINE = "the trace has no Steps line; using the time of the whole XLA Ops line as the step"
# These notes are about all steps, so they do not depend on the picked step.
ON_ALL_STEPS = re.compile(r"^no op starts in \d+ of | --step all includes this time$")


def pick_notes(step: dict[str, Any]) -> list[str]:
    return [note for note in step["notes"] if not ON_ALL_STEPS.search(note)]


class StepPick(unittest.TestCase):
    OPS = tuple(leaf(t, 1) for t in (5, 15, 16, 25, 26, 90))
    STEPS: Steps = [("a", 0, 10), ("b", 10, 10), ("c", 20, 10), ("d", 30, 10)]  # noqa: RUF012

    def pick(self, *options: str, steps: Steps | None = None) -> dict[str, Any]:
        return answer(
            trace(list(self.OPS), self.STEPS if steps is None else steps), "summary", *options
        )

    def test_unknown_step_error_lists_the_available_steps(self) -> None:
        for steps, names in ((self.STEPS, ["a", "b", "c", "d"]), (None, []), ([], [])):
            for options in ("--step=4", "--step=-5", "--step-id=A", "--step-id="):
                with self.subTest(steps=steps, options=options):
                    outcome = run(trace(list(self.OPS), steps), "summary", options)
                    self.assertEqual(outcome.status, 1)
                    self.assertEqual(outcome.stderr.count("\n"), 1)
                    self.assertEqual(outcome.object["reason"], "step_not_found")
                    self.assertEqual(outcome.object["available_steps"], names)

    def test_step_all_has_no_answer_without_ops(self) -> None:
        outcome = run(trace([], self.STEPS), "summary", "--step", "all")
        self.assertEqual(outcome.object["reason"], "empty_xla_ops_line")
        self.assertEqual(outcome.stderr, "compute_breakdown: empty_xla_ops_line\n")
        self.assertEqual(outcome.status, 0)


class StepsRollup(unittest.TestCase):
    """Test `steps_rollup` and the notes about idle steps and time between steps."""

    def rollup(
        self, steps: Steps, *options: str, mode: str = "summary"
    ) -> tuple[dict[str, Any], list[str]]:
        fields = answer(trace([leaf(t, 1) for t in (5, 15, 25)], steps), mode, *options)
        notes = [note for note in fields["notes"] if ON_ALL_STEPS.search(note)]
        return fields.get("steps_rollup", {}), notes

    def test_steps_without_ops_are_noted_in_every_mode(self) -> None:
        steps: Steps = [("0", 0, 10), ("1", 10, 10), ("2", 20, 10), ("3", 31, 20), ("4", 51, 60)]
        for mode in sampled(MODES_OF_TRACE, 5):
            for options in ([], ["--step", "1"], ["--step", "all"]):
                with self.subTest(mode=mode, options=options):
                    _, notes = self.rollup(steps, *options, mode=mode)
                    self.assertEqual(notes, ["no op starts in 2 of 5 steps (80 ps in total)"])

    def test_time_between_steps_is_noted_above_one_percent(self) -> None:
        steps: Steps = [("0", 0, 10), ("1", 10, 10), ("2", 20, 10), ("3", 31, 20)]
        _, notes = self.rollup([*steps, ("4", 51, 49)])
        self.assertEqual(notes, ["no op starts in 2 of 5 steps (69 ps in total)"])
        rollup, notes = self.rollup([*steps, ("4", 51, 48)])
        self.assertEqual(rollup["between_steps_pct"], 1.01)
        between = "1 ps (1.0 % of the capture) pass between steps; --step all includes this time"
        self.assertEqual(notes, ["no op starts in 2 of 5 steps (68 ps in total)", between])

    def test_numbered_steps_share_a_row_and_rows_are_sorted_by_time(self) -> None:
        # The digit is no ASCII digit, so it is a name.
        steps: Steps = [("eval", 0, 8), ("0", 10, 5), ("\u0665", 20, 9), ("12", 30, 6)]
        rows = column(self.rollup(steps)[0]["by_name"], "name", "total_dur_ps")
        self.assertEqual(rows, [(None, 11), ("\u0665", 9), ("eval", 8)])


class ExecutionsAsSteps(unittest.TestCase):
    """Test traces without a Steps line, where executions of programs are used as steps."""

    NOTE = (
        "the trace has no Steps line, so each execution of a program (XLA Modules) counts as a step"
    )
    EXECUTIONS = (Event(8, 2000, 1000), Event(9, 0, 500), Event(99, 4000, 10))

    def answer(
        self,
        *options: str,
        steps: Line | None = None,
        events: tuple[Event, ...] = EXECUTIONS,
        name: str = "jit_f(12)",
    ) -> dict[str, Any]:
        modules = Line("XLA Modules", list(events), timestamp_ns=2)
        ops = Line("XLA Ops", [Event(7, t, 10) for t in (1000, 3000, 3500, 9000)], timestamp_ns=1)
        device = plane(*([steps] if steps else []), modules, ops)
        device.event_metadata += [EventMetadata(8, name), EventMetadata(9, "jit_g(3)")]
        return answer(encode(Space([device])), "summary", *options)

    def test_executions_as_steps_are_sorted_by_start_and_named_by_metadata(self) -> None:
        for steps in (None, Line("Steps")):
            step = self.answer(steps=steps)
            rows = column(step["steps"], "name", "duration_ps", "n_xla_ops_events")
            self.assertEqual(rows, [("jit_g(3)", 500, 1), ("jit_f(12)", 1000, 2), (None, 10, 0)])
            # The execution starts at 2 ns + 2000 ps, which equal 1 ns + 3000 ps on the base of the
            # ops.
            self.assertEqual(step["step_window_ps"], [3000, 4000])
            self.assertEqual(step["step_source"], "modules")
            picked = "auto-picked the busiest step (index 1, 2 of 4 ops in 3 steps)"
            self.assertEqual(pick_notes(step), [f"{self.NOTE}; no program runs twice", picked])

    def test_whole_line_is_used_if_no_execution_has_a_valid_time(self) -> None:
        invalid = (Event(8, None, 10, num_occurrences=2), Event(8, 0, -1))
        for events in ((), invalid[:1], invalid[1:]):
            step = self.answer(events=events)
            self.assertEqual((step["step_source"], step["step_window_ps"]), (None, [1000, 9010]))
            left_out = "left out 1 event of the XLA Modules line (no valid time)"
            self.assertEqual(pick_notes(step), [left_out] * len(events) + [WHOLE_LINE])


class CutOffPrograms(unittest.TestCase):
    def answer(self, n_ops: list[int], *options: str) -> dict[str, Any]:
        """Return the answer for programs of 100 ps with this many ops, one after the other."""
        starts = [100 * i + 10 * k for i, n in enumerate(n_ops) for k in range(n)]
        device = plane(
            Line("XLA Modules", [Event(8, 100 * i, 100) for i in range(len(n_ops))]),
            Line("XLA Ops", [Event(7, start, 10) for start in starts]),
        )
        device.event_metadata.append(EventMetadata(8, "jit_f(12)"))
        return answer(encode(Space([device])), "summary", *options)

    def test_programs_at_the_edges_with_fewer_ops_are_no_steps(self) -> None:
        found = self.answer([2, 5, 5, 5, 4])
        self.assertEqual([step["n_xla_ops_events"] for step in found["steps"]], [5, 5, 5])
        self.assertEqual([step["index"] for step in found["steps"]], [0, 1, 2])
        self.assertIn("left out 2 programs that the capture cuts off", str(found["notes"]))
        self.assertNotIn("no program runs twice", str(found["notes"]))
        whole = self.answer([2, 5, 5, 5, 4], "--step", "all")
        self.assertEqual(
            (whole["step_window_ps"], whole["totals"]["n_events_total"]), ([100, 400], 15)
        )

    def test_programs_with_other_numbers_of_ops_are_steps(self) -> None:
        for n_ops in ([2, 5, 5, 4], [5, 5, 5, 5, 5], [4, 5, 6, 5, 4], [2]):
            self.assertEqual(len(self.answer(n_ops)["steps"]), len(n_ops))
