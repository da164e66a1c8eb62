"""Test the cause `parameter_relayout`."""

from __future__ import annotations

import unittest
from dataclasses import replace

from tests.analysis.small_programs import Json, Program, causes
from tests.builders.hlo_proto import Op, Shape, op, tuple_of
from tests.builders.xspace import op as event

ROWS = Shape("f32", (512, 1024), minor_to_major=(1, 0))
COLUMNS = Shape("f32", (512, 1024), minor_to_major=(0, 1))


def found(main: list[Op], *ran: tuple[str, str], inner: Program | None = None) -> list[Json]:
    events = [event(name, category, 100 * i, 100) for i, (name, category) in enumerate(ran)]
    return causes({**(inner or {}), "main": main}, events)


def weight(shape: Shape = ROWS) -> Op:
    return op("w", "parameter", shape=shape, tf_op="weights['gate']")


class ParameterRelayout(unittest.TestCase):
    def test_copy_of_a_parameter_names_its_path(self) -> None:
        copy = op("copy.1", "copy", "w", shape=COLUMNS, line="model.py:3")
        used = op("used", "negate", "copy.1", shape=COLUMNS)
        # That only a part is read afterwards is no second cause.
        part = op("part", "slice", "copy.1", shape=Shape("f32", (64, 1024)))
        ran = ("copy.1", "data formatting"), ("part", "slice")
        self.assertEqual(len(found([weight(), copy, part], *ran)), 1)
        (row,) = found([weight(), copy, used], ("copy.1", "data formatting"))
        self.assertEqual((row["cause"], row["gain_ps"]), ("parameter_relayout", 100))
        self.assertEqual((row["source_user"], row["confidence"]), ("model.py:3", "seen"))
        self.assertIn("moves elements of parameters such as weights['gate'] to", row["says"])

    def test_copy_of_a_prefetched_parameter_is_found(self) -> None:
        in_vmem = replace(ROWS, memory_space=1)
        main = [
            weight(),
            op("fetch.1", "copy-start", "w", shape=tuple_of(in_vmem, ROWS)),
            op("fetched.1", "copy-done", "fetch.1", shape=in_vmem),
            op("copy.1", "copy", "fetched.1", shape=COLUMNS, line="model.py:3"),
            op("used", "negate", "copy.1", shape=COLUMNS),
        ]
        ran = ("fetched.1", "copy-done"), ("copy.1", "data formatting")
        (row,) = found(main, *ran)
        self.assertEqual((row["cause"], row["evidence"]["ops"]), ("parameter_relayout", ["copy.1"]))

    def test_copy_that_writes_a_result_is_found(self) -> None:
        main = [
            weight(),
            op("new", "negate", "w", shape=ROWS),
            op("copy.1", "copy", "new", shape=COLUMNS, line="model.py:3"),
        ]
        (row,) = found(main, ("copy.1", "data formatting"))
        self.assertIn("elements of results", row["says"])
        self.assertTrue(row["what_helps"].startswith("Return the array in the order in which"))

    def test_copy_of_a_result_is_in_the_row_of_its_parameter(self) -> None:
        main = [
            weight(),
            op("copy.1", "copy", "w", shape=COLUMNS, line="model.py:3"),
            op("new", "negate", "copy.1", shape=COLUMNS),
            op("copy.2", "copy", "new", shape=ROWS, line="model.py:7"),
        ]
        (row,) = found(main, ("copy.1", "data formatting"), ("copy.2", "data formatting"))
        self.assertEqual((row["gain_ps"], row["source_user"]), (200, "model.py:3"))
        for time, line, name in ((190, "model.py:3", "parameters"), (210, "model.py:7", "results")):
            times = {"copy.1": 100, "copy.2": time}
            copies = [event(each, "data formatting", dur, dur) for each, dur in times.items()]
            (row,) = causes({"main": main}, copies)
            self.assertEqual((row["gain_ps"], row["source_user"]), (100 + time, line))
            self.assertIn(f"elements of {name}", row["says"])

    def test_copy_inside_the_program_has_another_cause(self) -> None:
        main = [
            weight(),
            op("new", "negate", "w", shape=ROWS),
            op("copy.1", "copy", "new", shape=COLUMNS, line="model.py:3"),
            op("used", "negate", "copy.1", shape=COLUMNS),
        ]
        (row,) = found(main, ("copy.1", "data formatting"))
        self.assertEqual(row["cause"], "layout_change")
        main[-1] = op("part", "slice", "copy.1", shape=Shape("f32", (64, 1024)))
        (row,) = found(main, ("copy.1", "data formatting"), ("part", "slice"))
        self.assertEqual(row["cause"], "computed_then_dropped")
