"""Compare the examples and figures on the pages with the program.

- A shell block that calls `compute-breakdown tests/data/…` or `compute-breakdown PROFILE` runs and
  exits with 0, or with 1 if the block contains `exit 1`. PROFILE and the other words in
  PLACEHOLDERS are replaced first.
- A `json` or `text` block is the output of the last such call before the block. A `…` marks each
  omitted part; only the end of a text can be omitted without a mark. The info string can specify
  another capture, as in "```text vllm-bf16".
- A figure with a unit in a section about a mode occurs in the mode's answer for the demo, in a
  field with the same unit. If it does not, a comment in the section gives its origin: for
  `<!-- 4.4 ms: bottleneck .findings[0].lost_ps -->`, jq computes the figure from a mode's answer,
  in the unit of the field; `<!-- 784 ms, 24 ms: elsewhere -->` marks figures that do not come from
  the demo.
"""

from __future__ import annotations

import contextlib
import functools
import io
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
from typing import Any

from _breakdown.output.screen import View
from tests.answers import BATCH
from tests.builders.xspace import op, trace
from tests.excerpts import first_difference, is_excerpt, missing_text, parse_excerpt
from tests.harness import (
    AFTER,
    ALL_MODES,
    BEFORE,
    DEMO,
    PROFILES,
    ROOT,
    Json,
    Outcome,
    answer,
    bound,
    in_folder,
    run,
)
from tests.pages import GUIDE, PLACEHOLDERS, README, SKILL, Call, blocks, calls, sections
from tests.shown import text_of

HAS_TOOLS = all(map(shutil.which, ("bash", "jq")))


@functools.cache
def outcome(words: tuple[str, ...], capture: str = "") -> Outcome:
    """Run a call in the root of the clone, but write output files to a temporary folder."""
    at = words.index("--mode")
    profile = str(PROFILES / f"{capture}.xplane.pb") if capture else words[0]
    options = [*words[1:at], *words[at + 2 :]]
    with tempfile.TemporaryDirectory() as folder, in_folder(ROOT):
        if "--out" in options:
            options[options.index("--out") + 1] = f"{folder}/out"
        elif profile == PLACEHOLDERS["PROFILE"]:
            options = [word for word in options if word not in ("--text", "--format", "text")]
            profile = str(DEMO)
        return run(profile, words[at + 1], *options)


def piped(call: Call, result: Json) -> subprocess.CompletedProcess[str]:
    """Pipe an answer into the shell command that follows the call on the page."""
    words = (f"--arg line {shlex.quote(PLACEHOLDERS['LINE'])}", "--arg line LINE")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "answer.json").write_text(json.dumps(result))
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
    """Return a call's output, piped through the call's filter if it has one."""
    result = outcome(call.words, capture).object
    if HAS_TOOLS and call.pipe.lstrip().startswith("|"):
        return piped(call, result).stdout
    if not {"text", "--text"} & set(call.words):
        return json.dumps(result)
    top = call.words[call.words.index("--top") + 1] if "--top" in call.words else None
    return text_of(result, "utf-8", View("--all" in call.words, top=int(top) if top else None))


class Commands(unittest.TestCase):
    batch = BATCH
    takes_seconds = 5

    def test_every_call_on_the_pages_has_an_answer(self) -> None:
        modes = set()
        for page in (README, GUIDE, SKILL):
            for call in calls(page):
                with self.subTest(call=" ".join(call.words)):
                    modes.add(call.words[call.words.index("--mode") + 1])
                    self.assertEqual(outcome(call.words).object["status"], "ok")
        self.assertEqual(modes, set(ALL_MODES) - {"record"}, "show each mode in an example")

    def test_commands_of_the_skill_that_the_tool_comes_from_are_among_them(self) -> None:
        heading = "Coming from the skill compute-breakdown of primatrix"
        found = [call.words for call in calls(GUIDE) if call.block.heading == heading]
        peaks = [f"--peak-tflops-{dtype}" for dtype in ("bf16", "fp8", "fp32", "fp16")]
        self.assertEqual(
            {word for words in found for word in words if word.startswith("--")},
            {*"--mode --device --step --step-id --top --include-comm --include-data-move".split(),
             *"--no-comm-stalls --chip --peak-hbm-gibps".split(), *peaks},
        )  # fmt: skip

    def test_bindings_can_be_imported_from_any_folder(self) -> None:
        code = "import compute_breakdown; from _proto import xplane_pb2; xplane_pb2.XSpace()"
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            done = subprocess.run(
                [sys.executable, "-c", code],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=bound(60),
                check=False,
            )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    @unittest.skipUnless(HAS_TOOLS, "needs bash and jq")
    def test_every_filter_on_the_pages_runs_without_errors(self) -> None:
        for page in (README, GUIDE, SKILL):
            for call in calls(page):
                if call.pipe.lstrip().startswith("|"):
                    with self.subTest(call=" ".join(call.words), pipe=call.pipe):
                        done = piped(call, outcome(call.words).object)
                        self.assertEqual(done.stderr, "")
                        self.assertEqual(done.returncode, int("exit 1" in call.pipe))
                        self.assertTrue(done.stdout.strip() or ">" in call.pipe)

    @unittest.skipUnless(HAS_TOOLS, "needs bash and jq")
    def test_recipes_print_the_reason_of_an_error_answer(self) -> None:
        error_answer = run("no such path", "by_source").object
        n_checked = 0
        for call in (*calls(README), *calls(GUIDE)):
            if "error(.reason)" in call.pipe:
                n_checked += 1
                with self.subTest(pipe=call.pipe):
                    self.assertRegex(piped(call, error_answer).stderr, r"jq: .*: no_such_path\n")
        self.assertGreater(n_checked, 2)

    def test_output_on_the_pages_matches_the_program(self) -> None:
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

    def test_python_on_the_pages_prints_an_answer(self) -> None:
        texts = [
            block.text
            for block in (*blocks(README), *blocks(GUIDE))
            if block.text.startswith("import compute_breakdown")
        ]
        self.assertEqual(len(texts), 2)
        for text in texts:
            printed_text = io.StringIO()
            with contextlib.redirect_stdout(printed_text), in_folder(ROOT):
                exec(text.replace("logs", PLACEHOLDERS["PROFILE"]), {})
            self.assertIn("ms", printed_text.getvalue())

    def test_excerpts_of_example_scripts_are_up_to_date(self) -> None:
        examples = [
            path.read_text(encoding="utf-8") for path in (ROOT / "tests/examples").glob("*.py")
        ]
        excerpts = [
            block.text
            for block in blocks(GUIDE)
            if block.language == "python" and not block.text.startswith("import")
        ]
        self.assertEqual(len(excerpts), 2)
        for excerpt in excerpts:
            self.assertTrue(any(excerpt in example for example in examples), excerpt)

    def assert_excerpt(self, text: str, result: Json) -> None:
        excerpt = parse_excerpt(text)
        if not is_excerpt(excerpt, result):
            self.fail(first_difference(excerpt, result))


def recipe_with(word: str) -> Call:
    """Return the recipe whose filter contains the given word."""
    (found,) = [call for call in calls(GUIDE) if word in call.pipe]
    return found


@unittest.skipUnless(HAS_TOOLS, "needs bash and jq")
class Recipes(unittest.TestCase):
    batch = BATCH

    def test_gate_accepts_equal_runs_and_rejects_slower_runs(self) -> None:
        (call,) = (call for call in calls(GUIDE) if "--fail-over" in call.words)
        gate = call.words[call.words.index("--fail-over") :]
        for profile, baseline, status in (
            (BEFORE, BEFORE, 0),
            (AFTER, BEFORE, 3),
            (BEFORE, AFTER, 0),
            ("nowhere.json", BEFORE, 1),
        ):
            with self.subTest(profile=profile, baseline=baseline):
                outcome = run(profile, "compare", "--baseline", str(baseline), *gate)
                self.assertEqual(outcome.status, status)

    def test_flame_graph_has_a_stack_for_each_group(self) -> None:
        call = recipe_with(">demo.folded")
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
        # Semicolons separate frames, so a semicolon in a frame becomes a comma.
        odd = op("a", "loop fusion", 0, 10, stack="<module 'a;b'>:1:2\n \nc d.py:3:4\n")
        result = answer(trace([odd]), "by_source")
        self.assertIn("<module 'a,b'>:1", piped(call, result).stdout)


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
# Map the last characters of a unit to a pattern for the names of fields that can have the unit.
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
    """Return the numbers in a mode's answer for the demo that can have the given unit."""
    wanted = next(fields for end, fields in FIELDS_OF_UNIT.items() if unit.endswith(end))
    result = of_demo(mode)
    found = [(path, value) for path, value in numbers_in(result) if re.search(wanted, path)]
    if unit != "%":
        return [value / UNITS[unit] for _, value in found]
    # A percentage on a page can come from a fraction, or from a time divided by the step duration.
    step = result.get("step_duration_ps", 0) / 100
    return [
        value if "pct" in path else value / step if re.search(TIMES, path) and step else 100 * value
        for path, value in found
    ]


def of_demo(mode: str, *options: str) -> Json:
    """Return a mode's answer for the demo; add the options that the pages use for `compare` and
    `by_source`.
    """
    profile = PLACEHOLDERS["PROFILE"]
    if mode == "compare":
        profile = PLACEHOLDERS["BASELINE"].replace("before", "after")
        options = ("--baseline", PLACEHOLDERS["BASELINE"])
    elif mode == "by_source":
        options = ("--include-data-move", "--include-comm")
    return outcome((profile, "--mode", mode, *options)).object


def is_rounded(figure: str, value: float) -> bool:
    decimals = len(figure.partition(".")[2])
    return abs(float(figure) - value) <= 0.5 / float(10**decimals) + 1e-9


class Figures(unittest.TestCase):
    batch = BATCH

    def test_figures_in_sections_about_modes_occur_in_the_answers(self) -> None:
        n_figures = 0
        for heading, prose in itertools.chain(sections(README), sections(GUIDE)):
            mode = "bottleneck" if heading == "Read the answer" else heading
            if mode not in {*ALL_MODES} - {"page", "export", "record", "spread", "anatomy"}:
                continue
            commented = ", ".join(figures for figures, _ in COMMENT_RE.findall(prose)).split(", ")
            for figure, unit in FIGURE_RE.findall(COMMENT_RE.sub("", prose)):
                n_figures += 1
                with self.subTest(heading=heading, figure=f"{figure} {unit}"):
                    if f"{figure} {unit}" not in commented:
                        found = any(is_rounded(figure, value) for value in figures_of(mode, unit))
                        self.assertTrue(found, f"no such figure in the answer of {mode}")
        self.assertGreater(n_figures, 10)

    @unittest.skipUnless(shutil.which("jq"), "needs jq")
    def test_figures_with_a_comment_are_computed_correctly(self) -> None:
        for shown, source in COMMENT_RE.findall(README + GUIDE):
            figure = FIGURE_RE.fullmatch(shown)
            asked = re.match(r"(\w+)((?: --\S+)*) (.*)", source)
            with self.subTest(figure=shown, source=source):
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
