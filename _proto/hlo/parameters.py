"""What a program is called with, as it stands there: its arrays, how each lies on the devices,
and which lend their memory to the program's output."""

from __future__ import annotations

from typing import NamedTuple

from _proto import hlo_pb2 as pb
from _proto.hlo.shapes import Array
from _proto.hlo.shardings import Sharding, read_shardings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _proto.hlo.module import Computation, Instruction, Program

# Of an array: the number of its parameter, and its place in that if it is a tuple.
_Place = tuple[int, tuple[int, ...]]


class Parameter(NamedTuple):
    """An array that a program is called with; what isn't told is None.

    `path` is what the user's code calls it. It is a donor if it offers its memory and no output
    takes it, unless that stands among the aliases, too.
    """

    number: int
    shape_index: tuple[int, ...]
    path: str | None
    array: Array | None
    sharding: Sharding | None
    is_aliased: bool
    is_donor: bool


def read_parameters(program: Program, module: pb.HloModule, entry: Computation) -> list[Parameter]:
    aliases = program.read(pb.InputOutputAlias, module.input_output_alias)
    donors = program.read(pb.BufferDonor, module.buffer_donor)
    aliased, donated = _places(aliases), _places(donors)
    found = []
    for each in entry.instructions:
        number = each.parameter_number
        if number is None:
            continue
        leaves = each.leaves
        data = module.spmd_parameters_shardings[number : number + 1] if number >= 0 else []
        shardings = _shardings(each, data[0], len(leaves)) if data and leaves else None
        for i, (index, array) in enumerate([((), None)] if leaves is None else leaves):
            if array is None and leaves is not None:
                continue
            place = number, index
            found.append(
                Parameter(
                    number,
                    index,
                    None if index else each.op_name,
                    array,
                    shardings[i] if shardings else None,
                    place in aliased,
                    place in donated,
                )
            )
    places = {(each.number, each.shape_index) for each in found}
    if len(places) < len(found) or not places >= aliased | donated:
        program.complain("two parameters have one number, or an alias is of none")
    return found


def _places(listed: pb.InputOutputAlias | pb.BufferDonor | None) -> set[_Place]:
    entries = listed.entries if listed else ()
    return {(each.parameter_number, tuple(each.parameter_shape_index)) for each in entries}


def _shardings(parameter: Instruction, data: bytes, n_leaves: int) -> list[Sharding] | None:
    shardings = read_shardings(data, n_leaves)
    if shardings is None:
        parameter.program.complain(f"the sharding of {parameter.name}")
    return shardings
