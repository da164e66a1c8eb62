"""Find f32 operands that widen all following values to f32.

needs: a program
headline: Widening values to f32

What it finds: A value in f32, often a norm's gain or a position table, makes everything after it
f32.

Why it costs: All later ops read, write, gather and multiply twice the bytes. The gain is half the
time of the memory-bound ops, copies, communication and kernels that read or write the f32 arrays.
For kernels, whose time is `unknown_ps`, half is a cautious guess, because they also need more
passes for a matmul in f32.

How the program shows it: A convert from a narrower float in the user's program. Its f32 result must
reach a dot or a kernel before the program converts it back; the f32 values of a norm or softmax do
not if it converts its result back. If the convert has the same stack as the op that uses its
result, it is an implicit promotion (`seen`); an explicit cast may be intended (`likely`). If the
widened value of one line reaches all ops at which a second line widens values, the second line is
only a symptom. If the widened value is a small factor of a large array, the line of the product is
reported. Compilers remove a convert that follows another convert, so a program may contain none. In
that case, three other patterns make the cause `likely`:

- A matmul of an f32 operand and a bf16 operand shows that values are wide. (If the compiler narrows
  all operands, the program has no such matmul.) The line is the one whose f32 elementwise ops
  compute the most f32 operands of these matmuls in the forward pass. Weights in f32 do not count,
  because the compiler narrows them.
- Additions in the forward pass hand f32 arrays to each other through memory. These arrays are a
  residual stream, even if all norms cast back before the matmuls. The line computes the first of
  these arrays.
- The matmuls of only one line, such as the line that computes the logits, have gradients in f32.

What to change: Cast the f32 operand of the line with `.astype(x.dtype)`, or cast the result back.

When it is intended: The loss, the softmax, statistics of norms and sums over many values often need
f32.

Example:

    # Before: the table is f32, so x and all layers after it are f32
    x = x + sinusoid(length, width)
    # After
    x = x + sinusoid(length, width).astype(x.dtype)
"""

from __future__ import annotations

from collections.abc import Iterable

from _analysis.arrays.engine import Resize
from _analysis.arrays.graph import (
    DOTS,
    ELEMENTWISE,
    STRUCTURE,
    Value,
    consumers,
    is_backward,
    is_layout,
    is_moved,
    origins,
    reach,
    walk,
)
from _analysis.causes.shared.cause import LIKELY, SEEN, Cause, Confidence
from _analysis.causes.shared.sentences import short
from _analysis.causes.shared.step_program import StepProgram, own_line_of, total_of
from _analysis.roof.ledger import COLLECTIVE, DATA_MOVEMENT, KERNEL, MEMORY_BOUND, Entry
from _light import cached_property
from _proto.hlo.collectives import collective_name
from _proto.hlo.program import Instruction
from _units import counted, time

_NARROW = ("bf16", "f16", "f8")
_WIDE = "f32"
# Smaller arrays, such as statistics and weights of norms, cost almost nothing.
_MIN_ELEMENTS = 1 << 16
# A value counts as a factor of an array that has more than `_GROWING` times as many elements as the
# value.
_GROWING = 8
_MOVING = frozenset("broadcast concatenate dynamic-slice dynamic-update-slice pad slice".split())
# Ops of these classes take longer if their arrays have twice the bytes. A kernel also needs more
# passes for a matmul in f32 than for one in bf16.
_SLOWED = (COLLECTIVE, DATA_MOVEMENT, MEMORY_BOUND, KERNEL)
_USERS_CONVERT = "convert_element_type"

FOR_MATMUL = (
    "Multiply in the narrower dtype and cast the result: `(x @ w.astype(x.dtype)).astype(f32)`."
)
FOR_PROMOTION = (
    "Cast the f32 operand of this line to the dtype of the other operand, for example with"
    " `.astype(x.dtype)`, or cast the result back."
)
FOR_STREAM = (
    "Cast either the f32 operand of this line, such as a position table, or the result to the dtype"
    " of the matmuls, so that the residual stream stays narrow."
)
FOR_CAST = "Cast back to the narrower dtype before the matmuls, unless they need f32."


class _Wide(dict[Instruction, int]):
    """Caches, for each instruction, the number of elements of its largest f32 output, because
    reading shapes takes time."""

    def __missing__(self, instruction: Instruction) -> int:
        arrays = instruction.arrays or ()
        n = max((array.n_elements for array in arrays if array.dtype == _WIDE), default=0)
        self[instruction] = n
        return n

    def has(self, instruction: Instruction) -> bool:
        return self[instruction] >= _MIN_ELEMENTS

    def stays(self, value: Value) -> bool:
        """Return True if an op with f32 operands returns f32."""
        here = value.instruction
        if here.opcode == "convert":
            # Follow converts without a name: the compiler adds them to narrow the operands of dots.
            return not here.op_name or self.has(here)
        if _multiplies(here):
            return self.has(here)
        return here.opcode in ELEMENTWISE or _only_moves(here)

    def is_kept(self, value: Value) -> bool:
        """Return True if an op with f32 operands returns f32 and does not multiply matrices."""
        return not _multiplies(value.instruction) and self.stays(value)


class _Widening:
    """The converts of a line that widen values, and the values that are computed from them."""

    def __init__(
        self,
        line: str | None,
        converts: list[Instruction],
        wide: _Wide,
        *,
        is_stream: bool = False,
    ) -> None:
        self.line, self.converts, self.is_stream = line, converts, is_stream
        reached = reach(map(Value, converts), consumers, wide.stays)
        self.passed, self.values = reached.passed, reached.passed | reached.stopped

    @cached_property
    def joins(self) -> list[Instruction]:
        return [_join_of(convert) for convert in self.converts]

    @cached_property
    def instructions(self) -> set[Instruction]:
        return {value.instruction for value in self.passed}

    @property
    def dots(self) -> set[Instruction]:
        return {value.instruction for value in self.values if value.instruction.opcode in DOTS}

    @property
    def first(self) -> tuple[Instruction, Instruction, bool]:
        """Return a tuple: a convert; the op that combines its result with other values; and True
        if the convert is an implicit promotion. If there are
        implicit and explicit promotions, choose an implicit one."""
        if self.is_stream:
            return self.converts[0], self.converts[0], False
        found = [
            (convert, join, _is_implicit(convert, join))
            for convert, join in zip(self.converts, self.joins, strict=True)
        ]
        return next((choice for choice in found if choice[2]), found[0])

    def makes(self, other: _Widening) -> bool:
        """Return True if the other line widens values only because this line does."""
        return self._feeds(other) and not other._feeds(self)

    def _feeds(self, other: _Widening) -> bool:
        return all(join in self.instructions for join in other.joins)


def find(of: StepProgram) -> list[Cause]:
    wide = _Wide()
    converts: dict[str | None, list[Instruction]] = {}
    for instruction in of.program.instructions():
        is_widening = instruction.opcode == "convert" and _is_widening(instruction)
        if is_widening and _leads_to_matmul(instruction, wide):
            begin = _product_of(instruction, wide) or instruction
            line = own_line_of(begin, of.is_own) or begin.line
            if begin not in converts.setdefault(line, []):
                converts[line].append(begin)
    widenings = [_Widening(line, of_line, wide) for line, of_line in converts.items()]
    found = [
        _cause(of, widening, wide)
        for widening in widenings
        if not any(other.makes(widening) for other in widenings if other is not widening)
    ]
    if any(2 * total_of(cause.executions) >= of.floor for cause in found):
        return found
    other = _before_mixed_matmuls(of, wide) or _residual_stream(of, wide) or _f32_matmul(of, wide)
    return [_cause(of, other, wide)] if other else []


def _f32_matmul(of: StepProgram, wide: _Wide) -> _Widening | None:
    """Return the forward matmuls of the line whose gradients are also in f32; None unless there is
    exactly one such line.

    If there are several such lines, f32 is assumed to be intended for the entire program.
    """
    forward: dict[str, list[Instruction]] = {}
    backward: set[str | None] = set()
    for dot in of.program.instructions():
        if dot.opcode not in DOTS or not dot.op_name or not wide.has(dot):
            continue
        line, executed = own_line_of(dot, of.is_own), of.executed(dot)
        if line and not is_backward(dot):
            forward.setdefault(line, []).append(dot)
        elif executed and executed.op.instruction and wide[executed.op.instruction] >= wide[dot]:
            backward.add(line)
    lines = [line for line in forward if line in backward]
    return _Widening(lines[0], forward[lines[0]], wide) if len(lines) == 1 else None


def _residual_stream(of: StepProgram, wide: _Wide) -> _Widening | None:
    """Return the f32 arrays that successive additions in the forward pass read from and write to
    memory.

    Also return their gradients: f32 arrays of the same shape in the backward pass.
    """
    if not any(_is_narrowing(here) for here in of.program.instructions()):
        # The user's program never narrows values, so f32 is assumed to be intended.
        return None
    trains = any(is_backward(here) for here in of.program.instructions())

    def is_forward(here: Instruction) -> bool:
        name = here.op_name or ""
        return "jvp(" in name and not is_backward(here) if trains else bool(name)

    adds = [
        Value(here)
        for here in of.program.instructions()
        if here.opcode == "add" and wide.has(here) and is_forward(here)
    ]
    if not adds:
        return None
    added = reach(adds, consumers, lambda v: wide.has(v.instruction) and wide.is_kept(v)).passed
    begun = {value.instruction for value in added}
    forward = _written(here for here in of.ran if here in begun)
    lines = {
        text: [begin for value, begin in made if is_forward(begin) and value in added]
        for text, made in forward.items()
    }
    streams = {text: begins for text, begins in lines.items() if len(set(begins)) > 1}
    if not streams:
        return None
    starts = [begin for begins in streams.values() for begin in begins]
    line = own_line_of(starts[0], of.is_own)
    written = _written(here for here in of.ran if wide.has(here))
    starts += [
        begin for text in streams for _, begin in written.get(text, []) if is_backward(begin)
    ]
    return _Widening(line, starts, wide, is_stream=True)


def _written(ran: Iterable[Instruction]) -> dict[str, list[tuple[Value, Instruction]]]:
    """Return the f32 arrays that ops write, by shape, each with the elementwise op that computes
    it."""
    found: dict[str, list[tuple[Value, Instruction]]] = {}
    for here in ran:
        for path, array in here.leaves or ():
            value = Value(here, path)
            begin = _computed(value) if array and array.dtype == _WIDE else None
            if begin and array:
                found.setdefault(array.text, []).append((value, begin))
    return found


def _computed(value: Value) -> Instruction | None:
    """Return the elementwise op of the user's program that computes a value; None if the value is
    computed in another way."""
    sources = origins(value, is_moved)
    made = {here for here, _ in sources if here.opcode not in STRUCTURE and not is_layout(here)}
    here = made.pop() if len(made) == 1 else None
    return here if here and here.op_name and here.opcode in ELEMENTWISE else None


def _before_mixed_matmuls(of: StepProgram, wide: _Wide) -> _Widening | None:
    """Find the line that computes the most f32 operands of mixed matmuls; return its f32 values.

    Also return the f32 values of this line for which the compiler inserted unnamed converts, to
    narrow them before other matmuls.
    """
    dots = [instruction for instruction in of.program.instructions() if instruction.opcode in DOTS]
    if not any(_is_mixed(dot) for dot in dots):
        return None
    sources: dict[str, set[Instruction]] = {}
    n_mixed: dict[str, int] = {}
    for dot in dots:
        if not dot.op_name or is_backward(dot):
            continue
        is_mixed = _is_mixed(dot)
        for source in dot.operands[:2]:
            by_line: dict[str, set[Instruction]] = {}
            for here in _computed_from(source):
                line = own_line_of(here, of.is_own)
                if line and wide.has(here):
                    by_line.setdefault(line, set()).add(here)
            for line, found in by_line.items():
                n_mixed[line] = n_mixed.get(line, 0) + (is_mixed and wide.has(source))
                sources.setdefault(line, set()).update(found)
    if not any(n_mixed.values()):
        return None
    line = max(n_mixed, key=n_mixed.__getitem__)
    return _Widening(line, sorted(sources[line], key=lambda here: here.name), wide)


def _is_mixed(dot: Instruction) -> bool:
    arrays = [array for operand in dot.operand_arrays[:2] for array in operand or ()]
    is_wide = any(a.dtype == _WIDE and a.n_elements >= _MIN_ELEMENTS for a in arrays)
    return is_wide and any(a.dtype.startswith(_NARROW) for a in arrays)


def _computed_from(operand: Instruction) -> list[Instruction]:
    """Return the elementwise ops of the user's program that compute an operand."""

    def passes(value: Value) -> bool:
        here = value.instruction
        return _only_moves(here) or (here.opcode == "convert" and not here.op_name)

    values = origins(Value(operand), passes)
    return [
        value.instruction
        for value in values
        if value.instruction.opcode in ELEMENTWISE and value.instruction.op_name
    ]


def _is_widening(convert: Instruction) -> bool:
    """Return True if the user's program, not the compiler, converts a large array to f32.

    Converts in the backward pass do not count: there, a convert to f32 is the gradient of a convert
    to a narrower dtype.
    """
    is_users = (convert.op_name or "").endswith(_USERS_CONVERT) and not is_backward(convert)
    if not is_users or not convert.operands:
        return False
    to, source = Value(convert).array, Value(convert.operands[0]).array
    return (
        to is not None
        and source is not None
        and to.dtype == _WIDE
        and source.dtype.startswith(_NARROW)
        and to.n_elements >= _MIN_ELEMENTS
    )


def _is_narrowing(here: Instruction) -> bool:
    """Return True if the user's program converts to a narrower float."""
    if here.opcode != "convert" or not (here.op_name or "").endswith(_USERS_CONVERT):
        return False
    return any(array.dtype.startswith(_NARROW) for array in here.arrays or ())


def _only_moves(instruction: Instruction) -> bool:
    return (
        instruction.opcode in _MOVING
        or is_layout(instruction)
        or instruction.is_asynchronous
        or collective_name(instruction.opcode) is not None
    )


def _multiplies(instruction: Instruction) -> bool:
    return instruction.opcode in DOTS or instruction.is_kernel


def _leads_to_matmul(convert: Instruction, wide: _Wide) -> bool:
    reached = walk([Value(convert)], consumers, wide.stays)
    return any(_multiplies(value.instruction) for value, _ in reached)


def _product_of(convert: Instruction, wide: _Wide) -> Instruction | None:
    """Return the first op that computes a much larger array from the converted value; None if there
    is no such op. The value is then a factor of this array."""
    for value, _ in walk([Value(convert)], consumers, wide.is_kept):
        here = value.instruction
        if here.opcode in ELEMENTWISE and wide[here] > _GROWING * wide[convert]:
            return here
    return None


def _join_of(convert: Instruction) -> Instruction:
    """Return the first op that computes with the widened value, preferably one with the same stack
    as the convert. If there is no such op, return the convert itself."""
    reached = walk([Value(convert)], consumers, lambda value: _only_moves(value.instruction))
    taking = [value.instruction for value, is_passed in reached if not is_passed]
    frame = convert.message.metadata.stack_frame_id
    same = (taker for taker in taking if taker.message.metadata.stack_frame_id == frame)
    return next(same, next(iter(taking), convert))


def _is_implicit(convert: Instruction, join: Instruction) -> bool:
    frame = convert.message.metadata.stack_frame_id
    is_join = join.opcode in ELEMENTWISE and len(join.operands) > 1
    return is_join and frame != 0 and join.message.metadata.stack_frame_id == frame


def _source_text(convert: Instruction) -> str:
    source = Value(convert.operands[0]).array
    return source.text if source else ""


def _with_backward(of: StepProgram, widening: _Widening, wide: _Wide) -> set[Value]:
    """Return the widened values, including those in the backward pass of the matmuls. Backward
    matmuls are found by their lines: the compiler narrows their operands, so no convert leads to
    them."""
    lines = {own_line_of(dot, of.is_own) for dot in widening.dots} - {None}
    others = [
        Value(instruction)
        for instruction in of.program.instructions()
        if instruction.opcode in DOTS
        and instruction not in widening.instructions
        and wide.has(instruction)
        and own_line_of(instruction, of.is_own) in lines
    ]
    known = widening.values
    more = reach(others, consumers, lambda value: value not in known and wide.stays(value))
    return known | more.passed | more.stopped


def _cause(of: StepProgram, widening: _Widening, wide: _Wide) -> Cause:
    smallest = min(wide[convert] for convert in widening.converts)
    values = _with_backward(of, widening, wide)
    made = {v.instruction for v in values if wide[v.instruction] >= smallest / 4}
    affected = _affected(of, made)
    total = sum(entry.total for entry in affected)
    changes = [
        Resize(array.value, 0.5)
        for array in of.arrays
        if array.value.instruction in made and array.shape.dtype == _WIDE
    ]
    dots, line = widening.dots, widening.line
    convert, join, is_implicit = widening.first
    is_convert = convert.opcode == "convert"
    source = _source_text(convert) if is_convert else convert.shape
    where = short(line) if line else "an unknown line"
    after = counted(len(dots), "matmul") if dots else "kernels"
    confidence: Confidence = SEEN if is_convert and is_implicit else LIKELY
    helps = FOR_CAST
    follows = f"so its result is f32, and so are later ops, including {after}"
    if widening.is_stream:
        what = f"{where} creates {source}"
        follows = "so every sum with it, such as a residual stream, is f32"
        helps = FOR_STREAM
    elif convert.opcode in DOTS:
        what = f"{where} computes {source} by multiplying matrices in f32"
        follows = "so the gradients are f32, too, although the compiler narrows the operands"
        helps = FOR_MATMUL
    elif not is_convert:
        what = f"{where} computes {source} ({convert.opcode}) for matmuls with narrower operands"
    elif is_implicit:
        what = f"{where} combines {source} with an f32 operand ({join.opcode})"
        helps = FOR_PROMOTION
    else:
        what = f"{where} casts {source} to f32"
    if_wanted = f" (unless {'the cast' if is_convert else 'f32'} is intended)"
    return Cause(
        f"{what}, {follows}. The narrower dtype would halve the {time(total)} of the ops that write"
        f" or read these arrays, saving <gain>{if_wanted if confidence == LIKELY else ''}.",
        helps,
        confidence,
        [entry.executions for entry in affected],
        changes,
        place=of.place_at(convert),
        evidence={"shape": source},
    )


def _affected(of: StepProgram, made: set[Instruction]) -> list[Entry]:
    """Return the ledger entries of ops that write or read f32 arrays, excluding the optimizer's
    ops."""
    passing = STRUCTURE - {"fusion"}
    readers = {user for here in made for user in here.users if user.opcode not in passing}
    found: dict[int, Entry] = {}
    for here in made | readers:
        executed = of.executed(here)
        if executed and executed.op.phase != "other" and executed.op.instruction:
            entry = of.entry_of[executed.op.instruction]
            if entry.name in _SLOWED:
                found[id(entry)] = entry
    return list(found.values())
