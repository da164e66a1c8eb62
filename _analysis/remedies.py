"""What helps against lost time."""

from __future__ import annotations

# What helps against a cause, by its name; by its name and kind if there are several.
CAUSES: dict[str, str] = {
    "collective_in_loop, summed": (
        "Add up the local values in the loop and run the collective once on the sum, after the "
        "loop. The sum of what a reduce-scatter returned then has its full size on each device."
    ),
    "collective_in_loop, same data": (
        "Run the collective before the loop and pass its result in, if memory allows."
    ),
    "large_intermediate, reduced": (
        "Reduce before writing: compute only the elements that are used, for example logsumexp "
        "less the picked logit instead of log_softmax, or work on chunks."
    ),
    "large_intermediate, scores": (
        "Use a fused attention kernel (flash or splash attention), or compute attention in blocks."
    ),
    "layout_change": (
        "Write the ops around this line so that both use the same order of dimensions: avoid "
        "transposes, and reshapes that split or interleave the last dimension."
    ),
    "not_donated": (
        "Pass donate_argnums or donate_argnames to jax.jit for arguments that are not used after "
        "the call, such as the old state."
    ),
    "one_hot_matmul, lookup": (
        "Index the table with the numbers instead of multiplying by one_hot: `table[tokens]`, or "
        "`jnp.take` along the axis."
    ),
    "one_hot_matmul, weighted": (
        "Compute the places of the tokens (cumsum or argsort of the experts' numbers) and move "
        "rows with take_along_axis and .at[].set or .add instead of einsum."
    ),
    "recompute": (
        "If memory is free, save more: a checkpoint policy that keeps the outputs of matmuls, or "
        "no checkpoint for some layers."
    ),
    "recomputed_repeatedly, outer": (
        "Remove the outer checkpoint; the inner ones already save the memory."
    ),
    "recomputed_repeatedly, inner": (
        "Remove the inner checkpoint; the outer one already saves the memory."
    ),
    "resharding, constraint": (
        "Give the constraint the sharding that the array has, or remove it."
    ),
    "resharding, optimizer": (
        "Give all operands of this line the same sharding, such as parameters, gradients and the "
        "optimizer's state."
    ),
    "resharding, model": (
        "Look near this line for a with_sharding_constraint, in_specs or parameter spec that "
        "splits another dimension than its neighbours, or constrain the activations if nothing "
        "does."
    ),
    "resharding, matmul": (
        "Split the weight by the dimension that it shares with the activations as they are split, "
        'for example P("tp", "fsdp") for the second matmul of an MLP, or constrain the '
        "activations before this line (with_sharding_constraint, in_specs)."
    ),
    "synchronous_collective": (
        "Set {flags} to true in the compiler's options, or look for what switches this off."
    ),
    "widened_dtype, promotion": (
        "Cast the f32 operand of this line to the dtype of the other one, for example with "
        "`.astype(x.dtype)`, or cast the result back."
    ),
    "widened_dtype, cast": (
        "Cast back to the narrower dtype before the matmuls, unless they need f32."
    ),
}
