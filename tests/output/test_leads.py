"""Test the headlines and next steps of many answers."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import unittest
from collections.abc import Iterator
from typing import Any

from _breakdown import command, units
from _breakdown.modes import bottleneck, comm
from _breakdown.output import phrases
from tests.answers import BATCH, answers, demo
from tests.harness import LISTED_MODES, ROOT, SCRIPT, Json
from tests.shown import headline_of, merged_of

TIMES = dict(units.TIMES)
AMOUNT = re.compile(
    r"(?<![\w.])(\d+(?:\.\d+)?(?:e-?\d+)?)(?: of (\d+(?:\.\d+)?))? (ps|ns|us|ms|s)\b"
)


def figures_in(value: Any) -> Iterator[float]:
    """Yield all numbers in an answer."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from figures_in(part)
    elif isinstance(value, (int, float)):
        yield value


def numbers_in(value: Any) -> Iterator[int]:
    """Yield all integers in an answer."""
    return (number for number in figures_in(value) if isinstance(number, int))


class Headlines(unittest.TestCase):
    batch = BATCH

    def led(self) -> list[Json]:
        return [result for result in answers() if result["mode"] != "record"]

    def test_headline_is_of_sentences_and_not_too_long(self) -> None:
        for result in self.led():
            with self.subTest(result["mode"], headline=result["headline"]):
                self.assertRegex(result["headline"], r"\A[^\s].*[.]\Z")
                self.assertLessEqual(len(result["headline"]), phrases.LONGEST_HEADLINE)
                self.assertNotIn("  ", result["headline"])
                self.assertNotIn("None", result["headline"])

    def test_times_in_a_headline_occur_in_the_answer(self) -> None:
        for result in self.led():
            known = set(numbers_in({**result, "headline": "", "by line": merged_of(result)}))
            if result["mode"] == "comm":
                known |= {row["sync_dur_ps"] + row["wait_dur_ps"] for row in result["rows"]}
            for part, whole, unit in AMOUNT.findall(result["headline"]):
                for figure in filter(None, (part, whole)):
                    with self.subTest(result["mode"], figure=f"{figure} {unit}"):
                        shown = {units.number(abs(n), (unit, TIMES[unit])) for n in known}
                        self.assertIn(figure, shown, result["headline"])

    def test_percentages_and_sizes_in_a_headline_occur_in_the_answer(self) -> None:
        sizes = dict(units.BYTES)
        n_checked = 0
        for result in self.led():
            known = list(figures_in({**result, "headline": "", "by line": merged_of(result)}))
            if result.get("period_ps"):
                # The headline shows the pause as a percentage of the period; the answer has no such
                # field.
                known.append(100 * result["between_steps_ps"] / result["period_ps"])
            for share in re.findall(r"(\d+\.\d) %", result["headline"]):
                with self.subTest(result["mode"], share=share):
                    self.assertIn(share, {f"{abs(n):.1f}" for n in known}, result["headline"])
                n_checked += 1
            for size, unit in re.findall(r"(\d+(?:\.\d+)?) (GiB|MiB|KiB)\b", result["headline"]):
                with self.subTest(result["mode"], size=f"{size} {unit}"):
                    shown = {units.number(int(n), (unit, sizes[unit])) for n in known}
                    self.assertIn(size, shown, result["headline"])
                n_checked += 1
        self.assertGreater(n_checked, 20)

    def test_every_mode_but_record_has_a_headline(self) -> None:
        without = {mode.name for mode in LISTED_MODES if not hasattr(mode.module, "sentences")}
        self.assertEqual(without, {"record"})

    def test_headline_names_the_likely_line_of_ops_without_a_line(self) -> None:
        op, line = {"source_user": None, "source_inner": None}, {"source_user": "a/b/m.py:1"}
        row = {**op, "agg_key": "tfop:x", "total_dur_ps": 7 * 10**9, "kind": "data_move"}
        row["line_dur_ps"] = None
        totals: Json = {"n_groups_total": 1, "common_line": None}
        totals["left_out_ps"] = {"comm": 0, "data_move": 0}
        result = {"mode": "by_source", "step_duration_ps": 10**10, "totals": totals}
        for likely, ending in (([line], " (likely …/b/m.py:1)."), ([op], "."), (None, ".")):
            result["groups"] = [{**row, "likely_sources": likely}]
            self.assertEqual(
                headline_of(result),
                "1 group of ops by source line; ops without a source line take most: 7.00 of"
                f" 10.0 ms{ending}",
            )


class NextSteps(unittest.TestCase):
    batch = BATCH

    def test_next_steps_for_the_demo_run_as_printed(self) -> None:
        steps = {
            step["command"]
            for mode in ("bottleneck", "by_op", "idle")
            for step in demo(mode)["next_steps"]
        }
        self.assertGreater(len(steps), 3)
        for line in sorted(steps):
            python, script, *words = shlex.split(line)
            self.assertEqual((python, script), (sys.executable, str(SCRIPT)))
            self.assertEqual(command.outcome_of(words).fields["status"], "ok", line)
        done = subprocess.run(line, shell=True, capture_output=True, check=False)
        self.assertEqual(json.loads(done.stdout)["status"], "ok", line)

    def test_answer_for_stdin_has_no_next_steps(self) -> None:
        with open(next((ROOT / "tests/data/demo").rglob("*.gz")), "rb") as demo_file:
            data = demo_file.read()
        done = subprocess.run(
            [sys.executable, SCRIPT, "-", "--mode", "idle"],
            input=data,
            capture_output=True,
            check=True,
        )
        self.assertEqual(json.loads(done.stdout)["next_steps"], [])

    def test_next_steps_lead_to_answers_only(self) -> None:
        """Test that a capture without a program suggests no mode that reads one."""
        whole = demo("bottleneck")
        without = {**whole, "program": {**whole["program"], "hlo": False}}
        for fields, n in ((whole, 1), (without, 0)):
            modes = [step.words[1] for step in bottleneck.next_steps(fields)]
            self.assertEqual(modes.count("by_array"), n)
            self.assertEqual(len(modes), len({*modes}))
        whole = demo("comm")
        without = {**whole, "program": {**whole["program"], "hlo": False}}
        for fields, n in ((whole, 1), (without, 0)):
            modes = [step.words[1] for step in comm.next_steps(fields)]
            self.assertEqual(modes.count("program"), n)

    def test_first_step_is_about_the_headline(self) -> None:
        whole = demo("bottleneck")
        (cause, *_) = whole["causes"]
        for name, first in (
            ("pause_between_steps", "idle"),
            ("slow_device", "spread"),
            ("kernel_waits_for_input", "kernel"),
            ("resharding", "by_op"),
        ):
            fields = {**whole, "causes": [{**cause, "cause": name}]}
            self.assertEqual(next(bottleneck.next_steps(fields)).words[1], first)

    def test_every_next_step_has_a_mode_and_an_explanation(self) -> None:
        for result in answers():
            for step in result.get("next_steps", []):
                self.assertRegex(step["command"], r"--mode \w+")
                self.assertTrue(step["why"])
