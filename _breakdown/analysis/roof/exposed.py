"""Find exposed time: communication that the core runs or starts itself, and time in which the core
waits."""

from __future__ import annotations

from typing import Literal

from _breakdown.light import NamedTuple
from _breakdown.pipeline.groups import Group, ranked_by
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.vocabulary import COMM, DMA, HOST, SOME_COLLECTIVE, SPARSE_CORE
from _proto.hlo.text import FROM_HOST, TO_HOST

# Communication with other devices, or with the host.
Part = Literal["comm", "host"]


class Exposed(NamedTuple):
    """All exposed time of one type of collective, or of another operation that the core waits for.
    `group` contains all executions, and `waits` only those in which the core waits."""

    waits_for: str
    group: Group
    waits: Group

    @property
    def sync(self) -> int:
        return self.group.total - self.waits.total

    @property
    def n(self) -> int:
        """Return the number of executions, without those that only start an operation."""
        return self.group.where(lambda op: not only_starts(op)).n


def exposed(step: Step) -> list[Exposed]:
    """Return the exposed time for each operation that the core runs or waits for, longest first."""
    members = Group(step.leaves).where(is_exposed).members
    return [
        Exposed(name, of_name, of_name.where(lambda op: op.is_wait))
        for name, of_name in ranked_by(members, lambda op: op.waits_for)
    ]


def is_exposed(op: Op) -> bool:
    return op.kind == COMM or op.is_wait


def only_starts(op: Op) -> bool:
    """Return whether an op is communication that another op waits for."""
    is_part = op.is_start or op.category.endswith("-update")
    return op.kind == COMM and is_part and not op.is_wait


def is_communication(op: Op) -> bool:
    """Return whether an op is exposed communication with other devices or with the host. Ops that
    only start it belong to the op that waits."""
    return is_exposed(op) and not only_starts(op) and op.waits_for not in (SPARSE_CORE, DMA)


def part_of(op: Op) -> Part | None:
    """Return with whom an op communicates exposed: other devices or the host."""
    if not is_exposed(op) or op.waits_for in (SPARSE_CORE, DMA):
        return None
    return "host" if op.waits_for == HOST else "comm"


def collective_of(op: Op) -> str:
    if op.waits_for == SOME_COLLECTIVE and op.inside:
        return op.inside.opcode
    if op.waits_for == HOST and op.kind != COMM:
        return TO_HOST if op.is_to_host else FROM_HOST
    return op.waits_for
