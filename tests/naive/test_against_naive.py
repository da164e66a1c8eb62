"""Compare the program with the naive implementation on random traces, and check all modes'
invariants.
"""

from __future__ import annotations

import random
import re
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _breakdown.modes import STEP_OPTIONS
from _breakdown.pipeline import vocabulary
from tests import naive
from tests.builders.random_xspace import (
    OPTIONS,
    PIPELINE_OPTIONS,
    command_line,
    random_case,
    random_record_case,
)
from tests.harness import DEMO, LISTED_MODES, MODES, PROFILES, captures, run, sampled
from tests.naive import invariants, op as naive_op
from tests.naive.invariants import differences

N_CASES, N_RECORDS = 600, 100
# The naive implementation does not know the file's name, and writes no sentences.
FILE_FIELDS = ("profile_dir", "xplane_file", "run", "host", "detail", "headline", "next_steps")
ADVICE = (
    "One of the two is wrong. For a new field, teach tests/naive its definition or add it to "
    "UNREAD of tests/naive/__init__.py."
)
SPECIFIED_NOTES = (
    *("auto-picked", "no Steps line", "no op starts in this step"),
    "order of stack frames unknown",
)
SPECIFIED_ENDS = (
    "the source is not the innermost frame of the stack, so the stack may be wrong",
    "of the capture) pass between steps; --step all includes this time",
)
NO_OPS = re.compile(r"no op starts in \d+ of ")


def without_unread(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_unread(v) for k, v in value.items() if k not in naive.UNREAD}
    return list(map(without_unread, value)) if isinstance(value, list) else value


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the part of an answer that the naive implementation computes: fields, and notes with
    specified wording.
    """
    kept: dict[str, Any] = without_unread({k: v for k, v in answer.items() if k not in FILE_FIELDS})
    kept["notes"] = sorted(
        note
        for note in kept["notes"]
        if note.startswith(SPECIFIED_NOTES) or note.endswith(SPECIFIED_ENDS) or NO_OPS.search(note)
    )
    return kept


def cached(profile: bytes | Path) -> Callable[..., dict[str, Any]]:
    """Return a function that runs a mode, once for each mode and its options."""
    answers: dict[str, dict[str, Any]] = {}

    def ask(mode: str, **more: Any) -> dict[str, Any]:
        key = f"{mode} {more}"
        if key not in answers:
            answers[key] = run(profile, mode, *command_line(more)).object
        return answers[key]

    return ask


class AgainstNaive(unittest.TestCase):
    def fail_with(self, case: str, found: list[str], advice: str = "") -> None:
        if found:
            self.fail("\n".join(["", case, *found[:10], advice]))

    def check(self, case: str, data: bytes, mode: str, options: dict[str, Any]) -> None:
        """Check the invariants of an answer; compare the answer of `by_source` with the naive
        implementation's."""
        ours = run(data, mode, *command_line(options)).object
        found = list(invariants.faults(ours))
        if mode == "by_source":
            ours, theirs = comparable(ours), comparable(naive.analyse(data, **options))
            found += differences(ours, theirs)
            for key in ("container_durations_ps", "unknown_categories"):
                if "totals" in ours and not found:
                    our, their = (list(result["totals"][key].items()) for result in (ours, theirs))
                    found += differences(our, their, f".totals.{key}, in order")
        self.fail_with(f"{case}: {mode} {options}", found, ADVICE)

    def check_modes(self, case: str, data: bytes, options: dict[str, Any]) -> None:
        found = invariants.faults_between(data, options, cached(data))
        self.fail_with(f"{case}: {options}", list(found))

    def test_random_traces_have_the_same_answers_as_the_naive_implementation(self) -> None:
        for seed in sampled(range(N_CASES), 60):
            case = f"random_case(random.Random({seed}))"
            data, mode, options = random_case(random.Random(seed))
            self.check(case, data, mode, options)
            asked = {name: value for name, value in options.items() if name in PIPELINE_OPTIONS}
            if mode != "by_source":
                self.check(case, data, "by_source", asked)
            if seed % 5 == 0:
                self.check_modes(case, data, asked)

    def test_random_records_satisfy_the_invariants(self) -> None:
        for seed in sampled(range(N_RECORDS), 20):
            data, options = random_record_case(random.Random(seed))

            ask = cached(data)
            found = list(invariants.faults_of_record(ask("record", **options), ask))
            self.fail_with(f"random_record_case(random.Random({seed})): {options}", found)

    def test_modes_agree_on_the_demo(self) -> None:
        [demo] = DEMO.glob("plugins/profile/*/*.gz")
        ask = cached(DEMO)
        found = list(invariants.faults_of_real_programs(ask))
        found += invariants.faults_between(demo.read_bytes(), {}, ask)
        self.fail_with(demo.name, found)

    def test_modes_agree_on_real_captures(self) -> None:
        for path in sampled(captures(), 1):
            with self.subTest(path=path.name):
                ask = cached(path)
                found = list(invariants.faults_of_real_programs(ask))
                if path.name.startswith("v6e"):
                    found += invariants.faults_between(path.read_bytes(), {}, ask)
                self.fail_with(path.name, found)

    def test_real_captures_have_the_same_answers_as_the_naive_implementation(self) -> None:
        # The naive implementation takes seconds for the larger captures.
        for name in sampled(("v6e-host-offload", "vllm-bf16", "v6e-pallas-kernel"), 1):
            path = PROFILES / f"{name}.xplane.pb"
            with self.subTest(name=name):
                if not path.exists():
                    self.skipTest("the capture isn't here")
                self.check(name, path.read_bytes(), "by_source", {})

    def test_every_category_has_the_kind_that_the_naive_implementation_expects(self) -> None:
        """Test all categories, because random traces rarely contain a newly added category."""
        for category in vocabulary.KIND_OF:
            for op_name in ("fusion.1", "slice-done.2", "async-collective-done", ""):
                kind = naive_op.kind_of(category, op_name or None)
                expected = "container" if category in naive_op.CONTAINERS else kind
                found = vocabulary.kind_of(category, op_name)
                self.assertEqual(found, expected, f"kind of {category!r} of an op {op_name!r}")

    def test_random_cases_include_every_option(self) -> None:
        of_step = [mode for mode in LISTED_MODES if mode.name in MODES]
        taken = {flag for mode in of_step for flag in mode.options}
        self.assertEqual(
            set(OPTIONS),
            # `--no-merge` affects only text and Markdown.
            taken - {*STEP_OPTIONS, "--no-merge"},
            "give each option a line in OPTIONS of tests/builders/random_xspace.py",
        )
