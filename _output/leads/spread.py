"""Write the headline and next steps for mode `spread`: the slow device or host, and its cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from _output.phrases import Next, joined
from _units import counted, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.spread import Answer, Cohort


IMBALANCES: Final = {
    "balanced": "Balanced",
    "slight": "Slightly unbalanced",
    "large": "Unbalanced",
}


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    if not answer["cohorts"]:
        yield "No two devices ran the same program."
        return
    cohort = answer["cohorts"][0]
    yield verdict(cohort)
    others = len(answer["cohorts"]) - 1
    if others:
        yield f"{counted(others, 'other group')} of devices ran other programs."


def verdict(cohort: Cohort) -> str:
    verdict = cohort["verdict"]
    if verdict["why_not"] == "one_device":
        return "Only one device ran this program, so there is nothing to compare."
    if verdict["why_not"] == "no_common_step":
        return "The devices have no step in common, so their loads cannot be compared."
    # An answer with a verdict also contains the slowest device.
    assert cohort["slowest_vs_median"] is not None
    slow = cohort["slowest_vs_median"]["slow"]
    name = " of ".join((slow["device"].removeprefix("/device:"), slow["host"]))
    step = cohort["hosts"][0]["step_duration_ps"] or 0
    if verdict["host_gain_ps"] is not None:
        host = verdict["slow_host"]["host"] if verdict["slow_host"] else slow["host"]
        cost = f"{time(verdict['host_gain_ps'])} of the {time(step)} step"
        return f"Host {host} is slow: it costs {cost}."
    cost = f"{time(verdict['gain_ps'] or 0)} of the {time(step)} step"
    if verdict["straggler"]:
        return (
            f"{name} is slow, costs {cost}, and has the largest load in"
            f" {verdict['n_slowest']} of {counted(verdict['n_steps'], 'step')}."
        )
    imbalance = IMBALANCES[verdict["imbalance"] or "balanced"]
    return f"{imbalance}: the slowest device, {name}, costs {cost}."


def next_steps(answer: Answer) -> Iterator[Next]:
    for cohort in answer["cohorts"][:1]:
        slow, trace = cohort["verdict"]["straggler"], answer["trace_of_straggler"]
        if slow and trace:
            place = ("--device", slow["device"], "--host", trace["host"])
            words = ("--mode", "bottleneck", *place)
            yield Next("what this device does", words, trace["profile"])
