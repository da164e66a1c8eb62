"""Write the headline and next steps for mode `program`: the number of instructions, collectives and
kernels, and donated memory that is not reused."""

from __future__ import annotations

from collections.abc import Iterator

from _output.phrases import Next, joined, short
from _units import counted, size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.program import Answer


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    devices = answer["n_devices"]
    on = f" ({counted(devices, 'device')})" if devices else ""
    collectives = sum(row["n_instructions"] for row in answer["collectives"])
    parts = [counted(answer["n_instructions"], "instruction")]
    if collectives:
        parts.append(counted(collectives, "collective"))
    if answer["kernels"]:
        parts.append(counted(len(answer["kernels"]), "kernel"))
    yield f"The program {short(answer['name'])}{on} has {', '.join(parts)}."
    if answer["retries"]:
        yield f"{counted(len(answer['retries']), 'op')} had to be compiled more than once."
    if answer["donated_unused_bytes"]:
        yield f"{size(answer['donated_unused_bytes'])} of donated arguments are not reused."


def next_steps(answer: Answer) -> Iterator[Next]:
    if answer["collectives"]:
        yield Next("what communication costs", ("--mode", "comm"))
