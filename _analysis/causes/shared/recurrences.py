"""Tell how the rounds of a loop depend on each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from _analysis.arrays.graph import (
    Value,
    body_of,
    consumers,
    is_moved,
    operand,
    origins,
    parameter,
    walk,
)
from _analysis.arrays.of_step import is_float
from _proto.hlo.program import Computation, Instruction
from _proto.hlo.shapes import Path

# No round needs another one, or what a round carries is a sum of multiples of what the round before
# it carries, element by element, or anything else.
INDEPENDENT: Final = "independent"
LINEAR: Final = "linear"
OTHER: Final = "other"

_UPDATE = "dynamic-update-slice"
# The degree of a value in what the loop carries: 0 if it does not depend on it, 1 if it is linear.
_NONE, _FIRST, _HIGHER = range(3)
Degrees = Mapping[Path, int]
# Instructions whose output has the elements of their first operand, or sums of their operands.
_KEEPING = frozenset(
    "add bitcast broadcast convert copy copy-done copy-start negate opt-barrier reduce-precision"
    " reshape subtract transpose".split()
)


def recurrence_of(loop: Instruction) -> str:
    body = body_of(loop)
    state = parameter(body, 0) if body else None
    if body is None or state is None or body.root is None:
        return OTHER
    carried = set(_carried(state, body.root))
    given = {path: int(path in carried) for path, _ in state.leaves or ()}
    degrees = _degrees_of(body, [given])
    degree = max((_at(degrees, path) for path in carried), default=_NONE)
    return (INDEPENDENT, LINEAR, OTHER)[degree]


def _carried(state: Instruction, root: Instruction) -> Iterator[Path]:
    """Yield the parts of a loop's state that the next round computes with: no counters, inputs, or
    buffers into which each round writes its result."""
    for path, array in state.leaves or ():
        value = Value(state, path)
        is_input = value in origins(Value(root, path), is_moved)
        if array and is_float(array.dtype) and not is_input and not _is_output(value):
            yield path


def _is_output(value: Value) -> bool:
    """Return whether all rounds only write parts of an array."""
    passed = {value.instruction}
    stopped: set[Instruction] = set()
    for reached, is_passed in walk([value], consumers, is_moved):
        (passed if is_passed else stopped).add(reached.instruction)
    return bool(stopped) and all(
        here.opcode == _UPDATE
        and operand(here, 0) in passed
        and passed.isdisjoint(here.operands[1:])
        for here in stopped
    )


def _degrees_of(computation: Computation, given: Sequence[Degrees]) -> Degrees:
    """Return the degrees of the output's parts if the parameters have the given degrees."""
    known: dict[Instruction, Degrees] = {}
    for here in computation.instructions:
        of_operands = [known.get(source, {}) for source in here.operands]
        known[here] = _degrees(here, of_operands, given)
    return known.get(computation.root, {}) if computation.root else {}


def _degrees(here: Instruction, operands: Sequence[Degrees], given: Sequence[Degrees]) -> Degrees:
    opcode = here.opcode
    if opcode == "parameter":
        return given[here.message.parameter_number]
    if opcode == "tuple":
        return {(i, *path): n for i, of in enumerate(operands) for path, n in of.items()}
    if opcode == "get-tuple-element":
        index = here.message.tuple_index
        return {path[1:]: n for path, n in operands[0].items() if path[:1] in ((), (index,))}
    if opcode in ("fusion", "call") and here.called:
        return _degrees_of(here.called[0], operands)
    degrees = [max(of.values(), default=_NONE) for of in operands]
    highest = max(degrees, default=_NONE)
    if opcode == "select":
        highest = _HIGHER if degrees[0] else highest
    elif opcode == "multiply":
        highest = min(sum(degrees), _HIGHER)
    elif opcode == "divide":
        highest = _HIGHER if degrees[1] else highest
    elif opcode not in _KEEPING and highest:
        highest = _HIGHER
    return {(): highest}


def _at(degrees: Degrees, path: Path) -> int:
    return degrees.get(path, max(degrees.values(), default=_NONE))
