"""Find arrays of one number that are written to memory without need."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import removal_of
from _breakdown.analysis.arrays.graph import Value
from _breakdown.analysis.arrays.of_step import StepArray
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.step_program import StepProgram, collective_name_of, total_of
from _breakdown.analysis.sizes.repeats import is_one_number
from _breakdown.pipeline.groups import grouped
from _breakdown.units import counted, size, time

# An exchange that writes its rows into a buffer of the program.
_EXCHANGE = "ragged-all-to-all"
_RETURNED, _OVERWRITTEN = "the step returns", f"a {_EXCHANGE} then writes over"
FOR_RESULTS = (
    "Make the array once, outside of the step. Otherwise constrain its sharding"
    " (with_sharding_constraint), so that each device writes only its part."
)
FOR_BUFFERS = (
    "Make the buffer with jax.lax.empty instead of jnp.zeros, if nothing reads the rows that the"
    " exchange leaves out."
)


def find(of: StepProgram) -> Iterator[Cause]:
    arrays = (
        of.arrays.by_value.get(Value(here))
        for here in of.run_with("broadcast")
        # The operand of a damaged program can be missing.
        if any(is_one_number(Value(one)) for one in here.operands)
    )
    written = [array for array in arrays if array and len(array.writes) == 1]
    by_use = grouped((_use_of(array), array) for array in written)
    for use, remedy in ((_RETURNED, FOR_RESULTS), (_OVERWRITTEN, FOR_BUFFERS)):
        if found := by_use.get(use):
            biggest = max(found, key=lambda array: array.shape.n_bytes or 0).shape
            ops = [array.writes[0].ran for array in found]
            yield Cause(
                f"{time(total_of(ops))} at <line> go to {counted(len(found), 'array')} of one"
                f" number that {use}, such as {biggest.text} ({size(biggest.n_bytes or 0)})."
                " Without writing them, the step would save <gain>.",
                remedy,
                LIKELY,
                ops,
                list(removal_of(ops)),
                evidence={"shape": biggest.text},
            )


def _use_of(array: StepArray) -> str | None:
    if array.is_result and not array.reads:
        return _RETURNED
    are_exchanges = [collective_name_of(use.ran.op) == _EXCHANGE for use in array.reads]
    return _OVERWRITTEN if are_exchanges and all(are_exchanges) else None
