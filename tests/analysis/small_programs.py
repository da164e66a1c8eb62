"""Build small programs and traces of their executions, and run `bottleneck` on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.builders import hlo_proto
from tests.builders.hlo_proto import (
    Shape,
    array,
    direction,
    element,
    metadata_plane,
    packed,
    tuple_of,
)
from tests.builders.xspace import Op, Space, bytes_field, encode, op as event, tpu_plane
from tests.harness import answer

Json = dict[str, Any]
Program = dict[str, list[hlo_proto.Op]]

PROGRAM_ID = 7
DURATION = 1000
# At this peak, memory moves more than a million bytes per picosecond, so it never limits an op.
FAST = ("--peak-hbm-gibps", "1e9")


def bottleneck(
    program: Program, ran: Sequence[Op], *options: str, duration: int = DURATION, **more: Any
) -> Json:
    """Run `bottleneck` on a step, of 1000 ps if no other duration is given; return the answer."""
    for execution in ran:
        execution.stats["program_id"] = PROGRAM_ID
    metadata = metadata_plane({PROGRAM_ID: ("jit_f(7)", hlo_proto.hlo_proto(program, **more))})
    data = encode(Space([tpu_plane(ran, [("0", 0, duration)]), metadata]))
    result: Json = answer(data, "bottleneck", *(options or FAST))
    return result


def causes(program: Program, ran: Sequence[Op], *options: str, **more: Any) -> list[Json]:
    """Return all causes except `not_donated`, which costs memory instead of time."""
    rows = bottleneck(program, ran, *options, **more)["causes"]
    return [row for row in rows if row["gain_bytes"] is None]


def rounds(name: str, category: str, start: int, dur: int, n: int, **facts: Any) -> list[Op]:
    """Return `n` executions of an op, one per loop iteration, 100 ps apart."""
    return [event(name, category, start + 100 * i, dur, **facts) for i in range(n)]


def take(name: str, of: str, index: int, shape: Shape | None = None) -> hlo_proto.Op:
    """Return a get-tuple-element instruction."""
    return hlo_proto.op(name, "get-tuple-element", of, shape=shape, extra=element(index))


def equal(name: str, *operands: str, shape: Shape, line: str | None = None) -> hlo_proto.Op:
    return hlo_proto.op(name, "compare", *operands, shape=shape, extra=direction("EQ"), line=line)


def combining(opcode: str, name: str = "both") -> list[hlo_proto.Op]:
    """Return the computation of a reduction."""
    one = array("f32")
    sides = [hlo_proto.op(f"{name}.{i}", "parameter", shape=one, number=i) for i in (0, 1)]
    return [*sides, hlo_proto.op(name, opcode, f"{name}.0", f"{name}.1", shape=one)]


# Dimension numbers of a scatter of rows into a matrix.
OF_ROWS = bytes_field(48, packed(1, [1]) + packed(2, [0]))


def rows_of(source: str, indices: str, shape: Shape, name: str = "out") -> hlo_proto.Op:
    """Return a gather of rows of a matrix."""
    numbers = bytes_field(33, packed(1, [1])) + packed(34, [1, shape.dims[1]])
    return hlo_proto.op(name, "gather", source, indices, shape=shape, extra=numbers)


def zeros(name: str, shape: Shape) -> list[hlo_proto.Op]:
    """Return an array of zeros, and the number of which it is made."""
    literal = bytes_field(8, bytes_field(8, b"\0" * 4))
    zero = hlo_proto.op(f"{name}.0", "constant", shape=array("f32"), extra=literal)
    return [zero, hlo_proto.op(name, "broadcast", f"{name}.0", shape=shape)]


def loop(body: list[hlo_proto.Op], n_state: int, *before: str) -> Program:
    """Return a program with a while loop whose state is `n_state` arrays of the default shape.

    The first op of `body` must be its parameter, named `state`.
    """
    shapes = tuple_of(*(array("f32", 8, 128) for _ in range(n_state)))
    body[0].instruction.shape = shapes
    body[-1].instruction.shape = shapes
    return {
        "body": body,
        "condition": [hlo_proto.op("rounds", "parameter", shape=shapes)],
        "main": [
            *(hlo_proto.op(f"x.{i}", "parameter", number=i) for i in range(n_state)),
            hlo_proto.op("init", "tuple", *(f"x.{i}" for i in range(n_state)), shape=shapes),
            hlo_proto.op("while.1", "while", "init", shape=shapes, calls=["body", "condition"]),
        ],
    }


MATRIX = array("pred", 64, 1000)
NUMBERS = array("s32", 64, 1000)


def lookup(*between: hlo_proto.Op, matrix: str = "eq.1") -> list[hlo_proto.Op]:
    """Return a program that looks up embeddings with a matmul of a one-hot matrix."""
    return [
        hlo_proto.op("tokens", "parameter", shape=array("s32", 64)),
        hlo_proto.op("table", "parameter", shape=array("f32", 1000, 8), number=1),
        hlo_proto.op("spread", "broadcast", "tokens", shape=NUMBERS),
        hlo_proto.op("iota.1", "iota", shape=NUMBERS),
        hlo_proto.op("shard", "constant", shape=NUMBERS),
        hlo_proto.op("place", "add", "iota.1", "shard", shape=NUMBERS),
        equal("eq.1", "spread", "place", shape=MATRIX),
        *between,
        hlo_proto.op("dot.1", "dot", matrix, "table", shape=array("f32", 64, 8), line="embed.py:3"),
    ]


def accumulating(
    *between: hlo_proto.Op, result: str = "reduced", added: str = "add"
) -> list[hlo_proto.Op]:
    """Return a loop body that adds an all-reduce's result to element 0 of the loop state."""
    return [
        hlo_proto.op("state", "parameter"),
        take("sum", "state", 0),
        take("weight", "state", 1),
        take("batch", "state", 2),
        hlo_proto.op("grad", "dot", "weight", "batch"),
        hlo_proto.op("reduced", "all-reduce", "grad", line="train.py:5"),
        *between,
        hlo_proto.op("next", "negate", "batch"),
        hlo_proto.op("new", added, "sum", result),
        hlo_proto.op("root", "tuple", "new", "weight", "next"),
    ]
