"""Find the devices that take part in a collective, from any notation of replica groups.

A group is a sorted tuple of device ids, and groups are sorted, so equal sets of groups compare
equal. Inconsistent groups are read as None. This module parses groups in HLO texts; the module
`collectives` reads groups in programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import chain
from math import prod

from _breakdown.light import NamedTuple

Groups = tuple[tuple[int, ...], ...]

# The largest systems have about ten thousand devices, so a much larger number must be damage.
MAX_DEVICES = 1 << 17
# Maximum number of groups in a label, and of members in each listed group.
_LABEL_GROUPS, _LABEL_MEMBERS = 8, 64

_ID = r"\d{1,9}"
_IDS = rf"{_ID}(?:,{_ID})*"
_AXIS = rf"'[^']*'={_ID}"
_PART = rf"'[^']*'(?::\({_ID}\){_ID})?"
_PAIRS = rf", source_target_pairs=\{{((?:\{{{_ID},{_ID}\}},?)+)\}}(?:,|\Z)"
_LIST = r"[{\[(]([\d,]*)[}\])]"


@cache
def _groups_re() -> re.Pattern[str]:
    # Compile late, because it takes as long as importing three modules, and only texts need it.
    return re.compile(
        rf", replica_groups=(?:(?P<listed>\{{(?:\{{{_IDS}\}}(?:,\{{{_IDS}\}})*)?\}})"
        rf"|(?P<iota>\[{_ID},{_ID}\]<=\[{_IDS}\](?:T\({_IDS}\))?)"
        rf"|(?P<mesh>mesh\[{_AXIS}(?:,{_AXIS})*\] \{{(?:{_PART}(?:,{_PART})*)?\}}))(?:,|\Z)"
    )


class AxisPart(NamedTuple):
    """The mesh axis with index `axis`, or a part of it. A part has the size `size`, and `before` is
    the product of the sizes of all more major parts."""

    axis: int
    before: int = 1
    size: int | None = None


def listed_groups(groups: Iterable[Iterable[int]]) -> Groups | None:
    """Return the groups in the listed notation, such as `{{0,1},{2,3}}`."""
    known = tuple(sorted(tuple(sorted(group)) for group in groups))
    members = list(chain.from_iterable(known))
    is_sound = len(members) == len(set(members)) and min(members, default=0) >= 0 and all(known)
    return known if is_sound else None


def iota_groups(
    n_groups: int, size: int, dims: Sequence[int], permutation: Sequence[int] = ()
) -> Groups | None:
    """Return the groups of `[n_groups,size]<=[dims]T(permutation)`: reshape, transpose and split
    the list of all ids."""
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
    """Return the groups of `mesh['a'=2,'b'=4] {'b':(2)2}`: members of a group differ only in the
    listed axes or parts of axes.

    If `device_ids` is empty, devices are numbered along the mesh, where the last axis varies
    fastest.
    """
    if not _is_possible(dims) or (device_ids and len(device_ids) != prod(dims)):
        return None
    if any(not 0 <= part.axis < len(dims) for part in parts):
        return None
    within: list[tuple[int, int]] = []
    across: list[tuple[int, int]] = []
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
    return len(dims) > 0 and min(dims) > 0 and prod(dims) <= MAX_DEVICES


def _strides(dims: Sequence[int]) -> list[int]:
    return [prod(dims[i + 1 :]) for i in range(len(dims))]


def _grid(axes: Iterable[tuple[int, int]]) -> list[int]:
    """Return the positions of all points in a grid with axes (size, stride); the last axis varies
    fastest."""
    places = [0]
    for size, stride in axes:
        places = [place + i * stride for place in places for i in range(size)]
    return places


class Participants(NamedTuple):
    """The size of the groups (None if sizes differ), and a label that describes the groups.

    Equal sets of groups have equal labels. A label can omit groups, so different sets can also have
    equal labels; their `mark` then differs. `groups` is None if the groups are unknown. The groups
    of a permute are the sets of devices connected by its pairs. For a permute, `is_even` is True
    only if each device in the pairs sends to exactly one other device and receives from exactly
    one.
    """

    size: int | None
    label: str | None
    mark: int = 0
    groups: Groups | None = None
    is_even: bool = True


def in_groups(groups: Groups, n_devices: int | None) -> Participants:
    """Return the size and the label of groups; if `groups` is empty, all devices form one group."""
    if not groups:
        label = _even(1, n_devices, 1) if n_devices else None
        return Participants(n_devices, label, groups=())
    sizes = set(map(len, groups))
    if len(sizes) > 1:
        return Participants(None, _listed_sets(groups), hash(groups), groups)
    size = sizes.pop()
    stride = groups[0][1] - groups[0][0] if size > 1 else 1
    is_even = max(group[-1] for group in groups) == size * len(groups) - 1 and all(
        group == tuple(range(group[0], group[0] + size * stride, stride)) for group in groups
    )
    if is_even:
        return Participants(size, _even(len(groups), size, stride), groups=groups)
    return Participants(size, _listed_sets(groups), hash(groups), groups)


def in_pairs(pairs: Iterable[tuple[int, int]]) -> Participants:
    distinct = set(pairs)
    n_to_self = sum(source == target for source, target in distinct)
    sources, targets = zip(*sorted(distinct), strict=True)
    is_even = not n_to_self and sources == tuple(sorted(targets)) == tuple(sorted(set(sources)))
    label = f"{len(distinct)} pairs, {n_to_self} to self"
    return Participants(None, label, groups=_connected(distinct), is_even=is_even)


def _connected(pairs: Iterable[tuple[int, int]]) -> Groups:
    """Return the sets of ids that are connected by pairs, directly or through other ids."""
    group_of: dict[int, list[int]] = {}
    for pair in pairs:
        small, large = sorted((group_of.setdefault(i, [i]) for i in pair), key=len)
        if small is not large:
            large += small
            group_of |= dict.fromkeys(small, large)
    distinct = {id(group): tuple(sorted(group)) for group in group_of.values()}
    return tuple(sorted(distinct.values()))


def _even(n_groups: int, size: int, stride: int) -> str:
    return f"{n_groups} x {size}" + f", stride {stride}" * (size > 1)


def _listed_sets(groups: Groups) -> str:
    shown = [f"{{{_listed(group, _LABEL_MEMBERS)}}}" for group in groups[: _LABEL_GROUPS + 1]]
    return _listed(shown, _LABEL_GROUPS)


def _listed(items: Sequence[object], most: int) -> str:
    return ",".join([*map(str, items[:most]), *["…"] * (len(items) > most)])


def groups_in_text(attributes: str, n_devices: int | None) -> Participants | None:
    """Read the groups in an op's attributes; return None if they are missing or inconsistent."""
    written = _groups_re().search(attributes)
    return _read_participants(written[0], n_devices) if written else None


# Cache results, because many collectives use the same few sets of groups, and a set can list all
# devices of a pod.
@lru_cache(maxsize=256)
def _read_participants(text: str, n_devices: int | None) -> Participants | None:
    written = _groups_re().search(text)
    if written is None:
        return None
    if written["listed"] == "{}":
        return in_groups((), n_devices)
    groups = _read_groups(written)
    return in_groups(groups, None) if groups else None


def _read_groups(written: re.Match[str]) -> Groups | None:
    if written["listed"]:
        return listed_groups(map(_numbers, re.findall(_LIST, written["listed"])))
    if written["iota"]:
        (n_groups, size), dims, *order = map(_numbers, re.findall(_LIST, written["iota"]))
        return iota_groups(n_groups, size, dims, *order)
    mesh, _, within = written["mesh"].partition("]")
    axes = re.findall(r"'([^']*)'=(\d+)", mesh)
    index_of = {name: i for i, (name, _) in enumerate(axes)}
    parts = re.findall(r"'([^']*)'(?::\((\d+)\)(\d+))?", within)
    if len(index_of) < len(axes) or not index_of.keys() >= {name for name, *_ in parts}:
        return None
    axis_parts = [AxisPart(index_of[name], *map(int, filter(None, of))) for name, *of in parts]
    return mesh_groups([int(size) for _, size in axes], axis_parts)


def pairs_in_text(attributes: str) -> Participants | None:
    """Read the source-target pairs in the attributes of a collective-permute."""
    written = re.search(_PAIRS, attributes)
    if written is None:
        return None
    pairs = map(_numbers, re.findall(_LIST, written[1]))
    return in_pairs((source, target) for source, target in pairs)


def _numbers(listed: str) -> list[int]:
    return list(map(int, listed.split(",")))
