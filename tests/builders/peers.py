"""Build devices that wait for each other in collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.builders.xspace import Op, Plane, Space, StatValue, encode, int_field, op, tpu_plane

PROGRAM_ID = 77
STEP = ("s", 0, 10_000)


def collective(at: int, dur: int, *, name: str = "all-reduce.1", **more: Any) -> Op:
    """Return a collective of all devices, or of the devices in `groups` or `pairs`."""
    groups = more.pop("groups", "{}")
    attributes = f", replica_groups={groups}"
    if pairs := more.pop("pairs", None):
        attributes = f", source_target_pairs={pairs}"
    program_id = more.pop("program_id", PROGRAM_ID)
    kind = more.pop("category", name.partition(".")[0])
    return op(name, kind, at, dur, attributes=attributes, program_id=program_id, **more)


def durations(*lasted: int, **more: Any) -> list[Op]:
    """Return executions of a collective with the given durations, one every 1000 ps."""
    return [collective(1000 * i, dur, **more) for i, dur in enumerate(lasted)]


def device(
    number: int,
    ops: Sequence[Op],
    *,
    steps: Sequence[tuple[str, int, int]] | None = (STEP,),
    core: int | None = None,
) -> Plane:
    """Return a device; `core` is its global id."""
    stats: dict[str, StatValue] = {} if core is None else {"core_details": int_field(6, core)}
    return tpu_plane(ops, steps, name=f"/device:TPU:{number}", stats=stats)


def with_slow_device(
    *,
    slow: int = 1,
    n_devices: int = 3,
    n_steps: int = 5,
    excess: int = 1000,
    slow_in: Mapping[int, int] | None = None,
) -> bytes:
    """Encode steps in which one device takes longer for one line and the others wait.

    `slow_in` maps steps to their slow devices; by default, `slow` is slow in all steps.
    """
    planes = []
    for number in range(n_devices):
        ops, steps = [], []
        for i in range(n_steps):
            at = 10_000 * i
            is_slow = number == (slow_in.get(i) if slow_in else slow)
            math = 1000 + excess if is_slow else 1000 + number
            ops += [
                op("fusion.1", "loop fusion", at, 1000, stack="model.py:3:1", program_id=7),
                op("fusion.2", "loop fusion", at + 1000, math, stack="model.py:7:1", program_id=7),
                op("all-reduce.1", "all-reduce", at + 1000 + math, 9000 - math, program_id=7,
                   attributes=", replica_groups={}"),
            ]  # fmt: skip
            steps.append((str(i), at, 10_000))
        planes.append(device(number, ops, steps=steps))
    return encode(Space(planes))
