"""Test that the page of causes has a section for each cause, and that each has tests."""

from __future__ import annotations

import re
import subprocess
import sys
import unittest

from _breakdown.analysis.causes import RULES
from tests.harness import ROOT, SCRIPT, as_process
from tests.pages import CAUSES, blocks

FOLDER = ROOT / "_breakdown" / "analysis" / "causes"
HEADINGS = (
    "What it finds",
    "Why it costs",
    "How the program shows it",
    "What to change",
    "Evidence",
    "When it is intended",
)


class Rules(unittest.TestCase):
    def test_every_file_is_a_registered_cause_with_tests(self) -> None:
        files = {path.stem for path in FOLDER.glob("[a-z]*.py")}
        self.assertEqual(files, {rule.name for rule in RULES})
        for name in files:
            self.assertTrue((ROOT / f"tests/analysis/causes/test_{name}.py").exists(), name)

    def test_page_has_a_section_with_all_headings_and_an_example_for_each_cause(self) -> None:
        code = {block.heading: block.text for block in blocks(CAUSES)}
        sections = dict(re.findall(r"(?ms)^## (\w+)\n(.*?)(?=^## |\Z)", CAUSES))
        self.assertEqual(sorted(sections), sorted(rule.name for rule in RULES))
        self.assertEqual(list(sections), sorted(sections), "sort the sections by name")
        for rule in RULES:
            with self.subTest(rule.name):
                section = sections[rule.name]
                summary, _, needs = section.split("\n")[1].rpartition(" The rule needs ")
                self.assertEqual(needs, f"{rule.needs}.")
                self.assertIn(f"- [`{rule.name}`](#{rule.name}): {summary}\n", CAUSES)
                found = re.findall(r"(?m)^\*\*(.*?)\.\*\* .", section)
                self.assertEqual(tuple(found), HEADINGS)
                self.assertRegex(code[rule.name], r"(?s)^# Before.*\n# After")

    def test_explanation_is_printed_without_a_profile(self) -> None:
        words = [sys.executable, str(SCRIPT), "--explain", "resharding"]
        printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        self.assertTrue(printed.startswith("resharding\n\nFind arrays that "))
        self.assertIn("\n**What to change.** ", printed)
        self.assertIn("\n# After", printed)
        self.assertNotIn("\n## ", printed)
        self.assertLessEqual(max(map(len, printed.splitlines())), 100)
        detail = as_process("--explain", "reshard").object["detail"]
        self.assertTrue(detail.endswith("got 'reshard'; did you mean resharding?"), detail)
