"""Test the words of causes. `answer` in tests/harness.py checks the sentences of all causes that
tests find."""

from __future__ import annotations

import unittest

from _breakdown.analysis.causes.shared import sentences
from tests.harness import DEMO, ROOT, answer
from tests.pages import PAGES
from tests.wording import bounded_gains, faults_of


class Sentences(unittest.TestCase):
    def test_causes_of_the_demo_are_estimates_in_two_sentences(self) -> None:
        found = answer(DEMO, "bottleneck")
        self.assertEqual([fault for row in found["causes"] for fault in faults_of(row["says"])], [])
        self.assertRegex(found["headline"], r" probably costs about \S+ of 18\.3 ms")

    def test_long_names_are_cut_in_the_middle(self) -> None:
        line = f"/home/{'folder' * 50}/{'file' * 50}.py:123"
        self.assertEqual(sentences.short("/a/b/layer.py:7"), "b/layer.py:7")
        self.assertEqual(len(sentences.short(line)), 41)
        self.assertTrue(sentences.short(line).endswith(".py:123"))

    def test_too_long_sentences_and_bounds_are_found(self) -> None:
        for says in ("One. Two. Three.", f"{'x' * 300}.", "No end", "It takes at least 1 ms."):
            with self.subTest(says):
                self.assertTrue([*faults_of(says)])
        says = "At a.py:3 and b.py:4, copies take 1.5 ms. That is about 2.1 % of the step."
        self.assertEqual([*faults_of(says)], [])


class Pages(unittest.TestCase):
    def test_no_page_or_source_calls_a_gain_a_bound(self) -> None:
        texts = {name: text for name, text in PAGES.items() if name != "CHANGELOG.md"}
        for path in (ROOT / "compute_breakdown.py", *ROOT.glob("_*/**/*")):
            if path.suffix in (".py", ".js", ".html", ".md"):
                texts[str(path.relative_to(ROOT))] = path.read_text(encoding="utf-8")
        self.assertIn("_breakdown/output/page_parts/page.js", texts)
        for name, text in texts.items():
            with self.subTest(name):
                self.assertEqual(bounded_gains(text), [])

    def test_bounds_of_gains_are_found(self) -> None:
        for text in (
            "would save up to 3 ms",
            "# This is an upper bound of the\n    # gain",
            'f"would save up"\n        f" to {gain}"',
            "costs at least 3 ms",
            "| `gain_ps` | Maximum time",
        ):
            with self.subTest(text):
                self.assertTrue(bounded_gains(text))
        for text in (
            "The gain is an estimate. Up to two rows",
            "at most 4 files; it can save time",
        ):
            with self.subTest(text):
                self.assertEqual(bounded_gains(text), [])
