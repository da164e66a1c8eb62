"""Validate answers against the schemas of `--schema`."""

from __future__ import annotations

import copy
import functools
import json
import random
import re
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _output.schema import OPTIONAL, OR, Page, Row, fields_page, schema_of
from _pipeline import no_answer
from _pipeline.context import SCHEMA_VERSION
from tests.answers import BATCH, answers, demo, error_answers
from tests.builders.random_xspace import command_line, random_case, random_record_case
from tests.excerpts import is_excerpt, parse_excerpt
from tests.harness import AFTER, ALL_MODES, BEFORE, PROFILES, ROOT, SCRIPT, run, sampled
from tests.json_schema import Validator

Json = dict[str, Any]
SAMPLES = ROOT.parent / "shared" / "samples"
EXAMPLE = re.compile(r"Example: `(.*)`\Z")


@functools.cache
def schema(mode: str) -> Json:
    return schema_of(mode)


def random_anatomy_case(rng: random.Random) -> tuple[bytes, Json]:
    """Return a random trace, and random options for the mode `anatomy`."""
    options: Json = {"plane": "0", "sample": 3}
    return random_case(rng)[0], rng.choice(({}, options, {"plane": "/host:CPU"}))


def errors(mode: str, result: Json) -> list[str]:
    return Validator(schema(mode)).errors(result)


def rows() -> Iterator[tuple[str, Row]]:
    """Yield the rows of the page, each with the name of its object."""
    for name, fields in Page(fields_page()).objects.items():
        for row in fields.values():
            yield name, row


def place(name: str, row: Row) -> str:
    return f"FIELDS.md, {row.path} of {name}"


def page_with_places() -> str:
    """Return the page with the place of each row instead of its meaning, so that a schema's
    descriptions tell which row declares a field."""
    lines, name = [], ""
    for line in fields_page().splitlines():
        if line.startswith("#"):
            name = line.lstrip("# ")
        match = re.match(r"\| `([\w.\[\]]+)` \| ([^|]+) \| ", line)
        lines.append(f"{match[0]}{place(name, Row(match[1], '', ''))} |" if match else line)
    return "\n".join(lines)


@functools.cache
def schema_with_places(mode: str) -> Json:
    return schema_of(mode, page_with_places())


class Answers(unittest.TestCase):
    """Validate answers of every mode, with every option that affects them, and every error
    answer."""

    batch = BATCH
    takes_seconds = 8
    errors: list[str]
    # The places of the rows that an answer has, and of those that are null in an answer.
    printed: set[str]
    null: set[str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.errors, cls.printed, cls.null = [], set(), set()
        for result in answers():
            cls.errors += cls.check(result["mode"], result)
        for outcome in error_answers():
            asked = outcome.object["mode"]
            for mode in [asked] if asked else ALL_MODES:
                cls.errors += cls.check(mode, outcome.object)

    @classmethod
    def check(cls, mode: str, result: Json) -> list[str]:
        def on_field(place: str, value: Any) -> None:
            cls.printed.add(place)
            if value is None:
                cls.null.add(place)

        schema = schema_with_places(mode)
        return [f"{mode}{error}" for error in Validator(schema, on_field).errors(result)]

    def test_every_answer_and_error_answer_is_valid(self) -> None:
        self.assertEqual(self.errors, [])

    def test_every_row_of_the_page_is_in_an_answer(self) -> None:
        declared = {place(name, row) for name, row in rows() if row.path != "."}
        self.assertEqual(sorted(declared - self.printed), [])

    def test_every_nullable_field_is_null_in_some_answer(self) -> None:
        nullable = {
            place(name, row) for name, row in rows()
            if "null" in OR.split(row.type.removesuffix(OPTIONAL))
        }  # fmt: skip
        self.assertEqual(sorted(nullable - self.null), [])

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
        self.assertEqual(sorted(examples.keys() - met), [])
        self.assertGreater(len(examples), 30)


def parsed(example: str, value: Any) -> Any:
    """Parse an example as JSON; strings may lack quotes."""
    return example if isinstance(value, str) and example[0] != '"' else parse_excerpt(example)


class Captures(unittest.TestCase):
    takes_seconds = 10

    def assert_valid(self, mode: str, result: Json) -> None:
        self.assertEqual(errors(mode, result)[:5], [])

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
                    self.assert_valid(mode, run(path, mode, *needed.get(mode, [])).object)

    def test_answers_for_random_traces_are_valid(self) -> None:
        for seed in sampled(range(300), 25):
            data, mode, options = random_case(random.Random(seed))
            with self.subTest(seed=seed, mode=mode):
                self.assert_valid(mode, run(data, mode, *command_line(options)).object)

    def test_random_records_and_anatomies_are_valid(self) -> None:
        for mode, make in (("record", random_record_case), ("anatomy", random_anatomy_case)):
            for seed in sampled(range(60), 6):
                data, options = make(random.Random(seed))
                with self.subTest(seed=seed, mode=mode):
                    self.assert_valid(mode, run(data, mode, *command_line(options)).object)


class Mutations(unittest.TestCase):
    batch = BATCH

    def result(self) -> Json:
        return copy.deepcopy(demo("bottleneck"))

    def test_answer_without_a_field_is_invalid(self) -> None:
        for name in self.result():
            result = self.result()
            del result[name]
            self.assertTrue(errors("bottleneck", result), name)
        result = self.result()
        del result["findings"][0]["lost_ps"]
        self.assertTrue(errors("bottleneck", result))

    def test_answer_with_an_undeclared_field_is_invalid(self) -> None:
        self.assertTrue(errors("bottleneck", self.result() | {"new": 1}))
        result = self.result()
        result["findings"][0]["new"] = 1
        self.assertTrue(errors("bottleneck", result))

    def test_field_with_a_wrong_type_is_invalid(self) -> None:
        # No field of this mode is a list of lists.
        for name in self.result():
            self.assertTrue(errors("bottleneck", self.result() | {name: [[]]}), name)
        changes: list[tuple[str, Any]] = [
            *(("step_duration_ps", value) for value in (1.5, True, None, "1")),
            *(("device", 1), ("findings", {}), ("mfu", "x"), ("totals", None)),
        ]
        for name, value in changes:
            self.assertTrue(errors("bottleneck", self.result() | {name: value}), name)

    def test_values_outside_a_vocabulary_or_below_the_minimum_are_invalid(self) -> None:
        for name, value in (("clock", "sundial"), ("mode", "summary"), ("schema_version", "2.0")):
            self.assertTrue(errors("bottleneck", self.result() | {name: value}), name)
        result = self.result()
        result["capture"]["n_steps"] = -1
        self.assertTrue(errors("bottleneck", result))
        result = self.result()
        result["findings"][1]["waits_for"]["all-to-all"] = "long"
        self.assertTrue(errors("bottleneck", result))

    def test_unknown_schema_keyword_is_an_error(self) -> None:
        with self.assertRaises(ValueError):
            Validator({"pattern": "x"}).errors("x")


class Declarations(unittest.TestCase):
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
        declared = Page(fields_page())
        named = " ".join([row.type for _, row in rows()] + [*declared.types.values()])
        for name in {name for name, _ in rows()} - {*ALL_MODES}:
            if not name.startswith("Absent"):
                self.assertRegex(named, rf"\b{name}\b")

    def test_type_that_the_page_does_not_define_is_an_error(self) -> None:
        page = fields_page().replace("| `chip` | text |", "| `chip` | texts |")
        with self.assertRaisesRegex(ValueError, "FIELDS.md, chip of Chip: no type .* 'texts'"):
            schema_of("bottleneck", page)

    def test_records_without_a_schema_version_are_accepted(self) -> None:
        record = demo("record")
        old = {name: value for name, value in record.items() if name != "schema_version"}
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder, name) for name in ("old.json", "new.json")]
            for path, content in zip(paths, (old, record), strict=True):
                path.write_text(json.dumps(content))
            result = run(paths[1], "compare", "--baseline", str(paths[0])).object
            self.assertEqual((result["status"], result["same_program"]), ("ok", True))
            self.assertEqual(run(paths[0], "spread").object["status"], "ok")


class CommandLine(unittest.TestCase):
    def outcome(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(SCRIPT), *words], capture_output=True, text=True, check=False
        )

    def test_schema_is_printed_without_a_profile(self) -> None:
        done = self.outcome("--schema", "idle")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(json.loads(done.stdout), schema("idle"))

    def test_schema_of_an_unknown_mode_is_an_error_with_the_known_modes(self) -> None:
        done = self.outcome("--schema", "none")
        result = json.loads(done.stdout)
        self.assertEqual((done.returncode, result["reason"]), (2, "bad_arguments"))
        self.assertIn(", ".join(ALL_MODES), result["detail"])


if __name__ == "__main__":
    unittest.main()
