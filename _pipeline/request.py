"""What was asked, and why there is no answer."""

from __future__ import annotations

import os
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    Json = dict[str, Any]


# Version of the printed fields: the major number changes when a field is removed or changes its
# meaning or type, the minor number when one is added.
SCHEMA_VERSION = "3.0"
DEVICE = "/device:TPU:0"
# What names of devices begin with; hosts and what lies beside the trace have other ones.
DEVICE_PLANE = "/device:"


def forms_of_device(name: str) -> list[str]:
    """What planes may be meant by what was given: the very name, or else a TPU by its number."""
    number = name.removeprefix("TPU:")
    return [name, f"/device:TPU:{number}"] if number.isdecimal() else [name]


class Request:
    """The command line, understood."""

    def __init__(
        self,
        profile: str,
        mode: str,
        device: str | None,
        host: str | None,
        form: str,
        mode_options: Json,
    ) -> None:
        self.profile, self.mode = profile, mode
        self.device, self.host = device, host
        # Of what is printed.
        self.form = form
        self.mode_options = mode_options


DEVICE_NOT_FOUND = "device_not_found"
MISSING_DEPENDENCY = "missing_dependency"
# Why a file has no answer that others may have.
UNREADABLE = ("unreadable_xplane_pb", "unreadable_record", MISSING_DEPENDENCY)
# Exit status of the process for each reason. Data that may rightly be missing exits with 0.
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
    "host_not_found": 1,
    "kernel_not_found": 1,
    "duplicate_host": 1,
    "unreadable_flags": 1,
    "cant_write": 1,
    "op_not_found": 1,
    "scope_not_found": 1,
    "protobuf_not_installed": 1,
    MISSING_DEPENDENCY: 1,
    "bad_arguments": 2,
}


class Absent(Exception):
    """There is no answer; why, and what else the answer's object says."""

    def __init__(self, reason: str, **fields: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.exit_status = EXIT_STATUS[reason]
        self.fields = fields


class BadArguments(Exception):
    def __init__(self, usage: str, detail: str, **fields: Any) -> None:
        super().__init__(detail)
        self.usage, self.fields = usage, fields


def no_device(planes: Iterable[str]) -> Absent:
    """Why there is none of that name among the planes: it may be no capture of a TPU at all."""
    devices = [name for name in dict.fromkeys(planes) if name.startswith(DEVICE_PLANE)]
    kinds = dict.fromkeys(name.removeprefix(DEVICE_PLANE).partition(":")[0] for name in devices)
    fields: Json = {"available_devices": devices}
    if "TPU" not in kinds:
        of = f"{' and '.join(kinds)}, not of a TPU" if kinds else "a host (CPU) alone"
        fields["detail"] = f"a capture of {of}: --mode anatomy shows what is in it"
    return Absent(DEVICE_NOT_FOUND, **fields)


def unreadable(path: str, error: Exception) -> Absent:
    what = str(error)
    if isinstance(error, OSError):
        what = f"byte 0: {error.strerror or what}"
    elif isinstance(error, MemoryError):
        what = "byte 0: not enough memory to read it"
    return Absent("unreadable_xplane_pb", detail=f"{os.path.basename(path)}: {what}")


# Python takes memory from the system by the mebibyte, even for a line of text.
KEPT_FOR_REFUSALS = 4 << 20


@contextmanager
def some_memory_kept() -> Iterator[None]:
    """Free some memory when leaving, so that running out of it can be reported."""
    # Zeros that nobody reads take none of the machine's memory, only of what is allowed.
    kept = bytes(KEPT_FOR_REFUSALS)
    try:
        yield
    finally:
        del kept
