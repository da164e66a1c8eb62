"""Build small steps by hand and run modes on them."""

from __future__ import annotations

from typing import Any

from tests.builders.xspace import Op, StatValue, op, trace
from tests.harness import answer

STEP = [("s", 0, 1000)]
BF16 = "bf16[8,128]{1,0:T(8,128)(2,1)}"
HERE = "m.py:1:1"
PS = 10**12  # One second, in picoseconds.
GIB = 2**30

# The peaks are 2 flops per picosecond and 2**30 bytes per second; the ridge point is 2e12 / 2**30.
PEAKS = ["--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1"]


def leaf(start: int, dur: int, name: str = "f.1", **facts: Any) -> Op:
    return op(name, "loop fusion", start, dur, **facts)


def kernel(start: int, dur: int, name: str = "flash.3", **facts: Any) -> Op:
    target = ', custom_call_target="tpu_custom_call"'
    return op(name, "custom-call", start, dur, attributes=target, shape=BF16, **facts)


def matmul(start: int, dur: int, flops: StatValue, n_bytes: StatValue, **facts: Any) -> Op:
    facts = {"shape": BF16, "stack": HERE, "bytes_accessed": n_bytes, **facts}
    return op(facts.pop("name", "f.1"), "convolution fusion", start, dur, flops=flops, **facts)


def summary(ops: list[Op], *options: str) -> dict[str, Any]:
    return answer(trace(ops, STEP), "summary", *options)


def by_source(ops: list[Op], *options: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = answer(trace(ops, STEP), "by_source", *options)["groups"]
    return rows


def roofline(ops: list[Op], *options: str) -> dict[str, Any]:
    return answer(trace(ops, STEP), "roofline", *options)


def column(rows: list[dict[str, Any]], *keys: str) -> list[Any]:
    """Return one field of each row, or a tuple of several fields."""
    if len(keys) == 1:
        return [row[keys[0]] for row in rows]
    return [tuple(row[key] for key in keys) for row in rows]


STALLS = (
    "waits for asynchronous communication are listed as 'async-done (comm stall)'; "
    "pass --no-comm-stalls to omit them"
)
STALL = "async-done (comm stall)"
