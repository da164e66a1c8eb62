"""Estimate how much time a step would save without some of its collectives, by replaying its
program.

The exposed time of a collective says little about the time that would be saved without it, because
collectives share the links:

    core    |--math--|==wait for B==|--math--|      without A, B would end earlier
    links   |-----A-----|-----B-----|

Therefore the ops of a computation are replayed. In the replay, the core runs the ops in the order
of the trace. A collective begins when its operands are ready and the links are free. Collectives
with little data do not wait for the links, and take as long as measured.

A synchronous collective is assumed to take as long per byte as the fastest collective of its kind,
because others may have waited for the links. The trace does not show how long asynchronous
collectives take. Therefore the speed of the links is chosen such that the replay takes as long as
the trace.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Literal

from _breakdown.light import NamedTuple, cached_property
from _breakdown.pipeline.executions import Executions
from _proto.hlo.collectives import Collective
from _proto.hlo.program import Computation, Instruction

# Collectives that move fewer bytes are assumed not to occupy the links.
_SMALL_BYTES = 1 << 20
# Number of bisections to find the speed of the links.
_HALVINGS = 12
# Maximum number of unread results of collectives that become asynchronous. Without this limit,
# collectives whose results are read late could delay collectives whose results are read early.
_UNREAD = 2
# Ops are short if they together take at most 1 / `_SHORT` of the mean time of the collectives that
# become asynchronous.
_SHORT = 2
# Kinds of events. Events at the same position are sorted in this order.
_BEGIN, _END, _RUN = range(3)


class _Event(NamedTuple):
    """An event of the replay: an op runs, or a collective begins or is waited for. `place` is the
    event's position in the order of the trace."""

    place: int
    kind: int
    # For a collective that begins: the position at which the core waits for it.
    end: int
    here: Instruction
    # For an op that runs: the time on the core. For a collective that begins: the time that it
    # occupies the links, in addition to the time for `n_bytes`.
    time: float = 0
    n_bytes: int = 0


class Links:
    """The collectives of a program, each with the bytes that it moves over the links, or the time
    that it occupies them."""

    def __init__(
        self,
        collectives: Iterable[Executions],
        # Position of each instruction in the order of the trace.
        order: Mapping[Instruction, int],
        # The executions of instructions, also of loops.
        ran_of: Mapping[Instruction, Executions],
    ) -> None:
        self._order, self._ran_of = order, ran_of
        self._bytes: dict[Instruction, int] = {}
        self._alone: dict[Instruction, float] = {}
        # The number of executions, the time per byte on the links, and the duration of a replay
        # with all events.
        self._replays: dict[Computation, tuple[int, float, float]] = {}
        self._events_of: dict[Computation, list[_Event]] = {}
        fastest: dict[tuple[str, str | None], float] = {}
        synchronous = {}
        for ran in collectives:
            op, here = ran.op, ran.op.instruction
            n_bytes = _bytes_of(op.inside) if op.inside else 0
            if here is None or op.inside is None or n_bytes < _SMALL_BYTES:
                continue
            if op.is_wait:
                self._bytes[here] = n_bytes
                continue
            kind = op.inside.opcode, op.inside.who.label if op.inside.who else None
            synchronous[here] = kind, n_bytes
            pace = n_bytes * ran.n / max(ran.total, 1)
            fastest[kind] = max(fastest.get(kind, 0.0), pace)
        for here, (kind, n_bytes) in synchronous.items():
            self._alone[here] = n_bytes / fastest[kind]

    def saved_with(
        self, factors: Mapping[Instruction, float], overlapped: Collection[Instruction] = ()
    ) -> int:
        """Return the time that the step saves if ops take these fractions of their time, and the
        given synchronous collectives overlap with math. A fraction of 0 removes the op.

        An overlapping collective begins when its operands are ready. Short ops that compute the
        operands, such as the cast of a weight before a gather, run earlier, too. Short ops that
        read the result run later.
        """
        saved = 0
        edited = {*factors, *overlapped}
        for computation in dict.fromkeys(here.computation for here in edited):
            events = self._events(computation)
            if not events:
                continue
            edited_saves = self._saved(computation, events, factors)
            saved += edited_saves
            moved = {
                here
                for here in overlapped
                if here.computation is computation and factors.get(here) != 0
            }
            if moved:
                then = self._made_asynchronous(events, moved)
                more = self._saved(computation, then, factors)
                # The bytes on the links stay the same, so no other collective ends earlier.
                total = sum(self._ran_of[here].total for here in moved)
                saved += max(0, min(more - edited_saves, total))
        return saved

    def _made_asynchronous(self, events: Iterable[_Event], moved: set[Instruction]) -> list[_Event]:
        order = self._order
        short = sum(map(self._time_of.__getitem__, moved)) / len(moved) / _SHORT
        last = max(order.values()) + 1
        place_of: dict[Instruction, int] = {}
        by_reader = []
        for here in moved:
            readers, passed = self._places_along("users", [here], short, moved)
            reader = min(readers, default=last)
            by_reader.append((reader, order[here], here))
            for op in passed:
                place_of[op] = max(place_of.get(op, reader), reader)
        by_reader.sort(key=itemgetter(0, 1))
        found = []
        for i, (reader, place, here) in enumerate(by_reader):
            makers, passed = self._places_along("operands", [here], short, moved)
            begin = max(makers, default=-1)
            if i >= _UNREAD:
                begin = max(begin, by_reader[i - _UNREAD][0] - 1)
            # A collective begins no later than in the trace, and its operands are ready then.
            begin = min(begin, place - 1)
            for op in passed:
                place_of[op] = min(place_of.get(op, begin), begin)
            found.append(self._beginning(begin + 1, reader, here))
            found.append(_Event(reader, _END, 0, here))
        for event in events:
            if event.here not in moved:
                is_moved = event.kind == _RUN and event.here in place_of
                found.append(event._replace(place=place_of[event.here]) if is_moved else event)
        return sorted(found, key=itemgetter(0, 1, 2))

    def _events(self, computation: Computation) -> list[_Event]:
        """Return the events of one execution of a computation, in order."""
        if computation in self._events_of:
            return self._events_of[computation]
        order = self._order
        events = self._events_of[computation] = []
        for here in computation.instructions:
            place = order.get(here)
            if place is None:
                continue
            if here not in self._alone and here not in self._bytes:
                events.append(_Event(place, _RUN, 0, here, self._time_of[here]))
                continue
            begin = place
            if here in self._bytes:
                makers, _ = self._places_along("operands", here.chain)
                begin = max([order.get(here.chain[0], place), *(maker + 1 for maker in makers)])
            events.append(self._beginning(min(begin, place), place, here))
            events.append(_Event(place, _END, 0, here))
        events.sort(key=itemgetter(0, 1, 2))
        return events

    def _beginning(self, place: int, end: int, here: Instruction) -> _Event:
        n_bytes = self._bytes.get(here, 0)
        time = 0 if n_bytes else self._alone.get(here) or self._time_of[here]
        return _Event(place, _BEGIN, end, here, time, n_bytes)

    def _places_along(
        self,
        direction: Literal["operands", "users"],
        starts: Iterable[Instruction],
        short: float = 0,
        beyond: Container[Instruction] = (),
    ) -> tuple[list[int], set[Instruction]]:
        """Return the positions of the nearest ops, in one direction, that are not short.

        Also return the short ops between `starts` and these ops. All short ops together take at
        most the time `short`, because the replay moves them. Ops in `beyond` count as short.
        """
        places = []
        passed = set()
        seen = set(starts)
        to_do = list(seen)
        follow = attrgetter(direction)
        while to_do:
            for here in follow(to_do.pop()):
                if here in seen:
                    continue
                seen.add(here)
                if here in self._order and here not in beyond:
                    if self._time_of[here] > short:
                        places.append(self._order[here])
                        continue
                    short -= self._time_of[here]
                passed.add(here)
                to_do.append(here)
        return places, passed

    @cached_property
    def _time_of(self) -> dict[Instruction, float]:
        """Map the instructions that ran to the mean time of one execution."""
        ran_of = self._ran_of
        return {
            here: ran.total / ran.n if (ran := ran_of.get(here)) else 0.0 for here in self._order
        }

    def _saved(
        self,
        computation: Computation,
        then: Sequence[_Event],
        factors: Mapping[Instruction, float],
    ) -> int:
        """Return the time that all executions of a computation save if its events change to `then`,
        and take these fractions of their time."""
        known = self._replays.get(computation)
        if known is None:
            ran_of, now = self._ran_of, self._events(computation)
            ran = [(each.kind, ran_of[each.here]) for each in now if each.here in ran_of]
            n = max(of_each.n for _, of_each in ran)
            measured = sum(of_each.total for kind, of_each in ran if kind != _BEGIN) / n
            pace = self._pace_of(now, measured)
            known = self._replays[computation] = n, pace, _replayed(now, pace, {})
        n, pace, duration = known
        return round((duration - _replayed(then, pace, factors)) * n)

    def _pace_of(self, events: Sequence[_Event], measured: float) -> float:
        """Return the time per byte on the links, chosen so that the replay takes as long as the
        trace."""
        n_bytes = sum(event.n_bytes for event in events)
        if not n_bytes:
            return 0.0
        # The links cannot be busy for longer than the computation takes.
        fast, slow = 0.0, measured / n_bytes
        for _ in range(_HALVINGS):
            pace = (fast + slow) / 2
            if _replayed(events, pace, {}) > measured:
                slow = pace
            else:
                fast = pace
        return fast


def _replayed(events: Iterable[_Event], pace: float, factors: Mapping[Instruction, float]) -> float:
    """Replay one execution with links that take the time `pace` per byte, and ops that take these
    fractions of their time; return its duration. A fraction of 0 removes the op."""
    now = free = 0.0
    ends: dict[Instruction, float] = {}
    for _, kind, _, here, time, n_bytes in events:
        factor = factors.get(here, 1)
        if kind == _RUN:
            now += time * factor
        elif kind == _END:
            now = max(now, ends.get(here, now))
        elif factor:
            free = ends[here] = max(free, now) + time * factor + round(n_bytes * factor) * pace
    return now


def _bytes_of(collective: Collective) -> int:
    """Return the bytes of the input or the output, whichever is larger; for an all-reduce, twice
    as many. The result is a slight overestimate, because a device does not send its own part to
    itself."""
    sides = [
        sum(array.n_bytes or 0 for array in arrays or ())
        for arrays in (collective.inputs, collective.outputs)
    ]
    return max(sides) * (2 if collective.opcode == "all-reduce" else 1)
