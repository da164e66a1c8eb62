"""What all modes have in common: their fields, their options, how `--top` cuts them."""

from __future__ import annotations

import argparse
import os
import tempfile
import unittest
from pathlib import Path
from typing import Any

import compute_breakdown
from tests.builders import hlo_proto
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Op,
    Plane,
    Space,
    encode,
    op,
    tpu_plane,
    trace,
)
from tests.harness import ALL_MODES, DEMO, MODES, STEP_MODES, answer, keywords_of, run, sampled
from tests.modes.small_steps import (
    HERE,
    STALL,
    STALLS,
    STEP,
    by_source,
    column,
    kernel,
    leaf,
    matmul,
    roofline,
    summary,
)

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
    "bottleneck": "bottleneck speed_of_light mfu_at_least hfu_at_least mfu tokens_per_s over_roof "
    "capture budget recompute_dur_ps recompute_pct_of_step findings tail chip peaks_used "
    "idle_by_cause",
    "summary": "top_compute_groups tail_compute by_kind_rollup by_hlo_category steps "
    "by_phase_rollup idle_gaps comm_rollup kernels steps_rollup",
    "by_source": "groups",
    "by_scope": "scopes n_scopes_omitted no_scope",
    "by_op": "ops tail containers chip peaks_used",
    "non_compute": "by_category by_source_within_category",
    "roofline": "chip peaks_used step_summary groups skipped_groups",
    "comm": "rows tail",
    "memory": "peak_bytes reserved_bytes fragmentation_bytes padding_bytes by_kind other_spaces "
    "peak_at buffers by_source by_op_name by_opcode by_argument tail runtime",
    "program": "name program_id n_computations n_instructions n_fusions n_devices opcodes "
    "collectives kernels retries parameters tail aliased_bytes donated_unused_bytes flags",
    "idle": "idle_by_cause gaps host_events",
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
    "host_in_flight_union_ps host_hidden_union_ps by_collective",
    "memory": "",
    "program": "",
    "idle": "",
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
    "steps_rollup": "n n_without_ops between_steps_ps between_steps_pct by_name",
    "by_name": "name n total_dur_ps median_dur_ps min_dur_ps max_dur_ps",
    "idle_by_cause": "barrier dependency in_container between_programs in_program",
    "gaps": "start_ps dur_ps pct_of_step after_hlo_op before_hlo_op inside cause trace_window_ps "
    "host",
    "host": "thread event dur_ps still within",
    "host_events": "event dur_ps n_threads",
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
    "top_skipped": "agg_key source_inner source_user tf_op total_dur_ps hbm_util reason "
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
    "budget": "class dur_ps pct_of_step at_roof_ps lost_ps hideable_ps n_executions",
    "over_roof": "n_ops dur_ps",
    "findings": "rank class source_inner source_user source_is agg_key tf_op kernel dur_ps "
    "pct_of_step at_roof_ps lost_ps hideable_ps n_executions phases waits_for top_signature",
    "bottleneck tail": "n_findings_omitted dur_ps lost_ps",
    "rows": "collective mode engine source_inner source_user source_is agg_key tf_op n_executions "
    "sync_dur_ps wait_dur_ps pct_of_step pairs in_flight_ps in_flight_union_ps covered_ps other_ps "
    "payload_bytes bus_bytes group_size groups groups_from bus_gbps bus_gbps_over plan",
    "pairs": "paired ambiguous unpaired",
    "comm tail": "n_rows_omitted sync_dur_ps wait_dur_ps",
    "by_collective": "n_executions sync_dur_ps wait_dur_ps payload_bytes",
    "by_kind": "parameter output constant temporary",
    "peak_at": "hlo_op source_inner source_is tf_op first_start_ps",
    "buffers": "rank bytes padding_bytes pct_of_peak kind shape hlo_op opcode shape_index "
    "parameter_number tf_op source_inner source_is source_stack",
    "memory by_source": "source_inner bytes n_buffers",
    "by_op_name": "tf_op bytes n_buffers",
    "by_opcode": "opcode bytes n_buffers",
    "by_argument": "argument bytes n_buffers",
    "memory tail": "n_buffers_omitted bytes",
    "runtime": "capacity_bytes peak_bytes peak_at_ps peak_reserved_bytes peak_allocated_bytes "
    "min_available_bytes max_fragmentation n_events",
    "roofline tail": "n_groups_omitted dur_ps shortfall_ps",
    "collectives": "collective how plan n_instructions n_executions sync_dur_ps wait_dur_ps "
    "payload_bytes",
    "program kernels": "kernel vmem_used_bytes vmem_limit_bytes declared n_instructions "
    "n_executions total_dur_ps",
    "declared": "flops bytes_accessed transcendentals",
    "retries": "hlo_op retry_count n_executions total_dur_ps vmem_used_bytes vmem_limit_bytes",
    "parameters": "number shape_index path shape global_shape sharding bytes memory_space "
    "aliased_to_output",
    "program tail": "n_parameters_omitted bytes",
    "flags": "n set findings",
    "flag findings": "flag set_to n_instructions n_seen exposed_ps says",
    "peaks_used": "peak_tflops_bf16 peak_tflops_fp8 peak_tflops_fp32 peak_tflops_fp16 "
    "peak_hbm_gibps ridge_points source unit bytes",
}


def with_program(ops: list[Op], program: bytes | None = None) -> bytes:
    """A trace of these ops, and their program."""
    for each in ops:
        each.stats["program_id"] = 7
    program = program or hlo_proto.hlo_proto(
        {"main": [hlo_proto.op("x", "parameter"), hlo_proto.op("f.1", "fusion", "x")]},
        buffers=hlo_proto.buffer(1, 4096, 1)
        + hlo_proto.buffer(2, 512, 2)
        + hlo_proto.allocation(0, 4096, (1, 0, 4096), parameter=0)
        + hlo_proto.allocation(1, 512, (2, 0, 512))
        + hlo_proto.heap_trace((hlo_proto.ALLOC, 2, "f.1", 0)),
    )
    beside = hlo_proto.metadata_plane({7: ("jit_f(7)", program)})
    return encode(Space([tpu_plane(ops, STEP), beside]))


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
        self.assert_keys(row, ROWS[name], f"ROWS[{name!r}] in tests/modes/test_modes.py")

    def assert_keys(self, said: dict[str, Any], listed: str, where: str) -> None:
        new, gone = set(said) - set(listed.split()), set(listed.split()) - set(said)
        self.assertFalse(
            new or gone,
            f"\nnew fields {sorted(new)}, gone {sorted(gone)}: say so in {where}, in the tables of"
            " fields on the user's and the agent's page, and in tests/naive",
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
        self.assert_fields(said["steps_rollup"], "steps_rollup")
        self.assert_fields(said["steps_rollup"]["by_name"][0], "by_name")
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
        self.assert_fields(said["idle_by_cause"], "idle_by_cause")
        for name in ("speed_of_light", "over_roof", "capture", "peaks_used"):
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
        for name in ("buffers", "by_source", "by_op_name", "by_opcode", "by_argument"):
            self.assertTrue(said[name])
            for row in said[name]:
                self.assert_fields(row, "memory by_source" if name == "by_source" else name)

    def test_of_idle(self) -> None:
        events = [Event(1, 50, 7), Event(2, 52, 2)]
        names = [EventMetadata(1, "x"), EventMetadata(2, "y")]
        host = Plane("/host:CPU", [Line("t", events)], names)
        data = encode(Space([tpu_plane(list(self.OPS), [("s", 0, 10**7)]), host]))
        said = answer(data, "idle")
        self.assert_fields(said["idle_by_cause"], "idle_by_cause")
        for row in said["gaps"]:
            self.assert_fields(row, "gaps")
        (gap,) = (row for row in said["gaps"] if row["start_ps"] == 50)
        self.assertEqual(len(gap["host"]), 2)
        for row in gap["host"]:
            self.assert_fields(row, "host")
        ops = [leaf(0, 1), leaf(9 * 10**6, 1)]
        said = answer(encode(Space([tpu_plane(ops, [("s", 0, 10**7)]), host])), "idle")
        self.assertEqual(len(said["host_events"]), 2)
        for row in said["host_events"]:
            self.assert_fields(row, "host_events")

    def test_of_program(self) -> None:
        config = b'{"custom_call_config":{"cost_estimate":{}},"retry_config":{"retry_count":"1"}}'
        main = [
            hlo_proto.op("x", "parameter"),
            hlo_proto.op("f.1", "all-reduce", "x"),
            hlo_proto.op("k", "custom-call", target="tpu_custom_call", config=config),
        ]
        data = with_program(list(self.OPS), hlo_proto.hlo_proto({"main": main}))
        said = answer(data, "program", "--flags", __file__)
        for name in ("collectives", "program kernels", "retries", "parameters"):
            (row,) = said[name.split()[-1]]
            self.assert_fields(row, name)
        self.assert_fields(said["kernels"][0]["declared"], "declared")
        self.assert_fields(said["tail"], "program tail")
        self.assert_fields(said["flags"], "flags")
        for row in said["flags"]["findings"]:
            self.assert_fields(row, "flag findings")

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
        self.assert_fields(roofline(list(self.OPS), "--top", "1")["tail"], "roofline tail")


# Where a page may be written.
OUT = os.path.join(tempfile.gettempdir(), f"step-{os.getpid()}.html")


class OptionsOfModes(unittest.TestCase):
    # A use of each option that belongs to some mode, and the modes that it belongs to.
    OPTIONS: dict[tuple[str, ...], str] = {  # noqa: RUF012
        ("--include-comm",): "summary by_source non_compute",
        ("--step", "0"): " ".join(STEP_MODES),
        ("--step-id", "s"): " ".join(STEP_MODES),
        ("--own", "m.py"): " ".join(STEP_MODES),
        ("--top", "3"): "bottleneck summary by_source by_op non_compute roofline comm memory idle "
        "program compare spread",
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
        ("--tokens", "8"): "bottleneck",
        ("--flops-per-token", "1e9", "--tokens", "8", "--n-devices", "2"): "bottleneck",
        ("--params", "7e9", "--tokens", "8", "--n-devices", "2"): "bottleneck",
        ("--n-devices", "2", "--tokens", "8", "--params", "7e9"): "bottleneck",
        ("--flags", __file__): "program",
        ("--out", OUT): "page",
        ("--plane", "0"): "anatomy",
        ("--line", "XLA Ops"): "anatomy",
        ("--grep", "fl.sh"): "anatomy",
        ("--sample", "1"): "anatomy",
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
            " the user's page, and draw it in tests/builders/random_xspace.py",
        )

    def test_an_option_of_another_mode_is_refused(self) -> None:
        data = with_program([kernel(0, 5)])
        self.addCleanup(Path(OUT).unlink, missing_ok=True)
        for option, modes in sampled(self.OPTIONS.items(), 8):
            for mode in ALL_MODES:
                needed = {
                    "compare": ["--baseline", str(DEMO)],
                    "anatomy": ["--plane", "/device:TPU:0"],
                    "page": ["--out", OUT],
                }.get(mode, [])
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
                    if each.name not in ("baseline", "out"):
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
            outcome = run(data, MODES[0], flag, "text" if flag == "--format" else "1")
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


if __name__ == "__main__":
    unittest.main()
