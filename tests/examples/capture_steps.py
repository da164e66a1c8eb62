"""Trace a few training steps and analyse them, without leaving Python."""

import jax
import jax.numpy as jnp

import compute_breakdown


@jax.jit
def train_step(state, batch):
    return state - 0.1 * batch


state = jnp.ones((1024, 1024), jnp.float32)
batches = [jnp.ones((1024, 1024), jnp.float32)] * 3
batch = batches[0]

answer = compute_breakdown.capture(train_step, state, batch, carry=lambda out, args: (out, batch))
print(answer["headline"])

with compute_breakdown.capture(mode="idle") as captured:
    for n, batch in enumerate(batches):
        with jax.profiler.StepTraceAnnotation("train", step_num=n):
            state = train_step(state, batch)
    jax.block_until_ready(state)
print(captured.answer["headline"])
