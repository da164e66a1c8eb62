"""Build steps that compute values a second time for the backward pass."""

from __future__ import annotations

from tests.builders.xspace import Op, op, trace
from tests.harness import Json, answer

FORWARD = "jit(f)/jvp()/"
BACKWARD = "jit(f)/transpose(jvp())/"
AGAIN = "checkpoint/rematted_computation/"
LOOP = "while/body/closed_call/"
BLOCK, LOSS, STEP = "block.py:9:1", "train.py:7:1", "train.py:2:1"


def matmul(path: str, start: int, dur: int, *frames: str) -> Op:
    """Return a matmul with the given path; its stack consists of `frames` and, as the innermost
    frame, BLOCK."""
    stack, source = "\n".join((*frames, BLOCK)), BLOCK.rpartition(":")[0]
    return op(
        f"dot.{start}",
        "convolution fusion",
        start,
        dur,
        tf_op=f"{path}mlp/dot_general:",
        stack=stack,
        source=source,
    )


def answer_of(*ops: Op) -> Json:
    found: Json = answer(trace(ops, [("0", 0, 1000)]), "bottleneck")
    return found


def rows(*ops: Op) -> list[tuple[str, int, str | None, str]]:
    """Return the cause, the gain or else the affected time, the line and the confidence."""
    return [
        (row["cause"], row["gain_ps"] or row["unknown_ps"], row["source_user"], row["confidence"])
        for row in answer_of(*ops)["causes"]
    ]
