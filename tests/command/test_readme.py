"""Holds the pages against the program.

- A shell block that calls `compute-breakdown tests/data/…` or `compute-breakdown PROFILE` runs and
  exits with 0, or with 1 if it contains `exit 1`. PROFILE and the other words of PLACEHOLDERS are
  replaced.
- A `json` or `text` block is the output of the last such call before it. A `…` stands for what was
  left out; at the end of a text no `…` is needed. A fence may name another capture in its info
  string, as in "```text vllm-bf16".
- A figure with a unit in the section of a mode is in the mode's answer about the demo, in a field
  of that unit. If not, a comment in the section says where it comes from:
  `<!-- 4.4 ms: bottleneck .findings[0].lost_ps -->` is computed by jq from a mode's answer, in the
  unit of its fields; `<!-- 784 ms, 24 ms: elsewhere -->` are not about the demo.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import _peaks
import compute_breakdown
from _analysis import judging, ledger
from _output.text import text_of
from _pipeline import no_answer
from tests.answers import BATCH, hand_made_memories, hand_made_programs, hand_made_traces, refusals
from tests.builders.make_pictures import PICTURES
from tests.builders.xspace import op, trace
from tests.excerpts import first_difference, is_excerpt, missing_text, parse_excerpt
from tests.harness import (
    AFTER,
    ALL_MODES,
    BEFORE,
    DEMO,
    PROFILES,
    ROOT,
    SCRIPT,
    STEP_MODES,
    Outcome,
    answer,
    bound,
    run,
    sampled,
)

NAMES = ("README.md", "GUIDE.md", "FIELDS.md", "SKILL.md", "CONTRIBUTING.md", "CHANGELOG.md")
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in NAMES}
README, GUIDE, FIELDS, SKILL, CONTRIBUTING, CHANGELOG = PAGES.values()
# A reader, or an agent, takes in a page at once. The sizes may only shrink.
MOST_BYTES = {"README.md": 13_100, "GUIDE.md": 51_100, "SKILL.md": 11_264}
PLACEHOLDERS = {
    "PROFILE": "tests/data/demo",
    "BASELINE": "tests/data/before.json.gz",
    "NAME": "fusion.365",
    "LINE": "train.py:49",
}
HAS_TOOLS = all(map(shutil.which, ("bash", "jq")))

Json = dict[str, Any]


class Block(NamedTuple):
    """A fenced block and the heading above it."""

    heading: str
    language: str
    text: str


def blocks(page: str) -> list[Block]:
    found = []
    heading = ""
    fence: Block | None = None
    for line in page.splitlines(keepends=True):
        if line.startswith("```"):
            if fence is None:
                fence = Block(heading, line.strip().removeprefix("```"), "")
            else:
                found.append(fence)
                fence = None
        elif fence is not None:
            fence = fence._replace(text=fence.text + line)
        elif re.match("##+ ", line):
            heading = line.strip("# \n")
    return found


def sections(page: str) -> Iterator[tuple[str, str]]:
    """Yield each heading with the prose below it, without fenced blocks."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    for section in re.split(r"^##+ ", prose, flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        yield heading, text


def table(page: str, *first_cells: str) -> list[list[str]]:
    """Return the rows of the one table with a header that begins with these cells."""
    found = []
    for lines in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.split("\n")]
        if rows[0][: len(first_cells)] == list(first_cells):
            found.append([row for row in rows[2:] if len(row) > 1])
    (rows,) = found
    return rows


def code(cell: str) -> str:
    quoted = re.search(r"`([^`]*)`", cell)
    return quoted[1] if quoted else ""


def slug(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


# ----------------------------------------------------------------------------------------------
# Commands and their output.

CALL_RE = re.compile(r"(?:\S*/)?compute-breakdown ((?:PROFILE|tests/data/)[^|>&\n]*)")


class Call(NamedTuple):
    """A call of the program on a page, with the block that it is in."""

    block: Block
    words: tuple[str, ...]
    # The filter that the call's output is piped into, and what follows it.
    pipe: str


def calls(page: str) -> list[Call]:
    found = []
    for block in blocks(page):
        if block.language == "bash":
            text = block.text.replace("\\\n", " ")
            ends = [*(match.start() for match in CALL_RE.finditer(text)), len(text)]
            for match, end in zip(CALL_RE.finditer(text), ends[1:], strict=True):
                words = (PLACEHOLDERS.get(word, word) for word in shlex.split(match[1]))
                found.append(Call(block, tuple(words), text[match.end() : end]))
    return found


@functools.cache
def outcome(words: tuple[str, ...], capture: str = "") -> Outcome:
    """Run a call in the root of the clone; pages are written to a temporary folder."""
    at = words.index("--mode")
    profile = str(PROFILES / f"{capture}.xplane.pb") if capture else words[0]
    options = [*words[1:at], *words[at + 2 :]]
    with tempfile.TemporaryDirectory() as folder, in_folder(ROOT):
        if "--out" in options:
            options[options.index("--out") + 1] = f"{folder}/out"
        return run(profile, words[at + 1], *options)


@contextlib.contextmanager
def in_folder(path: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


def piped(call: Call, said: Json) -> subprocess.CompletedProcess[str]:
    """Run what follows a call, with this answer as its output."""
    words = (f"--arg line {shlex.quote(PLACEHOLDERS['LINE'])}", "--arg line LINE")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "answer.json").write_text(json.dumps(said))
        text = f"cat answer.json {call.pipe.replace(words[1], words[0])}"
        return subprocess.run(
            ["bash", "-c", text],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=bound(60),
            check=False,
        )


def printed(call: Call, capture: str) -> str:
    """Return what a call and the filter after it print."""
    said = outcome(call.words, capture).object
    if HAS_TOOLS and call.pipe.lstrip().startswith("|"):
        return piped(call, said).stdout
    is_text = "text" in call.words or "--format=text" in call.words
    return text_of(said, "utf-8") if is_text else json.dumps(said)


class Commands(unittest.TestCase):
    batch = BATCH
    takes_seconds = 5

    def test_every_call_on_the_pages_answers(self) -> None:
        modes = set()
        for page in (README, GUIDE, SKILL):
            for call in calls(page):
                with self.subTest(call=" ".join(call.words)):
                    modes.add(call.words[call.words.index("--mode") + 1])
                    self.assertEqual(outcome(call.words).object["status"], "ok")
        self.assertEqual(modes, set(ALL_MODES) - {"record"}, "show each mode in an example")

    @unittest.skipUnless(HAS_TOOLS, "needs bash and jq")
    def test_every_filter_on_the_pages_works(self) -> None:
        for page in (README, GUIDE, SKILL):
            for call in calls(page):
                if call.pipe.lstrip().startswith("|"):
                    with self.subTest(call=" ".join(call.words), pipe=call.pipe):
                        done = piped(call, outcome(call.words).object)
                        self.assertEqual(done.stderr, "")
                        self.assertEqual(done.returncode, int("exit 1" in call.pipe))
                        self.assertTrue(done.stdout.strip() or ">" in call.pipe)

    @unittest.skipUnless(HAS_TOOLS, "needs bash and jq")
    def test_recipes_name_the_reason_if_there_is_no_answer(self) -> None:
        refused = run("no such path", "by_source").object
        n_checked = 0
        for call in (*calls(README), *calls(GUIDE)):
            if "error(.reason)" in call.pipe:
                n_checked += 1
                with self.subTest(pipe=call.pipe):
                    self.assertRegex(piped(call, refused).stderr, r"jq: .*: no_such_path\n")
        self.assertGreater(n_checked, 2)

    @unittest.skipUnless(HAS_TOOLS, "needs bash and jq")
    def test_filters_for_agents_accept_answers_full_of_nulls(self) -> None:
        makers = sampled((hand_made_traces, hand_made_memories, hand_made_programs), 1)
        for data in sampled([data for make in makers for data in make()], 1):
            for call in calls(SKILL):
                at = call.words.index("--mode")
                said = run(data, call.words[at + 1], *call.words[at + 2 :]).object
                with self.subTest(call=" ".join(call.words)):
                    done = piped(call, said)
                    self.assertEqual((done.returncode, done.stderr), (0, ""), call.pipe)

    @unittest.skipUnless(HAS_TOOLS, "needs bash and jq")
    def test_a_layer_and_an_op_take_few_bytes_of_an_agent(self) -> None:
        for call in calls(SKILL):
            if {"by_scope", "by_op"} & {*call.words}:
                n_bytes = len(piped(call, outcome(call.words).object).stdout)
                self.assertLessEqual(n_bytes, 4000, call.words)

    def test_output_on_the_pages_is_what_the_calls_before_it_print(self) -> None:
        n_compared = 0
        for page in (README, GUIDE):
            call = None
            of_block = {found.block: found for found in calls(page)}
            for block in blocks(page):
                call = of_block.get(block, call)
                language, _, capture = block.language.partition(" ")
                if language not in ("json", "text") or call is None:
                    continue
                if capture and not PROFILES.is_dir():
                    continue
                n_compared += 1
                with self.subTest(call=" ".join(call.words), heading=block.heading):
                    if language == "json":
                        self.assert_excerpt(block.text, outcome(call.words, capture).object)
                    else:
                        missing = missing_text(block.text, printed(call, capture))
                        self.assertIsNone(missing, "not printed")
        self.assertGreater(n_compared, 10)

    def assert_excerpt(self, text: str, said: Json) -> None:
        excerpt = parse_excerpt(text)
        if not is_excerpt(excerpt, said):
            self.fail(first_difference(excerpt, said))

    def test_wrong_excerpts_are_found(self) -> None:
        whole = {"a": 1, "b": [{"c": 2, "d": "text"}, {"c": 3}]}
        for text, expected in (
            ('{"a": 1, …}', True),
            ('{"a": 1}', False),
            ('{"a": 2, …}', False),
            ('{"a": 1.0, …}', False),
            ('{"z": 1, …}', False),
            ('{"b": […, {"c": 3}], …}', True),
            ('{"b": [{"c": 3}, …], …}', False),
            ('{"b": [{"d": "t…t", …}, …], …}', True),
            ('{"b": [{"d": "x…t", …}, …], …}', False),
            ('{"b": [{"c": 2, …}], …}', False),
        ):
            with self.subTest(text=text):
                self.assertEqual(is_excerpt(parse_excerpt(text), whole), expected)
        for text, missing in (
            ("a\n", None),
            ("a\n…\nc\n", None),
            ("b\n", "b\n"),
            ("a\nc\n", "a\nc\n"),
        ):
            with self.subTest(text=text):
                self.assertEqual(missing_text(text, "a\nb\nc\n"), missing)


def of_readme(word: str) -> Call:
    """Return the recipe that contains this word."""
    (found,) = [call for call in calls(README) if word in call.pipe]
    return found


@unittest.skipUnless(HAS_TOOLS, "needs bash and jq")
class Recipes(unittest.TestCase):
    batch = BATCH

    def test_times_per_file_add_up_to_all_ops(self) -> None:
        call = of_readme('"us", "%", "file"')
        said = outcome(call.words).object
        header, *rows = [line.split("\t") for line in piped(call, said).stdout.splitlines()]
        self.assertEqual(header, ["us", "%", "file"])
        whole = sum(group["total_dur_ps"] for group in said["groups"]) / 1e6
        times = [float(row[0]) for row in rows]
        self.assertAlmostEqual(sum(times), whole, delta=0.06 * len(rows))
        self.assertEqual(times, sorted(times, reverse=True))
        for time, percent, _ in rows:
            self.assertAlmostEqual(float(percent), 100 * float(time) / whole, delta=0.06)

    def test_changes_are_the_casts_and_layout_changes_of_the_answer(self) -> None:
        call = of_readme('"us", "change", "line"')
        said = outcome(call.words).object
        expected = [
            [str(round(row[f"{field}_change_dur_ps"] / 1e5) / 10).removesuffix(".0"), change]
            for row in said["by_source_within_category"]
            for change, field in (("cast", "dtype"), ("layout", "layout"))
            if row[f"{field}_change_dur_ps"]
        ]
        rows = [line.split("\t")[:2] for line in piped(call, said).stdout.splitlines()[1:]]
        self.assertCountEqual(rows, expected)
        self.assertEqual({row[1] for row in rows}, {"cast", "layout"})

    def test_gate_passes_equal_runs_and_stops_slower_ones(self) -> None:
        call = of_readme("exit 1")
        for profile, baseline, passes in (
            (BEFORE, BEFORE, True),
            (AFTER, BEFORE, False),
            (BEFORE, AFTER, True),
            ("nowhere.json", BEFORE, False),
        ):
            with self.subTest(profile=profile, baseline=baseline):
                said = run(profile, "compare", "--baseline", str(baseline)).object
                self.assertEqual(piped(call, said).returncode, 0 if passes else 1)

    def test_flame_graph_has_a_stack_for_each_group(self) -> None:
        call = of_readme(">demo.folded")
        call = call._replace(pipe=call.pipe.replace(">demo.folded", ""))
        groups = outcome(call.words).object["groups"]
        for own, end in ((False, "source_inner"), (True, "source_user")):
            own_call = call._replace(pipe=call.pipe.replace("own false", f"own {own}".lower()))
            folded = piped(own_call, {"groups": groups}).stdout.splitlines()
            for line, group in zip(folded, groups, strict=True):
                stack, _, ps = line.rpartition(" ")
                self.assertEqual(int(ps), group["total_dur_ps"])
                expected = group[end] if group["source_stack"] else group["agg_key"]
                self.assertEqual(stack.rpartition(";")[2], expected)
        # Semicolons divide frames, so a frame must not contain any.
        odd = op("a", "loop fusion", 0, 10, stack="<module 'a;b'>:1:2\n \nc d.py:3:4\n")
        said = answer(trace([odd]), "by_source")
        self.assertIn("<module 'a,b'>:1", piped(call, said).stdout)


# ----------------------------------------------------------------------------------------------
# Figures in prose.

UNITS = {
    "ps": 1,
    "ns": 1e3,
    "µs": 1e6,
    "ms": 1e9,
    "s": 1e12,
    "GB": 1e9,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "GFLOP": 1e9,
    "TFLOP/s": 1,
    "GB/s": 1,
    "%": 1,
}
TIMES = r"_ps\b|phases|idle_by_cause"
# The fields that a figure of a unit can come from, by the end of the unit.
FIELDS_OF_UNIT = {"/s": "flops|gbps", "s": TIMES, "B": "bytes|by_kind", "P": "flops"}
FIELDS_OF_UNIT["%"] = rf"pct|_util\b|mfu|hfu|{TIMES}"
FIGURE_RE = re.compile(rf"(?<![\w.:])(\d+(?:\.\d+)?) ({'|'.join(UNITS)})(?![\w/])")
COMMENT_RE = re.compile(r"<!-- (.*?): (.*?) -->")


def numbers_in(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, inner in items:
            yield from numbers_in(inner, f"{path}.{name}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


@functools.cache
def figures_of(mode: str, unit: str) -> list[float]:
    """Return the numbers in a mode's answer about the demo that can be figures of a unit."""
    wanted = next(fields for end, fields in FIELDS_OF_UNIT.items() if unit.endswith(end))
    said = of_demo(mode)
    found = [(path, value) for path, value in numbers_in(said) if re.search(wanted, path)]
    if unit != "%":
        return [value / UNITS[unit] for _, value in found]
    # A fraction, or a share of the step.
    step = said.get("step_duration_ps", 0) / 100
    return [
        value if "pct" in path else value / step if re.search(TIMES, path) and step else 100 * value
        for path, value in found
    ]


def of_demo(mode: str, *options: str) -> Json:
    """Return the answer of a mode, of `compare` and `by_source` with the options they need."""
    profile = PLACEHOLDERS["PROFILE"]
    if mode == "compare":
        profile = PLACEHOLDERS["BASELINE"].replace("before", "after")
        options = ("--baseline", PLACEHOLDERS["BASELINE"])
    elif mode == "by_source":
        options = ("--include-data-move", "--include-comm")
    return outcome((profile, "--mode", mode, *options)).object


def is_rounded(figure: str, value: float) -> bool:
    decimals = len(figure.partition(".")[2])
    return abs(float(figure) - value) <= 0.5 * 10**-decimals + 1e-9


class Figures(unittest.TestCase):
    batch = BATCH

    def test_figures_in_the_sections_of_modes_are_in_the_answers(self) -> None:
        n_figures = 0
        for heading, prose in itertools.chain(sections(README), sections(GUIDE)):
            mode = "bottleneck" if heading == "A first look" else heading
            if mode not in {*ALL_MODES} - {"page", "record", "spread", "anatomy"}:
                continue
            told = ", ".join(figures for figures, _ in COMMENT_RE.findall(prose)).split(", ")
            for figure, unit in FIGURE_RE.findall(COMMENT_RE.sub("", prose)):
                n_figures += 1
                with self.subTest(heading=heading, figure=f"{figure} {unit}"):
                    if f"{figure} {unit}" not in told:
                        found = any(is_rounded(figure, each) for each in figures_of(mode, unit))
                        self.assertTrue(found, f"no such figure in the answer of {mode}")
        self.assertGreater(n_figures, 10)

    @unittest.skipUnless(shutil.which("jq"), "needs jq")
    def test_figures_in_comments_are_computed_from_the_answers(self) -> None:
        for told, source in COMMENT_RE.findall(README + GUIDE):
            figure = FIGURE_RE.fullmatch(told)
            asked = re.match(r"(\w+)((?: --\S+)*) (.*)", source)
            with self.subTest(figure=told, source=source):
                if source != "elsewhere":
                    assert figure and asked, "write a figure with its unit, a mode and a jq filter"
                    mode, options, program = asked.groups()
                    done = subprocess.run(
                        ["jq", program],
                        input=json.dumps(of_demo(mode, *options.split())),
                        capture_output=True,
                        text=True,
                        check=True,
                    )
                    value = float(done.stdout) / UNITS[figure[2]]
                    self.assertTrue(is_rounded(figure[1], value), f"it is {value:g} {figure[2]}")

    @unittest.skipUnless(HAS_TOOLS and PROFILES.is_dir(), "needs jq and captures")
    def test_times_by_file_and_scope_are_those_of_the_inference_captures(self) -> None:
        by_scope = next(call for call in calls(GUIDE) if '["%", "scope"]' in call.pipe)
        for key, call in (("file", of_readme('"us", "%", "file"')), ("scope", by_scope)):
            rows = table(GUIDE, key, "bf16, %")
            for column, capture in ((1, "vllm-bf16"), (2, "vllm-fp4-tuned")):
                shown = {(float(row[column]), code(row[0])) for row in rows if row[column]}
                found = set()
                for line in printed(call, capture).splitlines()[1:]:
                    *_, percent, name = line.split("\t")
                    name = re.sub(r".*/(?=[^/]*/)", "", name) if key == "file" else name
                    found |= {(float(percent), name)} if float(percent) >= 1 else set()
                with self.subTest(key=key, capture=capture):
                    self.assertEqual(shown, found)


# ----------------------------------------------------------------------------------------------
# Tables, names and links.


class Tables(unittest.TestCase):
    batch = BATCH

    def test_reasons_have_the_exit_status_and_stderr_of_the_table(self) -> None:
        said = {
            code(reason): (int(status), stderr)
            for _, reason, status, stderr in table(FIELDS, "situation", "`reason`")
            if reason
        }
        happens: dict[str, tuple[int, str]] = {}
        for refused in refusals():
            n_lines = len(refused.stderr.splitlines())
            stderr = ["empty", "one line", "usage and one line"][min(n_lines, 2)]
            happens[refused.object["reason"]] = refused.status, stderr
        self.assertEqual(said, happens)
        self.assertEqual(set(no_answer.EXIT_STATUS), set(happens), "no test has this reason")

    def test_failures_have_a_detail(self) -> None:
        for refused in refusals():
            if refused.status:
                self.assertIn("detail", refused.object)

    def test_options_of_the_table_are_those_of_the_help(self) -> None:
        help_text = compute_breakdown.parser_of_modes()[0].format_help()
        in_help = re.findall(r"^  (?:-h, )?(--[\w-]+)", help_text, re.MULTILINE)
        in_table = [re.findall(r"`(--[\w-]+)", row[0]) for row in table(FIELDS, "option")]
        self.assertEqual(sorted(itertools.chain(*in_table)), sorted(in_help))

    def test_options_of_the_table_have_the_modes_of_the_program(self) -> None:
        for option, said, *_ in table(FIELDS, "option"):
            for flag in re.findall(r"`(--[\w-]+)", option):
                modes = [m.name for m in compute_breakdown.MODES if flag in m.options]
                without = [m.name for m in compute_breakdown.MODES if flag not in m.options]
                names = (
                    [", ".join(modes), f"all but {', '.join(without)}"] if modes else ["all", ""]
                )
                # `anatomy` is about all devices.
                names += ["all but anatomy"] if flag == "--device" else []
                names += ["those of one step"] if modes == [*STEP_MODES] else []
                with self.subTest(option=flag):
                    self.assertIn(said, names)

    def test_peaks_of_the_table_are_those_of_the_program(self) -> None:
        rows = {code(chip): tuple(peaks) for chip, *peaks in table(FIELDS, "chip")}
        for name, chip in _peaks.CHIPS.items():
            hbm = f"{chip.hbm_gbps:g} GB/s" if chip.hbm_gbps else f"{chip.hbm_gibps:g} GiB/s"
            peaks = f"{chip.bf16:g}", f"{chip.fp8:g}" if chip.fp8 else "", hbm
            self.assertEqual(rows.pop(name), peaks, name)
        self.assertEqual(rows, {})

    def test_tables_of_questions_speeds_and_classes_are_complete(self) -> None:
        questions = "".join(row[1] for row in table(README, "question", "mode"))
        self.assertEqual(set(re.findall(r"\w+", questions)), set(ALL_MODES))
        speeds = {code(row[0]) for row in table(FIELDS, "mode", "wall")}
        self.assertEqual(speeds, set(ALL_MODES) - {"compare", "spread"})
        self.assertEqual({code(row[0]) for row in table(FIELDS, "class")}, {*ledger.CLASSES})
        classes = " ".join(row[0] for row in table(SKILL, "class", "what it means"))
        known = {*ledger.CLASSES, "idle", "overlap", "at_roof"}
        self.assertEqual(set(re.findall(r"`(\w+)`", classes)), known)


class Names(unittest.TestCase):
    batch = BATCH

    def test_options_on_the_pages_exist(self) -> None:
        known = {*compute_breakdown.OPTIONS, "--mode", "--schema", "--version", "--help"}
        for name in ("README.md", "GUIDE.md", "SKILL.md"):
            page = PAGES[name]
            called = re.findall(r"(?:compute-breakdown|compute_breakdown\.py)[^|\n`]*", page)
            shown = {*re.findall(r"(?<![\w-])--[a-z][\w-]*", " ".join(called))}
            shown |= {*re.findall(r"`(--[a-z][\w-]*)", page)}
            others = {flag for flag in shown if flag.startswith("--xla")} | {"--from", "--argjson"}
            self.assertEqual(shown - others - known, set(), name)

    def test_names_on_the_page_for_agents_exist(self) -> None:
        known = {*re.findall(r'^\| (?:<a id=".*?"></a>)?`(\w+)`', FIELDS, re.MULTILINE)}
        known |= {*ALL_MODES, *no_answer.EXIT_STATUS, *judging.SKIP_REASONS, *ledger.CLASSES}
        known |= {"sparse_core", "data_move", "no_source", "at_roof", "step_duration"}
        # These are parts of names in examples, and functions of jq.
        known |= {"decoder_layer", "dot_general", "sort_by", "map_values"}
        named = {*re.findall(r"(?<![\w$/-])[a-z]+(?:_[a-z0-9]+)+\b(?![/.])", SKILL)}
        # Filters read fields also where their names have no underscore.
        for call in calls(SKILL):
            named |= {*re.findall(r"(?<![\w$\])])\.([a-z]\w*)", call.pipe)}
        known |= {"key", "value"}
        self.assertEqual(named - known, set())

    def test_links_lead_somewhere(self) -> None:
        for name, page in PAGES.items():
            for file, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page):
                with self.subTest(page=name, link=f"{file}#{anchor}"):
                    self.assertTrue((ROOT / file).exists())
                    text = PAGES.get(file or name, "")
                    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
                    anchors = {*map(slug, headings), *re.findall(r'<a id="(.*?)"></a>', text)}
                    self.assertTrue(not anchor or anchor in anchors)

    def test_contents_list_every_section(self) -> None:
        for page in (FIELDS, GUIDE):
            contents, *rest = page.split("\n## ")
            for section in rest:
                self.assertIn(f"](#{slug(section.partition(chr(10))[0])})", contents)

    def test_pages_name_no_path_of_a_machine(self) -> None:
        for name, page in PAGES.items():
            paths = set(re.findall(r"(?<![\w.$\"/…-])/(?:home|work|tmp|root|Users)\b[\w/]*", page))
            self.assertEqual({path for path in paths if "/home/dev/" not in path}, set(), name)

    def test_contributing_names_files_and_code_that_exist(self) -> None:
        for path in set(re.findall(r"`([\w.]+/[\w./]*|\w+\.py)`", CONTRIBUTING)):
            with self.subTest(path=path):
                self.assertTrue((ROOT / path.replace("NAME", "comm")).exists())
        for owner, name, path in re.findall(
            r"`(?:(\w+)\.)?(\w+)` in `([\w./]+\.py)`", CONTRIBUTING
        ):
            with self.subTest(name=name):
                module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
                self.assertTrue(hasattr(getattr(module, owner) if owner else module, name))


class Files(unittest.TestCase):
    def test_pages_stay_short(self) -> None:
        for name, most in MOST_BYTES.items():
            self.assertLessEqual(len(PAGES[name].encode()), most, name)

    def test_set_up_commands_of_the_readme_are_what_ci_runs(self) -> None:
        ci = ROOT / ".ci" / "run"
        if not ci.exists():
            self.skipTest("no .ci/run")
        commands = [b.text.strip() for b in blocks(README) if b.text.startswith("python3 -m venv")]
        self.assertEqual(len(commands), 2)
        for command in commands:
            self.assertNotIn("\n", command)
            self.assertIn(command, ci.read_text(encoding="utf-8"))

    def test_archive_made_as_in_the_readme_prints_the_same_bytes(self) -> None:
        (block,) = (block for block in blocks(README) if "zipapp" in block.text)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for source in ("compute_breakdown.py", "_peaks.py"):
                shutil.copy(ROOT / source, folder)
            for source in ("_analysis", "_modes", "_output", "_pipeline", "_proto"):
                shutil.copytree(ROOT / source, folder / source)
            commands = block.text.replace("python3 -m", f"{shlex.quote(sys.executable)} -m")
            subprocess.run(["sh", "-euc", commands], cwd=folder, check=True)
            archive = folder / "compute-breakdown.pyz"
            self.assertTrue(archive.read_bytes().startswith(b"#!/usr/bin/env python3\n"))
            self.assertTrue(os.access(archive, os.X_OK))
            moved = archive.rename(folder / "moved.pyz")
            every = (
                [str(DEMO), "--mode", "page", "--out", str(folder / "step.html")],
                [str(AFTER), "--mode", "compare", f"--baseline={BEFORE}"],
                [str(DEMO), "--mode", "summary", "--chip", "v4"],
                ["--schema", "bottleneck"],
            )
            for asked in sampled(every, 1):
                of_script, of_archive = (
                    subprocess.run(
                        [sys.executable, program, *asked], capture_output=True, check=False
                    )
                    for program in (SCRIPT, moved)
                )
                with self.subTest(asked=asked):
                    self.assertEqual(of_archive.stdout, of_script.stdout)
                    self.assertEqual(of_archive.returncode, of_script.returncode)

    def test_wheel_holds_what_is_needed_without_the_clone(self) -> None:
        settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        _, _, packed = settings.partition("[tool.hatch.build.targets.wheel.force-include]\n")
        named = set(re.findall(r'^"(.*?)" = "compute_breakdown/', packed, re.MULTILINE))
        rooms = {"_analysis", "_modes", "_output", "_pipeline", "_proto"}
        modules = {path.name for path in ROOT.glob("*.py")}
        self.assertEqual(named, modules | rooms | {"SKILL.md", "GUIDE.md", "FIELDS.md"})

    def test_version_has_an_entry_in_the_changelog(self) -> None:
        self.assertIn(f"\n## [{compute_breakdown.__version__}]", CHANGELOG)

    def test_pictures_are_small_and_shown(self) -> None:
        shown = re.findall(r"!\[[^\]]+\]\((.*?)\)", README + GUIDE)
        self.assertEqual({f"tests/data/{name}.png" for name in PICTURES}, set(shown))
        for name in shown:
            data = (ROOT / name).read_bytes()
            self.assertTrue(data.startswith(b"\x89PNG"), name)
            self.assertLess(len(data), 150_000, name)

    def test_front_matter_of_the_skill_is_plain_yaml(self) -> None:
        opening, front_matter, body = SKILL.split("---\n", 2)
        self.assertEqual((opening, body[:3]), ("", "\n# "))
        entries = dict(line.split(": ", 1) for line in front_matter.splitlines())
        self.assertEqual(list(entries), ["name", "description", "argument-hint"])
        self.assertEqual(entries["name"], "compute-breakdown")
        self.assertLess(len(entries["description"]), 1024)
        # A plain scalar contains no ": " and no " #"; a quoted one is closed.
        self.assertNotRegex(entries["description"], r": | #|\A[\W]")
        self.assertRegex(entries["argument-hint"], r'\A"[^"\\]*"\Z')

    def test_skill_works_from_another_folder(self) -> None:
        self.assertIn('python3 "$SKILL/compute_breakdown.py" PROFILE --mode bottleneck', SKILL)
        command = f'{shlex.quote(sys.executable)} "$SKILL/compute_breakdown.py" "$0" --mode idle'
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                ["sh", "-c", command, str(DEMO)],
                cwd=folder,
                env={**os.environ, "SKILL": str(ROOT)},
                capture_output=True,
                check=True,
            )
        self.assertEqual(json.loads(done.stdout)["status"], "ok")


if __name__ == "__main__":
    unittest.main()
