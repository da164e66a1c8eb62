"""Put together what a capture shows of the inside of kernels: regions, schedules and lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from _breakdown.analysis.kernel.kernel_regions import Regions, inside_kernels
from _breakdown.analysis.kernel.schedules import spans_of_schedules
from _breakdown.light import TYPE_CHECKING
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.groups import Group, percent
from _breakdown.pipeline.normalize import Step

if TYPE_CHECKING:
    from _breakdown.analysis.kernel.line_fields import LineFields

Json = dict[str, Any]

FLAGS = (
    'set LIBTPU_INIT_ARGS="--xla_xprof_register_llo_debug_info=true'
    ' --xla_enable_custom_call_region_trace=true" before JAX is imported, and capture again'
)
NO_SCHEDULES = f"the capture has no schedules of kernels; to see time by source line, {FLAGS}"
NO_REGIONS = f"the capture has no regions inside kernels; to see them and source lines, {FLAGS}"
OF_SCHEDULE = ("schedule", "lines_are", "lines", "lines_tail")
OF_REGIONS = ("regions", "waiting_ps", "waiting_pct", "computing_ps", "outside_regions_ps")
OF_REGION = ("usage", "spills", "fills")


class Details:
    """The inside of a step's kernels."""

    def __init__(self, step: Step, kernels: Sequence[Group], context: Context) -> None:
        self._inside = inside_kernels(step)
        self._lines: LineFields | None = None
        spans = spans_of_schedules(step.device, kernels)
        if spans:
            # Import late, because few captures have schedules.
            from _breakdown.analysis.kernel.line_fields import LineFields

            self._lines = LineFields(step, kernels, spans, FLAGS, context)
        elif kernels:
            context.warn(NO_SCHEDULES if self._inside.of_kernel else NO_REGIONS)

    def fields(self, kernel: Group, longest: int, top: int) -> Json:
        """Return the fields of a kernel; `longest` is the metadata id of its costliest op."""
        regions = self._inside.of(ran.metadata_id for ran in kernel.members)
        found = self._lines.fields(kernel, longest, top) if self._lines else None
        return {
            **self._region_fields(regions, kernel.total, longest),
            **(found or dict.fromkeys(OF_SCHEDULE)),
        }

    def _region_fields(self, inside: Regions | None, total: int, longest: int) -> Json:
        if inside is None:
            return dict.fromkeys(OF_REGIONS)
        return {
            "regions": [
                {
                    "region": region.name,
                    "depth": depth,
                    "waits": waits,
                    "n": region.n,
                    "total_dur_ps": region.total,
                    "self_dur_ps": region.self_time,
                    # `total` is positive, because a kernel with regions takes time.
                    "pct_of_kernel": percent(region.total, total) or 0.0,
                    **self._of_region(region.name, longest),
                }
                for region, depth, waits in inside.rows()
            ],
            "waiting_ps": inside.waiting,
            "waiting_pct": percent(inside.waiting, total),
            "computing_ps": inside.computing,
            "outside_regions_ps": total - inside.total,
        }

    def _of_region(self, name: str, longest: int) -> Json:
        found = self._lines.of_region(name, longest) if self._lines else None
        return found or dict.fromkeys(OF_REGION)
