"""What a program knows of an op beyond its line: its precision, its cost, who takes part in it.

The one module besides that of `Instruction` that looks into an instruction's message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from _proto import hlo_pb2 as pb
from _proto.hlo.replica_groups import (
    AxisPart,
    Groups,
    Participants,
    in_groups,
    in_pairs,
    iota_groups,
    listed_groups,
    mesh_groups,
    n_members,
)
from _proto.hlo.search import START, collective_name, first_collective, inside, stage_of
from _proto.hlo.shapes import Array
from _proto.hlo.text import OTHER, dtype_class
from _proto.trace.wire import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _proto.hlo.module import Instruction
    from _proto.hlo.text import DtypeClass

_DOTS = ("convolution", "dot")
# Which of two operands' classes is the wider.
_WIDTH = {"fp8": 0, "bf16": 1, "fp16": 1, "fp32": 2, OTHER: 3}
# How many members of groups are found in the time that a step of a search takes.
_MEMBERS_A_STEP = 2


class Dot(NamedTuple):
    """The precision in which the matrix unit works in an op.

    `dtype` is the class that decides the peak: bf16, fp8, fp16, fp32 or other. `operand_dtype` is
    that of the widest operand, as it stands in the program.
    """

    dtype: DtypeClass
    operand_dtype: str


class Collective(NamedTuple):
    """A collective as the program has it; what that doesn't tell is None.

    Of an asynchronous one the inputs are the start's, the outputs the done's.
    """

    name: str
    opcode: str
    inputs: list[Array] | None
    outputs: list[Array] | None
    who: Participants | None


def dot_of(op: Instruction) -> Dot | None:
    """The dot that an op is or has inside; None if there is none, or one can't be judged.

    Of all operands of all dots, the widest decides.
    """
    classes: list[DtypeClass] = []
    arrays: list[Array] = []
    for each in (op, *inside(op)):
        if each.opcode in _DOTS:
            operands = _dot_operands(each)
            if operands is None:
                return None
            for dtype, array in operands:
                classes.append(dtype)
                arrays.append(array)
    if not arrays:
        return None
    widest = max(arrays, key=lambda array: array.bits or 0)
    return Dot(max(classes, key=_WIDTH.__getitem__), widest.dtype)


def _dot_operands(dot: Instruction) -> list[tuple[DtypeClass, Array]] | None:
    """Return a dot's operands that decide the dtype, with the class each is multiplied in."""
    precision = parse(pb.PrecisionConfig, dot._message.precision_config)
    if precision is None:
        dot.program.complain(f"the precision of {dot.name}")
        return None
    stated = [*precision.operand_precision, 0, 0]
    operands = []
    for i, operand_id in enumerate(dot._message.operand_ids[:2]):
        operand = dot.computation.instruction(operand_id)
        arrays = operand.arrays if operand else None
        if arrays is None or len(arrays) != 1:
            return None
        dtype: DtypeClass = dtype_class(arrays[0].dtype)
        if dtype == "fp32" and not stated[i] and not precision.algorithm:
            # At default precision the matrix unit takes it in one pass of bf16.
            dtype = "bf16"
        operands.append((dtype, arrays[0]))
    if len(operands) != 2:
        return None
    # The matrix unit takes a predicate (a one-hot matrix) in the dtype of the other operand.
    return [each for each in operands if each[1].dtype != "pred"] or operands


def collective_of(op: Instruction) -> Collective | None:
    """The collective that an op is or has inside, all parts of an asynchronous op looked at.

    Of several the first, depth first in the order of instructions.
    """
    found = _collective_in(op)
    if found is None:
        return None
    known = op.program.collectives
    if found not in known:
        known[found] = _read_collective(found)
    return known[found]


def _collective_in(op: Instruction) -> Instruction | None:
    known = op.program.collective_in
    if op not in known:
        known[op] = first_collective(op.chain)
    return known[op]


def plan_of(op: Instruction) -> frozenset[str]:
    """By what means a collective is carried out: what its parts say, and what it has inside."""
    plans = op.program.plans
    said: frozenset[str] = frozenset()
    for part in filter(None, (op, *op.chain, _collective_in(op))):
        # What is inside is so in all that share it.
        if part not in plans:
            plans[part] = part.config.plan
        said |= plans[part]
    return said


def _read_collective(found: Instruction) -> Collective:
    first, last = found.chain[0], found.chain[-1]
    opcode = collective_name(found.opcode) or found.opcode
    inputs = who = None
    if first.opcode in (opcode, f"{opcode}-start"):
        inputs = _inputs(first)
        who = _in_pairs(first) if opcode == "collective-permute" else _in_groups(first)
    is_open = (stage_of(last) or ("", ""))[1] == START
    return Collective(found.name, opcode, inputs, None if is_open else last.arrays, who)


def _inputs(collective: Instruction) -> list[Array] | None:
    inputs: list[Array] = []
    for operand_id in collective._message.operand_ids:
        operand = collective.computation.instruction(operand_id)
        arrays = operand.arrays if operand else None
        if arrays is None:
            return None
        inputs += arrays
    return inputs


def _in_pairs(permute: Instruction) -> Participants | None:
    pairs = []
    for data in permute._message.source_target_pairs:
        pair = parse(pb.SourceTarget, data)
        if pair is None:
            permute.program.complain(f"the pairs of {permute.name}")
            return None
        pairs.append((pair.source, pair.target))
    return in_pairs(pairs) if pairs else None


def _in_groups(collective: Instruction) -> Participants | None:
    """Each way to write them is read once: few are used, and each may mean all of a pod."""
    program, message = collective.program, collective._message
    written = (
        message.mesh_axes_replica_group_list,
        message.iota_collective_device_list,
        message.collective_device_list,
        *message.replica_groups,
    )
    if written not in program.participants:
        groups = _read_groups(message, program.spend)
        who = None if groups is None else in_groups(groups, program.n_devices)
        program.participants[written] = who
    who = program.participants[written]
    if who is None:
        program.complain(f"the groups of {collective.name}")
    return who


def _read_groups(message: pb.HloInstruction, spend: Callable[[int], None]) -> Groups | None:
    """The groups, from whichever field has them: compilers have used four, one after another."""
    mesh = parse(pb.MeshAxesReplicaGroupList, message.mesh_axes_replica_group_list)
    iota = parse(pb.IotaReplicaGroupList, message.iota_collective_device_list)
    devices = parse(pb.CollectiveDeviceList, message.collective_device_list)
    listed = [parse(pb.ReplicaGroup, group) for group in message.replica_groups]
    if mesh is None or iota is None or devices is None:
        return None
    if message.mesh_axes_replica_group_list:
        parts = [
            AxisPart(part.mesh_axis_index, part.sub_axis_info.pre_size, part.sub_axis_info.size)
            if part.HasField("sub_axis_info")
            else AxisPart(part.mesh_axis_index)
            for part in mesh.axes
        ]
        dims = [axis.size for axis in mesh.mesh.axes]
        spend(n_members(dims) // _MEMBERS_A_STEP)
        return mesh_groups(dims, parts, mesh.mesh.device_ids)
    if devices.HasField("iota_replica_group_list"):
        iota = devices.iota_replica_group_list
    if iota.num_replica_groups:
        spend(n_members(iota.iota_reshape_dims) // _MEMBERS_A_STEP)
        return iota_groups(
            iota.num_replica_groups,
            iota.num_devices_per_group,
            iota.iota_reshape_dims,
            iota.iota_transpose_perm,
        )
    if None in listed:
        return None
    groups = [group.replica_ids for group in (*listed, *devices.replica_groups) if group]
    spend(sum(map(len, groups)) // _MEMBERS_A_STEP)
    return listed_groups(groups)
