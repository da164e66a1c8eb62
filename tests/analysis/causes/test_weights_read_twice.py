"""Test the cause `weights_read_twice`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, Program, causes
from tests.builders.hlo_proto import Op, array, op, packed
from tests.builders.xspace import bytes_field
from tests.builders.xspace import op as event

# Weights of 2 MiB, which take 100 ps to read. A matmul of 64 rows takes 50 ps at the peak rate.
WEIGHTS, ROWS = array("bf16", 512, 2048), array("bf16", 64, 512)
FLOPS = 2 * 64 * 512 * 2048
HBM_GIBPS, TFLOPS = 2**21 / 100e-12 / 2**30, FLOPS / 50e-12 / 1e12
PEAK = ("--peak-hbm-gibps", str(HBM_GIBPS), "--peak-tflops-bf16", str(TFLOPS))
INPUTS = [
    op("w", "parameter", shape=WEIGHTS, tf_op="params['w']"),
    op("x.0", "parameter", shape=ROWS, number=1),
    op("x", "tanh", "x.0", shape=ROWS),
    op("other", "negate", "x.0", shape=ROWS),
]


def dot(name: str, left: str, right: str = "w", n_rows: int = 64) -> Op:
    numbers = bytes_field(30, packed(1, [1]) + packed(2, [0]))
    return op(name, "dot", left, right, shape=array("bf16", n_rows, 2048), extra=numbers)


FIRST, SECOND = dot("y", "x"), dot("z", "other")


def found(
    *main: Op, phases: tuple[str, str] = ("", ""), inside: Program | None = None
) -> list[Json]:
    """Return the causes if the matmuls `y` and `z` take 300 ps each."""
    copies = [one.name for one in main if one.opcode == "copy"]
    ran = [event(name, "copy", 600 + 10 * i, 10) for i, name in enumerate(copies)]
    ran += [
        event(
            name,
            "convolution fusion",
            300 * i,
            300,
            stack=f"sample.py:14:1\nsampler.py:{11 + i}:1\ndit.py:3:1",
            tf_op=f"jit(f)/{phase}dot_general:",
        )
        for i, (name, phase) in enumerate(zip("yz", phases, strict=True))
    ]
    rows = causes({**(inside or {}), "main": [*INPUTS, *main]}, ran, *PEAK)
    return [row for row in rows if row["cause"] == "weights_read_twice"]


class WeightsReadTwice(unittest.TestCase):
    def test_two_calls_are_found_at_the_lines_where_their_stacks_differ(self) -> None:
        (row,) = found(FIRST, SECOND)
        self.assertEqual((row["source_user"], row["confidence"]), ("sampler.py:11", "likely"))
        # The weights are read once, and the matmul of all rows takes as long as that.
        self.assertEqual(row["gain_ps"], 300)
        self.assertIn("2 calls at sampler.py:11 (and sampler.py:12) read the same", row["says"])

    def test_weights_are_followed_through_casts_and_copies_to_vmem(self) -> None:
        fast = array("bf16", 512, 2048, space=1)
        copies = [op("w.1", "copy", "w", shape=fast), op("w.2", "copy", "w", shape=fast)]
        rows = found(*copies, dot("y", "x", "w.1"), dot("z", "other", "w.2"))
        self.assertEqual([row["gain_ps"] for row in rows], [300])

    def test_calls_with_many_rows_gain_nothing(self) -> None:
        many = op("many", "parameter", shape=array("bf16", 128, 512), number=2)
        inputs = [op(f"x.{i}", "tanh", "many", shape=array("bf16", 128, 512)) for i in (1, 2)]
        self.assertEqual(
            found(many, *inputs, dot("y", "x.1", n_rows=128), dot("z", "x.2", n_rows=128)), []
        )

    def test_other_matmuls_of_an_op_stay_the_same(self) -> None:
        v = [
            op("v.0", "parameter", shape=array("bf16", 2048, 512), number=2),
            op("v", "tanh", "v.0", shape=array("bf16", 2048, 512)),
        ]
        inside = {
            f"inside.{name}": [
                op(f"{name}.0", "parameter", shape=ROWS),
                op(f"{name}.1", "parameter", shape=WEIGHTS, number=1),
                op(f"{name}.2", "parameter", shape=array("bf16", 2048, 512), number=2),
                dot(f"{name}.3", f"{name}.0", f"{name}.1"),
                dot(f"{name}.4", f"{name}.3", f"{name}.2"),
            ]
            for name in "yz"
        }
        ops = [
            op(name, "fusion", source, "w", "v", shape=array("bf16", 64, 2048), calls=[called])
            for name, source, called in zip("yz", ("x", "other"), inside, strict=True)
        ]
        (row,) = found(*v, *ops, inside=inside)
        # At its roof, each op takes 100 ps for the weights and 200 ps for the other matmul.
        self.assertEqual(row["gain_ps"], 100)

    def test_call_that_needs_the_other_cannot_be_joined(self) -> None:
        again = [op("half", "slice", "y", shape=ROWS), dot("z", "half")]
        self.assertEqual(found(FIRST, *again), [])

    def test_matmuls_of_different_phases_cannot_be_joined(self) -> None:
        self.assertEqual(found(FIRST, SECOND, phases=("jvp(f)/", "transpose(jvp(f))/")), [])

    def test_recomputed_matmul_has_the_same_inputs(self) -> None:
        path = "transpose(jvp(f))/rematted_computation/"
        self.assertEqual(found(FIRST, SECOND, phases=(path, path)), [])

    def test_parts_of_weights_are_different(self) -> None:
        whole = op("all", "parameter", shape=array("bf16", 1024, 2048), number=2)
        parts = [op(name, "slice", "all", shape=WEIGHTS) for name in ("up", "gate")]
        self.assertEqual(found(whole, *parts, dot("y", "x", "up"), dot("z", "other", "gate")), [])

    def test_input_of_several_weights_is_not_taken_for_weights(self) -> None:
        weights = [op(f"w.{i}", "parameter", shape=WEIGHTS, number=2 + i) for i in range(2)]
        # Both could be the weights of the other.
        large = op("large", "parameter", shape=array("bf16", 2048, 512), number=4)
        matmuls = [dot(name, "large", f"w.{i}", 2048) for i, name in enumerate("yz")]
        self.assertEqual(found(*weights, large, *matmuls), [])
