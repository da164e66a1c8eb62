"""Build small steps by hand and run modes on them."""

from __future__ import annotations

from typing import Any

from tests.builders.xspace import EventMetadata, Line, Op, Plane, Stat, StatMetadata, op, ref, trace
from tests.harness import answer

Steps = list[tuple[str, int, int]]
NO_STEPS: tuple[Steps | None, ...] = (None, [])


def leaf(start: int, dur: int, name: str = "f.1") -> Op:
    return op(name, "loop fusion", start, dur)


def totals(ops: list[Op], steps: Steps | None = None) -> dict[str, Any]:
    found: dict[str, Any] = answer(trace(ops, steps), "summary")["totals"]
    return found


def groups(ops: list[Op]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = answer(
        trace(ops), "by_source", "--include-data-move", "--include-comm"
    )["groups"]
    return rows


def plane(
    *lines: Line, name: str | None = "/device:TPU:0", stats: list[Stat] | None = None
) -> Plane:
    """Return a plane in which event metadata 7 is a loop fusion and stat metadata 3 is
    hlo_category."""
    fusion = EventMetadata(7, "%f.1 = f32[8]{0} fusion(f32[8]{0} %a)", stats or [Stat(3, ref(4))])
    return Plane(
        name,
        list(lines),
        [fusion],
        [StatMetadata(3, "hlo_category"), StatMetadata(4, "loop fusion"), StatMetadata(5, "while")],
    )
