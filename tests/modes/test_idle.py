"""Why nothing runs: causes of idle time, the longest gaps, and what the host does in them."""

from __future__ import annotations

import subprocess
import sys
import unittest
from collections.abc import Sequence
from typing import Any
from unittest import mock

from _pipeline import host as host_module
from _pipeline.clocks import Piece
from _pipeline.host import changes_of
from _proto.trace.trace import Trace
from tests import naive
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    Stat,
    StatMetadata,
    bytes_field,
    encode,
    int_field,
    op,
    string,
    text_field,
    tpu_plane,
    uint64,
)
from tests.harness import (
    MODES_OF_TRACE,
    PROFILES,
    SCRIPT,
    InFolder,
    answer,
    run,
    sampled,
)
from tests.modes.small_steps import leaf
from tests.naive.test_against_naive import comparable, differences
from tests.proto.test_large import LINUX_ONLY, PEAK_OF

# From when to when, and what; on the device's clock too, if there are two more.
Drawn = tuple[str, int, int] | tuple[str, int, int, int, int]
# A thread, and its events.
Calls = tuple[str, Sequence[tuple[str, int, int]]]
US = 10**6
CAUSES = ("barrier", "dependency", "in_container", "between_programs", "in_program")


def drawn_line(name: str, drawn: Sequence[Drawn], plane: Plane) -> Line:
    """A line of these events; what they are called goes to the plane's metadata."""
    line = Line(name)
    for text, start, end, *measured in drawn:
        number = 1 + len(plane.event_metadata)
        plane.event_metadata.append(EventMetadata(number, text))
        stats = [Stat(901 + i, uint64(time)) for i, time in enumerate(measured)]
        line.events.append(Event(number, start, end - start, stats=stats))
    return line


def device(
    ops: Sequence[Drawn],
    window: tuple[int, int],
    modules: Sequence[Drawn] = (),
    waits: Sequence[Drawn] = (),
) -> Plane:
    """A device that runs `ops` in one step; what begins with `while` is a loop."""
    plane = tpu_plane(
        [
            op(name, "while" if name.startswith("while") else "loop fusion", start, end - start)
            for name, start, end, *_ in ops
        ],
        [("s", window[0], window[1] - window[0])],
    )
    plane.stat_metadata += [
        StatMetadata(901, "device_offset_ps"),
        StatMetadata(902, "device_duration_ps"),
    ]
    (events,) = (line.events for line in plane.lines if line.name == "XLA Ops")
    for event, (_, _, _, *measured) in zip(events, ops, strict=True):
        event.stats = [Stat(901 + i, uint64(time)) for i, time in enumerate(measured)]
    plane.lines.append(drawn_line("XLA Modules", modules, plane))
    plane.lines.append(drawn_line("XLA TraceMe", waits, plane))
    return plane


def host(*threads: Calls, timestamp_ns: int | None = None) -> Plane:
    plane = Plane("/host:CPU")
    for name, calls in threads:
        plane.lines.append(drawn_line(name, calls, plane))
        plane.lines[-1].timestamp_ns = timestamp_ns
    if timestamp_ns:
        for line in plane.lines:
            for event in line.events:
                event.offset_ps = (event.offset_ps or 0) - timestamp_ns * 1000
    return plane


def said(*planes: Plane, options: Sequence[str] = (), mode: str = "idle") -> dict[str, Any]:
    return answer(encode(Space(list(planes))), mode, *options)


class Causes(unittest.TestCase):
    def assert_causes(self, plane: Plane, **expected: int) -> None:
        for mode in ("idle", "bottleneck"):
            found = said(plane, mode=mode)
            self.assertEqual(found["idle_by_cause"], dict.fromkeys(CAUSES, 0) | expected)
            self.assertEqual(sum(expected.values()), found["totals"]["idle_duration_ps"])
        self.assertEqual(list(found["idle_by_cause"]), list(CAUSES))

    def test_each_moment_counts_under_the_first_that_holds(self) -> None:
        plane = device(
            [("f", 0, 10), ("while", 10, 60), ("f", 90, 100)],
            (0, 100),
            modules=[("m", 0, 70)],
            # The other core's; its name is all that tells a wait.
            waits=[
                *(("barrier-cores", 15, 20), ("dependency-wait", 10, 30)),
                *(("dependency-wait", 65, 75), ("something", 80, 85)),
            ],
        )
        self.assert_causes(
            plane, barrier=5, dependency=25, in_container=30, between_programs=15, in_program=5
        )

    def test_without_executions_of_programs_nothing_is_between_them(self) -> None:
        self.assert_causes(device([("f", 0, 10)], (0, 100)), in_program=90)
        aside = device([("f", 0, 10)], (0, 100), modules=[("m", 500, 600)])
        self.assert_causes(aside, between_programs=90)

    def test_what_overlaps_counts_once_and_what_reaches_out_is_cut(self) -> None:
        waits = [("barrier-cores", 0, 30), ("barrier-cores", 20, 40), ("barrier-cores", 95, 300)]
        plane = device([("f", 25, 35)], (10, 100), [("m", 0, 200)], waits)
        self.assert_causes(plane, barrier=25, in_program=55)

    def test_a_busy_step_has_none(self) -> None:
        self.assert_causes(device([("f", 0, 100)], (0, 100), waits=[("barrier-cores", 0, 9)]))

    def test_an_unmeasured_wait_moves_with_the_op_that_is_nearest(self) -> None:
        # By the device the first op is 1000 later, the second 1050.
        ops: list[Drawn] = [("f", 10, 20, 1010, 10), ("f", 60, 70, 1110, 10)]
        for wait, barrier in (
            # Near the end of the first; near the start of the second.
            ((22, 30), (1022, 1030)),
            ((50, 60), (1100, 1110)),
            # Its ends move apart; 40 is as far from either, and moves with the later.
            ((25, 50), (1025, 1100)),
            ((40, 41), (1090, 1091)),
            ((39, 40), (1039, 1090)),
        ):
            with self.subTest(wait=wait):
                plane = device(ops, (0, 80), waits=[("barrier-cores", *wait)])
                gap = next(g for g in said(plane)["gaps"] if g["start_ps"] == 1020)
                self.assertEqual(gap["cause"]["barrier"], barrier[1] - barrier[0])

    def test_it_never_ends_before_it_starts(self) -> None:
        ops: list[Drawn] = [("f", 10, 20, 1010, 10), ("f", 60, 70, 1025, 10)]
        plane = device(ops, (0, 80), waits=[("barrier-cores", 39, 41)])
        self.assertEqual(said(plane)["idle_by_cause"]["barrier"], 0)

    def test_one_that_begins_or_ends_with_the_step_moves_with_that_edge(self) -> None:
        # The step itself was measured, otherwise than its ops tell.
        for wait, barrier in (((0, 5), 25), ((75, 80), 15), ((0, 80), 90)):
            plane = device(
                [("f", 10, 20, 1010, 10), ("f", 60, 70, 1060, 10)],
                (0, 80),
                waits=[("barrier-cores", *wait)],
            )
            (steps,) = (line for line in plane.lines if line.name == "Steps")
            steps.events[0].stats = [Stat(901, uint64(980)), Stat(902, uint64(110))]
            self.assertEqual(said(plane)["idle_by_cause"]["barrier"], barrier, wait)

    def test_a_measured_wait_lies_where_the_core_says(self) -> None:
        plane = device(
            [("f", 10, 20, 1010, 10), ("f", 60, 70, 1110, 10)],
            (0, 80),
            waits=[("barrier-cores", 10, 20, 1030, 7)],
        )
        self.assertEqual(said(plane)["idle_by_cause"]["barrier"], 7)

    def test_where_no_op_was_measured_a_wait_that_was_lies_as_it_is_drawn(self) -> None:
        plane = device([("f", 10, 20)], (0, 80), waits=[("barrier-cores", 30, 35, 1030, 7)])
        self.assertEqual(said(plane)["idle_by_cause"]["barrier"], 5)


class Gaps(unittest.TestCase):
    def test_the_longest_with_what_stands_around_them(self) -> None:
        plane = device(
            [("a", 5, 10), ("while.1", 12, 40), ("b", 20, 30), ("c", 50, 60)],
            (0, 100),
            [("m", 0, 60)],
        )
        rows = said(plane, host())["gaps"]
        self.assertEqual(
            [(row["start_ps"], row["dur_ps"], row["inside"]) for row in rows],
            [(60, 40, None), (30, 20, "while.1"), (10, 10, None), (0, 5, None)],
        )
        self.assertEqual(rows[0]["cause"], {"between_programs": 40})
        self.assertEqual(rows[1]["cause"], {"in_container": 10, "in_program": 10})
        self.assertEqual([row["trace_window_ps"] for row in rows[:2]], [[60, 100], [30, 50]])
        self.assertTrue(rows[1]["after_hlo_op"].startswith("%b = "))
        self.assertTrue(rows[1]["before_hlo_op"].startswith("%c = "))
        self.assertIsNone(rows[0]["before_hlo_op"])
        self.assertEqual(rows[0]["pct_of_step"], 40.0)
        self.assertEqual(said(plane, host(), options=["--top", "1"])["gaps"], rows[:1])
        self.assertEqual(said(plane, host(), options=["--top", "0"])["gaps"], [])

    def test_ten_unless_told_otherwise(self) -> None:
        plane = device([("f", 10 * i, 10 * i + 5) for i in range(12)], (0, 120))
        self.assertEqual(len(said(plane)["gaps"]), 10)
        self.assertEqual(len(said(plane, options=["--top", "50"])["gaps"]), 12)

    def test_of_neighbours_the_first_to_begin(self) -> None:
        ops: list[Drawn] = [("late", 5, 10), ("first", 2, 10), ("x", 20, 22), ("y", 20, 30)]
        row = said(device(ops, (0, 30)))["gaps"][0]
        self.assertTrue(row["after_hlo_op"].startswith("%first = "))
        self.assertTrue(row["before_hlo_op"].startswith("%x = "))

    def test_the_window_is_that_of_the_trace_which_may_be_empty(self) -> None:
        ops: list[Drawn] = [("a", 0, 10, 1000, 10), ("b", 10, 20, 1050, 10), ("c", 25, 30, 1065, 5)]
        rows = said(device(ops, (0, 30)), host(("t", [("e", 0, 30)])))["gaps"]
        self.assertEqual(
            [(row["dur_ps"], row["trace_window_ps"], row["host"]) for row in rows],
            [
                (40, None, None),
                (5, [20, 25], [row_of("t", "e", 5, still=True)]),
            ],
        )

    def test_absolute_times_that_json_would_round_are_texts(self) -> None:
        for timestamp_ns, window in (
            (9_007_199_254_740, [9_007_199_254_740_010, "9007199254740993"]),
            (10**18, ["1000000000000000000010", "1000000000000000000993"]),
        ):
            plane = device([("f", 0, 10)], (0, 993))
            for line in plane.lines:
                line.timestamp_ns = timestamp_ns
            self.assertEqual(said(plane)["gaps"][0]["trace_window_ps"], window)


def row_of(thread: str, event: str, dur: int, *within: str, still: bool = False) -> dict[str, Any]:
    return {
        "thread": thread,
        "event": event,
        "dur_ps": dur,
        "still": still,
        "within": list(within),
    }


class HostRows(unittest.TestCase):
    def rows(self, *threads: Calls, gap: tuple[int, int] = (100, 200)) -> list[dict[str, Any]]:
        """What the host did in the one gap of a step."""
        plane = device([("f", 0, gap[0]), ("f", gap[1], 300)], (0, 300))
        (row,) = said(plane, host(*threads))["gaps"]
        rows: list[dict[str, Any]] = row["host"]
        return rows

    def test_the_innermost_counts_and_those_around_it_are_named(self) -> None:
        calls = [("main", 0, 400), ("step", 90, 190), ("wait", 120, 150), ("wait", 160, 165)]
        self.assertEqual(
            self.rows(("t", calls)),
            [
                row_of("t", "step", 55, "main"),
                row_of("t", "wait", 35, "step", "main"),
                row_of("t", "main", 10),
            ],
        )

    def test_of_equal_begins_the_first_to_end_and_of_equal_events_the_last(self) -> None:
        calls = [("in", 110, 120), ("out", 110, 150), ("twin", 160, 170), ("last twin", 160, 170)]
        self.assertEqual(
            self.rows(("t", calls)),
            [
                row_of("t", "out", 30),
                row_of("t", "in", 10, "out"),
                row_of("t", "last twin", 10, "twin"),
            ],
        )

    def test_events_that_overlap_against_the_rules(self) -> None:
        # The one that began last; and only what really is around an event encloses it.
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

    def test_the_order_in_the_file_does_not_matter(self) -> None:
        calls = [("wait", 120, 150), ("main", 0, 400), ("step", 90, 190)]
        self.assertEqual(self.rows(("t", calls)), self.rows(("t", calls[::-1])))

    def test_threads_of_one_name_are_one(self) -> None:
        threads: list[Calls] = [
            ("pool", [("x", 110, 120), ("y", 120, 130)]),
            ("main", [("x", 150, 155)]),
            ("pool", [("x", 115, 135)]),
        ]
        self.assertEqual(
            self.rows(*threads),
            [row_of("pool", "x", 30), row_of("pool", "y", 10), row_of("main", "x", 5)],
        )

    def test_threads_without_a_name_go_by_their_ids(self) -> None:
        lines: list[tuple[str, int | None, int]] = [
            *(("", 7, 110), ("", -9, 120), ("pool", 1, 130), ("pool", 2, 140), ("", 7, 150)),
            *(("7", 3, 160), ("", None, 170)),
        ]
        plane = host(*((name, [("x", start, start + 5)]) for name, _, start in lines))
        for line, (_, line_id, _) in zip(plane.lines, lines, strict=True):
            line.id = line_id
        found = said(device([("f", 0, 100), ("f", 200, 300)], (0, 300)), plane)
        self.assertEqual(
            [(row["thread"], row["dur_ps"]) for row in found["gaps"][0]["host"]],
            # Two of seven lines are named pool, and two without a name have one id.
            [("7", 10), ("pool", 10), ("-9", 5), ("0", 5), ("7", 5)],
        )

    def test_nameless_threads_are_counted_apart(self) -> None:
        plane = host(("", [("x", 110, 120)]), ("", [("x", 110, 120)]))
        plane.lines[0].id, plane.lines[1].id = 1, 2**63 - 1
        gap = 2 * US
        found = said(device([("f", 0, 100), ("f", 100 + gap, 200 + gap)], (0, 200 + gap)), plane)
        self.assertEqual(found["host_events"], [{"event": "x", "dur_ps": 10, "n_threads": 2}])

    def test_still_is_who_stays_in_one_event_and_comes_behind(self) -> None:
        for calls, is_still in (
            ([("w", 0, 400)], True),
            # What begins or ends at its edges does nothing within.
            ([("w", 100, 200)], True),
            ([("w", 0, 400), ("x", 50, 100), ("x", 200, 220)], True),
            ([("w", 0, 400), ("instant", 150, 150)], False),
            ([("w", 0, 400), ("instant", 100, 100)], True),
            ([("w", 101, 400)], False),
            ([("w", 0, 199)], False),
            # It ends unseen, but it ends.
            ([("x", 0, 150), ("w", 50, 250)], False),
        ):
            with self.subTest(calls=calls):
                first, second = self.rows(("t", calls), ("busy", [("b", 150, 151)]))
                ranked = [("b", False), ("w", True)] if is_still else [("w", False), ("b", False)]
                self.assertEqual([(row["event"], row["still"]) for row in (first, second)], ranked)
        # Another thread of its name that changes makes it none.
        rows = self.rows(("t", [("w", 0, 400)]), ("t", [("b", 150, 151)]))
        self.assertEqual([row["still"] for row in rows], [False, False])

    def test_eight_rows_ties_by_event_then_thread(self) -> None:
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

    def test_at_most_eight_around_it_where_it_is_longest(self) -> None:
        deep = [(f"f{i}", 50 + i, 250 - i) for i in range(12)]
        calls = [*deep, ("poll", 105, 110), ("once", 112, 140), ("poll", 115, 135)]
        rows = self.rows(("t", calls))
        (poll,) = (row for row in rows if row["event"] == "poll")
        self.assertEqual(
            poll, row_of("t", "poll", 25, "once", *[f"f{i}" for i in range(11, 4, -1)])
        )

    def test_lines_may_count_from_other_times(self) -> None:
        plane = device([("f", 0, 5000), ("f", 9000, 9100)], (0, 9100))
        threads = "t", [("w", 6000, 7000)]
        for timestamp_ns in (None, 1, 6):
            row = said(plane, host(threads, timestamp_ns=timestamp_ns))["gaps"][0]
            self.assertEqual(row["host"], [row_of("t", "w", 1000)])

    def test_events_without_a_name_or_a_time_are_none(self) -> None:
        plane = host(("t", [("w", 110, 160), ("x", 120, 130)]))
        (line,) = plane.lines
        line.events += [
            Event(99, 140, 10),
            Event(2, 140, -10),
            Event(2, None, 10, num_occurrences=3),
            Event(1, 0, 5, stats=[Stat(5, string("as some events have"))]),
        ]
        rows = said(device([("f", 0, 100), ("f", 200, 300)], (0, 300)), plane)["gaps"][0]["host"]
        self.assertEqual(rows, [row_of("t", "w", 40), row_of("t", "x", 10, "w")])


class HostEvents(unittest.TestCase):
    def events(self, *threads: Calls, gap: int = US) -> list[tuple[str, int, int]]:
        """In two gaps of that length, the second of which ends with the step."""
        ops: list[Drawn] = [("f", 0, US), ("f", US + gap, 3 * US)]
        rows = said(device(ops, (0, 3 * US + gap)), host(*threads))["host_events"]
        return [(row["event"], row["dur_ps"], row["n_threads"]) for row in rows]

    def test_time_in_which_any_thread_was_at_it(self) -> None:
        self.assertEqual(
            self.events(
                ("a", [("load", US + 10, US + 60), ("x", US + 100, US + 101)]),
                ("b", [("load", US + 50, US + 90), ("load", 3 * US + 5, 3 * US + 10)]),
                # Threads of one name are one.
                ("b", [("load", US + 200, US + 201), ("y", 0, 5)]),
            ),
            [("load", 86, 2), ("x", 1, 1)],
        )

    def test_who_is_still_in_a_gap_does_not_count_there(self) -> None:
        calls = [("wait", 0, 3 * US + 40), ("x", 3 * US + 40, 3 * US + 50)]
        self.assertEqual(self.events(("t", calls)), [("wait", 40, 1), ("x", 10, 1)])

    def test_shorter_gaps_do_not_count(self) -> None:
        calls = "t", [("x", US + 10, US + 20)]
        self.assertEqual(self.events(calls), [("x", 10, 1)])
        self.assertEqual(self.events(calls, gap=US - 1), [])

    def test_twenty_ties_by_name(self) -> None:
        calls = [(f"e{i:02}", US + 10 * i, US + 10 * i + 5) for i in range(25)][::-1]
        longer = ("z", US + 900, US + 906)
        self.assertEqual(
            self.events(("t", [*calls, longer])),
            [("z", 6, 1), *[(f"e{i:02}", 5, 1) for i in range(19)]],
        )

    def test_of_many_windows_and_few_events_as_of_few_and_many(self) -> None:
        ops = [("f", 4 * US * i, 4 * US * i + US) for i in range(20)]
        calls = [("x", 9 * US, 11 * US), ("y", 11 * US, 13 * US), ("x", 14 * US, 14 * US + 5)]
        rows = said(device(ops, (0, 80 * US)), host(("t", calls)))["host_events"]
        self.assertEqual(
            [(row["event"], row["dur_ps"]) for row in rows], [("x", 2 * US + 5), ("y", US)]
        )


class Unknown(unittest.TestCase):
    DEVICE = device([("f", 0, 10)], (0, 100))

    def assert_unknown(self, data: bytes, note: str) -> None:
        found = answer(data, "idle")
        self.assertEqual((found["gaps"][0]["host"], found["host_events"]), (None, None))
        self.assertEqual(found["idle_by_cause"]["in_program"], 90)
        self.assertEqual([each for each in found["notes"] if note in each], found["notes"][-1:])

    def test_no_plane(self) -> None:
        self.assert_unknown(encode(Space([self.DEVICE])), "there is no plane /host:CPU")

    def test_no_time_in_common(self) -> None:
        # One counts from an epoch, and no op lasts until then.
        later = drawn_line("t", [("x", 100, 200)], much_later := Plane("/host:CPU"))
        later.timestamp_ns = 1_700_000_000 * 10**9
        much_later.lines.append(later)
        for plane in (host(), host(("t", [])), host(("t", [("x", 100, 200)])), much_later):
            self.assert_unknown(encode(Space([self.DEVICE, plane])), "no time in common")

    def test_time_in_common_with_ops_of_other_steps_is_enough(self) -> None:
        # Of all ops: what a host did in this gap is known, it did nothing.
        # Also of one that goes on behind the start of the last, or lies between two.
        plane = tpu_plane([leaf(0, 10), leaf(500, 10)], [("a", 0, 100), ("b", 500, 100)])
        for start, end in ((505, 600), (500, 501), (200, 300)):
            found = said(plane, host(("t", [("x", start, end)])), options=["--step", "0"])
            self.assertEqual((found["gaps"][0]["host"], found["host_events"]), ([], []))

    def test_an_op_that_is_left_out_gives_none(self) -> None:
        plane = tpu_plane([leaf(0, 10), leaf(500, -10)], [("a", 0, 100), ("b", 500, 100)])
        found = said(plane, host(("t", [("x", 300, 400)])), options=["--step", "0"])
        self.assertEqual((found["gaps"][0]["host"], found["host_events"]), (None, None))

    def test_damage(self) -> None:
        intact = encode(Space([self.DEVICE]))
        event = bytes_field(4, int_field(1, 1) + b"\x10")
        for inside in (
            bytes_field(3, text_field(2, "t") + event),
            bytes_field(3, text_field(2, "t") + bytes_field(4, b"\x0a\x01a")),
            bytes_field(5, b"\x12\x7f"),
        ):
            broken = bytes_field(1, text_field(2, "/host:CPU") + inside)
            for data in (intact + broken, broken + intact):
                self.assert_unknown(data, "the host's plane can't be read: byte ")


class OnlyHere(unittest.TestCase):
    def test_no_other_mode_reads_the_host(self) -> None:
        data = encode(Space([device([("f", 0, 10)], (0, 100)), host(("t", [("x", 0, 50)]))]))
        plane = Trace.plane
        for mode in (*MODES_OF_TRACE, "record"):
            names = []

            def noted(trace: Trace, name: str) -> Any:
                names.append(name)  # noqa: B023
                return plane(trace, name)

            with mock.patch.object(Trace, "plane", noted):
                run(data, mode)
            self.assertEqual("/host:CPU" in names, mode == "idle", mode)


def wide_line(name: str, events: Sequence[tuple[int, int, int]]) -> bytes:
    """The bytes of a line of (id, start, duration)."""
    return text_field(2, name) + b"".join(
        bytes_field(4, int_field(1, number) + int_field(2, start) + int_field(3, duration))
        for number, start, duration in events
    )


class Large(InFolder):
    """Whatever a host does, time and memory go by its events."""

    def said_of(self, *lines: bytes, n_ops: int = 50) -> dict[str, Any]:
        """Of a step that is idle every other microsecond."""
        return answer(self.trace(*lines, n_ops=n_ops), "idle")

    def trace(self, *lines: bytes, n_ops: int) -> bytes:
        plane = device(
            [("f", 2 * US * i, 2 * US * i + US) for i in range(n_ops)], (0, 2 * US * n_ops)
        )
        names = Plane("/host:CPU", [], [EventMetadata(i, f"$m.py:{i} f") for i in range(1, 9)])
        beside = encode(names) + b"".join(bytes_field(3, line) for line in lines)
        return encode(Space([plane])) + bytes_field(1, beside)

    def test_a_thousand_deep(self) -> None:
        calls = [(1 + i % 8, US + 100 * i, 2 * US - 200 * i) for i in range(1000)]
        row = self.said_of(wide_line("t", calls))["gaps"][0]["host"][0]
        self.assertEqual((row["event"], len(row["within"])), ("$m.py:8 f", 8))

    def test_threads_by_the_hundred(self) -> None:
        lines = [
            wide_line(f"t{i}", [(1, 2 * US * k + US + i, 100) for k in range(50)])
            for i in range(400)
        ]
        found = self.said_of(*lines)
        self.assertEqual([row["thread"] for row in found["gaps"][0]["host"]][:2], ["t0", "t1"])
        (row,) = found["host_events"]
        self.assertEqual((row["dur_ps"], row["n_threads"]), (50 * 499, 400))

    def test_each_outlasts_the_one_before(self) -> None:
        # A stair of 100 000 events of which a thousand are always under way.
        calls = [(1 + i % 8, 1000 * i, 1_000_000) for i in range(100_000)]
        found = self.said_of(wide_line("t", calls))
        self.assertEqual(sum(row["dur_ps"] for row in found["host_events"]), 50 * US)
        for row in found["gaps"][0]["host"]:
            self.assertEqual(row["within"], [])

    def test_all_at_once_and_in_the_wrong_order(self) -> None:
        calls = [(1 + i % 8, 0, 100 * US - i) for i in range(50_000)][::-1]
        found = self.said_of(wide_line("t", calls))
        self.assertEqual([row["still"] for row in found["gaps"][0]["host"]], [True])
        self.assertEqual(len(found["gaps"][0]["host"][0]["within"]), 8)

    def test_what_reaches_into_no_gap_is_not_kept(self) -> None:
        # Of a hundred calls in each microsecond, and one around all.
        calls = [(2, 0, 100 * US), *((1, 10_000 * i, 10_000) for i in range(10_000))]
        n_kept = []

        def noted(starts: Any, ends: Any) -> Any:
            n_kept.append(len(starts))
            return changes_of(starts, ends)

        with mock.patch.object(host_module, "changes_of", noted):
            row = self.said_of(wide_line("t", calls))["gaps"][0]["host"][0]
        self.assertEqual((row["dur_ps"], row["within"]), (US, ["$m.py:2 f"]))
        self.assertEqual(n_kept[-1], 5_001)

    @LINUX_ONLY
    def test_memory_for_many_events(self) -> None:
        calls = [(1 + i % 8, 500 * i, 900 if i % 2 else 400) for i in range(300_000)]
        peaks = []
        for lines in ([], [wide_line("t", calls)]):
            path = self.write("x.xplane.pb", self.trace(*lines, n_ops=100))
            command = [sys.executable, "-c", PEAK_OF, sys.executable, str(SCRIPT), str(path)]
            done = subprocess.run([*command, "--mode", "idle"], stdout=subprocess.PIPE, check=True)
            peaks.append(int(done.stdout))
        # 64 MiB for a million.
        self.assertLess(peaks[1] - peaks[0], 20 << 20)


class Cost(unittest.TestCase):
    def test_cost_grows_with_gaps_not_with_gaps_times_ops(self) -> None:
        few, many = events_walked(200), events_walked(800)
        self.assertGreater(few, 200)
        self.assertLess(many, 5 * few)


def events_walked(n_ops: int) -> int:
    """Count the events that `idle` walks in so many ops with a gap after each."""
    n_walked = 0
    on_trace = Piece.on_trace

    def counted(piece: Piece) -> tuple[list[int], list[int]]:
        nonlocal n_walked
        n_walked += len(piece.starts)
        return on_trace(piece)

    ops = [leaf(3 * US * i, US) for i in range(n_ops)]
    with mock.patch.object(Piece, "on_trace", counted):
        answer(encode(Space([tpu_plane(ops), Plane("/host:CPU")])), "idle", "--step", "all")
    return n_walked


class Captures(unittest.TestCase):
    """Real ones, which aren't part of the repository; looked at where they lie beside it."""

    def said(self, name: str, *options: str) -> dict[str, Any]:
        path = PROFILES / f"{name}.xplane.pb"
        if not path.exists():
            self.skipTest("the capture isn't here")
        return answer(path, "idle", *options)

    def test_a_core_waits_for_the_others(self) -> None:
        found = self.said("v6e-host-offload", "--device", "/device:TPU:2", "--step", "0")
        self.assertEqual(found["totals"]["idle_duration_ps"], 340_977_878_750)
        self.assertEqual(found["idle_by_cause"]["barrier"], 340_977_877_344)
        self.assertEqual(found["idle_by_cause"]["in_program"], 1328)

    def test_causes_add_up_in_every_step(self) -> None:
        devices = {
            "v6e-host-offload": 4,
            "vllm-bf16": 2,
            "vllm-fp4-tuned": 2,
            "tpu7x-dense-train": 2,
        }
        cases = [
            (name, number, step)
            for name, n in devices.items()
            for number in range(n)
            for step in ("all", "0", "1", "-1")
        ]
        for name, number, step in sampled(cases, 3):
            found = self.said(name, "--device", str(number), "--step", step, "--top", "0")
            total = sum(found["idle_by_cause"].values())
            self.assertEqual(total, found["totals"]["idle_duration_ps"], (name, number, step))

    def test_five_seconds_in_which_the_host_launches_and_moves(self) -> None:
        found = self.said("v6e-host-offload", "--step", "all", "--top", "1")
        (gap,) = found["gaps"]
        self.assertEqual(gap["dur_ps"], 5_547_053_171_250)
        self.assertEqual(gap["host"][0]["event"], "TfrtTpuLoadedExecutable::Execute")
        self.assertIn("PjitFunction(f)", gap["host"][0]["within"])
        self.assertEqual(found["host_events"][0]["event"], "MapDmaBuffer")

    def test_the_python_lines_between_programs_of_a_request(self) -> None:
        found = self.said("vllm-bf16", "--step", "all", "--top", "3")
        for gap in found["gaps"]:
            self.assertGreater(gap["cause"]["between_programs"], 3_000_000)
            (engine,) = (row for row in gap["host"] if row["thread"] == "VLLM::EngineCor")
            self.assertEqual((engine["event"], engine["still"]), ("$array.py:635 _value", True))
            self.assertEqual(engine["within"][-1], "$tpu_runner.py:125 get_output")

    def test_against_the_naive_reading(self) -> None:
        cases: tuple[tuple[str, dict[str, Any]], ...] = (
            ("v6e-host-offload", {"device": "/device:TPU:2", "step": 0}),
            ("vllm-bf16", {"device": "/device:TPU:1", "step": 0}),
        )
        for name, options in sampled(cases, 1):
            where = [word for key, value in options.items() for word in (f"--{key}", str(value))]
            ours = comparable(self.said(name, *where))
            data = (PROFILES / f"{name}.xplane.pb").read_bytes()
            theirs = comparable(naive.analyse(data, "idle", **options))
            self.assertEqual(list(differences(ours, theirs)), [])


if __name__ == "__main__":
    unittest.main()
