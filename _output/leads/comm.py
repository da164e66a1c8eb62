"""Write the headline and next steps for mode `comm`: how long communication stops the step, and the
line with the largest part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from _output.phrases import Next, at_line_of, bracketed, joined
from _units import part_of, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.comm import Answer
    from _output.fields.rows import PeersOfStep

WORTH_A_LOOK_PCT: Final = 3


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    step, totals, rows = answer["step_duration_ps"], answer["totals"], answer["rows"]
    exposed, host = totals["exposed_ps"], totals["host_ps"]
    if not exposed and not host:
        yield "Nothing in this step waits for communication."
    if exposed and totals["peers"] and totals["peers"]["by_device"]:
        yield from waiting(answer, totals["peers"])
    elif exposed:
        share = bracketed(totals["exposed_pct_of_step"])
        yield f"Communication stops the step for {part_of(exposed, step)}{share}."
    if host:
        share = bracketed(totals["host_pct_of_step"])
        yield f"Transfers between host and device stop the step for {part_of(host, step)}{share}."
    if rows and (exposed or host):
        top = max(rows, key=lambda row: row["sync_dur_ps"] + row["wait_dur_ps"])
        line = at_line_of(top, answer)
        took = time(top["sync_dur_ps"] + top["wait_dur_ps"])
        yield f"The largest part is {top['collective']}{line}: {took}."


def waiting(answer: Answer, peers: PeersOfStep) -> Iterator[str]:
    """Yield sentences that say whether communication waits for a late device or for the network."""
    exposed, unmatched = answer["totals"]["exposed_ps"], peers["unmatched_ps"] or 0
    wait, transfer = peers["peer_wait_ps"] or 0, peers["transfer_ps"] or 0
    own = next(row for row in peers["by_device"] if row["device"] == answer["device"])
    last = max(peers["by_device"], key=lambda row: row["caused_ps"])
    if not wait + transfer:
        yield (
            f"None of the {time(exposed)} of exposed communication could be matched with other"
            " devices."
        )
    else:
        rest = f"; {time(unmatched)} is unknown" if 100 * unmatched > exposed else ""
        yield (
            f"Exposed communication takes {time(exposed)}: {time(wait)} is waiting for a late"
            f" device, {time(transfer)} is transfer{rest}."
        )
    if last["caused_ps"] * 100 > exposed and last["caused_ps"] > 2 * last["peer_wait_ps"]:
        whom = "this device" if last is own else last["device"].removeprefix("/device:")
        yield f"All devices together wait {time(last['caused_ps'])} for {whom}."
    if own["barrier_ps"] > wait:
        yield f"This device waits {time(own['barrier_ps'])} at barriers before collectives."


def next_steps(answer: Answer) -> Iterator[Next]:
    peers = answer["totals"]["peers"]
    if (answer["totals"]["exposed_pct_of_step"] or 0) >= WORTH_A_LOOK_PCT:
        if peers is None:
            yield Next(
                "whether communication waits for a late device", ("--mode", "comm", "--peers")
            )
        elif (
            20 * sum(row["caused_ps"] for row in peers["by_device"])
            > answer["totals"]["exposed_ps"]
        ):
            yield Next("on which lines the late device is slow", ("--mode", "spread"))
        yield Next("how the compiler moves each collective", ("--mode", "program"))
