"""What communicates: what begins it and ends it, when it is under way, and what hides it."""

from __future__ import annotations

import re
from itertools import chain

from _analysis.exchanges import Exchanges
from _analysis.exposed import collective_of, is_communication
from _analysis.flights import flights_of
from _analysis.likely_lines import line_of
from _pipeline.device import MODULES, MODULES_LINE, read_steps
from _pipeline.groups import Group
from _pipeline.intervals import Cover, union
from _pipeline.make_ops import op_of_entry
from _pipeline.timeline import events_of
from _pipeline.vocabulary import SPARSE_CORE
from _proto.hlo.collectives import plan_of
from _proto.hlo.text import HloText
from _proto.record import cached_property

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Set

    from _analysis.flights import Flight
    from _output.fields.comm import Engine, TransferMode
    from _pipeline.executions import Executions
    from _pipeline.normalize import Step
    from _pipeline.ops import Op, Place

UPDATE_RE = re.compile(r"-update(?=\.|\Z)")


class Starts:
    """The ops of a device that begin what others wait for, by place: the first in the step, else
    the first of those that run at other times."""

    def __init__(self, step: Step) -> None:
        self._device = step.device
        self._found: dict[Place, Op] = {}
        self._add(each.op for each in step.leaves)

    def _add(self, ops: Iterable[Op]) -> None:
        for op in ops:
            if op.begins:
                self._found.setdefault(op.place, op)

    @cached_property
    def _ids(self) -> dict[str, list[int]]:
        """All entries of the device's metadata that haven't been asked for, by the names of ops."""
        ids: dict[str, list[int]] = {}
        for metadata_id, text in self._device.plane.metadata_names():
            ids.setdefault(HloText(text).name, []).append(metadata_id)
        return ids

    def at(self, place: Place) -> Op | None:
        if place not in self._found:
            # Make all entries of one name at once.
            ids = self._ids.pop(place[1], ())
            self._add(op for i in ids if (op := op_of_entry(self._device, i)))
        return self._found.get(place)

    def of(self, done: Op) -> tuple[Place, Op | None]:
        """What begins that a wait ends: its operand, or the start of that update; else what its
        program has upstream; else what is called like it."""
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
    """The time that ops cover together."""
    # A piece at a time: of the events of all of them lists would be long.
    of_pieces = (
        union((start, start + duration) for start, duration, _ in events)
        for piece in step.admitted.pieces
        for events in [events_of([piece], step.clock, metadata_ids)]
    )
    return Cover.of(union(chain.from_iterable(of_pieces)))


class Transfer:
    """An op that communicates."""

    def __init__(self, executions: Executions, starts: Starts, exchanges: Exchanges) -> None:
        op = self.op = executions.op
        self.executions = executions
        # Of a wait: where that stands which begins it, and what executions of both are paired.
        self.place, start = starts.of(op) if op.is_wait else (op.place, None)
        self.flights: list[Flight] = []
        self.collective = collective_of(op)
        self.mode: TransferMode = "async" if op.is_wait else "sync"
        texts = op.hlo, start.hlo if start else None
        is_told = any(text.on_sparse_core for text in texts if text)
        is_known = op.instruction is not None and op.instruction.on_sparse_core
        self.engine: Engine = SPARSE_CORE if is_told or is_known else "core"
        self.plan = plan_of(op.instruction) if op.instruction else frozenset[str]()
        self.likely = line_of(op)
        self.exchange = exchanges.of(
            self.collective, *texts, is_done=op.is_wait, program=op.program, inside=op.inside
        )

    @property
    def key(self) -> tuple[str, str, str, str, str, str, int]:
        who = self.exchange.who
        kind = self.collective, self.mode, self.engine
        return *kind, self.op.agg_key, self.likely.line or "", who.label or "", who.size or 0


def transfers_in(step: Step, is_wanted: Callable[[Op], bool]) -> list[Transfer]:
    """What communicates of some ops, in order of appearance; when it is under way isn't asked."""
    starts, exchanges = Starts(step), Exchanges()
    members = Group(step.leaves).where(lambda op: is_wanted(op) and is_communication(op)).members
    return [Transfer(each, starts, exchanges) for each in members]


def transfers_of(step: Step) -> list[Transfer]:
    """All that communicates, in order of appearance."""
    transfers, device = transfers_in(step, lambda _: True), step.device
    if device.step_source == MODULES:
        programs = device.steps
    else:
        programs, _ = read_steps(device.plane, MODULES_LINE, device.base)
    waits = {each.executions.metadata_id: each for each in transfers if each.op.is_wait}
    flights = flights_of(
        step.admitted.pieces,
        step.clock,
        {each.metadata_id: each.op.place for each in step.leaves if each.op.begins},
        {metadata_id: each.place for metadata_id, each in waits.items()},
        [program.end for program in programs],
    )
    for metadata_id, each in waits.items():
        each.flights = flights[metadata_id]
    return transfers
