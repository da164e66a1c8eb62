"""Test the mode `bottleneck`: classes, hideable time, utilization bounds, and the user's MFU."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from typing import Any

import compute_breakdown
from _breakdown.modes.bottleneck import of_classes
from tests.answers import demo
from tests.builders import hlo_proto
from tests.builders.xspace import Op, Space, encode, memory_access_breakdown, op, tpu_plane, trace
from tests.harness import BRIEF, DEMO, OFFLOADING, Json, answer, as_process, captures, run, sampled
from tests.modes.small_steps import BF16, HERE, PEAKS, STEP, kernel, leaf, matmul
from tests.shown import text_of


def bottleneck(ops: list[Op], *options: str) -> Json:
    return answer(trace(ops, STEP), "bottleneck", *PEAKS, *options)


def notes_of_roofs(result: Json) -> list[str]:
    return [note for note in result["notes"] if "faster than their roof" in note]


class Findings(unittest.TestCase):
    def test_roof_uses_bytes_accessed_only_if_hbm_bytes_are_unknown(self) -> None:
        # The peaks are 1 byte and 2 flops per picosecond, so 8 bytes take as long as 16 flops.
        peaks = ("--peak-tflops-bf16", "2", "--peak-hbm-gibps", str(10**12 / 2**30))
        for breakdown, flops, name, at_roof in (
            ((1, 1, 8), 16, "compute_bound", 8),
            ((1, 1, 8), 14, "memory_bound", 8),
            (None, 16, "memory_bound", 20),
        ):
            facts: Json = {}
            if breakdown is not None:
                facts["memory_access_breakdown"] = memory_access_breakdown(breakdown)
            ops = [matmul(0, 50, flops, 20, **facts)]
            (row,) = answer(trace(ops, STEP), "bottleneck", *peaks)["findings"]
            self.assertEqual((row["class"], row["at_roof_ps"]), (name, at_roof))

    def test_waits_are_classified_by_the_awaited_op(self) -> None:
        host = "(f32[8]{0}, f32[8]{0:S(5)}, u32[]{:S(2)}) %copy-start.1"
        for category, operands, name in (
            ("copy-done", host, "host"),
            ("copy-done", "f32[8]{0} %copy-start.1", "data_movement"),
            ("all-gather-done", host, "collective"),
        ):
            result = bottleneck([op(f"{category}.1", category, 0, 10, operands=operands)])
            self.assertEqual([row["class"] for row in result["findings"]], [name])


class Size(unittest.TestCase):
    """Test the bytes of the default JSON, without the next steps, which contain the path."""

    def assert_small(self, path: Path) -> None:
        with self.subTest(path.name):
            printed = json.dumps(run(path, "bottleneck", BRIEF).object, separators=(",", ":"))
            advice = f"{len(printed)} bytes: leave out of the short answer what few readers need"
            self.assertLessEqual(len(printed), 15_000, advice)

    def test_default_json_is_small(self) -> None:
        self.assert_small(DEMO)

    def test_default_json_of_captures_is_small(self) -> None:
        for path in sampled(captures(), 1):
            self.assert_small(path)

    def test_text_says_that_causes_above_save_the_same_time(self) -> None:
        fields = demo("bottleneck")
        first = fields["causes"][0]
        gain = first["gain_ps"]
        for after, said in ((gain // 2 + 1, ""), (10**8, "only 100.0 µs"), (0, "nothing")):
            causes = [first, {**first, "gain_after_ps": after}]
            shown = " ".join(text_of({**fields, "causes": causes}, "utf-8").split())
            with self.subTest(after=after):
                self.assertEqual("Part of the rows above" in shown, bool(said))
                self.assertIn(f"this gains {said}" if said else "", shown)

    def test_answer_without_all_leaves_out_what_says_nothing_new(self) -> None:
        whole, brief = demo("bottleneck"), demo("bottleneck", BRIEF)
        self.assertLess(set(brief["totals"]), set(whole["totals"]))
        told = []
        for name in ("causes", "findings", "lines", "kernels_of_unknown_cost"):
            self.assertEqual(len(brief[name]), len(whole[name]))
            for row, full in zip(brief[name], whole[name], strict=True):
                self.assertFalse({"source_user", "source_inner"} <= row.keys())
                if name == "causes":
                    self.assertEqual(row["evidence"]["ops"], full["evidence"]["ops"][:3])
                    self.assertTrue(full["says"].startswith(row["says"]))
                    self.assertNotIn(" would save about ", row["says"])
                    row |= {"evidence": full["evidence"], "says": full["says"]}
                self.assertEqual({key: full[key] for key in row}, row)
                told += [row["what_helps"]] if row.get("what_helps") else []
        self.assertEqual(len(told), len(set(told)))


class NextSteps(unittest.TestCase):
    def test_classes_with_equal_shares_keep_their_order(self) -> None:
        shares = {"kernel": 30.0, "host": 30.0, "memory_bound": 0.1, "idle": 30.0}
        of_demo = demo("bottleneck")
        changed = {
            "budget": [{"class": name, "pct_of_step": share} for name, share in shares.items()],
            "bottleneck": "kernel",
        }
        modes = [step.words[1] for step in of_classes({**of_demo, **changed})]
        self.assertEqual(modes, ["kernel", "idle", "comm"])


class Lines(unittest.TestCase):
    def test_line_sums_all_its_findings_whatever_top_is(self) -> None:
        """Test that many small findings of a line outweigh one larger finding of another line."""
        ops = [
            op("copy.1", "copy", 0, 50, stack="a.py:1:1"),
            *(
                op(f"c.{i}", "copy", 50 + 20 * i, 20, stack=f"f.py:{i}:1\nb.py:2:1")
                for i in range(4)
            ),
        ]
        for top in (0, 1, 2, 9):
            result = answer(trace(ops, [("0", 0, 200)]), "bottleneck", f"--top={top}", "--own=b.py")
            rows = [(row["lost_ps"], row["dur_ps"], row["pct_of_step"]) for row in result["lines"]]
            self.assertEqual(rows, [(80, 80, 40), (50, 50, 25)][:top])
            tail = result["tail"]
            omitted = (tail["n_lines_omitted"], tail["lines_dur_ps"], tail["lines_lost_ps"])
            self.assertEqual(omitted, {0: (2, 130, 130), 1: (1, 50, 50)}.get(top, (0, 0, 0)))

    def test_time_of_unknown_cost_counts_as_lost_in_the_order_of_lines(self) -> None:
        ops = [
            op("copy.1", "copy", 0, 60, stack="a.py:1:1"),
            # Math and a kernel of unknown cost; the line of the math also loses a little time, and
            # kernels have a table of their own.
            op("copy.2", "copy", 60, 5, stack="b.py:2:1"),
            leaf(65, 70, "gather.1", stack="b.py:2:1"),
            kernel(135, 65, "flash.1", stack="c.py:3:1"),
        ]
        result = bottleneck(ops)
        self.assertEqual(
            [(row["class"], row["lost_ps"]) for row in result["lines"]],
            [("unjudged", 5), ("data_movement", 60), ("kernel", None)],
        )
        table = text_of(result, "utf-8").partition("lines by lost time")[2]
        first = table.splitlines()[2].split()
        self.assertEqual(first[:3], ["0.005", "0.070", "0.075"])


class WithoutSource(unittest.TestCase):
    def test_advice_is_for_at_least_half_of_the_time(self) -> None:
        for dur, is_told in ((50, True), (51, False)):
            ops = [
                op("t.1", "transpose", 0, 50, stack=HERE),
                op("c.1", "copy", 50, dur, stack=HERE, operands=f"{BF16} %x", shape=BF16),
            ]
            (row,) = bottleneck(ops)["findings"]
            self.assertEqual(bool(row["what_helps"]), is_told, row["what_helps"])


class Facts(unittest.TestCase):
    """Test the fields that describe a finding's op."""

    def test_shape_is_that_of_the_costliest_op_without_its_layout(self) -> None:
        for shape, shown in (
            (BF16, "bf16[8,128]"),
            ("(f32[8]{0}, s32[]{:T(128)})", "(f32[8], s32[])"),
            ("(f32[1]{0}, f32[2]{0}, f32[3]{0}, f32[4]{0})", "(f32[1], f32[2], f32[3], …)"),
        ):
            ops = [leaf(0, 9, "a.1", stack=HERE), leaf(9, 10, "a.2", stack=HERE, shape=shape)]
            with self.subTest(shape=shape):
                (row,) = bottleneck(ops)["findings"]
                self.assertEqual((row["hlo_op"], row["shape"]), ("a.2", shown))
        (row,) = bottleneck([op("a", "loop fusion", 0, 9, text="a", shape="")])["findings"]
        self.assertIsNone(row["shape"])


class WhatHelps(unittest.TestCase):
    """Test the advice for a finding; the peaks are 2 flops per picosecond and 1 GiB per second."""

    def test_advice_depends_on_class_and_kind_of_the_costliest_op(self) -> None:
        host = "f32[8]{0:S(5)}"
        large = "bf16[256,129]{1,0}"
        few: dict[str, Any] = {"shape": "f32[8,64]{1,0}", "bytes_accessed": 1}
        path = {"tf_op": "jit(f)/dot:"}
        for ran, begin in (
            (op("all-to-all.1", "all-to-all", 0, 9), "Shard the array in the same way"),
            (op("all-gather.1", "all-gather", 0, 9, shape=large), "Shard so that"),
            (op("all-to-all-done.1", "all-to-all-done", 0, 9), "Start the communication before"),
            (op("copy-done.1", "copy-done", 0, 9, shape=host), "Offload fewer"),
            (op("copy-done.1", "copy-done", 0, 9, operands=f"{host} %x"), "Start the copy one"),
            (op("infeed.1", "infeed", 0, 9), "Move callbacks"),
            (op("copy-done.1", "copy-done", 0, 9), "The copy comes too late"),
            (op("transpose.1", "transpose", 0, 9), "Use the same order of dimensions"),
            (op("gather.1", "gather", 0, 9, **few), "Gather and scatter"),
            (matmul(0, 9, 8, 0), "Make matmuls larger"),
            (matmul(0, 9, 8, 0, shape="f32[8]{0}"), None),
            (matmul(0, 999, 0, 1), "Process more rows"),
            (leaf(0, 999, bytes_accessed=1, flops=0, **path), "Keep these f32 arrays in bf16"),
            (leaf(0, 9, "copy_bitcast_fusion.1", bytes_accessed=1, **path), "Use the same order"),
            (op("f", "custom fusion", 0, 9, tf_op="f/gather:", **few), "Gather and"),
            (leaf(0, 9, "scatter.1", **few, **path), "Gather and scatter"),
            (leaf(0, 900 * 10**9, bytes_accessed=2**20, **path), "This is vector work"),
            (leaf(0, 9, bytes_accessed=0, **path), "This is vector work"),
            (leaf(0, 9, bytes_accessed=0, flops=8), "This is vector work"),
            (leaf(0, 9), None),
            (op("tuple.1", "tuple", 0, 9), None),
        ):
            with self.subTest(ran=ran):
                # Math without advice could hide a transfer.
                math = leaf(9, 9, "math", stack=HERE)
                rows = bottleneck([ran, math])["findings"]
                (row,) = (row for row in rows if row["hlo_op"] != "math")
                if begin is None:
                    self.assertIsNone(row["what_helps"])
                else:
                    self.assertTrue(row["what_helps"].startswith(begin), row["what_helps"])

    def test_transfers_that_math_cannot_hide_are_not_to_be_started_earlier(self) -> None:
        host = "f32[8]{0:S(5)}"
        for sent, begin in (
            (op("all-to-all-done.1", "all-to-all-done", 0, 21), "Send less"),
            (op("copy-done.1", "copy-done", 0, 21, shape=host), "Keep these arrays in HBM"),
            (op("copy-done.1", "copy-done", 0, 21, operands=f"{host} %x"), "Keep the array in HBM"),
        ):
            for math, lacks_math in ((10, True), (11, False)):
                rows = bottleneck([sent, leaf(21, math, "f", stack=HERE)])["findings"]
                (row,) = (row for row in rows if row["hlo_op"] != "f")
                with self.subTest(begin, math=math):
                    self.assertEqual(row["what_helps"].startswith(begin), lacks_math)

    def test_fewer_bytes_are_advised_only_if_hbm_explains_40_percent_of_the_time(self) -> None:
        # A byte takes about 931.3 ps: 40 % of 2328 ps, and a twentieth of 18 626 ps.
        for dur, begin in (
            (2328, "Keep these f32 arrays"),
            (2329, None),
            (18_626, None),
            (18_627, "This is vector work"),
        ):
            (row,) = bottleneck([leaf(0, dur, bytes_accessed=1)])["findings"]
            says = row["what_helps"]
            self.assertTrue(says.startswith(begin) if begin else says is None, (dur, says))


class UnknownKernels(unittest.TestCase):
    OPS = (
        kernel(0, 50, "flash.1", stack=HERE, tf_op="jit(f)/attn/pallas_call:"),
        kernel(50, 20, "flash.2", stack=HERE, tf_op="jit(f)/attn/pallas_call:"),
        kernel(100, 60, "other.1", stack="m.py:2:2"),
        matmul(200, 100, 100, 0, stack="m.py:3:3"),
    )

    def test_kernels_of_unknown_cost_are_no_findings(self) -> None:
        result = bottleneck(list(self.OPS))
        self.assertEqual([row["class"] for row in result["findings"]], ["compute_bound"])
        rows = result["kernels_of_unknown_cost"]
        facts = ("kernel", "source_inner", "dur_ps", "n_executions", "scope", "shape")
        self.assertEqual(
            [tuple(row[name] for name in facts) for row in rows],
            [
                ("flash", "m.py:1", 70, 2, "attn", "bf16[8,128]"),
                ("other", "m.py:2", 60, 1, None, "bf16[8,128]"),
            ],
        )
        self.assertEqual(rows[0]["pct_of_step"], 7)


class Verdict(unittest.TestCase):
    """Test the verdict on a step of 1000 ps; the peak is 2 flops per picosecond."""

    def test_bottleneck_is_the_class_with_most_lost_time(self) -> None:
        # The matmul loses 100 of its 700 ps, and the copy loses all of its 150 ps.
        ops = [matmul(0, 700, 1200, 0), op("copy.1", "copy", 700, 150)]
        for more, name in (
            ([], "data_movement"),
            ([op("infeed.1", "infeed", 850, 149)], "data_movement"),
            ([op("infeed.1", "infeed", 850, 150)], "host"),
            ([matmul(850, 150, 60, 0, name="f.2")], "compute_bound"),
        ):
            with self.subTest(more=more):
                self.assertEqual(bottleneck([*ops, *more])["bottleneck"], name)

    def test_bottleneck_can_be_kernels_of_unknown_cost_unjudged_ops_or_idle_time(self) -> None:
        ops = [matmul(0, 700, 1200, 0)]
        for more, name in (
            ([kernel(700, 160)], "kernel"),
            ([leaf(700, 160, "f.2")], "unjudged"),
            ([kernel(700, 90), leaf(790, 90, "f.2")], "idle"),
            ([], "idle"),
        ):
            with self.subTest(more=more):
                self.assertEqual(bottleneck([*ops, *more])["bottleneck"], name)

    def test_bottleneck_is_at_roof_if_less_than_a_tenth_is_lost_or_unknown(self) -> None:
        for copied, name in ((99, "at_roof"), (100, "data_movement")):
            # The matmul loses no time.
            used = 1000 - copied
            ops = [matmul(0, used, 2 * used, 0), op("copy.1", "copy", used, copied)]
            with self.subTest(copied=copied):
                self.assertEqual(bottleneck(ops)["bottleneck"], name)
        # No single class loses a tenth of the step, but together they do.
        ops = [matmul(0, 860, 1720, 0), op("copy.1", "copy", 860, 50), kernel(910, 60)]
        self.assertEqual(bottleneck(ops)["bottleneck"], "kernel")

    def test_speed_of_light_has_a_lower_and_an_upper_bound(self) -> None:
        result = bottleneck([matmul(0, 500, 200, 0), kernel(500, 150)])["speed_of_light"]
        self.assertEqual((result["at_least_ps"], result["at_most_ps"]), (100, 250))


class Utilization(unittest.TestCase):
    """Test the bounds of MFU and HFU; the peak is 2 flops per picosecond."""

    def test_mfu_and_hfu_are_null_if_no_flops_are_known(self) -> None:
        again = matmul(0, 100, 100, 0, tf_op="jit(f)/rematted_computation/dot:")
        for ops, mfu, hfu in (
            ([], None, None),
            ([kernel(0, 100)], None, None),
            ([leaf(0, 100, bytes_accessed=8)], None, None),
            ([matmul(0, 100, 100, 0, shape="f64[8]{0}")], None, None),
            ([again], None, 0.05),
            ([matmul(0, 100, 100, 0)], 0.05, 0.05),
        ):
            with self.subTest(ops=ops):
                result = bottleneck([op("copy.1", "copy", 200, 70), *ops])
                self.assertEqual((result["mfu_at_least"], result["hfu_at_least"]), (mfu, hfu))

    def test_text_mentions_recomputation_only_if_it_changes_the_printed_figure(self) -> None:
        for first, again, says in (
            (1000, None, "MFU is at least 5.0 %."),
            (1000, 4, "MFU is at least 5.0 %."),
            (
                1000,
                500,
                "MFU is at least 5.0 %, or 7.5 % with recomputation, which takes 0.100 ns.",
            ),
            (10, None, "MFU is at least 0.1 %."),
            # This bound of 0.045 % would be printed as 0.0 %.
            (9, None, "MFU is unknown, because too few flops are known."),
        ):
            ops = [matmul(0, 100, first, 0)]
            if again:
                ops += [matmul(500, 100, again, 0, tf_op="jit(f)/rematted_computation/dot:")]
            # The peak is 20 flops per picosecond, so 10 flops are 0.05 % of the step.
            result = bottleneck(ops, "--peak-tflops-bf16", "20", "--chip", "v7x")
            text = " ".join(compute_breakdown.render(result, "text").split())
            with self.subTest(first=first, again=again):
                self.assertIn(f" {says} ", text)
                self.assertEqual(result["mfu_at_least"] is None, first == 9)


class Recomputed(unittest.TestCase):
    def test_total_recomputed_time_includes_all_kinds_of_ops(self) -> None:
        again = "jit(f)/checkpoint/rematted_computation/dot:"
        ops = [
            leaf(0, 100, tf_op=again),
            leaf(100, 50, "f.2", tf_op="jit(f)/jvp()/dot:"),
            op("all-gather.1", "all-gather", 200, 30, tf_op=again),
            op("copy.1.remat", "copy", 300, 20, tf_op="jit(f)/jvp()/copy:"),
            op("tuple.1", "mystery", 400, 7, tf_op=again),
        ]
        for mode in ("bottleneck", "summary"):
            found = answer(trace(ops, STEP), mode)
            self.assertEqual(found["recompute_total_dur_ps"], 157)
            self.assertEqual(found["recompute_total_pct_of_step"], 15.7)


class Hideable(unittest.TestCase):
    def test_hideable_time_is_at_most_the_time_of_math(self) -> None:
        ops = [
            leaf(0, 30),  # The cost of this op is unknown.
            matmul(30, 20, 10, 0, name="f.2"),
            kernel(50, 10),
            op("copy.1", "copy", 100, 70, stack="m.py:9:1"),
            op("all-reduce-done.1", "all-reduce-done", 200, 50),
            op("infeed.1", "infeed", 300, 80),
        ]
        result = bottleneck(ops)
        expected = {"collective": 50, "host": 60, "data_movement": 60}
        for rows in (result["budget"], result["findings"]):
            found = {row["class"]: row["hideable_ps"] for row in rows}
            self.assertEqual({k: v for k, v in found.items() if v is not None}, expected)

    def test_hideable_time_is_zero_without_math(self) -> None:
        result = bottleneck([op("copy.1", "copy", 100, 70)])
        self.assertEqual([row["hideable_ps"] for row in result["findings"]], [0])
        rows = {row["class"]: row["hideable_ps"] for row in result["budget"]}
        self.assertEqual((rows["data_movement"], rows["collective"], rows["idle"]), (0, 0, None))

    def test_hideable_time_of_a_synchronous_collective_requires_a_program(self) -> None:
        ops = [leaf(0, 30), op("all-reduce.1", "all-reduce", 200, 50, stack=HERE)]
        # The wait shares a row with the synchronous collective, so its hideable time is unknown.
        ops.append(op("all-gather-done.1", "all-gather-done", 300, 10, stack=HERE))
        result = bottleneck(ops)
        self.assertEqual([row["hideable_ps"] for row in result["findings"]], [None, None])
        rows = {row["class"]: row["hideable_ps"] for row in result["budget"]}
        self.assertEqual((rows["collective"], rows["host"]), (None, 0))

    def test_independent_math_in_the_same_computation_hides_a_synchronous_collective(self) -> None:
        program = {
            "elsewhere": [
                hlo_proto.op("y", "parameter"),
                hlo_proto.op("distant", "negate", "y"),
                hlo_proto.op("moved.2", "all-reduce", "distant"),
            ],
            "main": [
                hlo_proto.op("x", "parameter"),
                hlo_proto.op("before", "negate", "x"),
                hlo_proto.op("moved.1", "all-reduce", "before"),
                hlo_proto.op("free.1", "exponential", "x"),
                hlo_proto.op("free.2", "negate", "free.1"),
                hlo_proto.op("after", "add", "moved.1", "free.2"),
                hlo_proto.op("call.1", "call", "x", calls=["elsewhere"]),
                hlo_proto.op("moved.3", "all-gather", "x"),
            ],
        }
        for free in (5, 60, 100):
            facts: Json = {"program_id": 7, "stack": HERE}
            ran = [
                *(leaf(i, 40, name, **facts) for i, name in enumerate(("before", "after"))),
                leaf(100, 20, "distant", **facts),
                leaf(200, free, "free.1", **facts),
                leaf(300, 20, "free.2", **facts),
                # The two executions take 100 ps together.
                *(op("moved.1", "all-reduce", 400 + 50 * i, 50, **facts) for i in (0, 1)),
                op("moved.2", "all-reduce", 500, 50, **facts),
            ]
            programs = hlo_proto.metadata_plane({7: ("jit_f(7)", hlo_proto.hlo_proto(program))})
            result = answer(encode(Space([tpu_plane(ran, STEP), programs])), "bottleneck", *PEAKS)
            budget = {row["class"]: row["hideable_ps"] for row in result["budget"]}
            (row,) = [row for row in result["findings"] if row["class"] == "collective"]
            with self.subTest(free=free):
                self.assertEqual(row["hideable_ps"], min(100, free + 20))
                self.assertEqual(budget["collective"], row["hideable_ps"])


class OverRoof(unittest.TestCase):
    """Test ops that run faster than their roof allows; the peak is 2 flops per picosecond."""

    FAIR = matmul(0, 100, 100, 0, name="f.1")

    def test_ops_faster_than_their_roof_are_excluded_from_lower_bounds(self) -> None:
        fair = bottleneck([self.FAIR])
        self.assertEqual((fair["mfu_at_least"], fair["over_roof"]["n_ops"]), (0.05, 0))
        self.assertEqual(notes_of_roofs(fair), [])
        result = bottleneck([self.FAIR, matmul(100, 50, 1000, 0, name="f.2", stack="m.py:2:2")])
        for name in ("mfu_at_least", "hfu_at_least"):
            self.assertEqual(result[name], fair[name])
        self.assertEqual(result["speed_of_light"]["at_roof_ps"], 50 + 50)
        self.assertEqual(result["speed_of_light"]["at_least_ps"], 50)
        self.assertEqual(result["speed_of_light"]["at_most_ps"], 100)
        (note,) = notes_of_roofs(result)
        self.assertTrue(note.endswith("(1 op, 50 ps): m.py:2"), note)
        # The op over its roof remains in the class `compute_bound`.
        (row,) = [row for row in result["budget"] if row["class"] == "compute_bound"]
        self.assertEqual((row["dur_ps"], row["at_roof_ps"], row["lost_ps"]), (150, 100, 50))

    def test_roof_of_a_kernel_faster_than_its_cost_allows_is_unknown(self) -> None:
        for flops, name, figures in (
            (80, "compute_bound", (40, 10)),
            (1000, "kernel", (None,) * 2),
        ):
            given = [*PEAKS, "--kernel-cost", f"flash={flops},0"]
            # The count in the trace can be as wrong as a cost that somebody passes.
            counted = kernel(0, 50, stack=HERE, flops=flops)
            for ran, options in ((kernel(0, 50, stack=HERE), given), (counted, PEAKS)):
                (row,) = answer(trace([ran], STEP), "by_op", *options)["ops"]
                self.assertEqual(
                    (row["class"], row["at_roof_ps"], row["lost_ps"]), (name, *figures)
                )

    def test_one_percent_over_the_roof_is_tolerated(self) -> None:
        for flops, n in ((200, 0), (202, 0), (203, 1)):
            with self.subTest(flops=flops):
                result = bottleneck([matmul(0, 100, flops, 0)])
                self.assertEqual(len(notes_of_roofs(result)), n)

    def test_roof_is_compared_with_the_total_of_all_executions(self) -> None:
        runs = [matmul(0, 100, 150, 0), matmul(200, 20, 150, 0)]
        self.assertEqual(len(notes_of_roofs(bottleneck(runs))), 1)
        self.assertEqual(notes_of_roofs(bottleneck([runs[0], runs[0]])), [])

    def test_op_without_duration_is_not_over_its_roof(self) -> None:
        large: Json = {"bytes_accessed": 2**30, "stack": HERE}
        self.assertEqual(
            bottleneck([leaf(0, 10, **large)])["over_roof"], {"n_ops": 1, "dur_ps": 10}
        )
        self.assertEqual(notes_of_roofs(bottleneck([leaf(0, 0, **large)])), [])


class Tokens(unittest.TestCase):
    """Test MFU in a step of 1000 ps; the peak is 2 flops per picosecond."""

    OPS = (leaf(0, 100, program_id=7),)

    def on_devices(self, assignment: tuple[int, int] | None) -> bytes:
        program = hlo_proto.hlo_proto({"main": [hlo_proto.op("f.1", "negate")]}, devices=assignment)
        programs = hlo_proto.metadata_plane({7: ("jit_f(7)", program)})
        return encode(Space([tpu_plane(list(self.OPS), STEP), programs]))

    def mfu(self, data: bytes, *options: str) -> tuple[float | None, float | None]:
        result = answer(data, "bottleneck", *PEAKS, *options)
        return result["mfu"], result["tokens_per_s"]

    def test_rates_are_those_of_a_period_with_its_pause(self) -> None:
        # Each step takes 1000 ps, and starts 4000 ps after the last one.
        ops = [matmul(4000 * i, 500, 1000, 0) for i in range(3)]
        steps = [(str(i), 4000 * i, 1000) for i in range(3)]
        for words in ((), ("--step", "0"), ("--step", "all")):
            with self.subTest(words=words):
                options = ("--tokens", "8", "--model-flops", "400", *words)
                result = answer(trace(ops, steps), "bottleneck", *PEAKS, *options)
                self.assertEqual((result["mfu"], result["tokens_per_s"]), (0.05, 2e9))
                # In the whole capture of 9000 ps, the matrix unit needs three times 500 ps.
                busy = 0.166667 if "all" in words else 0.125
                self.assertEqual(result["mfu_at_least"], busy)

    def test_impossible_mfu_is_a_warning(self) -> None:
        for flops, n in (("2000", 0), ("2002", 1)):
            result = answer(
                trace(list(self.OPS), STEP), "bottleneck", *PEAKS, "--model-flops", flops
            )
            self.assertEqual(sum("is impossible" in note for note in result["notes"]), n)
            self.assertEqual(text_of(result, "utf-8").count("impossible"), 2 * n)

    def test_flops_per_token_are_divided_by_the_number_of_devices(self) -> None:
        data = self.on_devices((4, 2))
        # 400 tokens of 12 flops on 8 devices are 600 flops per device; the peak allows 2000.
        for options in (["--flops-per-token", "12"], ["--params", "2"], ["--params", "2e0"]):
            with self.subTest(options=options):
                self.assertEqual(self.mfu(data, "--tokens", "4e2", *options), (0.3, 4e11))
                two = self.mfu(data, "--tokens", "400", *options, "--n-devices", "2")
                self.assertEqual(two, (1.2, 4e11))
        self.assertEqual(self.mfu(data, "--tokens", "8", "--flops-per-token", "0.5")[0], 0.00025)

    def test_megacore_halves_the_mfu(self) -> None:
        for megacore, mfu in ((1, 0.1), (0, 0.2)):
            plane = tpu_plane(list(self.OPS), STEP, stats={"has_megacore": megacore})
            for options in (
                ("--model-flops", "400"),
                ("--tokens", "200", "--flops-per-token", "16", "--n-devices", "8"),
            ):
                with self.subTest(megacore=megacore, options=options):
                    self.assertEqual(self.mfu(encode(Space([plane])), *options)[0], mfu)

    def test_options_tokens_and_params_require_a_known_device_count(self) -> None:
        options = ("--tokens", "8", "--params", "2")
        for data in (trace(list(self.OPS), STEP), self.on_devices(None)):
            outcome = run(data, "bottleneck", *options)
            self.assertEqual((outcome.object["reason"], outcome.status), ("bad_arguments", 2))
            self.assertIn("--n-devices", outcome.object["detail"])
            self.assertTrue(outcome.stderr.startswith("usage: "))
            self.assertEqual(outcome.object["device"], "/device:TPU:0")
            self.assertIsNotNone(answer(data, "bottleneck", *options, "--n-devices", "1e0")["mfu"])

    def test_invalid_or_contradictory_options_are_rejected(self) -> None:
        for options in (
            ("--params", "2"),
            ("--flops-per-token", "2"),
            ("--n-devices", "2"),
            ("--tokens", "2", "--n-devices", "2"),
            ("--tokens", "2", "--params", "2", "--flops-per-token", "12"),
            ("--tokens", "2", "--params", "2", "--model-flops", "12"),
            *(("--tokens", text) for text in ("0", "-1", "1.5", "inf", "nan", "1e400", "x", "")),
            *(("--tokens", "2", "--params", text) for text in ("0", "-1", "inf", "nan", "9" * 400)),
            *(("--tokens", "2", "--params", "2", "--n-devices", text) for text in ("0", "0.5")),
        ):
            with self.subTest(options=options):
                outcome = run(self.on_devices((8, 1)), "bottleneck", *options)
                self.assertEqual((outcome.object["reason"], outcome.status), ("bad_arguments", 2))

    def test_mfu_counts_all_devices_of_the_program(self) -> None:
        if not OFFLOADING.exists():
            self.skipTest("the capture isn't here")
        options = ("--tokens", "1e6", "--params", "7e9")
        result = as_process(OFFLOADING, "--mode", "bottleneck", *options).object
        seconds = result["period_ps"] / 1e12
        self.assertEqual(len(result["capture"]["devices"]), 4)
        self.assertEqual(result["mfu"], round(1e6 * 6 * 7e9 / 8 / 918e12 / seconds, 6))
        self.assertEqual(result["tokens_per_s"], round(1e6 / seconds, 3))
