"""What was asked, and why there is no answer."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]


DEVICE = "/device:TPU:0"


def forms_of_device(name: str) -> list[str]:
    """What planes may be meant by what was given: the very name, or else a TPU by its number."""
    number = name.removeprefix("TPU:")
    return [name, f"/device:TPU:{number}"] if number.isdecimal() else [name]


class Request:
    """The command line, understood."""

    def __init__(
        self, profile: str, mode: str, device: str | None, host: str | None, mode_options: Json
    ) -> None:
        self.profile, self.mode = profile, mode
        self.device, self.host = device, host
        self.mode_options = mode_options


DEVICE_NOT_FOUND = "device_not_found"
# Why a file has no answer that others may have.
UNREADABLE = ("unreadable_xplane_pb", "unreadable_record")
# Of the process, by why there is no answer. What could simply not be there is no failure.
EXIT_STATUS = {
    "no_xplane_pb": 0,
    DEVICE_NOT_FOUND: 0,
    "no_xla_ops_line": 0,
    "empty_xla_ops_line": 0,
    "no_program": 0,
    "no_buffer_assignment": 0,
    "unreadable_xplane_pb": 1,
    "unreadable_record": 1,
    "step_not_found": 1,
    "host_not_found": 1,
    "kernel_not_found": 1,
    "duplicate_host": 1,
    "unreadable_flags": 1,
    "op_not_found": 1,
    "scope_not_found": 1,
    "protobuf_not_installed": 1,
    "bad_arguments": 2,
}


class Absent(Exception):
    """There is no answer; why, and what else the answer's object says."""

    def __init__(self, reason: str, **fields: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.exit_status = EXIT_STATUS[reason]
        self.fields = fields


def unreadable(path: str, error: Exception) -> Absent:
    what = str(error)
    if isinstance(error, OSError):
        what = f"byte 0: {error.strerror or what}"
    elif isinstance(error, MemoryError):
        what = "byte 0: not enough memory to read it"
    return Absent("unreadable_xplane_pb", detail=f"{os.path.basename(path)}: {what}")
