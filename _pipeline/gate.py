"""Compute the exit status of a `--fail-over` check, and build its result if there is no answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PASSED, UNDECIDED, TOO_SLOW = 0, 1, 3


def gate_status(fields: Mapping[str, Any]) -> int:
    """Return the exit status for the field `gate` of an answer, or 0 if the answer has no
    `gate`."""
    gate: Mapping[str, Any] | None = fields.get("gate")
    if gate is None or gate["passed"]:
        return PASSED
    return TOO_SLOW if gate["failed_by"] else UNDECIDED


def gate_without_answer(limit: float, reason: str) -> dict[str, Any]:
    return {
        "fail_over_pct": limit,
        "passed": False,
        "failed_by": [],
        "says": f"failed: no answer ({reason})",
    }
