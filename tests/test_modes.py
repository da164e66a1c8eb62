"""What each mode says of a normalized step: its fields, its numbers, its order."""

from __future__ import annotations

import argparse
import unittest
from typing import Any

import compute_breakdown
from tests import hlo_proto
from tests.harness import ALL_MODES, DEMO, MODES, answer, keywords_of, run
from tests.xspace import (
    Op,
    Space,
    StatValue,
    encode,
    memory_access_breakdown,
    op,
    raw,
    tpu_plane,
    trace,
)

STEP = [("s", 0, 1000)]
BF16 = "bf16[8,128]{1,0:T(8,128)(2,1)}"
HERE = "m.py:1:1"

COMMON = set(
    "status mode profile_dir xplane_file device device_type clock stack_order step_source "
    "program step_id step_name step_window_ps step_duration_ps notes totals".split()
)
TOTALS = set(
    "n_events_total n_events_compute n_events_data_move n_events_comm n_events_other "
    "n_events_container n_events_unresolved compute_duration_ps data_move_duration_ps "
    "comm_duration_ps other_duration_ps non_while_duration_ps_sum while_container_duration_ps "
    "while_pct_of_step container_durations_ps container_self_duration_ps busy_duration_ps "
    "idle_duration_ps idle_pct_of_step wait_duration_ps wait_pct_of_step agg_key_coverage "
    "unknown_categories".split()
)
MODE_FIELDS = {
    "bottleneck": "bottleneck speed_of_light mfu_at_least hfu_at_least mfu capture budget "
    "recompute_dur_ps recompute_pct_of_step findings tail chip peaks_used",
    "summary": "top_compute_groups tail_compute by_kind_rollup by_hlo_category steps "
    "by_phase_rollup idle_gaps comm_rollup kernels",
    "by_source": "groups",
    "by_scope": "scopes n_scopes_omitted no_scope",
    "by_op": "ops tail containers chip peaks_used",
    "non_compute": "by_category by_source_within_category",
    "roofline": "chip peaks_used step_summary groups skipped_groups",
    "comm": "rows tail",
    "memory": "peak_bytes reserved_bytes fragmentation_bytes by_kind peak_at buffers by_source "
    "by_opcode by_argument tail",
}
MODE_TOTALS = {
    "bottleneck": "",
    "summary": "",
    "by_source": "n_groups_total",
    "by_scope": "",
    "by_op": "",
    "non_compute": "non_compute_duration_ps non_compute_pct_of_step non_compute_pct_of_compute",
    "roofline": "",
    "comm": "exposed_ps exposed_pct_of_step host_ps in_flight_union_ps hidden_union_ps "
    "by_collective",
    "memory": "",
}
BREAKDOWN = "hlo_op_breakdown hlo_op_breakdown_overflow"
GROUP = (
    "agg_key agg_key_kind source_inner source_user tf_op source_stack n_executions "
    "total_dur_ps min_dur_ps max_dur_ps avg_dur_ps pct_of_compute pct_of_step hlo_categories "
    f"flops_sum bytes_accessed_sum example_hlo_op example_hlo_op_dur_ps {BREAKDOWN} phases "
    "likely_sources"
)
OP = (
    "rank hlo_op program_id hlo_category kind class n_executions total_dur_ps min_dur_ps "
    "max_dur_ps avg_dur_ps pct_of_step phase scope tf_op source_inner source_user source_is shape "
    "dtype dtype_source cost_source flops bytes_accessed hbm_bytes achieved_tflops achieved_gbps "
    "at_roof_ps lost_ps kernel waits_for"
)
# array -> the fields of its rows
ROWS = {
    "top_compute_groups": f"rank {GROUP}",
    "by_hlo_category": "hlo_category kind n_executions total_dur_ps pct_of_step",
    "idle_gaps": "start_ps dur_ps pct_of_step after_hlo_op before_hlo_op inside",
    "comm_rollup": "waits_for n sync_dur_ps wait_dur_ps pct_of_step longest_hlo_op",
    "kernels": "kernel n_executions total_dur_ps min_dur_ps max_dur_ps avg_dur_ps pct_of_step "
    "source_inner source_user tf_op phases shapes_in shapes_out",
    "by_source groups": f"{GROUP} kind model_flops_sum hbm_bytes_sum dtypes dtype_uncertain "
    "operand_dtypes shapes shapes_truncated also_fused scopes",
    "scopes": "scope name depth n_executions total_dur_ps self_dur_ps pct_of_step kinds phases "
    "primitives lines",
    "no_scope": "n_executions dur_ps kinds likely_sources",
    "primitives": "primitive dur_ps",
    "lines": "source_user dur_ps",
    "ops": OP,
    "by_op tail": "n_ops_omitted dur_ps",
    "containers": "hlo_op hlo_category n_executions total_dur_ps",
    "op": f"{OP} text source_stack executions n_executions_omitted program",
    "program of op": "opcode computation operands users chain called",
    "operands": "name opcode shape source_inner",
    "hlo_op_breakdown": "signature hlo_category total_dur_ps n_executions pct_of_group "
    "example_hlo_op example_hlo_op_dur_ps",
    "by_category": "hlo_category kind n_executions total_dur_ps min_dur_ps max_dur_ps avg_dur_ps "
    "n_groups agg_key_coverage",
    "by_source_within_category": "hlo_category kind agg_key agg_key_kind source_inner source_user "
    "source_stack tf_op n_executions total_dur_ps min_dur_ps max_dur_ps avg_dur_ps shapes_in "
    "shapes_out dtype_change dtype_change_dur_ps layout_change layout_change_dur_ps example_hlo_op "
    "likely_sources",
    "roofline groups": "agg_key agg_key_kind source_inner source_user tf_op hlo_categories "
    "n_executions total_dur_ps flops_sum model_flops_sum bytes_accessed_sum dtype dtype_uncertain "
    "arithmetic_intensity ridge_point bound t_compute_theory_ps t_hbm_theory_ps "
    "t_roofline_theory_ps mfu hbm_util roofline_util shortfall_ps shortfall_pct opaque_dur_ps "
    "dtype_source "
    "kernel cost_source hbm_bytes_sum operand_dtypes t_roofline_per_op_ps shortfall_per_op_ps",
    "top_shortfall_groups": "agg_key source_inner tf_op total_dur_ps shortfall_ps bound",
    "top_skipped": "agg_key source_inner source_user tf_op total_dur_ps reason "
    "top_signature example_hlo_op",
    "step_summary": "weighted_avg_mfu weighted_avg_hbm_util weighted_avg_roofline_util "
    "step_shortfall_ps rooflined_dur_ps step_compute_dur_ps_total rooflined_pct_of_compute "
    "skipped_pct_of_compute top_shortfall_groups t_roofline_per_op_ps shortfall_per_op_ps "
    "over_roof",
    "skipped_groups": "n_no_flops n_no_bytes n_dtype_other n_peak_unknown_for_dtype "
    "total_dur_ps_skipped top_skipped",
    "program": "name program_id n_programs hlo",
    "speed_of_light": "at_roof_ps unknown_ps pct_at_least pct_at_most",
    "capture": "hosts devices n_steps",
    "budget": "class dur_ps pct_of_step at_roof_ps lost_ps n_executions",
    "findings": "rank class source_inner source_user source_is agg_key tf_op kernel dur_ps "
    "pct_of_step at_roof_ps lost_ps n_executions phases waits_for top_signature",
    "bottleneck tail": "n_findings_omitted dur_ps lost_ps",
    "rows": "collective mode engine source_inner source_user source_is agg_key tf_op n_executions "
    "sync_dur_ps wait_dur_ps pct_of_step pairs in_flight_ps covered_ps other_ps payload_bytes "
    "bus_bytes group_size groups groups_from bus_gbps bus_gbps_over",
    "pairs": "paired ambiguous unpaired",
    "comm tail": "n_rows_omitted sync_dur_ps wait_dur_ps",
    "by_collective": "n_executions sync_dur_ps wait_dur_ps payload_bytes",
    "by_kind": "parameter output constant temporary",
    "peak_at": "hlo_op source_inner source_is tf_op first_start_ps",
    "buffers": "rank bytes pct_of_peak kind shape hlo_op opcode shape_index parameter_number tf_op "
    "source_inner source_is source_stack",
    "memory by_source": "source_inner bytes n_buffers",
    "by_opcode": "opcode bytes n_buffers",
    "by_argument": "argument bytes n_buffers",
    "memory tail": "n_buffers_omitted bytes",
    "peaks_used": "peak_tflops_bf16 peak_tflops_fp8 peak_tflops_fp32 peak_tflops_fp16 "
    "peak_hbm_gibps ridge_points source unit bytes",
}


def leaf(start: int, dur: int, name: str = "f.1", **facts: Any) -> Op:
    return op(name, "loop fusion", start, dur, **facts)


def kernel(start: int, dur: int, name: str = "flash.3", **facts: Any) -> Op:
    target = ', custom_call_target="tpu_custom_call"'
    return op(name, "custom-call", start, dur, attributes=target, shape=BF16, **facts)


def matmul(start: int, dur: int, flops: StatValue, n_bytes: StatValue, **facts: Any) -> Op:
    facts = {"shape": BF16, "stack": HERE, "bytes_accessed": n_bytes, **facts}
    return op(facts.pop("name", "f.1"), "convolution fusion", start, dur, flops=flops, **facts)


def with_program(ops: list[Op]) -> bytes:
    """A trace of these ops, and their program."""
    for each in ops:
        each.stats["program_id"] = 7
    program = hlo_proto.hlo_proto(
        {"main": [hlo_proto.op("x", "parameter"), hlo_proto.op("f.1", "fusion", "x")]},
        buffers=hlo_proto.buffer(1, 4096, 1)
        + hlo_proto.buffer(2, 512, 2)
        + hlo_proto.allocation(0, 4096, (1, 0, 4096), parameter=0)
        + hlo_proto.allocation(1, 512, (2, 0, 512))
        + hlo_proto.heap_trace((hlo_proto.ALLOC, 2, "f.1", 0)),
    )
    beside = hlo_proto.metadata_plane({7: ("jit_f(7)", program)})
    return encode(Space([tpu_plane(ops, STEP), beside]))


def summary(ops: list[Op], *options: str) -> dict[str, Any]:
    return answer(trace(ops, STEP), "summary", *options)


def by_source(ops: list[Op], *options: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = answer(trace(ops, STEP), "by_source", *options)["groups"]
    return rows


def roofline(ops: list[Op], *options: str) -> dict[str, Any]:
    return answer(trace(ops, STEP), "roofline", *options)


def column(rows: list[dict[str, Any]], *keys: str) -> list[Any]:
    """One field of each row, or a tuple of several."""
    if len(keys) == 1:
        return [row[keys[0]] for row in rows]
    return [tuple(row[key] for key in keys) for row in rows]


class Fields(unittest.TestCase):
    """Every object has the fields that are listed, no more and no less."""

    OPS = (
        leaf(0, 10),
        op("c.1", "copy", 20, 10),
        op("a.1", "all-reduce-done", 40, 10),
        matmul(60, 10, 10**6, 10**3),
        kernel(80, 10),
    )

    def assert_fields(self, row: dict[str, Any], name: str) -> None:
        self.assert_keys(row, ROWS[name], f"ROWS[{name!r}] in tests/test_modes.py")

    def assert_keys(self, said: dict[str, Any], listed: str, where: str) -> None:
        new, gone = set(said) - set(listed.split()), set(listed.split()) - set(said)
        self.assertFalse(
            new or gone,
            f"\nnew fields {sorted(new)}, gone {sorted(gone)}: say so in {where}, in the tables of"
            " fields on the user's and the agent's page, and in tests/naive.py",
        )

    def test_every_mode_is_listed(self) -> None:
        for table, name in ((MODE_FIELDS, "MODE_FIELDS"), (MODE_TOTALS, "MODE_TOTALS")):
            self.assertEqual(
                set(table), set(MODES), f"list the fields of each mode in {name}, and those of rows"
            )

    def test_of_the_object_and_its_totals(self) -> None:
        for mode in MODES:
            with self.subTest(mode=mode):
                said = answer(with_program(list(self.OPS)), mode)
                of_mode = " ".join([*COMMON, MODE_FIELDS[mode]])
                self.assert_keys(said, of_mode, f"COMMON or MODE_FIELDS[{mode!r}]")
                of_totals = " ".join([*TOTALS, MODE_TOTALS[mode]])
                self.assert_keys(said["totals"], of_totals, f"TOTALS or MODE_TOTALS[{mode!r}]")
                self.assert_fields(said["program"], "program")
                self.assertEqual((said["status"], said["mode"]), ("ok", mode))
                self.assertEqual(said["device"], "/device:TPU:0")
                self.assertEqual(said["xplane_file"], "test.xplane.pb")
                self.assertTrue(said["profile_dir"].endswith("/test.xplane.pb"))

    def test_of_summary(self) -> None:
        said = summary(list(self.OPS))
        for name in (
            "top_compute_groups",
            "by_hlo_category",
            "idle_gaps",
            "comm_rollup",
            "kernels",
        ):
            for row in said[name]:
                self.assert_fields(row, name)
        for row in summary(list(self.OPS), "--include-comm")["top_compute_groups"]:
            self.assertEqual(set(row), {*ROWS["top_compute_groups"].split(), "kind"})
            self.assert_fields(row["hlo_op_breakdown"][0], "hlo_op_breakdown")
        self.assertEqual(set(said["tail_compute"]), {"n_groups_omitted", "dur_ps"})
        self.assertEqual(
            {kind: set(row) for kind, row in said["by_kind_rollup"].items()},
            {
                kind: {"n", "dur_ps", "pct_of_step"}
                for kind in ("compute", "data_move", "comm", "other")
            },
        )
        for row in said["by_phase_rollup"].values():
            self.assertEqual(set(row), {"n", "dur_ps", "pct_of_compute"})

    def test_of_bottleneck(self) -> None:
        said = answer(trace(list(self.OPS), STEP), "bottleneck")
        for name in ("speed_of_light", "capture", "peaks_used"):
            self.assert_keys(
                said[name],
                ROWS[name].replace(" bytes", "") if name == "peaks_used" else ROWS[name],
                f"ROWS[{name!r}]",
            )
        self.assert_fields(said["tail"], "bottleneck tail")
        for name in ("budget", "findings"):
            self.assertGreater(len(said[name]), 2)
            for row in said[name]:
                self.assert_fields(row, name)

    def test_of_comm(self) -> None:
        said = answer(trace([*self.OPS, op("b", "all-reduce", 95, 5)], STEP), "comm")
        waited, ran = said["rows"]
        for row in (waited, ran):
            self.assert_fields(row, "rows")
        self.assert_fields(waited["pairs"], "pairs")
        self.assert_fields(said["tail"], "comm tail")
        self.assert_fields(said["totals"]["by_collective"]["all-reduce"], "by_collective")

    def test_of_memory(self) -> None:
        said = answer(with_program(list(self.OPS)), "memory")
        self.assert_fields(said["tail"], "memory tail")
        for name in ("by_kind", "peak_at"):
            self.assert_fields(said[name], name)
        for name in ("buffers", "by_source", "by_opcode", "by_argument"):
            self.assertTrue(said[name])
            for row in said[name]:
                self.assert_fields(row, "memory by_source" if name == "by_source" else name)

    def test_of_by_source(self) -> None:
        for row in by_source(list(self.OPS), "--include-comm", "--include-data-move"):
            self.assert_fields(row, "by_source groups")

    def test_of_by_scope(self) -> None:
        said = answer(trace([*self.OPS, leaf(90, 5, tf_op="jit(f)/a/mul:")], STEP), "by_scope")
        self.assert_fields(said["no_scope"], "no_scope")
        self.assertEqual(len(said["scopes"]), 2)
        for row in said["scopes"]:
            self.assert_fields(row, "scopes")
        for name in ("primitives", "lines"):
            self.assert_fields(said["scopes"][1][name][0], name)

    def test_of_by_op(self) -> None:
        loop = op("while.1", "while", 0, 95)
        said = answer(with_program([*self.OPS, loop]), "by_op", "--op", "f.1")
        for name in ("ops", "containers"):
            self.assertTrue(said[name])
            for row in said[name]:
                self.assert_fields(row, name)
        self.assert_fields(said["tail"], "by_op tail")
        self.assert_fields(said["op"], "op")
        part = said["op"]["program"]
        self.assert_fields(part, "program of op")
        self.assert_fields(part["operands"][0], "operands")

    def test_of_non_compute(self) -> None:
        said = answer(trace(list(self.OPS), STEP), "non_compute")
        for name in ("by_category", "by_source_within_category"):
            self.assertEqual(len(said[name]), 2)
            for row in said[name]:
                self.assert_fields(row, name)

    def test_of_roofline(self) -> None:
        said = roofline(list(self.OPS))
        self.assert_fields(said["groups"][0], "roofline groups")
        for name in ("step_summary", "skipped_groups", "peaks_used"):
            self.assert_fields(said[name], name)
        for row in said["step_summary"]["top_shortfall_groups"]:
            self.assert_fields(row, "top_shortfall_groups")
        for row in said["skipped_groups"]["top_skipped"]:
            self.assert_fields(row, "top_skipped")


class OptionsOfModes(unittest.TestCase):
    # A use of each option that belongs to some mode, and the modes that it belongs to.
    OPTIONS: dict[tuple[str, ...], str] = {  # noqa: RUF012
        ("--include-comm",): "summary by_source non_compute",
        ("--step", "0"): " ".join(MODES),
        ("--step-id", "s"): " ".join(MODES),
        ("--own", "m.py"): " ".join(MODES),
        ("--top", "3"): "bottleneck summary by_source by_op non_compute comm memory compare spread",
        ("--steps", ":1"): "record compare spread",
        ("--baseline", str(DEMO)): "compare",
        ("--baseline-device", "/device:TPU:0"): "compare",
        ("--baseline-host", "t1v-n-0"): "compare",
        ("--include-data-move",): "by_source",
        ("--no-comm-stalls",): "non_compute",
        ("--depth", "all"): "by_scope",
        ("--below", ""): "by_scope",
        ("--merge-layers",): "by_scope",
        ("--op", "flash.3"): "by_op",
        ("--chip", "v7x"): "bottleneck roofline by_op",
        ("--bytes", "hbm"): "roofline",
        ("--kernel-cost", "flash=1,1"): "bottleneck roofline by_op",
        ("--model-flops", "1e9"): "bottleneck",
        **{
            (f"--peak-{peak}", "5"): "bottleneck roofline by_op"
            for peak in ("tflops-bf16", "tflops-fp8", "tflops-fp32", "tflops-fp16", "hbm-gibps")
        },
    }

    def test_every_option_is_listed(self) -> None:
        self.assertEqual(
            {use[0] for use in self.OPTIONS},
            {flag for mode in compute_breakdown.MODES for flag in mode.options},
            "give each option a line in OptionsOfModes.OPTIONS and one in the table of options on"
            " the user's page, and draw it in tests/random_xspace.py",
        )

    def test_an_option_of_another_mode_is_refused(self) -> None:
        data = with_program([kernel(0, 5)])
        for option, modes in self.OPTIONS.items():
            for mode in ALL_MODES:
                needed = ["--baseline", str(DEMO)] if mode == "compare" else []
                with self.subTest(option=option, mode=mode):
                    outcome = run(data, mode, *needed, *option)
                    is_own = mode in modes.split()
                    self.assertEqual(outcome.object["status"], "ok" if is_own else "absent")
                    reason = None if is_own else "bad_arguments"
                    self.assertEqual(outcome.object.get("reason"), reason)
                    self.assertEqual(outcome.status, 0 if is_own else 2)

    def test_a_mode_takes_the_options_that_its_row_lists(self) -> None:
        """Or else one ends in a traceback: no type checker sees the call."""
        parser = compute_breakdown.Parser(argument_default=argparse.SUPPRESS)
        dest_of = {
            flag: parser.add_argument(flag, **told).dest
            for flag, told in compute_breakdown.OPTIONS.items()
        }
        for mode in compute_breakdown.MODES:
            with self.subTest(mode=mode.name):
                keywords = [
                    each
                    for each in keywords_of(mode).values()
                    if each.kind is not each.POSITIONAL_OR_KEYWORD
                ]
                for each in keywords:
                    self.assertIs(each.kind, each.KEYWORD_ONLY, f"{each}: no flags pooled")
                    if each.name != "baseline":
                        self.assertIsNot(each.default, each.empty, f"{each} has no default")
                self.assertEqual(
                    {each.name for each in keywords},
                    {dest_of[flag] for flag in mode.options} - {"step", "step_id", "own"},
                    f"the keyword parameters of {mode.name} are not what its options give",
                )
                self.assertEqual(len(set(mode.options)), len(mode.options))

    def test_every_option_is_taken_by_some_mode_or_by_the_pipeline(self) -> None:
        taken = {flag for mode in compute_breakdown.MODES for flag in mode.options}
        pipeline = set(compute_breakdown.PIPELINE_OPTIONS)
        self.assertFalse(taken & pipeline)
        self.assertEqual(taken | pipeline, set(compute_breakdown.OPTIONS))

    def test_the_pipeline_takes_its_options(self) -> None:
        data = self.id().encode()  # no trace
        for flag in compute_breakdown.PIPELINE_OPTIONS:
            outcome = run(data, MODES[0], flag, "1")
            self.assertNotEqual(outcome.object["reason"], "bad_arguments")

    def test_values_that_make_no_sense_are_refused(self) -> None:
        for mode, option, values in (
            ("summary", "--top", ("-1", "x", "1.5", "")),
            ("summary", "--step", ("x", "1.5", "")),
            ("roofline", "--peak-tflops-bf16", ("0", "-1", "nan", "inf", "x", "")),
            ("roofline", "--peak-hbm-gibps", ("0", "-1", "nan", "inf", "x", "")),
            ("roofline", "--chip", ("v99", "")),
            ("roofline", "--bytes", ("vmem", "")),
            (
                "roofline",
                "--kernel-cost",
                (
                    *("", "flash", "flash=", "flash=1", "=1,1", "flash=1,x", "flash=-1,1"),
                    *("flash=1,-1", "flash=nan,1", "flash=inf,1", "flash=1,inf", "flash=1e400,1"),
                    *("flash=1.5,1", "flash=1,1.5", "flash=1e-1,1", f"flash={2**63},1"),
                    *("flash=1,1,s8", "flash=1,1,", "flash=1,1,bf16,1"),
                ),
            ),
        ):
            for value in values:
                with self.subTest(option=option, value=value):
                    outcome = run(trace([kernel(0, 5)]), mode, option, value)
                    self.assertEqual(outcome.object.get("reason"), "bad_arguments")
                    self.assertEqual((outcome.status, outcome.object["mode"]), (2, None))

    def test_step_and_step_id_exclude_each_other(self) -> None:
        outcome = run(trace([leaf(0, 5)], STEP), "summary", "--step", "0", "--step-id", "s")
        self.assertEqual((outcome.object["reason"], outcome.status), ("bad_arguments", 2))


class GroupNumbers(unittest.TestCase):
    def test_durations_and_percentages_are_rounded_once(self) -> None:
        ops = [leaf(0, 1, stack=HERE), leaf(1, 2, stack=HERE), leaf(3, 4, stack="m.py:2:1")]
        first, second = by_source(ops)
        self.assertEqual(
            [first[f"{k}_dur_ps"] for k in ("total", "min", "max", "avg")], [3, 1, 2, 2]
        )
        self.assertEqual([second[f"{k}_dur_ps"] for k in ("total", "min", "max", "avg")], [4] * 4)
        self.assertEqual((first["pct_of_compute"], second["pct_of_compute"]), (42.857, 57.143))
        self.assertEqual((first["pct_of_step"], second["pct_of_step"]), (0.3, 0.4))

    def test_an_average_is_rounded_half_to_even(self) -> None:
        for durations, average in (((0, 1), 0), ((1, 2), 2), ((2, 3), 2), ((1, 1, 3), 2)):
            (row,) = by_source([leaf(10 * i, dur) for i, dur in enumerate(durations)])
            self.assertEqual(row["avg_dur_ps"], average)
            self.assertIs(type(row["avg_dur_ps"]), int)

    def test_facts_are_summed_over_executions_that_carry_them(self) -> None:
        ops = [
            *[leaf(i, 1, "a", flops=10, bytes_accessed=0, model_flops=3) for i in range(3)],
            *[leaf(3 + i, 1, "b", flops=1, model_flops=-1) for i in range(2)],
            leaf(5, 1, "c"),
        ]
        (row,) = by_source(ops)
        self.assertEqual(
            (row["flops_sum"], row["bytes_accessed_sum"], row["model_flops_sum"]), (32, 0, 9)
        )

    def test_a_sum_that_no_execution_carries_is_null(self) -> None:
        (row,) = by_source([leaf(0, 1, flops=-1)])
        for fact in ("flops_sum", "bytes_accessed_sum", "model_flops_sum"):
            self.assertIsNone(row[fact])

    def test_categories_and_dtypes_count_executions_in_order_of_appearance(self) -> None:
        ops = [
            op("z", "output fusion", 0, 1, shape="f32[1]{0}", stack=HERE),
            *[op("a", "custom fusion", i, 1, shape="bf16[1]{0}", stack=HERE) for i in (1, 2)],
            op("z", "output fusion", 3, 1, shape="f32[1]{0}", stack=HERE),
        ]
        (row,) = by_source(ops)
        self.assertEqual(
            list(row["hlo_categories"].items()), [("output fusion", 2), ("custom fusion", 2)]
        )
        self.assertEqual(list(row["dtypes"].items()), [("fp32", 2), ("bf16", 2)])

    def test_the_first_member_speaks_for_the_group(self) -> None:
        ops = [
            leaf(0, 1, "a", stack=HERE, tf_op="first"),
            leaf(1, 9, "b", stack=HERE, tf_op="second"),
        ]
        self.assertEqual(column(by_source(ops), "tf_op"), ["first"])
        no_source = [leaf(0, 1, "a", source="x.py:1"), leaf(1, 9, "b", source="y.py:2")]
        self.assertEqual(column(by_source(no_source), "source_inner"), ["x.py:1"])

    def test_the_example_is_the_longest_event_the_first_of_several(self) -> None:
        ops = [leaf(0, 5, "a"), leaf(5, 6, "b"), leaf(11, 7, "c"), leaf(18, 7, "a")]
        (row,) = by_source(ops)
        self.assertTrue(row["example_hlo_op"].startswith("%c ="))
        self.assertEqual(row["example_hlo_op_dur_ps"], 7)
        (row,) = by_source([leaf(0, 7, "a"), leaf(10, 7, "b"), leaf(20, 7, "a")])
        self.assertTrue(row["example_hlo_op"].startswith("%a ="))

    def test_shapes_are_distinct_and_eight_at_most(self) -> None:
        for n, listed, truncated in ((1, 1, False), (8, 8, False), (9, 8, True)):
            shapes = [f"f32[{i}]{{0}}" for i in range(n)]
            ops = [
                leaf(10 * i + j, 1, shape_with_layout=shape)
                for i, shape in enumerate(shapes)
                for j in range(2)
            ]
            (row,) = by_source(ops)
            self.assertEqual(row["shapes"], shapes[:listed])
            self.assertIs(row["shapes_truncated"], truncated)

    def test_groups_stand_in_order_of_appearance_in_the_file(self) -> None:
        ops = [leaf(50, 1, tf_op="b"), leaf(0, 9, tf_op="c"), leaf(20, 5, tf_op="a")]
        self.assertEqual(column(by_source(ops), "agg_key"), ["tfop:b", "tfop:c", "tfop:a"])
        said = answer(trace(ops, STEP), "by_source")
        self.assertEqual(said["totals"]["n_groups_total"], 3)

    def test_by_source_lists_the_kinds_that_are_asked_for(self) -> None:
        ops = [op(c, c, i, 1) for i, c in enumerate(("copy", "all-reduce", "tuple", "sort"))]
        for options, kinds in (
            ([], ["compute"]),
            (["--include-data-move"], ["data_move", "compute"]),
            (["--include-comm"], ["comm", "compute"]),
            (["--include-comm", "--include-data-move"], ["data_move", "comm", "compute"]),
        ):
            self.assertEqual(column(by_source(ops, *options), "kind"), kinds)


class Breakdown(unittest.TestCase):
    def test_the_eight_costliest_signatures_and_what_they_leave_out(self) -> None:
        # Each signature i runs twice, i + 1 ps each time.
        ops = [leaf(20 * i + 10 * j, i + 1, f"f{i}.{j}") for i in range(11) for j in range(2)]
        (row,) = by_source(ops)
        self.assertEqual(
            column(row["hlo_op_breakdown"], "signature", "total_dur_ps", "n_executions"),
            [(f"f{i} [loop fusion]", 2 * (i + 1), 2) for i in range(10, 2, -1)],
        )
        self.assertEqual(
            row["hlo_op_breakdown_overflow"],
            {"n_signatures": 3, "n_executions": 6, "total_dur_ps": 12},
        )
        self.assertEqual(row["hlo_op_breakdown"][0]["pct_of_group"], 16.667)  # 22 of 132

    def test_eight_signatures_leave_nothing_out(self) -> None:
        (row,) = by_source([leaf(i, 1, f"f{i}") for i in range(8)])
        self.assertEqual(len(row["hlo_op_breakdown"]), 8)
        self.assertIsNone(row["hlo_op_breakdown_overflow"])

    def test_ties_stand_by_signature(self) -> None:
        (row,) = by_source([leaf(i, 1, name) for i, name in enumerate("cab")])
        self.assertEqual(
            column(row["hlo_op_breakdown"], "signature"),
            ["a [loop fusion]", "b [loop fusion]", "c [loop fusion]"],
        )

    def test_a_row_s_example_is_its_longest_event(self) -> None:
        (row,) = by_source([leaf(0, 5, "f.1"), leaf(5, 7, "f.2"), leaf(20, 9, "g")])
        longest, other = row["hlo_op_breakdown"]
        self.assertEqual(
            (longest["signature"], longest["example_hlo_op_dur_ps"]), ("f [loop fusion]", 7)
        )
        self.assertTrue(longest["example_hlo_op"].startswith("%f.2 ="))
        self.assertEqual(other["pct_of_group"], 42.857)

    def test_without_time_there_is_no_percentage(self) -> None:
        (row,) = by_source([leaf(0, 0)])
        self.assertIsNone(row["hlo_op_breakdown"][0]["pct_of_group"])


class Summary(unittest.TestCase):
    OPS = (
        leaf(0, 10, tf_op="b"),
        leaf(10, 30, tf_op="c"),
        leaf(40, 10, tf_op="a"),
        op("r", "all-reduce", 50, 20, tf_op="a"),
        op("s", "all-gather", 70, 10, tf_op="a"),
        op("w", "while", 80, 30),
        op("t", "tuple", 110, 5),
    )

    def test_groups_are_ranked_by_time_and_ties_by_key(self) -> None:
        self.assertEqual(
            column(summary(list(self.OPS))["top_compute_groups"], "rank", "agg_key"),
            [(1, "tfop:c"), (2, "tfop:a"), (3, "tfop:b")],
        )

    def test_with_communication_over_both_kinds_ties_by_key_then_kind(self) -> None:
        ops = [*self.OPS, leaf(200, 20, "g", tf_op="a")]
        said = summary(ops, "--include-comm")
        self.assertEqual(
            column(said["top_compute_groups"], "agg_key", "kind", "total_dur_ps"),
            [
                ("tfop:a", "comm", 30),
                ("tfop:a", "compute", 30),
                ("tfop:c", "compute", 30),
                ("tfop:b", "compute", 10),
            ],
        )
        # Percentages of compute stay those of compute.
        self.assertEqual(said["top_compute_groups"][0]["pct_of_compute"], 42.857)

    def test_top_and_tail(self) -> None:
        for k, keys, tail in (
            (0, [], (3, 50)),
            (1, ["tfop:c"], (2, 20)),
            (3, ["tfop:c", "tfop:a", "tfop:b"], (0, 0)),
            (99, ["tfop:c", "tfop:a", "tfop:b"], (0, 0)),
        ):
            said = summary(list(self.OPS), "--top", str(k))
            self.assertEqual(column(said["top_compute_groups"], "agg_key"), keys)
            self.assertEqual(tuple(said["tail_compute"].values()), tail)

    def test_fifty_groups_unless_told_otherwise(self) -> None:
        said = summary([leaf(2 * i, 1, tf_op=str(i)) for i in range(60)])
        self.assertEqual(len(said["top_compute_groups"]), 50)
        self.assertEqual(said["tail_compute"], {"n_groups_omitted": 10, "dur_ps": 10})

    def test_kinds_and_categories(self) -> None:
        said = summary(list(self.OPS))
        self.assertEqual(
            said["by_kind_rollup"],
            {
                "compute": {"n": 3, "dur_ps": 50, "pct_of_step": 5.0},
                "data_move": {"n": 0, "dur_ps": 0, "pct_of_step": 0.0},
                "comm": {"n": 2, "dur_ps": 30, "pct_of_step": 3.0},
                "other": {"n": 1, "dur_ps": 5, "pct_of_step": 0.5},
            },
        )
        self.assertEqual(
            [tuple(row.values()) for row in said["by_hlo_category"]],
            [
                ("loop fusion", "compute", 3, 50, 5.0),
                ("while", "container", 1, 30, 3.0),
                ("all-reduce", "comm", 1, 20, 2.0),
                ("all-gather", "comm", 1, 10, 1.0),
                ("tuple", "other", 1, 5, 0.5),
            ],
        )

    def test_categories_of_equal_time_stand_by_name(self) -> None:
        ops = [op(c, c, i, 1) for i, c in enumerate(("sort", "add", "copy"))]
        rows = summary(ops)["by_hlo_category"]
        self.assertEqual(column(rows, "hlo_category"), ["add", "copy", "sort"])


class TopRows(unittest.TestCase):
    """`--top` ranks where all stood in order of appearance, and says what it leaves out."""

    OPS = (
        op("a", "copy", 0, 10, tf_op="b"),
        op("b", "copy", 10, 30, tf_op="c"),
        leaf(40, 10, tf_op="a"),
        leaf(50, 20, tf_op="c"),
        leaf(70, 10, tf_op="b"),
    )

    def said(self, mode: str, *options: str) -> dict[str, Any]:
        return answer(trace(list(self.OPS), STEP), mode, *options)

    def test_of_by_source(self) -> None:
        ranked = [
            ("tfop:c", "data_move"),
            ("tfop:c", "compute"),
            ("tfop:a", "compute"),
            # ties by key, then kind
            ("tfop:b", "compute"),
            ("tfop:b", "data_move"),
        ]
        said = self.said("by_source", "--include-data-move")
        self.assertNotIn("tail", said)
        self.assertEqual(said["totals"]["n_groups_total"], 5)
        self.assertEqual(
            column(said["groups"], "agg_key", "kind"), [ranked[i] for i in (4, 0, 2, 1, 3)]
        )
        for top, tail in ((0, (5, 80)), (2, (3, 30)), (4, (1, 10)), (5, (0, 0)), (9, (0, 0))):
            said = self.said("by_source", "--include-data-move", "--top", str(top))
            self.assertEqual(column(said["groups"], "agg_key", "kind"), ranked[:top])
            self.assertEqual(tuple(said["tail"].values()), tail)
            self.assertEqual(list(said["tail"]), ["n_groups_omitted", "dur_ps"])
            self.assertEqual(said["totals"]["n_groups_total"], 5)

    def test_of_non_compute(self) -> None:
        said = self.said("non_compute")
        self.assertNotIn("tail", said)
        self.assertEqual(column(said["by_source_within_category"], "agg_key"), ["tfop:b", "tfop:c"])
        for top, keys, tail in ((0, [], (2, 40)), (1, ["tfop:c"], (1, 10))):
            said = self.said("non_compute", "--top", str(top))
            self.assertEqual(column(said["by_source_within_category"], "agg_key"), keys)
            self.assertEqual(tuple(said["tail"].values()), tail)
            # The table of categories is whole.
            self.assertEqual(column(said["by_category"], "total_dur_ps"), [40])


class Phases(unittest.TestCase):
    def test_each_op_has_one(self) -> None:
        for name, tf_op, phase in (
            ("f.1", None, "unknown"),
            ("f.1.remat", None, "unknown"),
            ("f.1.remat2", "jit(f)/jvp(g)/add:", "recompute"),
            ("f.1", "jit(f)/transpose(jvp(g))/rematted_computation/add:", "recompute"),
            ("f.1", "jit(f)/rematted_computation/add:", "recompute"),
            ("f.1", "jit(f)/rematted_computation", "other"),
            ("f.1", "jit(f)/transpose(jvp(g))/add:", "backward"),
            ("f.1", "jit(f)/transpose(jvp)/add:", "backward"),
            ("f.1", "jit(f)/jvp(g)/transpose:", "forward"),
            ("f.1", "jit(f)/jvp()/add:", "forward"),
            ("f.1", "jit(f)/jvp/add:", "other"),
            ("f.1", "jit(f)/transpose(g)/add:", "other"),
            ("f.1", "jit(f)/adam/add:", "other"),
            ("remat.1", "jit(f)/jvp(g)/add:", "forward"),
        ):
            with self.subTest(name=name, tf_op=tf_op):
                facts: dict[str, StatValue] = {} if tf_op is None else {"tf_op": tf_op}
                (row,) = by_source([leaf(0, 7, name, stack=HERE, **facts)])
                self.assertEqual(row["phases"], {phase: 7})

    def test_a_group_has_those_that_it_met(self) -> None:
        ops = [
            leaf(0, 5, stack=HERE, tf_op="transpose(jvp())"),
            leaf(5, 3, stack=HERE, tf_op="jvp()"),
            leaf(8, 2, stack=HERE, tf_op="transpose(jvp())"),
        ]
        (row,) = by_source(ops)
        self.assertEqual(list(row["phases"].items()), [("backward", 7), ("forward", 3)])

    def test_the_rollup_is_over_compute(self) -> None:
        ops = [
            leaf(0, 5, tf_op="jvp()"),
            leaf(5, 1, "f.remat", tf_op="jvp()"),
            leaf(6, 3),
            op("c", "copy", 20, 50, tf_op="jvp()"),
        ]
        rollup = summary(ops)["by_phase_rollup"]
        self.assertEqual(
            {phase: row for phase, row in rollup.items() if row["n"]},
            {
                "forward": {"n": 1, "dur_ps": 5, "pct_of_compute": 55.556},
                "recompute": {"n": 1, "dur_ps": 1, "pct_of_compute": 11.111},
                "unknown": {"n": 1, "dur_ps": 3, "pct_of_compute": 33.333},
            },
        )


class IdleGaps(unittest.TestCase):
    def gaps(self, ops: list[Op]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = answer(trace(ops, [("s", 0, 100)]), "summary")["idle_gaps"]
        for row in rows:
            for key in ("after_hlo_op", "before_hlo_op"):
                row[key] = row[key] and row[key].split()[0]
        return rows

    def test_neighbours_and_surroundings(self) -> None:
        ops = [
            leaf(10, 10, "a"),
            op("w.1", "while", 30, 60),
            op("c.1", "conditional", 45, 20),
            leaf(35, 15, "b"),
            leaf(70, 25, "c"),
        ]
        self.assertEqual(
            [tuple(row.values()) for row in self.gaps(ops)],
            [
                (50, 20, 20.0, "%b", "%c", "c.1"),
                (20, 15, 15.0, "%a", "%b", None),
                (0, 10, 10.0, None, "%a", None),
                (95, 5, 5.0, "%c", None, None),
            ],
        )

    def test_a_container_that_ends_soon_is_still_around(self) -> None:
        ops = [
            op("w.1", "while", 0, 21),
            leaf(0, 20, "a"),
            op("w.2", "while", 30, 10),
            leaf(60, 40, "b"),
        ]
        self.assertEqual(column(self.gaps(ops), "start_ps", "inside"), [(20, "w.1")])

    def test_the_ten_longest_and_of_equals_the_earliest(self) -> None:
        # Gaps of 2 ps at 0, 3, … 30, then one of 67 to the end.
        ops = [leaf(3 * i + 2, 1) for i in range(11)]
        rows = self.gaps(ops)
        self.assertEqual(
            column(rows, "start_ps", "dur_ps"), [(33, 67), *((3 * i, 2) for i in range(9))]
        )

    def test_the_last_to_end_is_the_neighbour(self) -> None:
        rows = self.gaps([leaf(0, 50, "long"), leaf(10, 5, "short"), leaf(90, 10, "z")])
        self.assertEqual(column(rows, "after_hlo_op", "before_hlo_op"), [("%long", "%z")])

    def test_the_innermost_container_is_the_last_to_begin(self) -> None:
        for containers, inside in (
            ([("w", 0, 100), ("v", 10, 50)], "v"),
            ([("w", 0, 100), ("v", 10, 10)], "w"),
            ([("w", 0, 100), ("v", 20, 10)], "v"),
            ([("w", 0, 100), ("v", 0, 50)], "v"),
            ([("v", 0, 50), ("w", 0, 100)], "v"),
            ([("u", 0, 30), ("w", 0, 100), ("v", 0, 25)], "v"),
            ([("w", 0, 20)], None),
            ([("w", 21, 70)], None),
        ):
            with self.subTest(containers=containers):
                ops = [op(name, "while", start, dur) for name, start, dur in containers]
                rows = self.gaps([*ops, leaf(0, 20, "a"), leaf(90, 10, "z")])
                self.assertEqual(column(rows, "start_ps", "inside"), [(20, inside)])

    def test_a_container_that_began_in_a_gap_is_around_the_next_ones(self) -> None:
        ops = [
            op("w", "while", 10, 85),
            op("v", "while", 15, 50),
            leaf(30, 10),
            leaf(60, 10),
            leaf(80, 5),
        ]
        self.assertEqual(
            column(self.gaps(ops), "start_ps", "inside"),
            [(0, None), (40, "v"), (85, "w"), (70, "w")],
        )

    def test_an_instant_op_ends_no_gap(self) -> None:
        rows = self.gaps([leaf(0, 10, "a"), leaf(50, 0, "instant"), leaf(90, 10, "z")])
        self.assertEqual(
            column(rows, "start_ps", "dur_ps", "after_hlo_op", "before_hlo_op"),
            [(10, 80, "%a", "%z")],
        )

    def test_without_ops_the_step_is_one_gap(self) -> None:
        self.assertEqual(
            [tuple(row.values()) for row in self.gaps([])], [(0, 100, 100.0, None, None, None)]
        )

    def test_a_busy_step_has_none(self) -> None:
        self.assertEqual(self.gaps([leaf(0, 200)]), [])


class CommRollup(unittest.TestCase):
    def rollup(self, *ops: Op) -> list[tuple[Any, ...]]:
        rows = summary(list(ops))["comm_rollup"]
        return [tuple(row.values())[:4] for row in rows]

    def test_whom_the_core_waits_for(self) -> None:
        host = "(f32[8]{0}, f32[8]{0:S(5)}, u32[]{:S(2)}) %copy-start.1"
        local = "(f32[8]{0}, f32[8]{0:S(1)}, u32[]{:S(2)}) %copy-start.1"
        for category, name, operands, whom in (
            ("all-gather-done", "x", None, "all-gather"),
            ("collective-permute-done", "x", None, "collective-permute"),
            ("send-done", "x", None, "send"),
            ("recv-done", "x", None, "recv"),
            ("async-done", "all-gather.200.cloned.1.call-done", None, "all-gather"),
            ("async-done", "reduce-scatter.9.cloned.1.call-done", host, "reduce-scatter"),
            ("host send-done", "x", None, "host"),
            ("host recv-done", "x", None, "host"),
            ("copy-done", "copy-done.1", host, "host"),
            ("copy-done", "copy-done.1", local, "dma"),
            ("async-done", "slice-done.1", None, "dma"),
            ("async-done", "gather_offload_async_done", None, "sparse_core"),
            ("async-done", "scatter_offload-done", None, "sparse_core"),
            ("async-done", "sparse-core-data-format-call-done", None, "sparse_core"),
            ("async-done", "sparse-core-data-format-call-done", host, "host"),
            ("async-done", "something-done", None, "collective"),
            ("async-done", "async-collective-done", None, "collective"),
            ("loop fusion", "async-collective-done.2", None, "collective"),
            ("something-done", "x", None, "dma"),
        ):
            with self.subTest(category=category, name=name, operands=operands):
                ops = [op(name, category, 0, 5, operands=operands)]
                self.assertEqual(self.rollup(*ops), [(whom, 1, 0, 5)])

    def test_a_copy_to_the_host_shows_it_in_its_output(self) -> None:
        ops = [op("copy-done.1", "copy-done", 0, 5, shape="f32[8]{0:S(5)}", operands="%a")]
        self.assertEqual(self.rollup(*ops), [("host", 1, 0, 5)])

    def test_synchronous_communication(self) -> None:
        for category, whom in (
            *(("all-to-all", "all-to-all"), ("ragged-all-to-all", "ragged-all-to-all")),
            *(("all-reduce", "all-reduce"), ("all-reduce fusion", "all-reduce")),
            *(("all-gather fusion", "all-gather"), ("all-reduce-scatter fusion", "reduce-scatter")),
            *(("infeed", "host"), ("outfeed", "host"), ("host send", "host")),
        ):
            with self.subTest(category=category):
                self.assertEqual(self.rollup(op("x", category, 0, 5)), [(whom, 1, 5, 0)])

    def test_starts_and_updates_expose_nothing(self) -> None:
        for category in ("all-gather-start", "async-start", "async-update", "send-start"):
            with self.subTest(category=category):
                self.assertEqual(self.rollup(op("all-gather.1", category, 0, 5)), [])

    def test_what_is_neither_communication_nor_a_wait_is_left_out(self) -> None:
        ops = [op("x", c, i, 5) for i, c in enumerate(("copy", "copy-start", "sort", "tuple"))]
        self.assertEqual(self.rollup(*ops), [])

    def test_rows_by_time_with_waits_and_synchronous_time_apart(self) -> None:
        ops = [
            op("b", "all-reduce-done", 0, 7),
            op("a", "all-reduce", 10, 20),
            op("s", "async-done", 30, 30),
            op("c", "all-to-all", 60, 30),
            op("w", "copy-done", 90, 1),
        ]
        said = summary(ops)
        self.assertEqual(
            [tuple(row.values())[:5] for row in said["comm_rollup"]],
            [
                # Of equal time by name.
                ("all-to-all", 1, 30, 0, 3.0),
                ("collective", 1, 0, 30, 3.0),
                ("all-reduce", 2, 20, 7, 2.7),
                ("dma", 1, 0, 1, 0.1),
            ],
        )
        self.assertEqual(said["totals"]["wait_duration_ps"], 38)
        self.assertTrue(said["comm_rollup"][2]["longest_hlo_op"].startswith("%a ="))


class Findings(unittest.TestCase):
    def test_a_long_tf_op_ends_as_it_does(self) -> None:
        for size, shown in ((199, "x" * 199), (200, "x" * 200), (201, "…" + "x" * 200)):
            with self.subTest(size=size):
                data = trace([leaf(0, 9, stack=HERE, tf_op="x" * size)], STEP)
                (row,) = answer(data, "bottleneck")["findings"]
                self.assertEqual(row["tf_op"], shown)


class AsyncCollectiveFusions(unittest.TestCase):
    """On v5e and its like an asynchronous collective is a pair of fusions around some math."""

    OPS = (
        op("async-collective-start.1", "loop fusion", 0, 1, stack=HERE),
        op("async_collective_fusion.1", "convolution fusion", 10, 2, stack=HERE),
        op("async-collective-done.1", "output fusion", 20, 4, stack=HERE),
        op("async-collective-done", "fusion", 30, 8),
        op("async-collective-dones", "loop fusion", 40, 16),
        op("async-collective-done.3", "copy", 60, 32),
        op("my-async-collective-done", "loop fusion", 100, 64),
        op("async-collective-done.4", "megacore fusion", 200, 128),
    )

    def test_the_ends_are_communication_and_what_is_between_them_is_math(self) -> None:
        said = summary(list(self.OPS))
        self.assertEqual(
            column(said["by_hlo_category"], "hlo_category", "kind", "total_dur_ps"),
            [
                ("megacore fusion", "container", 128),
                ("loop fusion", "compute", 80),
                ("copy", "data_move", 32),
                ("fusion", "comm", 8),
                ("output fusion", "comm", 4),
                ("convolution fusion", "compute", 2),
                ("loop fusion", "comm", 1),
            ],
        )
        self.assertEqual(said["totals"]["unknown_categories"], {})

    def test_the_done_is_a_wait_and_the_start_is_none(self) -> None:
        said = summary(list(self.OPS))
        self.assertEqual(said["totals"]["wait_duration_ps"], 12)
        self.assertEqual(
            [tuple(row.values())[:4] for row in said["comm_rollup"]], [("collective", 2, 0, 12)]
        )

    def test_the_done_is_a_stall(self) -> None:
        for options, stalls, comm in (
            ([], 12, []),
            (["--no-comm-stalls"], 0, []),
            (["--include-comm"], 12, [("loop fusion", 1)]),
            (["--include-comm", "--no-comm-stalls"], 0, [("loop fusion", 1)]),
        ):
            said = answer(trace(list(self.OPS), STEP), "non_compute", *options)
            rows = column(said["by_category"], "hlo_category", "total_dur_ps")
            expected = [("copy", 32), *comm, *([(STALL, stalls)] if stalls else [])]
            self.assertEqual(sorted(rows), sorted(expected))
            self.assertEqual(STALLS in said["notes"], bool(stalls))
        rows = answer(trace(list(self.OPS), STEP), "non_compute")["by_source_within_category"]
        keys = [row["agg_key"] for row in rows if row["hlo_category"] == STALL]
        self.assertEqual(keys[1], "<no source>:fusion")

    def test_a_start_has_moved_nothing(self) -> None:
        said = answer(trace(list(self.OPS), STEP), "non_compute", "--include-comm")
        (row,) = [r for r in said["by_source_within_category"] if r["hlo_category"] != STALL][:1]
        self.assertEqual((row["hlo_category"], row["dtype_change"]), ("loop fusion", None))
        self.assertEqual((row["layout_change"], row["layout_change_dur_ps"]), (None, None))


class Kernels(unittest.TestCase):
    def test_one_row_per_kernel_by_time(self) -> None:
        ops = [
            kernel(0, 10, "flash.1", stack=HERE, tf_op="jvp()"),
            kernel(20, 30, "mha.dq.7", tf_op="transpose(jvp())"),
            kernel(50, 5, "flash.2.clone", stack="m.py:2:1"),
            op("custom-call.1", "custom-call", 60, 90, attributes=', custom_call_target="Other"'),
            leaf(200, 50),
        ]
        rows = summary(ops)["kernels"]
        keys = (
            "kernel n_executions total_dur_ps min_dur_ps max_dur_ps avg_dur_ps pct_of_step".split()
        )
        self.assertEqual(
            column(rows, *keys),
            [("mha.dq", 1, 30, 30, 30, 30, 3.0), ("flash", 2, 15, 5, 10, 8, 1.5)],
        )
        self.assertEqual(
            column(rows, "source_inner", "tf_op"), [(None, "transpose(jvp())"), ("m.py:1", "jvp()")]
        )
        self.assertEqual(column(rows, "phases"), [{"backward": 30}, {"forward": 10, "unknown": 5}])

    def test_shapes_are_those_of_the_longest_run(self) -> None:
        target = ', custom_call_target="tpu_custom_call"'
        ops = [
            op("k.1", "custom-call", 0, 5, shape="f32[1]", attributes=target),
            op(
                *("k.2", "custom-call", 5, 9),
                shape="f32[2]{0}",
                operands="s8[3]{0} %a, s8[4]{0} %b",
                attributes=target,
            ),
        ]
        (row,) = summary(ops)["kernels"]
        self.assertEqual(
            (row["shapes_in"], row["shapes_out"]), (["s8[3]{0}", "s8[4]{0}"], ["f32[2]{0}"])
        )


STALLS = (
    "asynchronous communication waits included as 'async-done (comm stall)'; "
    "pass --no-comm-stalls to leave them out"
)
STALL = "async-done (comm stall)"


class NonCompute(unittest.TestCase):
    OPS = (
        op("slice-done.1", "async-done", 0, 1),
        op("all-gather.1", "async-done", 10, 2),
        op("x", "copy", 20, 4, stack=HERE),
        op("y", "collective-permute-done", 30, 8),
        op("z", "all-reduce", 40, 16),
        op("v", "all-gather-start", 60, 32),
        op("t", "tuple", 100, 64),
        leaf(200, 128),
        op("x", "copy", 400, 4, stack="m.py:2:1"),
    )

    def said(self, *options: str) -> dict[str, Any]:
        return answer(trace(list(self.OPS), STEP), "non_compute", *options)

    def test_what_is_listed_under_which_label(self) -> None:
        local = [("async-done", "data_move", 1), ("copy", "data_move", 8)]
        stalls = [local[0], (STALL, "comm", 10), local[1]]
        comm = [("all-reduce", "comm", 16), ("all-gather-start", "comm", 32)]
        for options, rows, note in (
            ([], stalls, True),
            (["--no-comm-stalls"], local, False),
            (["--include-comm"], stalls + comm, True),
            (["--include-comm", "--no-comm-stalls"], local + comm, False),
        ):
            with self.subTest(options=options):
                said = self.said(*options)
                self.assertEqual(
                    column(said["by_category"], "hlo_category", "kind", "total_dur_ps"), rows
                )
                self.assertEqual(STALLS in said["notes"], note)
                total = sum(dur for _, _, dur in rows)
                self.assertEqual(said["totals"]["non_compute_duration_ps"], total)
                self.assertEqual(
                    sum(column(said["by_source_within_category"], "total_dur_ps")), total
                )

    def test_percentages_of_the_step_and_of_compute(self) -> None:
        totals = self.said()["totals"]
        self.assertEqual(totals["non_compute_pct_of_step"], 1.9)
        self.assertEqual(totals["non_compute_pct_of_compute"], 14.844)  # 19 of 128
        alone = answer(trace([op("x", "copy", 0, 4)], STEP), "non_compute")["totals"]
        self.assertIsNone(alone["non_compute_pct_of_compute"])

    def test_without_stalls_there_is_no_note(self) -> None:
        ops = [op("slice-done.1", "async-done", 0, 1), op("z", "all-reduce", 5, 5)]
        said = answer(trace(ops, STEP), "non_compute", "--include-comm")
        self.assertNotIn(STALLS, said["notes"])

    def test_a_stall_s_key_keeps_the_stored_category(self) -> None:
        rows = self.said()["by_source_within_category"]
        self.assertEqual(
            column(rows, "hlo_category", "agg_key")[:2],
            [
                ("async-done", "<no source>:async-done"),
                (STALL, "<no source>:async-done"),
            ],
        )
        self.assertEqual(
            column(rows, "hlo_category", "agg_key")[3],
            (STALL, "<no source>:collective-permute-done"),
        )

    def test_categories_count_their_groups_and_tiers(self) -> None:
        rows = {row["hlo_category"]: row for row in self.said()["by_category"]}
        self.assertEqual(rows["copy"]["n_groups"], 2)
        self.assertEqual(rows["copy"]["agg_key_coverage"], {"stack": 2, "tf_op": 0, "no_source": 0})
        self.assertEqual(rows[STALL]["n_groups"], 2)
        self.assertEqual(rows[STALL]["n_executions"], 2)
        self.assertEqual(
            [rows[STALL][f"{k}_dur_ps"] for k in ("total", "min", "max", "avg")], [10, 2, 8, 5]
        )

    def test_ops_of_one_source_are_one_group(self) -> None:
        ops = [op(f"c.{i}", "copy", 10 * i, 5, stack=HERE) for i in range(3)]
        said = answer(trace(ops, STEP), "non_compute")
        self.assertEqual(column(said["by_category"], "n_groups", "n_executions"), [(1, 3)])
        self.assertEqual(column(said["by_source_within_category"], "n_executions"), [3])

    def test_shapes_are_the_texts_and_four_at_most(self) -> None:
        ops = [
            op(
                "x",
                "copy",
                2 * i,
                1,
                shape=f"f32[{i}]{{0:T(8)}}",
                operands=f"(), s8[{i}]{{0:S(1)}} %a",
            )
            for i in (0, 1, 2, 2, 3, 4)
        ]
        (row,) = answer(trace(ops, STEP), "non_compute")["by_source_within_category"]
        self.assertEqual(row["shapes_out"], [f"f32[{i}]{{0:T(8)}}" for i in range(4)])
        self.assertEqual(row["shapes_in"], [f"s8[{i}]{{0:S(1)}}" for i in range(4)])

    def test_the_time_of_those_that_change(self) -> None:
        """None where nothing can be compared, for dtype and layout each by itself."""
        same, cast, laid = "f32[8,4]{1,0}", "bf16[8,4]{1,0}", "f32[8,4]{0,1}"
        unknown, both = "f32[32]{0}", "bf16[8,4]{0,1}"
        for befores, expected in (
            ((same, cast, laid, both), (True, 2 + 8, True, 4 + 8)),
            ((same, same), (False, 0, False, 0)),
            ((unknown,), (False, 0, None, None)),
            ((unknown, laid, same), (False, 0, True, 2)),
            (("",), (None, None, None, None)),
            (("", cast), (True, 2, False, 0)),
        ):
            with self.subTest(befores=befores):
                ops = [
                    op(f"c.{i}", "copy", 20 * i, 1 << i, shape=same, operands=before, stack=HERE)
                    for i, before in enumerate(befores)
                ]
                (row,) = answer(trace(ops, STEP), "non_compute")["by_source_within_category"]
                keys = [
                    f"{what}_{end}"
                    for what in ("dtype", "layout")
                    for end in ("change", "change_dur_ps")
                ]
                self.assertEqual(tuple(row[key] for key in keys), expected)

    def test_tuples_are_shown_whole(self) -> None:
        shape = "(f32[2]{0}, /*index=1*/u32[]{:S(2)})"
        ops = [op("x", "copy-start", 0, 1, shape=shape, operands="f32[2]{0} %a")]
        (row,) = answer(trace(ops, STEP), "non_compute")["by_source_within_category"]
        self.assertEqual((row["shapes_in"], row["shapes_out"]), (["f32[2]{0}"], [shape]))

    def test_without_a_text_there_are_no_shapes(self) -> None:
        ops = [op("x", "copy", 0, 1, text="")]
        (row,) = answer(trace(ops, STEP), "non_compute")["by_source_within_category"]
        self.assertEqual((row["shapes_in"], row["shapes_out"]), ([], []))


# Peaks that divide nicely: 2 TFLOPS and 1 GiB/s, so a picosecond is 2 flops, and 2**30 bytes are a
# second. The ridge is 2e12 / 2**30.
PEAKS = ["--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1"]
GIB = 2**30
PS = 10**12  # a second


class Roofline(unittest.TestCase):
    def one(self, *ops: Op, options: list[str] | None = None) -> dict[str, Any]:
        (row,) = roofline(list(ops), *(PEAKS if options is None else options))["groups"]
        row_: dict[str, Any] = row
        return row_

    def test_a_compute_bound_group(self) -> None:
        # 2e12 flops take 1 s, 2**29 bytes 0.5 s; it ran for 4 s.
        row = self.one(matmul(0, 4 * PS, 2 * 10**12, GIB // 2, model_flops=7))
        expected = {
            "flops_sum": 2 * 10**12,
            "model_flops_sum": 7,
            "bytes_accessed_sum": GIB // 2,
            "dtype": "bf16",
            "arithmetic_intensity": 3725.2903,
            "ridge_point": 1862.6451,
            "bound": "compute",
            "t_compute_theory_ps": PS,
            "t_hbm_theory_ps": PS // 2,
            "t_roofline_theory_ps": PS,
            "t_roofline_per_op_ps": PS,
            "mfu": 0.25,
            "hbm_util": 0.125,
            "roofline_util": 0.25,
            "shortfall_ps": 3 * PS,
            "shortfall_per_op_ps": 3 * PS,
            "shortfall_pct": 75.0,
            "opaque_dur_ps": 0,
            "kernel": None,
            "cost_source": "xla",
        }
        self.assertEqual({key: row[key] for key in expected}, expected)

    def test_a_memory_bound_group(self) -> None:
        # 1e12 flops take 0.5 s, 3 GiB take 3 s; it ran for 7 s.
        row = self.one(matmul(0, 7 * PS, 10**12, 3 * GIB))
        expected = {
            "arithmetic_intensity": 310.4409,
            "bound": "memory",
            "t_compute_theory_ps": PS // 2,
            "t_hbm_theory_ps": 3 * PS,
            "t_roofline_theory_ps": 3 * PS,
            "mfu": 0.071429,
            "hbm_util": 0.428571,
            "roofline_util": 0.428571,
            "shortfall_ps": 4 * PS,
            "shortfall_pct": 57.143,
        }
        self.assertEqual({key: row[key] for key in expected}, expected)

    def test_on_the_ridge_it_is_bound_by_compute(self) -> None:
        self.assertEqual(self.one(matmul(0, 5, 2 * 10**12, GIB))["bound"], "compute")
        self.assertEqual(self.one(matmul(0, 5, 2 * 10**12, GIB + 1))["bound"], "memory")

    def test_a_shortfall_is_of_the_rounded_roof(self) -> None:
        # 5 flops take 2.5 ps, rounded to the even 2; 7 take 3.5, rounded to 4.
        self.assertEqual(self.one(matmul(0, 10, 5, 1))["t_compute_theory_ps"], 2)
        peaks = ["--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1e9"]
        for flops, shortfall in ((5, 9), (7, 7)):
            row = self.one(matmul(0, 11, flops, 1), options=peaks)
            self.assertEqual(row["shortfall_ps"], shortfall)
        # Not rounded before it is a percentage: 100 - 100 · 2.5/10.
        self.assertEqual(self.one(matmul(0, 10, 5, 1), options=peaks)["shortfall_pct"], 75.0)

    def test_without_time_there_is_no_utilization_and_no_weight(self) -> None:
        said = roofline([matmul(0, 0, 4, 1)], *PEAKS)
        (row,) = said["groups"]
        for key in ("mfu", "hbm_util", "roofline_util", "shortfall_pct"):
            self.assertIsNone(row[key])
        for key in ("weighted_avg_mfu", "weighted_avg_hbm_util", "weighted_avg_roofline_util"):
            self.assertIsNone(said["step_summary"][key])
        self.assertIsNone(said["step_summary"]["rooflined_pct_of_compute"])

    def test_the_summary_weighs_by_time(self) -> None:
        ops = [
            matmul(0, 10, 10, 1, stack="m.py:1:1"),  # 5 ps of compute: 0.5
            matmul(10, 30, 12, 1, stack="m.py:2:1"),  # 6 ps: 0.2
            leaf(50, 60),  # no flops
            matmul(200, 0, 10**6, 1, stack="m.py:3:1"),  # no time, no weight
        ]
        said = roofline(ops, "--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1e9")["step_summary"]
        # (10 · 0.5 + 30 · 0.2) / 40
        self.assertEqual(said["weighted_avg_mfu"], 0.275)
        self.assertEqual(said["weighted_avg_roofline_util"], 0.275)
        self.assertEqual(said["rooflined_dur_ps"], 40)
        self.assertEqual(said["step_compute_dur_ps_total"], 100)
        self.assertEqual(
            (said["rooflined_pct_of_compute"], said["skipped_pct_of_compute"]), (40, 60)
        )
        self.assertEqual(said["step_shortfall_ps"], 5 + 24 - 500_000)

    def test_rows_above_their_roof_are_summed_apart(self) -> None:
        peaks = ("--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1e9")
        on_roof = matmul(0, 4, 8, 1, stack="m.py:1:1")
        below = matmul(10, 12, 8, 1, stack="m.py:2:1")  # 4 of 12 ps
        above = matmul(30, 3, 8, 1, stack="m.py:3:1")
        instant = matmul(40, 0, 8, 1, stack="m.py:4:1")  # no utilization
        for ops, n, total, mfu in (
            ((on_roof, below, instant), 0, 0, 0.5),
            ((on_roof, below, above, instant), 1, 3, 0.5),
            ((above, instant), 1, 3, None),
            ((leaf(0, 5),), 0, 0, None),
        ):
            said = roofline(list(ops), *peaks)["step_summary"]["over_roof"]
            expected = {"n_groups": n, "total_dur_ps": total, "weighted_avg_mfu_without": mfu}
            self.assertEqual(said, expected)

    def test_nothing_rooflined_is_null_on_average(self) -> None:
        said = roofline([leaf(0, 10)])["step_summary"]
        self.assertIsNone(said["weighted_avg_roofline_util"])
        self.assertIsNone(said["t_roofline_per_op_ps"])
        self.assertEqual((said["step_shortfall_ps"], said["rooflined_dur_ps"]), (0, 0))
        self.assertEqual(
            (said["rooflined_pct_of_compute"], said["skipped_pct_of_compute"]), (0, 100)
        )
        self.assertEqual(said["top_shortfall_groups"], [])

    def test_the_ten_largest_shortfalls(self) -> None:
        ops = [matmul(20 * i, 20 - i // 2, 2, 1, stack=None, tf_op=f"{i:02}") for i in range(12)]
        peaks = ["--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1e9"]
        rows = roofline(ops[::-1], *peaks)["step_summary"]["top_shortfall_groups"]
        self.assertEqual(column(rows, "agg_key"), [f"tfop:{i:02}" for i in range(10)])
        self.assertEqual(tuple(rows[0].values()), ("tfop:00", None, "00", 20, 19, "compute"))

    def test_groups_stand_in_order_of_appearance(self) -> None:
        ops = [matmul(20 * i, 5 + i, 2, 1, stack=None, tf_op=name) for i, name in enumerate("cab")]
        self.assertEqual(column(roofline(ops)["groups"], "agg_key"), ["tfop:c", "tfop:a", "tfop:b"])

    def test_the_dtype_is_the_one_of_most_time_the_first_met_on_a_tie(self) -> None:
        for durations, dtype in (((5, 6), "fp8"), ((6, 5), "bf16"), ((5, 5), "bf16")):
            shapes = ("bf16[8]{0}", "f8e5m2[8]{0}")
            ops = [
                matmul(10 * i, dur, 4, 1, shape=shape, name=f"f.{i}")
                for i, (dur, shape) in enumerate(zip(durations, shapes, strict=True))
            ]
            self.assertEqual(self.one(*ops, options=[])["dtype"], dtype)

    def test_only_compute_is_rooflined(self) -> None:
        ops = [op("c", "copy", 0, 5, flops=9, bytes_accessed=9, shape=BF16)]
        said = roofline(ops)
        self.assertEqual((said["groups"], said["skipped_groups"]["top_skipped"]), ([], []))


class Skipped(unittest.TestCase):
    def reason(self, *options: str, **facts: Any) -> str | None:
        said = roofline([op("f", "loop fusion", 0, 5, **facts)], *options)["skipped_groups"]
        if not said["top_skipped"]:
            return None
        (row,) = said["top_skipped"]
        counter = {"opaque": "n_no_flops"}.get(row["reason"], f"n_{row['reason']}")
        self.assertEqual(said[counter], 1)
        self.assertEqual(said["total_dur_ps_skipped"], 5)
        reason: str = row["reason"]
        return reason

    def test_reasons_are_tested_in_order(self) -> None:
        for flops, n_bytes, shape, reason in (
            (None, None, "s32[8]", "no_flops"),
            (0, 1, BF16, "no_flops"),
            (-1, 1, BF16, "no_flops"),
            (1, None, "s32[8]", "no_bytes"),
            (1, 0, "s32[8]", "no_bytes"),
            (1, 1, "s32[8]", "dtype_other"),
            (1, 1, "f32[8]", "peak_unknown_for_dtype"),
            (1, 1, "f16[8]", "peak_unknown_for_dtype"),
            (1, 1, "f8e5m2[8]", None),
            (1, 1, BF16, None),
        ):
            with self.subTest(flops=flops, n_bytes=n_bytes, shape=shape):
                facts = {"flops": flops, "bytes_accessed": n_bytes, "shape": shape}
                given = {key: value for key, value in facts.items() if value is not None}
                self.assertEqual(self.reason(**given), reason)

    def test_a_peak_that_is_given_is_known(self) -> None:
        for dtype, shape in (("fp32", "f32[8]"), ("fp16", "f16[8]")):
            options = [f"--peak-tflops-{dtype}", "70"]
            self.assertIsNone(self.reason(*options, flops=1, bytes_accessed=1, shape=shape))

    def test_the_ten_longest_by_time_then_key(self) -> None:
        ops = [leaf(30 * i, 20 - i // 2, f"f{i}.3", tf_op=f"{i:02}") for i in range(12)]
        said = roofline(ops[::-1])["skipped_groups"]
        self.assertEqual(
            column(said["top_skipped"], "agg_key"), [f"tfop:{i:02}" for i in range(10)]
        )
        self.assertEqual(
            (said["n_no_flops"], said["total_dur_ps_skipped"]), (12, 2 * sum(range(15, 21)))
        )
        self.assertEqual(
            column(said["top_skipped"], "top_signature", "reason")[0],
            ("f0 [loop fusion]", "no_flops"),
        )

    def test_the_top_signature_is_the_costliest(self) -> None:
        ops = [leaf(0, 5, "a.1"), leaf(5, 4, "b.1"), leaf(10, 3, "b.2")]
        (row,) = roofline(ops)["skipped_groups"]["top_skipped"]
        self.assertEqual(row["top_signature"], "b [loop fusion]")
        self.assertTrue(row["example_hlo_op"].startswith("%a.1 ="))


class Opaque(unittest.TestCase):
    OPS = (
        kernel(0, 100, stack=HERE, tf_op="first", model_flops=9, bytes_accessed=9),
        matmul(100, 10, 4, 2, model_flops=4, tf_op="second"),
        kernel(200, 50, flops=0, stack=HERE),
    )

    def test_opaque_executions_dilute_no_row(self) -> None:
        (row,) = roofline(list(self.OPS))["groups"]
        expected = {
            "n_executions": 1,
            "total_dur_ps": 10,
            "flops_sum": 4,
            "model_flops_sum": 4,
            "bytes_accessed_sum": 2,
            "hlo_categories": {"convolution fusion": 1},
            "opaque_dur_ps": 150,
            "dtype_uncertain": False,
            # its name is the whole group's
            "tf_op": "first",
        }
        self.assertEqual({key: row[key] for key in expected}, expected)

    def test_opaque_time_is_skipped_as_an_entry_of_its_own(self) -> None:
        said = roofline([*self.OPS, leaf(300, 1, stack=HERE)])
        self.assertEqual(said["skipped_groups"]["n_no_flops"], 1)
        (row,) = said["skipped_groups"]["top_skipped"]
        self.assertEqual((row["reason"], row["total_dur_ps"]), ("opaque", 150))
        self.assertEqual((row["source_inner"], row["tf_op"]), ("m.py:1", "first"))
        self.assertEqual(row["top_signature"], "custom-call:tpu_custom_call")

    def test_a_group_can_be_skipped_twice(self) -> None:
        said = roofline([kernel(0, 100, stack=HERE), leaf(100, 1, stack=HERE)])["skipped_groups"]
        self.assertEqual(said["n_no_flops"], 2)
        self.assertEqual(
            column(said["top_skipped"], "reason", "total_dur_ps"),
            [("opaque", 100), ("no_flops", 1)],
        )

    def test_any_custom_call_without_flops_is_opaque(self) -> None:
        for target in ("ConcatBitcast", ""):
            ops = [op("x", "custom-call", 0, 5, attributes=f', custom_call_target="{target}"')]
            (row,) = roofline(ops)["skipped_groups"]["top_skipped"]
            self.assertEqual(row["reason"], "opaque")

    def test_a_custom_call_with_flops_is_none(self) -> None:
        (row,) = roofline([kernel(0, 5, flops=4, bytes_accessed=4)])["groups"]
        self.assertEqual((row["opaque_dur_ps"], row["cost_source"]), (0, "xla"))


class KernelCost(unittest.TestCase):
    OPS = (
        kernel(0, 100, "flash.1", stack=HERE),
        kernel(100, 300, "flash.2", stack=HERE),
        kernel(400, 50, "other.1", stack=HERE),
        matmul(450, 10, 4, 2),
    )
    PEAKS = ("--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1e9")

    def test_a_kernel_of_known_cost_has_a_row_of_its_own(self) -> None:
        said = roofline(list(self.OPS), *self.PEAKS, "--kernel-cost", "flash=100,1e3")
        self.assertEqual(
            column(
                said["groups"],
                *("kernel", "cost_source", "n_executions", "total_dur_ps", "flops_sum"),
                *("bytes_accessed_sum", "mfu", "opaque_dur_ps", "dtype"),
            ),
            [
                (None, "xla", 1, 10, 4, 2, 0.2, 50, "bf16"),
                ("flash", "user", 2, 400, 200, 2000, 0.25, 0, "bf16"),
            ],
        )
        self.assertEqual(said["skipped_groups"]["n_no_flops"], 1)
        self.assertEqual(said["skipped_groups"]["total_dur_ps_skipped"], 50)
        self.assertEqual(said["step_summary"]["rooflined_pct_of_compute"], 89.13)  # 410 of 460

    def test_several_kernels(self) -> None:
        options = ["--kernel-cost", "flash=1,1", "--kernel-cost", "other=2,1,fp8"]
        said = roofline(list(self.OPS), *options)
        self.assertEqual(
            column(said["groups"], "kernel", "dtype"),
            [(None, "bf16"), ("flash", "bf16"), ("other", "fp8")],
        )
        self.assertEqual(said["skipped_groups"]["top_skipped"], [])

    def test_figures_may_be_in_scientific_notation(self) -> None:
        for cost, flops in (
            ("1.2e12,1", 12 * 10**11),
            ("7,1e0", 7),
            ("9007199254740993,1", 2**53 + 1),
        ):
            (row,) = roofline([kernel(0, 5)], "--kernel-cost", f"flash={cost}")["groups"]
            self.assertEqual((row["flops_sum"], row["bytes_accessed_sum"]), (flops, 1))

    def test_a_dtype_that_is_given_is_certain(self) -> None:
        for cost, dtype, uncertain in (("1,1", "bf16", True), ("1,1,fp8", "fp8", False)):
            ops = [
                op(
                    *("k.1", "custom-call", 0, 5),
                    shape=BF16,
                    operands="s8[9]{0} %a",
                    attributes=', custom_call_target="tpu_custom_call"',
                )
            ]
            (row,) = roofline(ops, "--kernel-cost", f"k={cost}")["groups"]
            self.assertEqual((row["dtype"], row["dtype_uncertain"]), (dtype, uncertain))

    def test_a_cost_of_0_is_skipped_but_not_opaque(self) -> None:
        for cost, reason in (("0,1", "no_flops"), ("1,0", "no_bytes")):
            said = roofline([kernel(0, 5)], "--kernel-cost", f"flash={cost}")["skipped_groups"]
            self.assertEqual(column(said["top_skipped"], "reason"), [reason])

    def test_a_kernel_that_is_not_there(self) -> None:
        for cost in ("flash.1=1,1", "f=1,1", "flash=x=1,1"):
            outcome = run(trace(list(self.OPS)), "roofline", "--kernel-cost", cost)
            self.assertEqual((outcome.status, outcome.stderr.count("\n")), (1, 1))
            self.assertEqual(outcome.object["reason"], "kernel_not_found")
            self.assertEqual(outcome.object["available_kernels"], ["flash", "other"])


class PerOpRoof(unittest.TestCase):
    PEAKS = ("--peak-tflops-bf16", "2", "--peak-tflops-fp8", "4", "--peak-hbm-gibps", "1")

    def test_each_execution_has_a_roof_of_its_own(self) -> None:
        ops = [
            # 1 s of compute, hardly a byte; then 2 s of bytes, hardly a flop; twice the latter
            matmul(0, 5 * PS, 2 * 10**12, 1, name="a"),
            *[matmul(i * PS, 3 * PS, 1, 2 * GIB, name="b") for i in (5, 8)],
        ]
        said = answer(trace(ops), "roofline", *self.PEAKS)
        (row,) = said["groups"]
        self.assertEqual(row["t_roofline_theory_ps"], 4 * PS + 931)  # of the one byte
        self.assertEqual(row["t_roofline_per_op_ps"], 5 * PS)
        self.assertEqual(row["shortfall_per_op_ps"], 6 * PS)
        self.assertEqual(said["step_summary"]["t_roofline_per_op_ps"], 5 * PS)
        self.assertEqual(said["step_summary"]["shortfall_per_op_ps"], 6 * PS)

    def test_with_each_op_s_own_dtype(self) -> None:
        ops = [
            matmul(0, 10, 8, 0, name="a", bytes_accessed=0),
            matmul(10, 9, 8, 0, name="b", bytes_accessed=0, shape="f8e5m2[8]{0}"),
            matmul(20, 1, 0, 1, name="c", bytes_accessed=1),
        ]
        (row,) = answer(
            trace(ops),
            "roofline",
            "--peak-tflops-bf16",
            "2",
            "--peak-tflops-fp8",
            "4",
            "--peak-hbm-gibps",
            "1e9",
        )["groups"]
        self.assertEqual((row["dtype"], row["t_compute_theory_ps"]), ("bf16", 8))
        self.assertEqual(row["t_roofline_per_op_ps"], 4 + 2)

    def test_an_op_of_no_float_dtype_has_only_its_bytes_for_a_roof(self) -> None:
        ops = [
            matmul(0, 10, 8, 1, name="a"),
            matmul(10, 5, 10**6, 1, name="b", shape="s32[8]{0}"),
        ]
        (row,) = roofline(ops, "--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1e9")["groups"]
        self.assertEqual(row["t_roofline_per_op_ps"], 4)

    def test_a_peak_that_is_unknown_makes_it_null(self) -> None:
        ops = [matmul(0, 10, 8, 1, name="a"), matmul(10, 5, 8, 1, name="b", shape="f32[8]{0}")]
        said = answer(trace(ops), "roofline")
        (row,) = said["groups"]
        self.assertEqual(row["dtype"], "bf16")
        self.assertIsNone(row["t_roofline_per_op_ps"])
        self.assertIsNone(row["shortfall_per_op_ps"])
        self.assertIsNone(said["step_summary"]["t_roofline_per_op_ps"])


def chip_trace(*ops: Op, **facts: StatValue) -> bytes:
    return encode(Space([tpu_plane(ops or [matmul(0, 9, 8, 2)], STEP, stats=facts)]))


class Peaks(unittest.TestCase):
    def peaks(self, *options: str, data: bytes | None = None) -> dict[str, Any]:
        used: dict[str, Any] = answer(data or chip_trace(), "roofline", *options)["peaks_used"]
        return used

    def test_the_default_is_half_a_v7x(self) -> None:
        self.assertEqual(answer(chip_trace(), "roofline")["chip"], "v7x")
        self.assertEqual(
            self.peaks(),
            {
                "peak_tflops_bf16": 1153.5,
                "peak_tflops_fp8": 2307.0,
                "peak_tflops_fp32": None,
                "peak_tflops_fp16": None,
                "peak_hbm_gibps": 3690.0,
                "ridge_points": {"bf16": 291.133, "fp8": 582.2659},
                "source": "builtin v7x table",
                "unit": "GiB/s (base-1024) per device",
                "bytes": "accessed",
            },
        )

    def test_each_peak_can_be_replaced(self) -> None:
        for flag, key in (
            *(("tflops-bf16", "peak_tflops_bf16"), ("tflops-fp8", "peak_tflops_fp8")),
            *(("tflops-fp32", "peak_tflops_fp32"), ("tflops-fp16", "peak_tflops_fp16")),
            ("hbm-gibps", "peak_hbm_gibps"),
        ):
            with self.subTest(flag=flag):
                used = self.peaks(f"--peak-{flag}", "70.5")
                self.assertEqual(used[key], 70.5)
                self.assertEqual(used["source"], "builtin v7x table + cli override")
                self.assertEqual(
                    {k: v for k, v in used.items() if k.startswith("peak") and k != key},
                    {k: v for k, v in self.peaks().items() if k.startswith("peak") and k != key},
                )

    def test_ridge_points_are_those_of_known_peaks(self) -> None:
        used = self.peaks("--peak-tflops-fp32", "1", "--peak-hbm-gibps", "1")
        self.assertEqual(
            used["ridge_points"], {"bf16": 1074280.5898, "fp8": 2148561.1796, "fp32": 931.3226}
        )

    def test_other_generations(self) -> None:
        for chip, bf16, gibps in (
            ("v4", 275.0, 1143.6641),
            ("v5e", 197.0, 762.7532),
            ("v5p", 459.0, 2575.1069),
            ("v6e", 918.0, 1525.5064),
            ("v7x", 1153.5, 3690.0),
        ):
            with self.subTest(chip=chip):
                used = self.peaks("--chip", chip)
                self.assertEqual(used["peak_tflops_bf16"], bf16)
                self.assertEqual(round(used["peak_hbm_gibps"], 4), gibps)
                self.assertEqual(used["source"], f"builtin {chip} table")

    def test_the_profile_s_own_peaks(self) -> None:
        data = chip_trace(
            device_type_string="TPU v6 Lite",
            peak_teraflops_per_second=918.0,
            peak_hbm_bw_gigabytes_per_second=1073.741824,
        )
        used = self.peaks("--chip", "profile", data=data)
        self.assertEqual(used["peak_tflops_bf16"], 918.0)
        self.assertEqual(used["peak_hbm_gibps"], 1000.0)
        self.assertIsNone(used["peak_tflops_fp8"])
        used = self.peaks("--chip", "profile", "--peak-hbm-gibps", "5", data=data)
        self.assertEqual((used["peak_tflops_bf16"], used["peak_hbm_gibps"]), (918.0, 5.0))

    def test_a_profile_without_peaks_leaves_them_unknown(self) -> None:
        for facts in ({}, {"peak_teraflops_per_second": 0.0}, {"peak_teraflops_per_second": 5.0}):
            said = answer(chip_trace(**facts), "roofline", "--chip", "profile")
            self.assertEqual(said["skipped_groups"]["n_peak_unknown_for_dtype"], 1)
            self.assertEqual(said["peaks_used"]["ridge_points"], {})

    def test_impossible_peaks_of_a_profile_are_unknown(self) -> None:
        for value in (float("inf"), float("nan"), -1.0, "918", 1e308):
            for fact in ("peak_teraflops_per_second", "peak_hbm_bw_gigabytes_per_second"):
                with self.subTest(value=value, fact=fact):
                    facts: dict[str, StatValue] = {
                        "peak_teraflops_per_second": 918.0,
                        "peak_hbm_bw_gigabytes_per_second": 1638.0,
                        fact: value,
                    }
                    outcome = run(chip_trace(**facts), "roofline", "--chip", "profile")
                    self.assertEqual(outcome.object["status"], "ok")

    def test_peaks_of_any_size_end_in_an_answer(self) -> None:
        for options in (
            ["--peak-tflops-bf16", "5e-324"],
            ["--peak-hbm-gibps", "5e-324"],
            ["--peak-hbm-gibps", "5e-324", "--peak-tflops-bf16", "1e308"],
            ["--peak-hbm-gibps", "1e308", "--peak-tflops-bf16", "1e308"],
        ):
            with self.subTest(options=options):
                data = chip_trace(matmul(0, 1, 2**60, 2**60))
                self.assertIn(run(data, "roofline", *options).status, (0, 2))


class RooflineNotes(unittest.TestCase):
    def notes(self, data: bytes, *options: str) -> list[str]:
        notes: list[str] = answer(data, "roofline", "--step", "0", *options)["notes"]
        return notes

    def test_none_where_all_is_well(self) -> None:
        data = chip_trace(matmul(0, 9, 8, 2, model_flops=8), device_type_string="TPU v7x")
        self.assertEqual(self.notes(data), [])

    def test_rows_above_their_roof_are_counted(self) -> None:
        peaks = ["--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1e9"]
        ops = [
            matmul(0, 4, 8, 1, stack="m.py:1:1"),  # on its roof
            matmul(10, 3, 8, 1, stack="m.py:2:1"),
            matmul(20, 2, 8, 1, stack="m.py:3:1"),
            matmul(30, 0, 8, 1, stack="m.py:4:1"),  # no utilization
        ]
        v7x = ["--chip", "v7x", *peaks]
        without_line = [*ops, matmul(40, 1, 8, 1, tf_op="x", stack=None)]
        four = [matmul(10 * i, 1 + i % 3, 90, 1, stack=f"{i}.py:1:1") for i in range(4)]
        for trace_of, n, names in (
            (ops, 2, "m.py:2, m.py:3"),
            (without_line, 3, "m.py:2, m.py:3, tfop:x"),
            # Three at most, longest first, then by key: of those of 1 ps that of 3.py.
            (four, 4, "2.py:1, 1.py:1, 3.py:1, …"),
        ):
            (note,) = self.notes(chip_trace(*trace_of), *v7x)
            self.assertEqual(
                note,
                f"{n} groups have a roofline_util above 1, a wrong dtype, peak or flop count:"
                f" {names}",
            )
        self.assertEqual(self.notes(chip_trace(ops[0]), *v7x), [])

    def test_rows_whose_model_flops_differ_are_counted(self) -> None:
        ops = [
            matmul(0, 9, 8, 1, stack="m.py:1:1", model_flops=7),
            matmul(10, 9, 8, 1, stack="m.py:2:1", model_flops=8),
            matmul(20, 9, 8, 1, stack="m.py:3:1"),
        ]
        (note,) = self.notes(chip_trace(*ops), "--chip", "v7x")
        self.assertTrue(note.startswith("1 "), note)
        self.assertIn("model_flops_sum", note)

    def test_a_trace_of_another_generation(self) -> None:
        own = {"peak_teraflops_per_second": 275.0, "peak_hbm_bw_gigabytes_per_second": 1228.0}
        for device_type, chip, facts in (
            ("TPU v6 Lite", "v6e", {}),
            ("tpu V6E", "v6e", {}),
            ("TPU v4", "v4", own),
            ("TPU v5", "v5p", {}),
        ):
            with self.subTest(device_type=device_type):
                data = chip_trace(device_type_string=device_type, **facts)
                self.assertEqual(answer(data, "roofline")["chip"], chip)
                self.assertEqual(
                    self.notes(data),
                    [
                        f"the trace is of a {device_type!r}: peaks of {chip} taken;"
                        " --chip takes others"
                    ],
                )
                # Asked for, they are nothing to tell of.
                self.assertEqual(self.notes(data, "--chip", chip), [])
                note = self.notes(data, "--chip", "v7x")[0]
                self.assertEqual(
                    note,
                    f"the trace is of a {device_type!r}, the peaks are those of v7x:"
                    f" --chip {chip} fits",
                )
        self.assertEqual(self.notes(data, "--chip", "profile"), [])

    def test_a_trace_of_no_known_generation(self) -> None:
        unknown = "the trace is of a 'TPU v99'"
        own = {"peak_teraflops_per_second": 1153.5, "peak_hbm_bw_gigabytes_per_second": 3962.1}
        advice = {
            "": {},
            ": --chip profile takes its own": own,
        }
        for end, facts in advice.items():
            data = chip_trace(device_type_string="TPU v99", **facts)
            self.assertEqual(answer(data, "roofline")["chip"], "v7x")
            self.assertEqual(
                self.notes(data), [f"{unknown}: peaks of v7x taken; --chip takes others"]
            )
            self.assertEqual(
                self.notes(data, "--chip", "v7x"),
                [f"{unknown}, the peaks are those of v7x{end}"],
            )
        # One of the two is no row of peaks.
        for lacking in own:
            data = chip_trace(
                device_type_string="TPU v99", **{k: v for k, v in own.items() if k != lacking}
            )
            (note,) = self.notes(data, "--chip", "v7x")
            self.assertEqual(note, f"{unknown}, the peaks are those of v7x")

    def test_a_trace_that_does_not_say_what_it_is_of(self) -> None:
        said = answer(chip_trace(), "roofline", "--step", "0")
        self.assertEqual((said["chip"], said["device_type"]), ("v7x", None))
        self.assertEqual(
            said["notes"],
            ["the trace is of a device without a type: peaks of v7x taken; --chip takes others"],
        )
        self.assertEqual(self.notes(chip_trace(), "--chip", "v4"), [])

    def test_peaks_that_differ_by_more_than_2_percent(self) -> None:
        for fact, near, far in (
            ("peak_teraflops_per_second", (1153.5, 1131.0, 1176.0), (1130.0, 1177.0)),
            # 3690 GiB/s are 3962.107 GB/s
            ("peak_hbm_bw_gigabytes_per_second", (3962.0, 3884.0, 4041.0), (3882.0, 4042.0)),
        ):
            for value in (*near, *far):
                with self.subTest(fact=fact, value=value):
                    notes = self.notes(chip_trace(device_type_string="TPU v7x", **{fact: value}))
                    self.assertEqual(len(notes), value in far)


class HbmBytes(unittest.TestCase):
    def test_only_hbm_counts_reads_and_writes(self) -> None:
        accesses = memory_access_breakdown((1, 1, 10), (2, 1, 5), (1, 2, 100), (2, 3, 1000))
        ops = [leaf(i, 1, bytes_accessed=1115, memory_access_breakdown=accesses) for i in range(2)]
        self.assertEqual(column(by_source(ops), "hbm_bytes_sum"), [30])

    def test_an_empty_breakdown_is_a_known_0_only_where_all_lies_on_the_chip(self) -> None:
        vmem, hbm, host = "f32[8]{0:S(1)}", "f32[8]{0}", "f32[8]{0:S(5)}"
        for n_bytes, shape, operands, expected in (
            (9, vmem, f"{vmem} %a", 0),
            (9, vmem, f"{vmem} %a, f32[8]{{0:T(8)S(12)}} %b", 0),
            (9, f"({vmem}, {vmem})", f"{vmem} %a", 0),
            (9, vmem, "", 0),
            # real copies to the host and back
            (9, host, f"{hbm} %a", None),
            (9, hbm, f"{host} %a", None),
            (9, vmem, f"{host} %a", None),
            (9, vmem, f"{vmem} %a, {hbm} %b", None),
            (9, f"({vmem}, {hbm})", f"{vmem} %a", None),
            # space 0, written out
            (9, vmem, "f32[8]{0:S(0)} %a", None),
            # no array to be seen
            (9, "()", "%a", None),
            # and of what moves no bytes it is known wherever it lies
            (0, hbm, f"{hbm} %a", 0),
            (None, hbm, f"{hbm} %a", 0),
            (-1, hbm, f"{hbm} %a", 0),
        ):
            with self.subTest(n_bytes=n_bytes, shape=shape, operands=operands):
                facts: dict[str, Any] = {} if n_bytes is None else {"bytes_accessed": n_bytes}
                ops = [
                    leaf(
                        *(0, 1),
                        shape=shape,
                        operands=operands,
                        memory_access_breakdown=raw(b""),
                        **facts,
                    )
                ]
                self.assertEqual(column(by_source(ops), "hbm_bytes_sum"), [expected])

    def test_a_breakdown_of_other_memories_is_a_known_0(self) -> None:
        accesses = memory_access_breakdown((1, 2, 9), (1, 0, 9), (2, 5, 9))
        ops = [leaf(0, 1, bytes_accessed=27, memory_access_breakdown=accesses)]
        self.assertEqual(column(by_source(ops), "hbm_bytes_sum"), [0])

    def test_a_breakdown_that_is_none_is_unknown(self) -> None:
        for breakdown in ("text", 7):
            ops = [leaf(0, 1, bytes_accessed=9, memory_access_breakdown=breakdown)]
            self.assertEqual(column(by_source(ops), "hbm_bytes_sum"), [None])

    def test_null_where_a_member_that_moves_bytes_lacks_it(self) -> None:
        vmem = {"shape": "f32[8]{0:S(1)}", "memory_access_breakdown": raw(b"")}
        known = leaf(0, 1, "a", bytes_accessed=9, **vmem)
        for facts, expected in (
            ({"bytes_accessed": 1}, None),
            ({"bytes_accessed": 0}, 0),
            ({}, 0),
            ({"bytes_accessed": -1}, 0),
        ):
            with self.subTest(facts=facts):
                rows = by_source([known, leaf(1, 1, "b", **facts)])
                self.assertEqual(column(rows, "hbm_bytes_sum"), [expected])
        self.assertEqual(column(by_source([leaf(0, 1)]), "hbm_bytes_sum"), [None])

    def test_bytes_hbm_judges_by_hbm_alone(self) -> None:
        accesses = memory_access_breakdown((1, 1, GIB // 2), (1, 2, 9 * GIB))
        ops = [matmul(0, 4 * PS, 2 * 10**12, 10 * GIB, memory_access_breakdown=accesses)]
        for traffic, bound, t_hbm, intensity, per_op in (
            ("accessed", "memory", 10 * PS, 186.2645, 10 * PS),
            ("hbm", "compute", PS // 2, 3725.2903, PS),
        ):
            said = roofline(ops, *PEAKS, "--bytes", traffic)
            (row,) = said["groups"]
            self.assertEqual(said["peaks_used"]["bytes"], traffic)
            self.assertEqual((row["bound"], row["t_hbm_theory_ps"]), (bound, t_hbm))
            self.assertEqual(
                (row["arithmetic_intensity"], row["t_roofline_per_op_ps"]), (intensity, per_op)
            )
            self.assertEqual(
                (row["bytes_accessed_sum"], row["hbm_bytes_sum"]), (10 * GIB, GIB // 2)
            )

    def test_a_known_0_is_compute_bound_of_no_intensity(self) -> None:
        accesses = memory_access_breakdown((1, 2, 9))
        ops = [matmul(0, 10, 8, 9, memory_access_breakdown=accesses)]
        (row,) = roofline(ops, *PEAKS, "--bytes", "hbm")["groups"]
        self.assertEqual((row["bound"], row["arithmetic_intensity"]), ("compute", None))
        self.assertEqual((row["hbm_util"], row["roofline_util"]), (0.0, 0.4))

    def test_the_bytes_of_a_kernel_cost_count_as_hbm_bytes(self) -> None:
        said = roofline([kernel(0, 5)], "--kernel-cost", "flash=8,3", "--bytes", "hbm")
        self.assertEqual(column(said["groups"], "hbm_bytes_sum", "bytes_accessed_sum"), [(3, 3)])

    def test_unknown_hbm_bytes_are_no_bytes(self) -> None:
        said = roofline([matmul(0, 10, 8, 9)], "--bytes", "hbm")
        self.assertEqual(column(said["skipped_groups"]["top_skipped"], "reason"), ["no_bytes"])


if __name__ == "__main__":
    unittest.main()
