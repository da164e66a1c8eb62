"""Build the message classes of the generated bindings from their descriptors.

Protobuf's own builder also imports the second implementation of messages, which is written in
Python and needed only where the implementation in C is missing. The import takes a tenth of the
time of mode `summary` on a small trace.
"""

from __future__ import annotations

__all__ = ["BuildMessageAndEnumDescriptors", "BuildTopDescriptorsAndMessages", "Default"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Names = dict[str, Any]


def Default() -> Any:
    """Return the pool of descriptors. The generated code also asks for the table of symbols, but
    does not use it."""
    return POOL


def BuildMessageAndEnumDescriptors(file: Any, module: Names) -> None:
    """Define nothing: only the implementation in Python needs the descriptors as globals."""


def BuildTopDescriptorsAndMessages(file: Any, module_name: str, module: Names) -> None:
    """Define the classes of a file's messages. The files declare no enums outside of messages."""
    for name, message in file.message_types_by_name.items():
        module[name] = class_of(message, module_name, name)


def class_of(message: Any, module_name: str, qualified_name: str) -> Any:
    nested = {
        name: class_of(inner, module_name, f"{qualified_name}.{name}")
        for name, inner in message.nested_types_by_name.items()
    }
    names = {"DESCRIPTOR": message, "__module__": module_name, "__qualname__": qualified_name}
    return cpp_message.GeneratedProtocolMessageType(message.name, (Message,), nested | names)


try:
    from google.protobuf.message import Message
    from google.protobuf.pyext import cpp_message

    POOL = cpp_message._message.default_pool
except (ImportError, AttributeError):
    from google.protobuf.descriptor_pool import Default
    from google.protobuf.internal.builder import (  # type: ignore[assignment]
        BuildMessageAndEnumDescriptors,
        BuildTopDescriptorsAndMessages,
    )
