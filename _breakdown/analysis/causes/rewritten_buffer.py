"""Find buffers that are rewritten whole although only a few of their elements change."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import Retime
from _breakdown.analysis.arrays.graph import loop_around
from _breakdown.analysis.arrays.of_step import StepArray, Use
from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause, CausePlace
from _breakdown.analysis.causes.shared.one_hots import Hot, hot_of, near_one_hots, unchanged
from _breakdown.analysis.causes.shared.step_program import StepProgram
from _breakdown.light import NamedTuple
from _breakdown.pipeline.executions import Executions
from _breakdown.units import counted, size
from _proto.hlo.program import Instruction

# Ignore smaller arrays, which cost almost nothing.
_MIN_BYTES = 1 << 20
# An update of a position can move eight rows, the height of a tile. So a quarter of a dimension of
# 32 is moved at most.
_ROWS, _MIN_SIZE = 8, 32
# Large reads and writes reach about this part of the peak bandwidth.
_EFFICIENCY = 0.8

WHAT_HELPS = (
    "Write only the new elements: lax.dynamic_update_slice or .at[i].set with one index for all"
    " rows, in a donated buffer. If rows have an index each, compare one scatter (.at[rows, i].set)"
    " with the mask, and avoid a loop of updates."
)


class _Update(NamedTuple):
    """An array that an op writes: the old array, and what selects the elements that change."""

    before: StepArray
    after: StepArray
    hot: Hot
    place: CausePlace
    # Bytes that all executions of the op move for elements that stay as they are.
    written: float
    read: float

    @property
    def n_bytes(self) -> float:
        return self.written + self.read


def find(of: StepProgram) -> Iterator[Cause]:
    # A file updates all its buffers, such as keys and values, in the same way.
    rows: dict[str, dict[Executions, list[_Update]]] = {}
    near = {of.executed(value.instruction) for value in near_one_hots(of.with_opcodes("compare"))}
    for ran in of.long_ops if near else ():
        if ran in near and not ran.op.dot and (updates := _updates_of(of, ran)):
            file, _, _ = (updates[0].place.source_user or "").rpartition(":")
            rows.setdefault(file, {})[ran] = updates
    for row in rows.values():
        updates = [update for found in row.values() for update in found]
        largest = max(updates, key=lambda update: update.n_bytes)
        shape = largest.after.shape.text
        is_seen = all(_is_unambiguous(of, update) for update in updates)
        has_one_index = all(update.hot.n_indices == 1 for update in updates)
        gain = (
            "Updating in place would save <gain>."
            if has_one_index
            else "Each row has its own index, so the capture does not tell how long updates would"
            " take."
        )
        yield Cause(
            f"{counted(len(row), 'op')} at <line> rewrite buffers such as {shape} to change a few"
            f" elements that a mask selects: {size(round(sum(u.n_bytes for u in updates)))} that"
            f" stay as they are. {gain}",
            WHAT_HELPS,
            SEEN if is_seen else LIKELY,
            list(row),
            [Retime(ran, _time_after(of, ran, found)) for ran, found in row.items()]
            if has_one_index
            else [],
            place=largest.place if largest.place.source_user else None,
            evidence={"shape": shape},
        )


def _is_unambiguous(of: StepProgram, update: _Update) -> bool:
    is_kept = update.before.is_parameter and not of.arrays.is_donated(update.before)
    return update.hot.n_indices == 1 and not is_kept


def _time_after(of: StepProgram, ran: Executions, updates: list[_Update]) -> float:
    uses = [use for _, use in of.arrays.uses_of[ran]]
    n_bytes = sum(update.n_bytes for update in updates)
    saved = ran.total * n_bytes / sum(use.n_bytes for use in uses)
    speed = _EFFICIENCY * float(of.roofs.hbm or 0)
    if speed and sum(use.is_write for use in uses) > len(updates):
        # What makes the other results can take longer than the bytes.
        saved = min(saved, n_bytes / speed)
    return ran.total - saved


def _updates_of(of: StepProgram, ran: Executions) -> list[_Update]:
    uses = of.arrays.uses_of.get(ran, ())
    read = {array.shape.dims for array, use in uses if not use.is_write}
    written = [(array, use) for array, use in uses if use.is_write]
    found = [
        update
        for array, use in written
        if array.shape.dims in read
        and (array.shape.n_bytes or 0) >= _MIN_BYTES
        and (update := _update_of(of, array, use))
    ]
    # What makes another result may need the old array as a whole.
    return found if len(found) == len(written) else [u._replace(read=0) for u in found]


def _update_of(of: StepProgram, new: StepArray, use: Use) -> _Update | None:
    """Return the update if an op only changes the elements of an array that a mask selects."""
    here = use.ran.op.instruction
    kept = unchanged(here, use.path) if here else None
    old = of.arrays.array_at(kept.value) if kept else None
    hot = hot_of(kept.compare) if kept else None
    if (
        not here
        or not kept
        or not old
        or not hot
        or hot.size < _MIN_SIZE
        or old.shape.dims != new.shape.dims
    ):
        return None
    if old is not new and _is_needed(of, old, here):
        return None
    part = _ROWS / hot.size
    read = sum(each.n_bytes for each in old.reads if each.ran is use.ran)
    return _Update(
        old, new, hot, of.place_at(kept.update), use.n_bytes * (1 - part), read * (1 - part)
    )


def _is_needed(of: StepProgram, array: StepArray, here: Instruction) -> bool:
    """Return whether ops read an array after an instruction, so that it cannot be updated in
    place."""
    readers = (use.ran.op.instruction for use in array.reads)
    is_read_later = any(reader and of.order[reader] > of.order[here] for reader in readers)
    made_in = array.value.instruction.computation
    return is_read_later or loop_around(made_in) is not loop_around(here.computation)
