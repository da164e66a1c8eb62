"""Test `--format text`: figures, units, names, wrapping.

`Reading` parses a text: the figures below each heading must equal the figures of the JSON, in the
unit that the heading names.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
import sys
import unicodedata
import unittest
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

import compute_breakdown
from _output import layout
from _output.characters import Characters
from _output.layout import Column, Each, Says, Table
from _output.text import HEAD, parts_of, text_of
from tests.answers import BATCH, answers, demo, refusals
from tests.builders.random_xspace import command_line, random_case
from tests.builders.xspace import (
    Event,
    Line,
    Plane,
    Space,
    StatNames,
    encode,
    op,
    text_field,
    trace,
)
from tests.harness import (
    AFTER,
    BEFORE,
    DEMO,
    PROFILES,
    SCRIPT,
    InFolder,
    answer,
    run,
    sampled,
)

Json = dict[str, Any]

UTF8, ASCII = Characters("utf-8"), Characters("ascii")
WITH_TEXT = tuple(
    mode.name for mode in compute_breakdown.MODES if mode.name not in ("record", "page")
)
UNITS = {
    "%": 1,
    **dict(layout.TIME),
    "µs": 10**6,
    **dict(layout.BYTES),
    **dict(layout.FLOPS),
}
# A figure in a sentence has a unit.
FIELD = r"([+-]?\d[\d.]*(?:e[+-]\d+)?(?: [\w%]+)?|\?)"
FIGURE_RE = re.compile(r"[+-]?\d[\d.]*(?:e[+-]\d+)?")


# ----------------------------------------------------------------------------------------------
# The second reading.


def by_columns(line: str) -> str:
    """Return the text with one character for each column of the terminal."""
    wide = (
        "" if unicodedata.category(character) in ("Mn", "Me")
        else character * (1 + (unicodedata.east_asian_width(character) in "WF"))
        for character in line
    )  # fmt: skip
    return "".join(wide)


class NotThere(Exception):
    pass


def get(value: Any, path: str) -> Any:
    for part in path.split("."):
        if value is None:
            return None
        if isinstance(value, list):
            value = (value[int(part) :] or [None])[0]
        elif part not in value:
            raise NotThere
        else:
            value = value[part]
    return value


def first_of(row: Json, column: Column) -> Any:
    found = [get(row, path) for path in paths(column) if is_there(row, path, known=False)]
    return next((value for value in found if value not in (None, "", {}, [])), None)


class Reading:
    """Compare a text with its answer, line by line."""

    def __init__(self, fields: Json, text: str) -> None:
        self.lines = text.splitlines()
        # Indented lines continue a sentence.
        self.sentences = [" ".join(part.split()) for part in re.split(r"\n(?!  )", text)]
        self.fields = fields
        # The attributes count the compared figures of tables, and list the declared parts that were
        # found.
        self.n_in_tables = 0
        self.met: set[tuple[str, ...]] = set()

    def check(self) -> None:
        for part in (*HEAD, *parts_of(self.fields["mode"])):
            self.check_part(part, self.fields)

    def check_part(self, part: Says | Table | Each, fields: Json) -> None:
        if isinstance(part, Each):
            if is_there(fields, part.rows):
                for row in get(fields, part.rows):
                    for inner in part.parts:
                        self.check_part(inner, row)
        elif isinstance(part, Table):
            outer = part.rows.partition("[].")[0]
            if is_there(fields, outer, known=False):
                self.check_table(part, fields)
        else:
            with suppress(NotThere):
                when = part.when.removeprefix("!")
                if not when or bool(get(fields, when)) is not part.when.startswith("!"):
                    self.check_sentence(part.text, fields)

    def check_sentence(self, template: str, fields: Json) -> None:
        """Find the sentence with the figures of the object."""
        fields = {**fields, "trace": ""}
        pieces = re.split(r"\{([^{}]+)\}", " ".join(template.split()))
        told = [(field + ":").split(":")[:2] for field in pieces[1::2]]
        values = [get(fields, path) for path, _ in told]
        fields_re = [
            FIELD if kind in layout.FIGURES and not isinstance(value, dict) else "(.*?)"
            for (_, kind), value in zip(told, values, strict=True)
        ]
        literal = map(re.escape, pieces[::2])
        pattern = re.compile("".join(itertools.chain(*zip(literal, [*fields_re, ""], strict=True))))
        found = [
            match.groups()
            for match in filter(None, map(pattern.fullmatch, self.sentences))
            if all(
                isinstance(value, dict) or is_shown(shown, value, kind)
                for shown, value, (_, kind) in zip(match.groups(), values, told, strict=True)
                if kind in layout.FIGURES
            )
        ]
        assert found, (template, values)
        self.met.add((template,))

    def check_table(self, table: Table, fields: Json) -> None:
        rows = rows_of(fields, table)
        ends = [end for end in table.ends if is_there(fields, end.when)]
        if not rows and not ends:
            return
        columns = [
            column
            for column in table.columns
            if any(is_there(row, paths(column)[0], known=False) for row in rows) or not rows
        ]
        pieces = re.split(r"\{[^{}]*\}", table.title)
        title = re.compile(".*".join(map(re.escape, pieces[:2])))
        at = next((i for i, line in enumerate(self.lines) if title.match(line)), -1)
        assert at >= 0, table.title
        while not self.lines[at].startswith("  ") or not self.is_heading(self.lines[at], columns):
            at += 1
        shown = [by_columns(line) for line in self.lines[at : at + 1 + len(rows) + len(ends)]]
        # The next table with the same title must find a separate match.
        self.lines[at - 1] = ""
        assert len(shown) == 1 + len(rows) + len(ends), table.title
        place = 2
        for column in columns:
            match = heading_of(column).match(shown[0], place)
            if not match:
                # A column may be left out if no row has a value worth showing.
                known = [row for row in rows if says_something(row, column)]
                following = [end.cells.get(column.heading) for end in ends]
                is_told = any(path and is_there(fields, path, known=False) for path in following)
                assert not known and not is_told, column.heading
                continue
            place = match.end()
            self.met |= {
                (table.title, column.heading, path)
                for path in paths(column)
                if any(is_there(row, path, known=False) for row in rows)
            }
            if column.kind in layout.FIGURES:
                values = [first_of(row, column) for row in rows]
                told = [end.cells.get(column.heading) for end in ends]
                values += [
                    get(fields, path) if path and is_there(fields, path, known=False) else None
                    for path in told
                ]
                cells = [
                    line[:place].rsplit(" ", 1)[-1] if len(line) >= place else ""
                    for line in shown[1:]
                ]
                unit = match[1].split()[-1] if " " in match[1] or match[1] in UNITS else ""
                self.check_column(column, unit, values, cells)
            else:
                self.check_names(column, rows, match.start(1), shown[1:])

    def is_heading(self, line: str, columns: list[Column]) -> bool:
        first = next(one for one in columns if one.kind in layout.FIGURES or one.null)
        return heading_of(first).match(line, 2) is not None

    def check_column(self, column: Column, unit: str, values: list[Any], cells: list[str]) -> None:
        size = UNITS[unit] if column.kind in layout.UNITS and unit in UNITS else 1
        for value, cell in zip(values, cells, strict=True):
            if value is None:
                assert cell in ("", column.null), (column.heading, cell)
            else:
                self.n_in_tables += 1
                assert is_figure(cell, value, column.kind, size), (column.heading, value, cell)
        shown = [
            cell for value, cell in zip(values, cells, strict=True)
            if value is not None and "e" not in cell
        ]  # fmt: skip
        known = [abs(int(value)) for value in values if value is not None]
        if column.kind in layout.UNITS and any(known) and len(shown) == len(known):
            largest = shown[known.index(max(known))]
            digits = len(re.sub(r"\D", "", largest))
            # Only figures in the largest unit can have more digits.
            is_last = unit in ("s", "GiB", "TFLOP")
            assert digits == 4 or (is_last and digits > 4), (column.heading, largest)

    def check_names(self, column: Column, rows: list[Json], start: int, shown: list[str]) -> None:
        if column.kind in ("initials", "op", "what", "shape", "values") or column.depth:
            return
        for row, line in zip(rows, shown, strict=False):
            value = first_of(row, column)
            if isinstance(value, str) and value.isascii() and value.isprintable():
                cell = line[start:]
                assert cell.startswith(value.rstrip()) or "…" in cell, (column.heading, value, line)


def says_something(row: Json, column: Column) -> bool:
    value = first_of(row, column)
    if value is None:
        return column.null != "" and (not column.of or get(row, column.of) is not None)
    return not isinstance(value, dict) or any(value.values())


def heading_of(column: Column) -> re.Pattern[str]:
    """Return a pattern for a heading, including the unit and the leading blanks."""
    units = "|".join(map(re.escape, UNITS))
    unit = rf"(?: ?(?:{units})(?![\w/]))?" if column.kind in layout.UNITS else ""
    return re.compile(rf" *({re.escape(column.heading)}{unit})(?= |$)")


def paths(column: Column) -> list[str]:
    return [column.path] if isinstance(column.path, str) else list(column.path)


def is_there(fields: Json, path: str, *, known: bool = True) -> bool:
    try:
        found = get(fields, path)
    except NotThere:
        return False
    return bool(found) if known else True


def rows_of(fields: Json, table: Table) -> list[Json]:
    outer, _, inner = table.rows.partition("[].")
    found = get(fields, outer) or []
    if inner:
        rows = [
            {**row, "^": i}
            for i, outside in enumerate(found, 1)
            for row in get(outside, inner) or []
        ]
    elif isinstance(found, dict):
        rows = [
            {"key": key} | (value if isinstance(value, dict) else {"value": value})
            for key, value in found.items()
        ]
    else:
        rows = list(found)
    rows = [row for row in rows if not table.unless_0 or row[table.unless_0]]
    return sorted(rows, key=lambda row: -(row[table.by] or 0)) if table.by else rows


def is_figure(cell: str, value: Any, kind: str, size: int) -> bool:
    """Return True if a cell shows the value, rounded to the cell's decimals."""
    if not FIGURE_RE.fullmatch(cell):
        return False
    shown, real = Decimal(cell), Decimal(str(value)) / size
    if kind == "share":
        real *= 100
    mantissa, _, exponent = cell.partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    if kind in ("delta", "change") and shown > 0 and not cell.startswith("+"):
        return False
    return abs(shown - real) <= Decimal("0.5000001") * Decimal(10) ** -decimals


def is_shown(shown: str, value: Any, kind: str) -> bool:
    """Return True if a figure with a unit shows the value."""
    if value is None:
        return shown == "?"
    figure, _, unit = shown.partition(" ")
    if kind in layout.UNITS and value and unit not in UNITS:
        return False
    return is_figure(figure, value, kind, UNITS[unit] if kind in layout.UNITS and unit else 1)


# ----------------------------------------------------------------------------------------------
# All modes.


def to_host() -> bytes:
    """Return a copy to the host's memory that runs during a fusion."""
    out = "(f32[1024]{0:T(256)S(5)}, f32[1024]{0}, u32[]{:S(2)})"
    return trace(
        [
            op("copy-start.1", "copy-start", 0, 5,
               text=f"%copy-start.1 = {out} copy-start(f32[1024]{{0}} %x)"),
            op("f", "loop fusion", 5, 20),
            op("copy-done.1", "copy-done", 25, 10,
               text=f"%copy-done.1 = f32[1024]{{0:T(256)S(5)}} copy-done({out} %copy-start.1)"),
        ]
    )  # fmt: skip


def with_complaints() -> bytes:
    """Return a trace with errors, warnings, a version and a line with a display name."""
    plane = Plane("/device:TPU:0", [Line("1", [Event(1, 0, 5)], display_name="one")])
    names = StatNames()
    version = [names.stat("jax_version", "0.10.0")]
    beside = Plane("/host:metadata", stats=version, stat_metadata=names.metadata())
    return encode(Space([plane, beside], extra=text_field(2, "lost") + text_field(3, "late")))


def on_demo(mode: str) -> Iterator[Json]:
    if mode == "compare":
        yield answer(AFTER, mode, "--baseline", str(BEFORE))
        yield answer(AFTER, mode, "--baseline", str(BEFORE), "--top", "3")
        return
    # `answers` has the answers with options.
    yield demo(mode)


class Figures(unittest.TestCase):
    batch = BATCH

    def read(self, fields: Json) -> Reading:
        text = text_of(fields, "utf-8")
        self.assertLessEqual(max(len(by_columns(line)) for line in text.splitlines()), 100)
        self.assertTrue(all(line == line.rstrip() for line in text.splitlines()))
        reading = Reading(fields, text)
        reading.check()
        return reading

    def test_text_of_real_captures_has_the_figures_of_the_json(self) -> None:
        modes = [mode for mode in WITH_TEXT if mode != "compare"]
        cases = itertools.product(sorted(PROFILES.glob("*.xplane.pb")), modes)
        for path, mode in sampled(cases, 5):
            outcome = run(path, mode)
            if outcome.object["status"] == "ok":
                with self.subTest(path=path.name, mode=mode):
                    self.read(outcome.object)

    def test_every_declared_part_is_shown_with_the_figures_of_the_json(self) -> None:
        met: dict[str, set[tuple[str, ...]]] = {mode: set() for mode in WITH_TEXT}
        for mode in WITH_TEXT:
            for fields in on_demo(mode):
                with self.subTest(mode=mode):
                    reading = self.read(fields)
                    self.assertGreater(reading.n_in_tables, 5)
                    met[mode] |= reading.met
        more = [answer(to_host(), "comm"), answer(with_complaints(), "anatomy")]
        more += [demo("bottleneck", "--tokens=1e6"), demo("by_scope", "--depth=1")]
        for fields in (*answers(), *more):
            if fields["mode"] in met:
                with self.subTest(mode=fields["mode"]):
                    met[fields["mode"]] |= self.read(fields).met
        for mode in WITH_TEXT:
            told = set(everything_in(parts_of(mode)))
            self.assertEqual(told - met[mode], set(), mode)

    def test_text_of_random_traces_has_the_figures_of_the_json(self) -> None:
        n = 0
        for seed in sampled(range(150), 25):
            data, mode, options = random_case(random.Random(f"text {seed}"))
            if mode not in WITH_TEXT:
                continue
            outcome = run(data, mode, *command_line(options))
            with self.subTest(seed=seed, mode=mode):
                if outcome.object["status"] == "ok":
                    n += self.read(outcome.object).n_in_tables
                for encoding in ("ascii", "latin-1"):
                    text = text_of(outcome.object, encoding)
                    self.assertLessEqual(max(map(len, text.encode(encoding).splitlines())), 100)
        self.assertGreater(n, 120)

    def test_wrong_figures_in_a_text_are_detected(self) -> None:
        fields = answer(DEMO, "bottleneck")
        text = text_of(fields, "utf-8")
        for told, other in (
            ("18.31 ms", "18.32 ms"),
            ("18.31 ms", "18.31 s"),
            ("24.8", "24.9"),
            ("2.925", "2.924"),
            (" 321", " 322"),
            ("14.9 %", "14.8 %"),
            ("3.999", "3.998"),
            ("lost ms", "lost µs"),
        ):
            self.assertIn(told, text)
            with self.subTest(told=told), self.assertRaises(AssertionError):
                Reading(fields, text.replace(told, other, 1)).check()


def everything_in(parts: tuple[Says | Table | Each, ...]) -> Iterator[tuple[str, ...]]:
    for part in parts:
        if isinstance(part, Each):
            yield from everything_in(part.parts)
        elif isinstance(part, Table):
            for column in part.columns:
                yield from ((part.title, column.heading, path) for path in paths(column))
        else:
            yield (part.text,)


# ----------------------------------------------------------------------------------------------
# Units.


class Units(unittest.TestCase):
    def assert_shown(self, kind: str, cases: dict[Any, str]) -> None:
        for value, text in cases.items():
            with self.subTest(value=value):
                shown = layout.field_of(value, kind, UTF8).replace(layout.TIED, " ")
                self.assertEqual(shown, text)

    def test_times_have_four_digits_and_a_unit(self) -> None:
        self.assert_shown(
            "time",
            {
                0: "0",
                1: "0.001 ns",
                -5: "-0.005 ns",
                9_999: "9.999 ns",
                99_995: "100.0 ns",
                999_949: "999.9 ns",
                999_950: "1.000 µs",
                999_950_000: "1.000 ms",
                999_949_999_999_999: "999.9 s",
                9_999_499_999_999_999: "9999 s",
                123_456_789 * 10**12: "1.23e+08 s",
                "18308477314": "18.31 ms",
                None: "?",
            },
        )

    def test_bytes_have_a_binary_unit(self) -> None:
        kib = 1024
        self.assert_shown(
            "bytes",
            {
                0: "0",
                1: "0.001 KiB",
                kib - 1: "0.999 KiB",
                kib: "1.000 KiB",
                1023 * kib + 511: "1023 KiB",
                1023 * kib + 512: "1.000 MiB",
                2**30 - 1: "1.000 GiB",
                2**44: "16384 GiB",
            },
        )

    def test_counts_percentages_and_rates_are_formatted(self) -> None:
        kinds: dict[str, dict[Any, str]] = {
            "percent": {0.0: "0.0 %", 24.774: "24.8 %", 99.96: "100.0 %", -0.04: "0.0 %"},
            "share": {0.096853: "9.7 %", 1.5: "150.0 %", None: "?"},
            "change": {0.04: "0.0 %", 0.06: "+0.1 %", -11.55: "-11.6 %"},
            "delta": {0: "0", 1500: "+1.500 ns", -1500: "-1.500 ns"},
            "count": {0: "0", 99_999_999: "99999999", 2**63 - 1: "9.22e+18", 10**400: "1.00e+400"},
            "chance": {0.002165: "0.002", 1.0: "1.000"},
            "number": {4.0: "4", 0.07861: "0.079", 9.9996: "10.00", 0.0004: "4.0e-04"},
            "flops": {34359738368: "34.36 GFLOP", 10**15: "1000 TFLOP"},
        }
        for kind, cases in kinds.items():
            self.assert_shown(kind, cases)

    def test_column_has_a_single_unit(self) -> None:
        for values, unit, shown in (
            ([18308477314, 92536716, None, 0], "ms", ["18.31", "0.09", "?", "0"]),
            ([999_949, 1], "ns", ["999.9", "0.0"]),
            ([999_950, 1, 4999, 5000], "us", ["1.000", "0.000", "0.005", "0.005"]),
            ([-999_950, 4], "us", ["-1.000", "0.000"]),
            ([None, None], "", ["?", "?"]),
            ([0, None], "", ["0", "?"]),
        ):
            with self.subTest(values=values):
                self.assertEqual(layout.column_of_figures(values, "time", "?"), (unit, shown))


# ----------------------------------------------------------------------------------------------
# Names.

HOSTILE = {
    "\x1b[31mred\x07": r"\x1b[31mred\x07",
    "two\nlines\tand\r": r"two\nlines\tand\r",
    "\u202etxt.exe\u202c": r"\u202etxt.exe\u202c",
    "\u2066isolate\u2069": r"\u2066isolate\u2069",
    "שלום": r"\u05e9\u05dc\u05d5\u05dd",
    "\u0660": r"\u0660",
    "\u200b\ufeff": r"\u200b\ufeff",
    "half \ud83d": r"half \ud83d",
    "層/注意.py": "層/注意.py",
    layout.TIED: r"\x00",
}


class Names(unittest.TestCase):
    def test_dangerous_characters_are_shown_as_escapes(self) -> None:
        for name, seen in HOSTILE.items():
            with self.subTest(name=ascii(name)):
                self.assertEqual(UTF8.seen(name), seen)
                self.assertTrue(ASCII.seen(name).isascii())
                self.assertTrue(ASCII.seen(name).isprintable())

    def test_long_names_are_cut_in_the_middle_and_file_names_on_the_left(self) -> None:
        for drawn, width, of_name, of_file in (
            ("abcdefghij", 10, "abcdefghij", "abcdefghij"),
            ("abcdefghij", 7, "abcd…ij", "…efghij"),
            (
                "/home/dev/model/train.py:32",
                20,
                "/home/dev/mod….py:32",
                "…/model/train.py:32",
            ),
            ("層層層層層", 6, "層層…", "…層層"),
        ):
            with self.subTest(text=drawn):
                self.assertEqual(UTF8.ends_of(drawn, width), of_name)
                self.assertEqual(UTF8.end_of(drawn, width), of_file)
        self.assertEqual(ASCII.ends_of("abcdefghij", 8), "abcd...j")
        self.assertEqual(ASCII.end_of("abcdefghij", 8), "...fghij")

    def test_hostile_names_are_escaped_and_fit_in_the_columns(self) -> None:
        """No line is wider than 100 columns or contains a dangerous character."""
        names = [*HOSTILE, "層" * 99, "x" * 70_000, "a b " * 99]
        ops = [
            op(f"f.{i}", name.replace("\ud83d", "") or "x", 10 * i, 9, stack=f"{name}.py:{i}:1",
               tf_op=f"jit(f)/{name}/add:", text=f"%{name} = f32[8] custom-call()")
            for i, name in enumerate(name.replace("\ud83d", "?") for name in names)
        ]  # fmt: skip
        data = trace(ops, [(names[0], 0, 500)])
        for mode in WITH_TEXT:
            options = ["--baseline", str(BEFORE)] if mode == "compare" else []
            options += ["--plane=0", "--sample=3"] if mode == "anatomy" else []
            fields = run(data, mode, *options).object
            for encoding in ("utf-8", "ascii", "latin-1", "cp437"):
                text = text_of(fields, encoding)
                with self.subTest(mode=mode, encoding=encoding):
                    text.encode(encoding)
                    for line in text.splitlines():
                        self.assertLessEqual(len(by_columns(line)), 100, line)
                        self.assertTrue(line.isprintable())
                        directions = set(map(unicodedata.bidirectional, line))
                        self.assertFalse(directions & {"R", "AL", "AN"})

    def test_signatures_are_shortened(self) -> None:
        for signature, what in (
            ("fusion [loop fusion]", "loop fusion"),
            ("copy [data formatting]", "copy"),
            ("custom-call:tpu_custom_call", "tpu_custom_call"),
            ("add_add_fusion [loop fusion]", "add_add_fusion"),
            ("all-gather +2", "all-gather +2"),
        ):
            self.assertEqual(layout.what_of(signature), what)


class Lines(unittest.TestCase):
    def test_long_lines_are_wrapped_between_words(self) -> None:
        words = "a " * 60 + "b" * 150 + f" 12{layout.TIED}ms"
        lines = layout.wrapped(words, UTF8, "- ", "    ")
        self.assertTrue(all(len(line) <= 100 for line in lines))
        self.assertEqual("".join(lines).replace(" ", ""), "-" + "a" * 60 + "b" * 150 + "12ms")
        self.assertTrue(lines[-1].endswith(" 12 ms"))
        self.assertEqual([line[:4] for line in lines[1:]], ["    "] * (len(lines) - 1))

    def test_column_without_values_is_left_out(self) -> None:
        table = Table(
            "t",
            "rows",
            (Column("a", "a", "time"), Column("b", "b"), Column("c", "c", null="")),
        )
        for row, headings in (
            ({"a": None, "b": None, "c": None}, ["a", "b"]),
            ({"a": 1}, ["a ns"]),
            ({"b": "x", "c": "y"}, ["b", "c"]),
        ):
            lines = list(layout.lines_of(table, {"rows": [row]}, UTF8))
            self.assertEqual(re.split("  +", lines[2].strip()), headings)

    def test_parts_without_fields_are_left_out(self) -> None:
        for part in (
            Says("{a.b:time}"),
            Says("{a}", when="b"),
            Says("{a}", when="!a"),
            Table("t", "b", (Column("a", "a"),)),
            Each("b", (Says("{a}"),)),
        ):
            self.assertEqual(list(layout.lines_of(part, {"a": {"x": 1}}, UTF8)), [])


# ----------------------------------------------------------------------------------------------
# The command.


class Command(InFolder):
    batch = BATCH

    def printed(self, *arguments: str, encoding: str = "utf-8") -> tuple[str, int, str]:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), *arguments],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": encoding},
            check=False,
        )
        return done.stdout.decode(encoding), done.returncode, done.stderr.decode(encoding)

    def test_status_and_stderr_are_the_same_as_with_json(self) -> None:
        for options in (
            [str(DEMO), "--mode", "bottleneck"],
            [str(DEMO), "--mode", "summary", "--step", "99"],
            ["no such path", "--mode", "memory"],
            [str(DEMO), "--mode", "bottleneck", "--params=1e9", "--tokens=5", "--n-devices=0"],
        ):
            as_json = compute_breakdown.outcome_of(options)
            text, status, stderr = self.printed(*options, "--format=text")
            with self.subTest(options=options):
                self.assertEqual((status, stderr), (as_json.status, as_json.complaint))
                if as_json.fields["mode"]:
                    self.assertEqual(text, text_of(as_json.fields, "utf-8"))
                else:
                    # A command line that cannot be parsed is answered in JSON.
                    self.assertEqual(json.loads(text), as_json.fields)

    def test_record_and_page_have_no_text(self) -> None:
        for mode in ("record", "page"):
            more = ["--out=x"] if mode == "page" else []
            fields = run(DEMO, mode, *more, "--format=text").object
            self.assertEqual(fields["reason"], "bad_arguments")
            self.assertIn(f"{mode} has no text format", fields["detail"])

    def test_ascii_stream_gets_only_ascii_text(self) -> None:
        said, _, _ = self.printed(
            str(DEMO), "--mode", "bottleneck", "--format=text", encoding="ascii"
        )
        self.assertIn(" us", said)
        self.assertRegex(said, r"\.\.\./\S*layers/attention\.py:15")

    def test_refusals_show_the_reason_and_the_available_names(self) -> None:
        n = 0
        for outcome in refusals():
            fields = outcome.object
            if fields["mode"] not in WITH_TEXT:
                continue
            n += 1
            words = " ".join(text_of(fields, "utf-8").split())
            with self.subTest(reason=fields["reason"]):
                self.assertTrue(words.startswith(f"{fields['mode']}: no answer for "))
                self.assertIn(f": {fields['reason']}", words)
                self.assertIn(" ".join(fields.get("detail", "").split())[:40], words)
                for name, value in fields.items():
                    if name.startswith("available_") and value:
                        first = "?" if value[0] is None else value[0]
                        self.assertIn(f"available {name[10:]}: {first}"[:60], words)
        self.assertGreater(n, 15)

    def test_refusals_show_runtime_and_planes(self) -> None:
        shown = [text_of(outcome.object, "utf-8") for outcome in refusals()
                 if outcome.object["mode"] in ("memory", "anatomy")]  # fmt: skip
        self.assertTrue(any("runtime: " in text for text in shown))
        self.assertTrue(any("\nplanes\n" in text for text in shown))


if __name__ == "__main__":
    unittest.main()
