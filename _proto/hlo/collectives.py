"""Find the collective that an instruction is or contains, its participants, and the compiler's plan
for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from _breakdown.light import NamedTuple
from _proto import hlo_pb2 as pb
from _proto.hlo.async_chains import DONE, START, UPDATE
from _proto.hlo.program import Computation, Instruction
from _proto.hlo.replica_groups import (
    AxisPart,
    Groups,
    Participants,
    in_groups,
    in_pairs,
    iota_groups,
    listed_groups,
    mesh_groups,
)
from _proto.hlo.shapes import Array
from _proto.trace.wire import parse

COLLECTIVES = frozenset(
    "all-gather all-reduce all-to-all collective-broadcast collective-permute "
    "ragged-all-to-all reduce-scatter".split()
)
_NAME_OF = {
    opcode: name
    for name in COLLECTIVES
    for opcode in (name, *(f"{name}-{part}" for part in (START, UPDATE, DONE)))
}


class Collective(NamedTuple):
    """A collective in a program; values that are missing from the program are None.

    For an asynchronous collective, the inputs are those of the start, and the outputs are those of
    the done.
    """

    name: str
    opcode: str
    inputs: list[Array] | None
    outputs: list[Array] | None
    who: Participants | None


def collective_name(opcode: str) -> str | None:
    """Return the name of an opcode's collective, such as `all-gather` for `all-gather-start`, or
    None for other opcodes."""
    return _NAME_OF.get(opcode)


def first_collective(parts: Sequence[Instruction]) -> Instruction | None:
    """Return the first collective among instructions and the instructions inside them, searching
    depth first."""
    entered: set[Sequence[Computation]] = set()
    for part in parts:
        if part.opcode in _NAME_OF:
            return part
        # The parts of an asynchronous op call the same computation.
        if part.called not in entered:
            entered.add(part.called)
            if found := part.parts_with(_NAME_OF.keys()):
                return found[0]
    return None


def collective_of(op: Instruction) -> Collective | None:
    """Read the first collective that an op is or contains. For an asynchronous op, search all its
    parts."""
    found = first_collective(op.chain)
    if found is None:
        return None
    first, last = found.chain[0], found.chain[-1]
    opcode = collective_name(found.opcode) or found.opcode
    inputs = who = None
    if first.opcode in (opcode, f"{opcode}-start"):
        inputs = _inputs(first)
        who = _pairs_of(first) if opcode == "collective-permute" else _groups_of(first)
    is_open = last.stage is not None and last.stage[1] == START
    return Collective(found.name, opcode, inputs, None if is_open else last.arrays, who)


def plan_of(op: Instruction) -> frozenset[str]:
    """Return the compiler's plan for the collective that an op is or contains.

    The plan of an asynchronous op can be spread over its parts.
    """
    parts = dict.fromkeys(filter(None, (op, *op.chain, first_collective(op.chain))))
    return frozenset[str]().union(*(part.config.plan for part in parts))


def _inputs(collective: Instruction) -> list[Array] | None:
    inputs: list[Array] = []
    for arrays in collective.operand_arrays:
        if arrays is None:
            return None
        inputs += arrays
    return inputs


def _pairs_of(permute: Instruction) -> Participants | None:
    listed = tuple(permute.message.source_target_pairs)
    who = _read_pairs(listed) if listed else None
    if listed and who is None:
        permute.program.complain(f"the source-target pairs of {permute.name} are unreadable")
    return who


# Cache results, because the permutes of a ring have the same pairs.
@lru_cache(maxsize=256)
def _read_pairs(listed: tuple[bytes, ...]) -> Participants | None:
    pairs = [parse(pb.SourceTarget, data) for data in listed]
    known = [(pair.source, pair.target) for pair in pairs if pair is not None]
    return in_pairs(known) if len(known) == len(pairs) else None


def _groups_of(collective: Instruction) -> Participants | None:
    message = collective.message
    who = _read_participants(
        message.mesh_axes_replica_group_list,
        message.iota_collective_device_list,
        message.collective_device_list,
        tuple(message.replica_groups),
        collective.program.n_devices,
    )
    if who is None:
        collective.program.complain(f"the replica groups of {collective.name} are unreadable")
    return who


# Cache results, because many collectives use the same few sets of groups, and a set can list all
# devices of a pod.
@lru_cache(maxsize=256)
def _read_participants(
    mesh: bytes, iota: bytes, devices: bytes, listed: tuple[bytes, ...], n_devices: int | None
) -> Participants | None:
    groups = _read_groups(mesh, iota, devices, listed)
    return None if groups is None else in_groups(groups, n_devices)


def _read_groups(
    mesh_data: bytes, iota_data: bytes, devices_data: bytes, listed_data: tuple[bytes, ...]
) -> Groups | None:
    """Read the groups from one of four fields; which one is used depends on the compiler
    version."""
    mesh = parse(pb.MeshAxesReplicaGroupList, mesh_data)
    iota = parse(pb.IotaReplicaGroupList, iota_data)
    devices = parse(pb.CollectiveDeviceList, devices_data)
    listed = [parse(pb.ReplicaGroup, group) for group in listed_data]
    if mesh is None or iota is None or devices is None or None in listed:
        return None
    if mesh_data:
        parts = [
            AxisPart(part.mesh_axis_index, part.sub_axis_info.pre_size, part.sub_axis_info.size)
            if part.HasField("sub_axis_info")
            else AxisPart(part.mesh_axis_index)
            for part in mesh.axes
        ]
        return mesh_groups([axis.size for axis in mesh.mesh.axes], parts, mesh.mesh.device_ids)
    if devices.HasField("iota_replica_group_list"):
        iota = devices.iota_replica_group_list
    if iota.num_replica_groups:
        return iota_groups(
            iota.num_replica_groups,
            iota.num_devices_per_group,
            iota.iota_reshape_dims,
            iota.iota_transpose_perm,
        )
    groups = (*listed, *devices.replica_groups)
    return listed_groups(group.replica_ids for group in groups if group)
