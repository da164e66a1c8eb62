"""Fields of `idle`."""

from typing import TypedDict

from .common import Lead, StepAnswer
from .rows import Gap, IdleByCause, PeriodFields
from .units import BigPicoseconds, Count, Percent, Picoseconds


class HostActivity(TypedDict):
    """An event of a host thread during a gap."""

    thread: str
    """Name of the thread; threads of one name are counted together. For a thread without a name,
    the id of the thread's line serves as name."""
    event: str
    """The innermost event on it. With the Python tracer a frame, `$file.py:line function`."""
    is_launching: bool
    """True if the thread launches programs of the device: its rows come first, and are half of the
    rows or more. These are threads with events that have the `run_id` of both the programs before
    and after the gap, and threads that hold `PjitFunction` events; only those with both, if there
    are any. Without them a thread with events named `…ExecuteHelper…`, or else `Execute…`."""
    dur_ps: Picoseconds
    """Time for which it was the innermost event within the gap."""
    in_period_ps: Picoseconds | None
    """Time for which it was the innermost event of the thread from the start of this step to the
    start of the next one of its name (for the last step, from the end of the one before it to its
    own end). Null if `period_ps` is null."""
    still: bool
    """True if nothing begins or ends on the thread during the gap: it only waits. Such threads come
    last, but for launching ones."""
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


class Capture(TypedDict):
    """All steps of the capture, on the trace's clock: what this step shows is not all."""

    n_steps: Count
    """Number of steps."""
    dur_ps: Picoseconds
    """Time from the first start of a step to the last end."""
    in_no_step_ps: Picoseconds
    """The part of it that is in no step: the device stood still between steps."""
    in_no_step_pct: Percent | None
    """`in_no_step_ps` in percent of `dur_ps`; null without steps."""


class Fields(PeriodFields):
    capture: Capture
    """All steps of the capture."""
    idle_by_cause: IdleByCause
    """Idle time by cause; the values add up to `idle_duration_ps`."""
    gaps: list[IdleGap]
    """The longest stretches without a leaf op, longest first, at most `--top`."""
    host_events: list[HostEvent] | None
    """The 20 events of the host that take most time during gaps of at least 1 µs. Null if the host
    is unknown; a note says why."""


class Answer(Lead, StepAnswer, Fields):
    pass
