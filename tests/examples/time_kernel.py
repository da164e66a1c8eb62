"""Time a Pallas kernel on a TPU.

JAX has no public function that returns a trace, so the profiler writes the trace into a temporary
folder.
"""

import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

import compute_breakdown


def double_kernel(x_ref, out_ref):
    out_ref[...] = x_ref[...] * 2.0


@jax.jit
def double(x):
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    # A CPU can only interpret the kernel.
    is_cpu = jax.default_backend() == "cpu"
    return pl.pallas_call(double_kernel, out_shape=shape, name="double", interpret=is_cpu)(x)


def traced(function, *arguments, n=10):
    """Return the trace of some calls as bytes."""
    # The first call compiles.
    jax.block_until_ready(function(*arguments))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(n):
                jax.block_until_ready(function(*arguments))
        (trace,) = Path(folder).rglob("*.xplane.*")
        return trace.read_bytes()


data = traced(double, jnp.ones((1024, 1024), jnp.float32))
try:
    answer = compute_breakdown.analyse(data, "kernel", step="all")
except compute_breakdown.NoAnswer as failure:
    # For example, the trace of a CPU has no plane of a TPU.
    sys.exit(f"no answer: {failure}")
for row in answer["kernels"]:
    print(row["kernel"], row["n_executions"], f"{row['avg_dur_ps'] / 1e6:.3f} us")
