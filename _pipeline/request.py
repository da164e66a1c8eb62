"""The question: a profile, a mode, a device, and the mode's options."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

# Version of the printed fields: the major number changes when a field is removed or changes its
# meaning or type, the minor number when one is added.
SCHEMA_VERSION: Final = "3.0"
DEVICE = "/device:TPU:0"


def forms_of_device(name: str) -> list[str]:
    """Return the planes that a name can mean: the plane of that name, or a TPU by its number."""
    number = name.removeprefix("TPU:")
    return [name, f"/device:TPU:{number}"] if number.isdecimal() else [name]


class Request(NamedTuple):
    """The parsed command line."""

    profile: str
    mode: str
    device: str | None
    host: str | None
    # Output format.
    form: str
    mode_options: dict[str, Any]
