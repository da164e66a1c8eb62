"""Find buffers that are rewritten or copied whole although only a few of their elements change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from _breakdown.analysis.arrays.dims import array_of
from _breakdown.analysis.arrays.engine import Retime, removal_of
from _breakdown.analysis.arrays.graph import (
    LAYOUT,
    STRUCTURE,
    Value,
    consumers,
    is_same,
    loop_around,
    operand,
    reach,
)
from _breakdown.analysis.arrays.of_step import StepArray, Use
from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause, CausePlace
from _breakdown.analysis.causes.shared.one_hots import Hot, hot_of, near_one_hots, unchanged
from _breakdown.analysis.causes.shared.step_program import StepProgram
from _breakdown.analysis.sizes.edges import last_of, parts_of
from _breakdown.light import NamedTuple
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.units import counted, size
from _proto import hlo_pb2 as pb
from _proto.hlo.program import Instruction
from _proto.trace.wire import parse

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
FOR_PADDED = (
    "Keep the array in its padded shape from step to step, or do not pad it: a scatter drops rows"
    ' whose index is out of range (`.at[i].set(rows, mode="drop")`).'
)

FOR_SPLIT = (
    "Don't split and join arrays in the step: update the whole array at an index for the part and"
    " the rows (`.at[0, rows].set(new)`), or pass the parts as arrays of their own."
)

# Instructions that change parts of an array in place.
_IN_PLACE = frozenset(("dynamic-update-slice", "scatter"))
# Maximum number of updates of a part that follow each other.
_MOST_UPDATES = 16
# Instructions of ops that only cut and join arrays, possibly with a cast.
_MOVING = STRUCTURE | LAYOUT | {"concatenate", "constant", "convert", "maximum", "pad", "slice"}


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
    yield from _undone_pads(of)
    yield from _undone_splits(of)
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


def _is_free(of: StepProgram, array: StepArray, heres: Iterable[Instruction]) -> bool:
    """Return whether an array is large, and instructions can update it in place."""
    is_kept = array.is_parameter and not of.arrays.is_donated(array)
    is_large = (array.shape.n_bytes or 0) >= _MIN_BYTES
    return is_large and not is_kept and not any(_is_needed(of, array, here) for here in heres)


def _undone_pads(of: StepProgram) -> Iterator[Cause]:
    """Yield the causes for arrays that are padded, updated, and cut to their old shape."""
    pairs = [pair for pad in of.run_with("pad") if (pair := _pad_and_cut(of, pad))]
    for place, row in grouped((of.place_at(pad), (pad, cut)) for pad, cut in pairs).items():
        yield _of_copies(
            f"<line> pads {counted(len(row), 'array')} such as {row[0][1].shape}, ops update parts"
            " of the result, and a slice cuts the padding off, so that all is copied twice.",
            FOR_PADDED,
            [of.ran_of[here] for pair in row for here in pair],
            place,
            row[0][1].shape,
        )


def _undone_splits(of: StepProgram) -> Iterator[Cause]:
    """Yield the causes for arrays that are cut in parts, updated, and joined again."""
    joins = of.with_opcodes("concatenate", "maximum")
    found = [(join, slices) for join in joins if (slices := _slices_of(of, join))]
    for place, row in grouped((of.place_at(join), (join, each)) for join, each in found).items():
        ops = map(of.executed, [here for join, slices in row for here in (*slices, join)])
        yield _of_copies(
            f"<line> joins {counted(len(row), 'array')} such as {row[0][0].shape} of slices of the"
            " same array, of which ops update parts, so that all is copied twice.",
            FOR_SPLIT,
            [ran for ran in dict.fromkeys(ops) if ran and _only_moves(ran)],
            place,
            row[0][0].shape,
        )


def _of_copies(
    says: str, remedy: str, members: list[Executions], place: CausePlace, shape: str | None
) -> Cause:
    says += " Without these copies, the step would save <gain>."
    changes, evidence = removal_of(members), {"shape": shape}
    return Cause(says, remedy, SEEN, members, changes, place=place, evidence=evidence)


def _slices_of(of: StepProgram, join: Instruction) -> list[Instruction]:
    """Return the slices that an op joins to the array from which they are, after updates in place,
    if nothing needs the old array afterwards."""
    slices, is_updated, ran = [], False, of.executed(join)
    end = ran.op.instruction if ran and _only_moves(ran) else None
    for edge in parts_of(Value(join)) if end else ():
        value = last_of(edge.given, _is_same)
        # In a damaged program, an update can be its own operand.
        for _ in range(_MOST_UPDATES):
            if _is_in_place(value) and value.instruction.operands:
                is_updated = True
                value = last_of(Value(value.instruction.operands[0]), _is_same)
        slices.append(value.instruction)
    if (
        not end
        or not is_updated
        or any(one.opcode != "slice" or not one.operands for one in slices)
    ):
        return []
    sources = {last_of(Value(one.operands[0])) for one in slices}
    old = of.arrays.array_at(sources.pop()) if len(sources) == 1 else None
    sizes = [array.n_elements if (array := array_of(one)) else 0 for one in (join, *slices)]
    is_whole = len({tuple(one.message.slice_dimensions) for one in slices}) == len(slices)
    if not old or {old.shape.n_elements, sum(sizes[1:])} != {sizes[0]} or not is_whole:
        return []
    return slices if _is_free(of, old, [end]) else []


def _is_same(here: Instruction) -> bool:
    return is_same(Value(here))


def _only_moves(ran: Executions) -> bool:
    return ran.op.instruction is not None and ran.op.instruction.opcodes <= _MOVING


def _pad_and_cut(of: StepProgram, pad: Instruction) -> tuple[Instruction, Instruction] | None:
    """Return a pad, and the slice that cuts the array to its old shape after updates in place, if
    nothing else reads the padded array, or needs the old one afterwards."""
    given = operand(pad, 0)
    old = of.arrays.array_at(Value(given)) if given else None
    passed, ends = reach([Value(pad)], consumers, _is_in_place)
    updates = [of.executed(value.instruction) for value in passed if _is_in_place(value)]
    changing = [ran.op.instruction for ran in updates if ran and ran.op.instruction]
    wide = filter(None, map(of.arrays.array_at, passed))
    if (
        not old
        or not updates
        or len(ends) != 1
        or not _is_free(of, old, changing)
        or any(array.is_result for array in wide)
    ):
        return None
    cut = ends.pop().instruction
    return (pad, cut) if cut in of.ran_of and _is_undone(pad, cut) else None


def _is_in_place(value: Value) -> bool:
    return value.instruction.opcode in _IN_PLACE


def _is_undone(pad: Instruction, cut: Instruction) -> bool:
    """Return whether an instruction is a slice of exactly what a pad was given."""
    config = parse(pb.PaddingConfig, pad.message.padding_config) or pb.PaddingConfig()
    edges = [(edge.edge_padding_low, 1 + edge.interior_padding) for edge in config.dimensions]
    parts = (parse(pb.SliceDimensions, data) for data in cut.message.slice_dimensions)
    taken = [(part.start, part.stride) for part in parts if part]
    given = operand(pad, 0)
    return edges == taken and given is not None and given.shape == cut.shape
