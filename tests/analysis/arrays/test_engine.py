"""Test the estimates of edited steps, on small programs with answers by hand."""

from __future__ import annotations

import unittest
from collections.abc import Callable

from _breakdown.analysis.arrays.engine import Change, Overlap, Resize, Retime, removal_of
from _breakdown.analysis.arrays.graph import Value
from _proto.hlo.program import Instruction
from tests.analysis.small_programs import Program as SmallProgram, loop, rounds, take
from tests.builders.hlo_proto import array, listed_groups, op
from tests.builders.traffic import IN_VMEM, SIZE, Find, estimated, given
from tests.builders.xspace import Op, memory_access_breakdown, op as event

NAMES = ("made", "used", "out")
GROUPS = listed_groups((0, 1, 2, 3))
LARGE = array("f32", 1024, 1024)


def made(find: Find, name: str) -> Instruction:
    """Return the instruction of an op, which names the array that the op writes."""
    instruction = find(name).op.instruction
    assert instruction is not None
    return instruction


def bound(name: str, start: int, dur: int, *, moved: int = 2 * SIZE, flops: int = 0) -> Op:
    """Return an op that HBM limits unless it has many flops."""
    counted = memory_access_breakdown((1, 1, moved))
    return event(
        name,
        "loop fusion",
        start,
        dur,
        shape="bf16[8]{0}",
        flops=flops,
        bytes_accessed=moved,
        memory_access_breakdown=counted,
    )


class Edits(unittest.TestCase):
    CHAIN: SmallProgram = {  # noqa: RUF012
        "main": [
            given(),
            op("made", "negate", "x"),
            op("used", "sine", "made"),
            op("out", "cosine", "used"),
        ]
    }

    def ran(self, flops: int = 0) -> list[Op]:
        return [bound("made", 0, 100), bound("used", 100, 200, flops=flops), bound("out", 300, 50)]

    def gain(self, changes: Callable[[Find], list[Change]], flops: int = 0) -> int:
        return estimated(self.CHAIN, self.ran(flops), changes).estimate

    def test_removed_op_saves_its_time(self) -> None:
        self.assertEqual(self.gain(lambda find: removal_of([find("used")])), 200)

    def test_op_with_another_time_saves_the_difference(self) -> None:
        self.assertEqual(self.gain(lambda find: [Retime(find("used"), 30)]), 170)

    def test_op_that_becomes_slower_costs_what_another_saves(self) -> None:
        changes = self.gain(lambda find: [*removal_of([find("made")]), Retime(find("used"), 260)])
        self.assertEqual(changes, 100 - 60)

    def test_op_that_becomes_slower_twice_adds_up(self) -> None:
        slower = self.gain(
            lambda find: [
                *removal_of([find("made")]),
                *(Retime(find("used"), 220), Retime(find("used"), 230)),
            ]
        )
        self.assertEqual(slower, 100 - 20 - 30)

    def test_no_change_saves_more_than_all_ops_of_the_class_take(self) -> None:
        gain = estimated(self.CHAIN, self.ran(), lambda find: removal_of([*map(find, NAMES)]))
        self.assertEqual((gain.estimate, gain.high), (350, 350))
        # The other two ops are limited by HBM, and take 150 ps.
        ops = self.ran(flops=10**9)
        gain = estimated(self.CHAIN, ops, lambda find: removal_of([find("made")]))
        self.assertEqual((gain.estimate, gain.high), (100, 150))

    def test_copies_save_at_most_their_own_time(self) -> None:
        copies = [event(name, "data formatting", 100 * i, 100) for i, name in enumerate(NAMES)]
        gain = estimated(self.CHAIN, copies, lambda find: removal_of([find("made")]))
        self.assertEqual((gain.estimate, gain.high), (100, 100))

    def test_narrow_array_speeds_up_the_two_ops_that_it_bounds(self) -> None:
        # The array is half of the bytes of both ops.
        narrowed = self.gain(lambda find: [Resize(Value(made(find, "made")), 0.5)])
        self.assertEqual(narrowed, 25 + 50)

    def test_narrow_array_does_not_speed_up_an_op_that_computes(self) -> None:
        narrowed = self.gain(lambda find: [Resize(Value(made(find, "made")), 0.5)], flops=10**9)
        self.assertEqual(narrowed, 25)

    def test_op_that_only_makes_an_array_goes_with_it(self) -> None:
        left_out = self.gain(lambda find: [Resize(Value(made(find, "made")), 0)])
        self.assertEqual(left_out, 100 + 100)

    def test_two_edits_of_one_op_are_not_the_sum(self) -> None:
        both = self.gain(
            lambda find: [Resize(Value(made(find, "made")), 0.5), *removal_of([find("used")])]
        )
        self.assertEqual(both, 25 + 200)

    def test_estimate_without_gain_has_no_range(self) -> None:
        gain = estimated(self.CHAIN, self.ran(), lambda find: [])
        self.assertEqual(gain, (0, None, None))

    def test_array_in_vmem_saves_nothing(self) -> None:
        program: SmallProgram = {
            "main": [given(), op("made", "negate", "x", shape=IN_VMEM), op("out", "sine", "made")]
        }
        ran = [bound("made", 0, 100, moved=SIZE), bound("out", 100, 100, moved=SIZE)]
        gain = estimated(program, ran, lambda find: [Resize(Value(made(find, "made")), 0.5)])
        self.assertEqual(gain.estimate, 0)

    def test_op_outside_the_loop_runs_once(self) -> None:
        body = [
            op("state", "parameter"),
            take("carried", "state", 0),
            op("next", "negate", "carried"),
            op("states", "tuple", "next"),
        ]
        ran = rounds("next", "loop fusion", 0, 40, 4)
        gain = estimated(
            loop(body, 1), ran, lambda find: [Retime(find("next"), find("next").total / 4)]
        )
        self.assertEqual(gain.estimate, 3 * 40)


class Collectives(unittest.TestCase):
    PROGRAM: SmallProgram = {  # noqa: RUF012
        "main": [
            op("x", "parameter", shape=LARGE),
            op("start", "all-gather-start", "x", shape=LARGE, extra=GROUPS),
            op("math", "negate", "x", shape=LARGE),
            op("done", "all-gather-done", "start", shape=LARGE),
            op("out", "add", "math", "done", shape=LARGE),
        ]
    }

    def test_removed_math_exposes_the_collective_that_it_hid(self) -> None:
        ran = [
            event("start", "all-gather-start", 0, 1),
            event("math", "loop fusion", 1, 300),
            event("done", "all-gather-done", 301, 100),
            event("out", "loop fusion", 401, 50),
        ]
        gain = estimated(self.PROGRAM, ran, lambda find: removal_of([find("math")]))
        # The gather takes as long as the math and the wait, so nothing is saved.
        self.assertEqual(gain.estimate, 0)

    def test_overlapped_collective_runs_during_math(self) -> None:
        program: SmallProgram = {
            "main": [
                op("x", "parameter", shape=LARGE),
                op("math", "negate", "x", shape=LARGE),
                op("gather", "all-gather", "x", shape=LARGE, extra=GROUPS),
                op("out", "add", "math", "gather", shape=LARGE),
            ]
        }
        ran = [
            event("math", "loop fusion", 0, 300),
            event("gather", "all-gather", 300, 100),
            event("out", "loop fusion", 400, 60),
        ]
        gain = estimated(program, ran, lambda find: [Overlap([find("gather")])])
        self.assertEqual(gain.estimate, 100)
        # Hidden communication saves at most its own time.
        self.assertEqual(gain.high, 100)
