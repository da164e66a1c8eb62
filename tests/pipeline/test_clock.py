"""The two clocks: durations are those that the core measured, not those that the trace draws.

An op of these small traces is a span on the trace's clock and, if it was measured, a span on the
core's clock.
"""

from __future__ import annotations

import random
import unittest
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest import mock

from _proto import columns_pb2 as columns
from _proto.errors import Damage
from _proto.trace import lines
from _proto.trace.events import DeviceStats
from tests.builders.xspace import (
    NO_VALUE,
    Event,
    Line,
    Op,
    Space,
    Stat,
    StatMetadata,
    Value,
    bytes_field,
    compressed,
    double,
    double_field,
    encode,
    int64,
    int_field,
    op,
    raw,
    ref,
    string,
    text_field,
    tpu_plane,
    uint64,
    varint,
)
from tests.harness import FULL, MODES_OF_TRACE, answer, sampled

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
    """An op or a step from start to end as the trace draws it, and as the core measured it."""

    name: str
    trace: Span
    core: Span | None = None
    category: str = "loop fusion"
    # Replaces the stats that follow from `core`.
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
    plane = tpu_plane([each.op for each in ops], step_rows)
    plane.stat_metadata += NAMES
    for line, rows in zip(plane.lines, ([] if steps is None else [steps]) + [ops], strict=True):
        for event, row in zip(line.events, rows, strict=True):
            event.stats = row.written
    return encode(Space([plane]))


def said(
    ops: Sequence[Drawn], steps: Sequence[Drawn] | None = None, *options: str
) -> dict[str, Any]:
    return answer(drawn(ops, steps), "summary", *options)


def durations(step: dict[str, Any]) -> dict[str, int]:
    return {row["tf_op"]: row["total_dur_ps"] for row in step["top_compute_groups"]}


def gaps(step: dict[str, Any]) -> list[Span]:
    return sorted((gap["start_ps"], gap["dur_ps"]) for gap in step["idle_gaps"])


def neighbours(step: dict[str, Any]) -> list[tuple[int, str | None, str | None]]:
    """Return the gaps by start, with the ops before and after each."""

    def name(text: str | None) -> str | None:
        return text and text[1:].split()[0]

    return sorted(
        (gap["start_ps"], name(gap["after_hlo_op"]), name(gap["before_hlo_op"]))
        for gap in step["idle_gaps"]
    )


# Most tests use these two ops in a step that the core measured, too.
#   trace   100 A 110 . . . 200 B 220
#   core   1000 A 1030 . . 1300 B 1310
# So the core's clock is ahead by 900 at 100, 920 from 110, 1100 from 200 and 1090 from 220 on.
A = Drawn("A", (100, 110), (1000, 1030))
B = Drawn("B", (200, 220), (1300, 1310))
STEP = Drawn("s", (0, 1000), (900, 1500))


class Durations(unittest.TestCase):
    def test_durations_gaps_and_window_are_the_core_s(self) -> None:
        step = said([A, B], [STEP])
        self.assertEqual(step["clock"], "device")
        self.assertEqual(durations(step), {"A": 30, "B": 10})
        self.assertEqual(step["step_window_ps"], [900, 1500])
        self.assertEqual(gaps(step), [(900, 100), (1030, 270), (1310, 190)])
        self.assertEqual(step["totals"]["busy_duration_ps"], 40)
        self.assertEqual(step["totals"]["idle_duration_ps"], 560)
        self.assertEqual(step["totals"]["compute_duration_ps"], 40)

    def test_op_drawn_instant_has_its_measured_duration(self) -> None:
        step = said([A, Drawn("I", (110, 110), (1030, 1200)), B], [STEP])
        self.assertEqual(durations(step), {"A": 30, "I": 170, "B": 10})
        self.assertEqual(gaps(step), [(900, 100), (1200, 100), (1310, 190)])

    def test_op_drawn_long_can_be_instant(self) -> None:
        step = said([A, Drawn("I", (110, 190), (1100, 1100)), B], [STEP])
        self.assertEqual(durations(step), {"A": 30, "I": 0, "B": 10})
        # An op that takes no time ends no gap.
        self.assertEqual(gaps(step), [(900, 100), (1030, 270), (1310, 190)])

    def test_shortest_and_longest_are_measured_durations(self) -> None:
        # The trace draws the first run longer, the core measured the second as longer.
        step = said([Drawn("A", (0, 90), (0, 10)), Drawn("A", (90, 91), (10, 40))])
        (row,) = step["top_compute_groups"]
        self.assertEqual(
            [row[f"{k}_dur_ps"] for k in ("total", "min", "max", "avg")], [40, 10, 30, 20]
        )
        ops = [Drawn("long", (0, 90), (0, 10)), Drawn("short", (90, 91), (10, 40))]
        data = drawn([Drawn(o.name, o.trace, o.core, "copy") for o in ops])
        (row,) = answer(data, "non_compute")["by_category"]
        self.assertEqual((row["min_dur_ps"], row["max_dur_ps"]), (10, 30))

    def test_without_measured_ops_the_trace_s_clock_is_used(self) -> None:
        ops = [Drawn(o.name, o.trace) for o in (A, B)]
        step = said(ops, [STEP])
        self.assertEqual(step["clock"], "trace")
        # The device times of the step alone are not used.
        self.assertEqual(step["step_window_ps"], [0, 1000])
        self.assertEqual(durations(step), {"A": 10, "B": 20})
        self.assertEqual(gaps(step), [(0, 100), (110, 90), (220, 780)])
        step = said(ops)
        self.assertEqual((step["clock"], step["step_window_ps"]), ("trace", [100, 220]))

    def test_only_ops_of_the_step_choose_the_clock(self) -> None:
        steps = [Drawn("a", (0, 150)), Drawn("b", (150, 250)), Drawn("c", (250, 300))]
        ops = [Drawn("A", A.trace), B]
        self.assertEqual(said(ops, steps, "--step", "0")["clock"], "trace")
        step = said(ops, steps, "--step", "1")
        self.assertEqual((step["clock"], durations(step)), ("device", {"B": 10}))
        self.assertEqual(said(ops, steps, "--step", "2")["clock"], "trace")
        step = said(ops, steps, "--step", "all")
        # A, before all marks, is shifted like B's start: 100 + 1100 to 110 + 1100.
        self.assertEqual((step["clock"], durations(step)), ("device", {"A": 10, "B": 10}))
        self.assertEqual(step["step_window_ps"], [1200, 1310])


class StepMembers(unittest.TestCase):
    def test_ops_belong_to_a_step_by_the_trace_s_clock(self) -> None:
        """The core's clock does not matter for this."""
        ops = [
            Drawn("before", (99, 100), (1000, 1001)),
            Drawn("first", (100, 101), (5, 6)),
            Drawn("last", (199, 200), (9000, 9001)),
            Drawn("behind", (200, 201), (1100, 1101)),
        ]
        for core in (None, (1000, 1100)):
            step = said(ops, [Drawn("s", (100, 200), core)])
            self.assertEqual(list(durations(step)), ["first", "last"])
            self.assertEqual(step["steps"][0]["n_xla_ops_events"], 2)

    def test_busiest_step_is_chosen_by_the_trace_s_clock(self) -> None:
        steps = [Drawn("a", (0, 100), (0, 5)), Drawn("b", (100, 200), (5, 10_000))]
        ops = [Drawn(str(i), (40 * i, 40 * i + 1), (100 + i, 101 + i)) for i in range(4)]
        self.assertEqual(said(ops, steps)["step_id"], 0)

    def test_listed_steps_have_durations_of_the_trace(self) -> None:
        rows = said([A, B], [STEP, Drawn("t", (1000, 1007), (5, 50))])["steps"]
        self.assertEqual([row["duration_ps"] for row in rows], [1000, 7])

    def test_each_step_of_a_record_has_its_own_clock(self) -> None:
        not_measured = [Drawn("C", (1100, 1200)), Drawn("D", (1300, 1350))]
        other = Drawn("t", (1000, 2000))
        for ops, steps, clock, expected in (
            (not_measured, [other], "trace", [(1000, 150, [100, 50])]),
            ([A, B, *not_measured], [STEP, other], "device",
             [(600, 40, [30, 10]), (1000, 150, [0, 0, 100, 50])]),
        ):  # fmt: skip
            record = answer(drawn(ops, steps), "record")
            self.assertEqual(record["devices"][0]["clock"], clock)
            figures = [(s["duration_ps"], s["busy_ps"], s["durs_ps"]) for s in record["steps"]]
            self.assertEqual(figures, expected)


class OpsWithoutTimes(unittest.TestCase):
    """Starts and ends are shifted by the offset of the latest measured time before them."""

    def assert_moved(
        self, trace: Span, duration: int, expected_gaps: list[Span], *ops: Drawn
    ) -> None:
        with self.subTest(trace=trace):
            unmeasured = Drawn("U", trace)
            for i in range(len(ops or (A, B)) + 1):
                # The place in the file does not matter.
                in_file = list(ops or (A, B))
                in_file.insert(i, unmeasured)
                step = said(in_file, [STEP])
                self.assertEqual(durations(step)["U"], duration)
                self.assertEqual(gaps(step), expected_gaps)

    def test_op_between_marks_is_shifted_like_the_mark_before(self) -> None:
        # 920 since A's end: 1070 to 1080.
        self.assert_moved((150, 160), 10, [(900, 100), (1030, 40), (1080, 220), (1310, 190)])
        # 900 since A's start, 920 since its end: 1005 to 1035.
        self.assert_moved((105, 115), 30, [(900, 100), (1035, 265), (1310, 190)])
        # 1100 since B's start, 1090 since its end: 1305 to 1315.
        self.assert_moved((205, 225), 10, [(900, 100), (1030, 270), (1315, 185)])

    def test_op_at_a_mark_is_shifted_like_this_mark(self) -> None:
        # At A's end it is 920 already: 1030 to 1035.
        self.assert_moved((110, 115), 5, [(900, 100), (1035, 265), (1310, 190)])
        # At A's start it is 900: 1000 to 1005.
        self.assert_moved((100, 105), 5, [(900, 100), (1030, 270), (1310, 190)])
        # From A's end to B's start: 1030 to 1300.
        self.assert_moved((110, 200), 270, [(900, 100), (1310, 190)])

    def test_op_before_all_marks_is_shifted_like_the_first_start(self) -> None:
        # As far as A's start, 900: 950 to 960.
        self.assert_moved((50, 60), 10, [(900, 50), (960, 40), (1030, 270), (1310, 190)])
        # 950 to 1005.
        self.assert_moved((50, 105), 55, [(900, 50), (1030, 270), (1310, 190)])

    def test_op_after_all_marks_is_shifted_like_the_last_mark(self) -> None:
        # As far as B's end, 1090: 1390 to 1400.
        self.assert_moved((300, 310), 10, [(900, 100), (1030, 270), (1310, 80), (1400, 100)])

    def test_shifted_end_is_not_before_the_start(self) -> None:
        # 215 + 1100 and 221 + 1090.
        self.assert_moved((215, 221), 0, [(900, 100), (1030, 270), (1310, 190)])

    def test_latest_of_several_marks_at_one_time_counts(self) -> None:
        # C begins where A ends, 20 later by the core: from 110 on it is 940, from 120 on 932.
        c = Drawn("C", (110, 120), (1050, 1052))
        expected = [(900, 100), (1030, 20), (1055, 445)]
        self.assert_moved((110, 115), 5, expected, A, c)
        self.assert_moved((110, 115), 5, expected, c, A)
        # An instant op has both its marks at one time.
        instant = Drawn("C", (110, 110), (1040, 1052))
        self.assert_moved((110, 113), 3, [(900, 100), (1030, 10), (1055, 445)], A, instant)

    def test_earliest_of_several_first_starts_counts(self) -> None:
        # 990 - 100 and 1000 - 100: 940 to 950.
        c = Drawn("C", (100, 120), (990, 995))
        expected = [(900, 40), (950, 40), (995, 5), (1030, 470)]
        self.assert_moved((50, 60), 10, expected, A, c)
        self.assert_moved((50, 60), 10, expected, c, A)

    def test_first_start_is_first_on_the_trace_s_clock(self) -> None:
        # C starts later on the trace's clock and earlier on the core's.
        c = Drawn("C", (105, 106), (960, 961))
        # 50 + 900 to 60 + 900 touches C.
        self.assert_moved((50, 60), 10, [(900, 50), (961, 39), (1030, 470)], A, c)

    def test_only_ops_of_the_step_leave_marks(self) -> None:
        """Marks of ops outside the step do not count, even if they are nearer."""
        before = Drawn("before", (-20, 30), (1, 2))
        self.assert_moved(
            *((50, 60), 10, [(900, 50), (960, 40), (1030, 270), (1310, 190)]), before, A, B
        )

    def test_containers_leave_marks(self) -> None:
        # 1000 + 20 - 40 = 980 from 40 on.
        w = Drawn("w", (20, 40), (1000, 1020), "while")
        step = said([w, Drawn("U", (50, 55)), A, B], [STEP])
        self.assertEqual(durations(step)["U"], 5)
        # 1030 to 1035, where A ends.
        self.assertEqual(gaps(step), [(900, 100), (1035, 265), (1310, 190)])

    def test_marks_in_other_pieces_count(self) -> None:
        """Marks may be in other pieces of the line."""
        ops = [Drawn(f"m{i}", (10 * i, 10 * i + 4), (100 * i, 100 * i + 40)) for i in range(200)]
        ops += [Drawn(f"u{i}", (10 * i + 6, 10 * i + 9)) for i in range(0, 200, 7)]
        random.Random(3).shuffle(ops)
        # At 10 i + 6 the offset is 90 i + 36, that of the end of m_i: 3 ps, 2 ps after it.
        expected = {o.name: 40 if o.core else 3 for o in ops}
        for size in (40, 500, GIB):
            with self.subTest(size=size), mock.patch.object(lines, "_PIECE_BYTES", size):
                step = said(ops, None, "--top", "999")
                self.assertEqual(durations(step), expected)
                self.assertEqual(step["step_window_ps"], [0, 199 * 100 + 40])
                self.assertEqual(step["totals"]["busy_duration_ps"], 200 * 40 + 29 * 3)


class Windows(unittest.TestCase):
    def window(
        self, ops: Sequence[Drawn], steps: Sequence[Drawn] | None, *options: str
    ) -> list[int]:
        window: list[int] = said(ops, steps, *options)["step_window_ps"]
        return window

    def test_measured_step_has_its_measured_window(self) -> None:
        self.assertEqual(self.window([A, B], [STEP]), [900, 1500])
        # The window counts even without an op in it.
        step = said([A, B], [Drawn("s", (0, 1000), (7000, 7100))])
        self.assertEqual(step["step_window_ps"], [7000, 7100])
        self.assertEqual(step["totals"]["busy_duration_ps"], 0)

    def test_unmeasured_step_is_shifted_with_its_first_and_last_op(self) -> None:
        # 900 as A's start, 1090 as B's end.
        self.assertEqual(self.window([A, B], [Drawn("s", (0, 1000))]), [900, 2090])
        # It ends within B: 1100.
        self.assertEqual(self.window([A, B], [Drawn("s", (30, 210))]), [930, 1310])
        # It starts with A and ends with B's start, which is none of its ops: 920.
        self.assertEqual(self.window([A, B], [Drawn("s", (100, 200))]), [1000, 1120])

    def test_window_starts_with_the_first_op_of_the_core_s_clock(self) -> None:
        # C does, 750 off, though A is drawn before it; its end is 740 off.
        c = Drawn("C", (200, 220), (950, 960))
        for ops in ([A, c], [c, A]):
            self.assertEqual(self.window(ops, [Drawn("s", (0, 1000))]), [750, 1740])

    def test_unmeasured_op_may_start_the_window(self) -> None:
        # U goes with A's start.
        self.assertEqual(self.window([Drawn("U", (50, 60)), A], [Drawn("s", (40, 120))])[0], 940)

    def test_half_measured_step_is_unmeasured(self) -> None:
        for stats in (
            times(900, 1500)[:1],
            times(900, 1500)[1:],
            [Stat(OFFSET, int64(-1)), Stat(DURATION, uint64(5))],
            [Stat(OFFSET, uint64(2**63)), Stat(DURATION, uint64(5))],
            [Stat(OFFSET, double(900.0)), Stat(DURATION, uint64(600))],
        ):
            with self.subTest(stats=stats):
                step = Drawn("s", (0, 1000), stats=stats)
                self.assertEqual(self.window([A, B], [step]), [900, 2090])

    def test_window_without_a_step_is_that_of_the_ops(self) -> None:
        # From A's start to B's end.
        self.assertEqual(self.window([A, B], None), [1000, 1310])
        self.assertEqual(self.window([A, B], [STEP], "--step", "all"), [1000, 1310])
        # The last to end is 1090 off, as B's end.
        self.assertEqual(self.window([A, B, Drawn("U", (300, 400))], None), [1000, 1490])
        # The first to start is 900 off, as A's start.
        self.assertEqual(self.window([Drawn("U", (30, 40)), A, B], None), [930, 1310])

    def test_step_without_ops_is_on_the_trace_s_clock(self) -> None:
        step = said([A, B], [STEP, Drawn("t", (2000, 3000), (5, 6))], "--step", "1")
        self.assertEqual((step["clock"], step["step_window_ps"]), ("trace", [2000, 3000]))
        self.assertEqual(gaps(step), [(2000, 1000)])

    def test_times_of_the_trace_count_from_the_base_of_their_line(self) -> None:
        """Times of the trace count from the base of their line, times of the core do not."""
        plane = tpu_plane([A.op, B.op], [("s", 0, 1000)], ops_timestamp_ns=3, steps_timestamp_ns=3)
        plane.stat_metadata += NAMES
        for event, row in zip(plane.lines[1].events, (A, B), strict=True):
            event.stats = row.written
        step = answer(encode(Space([plane])), "summary")
        self.assertEqual(step["step_window_ps"], [900, 2090])
        second = Line("XLA Ops", [Event(1, 1150, 10)], timestamp_ns=2)
        plane.lines.append(second)
        # 1150 ps from 2 ns are 150 from 3 ns: 920 off, 1070 to 1080.
        step = answer(encode(Space([plane])), "summary")
        self.assertEqual(gaps(step), [(900, 100), (1030, 40), (1080, 220), (1310, 780)])


class Containers(unittest.TestCase):
    LEAVES = (Drawn("A", (10, 20), (1010, 1040)), Drawn("B", (50, 60), (1060, 1080)))
    STEP = Drawn("s", (0, 110))

    def test_unmeasured_container_is_shifted(self) -> None:
        # The offset is 1000 before all marks and 1020 after them: 1000 to 1120.
        w = Drawn("w", (0, 100), None, "while")
        step = said([w, *self.LEAVES], [self.STEP])
        self.assertEqual(step["totals"]["while_container_duration_ps"], 120)
        # It begins first, 1000 off; 110 + 1020.
        self.assertEqual(step["step_window_ps"], [1000, 1130])
        self.assertEqual(step["totals"]["busy_duration_ps"], 50)
        self.assertEqual(step["totals"]["container_self_duration_ps"], 70)
        self.assertEqual(step["totals"]["while_pct_of_step"], 92.308)

    def test_measured_container_has_its_measured_time(self) -> None:
        # It begins first, 1005 off; its end, the last mark, is 990 off.
        w = Drawn("w", (0, 100), (1005, 1090), "while")
        step = said([w, *self.LEAVES], [self.STEP])
        self.assertEqual(step["totals"]["while_container_duration_ps"], 85)
        self.assertEqual(step["step_window_ps"], [1005, 1100])
        self.assertEqual(step["totals"]["container_self_duration_ps"], 35)

    def test_gaps_are_inside_containers_by_the_core_s_clock(self) -> None:
        # On the trace's clock B is outside, and v begins after w; on the core's before w.
        w = Drawn("w", (0, 40), (1005, 1070), "while")
        v = Drawn("v", (5, 30), (1002, 1100), "while")
        step = said([w, v, *self.LEAVES], [Drawn("s", (0, 110), (1000, 1110))])
        inside = {gap["start_ps"]: gap["inside"] for gap in step["idle_gaps"]}
        self.assertEqual(inside, {1000: None, 1040: "w", 1080: "v"})

    def test_container_alone_chooses_the_clock(self) -> None:
        step = said([Drawn("w", (0, 100), (1000, 1300), "while")], [Drawn("s", (0, 100))])
        self.assertEqual((step["clock"], step["step_window_ps"]), ("device", [1000, 1300]))
        self.assertEqual(step["totals"]["container_self_duration_ps"], 300)


class Order(unittest.TestCase):
    STEP = Drawn("s", (0, 1000), (900, 1200))

    def test_timeline_is_in_order_of_the_core_s_clock(self) -> None:
        a, b = Drawn("A", (10, 20), (1050, 1060)), Drawn("B", (20, 30), (1000, 1010))
        step = said([a, b], [self.STEP])
        self.assertEqual(neighbours(step), [(900, None, "B"), (1010, "B", "A"), (1060, "A", None)])

    def test_groups_are_in_order_of_the_file(self) -> None:
        a, b = Drawn("A", (10, 20), (1050, 1060)), Drawn("B", (20, 30), (1000, 1010))
        for ops in ([a, b], [b, a]):
            rows = answer(drawn(ops, [self.STEP]), "by_source")["groups"]
            self.assertEqual([row["tf_op"] for row in rows], [each.name for each in ops])

    def test_ties_are_in_order_of_the_file(self) -> None:
        # The trace draws one after the other; to the core both run from 1000 to 1010.
        a, b = Drawn("A", (10, 20), (1000, 1010)), Drawn("B", (20, 30), (1000, 1010))
        # This op makes the file unsorted.
        last = Drawn("Z", (5, 6), (1100, 1110))
        for ops in ([a, b], [b, a], [last, a, b], [last, b, a]):
            with self.subTest(ops=[each.name for each in ops]):
                first = next(each.name for each in ops if each is not last)
                found = neighbours(said(ops, [self.STEP]))
                self.assertEqual(found[0], (900, None, first))
                self.assertEqual(found[1][:2], (1010, first))

    def test_shortest_of_containers_that_start_together_is_inside(self) -> None:
        w = Drawn("w", (0, 50), (1000, 1100), "while")
        v = Drawn("v", (0, 60), (1000, 1080), "while")
        for ops in ([w, v], [v, w]):
            (gap,) = said([*ops, Drawn("A", (70, 80), (900, 1020))], [self.STEP])["idle_gaps"]
            self.assertEqual((gap["start_ps"], gap["inside"]), (1020, "v"))


def note(total: int, worst: int) -> str:
    return (
        "durations are the device's; by the trace's clock, which trace viewers draw and `steps`"
        f" lists, those of ops differ by {total} ps in all, one by {worst} ps"
    )


class Notes(unittest.TestCase):
    def notes(self, ops: Sequence[Drawn], *steps: Drawn) -> list[str]:
        steps = steps or (Drawn("s", (0, 10**6), (0, 10**6)),)
        notes: list[str] = said(ops, steps, "--step", "0")["notes"]
        return notes

    def test_difference_of_more_than_one_percent_is_noted(self) -> None:
        for drawn_as, is_noted in ((1010, False), (1011, True), (990, False), (989, True)):
            with self.subTest(drawn_as=drawn_as):
                found = self.notes([Drawn("A", (0, drawn_as), (0, 1000))])
                off = abs(drawn_as - 1000)
                self.assertEqual(found, [note(off, off)] if is_noted else [])

    def test_differences_do_not_cancel(self) -> None:
        ops = [Drawn("A", (0, 1020), (0, 1000)), Drawn("B", (1020, 2000), (1000, 2000))]
        self.assertEqual(self.notes(ops), [note(40, 20)])

    def test_sums_include_all_pieces_of_the_line(self) -> None:
        # 15 of 1000 in one piece, and nothing of 1000 in the other: 0.75 %.
        ops = [Drawn("A", (0, 1015), (0, 1000)), Drawn("B", (1015, 2015), (1000, 2000))]
        for in_file in (ops, ops[::-1]):
            with mock.patch.object(lines, "_PIECE_BYTES", 40):
                self.assertEqual(self.notes(in_file), [])

    def test_containers_count_in_the_sums(self) -> None:
        ops = [Drawn("A", (0, 100), (0, 100)), Drawn("w", (0, 110), (0, 100), "while")]
        self.assertEqual(self.notes(ops), [note(10, 10)])

    def test_one_op_off_by_one_percent_of_the_step_is_noted(self) -> None:
        # With three ops at once one percent of the step is a third of one percent of the sum.
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

    def test_no_note_on_the_trace_s_clock(self) -> None:
        self.assertEqual(self.notes([Drawn("A", (0, 5)), Drawn("B", (0, 500))]), [])


class Stats(unittest.TestCase):
    """A measured time takes both stats, each an integer from 0 to 2⁶³ - 1."""

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

    def test_integers_of_either_type_are_times(self) -> None:
        for variant in (uint64, int64):
            for other in (uint64, int64):
                for start in (0, 1, 70, MAX):
                    for duration in (0, 90, MAX):
                        with self.subTest(variant=variant, other=other, start=start):
                            stats = [Stat(OFFSET, variant(start)), Stat(DURATION, other(duration))]
                            expected = start, start + duration
                            self.assertEqual(self.span(stats), expected)
                            self.assertEqual(self.span(stats[::-1]), expected)

    def test_other_values_are_no_times(self) -> None:
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

    def test_one_stat_alone_is_no_time(self) -> None:
        for stat in times(70, 160):
            self.assertIsNone(self.span([stat]))
            self.assertIsNone(self.span([stat, stat]))
        self.assertIsNone(self.span([]))

    def test_other_stats_do_not_matter(self) -> None:
        others: list[Value] = [
            *(uint64(7), int64(-3), double(1.5), string("x"), raw(b"x"), ref(50), compressed("x")),
            NO_VALUE,
        ]
        for value in others:
            for at in range(3):
                for metadata_id in (52, 99, None):
                    with self.subTest(value=value, at=at, metadata_id=metadata_id):
                        stats = times(70, 160)
                        stats.insert(at, Stat(metadata_id, value))
                        self.assertEqual(self.span(stats), (70, 160))

    def test_last_of_several_stats_of_one_name_counts(self) -> None:
        start, duration = times(70, 160)
        for more, expected in (
            ([Stat(OFFSET, uint64(80))], (80, 170)),
            ([Stat(DURATION, uint64(5))], (70, 75)),
            (times(1, 3), (1, 3)),
            ([Stat(OFFSET, int64(-1))], None),
            ([Stat(OFFSET, double(1.0))], None),
            # A stat without a value does not count.
            ([Stat(OFFSET)], (70, 160)),
        ):
            with self.subTest(more=more):
                self.assertEqual(self.span([start, duration, *more]), expected)
        self.assertEqual(self.span([Stat(OFFSET, int64(-1)), start, duration]), (70, 160))

    def test_ids_of_one_name_are_alike(self) -> None:
        alias = [StatMetadata(60, "device_offset_ps"), StatMetadata(61, "device_duration_ps")]
        stats = [Stat(60, uint64(70)), Stat(61, uint64(90))]
        self.assertEqual(self.span(stats, alias), (70, 160))
        self.assertEqual(self.span([stats[0], times(0, 5)[1]], alias), (70, 75))
        self.assertEqual(self.span([*times(0, 5), *stats], alias), (70, 160))


class Pieces(unittest.TestCase):
    def test_size_of_pieces_changes_nothing(self) -> None:
        """The size of the pieces in which a line is read changes nothing."""
        rng = random.Random(7)
        ops, now, core = [], 0, 10**6
        for i in range(400):
            length, measured = rng.choice((0, 3, 50)), rng.choice((0, 4, 90))
            has_times = rng.random() < 0.8
            ops.append(
                Drawn(
                    *(f"f{i % 30}", (now, now + length)),
                    (core, core + measured) if has_times else None,
                    rng.choice(("loop fusion", "loop fusion", "while")),
                    more_stats=[Stat(52, rng.choice((uint64(3), string("x" * 300))))]
                    * (rng.random() < 0.2),
                )
            )
            now += length + rng.randrange(3)
            core += measured + rng.randrange(5)
        steps = [Drawn("a", (0, now // 2)), Drawn("b", (now // 2, now), (core // 2, core))]
        for shuffled in (False, True):
            if shuffled:
                rng.shuffle(ops)
            data = drawn(ops, steps)
            expected = {mode: self.facts(data, mode) for mode in MODES_OF_TRACE}
            self.assertEqual(expected["summary"]["clock"], "device")
            for size in (1, 30, 64, 257, 4096):
                with mock.patch.object(lines, "_PIECE_BYTES", size):
                    for mode in MODES_OF_TRACE if size == 64 else ("summary",):
                        with self.subTest(size=size, mode=mode, shuffled=shuffled):
                            self.assertEqual(self.facts(data, mode), expected[mode])

    def facts(self, data: bytes, mode: str) -> dict[str, Any]:
        step = answer(data, mode, "--step", "1")
        return {k: v for k, v in step.items() if k not in ("profile_dir", "xplane_file")}

    def test_event_larger_than_a_piece_keeps_its_times(self) -> None:
        long = Stat(52, string("x" * 100_000))
        for at in range(3):
            with self.subTest(at=at):
                stats = times(1030, 1200)
                stats.insert(at, long)
                step = said([A, Drawn("L", (110, 190), stats=stats), B], [STEP])
                self.assertEqual(durations(step), {"A": 30, "L": 170, "B": 10})


# ----------------------------------------------------------------------------------------------
# Events read as columns.

Row = tuple[int, int, int, Span | None]


class Sample(NamedTuple):
    """The bytes of an event and its row; None if it has no time."""

    data: bytes
    row: Row | None


DEVICE_IDS = (
    (frozenset({8}), frozenset({9})),
    (frozenset({9}), frozenset({8})),
    (frozenset({0}), frozenset({9})),
    (frozenset({8}), frozenset({0})),
    (frozenset({8, 300}), frozenset({9, 0})),
    # These ids have bytes that encode kinds of events.
    (frozenset({0x62 << 7 | 0x60}), frozenset({0x7F << 7 | 0x7F})),
    (frozenset({8}), frozenset[int]()),
    (frozenset[int](), frozenset[int]()),
)
EDGES = (0, 1, 127, 128, 10**12, MAX, 2**63, 2**64 - 1)


def signed(value: int) -> int:
    return value - 2**64 if value >> 63 else value


class Sampler:
    """Makes events, most of them as profilers write them, with their rows."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        offset_ids, duration_ids = rng.choice(DEVICE_IDS)
        self.device = DeviceStats(offset_ids, duration_ids)
        # Nearly all events have these two stats.
        self.pair = (
            rng.choice(sorted(offset_ids) or [8]),
            rng.choice(sorted(duration_ids) or [9]),
        )
        if rng.random() < 0.2:
            self.pair = self.pair[::-1]

    def meaning(self, ints: dict[int, int], stats: list[tuple[int, int | None]]) -> Row | None:
        """Return the row of an event with these last values and stats."""
        if 5 in ints:
            return None
        start = duration = None
        for stat_id, value in stats:
            time = value if value is not None and 0 <= value <= MAX else None
            if stat_id in self.device.offset_ids:
                start = time
            elif stat_id in self.device.duration_ids:
                duration = time
        measured = None if start is None or duration is None else (start, duration)
        return (*(signed(ints.get(i, 0)) for i in (1, 2, 3)), measured)  # type: ignore[return-value]

    def ordinary(self, n_stats: int = 2) -> Sample:
        rng = self.rng
        ints = {1: rng.randrange(300), 2: rng.randrange(2**45), 3: rng.randrange(10**9)}
        if rng.random() < 0.2:
            del ints[3]
        ids = [*self.pair, *(rng.choice((8, 9, 0, 7, 300)) for _ in range(2))][:n_stats]
        stats = [(i, rng.choice((rng.randrange(2**45), 0, 0, 5, 127, 128))) for i in ids]
        data = b"".join(int_field(number, value) for number, value in ints.items())
        for stat_id, value in stats:
            data += bytes_field(4, int_field(1, stat_id) + int_field(3, value))
        return Sample(data, self.meaning(ints, list(stats)))

    def odd(self) -> Sample:
        """Make an event of any legal fields, in any order, repeated, missing or unknown."""
        rng = self.rng
        numbers = rng.choice(
            (
                [1, 2, 3, 4, 4],
                [1, 2, 4, 4],
                rng.choices((1, 2, 3, 4, 4, 5, 99), k=rng.randrange(7)),
                [1, 2, 2, 4, 4],
                [1, 1, 2, 4, 4, 4],
                [1, 4, 4],
                [2, 4, 4],
            )
        )
        if rng.random() < 0.3:
            rng.shuffle(numbers)
        ints: dict[int, int] = {}
        stats: list[tuple[int, int | None]] = []
        parts = []
        for number in numbers:
            if number == 4:
                data, stat = self.odd_stat(self.pair[len(stats) % 2])
                parts.append(bytes_field(4, data))
                stats += [stat] if stat else []
            elif number == 99:
                parts.append(rng.choice((int_field(99, 5), text_field(15, "x"), b"\x7b\x7c")))
            else:
                value = rng.choice(EDGES)
                # Of the two fields of a oneof the last wins.
                if number in (2, 5):
                    ints.pop(7 - number, None)
                ints[number] = value
                parts.append(int_field(number, value))
        return Sample(b"".join(parts), self.meaning(ints, stats))

    def odd_stat(self, usual_id: int) -> tuple[bytes, tuple[int, int | None] | None]:
        """Return the bytes of a stat, and its id and value if it has a value."""
        rng = self.rng
        numbers = rng.choice(
            (
                *([1, 3], [1, 3], [1, 3], [1], [3], [], [1, 1, 3], [1, 3, 3], [3, 1], [1, 4]),
                *([1, 3, 4], [1, 4, 3], [1, 2], [1, 5], [1, 3, 5], [1, 5, 3], [1, 7], [1, 8]),
                [1, 3, 99],
            )
        )
        stat_id = 0
        value: int | None = None
        has_value = False
        parts = []
        for number in numbers:
            integer = rng.choice((*EDGES, 70, 90))
            if number == 1:
                stat_id = usual_id if rng.random() < 0.8 else rng.choice((0, 7, 8, 9, 300))
                parts.append(int_field(1, stat_id))
            elif number == 99:
                parts.append(int_field(99, 5))
            else:
                has_value = True
                value = {3: integer, 4: signed(integer)}.get(number)
                if number == 2:
                    parts.append(double_field(2, 70.0))
                elif number in (5, 6, 8):
                    parts.append(bytes_field(number, b"\xff7"))
                else:
                    parts.append(int_field(number, integer))
        return b"".join(parts), ((stat_id, value) if has_value else None)

    def piece(self) -> list[Sample]:
        rng = self.rng
        share_odd = rng.choice((0, 0, 0.1, 0.5, 1))
        share_other = rng.choice((0, 0.1, 0.5))
        samples = []
        for _ in range(rng.randrange(1, 12)):
            if rng.random() < share_odd:
                samples.append(self.odd())
            else:
                n = rng.choice((0, 1, 3, 4)) if rng.random() < share_other else 2
                samples.append(self.ordinary(n))
        return samples


def joined(samples: Sequence[Sample]) -> bytes:
    return b"".join(bytes_field(4, sample.data) for sample in samples)


class Columns(unittest.TestCase):
    """Events read as columns equal events read one by one, and damage is found."""

    def test_random_events_as_columns_equal_events_one_by_one(self) -> None:
        n_in_columns = n_odd_in_columns = 0
        for seed in sampled(range(6000), 600):
            rng = random.Random(seed)
            sampler = Sampler(rng)
            samples = sampler.piece()
            expected = [sample.row for sample in samples if sample.row is not None]
            data = joined(samples)
            with self.subTest(seed=seed):
                one_by_one = lines._events_one_by_one(data, 0, sampler.device)
                self.assertEqual(list(one_by_one.rows()), expected)
                in_columns = lines._events_in_columns(data, 0, sampler.device)
                if in_columns is not None:
                    self.assertEqual(list(in_columns.rows()), expected)
                    n_in_columns += 1
                    n_odd_in_columns += any(row[3] is None for row in expected)
        # Enough of the events must have been read as columns.
        self.assertGreater(n_in_columns, 1000 if FULL else 90)
        self.assertGreater(n_odd_in_columns, 300 if FULL else 25)

    def test_usual_events_can_be_read_as_columns(self) -> None:
        """Events with two stats, among some others, can be read as columns."""
        for seed in sampled(range(200), 60):
            rng = random.Random(seed)
            sampler = Sampler(rng)
            sampler.device = DeviceStats(frozenset({8}), frozenset({9}))
            sampler.pair = rng.choice(((8, 9), (9, 8)))
            samples = [sampler.ordinary(rng.choice((2, 2, 2, 0, 1, 3, 4))) for _ in range(20)]
            with self.subTest(seed=seed):
                found = lines._events_in_columns(joined(samples), 0, sampler.device)
                assert found is not None
                self.assertEqual(list(found.rows()), [sample.row for sample in samples])

    def test_repeated_field_does_not_replace_a_missing_one(self) -> None:
        """A field that one event has twice does not replace one that another lacks."""
        device = DeviceStats(frozenset({8}), frozenset({9}))
        start, length = int_field(1, 8) + int_field(3, 70), int_field(1, 9) + int_field(3, 90)

        def event(*stats: bytes, head: bytes = int_field(1, 1) + int_field(2, 5)) -> bytes:
            return head + b"".join(bytes_field(4, stat) for stat in stats)

        plain = Sample(event(start, length), (1, 5, 0, (70, 90)))
        both: list[tuple[Sample, Sample]] = [
            (  # an event's offset
                Sample(event(start, length, head=int_field(1, 1)), (1, 0, 0, (70, 90))),
                Sample(
                    event(start, length, head=plain.data[:4] + int_field(2, 7)),
                    (1, 7, 0, (70, 90)),
                ),
            ),
            (  # an event's metadata id
                Sample(event(start, length, head=int_field(2, 5)), (0, 5, 0, (70, 90))),
                Sample(
                    event(start, length, head=plain.data[:4] + int_field(1, 3)),
                    (3, 5, 0, (70, 90)),
                ),
            ),
            (  # a stat's id
                Sample(event(int_field(3, 70), length), (1, 5, 0, None)),
                Sample(event(start, int_field(1, 7) + length), (1, 5, 0, (70, 90))),
            ),
            (  # a stat's value
                Sample(event(int_field(1, 8), length), (1, 5, 0, None)),
                Sample(event(start, int_field(3, 7) + length), (1, 5, 0, (70, 90))),
            ),
            (  # a stat
                Sample(event(length), (1, 5, 0, None)),
                Sample(event(start, start, length), (1, 5, 0, (70, 90))),
            ),
            (  # both stats
                Sample(event(), (1, 5, 0, None)),
                Sample(event(start, length, start, length), (1, 5, 0, (70, 90))),
            ),
            (  # in the other order
                Sample(event(length, start), (1, 5, 0, (70, 90))),
                plain,
            ),
        ]
        for lacking, surplus in both:
            for order in (
                [lacking, surplus],
                [surplus, lacking],
                [plain, lacking, surplus, plain],
                [surplus, plain, plain, lacking],
            ):
                with self.subTest(order=order):
                    expected = [sample.row for sample in order]
                    data = joined(order)
                    found = lines._events_in_columns(data, 0, device)
                    if found is not None:
                        self.assertEqual(list(found.rows()), expected)
                    found = lines._events_one_by_one(data, 0, device)
                    self.assertEqual(list(found.rows()), expected)

    def test_bytes_that_look_like_events_are_not_read(self) -> None:
        """Unknown fields may contain bytes that look like events."""
        device = DeviceStats(frozenset({1}), frozenset({2}))
        n_in_columns = 0
        for seed in sampled(range(4000), 400):
            rng = random.Random(seed)
            # One kind of event is the end of another kind.
            stats = [(rng.choice((1, 2)), rng.choice((0, 1, 7))) for _ in range(2)]
            told = b"".join(bytes_field(4, int_field(1, i) + int_field(3, v)) for i, v in stats)
            ids = [i for i, _ in stats]
            values = tuple(value for _, value in stats)
            whole = Sample(
                int_field(1, 1) + int_field(2, 5) + told,
                (1, 5, 0, values if ids == [1, 2] else values[::-1] if ids == [2, 1] else None),  # type: ignore[arg-type]
            )
            lasting = Sample(int_field(1, 1) + int_field(2, 6) + int_field(3, 9), (1, 6, 9, None))
            without_time = Sample(int_field(1, 1) + int_field(3, 1), (1, 0, 1, None))
            events = rng.choices((whole, lasting, without_time), k=rng.randrange(6))
            if rng.random() < 0.8:
                shapes = columns.LineShapes.FromString(joined([whole, lasting])).SerializeToString()
                begin = rng.randrange(len(shapes))
                unknown = shapes[begin : begin + rng.randrange(len(shapes))]
                hidden = bytes_field(15, rng.choice((b"", b"\xe0", b"\xe1")) + unknown)
                odd = Sample(lasting.data + hidden, lasting.row)
                events.insert(rng.randrange(len(events) + 1), odd)
            data = joined(events)
            if rng.random() < 0.3:
                # These are fields of the line itself.
                data += bytes_field(2, b"\xe0") + bytes_field(100, joined([whole]))
            expected = [sample.row for sample in events]
            with self.subTest(seed=seed):
                self.assertEqual(list(lines._events_one_by_one(data, 0, device).rows()), expected)
                found = lines._events_in_columns(data, 0, device)
                if found is not None:
                    self.assertEqual(list(found.rows()), expected)
                    n_in_columns += len(events) > 1
        self.assertGreater(n_in_columns, 100 if FULL else 10)

    def test_many_kinds_of_events_are_not_read_as_columns(self) -> None:
        device = DeviceStats(frozenset({1}), frozenset({2}))
        times = [bytes_field(4, int_field(1, i) + int_field(3, 7)) for i in (1, 2)]
        for n in (1, 31, 32, 33, 200):
            samples = [
                Sample(
                    int_field(1, i)
                    + int_field(2, i)
                    + b"".join(times)
                    + bytes_field(4, int_field(1, 10 + i) + int_field(3, i)),
                    (i, i, 0, (7, 7)),
                )
                for i in range(1, n + 1)
            ]
            with self.subTest(n=n):
                found = lines._events_in_columns(joined(samples), 0, device)
                if n < 33:
                    assert found is not None
                    self.assertEqual(list(found.rows()), [sample.row for sample in samples])
                else:
                    self.assertIsNone(found)

    def test_ids_that_contain_codes_of_kinds_are_read(self) -> None:
        """Such events are read as columns, unless an earlier kind has this code."""
        for ids in ((0x62 << 7 | 0x60, 9), (9, 0x62 << 7 | 0x61)):
            device = DeviceStats(frozenset({ids[0]}), frozenset({ids[1]}))
            stats = b"".join(bytes_field(4, int_field(1, i) + int_field(3, 7)) for i in ids)
            rows: list[tuple[bytes, Row]] = [
                (int_field(1, 1) + int_field(2, 5) + stats, (1, 5, 0, (7, 7))),
                (int_field(1, 1) + int_field(2, 5) + int_field(3, 6) + stats, (1, 5, 6, (7, 7))),
            ]
            samples = [Sample(*row) for row in (*rows, *rows)]
            found = lines._events_in_columns(joined(samples), 0, device)
            assert found is not None
            self.assertEqual(list(found.rows()), [sample.row for sample in samples])
            bare = Sample(int_field(1, 1) + int_field(2, 5), (1, 5, 0, None))
            found = lines._events_in_columns(joined([bare, bare, *samples]), 0, device)
            self.assertEqual(found is None, ids[0] != 9)

    def assert_damage(self, data: bytes, device: DeviceStats) -> None:
        """Check that the columns, or else the closer look, refuse these bytes."""
        try:
            found = lines._events_in_columns(data, 0, device)
        except Damage:
            return
        self.assertIsNone(found, "damaged bytes were read as columns")
        with self.assertRaises(Damage):
            lines._events_one_by_one(data, 0, device)

    def wrong_fields(self, number: int, wire: int) -> list[bytes]:
        """Return a field of this number in each wrong wire type."""
        forms = {
            0: [int_field(number, 5)],
            1: [double_field(number, 1.0)],
            2: [bytes_field(number, packed) for packed in (b"\x05", b"\x05\x06", b"\x05\x06\x07")],
            3: [varint(number << 3 | 3) + varint(number << 3 | 4)],
            5: [varint(number << 3 | 5) + bytes(4)],
        }
        return [form for of_wire in forms if of_wire != wire for form in forms[of_wire]]

    def broken(self, samples: list[Sample], rng: random.Random, wrong: bytes, deep: bool) -> bytes:
        """Return the piece with this field in an event or in a stat."""
        events = [sample.data for sample in samples]
        if deep:
            wrong = bytes_field(4, int_field(1, 8) + wrong + int_field(3, 5) * rng.randrange(2))
        i = rng.randrange(len(events))
        events[i] = wrong + events[i] if rng.random() < 0.5 else events[i] + wrong
        return b"".join(bytes_field(4, event) for event in events)

    EVENT_WIRES = {1: 0, 2: 0, 3: 0, 4: 2, 5: 0}  # noqa: RUF012
    STAT_WIRES = {1: 0, 2: 1, 3: 0, 4: 0, 5: 2, 6: 2, 7: 0, 8: 2}  # noqa: RUF012

    def test_wrong_wire_types_are_damage(self) -> None:
        rng = random.Random(11)
        for deep, wires in ((False, self.EVENT_WIRES), (True, self.STAT_WIRES)):
            for number, wire in wires.items():
                for wrong in self.wrong_fields(number, wire):
                    for _ in range(12 if FULL else 4):
                        sampler = Sampler(rng)
                        samples = [sampler.ordinary() for _ in range(3)]
                        if rng.random() < 0.5:
                            samples += sampler.piece()
                        data = self.broken(samples, rng, wrong, deep)
                        with self.subTest(deep=deep, number=number, wrong=wrong, data=data):
                            self.assert_damage(data, sampler.device)

    def test_bytes_cut_off_are_damage(self) -> None:
        sampler = Sampler(random.Random(13))
        data = joined([sampler.ordinary() for _ in range(3)])
        ends = {len(joined([]))}
        at = 0
        while at < len(data):
            at += 2 + data[at + 1]
            ends.add(at)
        for cut in range(len(data)):
            if cut not in ends:
                with self.subTest(cut=cut), self.assertRaises(Damage):
                    lines._events_in_columns(data[:cut], 0, sampler.device)


if __name__ == "__main__":
    unittest.main()
