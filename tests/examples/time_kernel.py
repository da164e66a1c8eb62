"""Time a Pallas kernel on a TPU, without files.

The profiler returns the trace as bytes, and `analyse` reads the bytes.
"""

import jax
import jax.numpy as jnp
from jax._src.lib import _profiler
from jax.experimental import pallas as pl

import compute_breakdown


def double_kernel(x_ref, out_ref):
    out_ref[...] = x_ref[...] * 2.0


@jax.jit
def double(x):
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(double_kernel, out_shape=shape, name="double")(x)


def traced(function, *arguments, n=10):
    """Return the trace of some calls as bytes."""
    # The first call compiles, and starts the backend that the profiler needs.
    jax.block_until_ready(function(*arguments))
    session = _profiler.ProfilerSession(jax.profiler.ProfileOptions())
    for _ in range(n):
        jax.block_until_ready(function(*arguments))
    return session.stop()


data = traced(double, jnp.ones((1024, 1024), jnp.float32))
answer = compute_breakdown.analyse(data, "kernel", step="all")
for row in answer["kernels"]:
    print(row["kernel"], row["n_executions"], f"{row['avg_dur_ps'] / 1e6:.3f} us")
