"""Real programs: what holds for every answer, step and device, and figures known beforehand."""

from __future__ import annotations

import functools
import gzip
import itertools
import json
import re
import tempfile
import unittest
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import compute_breakdown
from _analysis.report import answer_of
from _pipeline.context import Context, Request
from _pipeline.device import open_device
from _pipeline.event_iterate import read_events
from _pipeline.normalize import Step, normalize
from _pipeline.step_pick import StepChoice, pick_step
from _proto.trace import open_trace
from tests.harness import (
    DEMO,
    MODES,
    OFFLOADING,
    PALLAS,
    answer,
    command,
    context_of,
    function_of,
    sampled,
)

Json = dict[str, Any]
KINDS = ("compute", "data_move", "comm", "other")
MS = 10**9
BY_SOURCE_OPTIONS = {
    (): ("compute",),
    ("--include-data-move",): ("compute", "data_move"),
    ("--include-comm",): ("compute", "comm"),
    ("--include-data-move", "--include-comm"): ("compute", "data_move", "comm"),
}
NON_COMPUTE_OPTIONS = (
    (),
    ("--include-comm",),
    ("--no-comm-stalls",),
    ("--include-comm", "--no-comm-stalls"),
)
ROOFLINE_OPTIONS = (
    (),
    ("--peak-tflops-fp32", "70", "--chip", "v6e"),
    ("--bytes", "hbm", "--peak-tflops-fp32", "70"),
)
KERNEL_COST = ("--kernel-cost", "flash_attention=3.4e10,6.7e7")


def sum_of(rows: list[Json], field: str = "total_dur_ps") -> int:
    return sum(row[field] for row in rows)


Window = tuple[str, ...]


# Keeps the traces of the steps below open.
OPEN = ExitStack()


def tearDownModule() -> None:
    say.cache_clear()
    step_of.cache_clear()
    OPEN.close()


def request_of(profile: str, mode: str, *options: str) -> Request:
    return compute_breakdown.parse_command_line([profile, "--mode", mode, *options])


@functools.cache
def step_of(profile: str, window: Window) -> tuple[Step, list[str]]:
    """Return the step for all modes, read once, and the notes on it."""
    request = request_of(profile, MODES[0], *window)
    asked = request.mode_options
    choice = StepChoice(asked.get("step"), asked.get("step_id"))
    context = Context(request)
    (trace,) = OPEN.enter_context(open_trace(profile))
    device = open_device(profile, trace, request.device or "", [], context)
    picked = pick_step(device, choice, context)
    step = normalize(device, picked, read_events(device, picked), context)
    return step, context.notes


def mode_called(name: str) -> compute_breakdown.Mode:
    return next(mode for mode in compute_breakdown.MODES if mode.name == name)


@functools.cache
def say(profile: str, window: Window, mode: str, *options: str) -> Json:
    """Return what `answer` returns, but read the step only once."""
    step, notes = step_of(profile, window)
    request = request_of(profile, mode, *window, *options)
    of_mode = {k: v for k, v in request.mode_options.items() if k not in ("step", "step_id")}
    context = Context(request)
    context.notes += notes
    report = function_of(mode_called(mode))(step, context, **of_mode)
    said = answer_of(step, report, context)
    return cast("Json", json.loads(json.dumps(said, allow_nan=False)))


def in_each_window(
    test: Callable[[Any, Window, Json], None],
) -> Callable[[Base.Invariants], None]:
    """Run a test for every window of the profile, with the window and its totals."""

    @functools.wraps(test)
    def run_all(self: Base.Invariants) -> None:
        for window in sampled(self.windows, 2):
            with self.subTest(window=window):
                test(self, window, self.say(window, "summary")["totals"])

    return run_all


class Base:
    """Hides tests without a profile from the loader."""

    class Invariants(unittest.TestCase):
        """What holds for any trace."""

        profile: str
        windows: tuple[Window, ...]
        with_kernels = False

        def say(self, window: Window, mode: str, *options: str) -> Json:
            return say(self.profile, window, mode, *options)

        def test_shared_step_gives_the_answers_of_the_command(self) -> None:
            window = self.windows[-1]
            for mode in sampled(MODES, 6):
                with self.subTest(mode=mode):
                    said, expected = self.say(window, mode), answer(self.profile, mode, *window)
                    # The shared step does not know the files of the capture.
                    self.assertEqual({**said, "capture": None}, {**expected, "capture": None})

        @in_each_window
        def test_totals_are_equal_in_all_modes(self, window: Window, totals: Json) -> None:
            for mode in MODES:
                said = self.say(window, mode)["totals"]
                self.assertEqual({key: said[key] for key in totals}, totals)

        @in_each_window
        def test_totals_add_up(self, _: Window, totals: Json) -> None:
            for what, whole in (
                ("n_events_{}", "n_events_total"),
                ("{}_duration_ps", "non_while_duration_ps_sum"),
            ):
                parts = sum(totals[what.format(kind)] for kind in KINDS)
                self.assertEqual(parts, totals[whole])
            self.assertEqual(sum(totals["agg_key_coverage"].values()), totals["n_events_total"])
            self.assertLessEqual(totals["busy_duration_ps"], totals["non_while_duration_ps_sum"])

        @in_each_window
        def test_groups_by_source_add_up_to_their_kinds(self, window: Window, totals: Json) -> None:
            for options, kinds in BY_SOURCE_OPTIONS.items():
                said = self.say(window, "by_source", *options)
                by_kind: Counter[str] = Counter()
                for row in said["groups"]:
                    by_kind[row["kind"]] += row["total_dur_ps"]
                # A kind without ops has no group, and the sum is 0.
                expected = Counter({kind: totals[f"{kind}_duration_ps"] for kind in kinds})
                self.assertEqual(by_kind, expected)
                self.assertEqual(said["totals"]["n_groups_total"], len(said["groups"]))
                keys = [(row["agg_key"], row["kind"]) for row in said["groups"]]
                self.assertEqual(len(keys), len(set(keys)))

        @in_each_window
        def test_breakdown_and_overflow_add_up_to_the_group(self, window: Window, _: Json) -> None:
            rows = [
                *self.say(window, "by_source", "--include-data-move", "--include-comm")["groups"],
                *self.say(window, "summary", "--include-comm")["top_compute_groups"],
            ]
            for row in rows:
                parts = row["hlo_op_breakdown"] + [row["hlo_op_breakdown_overflow"] or {}]
                for field in ("total_dur_ps", "n_executions"):
                    self.assertEqual(sum(part.get(field, 0) for part in parts), row[field])
                for field in ("phases", "hlo_categories"):
                    whole = "total_dur_ps" if field == "phases" else "n_executions"
                    self.assertEqual(sum(row[field].values()), row[whole])

        @in_each_window
        def test_top_and_tail_add_up_to_the_ranked_kinds(
            self, window: Window, totals: Json
        ) -> None:
            for comm, top in itertools.product(((), ("--include-comm",)), ("0", "7")):
                said = self.say(window, "summary", *comm, "--top", top)
                ranked = totals["compute_duration_ps"] + totals["comm_duration_ps"] * len(comm)
                rows, tail = said["top_compute_groups"], said["tail_compute"]
                self.assertEqual(sum_of(rows) + tail["dur_ps"], ranked)
                order = [(-row["total_dur_ps"], row["agg_key"], row.get("kind")) for row in rows]
                self.assertEqual(order, sorted(order))
                self.assertEqual([row["rank"] for row in rows], list(range(1, 1 + len(rows))))

        @in_each_window
        def test_categories_and_rollups_add_up_to_their_kinds(
            self, window: Window, totals: Json
        ) -> None:
            said = self.say(window, "summary")
            for kind in KINDS:
                rows = [row for row in said["by_hlo_category"] if row["kind"] == kind]
                rollup = said["by_kind_rollup"][kind]
                for duration in (sum_of(rows), rollup["dur_ps"]):
                    self.assertEqual(duration, totals[f"{kind}_duration_ps"])
                for n in (sum_of(rows, "n_executions"), rollup["n"]):
                    self.assertEqual(n, totals[f"n_events_{kind}"])
            phases = said["by_phase_rollup"].values()
            self.assertEqual(sum(row["dur_ps"] for row in phases), totals["compute_duration_ps"])
            waits = sum_of(said["comm_rollup"], "wait_dur_ps")
            self.assertEqual(waits, totals["wait_duration_ps"])
            for step in said["steps"]:
                self.assertEqual("picked" in step, step["index"] == said["step_id"])

        @in_each_window
        def test_busy_and_idle_add_up_to_the_step(self, window: Window, totals: Json) -> None:
            said = self.say(window, "summary")
            start, end = said["step_window_ps"]
            self.assertEqual(end - start, said["step_duration_ps"])
            busy, idle = totals["busy_duration_ps"], totals["idle_duration_ps"]
            self.assertEqual(busy + idle, said["step_duration_ps"])
            self.assertLessEqual(totals["container_self_duration_ps"], idle)
            gaps = [(-gap["dur_ps"], gap["start_ps"]) for gap in said["idle_gaps"]]
            self.assertEqual(gaps, sorted(gaps))
            self.assertLessEqual(-sum(gap[0] for gap in gaps), idle)

        @in_each_window
        def test_both_tables_of_non_compute_add_up(self, window: Window, totals: Json) -> None:
            for options in NON_COMPUTE_OPTIONS:
                said = self.say(window, "non_compute", *options)
                for table in ("by_category", "by_source_within_category"):
                    total = said["totals"]["non_compute_duration_ps"]
                    self.assertEqual(sum_of(said[table]), total)
                if options == ("--no-comm-stalls",):
                    self.assertEqual(total, totals["data_move_duration_ps"])
                if options == ("--include-comm",):
                    moved = totals["data_move_duration_ps"] + totals["comm_duration_ps"]
                    self.assertEqual(total, moved)

        @in_each_window
        def test_communication_equals_the_rollup_and_the_budget(
            self, window: Window, totals: Json
        ) -> None:
            said = self.say(window, "comm", "--top", "3")
            summary = self.say(window, "summary")
            rollup = [
                row
                for row in summary["comm_rollup"]
                if row["waits_for"] not in ("sparse_core", "dma")
            ]
            for field in ("sync_dur_ps", "wait_dur_ps"):
                whole = sum_of(said["rows"], field) + said["tail"][field]
                self.assertEqual(whole, sum_of(rollup, field))
                by_collective = said["totals"]["by_collective"].values()
                self.assertEqual(whole, sum_of([*by_collective], field))
            exposed = said["totals"]["exposed_ps"] + said["totals"]["host_ps"]
            self.assertEqual(exposed, sum_of(rollup, "sync_dur_ps") + sum_of(rollup, "wait_dur_ps"))
            starts = sum(
                row["total_dur_ps"]
                for row in summary["by_hlo_category"]
                if row["kind"] == "comm" and row["hlo_category"].endswith(("-start", "-update"))
            )
            budget = {row["class"]: row for row in self.say(window, "bottleneck")["budget"]}
            classes = budget["collective"]["dur_ps"] + budget["host"]["dur_ps"]
            self.assertEqual(exposed + starts, classes)

        @in_each_window
        def test_rooflined_and_skipped_add_up_to_compute(
            self, window: Window, totals: Json
        ) -> None:
            whole = {row["agg_key"]: row for row in self.say(window, "by_source")["groups"]}
            for options in (*ROOFLINE_OPTIONS, *([KERNEL_COST] if self.with_kernels else [])):
                said = self.say(window, "roofline", *options)
                skipped, of_step = said["skipped_groups"], said["step_summary"]
                self.assertEqual(
                    of_step["rooflined_dur_ps"] + skipped["total_dur_ps_skipped"],
                    totals["compute_duration_ps"],
                )
                self.assertEqual(sum_of(said["groups"]), of_step["rooflined_dur_ps"])
                self.assertEqual(
                    sum_of(said["groups"], "shortfall_ps"), of_step["step_shortfall_ps"]
                )
                costed: Counter[str] = Counter()
                for row in said["groups"]:
                    if row["cost_source"] != "xla":
                        costed[row["agg_key"]] += row["total_dur_ps"]
                for row in said["groups"]:
                    if row["cost_source"] == "xla":
                        parts = row["total_dur_ps"] + row["opaque_dur_ps"] + costed[row["agg_key"]]
                        self.assertEqual(parts, whole[row["agg_key"]]["total_dur_ps"])
                    expected = row["total_dur_ps"] - row["t_roofline_theory_ps"]
                    self.assertEqual(row["shortfall_ps"], expected)


class Demo(Base.Invariants):
    """A dense transformer's training step as compiled for TPU7x."""

    takes_seconds = 8
    windows = tuple(
        ("--device", f"/device:TPU:{device}", "--step", str(step))
        for device in (0, 1)
        for step in (0, 1, 2)
    )
    with_kernels = True

    @classmethod
    def setUpClass(cls) -> None:
        # Unpacked once, because the tests read the file a hundred times.
        (zipped,) = DEMO.rglob("*.xplane.pb.gz")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path = Path(folder.name) / "demo.xplane.pb"
        path.write_bytes(gzip.decompress(zipped.read_bytes()))
        cls.profile = str(path)

    @in_each_window
    def test_every_category_is_known(self, _: Window, totals: Json) -> None:
        self.assertEqual(totals["unknown_categories"], {})
        self.assertEqual(totals["n_events_unresolved"], 0)
        self.assertEqual(totals["n_events_other"], 0)

    @in_each_window
    def test_leaves_are_disjoint_so_busy_is_their_sum(self, _: Window, totals: Json) -> None:
        self.assertEqual(totals["busy_duration_ps"], totals["non_while_duration_ps_sum"])

    def test_demo_has_three_steps_and_the_typical_is_picked(self) -> None:
        for device in (0, 1):
            said = self.say(("--device", f"/device:TPU:{device}"), "summary")
            self.assertEqual([step["name"] for step in said["steps"]], ["100", "101", "102"])
            self.assertEqual([step["n_xla_ops_events"] for step in said["steps"]], [1493] * 3)
            # The step of medium duration is picked.
            by_length = sorted(said["steps"], key=lambda step: step["duration_ps"])
            self.assertEqual((said["step_id"], by_length[1]["index"]), (1, 1))
            self.assertIn(
                "auto-picked busiest step (idx=1, n_xla_ops_events=1493 of 4479 in 3 steps;"
                " typical of 3 as busy)",
                said["notes"],
            )

    def test_local_transfers_are_data_movement(self) -> None:
        rows = self.say(self.windows[0], "by_source", "--include-data-move", "--include-comm")
        local = re.compile(r"%(slice|copy|gather_offload|scatter_offload|sparse-core)")
        kinds: dict[bool, set[str]] = {True: set(), False: set()}
        for row in rows["groups"]:
            for part in row["hlo_op_breakdown"]:
                if part["hlo_category"] in ("async-start", "async-done"):
                    kinds[bool(local.match(part["example_hlo_op"]))].add(row["kind"])
        self.assertEqual(kinds, {True: {"data_move"}, False: {"comm"}})

    @in_each_window
    def test_changes_are_unknown_only_where_nothing_can_be_compared(
        self, window: Window, _: Json
    ) -> None:
        rows = self.say(window, "non_compute", "--include-comm")["by_source_within_category"]
        for row in rows:
            starts = row["hlo_category"].endswith("-start")
            unknown = starts or not row["shapes_in"]
            self.assertEqual(row["dtype_change"] is None, unknown, row["example_hlo_op"])
            if not starts:
                self.assertEqual(not row["shapes_in"], row["hlo_category"] == "iota")
            if row["layout_change"] is None and not unknown:
                ranks = [
                    {shape.split("]")[0].count(",") for shape in row[side]}
                    for side in ("shapes_in", "shapes_out")
                ]
                self.assertNotEqual(ranks[0], ranks[1], row["example_hlo_op"])

    @in_each_window
    def test_tuple_shaped_fusions_have_a_dtype(self, window: Window, totals: Json) -> None:
        said = self.say(window, "roofline", "--peak-tflops-fp32", "70")
        opaque = sum(
            row["total_dur_ps"]
            for row in said["skipped_groups"]["top_skipped"]
            if row["reason"] == "opaque"
        )
        judged = said["step_summary"]["rooflined_dur_ps"]
        self.assertGreaterEqual(judged, 0.95 * (totals["compute_duration_ps"] - opaque))

    @in_each_window
    def test_kernels_are_half_of_compute_and_dilute_nothing(
        self, window: Window, totals: Json
    ) -> None:
        said = self.say(window, "roofline")
        opaque = [row for row in said["skipped_groups"]["top_skipped"] if row["reason"] == "opaque"]
        declared = [row for row in said["groups"] if row["cost_source"] == "declared"]
        share = sum_of(opaque + declared) / totals["compute_duration_ps"]
        self.assertEqual(round(share, 1), 0.5)
        for row in opaque[:1] + declared:
            self.assertTrue(row["source_inner"].endswith("flash_attention.py:199"))
        self.assertEqual(opaque[0]["top_signature"], "custom-call:tpu_custom_call")
        # Only the forward kernel declares its cost.
        self.assertEqual([row["kernel"] for row in declared], ["flash_attention"])
        for row in said["groups"]:
            self.assertEqual("custom-call" in row["hlo_categories"], row in declared)

    def test_most_exposed_communication_is_synchronous(self) -> None:
        rows = {
            row["waits_for"]: row for row in self.say(self.windows[0], "summary")["comm_rollup"]
        }
        collectives = [
            row for name, row in rows.items() if name not in ("host", "dma", "sparse_core")
        ]
        sync, wait = sum_of(collectives, "sync_dur_ps"), sum_of(collectives, "wait_dur_ps")
        self.assertGreaterEqual(sync, wait)
        self.assertEqual(rows["all-to-all"]["wait_dur_ps"], 0)
        self.assertEqual(rows["all-gather"]["sync_dur_ps"], 0)

    def test_answers_do_not_depend_on_hashes(self) -> None:
        # Hashes of strings differ between processes.
        for mode in sampled(("summary", "roofline"), 1):
            first, second = (command(DEMO, "--mode", mode) for _ in range(2))
            self.assertEqual(list(first.object.items()), list(second.object.items()))


@unittest.skipUnless(OFFLOADING.exists(), "the capture isn't here")
class Capture(Base.Invariants):
    """A real TPU v6e that offloads to its host: no steps, f32, and mostly waiting for copies.

    The trace's clock is bent: by it the same program lasts from 551 to 981 ms.
    """

    profile = str(OFFLOADING)
    devices = tuple(f"/device:TPU:{device}" for device in range(4))
    windows = tuple(
        ("--device", device, *step)
        for device, step in sampled(itertools.product(devices, ((), ("--step", "all"))), 2)
    )

    @functools.cached_property
    def executions(self) -> list[Step]:
        """Return every step of the first device."""
        with open_trace(self.profile) as (trace,):
            context = context_of(self.profile)
            device = open_device(self.profile, trace, self.devices[0], [], context)
            return [
                normalize(device, picked, read_events(device, picked), context)
                for picked in device.steps
            ]

    def totals_of_ops(self, device: str) -> dict[str, int]:
        """Return the time of each op over the whole capture, by name."""
        with open_trace(self.profile) as (trace,):
            context = context_of(self.profile)
            opened = open_device(self.profile, trace, device, [], context)
            step = normalize(opened, None, read_events(opened, None), context)
            totals: Counter[str] = Counter()
            for each in step.leaves:
                totals[each.op.name] += each.total
            return totals

    def test_executions_of_programs_are_steps(self) -> None:
        said = self.say(("--device", self.devices[0]), "summary")
        self.assertEqual(
            Counter(step["name"].partition("(")[0] for step in said["steps"]),
            {
                "jit_f": 100,
                "jit__psum": 3,
                "jit_convert_element_type": 1,
                "jit_broadcast_in_dim": 1,
            },
        )
        self.assertEqual((said["step_source"], said["clock"]), ("modules", "device"))
        self.assertEqual(
            said["notes"],
            [
                "no Steps line; executions of programs (XLA Modules) are taken as steps",
                "auto-picked busiest step (idx=101, n_xla_ops_events=15 of 1504 in 105 steps;"
                " typical of 100 as busy)",
                "1 of 105 steps have no op (961328 ps)",
                "13753271639442 ps between steps (14.858 % of the capture) are in no step",
            ],
        )

    def test_runs_of_one_program_take_the_same_time(self) -> None:
        """The program runs a hundred times."""
        of_f = [
            step for step in self.executions if "jit_f(" in str(step.picked and step.picked.name)
        ]
        self.assertEqual(len(of_f), 100)
        for step in of_f:
            self.assertGreater(step.duration, 784.09 * MS)
            self.assertLess(step.duration, 784.24 * MS)
            self.assertGreater(step.timeline.busy, 0.999 * step.duration)
        drawn = [step.picked.end - step.picked.start for step in of_f if step.picked]
        self.assertEqual((min(drawn) // MS, max(drawn) // MS), (551, 981))

    def test_devices_agree_on_every_op(self) -> None:
        by_device = [self.totals_of_ops(device) for device in self.devices]
        # The other ops take microseconds, or ran on one device.
        long = [name for name in by_device[0] if by_device[1][name] > 100 * MS]
        self.assertEqual(len(long), 8)
        for name in long:
            totals = [of_device[name] for of_device in by_device]
            with self.subTest(name, totals=totals):
                mean = sum(totals) / 4
                self.assertLess(max(abs(total - mean) for total in totals), 0.001 * mean)

    def test_totals_over_the_devices_are_those_of_xprof(self) -> None:
        """XProf sums the core's times in its table of ops."""
        totals: Counter[str] = Counter()
        for device in self.devices:
            totals.update(self.totals_of_ops(device))
        for name, ms in (
            *(("copy-done.2", 77_643), ("copy-done.4", 77_773)),
            ("broadcast_add_fusion", 3_191),
        ):
            with self.subTest(name):
                self.assertEqual(round(totals[name] / MS), ms)

    def test_most_time_waits_for_copies(self) -> None:
        said = self.say(("--device", self.devices[0], "--step", "all"), "summary")
        row = said["by_hlo_category"][0]
        self.assertEqual(
            (row["hlo_category"], row["kind"], row["total_dur_ps"]),
            ("copy-done", "data_move", 76_009_515_471_250),
        )
        self.assertEqual(said["totals"]["while_container_duration_ps"], 0)
        self.assertEqual(said["totals"]["wait_duration_ps"], 76_009_515_471_250)
        self.assertEqual(said["comm_rollup"][0]["waits_for"], "host")

    def test_fp32_has_no_peak_until_it_is_given(self) -> None:
        window = ("--device", self.devices[0], "--step", "all")
        skipped = self.say(window, "roofline")["skipped_groups"]
        self.assertEqual(skipped["n_peak_unknown_for_dtype"], 1)
        given = self.say(window, "roofline", "--peak-tflops-fp32", "70")
        self.assertEqual(given["skipped_groups"]["n_peak_unknown_for_dtype"], 0)
        (row,) = given["groups"]
        self.assertEqual((row["dtype"], row["bound"], row["n_executions"]), ("fp32", "memory", 300))
        self.assertEqual(row["flops_sum"], 300 * 1_342_177_280)
        self.assertEqual(row["bytes_accessed_sum"], 300 * 10_737_418_240)
        self.assertEqual(row["arithmetic_intensity"], 0.125)

    def test_peaks_come_from_the_chip_or_the_profile(self) -> None:
        for options in ((), ("--chip", "profile")):
            said = self.say(self.windows[0], "roofline", *options)
            self.assertEqual(said["chip"], "profile" if options else "v6e")
            self.assertEqual(said["peaks_used"]["peak_tflops_bf16"], 918.0)
            self.assertEqual(round(said["peaks_used"]["peak_hbm_gibps"], 1), 1525.5)
        notes = self.say(self.windows[0], "roofline", "--chip", "v7x")["notes"]
        self.assertTrue(any("--chip v6e fits" in note for note in notes))


@unittest.skipUnless(PALLAS.exists(), "the capture isn't here")
class PallasKernel(Base.Invariants):
    """A capture of April 2026 of a Pallas kernel on a TPU v6e, traced inside the kernel."""

    profile = str(PALLAS)
    windows: tuple[Window, ...] = ((), ("--step", "all"))
    program_id = "17342868964687645945"

    def test_program_with_an_index_as_key_is_found(self) -> None:
        self.assertEqual(
            self.say((), "summary")["program"],
            {
                "name": f"jit_matmul_optimized({self.program_id})",
                "program_id": self.program_id,
                "n_programs": 1,
                "hlo": True,
            },
        )
        (row,) = answer(self.profile, "anatomy")["programs"]
        self.assertEqual((row["program_id"], row["hlo_bytes"]), (self.program_id, 18065))

    def test_counts_on_the_events_of_the_kernel_are_ignored(self) -> None:
        """These counts leave out the kernel's loops: 1.08e9 flops instead of 8.59e9."""
        for window in self.windows:
            (row,) = self.say(window, "by_op")["ops"]
            figures = ("flops", "bytes_accessed", "hbm_bytes", "cost_source")
            self.assertEqual([row[name] for name in figures], [None] * 4)
        options = ("--plane", "0", "--line", "XLA Ops", "--sample", "1")
        (line,) = answer(self.profile, "anatomy", *options)["planes"][0]["lines"]
        self.assertEqual(line["sample"][0]["stats"]["flops"], 1076887552)

    def test_memory_and_program_are_answered(self) -> None:
        memory = self.say((), "memory")
        self.assertEqual(memory["peak_bytes"], 32 << 20)
        self.assertEqual(
            (memory["by_kind"]["parameter"], memory["by_kind"]["output"]), (16 << 20,) * 2
        )
        (kernel,) = self.say((), "program")["kernels"]
        self.assertEqual(
            (kernel["kernel"], kernel["vmem_used_bytes"]), ("matmul_optimized", 9 << 20)
        )


if __name__ == "__main__":
    unittest.main()
