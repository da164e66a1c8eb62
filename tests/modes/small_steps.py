"""Build small steps by hand and run modes on them."""

from __future__ import annotations

from typing import Any

from tests.builders import hlo_proto
from tests.builders.xspace import Op, Space, StatValue, encode, op, tpu_plane, trace
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


def small_capture() -> bytes:
    """Encode a capture that every mode can read, for tests for which the figures do not matter.

    It has two devices, two steps, a program with buffers, source lines, a collective, two kernels
    and a cause.
    """
    here = "model/train.py:9", "model/train.py:12", "model/train.py:30", "model/train.py:31"
    program = hlo_proto.hlo_proto(
        {
            "main": [
                hlo_proto.op("x", "parameter"),
                hlo_proto.op("f.1", "fusion", "x", line=here[0]),
                hlo_proto.op("sum", "all-gather", "f.1", line=here[1]),
                *(
                    hlo_proto.op(name, "custom-call", "x", target="tpu_custom_call", line=line)
                    for name, line in zip(("flash.3", "ring.4"), here[2:], strict=True)
                ),
            ]
        },
        buffers=hlo_proto.buffer(1, 4096, 1)
        + hlo_proto.buffer(2, 512, 2)
        + hlo_proto.allocation(0, 4096, (1, 0, 4096), parameter=0)
        + hlo_proto.allocation(1, 512, (2, 0, 512))
        + hlo_proto.heap_trace((hlo_proto.ALLOC, 2, "f.1", 0)),
        extra=hlo_proto.aliases((0, ())),
    )
    ops = [
        made
        for at in (0, 1000)
        for made in (
            leaf(at, 400, stack=f"{here[0]}:1", tf_op="jit(f)/norm/mul:", shape=BF16,
                 flops=10**6, bytes_accessed=10**4),
            op("sum", "all-gather", at + 400, 200, stack=f"{here[1]}:1"),
            kernel(at + 600, 100, stack=f"{here[2]}:1"),
            kernel(at + 750, 100, "ring.4", stack=f"{here[3]}:1"),
            op("copy.5", "copy", at + 850, 50, stack=f"{here[3]}:1"),
        )
    ]  # fmt: skip
    for made in ops:
        made.stats["program_id"] = 7
    steps = [("100", 0, 1000), ("101", 1000, 1000)]
    devices = [tpu_plane(ops, steps, name=f"/device:TPU:{number}") for number in range(2)]
    return encode(Space([*devices, hlo_proto.metadata_plane({7: ("jit_f(7)", program)})]))


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
