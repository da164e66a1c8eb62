"""Test `--format csv` by parsing its rows with the `csv` module."""

from __future__ import annotations

import csv
import io
import json
import unittest
from typing import Any

from _breakdown.output.csv import lines_of
from tests.answers import BATCH, answers, demo, error_answers
from tests.harness import AFTER, BEFORE, LISTED_MODES, WITH_TEXT, Json, answer
from tests.shown import csv_of, main_of

MAIN_TABLES = {
    "bottleneck": "lines",
    "summary": "top_compute_groups",
    "by_source": "groups",
    "by_scope": "scopes",
    "by_op": "ops",
    "by_array": "arrays",
    "non_compute": "by_source_within_category",
    "roofline": "groups",
    "comm": "rows",
    "memory": "buffers",
    "idle": "gaps",
    "program": "collectives",
    "kernel": "kernels",
    "compare": "rows",
    "anatomy": "planes",
}


def read_back(text: str) -> tuple[list[str], list[list[str]]]:
    header, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    return header, rows


def value_of(field: str, expected: Any) -> Any:
    """Convert a CSV field to the type of the expected value."""
    if isinstance(expected, str):
        return field
    return json.loads(field) if field else None


class Tables(unittest.TestCase):
    batch = BATCH

    def assert_same(self, fields: Json, expected: list[Json]) -> None:
        header, rows = read_back(csv_of(fields))
        self.assertEqual(len(rows), len(expected))
        for row, values in zip(rows, expected, strict=True):
            found = {
                name: value_of(field, values.get(name))
                for name, field in zip(header, row, strict=True)
                if name in values or field
            }
            self.assertEqual(found, values)
        if expected:
            self.assertEqual([name for name in header if name in expected[0]], [*expected[0]])

    def test_csv_rows_equal_the_rows_in_the_json(self) -> None:
        for mode in WITH_TEXT:
            options = ["--baseline", str(BEFORE)] if mode == "compare" else []
            fields = answer(AFTER, mode, *options) if options else demo(mode)
            with self.subTest(mode=mode):
                if mode == "spread":
                    expected = [
                        {"program": cohort["program"], **device}
                        for cohort in fields["cohorts"]
                        for device in cohort["devices"]
                    ]
                else:
                    expected = fields[MAIN_TABLES[mode]]
                self.assertTrue(expected)
                self.assert_same(fields, expected)
        for fields in answers():
            if fields["mode"] in MAIN_TABLES:
                self.assert_same(fields, fields[MAIN_TABLES[fields["mode"]]])

    def test_csv_of_an_error_answer_contains_reason_and_detail(self) -> None:
        n = 0
        for outcome in error_answers():
            fields = outcome.object
            if fields["mode"] in WITH_TEXT:
                n += 1
                header, rows = read_back(csv_of(fields))
                self.assertEqual(header, ["reason", "detail"])
                self.assertEqual(rows, [[fields["reason"], fields.get("detail", "")]])
        self.assertGreater(n, 15)

    def test_all_modes_have_a_main_table(self) -> None:
        modes = {mode.name for mode in LISTED_MODES}
        without = modes - set(MAIN_TABLES) - {"spread"}
        self.assertLessEqual(without, {"record", "page", "export"})
        for mode in modes - without:
            self.assertEqual(main_of(mode), MAIN_TABLES.get(mode, "cohorts[].devices"))


class Fields(unittest.TestCase):
    def test_fields_are_quoted_only_if_necessary(self) -> None:
        rows: list[Json] = [
            {"a": "x,y", "b": 'say "x"', "c": "l\nm", "d": "a b'"},
            {"a": None, "b": True, "c": 0.1, "d": {"x": [1, None]}},
        ]
        self.assertEqual(
            lines_of(["a", "b", "c", "d"], rows, is_terminal=False),
            'a,b,c,d\n"x,y","say ""x""","l\nm",a b\'\n,true,0.1,"{""x"":[1,null]}"\n',
        )
