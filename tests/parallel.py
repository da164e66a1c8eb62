"""Run the tests that `python -m unittest discover -s tests -t .` finds, on all cores.

Each process runs one test at a time. The tests of a class with `setUpClass` run together in one
process. So do all classes with the same `batch`, because they share cached answers. On a single
core, the tests run as an ordinary suite.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import unittest
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """Hold the outcome of a test or subtest; `what` is success, failure, error or skip."""

    name: str
    described: str | None
    what: str
    text: str


class RemoteTraceback(Exception):
    """Carry a traceback from a worker process."""


class Ran:
    """Represent a test that ran in a worker process."""

    failureException = AssertionError

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def __str__(self) -> str:
        return self._outcome.name

    def id(self) -> str:
        return self._outcome.name

    def shortDescription(self) -> str | None:
        return self._outcome.described

    def countTestCases(self) -> int:
        return 1


class Recorder(unittest.TestResult):
    """Record the outcomes of tests in order."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: list[Outcome] = []

    def _note(self, test: Any, what: str, text: str = "") -> None:
        self.outcomes.append(Outcome(str(test), test.shortDescription(), what, text))

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._note(test, "success")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._note(test, "failure", self.failures[-1][1])

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self._note(test, "error", self.errors[-1][1])

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._note(test, "skip", reason)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            is_failure = issubclass(err[0], test.failureException)
            texts = self.failures if is_failure else self.errors
            self._note(subtest, "failure" if is_failure else "error", texts[-1][1])


# Forked processes inherit this list and run suites from it.
_batches: list[unittest.TestSuite] = []


def _run(batch: int) -> list[Outcome]:
    recorder = Recorder()
    _batches[batch].run(recorder)
    gc.collect()
    gc.freeze()
    return recorder.outcomes


def _cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _cases(test)
        else:
            yield test


def _batch_of(case: unittest.TestCase) -> str:
    """Return the name of a test's batch."""
    of = type(case)
    if hasattr(of, "batch"):
        return str(of.batch)
    module = sys.modules[of.__module__]
    is_alone = (
        of.setUpClass.__func__ is unittest.TestCase.setUpClass.__func__  # type: ignore[attr-defined]
        and not hasattr(module, "setUpModule")
        and not hasattr(module, "tearDownModule")
    )
    return case.id() if is_alone else f"{of.__module__}.{of.__qualname__}"


def _cost(batch: unittest.TestSuite) -> float:
    """Return the sum of `takes_seconds` over the classes of a batch; the longest batches start
    first."""
    classes = {type(case) for case in _cases(batch)}
    return float(sum(getattr(of, "takes_seconds", 0) for of in classes))


class OnAllCores(unittest.TestSuite):
    def run(self, result: unittest.TestResult, debug: bool = False) -> unittest.TestResult:
        n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        together: dict[str, unittest.TestSuite] = {}
        for case in _cases(self):
            together.setdefault(_batch_of(case), unittest.TestSuite()).addTest(case)
        if debug or n_cores < 2 or len(together) < 2:
            return super().run(result, debug)
        _batches[:] = sorted(together.values(), key=_cost, reverse=True)
        # Tests run faster if the garbage collector runs only after each batch and skips older
        # objects.
        gc.disable()
        gc.freeze()
        with ProcessPoolExecutor(n_cores, multiprocessing.get_context("fork")) as pool:
            running = [pool.submit(_run, i) for i in range(len(_batches))]
            for done in as_completed(running):
                for outcome in done.result():
                    report(outcome, result)
                if result.shouldStop:
                    pool.shutdown(cancel_futures=True)
                    break
        gc.enable()
        return result


def report(outcome: Outcome, result: unittest.TestResult) -> None:
    """Add the outcome of a test that ran in a worker process to a result."""
    test: Any = Ran(outcome)
    result.startTest(test)
    if outcome.what == "success":
        result.addSuccess(test)
    elif outcome.what == "skip":
        result.addSkip(test, outcome.text)
    else:
        error: Any = (RemoteTraceback, RemoteTraceback(f"\n{outcome.text}"), None)
        add = result.addFailure if outcome.what == "failure" else result.addError
        add(test, error)
    result.stopTest(test)
