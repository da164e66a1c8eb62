"""Test the names in sentences about causes."""

from __future__ import annotations

import unittest

from _breakdown.analysis.causes.shared import sentences


class Names(unittest.TestCase):
    def test_long_names_are_cut_in_the_middle(self) -> None:
        line = f"/home/{'folder' * 50}/{'file' * 50}.py:123"
        self.assertEqual(sentences.short("/a/b/layer.py:7"), "b/layer.py:7")
        self.assertEqual(len(sentences.short(line)), 41)
        self.assertTrue(sentences.short(line).endswith(".py:123"))
