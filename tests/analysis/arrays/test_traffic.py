"""Test which values of a program are the same array, and the bytes that ops move, on small
programs with answers by hand."""

from __future__ import annotations

import unittest
from collections.abc import Sequence
from typing import Any

from _breakdown.analysis.arrays.graph import Value
from _breakdown.analysis.arrays.traffic import copied_by
from _breakdown.analysis.arrays.values import Arrays
from _proto.hlo.program import Program as Compiled
from tests.analysis.small_programs import Program, loop, rounds, take
from tests.builders import hlo_proto
from tests.builders.hlo_proto import array, module, op, shares_memory, tuple_of
from tests.builders.traffic import COPY, IN_VMEM, SIZE, by_array, given
from tests.builders.xspace import Op, encode, memory_access_breakdown, op as event
from tests.fuzz import time_limit

BIG = array("f32", 4, 8, 128)


def moved(program: Program, ran: Sequence[Op], **more: Any) -> dict[str, tuple[int, int]]:
    """Map each array to the bytes that the step writes and reads of it. The array's name is that of
    the op that makes it or, for parameters, of the argument."""
    rows = by_array(program, ran, **more)["arrays"]
    return {row["name"] or row["hlo_op"]: (row["written_bytes"], row["read_bytes"]) for row in rows}


class SameArray(unittest.TestCase):
    def test_op_reads_its_operands_and_writes_its_result(self) -> None:
        program = {"main": [given(), op("neg", "negate", "x"), op("sum", "add", "x", "neg")]}
        ran = [event("neg", COPY, 0, 10), event("sum", COPY, 10, 10)]
        self.assertEqual(
            moved(program, ran), {"x": (0, 2 * SIZE), "neg": (SIZE, SIZE), "sum": (SIZE, 0)}
        )

    def test_bitcast_and_element_of_a_tuple_are_the_same_array(self) -> None:
        pair = tuple_of(array("f32", 8, 128), array("f32", 8, 128))
        program = {
            "main": [
                given(),
                op("neg", "negate", "x"),
                op("flat", "bitcast", "neg", shape=array("f32", 1024)),
                op("pair", "tuple", "x", "flat", shape=pair),
                take("part", "pair", 1),
                op("out", "exponential", "part"),
            ]
        }
        ran = [event("neg", COPY, 0, 10), event("out", COPY, 10, 10)]
        self.assertEqual(moved(program, ran)["neg"], (SIZE, SIZE))

    def test_loop_carry_is_one_array(self) -> None:
        body = [
            op("state", "parameter"),
            take("carried", "state", 0),
            take("kept", "state", 1),
            op("next", "add", "carried", "kept"),
            op("states", "tuple", "next", "kept"),
        ]
        ran = rounds("next", COPY, 0, 10, 3)
        program = loop(body, 2)
        program["main"][0] = given("x.0")
        program["main"][1] = given("x.1", 1)
        self.assertEqual(moved(program, ran), {"x.0": (3 * SIZE, 3 * SIZE), "x.1": (0, 3 * SIZE)})

    def test_argument_and_result_of_nested_calls_are_the_same_arrays(self) -> None:
        program = {
            "inner": [op("i", "parameter"), op("neg", "negate", "i")],
            "outer": [op("o", "parameter"), op("call.2", "call", "o", calls=["inner"])],
            "main": [
                given(),
                op("call.1", "call", "x", calls=["outer"]),
                op("out", "exponential", "call.1"),
            ],
        }
        ran = [event("neg", COPY, 0, 10), event("out", COPY, 10, 10)]
        self.assertEqual(
            moved(program, ran), {"x": (0, SIZE), "neg": (SIZE, SIZE), "out": (SIZE, 0)}
        )

    def test_results_of_the_branches_of_a_conditional_are_one_array(self) -> None:
        program = {
            "yes": [op("y", "parameter"), op("neg", "negate", "y")],
            "no": [op("n", "parameter"), op("exp", "exponential", "n")],
            "main": [
                op("which", "parameter", shape=array("pred")),
                given("a", 1),
                given("b", 2),
                op("if", "conditional", "which", "a", "b", calls=["yes", "no"]),
                op("out", "sine", "if"),
            ],
        }
        ran = [event("neg", COPY, 0, 10), event("exp", COPY, 10, 10), event("out", COPY, 20, 10)]
        self.assertEqual(
            moved(program, ran),
            {"a": (0, SIZE), "b": (0, SIZE), "neg": (2 * SIZE, SIZE), "out": (SIZE, 0)},
        )

    def test_result_in_the_memory_of_a_donated_parameter_is_another_array(self) -> None:
        program = {"main": [given(), op("neg", "negate", "x")]}
        ran = [event("neg", COPY, 0, 10)]
        rows = by_array(program, ran, extra=hlo_proto.aliases((0, ())))["arrays"]
        self.assertEqual({row["kind"] for row in rows}, {"parameter", "result"})

    def test_kernel_that_shares_an_operand_updates_it_by_an_unknown_amount(self) -> None:
        kernel = op(
            "kernel.1", "custom-call", "x", "y", target="tpu_custom_call", extra=shares_memory(0)
        )
        program = {"main": [given("x"), given("y", 1), kernel, op("out", "sine", "kernel.1")]}
        ran = [event("kernel.1", "custom-call", 0, 10), event("out", COPY, 10, 10)]
        self.assertEqual(moved(program, ran), {"x": (0, SIZE), "y": (0, SIZE), "out": (SIZE, 0)})


class Damage(unittest.TestCase):
    def test_copy_of_itself_is_no_copy_of_an_array(self) -> None:
        itself = [op("x", "copy", "x")]
        around = [op("x", "fusion", "x", calls=["inside"])]
        given = [op("p", "parameter"), op("y", "copy", "p")]
        programs: list[Program] = [
            {"main": itself},
            {"inside": itself, "main": [op("f", "fusion", calls=["inside"])]},
            {
                "inside": [op("p", "parameter")],
                "outer": around,
                "main": [op("f", "fusion", calls=["outer"])],
            },
            {"inside": given, "outer": around, "main": [op("f", "fusion", calls=["outer"])]},
        ]
        for program in programs:
            read = Compiled(encode(module(program)), 0, lambda: None, lambda complaint: None)
            here = read.instruction("f") or read.instruction("x")
            assert here
            with time_limit(1):
                copied_by(here, (), Arrays(read))

    def test_tuple_that_contains_itself_is_an_array(self) -> None:
        program = {"main": [op("x", "get-tuple-element", "x"), op("y", "negate", "x")]}
        read = Compiled(encode(module(program)), 0, lambda: None, lambda complaint: None)
        here = read.instruction("x")
        assert here
        with time_limit(1):
            Arrays(read).array_of(Value(here))


class Bytes(unittest.TestCase):
    def test_each_result_of_a_fusion_is_an_array(self) -> None:
        pair = tuple_of(array("f32", 8, 128), array("bf16", 8, 128))
        program = {
            "body": [
                op("p", "parameter"),
                op("neg", "negate", "p"),
                op("narrow", "convert", "p", shape=array("bf16", 8, 128)),
                op("both", "tuple", "neg", "narrow", shape=pair),
            ],
            "main": [given(), op("fusion.1", "fusion", "x", shape=pair, calls=["body"])],
        }
        rows = by_array(program, [event("fusion.1", COPY, 0, 10)])["arrays"]
        found = [(row["shape"], row["written_bytes"], row["read_bytes"]) for row in rows]
        self.assertEqual(
            sorted(found),
            [("bf16[8,128]", SIZE // 2, 0), ("f32[8,128]", 0, SIZE), ("f32[8,128]", SIZE, 0)],
        )

    def test_slice_inside_a_fusion_reads_the_slice(self) -> None:
        program = {
            "body": [
                op("p", "parameter", shape=BIG),
                op("i", "parameter", shape=array("s32"), number=1),
                op("slice", "dynamic-slice", "p", "i", "i", "i"),
                op("neg", "negate", "slice"),
            ],
            "main": [
                given(shape=BIG),
                op("i.1", "constant", shape=array("s32")),
                op("fusion.1", "fusion", "x", "i.1", calls=["body"]),
            ],
        }
        found = moved(program, [event("fusion.1", COPY, 0, 10)])
        self.assertEqual((found["x"], found["fusion.1"]), ((0, SIZE), (SIZE, 0)))

    def test_update_in_place_writes_the_update_of_the_same_array(self) -> None:
        """The fusion copies the array inside, as compilers write it, which moves nothing."""
        program = {
            "copied": [op("c", "parameter", shape=BIG), op("copy.1", "copy", "c", shape=BIG)],
            "body": [
                op("p", "parameter", shape=BIG),
                op("u", "parameter", number=1),
                op("i", "parameter", shape=array("s32"), number=2),
                op("inner", "fusion", "p", shape=BIG, calls=["copied"]),
                op("update", "dynamic-update-slice", "inner", "u", "i", "i", "i", shape=BIG),
            ],
            "main": [
                given(shape=BIG),
                given("u.1", 1),
                op("i.1", "constant", shape=array("s32")),
                op("fusion.1", "fusion", "x", "u.1", "i.1", shape=BIG, calls=["body"]),
                op("out", "negate", "fusion.1", shape=BIG),
            ],
        }
        ran = [event("fusion.1", COPY, 0, 10), event("out", COPY, 10, 10)]
        found = moved(program, ran)
        self.assertEqual((found["x"], found["u.1"]), ((SIZE, 4 * SIZE), (0, SIZE)))

    def test_asynchronous_copy_to_vmem_reads_hbm_once_and_writes_none(self) -> None:
        started = tuple_of(IN_VMEM, array("f32", 8, 128), array("u32"))
        program = {
            "main": [
                given(),
                op("copy-start.1", "copy-start", "x", shape=started),
                op("copy-done.1", "copy-done", "copy-start.1", shape=IN_VMEM),
                op("out", "negate", "copy-done.1"),
            ]
        }
        ran = [
            event("copy-start.1", "copy-start", 0, 1),
            event("copy-done.1", "copy-done", 10, 10),
            event("out", COPY, 20, 10),
        ]
        self.assertEqual(moved(program, ran), {"x": (0, SIZE), "out": (SIZE, 0)})

    def test_parts_of_an_asynchronous_op_that_pass_an_array_on_read_it_once(self) -> None:
        arrays = array("f32", 8, 128), array("f32", 8, 128)
        program = {
            "main": [
                given(),
                op("gather-start", "all-gather-start", "x", shape=tuple_of(*arrays)),
                op("gather-done", "all-gather-done", "gather-start", "x"),
            ]
        }
        ran = [
            event("gather-start", "all-gather-start", 0, 1),
            event("gather-done", "all-gather-done", 10, 10),
        ]
        self.assertEqual(moved(program, ran), {"x": (0, SIZE), "gather-done": (SIZE, 0)})

    def test_bytes_are_scaled_to_those_that_the_profiler_counts(self) -> None:
        program = {"main": [given(), op("neg", "negate", "x")]}
        counted = memory_access_breakdown((1, 1, 2 * SIZE), (2, 1, SIZE))
        ran = [event("neg", COPY, 0, 10, bytes_accessed=9, memory_access_breakdown=counted)]
        found = by_array(program, ran)
        self.assertEqual(found["totals"]["hbm_bytes"], 3 * SIZE)
        self.assertEqual(found["totals"]["agreeing_pct"], 0)

    def test_bytes_of_an_op_without_arrays_in_hbm_are_unattributed(self) -> None:
        program = {"main": [op("x", "iota", shape=IN_VMEM), op("y", "negate", "x", shape=IN_VMEM)]}
        counted = memory_access_breakdown((1, 1, 80))
        ran = [event("y", COPY, 0, 10, bytes_accessed=9, memory_access_breakdown=counted)]
        found = by_array(program, ran)
        self.assertEqual((found["arrays"], found["totals"]["unattributed_bytes"]), ([], 80))


class Times(unittest.TestCase):
    PROGRAM: Program = {  # noqa: RUF012
        "main": [given(), op("neg", "negate", "x"), op("sum", "add", "x", "neg", shape=BIG)]
    }

    def ran(self) -> list[Op]:
        return [event("neg", COPY, 0, 11), event("sum", COPY, 20, 61)]

    def test_time_of_an_op_is_divided_among_its_arrays_by_bytes(self) -> None:
        found = by_array(self.PROGRAM, self.ran())
        times = {row["name"] or row["hlo_op"]: row["dur_ps"] for row in found["arrays"]}
        # `neg` moves two arrays of equal size; `sum` moves two, and one of the fourfold size.
        self.assertEqual(times, {"x": 5 + 10, "neg": 6 + 10, "sum": 41})
        self.assertEqual(found["totals"]["bound_ps"], 11 + 61)

    def test_time_of_an_op_far_slower_than_its_bytes_is_not_divided(self) -> None:
        # Each array takes 1 ps at this peak.
        found = by_array(self.PROGRAM, self.ran(), "--peak-hbm-gibps", str(SIZE * 10**12 / 2**30))
        times = {row["name"] or row["hlo_op"]: row["dur_ps"] for row in found["arrays"]}
        self.assertEqual(found["totals"]["bound_ps"], 11)
        self.assertEqual(times["sum"], 0)
