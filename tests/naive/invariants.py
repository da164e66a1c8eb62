"""Check invariants: statements that must be true for every answer to any trace.

`faults(answer)` checks a single answer; `faults_between(data, options, ask)` compares several
modes' answers for the same step. Both functions yield a sentence for each violation. No time may be
lost or counted twice, and figures that several modes print must agree.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

from _proto import xplane_pb2
from tests.naive.op import union

Json = dict[str, Any]
Ask = Callable[..., Json]
Faults = Iterator[str]
KINDS = ("compute", "data_move", "comm", "other")
DURATIONS = ("n_executions", "total_dur_ps", "min_dur_ps", "max_dur_ps", "avg_dur_ps")


def total(rows: Iterable[Json], name: str) -> int:
    return sum(row[name] or 0 for row in rows)


def differs(what: str, ours: object, theirs: object) -> Faults:
    if ours != theirs:
        yield f"{what}: {str(ours)[:200]} instead of {str(theirs)[:200]}"


def sums_to(what: str, rows: Iterable[Json], name: str, expected: int, rest: int = 0) -> Faults:
    yield from differs(f"sum of {what} {name}", total(rows, name) + rest, expected)


# Lists of groups, and the field that differs between their rows.
KEYED = (
    ("summary", "top_compute_groups", "row_key"),
    ("by_source", "groups", "row_key"),
    ("non_compute", "by_source_within_category", "row_key"),
    ("roofline", "groups", "agg_key"),
)


def key_faults(result: Json) -> Faults:
    for mode, rows, name in KEYED:
        if result["mode"] == mode:
            n = Counter(row[name] for row in result[rows])
            yield from differs(f"rows of one {name}", {key for key in n if n[key] > 1}, set())
    if result["mode"] == "by_source" and {row["kind"] for row in result["groups"]} <= {"compute"}:
        for row in result["groups"]:
            yield from differs("row_key of math", row["row_key"], row["agg_key"])


def faults(result: Json) -> Faults:
    """Check a single answer."""
    if result["status"] != "ok":
        return
    yield from key_faults(result)
    if "totals" in result and "container_durations_ps" in result["totals"]:
        yield from totals_faults(result)
    of_mode = {
        "anatomy": anatomy_faults,
        "bottleneck": bottleneck_faults,
        "by_op": by_op_faults,
        "by_scope": by_scope_faults,
        "by_source": by_source_faults,
        "comm": comm_faults,
        "idle": idle_faults,
        "kernel": kernel_faults,
        "memory": memory_faults,
        "non_compute": non_compute_faults,
        "program": program_faults,
        "roofline": roofline_faults,
        "summary": summary_faults,
    }
    if result["mode"] in of_mode:
        yield from of_mode[result["mode"]](result)


def totals_faults(result: Json) -> Faults:
    totals = result["totals"]
    leaves = totals["non_while_duration_ps_sum"]
    by_kind = sum(totals[f"{kind}_duration_ps"] for kind in KINDS)
    yield from differs("sum of the kinds' durations", by_kind, leaves)
    n_by_kind = sum(totals[f"n_events_{kind}"] for kind in KINDS)
    yield from differs("sum of the kinds' events", n_by_kind, totals["n_events_total"])
    n_by_key = sum(totals["agg_key_coverage"].values())
    yield from differs("sum of agg_key_coverage", n_by_key, totals["n_events_total"])
    accounted = totals["busy_duration_ps"] + totals["idle_duration_ps"]
    yield from differs("busy and idle time", accounted, result["step_duration_ps"])


def row_faults(what: str, row: Json) -> Faults:
    """Check that a row's five fields in `DURATIONS` are consistent."""
    n, whole, shortest, longest, average = (row[name] for name in DURATIONS)
    # The average is computed with floats, which are exact only up to 2**53.
    is_between = shortest <= average <= longest or whole > 2**53
    if not (n > 0 and is_between and n * shortest <= whole <= n * longest):
        yield f"{what}: {dict(zip(DURATIONS, (n, whole, shortest, longest, average), strict=True))}"
    yield from differs(f"{what} avg_dur_ps", average, round(whole / n))


def group_faults(row: Json) -> Faults:
    """Check a row of `by_source` or a group of `summary`."""
    what, whole, n = row["agg_key"], row["total_dur_ps"], row["n_executions"]
    yield from row_faults(what, row)
    yield from differs(f"{what} phases", sum(row["phases"].values()), whole)
    yield from differs(f"{what} hlo_categories", sum(row["hlo_categories"].values()), n)
    rest = row["hlo_op_breakdown_overflow"] or {"total_dur_ps": 0, "n_executions": 0}
    for name in ("total_dur_ps", "n_executions"):
        parts = row["hlo_op_breakdown"]
        yield from sums_to(f"{what} hlo_op_breakdown", parts, name, row[name], rest[name])
    yield from differs(f"{what} longest example", row["example_hlo_op_dur_ps"], row["max_dur_ps"])
    yield from likely_faults(row)
    if row["likely_sources"] is not None and row["agg_key_kind"] == "stack":
        yield f"{what}: likely sources despite a stack"
    yield from top_faults(f"{what} scopes", row.get("scopes"), 4, whole)


def likely_faults(row: Json) -> Faults:
    rows = row["likely_sources"]
    if rows is not None:
        whole = row["total_dur_ps"] if "total_dur_ps" in row else row["dur_ps"]
        yield from sums_to("likely_sources", rows, "dur_ps", whole)
        yield from sums_to("likely_sources", rows, "n_executions", row["n_executions"])


def top_faults(what: str, rows: list[Json] | None, most: int, whole: int) -> Faults:
    """Check that the longest parts of a time are sorted, and that a complete list adds up to this
    time."""
    if rows is None:
        return
    times = [row["dur_ps"] for row in rows]
    if times != sorted(times, reverse=True) or len(times) > most:
        yield f"{what}: {times} aren't the {most} longest in order"
    if sum(times) > whole or (len(times) < most and sum(times) != whole):
        yield f"{what}: {times} are parts of {whole}"


def summary_faults(result: Json) -> Faults:
    totals, rollup = result["totals"], result["by_kind_rollup"]
    for kind in KINDS:
        yield from differs(f"{kind} rollup", rollup[kind]["dur_ps"], totals[f"{kind}_duration_ps"])
    leaves = [row for row in result["by_hlo_category"] if row["kind"] != "container"]
    whole = totals["non_while_duration_ps_sum"]
    yield from sums_to("by_hlo_category", leaves, "total_dur_ps", whole)
    yield from sums_to("by_hlo_category", leaves, "n_executions", totals["n_events_total"])
    groups = result["top_compute_groups"]
    asked = ["compute", *(["comm"] if any("kind" in row for row in groups) else [])]
    if groups:
        whole = sum(totals[f"{kind}_duration_ps"] for kind in asked)
        rest = result["tail_compute"]["dur_ps"]
        yield from sums_to("top_compute_groups", groups, "total_dur_ps", whole, rest)
    phases = result["by_phase_rollup"].values()
    yield from sums_to("by_phase_rollup", phases, "dur_ps", totals["compute_duration_ps"])
    for row in groups:
        yield from group_faults(row)
    steps, rollup = result["steps"], result["steps_rollup"]
    n_idle = sum(not step["n_xla_ops_events"] for step in steps)
    yield from differs("steps", (rollup["n"], rollup["n_without_ops"]), (len(steps), n_idle))
    yield from sums_to("by_name", rollup["by_name"], "n", len(steps))
    yield from sums_to("by_name", rollup["by_name"], "total_dur_ps", total(steps, "duration_ps"))
    yield from gaps_faults(result["idle_gaps"], totals["idle_duration_ps"])
    waits = totals["wait_duration_ps"]
    yield from sums_to("comm_rollup", result["comm_rollup"], "wait_dur_ps", waits)
    for row in result["kernels"]:
        yield from row_faults(row["kernel"], row)
        whole = row["total_dur_ps"]
        yield from differs(f"{row['kernel']} phases", sum(row["phases"].values()), whole)


def gaps_faults(gaps: list[Json], idle: int) -> Faults:
    """Check that the longest gaps are in order and do not exceed the idle time."""
    ranks = [(-gap["dur_ps"], gap["start_ps"]) for gap in gaps]
    if ranks != sorted(ranks) or total(gaps, "dur_ps") > idle:
        yield f"gaps {ranks} are out of order or exceed the idle time, {idle} ps"


def by_source_faults(result: Json) -> Faults:
    rows, tail = result["groups"], result.get("tail", {"n_groups_omitted": 0, "dur_ps": 0})
    n_groups = result["totals"]["n_groups_total"]
    yield from differs("number of groups", len(rows) + tail["n_groups_omitted"], n_groups)
    for row in rows:
        yield from group_faults(row)
        n_typed = sum(row["dtypes"].values())
        yield from differs(f"{row['agg_key']} dtypes", n_typed, row["n_executions"])
    kinds = {row["kind"] for row in rows}
    if not tail["n_groups_omitted"]:
        for kind in kinds:
            of_kind = [row for row in rows if row["kind"] == kind]
            whole = result["totals"][f"{kind}_duration_ps"]
            yield from sums_to(f"{kind} groups", of_kind, "total_dur_ps", whole)


def non_compute_faults(result: Json) -> Faults:
    whole = result["totals"]["non_compute_duration_ps"]
    categories, sources = result["by_category"], result["by_source_within_category"]
    tail = result.get("tail", {"n_groups_omitted": 0, "dur_ps": 0})
    rest = sum(result["totals"][f"{kind}_duration_ps"] for kind in ("data_move", "comm", "other"))
    left_out = result["totals"]["left_out_ps"]
    yield from differs("listed and left out", whole + sum(left_out.values()), rest)
    yield from sums_to("by_category", categories, "total_dur_ps", whole)
    yield from sums_to("sources", sources, "total_dur_ps", whole, tail["dur_ps"])
    n_groups = len(sources) + tail["n_groups_omitted"]
    yield from sums_to("by_category", categories, "n_groups", n_groups)
    for row in categories:
        yield from row_faults(row["hlo_category"], row)
        n_covered = sum(row["agg_key_coverage"].values())
        yield from differs(f"{row['hlo_category']} coverage", n_covered, row["n_executions"])
        its = [source for source in sources if source["hlo_category"] == row["hlo_category"]]
        its = [source for source in its if source["kind"] == row["kind"]]
        if not tail["n_groups_omitted"]:
            yield from sums_to(row["hlo_category"], its, "total_dur_ps", row["total_dur_ps"])
    for row in sources:
        yield from row_faults(row["agg_key"], row)
        yield from likely_faults(row)
        for what in ("dtype_change", "layout_change"):
            time = row[f"{what}_dur_ps"]
            if row["hlo_category"].endswith("-start") and time is not None:
                yield f"{row['agg_key']}: a start has no {what} yet"
            if (row[what] is None) != (time is None) or (time or 0) > row["total_dur_ps"]:
                yield f"{row['agg_key']}: {what} {row[what]} takes {time}"


def by_scope_faults(result: Json) -> Faults:
    rows, outside, totals = result["scopes"], result["no_scope"], result["totals"]
    if not rows[0]["depth"]:
        leaves = totals["non_while_duration_ps_sum"]
        yield from differs("root and no_scope", rows[0]["total_dur_ps"] + outside["dur_ps"], leaves)
        n = rows[0]["n_executions"] + outside["n_executions"]
        yield from differs("executions of root and no_scope", n, totals["n_events_total"])
    yield from differs("no_scope kinds", sum(outside["kinds"].values()), outside["dur_ps"])
    yield from likely_faults(outside)
    children: dict[str, list[Json]] = {row["scope"]: [] for row in rows}
    for row in rows[1:]:
        parent = row["scope"].removesuffix(row["name"]).removesuffix("/")
        if parent not in children:
            yield f"{row['scope']}: comes before its parent"
        children.setdefault(parent, []).append(row)
    for row in rows:
        what, whole = f"scope {row['scope']!r}", row["total_dur_ps"]
        below = children[row["scope"]]
        if below or not result["n_scopes_omitted"]:
            yield from sums_to(f"{what} children", below, "total_dur_ps", whole, row["self_dur_ps"])
        ranks = [(-child["total_dur_ps"], child["name"]) for child in below]
        if ranks != sorted(ranks) or any(child["depth"] != row["depth"] + 1 for child in below):
            yield f"{what}: its children are out of order: {ranks}"
        for name in ("kinds", "phases"):
            yield from differs(f"{what} {name}", sum(row[name].values()), whole)


def by_op_faults(result: Json) -> Faults:
    rows, tail, totals = result["ops"], result["tail"], result["totals"]
    leaves = totals["non_while_duration_ps_sum"]
    yield from sums_to("ops", rows, "total_dur_ps", leaves, tail["dur_ps"])
    whole = sum(totals["container_durations_ps"].values())
    yield from sums_to("containers", result["containers"], "total_dur_ps", whole)
    n_containers = totals["n_events_container"]
    yield from sums_to("containers", result["containers"], "n_executions", n_containers)
    times = [row["total_dur_ps"] for row in rows]
    if times != sorted(times, reverse=True):
        yield f"ops aren't ordered by time: {times}"
    if not tail["n_ops_omitted"]:
        yield from sums_to("ops", rows, "n_executions", totals["n_events_total"])
    asked = result.get("op")
    for row in [*rows, *([asked] if asked else [])]:
        what = f"op {row['hlo_op']}"
        yield from row_faults(what, row)
        if row["lost_ps"] is not None:
            judged = row["at_roof_ps"] + row["lost_ps"]
            yield from differs(f"{what} at_roof_ps and lost_ps", judged, row["total_dur_ps"])
        if row["achieved_tflops"] is not None:
            rate = round(row["flops"] / row["avg_dur_ps"], 3)
            yield from differs(f"{what} achieved_tflops", row["achieved_tflops"], rate)
        is_named = row["source_inner"] is not None
        yield from differs(f"{what} source_is", row["source_is"] is not None, is_named)
    if asked:
        yield from asked_op_faults(result, asked)


def asked_op_faults(result: Json, op: Json) -> Faults:
    spans = op["executions"]
    yield from differs("executions of the op", len(spans), min(op["n_executions"], 1000))
    if spans != sorted(spans, key=lambda span: span[0]):
        yield "the executions of the op aren't the first thousand in order"
    if len(spans) == op["n_executions"]:
        whole = sum(duration for _, duration in spans)
        yield from differs("time of the op's executions", whole, op["total_dur_ps"])
    names = ("program_id", "hlo_op", "kind")
    rows = [row for row in result["ops"] if all(row[name] == op[name] for name in names)]
    for row in rows:
        shared = {name: op[name] for name in row}
        yield from differs("the op and its row", shared, row)
    if op["program"] is not None:
        called = op["program"]["called"]
        for computation in called:
            if len(computation["instructions"]) != min(200, computation["n_instructions"]):
                yield f"computation {computation['name']} lacks instructions"
        if op["program"]["chain"] and op["hlo_op"] not in op["program"]["chain"]:
            yield f"the chain lacks the op itself: {op['program']['chain']}"


def bottleneck_faults(result: Json) -> Faults:
    budget, findings, tail = result["budget"], result["findings"], result["tail"]
    yield from sums_to("budget", budget, "dur_ps", result["step_duration_ps"])
    classes = budget[:-2]
    kernels = result["kernels_of_unknown_cost"]
    of_kernels = [row for row in classes if row["class"] == "kernel"]
    others = [row for row in classes if row["class"] != "kernel"]
    for figure in ("dur_ps", "lost_ps"):
        yield from sums_to("findings", findings, figure, total(others, figure), tail[figure])
    unknown = total(of_kernels, "dur_ps")
    yield from sums_to("kernels", kernels, "dur_ps", unknown, tail["kernels_dur_ps"])
    light, roof = result["speed_of_light"], total(classes, "at_roof_ps")
    yield from differs("speed_of_light at_roof_ps", light["at_roof_ps"], roof)
    weights = {row["class"]: row["dur_ps"] for row in budget[:-1] if row["lost_ps"] is None}
    weights |= {row["class"]: row["lost_ps"] for row in classes if row["lost_ps"] is not None}
    pause = result["between_steps_ps"] or 0
    weights["idle"] += pause
    if result["bottleneck"] == "at_roof":
        if sum(weights.values()) * 10 > result["step_duration_ps"] + pause:
            yield f"the step is not at its roof: the classes lose {weights}"
    elif weights[result["bottleneck"]] != max(weights.values()):
        yield f"the bottleneck is {result['bottleneck']}, but the classes lose {weights}"
    for row in (*classes, *findings):
        if row["lost_ps"] is not None:
            judged = row["at_roof_ps"] + row["lost_ps"]
            yield from differs(f"{row['class']} at_roof_ps and lost_ps", judged, row["dur_ps"])
    for row in [] if tail["n_findings_omitted"] else others:
        found = [finding for finding in findings if finding["class"] == row["class"]]
        for figure in ("dur_ps", "n_executions"):
            yield from sums_to(f"{row['class']} findings", found, figure, row[figure])


def roofline_faults(result: Json) -> Faults:
    totals, summary, skipped = result["totals"], result["step_summary"], result["skipped_groups"]
    compute, left = totals["compute_duration_ps"], skipped["total_dur_ps_skipped"]
    yield from differs("rooflined and skipped", summary["rooflined_dur_ps"] + left, compute)
    tail = result.get("tail", {"n_groups_omitted": 0, "dur_ps": 0, "shortfall_ps": 0})
    rows, short = result["groups"], summary["step_shortfall_ps"]
    judged = summary["rooflined_dur_ps"]
    yield from sums_to("groups", rows, "total_dur_ps", judged, tail["dur_ps"])
    yield from sums_to("groups", rows, "shortfall_ps", short, tail["shortfall_ps"])
    n_skipped = sum(n for name, n in skipped.items() if name.startswith("n_"))
    if len(skipped["top_skipped"]) != min(10, n_skipped):
        yield f"{len(skipped['top_skipped'])} of {n_skipped} skipped groups are shown"
    for row in rows:
        what, whole = row["agg_key"], row["total_dur_ps"]
        compute, hbm = row["t_compute_theory_ps"], row["t_hbm_theory_ps"]
        yield from differs(f"{what} roof", row["t_roofline_theory_ps"], max(compute, hbm))
        yield from differs(f"{what} shortfall", row["shortfall_ps"], whole - max(compute, hbm))
        if compute != hbm:
            bound = "compute" if compute > hbm else "memory"
            yield from differs(f"{what} bound", row["bound"], bound)


def comm_faults(result: Json) -> Faults:
    totals, rows, tail = result["totals"], result["rows"], result["tail"]
    by_collective = totals["by_collective"].values()
    waited = total(by_collective, "wait_dur_ps")
    whole = totals["exposed_ps"] + totals["host_ps"]
    yield from sums_to("by_collective", by_collective, "sync_dur_ps", whole, waited)
    for name in ("sync_dur_ps", "wait_dur_ps"):
        yield from sums_to("rows", rows, name, total(by_collective, name), tail[name])
    for row in rows:
        if row["pairs"] is not None:
            n = row["pairs"]["paired"] + row["pairs"]["unpaired"]
            yield from differs(f"{row['collective']} pairs", n, row["n_executions"])
    if totals["peers"]:
        yield from peers_faults(result)


def peers_faults(result: Json) -> Faults:
    """Check that transfer time, waiting for late devices and unmatched time add up to the exposed
    time."""
    peers, rows = result["totals"]["peers"], result["rows"]
    for row in rows:
        split = sum(row[name] or 0 for name in ("transfer_ps", "peer_wait_ps"))
        exposed = row["sync_dur_ps"] + row["wait_dur_ps"]
        if row["n_unmatched"] > row["n_executions"]:
            yield f"{row['n_unmatched']} of {row['n_executions']} executions are not matched"
        is_whole = row["n_executions"] and not row["n_unmatched"]
        if split > exposed or (is_whole and split < exposed):
            yield f"transfer and wait of {row['collective']}: {split} of {exposed}"
        if (row["last_pct"] or 100) <= 50:
            yield f"{row['last_device']} causes {row['last_pct']} % only"
    devices = peers["by_device"]
    if not devices:
        yield from differs("n_devices", peers["n_devices"], 1)
        return
    yield from differs("n_devices", peers["n_devices"], len(devices))
    for name in ("transfer_ps", "peer_wait_ps"):
        if not result["tail"]["n_rows_omitted"]:
            yield from sums_to("rows", rows, name, peers[name])
    split = sum(peers[name] for name in ("transfer_ps", "peer_wait_ps", "unmatched_ps"))
    yield from differs("split of peers", split, result["totals"]["exposed_ps"])
    own = [waits["peer_wait_ps"] for waits in devices if waits["device"] == result["device"]]
    yield from differs("wait of the device", own, [peers["peer_wait_ps"]])
    if total(devices, "caused_ps") > total(devices, "peer_wait_ps"):
        yield f"devices cause more waiting than there is: {devices}"


def idle_faults(result: Json) -> Faults:
    idle = result["totals"]["idle_duration_ps"]
    yield from differs("idle_by_cause", sum(result["idle_by_cause"].values()), idle)
    yield from gaps_faults(result["gaps"], idle)
    for gap in result["gaps"]:
        yield from differs("causes of a gap", sum(gap["cause"].values()), gap["dur_ps"])


def kernel_faults(result: Json) -> Faults:
    rows = result["kernels"]
    times = [row["total_dur_ps"] for row in rows]
    if times != sorted(times, reverse=True):
        yield f"kernels aren't ordered by time: {times}"
    for row in rows:
        what = f"kernel {row['kernel']}"
        yield from row_faults(what, row)
        if row["lost_ps"] is not None:
            judged = row["at_roof_ps"] + row["lost_ps"]
            yield from differs(f"{what} at_roof_ps and lost_ps", judged, row["total_dur_ps"])
        yield from region_faults(what, row)


def region_faults(what: str, row: Json) -> Faults:
    regions, waiting = row["regions"], row["waiting_ps"]
    if regions is None:
        figures = (waiting, row["waiting_pct"], row["computing_ps"], row["outside_regions_ps"])
        yield from differs(f"{what} without regions", figures, (None,) * 4)
        return
    outside, whole = row["outside_regions_ps"], row["total_dur_ps"]
    yield from sums_to(f"{what} regions", regions, "self_dur_ps", whole, outside)
    outer = [region for region in regions if not region["depth"]]
    yield from sums_to(f"{what} outer regions", outer, "total_dur_ps", whole, outside)
    waits = [region for region in regions if region["waits"]]
    yield from sums_to(f"{what} waiting", waits, "self_dur_ps", waiting)
    depths = [-1, *(region["depth"] for region in regions)]
    if any(after > before + 1 for before, after in pairwise(depths)):
        yield f"{what}: a region without a parent: {depths}"
    if min(outside, *(region["self_dur_ps"] for region in regions), waiting) < 0:
        yield f"{what}: a negative time"
    if waiting + (row["computing_ps"] or 0) + outside > whole:
        yield f"{what} waits and computes longer than it runs"


def memory_faults(result: Json) -> Faults:
    peak = result["peak_bytes"]
    for name in ("by_source", "by_argument"):
        yield from sums_to(name, result[name], "bytes", peak)
    yield from sums_to("buffers", result["buffers"], "bytes", peak, result["tail"]["bytes"])
    yield from differs("by_kind", sum(result["by_kind"].values()), peak)
    if result["reserved_bytes"] < peak:
        yield "more bytes are live than reserved"


def program_faults(result: Json) -> Faults:
    yield from differs("n_fusions", result["n_fusions"], result["opcodes"].get("fusion", 0))
    if sum(result["opcodes"].values()) > result["n_instructions"]:
        yield "more opcodes than instructions"
    counts = list(result["opcodes"].items())
    if counts != sorted(counts, key=lambda item: (-item[1], item[0])):
        yield f"opcodes are out of order: {counts}"
    for row in result["parameters"] or ():
        part, whole = row["shape"], row["global_shape"]
        if whole is not None and part.count(",") != whole.count(","):
            yield f"parameter {row['number']}: {part} is a part of {whole}"
    for row in result["flags"]["findings"] if result["flags"] else ():
        if row["n_seen"] > row["n_instructions"]:
            yield f"{row['flag']}: more is seen than there is"


def anatomy_faults(result: Json) -> Faults:
    for line in [line for plane in result["planes"] for line in plane["lines"]]:
        if "names" in line:
            if line["n_names"] <= 20:
                yield from sums_to(f"names of {line['name']}", line["names"], "n", line["n_events"])
            times = [int(row["total_dur_ps"]) for row in line["names"]]
            if times != sorted(times, reverse=True):
                yield f"names of {line['name']} are out of order"


def faults_between(data: bytes, options: Json, ask: Ask) -> Faults:
    """Compare several modes' answers for the same step.

    `ask(mode, **options)` runs the program and returns the answer.
    """
    summary = ask("summary", include_comm=True, top=10**6, **options)
    if summary["status"] != "ok":
        return
    everything: Json = {"include_comm": True, "include_data_move": True, **options}
    by_source = ask("by_source", **everything)
    by_op = ask("by_op", top=10**6, **options)
    merged = ask("by_scope", depth="all", merge_layers=True, **options)
    by_scope = ask("by_scope", depth="all", **options)
    answers = (summary, by_source, by_op, by_scope, merged)
    for result in answers:
        yield from faults(result)
        for name, value in summary["totals"].items():
            yield from differs(f"totals.{name} of {result['mode']}", result["totals"][name], value)
    yield from groups_between(summary, by_source)
    yield from tops_between(summary, ask("summary", include_comm=True, top=3, **options))
    yield from ops_between(by_op, by_source)
    bottleneck, comm = ask("bottleneck", top=10**6, **options), ask("comm", **options)
    yield from times_of_lines_between(bottleneck, (summary, by_source))
    yield from idle_between(summary, ask("idle", **options))
    yield from comm_between(summary, bottleneck, comm)
    yield from roofline_between(ask("roofline", **options), by_source)
    moved = ask("non_compute", include_comm=True, no_comm_stalls=True, **options)
    yield from faults(moved)
    yield from scopes_between(by_scope, merged, by_source)
    kernel = ask("kernel", top=10**6, **options)
    yield from faults(kernel)
    yield from kernels_between(kernel, summary)
    program = ask("program", top=10**6, **options)
    if program["status"] == "ok":
        yield from faults(program)
        # A step that is a cycle runs several programs, of which this mode shows one.
        if summary["program"]["n_programs"] == 1:
            yield from collectives_between(program, ask("comm", top=10**6, **options))
    yield from anatomy_of_file(ask, data)


def groups_between(summary: Json, by_source: Json) -> Faults:
    groups = [row for row in by_source["groups"] if row["kind"] in ("compute", "comm")]
    groups.sort(key=lambda row: (-row["total_dur_ps"], row["agg_key"], row["kind"]))
    for ours, theirs in zip(summary["top_compute_groups"], groups, strict=True):
        shared = {name: theirs[name] for name in ours if name != "rank"}
        yield from differs("group of summary", {name: ours[name] for name in shared}, shared)


def tops_between(whole: Json, three: Json) -> Faults:
    """Check that `--top 3` lists the first three of all groups."""
    groups = whole["top_compute_groups"]
    yield from differs("first groups", three["top_compute_groups"], groups[:3])
    yield from differs("ranks", [row["rank"] for row in groups], [*range(1, len(groups) + 1)])
    rest = {"n_groups_omitted": len(groups[3:]), "dur_ps": total(groups[3:], "total_dur_ps")}
    yield from differs("tail of three groups", three["tail_compute"], rest)


def times_of_lines_between(bottleneck: Json, others: Iterable[Json]) -> Faults:
    """Check that all modes print one time for a line, and that the lines add up to the step's
    ops."""
    lines = bottleneck["lines"]
    leaves = bottleneck["totals"]["non_while_duration_ps_sum"]
    yield from sums_to("lines", lines, "dur_ps", leaves)
    times: Counter[str | None] = Counter()
    for row in lines:
        yield from differs("classes of a line", sum(row["classes"].values()), row["dur_ps"])
        times[line_of(row)] += row["dur_ps"]
    lists = {mode: rows for mode, rows, _ in KEYED}
    for result in others:
        of_groups: Counter[str | None] = Counter()
        for row in result[lists[result["mode"]]]:
            line, whole = line_of(row), row["line_dur_ps"]
            if whole is not None:
                yield from differs(f"time of {line} in {result['mode']}", whole, times[line])
                of_groups[line] += row["total_dur_ps"]
        for line, part in of_groups.items():
            if part > times[line]:
                yield f"{result['mode']} lists {part} ps of {line}, which takes {times[line]}"


def line_of(row: Json) -> str | None:
    line: str | None = row["source_user"] or row["source_inner"]
    return line


def ops_between(by_op: Json, by_source: Json) -> Faults:
    rows = by_op["ops"]
    names = Counter((row["hlo_op"], row["program_id"]) for row in rows)
    yield from differs("rows of one op", set(names.values()) - {1}, set())
    whole = total(rows, "total_dur_ps") - by_op["totals"]["other_duration_ps"]
    yield from sums_to("groups", by_source["groups"], "total_dur_ps", whole)


def idle_between(summary: Json, idle: Json) -> Faults:
    for ours, theirs in zip(summary["idle_gaps"], idle["gaps"], strict=True):
        yield from differs("gap of idle", {name: theirs[name] for name in ours}, ours)


def kernels_between(kernel: Json, summary: Json) -> Faults:
    def times(result: Json) -> list[tuple[str, int, int]]:
        rows = result["kernels"]
        return [(row["kernel"], row["n_executions"], row["total_dur_ps"]) for row in rows]

    yield from differs("kernels", times(kernel), times(summary))


def comm_between(summary: Json, bottleneck: Json, comm: Json) -> Faults:
    """Compare the exposed time in the modes `comm`, `summary` and `bottleneck`."""
    rows, totals = summary["comm_rollup"], comm["totals"]
    exposed = exposed_for(rows) - exposed_for(rows, "dma", "sparse_core")
    yield from differs("exposed time", totals["exposed_ps"] + totals["host_ps"], exposed)
    for name, figure in (("collective", "exposed_ps"), ("host", "host_ps")):
        budget = total([row for row in bottleneck["budget"] if row["class"] == name], "dur_ps")
        yield from differs(f"time of class {name}", budget, totals[figure])
    of_kind = summary["totals"]["comm_duration_ps"]
    parts = totals["exposed_ps"] + totals["host_ps"] - totals["host_copies_ps"]
    yield from differs("parts of communication", parts, of_kind)


def roofline_between(roofline: Json, by_source: Json) -> Faults:
    """Check that the parts of a source in `roofline` add up to its time in `by_source`, and that
    both modes print the same bytes."""
    whole = {row["agg_key"]: row for row in by_source["groups"] if row["kind"] == "compute"}
    for row in roofline["groups"]:
        key = row["agg_key"]
        of_source = whole[key]
        parts = row["total_dur_ps"] + row["opaque_dur_ps"]
        yield from differs(f"parts of {key}", parts, of_source["total_dur_ps"])
        for name in ("bytes_accessed_sum", "hbm_bytes_sum"):
            yield from differs(f"{name} of {key}", row[name], of_source[name])


def faults_of_record(record: Json, ask: Ask) -> Faults:
    """Compare each step in a record with the step's answer in the mode `summary`."""
    if record["status"] != "ok":
        return
    rows = [(record["devices"][step["device"]], step) for step in record["steps"]]
    for device in record["devices"]:
        comm = ask("comm", device=device["device"], peers=True, top=10**6)
        if comm["status"] == "ok":
            yield from comm_faults(comm)
    for device, step in rows:
        if not step["used"]:
            continue
        if has_kinds_on_events(device["device"], ask):
            # Stats on events are read from an op's first execution. In a record, this is the first
            # execution in any step; in `summary`, it is the first in the picked step.
            continue
        asked = {} if device["step_source"] is None else {"step": step["index"]}
        result = ask("summary", device=device["device"], **asked)
        totals, comm = result["totals"], result["comm_rollup"]
        for name, ours, theirs in (
            ("duration", step["duration_ps"], result["step_duration_ps"]),
            ("busy", step["busy_ps"], totals["busy_duration_ps"]),
            ("wait", step["wait_ps"], totals["wait_duration_ps"]),
            ("durs", sum(step["durs_ps"]), totals["non_while_duration_ps_sum"]),
            ("ns", sum(step["ns"]), totals["n_events_total"]),
            ("host", step["host_ps"], exposed_for(comm, "host")),
            ("comm", step["comm_ps"], exposed_for(comm) - exposed_for(comm, *NO_COLLECTIVES)),
        ):
            yield from differs(f"{name} of step {step['index']}", ours, theirs)


def has_kinds_on_events(device: str, ask: Ask) -> bool:
    """Return True if events have stats that can change an op's kind."""
    (plane,) = ask("anatomy", plane=device)["planes"]
    names = {name for line in plane["lines"] for name in line["event_stats"]}
    return not names.isdisjoint({"hlo_category", "program_id"})


NO_COLLECTIVES = ("host", "dma", "sparse_core")


def exposed_for(rows: list[Json], *names: str) -> int:
    """Return the exposed time of the named collectives, or of all if no name is given."""
    its = [row for row in rows if not names or row["waits_for"] in names]
    return total(its, "sync_dur_ps") + total(its, "wait_dur_ps")


def faults_of_real_programs(ask: Ask) -> Faults:
    """Compare modes on real traces, in which each op has one metadata entry and a matching
    program."""
    by_op, bottleneck = ask("by_op", top=10**6)["ops"], ask("bottleneck", top=10**6)
    for row in bottleneck["budget"][:-2]:
        its = [op for op in by_op if op["class"] == row["class"]]
        yield from sums_to(row["class"], its, "total_dur_ps", row["dur_ps"])
        for figure in ("at_roof_ps", "lost_ps"):
            yield from sums_to(row["class"], its, figure, row[figure] or 0)
    yield from roofs_between(bottleneck, by_op, ask)
    yield from lines_between(bottleneck, ask)
    of_ops: Counter[str | None] = Counter()
    of_lines: Counter[str | None] = Counter()
    for row in by_op:
        of_ops[line_of(row)] += row["total_dur_ps"]
    for row in bottleneck["lines"]:
        of_lines[line_of(row)] += row["dur_ps"]
    yield from differs("lines of ops", of_ops, of_lines)
    summary = ask("summary")
    for row in summary["by_hlo_category"]:
        key = (row["hlo_category"], row["kind"])
        its = [op for op in by_op if (op["hlo_category"], op["kind"]) == key]
        if row["kind"] != "container":
            yield from sums_to(f"{key}", its, "total_dur_ps", row["total_dur_ps"])
    for phase, row in summary["by_phase_rollup"].items():
        its = [op for op in by_op if (op["kind"], op["phase"]) == ("compute", phase)]
        yield from sums_to(phase, its, "total_dur_ps", row["dur_ps"])
    yield from own_lines_between(by_op, ask)
    for row in ask("by_scope", depth="all")["scopes"]:
        below = f"{row['scope']}/" if row["scope"] else ""
        its = [op for op in by_op if op["scope"] is not None]
        its = [op for op in its if f"{op['scope']}/".startswith(below)]
        yield from sums_to(f"scope {row['scope']}", its, "total_dur_ps", row["total_dur_ps"])
    by_collective = ask("comm")["totals"]["by_collective"]
    for waits_for, figures in by_collective.items():
        its = [row for row in summary["comm_rollup"] if row["waits_for"] == waits_for]
        for figure in ("sync_dur_ps", "wait_dur_ps") if its else ():
            yield from sums_to(f"comm_rollup of {waits_for}", its, figure, figures[figure])
    exposed = ask("comm")["totals"]["exposed_ps"]
    starts = [op for op in by_op if op["class"] == "collective" and op["waits_for"] is None]
    (collective,) = (row for row in bottleneck["budget"] if row["class"] == "collective")
    yield from sums_to("collective", starts, "total_dur_ps", collective["dur_ps"], exposed)
    program = ask("program", top=10**6)
    # A step that is a cycle runs several programs, of which this mode shows one.
    if program["status"] == "ok" and summary["program"]["n_programs"] == 1:
        yield from of_program(program, summary, by_collective)


def own_lines_between(by_op: list[Json], ask: Ask) -> Faults:
    """Check that the ops whose own line is the same take as long in `by_op` and `by_source`."""
    lines: Counter[tuple[str, str]] = Counter()
    others = set()
    for group in ask("by_source", include_comm=True, include_data_move=True)["groups"]:
        if group["agg_key_kind"] == "stack":
            lines[group["source_inner"], group["kind"]] += group["total_dur_ps"]
        # An op without a stack can have a line in the program.
        others |= {(part["source_inner"], group["kind"]) for part in group["likely_sources"] or ()}
    for (line, kind), time in lines.items():
        if (line, kind) in others:
            continue
        its = [op for op in by_op if (op["source_inner"], op["kind"]) == (line, kind)]
        own = [op for op in its if op["source_is"] in ("own", "doubtful")]
        yield from sums_to(f"{kind} of {line}", own, "total_dur_ps", time)


def of_program(program: Json, summary: Json, by_collective: dict[str, Json]) -> Faults:
    """Check that `program` has the times of `comm` and `summary`."""
    for name, figures in by_collective.items() if program["collectives"] else ():
        its = [row for row in program["collectives"] if row["collective"] == name]
        for figure in figures:
            yield from sums_to(f"{name} of program", its, figure, figures[figure] or 0)
    for kernel in summary["kernels"]:
        its = [row for row in program["kernels"] if row["kernel"] == kernel["kernel"]]
        for figure in ("n_executions", "total_dur_ps"):
            yield from sums_to(f"kernel {kernel['kernel']}", its, figure, kernel[figure])


def roofs_between(bottleneck: Json, by_op: list[Json], ask: Ask) -> Faults:
    """Check that `roofline` and `kernel` have the peaks and roofs of `by_op` and `bottleneck`."""
    roofline, kernel = ask("roofline"), ask("kernel", top=10**6)
    budget = {row["class"]: row for row in bottleneck["budget"]}
    summary, skipped = roofline["step_summary"], roofline["skipped_groups"]
    unknown = [budget[name] for name in ("kernel", "unjudged")]
    yield from sums_to("without roof", unknown, "dur_ps", summary["without_roof_ps"])
    judged = [budget[name] for name in ("compute_bound", "memory_bound")]
    rows = [*roofline["groups"], *skipped["top_skipped"]]
    n_skipped = sum(n for name, n in skipped.items() if name.startswith("n_"))
    for figure, of_budget in (
        ("t_roofline_per_op_ps", "at_roof_ps"),
        ("shortfall_per_op_ps", "lost_ps"),
    ):
        # The roofs of some opaque ops are unknown, so null counts as 0.
        yield from sums_to("judged", judged, of_budget, summary[figure] or 0)
        if n_skipped == len(skipped["top_skipped"]):
            yield from sums_to("rows of roofline", rows, figure, summary[figure] or 0)
    for row in kernel["kernels"]:
        its = [op for op in by_op if op["kernel"] == row["kernel"] and op["kind"] == "compute"]
        for figure in ("total_dur_ps", "at_roof_ps", "lost_ps"):
            if its and row["at_roof_ps"] is not None:
                yield from sums_to(f"ops of {row['kernel']}", its, figure, row[figure])
    for result in (kernel, ask("by_op", top=10**6)):
        peaks = {name: roofline["peaks_used"][name] for name in result["peaks_used"]}
        yield from differs(f"peaks of {result['mode']}", result["peaks_used"], peaks)


def lines_between(bottleneck: Json, ask: Ask) -> Faults:
    """Check that modes have equal totals, and give a group of ops the same line."""
    by_source = ask("by_source", include_comm=True, include_data_move=True)
    roofline, moved = ask("roofline"), ask("non_compute", include_comm=True)
    for result in (bottleneck, roofline, moved, ask("comm"), ask("kernel", top=10**6)):
        for name, value in ask("by_op", top=10**6)["totals"].items():
            ours = result["totals"].get(name, value)
            yield from differs(f"totals.{name} of {result['mode']}", ours, value)
    groups = {row["agg_key"]: row for row in by_source["groups"]}
    # Groups without a stack have `likely_sources` instead of a line.
    found = [
        row
        for row in (*bottleneck["findings"], *bottleneck["kernels_of_unknown_cost"])
        if row["source_is"] == "own" and groups[row["agg_key"]]["agg_key_kind"] == "stack"
    ]
    skipped = roofline["skipped_groups"]["top_skipped"]
    for row in (*found, *roofline["groups"], *skipped, *moved["by_source_within_category"]):
        for name in ("source_inner", "source_user"):
            theirs = groups[row["agg_key"]][name]
            yield from differs(f"{name} of {row['agg_key']}", row[name], theirs)


def scopes_between(by_scope: Json, merged: Json, by_source: Json) -> Faults:
    """Check that `--merge-layers` sums scopes that differ only in numbers."""
    for name in ("total_dur_ps", "self_dur_ps", "n_executions"):
        sums: Counter[str] = Counter()
        for row in by_scope["scopes"]:
            sums[re.sub("[0-9]+", "*", row["scope"])] += row[name]
        yield from differs(f"merged {name}", {r["scope"]: r[name] for r in merged["scopes"]}, sums)
    yield from differs("no_scope when merged", merged["no_scope"], by_scope["no_scope"])
    own = {row["scope"]: row["self_dur_ps"] for row in by_scope["scopes"]}
    known: Counter[str] = Counter()
    without = 0
    for part in (part for row in by_source["groups"] for part in row["scopes"]):
        if part["scope"] is None:
            without += part["dur_ps"]
        else:
            known[part["scope"]] += part["dur_ps"]
    if without > by_scope["no_scope"]["dur_ps"]:
        yield f"by_source knows {without} ps without a scope, by_scope {by_scope['no_scope']}"
    for scope, time in known.items():
        if time > own.get(scope, -1):
            yield f"by_source knows {time} ps right in {scope!r}, by_scope {own.get(scope)}"


def collectives_between(program: Json, comm: Json) -> Faults:
    """Check that one program's collectives take no more time than all collectives in the step."""
    for figure in ("n_executions", "sync_dur_ps", "wait_dur_ps"):
        ours = total(program["collectives"], figure)
        whole = total(comm["totals"]["by_collective"].values(), figure)
        if ours > whole:
            yield f"collectives: {figure} {ours} of {whole}"


def number(value: int | str | None) -> int | None:
    """Convert a printed number to int; integers beyond 2**53 are printed as strings."""
    return None if value is None else int(value)


def anatomy_of_file(ask: Ask, data: bytes) -> Faults:
    """Compare `anatomy` of the file and of each plane with protobuf's own decoding."""
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    space = xplane_pb2.XSpace.FromString(data)
    result = ask("anatomy")
    shown = [plane["name"] for plane in result["planes"]]
    yield from differs("planes", shown, [plane.name for plane in space.planes])
    for ours, plane in zip(result["planes"], space.planes, strict=True):
        names = (len(plane.event_metadata), len(plane.stat_metadata))
        yield from differs("metadata", (ours["n_event_metadata"], ours["n_stat_metadata"]), names)
        for row, line in zip(ours["lines"], plane.lines, strict=True):
            of_row = (row["name"], row["display_name"], row["n_events"])
            parsed = (line.name, line.display_name, len(line.events))
            yield from differs(f"line {line.name}", of_row, parsed)
    for plane in {plane.name: plane for plane in reversed(space.planes)}.values():
        (ours,) = ask("anatomy", plane=plane.name, sample=3)["planes"]
        yield from anatomy_faults({"planes": [ours]})
        for row, line in zip(ours["lines"], plane.lines, strict=True):
            yield from line_faults(row, plane, line)


def line_faults(row: Json, plane: xplane_pb2.XPlane, line: xplane_pb2.XLine) -> Faults:
    base = 1000 * line.timestamp_ns
    timed = [e for e in line.events if e.WhichOneof("data") != "num_occurrences"]
    spans = [(base + e.offset_ps, base + e.offset_ps + max(0, e.duration_ps)) for e in timed]
    stats = Counter(
        name
        for event in line.events
        for name in {stat_name(plane, stat.metadata_id) for stat in event.stats}
    )
    names = Counter(plane.event_metadata[e.metadata_id].name for e in known(plane, line.events))
    for what, ours, theirs in (
        ("n_events", row["n_events"], len(line.events)),
        ("busy_ps", number(row["busy_ps"]), sum(end - start for start, end in union(spans))),
        ("sample", len(row["sample"]), min(3, len(line.events))),
    ):
        yield from differs(f"{what} of line {line.name}", ours, theirs)
    for name, n in stats.items():
        if row["event_stats"].get(name) != n:
            yield f"stat {name} of line {line.name}: {row['event_stats'].get(name)}, not {n}"
    for named in row["names"]:
        name, n = named["name"], named["n"]
        if name and n != names[name]:
            yield f"{n} events {name} of line {line.name}, not {names[name]}"


def stat_name(plane: xplane_pb2.XPlane, stat_id: int) -> str:
    is_known = stat_id in plane.stat_metadata
    return (plane.stat_metadata[stat_id].name if is_known else "") or str(stat_id)


def known(plane: xplane_pb2.XPlane, events: Iterable[Any]) -> list[Any]:
    return [event for event in events if event.metadata_id in plane.event_metadata]


def differences(ours: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """Yield a sentence for each field in which two answers differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in {**ours, **theirs}:
            if key not in theirs:
                yield f"{where}.{key}: only the program has it"
            elif key not in ours:
                yield f"{where}.{key}: the program lacks it"
            else:
                yield from differences(ours[key], theirs[key], f"{where}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for i, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(our, their, f"{where}[{i}]")
    elif ours != theirs or isinstance(ours, bool) != isinstance(theirs, bool):
        yield f"{where}: the program says {str(ours)[:300]!r}, expected {str(theirs)[:300]!r}"
