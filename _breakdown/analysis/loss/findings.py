"""Group the ledger by class and source line, and suggest how to reduce each line's lost time. If
one line has most of the step's time, also group by scope."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from _breakdown.analysis.loss.remedies import LATE_DEVICE, remedy_of
from _breakdown.analysis.roof.exposed import is_exposed
from _breakdown.analysis.roof.hideable import Hideable
from _breakdown.analysis.roof.ledger import CLASSES, COLLECTIVE, KERNEL, LedgerEntry
from _breakdown.analysis.roof.limits import limit_of
from _breakdown.analysis.source.likely_lines import DOUBTFUL, LikelyLine, SourceIs, line_of
from _breakdown.analysis.source.loops import Loops
from _breakdown.analysis.source.rows import likely_fields, scope_fields
from _breakdown.light import NamedTuple
from _breakdown.pipeline.groups import Group, most, percent, ranked_by, sum_known, summed
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.scopes import merged_layers
from _breakdown.pipeline.vocabulary import HOST
from _breakdown.units import counted, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    # These modules take 8 ms to import, and are needed only if devices are compared.
    from _breakdown.analysis.comm.peers import Peers

Json = dict[str, Any]

# Maximum number of arrays listed in the shape of a tuple.
_N_PARTS = 3


class Finding:
    """The ledger entries that share a class, line and kernel, and the time that they lose.

    If findings are grouped by scope, `layers` is the entries' scope with `*` for numbers.
    """

    def __init__(
        self, entries: list[LedgerEntry], likely: LikelyLine, layers: str | None = None
    ) -> None:
        self.entries = entries
        self.likely = likely
        self.layers = layers
        self.name, self.kernel = entries[0].name, entries[0].kernel
        self.group = Group([entry.ran for entry in entries])
        self.at_roof = sum_known((1, entry.at_roof) for entry in entries)
        self.lost = sum_known((1, entry.lost) for entry in entries)
        self.weight = sum(entry.weight for entry in entries)

    @property
    def rank(self) -> tuple[int, int, str, str, str]:
        """Return the sort key: most lost time first."""
        order = -self.weight, CLASSES.index(self.name), self.group.op.agg_key
        return *order, self.likely.line or "", self.kernel or ""

    @property
    def costliest(self) -> LedgerEntry:
        return max(self.entries, key=lambda entry: entry.total)

    @property
    def shape(self) -> str | None:
        """Return the output shape that takes the most time, without layouts."""
        return most((shape_of(member.op), member.total) for member in self.group.members)

    @property
    def top_signature(self) -> str:
        signature: str = ranked_by(self.group.members, lambda op: op.signature)[0][0]
        return signature

    def what_helps_if(self, *, is_late: bool, lacks_math: bool) -> str | None:
        """Return the remedy for most of the time. Pass whether it is waiting for late devices, and
        whether there is too little math to hide it."""
        if is_late:
            return LATE_DEVICE
        remedies = summed(
            (remedy_of(entry, lacks_math=lacks_math), entry.total) for entry in self.entries
        )
        remedy = max(remedies, key=remedies.__getitem__)
        # A remedy for one op of a mixture would not help the others.
        return remedy if 2 * remedies[remedy] >= self.group.total else None


def shape_of(op: Op) -> str | None:
    arrays = op.outputs
    texts = [f"{array.dtype}[{array.dims}]" for array in arrays[:_N_PARTS]]
    if len(arrays) > 1:
        return f"({', '.join(texts)}{', …' * (len(arrays) > _N_PARTS)})"
    return texts[0] if texts else None


class Findings(NamedTuple):
    """Findings and kernels of unknown cost, most weight first, and both by line."""

    known: list[Finding]
    kernels: list[Finding]
    lines: list[list[Finding]]


def lines_of(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Group findings by source line, and by scope if they are. The line with the most weight comes
    first, without its kernels of unknown cost, which have a table of their own."""
    lines: dict[tuple[str | None, str], list[Finding]] = {}
    for finding in findings:
        place = finding.likely.place or finding.group.op.agg_key
        lines.setdefault((finding.layers, place), []).append(finding)
    for members in lines.values():
        members.sort(key=lambda finding: finding.name == KERNEL)
    return sorted(lines.values(), key=lambda members: (-weight_of(members), -time_of(members)))


def weight_of(findings: Iterable[Finding]) -> int:
    return sum(finding.weight for finding in findings if finding.name != KERNEL)


def lost_by(findings: Iterable[Finding]) -> int:
    """Return the lost time of the findings, as far as known."""
    return sum(finding.lost or 0 for finding in findings)


def time_of(findings: Iterable[Finding]) -> int:
    return sum(finding.group.total for finding in findings)


def findings_of(ledger: Iterable[LedgerEntry], by_scope: bool) -> Findings:
    """Group the ledger by class and line, and optionally by scope; an op without a stack is
    attributed to its likely line."""
    by_line: dict[Any, list[tuple[LedgerEntry, SourceIs | None]]] = {}
    for entry in ledger:
        op = entry.ran.op
        likely = line_of(op)
        # Ops without a line are named by their key, so that a name means the same in all modes.
        key = op.agg_key if op.source_stack or not likely.line else None
        layers = merged_layers(op.scope.name) if by_scope and op.scope else None
        place = entry.name, entry.kernel, key, layers, likely.line, likely.line_user
        by_line.setdefault(place, []).append((entry, likely.how))
    findings = []
    for (*_, layers, line, line_user), found in by_line.items():
        likely = LikelyLine(line, line_user, most((how, entry.total) for entry, how in found))
        findings.append(Finding([entry for entry, _ in found], likely, layers))
    findings.sort(key=lambda finding: finding.rank)
    known = [finding for finding in findings if finding.name != KERNEL]
    kernels = [finding for finding in findings if finding.name == KERNEL]
    return Findings(known, kernels, lines_of(findings))


def doubtful_notes(findings: Iterable[Finding]) -> list[str]:
    doubtful = [finding.group for finding in findings if finding.likely.how == DOUBTFUL]
    if not doubtful:
        return []
    n_ops = sum(len(group.members) for group in doubtful)
    return [
        f"the stacks of {counted(n_ops, 'op')} ({time(sum(group.total for group in doubtful))})"
        " may be wrong: their lines, marked (?), are in files that are named after other scopes"
    ]


class FindingRows(NamedTuple):
    """Builds the rows of findings, kernels of unknown cost and lines."""

    step: Step
    hideable: Hideable
    loops: Loops
    peers: Peers | None
    # Tells whether causes explain what a finding loses; then they have the advice.
    is_explained: Callable[[Finding], bool]

    def finding(self, finding: Finding) -> Json:
        group = finding.group
        return {
            "class": finding.name,
            **self.common_fields(finding),
            "at_roof_ps": finding.at_roof,
            "lost_ps": finding.lost,
            "hideable_ps": self.hideable.time_of(finding.name, finding.entries),
            "kernel": finding.kernel,
            "limited_by": limit_of(finding.entries),
            "waits_for": (
                group.where(is_exposed).time_by(lambda op: op.waits_for)
                if finding.name in (COLLECTIVE, HOST)
                else None
            ),
            "top_signature": finding.top_signature,
            "what_helps": None if self.is_explained(finding) else self.what_helps(finding),
        }

    def what_helps(self, finding: Finding) -> str | None:
        return finding.what_helps_if(
            is_late=self.is_late(finding.group),
            lacks_math=self.hideable.lacks_math(finding.name),
        )

    def line(self, findings: Sequence[Finding]) -> Json:
        """Return the row of a line, named after its first finding."""
        worst, time = findings[0], time_of(findings)
        members = [member for finding in findings for member in finding.group.members]
        return {
            "class": worst.name,
            **likely_fields(worst.likely),
            "agg_key": worst.group.op.agg_key,
            "lost_ps": sum_known((1, finding.lost) for finding in findings),
            "dur_ps": time,
            "pct_of_step": percent(time, self.step.duration),
            "classes": summed((finding.name, finding.group.total) for finding in findings),
            "mostly": worst.kernel or worst.top_signature,
            **scope_fields(members, worst.layers),
        }

    def kernel(self, finding: Finding) -> Json:
        op = finding.costliest.ran.op
        config = op.instruction.config if op.instruction else None
        return {
            **self.common_fields(finding),
            "kernel": op.kernel or op.name,
            "vmem_used_bytes": config.vmem_used if config else None,
            "vmem_limit_bytes": config.vmem_limit if config else None,
        }

    def is_late(self, group: Group) -> bool:
        """Return whether most of the time is waiting for late devices."""
        if not self.peers:
            return False
        ids = [ran.metadata_id for ran in group.members]
        return 2 * self.peers.time_waiting_in(ids) > group.total

    def common_fields(self, finding: Finding) -> Json:
        group = finding.group
        return {
            **likely_fields(finding.likely),
            "loop": self.loops.row(group.members),
            **scope_fields(group.members, finding.layers),
            "hlo_op": finding.costliest.ran.op.name,
            "shape": finding.shape,
            "agg_key": group.op.agg_key,
            "dur_ps": group.total,
            "pct_of_step": percent(group.total, self.step.duration),
            "n_executions": group.n,
        }


def tail_of_findings(
    findings: Sequence[Finding], lines: Sequence[Sequence[Finding]], kernels: Sequence[Finding]
) -> Json:
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
