"""Test that each cause is described in its file, and that the pages list all causes."""

from __future__ import annotations

import subprocess
import sys
import unittest

from _breakdown.analysis.causes import HEADINGS, NAMES, NEEDS, rule_named
from _breakdown.analysis.causes.__main__ import causes_page
from tests.harness import ROOT, SCRIPT, as_process
from tests.pages import CAUSES

FOLDER = ROOT / "_breakdown" / "analysis" / "causes"


class Rules(unittest.TestCase):
    def test_every_file_is_a_registered_cause_with_tests(self) -> None:
        files = {path.stem for path in FOLDER.glob("[a-z]*.py")}
        self.assertEqual(sorted(files), sorted(NAMES))
        for name in NAMES:
            self.assertTrue((ROOT / f"tests/analysis/causes/test_{name}.py").exists(), name)

    def test_every_cause_has_all_headings_and_an_example(self) -> None:
        for name in NAMES:
            with self.subTest(name):
                rule = rule_named(name)
                self.assertIn(rule.needs, NEEDS)
                self.assertEqual(tuple(rule.sections), HEADINGS)
                self.assertTrue(all(rule.sections.values()))
                self.assertRegex(rule.sections["Example"], r"(?s)^    # Before.*\n    # After")

    def test_page_of_causes_is_up_to_date(self) -> None:
        advice = "CAUSES.md is stale: run `python -m _breakdown.analysis.causes >docs/CAUSES.md`"
        self.assertTrue(causes_page() == CAUSES, advice)

    def test_explanation_is_printed_without_a_profile(self) -> None:
        words = [sys.executable, str(SCRIPT), "--explain", "resharding"]
        printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        self.assertTrue(printed.startswith("resharding\n\nFind arrays that "))
        self.assertIn("\nWhat to change: ", printed)
        detail = as_process("--explain", "reshard").object["detail"]
        self.assertTrue(detail.endswith("got 'reshard'; did you mean resharding?"), detail)
