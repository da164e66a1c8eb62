"""Ask each question that the tool has about a chip, of each chip in the table."""

from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

import _peaks
from tests.analysis.small_programs import PROGRAM_ID
from tests.builders.hlo_proto import hlo_proto, metadata_plane, op as instruction
from tests.builders.xspace import Op, Space, StatValue, encode, op, tpu_plane
from tests.harness import answer
from tests.modes.small_steps import STEP, matmul

DECLARED = {"peak_teraflops_per_second": 500.0, "peak_hbm_bw_gigabytes_per_second": 2147.483648}
ASSUMED = "The chip is unknown; v7x is assumed (--chip)."


def trace_of(device_type: str | None, *ops: Op, **facts: StatValue) -> bytes:
    named = {} if device_type is None else {"device_type_string": device_type}
    return encode(Space([tpu_plane(ops or [matmul(0, 9, 8, 2)], STEP, stats={**named, **facts})]))


def stopped_by(collective: str, device_type: str) -> dict[str, Any]:
    """Return the answer of `bottleneck` for a collective that independent math could hide."""
    program = [
        instruction("x", "parameter"),
        instruction("free", "negate", "x"),
        instruction("moved", collective, "x", line="train.py:9"),
    ]
    ran = [op("free", "loop fusion", 0, 200), op("moved", collective, 300, 100)]
    for execution in ran:
        execution.stats["program_id"] = PROGRAM_ID
    plane = tpu_plane(ran, [("0", 0, 1000)], stats={"device_type_string": device_type})
    metadata = metadata_plane({PROGRAM_ID: ("jit_f(7)", hlo_proto({"main": program}))})
    return answer(encode(Space([plane, metadata])), "bottleneck", "--peak-hbm-gibps", "1e9")


class EveryChip(unittest.TestCase):
    def ask_all(self, name: str, device_type: str) -> None:
        """Ask all questions of a chip that a trace calls `device_type`."""
        chip = _peaks.CHIPS[name]
        result = answer(trace_of(device_type), "roofline", "--step", "0")
        self.assertEqual((result["chip"], result["chip_is_assumed"]), (name, False))
        used = result["peaks_used"]
        self.assertEqual(used["source"], f"builtin {name} table")
        for dtype in ("bf16", "fp8", "int8", "int4"):
            self.assertEqual(used[f"peak_tflops_{dtype}"], getattr(chip, dtype))
        hbm = used["peak_hbm_gibps"]
        self.assertTrue(hbm == chip.hbm_gibps or round(hbm * 1.073741824, 6) == chip.hbm_gbps)
        self.assertNotIn("assumed", result["headline"])
        # Only a trace of the default chip needs no word about the peaks.
        self.assertEqual(len(result["notes"]), name != "v7x")
        causes = stopped_by("all-gather", device_type)["causes"]
        (row,) = [row for row in causes if row["cause"] == "synchronous_collective"]
        # The all-gather takes so much of the step that SparseCores are not advised, either.
        flag = "xla_tpu_enable_async_collective_fusion_fuse_all_gather"
        self.assertIn(flag if chip.overlap else "on this chip", row["what_helps"])

    def test_each_chip_answers_all_questions_under_each_of_its_names(self) -> None:
        for name, chip in _peaks.CHIPS.items():
            for device_type in (*chip.device_types, name, f"tpu_{name.upper()}"):
                with self.subTest(device_type=device_type):
                    self.ask_all(name, device_type)

    def test_option_chip_selects_the_same_peaks_as_the_trace(self) -> None:
        for name, chip in _peaks.CHIPS.items():
            with self.subTest(chip=name):
                chosen = answer(trace_of(None), "roofline", "--chip", name)
                traced = answer(trace_of(chip.device_types[0]), "roofline")
                self.assertEqual(chosen["peaks_used"], traced["peaks_used"])
                self.assertFalse(chosen["chip_is_assumed"])

    def test_one_row_adds_a_chip(self) -> None:
        made_up = _peaks.Chip(("TPU v9",), 4000.0, int8=8000.0, hbm_gbps=16000.0)
        with mock.patch.dict(_peaks.CHIPS, v9=made_up):
            self.ask_all("v9", "TPU 9")

    def test_no_two_chips_have_the_same_name(self) -> None:
        names = [
            name
            for chip in _peaks.CHIPS.values()
            for name in {*map(_peaks._key, chip.device_types)}
        ]
        self.assertEqual(len(names), len(set(names)))


class UnknownChip(unittest.TestCase):
    def test_peaks_in_the_trace_are_used(self) -> None:
        for lacking in (None, *DECLARED):
            facts = {name: value for name, value in DECLARED.items() if name != lacking}
            with self.subTest(lacking=lacking):
                result = answer(trace_of("TPU v99", **facts), "roofline", "--step", "0")
                self.assertEqual((result["chip"], result["chip_is_assumed"]), ("profile", False))
                used = result["peaks_used"]
                self.assertEqual(used["peak_tflops_bf16"], facts.get("peak_teraflops_per_second"))
                is_known = lacking != "peak_hbm_bw_gigabytes_per_second"
                self.assertEqual(used["peak_hbm_gibps"], 2000.0 if is_known else None)
                self.assertEqual(
                    result["notes"],
                    [
                        "the trace is of a 'TPU v99'; using the peaks in the trace (--chip selects"
                        " others)"
                    ],
                )
                self.assertNotIn("assumed", result["headline"])

    def test_v7x_is_assumed_without_peaks_and_all_headlines_that_use_them_say_so(self) -> None:
        for device_type in (None, "TPU v99"):
            for mode in ("bottleneck", "by_op", "roofline", "kernel"):
                with self.subTest(device_type=device_type, mode=mode):
                    result = answer(trace_of(device_type), mode)
                    self.assertEqual((result["chip"], result["chip_is_assumed"]), ("v7x", True))
                    self.assertTrue(result["headline"].endswith(ASSUMED), result["headline"])
                    chosen = answer(trace_of(device_type), mode, "--chip", "v7x")
                    self.assertFalse(chosen["chip_is_assumed"])
                    self.assertNotIn("assumed", chosen["headline"])

    def test_note_names_the_peaks_in_the_trace_if_others_are_requested(self) -> None:
        note = "the trace is of a 'TPU v99', but the peaks of v4 are used"
        for facts, end in (
            (DECLARED, "; for the peaks in the trace, pass --chip profile"),
            ({}, ""),
        ):
            notes = answer(trace_of("TPU v99", **facts), "roofline", "--chip", "v4")["notes"]
            self.assertIn(note + end, notes)
