"""Test the mode bottleneck: classes, hideable time, limits of utilization, and the user's MFU."""

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
    def test_long_path_is_cut_at_the_start(self) -> None:
        for size, shown in ((200, "x" * 200), (201, "…" + "x" * 200)):
            data = trace([leaf(0, 9, stack=HERE, tf_op="x" * size)], STEP)
            (row,) = answer(data, "bottleneck")["findings"]
            self.assertEqual(row["tf_op"], shown)

    def test_hbm_bytes_take_precedence_if_known(self) -> None:
        # At 1 byte per picosecond, 8 bytes take 8 ps, as long as 16 flops.
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

    def test_waits_are_classed_by_the_awaited_op(self) -> None:
        host = "(f32[8]{0}, f32[8]{0:S(5)}, u32[]{:S(2)}) %copy-start.1"
        for category, operands, name in (
            ("copy-done", host, "host"),
            ("copy-done", "f32[8]{0} %copy-start.1", "data_movement"),
            ("all-gather-done", host, "collective"),
        ):
            said = bottleneck([op(f"{category}.1", category, 0, 10, operands=operands)])
            self.assertEqual([row["class"] for row in said["findings"]], [name])


class Hideable(unittest.TestCase):
    def test_hideable_time_is_limited_by_the_time_of_math(self) -> None:
        ops = [
            leaf(0, 30),  # The op has no known cost.
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

    def test_hideable_time_is_zero_without_math(self) -> None:
        said = bottleneck([op("copy.1", "copy", 100, 70)])
        self.assertEqual([row["hideable_ps"] for row in said["findings"]], [0])
        rows = {row["class"]: row["hideable_ps"] for row in said["budget"]}
        self.assertEqual((rows["data_movement"], rows["collective"], rows["idle"]), (0, 0, None))


class OverRoof(unittest.TestCase):
    """Test ops that are faster than their roof; the peak is 2 flops per picosecond."""

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
        # The op remains in its class.
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

    def test_instant_op_is_not_over_the_roof(self) -> None:
        large: Json = {"bytes_accessed": 2**30, "stack": HERE}
        self.assertEqual(
            bottleneck([leaf(0, 10, **large)])["over_roof"], {"n_ops": 1, "dur_ps": 10}
        )
        self.assertEqual(bottleneck([leaf(0, 0, **large)])["over_roof"], {"n_ops": 0, "dur_ps": 0})


class Tokens(unittest.TestCase):
    """Test MFU in a step of 1000 ps with a peak of 2 flops per picosecond."""

    OPS = (leaf(0, 100, program_id=7),)

    def on_devices(self, assignment: tuple[int, int] | None) -> bytes:
        program = hlo_proto.hlo_proto({"main": [hlo_proto.op("f.1", "negate")]}, devices=assignment)
        beside = hlo_proto.metadata_plane({7: ("jit_f(7)", program)})
        return encode(Space([tpu_plane(list(self.OPS), STEP), beside]))

    def mfu(self, data: bytes, *options: str) -> tuple[float | None, float | None]:
        said = answer(data, "bottleneck", *PEAKS, *options)
        return said["mfu"], said["tokens_per_s"]

    def test_tokens_without_flops_give_only_a_rate(self) -> None:
        data = self.on_devices((8, 1))
        self.assertEqual(self.mfu(data), (None, None))
        self.assertEqual(self.mfu(data, "--tokens", "5"), (None, 5e9))
        self.assertEqual(self.mfu(data, "--tokens", "3", "--model-flops", "400"), (0.2, 3e9))

    def test_flops_per_token_are_divided_by_the_number_of_devices(self) -> None:
        data = self.on_devices((4, 2))
        # 400 tokens of 12 flops on 8 devices are 600 flops per device, and the peak allows 2000
        # flops.
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

    def test_mfu_counts_all_devices_of_a_real_program(self) -> None:
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
