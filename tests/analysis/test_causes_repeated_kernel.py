"""Test the cause `resharding` for kernels that several devices run on the same data."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import array, listed_groups, op
from tests.builders.xspace import op as event

TARGET = "tpu_custom_call"
GROUPS = listed_groups((0, 1), (2, 3))
PART, WHOLE = array("bf16", 4, 2, 64, 128), array("bf16", 4, 4, 64, 128)


def found(gathered: str) -> list[Json]:
    """Return the causes where a kernel reads q, k and v; all-gathers make the arrays named in
    `gathered`."""
    program, ran = [], []
    for i, name in enumerate("qkv"):
        program.append(op(name, "parameter", shape=PART, number=i))
        if name in gathered:
            program += [
                op(f"all-gather.{i}", "all-gather", name, shape=WHOLE, extra=GROUPS),
                op(f"{name}.whole", "bitcast", f"all-gather.{i}", shape=WHOLE),
            ]
            ran.append(event(f"all-gather.{i}", "all-gather", 10 * i, 10))
    operands = [f"{name}.whole" if name in gathered else name for name in "qkv"]
    program.append(op("kernel.1", "custom-call", *operands, shape=WHOLE, target=TARGET))
    target = f', custom_call_target="{TARGET}"'
    stack = "model.py:8:1"
    ran.append(event("kernel.1", "custom-call", 100, 400, attributes=target, stack=stack))
    return [row for row in causes({"main": program}, ran) if row["cause"] == "resharding"]


class RepeatedKernel(unittest.TestCase):
    def test_kernel_with_gathered_queries_keys_and_values_is_found(self) -> None:
        (row,) = found("qkv")
        # The gain is half of the kernel's work and the time of the all-gathers.
        self.assertEqual((row["gain_ps"], row["confidence"]), (200 + 30, "seen"))
        self.assertEqual((row["source_user"], row["evidence"]["n_participants"]), ("model.py:8", 2))
        self.assertIn("compute the same on 2 devices", row["says"])
        self.assertIn("in_specs", row["what_helps"])

    def test_kernel_with_its_own_queries_is_not_reported(self) -> None:
        self.assertEqual(found("kv"), [])
