"""Find the cost of one execution of an op: flops, bytes, and the origin of these figures."""

from __future__ import annotations

from typing import NamedTuple

from _pipeline.names import resolve_name
from _pipeline.no_answer import NoAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set
    from typing import Final, Literal

    from _output.fields.units import Dtype, DtypeSource
    from _pipeline.context import Context
    from _pipeline.groups import Group
    from _pipeline.ops import Op

# Origins of a cost. The cost of an opaque op is unknown.
OPAQUE: Final = "opaque"
XLA: Final = "xla"
DECLARED: Final = "declared"
USER: Final = "user"
# Origins of a dtype, other than the user.
OUTPUT: Final = "output"
PROGRAM: Final = "program"


class KernelCost(NamedTuple):
    """The cost of one execution of a kernel, given by the user."""

    kernel: str
    flops: int
    n_bytes: int
    dtype: Dtype | None


class Precision(NamedTuple):
    """The dtype that decides the peak of an op, and the origin of the dtype."""

    dtype: Dtype
    source: DtypeSource
    is_uncertain: bool


def precision_of(op: Op) -> Precision:
    if op.dot:
        return Precision(op.dot.dtype, PROGRAM, False)
    return Precision(op.dtype, OUTPUT, op.dtype_uncertain)


class Cost(NamedTuple):
    """The cost of one execution of an op; unknown figures are None."""

    source: Literal["opaque", "xla", "declared", "user"]
    # Name of the kernel, if the user or the kernel's author gave the cost.
    kernel: str | None
    flops: int | None
    model_flops: int | None
    bytes_accessed: int | None
    hbm_bytes: int | None
    precision: Precision

    @property
    def moved_bytes(self) -> int | None:
        """Return the bytes to and from HBM, or if unknown, the bytes in all memories."""
        return self.bytes_accessed if self.hbm_bytes is None else self.hbm_bytes

    @property
    def key(self) -> tuple[str, str]:
        return self.source, self.kernel or ""


def cost_of(op: Op, by_user: Mapping[str, KernelCost]) -> Cost:
    """Return the cost that the user gave, else XLA's cost, else the cost that the kernel's author
    declared."""
    precision = precision_of(op)
    given = by_user.get(op.kernel or "")
    if given:
        if given.dtype:
            precision = Precision(given.dtype, USER, False)
        return Cost(USER, op.kernel, given.flops, None, given.n_bytes, given.n_bytes, precision)
    declared = op.declared_cost if op.is_opaque else None
    if declared and declared.flops:
        size, hbm = declared.bytes_accessed, declared.bytes_accessed
        if size is None:
            size, hbm = op.bytes_accessed, op.hbm_bytes
        kernel = op.kernel or op.hlo.base_name
        return Cost(DECLARED, kernel, declared.flops, None, size, hbm, precision)
    facts = op.flops, op.model_flops, op.bytes_accessed, op.hbm_bytes
    return Cost(OPAQUE if op.is_opaque else XLA, None, *facts, precision)


def costs_by_kernel(
    compute: Group, given: Sequence[tuple[str, int, int, Dtype | None]], context: Context
) -> dict[str, KernelCost]:
    """Return the costs from `--kernel-cost` by full name of the kernel."""
    if not given:
        return {}
    kernels = compute.distinct(lambda op: op.kernel)
    costs: dict[str, KernelCost] = {}
    for asked, flops, n_bytes, dtype in given:
        kernel = resolve_name(asked, kernels, "--kernel-cost", context)
        if kernel is None:
            raise NoAnswer(
                "kernel_not_found",
                detail=f"no kernel is named {asked!r}, and {asked!r} is not a unique prefix",
                available_kernels=kernels,
            )
        if kernel in costs:
            raise NoAnswer(
                "bad_arguments",
                detail=f"--kernel-cost was given twice for {kernel}; give one cost per kernel",
            )
        costs[kernel] = KernelCost(kernel, flops, n_bytes, dtype)
    return costs


def declared_notes(kernels: Set[str | None]) -> list[str]:
    if not kernels:
        return []
    n = len(kernels)
    return [f"kernels with declared costs: {n}; a causal kernel often declares twice its true cost"]
