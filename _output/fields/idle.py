"""Fields of `idle`."""

from typing import TypedDict

from .common import Lead, StepAnswer
from .rows import Gap, IdleByCause, PeriodFields
from .units import BigPicoseconds, Count, Percent, Picoseconds


class HostActivity(TypedDict):
    """An event of a host thread during a gap."""

    thread: str
    """Name of the thread; threads that share a name are combined. For a thread without a name, the
    id of its line is used as the name."""
    event: str
    """Name of the innermost event on the thread. If the Python tracer was on, the event is a frame
    such as `$file.py:line function`."""
    is_launching: bool
    """True if the thread launches programs of the device. Rows of launching threads come first, and
    fill at least half of the list if there are enough of them. A thread counts as launching if it
    has `PjitFunction` events and also events with the `run_id` of the programs before and after the
    gap. If no thread has both kinds of events, threads with either kind count as launching. If no
    thread has either kind, threads with events named `…ExecuteHelper…` do, or else threads with
    events named `Execute…`."""
    dur_ps: Picoseconds
    """Time within the gap during which the event was the innermost event of the thread."""
    in_period_ps: Picoseconds | None
    """Time during which the event was the innermost event of the thread, from the start of this
    step to the start of the next step with the same name. For the last step: from the end of the
    previous step to the end of the last step. Null if `period_ps` is null."""
    still: bool
    """True if no event begins or ends on the thread during the gap, which means that the thread
    only waits. Threads that only wait come last in the list, unless they launch programs."""
    within: list[str]
    """Names of up to eight events that enclose the event during its longest stretch, innermost
    first. Unless all threads are `still`, one of these events shows the source line that made the
    device wait."""


class IdleGap(Gap):
    """A stretch of time without a leaf op."""

    cause: dict[str, Picoseconds]
    """Idle time in the gap by cause."""
    trace_window_ps: list[BigPicoseconds] | None
    """Start and end of the gap as absolute times on the trace's clock, for comparison with host
    events. Null if the gap has no positive duration on the trace's clock."""
    host: list[HostActivity] | None
    """Events of the host during the gap, up to 8 rows; null if the host's activity is unknown, or
    if `trace_window_ps` is null."""


class HostEvent(TypedDict):
    """An event of the host that ran during gaps."""

    event: str
    """Name of an event that was the innermost event of a host thread. Threads that are `still`
    during a gap are ignored for that gap."""
    dur_ps: Picoseconds
    """Wall-clock time during which the event ran in at least one thread."""
    n_threads: Count
    """Number of threads in which the event ran."""


class Capture(TypedDict):
    """Figures over all steps of the capture, on the trace's clock."""

    n_steps: Count
    """Number of steps in the capture."""
    dur_ps: Picoseconds
    """Time from the start of the first step to the end of the last step."""
    in_no_step_ps: Picoseconds
    """The part of `dur_ps` that belongs to no step."""
    in_no_step_pct: Percent | None
    """`in_no_step_ps` as a percentage of `dur_ps`; null without steps."""


class Fields(PeriodFields):
    capture: Capture
    """Figures over all steps of the capture, on the trace's clock."""
    idle_by_cause: IdleByCause
    """Idle time by cause; the values add up to `idle_duration_ps`."""
    gaps: list[IdleGap]
    """The longest stretches without a leaf op, up to `--top` rows, longest first."""
    host_events: list[HostEvent] | None
    """The 20 host events that take the most time during gaps of at least 1 µs. Null if the host's
    activity is unknown; a note reports the reason."""


class Answer(Lead, StepAnswer, Fields):
    pass
