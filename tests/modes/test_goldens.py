"""Compare answers for the demo with the goldens, which `python -m tests.goldens` regenerates."""

from __future__ import annotations

import json
import unittest

from tests.answers import BATCH
from tests.goldens import FOLDER, GOLDENS, TEXTS, made, text_made
from tests.naive.invariants import differences

ADVICE = "if the change is intended, run python -m tests.goldens"


class Goldens(unittest.TestCase):
    batch = BATCH
    maxDiff = None

    def test_answers_for_the_demo_equal_the_goldens(self) -> None:
        for name in GOLDENS:
            with self.subTest(name=name):
                expected = json.loads((FOLDER / f"{name}.json").read_text())
                found = list(differences(made(name), expected))
                self.assertEqual(found, [], "\n".join(["", *found[:10], ADVICE]))

    def test_texts_for_the_demo_equal_the_goldens(self) -> None:
        for mode in TEXTS:
            with self.subTest(mode=mode):
                expected = (FOLDER / f"{mode}.txt").read_text(encoding="utf-8")
                self.assertEqual(text_made(mode), expected, ADVICE)
