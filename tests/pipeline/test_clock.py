"""Test that printed durations come from the core's clock instead of the trace's clock.

Every op in these small traces has a start and an end on the trace's clock. An op that the core
measured also has a start and an end on the core's clock. Random traces, whose durations and windows
the naive implementation computes, have both clocks, too; so these tests are about gaps, notes,
stats and pieces of lines.
"""

from __future__ import annotations

import unittest
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from _breakdown.pipeline.clocks import Piece, shifts_nearby
from _proto.trace.events import Events
from tests.builders.xspace import (
    NO_VALUE,
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
NAMES = [StatMetadata(OFFSET, "device_offset_ps"), StatMetadata(DURATION, "device_duration_ps")]


@dataclass
class Drawn:
    """Represent an op or a step by its start and end on both clocks."""

    name: str
    trace: Span
    core: Span | None = None
    category: str = "loop fusion"

    @property
    def duration(self) -> int:
        return self.trace[1] - self.trace[0]

    @property
    def op(self) -> Op:
        return op(self.name, self.category, self.trace[0], self.duration, tf_op=self.name)

    @property
    def written(self) -> list[Stat]:
        return times(*self.core) if self.core else []


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


class Order(unittest.TestCase):
    STEP = Drawn("s", (0, 1000), (900, 1200))

    def test_ops_are_ordered_by_the_core_clock(self) -> None:
        a, b = Drawn("A", (10, 20), (1050, 1060)), Drawn("B", (20, 30), (1000, 1010))
        step = answer_of([a, b], [self.STEP])
        self.assertEqual(neighbours(step), [(900, None, "B"), (1010, "B", "A"), (1060, "A", None)])

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


class OpsWithoutTimes(unittest.TestCase):
    """Test that unmeasured starts and ends use the clock offset of the latest measured time before
    them.
    """

    def test_converted_end_never_precedes_the_start(self) -> None:
        # The offset is 1100 after B's start and 1090 after B's end, so the op would start at 1315
        # and end at 1311.
        ops = [Drawn("B", (200, 220), (1300, 1310)), Drawn("U", (215, 221))]
        step = answer_of(ops, [Drawn("s", (0, 1000), (900, 1500))])
        self.assertEqual(durations(step)["U"], 0)
        self.assertEqual(gaps(step), [(900, 400), (1310, 190)])
