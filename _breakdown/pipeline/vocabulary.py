"""List the categories of ops, and the kind of each category."""

from __future__ import annotations

from typing import Final, Literal

from _proto.hlo.text import ASYNC_COLLECTIVE_ENDS, named_after

LeafKind = Literal["compute", "data_move", "comm", "other"]
Kind = Literal[LeafKind, "container"]
Phase = Literal["forward", "backward", "recompute", "other", "unknown"]
KeyKind = Literal["stack", "tf_op", "no_source"]

COMPUTE: Final = "compute"
DATA_MOVE: Final = "data_move"
COMM: Final = "comm"
OTHER: Final = "other"
KINDS: tuple[LeafKind, ...] = (COMPUTE, DATA_MOVE, COMM, OTHER)
CONTAINER: Final = "container"
NO_CATEGORY = "<none>"
CAST = "convert"
CUSTOM_CALL = "custom-call"
COMM_STALL = "async-done (comm stall)"
COLLECTIVES = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all"),
    *("collective-permute", "collective-broadcast", "send", "recv"),
)
HOST_TRANSFERS = ("host send", "host recv")
ASYNC = ("async-start", "async-update", "async-done")
ASYNC_COLLECTIVE_START, ASYNC_COLLECTIVE_DONE = ASYNC_COLLECTIVE_ENDS
CATEGORIES: dict[Kind, str] = {
    CONTAINER: "while, conditional, call",
    COMPUTE: (
        "fusion, convolution, dot, ragged-dot, custom-call, non-fusion elementwise, reduce, "
        "reduce-window, select-and-scatter, scatter, sort, topk, map, fft, cholesky, "
        "triangular-solve, rng, "
        # the elementwise opcodes
        "abs, add, and, atan2, cbrt, ceil, clamp, compare, complex, cosine, "
        "count-leading-zeros, divide, erf, exponential, exponential-minus-one, floor, imag, "
        "is-finite, log, log-plus-one, logistic, maximum, minimum, multiply, negate, not, or, "
        "popcnt, power, real, remainder, round-nearest-afz, round-nearest-even, rsqrt, select, "
        "shift-left, shift-right-arithmetic, shift-right-logical, sign, sine, sqrt, subtract, "
        "tan, tanh, xor"
    ),
    DATA_MOVE: (
        "data formatting, copy, copy-start, copy-done, convert, bitcast-convert, "
        "stochastic-convert, reduce-precision, bitcast, broadcast, concatenate, "
        "dynamic-reshape, dynamic-slice, dynamic-update-slice, gather, iota, pad, reshape, "
        "reverse, set-dimension-size, slice, transpose"
    ),
    COMM: ", ".join(
        [
            "all-reduce fusion, all-gather fusion, all-reduce-scatter fusion",
            *(
                name + suffix
                for name in (*COLLECTIVES, *HOST_TRANSFERS)
                for suffix in ("", "-start", "-update", "-done")
            ),
            # Asynchronous ops that are named after a local transfer are data movement; see
            # `kind_of`.
            *ASYNC,
        ]
    ),
    OTHER: (
        "tuple, get-tuple-element, parameter, constant, after-all, add-dependency, domain, "
        "opt-barrier, partition-id, replica-id, get-dimension-size"
    ),
}
KIND_OF = {name: kind for kind, names in CATEGORIES.items() for name in names.split(", ")}

# Transfers within the device, by a SparseCore or a DMA engine.
LOCAL_TRANSFERS = (
    *("sparse-core-data-format", "gather_offload", "scatter_offload"),
    *("slice", "dynamic-slice", "dynamic-update-slice", "copy", "pad", "concatenate"),
)
MATMUL_CATEGORIES = frozenset(
    ("convolution", "dot", "ragged-dot", "output fusion", "custom fusion", CUSTOM_CALL)
)


def kind_of(category: str, op_name: str) -> Kind | None:
    """Return the kind of a category, or None if the category is unknown."""
    kind = KIND_OF.get(category) or kind_of_family(category)
    if category in ASYNC and named_after(op_name, LOCAL_TRANSFERS):
        return DATA_MOVE
    if kind != CONTAINER and async_collective(category, op_name):
        return COMM
    return kind


def kind_of_family(category: str) -> Kind | None:
    """Return the kind of a category that CATEGORIES does not list."""
    if "infeed" in category or "outfeed" in category:
        return COMM
    starts = ("convolution ", "rng-", "batch-norm-")
    return COMPUTE if category.endswith(" fusion") or category.startswith(starts) else None


def may_be_matmul(category: str) -> bool:
    return category in MATMUL_CATEGORIES or category.startswith("convolution ")


def async_collective(category: str, op_name: str) -> str | None:
    """Return the name prefix of a fusion that starts or ends an asynchronous collective, or None
    for other ops.

    Fusions between the start and the end count as math, although they also transfer parts of the
    data.
    """
    is_fusion = category.endswith("fusion")
    return named_after(op_name, ASYNC_COLLECTIVE_ENDS) if is_fusion else None


# Values of `Op.waits_for` other than names of collectives.
SOME_COLLECTIVE = "collective"
HOST: Final = "host"
SPARSE_CORE: Final = "sparse_core"
DMA: Final = "dma"
PHASES: tuple[Phase, ...] = ("forward", "backward", "recompute", "other", "unknown")
STACK: Final = "stack"
TF_OP: Final = "tf_op"
NO_SOURCE: Final = "no_source"
KEY_KINDS = (STACK, TF_OP, NO_SOURCE)
