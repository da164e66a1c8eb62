"""Run the detectors that require the compiled program."""

from __future__ import annotations

from collections.abc import Iterable

from _analysis.causes import (
    collective_in_loop,
    flat_array,
    large_intermediate,
    larger_array,
    layout_change,
    needless_whole,
    not_donated,
    one_hot_matmul,
    repeated_kernel,
    resharding,
    synchronous_collective,
    widened_dtype,
)
from _analysis.causes.cause import SEEN, Cause
from _analysis.causes.step_program import StepProgram


def causes_in_program(of: StepProgram) -> list[Cause]:
    in_loops = collective_in_loop.find(of)
    one_hot = one_hot_matmul.find(of)
    resharded = resharding.find(of)
    resharded += larger_array.find(of, _executions_of(one_hot))
    resharded += needless_whole.find(of, _executions_of(resharded))
    resharded += repeated_kernel.find(of)
    resharded = resharding.joined(of, resharded)
    flat = flat_array.find(of)
    seen = _executions_of(cause for cause in (*in_loops, *resharded) if cause.confidence == SEEN)
    return [
        *in_loops,
        *widened_dtype.find(of),
        *resharded,
        *one_hot,
        *large_intermediate.find(of),
        *synchronous_collective.find(of, seen),
        *flat,
        *layout_change.find(of, _executions_of((*resharded, *flat))),
        *not_donated.find(of),
    ]


def _executions_of(causes: Iterable[Cause]) -> set[int]:
    """Return the ids of the executions that are evidence for causes."""
    return {id(executions) for cause in causes for executions in cause.evidence.executions}
