"""Test the declared types of the Python functions, in a clone and in the installed package."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

from _breakdown.pipeline.options import OPTIONS
from tests.harness import DEMO, ROOT, sampled

STUB = ROOT / "_breakdown" / "output" / "python.pyi"
# These options exist only in the Python functions.
PYTHON_ONLY = {"processes", "peaks"}
# In this project, mypy must report exactly the lines with the comment `wrong`.
PROJECT = """
import json
from pathlib import Path

import compute_breakdown
from compute_breakdown import NoAnswer, analyse, render

summary = analyse("logs", "summary", top=5, include_comm=True)
busy: int = summary["totals"]["busy_duration_ps"]
text: str = render(summary, "markdown")
json.dumps(summary)
by_op = compute_breakdown.analyse(b"", "by_op", step="all", peaks={"bf16": 900, "hbm_gibps": 3e3})
flops: int | None = by_op["ops"][0]["flops"]
record = analyse(Path("logs"), "record", steps=slice(1, None))
compared = analyse([record, "x.json"], "compare", baseline=[b"", Path("y")], processes=2)
delta: int = compared["totals"]["step_duration"]["delta_ps"]
analyse(record, "spread")
try:
    analyse("logs", "page", out=Path("step.html"))
except NoAnswer as failure:
    reason: str = failure.reason
    detail: str | None = failure.detail
    text = render(failure.answer, "text")
summary.totals  # wrong
analyse("logs", "summary", tpo=5)  # wrong
analyse("logs", "summary", top="x")  # wrong
analyse(5, "summary")  # wrong
analyse("logs", "compare", baseline=5)  # wrong
analyse("logs", "by_op", peaks=5)  # wrong
render(summary, "html")  # wrong
compute_breakdown.nothing  # wrong
"""
# This program must run in the clone and with the installed package.
PROGRAM = f"""
import pickle, sys
before = list(sys.path)
import compute_breakdown
from compute_breakdown import NoAnswer, analyse, render
answer = analyse({str(DEMO)!r}, "idle")
assert answer["status"] == "ok" and type(pickle.loads(pickle.dumps(answer))) is type(answer)
assert render(answer, "text").startswith(answer["headline"][:20])
assert not hasattr(compute_breakdown, "nothing") and compute_breakdown.__version__
assert {{"NoAnswer", "analyse", "capture", "render", "__version__"}} <= {{*dir(compute_breakdown)}}
try:
    analyse("/no/such", "idle")
except NoAnswer as failure:
    assert failure.reason == "no_such_path"
assert sys.path[: len(before)] == before and len(sys.path) <= len(before) + 1
print(answer["next_steps"][0]["command"])
"""


def install(folder: Path) -> None:
    """Copy the wheel's files to the paths that pyproject.toml specifies."""
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    _, _, packed = settings.partition("[tool.hatch.build.targets.wheel.force-include]\n")
    for source, place in re.findall(r'^"(.*?)" = "(compute_breakdown/.*?)"$', packed, re.MULTILINE):
        (folder / place).parent.mkdir(exist_ok=True)
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, folder / place)


class Types(unittest.TestCase):
    folder: Path
    site: Path

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.site = cls.folder / "site"
        cls.site.mkdir()
        install(cls.site)

    @unittest.skipUnless(find_spec("mypy"), "needs mypy")
    def test_mypy_reports_exactly_the_lines_marked_as_wrong(self) -> None:
        path = self.folder / "project" / "project.py"
        path.parent.mkdir()
        path.write_text(PROJECT)
        lines = PROJECT.splitlines()
        wrong = {n for n, line in enumerate(lines, 1) if line.endswith("# wrong")}
        for place in sampled((self.site, ROOT), 1):
            with self.subTest(place):
                done = subprocess.run(
                    [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull,
                     "--config-file", os.devnull, "--follow-imports=silent", str(path)],
                    env={**os.environ, "MYPYPATH": str(place)}, cwd=path.parent,
                    capture_output=True, text=True, check=False,
                )  # fmt: skip
                found = re.findall(r"^project.py:(\d+): error", done.stdout, re.MULTILINE)
                self.assertEqual(set(map(int, found)), wrong, done.stdout + done.stderr)

    def test_package_is_marked_as_typed(self) -> None:
        self.assertTrue((self.site / "compute_breakdown" / "py.typed").exists())

    def test_functions_work_in_the_clone_and_installed(self) -> None:
        for place in (ROOT, self.site):
            with self.subTest(place):
                done = subprocess.run(
                    [sys.executable, "-c", PROGRAM], cwd=self.folder,
                    env={**os.environ, "PYTHONPATH": str(place)},
                    capture_output=True, text=True, check=False,
                )  # fmt: skip
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                end = "-m compute_breakdown" if place == self.site else "compute_breakdown.py"
                self.assertIn(f"{end} {DEMO} --mode idle", done.stdout)

    def test_installed_command_still_runs(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "compute_breakdown", str(DEMO), "--mode", "idle", "--text"],
            cwd=self.site, capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("next: ", done.stdout)


class Declarations(unittest.TestCase):
    def test_every_option_is_declared(self) -> None:
        tree = ast.parse(STUB.read_text(encoding="utf-8"))
        (options,) = (
            node.body
            for node in tree.body
            if isinstance(node, ast.ClassDef) and node.name == "Options"
        )
        declared = [
            line.target.id
            for line in options
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        ]
        only_for_command = {"--format", "--text", "--all"}
        flags = OPTIONS.keys() - only_for_command
        expected = {flag.removeprefix("--").replace("-", "_") for flag in flags} | PYTHON_ONLY
        self.assertEqual(declared, sorted(expected))
