"""Show where to look first: the op classes and source lines that lose the most time.

question: where to look first: why the step loses time, and on which lines
reads: a step
options: --top, --peers, --no-peers, peaks, --kernel-cost, --model-flops, --tokens,
  --flops-per-token, --params, --n-devices
example: --top 5
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

from _analysis.causes.shared.cause import StepFacts
from _analysis.causes.shared.find import causes_of
from _analysis.comm.peer_rows import peer_totals
from _analysis.comm.peers import Peers
from _analysis.common_line import scopes_say_more
from _analysis.findings import Finding, findings_of, lost_by, time_of
from _analysis.idle.periods import Periods, lower_median, periods_of, steps_named_like
from _analysis.kernel.kernel_regions import Inside, inside_kernels
from _analysis.likely_lines import DOUBTFUL, line_of
from _analysis.loops import Loops
from _analysis.roof.costs import costs_by_kernel, declared_notes
from _analysis.roof.exposed import is_exposed
from _analysis.roof.hideable import Hideable
from _analysis.roof.ledger import (
    CLASSES,
    COLLECTIVE,
    KERNEL,
    UNJUDGED,
    Entry,
    at_roof_of,
    counts_for_lower_bound,
    is_declared,
    ledger_of,
)
from _analysis.roof.roofs import Roofs, over_roof_note, roofs_of, rounded
from _analysis.rows import (
    chip_fields,
    declared_row,
    idle_by_cause,
    likely_fields,
    peaks_used,
    period_fields,
    recompute_fields,
    scope_fields,
)
from _analysis.tokens import model_flops_of, tokens_per_s
from _pipeline.context import Context
from _pipeline.device import tpus_of
from _pipeline.groups import Group, percent
from _pipeline.normalize import Step
from _pipeline.ops import Op
from _pipeline.step_durations import durations_of
from _pipeline.vocabulary import COMPUTE, HOST
from _proto.trace.ranks import TPU_RE
from _units import counted, time

Json = dict[str, Any]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.bottleneck import (
        Bottleneck,
        BudgetClass,
        BudgetRow,
        Capture,
        FindingFields,
        FindingsTail,
        RecomputedMath,
        SpeedOfLight,
    )
    from _output.fields.bottleneck import Finding as FindingRow
    from _output.fields.bottleneck import LineOfFindings as LineRow
    from _output.fields.bottleneck import Steps as StepsRow
    from _output.fields.bottleneck import UnknownKernel as KernelRow
    from _output.fields.rows import PeersOfStep
    from _output.fields.units import Dtype, OpClass

IDLE: Final = "idle"
OVERLAP: Final = "overlap"
AT_ROOF: Final = "at_roof"
# Smallest lower bound of a utilization that is printed; a smaller bound would be printed as 0.0 %.
SMALLEST_SHARE = Fraction(5, 10**4)
# Devices are compared if collectives take at least 1/WORTH_COMPARING of the step.
WORTH_COMPARING = 20
# A step is at its roof if less than 1/LITTLE of its time is lost, unknown or idle.
LITTLE = 10


def bottleneck(
    step: Step,
    context: Context,
    *,
    top: int = 5,
    peers: bool = False,
    no_peers: bool = False,
    chip: str | None = None,
    peaks: Sequence[tuple[str, float]] = (),
    kernel_cost: Sequence[tuple[str, int, int, Dtype | None]] = (),
    model_flops: int | None = None,
    tokens: int | None = None,
    flops_per_token: float | None = None,
    params: float | None = None,
    n_devices: int | None = None,
) -> Json:
    roofs = roofs_of(step.device, chip, dict(peaks))
    by_user = costs_by_kernel(step.by_kind[COMPUTE], kernel_cost, context)
    useful: int | Fraction | None = model_flops
    if tokens is not None and (flops_per_token or params):
        useful = model_flops_of(step, tokens, flops_per_token, params, n_devices)
    ledger = ledger_of(step, roofs, by_user)
    findings, kernels, lines = findings_of(ledger, by_scope=scopes_say_more(step))
    by_class = {name: [entry for entry in ledger if entry.name == name] for name in CLASSES}
    idle = step.duration - step.timeline.busy
    over = [entry for entry in ledger if entry.is_over_roof]
    context.note(*roofs.choice.notes)
    periods = periods_of(step.device, step.picked)
    inside = inside_kernels(step)
    context.warn(*warnings_about(ledger, [*findings, *kernels]), *inside.notes)
    is_compared = peers or (not no_peers and has_reason_to_compare(step, by_class[COLLECTIVE]))
    read, waits = read_peers(step, context) if is_compared else (None, None)
    on_time = read.without_waits(ledger) if read else ledger
    facts = StepFacts(step, on_time, roofs, inside, periods, read, context, {})
    shown = [op for finding in (*findings[:top], *kernels[:top]) for op in finding.group.members]
    rows = Rows(step, Hideable(on_time), Loops(step, shown), inside, read)
    return {
        **period_fields(periods),
        "causes": causes_of(facts),
        "bottleneck": verdict(by_class, idle, periods, step.duration),
        "speed_of_light": speed_of_light(ledger, step.duration),
        "mfu_at_least": utilization_of(ledger, step, lambda op: op.phase != "recompute"),
        "hfu_at_least": utilization_of(ledger, step, lambda op: True),
        "mfu": mfu_of(useful, step, roofs),
        "tokens_per_s": tokens_per_s(step, tokens),
        "over_roof": {"n_ops": len(over), "dur_ps": sum(entry.total for entry in over)},
        "capture": capture_row(step),
        "steps": steps_row(step),
        "budget": budget_of(by_class, idle, rows.hideable, step),
        "idle_by_cause": idle_by_cause(step),
        **recomputed_math(step),
        **recompute_fields(step),
        "findings": [rows.finding(rank, of_line) for rank, of_line in enumerate(findings[:top], 1)],
        "kernels_of_unknown_cost": [rows.kernel(of_line) for of_line in kernels[:top]],
        "lines": [rows.line(members) for members in lines[:top]],
        "tail": tail_row(findings[top:], lines[top:], kernels[top:]),
        **chip_fields(roofs),
        "peaks_used": peaks_used(roofs),
        "totals": {"peers": waits},
    }


def has_reason_to_compare(step: Step, collectives: Sequence[Entry]) -> bool:
    """Return whether collectives take enough of a single step, and the file has other devices."""
    exposed = sum(entry.total for entry in collectives)
    is_worth = exposed * WORTH_COMPARING >= step.duration > 0
    return is_worth and step.picked is not None and len(tpus_of(step.device)) > 1


def read_peers(step: Step, context: Context) -> tuple[Peers, PeersOfStep | None]:
    # Import late, because these modules are needed only if devices are compared.
    from _analysis.comm.peers import peers_of
    from _analysis.comm.transfers import transfers_in

    transfers = transfers_in(step, lambda op: op.waits_for != HOST)
    peers = peers_of(step, transfers, context)
    return peers, peer_totals(peers, transfers)


def recomputed_math(step: Step) -> RecomputedMath:
    duration = step.by_kind[COMPUTE].where(lambda op: op.phase == "recompute").total
    return {
        "recompute_dur_ps": duration,
        "recompute_pct_of_step": percent(duration, step.duration),
    }


def capture_row(step: Step) -> Capture:
    return {
        "hosts": step.device.hosts,
        "devices": [name for name in step.device.planes if TPU_RE.match(name)],
        "n_steps": len(step.device.steps),
    }


def steps_row(step: Step) -> StepsRow | None:
    if step.picked is None:
        return None
    all_durations = durations_of(step)
    durations = [all_durations[event.index] for event in steps_named_like(step.device, step.picked)]
    return {
        "n": len(durations),
        "min_ps": min(durations),
        "median_ps": lower_median(durations),
        "max_ps": max(durations),
    }


def verdict(
    by_class: Mapping[OpClass, Sequence[Entry]], idle: int, periods: Periods | None, duration: int
) -> Bottleneck:
    """Return the class that loses the most time, or `at_roof` if little time is lost or unknown.
    Pauses between steps count as idle time.

    In a tie, return the class that comes first in the budget.
    """
    if periods:
        idle += periods.mean_pause
        duration += periods.mean_pause
    weights: dict[Bottleneck, int] = {
        name: sum(entry.weight for entry in entries) for name, entries in by_class.items()
    }
    weights[IDLE] = idle
    lost = sum(weights.values())
    if not lost or lost * LITTLE < duration:
        return AT_ROOF
    return max(weights, key=weights.__getitem__)


def speed_of_light(ledger: Sequence[Entry], duration: int) -> SpeedOfLight:
    """Return bounds on the time in which the chip could run the step."""
    at_roof = at_roof_of(ledger)
    unknown = sum(entry.weight for entry in ledger if not entry.is_certain)
    at_least, at_most = at_roof_of(filter(counts_for_lower_bound, ledger)), at_roof + unknown
    return {
        "at_roof_ps": at_roof,
        "unknown_ps": unknown,
        "at_least_ps": at_least,
        "at_most_ps": at_most,
        "pct_at_least": percent(at_least, duration),
        "pct_at_most": percent(at_most, duration),
    }


def utilization_of(
    ledger: Iterable[Entry], step: Step, counts: Callable[[Op], bool]
) -> float | None:
    """Return a lower bound on the share of the step during which the matrix units are busy.

    Return None for a share that is printed as 0.0 %: such a bound says nothing.
    """
    t_compute = sum(
        (
            min(Fraction(entry.total), entry.t_compute)
            for entry in ledger
            if entry.t_compute and counts_for_lower_bound(entry) and counts(entry.executions.op)
        ),
        Fraction(0),
    )
    share = t_compute / step.duration if step.duration else Fraction(0)
    return rounded(share, 6) if share >= SMALLEST_SHARE else None


def mfu_of(useful: int | Fraction | None, step: Step, roofs: Roofs) -> float | None:
    if useful is None or "bf16" not in roofs.flops or not step.duration:
        return None
    # With megacore, one device of the program appears as two planes, and peaks are per plane.
    n_planes = 2 if step.device.stats.get("has_megacore") == 1 else 1
    return rounded(useful / (n_planes * roofs.flops["bf16"]) / step.duration, 6)


def warnings_about(ledger: Sequence[Entry], findings: Iterable[Finding]) -> list[str]:
    declared = {entry.kernel for entry in ledger if is_declared(entry)}
    over = [entry for entry in ledger if entry.is_over_roof]
    return [*doubtful_notes(findings), *over_roof_notes(over), *declared_notes(declared)]


def over_roof_notes(over: list[Entry]) -> list[str]:
    if not over:
        return []
    over.sort(key=lambda entry: (-entry.total, entry.executions.op.agg_key))
    ops = [entry.executions.op for entry in over]
    total = sum(entry.total for entry in over)
    return [
        over_roof_note(
            "lower bounds exclude ops that are faster than their roof"
            f" ({counted(len(over), 'op')}, {time(total)})",
            (line_of(op).line or op.agg_key for op in ops),
        )
    ]


def doubtful_notes(findings: Iterable[Finding]) -> list[str]:
    doubtful = [finding.group for finding in findings if finding.likely.how == DOUBTFUL]
    if not doubtful:
        return []
    n_ops = sum(len(group.members) for group in doubtful)
    return [
        f"the stacks of {counted(n_ops, 'op')} ({time(sum(group.total for group in doubtful))})"
        " may be wrong: their lines, marked (?), are in files that are named after other scopes"
    ]


def tail_row(
    findings: Sequence[Finding], lines: Sequence[Sequence[Finding]], kernels: Sequence[Finding]
) -> FindingsTail:
    return {
        "n_findings_omitted": len(findings),
        "dur_ps": time_of(findings),
        "lost_ps": lost_by(findings),
        "n_lines_omitted": len(lines),
        "lines_dur_ps": sum(map(time_of, lines)),
        "lines_lost_ps": sum(map(lost_by, lines)),
        "n_kernels_omitted": len(kernels),
        "kernels_dur_ps": sum(finding.group.total for finding in kernels),
    }


def budget_of(
    by_class: Mapping[OpClass, Sequence[Entry]], idle: int, hideable: Hideable, step: Step
) -> list[BudgetRow]:
    return [
        *(budget_row(name, entries, hideable, step) for name, entries in by_class.items()),
        rest_row(IDLE, idle, step),
        rest_row(OVERLAP, step.timeline.busy - Group(step.leaves).total, step),
    ]


def budget_row(
    name: OpClass, entries: Sequence[Entry], hideable: Hideable, step: Step
) -> BudgetRow:
    total = sum(entry.total for entry in entries)
    is_known = name not in (KERNEL, UNJUDGED)
    return {
        "class": name,
        "dur_ps": total,
        "pct_of_step": percent(total, step.duration),
        "at_roof_ps": at_roof_of(entries) if is_known else None,
        "lost_ps": sum(entry.lost or 0 for entry in entries) if is_known else None,
        "hideable_ps": hideable.time_of(name, entries),
        "n_executions": sum(entry.executions.n for entry in entries),
    }


def rest_row(name: BudgetClass, duration: int, step: Step) -> BudgetRow:
    return {
        "class": name,
        "dur_ps": duration,
        "pct_of_step": percent(duration, step.duration),
        "at_roof_ps": None,
        "lost_ps": None,
        "hideable_ps": None,
        "n_executions": None,
    }


class Rows(NamedTuple):
    """Builds the rows for findings and kernels."""

    step: Step
    hideable: Hideable
    loops: Loops
    inside: Inside
    peers: Peers | None

    def finding(self, rank: int, finding: Finding) -> FindingRow:
        group = finding.group
        return {
            "rank": rank,
            "class": finding.name,
            **self.common_fields(finding),
            "at_roof_ps": finding.at_roof,
            "lost_ps": finding.lost,
            "hideable_ps": self.hideable.time_of(finding.name, finding.entries),
            "kernel": finding.kernel,
            "waits_for": (
                group.where(is_exposed).time_by(lambda op: op.waits_for)
                if finding.name in (COLLECTIVE, HOST)
                else None
            ),
            "top_signature": finding.top_signature,
            "what_helps": finding.what_helps_if(is_late=self.is_late(group)),
        }

    def line(self, findings: Sequence[Finding]) -> LineRow:
        """Return the row of a line; its findings are sorted by lost time."""
        worst, time = findings[0], time_of(findings)
        members = [member for finding in findings for member in finding.group.members]
        return {
            "class": worst.name,
            **likely_fields(worst.likely),
            "agg_key": worst.group.op.agg_key,
            "lost_ps": lost_by(findings),
            "dur_ps": time,
            "pct_of_step": percent(time, self.step.duration),
            "n_findings": len(findings),
            "mostly": worst.kernel or worst.top_signature,
            **scope_fields(members, worst.layers),
        }

    def kernel(self, finding: Finding) -> KernelRow:
        op = finding.costliest.executions.op
        config = op.instruction.config if op.instruction else None
        return {
            **self.common_fields(finding),
            "kernel": op.kernel or op.name,
            "declared": declared_row(op.declared_cost) if op.declared_cost else None,
            "vmem_used_bytes": config.vmem_used if config else None,
            "vmem_limit_bytes": config.vmem_limit if config else None,
        }

    def is_late(self, group: Group) -> bool:
        """Return whether most of the time is waiting for late devices."""
        if not self.peers:
            return False
        ids = [executions.metadata_id for executions in group.members]
        return 2 * self.peers.time_waiting_in(ids) > group.total

    def common_fields(self, finding: Finding) -> FindingFields:
        group = finding.group
        regions = self.inside.of(executions.metadata_id for executions in group.members)
        return {
            **likely_fields(finding.likely),
            "loop": self.loops.row(group.members),
            **scope_fields(group.members, finding.layers),
            "hlo_op": finding.costliest.executions.op.name,
            "shape": finding.shape,
            "agg_key": group.op.agg_key,
            "dur_ps": group.total,
            "pct_of_step": percent(group.total, self.step.duration),
            "n_executions": group.n,
            "waiting_ps": regions.waiting if regions else None,
        }
