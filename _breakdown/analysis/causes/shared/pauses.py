"""PauseGroup the pauses between steps by what the host does in them, and describe a group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile

from _breakdown.analysis.arrays.engine import Gain
from _breakdown.analysis.causes.shared.cause import Cause, CausePlace, Confidence
from _breakdown.analysis.causes.shared.host_in_pauses import (
    ANYWHERE,
    HostCall,
    HostInPause,
    hosts_in,
)
from _breakdown.analysis.causes.shared.main_cause import LARGE_LOSS_PCT
from _breakdown.analysis.causes.shared.sentences import listed
from _breakdown.analysis.idle.critical_path import function_of
from _breakdown.analysis.idle.host_words import (
    COLLECTING,
    COMPILING,
    LOADING,
    OTHER,
    PROFILING,
    READING,
    SAVING,
    SENDING,
    TRANSFERRING,
    Kind,
    kind_of,
)
from _breakdown.analysis.idle.periods import Occurrences, Pause, Periods, when_in
from _breakdown.analysis.source.rows import occurrences_row
from _breakdown.light import NamedTuple
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.host_frames import OwnFiles, frame_of
from _breakdown.pipeline.normalize import Step
from _breakdown.units import counted, part_of, percentage, span, time

# A sentence names at most this many calls, with at most this many characters.
_N_CALLS_NAMED, _LONGEST_CHAIN = 7, 110
# Pauses have two modes if the shortest of the long ones is this many times the longest of the short
# ones.
_BETWEEN_MODES = 3
# What the host does, by kind.
_DOES: dict[Kind, str] = {
    COLLECTING: "collects garbage",
    COMPILING: "compiles a program",
    LOADING: "loads a program",
    READING: "waits for a result",
    SENDING: "sends arguments",
    TRANSFERRING: "transfers arrays",
    SAVING: "saves a checkpoint",
    PROFILING: "writes the profile",
    OTHER: "is",
}

# What the host does, where its work is unknown or only a wait.
NO_EVENTS = (
    ". The capture has no host events in that time, so the reason is unknown; the device may also"
    " wait for another device or host."
)
LAUNCHED_BEFORE = (
    ". The next step was launched before, so the host does not delay it; the device may wait for"
    " its inputs or for other devices."
)
NO_CALL = (
    ". No single call on the way to the next launch covers half of this pause; `idle --step all`"
    " lists what the host did."
)
AT_START = (
    ". At the start of the pause, the host still waits for a result in {}, and launches the next"
    " step only afterwards."
)
ONLY_WAITS = (
    ". {} only waits, in {}, and the trace shows no work on another thread that ends when the wait"
    " ends."
)


class PauseGroup(NamedTuple):
    """Pauses in which the host does the same, and what it does in the longest. `is_single` is true
    for a pause that is a cause of its own."""

    pauses: list[Pause]
    # Time of the named work in these pauses.
    work: list[int]
    host: HostInPause
    is_single: bool
    periods: Periods
    # Time that the pauses cost a step.
    gain: int = 0
    # The programs that a call launches at least, one by one, if that is the work; else 0.
    n_programs: int = 0

    @property
    def kind(self) -> Kind:
        return self.host.kind

    @property
    def between(self) -> str:
        """Return what the pauses are between: steps, or programs of a cycle."""
        if not self.periods.inside:
            return "steps"
        programs = [each for pair in self.periods.steps for step in pair for each in step.programs]
        names = {each.start: function_of(each.name or "") for each in programs}
        ended = {each.end: names[each.start] for each in programs}
        ((before, after), *more) = {(ended.get(p.start), names.get(p.end)) for p in self.pauses}
        return f"{before} and {after}" if before and after and not more else "programs"


def groups_of(step: Step, periods: Periods, context: Context) -> list[PauseGroup]:
    """Group the pauses between steps by what the host does in them."""
    pauses = sorted([*periods.pauses, *periods.inside], key=lambda pause: -pause.duration)
    asked = context.request.mode_options.get("own") or ()
    stacks = {op.stored_stack for op in step.ops if op.stored_stack}
    files = OwnFiles(asked, stacks)
    hosts, notes = hosts_in(step.device, periods, pauses)
    context.warn(*notes)
    hosts = [with_start(with_reported(host, files), files) for host in hosts]
    single = single_pause(periods)
    members: dict[tuple[bool, tuple[str | None, ...]], list[tuple[Pause, HostInPause]]] = {}
    for pause, host in zip(pauses, hosts, strict=True):
        members.setdefault((pause.gap == single, host.key), []).append((pause, host))
    groups = [group_of(its, key[0], periods, files) for key, its in members.items()]
    ranked = sorted(groups, key=lambda group: -sum(p.duration for p in group.pauses))
    return [group for group in with_gains(ranked) if is_reported(group)]


def group_of(
    members: Sequence[tuple[Pause, HostInPause]],
    is_single: bool,
    periods: Periods,
    files: OwnFiles,
) -> PauseGroup:
    """Return a group, described by the kind of work with the most time, longest pause first."""
    times = Counter[Kind]()
    for pause, host in members:
        times[host.kind] += pause.duration
    kind = max(times, key=times.__getitem__)
    first, *others = (host for _, host in members if host.kind == kind)
    work = [host.calls[-1].time if host.calls else 0 for _, host in members]
    n_programs = 0
    if kind not in (*ANYWHERE, READING):
        calls = {host.reported.start: host.reported for _, host in members if host.reported}
        n = sum(call.n_programs for call in calls.values())
        # There is a pause before most of these programs.
        n_programs = len(members) // len(calls) if 0 < n <= 2 * len(members) else 0
    for host in others:
        first = common_host(first, host, files)
    pauses = [pause for pause, _ in members]
    reading = sum(pause.duration for pause, host in members if host.reads)
    first = first._replace(reads=2 * reading >= sum(pause.duration for pause in pauses))
    return PauseGroup(pauses, work, first, is_single, periods, n_programs=n_programs)


def is_reported(group: PauseGroup) -> bool:
    """Return whether pauses tell something about the loop.

    Pauses that no call of the host explains only count if they are a large loss, and so does a
    single one in which the host waits. A healthy loop, too, waits after its first step until its
    pipeline is full.
    """
    occurrences, host = group.periods.occurrences(group.pauses), group.host
    # One of two gaps does not show how often a pause occurs.
    is_once = occurrences and len(occurrences.gaps) == 1 and occurrences.n_gaps > 2
    is_weak = is_once and (host.kind == READING or not host.is_certain)
    if not occurrences or not host.is_known or not (is_weak or host.is_vague):
        return True
    return occurrences.share >= LARGE_LOSS_PCT and not (is_once and occurrences.gaps == [0])


def with_gains(groups: Iterable[PauseGroup]) -> list[PauseGroup]:
    """Add the gains, which are rounded so that they add up to the time of all pauses."""
    found, above = [], list[Pause]()
    for group in groups:
        before = group.periods.cost_of(above) if above else 0
        above += group.pauses
        found.append(group._replace(gain=group.periods.cost_of(above) - before))
    return found


def common_host(first: HostInPause, other: HostInPause, files: OwnFiles) -> HostInPause:
    """Return the work of two pauses of one group: that of the first, in the calls of both."""
    if first.reported == other.reported or first.kind not in ANYWHERE:
        return first
    both = zip(first.calls, other.calls, strict=False)
    calls = [call for call, _ in takewhile(lambda pair: pair[0].name == pair[1].name, both)]
    if len(calls) == len(first.calls):
        return first
    return with_reported(first._replace(calls=calls, inner=[first.calls[len(calls)].name]), files)


def with_start(host: HostInPause, files: OwnFiles) -> HostInPause:
    """Return the call that waits for a result when the pause begins, if no call explains the pause.

    Such a call ends shortly after the step: then the thread goes on and launches the next step.
    """
    is_explained = any(not call.is_loop for call in host.calls) or host.kind != OTHER
    if is_explained or not any(kind_of(call.name) == READING for call in host.at_start):
        return host
    at_start = host._replace(calls=host.at_start, kind=READING, is_start=True)
    return with_reported(at_start, files)


def with_reported(host: HostInPause, files: OwnFiles) -> HostInPause:
    return host._replace(reported=reported_call(host.calls, files))


def single_pause(periods: Periods) -> int | None:
    """Return the index of the gap that contains more than half of the time between steps, and at
    least twice as much as any other gap. Return None if there is no such gap, or only one gap,
    which does not show how often the pause occurs."""
    times = periods.by_gap([*periods.pauses, *periods.inside])
    if len(times) < 2:
        return None
    *_, second, longest = sorted(times)
    is_single = 2 * longest > sum(times) and longest >= 2 * second
    return times.index(longest) if is_single else None


def reported_call(calls: Sequence[HostCall], files: OwnFiles) -> HostCall | None:
    """Return the call to report, or None if no call is in own code."""
    with_line = [(call, call.frame.file) for call in calls if call.frame]
    asked = [call for call in with_line if files.is_asked_for(call[1])]
    own = asked or [call for call in with_line if files.is_own(call[1])]
    if not own:
        return None
    reported, file = own.pop()
    while own and own[-1][1] == file and not own[-1][0].is_loop:
        reported, _ = own.pop()
    return reported


def cause_of(group: PauseGroup, what_helps: str, confidence: Confidence) -> Cause:
    """Return the cause of a group of pauses, whose gain is the time that they cost a step."""
    periods = group.periods
    occurrences = periods.occurrences(group.pauses)
    assert occurrences is not None  # A pause takes some time.
    if group.is_single:
        after = periods.steps[occurrences.gaps[0]][0].index
        occurrences = occurrences._replace(when=f"a single time, after the step with index {after}")
    elif periods.inside:
        which = when_in(occurrences.gaps, occurrences.n_gaps, is_inside=True)
        occurrences = occurrences._replace(when=f"between {group.between} {which}")
    host, reported = group.host, group.host.reported
    lines = [call.frame.line for call in host.calls if call.frame]
    return Cause(
        f"{when(occurrences, group)}{what_host_does(group)}",
        what_helps,
        confidence,
        measured=gain_of(group),
        place=CausePlace(
            reported.frame.line if reported and reported.frame else None,
            lines[-1] if lines else None,
        ),
        evidence={
            "pauses": occurrences_row(occurrences),
            "thread": host.thread if host.calls else None,
            "waiting_thread": host.waiting[0] if host.waiting and host.calls else None,
        },
        period_ps=periods.mean if periods.picked else None,
    )


def gain_of(group: PauseGroup) -> Gain:
    """Return the time of the pauses; at least that of the work, which can leave other work."""
    periods = group.periods
    if not group.host.calls:
        return Gain.at_most(group.gain)
    work = sum(group.work)
    low = work if periods.picked is None else work // periods.n_gaps
    return Gain(group.gain, min(low, group.gain), group.gain)


def when(occurrences: Occurrences, group: PauseGroup) -> str:
    """Return how long and how often the device waits."""
    periods = group.periods
    gain, period = time(group.gain), time(periods.mean)
    share = percentage(occurrences.share or 0)
    modes = modes_of([time for time in periods.by_gap(group.pauses) if time])
    if len(occurrences.gaps) == occurrences.n_gaps:
        each = f"; {modes}" if modes else ""
        if periods.picked is None:
            gain = time(periods.mean_of(group.pauses))
        return (
            f"The device waits {gain} between {group.between} ({share} of the {period}"
            f" period{each})"
        )
    how_long = span(occurrences.shortest, occurrences.longest)
    each = f": {modes}" if modes else ""
    return f"The device waits {how_long} {occurrences.when} ({share} of the time{each})"


def modes_of(times: Iterable[int]) -> str:
    """Return how many pauses are short and how many long, if none is in between; else an empty
    text."""
    ranked = sorted(times)
    n = max(range(1, len(ranked)), key=lambda i: ranked[i] / ranked[i - 1], default=0)
    if not n or ranked[n] < _BETWEEN_MODES * ranked[n - 1]:
        return ""
    return (
        f"{counted(n, 'gap')} of {span(ranked[0], ranked[n - 1])},"
        f" {len(ranked) - n} of {span(ranked[n], ranked[-1])}"
    )


def what_host_does(group: PauseGroup) -> str:
    """Return the end of the message about pauses: what the host does during them."""
    host, reported = group.host, group.host.reported
    if not host.is_known:
        return NO_EVENTS
    if host.launched_before:
        return LAUNCHED_BEFORE
    if not host.calls:
        return NO_CALL
    # Omit the loops around the step, unless the pause is in a loop itself.
    calls = [call for call in host.calls if call is reported or not call.is_loop] or host.calls
    chain = chain_of(calls)
    if host.is_start:
        return AT_START.format(chain)
    if host.only_waits:
        who = "The thread that launches the steps"
        if host.waiting:
            who += f" waits for thread {host.thread}, which"
        return ONLY_WAITS.format(who, chain)
    does = _DOES[host.kind]
    if group.n_programs and reported:
        does = f"launches at least {group.n_programs} programs, one by one,"
        chain = chain_of(calls[: calls.index(reported) + 1])
    if host.kind == SENDING and host.n_arguments:
        does = f"sends {counted(host.n_arguments, 'argument')} to {host.sent_to}"
    inner = [frame.function for name in host.inner if (frame := frame_of(name))]
    inner = [name for name in inner if "<" not in name]
    is_last = host.kind == COLLECTING or calls[-1] is reported
    below = f" ({listed(inner[:3])})" if inner and is_last else ""
    if host.waiting:
        thread, name = host.waiting
        took = part_of(sum(group.work), sum(pause.duration for pause in group.pauses))
        return (
            f", while thread {host.thread} {does} in {chain}{below} ({took} in all), for which"
            f" the launching thread {thread} waits in {name.removeprefix('$')}."
        )
    call = reported or calls[0]
    took = time(call.end - call.start)
    return f", while the host {does} in {chain}{below}. The call of {call.function} takes {took}."


def chain_of(calls: Sequence[HostCall]) -> str:
    """Return the names of calls, outermost first, and how often one calls the next; names in the
    middle are left out if there are many."""
    names = [calls[0].says] + [
        f"{call.says} ({call.n} calls)" if call.n > around.n else call.says
        for around, call in pairwise(calls)
    ]
    n = min(len(names), _N_CALLS_NAMED)
    while True:
        first, last = n - n // 2, n // 2
        omitted = ["…"] if n < len(names) else []
        chain = " > ".join([*names[:first], *omitted, *names[len(names) - last :]])
        if len(chain) <= _LONGEST_CHAIN or n <= 2:
            return chain
        n -= 1
