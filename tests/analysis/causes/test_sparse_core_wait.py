"""Test the cause `sparse_core_wait`, and what other causes say of work on SparseCores."""

from __future__ import annotations

import unittest
from dataclasses import replace

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import Op, Shape, array, op, tuple_of
from tests.builders.xspace import op as event, trace
from tests.harness import answer

# At this peak, memory moves 2**20 bytes in 80 ps.
PEAK = ("--peak-hbm-gibps", str(2**20 / 80e-12 / 2**30))
ROWS = array("bf16", 256, 512)
WEIGHT = Shape("bf16", (256, 512), minor_to_major=(1, 0))
TURNED = replace(WEIGHT, minor_to_major=(0, 1))
GATHER, FORMAT = "gather_offload_async", "sparse-core-data-format-call.1.call"


def offloaded(
    name: str, line: str, *operands: str, shape: Shape = ROWS, end: str = "_"
) -> tuple[Op, ...]:
    """Return the parts of an op on a SparseCore; its operands stand on the update."""
    start, update, done = (f"{name}{end}{part}" for part in ("start", "update", "done"))
    return (
        op(start, "async-start", calls=["wrapped"], thread="sparsecore", line=line),
        op(update, "async-update", start, *operands, shape=tuple_of(WEIGHT, shape)),
        op(done, "async-done", update, line=line, shape=shape),
    )


def program(*ops: Op, collective: str = "gather") -> dict[str, list[Op]]:
    wrapped = [op("given", "parameter", shape=WEIGHT), op("moved", collective, "given", shape=ROWS)]
    main = [
        op("w", "parameter", shape=WEIGHT, tf_op="w"),
        op("rows", "negate", "w", shape=WEIGHT),
        *ops,
        op("scores", "exponential", "rows", shape=ROWS),
    ]
    return {"wrapped": wrapped, "main": main}


def gathered(wait: int, n_bytes_of: str = "bf16[256,512]{1,0}") -> list[Json]:
    """Return the causes of a step with a gather that is in flight for 60 ps of math before the
    core waits for it."""
    ran = [
        event("rows", "loop fusion", 0, 100),
        event(f"{GATHER}_start", "async-start", 100, 0),
        event("scores", "loop fusion", 100, 60),
        event(f"{GATHER}_done", "async-done", 160, wait, shape=n_bytes_of),
    ]
    parts = offloaded(GATHER, "model.py:7", "rows")
    return [row for row in causes(program(*parts), ran, *PEAK) if row["cause"] != "not_donated"]


class Gathers(unittest.TestCase):
    def test_gather_that_the_core_may_do_sooner_is_reported(self) -> None:
        (row,) = gathered(600)
        self.assertEqual((row["cause"], row["confidence"]), ("sparse_core_wait", "likely"))
        # The core moves 2 x 2**18 bytes at a quarter of the peak, which takes 160 ps.
        self.assertEqual((row["gain_ps"], row["source_user"]), (600 - 160, "model.py:7"))
        self.assertIn("waits 600 ps for 1 gather at model.py:7", row["says"])
        self.assertIn("math hides 60 ps", row["says"])
        self.assertIn('{"xla_tpu_offload_gather_to_sparsecore": "false"}', row["what_helps"])

    def test_gather_that_takes_as_long_on_the_core_is_not_reported(self) -> None:
        self.assertEqual(gathered(160), [])

    def test_work_beside_the_gather_shares_the_sparse_cores(self) -> None:
        parts = [
            *offloaded(GATHER, "model.py:7", "rows"),
            *offloaded(FORMAT, "model.py:9", "rows", shape=TURNED, end="-"),
        ]
        ran = [
            event("rows", "loop fusion", 0, 100),
            event(f"{FORMAT}-start", "async-start", 100, 0),
            event(f"{GATHER}_start", "async-start", 100, 0),
            event(f"{FORMAT}-done", "async-done", 100, 200),
            event(f"{GATHER}_done", "async-done", 300, 300, shape="bf16[256,512]{1,0}"),
        ]
        rows = {row["cause"]: row for row in causes(program(*parts), ran, *PEAK)}
        row = rows["sparse_core_wait"]
        self.assertEqual(row["gain_ps"], 300 - 160 + 200 // 2)
        self.assertIn("and perhaps 100 ps for what runs there at the same time", row["says"])
        self.assertEqual(row["evidence"]["ops"], [f"{GATHER}_done"])
        self.assertEqual(rows["layout_change"]["gain_ps"], 200)

    def test_row_of_the_wait_has_words_of_its_own_without_a_program(self) -> None:
        ran = [event(f"{GATHER}_done", "async-done", 0, 600)]
        (row,) = answer(trace(ran), "bottleneck")["findings"]
        self.assertIn("put this on a SparseCore, and the core waits for it", row["what_helps"])


class Formatting(unittest.TestCase):
    """A SparseCore changes the layout of an array that another op updates in place."""

    def formatted(self, shape: Shape) -> list[str]:
        parts = [
            op("row", "parameter", shape=array("bf16", 1, 512), number=1),
            op("at", "parameter", shape=array("s32"), number=2),
            op("new", "dynamic-update-slice", "rows", "row", "at", "at", shape=WEIGHT),
            *offloaded(FORMAT, "model.py:9", "new", shape=shape, end="-"),
        ]
        ran = [
            event("new", "data formatting", 0, 10),
            event(f"{FORMAT}-done", "async-done", 10, 400),
        ]
        return [row["cause"] for row in causes(program(*parts), ran, *PEAK)]

    def test_change_of_layout_is_no_copy_that_keeps_old_contents(self) -> None:
        self.assertEqual(self.formatted(TURNED), ["layout_change"])

    def test_nothing_is_claimed_if_both_layouts_are_equal(self) -> None:
        self.assertEqual(self.formatted(WEIGHT), [])


class Collectives(unittest.TestCase):
    def waited(self, time: int) -> list[Json]:
        name = "all-gather.1.call"
        parts = offloaded(name, "model.py:7", "rows", end="-")
        ran = [
            event("rows", "loop fusion", 0, 100),
            event(f"{name}-start", "async-start", 100, 0),
            event(f"{name}-done", "async-done", 100, time),
        ]
        rows = causes(program(*parts, collective="all-gather"), ran, *PEAK)
        return [row for row in rows if row["cause"] == "sparse_core_wait"]

    def test_waits_of_a_fifth_of_the_step_are_reported_with_flags_to_try(self) -> None:
        (row,) = self.waited(200)
        self.assertEqual((row["gain_ps"], row["unknown_ps"]), (None, 200))
        self.assertIn("waits 200 ps for 1 all-gather that the compiler put on Spar", row["says"])
        self.assertIn("offload_all_gather to false", row["what_helps"])

    def test_shorter_waits_are_not_reported(self) -> None:
        self.assertEqual(self.waited(199), [])
