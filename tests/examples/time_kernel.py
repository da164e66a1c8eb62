"""Time a Pallas kernel on a TPU."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

import compute_breakdown


def double_kernel(x_ref, out_ref):
    out_ref[...] = x_ref[...] * 2.0


@jax.jit
def double(x):
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    # On a CPU, the kernel can only be interpreted, so the trace contains no kernel.
    is_cpu = jax.default_backend() == "cpu"
    return pl.pallas_call(double_kernel, out_shape=shape, name="double", interpret=is_cpu)(x)


x = jnp.ones((1024, 1024), jnp.float32)
answer = compute_breakdown.capture(double, x, n=10, mode="kernel", step="all")
for row in answer["kernels"]:
    print(row["kernel"], row["n_executions"], f"{row['avg_dur_ps'] / 1e6:.3f} us")
