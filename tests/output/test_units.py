"""Test that times, sizes and percentages look the same in sentences, tables and the page."""

from __future__ import annotations

import math
import re
import unittest
from collections.abc import Iterator
from typing import Any

from _breakdown import units
from _breakdown.output import figures
from tests.answers import BATCH, demo
from tests.harness import AFTER, ALL_MODES, BEFORE, ROOT, Json, answer

BYTES_PER_ELEMENT = {"pred": 1, "s8": 1, "bf16": 2, "f32": 4, "s32": 4, "u32": 4}
# A number with at least three digits, or two if it is below 1.
NUMBER = r"(?:\d{2,}\.\d|[1-9]\.\d\d|0\.0*[1-9]\d?|0)"
# Sentences that describe the tool instead of the step.
FIXED = ("what_helps", "detail", "why", "command")


def sentences_in(value: Any, name: str = "") -> Iterator[str]:
    """Yield the sentences of an answer: headline, notes and causes."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key not in FIXED:
                yield from sentences_in(part, key)
    elif isinstance(value, list):
        for part in value:
            yield from sentences_in(part, name)
    elif isinstance(value, str) and name in ("headline", "notes", "says"):
        yield value


class Formats(unittest.TestCase):
    def test_times_have_three_digits_in_the_largest_unit(self) -> None:
        for ps, text in {
            0: "0 ps",
            999: "999 ps",
            1000: "1.00 ns",
            -7_004: "-7.00 ns",
            9_994: "9.99 ns",
            9_996: "10.0 ns",
            346_250: "346.3 ns",
            961_340_000: "961.3 us",
            999_960_000: "1.00 ms",
            18_308_000_000: "18.3 ms",
            3 * 10**15: "3000.0 s",
        }.items():
            self.assertEqual(units.time(ps), text)

    def test_sizes_have_binary_units(self) -> None:
        for n_bytes, text in {
            0: "0 B",
            1023: "1023 B",
            (1 << 20) - 1: "1.00 MiB",
            4 * 2047 * 16_000 * 4: "499.8 MiB",
            500 << 20: "500.0 MiB",
            3 << 29: "1.50 GiB",
            5 << 40: "5.00 TiB",
        }.items():
            self.assertEqual(units.size(n_bytes), text)

    def test_two_times_share_a_unit(self) -> None:
        self.assertEqual(units.span(34_000_000_000, 40_000_000_000), "34.0 to 40.0 ms")
        self.assertEqual(units.span(700_000_000, 40_000_000_000), "0.7 to 40.0 ms")
        self.assertEqual(units.span(40_000_000_001, 40_000_000_002), "40.0 ms")


class Alike(unittest.TestCase):
    batch = BATCH

    def answers(self) -> Iterator[Json]:
        for mode in sorted(set(ALL_MODES) - {"record", "page", "export", "compare"}):
            yield demo(mode)
        yield answer(AFTER, "compare", "--baseline", str(BEFORE))

    def test_units_of_sentences_tables_and_the_page_are_the_same(self) -> None:
        script = (ROOT / "_breakdown" / "output" / "page_parts" / "core.js").read_text(
            encoding="utf-8"
        )

        def in_page(name: str) -> dict[str, float]:
            [row] = re.findall(rf"^const {name} = (.*);$", script, re.MULTILINE)
            pairs = re.findall(r'\["(\S+)", (\S+?)(?: \*\* (\d+))?\]', row)
            return {unit.replace("µ", "u"): float(n) ** int(power or 1) for unit, n, power in pairs}

        self.assertEqual(in_page("TIMES"), dict(units.TIMES))
        self.assertEqual(in_page("BYTES"), dict(units.BYTES))
        self.assertLessEqual({*figures.TIME}, {*units.TIMES})
        self.assertLessEqual({*figures.SIZE}, {*units.BYTES})

    def test_array_has_the_same_size_in_all_sentences_and_in_memory(self) -> None:
        def size_of(dtype: str, dims: str) -> str:
            elements = math.prod(map(int, dims.split(",")))
            return units.size(BYTES_PER_ELEMENT[dtype] * elements)

        n_found = 0
        array = re.compile(r"\b([a-z]+\d*)\[([\d,]+)\] \(([^)]*i?B)\)")
        for result in self.answers():
            for sentence in sentences_in(result):
                for dtype, dims, text in array.findall(sentence):
                    with self.subTest(result["mode"], sentence=sentence):
                        self.assertEqual(text, size_of(dtype, dims))
                    n_found += 1
        self.assertGreater(n_found, 0)
        # A buffer also contains padding.
        buffers = demo("memory")["buffers"]
        for row in buffers:
            shape = re.fullmatch(r"([a-z]+\d*)\[([\d,]+)\]", row["shape"] or "")
            if shape and row["padding_bytes"] is not None:
                size = units.size(row["bytes"] - row["padding_bytes"])
                self.assertEqual(size, size_of(*shape.groups()))

    def test_figures_in_sentences_have_one_form(self) -> None:
        n_found = 0
        for result in self.answers():
            for sentence in sentences_in(result):
                with self.subTest(result["mode"], sentence=sentence):
                    self.assertNotRegex(sentence, r"\d ?(kB|MB|GB|TB|bytes)\b(?!/s)")
                    for figure in re.findall(r"(\S+) (?:ns|us|ms|s|KiB|MiB|GiB)\b(?!/)", sentence):
                        self.assertRegex(figure.lstrip("(+-"), rf"\A{NUMBER}\Z")
                        n_found += 1
                    for figure in re.findall(r"(\S+) %", sentence):
                        self.assertRegex(figure.lstrip("(+-"), r"\A\d+\.\d\Z")
        self.assertGreater(n_found, 40)
