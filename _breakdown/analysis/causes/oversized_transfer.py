"""Find collectives that move far more bytes than the ops next to them need."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.resized import cause_of, longest_of, sizes_of
from _breakdown.analysis.causes.shared.step_program import (
    StepProgram,
    collective_name_of,
    devices_of,
)
from _breakdown.analysis.sizes.edges import EXCHANGE
from _breakdown.analysis.sizes.part import LOOKUP, SAME
from _breakdown.units import percentage

FOR_PART = (
    "Take the part before the collective. If each device takes another part, give the array the"
    " sharding of its parts, for example by keeping two arrays, not one that is cut in halves."
)
FOR_COPIES = (
    "Let the collective move the smaller arrays, and pad or broadcast them, or compute with them,"
    " afterwards."
)
FOR_TABLE = (
    "Split the table along its rows over the devices, so that only the rows that are used move."
)


def find(of: StepProgram) -> Iterator[Cause]:
    sizes = sizes_of(of)
    made = sizes.ops_of(EXCHANGE, sizes.origin, sizes.addend)
    for found, does, remedy in (
        (sizes.ops_of(EXCHANGE, sizes.part), "of which only a part is used", FOR_PART),
        (sizes.ops_of(EXCHANGE, sizes.zero), "which is zero except for a part", FOR_TABLE),
        ([row for row in made if row.is_repeated], "which is made of smaller arrays", FOR_COPIES),
    ):
        # `reduce_then_slice` has those of which each device keeps its own part.
        rows = [row for row in found if not row.is_own_part]
        if not rows:
            continue
        longest = longest_of(rows)
        is_part, n = longest.law is sizes.part, devices_of(longest.ran).size
        takes = longest.takes if is_part else set()
        among = f" among {n} devices" if n else ""
        more = f" ({len(rows) - 1} more like it)" if len(rows) > 1 else ""
        says = (
            f"The {collective_name_of(longest.ran.op)} at <line>{among}{more} moves"
            f" {longest.shape}, {does}: moving this part would take"
            f" {percentage(100 * longest.left)} of the bytes, and save <gain>."
        )
        is_same = remedy == FOR_COPIES or takes == {SAME}
        helps = FOR_TABLE if LOOKUP in takes else remedy
        yield cause_of(rows, says, helps, SEEN if is_same else LIKELY)
