"""The collectives of a program: how each is moved, and by which plan, whether it ran or not."""

from __future__ import annotations

from _analysis.transfers import transfers_in
from _pipeline.groups import sum_if_known
from _pipeline.vocabulary import SOME_COLLECTIVE, SPARSE_CORE
from _proto.hlo.collectives import COLLECTIVES, collective_name, collective_of, plan_of
from _proto.hlo.program import DONE
from _proto.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from _analysis.transfers import Transfer
    from _pipeline.normalize import Step
    from _proto.hlo.program import Computation, Instruction, Program

    Json = dict[str, Any]

SYNC, ASYNC, ASYNC_FUSION = "sync", "async", "async_fusion"
# Called by fusions: all-reduce and dynamic-slice, which is a reduce-scatter; and math that carries
# pieces of a collective, which counts at the fusion that ends it.
REDUCE_SCATTER, CARRIER = "all-reduce-scatter", "async_collective_fusion"


@record
class Planned:
    """A collective, told by the instruction that runs it, or waits until it is done."""

    instruction: Instruction
    collective: str
    how: str
    plan: list[str]
    transfers: list[Transfer]

    @property
    def sync(self) -> int:
        return sum(each.executions.total for each in self.transfers if not each.op.is_wait)

    @property
    def wait(self) -> int:
        return sum(each.executions.total for each in self.transfers if each.op.is_wait)

    @property
    def exposed(self) -> int:
        return self.sync + self.wait


def planned_collectives(program: Program, step: Step, program_id: int) -> list[Planned]:
    """All collectives of a program, with what of them ran in a step."""
    ran: dict[Instruction, list[Transfer]] = {}
    for transfer in transfers_in(step, lambda op: op.program_id == program_id):
        if transfer.op.instruction:
            ran.setdefault(transfer.op.instruction, []).append(transfer)
    holding = reached(
        {each.computation for each in program.instructions() if collective_name(each.opcode)},
        callers_in(program),
    )
    # What lies in fusions or runs asynchronously counts where it is run, or waited for.
    enclosed = reached(
        {called for each in program.instructions() if encloses(each) for called in each.called},
        lambda computation: [c for each in computation.instructions for c in each.called],
    )
    found = []
    for computation in program.computations:
        for each in computation.instructions if computation not in enclosed else ():
            told = moved_by(each, holding)
            if told:
                found.append(Planned(each, *told, sorted(plan_of(each)), ran.get(each, [])))
    return found


def encloses(instruction: Instruction) -> bool:
    return instruction.opcode == "fusion" or instruction.is_asynchronous


def callers_in(program: Program) -> Callable[[Computation], Iterable[Computation]]:
    callers: dict[Computation, list[Computation]] = {}
    for each in program.instructions():
        for called in each.called:
            callers.setdefault(called, []).append(each.computation)
    return lambda computation: callers.get(computation, ())


def reached(
    begin: Iterable[Computation], onward: Callable[[Computation], Iterable[Computation]]
) -> set[Computation]:
    """Where one gets from these computations, and these."""
    found = set(begin)
    todo = list(found)
    while todo:
        new = set(onward(todo.pop())) - found
        found |= new
        todo += new
    return found


def moved_by(instruction: Instruction, holding: set[Computation]) -> tuple[str, str] | None:
    """Which collective an instruction runs or waits for, and how that is moved."""
    stage = instruction.stage
    if instruction.opcode == "fusion" and stage is None:
        return fused_in(instruction, holding)
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
        # A copy, or other work of a SparseCore.
        return None
    if is_fusion:
        return name, ASYNC_FUSION
    return name, SPARSE_CORE if instruction.on_sparse_core else ASYNC


def fused_in(fusion: Instruction, holding: set[Computation]) -> tuple[str, str] | None:
    """The same of a fusion that isn't an end of anything."""
    called = fusion.called
    if any(each.name.startswith(REDUCE_SCATTER) for each in called):
        return "reduce-scatter", SYNC
    if holding.isdisjoint(called) or any(each.name.startswith(CARRIER) for each in called):
        return None
    inside = collective_of(fusion)
    return (inside.opcode, SYNC) if inside else None


def collective_rows(planned: Sequence[Planned]) -> list[Json]:
    """By collective, how it is moved, and plan; most exposed first."""
    alike: dict[tuple[str, str, tuple[str, ...]], list[Planned]] = {}
    for each in planned:
        alike.setdefault((each.collective, each.how, tuple(each.plan)), []).append(each)
    ranked = sorted(alike, key=lambda key: (-sum(each.exposed for each in alike[key]), key))
    return [collective_row(alike[key]) for key in ranked]


def collective_row(alike: Sequence[Planned]) -> Json:
    first = alike[0]
    transfers = [transfer for each in alike for transfer in each.transfers]
    payload = sum_if_known((each.executions.n, each.exchange.payload) for each in transfers)
    return {
        "collective": first.collective,
        "how": first.how,
        "plan": first.plan or None,
        "n_instructions": len(alike),
        "n_executions": sum(each.executions.n for each in transfers),
        "sync_dur_ps": sum(each.sync for each in alike),
        "wait_dur_ps": sum(each.wait for each in alike),
        "payload_bytes": payload if transfers else None,
    }
