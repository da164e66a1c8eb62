"""Find the bytes of each array that an op reads from HBM and writes to HBM.

Arrays in VMEM cost no HBM traffic. A slice inside a fusion reads the slice, and an update in place
writes the update. A kernel is assumed to read and write each of its arrays once.
"""

from __future__ import annotations

from typing import TypeAlias

from _breakdown.analysis.arrays.graph import Value, inputs_of_chain, is_layout, operand
from _breakdown.analysis.arrays.values import Arrays, output_at
from _proto.hlo.program import Computation, Instruction
from _proto.hlo.shapes import Path
from _proto.hlo.traffic import is_partial, read_of, update_of

_UPDATE = "dynamic-update-slice"
# Instructions that read only those elements of their first operand that they return.
_SLICES = frozenset(("dynamic-slice", "slice", "gather"))
# Instructions that run no op of their own, or whose op does not touch memory.
_NO_TRAFFIC = frozenset(
    "while call conditional parameter constant tuple get-tuple-element bitcast opt-barrier"
    " after-all partition-id replica-id".split()
)
_COPIES = frozenset(("bitcast", "copy", "transpose", "reshape", "dynamic-slice", "slice"))
_PLACEHOLDERS = (b"AllocateBuffer", b"ConcatBitcast")


# An op's access to an array: the array, the place of a written array in the op's output, the bytes
# that one execution moves to or from HBM, and whether the op writes it. A plain tuple, because a
# step has many.
Access: TypeAlias = tuple[Value, Path, int, bool]


def moves_parts(op: Instruction) -> bool:
    """Return whether an op reads or updates parts of arrays, or shares memory with an operand."""
    is_part = op.opcode in _SLICES or op.opcode == _UPDATE or is_partial(op)
    return is_part or bool(op.message.output_operand_aliasing)


def copied_by(op: Instruction, path: Path, arrays: Arrays) -> Value | None:
    """Return the array of which a part of an op's output is a copy, or a copy of a slice; None if
    the op computes this part."""
    if op.is_asynchronous:
        sources = list(dict.fromkeys(inputs_of_chain(op))) if is_layout(op) else []
        return arrays.array_of(Value(sources[0])) if len(sources) == 1 else None
    inner = output_at(op, path) if op.opcode == "fusion" else op
    # In a damaged program, an instruction can be its own operand.
    seen: set[Instruction] = set()
    while inner is not None and inner.opcode in _COPIES and inner not in seen:
        seen.add(inner)
        inner = operand(inner, 0)
        if inner is not None:
            inner, is_argument = _through_fusions(inner, op)
            if is_argument:
                return arrays.array_of(Value(inner)) if inner is not None else None
    return None


def _through_fusions(inner: Instruction, op: Instruction) -> tuple[Instruction | None, bool]:
    """Follow a value inside an op into and out of nested fusions. Return the instruction that
    computes it, and True if this is an operand of the op."""
    seen: set[Instruction] = set()
    while inner not in seen:
        seen.add(inner)
        if inner.computation is op.computation:
            return inner, True
        if inner.opcode == "fusion" and inner.called:
            root = inner.called[0].root
        elif inner.opcode == "parameter" and inner.computation.caller:
            root = operand(inner.computation.caller, inner.message.parameter_number)
        else:
            return inner, False
        if root is None:
            return None, False
        inner = root
    return None, False


def accesses_of(op: Instruction, arrays: Arrays) -> list[Access]:
    """Return the arrays that an op reads and writes, according to the program."""
    # Causes and `by_array` ask for the same ops on a page, and steps and devices in records.
    known: dict[Instruction, list[Access]] = op.program.derived.setdefault(accesses_of, {})
    if op not in known:
        known[op] = _accesses_of(op, arrays)
    return known[op]


def _accesses_of(op: Instruction, arrays: Arrays) -> list[Access]:
    if op.is_asynchronous:
        return _of_chain(op, arrays)
    if op.opcode in _NO_TRAFFIC or op.message.custom_call_target in _PLACEHOLDERS:
        return []
    read: dict[int, int | None] = {}
    written: dict[Path, int | None] = {}
    if moves_parts(op):
        read, written = _partly_read(op, arrays), _partly_written(op, arrays)
    found: list[Access] = []
    for index, operand_id in enumerate(op.message.operand_ids):
        if (given := op.computation.instruction(operand_id)) is not None:
            found += _accesses(given, arrays, read.get(index), is_write=False)
    for array, path, size, _ in _accesses(op, arrays, None, is_write=True):
        moved = written.get(path)
        if moved != 0:
            found.append((array, path, size if moved is None else min(moved, size), True))
    return found


def _partly_read(op: Instruction, arrays: Arrays) -> dict[int, int | None]:
    """Map operands of which an op reads only a part to the bytes that it reads of them."""
    if op.opcode in _SLICES:
        return {0: _size(op, arrays)}
    if op.opcode == _UPDATE:
        return {0: 0}
    body = _partial_body(op)
    found = {i: read_of(body, i) for i in range(len(op.message.operand_ids))} if body else {}
    # A fusion passes such an array on. How much a kernel updates of it is unknown.
    return found | {index: 0 for index, path in arrays.aliases(op).values() if not path}


def _partly_written(op: Instruction, arrays: Arrays) -> dict[Path, int | None]:
    """Map results of which an op writes only a part to the bytes that it writes of them."""
    paths = [path for path, _ in arrays.leaves(op)]
    if op.opcode == _UPDATE:
        update = operand(op, 1)
        return dict.fromkeys(paths, _size(update, arrays) if update else 0)
    found: dict[Path, int | None] = dict.fromkeys(arrays.aliases(op), 0)
    body = _partial_body(op)
    for path in paths if body else ():
        output = output_at(op, path)
        if output and (update_in := update_of(output)):
            found[path] = update_in.n_bytes
    return found


def _partial_body(op: Instruction) -> Computation | None:
    """Return what is inside a fusion that reads or writes only parts of arrays."""
    return op.called[0] if op.opcode == "fusion" and op.called and is_partial(op) else None


def _accesses(
    here: Instruction, arrays: Arrays, moved: int | None, *, is_write: bool
) -> list[Access]:
    """Return the accesses to the arrays of an output of which an op moves all bytes, or `moved`
    bytes if given; none if no byte is moved. Omit arrays of unknown size."""
    if moved == 0:
        return []
    return [
        (array, path, size if moved is None else min(moved, size), is_write)
        for array, path, size in arrays.parts(here)
    ]


def _size(op: Instruction | None, arrays: Arrays) -> int:
    return sum(array.n_bytes or 0 for _, array in arrays.leaves(op)) if op else 0


def _of_chain(op: Instruction, arrays: Arrays) -> list[Access]:
    """Return the accesses of an asynchronous op. They belong to its last part: the core waits there
    until the data have moved."""
    chain = op.chain
    done = chain[-1]
    if op is not done:
        return []
    slices = [inner for part in chain for inner in part.inside() if inner.opcode in _SLICES]
    moved = _size(done, arrays) if slices or done.opcode.startswith("slice-") else None
    written = _accesses(done, arrays, None, is_write=True)
    seen = {array for array, *_ in written}
    found = []
    for source in inputs_of_chain(op):
        for access in _accesses(source, arrays, moved, is_write=False):
            # The parts of the op pass the same array on.
            if access[0] not in seen:
                seen.add(access[0])
                found.append(access)
    return found + written
