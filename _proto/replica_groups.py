"""Who takes part in a collective: all the ways to write it down, as the groups that it means.

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
