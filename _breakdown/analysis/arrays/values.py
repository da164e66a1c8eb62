"""Find the arrays of a program: which values of its instructions are the same array.

An array is what a program computes once and keeps in one buffer. A bitcast, an element of a tuple,
the carry of a loop, the argument and the result of a call, and an update in place are the same
array as the value that they pass on. A copy to another layout or memory is a new array.
"""

from __future__ import annotations

from collections.abc import Sequence

from _breakdown.analysis.arrays.graph import DEEPEST, WHILE, Value, body_of, operand
from _proto import hlo_pb2 as pb
from _proto.hlo.program import Computation, Instruction, Program
from _proto.hlo.shapes import Array, Path, read_arrays
from _proto.hlo.text import HBM
from _proto.hlo.traffic import is_partial, update_of

_CALL, _CONDITIONAL, _PARAMETER, _TUPLE = "call", "conditional", "parameter", "tuple"
_UPDATE = "dynamic-update-slice"
# Instructions whose computations run op by op. The computations of other instructions, such as
# fusions, are part of one op.
_CONTROL = (WHILE, _CALL, _CONDITIONAL)
# Instructions whose output is their first operand.
_SAME = frozenset(("bitcast", "opt-barrier", _UPDATE))
# Instructions that can pass on a value.
_PASSING = _SAME | {*_CONTROL, _PARAMETER, _TUPLE, "custom-call", "fusion", "get-tuple-element"}
_CONCAT_BITCAST = b"ConcatBitcast"


def arrays_of(program: Program) -> Arrays:
    """Return the arrays of a program; they are the same for all of its steps."""
    if Arrays not in program.derived:
        program.derived[Arrays] = Arrays(program)
    found: Arrays = program.derived[Arrays]
    return found


class Arrays:
    """The arrays of a program. An array is named by the value that defines it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._caller_of: dict[Computation, Instruction] = {}
        # The next value on the way to the value that defines the array.
        self._next: dict[Value, Value] = {}
        self._parts: dict[Instruction, Sequence[tuple[Value, Path, int]]] = {}
        self._aliases: dict[Instruction, dict[Path, tuple[int, Path]]] = {}
        self._join()

    def leaves(self, instruction: Instruction) -> Sequence[tuple[Path, Array]]:
        """Return the arrays of an instruction's output, each with its path in nested tuples."""
        return read_arrays(instruction.message.shape) if instruction.leaves else ()

    def parts(self, instruction: Instruction) -> Sequence[tuple[Value, Path, int]]:
        """Return each array of an instruction's output: the value that defines it, its path in the
        output, and its bytes in HBM. Omit arrays of unknown size."""
        if instruction not in self._parts:
            self._parts[instruction] = [
                (self.array_of(Value(instruction, path)), path, size)
                for path, array in self.leaves(instruction)
                if (size := array.n_bytes if array.memory_space == HBM else 0) is not None
            ]
        return self._parts[instruction]

    def array_of(self, value: Value) -> Value:
        """Return the value that defines the array of a value."""
        if value.instruction.opcode not in _PASSING and value not in self._next:
            return value
        passed: dict[Value, None] = {}
        while True:
            before = self._next.get(value) or self._before(value) or value
            passed[value] = None
            # Only a damaged program has other values that pass themselves on, or contain
            # themselves.
            if before in passed or len(before.path) > DEEPEST:
                break
            value = before
        for seen in passed:
            self._next[seen] = value
        return value

    def is_result(self, array: Value) -> bool:
        return array in self._results

    def aliases(self, instruction: Instruction) -> dict[Path, tuple[int, Path]]:
        """Map parts of the output to the operand whose memory they must share: the operand's index,
        and the path in the operand."""
        if instruction not in self._aliases:
            found = {}
            for data in instruction.message.output_operand_aliasing:
                alias = self.program.read(pb.OutputOperandAliasing, data) or (
                    # An empty message stands for the whole output and the first operand.
                    pb.OutputOperandAliasing()
                )
                place = alias.operand_index, tuple(alias.operand_shape_index)
                found[tuple(alias.output_shape_index)] = place
            self._aliases[instruction] = found
        return self._aliases[instruction]

    def _join(self) -> None:
        """Join the values that a loop carries, and the results of the branches of conditionals."""
        entry = self.program.computation(self.program.message.entry_computation_id)
        for here in self._control(entry) if entry else ():
            roots = [c.root for c in here.called] if here.opcode == _CONDITIONAL else []
            body = body_of(here)
            if body is not None:
                roots = [body.root]
            for path, _ in self.leaves(here):
                for root in roots:
                    self._unite(Value(here, path), root, path)
        root = entry.root if entry else None
        self._results = (
            {self.array_of(Value(root, path)) for path, _ in self.leaves(root)} if root else set()
        )

    def _control(self, entry: Computation) -> list[Instruction]:
        """Return the loops, calls and conditionals that are not inside fusions."""
        found, to_do = [], [entry]
        for computation in to_do:
            for here in computation.instructions:
                if here.opcode in _CONTROL:
                    found.append(here)
                    new = [called for called in here.called if called not in self._caller_of]
                    self._caller_of.update(dict.fromkeys(new, here))
                    to_do += new
        return found

    def _unite(self, value: Value, root: Instruction | None, path: Path) -> None:
        if root is None:
            return
        first, second = self.array_of(value), self.array_of(Value(root, path))
        if first != second:
            self._next[second] = first

    def _before(self, value: Value) -> Value | None:
        """Return the value that a value passes on, or None if it is a new array."""
        here, path = value
        opcode = here.opcode
        if opcode == "get-tuple-element":
            return _value(operand(here, 0), (here.message.tuple_index, *path))
        if opcode == _TUPLE:
            return _value(operand(here, path[0]), path[1:]) if path else None
        if opcode in _SAME or opcode == WHILE:
            return _value(operand(here, 0), path)
        if opcode in (_CALL, _CONDITIONAL) and here.called:
            return _value(here.called[0].root, path)
        if opcode == _PARAMETER:
            return self._argument(here, path)
        if opcode == "fusion":
            return self._updated(here, path)
        if opcode == "custom-call":
            if here.message.custom_call_target == _CONCAT_BITCAST:
                return _value(operand(here, 0), ())
            return self._aliased(here, path)
        return None

    def _argument(self, parameter: Instruction, path: Path) -> Value | None:
        caller = self._caller_of.get(parameter.computation)
        if caller is None:
            return None
        if caller.opcode == _CONDITIONAL:
            # The first operand chooses the branch; the others are the arguments of the branches.
            ids = list(caller.message.called_computation_ids)
            return _value(operand(caller, 1 + ids.index(parameter.computation.message.id)), path)
        return _value(operand(caller, parameter.message.parameter_number), path)

    def _updated(self, fusion: Instruction, path: Path) -> Value | None:
        """Return the operand that a fusion updates in place."""
        if is_partial(fusion) and (output := output_at(fusion, path)) is not None:
            update = update_of(output)
            if update is not None:
                return _value(operand(fusion, update.parameter_number), ())
        return self._aliased(fusion, path)

    def _aliased(self, instruction: Instruction, path: Path) -> Value | None:
        if not instruction.message.output_operand_aliasing:
            return None
        index, place = self.aliases(instruction).get(path, (-1, ()))
        return _value(operand(instruction, index), place)


def _value(instruction: Instruction | None, path: Path) -> Value | None:
    return None if instruction is None else Value(instruction, path)


def output_at(fusion: Instruction, path: Path) -> Instruction | None:
    """Return the instruction inside a fusion that computes the part of the output at `path`."""
    root = fusion.called[0].root if fusion.called else None
    if root is None or root.opcode != _TUPLE or not path:
        return root if not path else None
    return operand(root, path[0])
