"""Find each host's planes in a trace. A trace can contain several records or a merged capture."""

from __future__ import annotations

from collections.abc import Collection, Set
from contextlib import suppress

from _breakdown.light import NamedTuple
from _proto import xplane_pb2 as pb
from _proto.errors import Damage
from _proto.trace.event_stats import integers_in
from _proto.trace.joined import AnyPlane, JoinedPlane
from _proto.trace.plane import Plane, Span, Stats, key_of, plane_name
from _proto.trace.ranks import (
    PROGRAMS,
    THREAD_PLANES,
    Rank,
    host_labels,
    kind_of_plane,
    planes_named,
    ranks_of,
    split_hosts,
)
from _proto.trace.source import Source
from _proto.trace.wire import VARINT, HeldBytes, decode, fields, known_fields, signed, text

_MODULES_LINE, _RUN_ID = "XLA Modules", "run_id"
# A stat of device planes, and field numbers of the message in this stat.
_CORE_DETAILS, _DEVICE_ORDINAL, _GLOBAL_CORE_ID = "core_details", 2, 6

# The parts of each plane, by plane name: one part for each record that contains the plane.
_Planes = dict[str, list[Span]]
# A plane's name and parts.
NamedPlane = tuple[str, list[Span]]


class HostInFile(NamedTuple):
    """A host in a file: its index among all hosts, and its name, or None if the file does not
    contain the name."""

    number: int
    name: str | None
    # Names of all hosts in the file, or their numbers if the names are unknown.
    labels: list[str]

    @property
    def names(self) -> tuple[str, str]:
        """Return the values of --host that select this host."""
        return self.label, str(self.number)

    @property
    def is_one_of_several(self) -> bool:
        return len(self.labels) > 1

    @property
    def label(self) -> str:
        return self.labels[self.number]


class Attachment(NamedTuple):
    """An entry of event metadata that contains a file: the entry's key and name, the position of
    the file's bytes, and a number.

    `span` or `number` is None if the entry lacks the corresponding stat.
    """

    key: int
    name: str
    span: Span | None
    number: int | None


class Trace:
    """The planes of one host in a trace."""

    def __init__(self, source: Source, planes: _Planes, host: HostInFile) -> None:
        self._source = source
        self._planes = planes
        self.host = host
        self.ranks = ranks_of(self.plane_names)
        self._rank_of: dict[str, Rank | None] = {}

    @property
    def plane_names(self) -> list[str]:
        return list(self._planes)

    @property
    def is_merged(self) -> bool:
        """Return whether any plane name has a suffix, which means that merging also renumbered the
        devices."""
        return any(kind_of_plane(name) != name for name in self.plane_names)

    def device_named(self, name: str) -> str | None:
        """Return the first plane that a device's name refers to; process ids can be omitted."""
        return next(iter(planes_named(name, self.plane_names)), None)

    def in_file(self, damage: Damage) -> Damage:
        """Return damage with the offset in the file as given by the user."""
        return self._source.in_file(damage)

    @property
    def file_size(self) -> int:
        """Return the size of the unpacked file."""
        return self._source.size

    @property
    def notes(self) -> list[str]:
        """Return notes about data that the file lacks because of its format."""
        notes = self._source.notes
        if self._source.is_riegeli and not any(rank.named(PROGRAMS) for rank in self.ranks):
            notes.append(
                "continuous captures (.riegeli) contain no programs, so memory, likely source lines"
                " and the costs that kernels declare are unknown"
            )
        return notes

    def plane(self, name: str) -> AnyPlane:
        parts = [Plane(name, self._source, *span) for span in self._planes[name]]
        return parts[0] if len(parts) == 1 else JoinedPlane(parts)

    def rank_of(self, device: str) -> Rank | None:
        """Return the rank of a device, or None if the rank is unknown."""
        if len(self.ranks) == 1:
            return self.ranks[0]
        for rank in self.ranks:
            if device in rank.names:
                return rank
        if device not in self._rank_of:
            self._rank_of[device] = self._rank_by_run_ids(device)
        return self._rank_of[device]

    def _rank_by_run_ids(self, device: str) -> Rank | None:
        """Return the rank whose threads launched the device's programs, or None if there is not
        exactly one."""
        launched = integers_in(self.plane(device), _RUN_ID, [_MODULES_LINE])
        found = []
        for rank in self.ranks:
            planes = map(self.plane, thread_planes(rank))
            if any(not launched.isdisjoint(integers_in(plane, _RUN_ID)) for plane in planes):
                found.append(rank)
        return found[0] if len(found) == 1 else None

    def device_ordinal(self, device: str) -> int | None:
        """Return the device's number on its host, which merging does not change."""
        return _core_detail(self.plane(device).stats(), _DEVICE_ORDINAL)

    def program_planes(self, device: str | None) -> list[str]:
        """Return the planes that contain programs. Planes of the device's own rank come first."""
        own = self.rank_of(device) if device else None
        ranks = sorted(self.ranks, key=lambda rank: rank is not own)
        return [name for rank in ranks for name in rank.named(PROGRAMS)]

    def read(self, start: int, length: int) -> bytes:
        """Read bytes of the file, such as the contents of an attachment."""
        return self._source.read(start, length)

    def attachments(
        self, plane: str, contents: Collection[str], number: str, damage: list[Damage]
    ) -> list[Attachment]:
        """List the entries of a plane's event metadata.

        An entry contains a file in a stat whose name is in `contents`, and a number in the stat
        with the name `number`. The files may be large, so they are not read. Damaged entries are
        omitted, and their damage is added to `damage`.
        """
        found = []
        for span in self._planes[plane]:
            found += _attachments(self._source, span, contents, number, damage)
        return found


def global_core_id(stats: Stats) -> int | None:
    """Return the id that identifies a device among the devices of all hosts, from the stats of its
    plane."""
    return _core_detail(stats, _GLOBAL_CORE_ID)


def _core_detail(stats: Stats, field: int) -> int | None:
    details = stats.get(_CORE_DETAILS)
    if not isinstance(details, bytes):
        return None
    with suppress(Damage):
        for _, number, wire, value, _ in fields(HeldBytes(details), 0, len(details)):
            if number == field and wire == VARINT:
                return value
        return 0
    return None


def thread_planes(rank: Rank) -> list[str]:
    return [name for kind in THREAD_PLANES for name in rank.named(kind)]


class Contents:
    """The planes and the texts of a file, up to the first damage. Damage inside a plane is found
    only when the plane is read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        # Name and parts of each plane. Planes of several records are joined by their names.
        self.planes: list[NamedPlane] = []
        self._is_joined = False
        # All records of a host repeat its name, so keep each text once.
        self._texts: dict[str, dict[str, None]] = {"hostnames": {}, "errors": {}, "warnings": {}}
        self.damage = source.damage
        try:
            self._walk()
        except Damage as damage:
            self.damage = self.damage or source.in_file(damage)

    def _walk(self) -> None:
        source = self.source
        if not source.size:
            raise Damage(0, _nothing_in(source))
        for of_record in source.records:
            n_before = len(self.planes)
            self._add_record(*of_record)
            self._is_joined = self._is_joined or 0 < n_before < len(self.planes)
        if self._is_joined:
            parts: _Planes = {}
            for name, spans in self.planes:
                parts.setdefault(name, []).extend(spans)
            self.planes = list(parts.items())
        if not self.planes and (other := source.not_a_trace()):
            raise Damage(0, other)

    def _add_record(self, start_of_record: int, end_of_record: int) -> None:
        read = self.source.read
        found = known_fields(pb.XSpace, self.source, start_of_record, end_of_record)
        for _, field_name, start, end in found:
            if field_name == "planes":
                self.planes.append((plane_name(self.source, start, end), [(start, end)]))
            else:
                text_of_field = read(start, end - start).decode(errors="replace")
                self._texts[field_name][text_of_field] = None

    @property
    def texts(self) -> dict[str, list[str]]:
        """Return the file's `hostnames`, `errors` and `warnings`."""
        return {name: list(texts) for name, texts in self._texts.items()}

    def by_host(self) -> list[tuple[HostInFile, list[NamedPlane]]]:
        """Return each host of the file, with its planes."""
        if self._is_joined:
            return [(HostInFile(0, None, ["0"]), self.planes)]
        names = [name for name, _ in self.planes]
        by_host = split_hosts(names)
        labels = host_labels(len(by_host), self._texts["hostnames"])
        has_names = len(self._texts["hostnames"]) == len(by_host)
        return [
            (
                HostInFile(number, labels[number] if has_names else None, labels),
                [self.planes[i] for i in indices],
            )
            for number, indices in enumerate(by_host)
        ]

    def traces(self) -> list[Trace]:
        """Return one Trace for each host."""
        if self.damage is not None:
            raise self.damage
        traces = []
        for host, planes in self.by_host():
            first: _Planes = {}
            for name, spans in planes:
                # Only the names of device planes are unique on a host. If several planes of another
                # kind have the same name, use the first.
                first.setdefault(name, spans)
            traces.append(Trace(self.source, first, host))
        return traces


def _nothing_in(source: Source) -> str:
    """Return the reason why no planes can be read from a file."""
    if not source.is_riegeli:
        return "the file is empty; the profiler leaves such a file if a trace exceeds 2 GiB"
    return "all records of the file are empty" if source.records else "the file holds no records"


def _attachments(
    source: Source, span: Span, contents: Collection[str], number: str, damage: list[Damage]
) -> list[Attachment]:
    entries: dict[str, list[Span]] = {"event_metadata": [], "stat_metadata": []}
    try:
        for _, name, start, end in known_fields(pb.XPlane, source, *span):
            if name in entries:
                entries[name].append((start, end))
    except Damage as error:
        damage.append(error)
    stat_names = {}
    for start, end in entries["stat_metadata"]:
        try:
            entry = decode(pb.StatMetadataEntry, source.read(start, end - start), start)
        except Damage as error:
            damage.append(error)
        else:
            stat_names[entry.key] = entry.value.name
    content_ids = {i for i, name in stat_names.items() if name in contents}
    number_ids = {i for i, name in stat_names.items() if name == number}
    attachments = []
    for start, end in entries["event_metadata"]:
        try:
            attachments.append(_attachment(source, start, end, content_ids, number_ids))
        except Damage as error:
            damage.append(error)
    return attachments


def _attachment(
    source: Source, start: int, end: int, content_ids: Set[int], number_ids: Set[int]
) -> Attachment:
    name = ""
    content: Span | None = None
    number: int | None = None
    for _, of_entry, value, stop in known_fields(pb.EventMetadataEntry, source, start, end):
        if of_entry != "value":
            continue
        for at, of_value, inner, inner_end in known_fields(pb.XEventMetadata, source, value, stop):
            if of_value == "name":
                name = text(source.read(inner, inner_end - inner), at, "a name")
            elif of_value == "stats":
                stat_id, kind, place = _stat_at(source, inner, inner_end)
                if stat_id in content_ids and kind == "bytes_value":
                    content = content or place
                elif stat_id in number_ids and kind in ("uint64_value", "int64_value"):
                    number = place[0]
    return Attachment(key_of(source, start, end), name, content, number)


def _stat_at(source: Source, start: int, end: int) -> tuple[int, str, Span]:
    """Return a stat's id, the kind of its value, and the span of the value's bytes.

    For an integer, the start of the span is replaced with the unsigned value.
    """
    stat_id, kind, span = 0, "", (0, 0)
    for _, name, value, stop in known_fields(pb.XStat, source, start, end):
        if name == "metadata_id":
            stat_id = signed(value)
        else:
            kind, span = name, (value, stop)
    return stat_id, kind, span
