"""Find arrays that move between devices because neighbouring ops split them differently.

needs: a program
headline: Resharding arrays

What it finds: Two ops need an array split along different axes, so a collective moves the array
between them. The rule knows four forms: the axis changes, the largest array of a matmul moves, an
array is gathered as a whole although only a part is needed, and a kernel runs on gathered data.

Why it costs: The links are much slower than the memory, and often nothing hides the communication.
The gain is the time that the step saves without these collectives and the copies before and after
them, minus the time for moving the arrays that have to move instead. If n devices run a kernel on
the same data, (n - 1) / n of the kernel's time is gained, too.

How the program shows it: All rows of one line and confidence are joined.

- All-to-alls that the user did not write (their primitive is not `all_to_all`), and collectives of
  a `sharding_constraint` or `reshard`. A constraint has its own line, so the cause is `seen`;
  otherwise it is `likely`, and the line with the most time is often near the constraint. In the
  optimizer, a collective-permute of an elementwise op is a resharding, too: the op's operands, such
  as parameters and the optimizer's state, are sharded differently. (Within the model, the compiler
  also creates permutes for matmuls that it runs in pieces.)
- A matmul has two operands and a result. An all-gather or a reduction next to it moves one of these
  arrays, which has more than twice the bytes of the other two together, summed over all devices of
  a group. So even gathering both others everywhere would be cheaper (`likely`, because the line
  that sets the sharding is elsewhere). The same holds if one operand is gathered and the result is
  reduced, and the operand has more than twice the bytes of the other operand on all devices.
  Reductions without a gather count only in the forward pass, because in the backward pass they sum
  gradients over batches.
- An all-gather builds the whole array, and every user takes only a part of it, at an index that
  depends on the device: an all-to-all would move only the parts. Or an all-gather among at least
  four devices gathers an operand of a matmul along two dimensions at once, so a copy has to put the
  parts in order (both `likely`).
- All large operands of a kernel come from all-gathers among the same devices, through layout ops
  only, so these devices compute the same result (`seen`). If only keys and values are gathered,
  each device works on different queries; if only weights are, on different activations. Other
  kernels, such as those of the backward pass, belong to the cause if they read only these
  all-gathers.

What to change: Look near the line for a `with_sharding_constraint`, `in_specs` or a parameter's
sharding that splits a different dimension than its neighbours. Give both sides the same sharding.
For a kernel, name the mesh axis in `in_specs` and `out_specs` of the `shard_map`.

When it is intended: A dispatch of tokens to experts also causes all-to-alls without the primitive.
Weights can be split along two dimensions to save memory.

Example:

    # Before: the all-to-all moves x from one axis to the other
    x = with_sharding_constraint(x, P("fsdp", None, None))  # split by batch
    h = with_sharding_constraint(h, P(None, "fsdp", None))  # split by sequence
    # After
    x = with_sharding_constraint(x, P("fsdp", None, None))
    h = with_sharding_constraint(h, P("fsdp", None, None))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from _analysis.arrays.engine import Remove, Retime
from _analysis.arrays.graph import (
    DOTS,
    Reached,
    Value,
    consumers,
    is_moved,
    is_same,
    producers,
    reach,
)
from _analysis.causes.shared.cause import LIKELY, SEEN, Cause, Confidence
from _analysis.causes.shared.matmul_arrays import (
    GATHER,
    REDUCTIONS,
    MatmulsOfLine,
    Moved,
    gathered_and_reduced,
    gathered_or_reduced,
)
from _analysis.causes.shared.sentences import listed, only, short
from _analysis.causes.shared.step_program import (
    Devices,
    StepProgram,
    collective_name_of,
    counts_of,
    devices_of,
    place_of,
    place_of_cause,
    place_of_longest,
    total_of,
)
from _light import NamedTuple
from _pipeline.executions import Executions
from _pipeline.groups import summed
from _pipeline.ops import Op
from _pipeline.vocabulary import DATA_MOVE, SPARSE_CORE
from _proto.hlo.program import Instruction
from _units import counted, size

_ALL_TO_ALLS = ("all-to-all", "ragged-all-to-all")
_PERMUTE = "collective-permute"
_INTENDED = ("all_to_all", "ragged_all_to_all")
_CONSTRAINTS = ("sharding_constraint", "reshard")
# The phase of ops that are neither forward nor backward, such as an optimizer's ops.
_OUTSIDE = "other"
# Elementwise ops need no communication unless their operands are sharded differently.
_ELEMENTWISE = frozenset("add div max min mul select_n sub".split())
# Opcodes that return the index of the device.
_DEVICE = ("partition-id", "replica-id")
# A smaller group of devices cannot be the product of two mesh axes.
_FEWEST_DEVICES = 4
# An operand is large if it has at least 1 / _LARGE of the bytes of the largest operand or of the
# result, whichever is smaller.
_LARGE = 8

FOR_CONSTRAINT = (
    "Change the constraint to the sharding that the array already has, or remove the constraint."
)
FOR_OPTIMIZER = (
    "Use the same sharding for all operands of this line, such as parameters, gradients and"
    " optimizer state."
)
FOR_MODEL = (
    "Look near this line for a with_sharding_constraint, in_specs or parameter spec that splits a"
    " different dimension than its neighbours. If there is none, constrain the activations."
)
FOR_MATMUL = (
    "The weight and the activations have one dimension in common: split it along the same mesh axis"
    " in both, for example with P('tp', 'fsdp') for the second weight of an MLP. Or constrain the"
    " activations before this line (with_sharding_constraint, in_specs)."
)
FOR_TWO_DIMENSIONS = (
    "Look near these lines for a with_sharding_constraint, in_specs or parameter spec that prevents"
    " the matmul from being split like its weight. If every device should gather whole weights,"
    " split the weights along one dimension over both mesh axes."
)
FOR_KERNEL = (
    "Name the mesh axis in in_specs and out_specs of the shard_map around the kernel, so that each"
    " device gets its own part, for example some of the heads."
)


def find(of: StepProgram) -> list[Cause]:
    causes = list(_changed_axes(of))
    causes += _moved_by_matmuls(of, of.explained_by("one_hot_matmul"))
    causes += _needless_gathers(of, _ids(causes))
    causes += _repeated_kernels(of)
    return _joined(causes)


def _ids(causes: Iterable[Cause]) -> set[int]:
    return {id(executions) for cause in causes for executions in cause.executions}


def _joined(causes: Iterable[Cause]) -> list[Cause]:
    """Join causes of the same line, because one sharding often produces several forms."""
    by_line: dict[tuple[str | None, Confidence], list[Cause]] = {}
    for cause in sorted(causes, key=lambda cause: -total_of(cause.executions)):
        line = place_of_cause(cause).source_user
        by_line.setdefault((line, cause.confidence), []).append(cause)
    return [
        cause
        for (line, _), group in by_line.items()
        for cause in ([_together(group)] if line and len(group) > 1 else group)
    ]


def _together(causes: Sequence[Cause]) -> Cause:
    first = causes[0]
    members = {id(executions): executions for cause in causes for executions in cause.executions}
    return first._replace(
        changes=[change for cause in causes for change in cause.changes],
        says=first.says.replace("<gain>", "<gain>, with all collectives and copies at this line"),
        place=place_of_cause(first),
        executions=list(members.values()),
    )


# First form: the axis along which an array is split changes.


class _Row(NamedTuple):
    """The properties that the collectives of a row have in common."""

    is_outside: bool
    devices: Devices


def _changed_axes(of: StepProgram) -> Iterator[Cause]:
    rows: dict[_Row, list[Executions]] = {}
    permutes = []
    for executions in of.collectives:
        primitive = executions.op.scope.primitive if executions.op.scope else None
        name = collective_name_of(executions.op)
        if (name in _ALL_TO_ALLS and primitive not in _INTENDED) or primitive in _CONSTRAINTS:
            rows.setdefault(_row_of(executions), []).append(executions)
        elif name == _PERMUTE and primitive in _ELEMENTWISE and executions.op.phase == _OUTSIDE:
            permutes.append(executions)
    for executions in permutes:
        row = next((row for row, members in rows.items() if _share_line(executions, members)), None)
        rows.setdefault(row or _row_of(executions), []).append(executions)
    for row, members in rows.items():
        yield _cause_of_axes(of, row, members)


def _row_of(executions: Executions) -> _Row:
    return _Row(executions.op.phase == _OUTSIDE, devices_of(executions))


def _share_line(permute: Executions, members: list[Executions]) -> bool:
    line = place_of(permute.op).source_inner
    return line is not None and any(place_of(member.op).source_inner == line for member in members)


def _copies_around(of: StepProgram, collectives: list[Executions]) -> list[Executions]:
    """Return the executions of the layout ops before and after collectives."""
    starts = [
        Value(executions.op.instruction) for executions in collectives if executions.op.instruction
    ]
    found: dict[int, Executions] = {}
    for step in (producers, consumers):
        for value in reach(starts, step, is_moved).passed:
            executed = of.ran.get(value.instruction)
            if executed and (executed.op.kind == DATA_MOVE or executed.op.waits_for == SPARSE_CORE):
                found[id(executed)] = executed
    return list(found.values())


def _is_constraint(op: Op) -> bool:
    return op.scope is not None and op.scope.primitive in _CONSTRAINTS


def _cause_of_axes(of: StepProgram, row: _Row, members: list[Executions]) -> Cause:
    constraints = [member for member in members if _is_constraint(member.op)]
    all_members = [*members, *_copies_around(of, members)]
    n = sum(member.n for member in members)
    collective = only({name for member in members if (name := collective_name_of(member.op))})
    among = f" among {row.devices.size} devices" if row.devices.size else ""
    if constraints:
        why, helps = "whose sharding constraint requires this", FOR_CONSTRAINT
    elif row.is_outside:
        why = "which calls no collective; its operands probably have different shardings"
        helps = FOR_OPTIMIZER
    else:
        why = "which calls no all_to_all (intended if the line dispatches tokens to experts)"
        helps = FOR_MODEL
    return Cause(
        f"{counted(n, collective or 'collective')}{among} {'changes' if n == 1 else 'change'} how"
        f" arrays are sharded, with most time at <line>, {why}. Matching shardings would save"
        " <gain>.",
        helps,
        SEEN if constraints else LIKELY,
        all_members,
        [Remove(all_members)],
        place=place_of_longest(constraints or members),
    )


# Second form: the largest array of a matmul moves.


def _moved_by_matmuls(of: StepProgram, left_out: set[int]) -> list[Cause]:
    causes = [_cause_of_line(of, line) for line in gathered_and_reduced(of, left_out)]
    gathered, reduced = gathered_or_reduced(of, left_out | _ids(causes))
    if gathered:
        others = "the other operand and the result"
        causes.append(_cause_of_moved(gathered, "gathers an operand", others))
    if reduced:
        causes.append(_cause_of_moved(reduced, "reduces partial sums", "both operands"))
    return causes


def _cause_of_line(of: StepProgram, line: MatmulsOfLine) -> Cause:
    largest = max(line.rows, key=lambda moved: moved.n_bytes)
    return Cause(
        f"The matmul at <line> gathers one operand and reduces its result"
        f" ({size(largest.n_bytes)}) among {largest.n_devices} devices, but the other operand has"
        f" only {size(largest.n_others)} on all of them together. Another sharding would save"
        " <gain>.",
        FOR_MATMUL,
        LIKELY,
        line.members,
        [Retime(ran, ran.total - largest.part_of(ran.total)) for ran in line.members],
        place=place_of_longest(line.dots),
    )


def _cause_of_moved(rows: list[Moved], action: str, others: str) -> Cause:
    largest = max(rows, key=lambda moved: moved.executions.total)
    name = collective_name_of(largest.executions.op)
    more = f" ({len(rows) - 1} more like it)" if len(rows) > 1 else ""
    return Cause(
        f"The {name} at <line> {action} of a matmul among {largest.n_devices} devices{more}:"
        f" {size(largest.n_bytes)}, but {others} have only {size(largest.n_others)} on all of them"
        " together. Another sharding would save <gain>.",
        FOR_MATMUL,
        LIKELY,
        [moved.executions for moved in rows],
        [
            Retime(moved.executions, moved.executions.total - moved.part_of(moved.executions.total))
            for moved in rows
        ],
    )


# Third form: an array is gathered as a whole although only a part is needed.


def _needless_gathers(of: StepProgram, left_out: Collection[int]) -> Iterator[Cause]:
    cut: list[Executions] = []
    spread: list[Executions] = []
    copies: dict[int, Executions] = {}
    for executions in of.long_collectives:
        here, name = executions.op.instruction, collective_name_of(executions.op)
        if here is None or name != GATHER or id(executions) in left_out:
            continue
        walk = reach([Value(here)], consumers, is_same)
        readers = {value.instruction for value in walk.stopped}
        opcodes = {reader.opcode for reader in readers}
        if opcodes == {"dynamic-slice"}:
            if all(_depends_on_device(reader) for reader in readers):
                cut.append(executions)
        elif opcodes and opcodes <= DOTS and devices_of(executions).size >= _FEWEST_DEVICES:
            reordered = _copies_in(of, walk)
            if reordered:
                spread.append(executions)
                copies |= reordered
    if cut:
        yield _cause_of_cut(of, cut)
    if spread:
        yield _cause_of_spread(of, spread, list(copies.values()))


def _depends_on_device(cut: Instruction) -> bool:
    """Return True if a dynamic-slice cuts out a different part on each device."""
    walk = reach([Value(index) for index in cut.operands[1:]], producers, lambda _: True)
    return any(value.instruction.opcode in _DEVICE for value in walk.passed)


def _copies_in(of: StepProgram, walk: Reached) -> dict[int, Executions]:
    """Return the executions of the copies between a collective and its users, by id."""
    ran = [of.ran.get(value.instruction) for value in walk.passed]
    return {
        id(executions): executions
        for executions in ran
        if executions and executions.op.kind == DATA_MOVE and not executions.op.is_wait
    }


def _cause_of_cut(of: StepProgram, members: list[Executions]) -> Cause:
    return Cause(
        f"Whole arrays are gathered by {counts_of(members)}, with most time at <line>, but each"
        " device then keeps only a part, so the shardings before and after disagree. Matching"
        " shardings would save <gain>.",
        FOR_MODEL,
        LIKELY,
        members,
        [Retime(ran, ran.total / (devices_of(ran).size or 2)) for ran in members],
    )


def _cause_of_spread(of: StepProgram, members: list[Executions], copies: list[Executions]) -> Cause:
    return Cause(
        f"At {_lines([*members, *copies])}, operands of matmuls are split along two dimensions and"
        f" gathered by {counts_of(members)}. Splitting each matmul like its weight, along one"
        " dimension, would save <gain>.",
        FOR_TWO_DIMENSIONS,
        LIKELY,
        [*members, *copies],
        # The operand must still be gathered along the other dimension, among at least two devices.
        [*(Retime(ran, ran.total / 2) for ran in members), Remove(copies)],
    )


def _lines(members: Iterable[Executions]) -> str:
    times = summed((line, ran.total) for ran in members if (line := place_of(ran.op).source_user))
    longest = sorted(times, key=lambda line: -times[line])[:2]
    return listed([short(line) for line in longest]) if longest else "an unknown line"


# Fourth form: several devices run a kernel on the same data.


class _Read(NamedTuple):
    """The all-gathers whose results a kernel reads, keyed by id; `is_all` is True if all large
    operands are gathered."""

    devices: Devices
    gathers: dict[int, Executions]
    is_all: bool


def _repeated_kernels(of: StepProgram) -> Iterator[Cause]:
    read_by = [(kernel, _gathers_of(of, kernel)) for kernel in of.leaves if kernel.op.kernel]
    whole: dict[Devices, dict[int, Executions]] = {}
    for _, (devices, gathers, is_all) in read_by:
        if is_all and devices.size > 1:
            whole.setdefault(devices, {}).update(gathers)
    for devices, moved in whole.items():
        repeated = [
            kernel
            for kernel, read in read_by
            if read.devices == devices and read.gathers.keys() <= moved.keys()
        ]
        reductions = {
            id(reduction): reduction
            for kernel in repeated
            for reduction in _reached(of, kernel.op.instruction, consumers)
            if collective_name_of(reduction.op) in REDUCTIONS and devices_of(reduction) == devices
        }
        yield _cause_of_kernels(of, devices.size, repeated, list((moved | reductions).values()))


def _gathers_of(of: StepProgram, kernel: Executions) -> _Read:
    here = kernel.op.instruction
    operands = here.operands if here else ()
    sizes = [sum(array.n_bytes or 0 for array in operand.arrays or ()) for operand in operands]
    result = sum(array.n_bytes or 0 for array in (here.arrays if here else None) or ())
    large = min(max(sizes, default=0), result)
    gathers: dict[int, Executions] = {}
    is_all = bool(operands)
    for operand, n_bytes in zip(operands, sizes, strict=True):
        found = {
            id(gather): gather
            for gather in _reached(of, operand, producers)
            if collective_name_of(gather.op) == GATHER
        }
        gathers |= found
        is_all = is_all and (bool(found) or n_bytes * _LARGE < large)
    groups = {devices_of(gather) for gather in gathers.values()}
    devices = groups.pop() if len(groups) == 1 else Devices(None, 0)
    return _Read(devices, gathers, is_all)


def _reached(
    of: StepProgram, start: Instruction | None, step: Callable[[Value], Sequence[Value]]
) -> Iterator[Executions]:
    """Yield the collectives that can be reached from `start` through layout ops only."""
    walk = reach([Value(start)] if start else [], step, is_moved)
    for instruction in {value.instruction for value in walk.passed | walk.stopped}:
        if instruction in of.collective_at:
            yield of.collective_at[instruction]


def _cause_of_kernels(
    of: StepProgram, n_devices: int, kernels: list[Executions], moved: list[Executions]
) -> Cause:
    n = sum(kernel.n for kernel in kernels)
    return Cause(
        f"Kernels at <line> compute the same result on {n_devices} devices in"
        f" {counted(n, 'execution')}, because these devices gather all operands first. Sharing the"
        " work would save <gain>.",
        FOR_KERNEL,
        SEEN,
        [*kernels, *moved],
        [*(Retime(ran, ran.total / n_devices) for ran in kernels), Remove(moved)],
        place=place_of_longest(kernels),
    )
