"""List the readable contents of a trace, which may be from a device other than a TPU.

`Trace` opens one plane, and raises Damage if it is damaged. A survey reads all planes. If a plane,
a line or a piece of a line is damaged, the survey keeps everything before the damage, and continues
after the damaged part if the length of this part is readable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from google.protobuf.message import Message

from _proto import xplane_pb2 as pb
from _proto.errors import CutOff, Damage
from _proto.trace.lines import cut_into_pieces
from _proto.trace.plane import Plane, Span, Value, plane_name
from _proto.trace.source import Source
from _proto.trace.trace import Trace, hosts_in, nothing_in
from _proto.trace.wire import decode, known_fields, parse, signed, text


class Survey:
    """The contents of a file. The constructor walks from plane to plane; `damage` is the damage
    that stopped the walk early, or None."""

    def __init__(self, source: Source) -> None:
        self.source = source
        # The parts of each plane: one part for each record that contains the plane.
        self._spans: list[list[Span]] = []
        self.names: list[str] = []
        self.texts: dict[str, list[str]] = {"hostnames": [], "errors": [], "warnings": []}
        self.damage: Damage | None = None
        for of_record in source.records:
            try:
                self._add_record(*of_record)
            except Damage as error:
                self.damage = self.damage or error
        other = source.not_a_trace() if self.damage or not self._spans else None
        if other is not None:
            self.damage = Damage(self.damage.offset if self.damage else 0, other)
        if not source.size and not source.damage:
            self.damage = Damage(0, nothing_in(source))
        source.expect(source.size)

    def _add_record(self, start_of_record: int, end_of_record: int) -> None:
        source, is_joined = self.source, self.n_records > 1
        found = _readable_fields(pb.XSpace, source, start_of_record, end_of_record, "planes")
        for at, field_name, start, end in found:
            if field_name == "planes":
                name = ""
                # Ignore damage here, because the method `plane` reports it.
                with suppress(Damage):
                    name = plane_name(source, start, end)
                if is_joined and name in self.names:
                    self._spans[self.names.index(name)].append((start, end))
                else:
                    self.names.append(name)
                    self._spans.append([(start, end)])
            else:
                entry = text(source.read(start, end - start), at, f"an entry of {field_name}")
                # All records of a host repeat the host's name.
                if not is_joined or entry not in self.texts[field_name]:
                    self.texts[field_name].append(entry)

    @property
    def n_records(self) -> int:
        return len(self.source.records)

    def plane(self, index: int) -> SurveyedPlane:
        """Open the plane with the given index in `names`."""
        name = self.names[index]
        return SurveyedPlane(
            name, [PlanePart(name, self.source, *span) for span in self._spans[index]]
        )

    def hosts(self) -> list[Trace]:
        """Return the traces of the file's hosts. The file must not be damaged."""
        return hosts_in(self.source)


class SurveyedPlane:
    """A plane, joined from its parts in all records."""

    def __init__(self, name: str, parts: list[PlanePart]) -> None:
        self.name = name
        self.parts = parts

    @property
    def n_bytes(self) -> int:
        return sum(part.n_bytes for part in self.parts)

    @property
    def n_event_metadata(self) -> int:
        return sum(part.n_event_metadata for part in self.parts)

    @property
    def n_stat_metadata(self) -> int:
        return sum(len(part.stat_names) for part in self.parts)

    @property
    def stat_names(self) -> set[str]:
        return {part.stat_name(stat_id) for part in self.parts for stat_id in part.stat_names}

    @property
    def damage(self) -> Damage | None:
        """Return the first damage that was found in the plane."""
        return next((part.damage for part in self.parts if part.damage), None)

    def plane_stats(self) -> dict[str, Value | None]:
        """Return the plane's own stats; if records differ, those of the first record are used."""
        stats: dict[str, Value | None] = {}
        for part in self.parts:
            stats = part.plane_stats() | stats
        return stats

    def lines(self) -> Iterator[SurveyedLine]:
        """Yield the lines with their event counts, and store the first damage in `damage`."""
        lines: dict[object, list[LinePart]] = {}
        for part in self.parts:
            for n, line in enumerate(part.line_parts()):
                # If there is only one part, lines with the same name stay separate.
                key = n if len(self.parts) == 1 else (line.id, line.name)
                lines.setdefault(key, []).append(line)
        yield from map(SurveyedLine, lines.values())


class PlanePart(Plane):
    """The part of a plane in one record, with its lines in the file's order."""

    def __init__(self, name: str, source: Source, start: int, end: int) -> None:
        super().__init__(name, source)
        self.n_bytes = end - start
        # The first damage that was found in the plane.
        self.damage: Damage | None = None
        self._index_damage: Damage | None = None
        self._line_spans: list[Span] = []
        try:
            self.index(_readable_fields(pb.XPlane, source, start, end, "lines"))
            plane_name(source, start, end)
        except Damage as error:
            self._index_damage = error

    def _add_line(self, start: int, end: int) -> None:
        self._line_spans.append((start, end))

    @property
    def n_event_metadata(self) -> int:
        return len(self._event_metadata)

    def stat_name(self, stat_id: int) -> str:
        """Return the name of a stat, or the id of a stat without a name."""
        return self.stat_names.get(stat_id) or str(stat_id)

    def line_parts(self) -> Iterator[LinePart]:
        for start, end in self._line_spans:
            line = LinePart(self, self.source, start, end)
            self.meet(line.damage)
            yield line
        self.meet(self._index_damage)

    def meet(self, damage: Damage | None) -> None:
        """Store the damage, unless other damage was stored before."""
        self.damage = self.damage or damage

    def events(self, line: LinePart) -> Iterator[tuple[int, Sequence[pb.XEvent]]]:
        """Yield the events of a line piece by piece, each with the offset of the piece."""
        for start, end in line.pieces:
            try:
                events = decode(pb.XLine, self.source.read(start, end - start), start).events
            except Damage as error:
                self.meet(error)
            else:
                yield start, events

    def event_name(self, metadata_id: int) -> str | None:
        """Return the name of an event, or None if the event has no name."""
        value = self._readable_entry(metadata_id)
        return value.name or None if value else None

    def metadata_stats(self, metadata_id: int) -> dict[str, Value | None]:
        value = self._readable_entry(metadata_id)
        at, _ = self._event_metadata.get(metadata_id, (0, 0))
        return self.resolved(value.stats, at) if value else {}

    def _readable_entry(self, metadata_id: int) -> pb.XEventMetadata | None:
        try:
            return self.entry(metadata_id)
        except Damage as error:
            self.meet(error)
            return None

    def plane_stats(self) -> dict[str, Value | None]:
        found: dict[str, Value | None] = {}
        for start, end in self._stats:
            try:
                stat = decode(pb.XStat, self.source.read(start, end - start), start)
            except Damage as error:
                self.meet(error)
            else:
                found |= self.resolved([stat], start)
        return found

    def resolved(self, stats: Iterable[pb.XStat], at: int) -> dict[str, Value | None]:
        """Return stats by name. If several stats have the same name, the last one is used. A stat
        without a value is None."""
        found: dict[str, Value | None] = {}
        for stat in stats:
            kind = stat.WhichOneof("value")
            value: Value | None = getattr(stat, kind) if kind else None
            if kind == "ref_value":
                value = self.stat_name(signed(stat.ref_value))
            elif kind == "compressed_str_value":
                try:
                    value = self.inflated(stat.compressed_str_value)
                except ValueError as error:
                    self.meet(Damage(at, f"a compressed string {error}"))
            found[self.stat_name(stat.metadata_id)] = value
        return found


class SurveyedLine:
    """A line, joined from its parts in all records. The parts can have different base times; the
    line's base time is the earliest of them."""

    def __init__(self, parts: list[LinePart]) -> None:
        self.parts = parts
        self.id, self.name = parts[0].id, parts[0].name
        self.display_name = next((part.display_name for part in parts if part.display_name), "")
        self.timestamp_ns = min(part.timestamp_ns for part in parts)

    @property
    def n_bytes(self) -> int:
        return sum(part.n_bytes for part in self.parts)

    @property
    def n_events(self) -> int:
        return sum(part.n_events for part in self.parts)

    def events(self) -> Iterator[tuple[PlanePart, int, int, Sequence[pb.XEvent]]]:
        """Yield a tuple for each piece: the part of the plane, the picoseconds to add to the
        piece's times, the offset of the piece in the file, and the events."""
        for part in self.parts:
            shift = (part.timestamp_ns - self.timestamp_ns) * 1000
            for at, events in part.plane.events(part):
                yield part.plane, shift, at, events


class LinePart:
    """The part of a line in one record. The constructor counts the events."""

    def __init__(self, plane: PlanePart, source: Source, start: int, end: int) -> None:
        self.plane = plane
        self.n_bytes = end - start
        self.pieces: list[Span] = []
        self.n_events = 0
        self.id = 0
        self.name = ""
        self.display_name = ""
        self.timestamp_ns = 0
        self.damage: Damage | None = None
        try:
            for begin, stop, frame in cut_into_pieces(source, start, end):
                self._add(begin, stop, frame)
                start = stop
        except Damage as error:
            self.damage = error
            with suppress(Damage):
                # The fields of the piece before the damage are complete.
                whole = parse(pb.LineFrame, source.read(start, max(0, error.offset - start)))
                if whole is not None:
                    self._add(start, error.offset, whole)

    def _add(self, start: int, end: int, frame: pb.LineFrame) -> None:
        self.pieces.append((start, end))
        self.n_events += len(frame.events)
        # If a field occurs twice, protobuf uses the last value.
        if frame.HasField("id"):
            self.id = frame.id
        if frame.HasField("name"):
            self.name = frame.name
        if frame.HasField("timestamp_ns"):
            self.timestamp_ns = frame.timestamp_ns
        self.display_name = frame.display_name or self.display_name


def _readable_fields(
    kind: type[Message], source: Source, start: int, end: int, messages: str
) -> Iterator[tuple[int, str, int, int]]:
    """Yield all known fields. If a message in the field named by `messages` is cut off, yield it,
    too."""
    try:
        yield from known_fields(kind, source, start, end)
    except CutOff as error:
        if error.number == kind.DESCRIPTOR.fields_by_name[messages].number:
            yield error.offset, messages, error.start, end
        raise
