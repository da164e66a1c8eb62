"""Find arguments that keep their memory although an output of the same shape could reuse it.

    step = jit(train_step)                              # old and new state are both in memory
    step = jit(train_step, donate_argnums=(0, 1, 2))    # the new state takes the old one's memory

An argument is reported if it was not donated and has the shape of an output that does not reuse the
memory of any argument. The cause is always `likely`, because the program does not show whether the
caller still needs the argument. The cause costs memory, not time. All arguments share one row,
because a training state often consists of many small arrays.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from _analysis.causes.cause import LIKELY, Cause, Evidence
from _analysis.causes.sentences import clipped
from _analysis.causes.step_program import StepProgram
from _analysis.remedies import CAUSES
from _proto.hlo.parameters import Parameter, read_parameters
from _proto.hlo.text import HBM
from _units import counted, size

NAME: Final = "not_donated"
# The cause is not reported if these arguments together take less than 1 / `_SMALLEST_SHARE` of the
# memory of all arguments.
_SMALLEST_SHARE = 100


def find(of: StepProgram) -> list[Cause]:
    program = of.program
    parameters = read_parameters(program)
    entry = program.computation(program.message.entry_computation_id)
    outputs = entry.root.arrays if entry and entry.root else None
    if not parameters or outputs is None:
        return []
    free = Counter(array.text for array in outputs if array.memory_space == HBM)
    kept = []
    n_all = 0
    for parameter in parameters:
        array = parameter.array
        if array is None or array.memory_space != HBM or not array.n_bytes:
            continue
        n_all += array.n_bytes
        if parameter.is_aliased:
            free[array.text] -= 1
        elif not parameter.is_donor:
            kept.append((parameter, array.text, array.n_bytes))
    wasted: list[tuple[Parameter, int]] = []
    for parameter, text, n_bytes in kept:
        if free[text] > 0:
            free[text] -= 1
            wasted.append((parameter, n_bytes))
    n_bytes = sum(n for _, n in wasted)
    if n_bytes * _SMALLEST_SHARE < n_all or not wasted:
        return []
    wasted.sort(key=lambda pair: -pair[1])
    names = ", ".join(
        clipped(parameter.path or f"argument {parameter.number}") for parameter, _ in wasted[:2]
    )
    more = ", …" if len(wasted) > 2 else ""
    return [
        Cause(
            NAME,
            0,
            f"{counted(len(wasted), 'argument')} ({names}{more})"
            f" {'stays' if len(wasted) == 1 else 'stay'} in memory next to outputs of the"
            " same shapes. Donating the arguments that are not used after the call would free"
            f" about {size(n_bytes)} of HBM on each device.",
            CAUSES[NAME],
            LIKELY,
            Evidence([]),
            gain_bytes=n_bytes,
        )
    ]
