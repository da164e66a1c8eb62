"""Find arrays that are gathered on all devices only because neighbouring arrays are split
differently.

    h = with_sharding_constraint(h, P("data", "model", None))    # the weight is P("data", "model")
    y = h @ weight                                               # and is gathered along both

The devices need only a part of the array, or need it complete along only one dimension. Two
patterns indicate that shardings disagree:

- An all-gather builds the complete array, but every user takes only a part of it: a dynamic-slice
  at an index that depends on the device. An all-to-all would move only the parts. A
  gather is excluded if any op uses the complete result.
- An all-gather among at least four devices gathers an operand of a matmul along two dimensions at
  once, so a copy has to put the parts in order. If the shardings agreed, the matmul would be split
  along one of these dimensions.

The gain is the time that the step saves without these gathers, plus the time of the copies, minus
the estimated time for moving only the needed part. The cause is reported as a `resharding` and is
always `likely`. The program does not contain the constraint that requires the complete array, and
splitting weights along two dimensions can be intended.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from _analysis.causes.cause import LIKELY, Cause, Evidence
from _analysis.causes.graph import DOTS, Reached, Value, consumers, is_layout, producers, reach
from _analysis.causes.resharding import NAME
from _analysis.causes.sentences import about, line_says, listed, short
from _analysis.causes.step_program import (
    StepProgram,
    collective_name_of,
    counts_of,
    place_of,
    place_of_longest,
    total_of,
)
from _analysis.remedies import CAUSES
from _pipeline.executions import Executions
from _pipeline.vocabulary import DATA_MOVE
from _proto.hlo.program import Instruction

_GATHER = "all-gather"
_CUT = "dynamic-slice"
# Opcodes that return the index of the device.
_DEVICE = ("partition-id", "replica-id")
# A smaller group of devices cannot be the product of two mesh axes.
_FEWEST_DEVICES = 4


def find(of: StepProgram, left_out: Container[int]) -> list[Cause]:
    """Return the causes; `left_out` contains the ids of executions that belong to other causes."""
    cut: list[Executions] = []
    spread: list[Executions] = []
    copies: dict[int, Executions] = {}
    for executions in of.collectives:
        here, name = executions.op.instruction, collective_name_of(executions.op)
        is_whole = name == _GATHER and executions.total * 20 >= of.floor
        if here is None or not is_whole or id(executions) in left_out:
            continue
        walk = reach([Value(here)], consumers, _is_same)
        readers = {value.instruction for value in walk.stopped}
        opcodes = {reader.opcode for reader in readers}
        if opcodes == {_CUT}:
            if all(_depends_on_device(reader) for reader in readers):
                cut.append(executions)
        elif opcodes and opcodes <= DOTS and _size(executions) >= _FEWEST_DEVICES:
            joined = _copies(of, walk)
            if joined:
                spread.append(executions)
                copies |= joined
    causes = [_cause_of_cut(of, cut)] if cut else []
    if spread:
        causes.append(_cause_of_spread(of, spread, list(copies.values())))
    return causes


def _is_same(value: Value) -> bool:
    return value.instruction.opcode == "convert" or is_layout(value.instruction)


def _depends_on_device(cut: Instruction) -> bool:
    """Return True if a dynamic-slice cuts out a different part on each device."""
    walk = reach([Value(index) for index in cut.operands[1:]], producers, lambda _: True)
    return any(value.instruction.opcode in _DEVICE for value in walk.passed)


def _size(executions: Executions) -> int:
    who = executions.op.inside.who if executions.op.inside else None
    return (who.size if who else None) or 0


def _copies(of: StepProgram, walk: Reached) -> dict[int, Executions]:
    """Return the executions of the copies between a collective and its users, by id."""
    ran = [of.ran.get(value.instruction) for value in walk.passed]
    return {
        id(executions): executions
        for executions in ran
        if executions and executions.op.kind == DATA_MOVE and not executions.op.is_wait
    }


def _cause_of_cut(of: StepProgram, members: list[Executions]) -> Cause:
    parts = sum(executions.total // (_size(executions) or 2) for executions in members)
    gain = max(0, of.links.saved_without(members) - parts)
    return Cause(
        NAME,
        gain,
        f"Whole arrays are gathered by {counts_of(members)}, with most time at"
        f" {line_says(place_of_longest(members))}, but each device then keeps only a part, so the"
        f" shardings before and after disagree. Matching shardings would save"
        f" {about(gain, of.step)}.",
        CAUSES["resharding, model"],
        LIKELY,
        Evidence(members),
        *place_of_longest(members),
    )


def _cause_of_spread(of: StepProgram, members: list[Executions], copies: list[Executions]) -> Cause:
    # Count only half of the saved time: the operand must still be gathered along the other
    # dimension, among at least two devices.
    gain = of.links.saved_without(members) // 2 + total_of(copies)
    place = place_of_longest([*members, *copies])
    return Cause(
        NAME,
        gain,
        f"At {_lines([*members, *copies])}, operands of matmuls are split along two dimensions and"
        f" gathered by {counts_of(members)}. Splitting each matmul like its weight, along one"
        f" dimension, would save {about(gain, of.step)}.",
        CAUSES["resharding, two dimensions"],
        LIKELY,
        Evidence([*members, *copies]),
        *place,
    )


def _lines(members: Iterable[Executions]) -> str:
    times: dict[str, int] = {}
    for executions in members:
        if line := place_of(executions.op).source_user:
            times[line] = times.get(line, 0) + executions.total
    longest = sorted(times, key=lambda line: -times[line])[:2]
    return listed([short(line) for line in longest]) if longest else "an unknown line"
