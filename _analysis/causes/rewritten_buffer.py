"""Find buffers that are rewritten whole although only a few of their elements change.

needs: a program
headline: Rewriting whole buffers to change a few elements

What it finds: A buffer, such as a cache of keys and values, a replay buffer or a queue, into which
a step writes one position with a mask: `jnp.where(positions == i, new, cache)`, or by adding a
one-hot array times the new elements.

Why it costs: The op reads and writes all bytes of the buffer. An update in place writes the
position. The gain is the time of the op, without the part that the update of a few elements needs.
If each row has its own index, each is assumed to take 5 us.

How the program shows it: An op without a matmul writes an array of which each element comes
unchanged from an array of the same shape, or, where a one-hot array selects it, from elsewhere. A
one-hot array compares an index with the places along a dimension of at least 32. No later op reads
the old array. The cause is `seen` if one index is used for the whole buffer, and the old buffer is
not an argument that the caller keeps; otherwise it is `likely`.

What to change: `lax.dynamic_update_slice` or `.at[i].set` with one index for all rows, and donate
the buffer. If each row has its own index, write the rows in a loop, or with a kernel; `.at[rows,
i].set` is a scatter, which can be slower than the mask.

When it is intended: Many rows with an index each, or a buffer that is so small that one pass over
it takes no longer than an update. In axlearn, a broadcast mask instead of a scatter with an index
for each row made decoding of a 70B model faster (107 to 69 ms, pull request 972).

Example:

    # Before: reads and writes the whole cache
    here = jnp.arange(cache.shape[1]) == i
    cache = jnp.where(here[None, :, None], new[:, None], cache)
    # After: writes one position
    cache = lax.dynamic_update_slice_in_dim(cache, new[:, None], i, 1)
"""

from __future__ import annotations

from collections.abc import Iterator

from _analysis.arrays.engine import Retime
from _analysis.arrays.graph import STRUCTURE, Value, is_same, loop_around, origins, producers
from _analysis.arrays.of_step import StepArray, Use
from _analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _analysis.causes.shared.copies import long_ops
from _analysis.causes.shared.one_hots import EQUAL, UNEQUAL, Hot, hot_of, is_one_hot
from _analysis.causes.shared.step_program import StepProgram, place_of
from _light import NamedTuple
from _pipeline.executions import Executions
from _proto.hlo.program import Instruction
from _proto.hlo.shapes import Path
from _units import counted, size

# Ignore smaller arrays, which cost almost nothing.
_MIN_BYTES = 1 << 20
# An update of a position can move eight rows, the height of a tile. So a quarter of a dimension of
# 32 is moved at most.
_ROWS, _MIN_SIZE = 8, 32
# In picoseconds: the compiler updates rows with an index each in a loop, in which a round takes
# about as long as a small op.
_TIME_OF_ROW = 5_000_000
WHAT_HELPS = (
    "Write only the new elements: lax.dynamic_update_slice or .at[i].set with one index for all"
    " rows, in a donated buffer. Rows with an index each need a loop or a kernel."
)


class _Update(NamedTuple):
    """An array that an op writes: the old array, and what selects the elements that change."""

    before: StepArray
    after: StepArray
    hot: Hot
    # Bytes that all executions of the op move for elements that stay as they are.
    written: float
    read: float

    @property
    def n_bytes(self) -> float:
        return self.written + self.read


def find(of: StepProgram) -> Iterator[Cause]:
    rows: dict[str | None, dict[Executions, list[_Update]]] = {}
    for ran in long_ops(of):
        if not ran.op.dot and not ran.op.kernel and (updates := _updates_of(of, ran)):
            rows.setdefault(place_of(ran.op).source_user, {})[ran] = updates
    for row in rows.values():
        updates = [update for found in row.values() for update in found]
        largest = max(updates, key=lambda update: update.n_bytes).after.shape
        is_seen = all(_is_unambiguous(of, update) for update in updates)
        yield Cause(
            f"{counted(len(row), 'op')} at <line> rewrite buffers such as {largest.text} to change"
            f" a few elements that a mask selects: {size(round(sum(u.n_bytes for u in updates)))}"
            " that stay as they are. Updating in place would save <gain>.",
            WHAT_HELPS,
            SEEN if is_seen else LIKELY,
            list(row),
            [Retime(ran, _time_after(of, ran, found)) for ran, found in row.items()],
            evidence={"shape": largest.text},
        )


def _is_unambiguous(of: StepProgram, update: _Update) -> bool:
    is_kept = update.before.is_parameter and not of.arrays.is_donated(update.before)
    return update.hot.n_indices == 1 and not is_kept


def _time_after(of: StepProgram, ran: Executions, updates: list[_Update]) -> float:
    moved = sum(use.n_bytes for _, use in of.arrays.uses_of[ran])
    kept = 1 - sum(update.n_bytes for update in updates) / moved
    of_rows = sum(_TIME_OF_ROW * u.hot.n_indices for u in updates if u.hot.n_indices > 1)
    return min(ran.total, ran.total * kept + ran.n * of_rows)


def _updates_of(of: StepProgram, ran: Executions) -> list[_Update]:
    written = [(array, use) for array, use in of.arrays.uses_of.get(ran, ()) if use.is_write]
    found = [
        update
        for array, use in written
        if (array.shape.n_bytes or 0) >= _MIN_BYTES and (update := _update_of(of, array, use))
    ]
    # Another result may need the old array as a whole, so the op still reads it.
    return found if len(found) == len(written) else [u._replace(read=0) for u in found]


def _update_of(of: StepProgram, new: StepArray, use: Use) -> _Update | None:
    """Return the update if an op only changes the elements of an array that a mask selects."""
    here = use.executions.op.instruction
    before = _unchanged(here, use.path) if here else None
    old = of.arrays.array_at(before[0]) if before else None
    hot = hot_of(before[1]) if before else None
    if not here or not old or not hot or hot.size < _MIN_SIZE or old.shape.dims != new.shape.dims:
        return None
    if old is not new and _is_needed(of, old, here):
        return None
    part = _ROWS / hot.size
    read = sum(each.n_bytes for each in old.reads if each.executions is use.executions)
    return _Update(old, new, hot, use.n_bytes * (1 - part), read * (1 - part))


def _is_needed(of: StepProgram, array: StepArray, here: Instruction) -> bool:
    """Return whether ops read an array after an instruction, so that it cannot be updated in
    place."""
    readers = (use.executions.op.instruction for use in array.reads)
    is_read_later = any(reader and of.order[reader] > of.order[here] for reader in readers)
    made_in = array.value.instruction.computation
    return is_read_later or loop_around(made_in) is not loop_around(here.computation)


def _unchanged(here: Instruction, path: Path) -> tuple[Value, Instruction] | None:
    """Return the operand from which a result of an op has all elements but those that one-hot
    arrays select, and one of the comparisons that make these; None for other results."""
    value, compare = Value(here, path), None
    seen: set[Value] = set()
    while value not in seen:
        seen.add(value)
        opened = value.instruction
        if opened is not here and opened.computation is here.computation:
            return (value, compare) if compare else None
        found = _kept_by(opened)
        if found:
            value, compare = found
        elif opened.opcode in STRUCTURE or is_same(value):
            value = next(iter(producers(value)), value)
    return None


def _kept_by(here: Instruction) -> tuple[Value, Instruction] | None:
    """Return the operand whose elements an instruction keeps unless a one-hot array selects others,
    and the comparison that makes the one-hot array."""
    values = [Value(source) for source in here.operands]
    if here.opcode == "select" and len(values) == 3:
        mask, chosen, other = values
        if compare := _hot_in(mask):
            return other, compare
        return (chosen, compare) if (compare := _hot_in(mask, UNEQUAL)) else None
    if here.opcode in ("add", "multiply") and len(values) == 2:
        for kept, factor in (values, reversed(values)):
            parts = origins(factor, _is_spread)
            compares = (
                compare for value in parts if (compare := _neutral(value.instruction, here.opcode))
            )
            if compare := next(compares, None):
                return kept, compare
    return None


def _neutral(here: Instruction, opcode: str) -> Instruction | None:
    """Return the comparison that selects the only elements that are not 0, in a sum, or not 1, in
    a product."""
    values = [Value(source) for source in here.operands]
    if opcode == "multiply":
        is_rest = here.opcode == "subtract" and _is_constant(values[0])
        return _hot_in(values[1]) if is_rest and len(values) == 2 else None
    if here.opcode == "multiply":
        return next(filter(None, map(_hot_in, values)), None)
    if here.opcode == "select" and len(values) == 3 and _is_constant(values[2]):
        return _hot_in(values[0])
    return None


def _hot_in(value: Value, direction: bytes = EQUAL) -> Instruction | None:
    values = origins(value, _is_spread)
    return next((each.instruction for each in values if is_one_hot(each, direction)), None)


def _is_constant(value: Value) -> bool:
    return any(each.instruction.opcode == "constant" for each in origins(value, _is_spread))


def _is_spread(value: Value) -> bool:
    return value.instruction.opcode == "broadcast" or is_same(value)
