"""Test the source lines in answers of the mode `kernel`: measured by markers, or static."""

from __future__ import annotations

import unittest
from collections.abc import Sequence
from typing import Any

from tests.builders.llo import (
    DMA_WAIT,
    LOAD,
    NO_REGISTER,
    STORE,
    at_region,
    branch,
    loop,
    region,
    schedule,
    scope,
    source,
    traced_kernels,
    work,
)
from tests.harness import Json, answer
from tests.modes.small_steps import column, kernel

NAME = "jit_f(3)::flash.3"
REGION = 1 << 27
A, B = ("k.py", 1), ("k.py", 2)
# The use of units by the bundles of `straight`.
USED = {"mxu": [0] * 10 + [2] * 20 + [1] * 10, "store": [1] * 40}


def straight(**more: Any) -> bytes:
    """Encode a kernel of 40 bundles: 10 of scalar work, 20 of line 1, 10 of line 2."""
    code = region(0, 40, work(1, 9, registers=2), work(2, 29), work(3, 39))
    lines = [source(A, ids=[2]), source(B, ids=[3])]
    marks = [at_region(1, 0), at_region(2, 10), at_region(3, 30), *more.pop("marks", ())]
    return schedule(code, sources=lines, marks=marks, **more)


def result_of(
    data: bytes, markers: Sequence[tuple[int, int]] = (), *options: str, **more: Any
) -> Json:
    """Return the answer for a kernel that runs from 0 to 400 ps; a marker is a region's number and
    a time."""
    ids = [(REGION | number, at) for number, at in markers]
    return answer(traced_kernels([kernel(0, 400)], [(NAME, data)], ids, **more), "kernel", *options)


def row_of(*parts: Any, **more: Any) -> Json:
    [row] = result_of(*parts, **more)["kernels"]
    found: Json = row
    return found


def lines(row: Json, field: str = "dur_ps") -> dict[str, Any]:
    """Return a field of each row of lines, by line, or by kind and scope."""
    found = {}
    for line in row["lines"]:
        where = ":".join(filter(None, (line["kind"], line["scope"])))
        found[line["line"] or where] = line[field]
    return found


class Measured(unittest.TestCase):
    def test_time_between_markers_is_divided_evenly_among_the_bundles(self) -> None:
        code = region(0, 8, work(1, 1), work(2, 3), work(3, 7))
        data = schedule(
            code,
            sources=[source(A, ids=[1]), source(B, ids=[2]), source(A, ids=[3])],
            marks=[at_region(1, 0), at_region(2, 4)],
        )
        row = row_of(data, [(1, 0), (2, 240)])
        self.assertEqual((row["lines_are"], row["schedule"]["n_bundles"]), ("measured", 8))
        # Four bundles in 240 ps, half of them of line 1, and four in 160 ps.
        self.assertEqual(lines(row), {"k.py:1": 280, "k.py:2": 120})
        self.assertEqual(lines(row, "n_bundles"), {"k.py:1": 6, "k.py:2": 2})
        self.assertEqual(lines(row, "pct_of_kernel"), {"k.py:1": 70, "k.py:2": 30})

    def test_rows_add_up_to_the_time_of_the_kernel(self) -> None:
        row = row_of(straight(), [(1, 1), (2, 100), (3, 303)])
        self.assertEqual(sum(column(row["lines"], "dur_ps")), 400)
        self.assertEqual(lines(row), {"k.py:1": 203, "scalar": 100, "k.py:2": 97})

    def test_bundle_of_two_lines_is_shared_and_none_of_its_time_is_lost(self) -> None:
        code = region(0, 1, work(1, 0), work(2, 0), work(3, 0))
        data = schedule(
            code, sources=[source(A, ids=[1]), source(B, ids=[2, 3])], marks=[at_region(1, 0)]
        )
        row = row_of(data, [(1, 0)])
        self.assertEqual(lines(row), {"k.py:1": 133, "k.py:2": 267})

    def test_loop_goes_back_from_its_last_marker_to_its_first(self) -> None:
        code = region(0, 40, loop(10, 30, work(1, 19), work(2, 29), trips=3), work(3, 39))
        data = schedule(
            code,
            sources=[source(A, ids=[1]), source(B, ids=[2])],
            marks=[at_region(1, 10), at_region(2, 20)],
        )
        # The way from bundle 20 back to bundle 10 has the bundles of line 2 only.
        row = row_of(data, [(1, 0), (2, 100), (1, 170), (2, 270), (1, 340), (2, 350)])
        self.assertEqual(lines(row), {"k.py:1": 210, "k.py:2": 70 + 70 + 25, "vector": 25})

    def test_one_marker_in_a_loop_is_enough(self) -> None:
        code = region(0, 20, loop(0, 20, work(1, 9), work(2, 19), trips=3))
        data = schedule(
            code, sources=[source(A, ids=[1]), source(B, ids=[2])], marks=[at_region(1, 10)]
        )
        row = row_of(data, [(1, 100), (1, 200), (1, 300)])
        self.assertEqual(lines(row), {"k.py:1": 200, "k.py:2": 200})

    def test_body_of_an_if_counts_as_skipped_if_the_time_is_too_short_for_it(self) -> None:
        wait = work(4, 30, DMA_WAIT, registers=NO_REGISTER)
        code = region(0, 60, work(1, 19), branch(20, 22, 42, wait, work(2, 41)), work(3, 59))
        data = schedule(
            code,
            sources=[source(A, ids=[1]), source(B, ids=[2, 4])],
            marks=[at_region(1, 0), at_region(2, 20), at_region(3, 42)],
        )
        taken = row_of(data, [(1, 0), (2, 100), (3, 210)])
        self.assertEqual(lines(taken)["k.py:2"], 100)
        # Two bundles last ten, and 22 would last 110.
        skipped = row_of(data, [(1, 0), (2, 100), (3, 159)])
        self.assertNotIn("k.py:2", lines(skipped))
        self.assertEqual(lines(skipped)["scalar"], 59)
        taken = row_of(data, [(1, 0), (2, 100), (3, 161)])
        self.assertEqual(lines(taken)["k.py:2"], round(61 * 20 / 22))
        self.assertEqual(sum(lines(skipped).values()), 400)

    def test_skipped_if_is_skipped_with_the_ifs_inside_it(self) -> None:
        inner = branch(24, 26, 36, work(4, 35))
        code = region(0, 60, work(1, 19), branch(20, 22, 42, inner, work(2, 41)), work(3, 59))
        data = schedule(
            code,
            sources=[source(A, ids=[1]), source(B, ids=[2, 4])],
            marks=[at_region(1, 0), at_region(2, 20), at_region(3, 57)],
        )
        # 30 ps for the bundles from 20 to 57 without those from 22 to 42.
        self.assertEqual(lines(row_of(data, [(1, 0), (2, 100), (3, 134)]))["scalar"], 4)

    def test_marker_in_the_body_of_an_if_shows_that_it_runs(self) -> None:
        code = region(0, 40, work(1, 9), branch(10, 12, 32, work(2, 31)), work(3, 39))
        data = schedule(
            code,
            sources=[source(B, ids=[2]), source(A, ids=[3])],
            marks=[at_region(1, 0), at_region(2, 12), at_region(3, 32)],
        )
        self.assertEqual(lines(row_of(data, [(1, 0), (2, 300), (3, 303)]))["k.py:2"], 3)

    def test_waits_are_rows_by_region_and_equal_the_waiting_time(self) -> None:
        marks = [*scope(1, "ep_wait_in", 2, 4), *scope(2, "body", 30, 39)]
        row = row_of(
            straight(marks=marks),
            [(1, 0), (2, 200), (3, 310)],
            regions=[
                ("ep_wait_in", 10, 90),
                ("wait_inside", 20, 30),
                ("ep_wait_out", 90, 150),
                ("body", 310, 390),
            ],
        )
        found = lines(row)
        # The schedule does not have the place of `ep_wait_out`.
        self.assertEqual((found["wait:ep_wait_in"], found["wait:ep_wait_out"]), (70, 60))
        self.assertEqual(found["wait:wait_inside"], 10)
        self.assertEqual(row["waiting_ps"], 140)
        self.assertEqual(found["scalar"], 400 - 140 - 110 - 90)
        self.assertEqual(found["k.py:1"], 110)

    def test_back_edge_is_that_of_the_innermost_loop(self) -> None:
        code = region(0, 40, work(1, 9), loop(0, 40, loop(10, 20, work(2, 19)), work(3, 39)))
        data = schedule(
            code,
            sources=[source(A, ids=[1, 3]), source(B, ids=[2])],
            marks=[at_region(1, 10), at_region(2, 15)],
        )
        row = row_of(data, [(1, 100), (2, 150), (1, 200), (2, 250)])
        # From bundle 0 to 10, then in the inner loop, then from bundle 15 to 40.
        self.assertEqual(lines(row), {"k.py:1": 100 + 120, "k.py:2": 150 + 30})

    def test_two_markers_in_one_bundle_are_no_turn_of_a_loop(self) -> None:
        code = region(0, 40, loop(0, 40, work(1, 9), work(2, 39)))
        marks = [at_region(1, 10), *scope(1, "part", 10, 30)]
        data = schedule(code, sources=[source(A, ids=[1]), source(B, ids=[2])], marks=marks)
        row = row_of(data, [(1, 100)], regions=[("part", 120, 300)])
        self.assertEqual(lines(row), {"k.py:1": 100, "k.py:2": 300})

    def test_marker_in_a_skipped_if_is_not_lost(self) -> None:
        code = region(
            0,
            60,
            loop(
                0,
                60,
                work(1, 19),
                work(2, 25, DMA_WAIT, registers=NO_REGISTER),
                branch(30, 32, 50, work(3, 49)),
                work(4, 59),
            ),
        )
        data = schedule(
            code,
            sources=[source(A, ids=[1]), source(B, ids=[3])],
            marks=[at_region(1, 0), at_region(2, 20), at_region(3, 40), at_region(4, 50)],
        )
        turn = [(1, 0), (2, 20), (3, 40), (4, 50)]
        markers = [*turn, *((number, at + 60) for number, at in turn), (1, 120), (2, 140), (4, 300)]
        # The last but one way takes 160 ps. It did not pass the marker at bundle 40, so it has 12
        # bundles. The last way has ten bundles in 100 ps, and one pace is 1 ps.
        found = lines(row_of(data, markers))
        self.assertEqual((found["wait"], found["k.py:2"]), (160 - 12, 2 * 18))

    def test_region_with_several_places_is_at_the_next_one(self) -> None:
        marks = [*scope(1, "part", 10, 20), *scope(2, "part", 30, 40)]
        code = region(0, 50, *(work(i, 10 * i - 1) for i in range(1, 6)))
        ids = {i: ("k.py", i) for i in range(1, 6)}
        data = schedule(
            code, sources=[source(line, ids=[i]) for i, line in ids.items()], marks=marks
        )
        row = answer(
            traced_kernels(
                [kernel(0, 400)],
                [(NAME, data)],
                [(REGION | 99, 1)],
                [("part", 50, 140), ("part", 210, 300)],
            ),
            "kernel",
        )["kernels"][0]
        expected = {"k.py:1": 50, "k.py:2": 90, "k.py:3": 70, "k.py:4": 90, "k.py:5": 100}
        self.assertEqual(lines(row), expected)

    def test_wait_for_a_copy_takes_what_exceeds_the_usual_time_of_its_bundles(self) -> None:
        code = region(0, 40, work(1, 19), work(2, 25, DMA_WAIT, registers=NO_REGISTER), work(3, 39))
        data = schedule(
            code,
            sources=[source(A, ids=[1]), source(B, ids=[3])],
            marks=[at_region(1, 0), at_region(2, 20), at_region(3, 30)],
        )
        # 20 bundles in 60 ps, 10 in 310 ps, 10 in 30 ps.
        found = lines(row_of(data, [(1, 0), (2, 60), (3, 370)]))
        self.assertEqual(found["wait"], 310 - 30)
        # Less than twice the usual time is no wait.
        found = lines(row_of(data, [(1, 0), (2, 240), (3, 310)]))
        self.assertNotIn("wait", found)

    def test_usual_time_is_that_of_the_ways_without_waits(self) -> None:
        code = region(0, 40, work(1, 9), work(2, 15, DMA_WAIT, registers=NO_REGISTER), work(3, 39))
        data = schedule(code, marks=[at_region(1, 0), at_region(2, 10)])
        # 10 bundles in 30 ps, 30 in 370 ps.
        self.assertEqual(lines(row_of(data, [(1, 0), (2, 30)]))["wait"], 370 - 90)

    def test_copy_is_not_waited_for_in_the_shortest_of_several_runs(self) -> None:
        code = region(
            0,
            60,
            loop(
                0,
                40,
                work(1, 19),
                work(2, 25, DMA_WAIT, registers=NO_REGISTER),
                work(3, 39),
                trips=3,
            ),
            work(4, 59),
        )
        data = schedule(
            code,
            sources=[source(A, ids=[1]), source(B, ids=[3])],
            marks=[at_region(1, 0), at_region(2, 20), at_region(3, 40)],
        )
        # The 20 bundles with the wait take 60 and 90 ps, and 20 others take 40.
        markers = [(1, 0), (2, 40), (1, 100), (2, 140), (1, 230), (2, 270), (3, 330)]
        self.assertEqual(lines(row_of(data, markers))["wait"], 30)
        # A run that is shorter than usual does not make up for the wait of another one.
        markers = [(1, 0), (2, 40), (1, 70), (2, 110), (1, 200), (2, 240), (3, 300)]
        self.assertEqual(lines(row_of(data, markers))["wait"], 90 - 40)

    def test_way_that_takes_long_belongs_to_its_bundles(self) -> None:
        row = row_of(straight(), [(1, 0), (2, 30), (3, 90)])
        self.assertEqual(lines(row), {"k.py:2": 310, "k.py:1": 60, "scalar": 30})

    def test_time_between_markers_without_a_way_is_unknown(self) -> None:
        # No loop leads back from bundle 30 to bundle 10.
        row = row_of(straight(), [(1, 0), (2, 50), (3, 150), (2, 250), (3, 350)])
        self.assertEqual(lines(row)["unknown"], 100)

    def test_time_on_a_way_with_a_whole_loop_belongs_to_the_loop(self) -> None:
        code = region(0, 40, work(1, 9), loop(12, 18, work(2, 17)), work(3, 39))
        data = schedule(
            code,
            sources=[source(A, ids=[1]), source(B, ids=[2])],
            marks=[at_region(1, 0), at_region(2, 10), at_region(3, 20)],
        )
        found = lines(row_of(data, [(1, 0), (2, 20), (3, 360)]))
        # One turn and all others, at 2 ps per bundle: 10 bundles, of which 8 are before the end of
        # the loop.
        self.assertEqual(found["k.py:2"], 2 * 8 + (340 - 20))
        self.assertNotIn("unknown", found)

    def test_execution_without_markers_is_unknown_if_another_has_markers(self) -> None:
        data = traced_kernels(
            [kernel(0, 400), kernel(400, 50)],
            [(NAME, straight())],
            [(REGION | 1, 0), (REGION | 2, 100), (REGION | 3, 300)],
        )
        [row] = answer(data, "kernel")["kernels"]
        self.assertEqual(lines(row)["unknown"], 50)
        self.assertEqual(sum(lines(row).values()), 450)

    def test_op_without_markers_is_unknown_if_another_op_of_the_kernel_has_markers(self) -> None:
        names = NAME, "jit_f(3)::flash.4"
        data = traced_kernels(
            [kernel(0, 400), kernel(400, 50, "flash.4")],
            [(name, straight()) for name in names],
            [(REGION | 1, 0), (REGION | 2, 100), (REGION | 3, 300)],
        )
        [row] = answer(data, "kernel")["kernels"]
        self.assertEqual((row["lines_are"], lines(row)["unknown"]), ("measured", 50))

    def test_markers_that_the_schedule_lacks_and_other_events_are_ignored(self) -> None:
        data = traced_kernels(
            [kernel(0, 400)],
            [(NAME, straight())],
            [(REGION | 1, 0), (REGION | 9, 50), (REGION | 2, 100), (REGION | 3, 300)],
        )
        data = data.replace(b"bundle.134217737", b"something.400001")
        self.assertEqual(lines(answer(data, "kernel")["kernels"][0])["k.py:1"], 200)


class Usage(unittest.TestCase):
    def test_use_of_units_is_weighted_with_the_time_of_bundles(self) -> None:
        row = row_of(straight(used=USED), [(1, 0), (2, 100), (3, 300)])
        usage = lines(row, "usage")
        self.assertEqual(
            [usage[name]["mxu"] for name in ("scalar", "k.py:1", "k.py:2")], [0, 100, 50]
        )
        self.assertEqual(usage["k.py:2"]["store"], 50)
        code = region(0, 20, work(1, 19))
        data = schedule(
            code,
            sources=[source(A, ids=[1])],
            marks=[at_region(1, 0), at_region(2, 10)],
            used={"mxu": [2] * 10 + [0] * 10},
        )
        self.assertEqual(lines(row_of(data, [(1, 0), (2, 150)]), "usage")["k.py:1"]["mxu"], 37.5)

    def test_region_has_the_use_of_units_and_spills_between_its_own_markers(self) -> None:
        code = region(
            0,
            40,
            work(1, 12, STORE, registers=NO_REGISTER, spill=True),
            work(2, 30, LOAD, spill=True),
            work(3, 31, LOAD, spill=True),
        )
        data = schedule(
            code, marks=[at_region(1, 0), *scope(1, "a", 10, 30), *scope(2, "b", 30, 39)], used=USED
        )
        row = row_of(data, [(1, 0)], regions=[("a", 10, 50), ("b", 50, 90), ("c", 90, 95)])
        found = {one["region"]: one for one in row["regions"]}
        self.assertEqual([found[name]["usage"]["mxu"] for name in "ab"], [100, 50])
        self.assertEqual(column(row["regions"], "spills", "fills"), [(1, 0), (0, 2), (None, None)])
        self.assertIsNone(found["c"]["usage"])


class Static(unittest.TestCase):
    def test_without_markers_lines_are_shares_of_bundles_times_trips(self) -> None:
        code = region(
            0,
            40,
            work(1, 9),
            loop(10, 20, loop(15, 20, work(2, 19), trips=4), work(3, 14), trips=3),
            loop(20, 30, work(4, 29)),
            work(5, 39),
        )
        names = [("k.py", i) for i in range(6)]
        data = schedule(code, sources=[source(names[i], ids=[i]) for i in range(1, 6)])
        result = result_of(data)
        [row] = result["kernels"]
        self.assertEqual(row["lines_are"], "static")
        total = 10 + 15 + 60 + 10 + 10
        expected = {"k.py:2": 60, "k.py:3": 15, "k.py:1": 10, "k.py:4": 10, "k.py:5": 10}
        shares = {line: round(100 * n / total, 3) for line, n in expected.items()}
        self.assertEqual(set(lines(row).values()), {None})
        self.assertEqual(
            {line: round(share, 0) for line, share in lines(row, "pct_of_kernel").items()},
            {line: round(share, 0) for line, share in shares.items()},
        )
        self.assertTrue(any("time by line is static" in note for note in result["notes"]))

    def test_lines_of_two_ops_of_a_kernel_are_one_row(self) -> None:
        first = schedule(region(0, 9, work(1, 8)), sources=[source(A, ids=[1], scope="s")])
        second = schedule(region(0, 5, work(1, 4)), sources=[source(A, ids=[1], scope="t")])
        ops = [kernel(0, 300), kernel(300, 100, "flash.4")]
        data = traced_kernels(ops, [(NAME, first), ("jit_f(3)::flash.4", second)])
        [row] = answer(data, "kernel")["kernels"]
        self.assertEqual(column(row["lines"], "line", "n_bundles", "scope"), [("k.py:1", 14, None)])
        rows = answer(data, "kernel", "--kernel", "flash")["kernels"]
        self.assertEqual([lines(one, "scope") for one in rows], [{"k.py:1": "s"}, {"k.py:1": "t"}])


class Rows(unittest.TestCase):
    def test_row_says_where_a_line_is_called_from(self) -> None:
        code = region(0, 4, *(work(i, i - 1) for i in range(1, 5)))
        outer, other = ("main.py", 3), ("main.py", 4)
        data = schedule(
            code,
            sources=[
                source(outer, A, ids=[1], primitive="dot", scope="s"),
                source(outer, A, ids=[2, 3], primitive="add", scope="s"),
                source(B, ids=[4], primitive=""),
            ],
        )
        first, second = row_of(data)["lines"]
        self.assertEqual((first["line"], first["called_from"]), ("k.py:1", "main.py:3"))
        self.assertEqual((first["primitives"], first["scope"]), (["add", "dot"], "s"))
        self.assertEqual((second["called_from"], second["primitives"]), (None, []))
        self.assertIsNone(second["scope"])
        data = schedule(code, sources=[source(outer, A, ids=[1]), source(other, A, ids=[2])])
        self.assertEqual(lines(row_of(data), "called_from")["k.py:1"], None)

    def test_top_limits_the_rows_and_the_tail_has_the_rest(self) -> None:
        markers = [(1, 0), (2, 100), (3, 303)]
        [row] = result_of(straight(), markers, "--top", "1")["kernels"]
        self.assertEqual(lines(row), {"k.py:1": 203})
        tail = {"n_rows_omitted": 2, "dur_ps": 197, "pct_of_kernel": 49.25}
        self.assertEqual(row["lines_tail"], tail)
        [row] = result_of(straight(), (), "--top", "1")["kernels"]
        self.assertEqual(row["lines_tail"]["dur_ps"], None)


class Missing(unittest.TestCase):
    def notes(self, *schedules: tuple[str, bytes], ops: Sequence[Any] = (), **more: Any) -> str:
        result = answer(traced_kernels(ops or [kernel(0, 400)], schedules, **more), "kernel")
        for row in result["kernels"]:
            self.assertEqual((row["lines"], row["lines_are"], row["schedule"]), (None, None, None))
        return " ".join(result["notes"])

    def test_without_a_schedule_a_note_names_the_flags(self) -> None:
        self.assertIn("--xla_xprof_register_llo_debug_info=true", self.notes())
        self.assertIn("no schedules", self.notes(regions=[("a", 0, 5)]))
        self.assertIn("no regions", self.notes(("jit_f(3)::other.3", straight())))

    def test_damaged_schedule_gives_an_answer_without_lines_and_a_note(self) -> None:
        good = straight()
        for data in (good[: len(good) // 2], b"\xff" * 50, b""):
            self.assertIn("the schedule of flash.3 can't be read: ", self.notes((NAME, data)))

    def test_program_of_the_op_selects_the_schedule(self) -> None:
        data = traced_kernels(
            [kernel(0, 400, program_id=7)],
            [("jit_g(5)::flash.3", straight()), (NAME, schedule(region(0, 9, work(1, 8))))],
            programs=[(7, "jit_f(7)")],
        )
        [row] = answer(data, "kernel")["kernels"]
        self.assertEqual(row["schedule"]["n_bundles"], 9)
