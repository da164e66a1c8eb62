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
from typing import Any, get_args, is_typeddict

from _output import declared
from _output.fields import common, rows
from _output.fields_page import fields_page
from _output.schema import schema_of
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


def fields_in(mode: str) -> Iterator[tuple[str, str, Json]]:
    """Yield the type, name and schema of each field that a mode's answer can contain."""
    for name, of in schema(mode)["$defs"].items():
        for field, field_schema in of["properties"].items():
            yield name, field, field_schema


def can_be_null(field: Json) -> bool:
    return "null" in field.get("type", []) or {"type": "null"} in field.get("anyOf", [])


class Answers(unittest.TestCase):
    """Validate answers of every mode, with every option that affects them, and every error
    answer."""

    batch = BATCH
    takes_seconds = 8
    errors: list[str]
    # The type and name of each field that occurs in an answer.
    printed: set[tuple[str, str]]
    # The type and name of each field that is null in at least one answer.
    null: set[tuple[str, str]]

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
        def on_field(of: str, name: str, value: Any) -> None:
            cls.printed.add((place_of(mode, of), name))
            if value is None:
                cls.null.add((place_of(mode, of), name))

        return [f"{mode}{error}" for error in Validator(schema(mode), on_field).errors(result)]

    def test_every_answer_and_error_answer_is_valid(self) -> None:
        self.assertEqual(self.errors, [])

    def test_every_declared_field_is_printed(self) -> None:
        for mode in ALL_MODES:
            declared = {(place_of(mode, of), name) for of, name, _ in fields_in(mode)}
            self.assertEqual(sorted(declared - self.printed), [])

    def test_every_nullable_field_is_null_in_some_answer(self) -> None:
        for mode in ALL_MODES:
            nullable = {
                (place_of(mode, of), name) for of, name, field in fields_in(mode)
                if can_be_null(field)
            }  # fmt: skip
            self.assertEqual(sorted(nullable - self.null), [])

    def test_every_example_occurs_in_an_answer_for_the_demo(self) -> None:
        examples = {
            (of, name): found[1]
            for mode in ALL_MODES
            for of, name, field in fields_in(mode)
            if (found := EXAMPLE.search(field["description"]))
        }
        # If several types inherit a field, it is enough if the example occurs in one of them.
        met = set()

        def on_field(of: str, name: str, value: Any) -> None:
            example = examples.get((of, name))
            if example and value is not None and is_excerpt(parsed(example, value), value):
                met.add((name, example))

        of_demo = [
            demo(mode, *(["--include-data-move", "--include-comm"] if mode == "by_source" else []))
            for mode in set(ALL_MODES) - {"compare", "page", "export"}
        ]
        of_demo.append(run(AFTER, "compare", "--baseline", str(BEFORE)).object)
        for result in of_demo:
            Validator(schema(result["mode"]), on_field).errors(result)
        every = {(name, example) for (_, name), example in examples.items()}
        self.assertEqual(sorted(every - met), [])
        self.assertGreater(len(examples), 30)


def place_of(mode: str, of: str) -> str:
    """Return a type's name, made unique across modes."""
    same = {"Absent": "AbsentAnswer", "RooflinePeaks": "PeaksUsed"}
    return f"Answer of {mode}" if of == "Answer" else same.get(of, of)


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
    def test_every_field_is_documented(self) -> None:
        for mode in ALL_MODES:
            for of, name, field in fields_in(mode):
                with self.subTest(mode=mode, field=f"{of}.{name}"):
                    self.assertRegex(field["description"], r"\A[^ ].*[.`]\Z")
            for name, of in schema(mode)["$defs"].items():
                self.assertTrue(of["description"], name)

    def test_class_names_in_a_schema_are_unique(self) -> None:
        shared = {*vars(common), *vars(rows)}
        for mode in ALL_MODES:
            module = declared.answer_of(mode).__module__
            own = {
                name for name, value in vars(sys.modules[module]).items()
                if is_typeddict(value) and value.__module__ == module
            }  # fmt: skip
            self.assertEqual(own & shared, set())

    def test_declared_reasons_and_version_match_the_program(self) -> None:
        self.assertEqual({*get_args(common.Reason)}, {*no_answer.EXIT_STATUS})
        for mode in ALL_MODES:
            versions = [field["enum"] for _, name, field in fields_in(mode)
                        if name == "schema_version"]  # fmt: skip
            self.assertEqual(versions, [[SCHEMA_VERSION]] * 2)

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

    def test_fields_page_is_up_to_date(self) -> None:
        page = (ROOT / "FIELDS.md").read_text(encoding="utf-8")
        self.assertTrue(
            page == fields_page(),
            "FIELDS.md is stale: run `python -m _output.fields_page >FIELDS.md`",
        )


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
