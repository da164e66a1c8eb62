"""Test the mode `by_op`: rows, figures, `--op`, and agreement with XProf's own op table."""

from __future__ import annotations

import unittest
from fractions import Fraction
from typing import Any

from tests.builders import hlo_proto
from tests.builders.hlo_proto import array, metadata_plane, op as instruction, tuple_of
from tests.builders.xspace import Op, Space, encode, memory_access_breakdown, op, tpu_plane, trace
from tests.harness import Json, answer, run

STEP = [("s", 0, 10_000_000)]
BF16 = "bf16[8,128]{1,0:T(8,128)(2,1)}"
KERNEL = ', custom_call_target="tpu_custom_call"'
# Peaks of v7x: flops per picosecond and bytes per picosecond.
PEAK, HBM = Fraction("1153.5"), Fraction(3690 * 2**30, 10**12)


def result_of(ops: list[Op], *options: str) -> Json:
    return answer(trace(ops, STEP), "by_op", *options)


def row_of(*ops: Op, options: tuple[str, ...] = ()) -> Json:
    """Return the only row for the given ops."""
    [row] = result_of(list(ops), *options)["ops"]
    found: Json = row
    return found


def matmul(start: int, dur: int, **facts: Any) -> Op:
    facts = {"shape": BF16, "flops": 10**9, "bytes_accessed": 10**6, **facts}
    return op(facts.pop("name", "f.1"), "convolution fusion", start, dur, **facts)


class Rows(unittest.TestCase):
    def test_ops_with_the_same_name_and_program_share_a_row(self) -> None:
        result = result_of(
            [
                op("a.1", "loop fusion", 0, 10, program_id=7),
                op("a.1", "loop fusion", 10, 20, program_id=8),
                op("b", "copy", 30, 30, program_id=7),
                op("a.1", "loop fusion", 60, 5, program_id=7, flops=3),
                op("a.2", "loop fusion", 65, 20, program_id=2**64 - 1),
                op("a.1", "loop fusion", 85, 20),
                op("a.1", "loop fusion", 105, 9, program_id=7),
            ]
        )
        self.assertEqual(
            [(row["hlo_op"], row["program_id"], row["total_dur_ps"]) for row in result["ops"]],
            [
                ("b", "7", 30),
                ("a.1", "7", 24),
                ("a.1", None, 20),
                ("a.1", "8", 20),
                ("a.2", str(2**64 - 1), 20),
            ],
        )
        first = result["ops"][1]
        self.assertEqual(
            [first[name] for name in ("n_executions", "min_dur_ps", "max_dur_ps", "avg_dur_ps")],
            [3, 5, 10, 8],
        )
        self.assertIsNone(first["flops"], "facts are those of the first entry")

    def test_ops_whose_names_and_scopes_differ_only_in_numbers_are_merged(self) -> None:
        """Test that ops are merged before the rows are cut, so that sums do not depend on
        `--top`."""
        ops = [
            op("f.1", "loop fusion", 0, 10, tf_op="jit(f)/layers_0/mlp/add:"),
            op("f.1", "loop fusion", 10, 10, tf_op="jit(f)/layers_0/mlp/add:"),
            op("f.2", "loop fusion", 20, 30, tf_op="jit(f)/layers_1/mlp/add:"),
            op("f", "loop fusion", 50, 5, tf_op="jit(f)/head/add:"),
            op("g", "loop fusion", 60, 40, tf_op="jit(f)/head/add:"),
            op("f.3", "copy", 100, 20, tf_op="jit(f)/layers_2/mlp/add:"),
        ]
        expected = [
            ("f.*", "layers_*/mlp", 2, 3, None, 50, 17),
            ("g", "head", 1, 1, 1, 40, 40),
            ("f.3", "layers_2/mlp", 1, 1, 1, 20, 20),
            ("f", "head", 1, 1, 1, 5, 5),
        ]
        for top in (0, 1, 4, 50):
            result = answer(trace(ops, STEP), "by_op", f"--top={top}")
            merged = [
                (
                    *(row["hlo_op"], row["scope"], row["n_ops"], row["n_executions"]),
                    *(row["n_executions_each"], row["total_dur_ps"], row["avg_dur_ps"]),
                )
                for row in result["merged"]
            ]
            self.assertEqual(merged, expected[:top])
        self.assertNotIn("merged", answer(trace(ops, STEP), "by_op", "--no-merge"))


class Figures(unittest.TestCase):
    def test_rates_are_computed_for_an_average_execution(self) -> None:
        space = memory_access_breakdown((1, 1, 3 * 10**6), (2, 3, 10**9))
        row = row_of(
            matmul(0, 1_000_000, memory_access_breakdown=space),
            matmul(2_000_000, 3_000_000, memory_access_breakdown=space),
        )
        self.assertEqual(
            (row["flops"], row["bytes_accessed"], row["hbm_bytes"]), (10**9, 10**6, 3 * 10**6)
        )
        # An average execution takes 2 µs for 10⁹ flops and 3 · 10⁶ bytes.
        self.assertEqual((row["achieved_tflops"], row["achieved_gbps"]), (500.0, 1500.0))
        row = row_of(matmul(0, 3_000_000))
        self.assertEqual((row["achieved_tflops"], row["achieved_gbps"]), (333.333, 333.333))
        self.assertIsNone(row["hbm_bytes"])

    def test_roof_of_a_row_is_null_if_an_entry_has_no_roof(self) -> None:
        row = row_of(matmul(0, 2_000_000), matmul(2_000_000, 10, flops=0, bytes_accessed=0))
        self.assertEqual(
            (row["class"], row["at_roof_ps"], row["lost_ps"]), ("compute_bound", None, None)
        )

    def test_kernel_cost_comes_from_the_user_or_from_xla(self) -> None:
        kernel = op("k.3", "custom-call", 0, 10**6, attributes=KERNEL, flops=0, bytes_accessed=500)
        row = row_of(kernel)
        facts = ("kernel", "cost_source", "flops", "bytes_accessed", "achieved_gbps")
        self.assertEqual([row[name] for name in facts], ["k", None, None, 500, 0.5])
        row = row_of(kernel, options=("--kernel-cost", "k=1e9,3e6,fp8"))
        self.assertEqual([row[name] for name in facts], ["k", "user", 10**9, 3 * 10**6, 3000.0])
        self.assertEqual(row["dtype"], "fp8")
        self.assertEqual((row["class"], row["achieved_tflops"]), ("memory_bound", 1000.0))
        row = row_of(op("k.3", "custom-call", 0, 10, attributes=KERNEL, flops=9))
        self.assertEqual([row[name] for name in facts[:3]], ["k", "xla", 9])

    def test_operand_dtypes_are_those_in_memory_before_any_conversion(self) -> None:
        square = {dtype: array(dtype, 8, 8) for dtype in ("f32", "bf16", "s32", "pred")}
        widened = [
            instruction("w.0", "parameter", shape=square["f32"]),
            instruction("w.1", "convert", "w.0", shape=square["bf16"]),
        ]
        fused = [
            instruction("x", "parameter", shape=square["bf16"]),
            instruction("y", "parameter", shape=square["f32"], number=1),
            instruction("ids", "parameter", shape=square["s32"], number=2),
            instruction("w", "fusion", "y", shape=square["bf16"], calls=["widened"]),
            instruction("hot", "compare", "ids", "ids", shape=square["pred"]),
            instruction("sum", "add", "x", "x", shape=square["bf16"]),
        ]
        main = [
            instruction("a", "parameter", shape=square["bf16"]),
            instruction("b", "parameter", shape=square["f32"], number=1),
            instruction("c", "parameter", shape=square["s32"], number=2),
        ]
        for operands, expected in (
            (("x", "x"), ["bf16"]),
            (("x", "y"), ["bf16", "f32"]),
            (("w", "w"), ["f32"]),
            (("w", "sum"), ["f32", "bf16"]),
            (("hot", "x"), ["pred", "bf16"]),
            (None, None),
        ):
            dot = [instruction("d", "dot", *operands, shape=square["bf16"])] if operands else []
            top = instruction("f.1", "fusion", "a", "b", "c", calls=["fused"], shape=square["bf16"])
            program = hlo_proto.hlo_proto(
                {"widened": widened, "fused": [*fused, *dot], "main": [*main, top]}
            )
            ops = [matmul(0, 10, program_id=7)]
            data = encode(Space([tpu_plane(ops, STEP), metadata_plane({7: ("f", program)})]))
            with self.subTest(operands=operands):
                self.assertEqual(answer(data, "by_op")["ops"][0]["operand_dtypes"], expected)
        # A dot outside a fusion reads its operands directly from memory.
        bare = hlo_proto.hlo_proto({"main": [*main, instruction("f.1", "dot", "a", "b")]})
        data = encode(Space([tpu_plane(ops, STEP), metadata_plane({7: ("f", bare)})]))
        self.assertEqual(answer(data, "by_op")["ops"][0]["operand_dtypes"], ["bf16", "f32"])
        self.assertIsNone(result_of(ops)["ops"][0]["operand_dtypes"])


BODY = [
    instruction("p.0", "parameter", shape=array("bf16", 8, 128)),
    instruction("c.0", "constant", shape=array("s32")),
    instruction("m.0", "multiply", "p.0", "p.0", shape=array("bf16", 8, 128), line="m.py:5"),
    instruction("t.0", "tuple", "m.0", "c.0", shape=tuple_of(array("bf16", 8, 128), array("s32"))),
]
MAIN = [
    instruction("x", "parameter", shape=array("bf16", 8, 128), line="m.py:1"),
    instruction("fusion.1", "fusion", "x", "x", calls=["fused"], line="m.py:4"),
    instruction("copy-start.1", "copy-start", "x"),
    instruction("copy-done.1", "copy-done", "copy-start.1", line="m.py:9"),
    instruction("y", "add", "copy-done.1", "fusion.1", shape=array("f32")),
    instruction("z", "add", "copy-done.1", "fusion.1", shape=array("s8", 2)),
]


def with_program(ops: list[Op], **more: Any) -> bytes:
    program = hlo_proto.hlo_proto({"fused": BODY, "main": MAIN, **more})
    for ran in ops:
        ran.stats.setdefault("program_id", 7)
    return encode(Space([tpu_plane(ops, STEP), metadata_plane({7: ("f", program)})]))


class OneOp(unittest.TestCase):
    def one(self, data: bytes, name: str) -> Json:
        result = answer(data, "by_op", "--top", "0", "--op", name)
        self.assertEqual(result["ops"], [])
        found: Json = result["op"]
        return found

    def test_option_op_adds_details_to_the_row_of_the_op(self) -> None:
        ops = [
            op("a", "copy", 0, 10),
            op("b", "copy", 10, 20, stack="m.py:1:1\nn.py:2:2"),
            op("a", "copy", 90, 5),
        ]
        for name, more in (
            ("b", {"source_stack": "n.py:2:2\nm.py:1:1", "executions": [[10, 20]]}),
            ("a", {"source_stack": None, "executions": [[0, 10], [90, 5]]}),
        ):
            result = result_of(ops, "--op", name)
            [row] = [row for row in result["ops"] if row["hlo_op"] == name]
            text = (
                f"%{name} = f32[8,128]{{1,0:T(8,128)}} copy(f32[8,128]{{1,0:T(8,128)}} %operand.1)"
            )
            self.assertEqual(result["op"], {**row, "text": text, **more, "program": None})
        self.assertNotIn("op", result_of(ops))

    def test_fusion_has_operands_users_and_body(self) -> None:
        found = self.one(with_program([op("fusion.1", "loop fusion", 0, 10)]), "fusion.1")
        x = {"name": "x", "opcode": "parameter", "shape": "bf16[8,128]", "source_inner": "m.py:1"}
        self.assertEqual(
            found["program"],
            {
                "computation": "main",
                "operands": [x, x],
                "users": [
                    {"name": "y", "opcode": "add", "shape": "f32[]", "source_inner": None},
                    {"name": "z", "opcode": "add", "shape": "s8[2]", "source_inner": None},
                ],
                "chain": [],
                "called": [
                    {
                        "name": "fused",
                        "n_instructions": 4,
                        "instructions": [
                            {
                                "name": name,
                                "opcode": opcode,
                                "shape": shape,
                                "operands": operands,
                                "source_inner": line,
                            }
                            for name, opcode, shape, operands, line in (
                                ("p.0", "parameter", "bf16[8,128]", [], None),
                                ("c.0", "constant", "s32[]", [], None),
                                ("m.0", "multiply", "bf16[8,128]", ["p.0", "p.0"], "m.py:5"),
                                ("t.0", "tuple", "(bf16[8,128], s32[])", ["m.0", "c.0"], None),
                            )
                        ],
                    }
                ],
            },
        )

    def test_wait_has_the_chain_from_start_to_done(self) -> None:
        found = self.one(with_program([op("copy-done.1", "copy-done", 0, 10)]), "copy-done.1")
        self.assertEqual(found["program"]["chain"], ["copy-start.1", "copy-done.1"])
        self.assertEqual([row["name"] for row in found["program"]["users"]], ["y", "z"])
        self.assertEqual((found["waits_for"], found["source_is"]), ("dma", "own"))
        self.assertEqual(found["program"]["called"], [])

    def test_container_can_be_selected_although_it_has_no_row(self) -> None:
        more = {"loop": [instruction("while.1", "while", calls=["fused"])]}
        ops = [op("while.1", "while", 0, 50, flops=8), op("fusion.1", "loop fusion", 0, 10)]
        found = self.one(with_program(ops, **more), "while")
        self.assertEqual(
            [found[name] for name in ("kind", "class", "at_roof_ps", "lost_ps")],
            ["container", None, None, None],
        )
        self.assertEqual((found["total_dur_ps"], found["executions"]), (50, [[0, 50]]))
        self.assertEqual(
            [computation["name"] for computation in found["program"]["called"]], ["fused"]
        )


class Names(unittest.TestCase):
    OPS = (
        op("fusion.1", "loop fusion", 0, 10),
        op("fusion.12", "loop fusion", 10, 10),
        op("copy-done.7", "copy-done", 20, 10),
        op("42", "copy", 30, 10),
        op("while.9", "while", 0, 99),
    )

    def test_op_is_selected_by_exact_name_or_unique_prefix(self) -> None:
        for asked, name in (
            ("fusion.1", "fusion.1"),
            ("%fusion.1", "fusion.1"),
            ("fusion.12", "fusion.12"),
            ("copy", "copy-done.7"),
            ("%c", "copy-done.7"),
            ("w", "while.9"),
            ("42", "42"),
        ):
            result = result_of(list(self.OPS), "--top=0", "--op", asked)
            self.assertEqual(result["op"]["hlo_op"], name)
            notes = [note for note in result["notes"] if "the only name with" in note]
            is_whole = asked.removeprefix("%") == name
            short = asked.removeprefix("%")
            expected = f"--op {short}: using {name}, the only name with this prefix"
            self.assertEqual(notes, [] if is_whole else [expected])

    def test_unknown_or_ambiguous_name_is_rejected_and_similar_names_are_listed(self) -> None:
        everything = ["42", "copy-done.7", "fusion.1", "fusion.12", "while.9"]
        for asked, near in (
            ("fusion", ["fusion.1", "fusion.12", "42", "copy-done.7", "while.9"]),
            ("FUSION.12", ["fusion.12", "fusion.1", "42", "copy-done.7", "while.9"]),
            ("fusion.13", ["fusion.1", "fusion.12", "42", "copy-done.7", "while.9"]),
            ("done", ["copy-done.7", "42", "fusion.1", "fusion.12", "while.9"]),
            # A name that is a number must match exactly.
            ("4", everything),
            ("%nothing", everything),
        ):
            outcome = run(trace(list(self.OPS), STEP), "by_op", "--op", asked)
            self.assertEqual((outcome.object["reason"], outcome.status), ("op_not_found", 1))
            self.assertEqual(outcome.object["available_ops"], near, asked)
            self.assertIn(repr(asked), outcome.object["detail"])
            self.assertEqual(outcome.stderr.count("\n"), 1)

    def test_longest_op_is_used_with_a_note_if_several_programs_have_the_name(self) -> None:
        ops = [
            op("a", "copy", 0, 10, program_id=1),
            op("a", "copy", 10, 30, program_id=2),
            op("a", "copy", 40, 25, program_id=3),
            op("ab", "copy", 70, 99, program_id=1),
        ]
        result = result_of(ops, "--op", "a")
        self.assertEqual(result["op"]["program_id"], "2")
        note = "3 programs have an op a; using the op of program 2, because it takes the most time"
        self.assertIn(note, result["notes"])
        self.assertEqual(result_of(ops[:3], "--op", "a")["op"]["program_id"], "2")
