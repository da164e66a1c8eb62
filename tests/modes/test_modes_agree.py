"""Test that no two modes give different sums, roofs or lines for the same ops."""

from __future__ import annotations

import sys
import unittest
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.answers import BATCH
from tests.harness import DEMO, PROFILES, answer, sampled

Json = dict[str, Any]

ALL = f"--top={sys.maxsize}"
OPTIONS = {
    "bottleneck": (ALL, "--no-peers"),
    "summary": (ALL, "--include-comm"),
    "by_source": ("--include-comm", "--include-data-move"),
    "roofline": (),
    "by_op": (ALL,),
    "by_scope": ("--depth=all",),
    "non_compute": ("--include-comm",),
    "comm": (ALL,),
    "kernel": (ALL,),
}
JUDGED = ("compute_bound", "memory_bound")
LINE = ("source_inner", "source_user")
CORPUS = PROFILES.parent / "corpus"


def total(rows: Iterable[Json], name: str) -> int:
    return sum(row[name] or 0 for row in rows)


def sums(rows: Iterable[Json], key: Callable[[Json], Any], *names: str) -> dict[Any, list[int]]:
    """Return the sums of the named figures for each key."""
    found: dict[Any, list[int]] = {}
    for row in rows:
        of_key = found.setdefault(key(row), [0] * len(names))
        for i, name in enumerate(names):
            of_key[i] += row[name] or 0
    return found


def without_zeros(figures: dict[Any, list[int]]) -> dict[Any, list[int]]:
    return {key: values for key, values in figures.items() if any(values)}


class Agreement(unittest.TestCase):
    batch = BATCH

    def check(self, path: Path) -> None:
        of = {mode: answer(path, mode, *options) for mode, options in OPTIONS.items()}
        with self.subTest(path=path.name):
            self.check_classes(of)
            self.check_roofs(of)
            self.check_kinds(of)
            self.check_lines(of)
            self.check_communication(of)

    def check_classes(self, of: dict[str, Json]) -> None:
        """Check that `by_op` and the findings add up to the budget of `bottleneck`."""
        figures = ("dur_ps", "at_roof_ps", "lost_ps")
        bottleneck, ops = of["bottleneck"], of["by_op"]["ops"]
        budget = [row for row in bottleneck["budget"] if row["class"] not in ("idle", "overlap")]
        whole = without_zeros(sums(budget, lambda row: row["class"], *figures))
        by_op = sums(ops, lambda row: row["class"], "total_dur_ps", *figures[1:])
        self.assertEqual(without_zeros(by_op), whole)
        findings = sums(bottleneck["findings"], lambda row: row["class"], *figures)
        kernels = total(bottleneck["kernels_of_unknown_cost"], "dur_ps")
        if kernels:
            findings["kernel"] = [kernels, 0, 0]
        self.assertEqual(without_zeros(findings), whole)

    def check_roofs(self, of: dict[str, Json]) -> None:
        """Check that `roofline` has the roofs and the counts of `by_op` and `bottleneck`."""
        roofline, ops = of["roofline"], of["by_op"]["ops"]
        summary, skipped = roofline["step_summary"], roofline["skipped_groups"]
        budget = {row["class"]: row for row in of["bottleneck"]["budget"]}
        # The roofs of some opaque ops are unknown, so null counts as 0.
        per_op = [summary["t_roofline_per_op_ps"] or 0, summary["shortfall_per_op_ps"] or 0]
        self.assertEqual(
            per_op, [sum(budget[name][f] for name in JUDGED) for f in ("at_roof_ps", "lost_ps")]
        )
        unknown = sum(budget[name]["dur_ps"] for name in ("kernel", "unjudged"))
        self.assertEqual(summary["without_roof_ps"], unknown)
        n_skipped = sum(n for name, n in skipped.items() if name.startswith("n_"))
        if n_skipped == len(skipped["top_skipped"]):
            rows = [*roofline["groups"], *skipped["top_skipped"]]
            names = ("t_roofline_per_op_ps", "shortfall_per_op_ps")
            self.assertEqual([total(rows, name) for name in names], per_op)
        for row in of["kernel"]["kernels"]:
            same = [op for op in ops if op["kernel"] == row["kernel"] and op["kind"] == "compute"]
            if same and row["at_roof_ps"] is not None:
                for name in ("total_dur_ps", "at_roof_ps", "lost_ps"):
                    self.assertEqual(row[name], total(same, name), row["kernel"])
        peaks = roofline["peaks_used"]
        for mode in ("by_op", "kernel"):
            same_peaks = {name: peaks[name] for name in of[mode]["peaks_used"]}
            self.assertEqual(of[mode]["peaks_used"], same_peaks)

    def check_kinds(self, of: dict[str, Json]) -> None:
        """Check that all modes divide the step into the same kinds of work."""
        for mode in of:
            totals = of["by_op"]["totals"]
            shared = {name: value for name, value in of[mode]["totals"].items() if name in totals}
            self.assertEqual(shared, totals, mode)
        totals, rollup = of["by_op"]["totals"], of["summary"]["by_kind_rollup"]
        by_op = sums(of["by_op"]["ops"], lambda row: row["kind"], "total_dur_ps", "n_executions")
        for kind, row in rollup.items():
            self.assertEqual([row["dur_ps"], row["n"]], by_op.get(kind, [0, 0]), kind)
            self.assertEqual(row["dur_ps"], totals[f"{kind}_duration_ps"])
        categories = of["non_compute"]["by_category"]
        by_kind = sums(categories, lambda row: row["kind"], "total_dur_ps")
        for kind in ("data_move", "comm"):
            self.assertEqual(by_kind.get(kind, [0]), [rollup[kind]["dur_ps"]], kind)
        groups = sums(of["by_source"]["groups"], lambda row: row["kind"], "total_dur_ps")
        for kind in ("compute", "data_move", "comm"):
            self.assertEqual(groups.get(kind, [0]), [rollup[kind]["dur_ps"]], kind)
        scopes, without = of["by_scope"]["scopes"][0], of["by_scope"]["no_scope"]
        self.assertEqual(
            scopes["total_dur_ps"] + without["dur_ps"], totals["non_while_duration_ps_sum"]
        )

    def check_lines(self, of: dict[str, Json]) -> None:
        """Check that all modes give a group of ops the same line and the same time."""
        lines = {row["agg_key"]: [row[name] for name in LINE] for row in of["by_source"]["groups"]}
        skipped = of["roofline"]["skipped_groups"]["top_skipped"]
        tables = {
            "summary": of["summary"]["top_compute_groups"],
            "roofline": [*of["roofline"]["groups"], *skipped],
            "non_compute": of["non_compute"]["by_source_within_category"],
        }
        for mode, rows in tables.items():
            for row in rows:
                self.assertEqual([row[name] for name in LINE], lines[row["agg_key"]], mode)
        # Groups without a stack have `likely_sources` instead of a line.
        stacks = {
            row["agg_key"] for row in of["by_source"]["groups"] if row["agg_key_kind"] == "stack"
        }
        for row in (*of["bottleneck"]["findings"], *of["bottleneck"]["kernels_of_unknown_cost"]):
            if row["source_is"] == "own" and row["agg_key"] in stacks:
                self.assertEqual([row[name] for name in LINE], lines[row["agg_key"]])
        own = [row for row in of["by_op"]["ops"] if row["source_is"] in ("own", "doubtful")]
        found = sums(own, lambda row: row["source_inner"], "total_dur_ps", "n_executions")
        for line, whole in found.items():
            rows = [row for row in of["by_source"]["groups"] if row["source_inner"] == line]
            figures = [total(rows, "total_dur_ps"), total(rows, "n_executions")]
            # Ops of unknown kind are not listed in `by_source`.
            if line and not of["by_op"]["totals"]["n_events_other"]:
                # In `by_op`, an op without a stack has the line that the program states.
                self.assertLessEqual(figures, whole, line)
                if len(stacks) == len(lines):
                    self.assertEqual(figures, whole, line)
        groups = {
            row["agg_key"]: row["total_dur_ps"]
            for row in of["by_source"]["groups"]
            if row["kind"] == "compute"
        }
        parts = sums(tables["summary"], lambda row: (row["kind"], row["agg_key"]), "total_dur_ps")
        for (kind, key), (whole_time,) in parts.items():
            if kind == "compute":
                self.assertEqual(whole_time, groups[key], key)

    def check_communication(self, of: dict[str, Json]) -> None:
        """Check that exposed communication takes the same time in all modes."""
        totals = of["comm"]["totals"]
        names = ("sync_dur_ps", "wait_dur_ps")
        by_collective = totals["by_collective"].values()
        exposed = sum(total(by_collective, name) for name in names)
        self.assertEqual(exposed, totals["exposed_ps"] + totals["host_ps"])
        rollup = sums(of["summary"]["comm_rollup"], lambda row: row["waits_for"], *names)
        for waits_for in totals["by_collective"]:
            row = totals["by_collective"][waits_for]
            if waits_for in rollup:
                self.assertEqual(rollup[waits_for], [row[name] for name in names], waits_for)
        budget = {row["class"]: row["dur_ps"] for row in of["bottleneck"]["budget"]}
        ops = of["by_op"]["ops"]
        starts = [
            op["total_dur_ps"]
            for op in ops
            if op["class"] == "collective" and op["waits_for"] is None
        ]
        self.assertEqual(totals["exposed_ps"] + sum(starts), budget["collective"])

    def test_modes_agree_on_the_demo(self) -> None:
        self.check(DEMO)

    @unittest.skipUnless(PROFILES.exists(), "the captures aren't here")
    def test_modes_agree_on_captures(self) -> None:
        paths = [*sorted(PROFILES.glob("*.xplane.pb")), *sorted(CORPUS.glob("*.xplane.pb"))]
        for path in sampled(paths, 1):
            self.check(path)
