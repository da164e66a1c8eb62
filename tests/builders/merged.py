"""Merge the traces of several processes into one file, as serving frameworks do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from _proto import xplane_pb2 as pb

NUMBERED = re.compile(r"(.*):(\d+)((?: \S.*)?)\Z")


def with_environment(trace: bytes) -> bytes:
    """Append the plane `Task Environment`, which profilers write last."""
    space = pb.XSpace.FromString(trace)
    space.planes.append(pb.XPlane(name="Task Environment"))
    return space.SerializeToString()


def merged(hosts: Sequence[Sequence[bytes]], names: Sequence[str] = ()) -> bytes:
    """Merge traces, given per host and rank; number the devices consecutively within each host."""
    space = pb.XSpace(hostnames=names)
    for ranks in hosts:
        n_devices: Counter[str] = Counter()
        for rank, trace in enumerate(ranks):
            numbers: dict[tuple[str, str], int] = {}
            for plane in pb.XSpace.FromString(trace).planes:
                match = NUMBERED.match(plane.name)
                if match:
                    prefix, number, tail = match.groups()
                    if (prefix, number) not in numbers:
                        numbers[prefix, number] = n_devices[prefix]
                        n_devices[prefix] += 1
                    plane.name = f"{prefix}:{numbers[prefix, number]}{tail}"
                else:
                    plane.name += f" {rank}"
                plane.id = len(space.planes) + 1
                space.planes.append(plane)
    return space.SerializeToString()
