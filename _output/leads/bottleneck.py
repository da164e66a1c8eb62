"""Write the headline and next steps for mode `bottleneck`: the largest cause, preferably a certain
one, then the class that loses the most time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from _output.phrases import Next, at_line_of, bracketed, joined, pause_sentence, short
from _units import part_of, span, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.bottleneck import Answer, Cause, Finding, UnknownKernel

# The headline mentions a cause only if its gain is at least this percentage of the step.
WORTH_NAMING_PCT: Final = 5
# Suggest a command about a part of the step, such as communication, only above this percentage.
WORTH_A_LOOK_PCT: Final = 3
CLASSES: Final = {
    "collective": "communication that nothing hides",
    "host": "transfers between host and device",
    "data_movement": "data movement such as copies",
    "compute_bound": "compute-bound math",
    "memory_bound": "memory-bound math",
    "kernel": "kernels of unknown cost",
    "unjudged": "math of unknown cost",
    "other": "ops of unknown kind",
    "idle": "idle time",
}
PAUSE: Final = "pause_between_steps"
SLOW_DEVICE: Final = "slow_device"
CAUSES: Final = {
    "collective_in_loop": "Communication that a loop repeats",
    "kernel_waits_for_input": "Waiting for copies in a kernel",
    "large_intermediate": "Writing and re-reading a large array",
    "layout_change": "Changing the layout of arrays",
    "not_donated": "Not donating arguments",
    "one_hot_matmul": "A matmul with a one-hot matrix",
    "recompute": "Recomputation of forward work",
    "recomputed_repeatedly": "Recomputing the same work more than once",
    "resharding": "Resharding arrays",
    "slow_device": "A slow device",
    "synchronous_collective": "Communication that could run during math",
    "widened_dtype": "Widening values to f32",
}


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    cause = main_cause(answer)
    if cause:
        yield cause_says(cause, answer)
    # The sentence about the pauses replaces the verdict if the device is idle mostly in pauses.
    pause = "" if cause and cause["cause"] == PAUSE else pause_sentence(answer)
    pause_first = answer["bottleneck"] == "idle" and mostly_pauses(answer)
    if pause_first:
        yield pause
    else:
        yield verdict(answer)
    yield from bounds(answer)
    if not pause_first:
        yield pause


def mostly_pauses(answer: Answer) -> bool:
    """Return whether the device is idle longer between steps than in the step."""
    return (answer["between_steps_ps"] or 0) > time_of("idle", answer)


def cause_says(cause: Cause, answer: Answer) -> str:
    likely, share = cause["confidence"] == "likely", bracketed(cause["gain_pct_of_step"])
    if cause["cause"] == PAUSE:
        # The pause is outside the step, so its percentage is relative to the period.
        return pause_says(cause, answer["period_ps"] or 0)
    what, device = CAUSES[cause["cause"]], cause["evidence"].get("device")
    if device:
        what += f", {device.removeprefix('/device:')},"
    costs = "probably costs" if likely else "costs"
    gain = part_of(cause["gain_ps"], answer["step_duration_ps"])
    return f"{what}{at_line_of(cause, answer)} {costs} about {gain}{share}."


def pause_says(cause: Cause, period_ps: int) -> str:
    share = bracketed(cause["gain_pct_of_step"])
    waits = part_of(cause["gain_ps"], period_ps) + share
    probably = " probably" if cause["confidence"] == "likely" else ""
    host = f"for the host{at_line_of(cause)}"
    pauses = cause["evidence"].get("pauses")
    if not pauses or pauses["n"] == pauses["n_gaps"]:
        return f"Between steps, the device{probably} waits {waits} {host}."
    how_long = span(pauses["min_ps"], pauses["max_ps"])
    how_often = f"The device{probably} waits {how_long} {pauses['when']}"
    if pauses["n"] == 1:
        # A pause that occurred once is not a cost of every step.
        return f"{how_often}, {host}{share}."
    return f"{how_often} {host}, on average {waits} per step."


def main_cause(answer: Answer) -> Cause | None:
    """Return the first large cause with confidence `seen`, or else the first large cause. Skip
    recomputation: the step may take just as long without it, because writing and reading the
    activations also takes time.
    """
    large = [
        row
        for row in answer["causes"]
        if row["gain_pct_of_step"] >= WORTH_NAMING_PCT and row["cause"] != "recompute"
    ]
    return next((row for row in large if row["confidence"] == "seen"), next(iter(large), None))


def verdict(answer: Answer) -> str:
    step = answer["step_duration_ps"]
    name = answer["bottleneck"]
    if name == "at_roof":
        return "The step is almost as fast as the chip allows."
    lost = time_of(name, answer)
    if name in ("kernel", "unjudged"):
        kernel = next(iter(answer["kernels_of_unknown_cost"]), None) if name == "kernel" else None
        where = f" ({time(kernel['dur_ps'])}{place(kernel, answer)})" if kernel else ""
        return f"The largest loss may be {CLASSES[name]}: {part_of(lost, step)}{where}."
    worst = next((row for row in answer["findings"] if row["class"] == name), None)
    where = ""
    if worst and worst["lost_ps"]:
        where = f" ({time(worst['lost_ps'])}{place(worst, answer)})"
    if name == "collective":
        where = waiting(answer) + where
    peaks = f" on {answer['chip']}" if answer["chip_is_assumed"] else ""
    return f"The largest loss{peaks} is {CLASSES[name]}: {part_of(lost, step)}{where}."


def waiting(answer: Answer) -> str:
    """Return the part of the communication that waits for late devices, or an empty text."""
    peers = answer["totals"]["peers"]
    wait = (peers and peers["peer_wait_ps"]) or 0
    is_large = wait * 100 >= WORTH_A_LOOK_PCT * answer["step_duration_ps"]
    return f", of which {time(wait)} is waiting for late devices" if is_large else ""


def bounds(answer: Answer) -> Iterator[str]:
    """Yield a sentence about how fast the chip could run the step, if a bound is known."""
    light = answer["speed_of_light"]
    if light["at_least_ps"] and answer["bottleneck"] != "at_roof":
        chip = answer["chip"] if answer["chip_is_assumed"] else "The chip"
        most = min(light["at_most_ps"], answer["step_duration_ps"])
        yield f"{chip} could run this step in {time(light['at_least_ps'])} to {time(most)}."


def time_of(name: str, answer: Answer) -> int:
    row = next(row for row in answer["budget"] if row["class"] == name)
    return row["dur_ps"] if row["lost_ps"] is None else row["lost_ps"]


def place(row: Finding | UnknownKernel, answer: Answer) -> str:
    line = at_line_of(row, answer)
    return f" in {short(row['kernel'])}{line}" if row["kernel"] else line


def next_steps(answer: Answer) -> Iterator[Next]:
    is_late = bool(waiting(answer)) or any(row["cause"] == SLOW_DEVICE for row in answer["causes"])
    if is_late:
        yield Next("which device is late in all steps, and on which lines", ("--mode", "spread"))
    yield from costliest_op(answer)
    budget = {row["class"]: row for row in answer["budget"]}
    exposed = (budget["collective"]["pct_of_step"] or 0) >= WORTH_A_LOOK_PCT
    has_peers = len(answer["capture"]["devices"]) > 1
    if exposed and has_peers and not is_late:
        yield Next(
            "whether communication waits for a slow device or for the network",
            ("--mode", "comm", "--peers"),
        )
    if (budget["idle"]["pct_of_step"] or 0) >= WORTH_A_LOOK_PCT:
        yield Next(
            "why the device is idle, and what the host does at that time", ("--mode", "idle")
        )
    if (exposed and not has_peers) or (budget["host"]["pct_of_step"] or 0) >= WORTH_A_LOOK_PCT:
        yield Next("the time of each collective, and how much of it is hidden", ("--mode", "comm"))
    if pause_sentence(answer):
        yield Next("what the host does between steps", ("--mode", "idle", "--step", "all"))
    if (budget["kernel"]["pct_of_step"] or 0) >= WORTH_A_LOOK_PCT:
        yield Next("what happens inside kernels", ("--mode", "kernel"))


def costliest_op(answer: Answer) -> Iterator[Next]:
    """Yield the command that shows an op of the main cause, or else the op that loses the most
    time."""
    cause = main_cause(answer)
    if cause and cause["evidence"]["ops"]:
        name, why = cause["evidence"]["ops"][0], f"details of an op of cause {cause['cause']}"
        device = cause["evidence"].get("device")
        more = ("--device", device) if device else ()
    elif answer["findings"]:
        name, why = answer["findings"][0]["hlo_op"], "details of the op that loses the most time"
        more = ()
    else:
        return
    yield Next(why, ("--mode", "by_op", "--op", name, "--top", "0", *more))
