"""Look up the executions of a program's instructions in a step: their time, order, loops and source
lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from _breakdown.analysis.arrays.equal_copies import EqualCopies
from _breakdown.analysis.arrays.graph import WHILE, body_of, callers
from _breakdown.analysis.arrays.links import Links
from _breakdown.analysis.arrays.of_step import StepArrays
from _breakdown.analysis.causes import SMALLEST_PART
from _breakdown.analysis.causes.shared.cause import Cause, CausePlace, StepFacts
from _breakdown.analysis.causes.shared.sentences import listed
from _breakdown.analysis.causes.shared.softmaxes import softmaxed_in
from _breakdown.analysis.roof.exposed import is_exposed, only_starts
from _breakdown.analysis.roof.ledger import LedgerEntry
from _breakdown.analysis.source.likely_lines import line_of
from _breakdown.light import NamedTuple, cached_property
from _breakdown.pipeline import frames
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import Group, grouped, most, ranked_by, summed
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.scopes import merged_layers
from _breakdown.pipeline.vocabulary import COLLECTIVES, COMM
from _breakdown.units import counted
from _proto.hlo.parameters import n_partitions
from _proto.hlo.program import Computation, Instruction, Program

# Most rules skip ops that take less than 1 / `_SHORT` of the smallest gain, because reading their
# shapes takes time.
_SHORT = 50
# Maximum number of kinds of collectives that a sentence names.
_N_NAMED = 2


def own_line_of(instruction: Instruction, is_own: Callable[[str], bool]) -> str | None:
    """Return the innermost line of an instruction that is in the user's files."""
    if instruction.frame:
        return instruction.line_where(is_own)
    return frames.innermost_own([instruction.line], is_own) if instruction.line else None


def place_of(op: Op) -> CausePlace:
    likely = line_of(op)
    return CausePlace(likely.line_user, likely.line, op.scope.name if op.scope else None)


def place_of_longest(members: Sequence[Executions]) -> CausePlace:
    """Return the place of the line with the most time; lines in the user's own files are
    preferred. If numbered layers run this line, the scope is that of all of them: `block_*/mlp`."""
    times = summed((place_of(ran.op), ran.total) for ran in members)
    with_user = [place for place in times if place.source_user] or list(times)
    best = most((place.source_user, times[place]) for place in with_user)
    layers = grouped(
        (merged_layers(place.scope or ""), place)
        for place in with_user
        if place.source_user == best
    )
    alike = layers[most((name, times[place]) for name in layers for place in layers[name])]
    longest = max(alike, key=times.__getitem__)
    is_one = all(place.scope == longest.scope for place in alike)
    return longest if is_one else longest._replace(scope=merged_layers(longest.scope or ""))


def place_of_cause(cause: Cause) -> CausePlace:
    return cause.place or (place_of_longest(cause.executions) if cause.executions else CausePlace())


def counts_of(members: Iterable[Executions]) -> str:
    """Count collectives by name, the longest first: `24 all-to-alls and 2 all-reduces`."""
    ranked = ranked_by(members, lambda op: collective_name_of(op) or "collective")
    named = [counted(group.n, name) for name, group in ranked[:_N_NAMED]]
    n_others = sum(group.n for _, group in ranked[_N_NAMED:])
    return listed([*named, *([counted(n_others, "other collective")] if n_others else [])])


class Devices(NamedTuple):
    """The devices among which a collective runs; None if unknown, and a size of 0."""

    label: str | None
    size: int


def devices_of(ran: Executions) -> Devices:
    who = ran.op.inside.who if ran.op.inside else None
    return Devices(who.label if who else None, (who.size if who else None) or 0)


class StepProgram:
    """The program of a step, with the executions of the instructions that ran."""

    def __init__(self, facts: StepFacts, program: Program, ledger: Sequence[LedgerEntry]) -> None:
        self.step, self.roofs, self.explained_by = facts.step, facts.roofs, facts.explained_by
        self.program, self.ledger = program, ledger
        self._facts = facts
        # Causes that gain less than this time are not reported.
        self.floor = facts.step.duration // SMALLEST_PART
        # What other modules derive from the program, by the class that derives it.
        self.derived: dict[object, Any] = {}

    @property
    def arrays(self) -> StepArrays:
        return self._facts.arrays

    def with_opcodes(self, *opcodes: str) -> list[Instruction]:
        """Return the instructions with these opcodes, also those inside fusions, by opcode."""
        return [
            here
            for opcode in sorted(opcodes)
            for part in self._parts_with.get(opcode, ())
            for here in part.instructions
            if here.opcode == opcode
        ]

    @cached_property
    def _parts_with(self) -> dict[str, list[Computation]]:
        return grouped(
            (opcode, part) for part in self.program.computations for opcode in part.opcodes
        )

    def run_with(self, opcode: str) -> list[Instruction]:
        """Return the instructions with an opcode that run as ops."""
        return [here for here in self.ran_of if here.opcode == opcode]

    @cached_property
    def softmaxed(self) -> set[Instruction]:
        """Return what leads to softmaxes."""
        return softmaxed_in(self.with_opcodes("exponential"), self.with_opcodes("custom-call"))

    @cached_property
    def leaves(self) -> list[Executions]:
        return [entry.ran for entry in self.ledger]

    @cached_property
    def long_ops(self) -> list[Executions]:
        """Return the ops that are long enough to look at their shapes."""
        return [
            ran
            for ran in self.leaves
            if ran.op.instruction and ran.total * _SHORT >= max(1, self.floor)
        ]

    @cached_property
    def trains(self) -> bool:
        """Return whether the program has a backward pass."""
        return any(ran.op.phase == "backward" for ran in self.leaves)

    @cached_property
    def ran_of(self) -> dict[Instruction, Executions]:
        """Map instructions to their executions, excluding containers."""
        return {ran.op.instruction: ran for ran in self.leaves if ran.op.instruction}

    @cached_property
    def order(self) -> dict[Instruction, int]:
        """Map instructions that ran to their positions in the order of the trace.

        Programs list instructions in a different order. The position of a loop is the
        position of the first op inside it.
        """
        order = {here: place for place, here in enumerate(self.ran_of)}
        first = {here.computation: place for here, place in reversed(order.items())}
        for computation, place in sorted(first.items(), key=itemgetter(1)):
            for caller in callers(computation):
                order.setdefault(caller, place)
        return order

    @cached_property
    def all_ran_of(self) -> dict[Instruction, Executions]:
        """Map instructions to their executions, including containers, such as a `while`."""
        containers = {
            ran.op.instruction: ran
            for ran in self.step.containers
            if ran.op.program is self.program and ran.op.instruction
        }
        return {**containers, **self.ran_of}

    def n_of(self, instruction: Instruction) -> int:
        """Return the number of executions of an instruction or a loop."""
        ran = self.all_ran_of.get(instruction)
        return ran.n if ran else 0

    def trips(self, loop: Instruction) -> int | None:
        """Return the number of iterations in one execution of a loop, computed from the first
        instruction of its body that ran."""
        body, n_loop = body_of(loop), self.n_of(loop)
        counts = map(self.n_of, body.instructions) if body and n_loop else ()
        return next((n // n_loop for n in counts if n), None)

    def executed(self, instruction: Instruction) -> Executions | None:
        """Return the executions of an instruction, or of the fusion or asynchronous op that
        contains it."""
        for here in (instruction, *callers(instruction.computation)):
            if here.opcode == WHILE:
                return None
            for part in reversed(here.chain):
                if part in self.ran_of:
                    return self.ran_of[part]
        return None

    def place_at(self, instruction: Instruction) -> CausePlace:
        """Return the place of an instruction; the instruction can be inside a fusion."""
        owner = self.executed(instruction)
        scope = owner.op.scope.name if owner and owner.op.scope else None
        return CausePlace(own_line_of(instruction, self.is_own), instruction.line, scope)

    @cached_property
    def collectives(self) -> list[Executions]:
        """Return the executions of all collectives that the core runs or waits for."""
        return [
            ran
            for ran in self.leaves
            if is_exposed(ran.op)
            and not only_starts(ran.op)
            and collective_name_of(ran.op) is not None
        ]

    @cached_property
    def long_collectives(self) -> list[Executions]:
        """Return the collectives that take at least 1 / 20 of the smallest gain that is
        reported."""
        return [ran for ran in self.collectives if ran.total * 20 >= self.floor]

    @cached_property
    def equal_copies(self) -> EqualCopies:
        """Return the values that are equal on several devices."""
        return EqualCopies(self.program, n_partitions(self.program))

    @cached_property
    def links(self) -> Links:
        return Links(self.collectives, self.order, self.all_ran_of)

    @property
    def is_own(self) -> Callable[[str], bool]:
        """Return the predicate that recognises own code."""
        return self.leaves[0].op.is_own


def collective_name_of(op: Op) -> str | None:
    """Return the name of the collective that the op runs or waits for; None for other ops, such as
    copies."""
    if op.waits_for in COLLECTIVES:
        return op.waits_for
    return op.inside.opcode if op.kind == COMM and op.inside else None


def total_of(members: Sequence[Executions]) -> int:
    return Group(list(members)).total
