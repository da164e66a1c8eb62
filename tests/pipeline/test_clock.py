"""Test that printed durations come from the core's clock instead of the trace's clock.

Every op in these small traces has a start and an end on the trace's clock. An op that the core
measured also has a start and an end on the core's clock.
"""

from __future__ import annotations

import random
import unittest
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from _pipeline.clocks import Piece, shifts_nearby
from _proto.trace import lines
from _proto.trace.events import Events
from tests.builders.xspace import (
    NO_VALUE,
    Event,
    Line,
    Op,
    Space,
    Stat,
    StatMetadata,
    compressed,
    double,
    encode,
    int64,
    op,
    raw,
    ref,
    string,
    tpu_plane,
    uint64,
)
from tests.harness import answer

Span = tuple[int, int]
OFFSET, DURATION = 50, 51
NAMES = [
    StatMetadata(OFFSET, "device_offset_ps"),
    StatMetadata(DURATION, "device_duration_ps"),
    StatMetadata(52, "flow"),
]
MAX = 2**63 - 1
GIB = 1 << 30


@dataclass
class Drawn:
    """Represent an op or a step by its start and end on both clocks."""

    name: str
    trace: Span
    core: Span | None = None
    category: str = "loop fusion"
    # If not None, these stats replace the stats computed from `core`.
    stats: list[Stat] | None = None
    more_stats: list[Stat] = field(default_factory=list)

    @property
    def duration(self) -> int:
        return self.trace[1] - self.trace[0]

    @property
    def op(self) -> Op:
        return op(self.name, self.category, self.trace[0], self.duration, tf_op=self.name)

    @property
    def written(self) -> list[Stat]:
        stats = self.stats
        if stats is None:
            stats = times(*self.core) if self.core else []
        return [*stats, *self.more_stats]


def times(start: int, end: int) -> list[Stat]:
    return [Stat(OFFSET, uint64(start)), Stat(DURATION, uint64(end - start))]


def drawn(ops: Sequence[Drawn], steps: Sequence[Drawn] | None = None) -> bytes:
    step_rows = None if steps is None else [(s.name, s.trace[0], s.duration) for s in steps]
    plane = tpu_plane([drawn_op.op for drawn_op in ops], step_rows)
    plane.stat_metadata += NAMES
    for line, rows in zip(plane.lines, ([] if steps is None else [steps]) + [ops], strict=True):
        for event, row in zip(line.events, rows, strict=True):
            event.stats = row.written
    return encode(Space([plane]))


def answer_of(
    ops: Sequence[Drawn], steps: Sequence[Drawn] | None = None, *options: str
) -> dict[str, Any]:
    return answer(drawn(ops, steps), "summary", *options)


def durations(step: dict[str, Any]) -> dict[str, int]:
    return {row["tf_op"]: row["total_dur_ps"] for row in step["top_compute_groups"]}


def gaps(step: dict[str, Any]) -> list[Span]:
    return sorted((gap["start_ps"], gap["dur_ps"]) for gap in step["idle_gaps"])


def neighbours(step: dict[str, Any]) -> list[tuple[int, str | None, str | None]]:
    """Return each gap's start, preceding op and following op, sorted by start."""

    def name(text: str | None) -> str | None:
        return text and text[1:].split()[0]

    return sorted(
        (gap["start_ps"], name(gap["after_hlo_op"]), name(gap["before_hlo_op"]))
        for gap in step["idle_gaps"]
    )


# Most tests use ops A and B, in a step that the core also measured. The core's clock is ahead of
# the trace's clock by 900 ps from 100 on (A's start), 920 from 110 on (A's end), 1100 from 200 on
# (B's start) and 1090 from 220 on (B's end).
A = Drawn("A", (100, 110), (1000, 1030))
B = Drawn("B", (200, 220), (1300, 1310))
STEP = Drawn("s", (0, 1000), (900, 1500))


class Durations(unittest.TestCase):
    def test_durations_gaps_and_window_use_the_core_clock(self) -> None:
        step = answer_of([A, B], [STEP])
        self.assertEqual(step["clock"], "device")
        self.assertEqual(durations(step), {"A": 30, "B": 10})
        self.assertEqual(step["step_window_ps"], [900, 1500])
        self.assertEqual(gaps(step), [(900, 100), (1030, 270), (1310, 190)])
        self.assertEqual(step["totals"]["busy_duration_ps"], 40)
        self.assertEqual(step["totals"]["idle_duration_ps"], 560)
        self.assertEqual(step["totals"]["compute_duration_ps"], 40)

    def test_trace_clock_is_used_without_measured_ops(self) -> None:
        ops = [Drawn(o.name, o.trace) for o in (A, B)]
        step = answer_of(ops, [STEP])
        self.assertEqual(step["clock"], "trace")
        # If no op has device times, the step's device times are ignored.
        self.assertEqual(step["step_window_ps"], [0, 1000])
        self.assertEqual(durations(step), {"A": 10, "B": 20})
        self.assertEqual(gaps(step), [(0, 100), (110, 90), (220, 780)])
        step = answer_of(ops)
        self.assertEqual((step["clock"], step["step_window_ps"]), ("trace", [100, 220]))

    def test_clock_depends_only_on_ops_in_the_step(self) -> None:
        steps = [Drawn("a", (0, 150)), Drawn("b", (150, 250)), Drawn("c", (250, 300))]
        ops = [Drawn("A", A.trace), B]
        self.assertEqual(answer_of(ops, steps, "--step", "0")["clock"], "trace")
        step = answer_of(ops, steps, "--step", "1")
        self.assertEqual((step["clock"], durations(step)), ("device", {"B": 10}))
        self.assertEqual(answer_of(ops, steps, "--step", "2")["clock"], "trace")
        step = answer_of(ops, steps, "--step", "all")
        # A precedes all measured times, so it uses the offset at B's start, 1100, and lasts from
        # 1200 to 1210.
        self.assertEqual((step["clock"], durations(step)), ("device", {"A": 10, "B": 10}))
        self.assertEqual(step["step_window_ps"], [1200, 1310])


class StepMembers(unittest.TestCase):
    def test_trace_clock_assigns_ops_to_steps(self) -> None:
        """Test that the core's clock does not affect which step an op belongs to."""
        ops = [
            Drawn("before", (99, 100), (1000, 1001)),
            Drawn("first", (100, 101), (5, 6)),
            Drawn("last", (199, 200), (9000, 9001)),
            Drawn("after", (200, 201), (1100, 1101)),
        ]
        for core in (None, (1000, 1100)):
            step = answer_of(ops, [Drawn("s", (100, 200), core)])
            self.assertEqual(list(durations(step)), ["first", "last"])
            self.assertEqual(step["steps"][0]["n_xla_ops_events"], 2)


class OpsWithoutTimes(unittest.TestCase):
    """Test that unmeasured starts and ends use the clock offset of the latest measured time before
    them.
    """

    def assert_moved(
        self, trace: Span, duration: int, expected_gaps: list[Span], *ops: Drawn
    ) -> None:
        with self.subTest(trace=trace):
            unmeasured = Drawn("U", trace)
            for i in range(len(ops or (A, B)) + 1):
                # The position of an op in the file does not matter.
                in_file = list(ops or (A, B))
                in_file.insert(i, unmeasured)
                step = answer_of(in_file, [STEP])
                self.assertEqual(durations(step)["U"], duration)
                self.assertEqual(gaps(step), expected_gaps)

    def test_unmeasured_op_uses_the_offset_of_the_preceding_measured_time(self) -> None:
        # The offset is 920 after A's end, so the op lasts from 1070 to 1080.
        self.assert_moved((150, 160), 10, [(900, 100), (1030, 40), (1080, 220), (1310, 190)])
        # The offset is 900 after A's start and 920 after A's end, so the op lasts from 1005 to
        # 1035.
        self.assert_moved((105, 115), 30, [(900, 100), (1035, 265), (1310, 190)])
        # The offset is 1100 after B's start and 1090 after B's end, so the op lasts from 1305 to
        # 1315.
        self.assert_moved((205, 225), 10, [(900, 100), (1030, 270), (1315, 185)])

    def test_op_before_all_measured_times_uses_the_offset_of_the_first_start(self) -> None:
        # The op uses the offset at A's start, 900, so it lasts from 950 to 960.
        self.assert_moved((50, 60), 10, [(900, 50), (960, 40), (1030, 270), (1310, 190)])
        # On the core's clock, the op lasts from 950 to 1005.
        self.assert_moved((50, 105), 55, [(900, 50), (1030, 270), (1310, 190)])

    def test_op_after_all_measured_times_uses_the_offset_of_the_last_end(self) -> None:
        # The op uses the offset at B's end, 1090, so it lasts from 1390 to 1400.
        self.assert_moved((300, 310), 10, [(900, 100), (1030, 270), (1310, 80), (1400, 100)])

    def test_converted_end_never_precedes_the_start(self) -> None:
        # The op would start at 215 + 1100 and end before that, at 221 + 1090.
        self.assert_moved((215, 221), 0, [(900, 100), (1030, 270), (1310, 190)])

    def test_offsets_can_come_from_another_piece_of_the_line(self) -> None:
        """Test an op and its preceding measured time in different pieces of the line."""
        ops = [Drawn(f"m{i}", (10 * i, 10 * i + 4), (100 * i, 100 * i + 40)) for i in range(70)]
        ops += [Drawn(f"u{i}", (10 * i + 6, 10 * i + 9)) for i in range(0, 70, 7)]
        random.Random(3).shuffle(ops)
        # Op m_i ends 2 ps before u_i starts. The offset at the end of m_i is 90 i + 36.
        expected = {o.name: 40 if o.core else 3 for o in ops}
        for size in (40, 500, GIB):
            with self.subTest(size=size), mock.patch.object(lines, "_PIECE_BYTES", size):
                step = answer_of(ops, None, "--top", "999")
                self.assertEqual(durations(step), expected)
                self.assertEqual(step["step_window_ps"], [0, 69 * 100 + 40])
                self.assertEqual(step["totals"]["busy_duration_ps"], 70 * 40 + 10 * 3)


class Windows(unittest.TestCase):
    def window(
        self, ops: Sequence[Drawn], steps: Sequence[Drawn] | None, *options: str
    ) -> list[int]:
        window: list[int] = answer_of(ops, steps, *options)["step_window_ps"]
        return window

    def test_unmeasured_step_uses_the_offsets_at_its_start_and_end(self) -> None:
        # The offset is 900 before A and 1090 after B.
        self.assertEqual(self.window([A, B], [Drawn("s", (0, 1000))]), [900, 2090])
        # The step ends during B, where the offset is 1100.
        self.assertEqual(self.window([A, B], [Drawn("s", (30, 210))]), [930, 1310])
        # The step ends when B starts, so B is outside and the offset at the step's end is 920.
        self.assertEqual(self.window([A, B], [Drawn("s", (100, 200))]), [1000, 1120])

    def test_window_without_a_step_lasts_from_the_first_to_the_last_op(self) -> None:
        # The window lasts from A's start to B's end.
        self.assertEqual(self.window([A, B], None), [1000, 1310])
        self.assertEqual(self.window([A, B], [STEP], "--step", "all"), [1000, 1310])
        # The last op uses the offset at B's end, 1090.
        self.assertEqual(self.window([A, B, Drawn("U", (300, 400))], None), [1000, 1490])
        # The first op uses the offset at A's start, 900.
        self.assertEqual(self.window([Drawn("U", (30, 40)), A, B], None), [930, 1310])

    def test_device_times_ignore_the_base_of_the_line(self) -> None:
        """Test that times on the core's clock do not depend on the line's base."""
        plane = tpu_plane([A.op, B.op], [("s", 0, 1000)], ops_timestamp_ns=3, steps_timestamp_ns=3)
        plane.stat_metadata += NAMES
        for event, row in zip(plane.lines[1].events, (A, B), strict=True):
            event.stats = row.written
        step = answer(encode(Space([plane])), "summary")
        self.assertEqual(step["step_window_ps"], [900, 2090])
        second = Line("XLA Ops", [Event(1, 1150, 10)], timestamp_ns=2)
        plane.lines.append(second)
        # 2 ns + 1150 ps equal 3 ns + 150 ps. The offset is 920, so the op lasts from 1070 to 1080.
        step = answer(encode(Space([plane])), "summary")
        self.assertEqual(gaps(step), [(900, 100), (1030, 40), (1080, 220), (1310, 780)])


class Containers(unittest.TestCase):
    LEAVES = (Drawn("A", (10, 20), (1010, 1040)), Drawn("B", (50, 60), (1060, 1080)))
    STEP = Drawn("s", (0, 110))

    def test_unmeasured_container_is_converted_to_the_core_clock(self) -> None:
        # The offset is 1000 before A and 1020 after B, so the container lasts from 1000 to 1120.
        w = Drawn("w", (0, 100), None, "while")
        step = answer_of([w, *self.LEAVES], [self.STEP])
        self.assertEqual(step["totals"]["while_container_duration_ps"], 120)
        # The step starts with the container and ends at 110 + 1020.
        self.assertEqual(step["step_window_ps"], [1000, 1130])
        self.assertEqual(step["totals"]["busy_duration_ps"], 50)
        self.assertEqual(step["totals"]["container_self_duration_ps"], 70)
        self.assertEqual(step["totals"]["while_pct_of_step"], 92.308)

    def test_containers_of_gaps_are_determined_on_the_core_clock(self) -> None:
        # On the trace's clock, B is outside of both containers, and v starts after w. On the core's
        # clock, v contains B and starts before w.
        w = Drawn("w", (0, 40), (1005, 1070), "while")
        v = Drawn("v", (5, 30), (1002, 1100), "while")
        step = answer_of([w, v, *self.LEAVES], [Drawn("s", (0, 110), (1000, 1110))])
        inside = {gap["start_ps"]: gap["inside"] for gap in step["idle_gaps"]}
        self.assertEqual(inside, {1000: None, 1040: "w", 1080: "v"})


class Order(unittest.TestCase):
    STEP = Drawn("s", (0, 1000), (900, 1200))

    def test_ops_are_ordered_by_the_core_clock(self) -> None:
        a, b = Drawn("A", (10, 20), (1050, 1060)), Drawn("B", (20, 30), (1000, 1010))
        step = answer_of([a, b], [self.STEP])
        self.assertEqual(neighbours(step), [(900, None, "B"), (1010, "B", "A"), (1060, "A", None)])

    def test_simultaneous_ops_keep_the_order_of_the_file(self) -> None:
        # The two ops run one after the other on the trace's clock but coincide on the core's clock.
        a, b = Drawn("A", (10, 20), (1000, 1010)), Drawn("B", (20, 30), (1000, 1010))
        # With Z first, the file is not sorted by start.
        last = Drawn("Z", (5, 6), (1100, 1110))
        for ops in ([a, b], [b, a], [last, a, b], [last, b, a]):
            with self.subTest(ops=[one.name for one in ops]):
                first = next(one.name for one in ops if one is not last)
                found = neighbours(answer_of(ops, [self.STEP]))
                self.assertEqual(found[0], (900, None, first))
                self.assertEqual(found[1][:2], (1010, first))

    def test_shorter_of_two_containers_with_equal_start_is_the_innermost(self) -> None:
        w = Drawn("w", (0, 50), (1000, 1100), "while")
        v = Drawn("v", (0, 60), (1000, 1080), "while")
        for ops in ([w, v], [v, w]):
            (gap,) = answer_of([*ops, Drawn("A", (70, 80), (900, 1020))], [self.STEP])["idle_gaps"]
            self.assertEqual((gap["start_ps"], gap["inside"]), (1020, "v"))


def note(total: int, worst: int) -> str:
    return (
        "durations use the device's clock; on the trace's clock, which trace viewers"
        f" use, op durations differ by {total} ps in total and by up to {worst} ps for one op"
    )


class Notes(unittest.TestCase):
    def notes(self, ops: Sequence[Drawn], *steps: Drawn) -> list[str]:
        steps = steps or (Drawn("s", (0, 10**6), (0, 10**6)),)
        notes: list[str] = answer_of(ops, steps, "--step", "0")["notes"]
        return notes

    def test_clock_difference_above_one_percent_is_noted(self) -> None:
        for drawn_as, is_noted in ((1010, False), (1011, True), (990, False), (989, True)):
            with self.subTest(drawn_as=drawn_as):
                found = self.notes([Drawn("A", (0, drawn_as), (0, 1000))])
                off = abs(drawn_as - 1000)
                self.assertEqual(found, [note(off, off)] if is_noted else [])

    def test_opposite_clock_differences_do_not_cancel(self) -> None:
        ops = [Drawn("A", (0, 1020), (0, 1000)), Drawn("B", (1020, 2000), (1000, 2000))]
        self.assertEqual(self.notes(ops), [note(40, 20)])

    def test_op_that_differs_by_more_than_one_percent_of_the_step_is_noted(self) -> None:
        # Three ops run at once, so one percent of the step is only a third of a percent of their
        # summed durations.
        step = Drawn("s", (0, 2000), (0, 1000))
        for drawn_as, is_noted in ((1010, False), (1011, True), (1029, True), (989, True)):
            with self.subTest(drawn_as=drawn_as):
                ops = [
                    Drawn("A", (0, 1000), (0, 1000)),
                    Drawn("B", (0, drawn_as), (0, 1000)),
                    Drawn("C", (0, 1000), (0, 1000)),
                ]
                off = abs(drawn_as - 1000)
                self.assertEqual(self.notes(ops, step), [note(off, off)] if is_noted else [])


class Stats(unittest.TestCase):
    """Test that an op counts as measured only if both stats are integers from 0 to 2⁶³ - 1."""

    def span(self, stats: list[Stat], more_names: Sequence[StatMetadata] = ()) -> Span | None:
        plane = tpu_plane([op("f", "loop fusion", 10, 5)])
        plane.stat_metadata += [*NAMES, *more_names]
        plane.lines[0].events[0].stats = stats
        step = answer(encode(Space([plane])), "summary")
        start, end = step["step_window_ps"]
        if step["clock"] == "trace":
            self.assertEqual((start, end), (10, 15))
            return None
        return start, end

    def test_other_types_and_negative_or_huge_values_are_not_times(self) -> None:
        for value in (
            *(uint64(2**63), uint64(2**64 - 1), int64(-1), int64(-(2**63)), double(70.0)),
            *(string("70"), raw(b"F"), ref(70), compressed("70"), NO_VALUE),
        ):
            good = times(70, 160)
            for i in range(2):
                with self.subTest(value=value, i=i):
                    stats = list(good)
                    stats[i] = Stat(stats[i].metadata_id, value)
                    self.assertIsNone(self.span(stats))

    def test_last_of_several_stats_with_the_same_name_is_used(self) -> None:
        start, duration = times(70, 160)
        for more, expected in (
            ([Stat(OFFSET, uint64(80))], (80, 170)),
            ([Stat(DURATION, uint64(5))], (70, 75)),
            (times(1, 3), (1, 3)),
            ([Stat(OFFSET, int64(-1))], None),
            ([Stat(OFFSET, double(1.0))], None),
            # A stat without a value is ignored.
            ([Stat(OFFSET)], (70, 160)),
        ):
            with self.subTest(more=more):
                self.assertEqual(self.span([start, duration, *more]), expected)
        self.assertEqual(self.span([Stat(OFFSET, int64(-1)), start, duration]), (70, 160))


def piece(*events: tuple[int, int, int]) -> Piece:
    """Return a piece of measured events, given as (start, duration, start on the device's
    clock)."""
    starts, durations, device_starts = map(list, zip(*events, strict=True))
    ids = [1] * len(events)
    of_piece = Events(ids, starts, durations, device_starts, durations, [], frozenset())
    return Piece(of_piece, 0)


class NearestMark(unittest.TestCase):
    """Test that `shifts_nearby` returns the clock offset at the nearest measured start or end."""

    def test_later_of_two_equally_near_measured_times_is_used(self) -> None:
        pieces = [piece((0, 10, 100)), piece((20, 10, 220))]
        self.assertEqual(shifts_nearby(pieces, [14, 15, 16]), {14: 100, 15: 200, 16: 200})
        self.assertEqual(shifts_nearby([piece((0, 10, 100), (20, 10, 220))], [15]), {15: 200})

    def test_nearest_of_several_pieces_between_two_times_is_read(self) -> None:
        pieces = [piece((0, 10, 100)), piece((20, 5, 220)), piece((31, 4, 331))]
        self.assertEqual(shifts_nearby(pieces, [16, 40]), {16: 200, 40: 300})

    def test_times_before_or_after_all_ops_use_the_offset_of_the_first_or_last_op(self) -> None:
        pieces = [piece((20, 10, 220)), piece((0, 10, 100))]
        self.assertEqual(shifts_nearby(pieces, [-9, 99]), {-9: 100, 99: 200})
