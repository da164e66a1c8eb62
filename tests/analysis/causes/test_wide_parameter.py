"""Test the cause `wide_parameter`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import Op, array, op, tuple_of
from tests.builders.xspace import op as event

WIDE, NARROW = array("f32", 512, 1024), array("bf16", 512, 1024)
PATH = "params['up']"
WEIGHT = op("w", "parameter", shape=WIDE, tf_op=PATH)
# The cast is the only op that reads the weight.
CAST = op("cast.1", "convert", "w", shape=NARROW, line="model.py:12")
USED = op("used", "negate", "cast.1", shape=NARROW, line="model.py:13")


def found(main: list[Op], phase: str = "") -> list[Json]:
    ran = [
        event(here.name, "loop fusion", 100 * i, 100, tf_op=f"jit(step)/{phase}{here.name}:")
        for i, here in enumerate(main[1:])
    ]
    rows = causes({"main": main}, ran)
    return [row for row in rows if row["cause"] == "wide_parameter"]


class WideParameter(unittest.TestCase):
    def test_parameter_that_is_only_cast_is_found_at_the_line_that_casts_it(self) -> None:
        (row,) = found([WEIGHT, CAST, USED])
        self.assertEqual((row["source_user"], row["confidence"]), ("model.py:12", "seen"))
        self.assertIn(f"reads 1 parameter such as {PATH}, and casts", row["says"])
        # Without the cast, its op does not run.
        self.assertEqual(row["gain_ps"], 100)

    def test_cast_into_vmem_still_reads_the_narrow_parameter(self) -> None:
        fast = array("bf16", 512, 1024, space=1)
        cast = op("cast.1", "convert", "w", shape=fast, line="model.py:12")
        (row,) = found([WEIGHT, cast, USED])
        # Without a known peak, what fewer bytes gain is unknown.
        self.assertEqual((row["gain_ps"], row["unknown_ps"]), (None, 100))

    def test_parameter_that_is_cast_after_a_slice_is_found(self) -> None:
        part, cast = array("f32", 512, 512), array("bf16", 512, 512)
        main = [
            WEIGHT,
            op("part.1", "slice", "w", shape=part),
            op("cast.1", "convert", "part.1", shape=cast, line="model.py:12"),
        ]
        self.assertEqual(len(found(main)), 1)

    def test_parameter_that_is_also_used_in_f32_needs_it(self) -> None:
        wide = op("sum.1", "negate", "w", shape=WIDE, line="model.py:14")
        self.assertEqual(found([WEIGHT, CAST, wide, USED]), [])

    def test_weights_of_a_program_that_trains_are_master_weights(self) -> None:
        self.assertEqual(found([WEIGHT, CAST, USED], phase="transpose(jvp(f))/"), [])

    def test_parameter_that_the_step_returns_is_state(self) -> None:
        state = op("out", "tuple", "w", "cast.1", shape=tuple_of(WIDE, NARROW))
        self.assertEqual(found([WEIGHT, CAST, state]), [])
