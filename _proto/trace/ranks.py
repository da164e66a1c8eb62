"""Sort the planes of a merged capture into hosts, and those of a host into ranks.

Serving frameworks merge the captures of several processes into one file. A rank is what one
process wrote: some devices, their host's threads, their programs. The merge gives device planes
new numbers and appends the rank's number to all other names: `/host:CPU 1`. Each further host
begins again at 0, so its names occur twice. Planes of a subprocess end in its id: `/host:CPU [77]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

THREADS, PROGRAMS, ENVIRONMENT = "/host:CPU", "/host:metadata", "Task Environment"
# Planes of threads that newer profilers write beside /host:CPU.
THREAD_PLANES = (THREADS, "/host:TPU-runtime", "/host:python-tracer")
# Planes of the host's, with the id of a process, the number of a rank, or both.
_OF_HOST = re.compile(r"(?P<kind>/host:\S+|Task Environment)(?: \[\d+\])?(?: \d+)?\Z")
_OF_PROCESS = re.compile(r".* \[(\d+)\](?: \d+)?\Z")
_DEVICE = re.compile(r"/device:\w+:\d+\Z")


class Rank(NamedTuple):
    """The planes of one process, in the file's order."""

    number: int
    names: list[str]

    def named(self, kind: str) -> list[str]:
        """Return the planes of a kind, such as /host:CPU, whatever their names end in."""
        return [name for name in self.names if kind_of_plane(name) == kind]


def kind_of_plane(name: str) -> str:
    match = _OF_HOST.match(name)
    return match["kind"] if match else name


def split_hosts(names: Sequence[str]) -> list[list[int]]:
    """Return the places of each host's planes.

    A file holds several hosts if names of devices occur twice. A host's planes follow one another,
    and each of its ranks ends with a Task Environment, so a host begins after one of these.
    """
    devices = [name for name in names if _DEVICE.match(name)]
    if len(set(devices)) == len(devices):
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
    """Return the names of a file's hosts if there is one for each, otherwise their numbers."""
    labels = list(dict.fromkeys(names))
    return labels if len(labels) == n_hosts else list(map(str, range(n_hosts)))


def ranks_of(names: Sequence[str]) -> list[Rank]:
    """Sort the planes of one host into ranks.

    If the ranks have no Task Environments, devices are in none of them: nothing in the order of
    the planes tells to which one a device belongs.
    """
    processes: dict[str | None, list[str]] = {}
    for name in names:
        match = _OF_PROCESS.match(name)
        processes.setdefault(match[1] if match else None, []).append(name)
    groups: list[list[str]] = []
    for of_process in _if_several_have_threads(processes.values()) or [list(names)]:
        blocks = [[of_process[i] for i in block] for block in _blocks(of_process)]
        groups += blocks or _by_suffix(of_process)
    return [Rank(number, group) for number, group in enumerate(groups)]


def _blocks(names: Sequence[str]) -> list[list[int]]:
    """Return the places up to each Task Environment; nothing if there are fewer than two."""
    ends = [i for i, name in enumerate(names) if kind_of_plane(name) == ENVIRONMENT]
    if len(ends) < 2:
        return []
    # What follows the last one is of the same rank.
    bounds = [0, *(end + 1 for end in ends[:-1]), len(names)]
    return [list(range(*span)) for span in pairwise(bounds)]


def _by_suffix(names: list[str]) -> list[list[str]]:
    """Sort planes without a second Task Environment by what their names end in."""
    groups: dict[str, list[str]] = {}
    for name in names:
        kind = kind_of_plane(name)
        if kind != name or kind in (*THREAD_PLANES, PROGRAMS, ENVIRONMENT):
            groups.setdefault(name[len(kind) :], []).append(name)
    return _if_several_have_threads(groups.values()) or [names]


def _if_several_have_threads(groups: Iterable[list[str]]) -> list[list[str]]:
    """Return the groups, or nothing: with the threads of one process alone all planes are its."""
    found = list(groups)
    n = sum(any(kind_of_plane(name) == THREADS for name in group) for group in found)
    return found if n > 1 else []
