"""Find the cost of one execution of an op: flops, bytes, and where these figures come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final, Literal

from _breakdown.light import NamedTuple
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.groups import Group, sum_known
from _breakdown.pipeline.names import resolve_name
from _breakdown.pipeline.no_answer import NoAnswer
from _breakdown.pipeline.ops import Op
from _breakdown.units import counted
from _proto.hlo.text import DtypeClass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _proto.hlo.backend_config import DeclaredCost
    from _proto.hlo.traffic import Traffic

# Where a cost comes from; the cost of an opaque op is unknown.
OPAQUE: Final = "opaque"
XLA: Final = "xla"
DECLARED: Final = "declared"
USER: Final = "user"
# Where a dtype comes from, if not from the user.
OUTPUT: Final = "output"
PROGRAM: Final = "program"
DtypeSource = Literal["program", "output", "user"]
CostSource = Literal["xla", "declared", "user"]


class KernelCost(NamedTuple):
    """The cost of one execution of a kernel, as passed by the user with `--kernel-cost`."""

    kernel: str
    flops: int
    n_bytes: int
    dtype: DtypeClass | None


class Precision(NamedTuple):
    """The dtype that determines the peak rate for an op, and where the dtype comes from."""

    dtype: DtypeClass
    source: DtypeSource
    is_uncertain: bool


def precision_of(op: Op) -> Precision:
    if op.dot:
        return Precision(op.dot.dtype, PROGRAM, False)
    return Precision(op.dtype, OUTPUT, op.dtype_uncertain)


class Cost(NamedTuple):
    """The cost of one execution of an op; None for unknown figures."""

    source: Literal["opaque", CostSource]
    # Name of the kernel, if the cost was specified by the user or the kernel's author.
    kernel: str | None
    flops: int | None
    model_flops: int | None
    bytes_accessed: int | None
    hbm_bytes: int | None
    precision: Precision

    @property
    def moved_bytes(self) -> int | None:
        """Return the bytes read from and written to HBM; if unknown, the bytes accessed in all
        memories."""
        return self.bytes_accessed if self.hbm_bytes is None else self.hbm_bytes


def cost_of(op: Op, by_user: Mapping[str, KernelCost]) -> Cost:
    """Return the cost from the user if there is one. Otherwise return the cost from XLA or, for an
    op opaque to XLA, the cost declared by the kernel's author."""
    given = by_user.get(op.kernel or "") if by_user else None
    if given and (given.flops or given.n_bytes):
        user = Precision(given.dtype, USER, False) if given.dtype else precision_of(op)
        return Cost(USER, op.kernel, given.flops, None, given.n_bytes, given.n_bytes, user)
    precision = precision_of(op)
    declared = None if given else declared_cost_of(op)
    if declared:
        kernel = op.kernel or op.hlo.base_name
        return Cost(DECLARED, kernel, declared.flops, None, *bytes_of(op), precision)
    if op.is_opaque or given:
        facts = op.flops, op.model_flops, op.bytes_accessed, op.hbm_bytes
        return Cost(OPAQUE, None, *facts, precision)
    n_bytes = bytes_of(op)
    # If XLA's count of bytes is wrong, the flops alone are no roof: memory may limit the op.
    is_wrong = n_bytes.accessed is None and op.bytes_accessed is not None
    is_wrong |= n_bytes.hbm is None and op.hbm_bytes is not None
    return Cost(XLA, None, None if is_wrong else flops_of(op), op.model_flops, *n_bytes, precision)


def declared_cost_of(op: Op) -> DeclaredCost | None:
    declared = op.declared_cost if op.is_opaque else None
    return declared if declared and declared.flops else None


class Bytes(NamedTuple):
    """The bytes that ops read and write in all memories, and in HBM; None if unknown."""

    accessed: int | None
    hbm: int | None


UNKNOWN_BYTES = Bytes(None, None)


def bytes_of(op: Op) -> Bytes:
    """Return the bytes that one execution accesses: those that a kernel's author declared, or XLA's
    count, corrected for slices. They are unknown for opaque ops."""
    found = Bytes(op.bytes_accessed, op.hbm_bytes)
    if op.is_opaque:
        declared = declared_cost_of(op)
        size = declared.bytes_accessed if declared else None
        return Bytes(size, size) if size is not None else found if declared else UNKNOWN_BYTES
    if not op.traffic:
        return found
    corrected = Bytes(
        moved(found.accessed, op.traffic.everywhere), moved(found.hbm, op.traffic.hbm)
    )
    return UNKNOWN_BYTES if corrected.count(None) > found.count(None) else corrected


def sum_of_bytes(found: Iterable[tuple[int, int | None, int | None]]) -> Bytes:
    """Add up the bytes of all executions, given tuples of their number, the bytes in all memories
    and those in HBM. Those in HBM are None if they are unknown for any op that accesses memory."""
    rows = list(found)
    accessed = sum_known((n, size) for n, size, _ in rows)
    if any(size and hbm is None for _, size, hbm in rows):
        return Bytes(accessed, None)
    return Bytes(accessed, sum_known((n, hbm) for n, _, hbm in rows))


def flops_of(op: Op) -> int | None:
    """Return XLA's count of flops, or the flops of the op's matmuls in the program if XLA has no
    count or counts more than all instructions of the op can have."""
    dots = op.dot_flops
    # Elementwise math often adds less than 2 %, so that its instructions need not be read.
    if not dots or (op.flops and 50 * op.flops <= 51 * dots):
        return op.flops
    # Import late, because captures without programs do not need the module.
    from _proto.hlo.flops import other_flops

    assert op.instruction is not None  # Otherwise there would be no dots.
    return op.flops if op.flops and op.flops <= dots + other_flops(op.instruction) else dots


def moved(count: int | None, traffic: Traffic) -> int | None:
    """Correct XLA's count of bytes, which can include whole arrays although the op reads or updates
    only slices of them; return None if the count exceeds even the whole arrays."""
    excess = traffic.whole - traffic.moved
    if count is None or count <= traffic.moved or 100 * excess <= count:
        return count
    # Padding can add a little to the sizes in the program.
    return traffic.moved if 100 * count <= 101 * traffic.whole else None


def costs_by_kernel(
    compute: Group, given: Sequence[tuple[str, int, int, DtypeClass | None]], context: Context
) -> dict[str, KernelCost]:
    """Return the costs from `--kernel-cost`, keyed by the kernel's full name."""
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
                detail=f"--kernel-cost was passed twice for {kernel}; pass one cost per kernel",
            )
        costs[kernel] = KernelCost(kernel, flops, n_bytes, dtype)
    return costs


def declared_notes(kernels: Set[str | None]) -> list[str]:
    if not kernels:
        return []
    n = len(kernels)
    return [
        f"using the declared cost of {counted(n, 'kernel')}; a causal kernel often declares"
        " twice its true cost"
    ]
