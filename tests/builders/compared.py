"""Compare records that are built in code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from _breakdown.analysis.devices import record_format
from _breakdown.analysis.records import comparison
from _breakdown.analysis.records.comparison_notes import warnings_of
from _breakdown.analysis.records.comparison_rows import fields_of
from tests.builders import records
from tests.builders.records import Frame, Json


def compare(before: Json, after: Json, *, top: int = 10**6, **options: Any) -> Json:
    """Return the answer of `compare` for one record before and one after."""
    return compare_captures([before], [after], top=top, **options)


def compare_captures(
    before: Sequence[Json],
    after: Sequence[Json],
    *,
    top: int = 10**6,
    tokens: int | None = None,
    **options: Any,
) -> Json:
    """Return the answer of `compare` for several records before and after."""
    found = comparison.compare_records(
        list(map(record_format.record_of, before)),
        list(map(record_format.record_of, after)),
        **options,
    )
    answer = {
        "notes": list(warnings_of(found)),
        **fields_of(found, top, tokens),
        "gate": None,
        "mode": "compare",
    }
    printed: Json = json.loads(json.dumps(answer, allow_nan=False))
    return printed


def mean(figures: Sequence[int]) -> int:
    """Return the mean, rounded half up."""
    return int(Fraction(sum(figures), len(figures)) + Fraction(1, 2))


def op(
    number: int,
    *frames: str,
    tf_op: str | None = "jit(f)/dot:",
    kind: str = "compute",
    duration: int = 100,
    text: str | None = None,
) -> records.Op:
    """Return an op; each frame has the form `file:line:column`."""
    split = (frame.rsplit(":", 2) for frame in frames)
    return records.Op(
        frozenset([number]),
        kind,
        "loop fusion",
        tuple(Frame(file, int(line), int(column)) for file, line, column in split),
        tf_op,
        text or f"%fusion.{number} = f32[8] fusion()",
        "fusion [loop fusion]",
        "f32[8]",
        duration,
    )
