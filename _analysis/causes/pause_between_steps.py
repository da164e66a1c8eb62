"""Find pauses between steps in which the device waits for the host.

needs: a pause between steps
headline: Waiting for the host

What it finds: No step runs for at least 0.5 % of the period, while the host works or waits.

Why it costs: The device is idle. The gain is the time of the pauses divided by the number of
periods, so its share is relative to the period, not to the step.

How the program shows it: The trace does. All pauses between the steps of the picked step's name
count. The host does what the calls that cover at least half of a pause say, on a thread that
launches programs. Pauses in which the host does the same are one cause. If a single pause takes
more than half of the total time, and at least twice as long as the next, it is a cause of its own.
The line is the innermost of these calls in own code, or the function of the same file by which
other code enters the file, unless this function also launches a step. The cause is `likely` if the
only calls are loops around the steps.

What to change: Let the host work ahead: load and transfer the next batch, and save checkpoints, in
another thread while the step runs. Read results of earlier steps only.

When it is intended: Evaluation or a checkpoint after many steps; a single pause is named as such.

Example:

    # Before: the device waits for the loader, and for the log
    for batch in loader:
        state, loss = train_step(state, batch)
        log(float(loss))
    # After: the next batch is loaded during the step, and the loss of the step before is read
    for batch in prefetched(loader):
        state, loss = train_step(state, batch)
        log(float(previous))
        previous = loss
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from _analysis.causes.shared.cause import LIKELY, SEEN, Cause, Measured, Place, StepFacts
from _analysis.causes.shared.host_in_pauses import Call, HostInPause, hosts_in
from _analysis.causes.shared.sentences import listed
from _analysis.idle.periods import Occurrences, Pause, Periods
from _analysis.rows import occurrences_row
from _pipeline.host_frames import OwnFiles, is_ambiguous
from _units import percentage, span, time

# A sentence names at most this many calls, with at most this many characters.
_N_CALLS_NAMED, _LONGEST_CHAIN = 7, 110

REMEDY = (
    "Let the host work ahead: load and transfer the next batch, and save checkpoints, in another"
    " thread while the step runs. Do not wait for results (block_until_ready, float(loss), logging)"
    " after each step."
)


class Reason(NamedTuple):
    """The calls during a pause, outermost first, and the reported one, or None if no call is in own
    code."""

    host: HostInPause
    reported: Call | None

    @property
    def key(self) -> tuple[str | None, ...]:
        """Return what is equal for pauses in which the host does the same."""
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


def find(facts: StepFacts, periods: Periods) -> Iterator[Cause]:
    step, context = facts.step, facts.context
    asked = context.request.mode_options.get("own") or ()
    stacks = {op.stored_stack for op in step.ops if op.stored_stack}
    files = OwnFiles(asked, stacks)
    pauses = sorted(periods.pauses, key=lambda pause: -pause.duration)
    reasons = reasons_of(hosts_in(step.device, periods, pauses), files)
    single = single_pause(periods)
    groups: dict[tuple[bool, tuple[str | None, ...]], Group] = {}
    for pause, reason in zip(pauses, reasons, strict=True):
        is_single = pause.gap == single
        of_reason = groups.setdefault((is_single, reason.key), Group([], reason, is_single))
        of_reason.pauses.append(pause)
    largest = max(groups.values(), key=lambda group: periods.mean_of(group.pauses))
    context.note(*note_on_names(largest))
    for group in groups.values():
        yield cause_of(group, periods)


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


def cause_of(group: Group, periods: Periods) -> Cause:
    occurrences = periods.occurrences(group.pauses)
    assert occurrences is not None  # A pause takes some time.
    if group.is_single:
        after = periods.steps[occurrences.gaps[0]].index
        occurrences = occurrences._replace(when=f"a single time, after the step with index {after}")
    host, reported = group.reason
    lines = [call.frame.line for call in host.calls if call.frame]
    gain = periods.mean_of(group.pauses)
    measured = Measured(gain, gain, gain)
    return Cause(
        f"{when(occurrences, group, periods)}{what_host_does(group.reason)}",
        REMEDY,
        # A loop around the steps runs in every pause, so it does not explain one.
        LIKELY if all(call.is_loop for call in host.calls) else SEEN,
        measured=measured,
        place=Place(
            reported.frame.line if reported and reported.frame else None,
            lines[-1] if lines else None,
        ),
        evidence={"pauses": occurrences_row(occurrences)},
        period_ps=periods.mean,
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
    host, reported = reason
    if host.calls:
        # Omit the loops around the step, unless the pause is in a loop itself.
        calls = [call for call in host.calls if call is reported or not call.is_loop]
        call = reported or (calls or host.calls)[0]
        took = time(call.end - call.start)
        return (
            f", while the host is in {chain_of(calls or host.calls)}. The call of {call.function}"
            f" takes {took}."
        )
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
        f" code; the cause pause_between_steps assumes a library (--own FILE selects own code)"
    ]
