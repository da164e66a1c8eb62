"""Read stats of events: stats that are missing from the metadata of ops, and numbers such as run
ids.

Some captures from 2026 store an op's stats on its events. Lines contain many other events, so a
piece of a line is decoded only if a column shows that it can contain a wanted event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import chain

from _breakdown.light import NamedTuple
from _proto import columns_pb2 as columns, xplane_pb2 as pb
from _proto.errors import Damage
from _proto.trace.joined import AnyLine, AnyPlane, JoinedLine, JoinedPlane
from _proto.trace.lines import Line
from _proto.trace.plane import Plane, Stats
from _proto.trace.wire import decode, parse

# Names of wanted stats, by the metadata id of the op that lacks them.
Wanted = dict[int, set[str]]
# An event's absolute start in picoseconds, and the values of its stats by name.
EventNumbers = tuple[int, dict[str, float]]

_INTEGERS = ("uint64_value", "int64_value")
_NUMBERS = ("double_value", *_INTEGERS)
_UNSIGNED = 1 << 64


class EventInteger(NamedTuple):
    """An event, and the unsigned value of one of its stats. `line` is the line's name, or its id if
    it has no name."""

    line: str
    # Absolute start and duration, in picoseconds.
    start: int
    duration: int
    value: int
    name: str


def first_stats(
    plane: AnyPlane, line: AnyLine, wanted: Wanted, is_admitted: Callable[[int], bool]
) -> Iterator[tuple[int, str, Stats]]:
    """Find, for each wanted stat of an op, the first admitted event that has it.

    `is_admitted` receives an event's `offset_ps`. Yield the op's metadata id, the stat's name and
    the event's stats, and remove found stats from `wanted`.
    """
    if isinstance(line, JoinedLine):
        for part, shift, ids in sorted(line.shifted(), key=_first_start):
            # All parts share the sets in `wanted`, so a stat found in one part is not searched for
            # in the next.
            of_part = {
                part_id: wanted[joined_id]
                for part_id, joined_id in ids.items()
                if wanted.get(joined_id)
            }
            admits = partial(_is_admitted_later, is_admitted, shift)
            for part_id, name, stats in first_stats(ids.part, part, of_part, admits):
                yield ids[part_id], name, stats
        return
    assert not isinstance(plane, JoinedPlane), "the line of a joined plane must be joined"
    yield from _first_stats_of_part(plane, line, wanted, is_admitted)


def _first_start(part: tuple[Line, int, object]) -> int:
    line, shift, _ = part
    return (line.span_of_starts or (0, 0))[0] + shift


def _is_admitted_later(is_admitted: Callable[[int], bool], shift: int, offset: int) -> bool:
    return is_admitted(offset + shift)


def _first_stats_of_part(
    plane: Plane, line: Line, wanted: Wanted, is_admitted: Callable[[int], bool]
) -> Iterator[tuple[int, str, Stats]]:
    all_wanted = set(chain.from_iterable(wanted.values()))
    names = {stat_id: name for name in all_wanted for stat_id in plane.stat_ids(name)}
    for data, start in line.pieces_with(names.keys()):
        if _has_none_of(wanted.keys(), data):
            continue
        for event in decode(pb.LineEvents, data, start).events:
            lacking = wanted.get(event.metadata_id)
            if not lacking or event.HasField("num_occurrences") or event.duration_ps < 0:
                continue
            written = [stat for stat in event.stats if names.get(stat.metadata_id) in lacking]
            if not written or not is_admitted(event.offset_ps):
                continue
            span = start, start + len(data)
            stats = plane.stats_of(_as_xstats(written, data, start), span)
            for name in [name for name in lacking if name in stats]:
                lacking.remove(name)
                yield event.metadata_id, name, stats
            if not lacking:
                del wanted[event.metadata_id]


def _has_none_of(metadata_ids: Collection[int], data: bytes) -> bool:
    """Return whether a column shows that no event in a piece of a line has one of the metadata
    ids."""
    column = parse(columns.LineColumns, data)
    # Protobuf may omit an id that is 0.
    return column is not None and {0, *column.events.metadata_id}.isdisjoint(metadata_ids)


def _as_xstats(stats: Iterable[pb.LineEvents.Stat], piece: bytes, at: int) -> Iterator[pb.XStat]:
    """Decode an event's stats again, including texts. `LineEvents` leaves texts as bytes, because
    most of them are never needed."""
    for stat in stats:
        data = stat.SerializeToString()
        yield decode(pb.XStat, data, at + max(0, piece.find(data)))


def numbers_of_events(
    plane: AnyPlane, events: Collection[str], stats: Collection[str]
) -> Iterator[EventNumbers]:
    """Yield the numeric stats named in `stats` of all events named in `events`, line by line.

    If an event has several stats with the same name, the last one is used. Aggregated events are
    omitted, because they have no time.
    """
    for part in plane.parts:
        ids = {metadata_id for metadata_id, name in part.metadata_names() if name in events}
        name_of = {stat_id: name for name in stats for stat_id in part.stat_ids(name)}
        for line in (line for name in part.line_names if ids for line in part.lines(name)):
            for data, at in line.pieces():
                if _has_none_of(ids, data):
                    continue
                for event in decode(pb.LineEvents, data, at).events:
                    if event.metadata_id not in ids or event.HasField("num_occurrences"):
                        continue
                    numbers = {
                        name_of[stat.metadata_id]: getattr(stat, kind)
                        for stat in event.stats
                        if (kind := stat.WhichOneof("value")) in _NUMBERS
                        and stat.metadata_id in name_of
                    }
                    yield line.base_ps + event.offset_ps, numbers


def integers_of_events(
    plane: AnyPlane, stat: str, line_names: Collection[str] | None = None
) -> Iterator[EventInteger]:
    """Yield the events whose `stat` has an integer value, line by line."""
    for part in plane.parts:
        ids = part.stat_ids(stat)
        names = part.line_names if line_names is None else line_names
        name_of: dict[int, str] = {}
        for line in (line for name in names if ids for line in part.lines(name)):
            for data, at in line.pieces():
                if not _has_stat(ids, data):
                    continue
                for event in decode(pb.LineEvents, data, at).events:
                    for written in event.stats:
                        kind = written.WhichOneof("value")
                        if written.metadata_id in ids and kind in _INTEGERS:
                            if event.metadata_id not in name_of:
                                metadata = part.metadata(event.metadata_id)
                                name_of[event.metadata_id] = metadata.name if metadata else ""
                            yield EventInteger(
                                line.name or str(line.id),
                                line.base_ps + event.offset_ps,
                                event.duration_ps,
                                getattr(written, kind) % _UNSIGNED,
                                name_of[event.metadata_id],
                            )


def _has_stat(stat_ids: Collection[int], data: bytes) -> bool:
    """Return whether an event in a piece of a line can have one of the stats, according to a
    column."""
    column = parse(columns.LineStatIds, data)
    # Protobuf may omit an id that is 0.
    return column is None or not {0, *column.events.stats.metadata_id}.isdisjoint(stat_ids)


def integers_in(plane: AnyPlane, stat: str, line_names: Collection[str] | None = None) -> set[int]:
    """Return the unsigned values of a stat on events, or an empty set if the events cannot be
    read."""
    try:
        return {event.value for event in integers_of_events(plane, stat, line_names)}
    except Damage:
        return set()
