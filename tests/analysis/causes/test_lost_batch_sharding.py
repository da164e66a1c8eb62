"""Test the cause `lost_batch_sharding`."""

from __future__ import annotations

import unittest
from typing import Any

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import (
    REPLICATED,
    TILED,
    Shape,
    array,
    listed_groups,
    op,
    sharding,
    shardings,
)
from tests.builders.xspace import op as event

N = 4
ALL, PAIRS = listed_groups(range(N)), listed_groups((0, 1), (2, 3))
DIVIDED, EVERYWHERE = sharding(TILED, (N, 1), devices=range(N)), sharding(REPLICATED)
# A batch of four sequences of 16 tokens, one for each device.
TOKENS, WHOLE = array("s32", 1, 16), array("bf16", 4, 16, 4096)
NARROW = array("bf16", 4, 16, 1024)
FORWARD, BACKWARD = "jit(f)/jvp(g)/dot_general:", "jit(f)/transpose(jvp(g))/dot_general:"


def found(
    opcode: str = "all-reduce",
    shape: Shape = WHOLE,
    groups: bytes = ALL,
    tokens: bytes = DIVIDED,
    last: str = BACKWARD,
    other: Shape = NARROW,
    of_other: str = "all-reduce",
) -> list[Json]:
    """Return the causes if two collectives take 400 and 10 of 1000 ps."""
    main = [
        op("tokens", "parameter", shape=TOKENS),
        op("w", "parameter", shape=array("bf16", 64, 512), number=1),
        op("y", "dot", "tokens", "w", shape=shape),
        op("sum", opcode, "y", shape=shape, line="model.py:7", extra=groups),
        op("narrow", "dot", "tokens", "w", shape=other),
        op("others", of_other, "narrow", shape=other, extra=groups),
        op("grad", "dot", "sum", "others", shape=shape),
    ]
    ran = [
        event("y", "convolution fusion", 0, 100, tf_op=FORWARD),
        event("sum", opcode, 100, 400, tf_op=FORWARD),
        event("others", of_other, 500, 10, tf_op=FORWARD),
        event("grad", "convolution fusion", 600, 100, tf_op=last),
    ]
    rows = causes({"main": main}, ran, devices=(1, N), extra=shardings(tokens, EVERYWHERE))
    return [row for row in rows if row["cause"] == "lost_batch_sharding"]


class SumsOfWholeBatches(unittest.TestCase):
    def test_sum_of_activations_of_the_whole_batch_is_found(self) -> None:
        (row,) = found()
        self.assertEqual((row["source_user"], row["confidence"]), ("model.py:7", "likely"))
        self.assertIn("4 devices exchange activations of the whole batch", row["says"])
        # The all-reduces move 2 x 640 KiB. Gathering 4 x 64 KiB of weights twice, and scattering
        # their gradients, moves 0.6 of that.
        self.assertEqual(row["gain_ps"], 410 * 4 // 10)

    def test_reduce_scatter_moves_its_array_once(self) -> None:
        # 2 x 512 and 128 KiB, of which the weights are two thirds.
        (row,) = found(of_other="reduce-scatter")
        self.assertEqual(row["gain_ps"], round(410 / 3))

    def test_other_exchanges_are_no_cause(self) -> None:
        others: dict[str, dict[str, Any]] = {
            "tensor parallelism": {"tokens": EVERYWHERE},
            "part of the batch": {"shape": array("bf16", 1, 16, 16384)},
            "gradient of a weight": {"shape": array("bf16", 4, 64, 1024)},
            "gather of features": {"opcode": "all-gather"},
            "pairs of devices": {"groups": PAIRS},
            "tensor parallelism of tokens that are divided further": {"other": WHOLE},
            "sums of one width, and a gather": {"of_other": "all-gather"},
            "no training": {"last": "jit(f)/dot_general:"},
        }
        for why, more in others.items():
            with self.subTest(why):
                self.assertEqual(found(**more), [])
