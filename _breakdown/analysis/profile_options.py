"""Read the software versions with which a capture was taken, and the options of the profiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message

from _breakdown.pipeline.context import Context
from _breakdown.pipeline.texts import exact
from _proto import xplane_pb2 as pb
from _proto.errors import Damage
from _proto.trace.plane import Value
from _proto.trace.ranks import ENVIRONMENT, PROGRAMS, kind_of_plane
from _proto.trace.trace import Trace
from _proto.trace.wire import decode

# The value of an option can be a map.
OptionValue = bool | int | float | str | None
Options = dict[str, OptionValue | dict[str, OptionValue]]

VERSIONS = ("jax_version", "jaxlib_version", "tpu_version")
OPTIONS = "profile_options"


def versions_of(hosts: Sequence[Trace]) -> dict[str, str]:
    texts = ((name, stat_of(hosts, PROGRAMS, name)) for name in VERSIONS)
    return {name: text for name, text in texts if isinstance(text, str)}


def profile_options_of(hosts: Sequence[Trace], context: Context) -> Options | None:
    """Return the profiler options that are set, or None if the capture has no readable profiler
    options."""
    data = stat_of(hosts, ENVIRONMENT, OPTIONS)
    if not isinstance(data, bytes):
        return None
    try:
        return fields_of(decode(pb.ProfileOptions, data, 0))
    except Damage as damage:
        context.warn(
            f"the stat {OPTIONS} cannot be decoded, so {OPTIONS} is null:"
            f" byte {damage.offset} of the value: {damage.what}"
        )
        return None


def stat_of(hosts: Sequence[Trace], kind: str, name: str) -> Value | None:
    """Return a stat of the first plane of the given kind; a merged capture has several such
    planes."""
    for trace in hosts:
        for plane in trace.plane_names:
            if kind_of_plane(plane) == kind:
                return trace.plane(plane).stats().get(name)
    return None


def fields_of(message: Message) -> Options:
    """Map the names of a message's set fields to their values."""
    return {field.name: plain_value(field, value) for field, value in message.ListFields()}


# Use `Any`, because protobuf's stubs do not declare the types of fields.
def plain_value(field: Any, value: Any) -> Any:
    """Convert a field's value to a type that JSON supports."""
    if field.name == "advanced_configuration":
        return {entry.key: configured(entry.value) for entry in value}
    if field.message_type:
        return fields_of(value)
    if field.enum_type:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    return exact(value) if isinstance(value, int) else value


def configured(setting: pb.ProfileOptions.AdvancedConfigValue) -> OptionValue:
    """Return the value of a setting in the advanced configuration; None if it is empty."""
    kind = setting.WhichOneof("value")
    value = getattr(setting, kind) if kind else None
    return exact(value) if isinstance(value, int) else value
