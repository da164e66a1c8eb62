"""Suggest remedies for lost time: one sentence for each class and kind of op.

`python -m _analysis.remedies` prints the tables of the documentation.
"""

from __future__ import annotations

import sys

from _analysis import op_kinds as kinds
from _analysis.roof.ledger import (
    COLLECTIVE,
    COMPUTE_BOUND,
    DATA_MOVEMENT,
    MEMORY_BOUND,
    UNJUDGED,
    Entry,
)
from _pipeline.idle_causes import BARRIER, BETWEEN_PROGRAMS, DEPENDENCY, IN_CONTAINER, IN_PROGRAM
from _pipeline.vocabulary import HOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.units import OpClass

_MATH: tuple[OpClass, ...] = (COMPUTE_BOUND, MEMORY_BOUND, UNJUDGED)
_MOVED: tuple[OpClass, ...] = (DATA_MOVEMENT, *_MATH)

LATE_DEVICE = (
    "Most of this time is waiting for a late device, which no flag hides: `spread` names the device"
    " and its lines."
)
# Remedies for lost time: each row has the classes and the kind of the ops that the remedy is for.
# No remedy is known for all other ops.
FINDINGS: tuple[tuple[tuple[OpClass, ...], str, str], ...] = (
    (
        (COLLECTIVE,),
        kinds.CALLED,
        "Make the collective asynchronous (see the flags in `program`), or call it less often, for"
        " example once after a loop.",
    ),
    (
        (COLLECTIVE,),
        kinds.ALL_TO_ALL,
        "Shard the array in the same way before and after this line; no flag hides an all-to-all.",
    ),
    (
        (COLLECTIVE,),
        kinds.SMALL,
        "Run this collective less often, or on several arrays at once: it moves so few bytes that"
        " its latency counts.",
    ),
    (
        (COLLECTIVE,),
        kinds.STOPS,
        "Make the collective asynchronous (see the flags in `program`), or shard so that this"
        " line needs no collective.",
    ),
    (
        (COLLECTIVE,),
        kinds.WAIT,
        "Start the communication before math that does not need its result, or send less.",
    ),
    ((COLLECTIVE,), kinds.LATE, LATE_DEVICE),
    (
        (HOST,),
        kinds.TO_HOST,
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
        "Cast once, outside of loops and before gathers, or keep one dtype throughout.",
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
        "Save fewer arrays in this loop for the backward pass (checkpoint policy), or unroll the"
        " loop.",
    ),
    (
        _MOVED,
        kinds.LAYOUT,
        "Use the same order of dimensions before and after this line: avoid transposes, and"
        " reshapes that split or merge the last dimension.",
    ),
    (
        _MOVED,
        kinds.ARGUMENT,
        "Store this argument in the layout that its readers want (`jax.experimental.layout`, with"
        " `Layout.AUTO`).",
    ),
    (
        _MOVED,
        kinds.GATHER,
        "Gather and scatter whole rows of at least 128 elements, in sorted order, each row"
        " only once.",
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
        "Try larger blocks (`program` shows how much VMEM is used), and skip blocks that are"
        " fully masked, if there are any.",
    ),
    (
        (COMPUTE_BOUND, MEMORY_BOUND),
        kinds.WIDE_PALLAS,
        "Pass bf16 to the kernel instead of f32, if the precision is not needed.",
    ),
    (
        (COMPUTE_BOUND,),
        kinds.FP32,
        "Multiply in bf16: cast the operands, or lower this dot's `precision`.",
    ),
    (
        (COMPUTE_BOUND,),
        kinds.SMALL_MATMUL,
        "Make matmuls larger on each device: merge matmuls, or shard another axis; use"
        " multiples of 256.",
    ),
    (
        (MEMORY_BOUND,),
        kinds.FEW_ROWS,
        "Process more rows per device (a larger batch), or use narrower weights.",
    ),
    (
        _MATH,
        kinds.REDUCE,
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
        "Keep these f32 arrays in bf16, if their precision is not needed.",
    ),
)
# Causes of idle time, their meaning, and remedies.
IDLE: tuple[tuple[str, str, str], ...] = (
    (
        BARRIER,
        "this core came first and waits for the others",
        "balance the load; `spread` names the late device",
    ),
    (
        DEPENDENCY,
        "the program was launched, but its inputs are missing",
        "copy the next batch while this step runs",
    ),
    (
        IN_CONTAINER,
        "a loop's bookkeeping; on v4 and v5p also a wait for a megacore fusion's half on"
        " the other core",
        "fewer, larger iterations; for a fusion, equal halves on both cores",
    ),
    (
        BETWEEN_PROGRAMS,
        "no program runs on the core: none was launched, or the core is switching to the next one",
        "launch asynchronously: no `np.asarray`, `print` or `block_until_ready` between steps;"
        " merge small programs",
    ),
    (
        IN_PROGRAM,
        "short pauses between ops",
        "no change is needed, unless many pauses add up",
    ),
)
_WHAT_HELPS = {(name, kind): says for names, kind, says in FINDINGS for name in names}

# Remedies for causes, keyed by the cause's name, or by name and variant if a cause has several
# variants.
CAUSES: dict[str, str] = {
    "collective_in_loop, summed": (
        "Add up the local values in the loop and run the collective once on the sum, after the "
        "loop. A reduce-scatter then needs memory for the sum of the whole array on each device."
    ),
    "collective_in_loop, same data in each round": (
        "Run the collective before the loop and pass the result into the loop, if memory allows."
    ),
    "collective_in_loop, both": (
        "If memory allows, gather the weights before the loop, differentiate with respect"
        " to the gathered weights, add up local gradients in the loop, and reduce the sums"
        " once after the loop."
    ),
    "kernel_waits_for_input": (
        "Use larger blocks, so that there is more math for each byte that is copied, or more "
        "buffers (pipeline_mode=pl.Buffered(3)), so that copies start earlier. Or move fewer "
        "bytes: a narrower dtype, or blocks that stay in VMEM between grid steps."
    ),
    "large_intermediate, reduced": (
        "Reduce before writing: compute only the elements that are used, for example"
        " logsumexp minus the selected logit instead of log_softmax, or work in chunks."
    ),
    "large_intermediate, scores": (
        "Use a fused attention kernel (flash or splash attention), or compute attention in blocks."
    ),
    "layout_change": (
        "Use the same order of dimensions before and after this line: avoid transposes, and"
        " reshapes that split or interleave the last dimension."
    ),
    "layout_change, pairs": (
        "Split the last dimension into two halves (jnp.split and jnp.concatenate) instead"
        " of pairs (x[..., ::2] and jnp.stack), and reorder the columns of the weights to"
        " match."
    ),
    "layout_change, flat": (
        "Keep the arrays separate: apply the collective or the update to each array with "
        "jax.tree.map. The compiler combines small collectives itself."
    ),
    "not_donated": (
        "Pass donate_argnums or donate_argnames to jax.jit for arguments that are not used after "
        "the call, such as the old state."
    ),
    "one_hot_matmul, lookup": (
        "Index the table instead of multiplying by one_hot: `table[tokens]`, or `jnp.take`"
        " along the axis."
    ),
    "one_hot_matmul, weighted": (
        "Compute the positions of the tokens (cumsum or argsort of the expert indices), and"
        " move rows with take_along_axis and .at[].set or .add instead of einsum."
    ),
    "pause_between_steps": (
        "Let the host work ahead: load and transfer the next batch, and save checkpoints, in"
        " another thread while the step runs. Do not wait for results (block_until_ready,"
        " float(loss), logging) after each step."
    ),
    "recompute": (
        "If memory is free, save more activations: use a checkpoint policy that keeps the"
        " outputs of matmuls, or remove the checkpoint in some layers."
    ),
    "recomputed_repeatedly, outer": (
        "Remove the outer checkpoint; the inner checkpoints already save the memory."
    ),
    "recomputed_repeatedly, inner": (
        "Remove the inner checkpoint; the outer checkpoint already saves the memory."
    ),
    "resharding, constraint": (
        "Change the constraint to the sharding that the array already has, or remove the"
        " constraint."
    ),
    "resharding, optimizer": (
        "Use the same sharding for all operands of this line, such as parameters, gradients"
        " and optimizer state."
    ),
    "resharding, model": (
        "Look near this line for a with_sharding_constraint, in_specs or parameter spec"
        " that splits a different dimension than its neighbours. If there is none, constrain"
        " the activations."
    ),
    "resharding, kernel": (
        "Name the mesh axis in in_specs and out_specs of the shard_map around the kernel, so that "
        "each device gets its own part, for example some of the heads."
    ),
    "resharding, matmul": (
        "The weight and the activations have one dimension in common: split it along the same"
        " mesh axis in both, for example with P('tp', 'fsdp') for the second weight of an MLP."
        " Or constrain the activations before this line (with_sharding_constraint, in_specs)."
    ),
    "slow_device": (
        "Share the work of this line evenly among devices (tokens per expert, sequence"
        " lengths, uneven shards). If all lines are slower by the same factor (uniform_pct"
        " in --mode spread is near 100), the chip is slow: replace it."
    ),
    "resharding, two dimensions": (
        "Look near these lines for a with_sharding_constraint, in_specs or parameter spec"
        " that prevents the matmul from being split like its weight. If every device should"
        " gather whole weights, split the weights along one dimension over both mesh axes."
    ),
    "synchronous_collective": (
        "Set {flags} to true in the compiler options, or look for an option that turns"
        " asynchronous collectives off."
    ),
    "widened_dtype, matmul": (
        "Multiply in the narrower dtype and cast the result: `(x @ w.astype(x.dtype)).astype(f32)`."
    ),
    "widened_dtype, promotion": (
        "Cast the f32 operand of this line to the dtype of the other operand, for example"
        " with `.astype(x.dtype)`, or cast the result back."
    ),
    "widened_dtype, stream": (
        "Cast either the f32 operand of this line, such as a position table, or the result"
        " to the dtype of the matmuls, so that the residual stream stays narrow."
    ),
    "widened_dtype, cast": (
        "Cast back to the narrower dtype before the matmuls, unless they need f32."
    ),
}


def remedy_of(entry: Entry) -> str | None:
    """Return a remedy for the time that an op loses; None if no remedy is known."""
    return _WHAT_HELPS.get((entry.name, kinds.kind_of(entry) or ""))


def table_of_findings() -> str:
    """Return a Markdown table of the remedies for findings."""
    rows = [
        f"| {', '.join(f'`{name}`' for name in names)} | {kind} | {says} |"
        for names, kind, says in FINDINGS
    ]
    return "\n".join(("| in class | costliest op | what helps |", "|---|---|---|", *rows))


def table_of_idle_time() -> str:
    """Return a Markdown table of the causes of idle time, their meaning and remedies."""
    rows = [f"| `{cause}` | {means} | {says} |" for cause, means, says in IDLE]
    return "\n".join(("| cause | what it means | what helps |", "|---|---|---|", *rows))


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    print(table_of_findings(), table_of_idle_time(), sep="\n\n")
