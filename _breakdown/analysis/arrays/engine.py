"""Estimate how long a step would take if its program were edited.

An edit changes the bytes of an array, overlaps collectives with math, or gives ops another time,
which is 0 if they do not run. Each edited op follows its larger
roof, at the efficiency that it has in the trace. Then the ops of each computation are replayed with
their new times (see `links`), so that collectives share the links, and collectives that removed
math has hidden become exposed.

The estimate has a range. The smallest gain changes only ops that HBM limits. The largest gain
scales every op that moves the array, kernels too, and removes the ops that only make arrays which
are left out; the estimate is between the two. A compiler also schedules the edited program anew, so
the range is wider.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from _breakdown.analysis.arrays.graph import Value
from _breakdown.analysis.arrays.links import Links
from _breakdown.analysis.arrays.of_step import StepArrays
from _breakdown.analysis.roof.ledger import (
    COLLECTIVE,
    COMPUTE_BOUND,
    DATA_MOVEMENT,
    LedgerEntry,
    OpClass,
)
from _breakdown.light import NamedTuple, cached_property
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import summed
from _proto.hlo.program import Instruction, Program


class Resize(NamedTuple):
    """The array has `factor` times as many bytes; 0 leaves it out."""

    array: Value
    factor: float


class Retime(NamedTuple):
    """All executions of the op together take this time; 0 if the op does not run."""

    ran: Executions
    time: float


class Overlap(NamedTuple):
    """The synchronous collectives run at the same time as math."""

    collectives: Collection[Executions]


Change: TypeAlias = "Resize | Retime | Overlap"
# The new time of ops as a fraction of the present one.
Factors: TypeAlias = "dict[Executions, float]"


def removal_of(ops: Iterable[Executions]) -> list[Change]:
    return [Retime(ran, 0) for ran in ops]


class Gain(NamedTuple):
    """The time that edits save. `low` and `high` are None if the range would be too wide."""

    estimate: int
    low: int | None
    high: int | None

    @classmethod
    def at_most(cls, time: int) -> Gain:
        """Return the gain of removing what the trace shows: it can be less, but not more."""
        return cls(time, round((1 - _LESS) * time), time)

    @classmethod
    def between(cls, estimate: int, low: int, high: int) -> Gain:
        """Return a gain with its range, unless the range is too wide to say anything."""
        if low <= 0 or high > _WIDEST * low:
            return cls(estimate, None, None)
        return cls(estimate, low, high)


# In recompiled pairs, the gain was within these fractions of the estimate, because the compiler
# schedules the edited program anew. A fault mostly slows down other ops, too.
_LESS, _MORE = 0.2, 0.6
# Greatest ratio of the ends of a range.
_WIDEST: Final = 2.5


class Engine:
    """Compute the time that a step saves with changes.

    `arrays` and `links_of` are functions, because many steps have no cause that needs the arrays,
    or the replay of a program.
    """

    def __init__(
        self,
        ledger: Iterable[LedgerEntry],
        arrays: Callable[[], StepArrays],
        links_of: Callable[[Program], Links | None],
    ) -> None:
        self._arrays_of_step, self._links_of = arrays, links_of
        self._entry_of = {entry.ran: entry for entry in ledger}

    def without(self, changes: Sequence[Change]) -> Gain:
        by_degree = self._factors(changes)
        overlapped = {
            ran for change in changes if isinstance(change, Overlap) for ran in change.collectives
        }
        saved = [self._saved(factors, overlapped) for factors in by_degree]
        cautious, likely, bold = saved if len(saved) > 1 else 3 * saved
        # Some of the ops that HBM does not limit become faster, too.
        estimate = round((likely + bold) / 2)
        least = round((1 - _LESS) * min(cautious, likely))
        if least <= 0 or bold > _WIDEST * least:
            return Gain(estimate, None, None)
        most = round(min((1 + _MORE) * estimate, _WIDEST * least))
        at_most = self._at_most(by_degree[-1], overlapped)
        return Gain(estimate, least, max(estimate, min(most, at_most)))

    def _at_most(self, factors: Factors, overlapped: Collection[Executions]) -> int:
        """Return the time of all ops of the classes that changes make faster: the faults slow down
        other ops, too. Copies, and communication that is hidden, save at most their own time."""
        if not factors:
            return sum(ran.total for ran in overlapped)
        faster = [self._entry_of[ran] for ran, factor in factors.items() if factor < 1]
        names = {entry.name for entry in faster}
        if names == {DATA_MOVEMENT}:
            return sum(entry.total for entry in faster)
        return sum(self._time_of_class[name] for name in names)

    @cached_property
    def _time_of_class(self) -> dict[OpClass, int]:
        return summed((entry.name, entry.total) for entry in self._entry_of.values())

    def _saved(self, factors: Factors, overlapped: Collection[Executions]) -> int:
        saved = 0.0
        of_program: dict[Program, dict[Instruction, float]] = {}
        moved: set[Instruction] = set()
        for ran in {**factors, **dict.fromkeys(overlapped)}:
            here = ran.op.instruction
            if here is None or self._links_of(here.program) is None:
                saved += ran.total * (1 - factors.get(ran, 1.0))
                continue
            of_program.setdefault(here.program, {})[here] = factors.get(ran, 1.0)
            if ran in overlapped:
                moved.add(here)
        for program, edited in of_program.items():
            links = self._links_of(program)
            assert links is not None
            saved += links.saved_with(edited, moved & edited.keys())
        return max(0, round(saved))

    def _factors(self, changes: Sequence[Change]) -> Sequence[Factors]:
        """Map edited ops to their new time as a fraction of the present one: three times, from the
        smallest to the largest gain, or once if no array changes its size, because only sizes of
        arrays say too little about the ops that use them."""
        sizes: dict[Value, float] = {}
        slower: dict[Executions, float] = {}
        retimed: Factors = {}
        for change in changes:
            if isinstance(change, Resize):
                sizes[change.array] = min(change.factor, sizes.get(change.array, change.factor))
            elif isinstance(change, Retime):
                ran, factor = change.ran, change.time / max(1, change.ran.total)
                if factor > 1:
                    slower[ran] = slower.get(ran, 0.0) + factor - 1
                else:
                    retimed[ran] = min(factor, retimed.get(ran, factor))
        found = self._resized(sizes) if sizes else [{}]
        for factors in found:
            for ran, factor in retimed.items():
                # If several changes make an op faster, the one that saves most counts.
                factors[ran] = min(factor, factors.get(ran, factor))
            for ran, more in slower.items():
                if factors.get(ran) != 0:
                    factors[ran] = factors.get(ran, 1.0) + more
        return found

    @cached_property
    def _arrays(self) -> StepArrays:
        return self._arrays_of_step()

    def _resized(self, sizes: Mapping[Value, float]) -> Sequence[Factors]:
        known = (self._arrays.by_value[value] for value in sizes if value in self._arrays.by_value)
        ops = dict.fromkeys(use.ran for array in known for use in array.uses)
        found: Sequence[Factors] = {}, {}, {}
        for ran in ops:
            for factors, factor in zip(found, self._factors_of(ran, sizes), strict=True):
                factors[ran] = factor
        return found

    def _factors_of(self, ran: Executions, sizes: Mapping[Value, float]) -> Sequence[float]:
        """Return the time of an op whose arrays have other sizes, as a fraction of the present
        time: for the smallest, a likely and the largest gain."""
        rows = self._arrays.uses_of[ran]
        now = sum(use.n_bytes for _, use in rows)
        then = sum(sizes.get(array.value, 1.0) * use.n_bytes for array, use in rows)
        written = [array.value for array, use in rows if use.is_write]
        entry, moved = self._entry_of[ran], then / now if now else 1.0
        cautious, bold = 1.0, moved
        if entry.name == COMPUTE_BOUND and entry.t_memory:
            # At worst, an op moves its bytes while it computes nothing.
            of_bytes = float(entry.t_memory / (entry.t_compute + entry.t_memory))
            bold = 1 - of_bytes * (1 - moved)
        elif entry.name == COLLECTIVE:
            cautious = moved
        elif ran in self._arrays.bound_ops:
            # The efficiency is that of the trace, so compare the larger roof of both programs.
            least = float(entry.t_compute / entry.t_memory) if entry.t_memory else 0.0
            cautious = max(least, moved)
        if written and all(sizes.get(value) == 0 for value in written):
            return cautious, 0.0, 0.0
        return cautious, cautious, bold
