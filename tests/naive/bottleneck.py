"""The mode bottleneck: what each class of ops takes, and could lose."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from tests.naive.idle import idle_by_cause
from tests.naive.op import (
    Event,
    Op,
    duration,
    grouped,
    length,
    pct,
    ratio,
    time_by,
    whole_ps,
)
from tests.naive.roofline import Roofline
from tests.naive.step import AbsentError, Json

CLASSES = (
    *("collective", "host", "data_movement", "compute_bound", "memory_bound", "kernel"),
    *("unjudged", "other"),
)
BY_ROOF = ("compute_bound", "memory_bound")
UNKNOWN = ("kernel", "unjudged")


@dataclass(eq=False)
class Runs:
    """All runs of an op in the step, with the time that its flops and its bytes take at peak."""

    op: Op
    events: list[Event]
    t_compute: Fraction | None
    t_hbm: Fraction | None

    @property
    def duration(self) -> int:
        return duration(self.events)

    def at_most(self, ps: Fraction | None) -> int:
        """Return the time of all runs if each takes that long, limited to the measured time."""
        return min(self.duration, whole_ps(len(self.events) * (ps or 0)))


class Bottleneck(Roofline):
    def answer(self) -> Json:
        said, op = self.options, self.step.program_op
        is_by_token = said.flops_per_token is not None or said.params is not None
        n_devices = None if op is None or op.program is None else op.program.n_devices
        if is_by_token and said.n_devices is None and n_devices is None:
            raise AbsentError("bad_arguments")
        ranked = self.findings()
        top = 8 if self.options.top is None else self.options.top
        rows = [{"rank": rank, **row} for rank, row in enumerate(ranked[:top], 1)]
        left_out = ranked[top:]
        recompute = [e for e in self.step.of_kind("compute") if e.op.phase == "recompute"]
        return {
            "chip": self.chip,
            "peaks_used": self.peaks_used(),
            "bottleneck": self.bottleneck(),
            "speed_of_light": self.speed_of_light(),
            "mfu_at_least": self.utilization_at_least(with_recompute=False),
            "hfu_at_least": self.utilization_at_least(with_recompute=True),
            "over_roof": self.ops_over_roof(),
            "budget": self.budget(),
            "idle_by_cause": idle_by_cause(self.step),
            "recompute_dur_ps": duration(recompute),
            "recompute_pct_of_step": pct(duration(recompute), self.step.duration),
            "findings": rows,
            "tail": {
                "n_findings_omitted": len(left_out),
                "dur_ps": sum(row["dur_ps"] for row in left_out),
                "lost_ps": sum(row["lost_ps"] or 0 for row in left_out),
            },
        }

    # what is known of an op

    def flops(self, op: Op) -> Fraction | None:
        """Return the flops; those of a kernel of unknown cost are unknown, whatever its stat."""
        return None if self.cost_source(op) is None else self.cost(op).flops

    def moved(self, op: Op) -> Fraction | None:
        cost = self.cost(op)
        return cost.accessed if cost.hbm is None else cost.hbm

    def t_compute(self, op: Op) -> Fraction | None:
        flops, dtype = self.flops(op), self.cost(op).dtype
        return self.compute_ps(flops, dtype) if flops and dtype in self.tflops else None

    def t_hbm(self, op: Op) -> Fraction | None:
        size = self.moved(op)
        return self.hbm_ps(size) if size and self.hbm_gibps is not None else None

    @cached_property
    def runs(self) -> list[Runs]:
        by_op = grouped(self.step.leaves, lambda e: id(e.op))
        return [
            Runs(events[0].op, events, self.t_compute(events[0].op), self.t_hbm(events[0].op))
            for events in by_op.values()
        ]

    def class_of(self, op: Op) -> str:
        if op.waits_for == "host" and (op.kind == "comm" or op.is_wait):
            return "host"
        if op.kind != "compute":
            names = {"comm": "collective", "data_move": "data_movement", "other": "other"}
            return names[op.kind]
        target = op.hlo.attributes.get("custom_call_target")
        if self.cost_source(op) is None and target == '"tpu_custom_call"':
            return "kernel"
        t_compute, t_hbm = self.t_compute(op), self.t_hbm(op)
        if t_compute is None and t_hbm is None:
            return "unjudged"
        return "compute_bound" if (t_compute or 0) >= (t_hbm or 0) else "memory_bound"

    def at_roof_ps(self, runs: Runs) -> int:
        """Return the least time that the chip needs; only compute has roofs."""
        if self.class_of(runs.op) not in BY_ROOF:
            return 0
        return runs.at_most(max(runs.t_compute or Fraction(0), runs.t_hbm or Fraction(0)))

    def is_over_roof(self, runs: Runs) -> bool:
        """Return whether it is faster than its roof by more than one percent."""
        roof = len(runs.events) * max(runs.t_compute or Fraction(0), runs.t_hbm or Fraction(0))
        is_judged = self.class_of(runs.op) in BY_ROOF
        return is_judged and runs.duration > 0 and roof > runs.duration * Fraction("1.01")

    def ops_over_roof(self) -> Json:
        over = [runs for runs in self.runs if self.is_over_roof(runs)]
        if over:
            self.step.notes.append("~some ops are faster than their roof")
        return {"n_ops": len(over), "dur_ps": sum(runs.duration for runs in over)}

    def is_vouched_for(self, runs: Runs) -> bool:
        return self.cost_source(runs.op) != "declared" and not self.is_over_roof(runs)

    def has_unknown_cost(self, op: Op) -> bool:
        is_peak_known = self.cost(op).dtype in self.tflops and self.hbm_gibps is not None
        return self.flops(op) is None or not is_peak_known or self.moved(op) is None

    # sums

    def of_class(self, *names: str) -> list[Runs]:
        return [runs for runs in self.runs if self.class_of(runs.op) in names]

    def figures(self, all_runs: list[Runs], name: str) -> Json:
        """Return the sums over runs of one class."""
        total = sum(runs.duration for runs in all_runs)
        at_roof = None if name in UNKNOWN else sum(map(self.at_roof_ps, all_runs))
        return {
            "dur_ps": total,
            "pct_of_step": pct(total, self.step.duration),
            "at_roof_ps": at_roof,
            "lost_ps": None if at_roof is None else total - at_roof,
            "hideable_ps": self.hideable_ps(total, name),
            "n_executions": sum(len(runs.events) for runs in all_runs),
        }

    def hideable_ps(self, total: int, name: str) -> int | None:
        if name not in ("collective", "host", "data_movement"):
            return None
        math = self.of_class("compute_bound", "memory_bound", "kernel", "unjudged")
        return min(total, sum(runs.duration for runs in math))

    @property
    def busy(self) -> int:
        return length(self.step.covered(self.step.leaves))

    def budget(self) -> list[Json]:
        idle = self.step.duration - self.busy
        overlap = self.busy - duration(self.step.leaves)
        return [
            *({"class": name, **self.figures(self.of_class(name), name)} for name in CLASSES),
            *(
                {
                    "class": name,
                    "dur_ps": ps,
                    "pct_of_step": pct(ps, self.step.duration),
                    "at_roof_ps": None,
                    "lost_ps": None,
                    "hideable_ps": None,
                    "n_executions": None,
                }
                for name, ps in (("idle", idle), ("overlap", overlap))
            ),
        ]

    def bottleneck(self) -> str:
        """Return the first of the classes with most time."""
        rows = {row["class"]: row for row in self.budget()}
        time = {name: weight(rows[name]) for name in (*CLASSES, "idle")}
        time["at_roof"] = sum(map(self.at_roof_ps, self.runs))
        return max(time, key=lambda name: time[name])

    def speed_of_light(self) -> Json:
        at_roof = sum(map(self.at_roof_ps, self.runs))
        vouched = [runs for runs in self.runs if self.is_vouched_for(runs)]
        unknown = sum(runs.duration for runs in self.of_class(*UNKNOWN)) + sum(
            runs.duration - self.at_roof_ps(runs)
            for runs in self.of_class(*BY_ROOF)
            if self.has_unknown_cost(runs.op)
        )
        return {
            "at_roof_ps": at_roof,
            "unknown_ps": unknown,
            "pct_at_least": pct(sum(map(self.at_roof_ps, vouched)), self.step.duration),
            "pct_at_most": pct(at_roof + unknown, self.step.duration),
        }

    def utilization_at_least(self, with_recompute: bool) -> float | None:
        counted = [
            runs
            for runs in self.runs
            if runs.op.kind == "compute"
            and self.is_vouched_for(runs)
            and (with_recompute or runs.op.phase != "recompute")
        ]
        busy = sum(
            min(Fraction(runs.duration), len(runs.events) * (runs.t_compute or Fraction(0)))
            for runs in counted
        )
        return ratio(busy, self.step.duration, 6)

    # findings

    def kernel_of(self, op: Op) -> str | None:
        """Return the kernel of an op of kind compute."""
        if op.kind != "compute":
            return None
        return op.kernel if self.class_of(op) == "kernel" else self.costed_kernel(op)

    def finding_of(self, runs: Runs) -> tuple[str, bool, str | None, str | None]:
        """Return the key of a finding: the stack of a group, or the line of ops without one."""
        op = runs.op
        has_stack = op.source_stack is not None
        place = op.agg_key if has_stack else op.row_line
        return self.class_of(op), has_stack, place, self.kernel_of(op)

    def findings(self) -> list[Json]:
        rows = [self.finding(each) for each in grouped(self.runs, self.finding_of).values()]
        return sorted(
            rows,
            key=lambda row: (
                -weight(row),
                CLASSES.index(row["class"]),
                row["agg_key"],
                row["source_inner"] or "",
                row["kernel"] or "",
            ),
        )

    def finding(self, all_runs: list[Runs]) -> Json:
        its_events = {id(e) for runs in all_runs for e in runs.events}
        events = [e for e in self.step.leaves if id(e) in its_events]
        first = events[0].op
        name = self.class_of(first)
        waits = None
        if name in ("collective", "host"):
            counted = [e for e in events if e.op.is_wait or e.op.is_synchronous_comm]
            waits = time_by(counted, lambda op: op.waits_for)
        ways = grouped(events, lambda e: e.op.row_how)
        how = max(ways, key=lambda way: duration(ways[way]))
        return {
            "class": name,
            "source_inner": first.row_line,
            "source_user": first.row_user,
            "source_is": how,
            "agg_key": first.agg_key,
            "tf_op": shortened(first.tf_op),
            "kernel": self.kernel_of(first),
            **self.figures(all_runs, name),
            "phases": time_by(events, lambda op: op.phase),
            "waits_for": waits,
        }


def weight(row: Json) -> int:
    """Return the lost time, or the whole time where that is unknown."""
    ps: int = row["dur_ps"] if row["lost_ps"] is None else row["lost_ps"]
    return ps


def shortened(text: str | None) -> str | None:
    return text if text is None or len(text) <= 200 else "…" + text[-200:]
