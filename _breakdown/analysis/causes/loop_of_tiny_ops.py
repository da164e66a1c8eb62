"""Find loops of hundreds of rounds of tiny ops that could work on all rounds at once."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import Retime
from _breakdown.analysis.causes.shared.cause import SEEN, Cause, Place
from _breakdown.analysis.causes.shared.recurrences import INDEPENDENT, LINEAR
from _breakdown.analysis.causes.shared.step_program import StepProgram, own_line_of
from _breakdown.analysis.roof.ledger import Entry
from _breakdown.units import counted, time
from _proto.hlo.program import Instruction

_LEAST_ROUNDS = 100
# Longest time of a round, in ps. An op takes at least about a microsecond, so in longer rounds the
# time that ops take to begin matters little.
_LONGEST_ROUND = 50 * 10**6
# The ops take at least this many times as long as at their roof.
_FAR = 5
# How often an associative scan moves the arrays of a recurrence.
_PASSES = 4

REMEDY = {
    INDEPENDENT: "Work on all rounds at once: use jax.vmap instead of lax.map or lax.scan.",
    LINEAR: (
        "Use lax.associative_scan (or jnp.cumsum), because a round only adds to a multiple of the"
        " one before."
    ),
}


def find(of: StepProgram) -> Iterator[Cause]:
    rows: dict[tuple[str | None, str], list[Instruction]] = {}
    for loop, entries in of.by_loop.items():
        if loop is not None and _is_tiny(of, loop, entries):
            kind = of.rounds_of(loop).kind
            if kind in REMEDY:
                line = own_line_of(loop, of.is_own) or loop.line
                rows.setdefault((line, kind), []).append(loop)
    for (line, kind), loops in rows.items():
        entries = [entry for loop in loops for entry in of.by_loop[loop]]
        trips, n = max(of.trips(loop) or 0 for loop in loops), sum(map(of.n_of, loops))
        total = sum(entry.total for entry in entries)
        factor = _PASSES if kind == LINEAR else 1
        yield Cause(
            f"{counted(n, 'loop')} at <line> {'runs' if n == 1 else 'run'} {trips} rounds of about"
            f" {time(total // (n * trips))}, far from the limits of the chip. Working on all rounds"
            " at once would save <gain>.",
            REMEDY[kind],
            SEEN,
            [entry.executions for entry in entries],
            [
                Retime(entry.executions, min(entry.total, factor * (entry.at_roof or 0)))
                for entry in entries
            ],
            place=Place(line, loops[0].line),
        )


def _is_tiny(of: StepProgram, loop: Instruction, entries: list[Entry]) -> bool:
    trips, total = of.trips(loop) or 0, sum(entry.total for entry in entries)
    at_roof = sum(entry.at_roof or 0 for entry in entries)
    return (
        total * 20 >= of.floor
        and trips >= _LEAST_ROUNDS
        and total <= _LONGEST_ROUND * trips * of.n_of(loop)
        and _FAR * at_roof <= total
    )
