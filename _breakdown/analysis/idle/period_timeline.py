"""Find what to draw of a step's period: the steps, the pause between them, and the host's events
during the pause."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from _breakdown.analysis.idle.critical_path import CriticalPaths, thread_with_most_time
from _breakdown.analysis.idle.launches import Launches, launch_level
from _breakdown.analysis.idle.periods import sequence_of
from _breakdown.light import NamedTuple
from _breakdown.pipeline.device import Device
from _breakdown.pipeline.host import Host, Track
from _breakdown.pipeline.host_frames import OwnFiles, frame_of
from _breakdown.pipeline.intervals import complement, length_of, union
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.step_event import StepEvent
from _proto.errors import Damage
from _proto.trace.trace import thread_planes

Json = dict[str, Any]
Window = tuple[int, int]

# Draw a pause at most this many steps away from the picked step; more steps would be too narrow.
N_STEPS = 10
# Do not draw a pause that takes less than 1/200 of the drawn time.
SHORTEST_PAUSE = 200
# Events that take less than 1/200 of the pause have no room; nor have more than 200 of them.
SHORTEST_FRAME, N_FRAMES = 200, 200


class DrawnFrame(NamedTuple):
    """An event of a host thread. `depth` is the number of drawn events that enclose it."""

    start: int
    end: int
    depth: int
    name: str


class DrawnPeriod(NamedTuple):
    """The drawn time; all times are relative to the base time of the device's ops line."""

    start: int
    end: int
    steps: list[StepEvent]
    pauses: list[Window]
    # The thread that works in the pause, else the one that launches; None if there are no events.
    thread: str | None
    frames: list[DrawnFrame]


def period_row(step: Step, asked: Sequence[str]) -> Json | None:
    """Return what to draw of a step's period; `asked` has the values of `--own`."""
    files = OwnFiles(asked, {op.stored_stack for op in step.ops if op.stored_stack})
    timeline = timeline_of(step.device, step.picked)
    if timeline is None:
        return None

    def span(start: int, end: int) -> Json:
        return {"start_ps": start - timeline.start, "dur_ps": end - start}

    return {
        "dur_ps": timeline.end - timeline.start,
        "steps": [
            {
                **span(drawn.start, drawn.end),
                "name": drawn.name,
                "index": drawn.index,
                "picked": drawn is step.picked,
            }
            for drawn in timeline.steps
        ],
        "pauses": [span(*pause) for pause in timeline.pauses],
        "thread": timeline.thread,
        "frames": [
            {
                **span(frame.start, frame.end),
                "name": frame.name,
                "depth": frame.depth,
                "is_own": is_own(frame.name, files),
            }
            for frame in timeline.frames
        ],
    }


def is_own(event_name: str, files: OwnFiles) -> bool:
    """Return whether a host event is a Python function in the user's own code."""
    frame = frame_of(event_name)
    return frame is not None and (files.is_asked_for(frame.file) or files.is_own(frame.file))


def timeline_of(device: Device, picked: StepEvent | None) -> DrawnPeriod | None:
    """Return the picked step and the pause after it, or before it for the last step.

    If not every step is followed by a pause, also return the steps up to the nearest pause that
    takes at least half as long as the longest. Return None if there is no pause.
    """
    if picked is None:
        return None
    steps = sequence_of(device, picked)
    place = steps.index(picked)
    first = max(0, place - N_STEPS)
    steps, place = steps[first : place + N_STEPS + 1], place - first
    within = [step for step in device.steps if step.start < steps[-1].end]
    running = union((step.start, step.end) for step in within if step.end > steps[0].start)
    gaps = [complement(running, (step.start, after.start)) for step, after in pairwise(steps)]
    longest = max(map(length_of, gaps), default=0)
    large = [i for i, pauses in enumerate(gaps) if 2 * length_of(pauses) >= longest > 0]
    if not large:
        return None
    # The gap after the picked step is the nearest, and the gap before it is the second nearest.
    nearest = min(large, key=lambda gap: (abs(2 * (gap - place) + 1), gap < place))
    is_after = nearest >= place
    start = picked.start if is_after else gaps[nearest][0][0]
    end = steps[nearest + 1].start if is_after else picked.end
    if length_of(gaps[nearest]) * SHORTEST_PAUSE < end - start:
        return None
    thread, frames = frames_in(device, gaps[nearest], (start, end))
    return DrawnPeriod(
        start,
        end,
        [step for step in within if step.end > start and step.start < end],
        gaps[nearest],
        thread,
        frames,
    )


def frames_in(
    device: Device, pauses: Sequence[Window], period: Window
) -> tuple[str | None, list[DrawnFrame]]:
    """Return the thread that works in the longest pause, else the one that most likely launches the
    programs around it, and its events during the pauses, without those that contain the period."""
    names = thread_planes(device.rank) if device.rank else []
    try:
        planes = [device.trace.plane(name) for name in names]
        launches = Launches(device, planes)
        if launches.contradict:
            return None, []
        absolute = [launches.window(*pause) for pause in pauses]
        host = Host(planes, absolute)
        longest = max(absolute, key=lambda pause: pause[1] - pause[0])
        carriers = launches.threads_around(*longest)
        works = thread_with_most_time(CriticalPaths(host, launches).of(longest, None).parts)
        shift = host.start - device.base - launches.offset
        found = []
        for thread in host.threads():
            level = launch_level(thread, carriers)
            tracks = [drawn(track, host.names, shift, pauses, period) for track in thread.tracks]
            frames = max(tracks, key=time_in_frames, default=[])
            if frames:
                rank = thread.name != works, level, -time_in_frames(frames)
                found.append((*rank, thread.name, frames))
    except Damage:
        return None, []
    if not found:
        return None, []
    *_, thread_name, frames = min(found)
    return thread_name, frames


def time_in_frames(frames: Sequence[DrawnFrame]) -> int:
    return sum(frame.end - frame.start for frame in frames if not frame.depth)


def drawn(
    track: Track, names: Sequence[str], shift: int, pauses: Sequence[Window], period: Window
) -> list[DrawnFrame]:
    """Return the events of a track that are long enough to be drawn, cut at the period's edges."""
    shortest = length_of(pauses) / SHORTEST_FRAME
    rows = []
    for begin, end, number in zip(track.starts, track.ends, track.names):  # noqa: B905
        start, stop = begin + shift, end + shift
        if start <= period[0] and stop >= period[1]:
            continue
        during = sum(max(0, min(stop, last) - max(start, first)) for first, last in pauses)
        if during >= max(shortest, 1):
            rows.append((during, max(start, period[0]), min(stop, period[1]), names[number]))
    # An event takes at least as long as the events that it contains, so these are dropped first.
    rows = sorted(rows, key=lambda row: -row[0])[:N_FRAMES]
    frames: list[DrawnFrame] = []
    around: list[int] = []
    for _, start, stop, name in sorted(rows, key=lambda row: (row[1], -row[2])):
        around = [outer for outer in around if outer > start]
        frames.append(DrawnFrame(start, stop, len(around), name))
        around.append(stop)
    return frames
