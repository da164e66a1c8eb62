"""Find transfers: ops that communicate, with their start ops, times in flight and moved bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Set
from operator import add
from typing import Literal

from _breakdown.analysis.comm.exchanges import exchange_of
from _breakdown.analysis.comm.flights import Flights, flights_of
from _breakdown.analysis.roof.exposed import collective_of, is_communication, only_starts
from _breakdown.analysis.source.likely_lines import LikelyLine, line_of
from _breakdown.light import cached_property
from _breakdown.pipeline.device import MODULES, MODULES_LINE, read_steps
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import Group, grouped
from _breakdown.pipeline.intervals import Cover
from _breakdown.pipeline.make_ops import op_of_entry
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.ops import Op, Place
from _breakdown.pipeline.timeline import gaps_of
from _breakdown.pipeline.vocabulary import SPARSE_CORE
from _proto.hlo.collectives import plan_of
from _proto.hlo.text import HloText

UPDATE_RE = re.compile(r"-update(?=\.|\Z)")


class Starts:
    """The start ops of a device, which begin operations that other ops wait for. If several start
    ops of a program share a name, the first one in the step is used; if none is in the step, the
    first one outside it."""

    def __init__(self, step: Step) -> None:
        self._device = step.device
        self._found: dict[Place, Op] = {}
        self._add(ran.op for ran in step.leaves)

    def _add(self, ops: Iterable[Op]) -> None:
        for op in ops:
            if op.begins:
                self._found.setdefault(op.place, op)

    @cached_property
    def _ids(self) -> dict[str, list[int]]:
        """Map op names to their metadata ids on this device."""
        names = self._device.plane.metadata_names()
        return grouped((HloText(text).name, metadata_id) for metadata_id, text in names)

    def at(self, place: Place) -> Op | None:
        if place not in self._found:
            # Create all ops of this name at once, so that later calls need no search.
            ids = self._ids.pop(place[1], ())
            self._add(op for i in ids if (op := op_of_entry(self._device, i)))
        return self._found.get(place)

    def of(self, done: Op) -> tuple[Place, Op | None]:
        """Return the program and name of the start op that belongs to a wait, and the start op
        itself, or None if it cannot be found.

        The start op is an operand of the wait. If the operand is an update, the start op has the
        update's name with `start` instead of `update`. Without such an operand, the start op is the
        first part of the asynchronous op in the program. Otherwise the start op has the wait's name
        with `start` instead of `done`.
        """
        for name in done.hlo.operand_names:
            start = self.at((done.program_id, UPDATE_RE.sub("-start", name)))
            if start:
                return start.place, start
        parts = done.instruction.chain if done.instruction else ()
        if len(parts) > 1 and parts[-1] is done.instruction:
            name = parts[0].name
        else:
            name = "start".join(done.name.rsplit("done", 1))
        return (done.program_id, name), self.at((done.program_id, name))


def cover_of(step: Step, metadata_ids: Set[int]) -> Cover:
    """Return the intervals during which at least one of the ops runs."""
    clock = step.clock
    pieces = [p for p in step.admitted.pieces if not metadata_ids.isdisjoint(p.metadata_ids)]
    columns = [clock.times(piece) for piece in pieces]
    start = min((min(starts) for starts, _ in columns), default=0)
    end = max((max(map(add, *of_piece)) for of_piece in columns), default=0)
    # Between two successive gaps, at least one of the ops is running.
    gaps = gaps_of(pieces, clock, step.executions.keys() - metadata_ids, (start, end))
    return Cover([start, *gaps.ends], [*gaps.starts, end])


class Transfer:
    """An op that communicates, or waits for communication. An op that starts communication of which
    the step does not contain the end is a transfer without executions."""

    def __init__(self, ran: Executions, starts: Starts) -> None:
        op = self.op = ran.op
        self.ran = ran
        # Program and name of the op, or of its start op if the op is a wait. `transfers_of` adds
        # the paired executions.
        self.place, start = starts.of(op) if op.is_wait else (op.place, None)
        self.flights = Flights()
        # Ops that start the communication, and their time on the core.
        self.begins: list[Executions] = []
        self.is_begun_only = only_starts(op)
        self.collective = collective_of(op)
        self.mode: Literal["sync", "async"] = (
            "async" if op.is_wait or self.is_begun_only else "sync"
        )
        self.texts = op.hlo, start.hlo if start else None
        self.exchange = exchange_of(
            self.collective, *self.texts, is_done=op.is_wait, program=op.program, inside=op.inside
        )

    @property
    def n(self) -> int:
        return 0 if self.is_begun_only else self.ran.n

    @property
    def total(self) -> int:
        """Return the time of the core, which includes the starts."""
        return self.ran.total + self.begun

    @property
    def begun(self) -> int:
        return sum(ran.total for ran in self.begins)

    @property
    def wait(self) -> int:
        return self.ran.total if self.op.is_wait else 0

    @cached_property
    def engine(self) -> Literal["core", "sparse_core"]:
        here = self.op.instruction
        on_sparse_core = any(text.on_sparse_core for text in self.texts if text) or (
            here is not None and here.on_sparse_core
        )
        return SPARSE_CORE if on_sparse_core else "core"

    @cached_property
    def plan(self) -> frozenset[str]:
        return plan_of(self.op.instruction) if self.op.instruction else frozenset()

    @cached_property
    def likely(self) -> LikelyLine:
        return line_of(self.op)

    @property
    def key(self) -> tuple[str, str, str, str, str, str, int]:
        who = self.exchange.who
        kind = self.collective, self.mode, self.engine
        return *kind, self.op.agg_key, self.likely.line or "", who.label or "", who.size or 0


def transfers_in(step: Step, is_wanted: Callable[[Op], bool]) -> list[Transfer]:
    """Return the transfers that end in the step, of the ops that `is_wanted` accepts, in order of
    appearance. `transfers_of` adds their `flights`."""
    transfers, _ = step.once(transfers_in, lambda: _transfers_in(step))
    return [transfer for transfer in transfers if is_wanted(transfer.op)]


def _transfers_in(step: Step) -> tuple[list[Transfer], list[Transfer]]:
    """Return the transfers that end in the step, and those that only start in it."""
    starts, leaves = Starts(step), Group(step.leaves)
    transfers = [Transfer(ran, starts) for ran in leaves.where(is_communication).members]
    waits = {transfer.place: transfer for transfer in transfers if transfer.op.is_wait}
    others = []
    for ran in leaves.where(only_starts).members:
        program_id, name = ran.op.place
        wait = waits.get((program_id, UPDATE_RE.sub("-start", name)))
        if wait:
            wait.begins.append(ran)
        else:
            others.append(Transfer(ran, starts))
    return transfers, others


def transfers_of(step: Step) -> list[Transfer]:
    """Return all transfers of the step, in order of appearance; those that only start in the step
    come last."""
    transfers, others = step.once(transfers_in, lambda: _transfers_in(step))
    waits = {transfer.ran.metadata_id: transfer for transfer in transfers if transfer.op.is_wait}
    flights = flights_in(step, {metadata_id: wait.place for metadata_id, wait in waits.items()})
    for metadata_id, wait in waits.items():
        wait.flights = flights[metadata_id]
    return [*transfers, *others]


def flights_in(step: Step, waits: Mapping[int, Place]) -> dict[int, Flights]:
    """Return when the operations of waits were in flight. `waits` and the result have the waits'
    metadata ids as keys; the values of `waits` are the programs and names of the start ops."""
    device = step.device
    if device.step_source == MODULES:
        programs = device.steps
    else:
        programs, _ = read_steps(device.plane, MODULES_LINE, device.base)
    return flights_of(
        step.admitted.pieces,
        step.clock,
        {ran.metadata_id: ran.op.place for ran in step.leaves if ran.op.begins},
        waits,
        [program.end for program in programs],
    )
