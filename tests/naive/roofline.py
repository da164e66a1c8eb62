"""The mode roofline."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tests.naive.op import (
    FLOAT_DTYPES,
    Event,
    Op,
    count_by,
    distinct,
    duration,
    fact_sum,
    grouped,
    longest,
    number,
    number_of,
    pct,
    ratio,
    text_of,
    time_by,
    whole_ps,
    without_ssa_parts,
)
from tests.naive.step import (
    AbsentError,
    Json,
    Picked,
    meant,
)

# chip: (TFLOPS by dtype, HBM in GiB/s)
CHIPS: dict[str, tuple[dict[str, float], float]] = {
    "v7x": ({"bf16": 1153.5, "fp8": 2307.0}, 3690.0),
    "v6e": ({"bf16": 918.0}, 1638 * 10**9 / 2**30),
    "v5p": ({"bf16": 233.4}, 1287.45),
    "v5e": ({"bf16": 197.0}, 819 * 10**9 / 2**30),
    "v4": ({"bf16": 139.8}, 572.2),
}
DEVICE_TYPES = {
    "v7x": ("TPU v7x", "TPU7x", "TPU v7"),
    "v6e": ("TPU v6 Lite", "TPU v6e"),
    "v5p": ("TPU v5", "TPU v5p"),
    "v5e": ("TPU v5 Lite", "TPU v5e"),
    "v4": ("TPU v4",),
}


def chip_of(device_type: str) -> str | None:
    named = [chip for chip, names in DEVICE_TYPES.items() if device_type in names]
    return named[0] if named else None


@dataclass
class Cost:
    """The flops, bytes and dtype of one execution."""

    flops: Fraction | None
    accessed: Fraction | None
    hbm: Fraction | None
    dtype: str


@dataclass
class Part:
    """The executions of a group that make one row, or one skipped entry."""

    group: list[Event]
    events: list[Event]
    cost_source: str | None
    kernel: str | None = None

    @property
    def is_opaque(self) -> bool:
        return self.cost_source is None


def is_over_roof(row: Json) -> bool:
    """Return whether the printed utilization is above 1."""
    return row["roofline_util"] is not None and row["roofline_util"] > 1


class Roofline:
    def __init__(self, step: Picked) -> None:
        self.step = step
        self.options = step.options
        self.user_costs: dict[str, tuple[Fraction, Fraction, str | None]] = {}
        kernels = distinct(e.op.kernel for e in step.of_kind("compute"))
        for cost in self.options.kernel_cost:
            name, _, figures = cost.partition("=")
            flops, size, *dtype = figures.split(",")
            kernel = meant(name, kernels)
            if kernel is None:
                raise AbsentError("kernel_not_found", available_kernels=kernels)
            if kernel in self.user_costs:
                raise AbsentError("bad_arguments")
            if kernel != name:
                step.notes.append("~what the prefix was taken for")
            self.user_costs[kernel] = Fraction(flops), Fraction(size), [None, *dtype][-1]
        device_type = text_of(step.plane.stats, "device_type_string") or ""
        self.chip = self.options.chip or chip_of(device_type) or "v7x"
        if self.chip != "v7x" or chip_of(device_type) != "v7x":
            step.notes.append("~the row of the table, or the device, isn't v7x")
        self.read_peaks()

    def read_peaks(self) -> None:
        if self.chip == "profile":
            tflops = self.plane_peak("peak_teraflops_per_second")
            gbps = self.plane_peak("peak_hbm_bw_gigabytes_per_second")
            known = {} if tflops is None else {"bf16": tflops}
            hbm = None if gbps is None else gbps * 10**9 / 2**30
            self.source = "profile"
        else:
            known, hbm = CHIPS[self.chip]
            self.source = f"builtin {self.chip} table"
        overrides = {d: getattr(self.options, f"peak_tflops_{d}") for d in FLOAT_DTYPES}
        override_hbm = self.options.peak_hbm_gibps
        if override_hbm is not None or any(v is not None for v in overrides.values()):
            self.source += " + cli override"
        self.tflops: dict[str, float] = known | {
            d: float(v) for d, v in overrides.items() if v is not None
        }
        self.hbm_gibps = hbm if override_hbm is None else float(override_hbm)

    def plane_peak(self, stat: str) -> float | None:
        peak = number_of(self.step.plane.stats, stat)
        return float(peak) if peak else None

    def ridge_point(self, dtype: str) -> float:
        return float(
            Fraction(self.tflops[dtype]) * 10**12 / (Fraction(self.hbm_gibps or 0) * 2**30)
        )

    def compute_ps(self, flops: Fraction, dtype: str) -> Fraction:
        return flops / Fraction(self.tflops[dtype])  # 10**12 flops/s are one per picosecond

    def hbm_ps(self, size: Fraction) -> Fraction:
        return size * 10**12 / (Fraction(self.hbm_gibps or 0) * 2**30)

    def peaks_used(self) -> Json:
        known = [d for d in FLOAT_DTYPES if d in self.tflops and self.hbm_gibps is not None]
        return {
            **{f"peak_tflops_{d}": self.tflops.get(d) for d in FLOAT_DTYPES},
            "peak_hbm_gibps": self.hbm_gibps,
            "ridge_points": {d: round(self.ridge_point(d), 4) for d in known},
            "source": self.source,
            "unit": "GiB/s (base-1024) per device",
        }

    def cost_source(self, op: Op) -> str | None:
        """Return who provides the cost of an op; None if it is unknown."""
        if op.kernel in self.user_costs:
            return "user"
        if not op.is_opaque:
            return "xla"
        return None if op.declared is None else "declared"

    def costed_kernel(self, op: Op) -> str | None:
        if self.cost_source(op) not in ("user", "declared"):
            return None
        return without_ssa_parts(op.hlo.name or "") or None

    def parts(self) -> list[Part]:
        parts = []
        for group in grouped(self.step.of_kind("compute"), lambda e: e.op.agg_key).values():
            by_source = grouped(group, lambda e: (self.cost_source(e.op), self.costed_kernel(e.op)))
            made = [Part(group, events, *label) for label, events in by_source.items()]
            # The rest of a group precedes its kernels.
            parts += sorted(made, key=lambda part: part.cost_source not in (None, "xla"))
        return parts

    def cost(self, op: Op) -> Cost:
        source = self.cost_source(op)
        if source == "user":
            flops, size, dtype = self.user_costs[str(op.kernel)]
            return Cost(flops, size, size, dtype or op.peak_dtype)
        if source == "declared" and op.declared is not None:
            flops = Fraction(op.declared.flops)
            if op.declared.bytes is None:
                return Cost(flops, op.bytes_accessed, op.hbm_bytes, op.peak_dtype)
            size = Fraction(op.declared.bytes)
            return Cost(flops, size, size, op.peak_dtype)
        return Cost(op.flops, op.bytes_accessed, op.hbm_bytes, op.peak_dtype)

    def size(self, cost: Cost) -> Fraction | None:
        return cost.hbm if self.options.bytes == "hbm" else cost.accessed

    def part_cost(self, part: Part) -> Cost:
        costs = [self.cost(e.op) for e in part.events]
        is_unknown = any(cost.accessed and cost.hbm is None for cost in costs)
        by_dtype = grouped(part.events, lambda e: self.cost(e.op).dtype)
        return Cost(
            flops=fact_sum(cost.flops for cost in costs),
            accessed=fact_sum(cost.accessed for cost in costs),
            hbm=None if is_unknown else fact_sum(cost.hbm for cost in costs),
            dtype=max(by_dtype, key=lambda dtype: duration(by_dtype[dtype])),
        )

    def skip_reason(self, part: Part) -> str | None:
        cost = self.part_cost(part)
        if part.is_opaque:
            return "opaque"
        if not cost.flops:
            return "no_flops"
        size = self.size(cost)
        if size is None or (size == 0 and self.options.bytes == "accessed"):
            return "no_bytes"
        if cost.dtype not in FLOAT_DTYPES:
            return "dtype_other"
        if cost.dtype not in self.tflops or self.hbm_gibps is None:
            return "peak_unknown_for_dtype"
        return None

    def per_op_ps(self, part: Part) -> Fraction | None:
        """Return the time of the executions if each ran at its own roof.

        Dtypes without a known peak, such as integers, have the memory's roof alone."""
        total = Fraction(0)
        for cost in (self.cost(e.op) for e in part.events):
            t_compute = Fraction(0)
            if cost.flops and cost.dtype in FLOAT_DTYPES:
                if cost.dtype not in self.tflops:
                    return None
                t_compute = self.compute_ps(cost.flops, cost.dtype)
            total += max(t_compute, self.hbm_ps(self.size(cost) or Fraction(0)))
        return total

    def roofs(self, part: Part) -> tuple[Fraction, Fraction]:
        """Return the time that its flops and its bytes take at peak."""
        cost = self.part_cost(part)
        return (
            self.compute_ps(cost.flops or Fraction(0), cost.dtype),
            self.hbm_ps(self.size(cost) or Fraction(0)),
        )

    def row(self, part: Part) -> Json:
        cost = self.part_cost(part)
        total = duration(part.events)
        t_compute, t_hbm = self.roofs(part)
        t_roofline = max(t_compute, t_hbm)
        flops, size = cost.flops or Fraction(0), self.size(cost) or Fraction(0)
        intensity = float(flops / size) if size else None
        is_compute_bound = intensity is None or intensity >= self.ridge_point(cost.dtype)
        is_by_user = part.cost_source == "user" and self.user_costs[str(part.kernel)][2] is not None
        opaque = [e for e in part.group if self.cost_source(e.op) is None]
        # Executions of the dtype that takes most time decide.
        deciding = [e for e in part.events if self.cost(e.op).dtype == cost.dtype]
        by_source = grouped(deciding, lambda e: "user" if is_by_user else e.op.dtype_source)
        known_inputs = [e for e in part.events if e.op.operand_dtype is not None]
        per_op = self.per_op_ps(part)
        per_op_ps = None if per_op is None else whole_ps(per_op)
        return {
            "agg_key": part.events[0].op.agg_key,
            "agg_key_kind": part.events[0].op.agg_key_kind,
            "source_inner": part.group[0].op.source_inner,
            "source_user": part.group[0].op.source_user,
            "tf_op": part.group[0].op.tf_op,
            "hlo_categories": count_by(part.events, lambda op: op.category),
            "n_executions": len(part.events),
            "total_dur_ps": total,
            "flops_sum": number(flops),
            "model_flops_sum": number(
                fact_sum(e.op.model_flops for e in part.events if part.cost_source == "xla")
            ),
            "bytes_accessed_sum": number(cost.accessed),
            "dtype": cost.dtype,
            "dtype_source": max(by_source, key=lambda source: duration(by_source[source])),
            "dtype_uncertain": not is_by_user and any(e.op.dtype_uncertain for e in part.events),
            "arithmetic_intensity": None if intensity is None else round(intensity, 4),
            "ridge_point": round(self.ridge_point(cost.dtype), 4),
            "bound": "compute" if is_compute_bound else "memory",
            "t_compute_theory_ps": whole_ps(t_compute),
            "t_hbm_theory_ps": whole_ps(t_hbm),
            "t_roofline_theory_ps": whole_ps(t_roofline),
            "mfu": ratio(t_compute, total, 6),
            "hbm_util": ratio(t_hbm, total, 6),
            "roofline_util": ratio(t_roofline, total, 6),
            "shortfall_ps": total - whole_ps(t_roofline),
            "shortfall_pct": ratio(100 * (total - t_roofline), total, 3),
            "opaque_dur_ps": duration(opaque) if part.cost_source == "xla" else 0,
            "kernel": part.kernel,
            "cost_source": part.cost_source,
            "hbm_bytes_sum": number(cost.hbm),
            "operand_dtypes": time_by(known_inputs, lambda op: str(op.operand_dtype)),
            "t_roofline_per_op_ps": per_op_ps,
            "shortfall_per_op_ps": None if per_op_ps is None else total - per_op_ps,
        }

    def answer(self) -> Json:
        parts = self.parts()
        rooflined = [part for part in parts if self.skip_reason(part) is None]
        rows = [self.row(part) for part in rooflined]
        if any(map(is_over_roof, rows)):
            self.step.notes.append("~some rows have a roofline_util above 1")
        if any(row["cost_source"] == "declared" for row in rows):
            self.step.notes.append("~some kernels are judged by what their authors declared")
        if any(row["model_flops_sum"] not in (None, row["flops_sum"]) for row in rows):
            self.step.notes.append("~some rows' flops_sum and model_flops_sum differ")
        return {
            "chip": self.chip,
            "peaks_used": {**self.peaks_used(), "bytes": self.options.bytes},
            "step_summary": self.step_summary(rooflined, rows),
            **self.shown(rows),
            "skipped_groups": self.skipped([p for p in parts if self.skip_reason(p)]),
        }

    def shown(self, rows: list[Json]) -> Json:
        """Return all rows in order of appearance, or with --top those with most shortfall."""
        top = self.options.top
        if top is None:
            return {"groups": rows}
        ranked = sorted(
            rows, key=lambda row: (-row["shortfall_ps"], row["agg_key"], row["kernel"] or "")
        )
        left_out = ranked[top:]
        tail = {
            "n_groups_omitted": len(left_out),
            "dur_ps": sum(row["total_dur_ps"] for row in left_out),
            "shortfall_ps": sum(row["shortfall_ps"] for row in left_out),
        }
        return {"groups": ranked[:top], "tail": tail}

    def hbm_util(self, part: Part) -> float | None:
        """Return the HBM utilization; XLA writes 0 bytes for what it doesn't know."""
        cost = self.part_cost(part)
        size = self.size(cost)
        if not cost.accessed or size is None or self.hbm_gibps is None:
            return None
        return ratio(self.hbm_ps(size), duration(part.events), 6)

    def step_summary(self, rooflined: list[Part], rows: list[Json]) -> Json:
        weight = sum(duration(part.events) for part in rooflined)
        # Utilizations are weighted by their base, so the average is a quotient of sums. Rows
        # without time have no weight.
        roofs = [self.roofs(part) for part in rooflined if duration(part.events)]
        compute = duration(self.step.of_kind("compute"))
        ranked = sorted(
            rows, key=lambda row: (-row["shortfall_ps"], row["agg_key"], row["kernel"] or "")
        )
        shown = ("agg_key", "source_inner", "tf_op", "total_dur_ps", "shortfall_ps", "bound")
        per_op = [row for row in rows if row["t_roofline_per_op_ps"] is not None]
        return {
            "weighted_avg_mfu": ratio(sum(c for c, _ in roofs), weight, 6),
            "weighted_avg_hbm_util": ratio(sum(h for _, h in roofs), weight, 6),
            "weighted_avg_roofline_util": ratio(sum(max(r) for r in roofs), weight, 6),
            "step_shortfall_ps": sum(row["shortfall_ps"] for row in rows),
            "rooflined_dur_ps": weight,
            "step_compute_dur_ps_total": compute,
            "rooflined_pct_of_compute": pct(weight, compute),
            "skipped_pct_of_compute": pct(compute - weight, compute),
            "top_shortfall_groups": [{k: row[k] for k in shown} for row in ranked[:10]],
            "over_roof": self.over_roof(rooflined, rows),
            **{
                key: sum(row[key] for row in per_op) if per_op else None
                for key in ("t_roofline_per_op_ps", "shortfall_per_op_ps")
            },
        }

    def over_roof(self, rooflined: list[Part], rows: list[Json]) -> Json:
        over = [row for row in rows if is_over_roof(row)]
        within = [part for part, row in zip(rooflined, rows, strict=True) if row not in over]
        timed = [part for part in within if duration(part.events)]
        return {
            "n_groups": len(over),
            "total_dur_ps": sum(row["total_dur_ps"] for row in over),
            "weighted_avg_mfu_without": ratio(
                sum(self.roofs(part)[0] for part in timed),
                sum(duration(part.events) for part in timed),
                6,
            ),
        }

    def skipped(self, parts: list[Part]) -> Json:
        entries: list[Json] = []
        for part in parts:
            entries.append(
                {
                    "agg_key": part.group[0].op.agg_key,
                    "source_inner": part.group[0].op.source_inner,
                    "source_user": part.group[0].op.source_user,
                    "tf_op": part.group[0].op.tf_op,
                    "total_dur_ps": duration(part.events),
                    "hbm_util": self.hbm_util(part),
                    "reason": self.skip_reason(part),
                    "example_hlo_op": longest(part.events).op.text,
                }
            )
        entries.sort(key=lambda entry: (-entry["total_dur_ps"], entry["agg_key"], entry["reason"]))
        reasons = [entry["reason"] for entry in entries]
        return {
            "n_no_flops": reasons.count("no_flops") + reasons.count("opaque"),
            "n_no_bytes": reasons.count("no_bytes"),
            "n_dtype_other": reasons.count("dtype_other"),
            "n_peak_unknown_for_dtype": reasons.count("peak_unknown_for_dtype"),
            "total_dur_ps_skipped": sum(entry["total_dur_ps"] for entry in entries),
            "top_skipped": entries[:10],
        }
