"""Find arguments that keep their memory although an output of the same shape could reuse it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.sentences import clipped
from _breakdown.analysis.causes.shared.step_program import StepProgram
from _breakdown.units import counted, size
from _proto.hlo.parameters import Parameter, read_parameters
from _proto.hlo.text import HBM

# The cause is not reported if these arguments together take less than 1 / `_SMALLEST_SHARE` of the
# memory of all arguments.
_SMALLEST_SHARE = 100

REMEDY = (
    "Pass donate_argnums or donate_argnames to jax.jit for arguments that are not used after the"
    " call, such as the old state."
)


def find(of: StepProgram) -> Iterator[Cause]:
    program = of.program
    parameters = read_parameters(program)
    entry = program.computation(program.message.entry_computation_id)
    outputs = entry.root.arrays if entry and entry.root else None
    if not parameters or outputs is None:
        return
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
    if wasted and n_bytes * _SMALLEST_SHARE >= n_all:
        yield _cause(sorted(wasted, key=lambda pair: -pair[1]), n_bytes)


def _cause(wasted: list[tuple[Parameter, int]], n_bytes: int) -> Cause:
    names = ", ".join(
        clipped(parameter.path or f"argument {parameter.number}") for parameter, _ in wasted[:2]
    )
    more = ", …" if len(wasted) > 2 else ""
    return Cause(
        f"{counted(len(wasted), 'argument')} ({names}{more})"
        f" {'stays' if len(wasted) == 1 else 'stay'} in memory next to outputs of the same shapes."
        " Donating the arguments that are not used after the call would free about"
        f" {size(n_bytes)} of HBM on each device.",
        REMEDY,
        LIKELY,
        gain_bytes=n_bytes,
    )
