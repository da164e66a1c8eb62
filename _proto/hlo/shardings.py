"""Shardings of a HloProto: into how many tiles an array is cut, and the text of that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from _proto import hlo_pb2 as pb
from _proto.record import cached_property
from _proto.trace.wire import parse

_KINDS = ("replicated", "maximal", "tuple", "tiled", "manual", "unknown", "unreduced")
_MAXIMAL, _TUPLE, _TILED = (_KINDS.index(kind) for kind in ("maximal", "tuple", "tiled"))
# Which leave an array as it is. Devices that share a tile may do so in any of these ways, too;
# where they share it in another, only the program knows what each makes of it.
_WHOLE = frozenset(_KINDS.index(kind) for kind in ("replicated", "maximal", "unreduced"))


class Sharding:
    """How an array lies on the devices. Many may share one, so all is told once."""

    def __init__(self, message: pb.Sharding) -> None:
        self._message = message

    def tiles(self, rank: int) -> Sequence[int] | None:
        """Into how many tiles each dimension of an array of that rank is cut; None where that
        isn't told."""
        if self._leaves_whole:
            return [1] * rank
        tiles = self._tiles
        return tiles if tiles is not None and len(tiles) == rank else None

    @cached_property
    def _leaves_whole(self) -> bool:
        message = self._message
        if message.HasField("named_sharding"):
            named = message.named_sharding
            return not (named.tuple_shardings or named.manual_axes) and _is_whole(named)
        return message.type in _WHOLE

    @cached_property
    def _tiles(self) -> Sequence[int] | None:
        message = self._message
        is_named = message.HasField("named_sharding")
        tiles = _named_tiles(message.named_sharding) if is_named else _tiles(message)
        return tiles if tiles is not None and min(tiles, default=1) > 0 else None

    @cached_property
    def text(self) -> str | None:
        """As HLO texts have it; None where it makes no sense."""
        message = self._message
        if message.HasField("named_sharding"):
            return _named_text(message.named_sharding)
        if message.type == _TILED:
            return _tiled_text(message)
        if message.type == _TUPLE or not 0 <= message.type < len(_KINDS):
            return None
        device = ""
        if message.type == _MAXIMAL:
            device = f" device={_listed(message.tile_assignment_devices)}"
        return f"{{{_KINDS[message.type]}{device}}}"


def read_shardings(data: bytes, n_leaves: int) -> list[Sharding] | None:
    """The shardings of the leaves of a shape, from a serialized OpSharding; None where the bytes
    can't be read, or are of another shape."""
    message = parse(pb.Sharding, data)
    if message is None:
        return None
    if not message.HasField("named_sharding"):
        if message.type != _TUPLE:
            return [Sharding(message)] * n_leaves
        parts = [parse(pb.Sharding, part) for part in message.tuple_shardings]
    else:
        named = message.named_sharding
        if not named.tuple_shardings:
            return [Sharding(message)] * n_leaves
        read = [parse(pb.NamedSharding, part) for part in named.tuple_shardings]
        parts = [None if part is None else pb.Sharding(named_sharding=part) for part in read]
    shardings = [Sharding(part) for part in parts if part is not None]
    return shardings if len(shardings) == len(parts) == n_leaves else None


# Tiles by number: those of the array come first, behind them those among devices that share one.


def _shared_in(message: pb.Sharding) -> Sequence[int]:
    """The ways in which devices share tiles, each of which takes a dimension."""
    return message.last_tile_dims or [0] * message.replicate_on_last_tile_dim


def _tiles(message: pb.Sharding) -> Sequence[int] | None:
    shared_in = _shared_in(message)
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


# Tiles by the names of mesh axes.


def _is_whole(named: pb.NamedSharding) -> bool:
    """Whether all of the array is on each device that it is on."""
    return not any(dim.axes for dim in named.dim_shardings)


def _named_tiles(named: pb.NamedSharding) -> Sequence[int] | None:
    sizes = [axis.size for axis in named.mesh.axes]
    if named.tuple_shardings or named.manual_axes or not _makes_sense(named):
        return None
    # Each above 0, or else two that aren't could pass for one that is.
    return [prod(max(0, _size(part, sizes)) for part in dim.axes) for dim in named.dim_shardings]


def _parts(named: pb.NamedSharding) -> Iterable[pb.AxisRef]:
    for dim in named.dim_shardings:
        yield from dim.axes
    for shared in (named.replicated_axes, named.unreduced_axes, named.manual_axes):
        yield from shared


def _makes_sense(named: pb.NamedSharding) -> bool:
    n_axes = len(named.mesh.axes)
    return all(0 <= part.mesh_axis_index < n_axes for part in _parts(named))


def _size(part: pb.AxisRef, sizes: Sequence[int]) -> int:
    if part.HasField("sub_axis_info"):
        return part.sub_axis_info.size
    return sizes[part.mesh_axis_index]


def _named_text(named: pb.NamedSharding) -> str | None:
    mesh = named.mesh
    names = [f"'{axis.name.decode(errors='replace')}'" for axis in mesh.axes]
    if named.tuple_shardings or not _makes_sense(named):
        return None
    if not mesh.axes and mesh.device_ids:
        return f"{{maximal_mesh[device_id={_listed(mesh.device_ids)}]}}"
    sizes = ",".join(f"{name}={axis.size}" for name, axis in zip(names, mesh.axes, strict=True))
    said = [f"mesh[{sizes}]"]
    if mesh.device_ids:
        said.append(f"device_ids=({_listed(mesh.device_ids)})")
    shared = {
        "replicated": named.replicated_axes,
        "unreduced": named.unreduced_axes,
        "manual": named.manual_axes,
    }
    used = {kind: [_axis_text(axis, names) for axis in shared[kind]] for kind in shared}
    used = {kind: axes for kind, axes in used.items() if axes}
    if _is_whole(named) and not used:
        said.append("replicated")
    elif _is_whole(named) and used in ({"unreduced": names}, {"manual": names}):
        # All axes are.
        said += used
    else:
        dims = [] if _is_whole(named) else named.dim_shardings
        said.append(f"[{', '.join(_dim_text(dim, names) for dim in dims)}]")
        said += [f"{kind}={{{', '.join(axes)}}}" for kind, axes in used.items()]
    return f"{{{', '.join(said)}}}"


def _dim_text(dim: pb.NamedSharding.Dimension, names: Sequence[str]) -> str:
    parts = [_axis_text(axis, names) for axis in dim.axes]
    return f"{{{', '.join(parts if dim.is_closed else [*parts, '?'])}}}"


def _axis_text(axis: pb.AxisRef, names: Sequence[str]) -> str:
    text = names[axis.mesh_axis_index]
    if axis.HasField("sub_axis_info"):
        text += f":({axis.sub_axis_info.pre_size}){axis.sub_axis_info.size}"
    return text
