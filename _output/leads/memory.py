"""Write the headline and next steps for mode `memory`: the peak, and the largest buffer at the
peak."""

from __future__ import annotations

from collections.abc import Iterator

from _output.phrases import Next, at_line_of, bracketed, joined
from _units import size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.memory import Answer


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    peak = answer["peak_at"]
    where = at_line_of(peak, answer) if peak else ""
    yield f"The program's HBM peak is {size(answer['peak_bytes'])}{where}."
    if answer["buffers"]:
        top = answer["buffers"][0]
        shape = top["shape"] or "a buffer"
        share = bracketed(top["pct_of_peak"])
        line = at_line_of(top, answer)
        yield f"The largest buffer is {shape}{line}: {size(top['bytes'])}{share}."
    runtime = answer["runtime"]
    if runtime and runtime["min_available_bytes"] is not None:
        yield f"At least {size(runtime['min_available_bytes'])} stayed free on the device."


def next_steps(answer: Answer) -> Iterator[Next]:
    yield Next("which arguments are donated", ("--mode", "program"))
