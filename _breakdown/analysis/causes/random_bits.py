"""Find ops that spend their time on random numbers."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import Retime
from _breakdown.analysis.arrays.graph import ELEMENTWISE
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.step_program import StepProgram, total_of
from _breakdown.analysis.roof.ledger import LedgerEntry
from _breakdown.light import NamedTuple
from _breakdown.units import counted, time

# Rounds of threefry; each has one xor.
_ROUNDS = 20
_OF_ROUNDS = frozenset("add or shift-left shift-right-logical xor".split())
# A number of 32 bits is written and read.
_BYTES = 8
# Other random numbers change a training, so a small gain is not worth the change.
_LEAST_PART = 50
# Skip ops that lose less than 1 / `_SHORT` of the smallest gain.
_SHORT = 50

REMEDY = (
    "Draw fewer random numbers (dropout in fewer places), or try the generator of the chip:"
    ' jax.config.update("jax_default_prng_impl", "rbg") before the first key, without vmap over'
    " keys."
)


class _Bits(NamedTuple):
    """The random numbers that an op computes, and their part of its elementwise operations."""

    n_numbers: int
    part: float


def find(of: StepProgram) -> Iterator[Cause]:
    if not of.roofs.hbm or len(of.with_opcodes("xor")) < _ROUNDS:
        return
    changes: list[Retime] = []
    for entry in of.ledger:
        lost, ran = entry.lost or 0, entry.ran
        bits = _bits_of(entry) if lost * _SHORT > of.floor else None
        if bits:
            moves = ran.n * bits.n_numbers * _BYTES / float(of.roofs.hbm)
            changes.append(Retime(ran, min(ran.total, ran.total - bits.part * lost + moves)))
    members = [change.ran for change in changes]
    saved = sum(change.ran.total - change.time for change in changes)
    if members and saved * _LEAST_PART >= of.step.duration:
        yield Cause(
            f"{counted(len(members), 'op')} with a total of {time(total_of(members))}, with most"
            " time at <line>, compute random numbers with threefry. The generator of the chip would"
            " save <gain>.",
            REMEDY,
            LIKELY,
            members,
            changes,
        )


def _bits_of(entry: LedgerEntry) -> _Bits | None:
    """Return the random numbers that an op computes; None if it computes few, or computes them
    while it moves its bytes."""
    here = entry.ran.op.instruction
    if here is None or 2 * (entry.t_memory or 0) > entry.total:
        return None
    if len(here.inside()) < len(_OF_ROUNDS) * _ROUNDS:
        return None
    operations = [
        (inner.opcode, array)
        for inner in here.inside()
        if inner.opcode in ELEMENTWISE
        for array in inner.arrays or ()
    ]
    rounds = [
        (opcode, array.n_elements)
        for opcode, array in operations
        if opcode in _OF_ROUNDS and array.dtype == "u32"
    ]
    xors = [n for opcode, n in rounds if opcode == "xor"]
    if len(xors) < _ROUNDS or not any(xors):
        return None
    part = sum(n for _, n in rounds) / sum(array.n_elements for _, array in operations)
    return _Bits(sum(xors) // _ROUNDS, part)
