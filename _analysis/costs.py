"""What one execution of an op takes, and who says so."""

from __future__ import annotations

from _pipeline.names import resolve_name
from _pipeline.no_answer import NoAnswer
from _proto.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from _pipeline.context import Context
    from _pipeline.groups import Group
    from _pipeline.ops import Op

OPAQUE, XLA, DECLARED, USER = "opaque", "xla", "declared", "user"
OUTPUT, PROGRAM = "output", "program"


@record
class KernelCost:
    """What the user says of a kernel, per execution."""

    kernel: str
    flops: int
    n_bytes: int
    dtype: str | None


@record
class Precision:
    """The dtype whose peak an op is held against, who says so, and whether it may be another."""

    dtype: str
    source: str
    is_uncertain: bool


def precision_of(op: Op) -> Precision:
    if op.dot:
        return Precision(op.dot.dtype, PROGRAM, False)
    return Precision(op.dtype, OUTPUT, op.dtype_uncertain)


@record
class Cost:
    """What one execution of an op takes, and who says so."""

    source: str
    # Of a kernel that somebody other than XLA knows the cost of.
    kernel: str | None
    flops: int | None
    model_flops: int | None
    bytes_accessed: int | None
    hbm_bytes: int | None
    precision: Precision

    @property
    def key(self) -> tuple[str, str]:
        return self.source, self.kernel or ""


def cost_of(op: Op, by_user: Mapping[str, KernelCost]) -> Cost:
    """The first that is there: what the user says, what XLA knows, what the author declared."""
    precision = precision_of(op)
    told = by_user.get(op.kernel or "")
    if told:
        if told.dtype:
            precision = Precision(told.dtype, USER, False)
        return Cost(USER, op.kernel, told.flops, None, told.n_bytes, told.n_bytes, precision)
    declared = op.declared_cost if op.is_opaque else None
    if declared and declared.flops:
        size, hbm = declared.bytes_accessed, declared.bytes_accessed
        if size is None:
            size, hbm = op.bytes_accessed, op.hbm_bytes
        kernel = op.kernel or op.hlo.base_name
        return Cost(DECLARED, kernel, declared.flops, None, size, hbm, precision)
    source = OPAQUE if op.is_opaque else XLA
    facts = op.flops, op.model_flops, op.bytes_accessed, op.hbm_bytes
    return Cost(source, None, *facts, precision)


def costs_by_kernel(
    compute: Group, told: Sequence[tuple[str, int, int, str | None]], context: Context
) -> dict[str, KernelCost]:
    """What is told of kernels, as the command line takes it apart."""
    if not told:
        return {}
    kernels = compute.distinct(lambda op: op.kernel)
    costs: dict[str, KernelCost] = {}
    for asked, flops, n_bytes, dtype in told:
        kernel = resolve_name(asked, kernels, "--kernel-cost", context)
        if kernel is None:
            raise NoAnswer(
                "kernel_not_found",
                detail=f"no kernel of the step's compute is named {asked!r}, nor does just one"
                " begin so",
                available_kernels=kernels,
            )
        if kernel in costs:
            raise NoAnswer("bad_arguments", detail=f"--kernel-cost was given twice for {kernel}")
        costs[kernel] = KernelCost(kernel, flops, n_bytes, dtype)
    return costs


def declared_notes(kernels: Set[str | None]) -> list[str]:
    if not kernels:
        return []
    return [
        f"kernels judged by what their authors declared: {len(kernels)}; that is a claim, and twice"
        " too high for a causal kernel that declares the full square"
    ]
