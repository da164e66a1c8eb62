"""Build compiled programs for tests, byte by byte, without the protobuf library.

The lower layer mirrors the messages of a HloProto: ids are numbers, and None is not written. The
upper layer describes a program in a few lines, refers to instructions by name and assigns the ids:

    data = hlo_proto(
        {
            "body": [op("p", "parameter", line="model.py:1"), op("neg", "negate", "p")],
            "main": [op("x", "parameter"), op("fusion.1", "fusion", "x", calls=["body"])],
        }
    )

The last instruction of a computation is the root, and the last computation is the entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from tests.builders.xspace import (
    Arrange,
    EventMetadata,
    Message,
    Plane,
    Stat,
    StatMetadata,
    bytes_field,
    encode,
    field_of,
    int_field,
    raw,
    text_field,
    varint,
)

ELEMENT_TYPES = {
    "pred": 1,
    "s8": 2,
    "s32": 4,
    "s64": 5,
    "u8": 6,
    "u16": 7,
    "u32": 8,
    "f16": 10,
    "f32": 11,
    "f64": 12,
    "tuple": 13,
    "opaque": 14,
    "bf16": 16,
    "token": 17,
    "f8e5m2": 19,
    "f8e4m3fn": 20,
    "s4": 21,
}


def packed(number: int, values: Sequence[int]) -> bytes:
    return bytes_field(number, b"".join(map(varint, values))) if values else b""


def given(**numbered: tuple[int, int | bytes | None]) -> bytes:
    """Encode all fields whose value is not None."""
    return b"".join(field_of(number, v) for number, v in numbered.values() if v is not None)


@dataclass
class Shape(Message):
    dtype: str
    dims: tuple[int, ...] = ()
    memory_space: int | None = None
    parts: tuple[Shape, ...] = ()
    # True for each dynamic dimension; compilers write these flags even for static shapes.
    dynamic: tuple[bool, ...] = ()
    minor_to_major: tuple[int, ...] = ()

    def fields(self, arrange: Arrange) -> list[bytes]:
        layout = packed(1, self.minor_to_major)
        layout += b"" if self.memory_space is None else int_field(8, self.memory_space)
        return [
            int_field(2, ELEMENT_TYPES[self.dtype]),
            packed(3, self.dims),
            *(bytes_field(4, encode(part, arrange)) for part in self.parts),
            *([bytes_field(5, layout)] if layout else []),
            packed(6, self.dynamic),
        ]


@dataclass
class OpMetadata(Message):
    op_name: Annotated[str | None, 2] = None
    source_file: Annotated[str | None, 3] = None
    source_line: Annotated[int | None, 4] = None
    stack_frame_id: Annotated[int | None, 15] = None


@dataclass
class Instruction(Message):
    name: Annotated[str | None, 1] = None
    opcode: Annotated[str | None, 2] = None
    shape: Annotated[Shape | None, 3] = None
    metadata: Annotated[OpMetadata | None, 7] = None
    id: Annotated[int | None, 35] = None
    operand_ids: Annotated[list[int], 36] = field(default_factory=list)
    called_computation_ids: Annotated[list[int], 38] = field(default_factory=list)
    backend_config: Annotated[bytes | None, 43] = None
    thread: Annotated[str | None, 79] = None
    extra: bytes = b""
    # The parameter number, if the opcode is `parameter`.
    number: Annotated[int | None, 9] = None
    target: Annotated[str | None, 28] = None


@dataclass
class Computation(Message):
    name: Annotated[str | None, 1] = None
    instructions: Annotated[list[Instruction], 2] = field(default_factory=list)
    id: Annotated[int | None, 5] = None
    root_id: Annotated[int | None, 6] = None
    thread: Annotated[str | None, 8] = None


@dataclass
class StackFrames(Message):
    """Hold files, locations (file id, line, column), and frames (location id, caller's frame
    id)."""

    files: list[str]
    locations: list[tuple[int, int, int]]
    frames: list[tuple[int, int]]

    def fields(self, _: Arrange) -> list[bytes]:
        return [
            *(text_field(1, file) for file in self.files),
            *(
                bytes_field(3, int_field(1, file) + int_field(3, line) + int_field(4, column))
                for file, line, column in self.locations
            ),
            *(bytes_field(4, packed_pair(*frame)) for frame in self.frames),
        ]


@dataclass
class Module(Message):
    computations: Annotated[list[Computation], 3] = field(default_factory=list)
    frames: Annotated[StackFrames | None, 17] = None
    # The number of replicas and of computations in the device assignment.
    devices: tuple[int, int] | None = None
    extra: bytes = b""
    entry_id: Annotated[int | None, 6] = None

    def fields(self, arrange: Arrange) -> list[bytes]:
        devices = [bytes_field(15, packed_pair(*self.devices))] if self.devices else []
        return super().fields(arrange) + devices


def packed_pair(first: int, second: int) -> bytes:
    """Encode a message with two numbers, in fields 1 and 2."""
    return int_field(1, first) + int_field(2, second)


@dataclass
class HloProto(Message):
    module: Annotated[Module, 1]
    buffers: Annotated[bytes | None, 3] = None


def precision(*operands: int, algorithm: int | None = None) -> bytes:
    return bytes_field(51, packed(1, operands) + given(algorithm=(2, algorithm)))


def listed_groups(*groups: Sequence[int]) -> bytes:
    return b"".join(bytes_field(49, packed(1, group)) for group in groups)


def iota(n_groups: int, size: int, dims: Sequence[int], permutation: Sequence[int] = ()) -> bytes:
    """Encode an IotaReplicaGroupList, for field 92 of an instruction or field 2 of field 87."""
    return packed_pair(n_groups, size) + packed(3, dims) + packed(4, permutation)


# A whole mesh axis is given by its index, and a part of an axis by (index, product of the preceding
# parts' sizes, size).
Axis = int | tuple[int, int, int]


def axis_ref(axis: Axis) -> bytes:
    place, sub = (axis, b"") if isinstance(axis, int) else (axis[0], packed_pair(*axis[1:]))
    # proto3 does not write zeros.
    return (int_field(1, place) if place else b"") + (bytes_field(2, sub) if sub else b"")


def mesh(dims: Sequence[int], axes: Sequence[Axis], device_ids: Sequence[int] = ()) -> bytes:
    """Encode field 93 of an instruction: replica groups along axes of a mesh."""
    sizes = b"".join(
        bytes_field(1, text_field(1, f"axis_{i}") + int_field(2, dim)) for i, dim in enumerate(dims)
    )
    parts = b""
    for axis in axes:
        parts += bytes_field(2, axis_ref(axis))
    return bytes_field(93, bytes_field(1, sizes + packed(2, device_ids)) + parts)


def pairs(*listed: tuple[int, int]) -> bytes:
    return b"".join(bytes_field(52, packed_pair(*pair)) for pair in listed)


def element(index: int) -> bytes:
    """Encode the index of the tuple element that a get-tuple-element instruction returns."""
    return int_field(13, index)


def shares_memory(operand: int) -> bytes:
    """Encode that an instruction's output is in the memory of the operand with the given index."""
    # proto3 does not write zeros.
    return bytes_field(74, int_field(2, operand) if operand else b"")


def direction(name: str) -> bytes:
    """Encode the direction of a compare instruction, such as EQ, NE or LT."""
    return text_field(63, name)


def aliases(*parameters: tuple[int, Sequence[int]]) -> bytes:
    """Encode aliases: parameter arrays that share memory with outputs, given as (parameter number,
    index)."""
    entries = [
        # Field 1 is the output, and field 4 is the kind of alias.
        bytes_field(1, packed(1, (0,)) + int_field(2, number) + packed(3, index) + int_field(4, 2))
        for number, index in parameters
    ]
    return bytes_field(8, b"".join(entries))


def donors(*parameters: tuple[int, Sequence[int]]) -> bytes:
    """Encode donors: parameter arrays that may be overwritten but are not aliased, given as
    (parameter number, index).
    """
    entries = [
        bytes_field(1, int_field(1, number) + packed(2, index)) for number, index in parameters
    ]
    return bytes_field(18, b"".join(entries))


def shardings(*listed: bytes) -> bytes:
    return b"".join(bytes_field(14, sharding) for sharding in listed)


REPLICATED, MAXIMAL, TUPLE, TILED, MANUAL, UNKNOWN, UNREDUCED = range(7)


def sharding(
    kind: int,
    dims: Sequence[int] = (),
    *,
    devices: Sequence[int] = (),
    parts: Sequence[bytes] = (),
    shares_last: bool = False,
    subgroups: Sequence[int] = (),
    iota: Sequence[int] = (),
    order: Sequence[int] = (),
    named: bytes | None = None,
) -> bytes:
    return b"".join(
        [
            given(kind=(1, kind or None)),
            packed(3, dims),
            packed(4, devices),
            *(bytes_field(5, part) for part in parts),
            given(shares_last=(6, shares_last or None)),
            packed(8, subgroups),
            packed(9, iota),
            packed(10, order),
            given(named=(14, named)),
        ]
    )


def named_sharding(
    axes: Sequence[tuple[str, int]],
    dims: Sequence[Sequence[Axis]] = (),
    *,
    is_closed: bool = True,
    replicated: Sequence[Axis] = (),
    unreduced: Sequence[Axis] = (),
    manual: Sequence[Axis] = (),
    device_ids: Sequence[int] = (),
    parts: Sequence[bytes] = (),
) -> bytes:
    """Encode a NamedSharding; `dims` lists the mesh axes that split each dimension."""
    mesh = b"".join(bytes_field(1, text_field(1, n) + int_field(2, size)) for n, size in axes)
    cut = [
        b"".join(bytes_field(1, axis_ref(a)) for a in dim) + (int_field(2, 1) if is_closed else b"")
        for dim in dims
    ]
    shared = {4: replicated, 5: unreduced, 7: manual}
    return b"".join(
        [
            *(bytes_field(1, part) for part in parts),
            bytes_field(2, mesh + packed(2, device_ids)),
            *(bytes_field(3, dim) for dim in cut),
            *(bytes_field(n, axis_ref(axis)) for n, some in shared.items() for axis in some),
        ]
    )


ALLOC, FREE, SHARE = 0, 1, 2


def buffer(id_: int, size: int, instruction_id: int, *index: int, color: int = 0) -> bytes:
    """Encode a logical buffer: an instruction's output, or the part of it at `index`."""
    where = packed(3, index) + int_field(4, instruction_id)
    fields = int_field(1, id_) + int_field(2, size) + bytes_field(3, where) + int_field(4, color)
    return bytes_field(1, fields)


def allocation(
    number: int,
    size: int,
    *assigned: tuple[int, int, int],
    parameter: int | None = None,
    index: Sequence[int] = (),
    live_out: bool = False,
    constant: bool = False,
    thread_local: bool = False,
    color: int = 0,
) -> bytes:
    """Encode an allocation and its buffers, given as (id, offset, size)."""
    places = b"".join(
        bytes_field(9, packed_pair(buffer_id, offset) + int_field(3, length))
        for buffer_id, offset, length in assigned
    )
    flags = {3: thread_local, 5: parameter is not None, 7: live_out, 12: constant}
    return bytes_field(
        3,
        packed_pair(number, size)
        + places
        + b"".join(int_field(field, 1) for field, is_set in flags.items() if is_set)
        + given(parameter=(6, parameter), color=(8, color or None))
        + packed(10, index),
    )


def heap_trace(*events: tuple[int, int, str, int]) -> bytes:
    """Encode heap events, given as (kind, buffer id, instruction name, id of the buffer to share
    with)."""
    return bytes_field(
        4,
        b"".join(
            bytes_field(1, packed_pair(kind, id_) + text_field(4, name) + int_field(5, other))
            for kind, id_, name, other in events
        ),
    )


def array(dtype: str, *dims: int, space: int | None = None) -> Shape:
    return Shape(dtype, dims, space)


def tuple_of(*parts: Shape) -> Shape:
    return Shape("tuple", parts=parts)


@dataclass
class Op:
    """Represent an instruction that refers to its operands by name."""

    name: str
    opcode: str
    operands: tuple[str, ...]
    calls: Sequence[str]
    instruction: Instruction


def op(
    name: str,
    opcode: str,
    *operands: str,
    shape: Shape | None = None,
    calls: Sequence[str] = (),
    line: str | None = None,
    frame: int | None = None,
    tf_op: str | None = None,
    config: bytes | None = None,
    thread: str | None = None,
    extra: bytes = b"",
    number: int | None = None,
    target: str | None = None,
) -> Op:
    """Return an instruction; `line` is `file:line`, and `frame` is the id of a stack frame."""
    file, _, at = (line or "").rpartition(":")
    metadata = OpMetadata(tf_op, file or None, int(at) if at else None, frame)
    return Op(
        name,
        opcode,
        operands,
        calls,
        Instruction(
            name,
            opcode,
            array("f32", 8, 128) if shape is None else shape,
            metadata,
            backend_config=config,
            thread=thread,
            extra=extra,
            # proto3 does not write zeros.
            number=number or None,
            target=target,
        ),
    )


def module(
    computations: dict[str, list[Op]],
    *,
    frames: StackFrames | None = None,
    devices: tuple[int, int] | None = None,
    threads: dict[str, str] | None = None,
    extra: bytes = b"",
) -> Module:
    """Make a module.

    Instruction ids are consecutive across computations, as in real programs. Computation ids
    overlap with instruction ids, so that confusing the two makes tests fail.
    """
    computation_ids = {name: i for i, name in enumerate(computations, 1)}
    ids: dict[str, int] = {}
    for ops in computations.values():
        for one in ops:
            ids[one.name] = one.instruction.id = len(ids) + 1
    made = []
    for name, ops in computations.items():
        for one in ops:
            one.instruction.operand_ids = [ids[operand] for operand in one.operands]
            one.instruction.called_computation_ids = [computation_ids[c] for c in one.calls]
        made.append(
            Computation(
                name,
                [one.instruction for one in ops],
                computation_ids[name],
                ids[ops[-1].name] if ops else None,
                (threads or {}).get(name),
            )
        )
    # The last computation is the entry computation.
    return Module(made, frames, devices, extra, len(made) or None)


def hlo_proto(
    computations: dict[str, list[Op]],
    *,
    frames: StackFrames | None = None,
    devices: tuple[int, int] | None = None,
    threads: dict[str, str] | None = None,
    buffers: bytes | None = None,
    extra: bytes = b"",
) -> bytes:
    made = module(computations, frames=frames, devices=devices, threads=threads, extra=extra)
    return encode(HloProto(made, buffers))


def metadata_plane(programs: dict[int, tuple[str, bytes | None]]) -> Plane:
    """Return the plane of programs from ids, names and HloProtos; None gives an entry without a
    program.
    """
    return Plane(
        "/host:metadata",
        event_metadata=[
            EventMetadata(key, name, [] if data is None else [Stat(7, raw(data))])
            for key, (name, data) in programs.items()
        ],
        stat_metadata=[StatMetadata(7, "Hlo Proto")],
    )
