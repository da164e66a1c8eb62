"""Searches along the operands, users and calls of a program's instructions.

None recurses, so no depth of a program exhausts the stack, and all of a program's searches
together are bounded: `Program.spend` raises Tangled where they would take too long.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from _proto.hlo.text import ASYNC_COLLECTIVE, ASYNC_COLLECTIVE_ENDS, named_after

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from _proto.hlo.module import Computation, Instruction

    How = Literal["own", "inside", "producer", "consumer"]
    _Direction = tuple[How, Sequence[Instruction], Callable[[Instruction], Sequence[Instruction]]]

# The parts of an asynchronous op.
START, UPDATE, DONE = "start", "update", "done"
# How far a line's instruction may be from the op that it is given to.
_MAX_HOPS = 8

COLLECTIVES = frozenset(
    "all-gather all-reduce all-to-all collective-broadcast collective-permute "
    "ragged-all-to-all reduce-scatter".split()
)
# Bookkeeping, and what is laid out rather than computed: no line takes part in an op by these.
_NOT_FUSED_WORK = frozenset(
    "parameter constant bitcast tuple get-tuple-element broadcast iota".split()
)


class Tangled(Exception):
    """Searching the program takes more steps than it can be worth."""


class LikelyLine(NamedTuple):
    """A line `file:line` that an op is likely due to, how it was found, and how far away.

    `how` is own, inside, producer or consumer; `instruction` is whose line it is.
    """

    line: str
    how: How
    hops: int
    instruction: Instruction


def has_loop(
    operands_of: Mapping[Instruction, Sequence[Instruction]],
    users_of: Mapping[Instruction, Sequence[Instruction]],
) -> bool:
    """Whether operands lead back to where they came from."""
    waiting = {each: len(set(operands)) for each, operands in operands_of.items()}
    ready = [each for each, n in waiting.items() if not n]
    n_done = 0
    while ready:
        n_done += 1
        for user in users_of.get(ready.pop(), ()):
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return n_done < len(waiting)


def stage_of(instruction: Instruction) -> tuple[str, str] | None:
    """The kind of asynchronous op that it is a part of, and which part; None for all else."""
    opcode = instruction.opcode
    if opcode in ("send", "recv"):
        return opcode, START
    if opcode == "fusion":
        end = named_after(instruction.name, ASYNC_COLLECTIVE_ENDS)
        return (ASYNC_COLLECTIVE, end.rpartition("-")[2]) if end else None
    kind, _, stage = opcode.rpartition("-")
    return (kind, stage) if kind and stage in (START, UPDATE, DONE) else None


def chains_of(computation: Computation) -> dict[Instruction, tuple[Instruction, ...]]:
    """The asynchronous ops of a computation, by each of their parts: start, updates, done."""
    chains: dict[Instruction, tuple[Instruction, ...]] = {}
    for instruction in computation.instructions:
        part = stage_of(instruction)
        if part is not None and part[1] == DONE:
            kind, _ = part
            between = _path_to_start(instruction, kind)
            updates = [each for each in between[1:] if stage_of(each) == (kind, UPDATE)]
            chain = (*between[:1], *updates, instruction)
            for each in chain:
                # Of two dones of one start, the start is with the first.
                chains.setdefault(each, chain)
    return chains


def _path_to_start(done: Instruction, kind: str) -> list[Instruction]:
    """The way from the nearest start of that kind down to, and without, its done; or nothing."""
    came_from = {done: done}
    queue = deque([done])
    while queue:
        here = queue.popleft()
        for operand in here.operands:
            here.program.spend()
            if operand in came_from:
                continue
            came_from[operand] = here
            if stage_of(operand) == (kind, START):
                path = [operand]
                while came_from[path[-1]] is not done:
                    path.append(came_from[path[-1]])
                return path
            queue.append(operand)
    return []


def inside(instruction: Instruction) -> Iterator[Instruction]:
    """The instructions that it calls and these call: depth first, each computation once."""
    entered: set[Computation] = set()

    def enter(called: Iterable[Computation]) -> Iterator[Instruction]:
        for computation in called:
            if computation not in entered:
                entered.add(computation)
                yield from computation.instructions

    around = [enter(instruction.called)]
    while around:
        for each in around[-1]:
            each.program.spend()
            yield each
            if called := each.called:
                around.append(enter(called))
                break
        else:
            around.pop()


def first_collective(chain: Sequence[Instruction]) -> Instruction | None:
    """The first collective that an op is or has inside, all parts of the op looked through."""
    for part in chain:
        if collective_name(part.opcode):
            return part
        for each in inside(part):
            if collective_name(each.opcode):
                return each
    return None


def collective_name(opcode: str) -> str | None:
    """The collective that an opcode is, or is a part of: `all-gather-start` is `all-gather`."""
    name, _, stage = opcode.rpartition("-")
    name = name if stage in (START, UPDATE, DONE) else opcode
    return name if name in COLLECTIVES else None


def lines_inside(fusion: Instruction) -> Counter[tuple[str, str]]:
    """How many instructions of a fusion, at any depth, have which line and opcode."""
    return Counter(
        (line, each.opcode)
        for each in inside(fusion)
        if each.opcode not in _NOT_FUSED_WORK and (line := each.line)
    )


def likely_line(
    op: Instruction, producer_first: bool, sources: Mapping[str, str]
) -> LikelyLine | None:
    """The line whose data an op most likely moves or waits for.

    That is its own, or its start's; else, if it is asynchronous, that of the collective inside
    it, or of the root; else that of the nearest producer or consumer. `sources` has lines by name
    of instruction, for those of which the program has none.
    """

    def line_of(instruction: Instruction) -> str | None:
        # A parameter's line is that of an argument, far from what is done with it.
        if instruction.opcode == "parameter":
            return None
        return instruction.line or sources.get(instruction.name)

    chain = op.chain
    for each in (op, chain[0]):
        if line := line_of(each):
            return LikelyLine(line, "own", 0, each)
    for each in _inmost(chain):
        if line := line_of(each):
            return LikelyLine(line, "inside", 0, each)
    if not sources and not op.program.has_lines:
        return None
    # What a done takes is what the others have handed on.
    producer: _Direction = "producer", chain[:-1] or chain, _before
    consumer: _Direction = "consumer", chain[-1:], _after
    for how, ends, onward in (producer, consumer) if producer_first else (consumer, producer):
        for hops, each in _nearest_first(chain, ends, onward):
            if line := line_of(each):
                return LikelyLine(line, how, hops, each)
    return None


def _inmost(chain: Sequence[Instruction]) -> Iterator[Instruction]:
    """Whose line an asynchronous op may have inside: its first collective's, else its root's."""
    parts = [part for part in chain if (stage_of(part) or ("",))[0] in ("async", ASYNC_COLLECTIVE)]
    collective = first_collective(parts)
    if collective is not None:
        yield collective
    entered: set[Computation] = set()
    todo = [computation for part in reversed(parts) for computation in reversed(part.called)]
    while todo:
        computation = todo.pop()
        if computation.root is not None and computation not in entered:
            entered.add(computation)
            computation.root.program.spend()
            yield computation.root
            todo.extend(reversed(computation.root.called))


def _before(instruction: Instruction) -> Sequence[Instruction]:
    """What an instruction takes its data from."""
    if instruction.opcode == "parameter":
        caller = instruction.computation.caller
        return [caller] if caller else []
    return instruction.operands


def _after(instruction: Instruction) -> Sequence[Instruction]:
    """What takes an instruction's data, in the order of the computation."""
    computation = instruction.computation
    if computation.root is instruction and computation.caller:
        return [*instruction.users, computation.caller]
    return instruction.users


def _nearest_first(
    chain: Sequence[Instruction],
    ends: Sequence[Instruction],
    onward: Callable[[Instruction], Sequence[Instruction]],
) -> Iterator[tuple[int, Instruction]]:
    """What lies onward from these ends of an op, breadth first, and how many hops away."""
    seen = set(chain)
    entered = {chain[0].computation}
    level = ends
    for hops in range(1, _MAX_HOPS + 1):
        following: list[Instruction] = []
        for here in level:
            for each in onward(here):
                each.program.spend()
                if each in seen:
                    continue
                if each.computation is not here.computation:
                    if each.computation in entered:
                        continue
                    entered.add(each.computation)
                seen.add(each)
                yield hops, each
                following.append(each)
        level = following
