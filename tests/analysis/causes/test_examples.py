"""Run the examples on the page of causes: the code before and after a change.

The syntax of all examples is checked everywhere. Running them needs JAX, which continuous
integration installs.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import unittest
from functools import partial

from _breakdown.analysis.causes import RULE_NAMED
from tests.pages import CAUSES, blocks

# What an example needs before it can run. The stand-ins do as little as possible.
COMMON = """
import jax, jax.numpy as jnp
from jax import lax
from jax.nn import log_softmax
from jax.scipy.special import logsumexp
take_along_axis = jnp.take_along_axis
"""
LOOP = """
batches = loader = [jnp.ones(3) * i for i in range(3)]
state, previous, logged = jnp.zeros(3), None, []
train_step = jax.jit(lambda state, batch: (state + batch, batch.sum()))
log = lambda loss: logged.append(loss)
prefetched = iter
"""
SETUPS = {
    "recompilation": """
BATCH_SIZE, batches, state = 4, [jnp.ones(4), jnp.ones(3)], jnp.zeros(())
padded = lambda batch, size: jnp.pad(batch, (0, size - len(batch)))
train_step = jax.jit(lambda state, batch: state + batch.sum())
""",
    "matmul_on_vector_unit": "query = cache = jnp.ones((2, 2, 2, 2))",
    "host_sync": LOOP,
    "pause_between_steps": LOOP,
    "recomputed_repeatedly": """
block = jnp.sin
loss_of_all_blocks = lambda x: block(block(x)).sum()
""",
    "recompute": "block = lambda x: jnp.sin(x @ x)",
    "kernel_waits_for_input": "from jax.experimental import pallas as pl",
    "slow_device": """
x, tokens_per_expert = jnp.arange(12.0).reshape(3, 4), 1
router = lambda x: x
limited_to_capacity = lambda scores, n: jax.nn.one_hot(scores.argmax(-1), 4).cumsum(0) <= n
""",
    "collective_in_loop": """
microbatches, grads = [jnp.ones(3), jnp.arange(3.0)], jnp.zeros(3)
grad = lambda batch: 2 * batch
psum = lambda x, axis: 4 * x
""",
    "parameter_relayout": """
pairs = jnp.arange(12.0).reshape(2, 6)
w = {"gate_up": pairs, "gate": pairs[:, ::2], "up": pairs[:, 1::2]}
""",
    "sort_for_a_few": """
logits = jnp.sin(jnp.arange(40.0).reshape(4, 10))
targets = jnp.arange(4)
""",
    "computed_then_dropped": """
x, head = jnp.sin(jnp.arange(24.0)).reshape(2, 4, 3), jnp.cos(jnp.arange(15.0)).reshape(3, 5)
where = jnp.array([[0, 2], [1, 3]])
""",
    "wide_parameter": """
w, x = jnp.ones((4, 3)), jnp.ones((2, 4), jnp.bfloat16)
step = jax.jit(lambda w, x: x @ w.astype(x.dtype))
""",
    "aliased_copy": "decode = lambda params, cache: cache + params",
    "repeated_rows": """
batch, tokens, width = 2, 3, 4
time, weights = jnp.sin(jnp.arange(8.0).reshape(2, 4)), jnp.cos(jnp.arange(20.0)).reshape(4, 5)
""",
    "rewritten_buffer": """
cache, new, i = jnp.zeros((2, 5, 3)), jnp.arange(6.0).reshape(2, 3), 3
""",
    "precise_matmul": "x, w = jnp.ones((2, 3)), jnp.ones((3, 2))",
    "second_pass": "x = jnp.sin(jnp.arange(48.0)).reshape(2, 2, 3, 4)",
    "kept_for_little": """
chunks, head = jnp.sin(jnp.arange(24.0)).reshape(3, 2, 4), jnp.cos(jnp.arange(20.0)).reshape(4, 5)
labels = jnp.array([[0, 1], [2, 3], [4, 0]])
""",
    "one_hot_matmul": """
tokens, vocabulary = jnp.array([2, 0]), 3
table = jnp.arange(6.0).reshape(3, 2)
""",
    "resharding": """
from jax.sharding import PartitionSpec as P
x = h = jnp.ones((2, 3, 4))
with_sharding_constraint = lambda x, spec: x
""",
    "sum_too_late": """
psum = lambda x, axis: 4 * x
h, w2 = jnp.sin(jnp.arange(24.0)).reshape(2, 3, 4), jnp.cos(jnp.arange(20.0)).reshape(4, 5)
weights = jnp.sin(jnp.arange(6.0)).reshape(2, 3)
""",
    "oversized_transfer": """
table, ids = jnp.arange(12.0).reshape(4, 3), jnp.array([2, 0])
all_gather, psum = lambda x, axis, tiled: x, lambda x, axis: x
axis_index = lambda axis: 0
""",
    "wide_transfer": """
x, w = jnp.ones((2, 4), jnp.bfloat16), jnp.ones((4, 3))
class lax:
    all_gather = lambda w, axis, tiled: w
""",
    "duplicated_work": """
time, batch, x = 2, 3, jnp.arange(24.0).reshape(2, 3, 4)
layer = lambda x: jnp.tanh(x).sum(-1)
""",
    "reduce_then_slice": """
y, part = jnp.arange(4.0), 4
psum, axis_index = lambda x, axis: 4 * x, lambda axis: 0
psum_scatter = lambda x, axis, **how: 4 * x
dynamic_slice_in_dim = lax.dynamic_slice_in_dim
""",
    "lost_batch_sharding": """
table, tokens, sharding = jnp.ones((4, 2)), jnp.array([1, 3]), None
with_sharding_constraint = lambda x, sharding: x
""",
    "widened_dtype": """
length, width = 3, 4
x = jnp.ones((length, width), jnp.bfloat16)
sinusoid = lambda length, width: jnp.sin(jnp.arange(length * 1.0)[:, None] * jnp.ones(width))
""",
    "large_intermediate": """
logits, labels = jnp.arange(24.0).reshape(2, 3, 4), jnp.array([[0, 1, 2], [3, 0, 1]])
""",
    "broadcast_in_memory": """
groups, q = 2, jnp.sin(jnp.arange(48.0)).reshape(1, 4, 3, 4)
k, v = jnp.cos(jnp.arange(96.0)).reshape(2, 1, 2, 6, 4)
attention = lambda q, k, v: jax.nn.softmax(q @ k.mT, -1) @ v
""",
    "expanded_then_reduced": "tokens, vocabulary = jnp.array([2, 0, 2]), 4",
    "array_of_one_number": "x, layer = jnp.ones((2, 3)), jnp.tanh",
    "array_of_pairs": "x, a, b = jnp.ones((2, 6)), jnp.ones((2, 3)), jnp.ones((2, 3))",
    "layout_change": """
b, t, heads, d, m = 2, 3, 2, 2, 4
x, wq = jnp.arange(24.0).reshape(b, t, m), jnp.arange(16.0).reshape(m, heads * d)
""",
    "not_donated": "train_step = lambda params, state, batch: (params + batch, state)",
}
# A CPU knows no compiler options for TPUs.
ONLY_ON_TPUS = ("collective_matmul", "sparse_core_wait", "synchronous_collective")
# The value that is the same before and after the change, or differs only by rounding.
SAME = {
    "lost_batch_sharding": "x",
    "array_of_one_number": "y",
    "computed_then_dropped": "logits",
    "wide_parameter": "y",
    "wide_transfer": "y",
    "rewritten_buffer": "cache",
    "precise_matmul": "h",
    "second_pass": "var",
    "kept_for_little": "hits",
    "host_sync": "state",
    "pause_between_steps": "state",
    "recompilation": "state",
    "collective_in_loop": "grads",
    "parameter_relayout": "gate",
    "one_hot_matmul": "x",
    "reduce_then_slice": "y",
    "sum_too_late": "y",
    "widened_dtype": "x",
    "large_intermediate": "loss",
    "broadcast_in_memory": "out",
    "expanded_then_reduced": "seen",
    "layout_change": "q",
}


def parts_of(name: str) -> list[str]:
    """Return the code before and after the change."""
    (code,) = [block.text for block in blocks(CAUSES) if block.heading == name]
    return re.split(r"(?m)^(?=# After)", code)


class Examples(unittest.TestCase):
    def test_examples_are_code(self) -> None:
        for name in RULE_NAMED:
            before, after = parts_of(name)
            for part in (before, after):
                with self.subTest(name):
                    self.assertTrue(ast.parse(part).body)

    @unittest.skipUnless(importlib.util.find_spec("jax"), "needs JAX")
    def test_examples_run_and_compute_the_same(self) -> None:
        for name in RULE_NAMED:
            if name in ONLY_ON_TPUS:
                continue
            with self.subTest(name):
                before, after = (self.values_of(name, part) for part in parts_of(name))
                if name in SAME:
                    close = importlib.import_module("numpy.testing").assert_allclose
                    same = importlib.import_module("jax").tree.map
                    same(partial(close, rtol=0.02), before[SAME[name]], after[SAME[name]])

    def values_of(self, name: str, part: str) -> dict[str, object]:
        values: dict[str, object] = {}
        exec(COMMON + SETUPS.get(name, "") + "\n" + part, values)
        return values
