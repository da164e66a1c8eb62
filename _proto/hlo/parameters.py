"""Read a program's parameters: arrays, shardings, and whether an output reuses an array's
memory."""

from __future__ import annotations

from _breakdown.light import NamedTuple
from _proto import hlo_pb2 as pb
from _proto.hlo.program import Program
from _proto.hlo.replica_groups import MAX_DEVICES
from _proto.hlo.shapes import Array, Path
from _proto.hlo.shardings import Sharding, read_shardings


class Parameter(NamedTuple):
    """An array among a program's arguments; unknown values are None.

    `path` is the array's name in the user's code. `is_aliased` is True if an output reuses the
    array's memory. `is_donor` is True if the array is in the program's list of donated arrays,
    which need not contain aliased arrays.
    """

    number: int
    shape_index: Path
    path: str | None
    array: Array | None
    sharding: Sharding | None
    is_aliased: bool
    is_donor: bool


def read_parameters(program: Program) -> list[Parameter] | None:
    """Return all arrays of all parameters, or None if the entry computation is unknown. Several
    causes ask for the same ones."""
    if read_parameters not in program.derived:
        program.derived[read_parameters] = _read_parameters(program)
    found: list[Parameter] | None = program.derived[read_parameters]
    return found


def _read_parameters(program: Program) -> list[Parameter] | None:
    message = program.message
    entry = program.computation(message.entry_computation_id)
    if entry is None:
        return None
    aliased = _places(program.read(pb.InputOutputAlias, message.input_output_alias))
    donated = _places(program.read(pb.BufferDonor, message.buffer_donor))
    found = []
    for instruction in entry.instructions:
        if instruction.opcode != "parameter":
            continue
        number = instruction.message.parameter_number
        leaves = instruction.leaves
        shardings: list[Sharding] | None = None
        if leaves and 0 <= number < len(message.spmd_parameters_shardings):
            shardings = read_shardings(message.spmd_parameters_shardings[number], len(leaves))
            if shardings is None:
                program.complain(f"the sharding of {instruction.name} is unreadable")
        for i, (index, array) in enumerate([((), None)] if leaves is None else leaves):
            if array is None and leaves is not None:
                continue
            found.append(
                Parameter(
                    number,
                    index,
                    None if index else instruction.op_name,
                    array,
                    shardings[i] if shardings else None,
                    (number, index) in aliased,
                    (number, index) in donated,
                )
            )
    places = {(parameter.number, parameter.shape_index) for parameter in found}
    if len(places) < len(found) or not places >= aliased | donated:
        program.complain("two parameters have the same number, or an alias has no parameter")
    return found


def n_partitions(program: Program) -> int:
    """Return the number of devices over which a program splits its arrays.

    Return 1 if the number is unknown, or if there are replicas, whose parameters differ.
    """
    assignment = program.read(pb.DeviceAssignment, program.message.device_assignment)
    n = assignment.computation_count if assignment and assignment.replica_count == 1 else 1
    return n if n <= MAX_DEVICES else 1


def _places(listed: pb.InputOutputAlias | pb.BufferDonor | None) -> set[tuple[int, Path]]:
    """Return the parameter number and the path of each entry in an alias or donor list."""
    entries = listed.entries if listed else ()
    return {(entry.parameter_number, tuple(entry.parameter_shape_index)) for entry in entries}
