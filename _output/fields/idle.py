"""Fields of `idle`."""

from typing import TypedDict

from .common import Lead, StepAnswer
from .rows import Gap, IdleByCause, PeriodFields
from .units import BigPicoseconds, Count, Percent, Picoseconds


class HostActivity(TypedDict):
    """An event of a host thread during a gap."""

    thread: str
    """Name of the thread; threads that share a name are counted together. For a thread without a
    name, the id of the thread's line serves as name."""
    event: str
    """The innermost event on the thread. If the Python tracer was on, the event is a frame such as
    `$file.py:line function`."""
    is_launching: bool
    """True if the thread launches programs of the device. Rows of threads that launch programs come
    first, and fill at least half of the list if there are enough of them. A thread launches
    programs if the thread has `PjitFunction` events, and also events with the `run_id` of the
    programs before and after the gap. If no thread has both kinds of events, every thread with one
    of the two kinds launches programs. If no thread has either kind, threads with events named
    `…ExecuteHelper…` launch programs, or else threads with events named `Execute…`."""
    dur_ps: Picoseconds
    """Time within the gap during which the event was the innermost event of the thread."""
    in_period_ps: Picoseconds | None
    """Time during which the event was the innermost event of the thread, from the start of this
    step to the start of the next step of the same name (for the last step: from the end of the
    previous step to the end of the last step). Null if `period_ps` is null."""
    still: bool
    """True if the thread only waits, because nothing begins or ends on the thread during the gap.
    Threads that only wait come last in the list, unless they launch programs."""
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
    """Wall-clock time during which the event ran in at least one thread."""
    n_threads: Count
    """Number of threads in which the event ran."""


class Capture(TypedDict):
    """All steps of the capture, on the trace's clock, for comparison with the picked step."""

    n_steps: Count
    """Number of steps in the capture."""
    dur_ps: Picoseconds
    """Time from the start of the first step to the end of the last step."""
    in_no_step_ps: Picoseconds
    """The part of `dur_ps` that is in no step, because the device was idle between steps."""
    in_no_step_pct: Percent | None
    """`in_no_step_ps` as a percentage of `dur_ps`; null without steps."""


class Fields(PeriodFields):
    capture: Capture
    """All steps of the capture."""
    idle_by_cause: IdleByCause
    """Idle time by cause; the values add up to `idle_duration_ps`."""
    gaps: list[IdleGap]
    """The longest stretches without a leaf op, longest first, at most `--top`."""
    host_events: list[HostEvent] | None
    """The 20 host events that take the most time during gaps of at least 1 µs. Null if the host
    is unknown; a note says why."""


class Answer(Lead, StepAnswer, Fields):
    pass
