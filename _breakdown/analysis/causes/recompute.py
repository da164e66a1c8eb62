"""Find ops of the forward pass that run again in the backward pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil

from _breakdown.analysis.arrays.engine import Gain
from _breakdown.analysis.arrays.graph import (
    STRUCTURE,
    Value,
    callers,
    is_backward,
    is_same,
    producers,
    walk,
)
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause, StepFacts
from _breakdown.analysis.causes.shared.checkpoints import (
    REPEATED_PART,
    common_place_of,
    recomputed_in,
)
from _breakdown.analysis.causes.shared.step_program import collective_name_of, total_of
from _breakdown.analysis.memory.free import free_memory
from _breakdown.analysis.roof.exposed import is_exposed
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.units import counted, size, time
from _proto.hlo.program import Instruction

FOR_KERNELS = (
    "If memory is free, keep the kernels' results: name them (residual_checkpoint_name), use the"
    " checkpoint policy save_only_these_names, and measure."
)
FOR_ALL = (
    "If memory is free, leave out the checkpoint in {layers}, and measure: people found steps that"
    " became faster, and others that became slower."
)
# What a program only passes on to the backward pass, or repeats there, need not be kept.
_PASSED = STRUCTURE | {"broadcast", "concatenate", "dynamic-slice", "pad", "slice"}
_NOT_KEPT = _PASSED | {"all-gather", "all-gather-done", "async-done", "constant", "iota"}
# At least this part of the time that recomputation takes is saved: on chips, keeping the results of
# attention kernels saved 178 of 206 ms, and people gained half to all of what they had predicted.
# At most, keeping arrays costs this many times what it takes to write and to read them: in a
# recompiled pair it was 2.4, because a loop copies what it keeps.
_LEAST, _DEAREST = 0.4, 2.5
# JAX's kernel for attention whose results can be kept by name.
_NAMED = "splash"
_LANES = 128
# Part of the free memory that arrays can take: a program cannot use all of it.
_USABLE = 0.9


def find(facts: StepFacts) -> Iterator[Cause]:
    left_out = facts.explained_by("recomputed_repeatedly")
    # Exclude ops of depth 0: the compiler recomputes them without a checkpoint if memory is short.
    members = [
        work.ran
        for work in recomputed_in(facts.step)
        if work.depth and id(work.ran) not in left_out
    ]
    kernels = [ran for ran in facts.step.leaves if _is_kernel_to_keep(ran)]
    kernels = [ran for ran in kernels if id(ran) not in left_out]
    if not members and not kernels:
        return
    saving, kept = _Saving(facts), _results_of(kernels)
    if kept and (gain := saving.gain(total_of(kernels), kept, 1)):
        members = [ran for ran in members if ran not in kernels]
        per_gib = gain.estimate / 10**9 / (kept / 2**30)
        yield Cause(
            f"The backward pass runs {counted(sum(ran.n for ran in kernels), 'kernel')} at <line>"
            f" again, which takes {time(total_of(kernels))}. Their results take"
            f" {size(kept)}{saving.free_says}, so keeping them saves {per_gib:.2g} ms per GiB.",
            FOR_KERNELS,
            LIKELY,
            kernels,
            measured=gain,
            evidence={"keeps_bytes": kept},
        )
    else:
        kernels = []
    # Communication that runs again counts apart, because something else can remove it.
    kinds = grouped((_is_communication(ran), ran) for ran in members)
    if False in kinds:
        yield from _rest(saving, kinds[False], kinds.get(True, []), kernels)


def _rest(
    saving: _Saving,
    work: list[Executions],
    sent: Sequence[Executions],
    kernels: Sequence[Executions],
) -> Iterator[Cause]:
    """Yield the cause for all other ops, unless to keep their results takes longer."""
    kept = saving.kept_besides(_results_of(kernels), total_of(work))
    n_layers = saving.one_layer_of(kept)
    gain = saving.gain(total_of(work), kept, n_layers) if kept else None
    if kept and not gain:
        return
    layers = "all layers" if n_layers == 1 else f"one of {n_layers} layers"
    also = f", besides {time(total_of(sent))} of communication" if sent else ""
    says = (
        "The checkpoint at <line> runs forward work again in the backward pass, which takes"
        f" {time(total_of(work))}{also}."
    )
    if kept:
        says += (
            f" Without it in {layers}, {size(kept // n_layers)} more are kept{saving.free_says}."
        )
    yield Cause(
        says,
        FOR_ALL.format(layers=layers if gain else "some layers"),
        LIKELY,
        work,
        measured=gain,
        place=common_place_of(work),
        evidence={"keeps_bytes": kept // n_layers or None},
    )


def _is_communication(ran: Executions) -> bool:
    return is_exposed(ran.op) and collective_name_of(ran.op) is not None


def _is_kernel_to_keep(ran: Executions) -> bool:
    """Return whether an op is a kernel whose results JAX can keep; some kernels have no path in the
    trace."""
    return _NAMED in (ran.op.kernel or "") and f"/{REPEATED_PART}/" in (ran.op.path or "")


def _results_of(kernels: Iterable[Executions]) -> int:
    """Return the bytes of what kernels of attention return. Of statistics of rows, such as a
    maximum, which are repeated in the lanes of a register, JAX keeps one lane."""
    n_bytes = 0
    for ran in kernels:
        is_mixed = len({array.dtype for array in ran.op.outputs}) > 1
        for array in ran.op.outputs:
            is_repeated = is_mixed and array.dtype == "f32" and array.dims.endswith(f",{_LANES}")
            n_bytes += ran.n * (array.n_bytes or 0) // (_LANES if is_repeated else 1)
    return n_bytes


class _Saving:
    """Computes what it takes to keep arrays instead of computing them again."""

    def __init__(self, facts: StepFacts) -> None:
        self._bound_time = facts.arrays.bound_time
        self._moved = sum(array.moved_by_bound_ops for array in facts.arrays)
        self._free = free_memory(facts.step, facts.roofs.choice.chip, facts.context)
        self._ran = {ran.op.instruction: ran for ran in facts.step.leaves if ran.op.instruction}

    def gain(self, time_again: int, kept: int, n_layers: int) -> Gain | None:
        """Return the gain: the time of the ops, without the time to write and to read what is kept
        at the bandwidth that the step reaches. Return None if there is none."""
        if not self._moved or self.one_layer_of(kept) > n_layers:
            return None
        cost = self._cost_of(kept)
        estimate = round((time_again - cost) / n_layers)
        least = round((_LEAST * time_again - _DEAREST * cost) / n_layers)
        return Gain(estimate, max(0, least), estimate) if estimate > 0 else None

    def _cost_of(self, kept: int) -> float:
        return 2 * kept * self._bound_time / max(1, self._moved)

    def one_layer_of(self, kept: int) -> int:
        """Return of how many layers one can keep its arrays."""
        return ceil(kept / max(1, _USABLE * self._free)) if kept and self._free is not None else 1

    @property
    def free_says(self) -> str:
        return "" if self._free is None else f" ({size(self._free)} of HBM are free)"

    def kept_besides(self, n_bytes: int, time_again: int) -> int:
        """Return the bytes of what the backward pass reads of recomputed values, without `n_bytes`
        of them: these are the arrays that JAX keeps without a checkpoint. Stop adding when to keep
        them takes longer than `time_again`."""
        programs = {here.program for here in self._ran}
        starts = [
            Value(here)
            for program in programs
            for here in program.instructions()
            if here.opcode not in _PASSED and is_backward(here)
        ]
        kept = -n_bytes
        read = walk(starts, producers, lambda v: v.instruction.opcode in _PASSED or is_same(v))
        for value, is_passed in read:
            here = value.instruction
            is_kept = not is_passed and here.opcode not in _NOT_KEPT
            if is_kept and REPEATED_PART in (here.op_name or "") and value.array:
                kept += (value.array.n_bytes or 0) * self._n_of(here)
                if self._cost_of(kept) > time_again:
                    break
        return max(0, kept)

    def _n_of(self, here: Instruction) -> int:
        """Return how often an instruction ran, alone or inside a fusion."""
        around = (here, *callers(here.computation))
        return next((self._ran[each].n for each in around if each in self._ran), 0)
