"""Test `compare` with several captures before and after, its periods, and its gate."""

from __future__ import annotations

import itertools
import json
import math
import random
import unittest
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from _breakdown.modes import mode_named
from _breakdown.output.lead import with_lead
from tests.builders import records
from tests.builders.compared import compare, compare_captures, mean
from tests.builders.records import Json, Program
from tests.builders.xspace import Space, encode, op, tpu_plane
from tests.harness import DEMO, InFolder, answer, as_process, run
from tests.shown import headline_of

PROGRAM: Program = [
    records.without_stack(number, what, duration)
    for number, (what, duration) in enumerate(
        {"copy": 40_000, "bitcast": 30_000, "copy-done": 20_000}.items()
    )
]


def capture(seed: int, n_steps: int = 3, *, factor: float = 1.0, pause: int | None = 5000) -> Json:
    """Return a record whose times are multiplied by `factor` and vary by 1 % between steps."""
    program = [
        records.without_stack(number, part.category, round(part.duration * factor))
        for number, part in enumerate(PROGRAM)
    ]
    made = records.record(program, n_steps, jitter=0.01, seed=seed)
    for step in made["steps"]:
        is_last = step["index"] == n_steps - 1
        if pause is not None:
            step["period_ps"] = None if is_last else step["duration_ps"] + pause
    return made


def runs_of_one_program(n: int, seed: int) -> list[Json]:
    """Return captures of the same code; runs differ by 3 %, and steps within a run by 1 %."""
    rng = random.Random(seed)
    return [capture(1000 * seed + i, factor=rng.gauss(1, 0.03)) for i in range(n)]


def p_value_of(before: Sequence[int], after: Sequence[int]) -> float:
    """Return the share of assignments whose means differ at least as much as the observed means."""
    samples, n = [*before, *after], len(before)

    def difference(chosen: Sequence[int]) -> Fraction:
        picked = sum(samples[i] for i in chosen)
        return abs(Fraction(picked, n) - Fraction(sum(samples) - picked, len(samples) - n))

    found = [difference(chosen) for chosen in itertools.combinations(range(len(samples)), n)]
    reached = sum(other >= found[0] for other in found)
    return round(reached / len(found), 6)


def durations_of(captured: Json) -> list[int]:
    return [step["duration_ps"] for step in captured["steps"]]


class SeveralCaptures(unittest.TestCase):
    def test_samples_are_the_rounded_means_of_captures(self) -> None:
        before, after = runs_of_one_program(4, 1), runs_of_one_program(5, 2)
        result = compare_captures(before, after)
        total = result["totals"]["step_duration"]
        for side, captures in (("before", before), ("after", after)):
            means = [mean(durations_of(captured)) for captured in captures]
            self.assertEqual(total[f"{side}_ps"], mean(means))
            self.assertEqual(total[f"{side}_range_ps"], [min(means), max(means)])
            self.assertEqual(result[side]["n_captures"], len(captures))
            n_steps = sum(len(captured["steps"]) for captured in captures)
            self.assertEqual(result[side]["n_steps"], n_steps)
            for row in result["rows"]:
                [key] = row[f"agg_keys_{side}"]
                per_capture = [mean_of_group(captured, key) for captured in captures]
                self.assertEqual(row[f"{side}_ps"], mean(per_capture))
        self.assertEqual(
            (
                result["noise"]["noise_unit"],
                result["noise"]["n_before"],
                result["noise"]["n_after"],
            ),
            ("capture", 4, 5),
        )

    def test_p_value_is_computed_over_all_assignments_of_captures(self) -> None:
        for sizes in ((4, 4), (3, 5), (2, 5), (1, 20)):
            for seed in range(4):
                before, after = (runs_of_one_program(n, 10 * seed + n) for n in sizes)
                # A single row needs no correction for multiple testing.
                for captured in (*before, *after):
                    captured["groups"] = captured["groups"][:1]
                    for step in captured["steps"]:
                        step["durs_ps"], step["ns"] = step["durs_ps"][:1], step["ns"][:1]
                result = compare_captures(before, after)
                self.assertIsNone(result["noise"]["why_not"])
                key = before[0]["groups"][0]["agg_key"]
                samples = [
                    [mean_of_group(captured, key) for captured in side] for side in (before, after)
                ]
                with self.subTest(sizes=sizes, seed=seed):
                    self.assertEqual(result["noise"]["noise_unit"], "capture")
                    # All assignments are examined if there are at most 5000.
                    if math.comb(sum(sizes), sizes[0]) <= 5000:
                        self.assertEqual(result["rows"][0]["p_value"], p_value_of(*samples))

    def test_too_few_captures_give_no_p_value(self) -> None:
        for sizes in ((1, 2), (2, 2), (3, 3), (2, 4), (1, 18)):
            before, after = (runs_of_one_program(n, n + i) for i, n in enumerate(sizes))
            result = compare_captures(before, after)
            with self.subTest(sizes=sizes):
                self.assertEqual(result["noise"]["why_not"], "too_few_captures")
                for figure in (*result["rows"], *result["totals"].values()):
                    self.assertEqual((figure["p_value"], figure["significant"]), (None, None))
                self.assertIn("captures are too few", str(result["notes"]))

    def test_group_counts_as_zero_in_a_capture_that_lacks_it(self) -> None:
        before = runs_of_one_program(4, 5)
        lacking = json.loads(json.dumps(before[0]))
        gone = lacking["groups"].pop()["agg_key"]
        for step in lacking["steps"]:
            step["durs_ps"].pop()
            step["ns"].pop()
        result = compare_captures(before, [*before[:3], lacking])
        [row] = [row for row in result["rows"] if row["agg_keys_before"] == [gone]]
        times = [mean_of_group(captured, gone) for captured in before[:3]]
        self.assertEqual(row["after_ps"], mean([*times, 0]))


def mean_of_group(captured: Json, agg_key: str) -> int:
    place = [group["agg_key"] for group in captured["groups"]].index(agg_key)
    return mean([step["durs_ps"][place] for step in captured["steps"]])


class Periods(unittest.TestCase):
    def test_period_is_tested_separately_from_other_totals(self) -> None:
        before, after = capture(1, 6), capture(1, 6, pause=9000)
        result = compare(before, after)
        period = result["totals"]["period"]
        sides = [
            [step["period_ps"] for step in captured["steps"][:-1]] for captured in (before, after)
        ]
        self.assertEqual([period["before_ps"], period["after_ps"]], list(map(mean, sides)))
        self.assertEqual(period["p_value"], p_value_of(*sides))
        self.assertEqual((period["delta_ps"], period["significant"]), (4000, True))
        # The steps did not become longer, only the pauses between them.
        self.assertEqual(result["totals"]["step_duration"]["delta_ps"], 0)

    def test_tokens_per_second_count_the_period_if_both_sides_have_one(self) -> None:
        for pause, times in ((10_000, (100_000, 210_000)), (None, (90_000, 200_000))):
            before, after = capture(0, pause=pause), capture(0, pause=pause)
            for of_side, duration in ((before, 90_000), (after, 200_000)):
                for step in of_side["steps"]:
                    step.update(duration_ps=duration)
                    if pause and step["period_ps"]:
                        step["period_ps"] = duration + pause
            found = compare_captures([before], [after], tokens=8)
            rates = [found[side]["tokens_per_s"] for side in ("before", "after")]
            self.assertEqual(rates, [round(8e12 / time, 3) for time in times])
        self.assertIsNone(compare(capture(0), capture(0))["before"]["tokens_per_s"])

    def test_utilization_is_that_of_bottleneck(self) -> None:
        expected = answer(DEMO, "bottleneck")["mfu_at_least"]
        self.assertGreater(expected, 0)
        found = answer(DEMO, "compare", "--baseline", str(DEMO))
        self.assertEqual(found["before"]["mfu_at_least"], expected)
        self.assertEqual(found["after"]["mfu_at_least"], expected)

    def test_period_in_a_record_ends_at_the_next_step_of_the_same_kind(self) -> None:
        ops = [op("fusion.1", "loop fusion", start, 10) for start in (0, 130, 300, 470)]
        for steps, periods in (
            ([("1", 0, 50), ("2", 130, 50), ("3", 300, 50), ("4", 470, 9)], [130, 170, 170, None]),
            ([("a", 0, 50), ("b", 130, 50), ("a", 300, 50), ("b", 470, 9)], [300, 340, None, None]),
        ):
            result = answer(encode(Space([tpu_plane(ops, steps)])), "record")
            self.assertEqual([step["period_ps"] for step in result["steps"]], periods)


def timed(n_steps: int, *, step: int, period: int, **parts: int) -> Json:
    """Return a record of equal steps. The sides of a comparison differ in the given parts."""
    made = capture(1, n_steps)
    made["groups"] = made["groups"][:2]
    for group, kind in zip(made["groups"], ("compute", "comm"), strict=True):
        group["kind"] = kind
    for row in made["steps"]:
        row["duration_ps"] = step
        row["busy_ps"] = step - parts.get("idle", 0)
        comm = parts.get("comm", 0)
        row["durs_ps"], row["ns"] = [row["busy_ps"] - comm, comm], [1, 1]
        row["period_ps"] = None if row["index"] == n_steps - 1 else period
    return made


class Headlines(unittest.TestCase):
    def headline(self, before: Json, after: Json, *, same_program: bool | None = True) -> str:
        result = compare(before, after)
        result["program_changes"]["same_program"] = same_program
        return headline_of(result)

    def test_equal_program_with_a_slower_step_names_the_part_that_differs(self) -> None:
        step = timed(6, step=80_000, period=81_000, idle=1000, comm=9000)
        for parts, named in (
            (
                {"comm": 16_000},
                "communication, which includes waiting for late devices, takes 7.00",
            ),
            ({"idle": 8000}, "idle time takes 7.00 ns longer"),
            ({}, "all lines take longer by about the same factor, as with a slow clock or chip."),
        ):
            more = {"idle": 1000, "comm": 9000, **parts}
            slower = timed(6, step=87_000, period=88_000, **more)
            found = self.headline(step, slower)
            with self.subTest(named):
                self.assertTrue(
                    found.startswith("The compiled program is the same. The step is 7.00 ns")
                )
                self.assertIn(f"the noise between steps: {named}", found)
                # The period changes only because the step does.
                self.assertNotIn("between steps is", found)
            self.assertNotIn(named, self.headline(step, slower, same_program=None))

    def test_changes_in_too_few_steps_are_no_certain_changes(self) -> None:
        sides = timed(3, step=80_000, period=81_000), timed(3, step=80_000, period=100_000)
        few = "which is 19.0 ns (23.5 %) longer, but too few steps were captured to exclude noise."
        self.assertIn(few, self.headline(*sides))

    def test_slower_step_of_an_equal_program_suggests_to_compare_devices(self) -> None:
        sides = timed(6, step=80_000, period=81_000), timed(6, step=87_000, period=88_000)
        for (before, after), same, words in (
            (sides, True, ["--mode spread"]),
            (sides, False, []),
            (sides[::-1], True, []),
        ):
            result = compare(before, after)
            result["program_changes"]["same_program"] = same
            led = with_lead(
                {**result, "status": "ok", "schema_version": ""},
                mode_named("compare").module,
                lambda words, _: " ".join(words),
            )
            self.assertEqual([step["command"] for step in led["next_steps"]], words)


class Gate(InFolder):
    def setUp(self) -> None:
        super().setUp()
        self.n_files = 0

    def file(self, captured: Json) -> Path:
        self.n_files += 1
        return self.write(f"{self.n_files}.json", json.dumps(captured).encode())

    def gate(self, before: Json, after: Json, limit: str) -> tuple[int, Any]:
        options = ("--baseline", str(self.file(before)), f"--fail-over={limit}")
        outcome = run(self.file(after), "compare", *options)
        gate = outcome.object["gate"]
        self.assertEqual(gate["passed"], outcome.status == 0)
        return outcome.status, gate["failed_by"]

    def test_gate_fails_if_the_step_is_slower_by_more_than_the_limit(self) -> None:
        before = capture(1, 4)
        slower, faster = capture(1, 4, factor=1.2), capture(1, 4, factor=0.8)
        self.assertEqual(self.gate(before, slower, "5"), (3, ["step_duration"]))
        self.assertEqual(self.gate(before, slower, "50"), (0, []))
        self.assertEqual(self.gate(before, faster, "0"), (0, []))
        self.assertEqual(self.gate(before, before, "0"), (0, []))

    def test_gate_fails_if_only_the_pauses_become_longer(self) -> None:
        before, after = capture(1, 6), capture(1, 6, pause=20000)
        self.assertEqual(self.gate(before, after, "5"), (3, ["period"]))

    def test_gate_passes_at_exactly_the_limit(self) -> None:
        before, after = capture(1, 4, pause=None), capture(1, 4, pause=None)
        for captured, duration in ((before, 100_000), (after, 100_300)):
            for step in captured["steps"]:
                step["duration_ps"] = duration
        self.assertEqual(self.gate(before, after, "0.3"), (0, []))
        self.assertEqual(self.gate(before, after, "0.299"), (3, ["step_duration"]))

    def test_limit_below_what_hosts_differ_by_is_noted(self) -> None:
        here = capture(1, 4)
        there = {**here, "host": "other"}
        for after, limit, n_notes in ((there, "1.2", 1), (there, "1.3", 0), (here, "1.2", 0)):
            options = ("--baseline", str(self.file(here)), "--fail-over", limit)
            notes = run(self.file(after), "compare", *options).object["notes"]
            found = [note for note in notes if note.startswith("the hosts differ")]
            self.assertEqual(len(found), n_notes, (after["host"], limit))

    def test_gate_exits_with_1_if_there_are_too_few_steps(self) -> None:
        self.assertEqual(self.gate(capture(1, 3), capture(2, 3, factor=2), "1"), (1, []))

    def test_gate_exits_with_1_if_there_is_no_answer(self) -> None:
        options = ("--baseline", str(self.file(capture(1, 4))))
        empty = self.folder / "empty"
        empty.mkdir()
        self.assertEqual(run(empty, "compare", *options).status, 0)
        outcome = run(empty, "compare", *options, "--fail-over", "1")
        self.assertEqual((outcome.status, outcome.object["reason"]), (1, "no_xplane_pb"))
        self.assertFalse(outcome.object["gate"]["passed"])

    def test_limit_must_be_finite_and_not_negative(self) -> None:
        path = str(self.file(capture(1, 4)))
        for limit in ("-1", "nan", "inf", "1e999", "x", ""):
            outcome = run(path, "compare", "--baseline", path, f"--fail-over={limit}")
            self.assertEqual((outcome.status, outcome.object["reason"]), (2, "bad_arguments"))

    def test_command_exits_with_3_if_the_gate_fails(self) -> None:
        before, slower = self.file(capture(1, 4)), self.file(capture(1, 4, factor=1.2))
        outcome = as_process(slower, "--mode", "compare", "--baseline", before, "--fail-over", "2")
        self.assertEqual(outcome.status, 3)
        self.assertIn("The gate fails: the step got slower by", outcome.object["headline"])


class CommandLine(InFolder):
    def test_profiles_may_precede_and_follow_the_options(self) -> None:
        paths = [
            str(self.write(f"{i}.json", json.dumps(captured).encode()))
            for i, captured in enumerate(runs_of_one_program(8, 4))
        ]
        baselines = [word for path in paths[:4] for word in ("--baseline", path)]
        result = answer(paths[4], "compare", paths[5], *baselines, paths[6], paths[7])
        self.assertEqual(result["noise"]["noise_unit"], "capture")
        self.assertEqual([result[side]["n_captures"] for side in ("before", "after")], [4, 4])

    def test_capture_that_is_given_twice_counts_once(self) -> None:
        [path] = [self.write("a.json", json.dumps(capture(1, 4)).encode())]
        link = self.folder / "b.json"
        link.symlink_to(path)
        result = answer(path, "compare", str(link), "--baseline", str(path))
        self.assertEqual(result["after"]["n_captures"], 1)
        self.assertEqual(result["noise"]["noise_unit"], "step")
        self.assertIn(f"{link} was passed twice and is used once", result["notes"])

    def test_modes_other_than_compare_and_spread_accept_only_one_profile(self) -> None:
        path = str(self.write("a.json", json.dumps(capture(1, 4)).encode()))
        outcome = run(path, "summary", path)
        self.assertEqual(outcome.object["reason"], "bad_arguments")
        self.assertIn("one PROFILE", outcome.object["detail"])

    def test_spread_takes_several_profiles_as_hosts_of_one_run(self) -> None:
        captures = {}
        for host in "ab":
            made = records.record(PROGRAM, 4, jitter=0.01, seed=ord(host), host=host)
            captures[host] = json.dumps(made).encode()
        for folder in ("one", "two"):
            for host in captures if folder == "one" else "a":
                self.write(f"{folder}/{host}.json", captures[host])
        self.write("three/b.json", captures["b"])
        together = answer(self.folder / "one", "spread")
        apart = answer(self.folder / "two", "spread", str(self.folder / "three"))
        self.assertEqual(apart["cohorts"], together["cohorts"])
        self.assertEqual((apart["n_hosts"], apart["n_devices"]), (2, 2))
        outcome = run(self.folder / "two", "spread", str(self.folder / "one" / "a.json"))
        self.assertEqual(outcome.object["reason"], "duplicate_host")
