"""Test mode `by_array`: rows, merging, and what is said about arrays."""

from __future__ import annotations

import unittest
from collections.abc import Sequence

from _breakdown.output.screen import View
from tests.analysis.small_programs import Json, Program
from tests.builders import hlo_proto
from tests.builders.hlo_proto import array, op
from tests.builders.traffic import COPY, SIZE, SLOW, by_array, given
from tests.builders.xspace import Op, op as event
from tests.harness import DEMO, FULL, answer, run
from tests.shown import text_of

NARROW = array("bf16", 8, 128)
FORWARD, BACKWARD = "jit(f)/jvp(layer)/neg:", "jit(f)/transpose(jvp(layer))/neg:"
SUMS = ("hbm_bytes", "written_bytes", "read_bytes", "n_writes", "n_reads", "dur_ps")


def rows(program: Program, ran: Sequence[Op], **more: bytes) -> dict[str, Json]:
    found = by_array(program, ran, **more)["arrays"]
    return {row["name"] or row["hlo_op"]: row for row in found}


class ByArray(unittest.TestCase):
    def layers(self) -> tuple[Program, list[Op]]:
        """Return a program with two layers, each of which makes an array for the next one."""
        program: Program = {
            "main": [given(), op("neg.1", "negate", "x"), op("neg.2", "negate", "neg.1")]
        }
        ran = [
            event(f"neg.{i}", COPY, 10 * i, 10, tf_op=f"jit(f)/layers_{i}/neg:", source="m.py:3")
            for i in (1, 2)
        ]
        program["main"].append(op("out", "sine", "neg.2"))
        return program, [*ran, event("out", COPY, 50, 10)]

    def test_arrays_of_layers_are_merged(self) -> None:
        program, ran = self.layers()
        merged = by_array(program, ran, "--peak-hbm-gibps", "1")["arrays"]
        row = next(row for row in merged if row["n_arrays"] == 2)
        self.assertEqual((row["hlo_op"], row["written_bytes"]), ("neg.*", 2 * SIZE))

    def test_parameters_of_layers_are_merged(self) -> None:
        program = {
            "main": [
                given("w[0]"),
                given("w[1]", 1),
                given("b", 2),
                op("sum", "add", "w[0]", "w[1]"),
                op("out", "add", "sum", "b"),
            ]
        }
        ran = [event("sum", COPY, 0, 10), event("out", COPY, 10, 10)]
        merged = by_array(program, ran, "--peak-hbm-gibps", "1")["arrays"]
        names = {row["name"]: row["n_arrays"] for row in merged if row["name"]}
        self.assertEqual(names, {"w[*]": 2, "b": 1})

    def test_merging_changes_no_sum(self) -> None:
        cases: list[tuple[Json, Json]] = []
        program, ran = self.layers()
        cases.append((by_array(program, ran, *SLOW), by_array(program, ran, *SLOW[:2])))
        if FULL:
            of_demo = DEMO, "by_array", "--top=1000"
            cases.append((answer(*of_demo, "--no-merge"), answer(*of_demo)))
        for apart, merged in cases:
            for name in SUMS:
                sums = [sum(row[name] for row in found["arrays"]) for found in (apart, merged)]
                self.assertEqual(sums[0], sums[1], name)
            self.assertLess(len(merged["arrays"]), len(apart["arrays"]))

    def test_array_for_the_backward_pass_is_saved(self) -> None:
        program = {
            "main": [
                given(),
                op("made", "negate", "x"),
                op("copied", "copy", "made"),
                op("used", "sine", "copied"),
            ]
        }
        ran = [
            event("made", COPY, 0, 10, tf_op=FORWARD),
            event("copied", COPY, 10, 10),
            event("used", COPY, 20, 10, tf_op=BACKWARD),
        ]
        found = rows(program, ran)
        self.assertTrue(found["made"]["saved_for_backward"])
        self.assertFalse(found["used"]["saved_for_backward"])
        self.assertEqual(found["copied"]["copy_of"]["hlo_op"], "made")
        self.assertFalse(found["copied"]["copy_of"]["is_slice"])

    def test_parameter_that_only_the_update_reads_is_state_of_the_optimizer(self) -> None:
        program = {
            "main": [
                given("w"),
                given("m", 1),
                op("forward", "negate", "w"),
                op("backward", "sine", "forward"),
                op("update", "add", "m", "backward"),
            ]
        }
        expected = {
            "w": "parameter",
            "m": "optimizer_state",
            "forward": "temporary",
            "backward": "temporary",
            "update": "result",
        }
        # The compiler can fuse the update with the backward pass, as of an embedding's gradient.
        for of_update in ("jit(f)/add:", BACKWARD):
            ran = [
                event("forward", COPY, 0, 10, tf_op=FORWARD),
                event("backward", COPY, 10, 10, tf_op=BACKWARD),
                event("update", COPY, 20, 10, tf_op=of_update),
            ]
            found = rows(program, ran, extra=hlo_proto.aliases((1, ())))
            kinds = {name: row["kind"] for name, row in found.items()}
            self.assertEqual(kinds, expected, of_update)

    def test_parameter_that_the_compiler_casts_is_no_state_of_the_optimizer(self) -> None:
        """The phase of the cast is unknown, so the forward pass can read the parameter."""
        program = {
            "main": [
                given("w"),
                op("cast", "convert", "w", shape=NARROW),
                op("backward", "sine", "cast"),
                op("update", "add", "w", "backward"),
            ]
        }
        ran = [
            event("cast", COPY, 0, 10),
            event("backward", COPY, 10, 10, tf_op=BACKWARD),
            event("update", COPY, 20, 10, tf_op="jit(f)/add:"),
        ]
        found = rows(program, ran, extra=hlo_proto.aliases((0, ())))
        self.assertEqual(found["w"]["kind"], "parameter")

    def test_parameter_that_a_step_without_gradients_updates_in_place_is_a_cache(self) -> None:
        big = array("f32", 4, 8, 128)
        program = {
            "main": [
                given("cache", shape=big),
                given("token", 1),
                op("i", "constant", shape=array("s32")),
                op("next", "dynamic-update-slice", "cache", "token", "i", "i", "i", shape=big),
            ]
        }
        found = rows(program, [event("next", COPY, 0, 10)], extra=hlo_proto.aliases((0, ())))
        self.assertEqual(found["cache"]["kind"], "cache")
        self.assertEqual(found["cache"]["written_bytes"], SIZE)

    def test_array_that_is_wider_than_its_operands_is_marked(self) -> None:
        program = {
            "main": [
                given("x", shape=NARROW),
                given("scale", 1, array("f32", 1)),
                op("wide", "multiply", "x", "scale"),
                op("out", "sine", "wide"),
            ]
        }
        found = rows(program, [event("wide", COPY, 0, 10), event("out", COPY, 10, 10)])
        self.assertEqual(found["wide"]["widened_from"], "bf16")
        self.assertIsNone(found["out"]["widened_from"])

    def test_array_of_which_little_is_read_is_marked(self) -> None:
        big = array("f32", 4, 8, 128)
        program = {
            "main": [
                given(shape=big),
                op("logs", "log", "x", shape=big),
                op("i", "constant", shape=array("s32")),
                op("picked", "dynamic-slice", "logs", "i", "i", "i"),
                op("most", "tan", "x", shape=big),
                op("third", "slice", "most", shape=array("f32", 3, 8, 128)),
                op("all", "sine", "x", shape=big),
            ]
        }
        names = "logs", "picked", "most", "third", "all"
        ran = [event(name, COPY, 10 * i, 10) for i, name in enumerate(names)]
        found = rows(program, ran)
        self.assertTrue(found["logs"]["never_read_whole"])
        self.assertFalse(found["most"]["never_read_whole"])
        # A result is read after the step.
        self.assertFalse(found["all"]["never_read_whole"])
        self.assertTrue(found["picked"]["copy_of"]["is_slice"])

    def test_all_rows_of_the_text_say_where_the_array_goes(self) -> None:
        found = answer(DEMO, "by_array", "--top", "1")
        for shows_all in (False, True):
            text = text_of(found, "utf-8", View(shows_all))
            self.assertIn("made at train.py:45", text.partition("1/2 ")[2])

    def test_without_a_program_there_is_no_answer(self) -> None:
        outcome = run(event_without_program(), "by_array")
        self.assertEqual(outcome.object["reason"], "no_program")


def event_without_program() -> bytes:
    from tests.builders.xspace import Space, encode, tpu_plane

    return encode(Space([tpu_plane([event("a", COPY, 0, 10)], [("0", 0, 100)])]))
