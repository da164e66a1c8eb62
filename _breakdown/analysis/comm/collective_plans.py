"""Find a program's collectives, how each one runs (for example `sync` or `async`), and how the
compiler planned it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from _breakdown.analysis.comm.transfers import Transfer, transfers_in
from _breakdown.light import NamedTuple
from _breakdown.pipeline.groups import grouped
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.vocabulary import SOME_COLLECTIVE, SPARSE_CORE
from _proto.hlo.async_chains import DONE, stage_of
from _proto.hlo.collectives import COLLECTIVES, collective_name, collective_of, plan_of
from _proto.hlo.program import Instruction, Program

SYNC: Final = "sync"
ASYNC: Final = "async"
ASYNC_FUSION: Final = "async_fusion"
How = Literal["sync", "async", "async_fusion", "sparse_core"]
# Prefixes of the names of computations that fusions call. An all-reduce fused with a dynamic-slice
# is a reduce-scatter. A carrier fuses math with a piece of a collective; the collective is
# attributed to the fusion that completes it.
REDUCE_SCATTER, CARRIER = "all-reduce-scatter", "async_collective_fusion"


class Planned(NamedTuple):
    """A collective, identified by the instruction that runs it or waits for it."""

    instruction: Instruction
    collective: str
    how: How
    plan: list[str]
    # Executions of the collective in the step; empty if it did not run.
    transfers: list[Transfer]

    @property
    def sync(self) -> int:
        return sum(transfer.total - transfer.wait for transfer in self.transfers)

    @property
    def wait(self) -> int:
        return sum(transfer.wait for transfer in self.transfers)

    @property
    def exposed(self) -> int:
        return self.sync + self.wait


def planned_collectives(program: Program, step: Step, program_id: int) -> list[Planned]:
    """Return all collectives of a program, each with its transfers in the step."""
    transfers = transfers_in(step, lambda op: op.program_id == program_id)
    ran = grouped((transfer.op.instruction, transfer) for transfer in transfers)
    planned = []
    for instruction, opcode, how in collectives_in(program):
        found = ran.get(instruction, [])
        # A transfer remembers its plan.
        plan = found[0].plan if found else plan_of(instruction)
        planned.append(Planned(instruction, opcode, how, sorted(plan), found))
    return planned


def collectives_in(program: Program) -> Iterator[tuple[Instruction, str, How]]:
    """Yield each instruction that runs a collective or waits for one, with the collective's opcode
    and how it runs."""
    # Skip collectives inside a fusion or an asynchronous op: the enclosing op is reported instead.
    enclosed = {
        inner.computation
        for instruction in program.instructions()
        if instruction.opcode == "fusion" or stage_of(instruction.opcode)
        for inner in instruction.inside()
    }
    for computation in program.computations:
        for instruction in () if computation in enclosed else computation.instructions:
            moved = how_moved(instruction)
            if moved:
                yield instruction, *moved


def how_moved(instruction: Instruction) -> tuple[str, How] | None:
    """Return the opcode of the collective that an instruction runs or waits for, and how the
    collective runs. Return None for other instructions."""
    stage = instruction.stage
    if instruction.opcode == "fusion" and stage is None:
        return fused_in(instruction)
    if instruction.opcode in COLLECTIVES:
        return instruction.opcode, SYNC
    if stage is None or stage[1] != DONE:
        return None
    is_fusion = instruction.opcode == "fusion"
    name = collective_name(instruction.opcode)
    if name is None:
        inside = collective_of(instruction)
        name = inside.opcode if inside else SOME_COLLECTIVE if is_fusion else None
    if name is None:
        # Exclude asynchronous copies, and SparseCore ops that are not collectives.
        return None
    if is_fusion:
        return name, ASYNC_FUSION
    return name, SPARSE_CORE if instruction.on_sparse_core else ASYNC


def fused_in(fusion: Instruction) -> tuple[str, How] | None:
    """Return the opcode of the collective in a synchronous fusion, and how it runs; None if the
    fusion has no collective, or only a piece of one."""
    called = fusion.called
    if any(computation.name.startswith(REDUCE_SCATTER) for computation in called):
        return "reduce-scatter", SYNC
    if any(computation.name.startswith(CARRIER) for computation in called):
        return None
    inside = collective_of(fusion)
    return (inside.opcode, SYNC) if inside else None
