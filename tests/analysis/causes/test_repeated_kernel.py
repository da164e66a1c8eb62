"""Test the cause `repeated_kernel`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import Op, array, listed_groups, op
from tests.builders.xspace import Op as Event
from tests.builders.xspace import op as event

TARGET = "tpu_custom_call"
GROUPS, OTHER_GROUPS = listed_groups((0, 1), (2, 3)), listed_groups((0, 2), (1, 3))
PART, WHOLE = array("bf16", 4, 2, 64, 128), array("bf16", 4, 4, 64, 128)


def kernel() -> Event:
    target = f', custom_call_target="{TARGET}"'
    return event("kernel.1", "custom-call", 100, 400, attributes=target, stack="model.py:8:1")


def repeated(program: list[Op], ran: list[Event]) -> list[Json]:
    return [row for row in causes({"main": program}, ran) if row["cause"] == "repeated_kernel"]


def found(gathered: str, reduced_among: bytes | None = None) -> list[Json]:
    """Return the causes if a kernel reads q, k and v, of which those in `gathered` are
    all-gathered. If `reduced_among` gives groups, an all-reduce in the groups reads the kernel's
    result."""
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
    ran.append(kernel())
    if reduced_among:
        program.append(op("sum", "all-reduce", "kernel.1", shape=WHOLE, extra=reduced_among))
        ran.append(event("sum", "all-reduce", 500, 50))
    return repeated(program, ran)


class RepeatedKernel(unittest.TestCase):
    def test_kernel_with_gathered_queries_keys_and_values_is_found(self) -> None:
        (row,) = found("qkv")
        # The gain is half of the kernel's time plus the time of the all-gathers.
        self.assertEqual((row["gain_ps"], row["confidence"]), (200 + 30, "likely"))
        self.assertEqual(row["source_user"], "model.py:8")
        self.assertIn("compute the same result on 2 devices", row["says"])
        self.assertIn("in_specs", row["what_helps"])

    def test_kernel_with_its_own_queries_is_not_reported(self) -> None:
        self.assertEqual(found("kv"), [])

    def test_kernel_with_gathered_weights_and_few_activations_is_not_reported(self) -> None:
        x, weights = array("bf16", 512, 1024), array("bf16", 8, 1024, 1024)
        program = [
            op("x", "parameter", shape=x),
            op("w", "parameter", shape=array("bf16", 4, 1024, 1024), number=1),
            op("all-gather.1", "all-gather", "w", shape=weights, extra=GROUPS),
            op("kernel.1", "custom-call", "x", "all-gather.1", shape=x, target=TARGET),
        ]
        ran = [event("all-gather.1", "all-gather", 0, 100), kernel()]
        self.assertEqual(repeated(program, ran), [])

    def test_gain_includes_an_all_reduce_only_among_the_same_devices(self) -> None:
        for groups, reducing in ((GROUPS, 50), (OTHER_GROUPS, 0)):
            with self.subTest(reducing=reducing):
                (row,) = found("qkv", groups)
                self.assertEqual(row["gain_ps"], 200 + 30 + reducing)
