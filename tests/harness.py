"""Runs the program: in this process for speed, or as a user does, as a command."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
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
from unittest import mock

import compute_breakdown
from _pipeline.context import Context, Request

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "compute_breakdown.py"
DEMO = ROOT / "tests" / "data" / "demo"
# Captures that are not part of the repository; looked at where they lie beside it.
PROFILES = ROOT.parent / "shared" / "profiles"
TRAINING = PROFILES / "tpu7x-dense-train.xplane.pb"
OFFLOADING = PROFILES / "v6e-host-offload.xplane.pb"
PALLAS = PROFILES / "v6e-pallas-kernel.xplane.pb"
ALL_MODES = tuple(mode.name for mode in compute_breakdown.MODES)
# Those of one step; and without the page, which shows the others and has tests of its own.
STEP_MODES = tuple(mode.name for mode in compute_breakdown.MODES if "--step" in mode.options)
MODES = tuple(mode for mode in STEP_MODES if mode != "page")
# Those that have an answer whatever lies beside the trace.
MODES_OF_TRACE = tuple(mode for mode in MODES if mode not in ("memory", "program"))

# Whether all cases run of what is random or adversarial, and at full size, or a sample.
FULL = os.environ.get("COMPUTE_BREAKDOWN_TESTS") == "full"


def context_of(profile: str) -> Context:
    """Return a context for stages that are called directly."""
    return Context(Request(profile, "summary", None, None, "json", {}))


def sampled(cases: Iterable[T], n: int) -> list[T]:
    """All of them if all are asked for, else so many, always the same."""
    every = list(cases)
    if FULL or n >= len(every):
        return every
    return [every[i] for i in sorted(random.Random(1).sample(range(len(every)), n))]


# What `_work` takes of the CPU on the machine on which the tests' bounds of time were set.
_WORK_SECONDS = 0.00275
# CPU time itself grows where others share its caches. What grows with the square of a size, which
# is what bounds are there to find, is far beyond them all the same.
_ROOM = 3


def _work() -> float:
    """Some work in pure Python; the seconds that this process was busy with it."""
    begin = time.process_time()
    sum(i * i for i in range(50_000))
    return time.process_time() - begin


@functools.cache
def _slowness() -> float:
    """How many times as long as there all takes here; a quicker machine has the more room."""
    return max(1.0, min(_work() for _ in range(5)) / _WORK_SECONDS)


def bound(seconds: float) -> float:
    """The seconds that this may take here which is to take fewer than so many on that machine."""
    return _ROOM * _slowness() * seconds


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Insist that this process is busy with it for less than that, by the measure of `bound`."""
    allowed = bound(seconds)
    begin = time.process_time()
    yield
    spent = time.process_time() - begin
    if spent >= allowed:
        raise AssertionError(f"it took {spent:.2f} s, and should take less than {allowed:.2f} s")


class Outcome(NamedTuple):
    """What the program printed, its exit status, and what it said on stderr."""

    object: dict[str, Any]
    status: int
    stderr: str


class InFolder(unittest.TestCase):
    """A test that has a folder for its files."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path


# The same for every command line, and to make it takes as long as to read a small trace.
_parser_of_modes = functools.cache(compute_breakdown.parser_of_modes)
# Of all processes; to make and remove one for each trace takes as long as to read it.
_FOLDER = tempfile.TemporaryDirectory()


@functools.cache
def _folder_of(pid: int) -> Path:
    path = Path(_FOLDER.name, str(pid))
    path.mkdir()
    return path


def run(profile: str | Path | bytes, mode: str, *options: str) -> Outcome:
    """Run in this process; bytes are first written to a file."""
    if isinstance(profile, bytes):
        path = _folder_of(os.getpid()) / "test.xplane.pb"
        path.write_bytes(profile)
        try:
            return run(path, mode, *options)
        finally:
            path.unlink()
    with mock.patch.object(compute_breakdown, "parser_of_modes", _parser_of_modes):
        outcome = compute_breakdown.outcome_of([str(profile), "--mode", mode, *options])
    said = json.loads(json.dumps(outcome.fields, allow_nan=False))
    return Outcome(said, outcome.status, outcome.complaint)


def function_of(mode: compute_breakdown.Mode) -> Callable[..., Any]:
    """What the mode's own options are given to."""
    return mode.load()


def keywords_of(mode: compute_breakdown.Mode) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function_of(mode)).parameters


def answer(profile: str | Path | bytes, mode: str, *options: str) -> dict[str, Any]:
    """Run in this process and insist on an answer."""
    outcome = run(profile, mode, *options)
    if outcome.object["status"] != "ok":
        raise AssertionError(outcome.object)
    return outcome.object


def command(*arguments: str | Path, timeout: float = 60) -> Outcome:
    """Run as a command; insist on exactly one line with one JSON object on stdout."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=bound(timeout),
        check=False,
    )
    line, newline, rest = done.stdout.partition("\n")
    if newline != "\n" or rest:
        raise AssertionError(f"not one line: {done.stdout[:500]!r} {done.stderr[-500:]!r}")
    return Outcome(json.loads(line), done.returncode, done.stderr)
