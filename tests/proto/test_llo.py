"""Test the reader of schedules: the work of bundles, source lines, loops, markers, units."""

from __future__ import annotations

import unittest

from _proto.errors import Damage
from _proto.llo import SCALAR, SPILL, VECTOR, Schedule, ScheduledLoop, SourceLine
from tests.builders.llo import (
    ADD,
    LOAD,
    NO_REGISTER,
    SCALARS,
    STORE,
    Mark,
    Stack,
    at_bundle,
    at_region,
    branch,
    loop,
    region,
    schedule,
    scope,
    source,
    work,
)

FIVE, SIX = ("k.py", 5), ("k.py", 6)


def claims(data: bytes) -> list[list[str]]:
    """Return what each bundle works for; of a source, only the line."""
    return [
        [one.line if isinstance(one, SourceLine) else one for one in ones]
        for ones in Schedule(data).claims
    ]


class Claims(unittest.TestCase):
    def test_lines_come_before_work_without_a_line_and_share_their_bundle(self) -> None:
        code = region(0, 2, work(1, 0), work(2, 0), work(3, 0), work(4, 1), work(5, 1))
        lines = [source(FIVE, ids=[1, 4]), source(SIX, ids=[2, 5])]
        lines.append(source(SIX, ids=[99]))
        self.assertEqual(claims(schedule(code, sources=lines)), [["k.py:5", "k.py:6"]] * 2)

    def test_bundle_without_an_instruction_belongs_to_the_next_one(self) -> None:
        code = region(0, 6, work(1, 2), work(2, 4))
        found = claims(schedule(code, sources=[source(FIVE, ids=[2])]))
        self.assertEqual(found, [[VECTOR]] * 3 + [["k.py:5"]] * 2 + [[SCALAR]])

    def test_bundles_between_a_check_and_the_body_of_an_if_do_not_belong_to_the_body(self) -> None:
        code = region(0, 5, branch(0, 3, 5, work(1, 4)))
        found = claims(schedule(code, sources=[source(FIVE, ids=[1])]))
        self.assertEqual(found, [[SCALAR]] * 3 + [["k.py:5"]] * 2)

    def test_work_without_a_line_is_of_the_first_kind_in_its_bundle(self) -> None:
        store = work(1, 0, STORE, registers=NO_REGISTER, spill=True)
        scalar = work(3, 2, registers=SCALARS)
        # It writes no register, but reads a vector.
        push = work(4, 3, registers=NO_REGISTER, reads=[2])
        code = region(0, 4, store, work(5, 0), work(2, 1), scalar, push)
        self.assertEqual(claims(schedule(code)), [[SPILL], [VECTOR], [SCALAR], [VECTOR]])

    def test_result_of_a_unit_belongs_to_the_line_that_started_the_unit(self) -> None:
        push = work(1, 0, registers=NO_REGISTER)
        code = region(0, 4, push, work(2, 1, reads=[1]), work(3, 2, reads=[2]), work(4, 3))
        found = claims(schedule(code, sources=[source(FIVE, ids=[1])]))
        # The third instruction reads an ordinary result: its line is not guessed.
        self.assertEqual(found, [["k.py:5"]] * 2 + [[VECTOR]] * 2)


class Sources(unittest.TestCase):
    def source(self, *sources: Stack) -> SourceLine:
        data = schedule(region(0, 2, work(1, 0), work(2, 1)), sources=sources)
        found = Schedule(data).claims[0][0]
        assert isinstance(found, SourceLine)
        return found

    def test_source_has_the_innermost_and_the_outermost_line(self) -> None:
        found = self.source(source(FIVE, ("lib.py", 9), SIX, ids=[1], primitive="dot", scope="s"))
        self.assertEqual(found, SourceLine("k.py:6", "k.py:5", "dot", "s"))

    def test_frames_of_the_first_use_of_a_primitive_are_cut_off(self) -> None:
        first = source(SIX, ids=[2], primitive="swap")
        self.assertEqual(
            self.source(first, source(FIVE, SIX, ids=[1], primitive="swap")),
            SourceLine("k.py:5", "k.py:5", "swap", ""),
        )
        # Another primitive was really called from line 5.
        self.assertEqual(
            self.source(first, source(FIVE, SIX, ids=[1], primitive="get")),
            SourceLine("k.py:6", "k.py:5", "get", ""),
        )


class Structure(unittest.TestCase):
    def test_loops_have_their_trips_if_the_bounds_are_constant(self) -> None:
        code = region(
            0, 9, loop(0, 3, loop(1, 2, trips=4), trips=2), loop(4, 6), work(1, 3), loop(-1, -1)
        )
        found = Schedule(schedule(code)).loops
        self.assertEqual(
            found, [ScheduledLoop(0, 3, 2), ScheduledLoop(1, 2, 4), ScheduledLoop(4, 6, None)]
        )

    def test_number_of_bundles_is_that_of_the_last_instruction_or_region(self) -> None:
        self.assertEqual(Schedule(schedule(region(0, 3, work(1, 7)), n_rows=8)).n_bundles, 8)
        self.assertEqual(Schedule(schedule(region(0, 9, work(1, 7)))).n_bundles, 9)

    def test_spills_are_counted_with_their_bundles(self) -> None:
        found = Schedule(
            schedule(
                region(
                    0,
                    4,
                    work(1, 0, STORE, registers=NO_REGISTER),
                    work(2, 1, STORE, registers=NO_REGISTER, spill=True),
                    work(3, 2, LOAD, spill=True),
                    work(4, 2, LOAD),
                    # A scalar register.
                    work(5, 3, ADD, registers=SCALARS, spill=True),
                )
            )
        )
        counts = found.n_stores, found.spills, found.fills, found.spilled_bytes
        self.assertEqual(counts, (2, [1], [2], 4096))


class Markers(unittest.TestCase):
    def test_marker_of_a_region_is_at_the_bundle_of_its_instruction(self) -> None:
        found = Schedule(schedule(region(0, 9), marks=[at_region(5, 4), at_region(6, None)]))
        self.assertEqual(found.bundle_of(0x8000005), 4)
        self.assertEqual(found.bundle_of(0x8000006), None)
        self.assertEqual(found.bundle_of(0x8000007), None)

    def test_other_markers_are_numbers_of_bundles(self) -> None:
        found = Schedule(schedule(region(0, 9), marks=[at_bundle(0)]))
        self.assertEqual([found.bundle_of(i) for i in (0, 8, 9)], [0, 8, None])

    def test_places_of_a_named_region_are_found_by_the_number_of_the_place(self) -> None:
        wait, late = scope(1, "wait", 4, 5), scope(2, "wait", 6, 8)
        cut, other = scope(3, "cut", 2, 3), scope(4, "f(x)", 0, 1)
        marks = [wait[0], late[0], wait[1], late[1], cut[0], *other, Mark(0xB8000009, 3)]
        found = Schedule(schedule(region(0, 9), marks=marks))
        self.assertEqual(found.named, {"wait": [(4, 5), (6, 8)], "f(x)": [(0, 1)]})


class Units(unittest.TestCase):
    def test_use_is_a_fraction_of_what_a_bundle_can_use(self) -> None:
        data = schedule(region(0, 3), used={"mxu": [0, 1, 2], "eup": [4, 0, 0]}, capacity=2)
        found = Schedule(data).units
        self.assertEqual((found["mxu"], found["eup"]), ([0, 0.5, 1], [2, 0, 0]))
        self.assertEqual(found["xlu"], [0, 0, 0])

    def test_use_is_unknown_if_the_rows_are_of_other_bundles(self) -> None:
        # Markers with numbers of bundles shift the rows that come after them.
        for marks, n_rows, is_known in (
            ([at_bundle(0)], 10, False),
            ([at_bundle(0)], 9, True),
            ([at_region(1, 0)], 9, True),
            ([], 10, True),
            ([], 11, False),
            ([], 8, False),
        ):
            found = Schedule(schedule(region(0, 9), marks=marks, n_rows=n_rows))
            self.assertEqual(set(map(len, found.units.values())), {9} if is_known else set())


class Damaged(unittest.TestCase):
    def test_bytes_that_are_no_schedule_are_rejected(self) -> None:
        good = schedule(region(0, 9, work(1, 0)), sources=[source(FIVE, ids=[1])])
        Schedule(good)
        for data in (b"", b"\xff" * 9, good[:-1]):
            with self.subTest(data=data), self.assertRaises(Damage):
                Schedule(data)

    def test_every_truncated_or_changed_schedule_is_read_or_rejected(self) -> None:
        good = schedule(
            region(0, 9, loop(1, 5, work(1, 0), branch(2, 3, 5, work(2, 4, spill=True)), trips=3)),
            sources=[source(FIVE, SIX, ids=[1, 2], scope="s")],
            marks=[at_region(1, 0), at_bundle(0), *scope(1, "a", 2, 3)],
        )
        changed = [good[:i] for i in range(len(good))]
        changed += [
            bytes([*good[:i], good[i] ^ bits, *good[i + 1 :]])
            for i in range(len(good))
            for bits in (1, 0x3F, 0x80)
        ]
        n_read = 0
        for data in changed:
            try:
                found = Schedule(data)
            except Damage:
                continue
            n_read += 1
            self.assertEqual(len(found.claims), found.n_bundles)
            self.assertTrue(all(found.claims))
        self.assertGreater(n_read, len(changed) / 10)
