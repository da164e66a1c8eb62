"""Fields of `idle`."""

from typing import TypedDict

from _output.fields.common import Lead, StepAnswer
from _output.fields.rows import Gap, IdleByCause
from _output.fields.units import BigPicoseconds, Count, Picoseconds


class HostActivity(TypedDict):
    """An event of a host thread during a gap."""

    thread: str
    """Name of the thread; threads of one name are counted together. For a thread without a name,
    the id of the thread's line serves as name."""
    event: str
    """Innermost event of the thread. Events of the Python tracer read `$file.py:line function`."""
    dur_ps: Picoseconds
    """Time within the gap during which the event was the innermost event."""
    still: bool
    """True if no event begins or ends on the thread during the gap. Such a thread only waits, and
    is listed last."""
    within: list[str]
    """Up to eight enclosing events during the event's longest stretch, innermost first. One of the
    events is at the line that made the device wait, unless all threads are `still`."""


class IdleGap(Gap):
    """A stretch of time without a leaf op."""

    cause: dict[str, Picoseconds]
    """Idle time of the gap by cause."""
    trace_window_ps: list[BigPicoseconds] | None
    """Start and end of the gap as absolute times on the trace's clock, for comparing with events of
    the host. Null if the gap has no length on the trace's clock."""
    host: list[HostActivity] | None
    """Events of the host during the gap, up to 8 rows; null if unknown."""


class HostEvent(TypedDict):
    """An event of the host that ran during gaps."""

    event: str
    """Innermost event of a host thread; threads that are `still` during a gap are not counted for
    that gap."""
    dur_ps: Picoseconds
    """Wall-clock time during which some thread was in the event."""
    n_threads: Count
    """Number of threads that were in the event."""


class Fields(TypedDict):
    idle_by_cause: IdleByCause
    """Idle time by cause; the values add up to `idle_duration_ps`."""
    gaps: list[IdleGap]
    """The longest stretches without a leaf op, longest first, at most `--top`."""
    host_events: list[HostEvent] | None
    """The 20 events of the host that take most time during gaps of at least 1 µs. Null if the host
    is unknown; a note says why."""


class Answer(Lead, StepAnswer, Fields):
    pass
