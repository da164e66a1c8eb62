"""Find arrays in memory that repeat a smaller array."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import Change, Resize, Retime
from _breakdown.analysis.arrays.of_step import TEMPORARY, StepArray
from _breakdown.analysis.causes.shared.cause import SEEN, Cause
from _breakdown.analysis.causes.shared.resized import sizes_of
from _breakdown.analysis.causes.shared.step_program import StepProgram
from _breakdown.analysis.sizes.law import Moved
from _breakdown.analysis.sizes.repeats import is_broadcast
from _breakdown.pipeline.groups import grouped
from _breakdown.units import size

REMEDY = (
    "Let ops read the small array: broadcast where it is used, split the other operand of an einsum"
    " into groups, or use a kernel that shares keys and values between heads (splash attention)."
)


# Smaller arrays are not worth a look, if each unrolled layer has one like it.
_LAYERS = 20


def find(of: StepProgram) -> Iterator[Cause]:
    sizes, multiplied = sizes_of(of), of.explained_by("repeated_rows")
    found = [
        (array, moved)
        for array in of.arrays
        if array.moved * _LAYERS > of.floor * float(of.roofs.hbm or 0)
        # Other writes update parts of a buffer that the first one only fills.
        if len(array.writes) == 1 and array.reads and of.arrays.kind_of(array) == TEMPORARY
        if not multiplied.issuperset(id(use.ran) for use in array.reads)
        if (moved := sizes.repeat.left(array.value)) and is_broadcast(moved)
        if not _fills_lanes(array, moved)
    ]
    for rows in grouped((each[0].shape.dims, each) for each in found).values():
        biggest, moved = max(rows, key=lambda row: row[0].moved)
        makers = list(dict.fromkeys(ran for array, _ in rows for ran in array.makers))
        readers = [use.ran for array, _ in rows for use in array.reads]
        changes: list[Change] = [Resize(array.value, each.left) for array, each in rows]
        # What is computed of equal elements is equal, too.
        changes += [Retime(ran, ran.total * sizes.left_of(sizes.repeat, ran)) for ran in makers]
        yield Cause(
            f"<line> repeats an array {round(1 / moved.left)} times, and {biggest.shape.text}"
            f" ({size(biggest.shape.n_bytes or 0)}) is written to memory. Reading the small array"
            " instead would save <gain>.",
            REMEDY,
            SEEN,
            list(dict.fromkeys([*makers, *readers])),
            changes,
            place=of.place_at(moved.seed),
            evidence={"shape": biggest.shape.text},
        )


def _fills_lanes(array: StepArray, moved: Moved) -> bool:
    """Return whether a kernel reads numbers that are repeated along the last dimension."""
    last = {(len(array.shape.dims) - 1,)}
    return set(moved.parts) == last and all(use.ran.op.kernel for use in array.reads)
