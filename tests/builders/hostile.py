"""Build traces with names that try to break out of a page."""

from __future__ import annotations

from tests.builders.xspace import op, trace
from tests.harness import Json
from tests.modes.small_steps import BF16

# Names that try to break out of the page's markup.
HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "\"'><b onmouseover=alert(1)>&lt;&amp;",
    "<!--<script>",
    "\u202egnp.py\u202c\u2066\u200f\u2028\u2029\u0000\u0007\u009b\ufeff",
    "{data}{style}{script}{script_hash}",
    "long" * 16384,
    "a b;c,d\te\\f/g",
)


def hostile_trace(dur: int = 40) -> bytes:
    """Encode a trace whose ops, lines, scopes, categories and steps have the names in HOSTILE."""
    ops = []
    for i, name in enumerate(HOSTILE):
        stack = f"{name}.py:{i}:1\nm{i}.py:1:1"
        tf_op = f"jit(f)/{name}/dot_general:"
        facts: Json = {"tf_op": tf_op, "flops": 10**6, "bytes_accessed": 10**4, "stack": stack}
        ops.append(op(f"f.{i}", "convolution fusion", 100 * i, dur, shape=BF16, **facts))
        ops.append(op(name, name, 100 * i + 40, 10, stack=stack))
        ops.append(op(f"c.{i}", "copy", 100 * i + 50, 10))
    return trace(ops, [(HOSTILE[0], 0, 1000)])
