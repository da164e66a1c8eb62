"""Suggest remedies for lost time: one sentence for each class and kind of op."""

from __future__ import annotations

from _breakdown.analysis.loss import op_kinds as kinds
from _breakdown.analysis.roof.ledger import (
    COLLECTIVE,
    COMPUTE_BOUND,
    DATA_MOVEMENT,
    MEMORY_BOUND,
    UNJUDGED,
    LedgerEntry,
    OpClass,
)
from _breakdown.analysis.roof.limits import is_far_from_roofs
from _breakdown.pipeline.vocabulary import HOST

_MATH: tuple[OpClass, ...] = (COMPUTE_BOUND, MEMORY_BOUND, UNJUDGED)
_MOVED: tuple[OpClass, ...] = (DATA_MOVEMENT, *_MATH)

LATE_DEVICE = (
    "Most of this time is waiting for a late device, which no flag hides: `spread` names the device"
    " and its lines."
)
# Remedies for lost time: each row has the classes and the kind of the ops that the remedy is for.
# No remedy is known for all other ops.
#
# A comment says what is known from chips; "ledger" is the list of measured changes that CAUSES.md
# links to. A remedy without a comment was never measured on a chip, as far as we know.
FINDINGS: tuple[tuple[tuple[OpClass, ...], str, str], ...] = (
    (
        (COLLECTIVE,),
        kinds.ALL_TO_ALL,
        "Shard the array in the same way before and after this op; no flag hides an all-to-all.",
    ),
    (
        (COLLECTIVE,),
        kinds.SMALL,
        "Run this collective less often, or on several arrays at once: it moves so few bytes that"
        " its latency counts.",
    ),
    (
        (COLLECTIVE,),
        kinds.COMBINED,
        # Ledger: a larger batch helped in 15 of 34 tries, and hurt in 11.
        "Run this collective for more data at once, and measure: a larger batch per device, or"
        " gradients that are accumulated before it.",
    ),
    (
        (COLLECTIVE,),
        kinds.STOPS,
        "Shard so that no collective is needed here, or a smaller one.",
    ),
    (
        (COLLECTIVE,),
        kinds.WAIT,
        "Start the communication before math that does not need its result, or send less.",
    ),
    (
        (HOST,),
        kinds.TO_HOST,
        # Ledger: offloading activations hurt in 8 of 8 tries; removing it gained 1 and 3 %.
        "Offload fewer arrays (recompute them, or keep them in HBM), and start the copy as"
        " soon as the array is computed.",
    ),
    (
        (HOST,),
        kinds.FROM_HOST,
        "Start the copy one layer before the array is used, or keep the array in HBM.",
    ),
    (
        (HOST,),
        kinds.CALLBACK,
        "Move callbacks and prints out of the step, and feed the next batch during this step.",
    ),
    (
        (DATA_MOVEMENT,),
        kinds.WAIT,
        "The copy comes too late: do more math before the data is used, or copy less.",
    ),
    (
        _MOVED,
        kinds.CAST,
        # Ledger: casting weights before the loop hurt in 2 of 2 tries, because the compiler fuses
        # such a cast with the matmul. This op is a cast of its own.
        "Keep one dtype throughout, or cast before gathers, so that they move fewer bytes.",
    ),
    (
        _MOVED,
        kinds.PARTS,
        "Don't split and join arrays in the step: store the parts separately, or compute on the"
        " whole array.",
    ),
    (
        _MOVED,
        kinds.PAD,
        "Let the op that reads the array pad it (such as a convolution's `padding`), or choose"
        " sizes that need no padding.",
    ),
    (
        _MOVED,
        kinds.BROADCAST,
        "Pass the small array, and broadcast it where it is used.",
    ),
    (
        _MOVED,
        kinds.SAVED,
        # Ledger: unrolling the loop by 2 or more hurt in 3 of 3 tries.
        "Save only arrays whose recomputation takes longer than this copy (checkpoint policy), in"
        " bf16.",
    ),
    (
        _MOVED,
        kinds.LAYOUT,
        # Ledger: other orders of a kernel's operands gained -0.4 to 3.6 % in 7 tries.
        "Use the same order of dimensions before and after this op, and measure: avoid transposes,"
        " and reshapes that split or merge the last dimension.",
    ),
    (
        (DATA_MOVEMENT,),
        kinds.OFFLOADED,
        "The compiler put this on a SparseCore, and the core waits for it: give the core math that"
        " does not need the result, or keep the op on the core (`--explain sparse_core_wait`).",
    ),
    (
        _MOVED,
        kinds.GATHER,
        "Gather and scatter rows of at least 128 elements, in sorted order, each row only once.",
    ),
    (
        _MOVED,
        kinds.KNOWN_PLACES,
        # Frames of speech on v4: 0.07 instead of 1.8 s (axlearn, pull request 807).
        "Cut the array by slices instead of a gather, because the places do not depend on data:"
        " reshape it to chunks, take strided slices, and concatenate them.",
    ),
    (
        _MOVED,
        kinds.INVERSE,
        # Routing of experts: one of two sorts a layer (sglang-jax, pull request 1451).
        "Scatter instead of sorting again, because this only inverts the order of the other sort:"
        " jnp.zeros_like(order).at[order].set(jnp.arange(order.size), unique_indices=True).",
    ),
    (
        _MOVED,
        kinds.SORT,
        "Sort fewer elements, or use `jax.lax.top_k` if only the largest are needed.",
    ),
    (
        _MOVED,
        kinds.TOP_K,
        "Use `jax.lax.approx_max_k` if it may miss some of the largest elements.",
    ),
    (
        (COMPUTE_BOUND, MEMORY_BOUND),
        kinds.PALLAS,
        # Ledger, splash attention: block sizes helped in 1 of 32 tries and hurt in 14, mostly above
        # 1024. Options of the softmax helped in 4 of 17 tries and hurt in 3; orders of the operands
        # helped in 2 of 7 and never hurt.
        "Skip blocks that are fully masked, if there are any. Measure other orders of the operands'"
        " dimensions, the kernel's options, and blocks of at most 1024.",
    ),
    (
        (COMPUTE_BOUND, MEMORY_BOUND),
        kinds.WIDE_PALLAS,
        "Pass bf16 to the kernel instead of f32, if the precision is not needed.",
    ),
    (
        (COMPUTE_BOUND,),
        kinds.SMALL_MATMUL,
        # Ledger: merging matmuls gained 2.7, 0.4, 0 and -4 %; tensor parallelism hurt in 5 of 6
        # tries; a larger batch helped in 15 of 34.
        "Make matmuls larger on each device, and measure: a larger batch, or less tensor"
        " parallelism; use multiples of 256.",
    ),
    (
        (MEMORY_BOUND,),
        kinds.FEW_ROWS,
        # Ledger: a larger batch helped in 15 of 34 tries, all of them in training.
        "Process more rows per device (a larger batch), or use narrower weights.",
    ),
    (
        _MATH,
        kinds.REDUCE,
        # Keras on JAX: a norm in one pass took 63 instead of 75 ms. Ledger: a norm by hand in
        # Pallas hurt by 8 %.
        "Reduce the array where it is computed, or compute all its reductions in one pass.",
    ),
    (
        _MATH,
        kinds.VECTOR,
        "This is vector work on values that never reach memory: compute fewer values, and only"
        " once.",
    ),
    (
        _MOVED,
        kinds.WIDE,
        # Ledger: logits and losses in bf16 gained 3.0, 2.6 and 0.04 %, a norm in bf16 0.2 %.
        "Keep these f32 arrays in bf16, if their precision is not needed.",
    ),
)
# Remedies for transfers that cannot be hidden, because the step has less than half as much math.
TOO_LITTLE_MATH: dict[tuple[OpClass, str], str] = {
    (COLLECTIVE, kinds.WAIT): "Send less: the step has too little math to hide most of it.",
    (HOST, kinds.TO_HOST): "Keep these arrays in HBM, or recompute them: the step has too little"
    " math to hide the copies.",
    (HOST, kinds.FROM_HOST): "Keep the array in HBM: the step has too little math to hide the"
    " copies.",
}
# What helps these kinds is moving fewer bytes, if HBM limits the op.
_FEWER_BYTES = (kinds.FEW_ROWS, kinds.REDUCE, kinds.WIDE)
_WHAT_HELPS = {(name, kind): says for names, kind, says in FINDINGS for name in names}


def remedy_of(entry: LedgerEntry, *, lacks_math: bool = False) -> str | None:
    """Return a remedy for the time that an op loses; None if no remedy is known. Pass whether the
    step has too little math to hide ops of this class."""
    what = entry.name, kinds.kind_of(entry) or ""
    if what[1] in _FEWER_BYTES and is_far_from_roofs(entry):
        return None
    return (lacks_math and TOO_LITTLE_MATH.get(what)) or _WHAT_HELPS.get(what)
