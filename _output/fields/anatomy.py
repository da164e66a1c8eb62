"""Fields of `anatomy`."""

from typing import TypedDict

from .common import AbsentAnswer, FileAnswer, Lead
from .units import BigNanoseconds, BigPicoseconds, Bytes, Count


class RawBytes(TypedDict):
    """A stat whose value is a byte string."""

    bytes: Bytes
    """Number of bytes in the stat."""
    hex: str
    """The first 32 bytes of the stat, in hexadecimal."""


# Integers beyond 2**53 are decimal strings. Null if the value is not finite.
StatValue = int | float | str | RawBytes | None
CounterValue = int | float | str
OptionValue = bool | int | float | str | None


class AnatomyProgram(TypedDict):
    """A program whose HLO is in the file."""

    program_id: str
    """Id of the program, as an unsigned decimal, equal to `program.program_id` in other modes. The
    id is the stat `program_id` of the program's entry. If this stat is missing, the id is the
    number in parentheses at the end of the entry's name, or else the entry's key in the plane's
    map."""
    name: str
    """Name of the program."""
    hlo_bytes: Bytes
    """Size of the program's HLO."""


class EventName(TypedDict):
    """Events that share a name."""

    name: str | None
    """Name of the events; null for events without a name."""
    n: Count
    """Number of events."""
    total_dur_ps: BigPicoseconds
    """Sum of the durations of all events with the name."""


class Counter(TypedDict):
    """Statistics of a counter's readings."""

    name: str | None
    """Name of the counter's events; null for events without a name."""
    stat: str
    """Name of the stat that holds the readings, as numbers or numeric text."""
    n: Count
    """Number of readings."""
    min: CounterValue
    """Smallest reading."""
    mean: float
    """Mean of the readings, not weighted by time."""
    max: CounterValue
    """Largest reading."""
    first: CounterValue | None
    """Earliest reading; null if no event has a time."""
    last: CounterValue | None
    """Latest reading; null if no event has a time."""


class SampleEvent(TypedDict):
    """An event and all of its stats."""

    name: str | None
    """Name of the event; null for an event without a name."""
    start_ps: BigPicoseconds | None
    """Start of the event; null for an aggregated event, which has a number of occurrences instead
    of a time."""
    dur_ps: BigPicoseconds
    """Duration of the event as stored in the file."""
    stats: dict[str, StatValue]
    """Stats stored with the event itself. For a stat without a name, the id is used as the
    name."""
    metadata_stats: dict[str, StatValue]
    """Stats stored in the event's metadata, which other events can share."""


class LineIfPlane(TypedDict, total=False):
    first_start_ps: BigPicoseconds | None
    """Start of the earliest event; null if no event has a time. `first_start_ps` and the following
    six fields are printed only with `--plane`."""
    last_end_ps: BigPicoseconds | None
    """End of the event that ends last; null if no event has a time."""
    busy_ps: BigPicoseconds
    """Wall-clock time during which at least one event runs."""
    event_stats: dict[str, Count]
    """For each stat name, the number of events that have the stat."""
    names: list[EventName]
    """The 20 event names with the largest total duration; ties are in alphabetical order."""
    n_names: Count
    """Number of distinct event names; all events without a name count as one name."""
    counters: list[Counter] | None
    """Statistics of the counters, one entry per name and stat, in order of appearance. Null unless
    the line's name contains `counter`."""
    sample: list[SampleEvent]
    """The first events of the line, in file order; printed only with `--sample`."""


class AnatomyLine(LineIfPlane):
    """A line of a plane."""

    id: int | str
    """Id of the line. For a host thread without a name, the id is used as the name."""
    name: str
    """Name of the line, as `--line` accepts it."""
    display_name: str
    """Name that trace viewers show, as stored in the file; often empty or equal to `name`."""
    timestamp_ns: BigNanoseconds
    """Time to which the start times stored in the line's events are relative."""
    n_events: Count
    """Number of events. With `--grep`, `n_events` and the optional fields cover only events with a
    matching name."""
    bytes: Bytes
    """Size of the line in the file."""


class AnatomyPlane(TypedDict):
    """A plane of the file."""

    name: str
    """Name of the plane, as `--plane` accepts it."""
    bytes: Bytes
    """Size of the plane in the file."""
    n_event_metadata: Count
    """Number of event metadata entries; for a device, these are its ops and other named events."""
    n_stat_metadata: Count
    """Number of stat metadata entries, which are stat names and texts that stats refer to."""
    stats: dict[str, StatValue]
    """Stats of the plane itself. If several stats have the same name, the last one is printed.
    Stats without a name are omitted."""
    stat_names: list[str]
    """Names of all stats in the plane, sorted."""
    lines: list[AnatomyLine]
    """All lines in file order, or only the lines that `--line` selects."""


class Returned(FileAnswer):
    file_bytes: Bytes
    """Size of the file: decompressed for gzip data, as stored for a `.xplane.riegeli`."""
    n_records: Count
    """Number of records in a `.xplane.riegeli`; 1 for other files. The figures of a plane,
    including `bytes` and `n_event_metadata`, are sums over all records."""
    hostnames: list[str]
    """Host names in the file."""
    errors: list[str]
    """Errors that the profiler reported."""
    warnings: list[str]
    """Warnings that the profiler reported."""
    versions: dict[str, str]
    """Versions of the software that took the capture: the stats `jax_version`, `jaxlib_version` and
    `tpu_version` of the plane `/host:metadata`. `tpu_version` is the build date and changelist of
    libtpu; the file does not contain libtpu's package version."""
    profile_options: dict[str, OptionValue | dict[str, OptionValue]] | None
    """Profiler options that were set, named as in tsl's `profiler_options.proto`. Options that are
    not listed are off, 0 or empty. `advanced_configuration` and `trace_options` are maps. Null if
    the plane `Task Environment` has no stat `profile_options`, or if this stat cannot be decoded,
    which a note reports."""
    planes: list[AnatomyPlane]
    """All planes in file order, or only the plane that `--plane` selects."""
    programs: list[AnatomyProgram]
    """Programs whose HLO is in the file."""


class Answer(Lead, Returned):
    pass


class Absent(AbsentAnswer, total=False):
    """The object that is printed instead of an answer."""

    planes: list[AnatomyPlane]
    """With `unreadable_xplane_pb`: the planes before the damage, and others without damage;
    `detail` gives the position of the first damage."""
