"""Test the mode `idle`: causes of idle time, the longest gaps, and host events during gaps."""

from __future__ import annotations

import unittest
from typing import Any

from tests.builders.drawn import Calls, Drawn, device, drawn_line, host, result_of
from tests.builders.xspace import Plane, Space, Stat, encode, uint64
from tests.harness import PROFILES, answer

US = 10**6
CAUSES = ("barrier", "dependency", "in_container", "between_programs", "in_program")


class Causes(unittest.TestCase):
    def assert_causes(self, plane: Plane, **expected: int) -> None:
        found = result_of(plane)
        self.assertEqual(found["idle_by_cause"], dict.fromkeys(CAUSES, 0) | expected)
        self.assertEqual(sum(expected.values()), found["totals"]["idle_duration_ps"])
        self.assertEqual(list(found["idle_by_cause"]), list(CAUSES))

    def test_each_moment_is_assigned_to_the_first_matching_cause(self) -> None:
        plane = device(
            [("f", 0, 10), ("while", 10, 60), ("f", 90, 100)],
            (0, 100),
            modules=[("m", 0, 70)],
            # The event names identify the kinds of waits.
            waits=[
                *(("barrier-cores", 15, 20), ("dependency-wait", 10, 30)),
                *(("dependency-wait", 65, 75), ("something", 80, 85)),
            ],
        )
        self.assert_causes(
            plane, barrier=5, dependency=25, in_container=30, between_programs=15, in_program=5
        )

    def test_cause_between_programs_requires_executions_of_programs(self) -> None:
        self.assert_causes(device([("f", 0, 10)], (0, 100)), in_program=90)
        aside = device([("f", 0, 10)], (0, 100), modules=[("m", 500, 600)])
        self.assert_causes(aside, between_programs=90)

    def test_overlapping_waits_count_once_and_only_inside_the_step(self) -> None:
        waits = [("barrier-cores", 0, 30), ("barrier-cores", 20, 40), ("barrier-cores", 95, 300)]
        plane = device([("f", 25, 35)], (10, 100), [("m", 0, 200)], waits)
        self.assert_causes(plane, barrier=25, in_program=55)

    def test_wait_without_device_times_is_shifted_like_the_nearest_op(self) -> None:
        # The first op starts 1000 ps later on the device clock than on the trace clock, and the
        # second op 1050 ps later.
        ops: list[Drawn] = [("f", 10, 20, 1010, 10), ("f", 60, 70, 1110, 10)]
        for wait, barrier in (
            # The first wait is near the end of the first op, the second near the start of the
            # second op.
            ((22, 30), (1022, 1030)),
            ((50, 60), (1100, 1110)),
            # The start and the end of a wait can be shifted differently. The time 40 is equally
            # near to both ops and is shifted like the second.
            ((25, 50), (1025, 1100)),
            ((40, 41), (1090, 1091)),
            ((39, 40), (1039, 1090)),
        ):
            with self.subTest(wait=wait):
                plane = device(ops, (0, 80), waits=[("barrier-cores", *wait)])
                gap = next(g for g in result_of(plane)["gaps"] if g["start_ps"] == 1020)
                self.assertEqual(gap["cause"]["barrier"], barrier[1] - barrier[0])

    def test_wait_at_an_edge_of_the_step_is_shifted_with_the_edge(self) -> None:
        # On the device clock, the step starts 980 ps later and ends 1010 ps later than on the trace
        # clock, while both ops start 1000 ps later.
        for wait, barrier in (((0, 5), 25), ((75, 80), 15), ((0, 80), 90)):
            plane = device(
                [("f", 10, 20, 1010, 10), ("f", 60, 70, 1060, 10)],
                (0, 80),
                waits=[("barrier-cores", *wait)],
            )
            (steps,) = (line for line in plane.lines if line.name == "Steps")
            steps.events[0].stats = [Stat(901, uint64(980)), Stat(902, uint64(110))]
            self.assertEqual(result_of(plane)["idle_by_cause"]["barrier"], barrier, wait)

    def test_whole_capture_contains_waits_before_the_first_op_and_after_the_last(self) -> None:
        waits = [("barrier-cores", 5, 25), ("barrier-cores", 60, 75)]
        for op_, first in ((("f", 30, 50), 0), (("f", 30, 50, 1030, 20), 1000)):
            plane = device([op_], (0, 80), waits=waits)
            found = result_of(plane, options=["--step", "all"])
            self.assertEqual(found["step_window_ps"], [first, first + 80])
            self.assertEqual(found["idle_by_cause"], result_of(plane)["idle_by_cause"])
            self.assertEqual(found["idle_by_cause"]["barrier"], 35)
        # Use the times of the core if it measured the step.
        plane = device([("f", 30, 50, 1030, 20)], (0, 80), waits=waits)
        (steps,) = (line for line in plane.lines if line.name == "Steps")
        steps.events[0].stats = [Stat(901, uint64(980)), Stat(902, uint64(110))]
        found = result_of(plane, options=["--step", "all"])
        self.assertEqual(found["step_window_ps"], [980, 1090])
        # An op outside the steps belongs to the capture, too.
        plane = device([("f", 30, 50), ("f", 90, 95)], (0, 80))
        found = result_of(plane, options=["--step", "all"])
        self.assertEqual(found["step_window_ps"], [0, 95])

    def test_wait_with_device_times_is_placed_on_the_device_clock(self) -> None:
        plane = device(
            [("f", 10, 20, 1010, 10), ("f", 60, 70, 1110, 10)],
            (0, 80),
            waits=[("barrier-cores", 10, 20, 1030, 7)],
        )
        self.assertEqual(result_of(plane)["idle_by_cause"]["barrier"], 7)


class Gaps(unittest.TestCase):
    def test_longest_gaps_have_neighbours_cause_and_window(self) -> None:
        plane = device(
            [("a", 5, 10), ("while.1", 12, 40), ("b", 20, 30), ("c", 50, 60)],
            (0, 100),
            [("m", 0, 60)],
        )
        rows = result_of(plane, host())["gaps"]
        self.assertEqual(
            [(row["start_ps"], row["dur_ps"], row["inside"]) for row in rows],
            [(60, 40, None), (30, 20, "while.1"), (10, 10, None), (0, 5, None)],
        )
        self.assertEqual(rows[0]["cause"], {"between_programs": 40})
        self.assertEqual(rows[1]["cause"], {"in_container": 10, "in_program": 10})
        self.assertTrue(rows[1]["after_hlo_op"].startswith("%b = "))
        self.assertTrue(rows[1]["before_hlo_op"].startswith("%c = "))
        self.assertIsNone(rows[0]["before_hlo_op"])
        self.assertEqual(rows[0]["pct_of_step"], 40.0)
        self.assertEqual(result_of(plane, host(), options=["--top", "1"])["gaps"], rows[:1])
        self.assertEqual(result_of(plane, host(), options=["--top", "0"])["gaps"], [])

    def test_neighbour_of_a_gap_is_the_adjacent_op_that_starts_first(self) -> None:
        ops: list[Drawn] = [("late", 5, 10), ("first", 2, 10), ("x", 20, 22), ("y", 20, 30)]
        row = result_of(device(ops, (0, 30)))["gaps"][0]
        self.assertTrue(row["after_hlo_op"].startswith("%first = "))
        self.assertTrue(row["before_hlo_op"].startswith("%x = "))


def row_of(thread: str, event: str, dur: int, *within: str, still: bool = False) -> dict[str, Any]:
    return {
        "thread": thread,
        "event": event,
        "is_launching": False,
        "dur_ps": dur,
        "in_period_ps": None,
        "still": still,
        "within": list(within),
    }


class HostRows(unittest.TestCase):
    def rows(self, *threads: Calls, gap: tuple[int, int] = (100, 200)) -> list[dict[str, Any]]:
        """Return the rows of host activity in the only gap of a step."""
        plane = device([("f", 0, gap[0]), ("f", gap[1], 300)], (0, 300))
        (row,) = result_of(plane, host(*threads))["gaps"]
        rows: list[dict[str, Any]] = row["host"]
        return rows

    def test_time_counts_for_the_innermost_event_and_enclosing_events_are_listed(self) -> None:
        calls = [("main", 0, 400), ("step", 90, 190), ("wait", 120, 150), ("wait", 160, 165)]
        self.assertEqual(
            self.rows(("t", calls)),
            [
                row_of("t", "step", 55, "main"),
                row_of("t", "wait", 35, "step", "main"),
                row_of("t", "main", 10),
            ],
        )

    def test_innermost_of_events_that_begin_together_ends_first_or_is_last_in_file(self) -> None:
        calls = [("in", 110, 120), ("out", 110, 150), ("twin", 160, 170), ("last twin", 160, 170)]
        self.assertEqual(
            self.rows(("t", calls)),
            [
                row_of("t", "out", 30),
                row_of("t", "in", 10, "out"),
                row_of("t", "last twin", 10, "twin"),
            ],
        )

    def test_overlap_of_events_counts_for_the_event_that_begins_last(self) -> None:
        # An event encloses another one only if it contains all of it.
        calls = [("a", 100, 150), ("b", 110, 170), ("c", 120, 130), ("d", 160, 200)]
        self.assertEqual(
            self.rows(("t", calls)),
            [
                row_of("t", "b", 40),
                row_of("t", "d", 40),
                row_of("t", "a", 10),
                row_of("t", "c", 10, "b", "a"),
            ],
        )

    def test_thread_whose_events_neither_begin_nor_end_in_the_gap_is_ranked_last(self) -> None:
        for calls, is_still in (
            ([("w", 0, 400)], True),
            # Events that begin or end exactly at an edge of the gap do not count.
            ([("w", 100, 200)], True),
            ([("w", 0, 400), ("x", 50, 100), ("x", 200, 220)], True),
            ([("w", 0, 400), ("instant", 150, 150)], False),
            ([("w", 0, 400), ("instant", 100, 100)], True),
            ([("w", 101, 400)], False),
            ([("w", 0, 199)], False),
            # The outer event ends in the gap.
            ([("x", 0, 150), ("w", 50, 250)], False),
        ):
            with self.subTest(calls=calls):
                first, second = self.rows(("t", calls), ("busy", [("b", 150, 151)]))
                ranked = [("b", False), ("w", True)] if is_still else [("w", False), ("b", False)]
                self.assertEqual([(row["event"], row["still"]) for row in (first, second)], ranked)
        # Events of a second thread with the same name count, too.
        rows = self.rows(("t", [("w", 0, 400)]), ("t", [("b", 150, 151)]))
        self.assertEqual([row["still"] for row in rows], [False, False])

    def test_up_to_eight_rows_are_listed_by_time_event_and_thread(self) -> None:
        threads: list[Calls] = [
            (f"t{i}", [("a", 100, 150 + i), ("c", 160, 170), ("b", 180, 190)]) for i in range(4)
        ]
        self.assertEqual(
            [(row["thread"], row["event"], row["dur_ps"]) for row in self.rows(*threads)],
            [
                *[(f"t{i}", "a", 50 + i) for i in (3, 2, 1, 0)],
                *[(f"t{i}", "b", 10) for i in range(4)],
            ],
        )


class Unknown(unittest.TestCase):
    DEVICE = device([("f", 0, 10)], (0, 100))

    def assert_unknown(self, data: bytes, note: str) -> None:
        found = answer(data, "idle")
        self.assertEqual((found["gaps"][0]["host"], found["host_events"]), (None, None))
        self.assertEqual(found["idle_by_cause"]["in_program"], 90)
        self.assertEqual([line for line in found["notes"] if note in line], found["notes"][:1])

    def test_host_activity_is_null_if_host_and_device_times_do_not_overlap(self) -> None:
        # This host's clock counts from the epoch, so its events are long after the ops.
        later = drawn_line("t", [("x", 100, 200)], much_later := Plane("/host:CPU"))
        later.timestamp_ns = 1_700_000_000 * 10**9
        much_later.lines.append(later)
        for plane in (host(), host(("t", [])), host(("t", [("x", 100, 200)])), much_later):
            self.assert_unknown(encode(Space([self.DEVICE, plane])), "do not overlap")


class Captures(unittest.TestCase):
    """Test real captures, which are not part of the repository."""

    def result(self, name: str, *options: str) -> dict[str, Any]:
        path = PROFILES / f"{name}.xplane.pb"
        if not path.exists():
            self.skipTest("the capture is not available")
        return answer(path, "idle", *options)

    def test_thread_that_calls_programs_comes_first(self) -> None:
        for name, *threads in (
            ("v6e-host-offload", "main/3116817"),
            ("v6e-pallas-kernel", "python"),
            ("vllm-bf16", "VLLM::EngineCor", "tfrt-non-blocking-queue/22267"),
        ):
            for gap in self.result(name, "--step", "all", "--top", "2")["gaps"]:
                first = gap["host"][0]
                self.assertTrue(first["is_launching"])
                self.assertIn(first["thread"], threads)
