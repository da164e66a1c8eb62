"""Build programs that copy arrays between layouts."""

from __future__ import annotations

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import Op, Shape, listed_groups, op
from tests.builders.xspace import op as event

ROWS, COLUMNS = (Shape("f32", (8, 128), minor_to_major=order) for order in ((1, 0), (0, 1)))
GROUPS = listed_groups((0, 1, 2, 3))


def main(primitive: str, *, before: Shape = COLUMNS) -> list[Op]:
    """Return a chain of instructions: copy, all-to-all, copy, an op in the user's code, copy.

    The copies read and write computed values, because copies of parameters and results are another
    cause.
    """
    path = f"jit(f)/layer/{primitive}"
    return [
        op("given", "parameter", shape=before),
        op("x", "negate", "given", shape=before),
        op("copy.1", "copy", "x", shape=ROWS, line="model.py:3"),
        op("bitcast.1", "bitcast", "copy.1", shape=ROWS),
        op(
            "all-to-all.1",
            "all-to-all",
            "bitcast.1",
            shape=ROWS,
            line="model.py:4",
            tf_op=path,
            extra=GROUPS,
        ),
        op("copy.2", "copy", "all-to-all.1", shape=COLUMNS, line="model.py:4"),
        op("out", "negate", "copy.2", shape=COLUMNS, line="model.py:5"),
        op("copy.3", "copy", "out", shape=ROWS, line="model.py:5"),
        op("used", "negate", "copy.3", shape=ROWS),
    ]


def found(primitive: str) -> list[Json]:
    """Return the causes if the all-to-all takes 50 ps and the copies take 100, 20 and 30 ps."""
    path = f"jit(f)/layer/{primitive}:"
    ran = [
        event("copy.1", "data formatting", 0, 100),
        event("all-to-all.1", "all-to-all", 100, 50, tf_op=path),
        event("copy.2", "data formatting", 150, 20),
        event("out", "non-fusion elementwise", 200, 50),
        event("copy.3", "data formatting", 250, 30),
    ]
    return causes({"main": main(primitive)}, ran)
