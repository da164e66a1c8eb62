"""The mode bottleneck: classes, hideable time, bounds of utilization, and the user's MFU."""

from __future__ import annotations

import unittest
from typing import Any

from tests.builders import hlo_proto
from tests.builders.xspace import (
    Op,
    Space,
    encode,
    memory_access_breakdown,
    op,
    tpu_plane,
    trace,
)
from tests.harness import OFFLOADING, answer, command, run
from tests.modes.small_steps import HERE, PEAKS, STEP, kernel, leaf, matmul

Json = dict[str, Any]


def bottleneck(ops: list[Op], *options: str) -> Json:
    return answer(trace(ops, STEP), "bottleneck", *PEAKS, *options)


def notes_of_roofs(said: Json) -> list[str]:
    return [note for note in said["notes"] if "faster than their roof" in note]


class Findings(unittest.TestCase):
    def test_long_path_keeps_its_end(self) -> None:
        for size, shown in ((200, "x" * 200), (201, "…" + "x" * 200)):
            data = trace([leaf(0, 9, stack=HERE, tf_op="x" * size)], STEP)
            (row,) = answer(data, "bottleneck")["findings"]
            self.assertEqual(row["tf_op"], shown)

    def test_bytes_of_hbm_decide_if_they_are_known(self) -> None:
        # 8 bytes take 8 ps at 1 byte per picosecond, as long as 16 flops.
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

    def test_waits_are_classed_by_what_they_wait_for(self) -> None:
        host = "(f32[8]{0}, f32[8]{0:S(5)}, u32[]{:S(2)}) %copy-start.1"
        for category, operands, name in (
            ("copy-done", host, "host"),
            ("copy-done", "f32[8]{0} %copy-start.1", "data_movement"),
            ("all-gather-done", host, "collective"),
        ):
            said = bottleneck([op(f"{category}.1", category, 0, 10, operands=operands)])
            self.assertEqual([row["class"] for row in said["findings"]], [name])


class Verdict(unittest.TestCase):
    """A step of 1000 ps with a peak of 2 flops per picosecond."""

    def test_most_lost_time_decides(self) -> None:
        # The matmul needs 600 of its 700 ps, and the copy loses 150 ps.
        ops = [matmul(0, 700, 1200, 0), op("copy.1", "copy", 700, 150)]
        for more, name in (
            ([], "data_movement"),
            ([op("infeed.1", "infeed", 850, 149)], "data_movement"),
            ([op("infeed.1", "infeed", 850, 150)], "host"),
            ([matmul(850, 150, 60, 0, name="f.2")], "compute_bound"),
        ):
            with self.subTest(more=more):
                self.assertEqual(bottleneck([*ops, *more])["bottleneck"], name)

    def test_kernels_of_unknown_cost_and_idle_time_compete(self) -> None:
        ops = [matmul(0, 700, 1200, 0)]
        for more, name in (
            ([kernel(700, 160)], "kernel"),
            ([leaf(700, 160, "f.2")], "unjudged"),
            ([kernel(700, 90), leaf(790, 90, "f.2")], "idle"),
            ([], "idle"),
        ):
            with self.subTest(more=more):
                self.assertEqual(bottleneck([*ops, *more])["bottleneck"], name)

    def test_step_is_at_roof_if_less_than_a_tenth_is_lost_or_unknown(self) -> None:
        for copied, name in ((99, "at_roof"), (100, "data_movement")):
            # The matmul is at its roof.
            ops = [matmul(0, 1000 - copied, 2000, 0), op("copy.1", "copy", 1000 - copied, copied)]
            with self.subTest(copied=copied):
                self.assertEqual(bottleneck(ops)["bottleneck"], name)
        # No class reaches a tenth alone.
        ops = [matmul(0, 860, 1720, 0), op("copy.1", "copy", 860, 50), kernel(910, 60)]
        self.assertEqual(bottleneck(ops)["bottleneck"], "kernel")

    def test_bounds_of_the_time_that_the_chip_needs(self) -> None:
        said = bottleneck([matmul(0, 500, 200, 0), kernel(500, 150)])["speed_of_light"]
        self.assertEqual((said["at_least_ps"], said["at_most_ps"]), (100, 250))
        self.assertEqual((said["pct_at_least"], said["pct_at_most"]), (10, 25))


class Utilization(unittest.TestCase):
    """The peak is 2 flops per picosecond."""

    def test_unknown_flops_have_no_lower_bound(self) -> None:
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
                said = bottleneck([op("copy.1", "copy", 200, 70), *ops])
                self.assertEqual((said["mfu_at_least"], said["hfu_at_least"]), (mfu, hfu))


class Recomputed(unittest.TestCase):
    def test_total_counts_all_kinds(self) -> None:
        again = "jit(f)/checkpoint/rematted_computation/dot:"
        ops = [
            leaf(0, 100, tf_op=again),
            leaf(100, 50, "f.2", tf_op="jit(f)/jvp()/dot:"),
            op("all-gather.1", "all-gather", 200, 30, tf_op=again),
            op("copy.1.remat", "copy", 300, 20, tf_op="jit(f)/jvp()/copy:"),
            op("tuple.1", "mystery", 400, 7, tf_op=again),
        ]
        said = bottleneck(ops)
        self.assertEqual((said["recompute_dur_ps"], said["recompute_pct_of_step"]), (100, 10))
        for mode in ("bottleneck", "summary"):
            found = answer(trace(ops, STEP), mode)
            self.assertEqual(found["recompute_total_dur_ps"], 157)
            self.assertEqual(found["recompute_total_pct_of_step"], 15.7)


class Hideable(unittest.TestCase):
    def test_hideable_time_is_limited_by_math(self) -> None:
        ops = [
            leaf(0, 30),  # unjudged
            matmul(30, 20, 10, 0, name="f.2"),
            kernel(50, 10),
            op("copy.1", "copy", 100, 70, stack="m.py:9:1"),
            op("all-reduce.1", "all-reduce", 200, 50),
            op("infeed.1", "infeed", 300, 60),
        ]
        said = bottleneck(ops)
        expected = {"collective": 50, "host": 60, "data_movement": 60}
        for rows in (said["budget"], said["findings"]):
            found = {row["class"]: row["hideable_ps"] for row in rows}
            self.assertEqual({k: v for k, v in found.items() if v is not None}, expected)

    def test_nothing_is_hideable_without_math(self) -> None:
        said = bottleneck([op("copy.1", "copy", 100, 70)])
        self.assertEqual([row["hideable_ps"] for row in said["findings"]], [0])
        rows = {row["class"]: row["hideable_ps"] for row in said["budget"]}
        self.assertEqual((rows["data_movement"], rows["collective"], rows["idle"]), (0, 0, None))


class OverRoof(unittest.TestCase):
    """The peak is 2 flops per picosecond."""

    FAIR = matmul(0, 100, 100, 0, name="f.1")

    def test_ops_over_their_roof_are_excluded_from_lower_bounds(self) -> None:
        fair = bottleneck([self.FAIR])
        self.assertEqual((fair["mfu_at_least"], fair["over_roof"]["n_ops"]), (0.05, 0))
        self.assertEqual(notes_of_roofs(fair), [])
        said = bottleneck([self.FAIR, matmul(100, 50, 1000, 0, name="f.2", stack="m.py:2:2")])
        self.assertEqual(said["over_roof"], {"n_ops": 1, "dur_ps": 50})
        for name in ("mfu_at_least", "hfu_at_least"):
            self.assertEqual(said[name], fair[name])
        self.assertEqual(said["speed_of_light"]["at_roof_ps"], 50 + 50)
        self.assertEqual(said["speed_of_light"]["pct_at_least"], 5)
        self.assertEqual(said["speed_of_light"]["pct_at_most"], 10)
        (note,) = notes_of_roofs(said)
        self.assertTrue(note.startswith("1 ops (50 ps) are faster") and note.endswith(": m.py:2"))
        # The op keeps its class.
        (row,) = [row for row in said["budget"] if row["class"] == "compute_bound"]
        self.assertEqual((row["dur_ps"], row["at_roof_ps"], row["lost_ps"]), (150, 100, 50))

    def test_note_names_the_key_of_an_op_without_a_line(self) -> None:
        (note,) = notes_of_roofs(bottleneck([matmul(0, 50, 1000, 0, stack="", tf_op="f/dot:")]))
        self.assertTrue(note.endswith(": tfop:f/dot:"), note)

    def test_one_percent_over_the_roof_is_tolerated(self) -> None:
        for flops, n in ((200, 0), (202, 0), (203, 1)):
            with self.subTest(flops=flops):
                said = bottleneck([matmul(0, 100, flops, 0)])
                self.assertEqual(said["over_roof"]["n_ops"], n)

    def test_roof_is_compared_with_all_executions_together(self) -> None:
        runs = [matmul(0, 100, 150, 0), matmul(200, 20, 150, 0)]
        self.assertEqual(bottleneck(runs)["over_roof"]["n_ops"], 1)
        self.assertEqual(bottleneck([runs[0], runs[0]])["over_roof"]["n_ops"], 0)

    def test_bytes_can_exceed_the_roof_but_instant_ops_do_not(self) -> None:
        large: Json = {"bytes_accessed": 2**30, "stack": HERE}
        self.assertEqual(
            bottleneck([leaf(0, 10, **large)])["over_roof"], {"n_ops": 1, "dur_ps": 10}
        )
        self.assertEqual(bottleneck([leaf(0, 0, **large)])["over_roof"], {"n_ops": 0, "dur_ps": 0})


class Tokens(unittest.TestCase):
    """A step of 1000 ps with a peak of 2 flops per picosecond."""

    OPS = (leaf(0, 100, program_id=7),)

    def on_devices(self, assignment: tuple[int, int] | None) -> bytes:
        program = hlo_proto.hlo_proto({"main": [hlo_proto.op("f.1", "negate")]}, devices=assignment)
        beside = hlo_proto.metadata_plane({7: ("jit_f(7)", program)})
        return encode(Space([tpu_plane(list(self.OPS), STEP), beside]))

    def mfu(self, data: bytes, *options: str) -> tuple[float | None, float | None]:
        said = answer(data, "bottleneck", *PEAKS, *options)
        return said["mfu"], said["tokens_per_s"]

    def test_tokens_alone_give_a_rate(self) -> None:
        data = self.on_devices((8, 1))
        self.assertEqual(self.mfu(data), (None, None))
        self.assertEqual(self.mfu(data, "--tokens", "5"), (None, 5e9))
        self.assertEqual(self.mfu(data, "--tokens", "3", "--model-flops", "400"), (0.2, 3e9))

    def test_flops_per_token_are_divided_by_devices(self) -> None:
        data = self.on_devices((4, 2))
        # 400 tokens of 12 flops on 8 devices are 600 flops each, of 2000.
        for options in (["--flops-per-token", "12"], ["--params", "2"], ["--params", "2e0"]):
            with self.subTest(options=options):
                self.assertEqual(self.mfu(data, "--tokens", "4e2", *options), (0.3, 4e11))
                two = self.mfu(data, "--tokens", "400", *options, "--n-devices", "2")
                self.assertEqual(two, (1.2, 4e11))
        self.assertEqual(self.mfu(data, "--tokens", "8", "--flops-per-token", "0.5")[0], 0.00025)

    def test_megacore_halves_the_flops_of_a_plane(self) -> None:
        for megacore, mfu in ((1, 0.1), (0, 0.2)):
            plane = tpu_plane(list(self.OPS), STEP, stats={"has_megacore": megacore})
            for options in (
                ("--model-flops", "400"),
                ("--tokens", "200", "--flops-per-token", "16", "--n-devices", "8"),
            ):
                with self.subTest(megacore=megacore, options=options):
                    self.assertEqual(self.mfu(encode(Space([plane])), *options)[0], mfu)

    def test_unknown_device_count_is_rejected(self) -> None:
        options = ("--tokens", "8", "--params", "2")
        for data in (trace(list(self.OPS), STEP), self.on_devices(None)):
            outcome = run(data, "bottleneck", *options)
            self.assertEqual((outcome.object["reason"], outcome.status), ("bad_arguments", 2))
            self.assertIn("--n-devices", outcome.object["detail"])
            self.assertTrue(outcome.stderr.startswith("usage: "))
            self.assertEqual(outcome.object["device"], "/device:TPU:0")
            self.assertIsNotNone(answer(data, "bottleneck", *options, "--n-devices", "1e0")["mfu"])

    def test_contradictory_options_are_rejected(self) -> None:
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

    def test_mfu_uses_all_devices_of_a_real_program(self) -> None:
        if not OFFLOADING.exists():
            self.skipTest("the capture isn't here")
        options = ("--tokens", "1e6", "--params", "7e9")
        said = command(OFFLOADING, "--mode", "bottleneck", *options).object
        seconds = said["step_duration_ps"] / 1e12
        self.assertEqual(len(said["capture"]["devices"]), 4)
        self.assertEqual(said["mfu"], round(1e6 * 6 * 7e9 / 8 / 918e12 / seconds, 6))
        self.assertEqual(said["tokens_per_s"], round(1e6 / seconds, 3))


if __name__ == "__main__":
    unittest.main()
