"""Check tables, names and links on the pages, and the files that the pages describe."""

from __future__ import annotations

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
from pathlib import Path
from typing import get_args

import _peaks
from _breakdown import command
from _breakdown.analysis.causes import RULE_NAMED
from _breakdown.analysis.roof import judging, ledger
from _breakdown.pipeline import no_answer
from tests.answers import BATCH, error_answers
from tests.harness import (
    AFTER,
    ALL_MODES,
    BEFORE,
    DEMO,
    LISTED_MODES,
    ROOT,
    SCRIPT,
    STEP_MODES,
    sampled,
)
from tests.pages import (
    CONTRIBUTING,
    FIELDS,
    GUIDE,
    PAGES,
    README,
    SKILL,
    blocks,
    calls,
    code,
    slug,
    table,
)

# Agents read a page as a whole, so a long page costs many tokens.
MOST_BYTES = {"README.md": 13_000, "docs/GUIDE.md": 50_000, "SKILL.md": 10_000}


def fields_declared() -> set[str]:
    """Return the last names of all fields on FIELDS.md, and the keys of its maps."""
    known = {*re.findall(r"^\| `(?:[\w.[\]]+\.)?(\w+)` \|", FIELDS, re.MULTILINE)}
    for keys in re.findall(r"map of (`[^()|]*`) to ", FIELDS):
        known |= {*re.findall(r"\w+", keys)}
    return known


class Tables(unittest.TestCase):
    batch = BATCH

    def test_table_of_reasons_matches_the_exit_status_and_stderr_of_the_program(self) -> None:
        result = {
            (code(reason), int(status), stderr)
            for _, reason, status, stderr in table(FIELDS, "situation", "`reason`")
            if reason
        }
        happens = set()
        for failed in error_answers():
            n_lines = len(failed.stderr.splitlines())
            stderr = ["empty", "one line", "usage and one line"][min(n_lines, 2)]
            happens.add((failed.object["reason"], failed.status, stderr))
        self.assertEqual(result, happens)
        reasons = {reason for reason, *_ in happens}
        self.assertEqual(set(no_answer.EXIT_STATUS), reasons, "no test has this reason")

    def test_table_of_options_lists_the_same_options_as_the_help(self) -> None:
        in_help = re.findall(r"^  (--[\w-]+)", command.help_text(), re.MULTILINE)
        in_table = [re.findall(r"`(--[\w-]+)", row[0]) for row in table(FIELDS, "option")]
        self.assertEqual(sorted(itertools.chain(*in_table)), sorted(in_help))

    def test_table_of_options_shows_the_modes_that_accept_each_option(self) -> None:
        for option, result, *_ in table(FIELDS, "option"):
            for flag in re.findall(r"`(--[\w-]+)", option):
                modes = [m.name for m in LISTED_MODES if flag in m.options]
                without = [m.name for m in LISTED_MODES if flag not in m.options]
                names = (
                    [", ".join(modes), f"all but {', '.join(without)}"] if modes else ["all", ""]
                )
                # The mode `anatomy` covers all devices, so it rejects --device.
                names += ["all but anatomy"] if flag == "--device" else []
                names += ["those of one step"] if modes == [*STEP_MODES] else []
                with self.subTest(option=flag):
                    self.assertIn(result, names)

    def test_table_of_peaks_matches_the_program(self) -> None:
        rows = {code(chip): tuple(peaks) for chip, *peaks, _ in table(FIELDS, "chip", "bf16")}
        for name, chip in _peaks.CHIPS.items():
            hbm = f"{chip.hbm_gbps:g} GB/s" if chip.hbm_gbps else f"{chip.hbm_gibps:g} GiB/s"
            rates = chip.bf16, chip.fp8, chip.int8, chip.int4
            peaks = *(f"{rate:.8g}" if rate else "" for rate in rates), hbm
            self.assertEqual(
                rows.pop(name, None),
                peaks,
                f"FIELDS.md lacks the row of {name}, or has other peaks",
            )
        self.assertEqual(rows, {})


class Names(unittest.TestCase):
    batch = BATCH

    def test_options_on_the_pages_exist(self) -> None:
        known = {*command.ALL_OPTIONS}
        for name in ("README.md", "docs/GUIDE.md", "SKILL.md"):
            page = PAGES[name]
            called = re.findall(r"(?:compute-breakdown|compute_breakdown\.py)[^|\n`]*", page)
            shown = {*re.findall(r"(?<![\w-])--[a-z][\w-]*", " ".join(called))}
            shown |= {*re.findall(r"`(--[a-z][\w-]*)", page)}
            others = {flag for flag in shown if flag.startswith("--xla")} | {"--from", "--argjson"}
            self.assertEqual(shown - others - known, set(), name)

    def test_fields_that_pages_mention_exist(self) -> None:
        """Check the names that only fields can have, because they end with a unit."""
        units = r"ps|pct|bytes|sum|util|gbps|gibps|at_least|omitted"
        for name in ("docs/FIELDS.md", "docs/GUIDE.md", "README.md", "SKILL.md"):
            text = re.sub(r"```.*?```", "", PAGES[name], flags=re.DOTALL)
            named = {*re.findall(rf"\b([a-z]\w*_(?:{units})|pct_of_\w+|n_[a-z]\w*)\b", text)}
            reasons = {*get_args(judging.SkipReason)}
            self.assertEqual(named - fields_declared() - reasons, set(), name)

    def test_names_in_skill_exist(self) -> None:
        known = fields_declared()
        known |= {
            *ALL_MODES,
            *no_answer.EXIT_STATUS,
            *get_args(judging.SkipReason),
            *ledger.CLASSES,
        }
        known |= {*RULE_NAMED}
        # `with_sharding_constraint` and `in_specs` are names from JAX.
        known |= {"at_roof", "with_sharding_constraint", "in_specs"}
        named = {*re.findall(r"(?<![\w$/-])[a-z]+(?:_[a-z0-9]+)+\b(?![/.])", SKILL)}
        # In jq filters, also check names without an underscore.
        for call in calls(SKILL):
            named |= {*re.findall(r"(?<![\w$\])])\.([a-z]\w*)", call.pipe)}
        self.assertEqual(named - known, set())

    def test_links_have_an_existing_target(self) -> None:
        anchors = {
            name: {*map(slug, re.findall(r"^#+ (.*)$", page, re.MULTILINE))}
            for name, page in PAGES.items()
        }
        for name, page in PAGES.items():
            for file, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page):
                with self.subTest(page=name, link=f"{file}#{anchor}"):
                    page_or_file = (ROOT / name).parent / file if file else ROOT / name
                    self.assertTrue(page_or_file.exists())
                    target = page_or_file.resolve().relative_to(ROOT).as_posix()
                    self.assertTrue(not anchor or anchor in anchors.get(target, ()))

    def test_table_of_contents_lists_every_section(self) -> None:
        for page in (FIELDS, GUIDE):
            contents, *rest = page.split("\n## ")
            for section in rest:
                self.assertIn(f"](#{slug(section.partition(chr(10))[0])})", contents)

    def test_files_and_names_in_contributing_exist(self) -> None:
        for path in set(re.findall(r"`([\w.]+/[\w./]*|\w+\.py)`", CONTRIBUTING)):
            with self.subTest(path=path):
                # NAME is the name of a mode or a cause.
                paths = [ROOT / path.replace("NAME", name) for name in ("comm", "resharding")]
                self.assertTrue(any(place.exists() for place in paths))
        for owner, name, path in re.findall(
            r"`(?:(\w+)\.)?(\w+)` in `([\w./]+\.py)`", CONTRIBUTING
        ):
            with self.subTest(name=name):
                module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
                self.assertTrue(hasattr(getattr(module, owner) if owner else module, name))


class Files(unittest.TestCase):
    def test_pages_do_not_exceed_their_size_limits(self) -> None:
        for name, most in MOST_BYTES.items():
            over = len(PAGES[name].encode()) - most
            advice = f"{name} is {over} bytes too long: move recipes to docs/GUIDE.md, or cut"
            self.assertLessEqual(over, 0, advice)

    def test_ci_runs_the_readme_commands_that_set_up_the_environment(self) -> None:
        ci = ROOT / ".ci" / "run"
        if not ci.exists():
            self.skipTest("no .ci/run")
        commands = [b.text.strip() for b in blocks(README) if b.text.startswith("python3 -m venv")]
        self.assertEqual(len(commands), 2)
        for line in commands:
            self.assertNotIn("\n", line)
            self.assertIn(line, ci.read_text(encoding="utf-8"))

    def test_single_file_built_as_documented_prints_the_same_bytes(self) -> None:
        (block,) = (block for block in blocks(CONTRIBUTING) if "zipapp" in block.text)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for source in ("compute_breakdown.py", "_peaks.py"):
                shutil.copy(ROOT / source, folder)
            for source in ("_breakdown", "_proto", "docs"):
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

    def test_wheel_contains_all_modules_and_pages(self) -> None:
        settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        _, _, packed = settings.partition("[tool.hatch.build.targets.wheel.force-include]\n")
        named = set(re.findall(r'^"(.*?)" = "compute_breakdown/', packed, re.MULTILINE))
        folders = {"_breakdown", "_proto", "docs"}
        modules = {path.name for path in ROOT.glob("*.py")}
        package = {"_breakdown/pipeline/installed.py", "_breakdown/pipeline/py.typed"}
        self.assertEqual(named, modules | folders | package | {"SKILL.md"})

    def test_front_matter_of_the_skill_is_plain_yaml(self) -> None:
        opening, front_matter, body = SKILL.split("---\n", 2)
        self.assertEqual((opening, body[:3]), ("", "\n# "))
        entries = dict(line.split(": ", 1) for line in front_matter.splitlines())
        self.assertEqual(list(entries), ["name", "description", "argument-hint"])
        self.assertEqual(entries["name"], "compute-breakdown")
        self.assertLess(len(entries["description"]), 1024)
        # A plain YAML scalar must not contain ": " or " #", and a quoted scalar must end with a
        # quote.
        self.assertNotRegex(entries["description"], r": | #|\A[\W]")
        self.assertRegex(entries["argument-hint"], r'\A"[^"\\]*"\Z')

    def test_command_in_skill_works_from_any_folder(self) -> None:
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
