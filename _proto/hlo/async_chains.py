"""Find the parts of asynchronous ops: starts, updates and dones."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import cache

from _proto.hlo.text import ASYNC_COLLECTIVE, ASYNC_COLLECTIVE_ENDS, named_after

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol, TypeVar

    class ChainPart(Protocol):
        """An instruction, as far as this file needs it."""

        stage: tuple[str, str] | None

        @property
        def operands(self) -> Sequence[Any]: ...

    P = TypeVar("P", bound=ChainPart)

# Names of the parts.
START, UPDATE, DONE = "start", "update", "done"


def stage_of_fusion(name: str) -> tuple[str, str] | None:
    end = named_after(name, ASYNC_COLLECTIVE_ENDS)
    return (ASYNC_COLLECTIVE, end.rpartition("-")[2]) if end else None


@cache
def stage_of(opcode: str) -> tuple[str, str] | None:
    if opcode in ("send", "recv"):
        return opcode, START
    kind, _, part = opcode.rpartition("-")
    return (kind, part) if kind and part in (START, UPDATE, DONE) else None


def chains_among(instructions: Iterable[P]) -> dict[P, tuple[P, ...]]:
    """Map each part of an asynchronous op to the tuple of all parts: start, updates, done."""
    chains: dict[P, tuple[P, ...]] = {}
    for done in instructions:
        if done.stage is None or done.stage[1] != DONE:
            continue
        start_and_between = _path_from_start(done)
        update = done.stage[0], UPDATE
        updates = [part for part in start_and_between[1:] if part.stage == update]
        chain = (*start_and_between[:1], *updates, done)
        for part in chain:
            # If two dones have the same start, the start belongs to the first done.
            chains.setdefault(part, chain)
    return chains


def _path_from_start(done: P) -> list[P]:
    """Search backwards from `done`, through operands, for the nearest start of the same kind.

    Return the path from this start to the last instruction before `done`, or an empty list if there
    is no start.
    """
    kind = done.stage[0] if done.stage else ""
    came_from = {done: done}
    queue = deque([done])
    while queue:
        here = queue.popleft()
        for operand in here.operands:
            if operand in came_from:
                continue
            came_from[operand] = here
            if operand.stage == (kind, START):
                path = [operand]
                while came_from[path[-1]] is not done:
                    path.append(came_from[path[-1]])
                return path
            queue.append(operand)
    return []
