"""The executions of one program's instructions in a step, and their exposed time."""

from __future__ import annotations

from typing import NamedTuple

from _analysis.causes.graph import WHILE, body_of, callers
from _analysis.exposed import is_exposed
from _analysis.likely_lines import line_of
from _pipeline import frames
from _pipeline.groups import Group
from _pipeline.intervals import Cover, union
from _pipeline.vocabulary import COLLECTIVES, COMM
from _proto.cached import cached_property

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from _analysis.ledger import Entry
    from _analysis.roofs import Roofs
    from _pipeline.executions import Executions
    from _pipeline.normalize import Step
    from _pipeline.ops import Op
    from _proto.hlo.program import Instruction, Program


class Place(NamedTuple):
    """Where in the user's code a cause is to be removed."""

    source_user: str | None
    source_inner: str | None
    scope: str | None


def own_line_of(instruction: Instruction, is_own: Callable[[str], bool]) -> str | None:
    """Return the innermost line of an instruction that is in the user's files."""
    if instruction.frame:
        return instruction.line_where(is_own)
    return frames.innermost_own([instruction.line], is_own) if instruction.line else None


def place_of(op: Op) -> Place:
    likely = line_of(op)
    return Place(likely.line_user, likely.line, op.scope.name if op.scope else None)


def place_of_longest(members: Sequence[Executions]) -> Place:
    """Return the place of the line that takes most of the time; of lines of its own, if any."""
    times: dict[Place, int] = {}
    for executions in members:
        place = place_of(executions.op)
        times[place] = times.get(place, 0) + executions.total
    with_user = [place for place in times if place.source_user] or list(times)
    by_line: dict[str | None, int] = {}
    for place in with_user:
        by_line[place.source_user] = by_line.get(place.source_user, 0) + times[place]
    best = max(by_line, key=by_line.__getitem__)
    return max((p for p in with_user if p.source_user == best), key=times.__getitem__)


class StepProgram:
    """The program of a step, with what ran of it."""

    def __init__(self, step: Step, program: Program, ledger: Sequence[Entry], roofs: Roofs) -> None:
        self.step, self.program, self.ledger, self.roofs = step, program, ledger, roofs
        # A cause that gains less than this time is not reported.
        self.floor = step.duration // 200

    @cached_property
    def leaves(self) -> list[Executions]:
        return [entry.executions for entry in self.ledger]

    @cached_property
    def ran(self) -> dict[Instruction, Executions]:
        """Map instructions to their executions; containers are left out."""
        return {
            executions.op.instruction: executions
            for executions in self.leaves
            if executions.op.instruction
        }

    @cached_property
    def entry_of(self) -> dict[Instruction, Entry]:
        return {
            entry.executions.op.instruction: entry
            for entry in self.ledger
            if entry.executions.op.instruction
        }

    @cached_property
    def order(self) -> dict[Instruction, int]:
        """Map instructions that ran to their places in the order of the trace.

        Programs list instructions in another order. A loop has the place of its first op.
        """
        order: dict[Instruction, int] = {}
        for place, instruction in enumerate(self.ran):
            order[instruction] = place
            for caller in callers(instruction.computation):
                order.setdefault(caller, place)
        return order

    @cached_property
    def _time_of_loop(self) -> dict[Instruction, int]:
        return {
            executions.op.instruction: executions.total
            for executions in self.step.containers
            if executions.op.program is self.program and executions.op.instruction
        }

    def time_of(self, instruction: Instruction) -> int:
        """Return the time of an instruction; of a loop with all that ran in it."""
        executed = self.ran.get(instruction)
        return executed.total if executed else self._time_of_loop.get(instruction, 0)

    @cached_property
    def n_of_loop(self) -> dict[Instruction, int]:
        """Map each `while` that ran to its executions."""
        return {
            executions.op.instruction: executions.n
            for executions in self.step.containers
            if executions.op.program is self.program and executions.op.instruction
        }

    def trips(self, loop: Instruction) -> int | None:
        """Return the rounds of one execution of a loop, by what ran directly in its body."""
        body = body_of(loop)
        n_loop = self.n_of_loop.get(loop)
        if body is None or not n_loop:
            return None
        for instruction in body.instructions:
            executed = self.ran.get(instruction)
            n = executed.n if executed else self.n_of_loop.get(instruction)
            if n:
                return n // n_loop
        return None

    def executed(self, instruction: Instruction) -> Executions | None:
        """Return what ran of an instruction, or of the fusion or asynchronous op around it."""
        for here in (instruction, *callers(instruction.computation)):
            if here.opcode == WHILE:
                return None
            for part in reversed(here.chain):
                if part in self.ran:
                    return self.ran[part]
        return None

    def place_at(self, instruction: Instruction) -> Place:
        """Return the place of an instruction, also of one in a fusion."""
        owner = self.executed(instruction)
        scope = owner.op.scope.name if owner and owner.op.scope else None
        return Place(own_line_of(instruction, self.is_own), instruction.line, scope)

    @cached_property
    def collectives(self) -> list[Executions]:
        """Return collectives that the core runs or waits for."""
        return [
            executions
            for executions in self.leaves
            if is_exposed(executions.op) and collective_name_of(executions.op) is not None
        ]

    def waiting_beside(self, members: Sequence[Executions]) -> int:
        """Return how long other collectives wait while asynchronous members are in flight.

        They share the links.
        """
        if not any(executions.op.is_wait for executions in members):
            return 0
        # Pairing starts with ends takes time, and most steps have no need of it.
        from _analysis.transfers import transfers_of

        ids = {executions.metadata_id for executions in members}
        mine: list[tuple[int, int]] = []
        others = []
        for transfer in transfers_of(self.step):
            if transfer.executions.metadata_id in ids:
                mine += zip(transfer.flights.starts, transfer.flights.ends, strict=True)
            elif transfer.collective in COLLECTIVES:
                others.append(transfer.flights)
        in_flight = Cover.of(union(mine))
        return sum(in_flight.within_all(flights.waits, flights.ends) for flights in others)

    @property
    def is_own(self) -> Callable[[str], bool]:
        """Return what tells the user's files from libraries."""
        return self.leaves[0].op.is_own


def collective_name_of(op: Op) -> str | None:
    """Return the collective that the core runs or waits for; None for copies and the host."""
    if op.waits_for in COLLECTIVES:
        return op.waits_for
    return op.inside.opcode if op.inside and op.kind == COMM else None


def total_of(members: Sequence[Executions]) -> int:
    return Group(list(members)).total
