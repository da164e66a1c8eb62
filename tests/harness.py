"""Run the program, either in the test process for speed, or as a command."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import lzma
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from _breakdown import command
from _breakdown.modes import NAMES, Mode, mode_named
from _breakdown.output.schema import schema_of
from _breakdown.pipeline.context import Context, Request
from tests.json_schema import Validator

T = TypeVar("T")
Json = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "compute_breakdown.py"
DATA = ROOT / "tests" / "data"
DEMO = DATA / "demo"
# Records of two runs of the demo's program, written by tests/builders/make_runs.py.
BEFORE, AFTER = DATA / "before.json.gz", DATA / "after.json.gz"
FLAG_FILE = DATA / "flags" / "launch.sh"
# Real captures that are not part of the repository; tests that need a missing capture are skipped.
SHARED = ROOT.parent / "shared"
PROFILES = SHARED / "profiles"
SAMPLES = SHARED / "samples"
TRAINING = PROFILES / "tpu7x-dense-train.xplane.pb"
OFFLOADING = PROFILES / "v6e-host-offload.xplane.pb"
PALLAS = PROFILES / "v6e-pallas-kernel.xplane.pb"
LISTED_MODES = tuple(map(mode_named, NAMES))
ALL_MODES = NAMES
# Single-step modes. MODES excludes the modes that write a file, which have their own tests.
STEP_MODES = tuple(mode.name for mode in LISTED_MODES if "--step" in mode.options)
MODES = tuple(mode for mode in STEP_MODES if mode not in ("page", "export"))
WITH_TEXT = tuple(
    mode.name for mode in LISTED_MODES if mode.name not in ("record", "page", "export")
)
# Modes that do not need a program in the trace.
MODES_OF_TRACE = tuple(mode for mode in MODES if mode not in ("by_array", "memory", "program"))

# If True, random tests run all cases at full size instead of a sample.
FULL = os.environ.get("COMPUTE_BREAKDOWN_TESTS") == "full"


def context_of(profile: str) -> Context:
    """Return a context for pipeline stages that a test calls directly."""
    return Context(Request(profile, "summary", None, None, "json", {}))


def sampled(cases: Iterable[T], n: int, most: int | None = None) -> list[T]:
    """Return a fixed sample of `n` cases, or in a full run, all cases or a sample of `most`."""
    every = list(cases)
    if not every:
        raise AssertionError("there are no cases, so this test would check nothing")
    if FULL:
        n = len(every) if most is None else most
    if n >= len(every):
        return every
    return [every[i] for i in sorted(random.Random(1).sample(range(len(every)), n))]


# CPU time of `_work` on the reference machine, in seconds. All time limits in the tests refer to
# this machine.
_WORK_SECONDS = 0.00275
# CPU time increases when other processes use the caches, so multiply all limits by this factor.
# Quadratic run time, which the limits must detect, still exceeds them.
_ROOM = 3


def _work() -> float:
    """Do a fixed amount of work and return the CPU time in seconds."""
    begin = time.process_time()
    sum(i * i for i in range(50_000))
    return time.process_time() - begin


@functools.cache
def _slowness() -> float:
    """Return how many times longer `_work` takes here than on the reference machine, but at least
    1."""
    return max(1.0, min(_work() for _ in range(5)) / _WORK_SECONDS)


def bound(seconds: float) -> float:
    """Convert a time limit for the reference machine to a limit for this machine, with some
    reserve."""
    return _ROOM * _slowness() * seconds


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail if the block takes more CPU time than `bound(seconds)`."""
    allowed = bound(seconds)
    begin = time.process_time()
    yield
    spent = time.process_time() - begin
    if spent >= allowed:
        raise AssertionError(f"took {spent:.2f} s, limit {allowed:.2f} s")


class Outcome(NamedTuple):
    """Hold the printed object, the exit status, and stderr."""

    object: dict[str, Any]
    status: int
    stderr: str


class InFolder(unittest.TestCase):
    """Provide a temporary folder for each test."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path


# All traces use the same folder: making and removing one takes as long as reading a trace.
_FOLDER = tempfile.TemporaryDirectory()


@functools.cache
def _folder_of(pid: int) -> Path:
    path = Path(_FOLDER.name, str(pid))
    path.mkdir()
    return path


@functools.cache
def shared_file(name: str, data: bytes) -> Path:
    """Write a file that all tests of a process read."""
    path = _folder_of(os.getpid()) / name
    path.write_bytes(data)
    return path


def captures() -> list[Path]:
    """Return all real captures, some of which are packed. Skip the test if there is no folder."""
    folders = "profiles", "profiles/rebuilt", "corpus", "real-faults"
    paths = [path for name in folders for path in sorted((SHARED / name).glob("*.xplane.pb*"))]
    if not SHARED.exists():
        raise unittest.SkipTest("needs the captures in the folder `shared` beside the repository")
    if not paths:
        raise AssertionError(f"{SHARED} has no captures in {', '.join(folders)}")
    return paths


@functools.cache
def unpacked(packed: str | Path) -> Path:
    """Return the contents of a file that `xz` has packed, as a file."""
    return shared_file(Path(packed).stem, lzma.decompress(Path(packed).read_bytes()))


@functools.cache
def validator_of(mode: str) -> Validator:
    return Validator(schema_of(mode))


def faults_in(result: dict[str, Any]) -> list[str]:
    """Return the differences between an answer and the declarations on FIELDS.md."""
    mode = result["mode"]
    return [f"{mode}{error}" for error in validator_of(mode or NAMES[0]).errors(result)]


def assert_declared(result: dict[str, Any]) -> None:
    faults = faults_in(result)
    if faults:
        raise AssertionError("\n".join(faults[:5]))


def run(profile: str | Path | bytes, mode: str, *options: str) -> Outcome:
    """Run the program in the test process; remove the next steps, whose commands contain the
    path."""
    return without_next_steps(run_as_printed(profile, mode, *options))


def without_next_steps(outcome: Outcome) -> Outcome:
    if "next_steps" in outcome.object:
        outcome.object["next_steps"] = []
    return outcome


# As an option of `run`: do not add --all.
BRIEF = "brief"


def run_as_printed(profile: str | Path | bytes, mode: str, *options: str) -> Outcome:
    """Run the program in the test process; a profile given as bytes is written to a file first."""
    if isinstance(profile, bytes):
        path = _folder_of(os.getpid()) / "test.xplane.pb"
        path.write_bytes(profile)
        try:
            return run_as_printed(path, mode, *options)
        finally:
            path.unlink()
    # Some fields are printed only with --all.
    everything = ["--all"] if mode == "bottleneck" and BRIEF not in options else []
    asked = *everything, *(word for word in options if word != BRIEF)
    profile = unpacked(profile) if str(profile).endswith(".xz") else profile
    path = Path(profile)
    # Many tests ask the same of these files, which no test changes.
    is_written = any(word.startswith("--out") for word in asked)
    is_shared = path.parent in (DATA, PROFILES) and not is_written
    # In the root of the clone, this path of the demo is the same as on the pages.
    name = os.path.relpath(DEMO) if path == DEMO else str(profile)
    run_words = _run_words_once if is_shared else _run_words
    printed, status, complaint = run_words(name, "--mode", mode, *asked)
    return Outcome(json.loads(printed), status, complaint)


def _run_words(*words: str) -> tuple[str, int, str]:
    """Return the answer as JSON, the exit status, and stderr."""
    outcome = command.outcome_of(words)
    printed = json.dumps(outcome.fields, allow_nan=False)
    assert_declared(json.loads(printed))
    return printed, outcome.status, outcome.complaint


_run_words_once = functools.cache(_run_words)


def function_of(mode: Mode) -> Callable[..., Any]:
    """Return the function that implements a mode."""
    function: Callable[..., Any] = getattr(mode.module, mode.name)
    return function


def keywords_of(mode: Mode) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function_of(mode)).parameters


def answer(profile: str | Path | bytes, mode: str, *options: str) -> dict[str, Any]:
    """Run the program in the test process; fail if there is no answer."""
    outcome = run(profile, mode, *options)
    if outcome.object["status"] != "ok":
        raise AssertionError(outcome.object)
    return outcome.object


def as_process(*arguments: str | Path, timeout: float = 60) -> Outcome:
    """Run the program as a command; fail unless stdout is one line with one JSON object."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=bound(timeout),
        check=False,
    )
    line, newline, rest = done.stdout.partition("\n")
    if newline != "\n" or rest:
        raise AssertionError(
            f"stdout is not one line: {done.stdout[:500]!r} {done.stderr[-500:]!r}"
        )
    result = json.loads(line)
    assert_declared(result)
    return without_next_steps(Outcome(result, done.returncode, done.stderr))


@contextlib.contextmanager
def in_folder(path: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)
