"""Find large arrays that are written to memory only to be read and reduced again.

needs: a program
headline: Writing and re-reading a large array

What it finds: An array that is much larger than what is later used of it, such as log-probabilities
of a whole vocabulary, or the scores of attention.

Why it costs: Each byte is written and read at the speed of HBM. The gain of an array that is
reduced is only the time to write and read it at peak HBM bandwidth, because these ops often do
other vector work, which remains. The gain of scores is the time of all ops on the lines that write
or read them, minus the time that their flops take at the peak rate; if the scores are masked, only
half of the flops count.

How the program shows it: There are two patterns.

- No op that writes or reads the array has a dot, no reader is a kernel, and the output of each
  reader has at most an eighth of the array's size (`seen`).
- A dot's result is at least 4 times as large as either operand, and is multiplied again after a
  softmax (`likely`). A kernel such as flash attention never writes scores to memory.

What to change: Compute only what is used, for example `logsumexp` minus the selected logit instead
of `log_softmax`, or work in chunks. For scores, use a fused attention kernel.

When it is intended: Short sequences, for which a kernel is not faster.

Example:

    # Before: f32[batch, time, vocabulary] in memory, of which one element of each row is used
    loss = -take_along_axis(log_softmax(logits), labels[..., None], -1).mean()
    # After
    chosen = take_along_axis(logits, labels[..., None], -1)[..., 0]
    loss = (logsumexp(logits, -1) - chosen).mean()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

from _analysis.arrays.engine import Resize, Retime
from _analysis.arrays.graph import (
    DOTS,
    ELEMENTWISE,
    Value,
    consumers,
    is_layout,
    origins,
    reach,
)
from _analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _analysis.causes.shared.step_program import (
    StepProgram,
    own_line_of,
    place_of,
    place_of_longest,
    total_of,
)
from _analysis.roof.ledger import (
    COMPUTE_BOUND,
    DATA_MOVEMENT,
    KERNEL,
    MEMORY_BOUND,
    UNJUDGED,
    Entry,
)
from _light import NamedTuple
from _pipeline.executions import Executions
from _pipeline.vocabulary import COMPUTE
from _proto.hlo.program import Instruction
from _units import size, time

_ON_THE_CORE = (COMPUTE_BOUND, MEMORY_BOUND, DATA_MOVEMENT, KERNEL, UNJUDGED)
_SHRINKING = 8
_GROWING = 4
_HBM = 0
# Name of the kernel into which XLA fuses a softmax and the following matmul.
_SOFTMAX_KERNEL = "online-softmax"

FOR_REDUCED = (
    "Reduce before writing: compute only the elements that are used, for example logsumexp minus"
    " the selected logit instead of log_softmax, or work in chunks."
)
FOR_SCORES = (
    "Use a fused attention kernel (flash or splash attention), or compute attention in blocks."
)


class _Written(NamedTuple):
    """An array that one op writes and other ops only reduce."""

    value: Value
    writer: Executions
    readers: list[Executions]
    n_bytes: int


def find(of: StepProgram) -> Iterator[Cause]:
    if of.roofs.hbm is not None:
        yield from _reduced(of, of.roofs.hbm)
    yield from _scores(of)


def _reduced(of: StepProgram, hbm: Fraction) -> Iterator[Cause]:
    found: dict[tuple[str | None, str], list[_Written]] = {}
    for writer in of.leaves:
        instruction = writer.op.instruction
        if instruction is None or writer.op.kind != COMPUTE or writer.total < of.floor:
            continue
        for path, array in instruction.leaves or ():
            n_bytes = array.n_bytes if array and array.memory_space == _HBM else None
            # Skip arrays that are too small: writing and reading one takes less time than the
            # smallest reported gain.
            if array is None or not n_bytes or 2 * writer.n * n_bytes < of.floor * hbm:
                continue
            readers = _readers(of, Value(instruction, path), n_bytes)
            if readers and writer.op.dot is None:
                place = place_of(writer.op)
                line = place.source_user or place.source_inner
                found.setdefault((line, array.text), []).append(
                    _Written(Value(instruction, path), writer, readers, n_bytes)
                )
    for (_, shape), rows in found.items():
        yield _reduced_cause(shape, rows)


def _readers(of: StepProgram, value: Value, n_bytes: int) -> list[Executions] | None:
    """Return the ops that read an array if all their results are small; otherwise return None."""
    readers: dict[int, Executions] = {}
    to_do = [value]
    while to_do:
        here = to_do.pop()
        for user in here.instruction.users:
            if user.opcode == "get-tuple-element":
                if here.path[:1] == (user.message.tuple_index,):
                    to_do.append(Value(user, here.path[1:]))
                continue
            if user.opcode == "bitcast":
                to_do.append(Value(user))
                continue
            executed = of.executed(user)
            output = (
                executed.op.instruction.chain[-1].arrays
                if executed and executed.op.instruction
                else None
            )
            if executed is None or not output or executed.op.dot or executed.op.kernel:
                return None
            if _SHRINKING * sum(array.n_bytes or n_bytes for array in output) > n_bytes:
                return None
            readers[id(executed)] = executed
        if here.instruction.computation.root is here.instruction:
            return None
    return list(readers.values())


def _reduced_cause(shape: str, arrays: list[_Written]) -> Cause:
    # Count each op once, because it can read several of the arrays.
    ran = {
        id(executions): executions
        for array in arrays
        for executions in (array.writer, *array.readers)
    }
    each = size(arrays[0].n_bytes)
    written, them, noun = f"{shape} ({each})", "it", "array"
    if len(arrays) > 1:
        written, them, noun = f"{len(arrays)} arrays {shape} ({each} each)", "them", "arrays"
    return Cause(
        f"<line> writes {written} to memory, and all readers reduce {them} to an eighth or less."
        f" Writing and reading the {noun} takes <gain>.",
        FOR_REDUCED,
        SEEN,
        list(ran.values()),
        [Resize(array.value, 0) for array in arrays],
        place=place_of_longest([array.writer for array in arrays]),
        evidence={"shape": shape},
    )


def _scores(of: StepProgram) -> Iterator[Cause]:
    found: dict[str | None, list[Instruction]] = {}
    for dot in of.program.instructions():
        if dot.opcode in DOTS and _is_grown(dot) and _is_softmaxed(dot):
            found.setdefault(own_line_of(dot, of.is_own), []).append(dot)
    for dots in found.values():
        if entries := _on_scores(of, dots):
            yield _scores_cause(of, dots, entries)


def _is_grown(dot: Instruction) -> bool:
    """Return True if a dot's result is much larger than both operands."""
    operands = [array for arrays in dot.operand_arrays[:2] for array in arrays or ()]
    if len(operands) < 2:
        return False
    return _n_elements(dot) >= _GROWING * max(array.n_elements for array in operands)


def _n_elements(dot: Instruction) -> int:
    return next((array.n_elements for array in dot.arrays or ()), 0)


def _is_computed(value: Value) -> bool:
    here = value.instruction
    return here.opcode in ELEMENTWISE or here.opcode in ("reduce", "broadcast") or is_layout(here)


def _is_softmaxed(dot: Instruction) -> bool:
    """Return True if a dot's result goes through a softmax into another dot."""
    reached = reach([Value(dot)], consumers, _is_computed)
    opcodes = {value.instruction.opcode for value in reached.passed}
    readers = {value.instruction for value in reached.stopped if value.instruction.op_name}
    return any(reader.op_name == _SOFTMAX_KERNEL for reader in readers) or (
        {"exponential", "reduce"} <= opcodes
        and any(
            reader.opcode in DOTS and _is_backward(reader) == _is_backward(dot)
            for reader in readers
        )
    )


def _is_backward(dot: Instruction) -> bool:
    return "transpose(" in (dot.op_name or "")


def _is_masked(dot: Instruction) -> bool:
    """Return True if scores are masked: by a select, or by adding the result of a select."""
    reached = reach([Value(dot)], consumers, _is_computed)
    added = {
        value
        for here, _ in reached.passed
        if here.opcode == "add"
        for operand in here.operands
        for value in origins(Value(operand), _is_computed)
    }
    return any(value.instruction.opcode == "select" for value in reached.passed | added)


def _scores_cause(of: StepProgram, dots: list[Instruction], entries: list[Entry]) -> Cause:
    members = [entry.executions for entry in entries]
    dot = next((candidate for candidate in dots if of.executed(candidate)), dots[0])
    total = total_of(members)
    needed = sum((entry.t_compute for entry in entries), Fraction(0))
    is_masked = _is_masked(dot)
    if is_masked:
        # A kernel skips fully masked blocks: half of all blocks if the mask is causal.
        needed = needed / 2
    gain = total - min(total, round(needed))
    result = next(iter(dot.arrays or ()))
    part = (total - gain) / max(1, total)
    return Cause(
        f"<line> computes all attention scores, {result.text}, and ops on them take {time(total)}."
        f" A fused kernel needs about {time(total - gain)} for the"
        f" matmuls{' (half of them masked)' if is_masked else ''}, so it would save <gain>.",
        FOR_SCORES,
        LIKELY,
        members,
        [Retime(ran, part * ran.total) for ran in members],
        place=of.place_at(dot),
        evidence={"shape": result.text},
    )


def _on_scores(of: StepProgram, dots: list[Instruction]) -> list[Entry]:
    """Return the ledger entries of ops that read or write scores, and of other ops on the same
    lines.

    The other ops may work on blocks of the scores, which have other shapes.
    """
    # Compare sorted dimensions, because compilers can transpose the scores and add dimensions of
    # size 1.
    wanted = {_sorted_dims(map(str, array.dims)) for dot in dots for array in dot.arrays or ()}
    ops = [entry for entry in of.ledger if entry.name in _ON_THE_CORE]
    whole = {
        entry.executions.op: place_of(entry.executions.op).source_user
        for entry in ops
        if any(
            _sorted_dims(array.dims.split(",")) in wanted
            for array in (*entry.executions.op.hlo.outputs, *entry.executions.op.hlo.operands)
        )
    }
    lines = set(whole.values()) - {None}
    return [
        entry
        for entry in ops
        if entry.executions.op in whole or place_of(entry.executions.op).source_user in lines
    ]


def _sorted_dims(dims: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(n for n in dims if n != "1"))
