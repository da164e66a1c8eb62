"""Test FIELDS.md against the answers, and the answers against FIELDS.md."""

from __future__ import annotations

import functools
import json
import random
import re
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from typing import Any

from _breakdown.output.schema import OPTIONAL, OR, DeclaredFields, Row, schema_of
from _breakdown.pipeline import no_answer
from _breakdown.pipeline.context import SCHEMA_VERSION
from tests.answers import BATCH, answers, demo, error_answers
from tests.builders.random_xspace import command_line, random_case, random_record_case
from tests.excerpts import is_excerpt, parse_excerpt
from tests.harness import (
    AFTER,
    ALL_MODES,
    BEFORE,
    PROFILES,
    ROOT,
    SCRIPT,
    Json,
    assert_declared,
    run,
    sampled,
)
from tests.json_schema import Validator
from tests.pages import FIELDS

SAMPLES = ROOT.parent / "shared" / "samples"
# To add a field, remove one that says less. The aims are 850 fields and 150 000 bytes.
MOST_FIELDS, MOST_BYTES = 990, 170_000
EXAMPLE = re.compile(r"Example: `(.*)`\Z")


def random_anatomy_case(rng: random.Random) -> tuple[bytes, Json]:
    """Return a random trace, and random options for the mode `anatomy`."""
    options: Json = {"plane": "0", "sample": 3}
    return random_case(rng)[0], rng.choice(({}, options, {"plane": "/host:CPU"}))


def rows() -> Iterator[tuple[str, Row]]:
    """Yield the rows of the page, each with the name of its object."""
    for name, fields in DeclaredFields(FIELDS).objects.items():
        for row in fields.values():
            yield name, row


def place(name: str, row: Row) -> str:
    return f"FIELDS.md, {row.path} of {name}"


def page_with_places() -> str:
    """Return the page with the place of each row instead of its meaning, so that a schema's
    descriptions tell which row declares a field."""
    lines, name = [], ""
    for line in FIELDS.splitlines():
        if line.startswith("#"):
            name = line.lstrip("# ")
        match = re.match(r"\| `([\w.\[\]]+)` \| ([^|]+) \| ", line)
        lines.append(f"{match[0]}{place(name, Row(match[1], '', ''))} |" if match else line)
    return "\n".join(lines)


@functools.cache
def schema_with_places(mode: str) -> Json:
    return schema_of(mode, page_with_places())


def rows_without_answer(printed: set[str]) -> list[str]:
    declared = [place(name, row) for name, row in rows() if row.path != "."]
    return [f"no answer has the field: {row}" for row in declared if row not in printed]


class Answers(unittest.TestCase):
    """Look for rows of the page that no answer needs. `run` validates each answer."""

    batch = BATCH
    takes_seconds = 8
    # The places of the rows that an answer has, and of those that are null in an answer.
    printed: set[str]
    null: set[str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.printed, cls.null = set(), set()

        def on_field(place: str, value: Any) -> None:
            cls.printed.add(place)
            if value is None:
                cls.null.add(place)

        for result in (*answers(), *(outcome.object for outcome in error_answers())):
            for mode in [result["mode"]] if result["mode"] else ALL_MODES:
                Validator(schema_with_places(mode), on_field).errors(result)

    def test_every_row_of_the_page_is_in_an_answer(self) -> None:
        advice = "remove the row, or add an answer with the field to tests/answers.py"
        self.assertEqual(rows_without_answer(self.printed), [], advice)

    def test_row_that_no_answer_has_is_found(self) -> None:
        row = "FIELDS.md, findings[].hideable_ps of bottleneck"
        self.assertEqual(
            rows_without_answer(self.printed - {row}), [f"no answer has the field: {row}"]
        )

    def test_every_nullable_field_is_null_in_some_answer(self) -> None:
        nullable = {
            place(name, row) for name, row in rows()
            if "null" in OR.split(row.type.removesuffix(OPTIONAL))
        }  # fmt: skip
        advice = "remove `or null` from the row, or add an answer with null to tests/answers.py"
        self.assertEqual(sorted(nullable - self.null), [], advice)

    def test_every_example_occurs_in_an_answer_for_the_demo(self) -> None:
        examples = {
            place(name, row): found[1]
            for name, row in rows()
            if (found := EXAMPLE.search(row.meaning))
        }
        met = set()

        def on_field(place: str, value: Any) -> None:
            example = examples.get(place)
            if example and value is not None and is_excerpt(parsed(example, value), value):
                met.add(place)

        of_demo = [
            demo(mode, *(["--include-data-move", "--include-comm"] if mode == "by_source" else []))
            for mode in set(ALL_MODES) - {"compare", "page", "export"}
        ]
        of_demo.append(run(AFTER, "compare", "--baseline", str(BEFORE)).object)
        for result in of_demo:
            Validator(schema_with_places(result["mode"]), on_field).errors(result)
        advice = "write an example that occurs in an answer for the demo"
        self.assertEqual(sorted(examples.keys() - met), [], advice)
        self.assertGreater(len(examples), 30)


def parsed(example: str, value: Any) -> Any:
    """Parse an example as JSON; strings may lack quotes."""
    return example if isinstance(value, str) and example[0] != '"' else parse_excerpt(example)


class Validation(unittest.TestCase):
    """`run` validates the answers of all tests; here are other answers, and wrong ones."""

    takes_seconds = 10

    def test_answers_for_real_captures_are_valid(self) -> None:
        paths = [*PROFILES.glob("*.pb"), *SAMPLES.glob("[!R]*")]
        if not paths:
            self.skipTest("the captures are not here")
        cases = [(path, mode) for path in sorted(paths) for mode in ALL_MODES]
        with tempfile.TemporaryDirectory() as folder:
            for path, mode in sampled(cases, 6):
                needed = {"compare": ["--baseline", str(BEFORE)]}
                needed |= {mode: ["--out", f"{folder}/{mode}"] for mode in ("page", "export")}
                with self.subTest(path=path.name, mode=mode):
                    run(path, mode, *needed.get(mode, []))

    def test_random_records_and_anatomies_are_valid(self) -> None:
        for mode, make in (("record", random_record_case), ("anatomy", random_anatomy_case)):
            for seed in sampled(range(60), 6):
                data, options = make(random.Random(seed))
                with self.subTest(seed=seed, mode=mode):
                    run(data, mode, *command_line(options))

    def assert_wrong(self, result: Json, fault: str) -> None:
        with self.assertRaises(AssertionError) as found:
            assert_declared(result)
        self.assertEqual(str(found.exception), fault)

    def test_wrong_answers_are_found(self) -> None:
        right = demo("bottleneck")
        finding = right["findings"][0]
        without = {name: value for name, value in finding.items() if name != "lost_ps"}
        where = "bottleneck.findings[0]"
        for wrong, fault in (
            (without, f"{where}.lost_ps is missing"),
            (finding | {"lost_ps": "1"}, f"{where}.lost_ps is '1', not integer or null"),
            (finding | {"n_executions": 1.0}, f"{where}.n_executions is 1.0, not integer"),
            (finding | {"n_executions": True}, f"{where}.n_executions is True, not integer"),
            (finding | {"n_executions": -1}, f"{where}.n_executions is -1, less than 0"),
            (finding | {"waits_for": {"x": None}}, f"{where}.waits_for.x is None, not integer"),
            (finding | {"new": 1}, f"{where}.new is not declared on FIELDS.md"),
            (
                finding | {"source_is": "guessed"},
                f"{where}.source_is is 'guessed', not one of 'own', 'inside', 'producer',"
                " 'consumer', 'likely', 'doubtful', None",
            ),
        ):
            with self.subTest(fault):
                self.assert_wrong(right | {"findings": [wrong, *right["findings"][1:]]}, fault)
        self.assert_wrong(right | {"totals": None}, "bottleneck.totals is None, not object")


class Declarations(unittest.TestCase):
    def test_page_is_not_larger_than_its_budget(self) -> None:
        n_fields, n_bytes = sum(row.path != "." for _, row in rows()), len(FIELDS.encode())
        advice = (
            f"FIELDS.md has {n_fields} fields, at most {MOST_FIELDS}, and {n_bytes} bytes, at most"
            f" {MOST_BYTES}: remove fields that say little"
        )
        self.assertLessEqual(n_fields, MOST_FIELDS, advice)
        self.assertLessEqual(n_bytes, MOST_BYTES, advice)

    def test_every_row_has_a_meaning(self) -> None:
        for name, row in rows():
            with self.subTest(place(name, row)):
                self.assertRegex(row.meaning, r"\A[^ ].*[.`]\Z")

    def test_declared_reasons_and_version_match_the_program(self) -> None:
        declared = {(name, row.path): row.type for name, row in rows()}
        reasons = re.findall("`(.*?)`", declared["Absent", "reason"])
        self.assertEqual(sorted(reasons), sorted(no_answer.EXIT_STATUS))
        for name in ("Answer", "Absent"):
            self.assertEqual(declared[name, "schema_version"], f"`{SCHEMA_VERSION}`")

    def test_every_object_has_a_mode_or_is_named_in_a_type(self) -> None:
        declared = DeclaredFields(FIELDS)
        named = " ".join([row.type for _, row in rows()] + [*declared.types.values()])
        for name in {name for name, _ in rows()} - {*ALL_MODES}:
            if not name.startswith("Absent"):
                self.assertRegex(named, rf"\b{name}\b")


class CommandLine(unittest.TestCase):
    def outcome(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(SCRIPT), *words], capture_output=True, text=True, check=False
        )

    def test_schema_is_printed_without_a_profile(self) -> None:
        done = self.outcome("--schema", "idle")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(json.loads(done.stdout), schema_of("idle"))

    def test_schema_of_an_unknown_mode_is_an_error_with_the_known_modes(self) -> None:
        done = self.outcome("--schema", "none")
        result = json.loads(done.stdout)
        self.assertEqual((done.returncode, result["reason"]), (2, "bad_arguments"))
        self.assertIn(", ".join(ALL_MODES), result["detail"])
