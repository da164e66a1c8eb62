"""Group the pauses between steps by what the host does in them, and describe a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from _breakdown.analysis.arrays.engine import Gain
from _breakdown.analysis.causes import SMALLEST_PART
from _breakdown.analysis.causes.shared.cause import (
    Cause,
    Confidence,
    Place,
    StepFacts,
)
from _breakdown.analysis.causes.shared.host_in_pauses import Call, HostInPause, hosts_in
from _breakdown.analysis.causes.shared.sentences import listed
from _breakdown.analysis.idle.periods import Occurrences, Pause, Periods
from _breakdown.analysis.rows import occurrences_row
from _breakdown.light import NamedTuple
from _breakdown.pipeline.host_frames import OwnFiles, is_ambiguous
from _breakdown.units import percentage, span, time

# A sentence names at most this many calls, with at most this many characters.
_N_CALLS_NAMED, _LONGEST_CHAIN = 7, 110

Kind = Literal["compiling", "reading", "other"]
COMPILING: Final = "compiling"
READING: Final = "reading"
OTHER: Final = "other"
# Functions of JAX that wait for a result of the device, and profiler events inside them.
_READERS = frozenset(
    "_value __array__ __bool__ __float__ __index__ __int__ _item item tolist device_get _device_get"
    " block_until_ready try_to_block".split()
)
_READER_EVENTS = ("np.asarray(jax.Array)", "Buffer::Await")
# Functions of JAX that lower or compile a program, and profiler events inside them.
_COMPILERS = frozenset(
    "_cached_compilation _pjit_lower _resolve_and_lower backend_compile backend_compile_and_load"
    " compile_or_get_cached lower_sharding_computation".split()
)
_COMPILER_EVENTS = ("Client::Compile", "Client::CompileAndLoad", "lower_sharding_computation")


class Reason(NamedTuple):
    """The calls during a pause, outermost first, and the reported one, or None if no call is in own
    code."""

    host: HostInPause
    reported: Call | None
    # True if the calls are those at the start of the pause, because none covers half of it.
    is_start: bool = False

    @property
    def kind(self) -> Kind:
        """Return what the host does, judged by the innermost call that tells."""
        return next((kind for call in reversed(self.host.calls) if (kind := kind_of(call))), OTHER)

    @property
    def key(self) -> tuple[str | None, ...]:
        """Return what is equal for pauses in which the host does the same."""
        return (self.kind, *self._place)

    @property
    def _place(self) -> tuple[str | None, ...]:
        reported = self.reported
        if reported and not reported.is_loop:
            return (reported.name,)
        # A loop that launches steps also does other things; the next call tells which.
        inner = [call.name for call in self.inner if not call.is_loop]
        return (reported.name if reported else None, *inner[:1])

    @property
    def inner(self) -> list[Call]:
        """Return the calls that the reported call makes."""
        calls = self.host.calls
        return calls[calls.index(self.reported) + 1 :] if self.reported else calls


class Group(NamedTuple):
    """Pauses in which the host does the same, and the reason of the longest. `is_single` is true
    for a pause that is a cause of its own."""

    pauses: list[Pause]
    reason: Reason
    is_single: bool
    periods: Periods

    @property
    def kind(self) -> Kind:
        return self.reason.kind


def groups_of(facts: StepFacts) -> list[Group]:
    """Group the pauses between steps; return nothing if they are too short to be a cause."""
    periods = facts.periods
    if not periods or not periods.mean_pause * SMALLEST_PART >= periods.mean > 0:
        return []
    asked = facts.context.request.mode_options.get("own") or ()
    stacks = {op.stored_stack for op in facts.step.ops if op.stored_stack}
    files = OwnFiles(asked, stacks)
    pauses = sorted(periods.pauses, key=lambda pause: -pause.duration)
    reasons = reasons_of(hosts_in(facts.step.device, periods, pauses), files)
    reasons = [with_start(reason, files) for reason in reasons]
    single = single_pause(periods)
    groups: dict[tuple[bool, tuple[str | None, ...]], Group] = {}
    for pause, reason in zip(pauses, reasons, strict=True):
        is_single = pause.gap == single
        group = groups.setdefault((is_single, reason.key), Group([], reason, is_single, periods))
        group.pauses.append(pause)
    largest = max(groups.values(), key=lambda group: periods.mean_of(group.pauses))
    facts.context.note(*note_on_names(largest))
    return list(groups.values())


def with_start(reason: Reason, files: OwnFiles) -> Reason:
    """Return the call that waits for a result when the pause begins, if no call explains the pause.

    Such a call ends shortly after the step: then the thread goes on and launches the next step.
    """
    if any(not call.is_loop for call in reason.host.calls if call.ends):
        return reason
    host = reason.host._replace(calls=reason.host.at_start)
    started = Reason(host, reported_call(host, files), is_start=True)
    return started if started.kind == READING else reason


def kind_of(call: Call) -> Kind | None:
    """Return the kind of pause that a call explains, or None if it can be anything.

    A call that ends after the pause waits for the next step, so the pause is not due to it.
    """
    if not call.ends:
        return None
    frame = call.frame
    if (frame.function in _COMPILERS) if frame else call.name.endswith(_COMPILER_EVENTS):
        return COMPILING
    if (frame.function in _READERS) if frame else call.name.endswith(_READER_EVENTS):
        return READING
    return None


def single_pause(periods: Periods) -> int | None:
    """Return the index of the gap that contains more than half of the time between steps, and at
    least twice as much as any other gap. Return None if there is no such gap, or only one gap,
    which does not show how often the pause occurs."""
    times = periods.by_gap(periods.pauses)
    if len(times) < 2:
        return None
    *_, second, longest = sorted(times)
    is_single = 2 * longest > sum(times) and longest >= 2 * second
    return times.index(longest) if is_single else None


def reasons_of(hosts: Iterable[HostInPause], files: OwnFiles) -> list[Reason]:
    # The place of the reported call depends only on names and loops, which most pauses share.
    places: dict[object, int | None] = {}
    reasons = []
    for host in hosts:
        key = tuple([(call.name, call.is_loop) for call in host.calls])
        if key not in places:
            reported = reported_call(host, files)
            places[key] = host.calls.index(reported) if reported else None
        place = places[key]
        reasons.append(Reason(host, None if place is None else host.calls[place]))
    return reasons


def reported_call(host: HostInPause, files: OwnFiles) -> Call | None:
    """Return the call to report, or None if no call is in own code."""
    with_line = [(call, call.frame.file) for call in host.calls if call.frame]
    asked = [call for call in with_line if files.is_asked_for(call[1])]
    own = asked or [call for call in with_line if files.is_own(call[1])]
    if not own:
        return None
    reported, file = own.pop()
    while own and own[-1][1] == file and not own[-1][0].is_loop:
        reported, _ = own.pop()
    return reported


def cause_of(group: Group, what_helps: str, confidence: Confidence) -> Cause:
    """Return the cause of a group of pauses, whose gain is the time that they cost a step."""
    periods = group.periods
    occurrences = periods.occurrences(group.pauses)
    assert occurrences is not None  # A pause takes some time.
    if group.is_single:
        after = periods.steps[occurrences.gaps[0]][0].index
        occurrences = occurrences._replace(when=f"a single time, after the step with index {after}")
    host, reported = group.reason.host, group.reason.reported
    lines = [call.frame.line for call in host.calls if call.frame]
    gain = periods.cost_of(group.pauses)
    return Cause(
        f"{when(occurrences, group, periods)}{what_host_does(group.reason)}",
        what_helps,
        confidence,
        measured=Gain.exactly(gain),
        place=Place(
            reported.frame.line if reported and reported.frame else None,
            lines[-1] if lines else None,
        ),
        evidence={"pauses": occurrences_row(occurrences)},
        period_ps=periods.mean if periods.picked else None,
    )


def when(occurrences: Occurrences, group: Group, periods: Periods) -> str:
    """Return how long and how often the device waits."""
    gain, period = time(periods.mean_of(group.pauses)), time(periods.mean)
    share = percentage(occurrences.share or 0)
    if len(occurrences.gaps) == occurrences.n_gaps:
        return f"The device waits {gain} between steps ({share} of the {period} period)"
    how_long = span(occurrences.shortest, occurrences.longest)
    return f"The device waits {how_long} {occurrences.when} ({share} of the time)"


def what_host_does(reason: Reason) -> str:
    """Return the end of the message about the pause: what the host does during it."""
    host, reported = reason.host, reason.reported
    if host.calls:
        # Omit the loops around the step, unless the pause is in a loop itself.
        calls = [call for call in host.calls if call is reported or not call.is_loop]
        chain = chain_of(calls or host.calls)
        if reason.is_start:
            return (
                f". At the start of the pause, the host still waits for a result in {chain}, and"
                " launches the next step only afterwards."
            )
        call = reported or (calls or host.calls)[0]
        took = time(call.end - call.start)
        return f", while the host is in {chain}. The call of {call.function} takes {took}."
    if host.is_known:
        return (
            ". No single call of the thread that launches the steps covers half of this"
            " pause; `idle --step all` lists what the host did."
        )
    return (
        ". The capture has no host events in that time, so the reason is unknown; the"
        " device may also wait for another device or host."
    )


def chain_of(calls: list[Call]) -> str:
    """Return the names of calls, outermost first; names in the middle are left out if there are
    many."""
    names = [call.says for call in calls]
    n = min(len(names), _N_CALLS_NAMED)
    while True:
        first, last = n - n // 2, n // 2
        omitted = ["…"] if n < len(names) else []
        chain = " > ".join([*names[:first], *omitted, *names[len(names) - last :]])
        if len(chain) <= _LONGEST_CHAIN or n <= 2:
            return chain
        n -= 1


def note_on_names(group: Group) -> list[str]:
    """Return a note if frames inside the reported call may be own code, too."""
    frames = [call.frame for call in group.reason.inner]
    files = sorted({frame.file for frame in frames if frame and is_ambiguous(frame.file)})
    if not files:
        return []
    return [
        f"host events name files without folders, so {listed(files)} may be a library's or your own"
        f" code; the cause of the pauses assumes a library (--own FILE selects own code)"
    ]
