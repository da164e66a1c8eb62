"""Read shardings: the number of tiles along each dimension of an array, and the sharding's text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod

from _breakdown.light import cached_property
from _proto import hlo_pb2 as pb
from _proto.hlo.replica_groups import AxisPart, Groups, iota_groups, listed_groups, mesh_groups
from _proto.trace.wire import parse

_KINDS = ("replicated", "maximal", "tuple", "tiled", "manual", "unknown", "unreduced")
_REPLICATED, _MAXIMAL, _TUPLE, _TILED = range(4)
# Kinds of shardings that do not split an array. In a tiled sharding, these kinds can also say how
# devices share a tile. For other kinds, such as manual, only the program shows each device's part.
_WHOLE = frozenset(_KINDS.index(kind) for kind in ("replicated", "maximal", "unreduced"))


class Sharding:
    """The distribution of an array over devices. Several arrays can share one Sharding object."""

    def __init__(self, message: pb.Sharding) -> None:
        self._message = message
        self._named = message.named_sharding if message.HasField("named_sharding") else None

    def tiles(self, rank: int) -> Sequence[int] | None:
        """Return the number of tiles along each dimension of an array, or None if unknown."""
        if self._leaves_whole:
            return [1] * rank
        tiles = self._tiles
        return tiles if tiles is not None and len(tiles) == rank else None

    def groups(self, n_devices: int) -> Groups | None:
        """Return the groups of devices that have the same part of an array, or None if unknown."""
        message = self._message
        if self._named:
            return _named_groups(self._named, n_devices)
        if message.type == _REPLICATED:
            return (tuple(range(n_devices)),)
        shared_in = message.last_tile_dims or [_REPLICATED] * message.replicate_on_last_tile_dim
        dims = message.tile_assignment_dimensions
        if message.type != _TILED or len(dims) < len(shared_in) or any(shared_in):
            return None
        size = prod(dims[len(dims) - len(shared_in) :])
        if not message.iota_reshape_dims:
            devices = message.tile_assignment_devices
            return listed_groups(
                devices[i : i + size] for i in range(0, len(devices), max(1, size))
            )
        return iota_groups(
            n_devices // max(1, size), size, message.iota_reshape_dims, message.iota_transpose_perm
        )

    @cached_property
    def _leaves_whole(self) -> bool:
        named = self._named
        if named:
            return not (named.tuple_shardings or named.manual_axes) and _is_whole(named)
        return self._message.type in _WHOLE

    @cached_property
    def _tiles(self) -> Sequence[int] | None:
        tiles = _named_tiles(self._named) if self._named else _tiles(self._message)
        return tiles if tiles is not None and min(tiles, default=1) > 0 else None

    @cached_property
    def text(self) -> str | None:
        """Return the sharding in the notation of HLO texts, or None if it is inconsistent."""
        message = self._message
        if self._named:
            return _named_text(self._named)
        if message.type == _TILED:
            return _tiled_text(message)
        if message.type == _TUPLE or not 0 <= message.type < len(_KINDS):
            return None
        device = ""
        if message.type == _MAXIMAL:
            device = f" device={_listed(message.tile_assignment_devices)}"
        return f"{{{_KINDS[message.type]}{device}}}"


# Cache results, because most parameters have one of a few shardings.
@lru_cache(maxsize=256)
def read_shardings(data: bytes, n_leaves: int) -> list[Sharding] | None:
    """Read an OpSharding, and return one sharding for each leaf of a shape.

    Return None if the message is unreadable, or if its number of leaves is not `n_leaves`.
    """
    message = parse(pb.Sharding, data)
    if message is None:
        return None
    parts: list[pb.Sharding | None]
    if message.HasField("named_sharding"):
        named = [parse(pb.NamedSharding, part) for part in message.named_sharding.tuple_shardings]
        parts = [None if part is None else pb.Sharding(named_sharding=part) for part in named]
        is_tuple = bool(parts)
    else:
        parts = [parse(pb.Sharding, part) for part in message.tuple_shardings]
        is_tuple = message.type == _TUPLE
    if not is_tuple:
        return [Sharding(message)] * n_leaves
    shardings = [Sharding(part) for part in parts if part is not None]
    return shardings if len(shardings) == len(parts) == n_leaves else None


# The following functions read tiled shardings, which list the number of tiles along each dimension
# of the array, followed by the dimensions in which devices share a tile.


def _tiles(message: pb.Sharding) -> Sequence[int] | None:
    # Each kind of sharing adds one dimension to the list.
    shared_in = message.last_tile_dims or [0] * message.replicate_on_last_tile_dim
    n_dims = len(message.tile_assignment_dimensions) - len(shared_in)
    if message.type != _TILED or n_dims < 0 or not _WHOLE.issuperset(shared_in):
        return None
    return message.tile_assignment_dimensions[:n_dims]


def _tiled_text(message: pb.Sharding) -> str:
    text = f"devices=[{_listed(message.tile_assignment_dimensions)}]"
    if message.iota_reshape_dims:
        text += f"<=[{_listed(message.iota_reshape_dims)}]"
        if len(message.iota_reshape_dims) > 1:
            text += f"T({_listed(message.iota_transpose_perm)})"
    else:
        text += _listed(message.tile_assignment_devices)
    if message.last_tile_dims:
        known = dict(enumerate(_KINDS))
        shared = ", ".join(known.get(kind, "?") for kind in message.last_tile_dims)
        text += f" last_tile_dims={{{shared}}}"
    elif message.replicate_on_last_tile_dim:
        text += " last_tile_dim_replicate"
    return f"{{{text}}}"


def _listed(items: Iterable[int]) -> str:
    return ",".join(map(str, items))


# The following functions read shardings that name mesh axes.


def _is_whole(named: pb.NamedSharding) -> bool:
    return not any(dim.axes for dim in named.dim_shardings)


def _named_tiles(named: pb.NamedSharding) -> Sequence[int] | None:
    if named.tuple_shardings or named.manual_axes or not _has_valid_axes(named):
        return None
    # Clamp sizes at 0, so that two negative sizes do not produce a positive product.
    return [
        prod(max(0, _size(part, named.mesh)) for part in dim.axes) for dim in named.dim_shardings
    ]


def _named_groups(named: pb.NamedSharding, n_devices: int) -> Groups | None:
    if named.tuple_shardings or named.unreduced_axes or named.manual_axes:
        return None
    used = [axis for dim in named.dim_shardings for axis in dim.axes]
    if not used:
        return (tuple(range(n_devices)),)
    if not _has_valid_axes(named) or any(axis.HasField("sub_axis_info") for axis in used):
        return None
    split = {axis.mesh_axis_index for axis in used}
    sizes = [axis.size for axis in named.mesh.axes]
    shared = [AxisPart(i) for i in range(len(sizes)) if i not in split]
    return mesh_groups(sizes, shared, named.mesh.device_ids)


def _has_valid_axes(named: pb.NamedSharding) -> bool:
    """Return whether all axis indices refer to axes of the mesh."""
    axes = [axis for dim in named.dim_shardings for axis in dim.axes]
    axes += [*named.replicated_axes, *named.unreduced_axes, *named.manual_axes]
    return all(0 <= axis.mesh_axis_index < len(named.mesh.axes) for axis in axes)


def _size(part: pb.AxisRef, mesh: pb.Mesh) -> int:
    if part.HasField("sub_axis_info"):
        return part.sub_axis_info.size
    return mesh.axes[part.mesh_axis_index].size


def _named_text(named: pb.NamedSharding) -> str | None:
    mesh = named.mesh
    names = [f"'{axis.name.decode(errors='replace')}'" for axis in mesh.axes]
    if named.tuple_shardings or not _has_valid_axes(named):
        return None
    if not mesh.axes and mesh.device_ids:
        return f"{{maximal_mesh[device_id={_listed(mesh.device_ids)}]}}"
    sizes = ",".join(f"{name}={axis.size}" for name, axis in zip(names, mesh.axes, strict=True))
    parts = [f"mesh[{sizes}]"]
    if mesh.device_ids:
        parts.append(f"device_ids=({_listed(mesh.device_ids)})")
    used = {
        kind: [_axis_text(axis, names) for axis in axes]
        for kind, axes in (
            ("replicated", named.replicated_axes),
            ("unreduced", named.unreduced_axes),
            ("manual", named.manual_axes),
        )
        if axes
    }
    if _is_whole(named) and not used:
        parts.append("replicated")
    elif _is_whole(named) and used in ({"unreduced": names}, {"manual": names}):
        # XLA omits the list of axes if all are unreduced or all are manual.
        parts += used
    else:
        dims = [] if _is_whole(named) else named.dim_shardings
        parts.append(f"[{', '.join(_dim_text(dim, names) for dim in dims)}]")
        parts += [f"{kind}={{{', '.join(axes)}}}" for kind, axes in used.items()]
    return f"{{{', '.join(parts)}}}"


def _dim_text(dim: pb.NamedSharding.Dimension, names: Sequence[str]) -> str:
    parts = [_axis_text(axis, names) for axis in dim.axes]
    return f"{{{', '.join(parts if dim.is_closed else [*parts, '?'])}}}"


def _axis_text(axis: pb.AxisRef, names: Sequence[str]) -> str:
    text = names[axis.mesh_axis_index]
    if axis.HasField("sub_axis_info"):
        text += f":({axis.sub_axis_info.pre_size}){axis.sub_axis_info.size}"
    return text
