"""Define the exception for a run without an answer, the exit status for each reason, and that of
the check `--fail-over`."""

from __future__ import annotations

import os

from _breakdown.light import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

# Prefix of device plane names; host planes do not have it.
DEVICE_PLANE = "/device:"

BAD_ARGUMENTS = "bad_arguments"
DEVICE_NOT_FOUND = "device_not_found"
MISSING_DEPENDENCY = "missing_dependency"
NO_PROTOBUF = "protobuf_not_installed"
# Reasons that concern a single file, so another file of the run may contain the answer.
UNREADABLE = ("unreadable_xplane_pb", "unreadable_record", MISSING_DEPENDENCY)
# Exit status of the process for each reason. Legitimately missing data exits with 0.
EXIT_STATUS = {
    "no_xplane_pb": 0,
    DEVICE_NOT_FOUND: 0,
    "no_xla_ops_line": 0,
    "empty_xla_ops_line": 0,
    "no_program": 0,
    "no_buffer_assignment": 0,
    "no_such_path": 1,
    "unreadable_xplane_pb": 1,
    "unreadable_record": 1,
    "plane_not_found": 1,
    "line_not_found": 1,
    "step_not_found": 1,
    "unlike_steps": 1,
    "host_not_found": 1,
    "kernel_not_found": 1,
    "duplicate_host": 1,
    "unreadable_flags": 1,
    "cant_write": 1,
    "op_not_found": 1,
    "scope_not_found": 1,
    NO_PROTOBUF: 1,
    MISSING_DEPENDENCY: 1,
    BAD_ARGUMENTS: 2,
}
# Exit status of the check `--fail-over`.
PASSED, UNDECIDED, TOO_SLOW = 0, 1, 3


class NoAnswer(Exception):
    """Raised if a run has no answer.

    `fields` contains additional fields of the printed JSON object. `answer` is the complete object,
    but it is empty unless `analyse` raised the exception.
    """

    def __init__(self, reason: str, **fields: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fields = fields
        self.answer: dict[str, Any] = {}

    @classmethod
    def with_answer(cls, answer: dict[str, Any]) -> NoAnswer:
        """Return the exception that carries a complete error answer."""
        failure = cls(answer["reason"])
        failure.fields = failure.answer = answer
        return failure

    def __str__(self) -> str:
        details = [self.detail] if self.detail else available_in(self.fields)
        return ": ".join((self.reason, *details))

    @property
    def detail(self) -> str | None:
        detail: str | None = self.fields.get("detail")
        return detail

    @property
    def why(self) -> str:
        """Return the detail, or the reason if there is no detail."""
        return self.detail or self.reason

    @property
    def exit_status(self) -> int:
        return EXIT_STATUS[self.reason]


def available_in(fields: dict[str, Any]) -> list[str]:
    """Return the first nine names of each `available_…` field that has any."""
    return [
        f"{field} {', '.join(map(str, names[:9]))}"
        for field, names in fields.items()
        if field.startswith("available_") and names
    ]


def no_program() -> NoAnswer:
    """Return the exception for a capture without the program that the mode reads."""
    detail = (
        "the capture has no readable program of this step; capture the first call of the step, too,"
        " or keep the profiler's option enable_hlo_proto (--mode anatomy lists the programs)"
    )
    return NoAnswer("no_program", detail=detail)


def no_device(planes: Iterable[str]) -> NoAnswer:
    """Return the exception for a missing device, with the TensorCores of the file, or else its
    other devices."""
    # Import late, because --help needs this module but not the package.
    from _proto.trace.ranks import TPU_RE

    names = list(dict.fromkeys(planes))
    devices = [name for name in names if name.startswith(DEVICE_PLANE)]
    devices = list(filter(TPU_RE.match, devices)) or devices
    kinds = dict.fromkeys(name.removeprefix(DEVICE_PLANE).partition(":")[0] for name in devices)
    fields: dict[str, Any] = {"available_devices": devices}
    if "TPU" not in kinds:
        what = f"the capture is of {' and '.join(kinds) or 'CPU'}, not of a TPU"
        if not names:
            what = "the file has no planes, so it is probably not a capture"
        fields["detail"] = f"{what}; --mode anatomy lists the contents"
    return NoAnswer(DEVICE_NOT_FOUND, **fields)


def unreadable(path: str, error: Exception) -> NoAnswer:
    """Return the exception for a trace that cannot be read."""
    what = str(error)
    if isinstance(error, OSError):
        what = f"byte 0: {error.strerror or what}"
    elif isinstance(error, MemoryError):
        what = "byte 0: not enough memory to read the file"
    return NoAnswer("unreadable_xplane_pb", detail=f"{os.path.basename(path)}: {what}")


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
