"""What a program is called with: the arrays that this device holds, what they are parts of, and
whose memory they lend."""

from __future__ import annotations

from _pipeline.groups import sum_if_known
from _proto.hlo.parameters import read_parameters
from _proto.hlo.text import HBM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from _proto.hlo.parameters import Parameter
    from _proto.hlo.program import Program

    Json = dict[str, Any]


def parameter_fields(program: Program, top: int) -> Json:
    """All null where the program doesn't tell what it is called with."""
    parameters = read_parameters(program)
    if parameters is None:
        return dict.fromkeys(("parameters", "tail", "aliased_bytes", "donated_unused_bytes"))
    ranked = sorted(parameters, key=rank_of)
    unused = (each for each in parameters if each.is_donor and not each.is_aliased)
    return {
        "parameters": [parameter_row(each, program.n_devices) for each in ranked[:top]],
        "tail": {
            "n_parameters_omitted": len(ranked[top:]),
            "bytes": sum_if_known((1, bytes_of(each)) for each in ranked[top:]),
        },
        "aliased_bytes": hbm_bytes(each for each in parameters if each.is_aliased),
        "donated_unused_bytes": hbm_bytes(unused),
    }


def bytes_of(parameter: Parameter) -> int | None:
    return parameter.array.n_bytes if parameter.array else None


def rank_of(parameter: Parameter) -> tuple[bool, int, int, tuple[int, ...]]:
    """Most bytes first; what can't be told comes last."""
    size = bytes_of(parameter)
    return size is None, -(size or 0), parameter.number, parameter.shape_index


def hbm_bytes(parameters: Iterable[Parameter]) -> int | None:
    return sum_if_known(
        (1, bytes_of(each))
        for each in parameters
        if each.array is None or each.array.memory_space == HBM
    )


def parameter_row(parameter: Parameter, n_devices: int | None) -> Json:
    array = parameter.array
    return {
        "number": parameter.number,
        "shape_index": list(parameter.shape_index),
        "path": parameter.path,
        "shape": array.text if array else None,
        "global_shape": global_shape(parameter, n_devices),
        "sharding": parameter.sharding.text if parameter.sharding else None,
        "bytes": bytes_of(parameter),
        "memory_space": array.memory_space if array else None,
        "aliased_to_output": parameter.is_aliased,
    }


def global_shape(parameter: Parameter, n_devices: int | None) -> str | None:
    """That of the user's array, of which this device holds a tile: the size of uneven tiles is
    rounded up, and so is what they add up to."""
    array, sharding = parameter.array, parameter.sharding
    if array is None:
        return None
    if sharding is None:
        # What runs on one device isn't cut; of several nothing tells.
        return array.text if n_devices == 1 else None
    tiles = sharding.tiles(len(array.dims))
    if tiles is None:
        return None
    return array.text_of([dim * n for dim, n in zip(array.dims, tiles, strict=True)])
