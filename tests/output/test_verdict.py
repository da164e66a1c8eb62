"""Test the headline of `bottleneck`, and the largest loss without a known cause."""

from __future__ import annotations

import unittest

from _breakdown.modes.bottleneck import sentences
from tests.analysis.small_programs import FAST, bottleneck
from tests.answers import demo
from tests.builders.hlo_proto import Shape, op
from tests.builders.xspace import op as event, trace
from tests.harness import Json, answer
from tests.modes.small_steps import PEAKS, STEP, kernel, leaf, matmul

ROWS, COLUMNS = (Shape("f32", (8, 128), minor_to_major=order) for order in ((1, 0), (0, 1)))
CHIP = ("--chip", "v7x")


def of_step(copied: int, sent: int = 0, *options: str, line: str = "loss.py:7") -> Json:
    """Return the answer for a step of 1000 ps with a copy that is the cause `layout_change`, and
    with a collective at another line, which has no known cause."""
    program = [
        op("x", "parameter", shape=ROWS),
        op("y", "negate", "x", shape=ROWS),
        op("copy.1", "copy", "y", shape=COLUMNS, line="model.py:3"),
        op("used", "negate", "copy.1", shape=COLUMNS),
    ]
    ran = [
        event("copy.1", "data formatting", 0, copied, stack="model.py:3:1"),
        # Math that is as fast as the chip allows fills the step.
        event("used", "loop fusion", copied, 1000 - copied - sent, flops=10**9, shape="f32[8]{0}"),
    ]
    if sent:
        ran.append(event("all-reduce.9", "all-reduce", 1000 - sent, sent, stack=f"{line}:1"))
    return bottleneck({"main": program}, ran, *FAST, *CHIP, "--peak-tflops-fp32", "1", *options)


class Headlines(unittest.TestCase):
    def test_first_cause_is_named_if_it_surely_gains_two_percent(self) -> None:
        # The smallest gain is 0.8 of the estimate.
        for copied, begins in (
            (50, "Start at model.py:3: changing the layout of arrays probably costs about 0.05 of"),
            (25, "No known loss is large. Changing the layout of arrays at model.py:3 probably"),
            (24, "No known loss is large."),
        ):
            with self.subTest(copied):
                self.assertTrue(of_step(copied)["headline"].startswith(begins))

    def test_larger_loss_without_a_known_cause_is_the_second_sentence(self) -> None:
        says = (
            "Start at model.py:3: changing the layout of arrays probably costs about 0.05 of"
            " 1.00 ns (5.0 %)."
        )
        of_loss = (
            " The largest loss without a known cause is at loss.py:7: 0.051 of 1.00 ns (5.1 %),"
            " mostly in communication."
        )
        for sent, more in ((51, of_loss), (50, ""), (0, "")):
            self.assertEqual(of_step(50, sent)["headline"], says + more)

    def test_line_is_named_if_no_cause_surely_gains_two_percent(self) -> None:
        for sent, says in (
            (100, "Start at loss.py:7, which loses 0.1 of 1.00 ns (10.0 %), mostly in"
                  " communication."),
            (99, "No known loss is large. The largest loss without a known cause is at loss.py:7:"
                 " 0.099 of 1.00 ns (9.9 %), mostly in communication."),
        ):  # fmt: skip
            self.assertEqual(of_step(20, sent)["headline"], says)

    def test_no_line_is_to_start_at_if_it_loses_little_and_a_cause_may_gain_much(self) -> None:
        fields = demo("bottleneck")
        cause = {**fields["causes"][0], "gain_pct_of_step": 9.0, "gain_range_ps": [0, 2 * 10**9]}
        for lost_pct, begins in ((9.9, "It is not sure that any cause gains much. The largest"),
                                 (10.0, "Start at")):  # fmt: skip
            loss = {**fields["largest_loss"], "lost_pct": lost_pct}
            says = " ".join(sentences({**fields, "causes": [cause], "largest_loss": loss}))
            self.assertTrue(says.startswith(begins), says)

    def test_math_of_unknown_cost_counts_as_lost(self) -> None:
        at_a = "a.py:1, which may lose up to 0.1 of 1.00 ns (10.0 %), mostly in math of unknown"
        spread = "Math of unknown cost takes 27.0 % of the step; what it loses is not known."
        less = " The largest loss without a known cause may be at a.py:1: up to 0.09 of 1.00 ns"
        for a, b, c, says in (
            (100, 0, 0, f"Start at {at_a}"),
            (90, 90, 90, spread + less),
            (90, 79, 79, f"No known loss is large.{less}"),
        ):
            unknown, end = [], 1000
            for name, lasting in zip("abc", (a, b, c), strict=True):
                end -= lasting
                if lasting:
                    unknown.append(leaf(end, lasting, name, stack=f"{name}.py:1:1"))
            # Math at its roof and a kernel fill the step.
            ops = [kernel(0, 100), matmul(100, end - 100, 2 * (end - 100), 0), *unknown]
            with self.subTest(a=a, b=b):
                headline = answer(trace(ops, STEP), "bottleneck", *PEAKS)["headline"]
                self.assertTrue(headline.startswith(says), headline)

    def test_headline_and_next_steps_do_not_depend_on_top(self) -> None:
        for copied, sent in ((50, 60), (20, 200)):
            found = [of_step(copied, sent, f"--top={top}") for top in (0, 1, 9)]
            self.assertEqual(len({each["headline"] for each in found}), 1)
            self.assertEqual(found[0]["largest_loss"], found[2]["largest_loss"])
            self.assertEqual(found[0]["lines"], [])

    def test_step_without_ops_has_a_headline(self) -> None:
        headline = answer(trace([], [("0", 0, 1000)]), "bottleneck", *CHIP)["headline"]
        self.assertEqual(headline, "The device is idle for 1.00 of 1.00 ns (100.0 %).")


class LargestLoss(unittest.TestCase):
    def test_gain_of_a_cause_at_the_same_line_is_left_out(self) -> None:
        ends = "Besides, this line loses 0.06 of 1.00 ns (6.0 %), mostly in communication."
        self.assertTrue(of_step(50, 60, line="model.py:3")["headline"].endswith(ends))

    def test_finding_has_advice_unless_a_cause_explains_half_of_its_loss(self) -> None:
        for line, sent, is_there in ("model.py:3", 100, False), ("model.py:3", 101, True), (
            "loss.py:7", 60, True,
        ):  # fmt: skip
            advice = {
                row["class"]: row["what_helps"] for row in of_step(50, sent, line=line)["findings"]
            }
            self.assertEqual(advice["collective"] is not None, is_there, (line, sent))
            self.assertIsNone(advice["data_movement"])

    def test_loss_of_a_line_is_that_of_all_its_classes(self) -> None:
        ops = [
            event("copy.1", "copy", 0, 60, stack="a.py:1:1"),
            event("all-reduce.1", "all-reduce", 60, 50, stack="a.py:1:1"),
            event("copy.2", "copy", 110, 100, stack="b.py:2:1"),
        ]
        result = answer(trace(ops, [("0", 0, 210)]), "bottleneck")
        loss = result["largest_loss"]
        self.assertEqual((loss["source_user"], loss["lost_ps"]), ("a.py:1", 110))
        self.assertEqual((loss["class"], loss["hlo_op"]), ("data_movement", "copy.1"))
        self.assertEqual(result["lines"][0]["lost_ps"], 110)

    def test_time_of_unknown_cost_is_left_out_if_more_is_surely_lost(self) -> None:
        ops = [
            event("copy.1", "copy", 0, 60, stack="a.py:1:1"),
            leaf(60, 59, "gather.1", stack="a.py:1:1"),
            kernel(119, 70, stack="a.py:1:1"),
        ]
        of_known_cost = matmul(189, 11, 22, 0)
        for lasting, more, loss in (
            (59, [of_known_cost], ("data_movement", 60)),
            (61, [of_known_cost], ("unjudged", 121)),
            # Without any cost, all math is alike.
            (61, [], ("data_movement", 60)),
        ):
            ops[1] = leaf(60, lasting, "gather.1", stack="a.py:1:1")
            data = trace([*ops, *more], [("0", 0, 200)])
            found = answer(data, "bottleneck", *PEAKS)["largest_loss"]
            self.assertEqual((found["class"], found["lost_ps"]), loss)

    def test_line_of_a_cause_that_explains_half_of_the_loss_is_left_out(self) -> None:
        self.assertIsNone(of_step(500)["largest_loss"])
        self.assertEqual(of_step(500, 1)["largest_loss"]["source_user"], "loss.py:7")

    def test_idle_time_includes_what_is_unknown_of_the_pause_after_the_step(self) -> None:
        steps = [(str(i), 1000 * i, 800) for i in range(4)]
        ops = [event(f"copy.{i}", "copy", 1000 * i, 700, stack="a.py:1:1") for i in range(4)]
        loss = answer(trace(ops, steps), "bottleneck")["largest_loss"]
        self.assertEqual((loss["class"], loss["lost_ps"]), ("data_movement", 700))
        ops = [event(f"copy.{i}", "copy", 1000 * i, 100, stack="a.py:1:1") for i in range(4)]
        loss = answer(trace(ops, steps), "bottleneck")["largest_loss"]
        self.assertEqual((loss["class"], loss["source_user"]), ("idle", None))
        # A row tells of the pause of 200 ps.
        self.assertEqual((loss["lost_ps"], loss["lost_pct"]), (700, 70))
