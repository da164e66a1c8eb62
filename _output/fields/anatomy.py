"""Fields of `anatomy`."""

from typing import TypedDict

from _output.fields.common import AbsentAnswer, FileAnswer, Lead
from _output.fields.units import BigNanoseconds, BigPicoseconds, Bytes, Count


class RawBytes(TypedDict):
    """Bytes in a stat."""

    bytes: Bytes
    """Number of bytes."""
    hex: str
    """The first 32 of them, in hexadecimal."""


# Integers beyond 2**53 are decimal strings. Null if the stat has no value, or not a finite one.
StatValue = int | float | str | RawBytes | None
CounterValue = int | float | str
OptionValue = bool | int | float | str | None


class AnatomyProgram(TypedDict):
    """A program with its HLO in the file."""

    program_id: str
    """Id, an unsigned decimal, as in `program` of the other modes: the stat `program_id` of the
    entry, otherwise the number in parentheses at the end of its name, otherwise its key in the
    plane's map."""
    name: str
    """Name."""
    hlo_bytes: Bytes
    """Size of its HLO."""


class EventName(TypedDict):
    """Events of one name."""

    name: str | None
    """Name of the events; null for events without one."""
    n: Count
    """Number of events."""
    total_dur_ps: BigPicoseconds
    """Sum of their durations."""


class Counter(TypedDict):
    """Readings of a counter."""

    name: str | None
    """Name of the events."""
    stat: str
    """The stat with numeric values, or numeric texts."""
    n: Count
    """Number of readings."""
    min: CounterValue
    """Smallest reading."""
    mean: float
    """Mean of the readings, whatever the time between them."""
    max: CounterValue
    """Largest reading."""
    first: CounterValue | None
    """First reading by time; null if no event has a time."""
    last: CounterValue | None
    """Last reading by time; null if no event has a time."""


class SampleEvent(TypedDict):
    """An event with all its stats."""

    name: str | None
    """Name of the event."""
    start_ps: BigPicoseconds | None
    """Start; null for events that only count occurrences."""
    dur_ps: BigPicoseconds
    """Duration as stored."""
    stats: dict[str, StatValue]
    """Stats of this event."""
    metadata_stats: dict[str, StatValue]
    """Stats of all events that share its metadata."""


class LineIfPlane(TypedDict, total=False):
    first_start_ps: BigPicoseconds | None
    """Start of the first event; null if no event has a time. This field and the next six are
    printed only with `--plane`."""
    last_end_ps: BigPicoseconds | None
    """End of the last event."""
    busy_ps: BigPicoseconds
    """Wall-clock time during which at least one event runs."""
    event_stats: dict[str, Count]
    """Number of events that have a stat, by its name."""
    names: list[EventName]
    """The 20 names with the largest total time, ties by name."""
    n_names: Count
    """Different names; events without a name are one more."""
    counters: list[Counter] | None
    """Readings by name and stat in order of appearance; null unless the line's name contains
    `counter`."""
    sample: list[SampleEvent]
    """The first events in the file; only with `--sample`."""


class AnatomyLine(LineIfPlane):
    """A line of a plane."""

    id: int | str
    """Id of the line, which names a thread of the host without a name."""
    name: str
    """Name, as `--line` accepts it."""
    display_name: str
    """Name that viewers show, as the file has it: often empty, or the same."""
    timestamp_ns: BigNanoseconds
    """Time from which the times of its events are counted."""
    n_events: Count
    """Number of events; with `--grep` only those with a matching name, and all fields below are
    about these."""
    bytes: Bytes
    """Size in the file."""


class AnatomyPlane(TypedDict):
    """A plane of the file."""

    name: str
    """Name, as `--plane` accepts it."""
    bytes: Bytes
    """Size in the file."""
    n_event_metadata: Count
    """Different event metadata: for a device its ops and other named events."""
    n_stat_metadata: Count
    """Names of stats, and texts that stats refer to."""
    stats: dict[str, StatValue]
    """Stats of the plane itself. If two have the same name, the last one counts; a stat without a
    name goes by its id."""
    stat_names: list[str]
    """Names of stats, sorted."""
    lines: list[AnatomyLine]
    """All lines in the order of the file, or those named by `--line`."""


class Returned(FileAnswer):
    file_bytes: Bytes
    """Size of the file: unpacked for gzip data, as stored for a `.xplane.riegeli`."""
    n_records: Count
    """Records in a `.xplane.riegeli`; 1 for other files. The figures of a plane, also `bytes` and
    `n_event_metadata`, are sums over all records."""
    hostnames: list[str]
    """Host names in the file."""
    errors: list[str]
    """Errors that the profiler reported."""
    warnings: list[str]
    """Warnings that the profiler reported."""
    versions: dict[str, str]
    """Versions that took the capture: `jax_version`, `jaxlib_version` and `tpu_version`, as far as
    the plane `/host:metadata` has these stats. `tpu_version` is the build date and changelist of
    libtpu; its package version is not in the file."""
    profile_options: dict[str, OptionValue | dict[str, OptionValue]] | None
    """Options of the profiler that were set, by their names in tsl's `profiler_options.proto`:
    options that are not listed are off, 0 or empty.
    `advanced_configuration` and `trace_options` are maps. Null if the plane
    `Task Environment` has no stat of that name, or if it cannot be decoded; then a note says so."""
    planes: list[AnatomyPlane]
    """All planes in the order of the file, or the one named by `--plane`."""
    programs: list[AnatomyProgram]
    """Programs with their HLO in the file."""


class Answer(Lead, Returned):
    pass


class Absent(AbsentAnswer, total=False):
    """The object that is printed instead of an answer."""

    planes: list[AnatomyPlane]
    """With `unreadable_xplane_pb`: the planes, as far as they could be read; `detail` has the place
    of the first damage."""
