"""Write the headline and next steps for mode `kernel`: the costliest kernel, and how long it
waits."""

from __future__ import annotations

from collections.abc import Iterator

from _output.phrases import Next, at_line_of, bracketed, joined, short
from _units import part_of, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.kernel import Answer, Kernel


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    if not answer["kernels"]:
        omitted = answer["tail"]["dur_ps"]
        yield (
            f"The kernels of this answer take {time(omitted)}."
            if omitted
            else "No kernel ran in this step."
        )
        return
    top = answer["kernels"][0]
    line = at_line_of(top, answer)
    taken = part_of(top["total_dur_ps"], answer["step_duration_ps"]) + bracketed(top["pct_of_step"])
    yield f"The costliest kernel is {short(top['kernel'])}{line}: {taken}."
    yield from inside(top)
    if top["lost_ps"] is None:
        yield "The kernel's flops and bytes are unknown."
    else:
        cost = " (declared cost)" if top["cost_source"] == "declared" else ""
        chip = answer["chip"] if answer["chip_is_assumed"] else "the chip"
        yield f"The kernel takes {time(top['lost_ps'])} more than {chip} needs{cost}."


def inside(kernel: Kernel) -> Iterator[str]:
    if kernel["waiting_ps"] is None:
        yield "The capture does not show what happens inside the kernel."
        return
    waiting = part_of(kernel["waiting_ps"], kernel["total_dur_ps"])
    yield f"The kernel spends {waiting}{bracketed(kernel['waiting_pct'])} waiting for copies."


def next_steps(answer: Answer) -> Iterator[Next]:
    for row in answer["kernels"][:1]:
        if row["n_ops"] > 1:
            yield Next("the ops of this kernel", ("--mode", "kernel", "--kernel", row["kernel"]))
    yield Next("where the step loses time, and why", ("--mode", "bottleneck"))
