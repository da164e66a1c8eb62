"""Find the most likely source line of an instruction that has no line of its own, and the lines
inside a fusion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from _breakdown.light import NamedTuple
from _proto.hlo.collectives import first_collective
from _proto.hlo.program import Computation, Instruction
from _proto.hlo.text import ASYNC_COLLECTIVE

How = Literal["own", "inside", "producer", "consumer"]
_Links = Callable[[Instruction], Sequence[Instruction]]
_Direction = tuple[How, Sequence[Instruction], _Links]

# Opcodes that perform no computation; source lines of such instructions do not count as lines of a
# fusion.
_NOT_FUSED_WORK = frozenset(
    "parameter constant bitcast tuple get-tuple-element broadcast iota".split()
)
# Maximum number of hops to the instruction that has the line.
_MAX_HOPS = 8


class NearestLine(NamedTuple):
    """A source line, and the instruction that has it.

    `how` is own, inside, producer or consumer.
    """

    line: str
    how: How
    instruction: Instruction


def lines_inside(op: Instruction) -> Counter[str]:
    """Count the instructions inside a fusion, at any depth, by source line."""
    inside = op.inside() if op.opcode == "fusion" else ()
    working = (inner for inner in inside if inner.opcode not in _NOT_FUSED_WORK)
    return Counter(line for inner in working if (line := inner.line))


def nearest_line(op: Instruction, producer_first: bool) -> NearestLine | None:
    """Return the most likely source line of the data that an op moves or waits for.

    Search in this order: the op itself, its start, the collective or the roots inside an
    asynchronous op, and the nearest producer or consumer.
    """
    chain = op.chain
    for part in (op, chain[0]) if op is not chain[0] else chain[:1]:
        if line := _line_of(part):
            return NearestLine(line, "own", part)
    if not op.program.has_lines:
        return None
    for inner in _innermost(chain):
        if line := _line_of(inner):
            return NearestLine(line, "inside", inner)
    # A done's operands are parts of the same op, so search from the earlier parts for producers.
    producer: _Direction = "producer", chain[:-1] or chain, before
    consumer: _Direction = "consumer", chain[-1:], _after
    for how, ends, following in (producer, consumer) if producer_first else (consumer, producer):
        if found := _first_with_line(chain, ends, following):
            line, reached = found
            return NearestLine(line, how, reached)
    return None


def _line_of(instruction: Instruction) -> str | None:
    # Skip parameters: a parameter's line is where the user's function takes the argument, far from
    # where the argument is used.
    return None if instruction.opcode == "parameter" else instruction.line


def _innermost(chain: Sequence[Instruction]) -> Iterator[Instruction]:
    """Yield the first collective inside an asynchronous op, then the roots of the computations that
    the op calls."""
    # All parts are of one kind.
    stage = chain[0].stage
    if stage is None or stage[0] not in ("async", ASYNC_COLLECTIVE):
        return
    collective = first_collective(chain)
    if collective is not None:
        yield collective
    entered: set[Computation] = set()
    to_do = [computation for part in reversed(chain) for computation in reversed(part.called)]
    while to_do:
        computation = to_do.pop()
        if computation.root is not None and computation not in entered:
            entered.add(computation)
            yield computation.root
            to_do.extend(reversed(computation.root.called))


def before(instruction: Instruction) -> Sequence[Instruction]:
    """Return the instructions that produce an instruction's inputs."""
    if instruction.opcode == "parameter":
        caller = instruction.computation.caller
        return [caller] if caller else []
    return instruction.operands


def _after(instruction: Instruction) -> Sequence[Instruction]:
    """Return the instructions that use an instruction's output, in schedule order."""
    computation = instruction.computation
    if computation.root is instruction and computation.caller:
        return [*instruction.users, computation.caller]
    return instruction.users


def _first_with_line(
    chain: Sequence[Instruction],
    ends: Sequence[Instruction],
    following: Callable[[Instruction], Sequence[Instruction]],
) -> tuple[str, Instruction] | None:
    """Return the line of the nearest instruction with a line that can be reached through
    `following` from `ends`, and the instruction.

    Each computation is entered only once, so that a path out of a loop's body does not lead back
    into it.
    """
    seen = set(chain)
    entered = {chain[0].computation}
    level = ends
    for _ in range(_MAX_HOPS):
        next_level: list[Instruction] = []
        for here in level:
            for reached in following(here):
                if reached in seen:
                    continue
                if reached.computation is not here.computation:
                    if reached.computation in entered:
                        continue
                    entered.add(reached.computation)
                if line := _line_of(reached):
                    return line, reached
                seen.add(reached)
                next_level.append(reached)
        level = next_level
    return None
