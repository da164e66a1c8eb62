"""Test the mode `idle`: launching threads, event times in the period, and the whole capture."""

from __future__ import annotations

import unittest

from tests.builders.drawn import Calls, drawn_line, host, result_of
from tests.builders.xspace import Plane, Stat, StatMetadata, tpu_plane, uint64
from tests.modes.small_steps import leaf

RUN_ID = 950
PROGRAMS = [("m", 0, 100), ("m", 200, 300)]


def device() -> Plane:
    plane = tpu_plane([leaf(0, 100), leaf(200, 100)], [("s", 0, 300)])
    plane.lines.append(drawn_line("XLA Modules", PROGRAMS, plane))
    give_run_ids(plane, {"XLA Modules": [7, 8]})
    return plane


def give_run_ids(plane: Plane, ids: dict[str, list[int | None]]) -> Plane:
    """Add run ids to events; `ids` lists them by line name, in the order of the line's events."""
    plane.stat_metadata.append(StatMetadata(RUN_ID, "run_id"))
    for line in plane.lines:
        for event, run_id in zip(line.events, ids.get(line.name or "", []), strict=False):
            if run_id is not None:
                event.stats.append(Stat(RUN_ID, uint64(run_id)))
    return plane


class Launching(unittest.TestCase):
    def launching(self, *threads: Calls, **ids: list[int | None]) -> list[tuple[str, bool]]:
        """Return the thread of each row in the gap, and whether it launches programs."""
        found = result_of(device(), give_run_ids(host(*threads), dict(ids)))
        (gap,) = (row for row in found["gaps"] if row["dur_ps"] == 100)
        return [(row["thread"], row["is_launching"]) for row in gap["host"]]

    def test_thread_that_launched_the_programs_around_the_gap_comes_first(self) -> None:
        writer = "writer", [("write", 100, 190)]
        caller = "caller", [("launch", -20, -10), ("launch", 150, 160)]
        self.assertEqual(
            self.launching(writer, caller, caller=[7, 8]), [("caller", True), ("writer", False)]
        )
        # A thread that launched only one of the two programs is not a launching thread.
        one_of_two: list[list[int | None]] = [[7, None], [None, 8], [7, 9]]
        for ids in one_of_two:
            self.assertEqual(
                self.launching(writer, caller, caller=ids), [("writer", False), ("caller", False)]
            )

    def test_thread_that_handles_completion_is_not_a_launching_thread(self) -> None:
        threads: list[Calls] = [
            ("done", [("Done", 101, 110), ("Done", 301, 310)]),
            ("writer", [("write", 100, 190)]),
        ]
        rows = self.launching(*threads, done=[7, 8])
        self.assertEqual(rows, [("writer", False), ("done", False)])

    def test_event_names_identify_launching_threads_if_there_are_no_run_ids(self) -> None:
        writer = "writer", [("write", 100, 190)]
        threads: list[Calls] = [
            # An event outside of the gap can also identify a launching thread.
            ("jax", [("PjitFunction(f)", -20, -10), ("x", 150, 152)]),
            ("helper", [("Tpu::ExecuteHelperOnSingleDevice", 150, 153)]),
            ("executor", [("ExecuteReplicated", 150, 154)]),
            ("other", [("Tpu::Execute", 150, 155)]),
        ]
        for i, first in enumerate(("jax", "helper", "executor")):
            with self.subTest(first=first):
                rows = self.launching(writer, *threads[i:])
                self.assertEqual(rows[:2], [(first, True), ("writer", False)])
                self.assertEqual([name for name, launches in rows if launches], [first])
        self.assertEqual(self.launching(writer, threads[3])[0], ("writer", False))

    def test_launching_threads_leave_half_of_the_rows_to_other_threads(self) -> None:
        calls = [(f"PjitFunction({i})", 100 + 5 * i, 105 + 5 * i) for i in range(10)]
        others = [
            ("others", [(f"o{i}", 100 + 2 * i, 102 + 2 * i) for i in range(n)]) for n in (9, 2)
        ]
        for other, n_launching in zip(others, (4, 6), strict=True):
            rows = self.launching(("caller", calls), other)
            self.assertEqual([launches for _, launches in rows].count(True), n_launching)
            self.assertEqual(len(rows), 8)


class Period(unittest.TestCase):
    STEPS = (("0", 0, 100), ("1", 150, 100), ("2", 320, 100))

    def rows(self, step: int) -> list[tuple[str, int, int | None]]:
        """Return the host events in the idle second half of a step."""
        plane = tpu_plane([leaf(start, 50) for _, start, _ in self.STEPS], self.STEPS)
        calls = [("feed", 60, 140), ("log", 80, 90), ("feed", 180, 300), ("feed", 330, 400)]
        found = result_of(plane, host(("t", calls)), options=["--step", str(step)])
        rows = found["gaps"][0]["host"]
        return [(row["event"], row["dur_ps"], row["in_period_ps"]) for row in rows]

    def test_period_of_a_step_ends_where_the_next_step_begins(self) -> None:
        self.assertEqual(self.rows(0), [("feed", 30, 70), ("log", 10, 10)])
        self.assertEqual(self.rows(1), [("feed", 50, 120)])

    def test_period_of_the_last_step_begins_where_the_preceding_step_ends(self) -> None:
        self.assertEqual(self.rows(2), [("feed", 30, 120)])

    def test_capture_reports_the_time_outside_of_steps(self) -> None:
        plane = tpu_plane([leaf(0, 50)], self.STEPS)
        whole = {"n_steps": 3, "dur_ps": 420, "in_no_step_ps": 120, "in_no_step_pct": 28.571}
        self.assertEqual(result_of(plane)["capture"], whole)
