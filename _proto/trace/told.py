"""Reads the numbers that a few events of a plane tell, as the allocator does in the host's.

Threads of a host have any number of other events: what has none of these is passed over unopened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from _proto import columns_pb2 as columns
from _proto import xplane_pb2 as pb
from _proto.errors import Damage
from _proto.trace.reader import Plane
from _proto.trace.wire import parse

# When, absolute in picoseconds; and numbers by the names of stats.
Told = tuple[int, dict[str, float]]
_NUMBERS = ("double_value", "uint64_value", "int64_value")


def told_in(plane: Plane, events: Collection[str], stats: Collection[str]) -> Iterator[Told]:
    """What events of these names say, line after line; of several stats of a name the last.

    Events that tell how often something occurred, not when, are left out.
    """
    ids = {metadata_id for metadata_id, name in plane.metadata_names() if name in events}
    name_of = {stat_id: name for name in stats for stat_id in plane.stat_ids(name)}
    for line in (line for name in plane.line_names if ids for line in plane.lines(name)):
        for data, at in line.legible():
            column = parse(columns.LineColumns, data)
            # An id of 0 may be left out.
            if column and ids.isdisjoint((0, *column.events.metadata_id)):
                continue
            told = parse(pb.LineEvents, data)
            if told is None:
                raise Damage(at, "the protobuf parser refuses it")
            for event in told.events:
                if event.metadata_id in ids and not event.HasField("num_occurrences"):
                    yield line.base_ps + event.offset_ps, _numbers(event.stats, name_of)


def _numbers(stats: Collection[pb.LineEvents.Stat], name_of: dict[int, str]) -> dict[str, float]:
    numbers = {}
    for stat in stats:
        kind = stat.WhichOneof("value")
        if kind in _NUMBERS and stat.metadata_id in name_of:
            numbers[name_of[stat.metadata_id]] = getattr(stat, kind)
    return numbers
