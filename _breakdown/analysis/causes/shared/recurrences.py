"""Tell how the rounds of a loop depend on each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from _breakdown.analysis.arrays.graph import (
    Value,
    body_of,
    consumers,
    is_layout,
    is_moved,
    is_same,
    operand,
    origins,
    parameter,
    reach,
)
from _breakdown.analysis.arrays.of_step import is_float
from _proto.hlo.collectives import collective_name
from _proto.hlo.program import Computation, Instruction
from _proto.hlo.shapes import Array, Path

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


class Rounds:
    """Tell how the values in a loop's body depend on what the rounds carry."""

    def __init__(self, loop: Instruction) -> None:
        self._degrees: dict[Instruction, Degrees] = {}
        self._highest: int = _HIGHER
        body = body_of(loop)
        state = parameter(body, 0) if body else None
        if body is None or state is None or body.root is None:
            return
        carried = set(_carried(state, body.root))
        # A value that a round computes ahead for the next one is carried, but needs no other round.
        while True:
            self._degrees.clear()
            given = {path: int(path in carried) for path, _ in state.leaves or ()}
            degrees = _degrees_of(body, [given], self._degrees)
            ahead = {path for path in carried if not _at(degrees, path)}
            if not ahead:
                break
            carried -= ahead
        self._highest = max((_at(degrees, path) for path in carried), default=_NONE)

    @property
    def kind(self) -> str:
        return (INDEPENDENT, LINEAR, OTHER)[self._highest]

    def is_independent(self, here: Instruction) -> bool:
        """Return whether an instruction, possibly inside a fusion, needs no other round."""
        degrees = self._degrees.get(here)
        return degrees is not None and not any(degrees.values())


def _carried(state: Instruction, root: Instruction) -> Iterator[Path]:
    """Yield the parts of a loop's state that the next round computes with: no counters, keys of
    random numbers, inputs, sums, or buffers into which each round writes its result."""
    for path, array in state.leaves or ():
        value = Value(state, path)
        is_input = value in origins(Value(root, path), is_moved)
        if array and _is_data(array) and not is_input and not _is_result(value):
            yield path


def _is_data(array: Array) -> bool:
    """Return whether an array has floats, or a signed integer for each row, such as the tokens that
    a decoder has chosen."""
    return is_float(array.dtype) or (bool(array.dims) and array.dtype.startswith("s"))


def _is_result(value: Value) -> bool:
    """Return whether all rounds only write parts of an array, or only add to it."""
    walked = reach([value], consumers, is_same)
    before = {passed.instruction for passed in walked.passed}
    found = {stopped.instruction for stopped in walked.stopped}
    if {here.opcode for here in found} == {"add"} and len(found) == 1:
        sums = reach(map(Value, found), consumers, is_same).stopped
        return {later.instruction for later in sums} <= found
    is_only_written = all(
        here.opcode == _UPDATE
        and operand(here, 0) in before
        and before.isdisjoint(here.operands[1:])
        for here in found
    )
    if not found or not is_only_written:
        return False
    # What reads the updated buffer in the loop, such as attention, reads results of other rounds.
    loop = value.instruction.computation.caller
    updates = reach(
        map(Value, found),
        lambda update: [each for each in consumers(update) if each.instruction is not loop],
        is_same,
    )
    return {later.instruction for later in updates.stopped} <= found


def _degrees_of(
    computation: Computation, given: Sequence[Degrees], known: dict[Instruction, Degrees]
) -> Degrees:
    """Return the degrees of the output's parts if the parameters have the given degrees. Add those
    of all instructions to `known`."""
    for here in computation.instructions:
        of_operands = [known.get(source, {}) for source in here.operands]
        known[here] = _degrees(here, of_operands, given, known)
    return known.get(computation.root, {}) if computation.root else {}


def _degrees(
    here: Instruction,
    operands: Sequence[Degrees],
    given: Sequence[Degrees],
    known: dict[Instruction, Degrees],
) -> Degrees:
    opcode = here.opcode
    if opcode == "parameter":
        return dict(enumerate(given)).get(here.message.parameter_number, {})
    if opcode == "tuple":
        return {(i, *path): n for i, of in enumerate(operands) for path, n in of.items()}
    if opcode == "get-tuple-element":
        index = here.message.tuple_index
        of = operands[0] if operands else {}
        return {path[1:]: n for path, n in of.items() if path[:1] in ((), (index,))}
    if opcode in ("fusion", "call") and here.called and here not in known:
        # A damaged program can call itself.
        known[here] = {}
        return _degrees_of(here.called[0], operands, known)
    if collective_name(opcode) or (here.is_asynchronous and not is_layout(here)):
        # Devices cannot communicate for all rounds at once as they do for each.
        return {(): _HIGHER}
    degrees = [max(of.values(), default=_NONE) for of in operands]
    highest = max(degrees, default=_NONE)
    if opcode == "select":
        highest = _HIGHER if any(degrees[:1]) else highest
    elif opcode == "multiply":
        highest = min(sum(degrees), _HIGHER)
    elif opcode == "divide":
        highest = _HIGHER if any(degrees[1:]) else highest
    elif opcode not in _KEEPING and highest:
        highest = _HIGHER
    return {(): highest}


def _at(degrees: Degrees, path: Path) -> int:
    return degrees.get(path, max(degrees.values(), default=_NONE))
