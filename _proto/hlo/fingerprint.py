"""Compute the fingerprint of a compiled program. Two compilations that produce the same code have
equal fingerprints.

The fingerprint covers the instructions in schedule order with all their fields: opcodes, shapes and
layouts, constants, replica groups, threads, backend configuration, and fields that this package
does not read. The order of the fields in the bytes has no influence. An operand is represented by
its index in the computation, and a called computation by its contents. Fields that differ between
compilations of the same code are omitted: names, ids, channels, and metadata with source lines. A
kernel's code contains source lines, so it has a separate hash.
"""

from __future__ import annotations

import json
from operator import itemgetter
from typing import Any

from _breakdown.light import NamedTuple
from _proto import hlo_pb2 as pb
from _proto.hlo.parameters import read_parameters
from _proto.hlo.program import KERNEL_TARGET, Computation, Program
from _proto.hlo.text import base_name
from _proto.trace.wire import FIXED_BYTES, LENGTH, header_at

_LEFT_OUT = (
    "name",
    "metadata",
    "channel_id",
    "id",
    "operand_ids",
    "control_predecessor_ids",
    "called_computation_ids",
    "statistics_viz",
    "original_value",
)


# Number of the field of a computation that contains its instructions.
_INSTRUCTIONS = 2


class Fingerprint(NamedTuple):
    """The hash of a program without kernel code, and the hash of each kernel's code by kernel
    name."""

    text: str
    kernel_code: dict[str, str]


def fingerprint_of(program: Program) -> Fingerprint | None:
    """Return the fingerprint of a program, or None if the program has no entry computation or calls
    itself."""
    entry = program.computation(program.message.entry_computation_id)
    if entry is None:
        return None
    hashing = _Hashing()
    try:
        of_entry = hashing.of_computation(entry)
    except RecursionError:
        return None
    whole = hashing.new(of_entry)
    for part in (program.message.input_output_alias, program.message.buffer_donor):
        _add(whole, part)
    for parameter in read_parameters(program) or ():
        _add(whole, (parameter.sharding.text if parameter.sharding else None) or "")
    kernels = {name: _digest(code) for name, code in hashing.kernel_code.items()}
    return Fingerprint(_digest(whole), dict(sorted(kernels.items())))


class _Hashing:
    """Hashes each computation once, and kernel code by kernel name."""

    def __init__(self) -> None:
        try:
            # Avoid `hashlib` if possible: it loads OpenSSL, which takes 10 ms.
            from _sha1 import sha1  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            from hashlib import sha1
        self.new = sha1
        self.kernel_code: dict[str, Any] = {}
        self._known: dict[Computation, bytes] = {}
        self._ordered: dict[bytes, bytes] = {}

    def of_computation(self, computation: Computation) -> bytes:
        if computation in self._known:
            return self._known[computation]
        message = computation.message
        place_of = {found.id: i for i, found in enumerate(message.instructions)}
        places = [place_of.get(message.root_id)]
        # Copying all instructions at once is faster than copying each instruction.
        copy = pb.HloComputation(instructions=message.instructions)
        whole = self.new(message.execution_thread.encode())
        for instruction in copy.instructions:
            called_ids = instruction.called_computation_ids
            places += [-1, len(called_ids), *map(place_of.get, instruction.operand_ids)]
            for called_id in called_ids:
                called = computation.program.computation(called_id)
                if called:
                    whole.update(self.of_computation(called))
            self._clear(instruction)
        _add(whole, str(places))
        _add(whole, self._in_order(copy.SerializeToString(), _INSTRUCTIONS))
        digest: bytes = whole.digest()
        self._known[computation] = digest
        return digest

    def _in_order(self, data: bytes, messages: int | None = None) -> bytes:
        """Return a message with its fields in the order of their numbers, also those of the
        messages in the field `messages`. Protobuf can write fields that it does not know after all
        others."""
        # Programs repeat most instructions, so put each one in order only once.
        if data in self._ordered:
            return self._ordered[data]
        parts = []
        at = 0
        try:
            while at < len(data):
                number, wire, length, start = header_at(data, at)
                stop = start + (length if wire == LENGTH else FIXED_BYTES.get(wire, 0))
                part = data[at:stop]
                if number == messages:
                    part = data[at:start] + self._in_order(data[start:stop])
                parts.append((number, part))
                at = stop
        except ValueError:
            # The message contains a group, which no compiler writes.
            return data
        parts.sort(key=itemgetter(0))
        ordered = self._ordered[data] = b"".join([part for _, part in parts])
        return ordered

    def _clear(self, message: pb.HloInstruction) -> None:
        """Clear the fields that the fingerprint omits, and hash a kernel's code separately."""
        if message.custom_call_target == KERNEL_TARGET:
            message.backend_config, code = _without_code(message.backend_config)
            name = base_name(message.name.removeprefix("%"))
            _add(self.kernel_code.setdefault(name, self.new()), code)
        for name in _LEFT_OUT:
            message.ClearField(name)
        if message.HasField("frontend_attributes"):
            message.frontend_attributes.map.sort()


def _without_code(config: bytes) -> tuple[bytes, str]:
    """Split a kernel's backend_config into the config without the code, and the code."""
    try:
        decoded = json.loads(config)
        code = decoded["custom_call_config"].pop("body")
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return config, ""
    return json.dumps(decoded, sort_keys=True).encode(), str(code)


def _add(found: Any, part: bytes | str) -> None:
    """Hash a part together with its length, so that different lists of parts never produce the same
    bytes."""
    data = part.encode() if isinstance(part, str) else part
    found.update(b"%d:" % len(data))
    found.update(data)


def _digest(found: Any) -> str:
    digest: str = found.hexdigest()[:16]
    return digest
