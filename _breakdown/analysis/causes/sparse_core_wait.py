"""Find waits for work that the compiler put on SparseCores, and that the core may do sooner."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from _breakdown.analysis.arrays.engine import Retime
from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.sentences import listed
from _breakdown.analysis.causes.shared.step_program import (
    StepProgram,
    collective_name_of,
    counts_of,
    total_of,
)
from _breakdown.analysis.comm.flights import Flights
from _breakdown.analysis.comm.transfers import Starts, cover_of, flights_in
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.intervals import Cover
from _breakdown.pipeline.vocabulary import COMPUTE
from _breakdown.units import counted, time
from _proto.hlo.text import named_after

_GATHER = ("gather_offload",)
# By libtpu's schedules, a core gathers rows of some KiB at three quarters of the HBM's peak on v5e,
# and with the same number of cycles at a quarter on v7x.
_SLOWER_THAN_HBM = 4
# Where collectives took 20 to 30 % of a step on v6e, offloading them made it 2 to 20 % slower, and
# where they took 5 %, 2 to 3 % faster.
_PART_OF_STEP = 5

OF_GATHERS = (
    'Compile this program with compiler_options={"xla_tpu_offload_gather_to_sparsecore": "false"},'
    " which keeps gathers on the core, and measure. Leave other programs as they are: large gathers"
    " can be faster on a SparseCore."
)
OF_COLLECTIVES = (
    "Try to keep them on the core, and measure: set {flags} to false in the compiler options. With"
    " so little math to hide communication, this made steps on v6e 2 to 20 % faster."
)


def find(of: StepProgram) -> Iterator[Cause]:
    waits = [
        ran
        for ran in of.long_ops
        if ran.op.is_wait and ran.op.instruction and ran.op.instruction.on_sparse_core
    ]
    left_out = of.explained_by("collective_in_loop", confidence=SEEN)
    gathers = [ran for ran in waits if named_after(ran.op.name, _GATHER)]
    collectives = [
        ran for ran in waits if collective_name_of(ran.op) is not None and id(ran) not in left_out
    ]
    if gathers and of.roofs.hbm:
        yield _of_gathers(of, gathers, waits)
    if collectives and _PART_OF_STEP * total_of(collectives) >= of.step.duration:
        yield _of_collectives(of, collectives)


def _of_gathers(of: StepProgram, gathers: list[Executions], waits: list[Executions]) -> Cause:
    # A gather reads rows, and writes them.
    speed = float(of.roofs.hbm or 0) / _SLOWER_THAN_HBM / 2
    times = {ran: ran.n * sum(a.n_bytes or 0 for a in ran.op.outputs) / speed for ran in gathers}
    changes = [Retime(*each) for each in times.items()]
    flights = _flights_of(of, waits)
    of_gathers = _joined(flights[ran] for ran in gathers)
    in_flight = Cover.spanning(of_gathers.starts, of_gathers.landings)
    shared = 0
    for ran in waits:
        if ran not in times:
            # At the same time as a gather, other work has half of the SparseCores.
            beside = flights[ran]
            delay = in_flight.within_all(beside.waits, beside.landings) // 2
            changes.append(Retime(ran, ran.total - delay))
            shared += delay
    also = f", and perhaps {time(shared)} for what runs there at the same time" if shared else ""
    n, on_core = sum(ran.n for ran in gathers), time(round(sum(times.values())))
    return Cause(
        f"The core waits {time(total_of(gathers))} for {counted(n, 'gather')} at <line> that the"
        f" compiler put on a SparseCore{also}; math hides {time(_hidden(of, of_gathers))}. On the"
        f" core, this would take about {on_core}, so <gain> less.",
        OF_GATHERS,
        LIKELY,
        gathers,
        changes,
    )


def _of_collectives(of: StepProgram, waits: list[Executions]) -> Cause:
    names = dict.fromkeys(collective_name_of(ran.op) or "" for ran in waits)
    flags = [
        f"xla_tpu_enable_sparse_core_collective_offload_{name.replace('-', '_')}" for name in names
    ]
    hidden = _hidden(of, _joined(_flights_of(of, waits).values()))
    return Cause(
        f"The core waits {time(total_of(waits))} for {counts_of(waits)} that the compiler put on"
        f" SparseCores, with most time at <line>; math hides {time(hidden)}.",
        OF_COLLECTIVES.format(flags=listed(flags)),
        LIKELY,
        waits,
    )


def _flights_of(of: StepProgram, waits: Iterable[Executions]) -> dict[Executions, Flights]:
    starts = Starts(of.step)
    of_id = {ran.metadata_id: ran for ran in waits}
    places = {metadata_id: starts.of(ran.op)[0] for metadata_id, ran in of_id.items()}
    return {of_id[i]: flights for i, flights in flights_in(of.step, places).items()}


def _joined(all_flights: Iterable[Flights]) -> Flights:
    joined = Flights()
    for flights in all_flights:
        joined.add(flights)
    return joined


def _hidden(of: StepProgram, flights: Flights) -> int:
    """Return the time of the math that runs between the starts of flights and the waits for
    them."""
    math = {ran.metadata_id for ran in of.step.leaves if ran.op.kind == COMPUTE}
    beside = Cover.spanning(flights.starts, array("q", map(max, flights.starts, flights.waits)))
    return cover_of(of.step, math).within_all(beside.starts, beside.ends)
