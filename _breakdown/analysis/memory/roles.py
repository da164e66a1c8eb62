"""Tell the role of a piece of memory at the peak: parameters, optimizer state, activations, …

The roles of arguments and of saved arrays are those of `by_array`, which follow from the passes
that read and write an array. What no op of the step reads or writes has no role.
"""

from __future__ import annotations

from typing import Final, Literal

from _breakdown.analysis.arrays.graph import Value
from _breakdown.analysis.arrays.of_step import (
    CACHE,
    CONSTANT,
    OPTIMIZER_STATE,
    PARAMETER,
    RESULT,
    TEMPORARY,
    StepArray,
    StepArrays,
    is_float,
)
from _breakdown.light import cached_property
from _proto.hlo.buffers import Buffer
from _proto.hlo.program import Program

Role = Literal[
    "parameter", "optimizer_state", "input", "cache", "constant", "result", "gradient",
    "activation", "logits", "temporary",
]  # fmt: skip
INPUT: Final = "input"
GRADIENT: Final = "gradient"
ACTIVATION: Final = "activation"
LOGITS: Final = "logits"
ROLES: tuple[Role, ...] = (
    PARAMETER, OPTIMIZER_STATE, INPUT, CACHE, CONSTANT, RESULT, GRADIENT, ACTIVATION, LOGITS,
    TEMPORARY,
)  # fmt: skip


class Roles:
    """The roles of the buffers of a program."""

    def __init__(self, program: Program, arrays: StepArrays) -> None:
        self._program, self._arrays = program, arrays
        self._arguments = [array for array in arrays if self._is_argument(array)]
        self._is_training = any(
            arrays.kind_of(array) == OPTIMIZER_STATE for array in self._arguments
        )

    def _is_argument(self, array: StepArray) -> bool:
        return array.is_parameter and array.value.instruction.program is self._program

    def of(self, buffer: Buffer | None) -> Role | None:
        """Return the role of a buffer, or None if no op of the step reads or writes it."""
        array = self._array_in(buffer) if buffer else None
        if array is None:
            return None
        kind = self._arrays.kind_of(array)
        if kind == PARAMETER:
            return INPUT if self._is_input(array) else PARAMETER
        return self._of_temporary(array) if kind == TEMPORARY else kind

    def _array_in(self, buffer: Buffer) -> StepArray | None:
        here, path = buffer.instruction, buffer.shape_index
        if here is None:
            return None
        if here.is_asynchronous:
            # The array is the output of the last part of an asynchronous op.
            here, path = here.chain[-1], path[1:]
        return self._arrays.array_at(Value(here, path))

    def _is_input(self, array: StepArray) -> bool:
        """Return whether a training step, which replaces its weights, does not replace an argument,
        such as a batch."""
        return self._is_training and not self._arrays.is_donated(array)

    def _of_temporary(self, array: StepArray) -> Role:
        if self._shape_of(array) in self._shapes_of_parameters:
            # Casts of weights are no activations, although the backward pass reads them, too.
            is_backward = any(use.ran.op.phase == "backward" for use in array.writes)
            return GRADIENT if is_backward else TEMPORARY
        dims = array.shape.dims
        if dims and dims[-1:] == self._vocabulary and is_float(array.shape.dtype):
            return LOGITS
        is_saved = self._arrays.is_saved(self._arrays.source_of(array))
        return ACTIVATION if is_saved else TEMPORARY

    @cached_property
    def _shapes_of_parameters(self) -> set[tuple[int, ...]]:
        return {
            self._shape_of(array)
            for array in self._arguments
            if self._arrays.kind_of(array) == PARAMETER and not self._is_input(array)
        }

    @staticmethod
    def _shape_of(array: StepArray) -> tuple[int, ...]:
        return tuple(sorted(array.shape.dims))

    @cached_property
    def _vocabulary(self) -> tuple[int, ...]:
        """Return the number of rows of the largest parameter, or cast of one, that a gather reads,
        as the only element of a tuple; an empty tuple without such a parameter."""
        tables = (
            array
            for ran, used in self._arrays.uses_of.items()
            if (here := ran.op.instruction) and "gather" in here.opcodes
            for array, use in used
            if not use.is_write and self._is_table(array)
        )
        largest = max(tables, key=lambda array: array.shape.n_elements, default=None)
        return largest.shape.dims[:1] if largest else ()

    def _is_table(self, array: StepArray) -> bool:
        """Return whether an array with more rows than columns has the shape of a parameter and is
        one, or is computed from arrays of this shape only."""
        shape = self._shape_of(array)
        sources = {
            self._shape_of(other)
            for maker in array.makers
            for other, use in self._arrays.uses_of[maker]
            if not use.is_write
        }
        is_weight = shape in self._shapes_of_parameters and sources <= {shape}
        return is_weight and array.shape.dims[:1] == shape[-1:]
