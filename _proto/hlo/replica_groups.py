"""Who takes part in a collective: the groups that each way to give them means, and these in short.

A group is the sorted ids of its members, and groups are sorted: equal sets make equal values.
None where what is written contradicts itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from math import prod
from typing import NamedTuple

Groups = tuple[tuple[int, ...], ...]

# The largest systems have some ten thousand devices.
MAX_DEVICES = 1 << 17
# What a label shows of sets that have no better name.
_SETS, _MEMBERS = 8, 64


class AxisPart(NamedTuple):
    """A mesh axis by its place, or the part of it of `size` behind a major part of `before`."""

    axis: int
    before: int = 1
    size: int | None = None


def listed_groups(groups: Iterable[Iterable[int]]) -> Groups | None:
    """Groups that are spelled out: `{{0,1},{2,3}}`."""
    known = tuple(sorted(tuple(sorted(group)) for group in groups))
    members = list(chain.from_iterable(known))
    is_sound = len(members) == len(set(members)) and min(members, default=0) >= 0 and all(known)
    return known if is_sound else None


def iota_groups(
    n_groups: int, size: int, dims: Sequence[int], permutation: Sequence[int] = ()
) -> Groups | None:
    """Groups `[n_groups,size]<=[dims]T(permutation)`: 0, 1, … reshaped, transposed and cut."""
    order = permutation or range(len(dims))
    if sorted(order) != list(range(len(dims))) or not _is_possible(dims):
        return None
    if min(n_groups, size) < 1 or n_groups * size != prod(dims):
        return None
    strides = _strides(dims)
    ids = _grid([(dims[i], strides[i]) for i in order])
    return listed_groups(ids[i : i + size] for i in range(0, len(ids), size))


def mesh_groups(
    dims: Sequence[int], parts: Sequence[AxisPart], device_ids: Sequence[int] = ()
) -> Groups | None:
    """Groups `mesh['a'=2,'b'=4] {'b':(2)2}`: their members differ in these axes or parts of axes.

    The devices are counted along the mesh, the last axis fastest, unless they are listed.
    """
    if not _is_possible(dims) or (device_ids and len(device_ids) != prod(dims)):
        return None
    within: list[tuple[int, int]] = []
    across: list[tuple[int, int]] = []
    if any(not 0 <= part.axis < len(dims) for part in parts):
        return None
    for axis, (dim, stride) in enumerate(zip(dims, _strides(dims), strict=True)):
        done = 1
        for _, before, size in sorted(part for part in parts if part.axis == axis):
            factor = dim if size is None else size
            if factor < 1 or before < done or before % done or dim % (before * factor):
                return None
            across.append((before // done, stride * dim // before))
            done = before * factor
            within.append((factor, stride * dim // done))
        across.append((dim // done, stride))
    members = _grid(within)
    groups = ([first + member for member in members] for first in _grid(across))
    if device_ids:
        groups = ([device_ids[place] for place in group] for group in groups)
    return listed_groups(groups)


class Participants(NamedTuple):
    """Who takes part, in short: how many members each group has, and a label of the groups.

    Equal sets have equal labels. The size is None where groups differ in it. Where a label leaves
    something out, `mark` tells apart what it is of.
    """

    size: int | None
    label: str | None
    mark: int = 0


def in_groups(groups: Groups, n_devices: int | None) -> Participants:
    """`()` means that all devices are one group."""
    if not groups:
        return Participants(n_devices, _even(1, n_devices, 1) if n_devices else None)
    sizes = set(map(len, groups))
    if len(sizes) > 1:
        return Participants(None, _sets(groups), hash(groups))
    size = sizes.pop()
    stride = groups[0][1] - groups[0][0] if size > 1 else 1
    is_even = max(group[-1] for group in groups) == size * len(groups) - 1 and all(
        group == tuple(range(group[0], group[0] + size * stride, stride)) for group in groups
    )
    if is_even:
        return Participants(size, _even(len(groups), size, stride))
    return Participants(size, _sets(groups), hash(groups))


def in_pairs(pairs: Iterable[tuple[int, int]]) -> Participants:
    distinct = set(pairs)
    n_to_self = sum(source == target for source, target in distinct)
    return Participants(None, f"{len(distinct)} pairs, {n_to_self} to self")


def _even(n_groups: int, size: int, stride: int) -> str:
    return f"{n_groups} x {size}" + f", stride {stride}" * (size > 1)


def _sets(groups: Groups) -> str:
    return _listed([f"{{{_listed(group, _MEMBERS)}}}" for group in groups[: _SETS + 1]], _SETS)


def _listed(items: Sequence[object], most: int) -> str:
    return ",".join([*map(str, items[:most]), *["…"] * (len(items) > most)])


def n_members(dims: Sequence[int]) -> int:
    """How many members groups of so many devices have together; none, if so many can't be."""
    return prod(dims) if _is_possible(dims) else 0


def _is_possible(dims: Sequence[int]) -> bool:
    """Whether so many devices can be. Axes of size 1 are many in no system either."""
    return 0 < len(dims) < 64 and min(dims) > 0 and prod(dims) <= MAX_DEVICES


def _strides(dims: Sequence[int]) -> list[int]:
    return [prod(dims[i + 1 :]) for i in range(len(dims))]


def _grid(axes: Iterable[tuple[int, int]]) -> list[int]:
    """The places of a grid of (size, stride), the last axis fastest."""
    places = [0]
    for size, stride in axes:
        places = [place + i * stride for place in places for i in range(size)]
    return places
