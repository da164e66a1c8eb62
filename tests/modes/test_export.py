"""Test the mode `export`: its tables, agreement with other modes, and writing the file."""

from __future__ import annotations

import errno
import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

from _breakdown.modes.export import TABLES
from tests.builders import host_threads
from tests.builders.hostile import HOSTILE, hostile_trace
from tests.builders.random_xspace import PIPELINE_OPTIONS, command_line, random_case, random_options
from tests.builders.xspace import memory_access_breakdown, op, trace
from tests.harness import DEMO, FULL, InFolder, Json, answer, run, sampled
from tests.modes.small_steps import BF16, PEAKS, STEP, leaf, small_capture
from tests.pages import FIELDS, GUIDE, blocks

Rows = list[tuple[Any, ...]]

SMALL = trace([leaf(0, 5)], STEP)


# Columns of `ops` and the fields of `by_op` with which they agree. `by_op` merges ops of the same
# name: it sums the SUMMED fields and takes the SAME fields from the first op.
SUMMED = {
    "n_executions": "n_executions",
    "dur_ps": "total_dur_ps",
    "at_roof_ps": "at_roof_ps",
    "lost_ps": "lost_ps",
}
SAME = {
    "category": "hlo_category",
    "kind": "kind",
    "class": "class",
    "phase": "phase",
    "scope": "scope",
    "source_inner": "source_inner",
    "source_user": "source_user",
    "dtype": "dtype",
    "flops": "flops",
    "bytes": "bytes_accessed",
    "hbm_bytes": "hbm_bytes",
}


class Exports(InFolder):
    """Export profiles and query the database."""

    def export(self, profile: str | Path | bytes, *options: str) -> Json:
        """Export a profile, open the database, and return the printed answer."""
        path = self.folder / "step.db"
        result = answer(profile, "export", "--out", str(path), *options)
        self.database = sqlite3.connect(path)
        self.addCleanup(self.database.close)
        return result

    def rows(self, query: str) -> Rows:
        return self.database.execute(query).fetchall()

    def columns(self, table: str) -> list[Json]:
        """Return the rows of a table as dictionaries by column name."""
        with closing(self.database.execute(f"SELECT * FROM {table}")) as cursor:
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]


class Tables(Exports):
    def test_row_of_an_op_has_the_cost_of_one_execution_and_the_time_of_all(self) -> None:
        facts: Json = {
            "shape": BF16,
            "stack": "m.py:1:1\nlib/site-packages/jax/x.py:3:3",
            "source": "x.py:3",
            "tf_op": "jit(f)/jvp(layer)/mlp/mul:",
            "flops": 4,
            "bytes_accessed": 100,
            "memory_access_breakdown": memory_access_breakdown((1, 1, 0), (1, 2, 100)),
            "program_id": 2**64 - 1,
        }
        self.export(
            trace([leaf(10, 5, **facts), op("while", "while", 10, 50), leaf(20, 7, **facts)], STEP),
            *PEAKS,
        )
        (row,) = self.columns("ops")
        expected = {
            "op": 1,
            "name": "f.1",
            "program": "18446744073709551615",
            "category": "loop fusion",
            "kind": "compute",
            "class": "compute_bound",
            "phase": "forward",
            "scope": "layer/mlp",
            "source_inner": "lib/site-packages/jax/x.py:3",
            "source_user": "m.py:1",
            "agg_key": row["agg_key"],
            "stack": 1,
            "dtype": "bf16",
            "flops": 4,
            "bytes": 100,
            "hbm_bytes": 0,
            "n_executions": 2,
            "dur_ps": 12,
            # 8 flops at 2 flops per picosecond.
            "at_roof_ps": 4,
            "lost_ps": 8,
            "text": f"%f.1 = {BF16} fusion({BF16} %operand.1)",
        }
        self.assertEqual(list(row.items()), list(expected.items()))
        self.assertRegex(row["agg_key"], r"\Astack:[0-9a-f]{16}\Z")
        self.assertEqual(
            self.rows("SELECT * FROM frames"),
            [(1, 0, "m.py:1:1"), (1, 1, "lib/site-packages/jax/x.py:3:3")],
        )

    def test_unknown_values_are_null(self) -> None:
        target = ', custom_call_target="tpu_custom_call"'
        self.export(trace([op("k.1", "custom-call", 0, 9, attributes=target, flops=0)], STEP))
        (row,) = self.columns("ops")
        nulls = {name for name, value in row.items() if value is None}
        self.assertEqual(
            nulls,
            {
                *("program", "scope", "source_inner", "source_user", "stack"),
                *("flops", "bytes", "hbm_bytes", "at_roof_ps", "lost_ps"),
            },
        )
        self.assertEqual((row["class"], row["phase"]), ("kernel", "unknown"))
        self.assertEqual(self.rows("SELECT * FROM frames"), [])

    def test_executions_exclude_containers_and_keep_the_order_of_the_file(self) -> None:
        ops = [
            op("while", "while", 0, 90),
            leaf(0, 5, "a"),
            leaf(10, 0, "b"),
            leaf(20, 7, "a"),
            op("call", "call", 30, 60),
            leaf(30, 1, "c"),
        ]
        result = self.export(trace(ops, STEP))
        self.assertEqual(
            self.rows("SELECT name, start_ps, e.dur_ps FROM executions AS e JOIN ops USING (op)"),
            [("a", 0, 5), ("b", 10, 0), ("a", 20, 7), ("c", 30, 1)],
        )
        self.assertEqual(
            result["n_rows"],
            {
                "ops": 3,
                "executions": 4,
                "frames": 0,
                "gaps": 4,
                "arrays": 0,
                "accesses": 0,
                "steps": 1,
                "host_events": 0,
                "answer": 20,
            },
        )

    def test_events_of_the_host_are_those_of_the_period(self) -> None:
        self.export(host_threads.waiting_for_a_loader(), "--step", "1")
        events = self.rows("SELECT * FROM host_events WHERE name LIKE '%load%' ORDER BY start_ps")
        us, load = host_threads.US, "$loader.py:7 load"
        self.assertEqual(events, [("loader", 160_000 * us, 39_680 * us, load)])
        (names,) = self.rows("SELECT count(DISTINCT thread) FROM host_events")
        self.assertEqual(names, (2,))

    def test_all_steps_are_listed_and_the_picked_step_is_marked(self) -> None:
        data = trace([leaf(5, 5), leaf(20, 5), leaf(30, 5)], [("a", 0, 15), ("b", 15, 40)])
        self.export(data)
        steps: Rows = [(0, "a", 0, 15, 1, 0), (1, "b", 15, 40, 2, 1)]
        self.assertEqual(self.rows("SELECT * FROM steps"), steps)
        self.export(data, "--step", "all")
        self.assertEqual(self.rows("SELECT * FROM steps"), [(*step[:-1], 0) for step in steps])
        self.assertEqual(self.rows("SELECT count(*) FROM executions"), [(3,)])

    def test_statements_that_create_the_database_are_documented(self) -> None:
        self.export(SMALL)
        statements = [sql for (sql,) in self.rows("SELECT sql FROM sqlite_master WHERE sql > ''")]
        self.assertEqual(len(statements), 9)
        self.assertEqual("".join(f"{sql};\n" for sql in statements), TABLES.partition(";\n")[2])
        self.assertIn(f"```sql\n{TABLES}```\n", FIELDS)


class Sums(Exports):
    def assert_sums_equal_figures_of_modes(self, profile: Path | bytes, given: Json) -> None:
        options = command_line(given)
        result = self.export(profile, *options)
        totals = result["totals"]
        query = "SELECT count(*), total(e.dur_ps) FROM executions AS e JOIN ops USING (op)"
        expected = totals["n_events_total"], totals["non_while_duration_ps_sum"]
        self.assertEqual(self.rows(query), [expected])
        for kind in ("compute", "data_move", "comm", "other"):
            expected = totals[f"n_events_{kind}"], totals[f"{kind}_duration_ps"]
            self.assertEqual(self.rows(f"{query} WHERE kind = '{kind}'"), [expected])
        self.assert_rows_equal_rows_of_by_op(answer(profile, "by_op", "--top=9999", *options))
        of_step = {name: value for name, value in given.items() if name in PIPELINE_OPTIONS}
        pipeline = command_line(of_step)
        idle = answer(profile, "idle", *pipeline)["idle_by_cause"]
        found = self.rows("SELECT cause, sum(dur_ps) FROM gaps GROUP BY cause")
        self.assertEqual(dict(found), {cause: time for cause, time in idle.items() if time})
        self.assertEqual(self.rows("SELECT count(*) FROM gaps WHERE dur_ps <= 0"), [(0,)])
        steps = answer(profile, "summary", *pipeline)["steps"]
        self.assertEqual(
            self.rows("SELECT idx, name, dur_ps, n_ops, picked FROM steps"),
            [(*list(step.values())[:4], int("picked" in step)) for step in steps],
        )
        groups = answer(profile, "by_source", "--include-comm", "--include-data-move", *pipeline)
        self.assertEqual(
            set(
                self.rows(
                    "SELECT agg_key, kind, sum(dur_ps) FROM ops WHERE kind <> 'other' GROUP BY 1, 2"
                )
            ),
            {(row["agg_key"], row["kind"], row["total_dur_ps"]) for row in groups["groups"]},
        )

    def assert_rows_equal_rows_of_by_op(self, result: Json) -> None:
        """Compare the ops with `by_op`, which merges ops that share a program and a name."""
        entries: dict[tuple[str | None, str], list[Json]] = {}
        for row in self.columns("ops"):
            entries.setdefault((row["program"], row["name"]), []).append(row)
            executions = self.database.execute(
                "SELECT count(*), sum(dur_ps) FROM executions WHERE op = ?", (row["op"],)
            ).fetchone()
            self.assertEqual(executions, (row["n_executions"], row["dur_ps"]))
        self.assertEqual(len(entries), len(result["ops"]))
        for expected in result["ops"]:
            rows = entries[expected["program_id"], expected["hlo_op"]]
            for column, field in SUMMED.items():
                values = [row[column] for row in rows]
                value = None if None in values else sum(values)
                self.assertEqual(value, expected[field], (column, expected))
            for column, field in SAME.items():
                self.assertEqual(rows[0][column], expected[field], (column, expected))

    def test_sums_equal_the_figures_of_other_modes(self) -> None:
        profile, kernel = (DEMO, "flash_attention") if FULL else (small_capture(), "flash")
        given = {"peak_tflops_fp32": 70, "kernel_cost": [f"{kernel}=5e9,2e9,bf16"]}
        self.assert_sums_equal_figures_of_modes(profile, given)

    def test_accesses_add_up_to_the_bytes_and_times_of_by_array(self) -> None:
        expected = answer(DEMO, "by_array")["totals"]
        self.export(DEMO)
        ((n_bytes, dur),) = self.rows(
            "SELECT sum(a.hbm_bytes * n_executions), sum(a.dur_ps) FROM accesses AS a JOIN ops"
            " USING (op)"
        )
        self.assertEqual((n_bytes, dur), (expected["hbm_bytes"], expected["bound_ps"]))

    def test_sums_for_random_traces_equal_the_figures_of_other_modes(self) -> None:
        n_compared = 0
        for seed in sampled(range(300), 8, 100):
            rng = random.Random(seed)
            data, _, _ = random_case(rng)
            options = random_options(rng, "export", data)
            words = command_line(options)
            with self.subTest(seed=seed):
                refused = run(data, "by_op", *words).object.get("reason")
                if refused is None:
                    n_compared += 1
                    self.assert_sums_equal_figures_of_modes(data, options)
                else:
                    out = self.folder / "none.db"
                    outcome = run(data, "export", f"--out={out}", *words)
                    self.assertEqual(outcome.object["reason"], refused)
                    self.assertFalse(out.exists())
        self.assertGreater(n_compared, 2)

    def test_queries_of_the_guide_return_the_rows_in_their_comments(self) -> None:
        """Run each query of the guide, and compare its rows with the comment after it."""
        self.export(DEMO)
        (block,) = (block for block in blocks(GUIDE) if block.language == "sql")
        queries = block.text.strip().split("\n\n")
        self.assertEqual(len(queries), 3)
        for query in queries:
            _, _, printed = query.partition(";\n")
            rows = [" | ".join(map(str, row)) for row in self.rows(query)]
            self.assertEqual(printed.splitlines(), [f"-- {row}" for row in rows], query)


class Names(Exports):
    def test_hostile_names_are_exported_unchanged(self) -> None:
        self.export(hostile_trace())
        names = {name for (name,) in self.rows("SELECT name FROM ops")}
        categories = {name for (name,) in self.rows("SELECT category FROM ops")}
        frames = {frame for (frame,) in self.rows("SELECT frame FROM frames")}
        scopes = {scope for (scope,) in self.rows("SELECT scope FROM ops")}
        texts = {text for (text,) in self.rows("SELECT text FROM ops")}
        for i, name in enumerate(HOSTILE):
            with self.subTest(name=name[:20]):
                self.assertIn(name, categories)
                self.assertTrue(any(text.startswith(f"%{name} = ") for text in texts))
                self.assertIn(f"{name}.py:{i}:1", frames)
        self.assertEqual(self.rows("SELECT name FROM steps"), [(HOSTILE[0],)])
        self.assertEqual(len(names), 3 * len(HOSTILE))
        self.assertTrue(any(scope and "document.title" in scope for scope in scopes))
        self.assertEqual(len(self.rows("SELECT * FROM sqlite_master WHERE type = 'table'")), 9)


class Writing(Exports):
    def assert_cant_write(self, out: Path | str, what: str) -> None:
        outcome = run(SMALL, "export", "--out", str(out))
        self.assertEqual(outcome.object["reason"], "cant_write")
        self.assertIn(str(out), outcome.object["detail"])
        self.assertIn(what, outcome.object["detail"])
        self.assertEqual(outcome.status, 1)

    def test_older_export_or_empty_file_is_replaced(self) -> None:
        out = self.write("step.db", b"")
        self.export(SMALL)
        self.export(trace([leaf(0, 5), leaf(5, 5, "g")], STEP))
        self.assertEqual(self.rows("SELECT count(*) FROM ops"), [(2,)])
        self.assertEqual(list(self.folder.iterdir()), [out])

    def test_files_other_than_exports_are_not_replaced(self) -> None:
        other = self.folder / "other.db"
        with closing(sqlite3.connect(other)) as database:
            database.execute("CREATE TABLE ops (op INTEGER)")
        text = self.write("notes.txt", b"the only copy")
        for path in (other, text, self.write("a", b"\0" * 68 + (1667392622).to_bytes(4, "big"))):
            before = path.read_bytes()
            self.assert_cant_write(path, "exists and is not an export")
            self.assertEqual(path.read_bytes(), before)
        self.assertEqual(len(list(self.folder.iterdir())), 3)

    def test_out_option_is_rejected_if_missing_or_dangerous(self) -> None:
        for options, detail in (
            ((), "--mode export requires --out FILE, for example --out step.db"),
            (("--out", "-"), "--out must be a file"),
            (("--out", "a.xplane.pb"), "would overwrite a trace; pass a name such as step.db"),
        ):
            outcome = run(SMALL, "export", *options)
            self.assertEqual(outcome.object["reason"], "bad_arguments")
            self.assertIn(detail, outcome.object["detail"])

    def test_failed_or_interrupted_write_keeps_the_old_export(self) -> None:
        self.export(SMALL)
        out = self.folder / "step.db"
        before = out.read_bytes()
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with mock.patch("os.replace", side_effect=full):
            self.assert_cant_write(out, os.strerror(errno.ENOSPC))
        with mock.patch("sqlite3.connect", side_effect=sqlite3.OperationalError("disk is full")):
            self.assert_cant_write(out, "disk is full")
        with (
            mock.patch("_breakdown.modes.export.frame_rows", side_effect=KeyboardInterrupt),
            self.assertRaises(KeyboardInterrupt),
        ):
            run(SMALL, "export", "--out", str(out))
        self.assertEqual(out.read_bytes(), before)
        self.assertEqual(list(self.folder.iterdir()), [out])
