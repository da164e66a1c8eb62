"""Group the planes of a merged capture by host, and the planes of a host by rank.

Serving frameworks merge the captures of several processes into one file. A rank is the set of
planes that one process wrote: devices, host threads and programs. Merging renumbers device planes,
and appends the rank's number to all other names, as in `/host:CPU 1`. On each host, device numbers
start at 0, so a file with several hosts contains the same device names several times. Plane names
from a subprocess end with the process id, as in `/host:CPU [77]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from _breakdown.light import NamedTuple

THREADS, PROGRAMS, ENVIRONMENT = "/host:CPU", "/host:metadata", "Task Environment"
# Planes that contain threads. Newer profilers write the last two in addition to /host:CPU.
THREAD_PLANES = (THREADS, "/host:TPU-runtime", "/host:python-tracer")
# Matches the end of a plane's name, which can be a process id, a rank number, or both.
_SUFFIX = re.compile(r"(?: \[(?P<process>\d+)\])?(?: \d+)?\Z")
# These patterns are compiled on use, because few captures need them.
_DEVICE = r"/device:\w+:\d+(?: \[\d+\])?\Z"
_PROCESS_ID = r" \[\d+\]\Z"
# Matches the plane name of a TensorCore. A SparseCore's plane has more text after the number.
TPU_RE = re.compile(r"/device:TPU:(?P<number>\d+)(?: \[\d+\])?\Z")


class Rank(NamedTuple):
    """The planes of one process, in the file's order."""

    number: int
    names: list[str]

    def named(self, kind: str) -> list[str]:
        """Return the names of all planes of a kind, such as /host:CPU, ignoring suffixes."""
        return [name for name in self.names if kind_of_plane(name) == kind]


def kind_of_plane(name: str) -> str:
    """Return the name of a host's plane without a suffix, and any other name unchanged."""
    kind = _SUFFIX.sub("", name)
    is_of_host = kind.startswith("/host:") and " " not in kind
    return kind if is_of_host or kind == ENVIRONMENT else name


def planes_named(name: str, names: Iterable[str]) -> list[str]:
    """Return the planes that a name refers to: the plane with this name, or else the planes whose
    names are this name and a process id."""
    found = list(names)
    if name in found:
        return [name]
    return [one for one in found if re.sub(_PROCESS_ID, "", one) == name]


def split_hosts(names: Sequence[str]) -> list[list[int]]:
    """Return the indices of each host's planes.

    A file contains several hosts if a device name occurs more than once. The planes of a host are
    contiguous, and each rank ends with a `Task Environment` plane, so each host after the first
    begins after such a plane.
    """
    repeated = {name for name in names if names.count(name) > 1}
    if not any(re.match(_DEVICE, name) for name in repeated):
        return [list(range(len(names)))]
    hosts: list[list[int]] = []
    seen: set[str] = set()
    for block in _blocks(names) or [[place] for place in range(len(names))]:
        of_block = {names[place] for place in block}
        if not hosts or not seen.isdisjoint(of_block):
            hosts.append([])
            seen = set()
        hosts[-1] += block
        seen |= of_block
    return hosts


def host_labels(n_hosts: int, names: Iterable[str]) -> list[str]:
    """Return the names of a file's hosts if every host has a name, otherwise their numbers."""
    labels = list(dict.fromkeys(names))
    return labels if len(labels) == n_hosts else list(map(str, range(n_hosts)))


def ranks_of(names: Sequence[str]) -> list[Rank]:
    """Group the planes of one host by rank.

    If several ranks can be told apart only by the rank numbers at the end of names, devices belong
    to no rank, because their names have no such number.
    """
    processes: dict[str | None, list[str]] = {}
    for name in names:
        suffix = _SUFFIX.search(name)
        processes.setdefault(suffix and suffix["process"], []).append(name)
    groups: list[list[str]] = []
    for of_process in _if_several_have_threads(processes.values()) or [list(names)]:
        blocks = [[of_process[i] for i in block] for block in _blocks(of_process)]
        groups += blocks or _by_suffix(of_process)
    return [Rank(number, group) for number, group in enumerate(groups)]


def _blocks(names: Sequence[str]) -> list[list[int]]:
    """Split planes into blocks that each end with a `Task Environment` plane, and return the
    indices of the planes in each block. Return an empty list if there are fewer than two such
    planes."""
    ends = [i for i, name in enumerate(names) if kind_of_plane(name) == ENVIRONMENT]
    if len(ends) < 2:
        return []
    # Planes after the last `Task Environment` plane belong to the last rank.
    bounds = [0, *(end + 1 for end in ends[:-1]), len(names)]
    return [list(range(*span)) for span in pairwise(bounds)]


def _by_suffix(names: list[str]) -> list[list[str]]:
    """Group planes by the suffixes of their names, for hosts with fewer than two `Task Environment`
    planes."""
    groups: dict[str, list[str]] = {}
    for name in names:
        kind = kind_of_plane(name)
        if kind != name or kind in (*THREAD_PLANES, PROGRAMS, ENVIRONMENT):
            groups.setdefault(name[len(kind) :], []).append(name)
    return _if_several_have_threads(groups.values()) or [names]


def _if_several_have_threads(groups: Iterable[list[str]]) -> list[list[str]]:
    """Return the groups of planes if several groups have threads. Otherwise all planes belong to
    one process, so return an empty list."""
    found = list(groups)
    n = sum(any(kind_of_plane(name) == THREADS for name in group) for group in found)
    return found if n > 1 else []
