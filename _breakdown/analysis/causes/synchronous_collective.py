"""Find collectives that block the core although independent math could run at the same time."""

from __future__ import annotations

from collections.abc import Iterator

import _peaks
from _breakdown.analysis.arrays.engine import Overlap
from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.sentences import listed
from _breakdown.analysis.causes.shared.step_program import (
    StepProgram,
    collective_name_of,
    counts_of,
    total_of,
)
from _breakdown.units import time

_FUSION_FLAGS = (
    "xla_tpu_enable_async_collective_fusion",
    "xla_tpu_enable_async_collective_fusion_fuse_{name}",
    "xla_tpu_enable_latency_hiding_scheduler",
)
_OFFLOAD_FLAGS = ("xla_tpu_enable_sparse_core_collective_offload_{name}",)
_PERMUTE_FLAGS = ("xla_enable_async_collective_permute",)
# The flags that make each collective asynchronous, by `_peaks.Chip.overlap`.
_FLAGS: dict[str | None, dict[str, tuple[str, ...]]] = {
    "fusions": dict.fromkeys(("all-gather", "all-reduce"), _FUSION_FLAGS),
    "sparse_cores": dict.fromkeys(("all-gather", "all-reduce", "reduce-scatter"), _OFFLOAD_FLAGS),
    None: dict.fromkeys(("all-gather", "all-reduce", "reduce-scatter"), ()),
}
# Measured on v6e, SparseCores made the step faster where collectives took 5 % of it, and slower
# where they took 20 to 30 %, because there was too little math to hide in. Above 1 / `_MUCH` of the
# step, only fusions of all-gathers are worth a try.
_MUCH = 12

REMEDY = (
    "Try {flags} in the compiler options, set to true, or look for an option that turns"
    " asynchronous collectives off. Measure the whole step: it can become slower, because flags"
    " change the fusions of other ops, too."
)
UNKNOWN = "Look for the compiler options that make these collectives asynchronous on this chip."


def find(of: StepProgram) -> Iterator[Cause]:
    left_out = of.explained_by(
        "collective_in_loop",
        "resharding",
        "reduce_then_slice",
        "sum_too_late",
        confidence=SEEN,
    )
    chip = _peaks.CHIPS.get(of.roofs.choice.chip)
    flags_of = {**_FLAGS[chip and chip.overlap], "collective-permute": _PERMUTE_FLAGS}
    is_much = total_of(of.collectives) * _MUCH > of.step.duration
    if chip and chip.overlap == "sparse_cores" and is_much:
        flags_of = {"all-gather": _FUSION_FLAGS, "collective-permute": _PERMUTE_FLAGS}
    asynchronous = {collective_name_of(ran.op) for ran in of.collectives if ran.op.is_wait}
    members = [
        ran
        for ran in of.collectives
        if (name := collective_name_of(ran.op)) in flags_of
        and name not in asynchronous
        and id(ran) not in left_out
    ]
    if not members:
        return
    names = [collective_name_of(ran.op) or "" for ran in members]
    flags = {
        flag.format(name=name.replace("-", "_")): None for name in names for flag in flags_of[name]
    }
    total = total_of(members)
    yield Cause(
        f"The core stops for {time(total)} in {counts_of(members)}, with most time at"
        " <line>. If this communication were asynchronous, math that does not need its results"
        " could hide <gain>.",
        REMEDY.format(flags=listed(list(flags))) if flags else UNKNOWN,
        LIKELY,
        members,
        [Overlap(members)],
        can_lose=True,
    )
