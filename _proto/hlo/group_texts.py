"""Who takes part in a collective, read from the texts of ops: all the ways to write it there."""

from __future__ import annotations

import re

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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# How many members all texts of a trace together may mean: each takes a few bytes to write.
_MAX_MEMBERS = 1 << 21

_ID = r"\d{1,9}"
_IDS = rf"{_ID}(?:,{_ID})*"
_AXIS = rf"'[^']*'={_ID}"
_PART = rf"'[^']*'(?::\({_ID}\){_ID})?"
# The ways in which HLO texts write groups: one for each of the functions below.
_GROUPS_RE = re.compile(
    rf", replica_groups=(?:(?P<listed>\{{(?:\{{{_IDS}\}}(?:,\{{{_IDS}\}})*)?\}})"
    rf"|(?P<iota>\[{_ID},{_ID}\]<=\[{_IDS}\](?:T\({_IDS}\))?)"
    rf"|(?P<mesh>mesh\[{_AXIS}(?:,{_AXIS})*\] \{{(?:{_PART}(?:,{_PART})*)?\}}))(?:,|\Z)"
)
_PAIRS_RE = re.compile(rf", source_target_pairs=\{{((?:\{{{_ID},{_ID}\}},?)+)\}}(?:,|\Z)")
_LIST_RE = re.compile(r"[{\[(]([\d,]*)[}\])]")
_AXIS_RE = re.compile(r"'([^']*)'=(\d+)")
_PART_RE = re.compile(r"'([^']*)'(?::\((\d+)\)(\d+))?")


class GroupTexts:
    """Reads who takes part from HLO texts: each way to write it once, and not without end."""

    def __init__(self) -> None:
        self._known: dict[str, Participants | None] = {}
        self._members_left = _MAX_MEMBERS

    def groups(self, attributes: str, n_devices: int | None) -> Participants | None:
        """By the attributes of an op among so many devices; None where they don't tell."""
        written = _GROUPS_RE.search(attributes)
        if written is None:
            return None
        if written["listed"] == "{}":
            return in_groups((), n_devices)
        if written[0] not in self._known:
            groups = self._read(written)
            self._known[written[0]] = in_groups(groups, None) if groups else None
        return self._known[written[0]]

    def pairs(self, attributes: str) -> Participants | None:
        """The same of a permute."""
        written = _PAIRS_RE.search(attributes)
        if written is None:
            return None
        pairs = map(_numbers, _LIST_RE.findall(written[1]))
        return in_pairs((source, target) for source, target in pairs)

    def _read(self, written: re.Match[str]) -> Groups | None:
        if written["listed"]:
            return listed_groups(map(_numbers, _LIST_RE.findall(written["listed"])))
        if written["iota"]:
            (n_groups, size), dims, *order = map(_numbers, _LIST_RE.findall(written["iota"]))
            return iota_groups(n_groups, size, dims, *order) if self._may_be(dims) else None
        mesh, _, within = written["mesh"].partition("]")
        axes = _AXIS_RE.findall(mesh)
        place_of = {name: place for place, (name, _) in enumerate(axes)}
        parts = _PART_RE.findall(within)
        dims = [int(size) for _, size in axes]
        if len(place_of) < len(axes) or not place_of.keys() >= {name for name, *_ in parts}:
            return None
        axis_parts = [AxisPart(place_of[name], *map(int, filter(None, of))) for name, *of in parts]
        return mesh_groups(dims, axis_parts) if self._may_be(dims) else None

    def _may_be(self, dims: Sequence[int]) -> bool:
        """Whether so many devices have been left."""
        self._members_left -= n_members(dims)
        return self._members_left >= 0


def _numbers(listed: str) -> list[int]:
    return list(map(int, listed.split(",")))
