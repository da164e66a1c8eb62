"""Define `Op`, with the properties that are the same for all executions of an op."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from _breakdown.light import cached_property
from _breakdown.pipeline import frames, scopes
from _breakdown.pipeline.frames import StackOrder
from _breakdown.pipeline.surroundings import Surroundings
from _breakdown.pipeline.vocabulary import (
    ASYNC,
    ASYNC_COLLECTIVE_DONE,
    ASYNC_COLLECTIVE_START,
    CAST,
    COLLECTIVES,
    COMM,
    CONTAINER,
    CUSTOM_CALL,
    DMA,
    HOST,
    HOST_TRANSFERS,
    NO_CATEGORY,
    NO_SOURCE,
    OTHER,
    SOME_COLLECTIVE,
    SPARSE_CORE,
    STACK,
    TF_OP,
    KeyKind,
    Kind,
    Phase,
    async_collective,
    kind_of,
    may_be_matmul,
)
from _proto.hlo.text import (
    HOST_MEMORY,
    ArrayText,
    DtypeClass,
    HloText,
    dtype_class,
    main_dtype,
    named_after,
    parse_shape,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _proto.hlo.backend_config import DeclaredCost
    from _proto.hlo.collectives import Collective
    from _proto.hlo.dots import Dot
    from _proto.hlo.program import Instruction, Program
    from _proto.hlo.programs import Programs
    from _proto.hlo.traffic import FusionTraffic
    from _proto.trace.plane import Metadata, Value

# Categories of ops that are one half of a transfer, besides start ops.
HALVES = ("send", "recv", *HOST_TRANSFERS)
# Code for HBM in the stat memory_access_breakdown.
HBM_SPACE = 1
# Compiled on use, because few modes need it.
MATMUL_INPUT = r"b?f\d\w*|[su][1-8]"
# An op is identified by its program and name, because names are unique only within a program.
Place = tuple["int | None", str]


def dtype_of(outputs: list[ArrayText]) -> DtypeClass:
    return dtype_class(main_dtype(outputs)) if outputs else OTHER


@cache
def fits_matmul(hlo_dtype: str) -> bool:
    return re.fullmatch(MATMUL_INPUT, hlo_dtype) is not None


@cache
def dtype_of_shape(shape: str) -> DtypeClass:
    return dtype_of(parse_shape(shape)[0])


def as_text(value: Value | None) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else ""


def as_count(value: Value | None) -> int | None:
    """Return a count of flops or bytes, or None if it is invalid; the compiler writes -1 for an
    unknown count."""
    if isinstance(value, (int, float)) and 0 <= value < 1 << 63:
        return int(value)
    return None


class Op:
    """An op, which corresponds to an entry of the event metadata. Properties that few modes need
    are computed on demand."""

    def __init__(
        self,
        metadata: Metadata,
        programs: Programs,
        is_own: Callable[[str], bool],
        stack_order: StackOrder | None,
    ) -> None:
        stats = metadata.stats
        self.metadata = metadata
        self.is_own = is_own
        self._programs = programs
        self.text = metadata.name
        self.hlo = HloText(metadata.name)
        self.name = self.hlo.name
        self.category = as_text(stats.get("hlo_category")) or NO_CATEGORY
        if self.category == "non-fusion elementwise" and self.hlo.opcode == CAST:
            # The profiler classifies casts as elementwise math.
            self.category = CAST
        kind = kind_of(self.category, self.hlo.name)
        self.kind: Kind = kind or OTHER
        self.is_known = kind is not None
        self.async_collective = async_collective(self.category, self.hlo.name)
        self.stored_stack = stored = frames.stack_of(as_text(stats.get("source_stack")))
        self.stack_order = stack_order
        # The stack, outermost frame first.
        self.stack = stored
        if stored and stack_order != frames.OUTERMOST_FIRST:
            self.stack = stored.backwards
        # The source line that the trace stores in addition to the stack.
        self.source = as_text(stats.get("source")) or None
        self.tf_op = as_text(stats.get("tf_op")) or None
        program_id = stats.get("program_id")
        self.program_id = program_id % (1 << 64) if isinstance(program_id, int) else None
        # The other ops of the step; None while several steps are read.
        self.around: Surroundings | None = None
        # The line of an op without a stack. `_breakdown/analysis/source/likely_lines.py` finds it.
        self.likely_line: Any = None

    @property
    def is_container(self) -> bool:
        return self.kind == CONTAINER

    @property
    def is_wait(self) -> bool:
        """Return whether the op waits for an asynchronous op to finish."""
        return self.category.endswith("-done") or self.async_collective == ASYNC_COLLECTIVE_DONE

    @property
    def is_start(self) -> bool:
        """Return whether the op only starts work that another op waits for."""
        return self.category.endswith("-start") or self.async_collective == ASYNC_COLLECTIVE_START

    @property
    def begins(self) -> bool:
        """Return whether the op has a name and begins work that another op waits for: a start, send
        or receive."""
        is_first = self.is_start or self.category in HALVES
        return is_first and bool(self.name) and not self.is_container

    @property
    def source_stack(self) -> str | None:
        return self.stack.text if self.stack else None

    @cached_property
    def source_inner(self) -> str | None:
        """Return the op's source line as `file:line`.

        Prefer the innermost frame of the stack, because frames contain the full path. Use `source`
        if the op has no stack, or if the two disagree.
        """
        if self.stack is None or self.has_other_source:
            return self.source
        return frames.line_of(self.stack.frames[-1])

    @property
    def has_other_source(self) -> bool:
        """Return whether `source` differs from the innermost frame of the stack. If so, one of them
        is wrong."""
        if self.stack is None or self.source is None:
            return False
        return not frames.fits(self.source, self.stack.frames[-1])

    @cached_property
    def source_user(self) -> str | None:
        """Return the innermost source line in the user's own code."""
        if self.stack:
            return self.stack.innermost_own(self.is_own)
        return frames.innermost_own([self.source], self.is_own) if self.source else None

    @cached_property
    def agg_key(self) -> str:
        if self.stack:
            return f"stack:{self.stack.digest}"
        return f"tfop:{self.tf_op}" if self.tf_op else f"<no source>:{self.category}"

    @property
    def agg_key_kind(self) -> KeyKind:
        if self.stored_stack:
            return STACK
        return TF_OP if self.tf_op else NO_SOURCE

    @cached_property
    def path(self) -> str | None:
        """Return the path of the op's scope and primitive, from the trace or else the program."""
        if self.tf_op is None and self.instruction:
            # If a done op has no path, use the path of the matching start.
            return self.instruction.tf_op or self.instruction.chain[0].tf_op
        return self.tf_op

    @cached_property
    def all_scopes(self) -> list[scopes.Scope]:
        """Return the positions of the op in the program's structure: none if unknown, and several
        for a collective that the compiler combined from several layers."""
        own = [scopes.scope_of(self.path)] if self.path else []
        if self.kind != COMM or not self.instruction:
            return own
        # Import late, because captures without programs do not need the module.
        from _proto.hlo.combined import combined_paths

        paths = combined_paths(self.instruction)
        return list(dict.fromkeys(map(scopes.scope_of, paths))) or own

    @cached_property
    def scope(self) -> scopes.Scope | None:
        """Return the scope that contains all scopes of the op, or None if unknown."""
        if len(self.all_scopes) > 1:
            return scopes.common_scope(self.all_scopes)._replace(
                primitive=self.all_scopes[0].primitive
            )
        return next(iter(self.all_scopes), None)

    @cached_property
    def waits_for(self) -> str:
        """Return what the core waits for during the op. The op must be communication or a wait."""
        name = self.name if self.category in ASYNC else self.category.replace(" ", "-")
        if name.startswith("all-reduce-scatter"):
            return "reduce-scatter"
        collective = named_after(name, COLLECTIVES)
        if collective:
            return collective
        if self.async_collective:
            return self.inside.opcode if self.inside else SOME_COLLECTIVE
        if self.kind == COMM and self.category in ASYNC:
            return SOME_COLLECTIVE
        if self.kind == COMM or self._names_host_memory:
            # Communication that is not a collective is a transfer to or from the host.
            return HOST
        return SPARSE_CORE if "sparse-core" in self.name or "offload" in self.name else DMA

    @property
    def _names_host_memory(self) -> bool:
        arrays = [*self.hlo.outputs, *self.hlo.operands] if self.hlo.can_name_host_memory else []
        return any(array.memory_space == HOST_MEMORY for array in arrays)

    @cached_property
    def phase(self) -> Phase:
        if self.tf_op is None:
            # If the trace has no path, trust `.remat` in the op's name only if the program contains
            # a path.
            return "recompute" if ".remat" in self.name and self.scope else "unknown"
        if ".remat" in self.name or "/rematted_computation/" in self.tf_op:
            return "recompute"
        if "transpose(" in self.tf_op and "jvp" in self.tf_op:
            return "backward"
        return "forward" if "jvp(" in self.tf_op else "other"

    @cached_property
    def signature(self) -> str:
        if self.hlo.target:
            return f"custom-call:{self.hlo.target}"
        if self.hlo.name and (self.category.endswith("fusion") or self.category in ASYNC):
            return f"{self.hlo.base_name} [{self.category}]"
        return f"{self.hlo.opcode or '<no text>'} [{self.category}]"

    @cached_property
    def kernel(self) -> str | None:
        """Return the name of the custom (Pallas) kernel that the op runs."""
        return self.hlo.base_name if self.hlo.target == "tpu_custom_call" else None

    @property
    def program(self) -> Program | None:
        """Return the op's compiled program, or None if the trace does not contain it."""
        return None if self.program_id is None else self._programs.program(self.program_id)

    @cached_property
    def instruction(self) -> Instruction | None:
        """Return the op's instruction in the program."""
        program = self.program
        return program.instruction(self.name) if program and self.name else None

    @property
    def own_line(self) -> str | None:
        """Return the op's source line according to the program."""
        return self.instruction.line if self.instruction else None

    @cached_property
    def inside(self) -> Collective | None:
        """Return the collective that the op is or contains, according to the program."""
        # Import late, because captures without programs do not need the module.
        from _proto.hlo.collectives import collective_of

        return collective_of(self.instruction) if self.instruction else None

    @property
    def place(self) -> Place:
        return self.program_id, self.name

    @property
    def has_only_started(self) -> bool:
        """Return whether the op only starts a transfer, so that it ends before the data has
        moved."""
        return self.is_start or self.hlo.opcode.endswith("-start")

    @property
    def is_to_host(self) -> bool:
        """Return whether the op moves data to host memory."""
        if not self.hlo.can_name_host_memory:
            return False
        # The result of a copy-start is (destination, source, context).
        outputs = self.hlo.outputs[:1] if self.has_only_started else self.hlo.outputs
        return any(array.memory_space == HOST_MEMORY for array in outputs)

    @cached_property
    def shape(self) -> str | None:
        return as_text(self.metadata.stats.get("shape_with_layout")) or None

    @cached_property
    def dot(self) -> Dot | None:
        """Return the matmul that the op is or contains, according to the program."""
        from _proto.hlo.dots import dot_of

        return dot_of(self.instruction) if self.instruction else None

    @cached_property
    def dot_flops(self) -> int | None:
        """Return the flops of the op's matmuls, according to the program."""
        from _proto.hlo.flops import flops_of

        return flops_of(self.instruction) if self.instruction else None

    @cached_property
    def traffic(self) -> FusionTraffic | None:
        """Return the bytes that a fusion moves if it reads or updates only slices of arrays."""
        from _proto.hlo.traffic import traffic_of

        return traffic_of(self.instruction) if self.instruction else None

    @property
    def dtypes_read(self) -> list[str] | None:
        """Return the dtypes that the operands of the op's dots have in memory, according to the
        program."""
        from _proto.hlo.dots import dtypes_read

        return dtypes_read(self.instruction) if self.instruction else None

    @property
    def outputs(self) -> list[ArrayText]:
        """Return the op's output arrays, read from the HLO text or else from the stat
        `shape_with_layout`."""
        return self.hlo.outputs or parse_shape(self.shape or "")[0]

    @cached_property
    def dtype(self) -> DtypeClass:
        """Return the dtype of the output array with the most elements."""
        outputs = self.hlo.outputs
        return dtype_of(outputs) if outputs else dtype_of_shape(self.shape or "")

    @cached_property
    def matmul_inputs(self) -> list[ArrayText]:
        """Return the operands that a matrix unit can multiply: arrays of floats or narrow
        integers."""
        return [array for array in self.hlo.operands if array.dims and fits_matmul(array.dtype)]

    @cached_property
    def operand_dtype(self) -> str | None:
        """Return the dtype of the wider dot operand or, if the dot is unknown, of the largest
        operand.

        Floats are given as a dtype class, other dtypes as in HLO.
        """
        if self.dot:
            dtype = self.dot.operand_dtype
        elif self.matmul_inputs:
            dtype = main_dtype(self.matmul_inputs)
        else:
            return None
        named = dtype_class(dtype)
        return dtype if named == OTHER else named

    @cached_property
    def dtype_uncertain(self) -> bool:
        """Return whether a matrix unit may have used a precision that differs from the output's
        dtype."""
        if self.dot or self.dtype == OTHER or not may_be_matmul(self.category):
            return False
        inputs = {dtype_class(array.dtype) for array in self.matmul_inputs}
        return inputs != {self.dtype}

    @cached_property
    def flops(self) -> int | None:
        return self.count("flops")

    @cached_property
    def model_flops(self) -> int | None:
        return self.count("model_flops")

    @cached_property
    def bytes_accessed(self) -> int | None:
        return self.count("bytes_accessed")

    @cached_property
    def hbm_bytes(self) -> int | None:
        """Return the bytes moved to and from HBM, or None if unknown."""
        accesses = self.metadata.accesses
        if accesses is None or (
            # Even copies of gigabytes to the host can have an empty list of accesses. An empty list
            # means 0 bytes only if all arrays in the HLO text are in on-chip memory.
            not accesses and self.bytes_accessed and not self.hlo.is_on_chip
        ):
            return None
        return as_count(sum(n_bytes for space, n_bytes in accesses if space == HBM_SPACE))

    def count(self, stat: str) -> int | None:
        return as_count(self.metadata.stats.get(stat))

    @cached_property
    def declared_cost(self) -> DeclaredCost | None:
        """Return the cost that the kernel's author declared."""
        return self.instruction.declared_cost if self.instruction else None

    @property
    def is_opaque(self) -> bool:
        """Return whether the op's cost is unknown to XLA, because the op is a custom kernel or a
        placeholder for a buffer."""
        return self.category == CUSTOM_CALL and not self.flops
