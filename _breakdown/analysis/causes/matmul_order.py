"""Find chains of matmuls that take much longer than in another order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from _breakdown.analysis.arrays.engine import Remove, Retime
from _breakdown.analysis.arrays.graph import Value
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.loop_matmuls import only_dot
from _breakdown.analysis.causes.shared.matmul_chains import Chain, Work, chain_from
from _breakdown.analysis.causes.shared.step_program import StepProgram, collective_name_of
from _breakdown.light import NamedTuple
from _breakdown.pipeline.executions import Executions
from _breakdown.units import counted
from _proto.hlo.program import Instruction

REMEDY = (
    "Multiply the small arrays first, for example q @ (k.T @ v) or (x @ a) @ b, or leave the order"
    " to jnp.einsum with all operands."
)
# Another order must need at most 1 / `_FEWER` of the flops. With more, memory or shapes that the
# matrix unit likes decide which order is faster.
_FEWER = 2
# Matmuls that take less than 1 / `_SHORT` of the smallest gain are not followed, which takes time.
_SHORT = 10


class _Order(NamedTuple):
    """A matmul whose result should not be computed, and the times of the matmuls that read it in
    the best order."""

    executions: Executions
    chain: Chain
    times: list[tuple[Executions, float]]


def find(of: StepProgram) -> Iterator[Cause]:
    hbm = of.roofs.hbm
    if not hbm:
        return
    changed: set[Executions] = set()
    found: dict[str | None, list[_Order]] = {}
    matmuls = [ran for ran in of.leaves if ran.total * _SHORT >= max(1, of.floor) and ran.op.dot]
    for ran in sorted(matmuls, key=lambda ran: -ran.total):
        order = _order(of, ran, float(hbm))
        members = {ran, *(reader for reader, _ in order.times)} if order else {ran}
        # In a longer chain, change each matmul only once.
        if order and changed.isdisjoint(members):
            changed |= members
            found.setdefault(of.place_at(order.chain.dot).source_user, []).append(order)
    for orders in found.values():
        yield _cause(of, orders)


def _order(of: StepProgram, ran: Executions, hbm: float) -> _Order | None:
    here = ran.op.instruction
    dot = only_dot(of.entry_of[here]) if here else None
    chain = chain_from(dot) if dot else None
    if here is None or chain is None or not ran.total:
        return None
    if any(Value(here, path) not in chain.passed for path, _ in here.leaves or ()):
        # The op also computes something else.
        return None
    orders = [min(chain.orders(reader), key=_flops_of) for reader in chain.readers]
    now = chain.work.flops + sum(chain.work_of(reader).flops for reader in chain.readers)
    if _FEWER * sum(map(_flops_of, orders)) > now:
        return None
    array = Value(chain.dot).array
    width = (array.bits or 0) / 8 if array else 0
    # Flops per picosecond. A matmul that waits for memory has a low pace, so the gain is too small.
    pace = chain.work.flops * ran.n / ran.total
    times: dict[Executions, float] = {}
    for reader, order in zip(chain.readers, orders, strict=True):
        op = of.executed(reader.dot)
        if op is None or op is ran:
            return None
        time = sum(max(work.flops / pace, work.elements * width / hbm) for work in order)
        entry = of.entry_of.get(op.op.instruction) if op.op.instruction else None
        # An op with other matmuls keeps its time.
        kept = 0 if entry and only_dot(entry) is reader.dot else op.total
        times[op] = times.get(op, kept) + op.n * time
    return _Order(ran, chain, list(times.items()))


def _flops_of(order: tuple[Work, Work]) -> int:
    return sum(work.flops for work in order)


def _cause(of: StepProgram, orders: Sequence[_Order]) -> Cause:
    first = orders[0]
    array, other = (Value(here).array for here in (first.chain.dot, _other_of(first.chain)))
    sent: dict[Executions, float] = {}
    moves: dict[Executions, None] = {}
    for order in orders:
        for ran in _moves(of, order):
            if collective_name_of(ran.op):
                sent[ran] = sent.get(ran, 0.0) + _sent_less(order.chain)
            else:
                moves[ran] = None
    firsts = [order.executions for order in orders]
    between = " and sends it to other devices" if sent else ""
    return Cause(
        f"<line> makes {array.text if array else 'an array'} in"
        f" {counted(len(orders), 'matmul')}{between}, only to multiply it by smaller arrays such as"
        f" {other.text if other else 'others'}. Multiplying the small arrays first would save"
        " <gain>.",
        REMEDY,
        LIKELY,
        [*firsts, *moves, *sent, *dict.fromkeys(ran for one in orders for ran, _ in one.times)],
        [
            Remove([*firsts, *moves]),
            *(Retime(ran, time) for one in orders for ran, time in one.times),
            *(Retime(ran, ran.total * _part_left(ran, less)) for ran, less in sent.items()),
        ],
        place=of.place_at(first.chain.dot),
        evidence={"shape": array.text if array else None},
    )


def _other_of(chain: Chain) -> Instruction:
    """Return the other operand of a matmul that reads the result."""
    reader = chain.readers[0]
    return reader.dot.operands[1 - reader.place]


def _moves(of: StepProgram, order: _Order) -> Iterator[Executions]:
    """Yield the ops that only move the result of the first matmul, and those that sum it over
    devices, with other arrays or without."""
    readers = {order.executions, *(ran for ran, _ in order.times)}
    for ran in dict.fromkeys(of.executed(value.instruction) for value in order.chain.passed):
        here = ran.op.instruction if ran else None
        if ran is None or here is None or ran in readers:
            continue
        values = (Value(here, path) for path, _ in here.leaves or ())
        if collective_name_of(ran.op) or all(value in order.chain.passed for value in values):
            yield ran


def _sent_less(chain: Chain) -> int:
    """Return the bytes of the first result beyond those of the last ones, which are summed over
    devices in another order."""
    sizes = [
        array.n_bytes or 0
        for here in (chain.dot, *(reader.dot for reader in chain.readers))
        for array in here.arrays or ()
    ]
    return max(0, sizes[0] - sum(sizes[1:]))


def _part_left(collective: Executions, less: float) -> float:
    here = collective.op.instruction
    n_bytes = sum(array.n_bytes or 0 for array in (here.arrays if here else None) or ())
    return max(0.0, 1 - less / max(1, n_bytes))
