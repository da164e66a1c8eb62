"""Lead of spread: whether a device is slow, and what that costs."""

from __future__ import annotations

from _output.leads.phrases import Next, counted, joined

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from _output.fields.spread import Answer, Cohort


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
    slowest = cohort["devices"][0]
    name = f"{slowest['device'].removeprefix('/device:')} of {slowest['host']}"
    straggler = verdict["straggler"]
    if straggler:
        name = f"{straggler['device'].removeprefix('/device:')} of {straggler['host']}"
        return (
            f"{name} is slow: it has the largest load in {verdict['n_slowest']} of"
            f" {counted(verdict['n_steps'], 'step')}."
        )
    return f"{(verdict['imbalance'] or 'unknown').capitalize()} load; the slowest device is {name}."


def next_steps(answer: Answer) -> Iterator[Next]:
    for cohort in answer["cohorts"][:1]:
        if cohort["verdict"]["straggler"]:
            device = cohort["verdict"]["straggler"]["device"]
            yield Next("what this device does", ("--mode", "bottleneck", "--device", device))
