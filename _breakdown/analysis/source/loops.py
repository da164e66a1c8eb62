"""Find the loop that contains an op, and how often the op runs in each run of the loop. Finding
loops requires only the events, not the program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from _breakdown.analysis.source.rows import op_name
from _breakdown.light import NamedTuple, cached_property
from _breakdown.pipeline.clocks import Piece
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import group_by, summed
from _breakdown.pipeline.intervals import Nested
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.timeline import columns_of, events_of

Json = dict[str, Any]

# The program id and the name of an op.
Key = tuple[int | None, str]

# Category of the ops that are loops.
WHILE = "while"


class OpLoop(NamedTuple):
    """The innermost loop around an op."""

    while_op: Key
    # Number of loops around the op.
    depth: int


class Loops:
    """The loops around ops of a step. Events are read only if the step has loops.

    All executions of an op are in the same loop, unless the op's computation is called from several
    places. Therefore three executions of each op are looked up first, and all of its executions
    only if these three are in different loops.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        # The ops to look up next, and the time in each loop of those that were looked up, by
        # metadata id.
        self._asked: dict[int, Executions] = {}
        self._times_of: dict[int, dict[OpLoop | None, int]] = {}
        whiles = [loop for loop in step.containers if loop.op.category == WHILE]
        self._key_of = {loop.metadata_id: key_of(loop.op) for loop in whiles}
        self._n_runs = summed((key_of(loop.op), loop.n) for loop in whiles)

    def add(self, members: Iterable[Executions]) -> None:
        """Add ops whose loops `row` will need, so that it looks all of them up at once."""
        new = (member for member in members if member.metadata_id not in self._times_of)
        self._asked.update((member.metadata_id, member) for member in new)

    def row(self, members: Sequence[Executions]) -> Json | None:
        """Return the innermost loop in which the ops spend most of their time; None if they spend
        most of it outside of loops.

        `trips` is how often an op is executed per run of this loop. Of the given ops in the loop,
        the one with the most total time is used.
        """
        if not self._key_of:
            return None
        if self._asked:
            self._look_up(list(self._asked.values()))
            self._asked.clear()
        time_in = summed(
            pair for member in members for pair in self._times_of[member.metadata_id].items()
        )
        most = max(time_in, key=time_in.__getitem__, default=None)
        if most is None:
            return None
        inside = [member for member in members if most in self._times_of[member.metadata_id]]
        # Some captures have a metadata entry for each execution of an op, so group entries by op.
        longest = max(group_by(inside, key_of).values(), key=lambda group: group.total)
        n, runs = longest.n, self._n_runs[most.while_op]
        return {"depth": most.depth, "trips": n // runs if n % runs == 0 else round(n / runs, 3)}

    @cached_property
    def _runs(self) -> tuple[Nested, list[int]]:
        """Return the executions of loops, and the metadata id of each."""
        step = self._step
        events = events_of(step.admitted.pieces, step.clock, self._key_of.keys())
        runs = sorted((start, -duration, metadata_id) for start, duration, metadata_id in events)
        starts = [start for start, _, _ in runs]
        ends = [start - negative for start, negative, _ in runs]
        return Nested(starts, ends), [metadata_id for _, _, metadata_id in runs]

    def _look_up(self, members: Sequence[Executions]) -> None:
        """Find the time of each op in each loop."""
        step, times = self._step, self._times_of
        pieces = step.admitted.pieces
        total_of = {member.metadata_id: member.total for member in members}
        repeated = [member.metadata_id for member in members if member.n > 1]
        samples = [
            self._sampled(pieces, total_of, 1),
            self._sampled(pieces[len(pieces) // 2 :], repeated, 1, from_middle=True),
            self._sampled(pieces[::-1], repeated, -1),
        ]
        for metadata_id, total in total_of.items():
            loops = {found[metadata_id] for found in samples if metadata_id in found}
            if len(loops) == 1:
                times[metadata_id] = {loops.pop(): total}
        differing = total_of.keys() - times.keys()
        for metadata_id in differing:
            times[metadata_id] = defaultdict(int)
        for start, duration, metadata_id in events_of(pieces, step.clock, differing):
            times[metadata_id][self._loop_at(start, duration, metadata_id)] += duration

    def _sampled(
        self,
        pieces: Iterable[Piece],
        wanted: Iterable[int],
        order: int,
        *,
        from_middle: bool = False,
    ) -> dict[int, OpLoop | None]:
        """Return the loop around one execution of each op, taken from the first piece that contains
        the op. If `order` is 1, use the op's first execution in this piece; if `order` is -1, its
        last. `from_middle` skips the first half of the first piece."""
        missing = set(wanted)
        found: dict[int, OpLoop | None] = {}
        for piece in pieces:
            if missing.isdisjoint(piece.distinct_ids):
                continue
            starts, durations, metadata_ids = columns_of(piece, self._step.clock)
            skipped = len(starts) // 2 if from_middle else 0
            from_middle = False
            # A dict keeps the last of several equal keys, so the wanted execution must come last.
            places = range(skipped, len(starts))[::-order]
            last_first = zip(metadata_ids[skipped:][::-order], places, strict=True)
            for metadata_id, i in dict(last_first).items():
                if metadata_id in missing:
                    found[metadata_id] = self._loop_at(starts[i], durations[i], metadata_id)
            missing -= found.keys()
            if not missing:
                break
        return found

    def _loop_at(self, start: int, duration: int, metadata_id: int) -> OpLoop | None:
        """Return the loop around an execution.

        The execution's middle is looked up, because starts and ends of loops are often not measured
        and can be slightly wrong.
        """
        runs, metadata_ids = self._runs
        around = [metadata_ids[place] for place in runs.around(start + duration // 2)]
        if metadata_id in around:
            # The execution is itself a loop, so skip this loop and the loops inside it.
            around = around[around.index(metadata_id) + 1 :]
        return OpLoop(self._key_of[around[0]], len(around)) if around else None


def loops_of(step: Step, members: Iterable[Executions]) -> Loops:
    """Return the loops of a step, and prepare to look up those around the given ops. The modes of a
    page ask for many of the same ops."""
    loops = step.once(Loops, lambda: Loops(step))
    loops.add(members)
    return loops


def key_of(op: Op) -> Key:
    return op.program_id, op_name(op)
