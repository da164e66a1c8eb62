"""Test `--format text`: units, names, wrapping, and rules for the texts of all modes."""

from __future__ import annotations

import io
import itertools
import os
import random
import re
import subprocess
import sys
import unicodedata
import unittest
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

from _breakdown import command
from _breakdown.modes import roofline
from _breakdown.output import fill
from _breakdown.output.characters import Characters
from _breakdown.output.fill import filled
from _breakdown.output.screen import Column, Each, Says, Section, Table, View
from _breakdown.output.text import Style, TextPage
from tests.answers import BATCH, answers, demo, error_answers
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
    BEFORE,
    DEMO,
    SCRIPT,
    WITH_TEXT,
    InFolder,
    Json,
    answer,
    captures,
    run,
    sampled,
)
from tests.shown import markdown_of, parts_of, text_of

UTF8, ASCII = Characters("utf-8"), Characters("ascii")


def by_columns(line: str) -> str:
    """Return one character for each terminal column that the line occupies."""
    if line.isascii():
        return line
    wide = (
        "" if unicodedata.category(character) in ("Mn", "Me")
        else character * (1 + (unicodedata.east_asian_width(character) in "WF"))
        for character in line
    )  # fmt: skip
    return "".join(wide)


def to_host() -> bytes:
    """Encode a trace of a copy to host memory during a fusion."""
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
    """Encode a trace with errors, warnings, a version and a line with a display name."""
    plane = Plane("/device:TPU:0", [Line("1", [Event(1, 0, 5)], display_name="one")])
    names = StatNames()
    version = [names.stat("jax_version", "0.10.0")]
    metadata = Plane("/host:metadata", stats=version, stat_metadata=names.metadata())
    return encode(Space([plane, metadata], extra=text_field(2, "lost") + text_field(3, "late")))


def with_period() -> Json:
    """Return an answer of `idle` whose host events have a time in the period."""
    fields = next(
        fields
        for fields in answers()
        if fields["mode"] == "idle" and any(gap["host"] for gap in fields["gaps"])
    )
    gaps = [
        {**gap, "host": [{**row, "in_period_ps": 5_000_000} for row in gap["host"] or ()]}
        for gap in fields["gaps"]
    ]
    return {**fields, "gaps": gaps}


def without_commands(text: str) -> list[str]:
    """Return the lines except commands, which are never wrapped."""
    return [line for line in text.splitlines() if not line.startswith("next: ")]


class Rules(unittest.TestCase):
    """Test rules that hold for the texts of all modes."""

    batch = BATCH

    def check(self, fields: Json, view: View | None = None) -> None:
        """Check that lines fit into 100 columns, in encodings of terminals, too."""
        for encoding in sampled(("utf-8", "ascii"), 1):
            text = text_of(fields, encoding, view)
            text.encode(encoding)
            self.assertTrue(all(line == line.rstrip() for line in text.splitlines()))
            self.assertLessEqual(max(map(len, map(by_columns, without_commands(text)))), 100)

    def test_every_declared_part_is_shown_by_an_answer(self) -> None:
        shown: set[tuple[str, ...]] = set()
        grid_of, spans_of = fill.grid_of, fill.spans_of

        def noting_grid(table: Table, fields: Json, view: View) -> fill.Grid | None:
            grid = grid_of(table, fields, view)
            columns = grid.columns if grid else ()
            shown.update((table.title, table.rows, column.heading) for column in columns)
            return grid

        def noting_spans(text: str, fields: Json) -> list[fill.Span]:
            spans = spans_of(text, fields)
            shown.add((text,))
            return spans

        more = [answer(to_host(), "comm"), answer(with_complaints(), "anatomy")]
        more += [demo("bottleneck", "--tokens=1e6"), demo("by_scope", "--depth=1"), with_period()]
        more += [demo("by_op", "--no-merge"), demo("comm", "--peers")]
        of_op = demo("by_op", "--op=fusion.365")
        more.append({**of_op, "op": {**of_op["op"], "operand_dtypes": ["f8e4m3fn"]}})
        with (
            mock.patch.object(fill, "grid_of", noting_grid),
            mock.patch.object(fill, "spans_of", noting_spans),
        ):
            for fields in (*answers(), *more):
                if fields["mode"] in WITH_TEXT:
                    with self.subTest(mode=fields["mode"], headline=fields["headline"]):
                        self.check(fields, View(shows_all=True, top=10**6))
            # Some columns are shown only without --all.
            self.check(demo("bottleneck"))
        for mode in WITH_TEXT:
            self.assertEqual(set(everything_in(parts_of(mode))) - shown, set(), mode)

    def test_texts_about_real_captures_fit(self) -> None:
        modes = [mode for mode in WITH_TEXT if mode != "compare"]
        cases = itertools.product(captures(), modes)
        for path, mode in sampled(cases, 3, 60):
            with self.subTest(path=path.name, mode=mode):
                self.check(run(path, mode).object)

    def test_texts_about_random_traces_fit(self) -> None:
        for seed in sampled(range(150), 8):
            data, mode, options = random_case(random.Random(f"text {seed}"))
            with self.subTest(seed=seed, mode=mode):
                self.check(run(data, mode, *command_line(options)).object)


def everything_in(parts: tuple[Says | Table | Section | Each, ...]) -> Iterator[tuple[str, ...]]:
    for part in parts:
        if isinstance(part, (Each, Section)):
            yield from everything_in(part.parts)
        elif isinstance(part, Table):
            yield from ((part.title, part.rows, column.heading) for column in part.columns)
        else:
            yield (part.text.removeprefix("\n"),)


def shown(template: str, fields: Json, style: Style | None = None) -> list[str]:
    """Fill in the placeholders of a sentence and return its lines."""
    page = TextPage(UTF8, style or Style())
    return [
        line
        for block in filled(Says(template), fields, View())
        for line in page.lines_of_sentence(block.part, block.unit)  # type: ignore[arg-type]
    ]


def table_of(table: Table, fields: Json, view: View | None = None) -> list[str]:
    """Fill in a table and return its lines, without the blank line before it."""
    page = TextPage(UTF8, Style())
    blocks = list(filled(table, fields, view or View()))
    lines = [line for block in blocks for line in page.lines_of_table(block.part, block.unit)]  # type: ignore[arg-type]
    return lines[1:]


class Units(unittest.TestCase):
    def assert_shown(self, kind: str, cases: dict[Any, str]) -> None:
        for value, text in cases.items():
            with self.subTest(value=value):
                self.assertEqual(shown(f"{{x:{kind}}}", {"x": value}), [text])

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
                2**44: "16.00 TiB",
            },
        )

    def test_figures_other_than_times_and_bytes_are_formatted_by_kind(self) -> None:
        kinds: dict[str, dict[Any, str]] = {
            "percent": {0.0: "0.0 %", 24.774: "24.8 %", 99.96: "100.0 %", -0.04: "0.0 %"},
            "share": {0.096853: "9.7 %", 1.5: "150.0 %", None: "?"},
            "change": {0.04: "0.0 %", 0.06: "+0.1 %", -11.55: "-11.6 %"},
            "delta": {0: "0", 1500: "+1.500 ns", -1500: "-1.500 ns"},
            "count": {0: "0", 99_999_999: "99999999", 2**63 - 1: "9.22e+18", 10**400: "1.00e+400"},
            "chance": {0.002165: "0.002", 1.0: "1.000"},
            "number": {4.0: "4", 0.07861: "0.079", 9.9996: "10.00", 0.0004: "4.0e-04"},
            "decimal": {1525.5063: "1525.5"},
            "flops": {34359738368: "34.36 GFLOP", 10**15: "1000 TFLOP"},
        }
        for kind, cases in kinds.items():
            self.assert_shown(kind, cases)

    def test_times_in_a_table_have_the_same_unit(self) -> None:
        columns = (Column("a", "a", "time"), Column("b", "b", "time"))
        for rows, lines in (
            ([{"a": 18308477314, "b": 92536716}], ["   a ms    b ms", "  18.31  0.0925"]),
            ([{"a": 999_949, "b": 1}], ["   a ns   b ns", "  999.9  0.001"]),
            ([{"a": None, "b": 0}], ["  a  b", "  ?  0"]),
            ([{"a": 999_950, "b": None}], ["   a µs  b", "  1.000  ?"]),
            ([{"a": 10**9, "b": 441604}], ["   a ms      b ms", "  1.000  0.000442"]),
        ):
            with self.subTest(rows=rows):
                self.assertEqual(table_of(Table("", "r", columns), {"r": rows}), lines)


class HiddenRows(unittest.TestCase):
    TABLE = Table(
        "",
        "rows",
        (Column("time", "t", "time"), Column("name", "n")),
        size="t",
        whole="step",
        what="row",
        omitted="tail.n",
        tail={"time": "tail.t"},
    )

    def test_rows_below_a_thousandth_of_the_step_are_summed_in_a_last_row(self) -> None:
        rows = [{"t": 10**6, "n": "a"}, {"t": 1000, "n": "b"}, {"t": 999, "n": "c"}]
        fields = {"step": 10**6, "rows": rows, "tail": {"n": 0, "t": 0}}
        self.assertEqual(
            table_of(self.TABLE, fields),
            ["  time µs  name", "    1.000  a", "    0.001  b", "    0.001  1 more row (--all)"],
        )
        self.assertEqual(table_of(self.TABLE, fields, View(shows_all=True))[-1], "    0.001  c")


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
    "\0": r"\x00",
}


class Names(unittest.TestCase):
    def test_dangerous_characters_are_shown_as_escapes(self) -> None:
        for name, seen in HOSTILE.items():
            with self.subTest(name=ascii(name)):
                self.assertEqual(UTF8.seen(name), seen)
                self.assertTrue(ASCII.seen(name).isascii())
                self.assertTrue(ASCII.seen(name).isprintable())

    def test_long_names_are_truncated_in_the_middle_and_files_at_the_start(self) -> None:
        for drawn, width, of_name, of_file in (
            ("abcdefghij", 10, "abcdefghij", "abcdefghij"),
            ("abcdefghij", 7, "abcd…ij", "…efghij"),
            ("/home/dev/model/train.py:32", 20, "/home/dev/mod….py:32", "…/model/train.py:32"),
            ("層層層層層", 6, "層層…", "…層層"),
        ):
            with self.subTest(text=drawn):
                self.assertEqual(UTF8.ends_of(drawn, width), of_name)
                self.assertEqual(UTF8.end_of(drawn, width), of_file)
        self.assertEqual(ASCII.ends_of("abcdefghij", 8), "abcd...j")
        self.assertEqual(ASCII.end_of("abcdefghij", 8), "...fghij")

    def test_advice_is_printed_once_and_below_the_first_cause_by_default(self) -> None:
        result = demo("bottleneck", "--top", "40")
        causes, findings = result["causes"], result["findings"]
        every_row = View(shows_all=True)

        def words(text: str) -> str:
            """Leave out marks, which Markdown escapes."""
            return " ".join(re.findall(r"[A-Za-z0-9]+", text))

        short, full, page = (
            " ".join(text.split())
            for text in (
                text_of(result, "utf-8"),
                text_of(result, "utf-8", view=every_row),
                markdown_of(result, "utf-8", every_row),
            )
        )
        first = causes[0]["says"].partition(". ")[0]
        self.assertIn(f"What to do: {causes[0]['what_helps']} Why: {first}.", short)
        self.assertEqual(short.count("Why:"), 1)
        for rows in (causes, findings):
            every = [row["what_helps"] for row in rows if row["what_helps"]]
            # The demo has rows that share advice.
            self.assertLess(len(set(every)), len(every))
            for advice in set(every):
                self.assertEqual(full.count(advice), 1, advice)
                self.assertEqual(words(page).count(words(advice)), 1, advice)

    def test_hostile_names_are_escaped_and_fit_into_100_columns(self) -> None:
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
                        is_command = line.startswith("next: ")
                        self.assertLessEqual(0 if is_command else len(by_columns(line)), 100, line)
                        self.assertTrue(line.isprintable())
                        directions = set(map(unicodedata.bidirectional, line))
                        self.assertFalse(directions & {"R", "AL", "AN"})


class Lines(unittest.TestCase):
    def test_lines_are_wrapped_between_words(self) -> None:
        words = "a " * 60 + "b" * 150 + " 12\0ms"
        for width in (100, 70):
            lines = TextPage(UTF8, Style(width)).wrapped(words, "- ", "    ")
            self.assertTrue(all(len(line) <= width for line in lines))
            self.assertEqual("".join(lines).replace(" ", ""), "-" + "a" * 60 + "b" * 150 + "12ms")
            self.assertTrue(lines[-1].endswith(" 12 ms"))
            self.assertEqual([line[:4] for line in lines[1:]], ["    "] * (len(lines) - 1))

    def test_value_of_all_rows_is_in_the_title(self) -> None:
        table = Table("t", "rows", (Column("a", "a", "time"), Column("b", "b"), Column("c", "c")))
        rows = [{"a": 2000, "b": "x", "c": "y"}, {"a": 2000, "b": "x", "c": "z"}]
        lines = table_of(table, {"rows": rows})
        self.assertEqual(lines, ["t; all rows: a 2.000 ns, b x", "  c", "  y", "  z"])
        lines = table_of(table._replace(title=""), {"rows": rows})
        self.assertEqual(lines[0], "all rows: a 2.000 ns, b x")
        self.assertEqual(table_of(table, {"rows": rows[:1]})[1], "   a ns  b  c")

    def test_rows_that_look_alike_appear_once_and_are_counted(self) -> None:
        table = Table("", "rows", (Column("a", "a"), Column("b", "b")), below="{c:whole}")
        rows = [{"a": a, "b": "x" if a == "1" else "y", "c": "s"} for a in "1213"]
        lines = table_of(table, {"rows": rows})
        alike = ["  1  x", "    s", "    (2 rows like this)"]
        self.assertEqual(lines[1:], [*alike, "  2  y", "    s", "  3  y", "    s"])

    def test_headline_is_first_and_commands_and_notes_are_last(self) -> None:
        fields = {**answer(DEMO, "idle"), "headline": "It idles.", "notes": ["b", "a", "b"]}
        fields["next_steps"] = [
            {"why": "short", "command": "x --mode idle"},
            {"why": "long", "command": "x" * 120},
        ]
        lines = text_of(fields, "utf-8").splitlines()
        self.assertEqual(lines[0], "It idles.")
        end = ["", "next: x --mode idle --text  # short", f"next: {'x' * 120} --text", "- b; a"]
        self.assertEqual(lines[-4:], end)


class Command(InFolder):
    batch = BATCH

    def printed(
        self, *arguments: str, encoding: str = "utf-8", **variables: str
    ) -> tuple[str, int, str]:
        """Return the printed text, the status, and what is printed to stderr."""
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        with (
            mock.patch.dict(os.environ, {"COLUMNS": "", **variables}),
            mock.patch.object(sys, "stdout", stream),
        ):
            outcome = command.outcome_of(list(arguments))
            text = command.printed(outcome, for_people=False)
        text.encode(encoding)
        return text, outcome.status, outcome.complaint

    def test_status_and_stderr_are_the_same_as_with_json(self) -> None:
        for options in (
            [str(DEMO), "--mode", "idle"],
            [str(DEMO), "--mode", "summary", "--step", "99"],
            ["no such path", "--mode", "memory"],
            [str(DEMO), "--mode", "bottleneck", "--params=1e9", "--tokens=5", "--n-devices=0"],
        ):
            as_json = command.outcome_of(options)
            text, status, stderr = self.printed(*options, "--format=text")
            with self.subTest(options=options):
                self.assertEqual((status, stderr), (as_json.status, as_json.complaint))
                result = without_commands(text_of(as_json.fields, "utf-8"))
                self.assertEqual(without_commands(text), result)

    def test_usage_errors_have_the_requested_format(self) -> None:
        wrong = [str(DEMO), "--mode", "nonsense"]
        for options, start in (
            (["--text", *wrong], "no answer: bad_arguments\n"),
            ([*wrong, "--format", "text"], "no answer: bad_arguments\n"),
            ([*wrong, "--format=markdown"], "no answer: bad_arguments"),
            ([*wrong, "--format=csv"], "reason,detail\nbad_arguments,"),
            ([*wrong, "--text", "--format=json"], '{"status":"absent"'),
            ([*wrong, "--format=nonsense"], '{"status":"absent"'),
            (["--text"], "no answer: bad_arguments\n"),
        ):
            with self.subTest(options=options):
                text, status, _ = self.printed(*options)
                self.assertEqual((text[: len(start)], status), (start, 2))

    def test_modes_without_a_format_reject_it(self) -> None:
        for mode, forms in (
            ("record", ("text", "markdown", "csv")),
            ("export", ("text", "markdown", "csv")),
            ("page", ("csv",)),
        ):
            for form in forms:
                more = [] if mode == "record" else ["--out=x"]
                outcome = command.outcome_of([str(DEMO), "--mode", mode, *more, f"--format={form}"])
                self.assertEqual(outcome.fields["reason"], "bad_arguments")
                self.assertIn(f"{mode} has no {form} format", outcome.fields["detail"])

    def test_text_about_the_roofline_counts_the_bytes_of_one_memory(self) -> None:
        # A roof is at least as long as the time that its bytes take.
        for traffic in ("accessed", "hbm"):
            fields = roofline.prepared(demo("roofline", "--bytes", traffic))
            for row in map(roofline.with_roof, fields["groups"]):
                self.assertLessEqual(100 * row["hbm"], row["pct_of_roof"] + 0.001)

    def test_text_shows_three_notes_and_counts_the_others(self) -> None:
        notes = ["a" * 90, "b" * 90, "c" * 90, "d" * 90, "e" * 90, "a" * 90]
        fields = {**demo("idle"), "notes": notes}
        for form in (text_of, markdown_of):
            text = form(fields, "utf-8")
            self.assertIn("c" * 90, text)
            self.assertNotIn("d" * 90, text)
            self.assertTrue(text.endswith("- 2 more notes (--all)\n"), text)
            text = form(fields, "utf-8", View(shows_all=True))
            self.assertIn("e" * 90, text)
            self.assertNotIn("more note", text)

    def test_only_a_terminal_gets_bold_letters(self) -> None:
        profile = self.write("small.xplane.pb", to_host())
        self.assertIn("\x1b[1m", self.on_terminal({}, profile=profile))
        for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            self.assertNotIn("\x1b", self.on_terminal(variables, profile=profile))
        self.assertNotIn("\x1b", self.printed(str(DEMO), "--mode=idle", "--text")[0])

    def on_terminal(
        self, variables: dict[str, str], columns: int = 100, profile: Path = DEMO
    ) -> str:
        """Return what the command prints on a pseudo-terminal."""
        import fcntl
        import pty
        import struct
        import termios

        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        env = {**os.environ, "COLUMNS": "", "TERM": "xterm", "NO_COLOR": "", **variables}
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(profile), "--mode", "idle", "--text"],
            stdout=follower, stderr=subprocess.DEVNULL, env=env,
        )  # fmt: skip
        os.close(follower)
        result = b""
        with suppress(OSError):
            while part := os.read(leader, 1 << 16):
                result += part
        os.close(leader)
        process.wait()
        return result.decode()

    def test_error_answers_show_the_reason_and_the_available_names(self) -> None:
        n = 0
        for outcome in error_answers():
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
