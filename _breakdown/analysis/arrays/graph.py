"""Follow values through a program, across fusions, tuples, loops and asynchronous ops.

A value is the output of an instruction, or an element of an output that is a tuple. `producers`
returns the values from which a value is computed, and `consumers` returns the values that are
computed from it. Outputs of instructions that only pass values on (tuples, fusions, parameters,
loops) are also values. Therefore a walk need not know how the compiler has divided the program into
computations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from _breakdown.light import NamedTuple
from _proto.hlo.program import Computation, Instruction
from _proto.hlo.shapes import Array, Path

WHILE = "while"
_CALLS = ("fusion", "call")
_ELEMENT, _TUPLE, _PARAMETER, _BARRIER = "get-tuple-element", "tuple", "parameter", "opt-barrier"

# Instructions that pass values on unchanged.
STRUCTURE = frozenset((*_CALLS, _ELEMENT, _TUPLE, _PARAMETER, _BARRIER, WHILE))
# Instructions that move values, or slices of them, without changing their elements.
LAYOUT = frozenset(
    "bitcast copy copy-start copy-done reshape transpose slice-start slice-done".split()
)
ELEMENTWISE = frozenset(
    "abs add and atan2 cbrt ceil clamp compare convert cosine divide erf exponential "
    "exponential-minus-one floor is-finite log log-plus-one logistic maximum minimum multiply "
    "negate not or power reduce-precision remainder round-nearest-afz round-nearest-even rsqrt "
    "select shift-left shift-right-arithmetic shift-right-logical sign sine sqrt "
    "stochastic-convert subtract tan tanh xor".split()
)
DOTS = frozenset(("dot", "convolution"))
_CONCAT_BITCAST = b"ConcatBitcast"
# Substring of the names of layout changes that run on a SparseCore.
_FORMATTING = "data-format"


# Tuples are nested less deeply than this. In a damaged program, a tuple can contain itself, so that
# paths would have no end.
DEEPEST = 16


class Value(NamedTuple):
    """The output of an instruction, or the element at `path` if the output is a tuple."""

    instruction: Instruction
    path: Path = ()

    @property
    def array(self) -> Array | None:
        """Return the shape of the value; None for tuples and unreadable shapes."""
        here, wanted = self
        for path, array in here.leaves or ():
            if path == wanted:
                return array
        return None


class Reached(NamedTuple):
    """The values that a walk reached: it continued from those in `passed`, and stopped at those in
    `stopped`."""

    passed: set[Value]
    stopped: set[Value]


def is_layout(instruction: Instruction) -> bool:
    """Return True if an instruction moves or splits a value without changing its elements."""
    if instruction.opcode == "custom-call":
        return instruction.message.custom_call_target == _CONCAT_BITCAST
    if instruction.opcode.startswith("async-"):
        return _FORMATTING in instruction.name or _wraps_slice(instruction)
    return instruction.opcode in LAYOUT


def is_moved(value: Value) -> bool:
    return is_layout(value.instruction)


def is_same(value: Value) -> bool:
    """Return True if a value has the same elements as an operand, possibly in another dtype."""
    return value.instruction.opcode == "convert" or is_moved(value)


def is_elementwise(value: Value) -> bool:
    """Return True if each element of a value is computed from one element of each operand."""
    return is_same(value) or value.instruction.opcode in ELEMENTWISE


def is_backward(instruction: Instruction) -> bool:
    """Return True if an instruction belongs to the backward pass and is not a recomputation."""
    name = instruction.op_name or ""
    return "transpose(" in name and "rematted_computation" not in name


def is_dot_general(instruction: Instruction) -> bool:
    """Return True if an instruction belongs to a matmul of JAX, which the compiler can also run as
    multiplications and a sum."""
    return (instruction.op_name or "").rpartition("/")[2].startswith("dot_general")


def _wraps_slice(instruction: Instruction) -> bool:
    """Return True if an asynchronous op only copies an array or a slice of it."""
    inside = [inner.opcode for part in instruction.chain for inner in part.inside()]
    return bool(inside) and set(inside) <= {"parameter", "slice", "copy", "bitcast"}


def operand(instruction: Instruction, index: int) -> Instruction | None:
    ids = instruction.message.operand_ids
    return instruction.computation.instruction(ids[index]) if 0 <= index < len(ids) else None


def parameter(computation: Computation, number: int) -> Instruction | None:
    return computation.parameters.get(number)


def body_of(loop: Instruction) -> Computation | None:
    """Return the body of a `while`, which is the first computation that it calls; the second is the
    condition."""
    return loop.called[0] if loop.opcode == WHILE and loop.called else None


def callers(computation: Computation) -> Iterator[Instruction]:
    """Yield the instructions that call a computation, directly or through other calls, innermost
    first."""
    entered: set[Instruction] = set()
    while (caller := computation.caller) is not None and caller not in entered:
        entered.add(caller)
        yield caller
        computation = caller.computation


def loop_around(computation: Computation) -> Instruction | None:
    """Return the innermost `while` whose body contains `computation`, directly or through calls;
    None if there is none."""
    for caller in callers(computation):
        if caller.opcode == WHILE:
            return caller if body_of(caller) is computation else None
        computation = caller.computation
    return None


def producers(value: Value) -> list[Value]:
    """Return the values from which a value is computed. The state at the start of a loop's body has
    no producers."""
    here, path = value
    if len(path) > DEEPEST:
        return []
    opcode = here.opcode
    is_whole = opcode == _TUPLE and not path
    if opcode not in STRUCTURE or is_whole or (opcode in _CALLS and not here.called):
        sources = inputs_of_chain(here) if here.is_asynchronous else here.operands
        return [Value(source) for source in sources]
    source: Instruction | None = None
    if opcode == _ELEMENT:
        source, path = operand(here, 0), (here.message.tuple_index, *path)
    elif opcode == _TUPLE:
        source, path = operand(here, path[0]), path[1:]
    elif opcode == _BARRIER:
        source = operand(here, 0)
    elif opcode != _PARAMETER:
        source = here.called[0].root if here.called else None
    elif (caller := here.computation.caller) is not None and caller.opcode in _CALLS:
        source = operand(caller, here.message.parameter_number)
    return [] if source is None else [Value(source, path)]


def inputs_of_chain(part: Instruction) -> list[Instruction]:
    """Return the inputs of all parts of an asynchronous op, excluding outputs of its other
    parts."""
    chain = part.chain
    return [operand for member in chain for operand in member.operands if operand not in chain]


def consumers(value: Value) -> list[Value]:
    """Return the values that are computed from a value, including those in the next iteration of a
    loop."""
    here, path = value
    if len(path) > DEEPEST:
        return []
    found = [taken for user in here.users for taken in _taken_by(user, here, path)]
    computation = here.computation
    caller = computation.caller if computation.root is here else None
    if caller is not None and (caller.opcode in _CALLS or body_of(caller) is computation):
        found.append(Value(caller, path))
        if caller.opcode == WHILE and (state := parameter(computation, 0)) is not None:
            found.append(Value(state, path))
    return found


def _taken_by(user: Instruction, here: Instruction, path: Path) -> Iterator[Value]:
    """Yield the values that the instruction `user` computes from the element of `here` at
    `path`."""
    opcode = user.opcode
    if opcode == _ELEMENT:
        # Without a path, accept any element, because the parts of an asynchronous op are not
        # distinguished.
        if not path or path[0] == user.message.tuple_index:
            yield Value(user, path[1:])
        return
    if opcode in ELEMENTWISE:
        yield Value(user)
        return
    ids = user.message.operand_ids
    places = [i for i, operand_id in enumerate(ids) if operand_id == here.message.id]
    for place in places:
        if opcode == _TUPLE:
            yield Value(user, (place, *path))
        elif opcode in _CALLS and user.called:
            if (given := parameter(user.called[0], place)) is not None:
                yield Value(given, path)
        elif opcode == WHILE:
            body = body_of(user)
            if body and (state := parameter(body, 0)) is not None:
                yield Value(state, path)
        elif opcode == _BARRIER:
            yield Value(user, path)
        else:
            last = user.chain[-1]
            # A collective on several arrays returns each array at the index of its operand.
            paths = [path for path, _ in user.leaves or ()] if len(ids) > 1 and last is user else ()
            is_part = (place,) in paths
            yield Value(last, (place,) if is_part else ())


def origins(value: Value, passes: Callable[[Value], bool]) -> set[Value]:
    """Return a value and all values from which it is computed, up to values that `passes`
    rejects."""
    if value.instruction.opcode in STRUCTURE or passes(value):
        return {value, *(source for source, _ in walk([value], producers, passes))}
    return {value}


def reach(
    starts: Iterable[Value],
    step: Callable[[Value], Sequence[Value]],
    passes: Callable[[Value], bool],
) -> Reached:
    """Return all values that `walk` reaches, divided into passed and stopped values."""
    starts = list(starts)
    reached = Reached(set(starts), set())
    for value, is_passed in walk(starts, step, passes):
        (reached.passed if is_passed else reached.stopped).add(value)
    return reached


def walk(
    starts: Iterable[Value],
    step: Callable[[Value], Sequence[Value]],
    passes: Callable[[Value], bool],
) -> Iterator[tuple[Value, bool]]:
    """Walk from `starts` along `step` (`producers` or `consumers`), and continue from each value
    that `passes` accepts.

    The walk also continues from all instructions in `STRUCTURE`. Yield each reached value, with a
    flag that is True if the walk continues from it.
    """
    to_do = deque(starts)
    seen = set(to_do)
    while to_do:
        for value in step(to_do.popleft()):
            if value not in seen:
                seen.add(value)
                is_passed = value.instruction.opcode in STRUCTURE or passes(value)
                if is_passed:
                    to_do.append(value)
                yield value, is_passed
