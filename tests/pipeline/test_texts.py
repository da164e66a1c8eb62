"""Texts of an answer: what is cut because it is too long."""

from __future__ import annotations

import gzip
import json
import unittest
from typing import Any

import compute_breakdown
from _pipeline import texts
from tests import harness
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    Stat,
    StatMetadata,
    encode,
    string,
)


def trace(ops: list[EventMetadata], names: dict[int, str]) -> bytes:
    """Return a trace with one execution of each op."""
    line = Line("XLA Ops", [Event(i, 10 * i, 5) for i in range(1, len(ops) + 1)])
    stat_names = [StatMetadata(i, name) for i, name in names.items()]
    return encode(Space([Plane("/device:TPU:0", [line], ops, stat_names)]))


class Texts(unittest.TestCase):
    def answer(self, texts: list[str]) -> dict[str, Any]:
        """Return the answer of by_source for ops with these names, each at its own line."""
        ops = [
            EventMetadata(i, text, [Stat(1, string("loop fusion")), Stat(2, string(f"m.py:{i}:1"))])
            for i, text in enumerate(texts, 1)
        ]
        names = {1: "hlo_category", 2: "source_stack"}
        data = trace(ops, names)
        return harness.answer(gzip.compress(data), "by_source")

    def test_a_long_text_is_cut_and_a_note_says_so(self) -> None:
        for length, is_cut in ((65_536, False), (65_537, True)):
            text = "%f.1 = f32[2] fusion(".ljust(length, "a")
            said = self.answer([text])
            (group,) = said["groups"]
            expected = text[:65_536] + "…" * is_cut
            self.assertEqual(group["example_hlo_op"], expected)
            self.assertEqual(group["hlo_op_breakdown"][0]["example_hlo_op"], expected)
            notes = [note for note in said["notes"] if note.endswith("bytes: cut")]
            self.assertEqual(notes, ["2 texts are longer than 65536 bytes: cut"] if is_cut else [])

    def test_length_is_that_of_the_encoded_text(self) -> None:
        """A control character takes six bytes in JSON."""
        for char, size in {
            "a": 1, '"': 2, "\n": 2, "\x01": 6, "é": 6, "\ud800": 6, "😀": 12, "</": 3, "\x7f": 6
        }.items():  # fmt: skip
            with self.subTest(repr(char)):
                self.assertEqual(texts.size_of(char * 100), size * 100)
                n = 65_536 // size
                for fields in (
                    {"notes": [], "a": char * n},
                    {"notes": [], "a": {char * n: None}},
                    {"notes": [], "a": [["b" * 65_536]]},
                ):
                    before = json.dumps(fields)
                    texts.cut_texts(fields)
                    self.assertEqual(json.dumps(fields), before)
                for of in ({"a": char * 200_000}, {"a": char * n + "b" * size}):
                    texts.cut_texts(fields := {"notes": [], **of})
                    self.assertEqual(fields["a"], of["a"][: fields["a"].index("…")] + "…")
                    printed = compute_breakdown.encoded({"a": fields["a"][:-1]}, for_people=False)
                    length = len(printed) - len('{"a":""}\n')
                    self.assertLessEqual(length, 65_536)
                    self.assertGreater(length, 65_536 - size)
                    [note] = fields["notes"]
                    self.assertEqual(note, "1 texts are longer than 65536 bytes: cut")
                    # Cutting the answer again changes nothing.
                    again: dict[str, Any] = {"notes": [], "a": fields["a"]}
                    texts.cut_texts(again)
                    self.assertEqual(again["a"], fields["a"])

    def test_many_long_texts_together_are_cut(self) -> None:
        n = 2000 if harness.FULL else 300
        for text in ("\x01" * 20_000, "é" * 20_000, "\x01" * 100, "a" * 60_000):
            fields: dict[str, Any] = {"notes": [], "a": [f"{i}{text}" for i in range(n)]}
            texts.cut_texts(fields)
            self.assertLess(len(json.dumps(fields)), texts.ALL_TEXTS + n * 16)
            self.assertEqual(len(set(fields["a"])), n)

    def test_many_long_texts_are_cut_to_a_shorter_length(self) -> None:
        said = self.answer([f"%f.{i} = f32[2] fusion(" + "a" * 60_000 for i in range(200)])
        texts = [group["example_hlo_op"] for group in said["groups"]]
        self.assertEqual(len(set(texts)), 200)
        (length,) = {len(text) for text in texts}
        self.assertTrue(1000 < length < 60_000 and texts[0].endswith("a…"))
        self.assertTrue(any(f"{length - 1} bytes" in note for note in said["notes"]))

    def test_keys_that_become_equal_stay_different(self) -> None:
        text = "x" * 70_000
        fields = {"notes": [], "map": {text + "1": 1, "short": 2, text + "2": 3}}
        texts.cut_texts(fields)
        cut = "x" * 65_536
        self.assertEqual(
            list(fields["map"].items()),  # type: ignore[attr-defined]
            [(cut + "…", 1), ("short", 2), (cut + "……", 3)],
        )

    def test_long_category_is_cut(self) -> None:
        ops = [EventMetadata(1, "%f.1", [Stat(1, string("c" * 50_000))])]
        said = harness.answer(trace(ops, {1: "hlo_category"}), "summary")
        (row,) = (row for row in said["by_hlo_category"] if "c" in row["hlo_category"])
        self.assertEqual(row["hlo_category"], "c" * 1000 + "…")


if __name__ == "__main__":
    unittest.main()
