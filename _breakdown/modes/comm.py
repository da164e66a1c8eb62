"""Show what communication costs, how much of it other ops hide, and how many bytes it moves.

question: what communication costs, how much of it is hidden, and how many bytes it moves
reads: a step
options: --top, --peers
example: --peers
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import chain
from operator import sub
from typing import Any

from _breakdown.analysis.comm.flights import Flights
from _breakdown.analysis.comm.peer_rows import peer_fields, peer_totals
from _breakdown.analysis.comm.transfers import Transfer, cover_of, transfers_of
from _breakdown.analysis.roof.roofs import rounded
from _breakdown.analysis.source.likely_lines import LikelyLine
from _breakdown.analysis.source.loops import Loops, loops_of
from _breakdown.analysis.source.rows import likely_fields, scope_fields
from _breakdown.light import NamedTuple
from _breakdown.output.columns import LIKELY, LOOP, PEERS, RUNS
from _breakdown.output.phrases import Next, at_line_of, bracketed
from _breakdown.output.screen import Column, Part, Says, Section, Table
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.groups import Group, grouped, most, percent, sum_if_known
from _breakdown.pipeline.intervals import Cover
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.vocabulary import COMM, HOST
from _breakdown.units import part_of, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _breakdown.analysis.comm.peers import Peers

Json = dict[str, Any]


def comm(step: Step, context: Context, *, top: int = 20, peers: bool = False) -> Json:
    transfers = transfers_of(step)
    found = None
    if peers:
        from _breakdown.analysis.comm.peers import peers_of

        found = peers_of(step, context)
    hiding = Group(step.leaves).where(lambda op: not op.is_wait and op.kind != COMM)
    cover = cover_of(step, {ran.metadata_id for ran in hiding.members})
    by_collective = grouped((transfer.collective, transfer) for transfer in transfers)
    by_key = grouped(
        ((transfer.key, transfer.exchange.who.mark), transfer) for transfer in transfers
    )
    ranked = sorted(by_key.values(), key=lambda alike: (-total_of(alike), alike[0].key))
    omitted = ranked[top:]
    tail = list(chain.from_iterable(omitted))
    with_host = [transfer for transfer in transfers if transfer.op.waits_for == HOST]
    among_devices = [transfer for transfer in transfers if transfer.op.waits_for != HOST]
    in_flight, host_in_flight = under_way(among_devices, step), under_way(with_host, step)
    shown = list(chain.from_iterable(ranked[:top]))
    loops = loops_of(step, (transfer.ran for transfer in shown))
    return {
        "rows": [comm_row(alike, cover, step, loops, found) for alike in ranked[:top]],
        "tail": {
            "n_rows_omitted": len(omitted),
            "sync_dur_ps": sync_of(tail),
            "wait_dur_ps": wait_of(tail),
        },
        "totals": {
            "exposed_ps": total_of(among_devices),
            "exposed_pct_of_step": percent(total_of(among_devices), step.duration),
            "host_ps": total_of(with_host),
            "host_pct_of_step": percent(total_of(with_host), step.duration),
            "host_copies_ps": total_of(
                transfer for transfer in with_host if transfer.op.kind != COMM
            ),
            "in_flight_union_ps": in_flight.total,
            "hidden_union_ps": hidden_in(in_flight, cover),
            "host_in_flight_union_ps": host_in_flight.total,
            "host_hidden_union_ps": hidden_in(host_in_flight, cover),
            "by_collective": {name: collective_row(alike) for name, alike in by_collective.items()},
            "peers": peer_totals(found, among_devices),
        },
    }


def total_of(transfers: Iterable[Transfer]) -> int:
    return sum(transfer.total for transfer in transfers)


def sync_of(transfers: Iterable[Transfer]) -> int:
    return sum(transfer.total - transfer.wait for transfer in transfers)


def wait_of(transfers: Iterable[Transfer]) -> int:
    return sum(transfer.wait for transfer in transfers)


def n_executions_of(transfers: Iterable[Transfer]) -> int:
    return sum(transfer.n for transfer in transfers)


def payload_of(transfers: Iterable[Transfer]) -> int | None:
    ended = [transfer for transfer in transfers if not transfer.is_begun_only]
    found = sum_if_known((transfer.n, transfer.exchange.payload) for transfer in ended)
    return found if ended else None


def bus_bytes_of(transfers: Iterable[Transfer]) -> Fraction | int | None:
    ended = [transfer for transfer in transfers if not transfer.is_begun_only]
    found = sum_if_known((transfer.n, transfer.exchange.bus) for transfer in ended)
    return found if ended else None


def flights_of_all(transfers: Iterable[Transfer]) -> Flights:
    """Merge the paired start and done executions of all transfers."""
    found = Flights()
    for transfer in transfers:
        found.add(transfer.flights)
    return found


def under_way(transfers: Iterable[Transfer], step: Step) -> Cover:
    """Return the intervals during which a transfer is in flight or runs on the core."""
    found = list(transfers)
    moving = [transfer.ran for transfer in found if not transfer.op.is_wait]
    moving += [ran for transfer in found for ran in transfer.begins]
    on_core = {ran.metadata_id for ran in moving}
    cover, flights = cover_of(step, on_core), flights_of_all(found)
    return Cover.spanning(cover.starts + flights.starts, cover.ends + flights.landings)


def hidden_in(stretches: Cover, cover: Cover) -> int:
    return cover.within_all(stretches.starts, stretches.ends)


def collective_row(transfers: Sequence[Transfer]) -> Json:
    return {
        "n_executions": n_executions_of(transfers),
        "sync_dur_ps": sync_of(transfers),
        "wait_dur_ps": wait_of(transfers),
        "payload_bytes": payload_of(without_awaited_halves(transfers)),
    }


def without_awaited_halves(transfers: Sequence[Transfer]) -> list[Transfer]:
    """Omit each `send` or `recv` that has a waiting op, because the two ops form a single
    transfer."""
    awaited = {transfer.place for transfer in transfers if transfer.op.is_wait}
    return [
        transfer for transfer in transfers if not (transfer.op.begins and transfer.place in awaited)
    ]


class InFlight(NamedTuple):
    """Times of asynchronous transfers, counting only paired executions."""

    total: int
    # Wall-clock time during which at least one transfer is in flight.
    union: int
    # Time between start and wait: `covered` overlaps other ops, `other` does not.
    covered: int
    other: int


def in_flight_of(transfers: Sequence[Transfer], cover: Cover) -> InFlight | None:
    """Return the times of the transfers; None if no execution is paired."""
    flights = flights_of_all(transfers)
    if not flights:
        return None
    waits = array("q", map(max, flights.starts, flights.waits))
    covered = cover.within_all(flights.starts, waits)
    return InFlight(
        sum(map(sub, flights.landings, flights.starts)),
        Cover.spanning(flights.starts, flights.landings).total,
        covered,
        sum(map(sub, waits, flights.starts)) - covered,
    )


def pairs_row(transfers: Sequence[Transfer]) -> Json:
    n_paired = sum(len(transfer.flights) for transfer in transfers)
    return {"paired": n_paired, "unpaired": n_executions_of(transfers) - n_paired}


def gbps_of(transfers: Sequence[Transfer], in_flight: InFlight | None) -> float | None:
    """Return the bandwidth. For asynchronous transfers, divide the bytes of the paired executions
    by the time in flight."""
    if transfers[0].is_begun_only:
        return None
    if transfers[0].op.is_wait:
        moved = sum_if_known(
            (len(transfer.flights), transfer.exchange.bus)
            for transfer in transfers
            if transfer.flights
        )
        duration = in_flight.union if in_flight else 0
    else:
        moved, duration = bus_bytes_of(transfers), total_of(transfers)
    if moved is None or duration <= 0:
        return None
    # One byte per picosecond is 1000 GB/s.
    return rounded(1000 * Fraction(moved) / duration, 3)


def comm_row(
    transfers: Sequence[Transfer], cover: Cover, step: Step, loops: Loops, peers: Peers | None
) -> Json:
    first = transfers[0]
    is_async = first.op.is_wait
    in_flight = in_flight_of(transfers, cover) if is_async else None
    bus_bytes = bus_bytes_of(transfers)
    how = most((transfer.likely.how, transfer.ran.total) for transfer in transfers)
    return {
        "collective": first.collective,
        "mode": first.mode,
        "engine": first.engine,
        **likely_fields(LikelyLine(first.likely.line, first.likely.line_user, how)),
        "agg_key": first.op.agg_key,
        **scope_fields([transfer.ran for transfer in transfers]),
        "loop": loops.row([transfer.ran for transfer in transfers]),
        "n_executions": n_executions_of(transfers),
        "sync_dur_ps": sync_of(transfers),
        "wait_dur_ps": wait_of(transfers),
        "pct_of_step": percent(total_of(transfers), step.duration),
        "pairs": pairs_row(transfers) if is_async else None,
        "in_flight_ps": in_flight.total if in_flight else None,
        "in_flight_union_ps": in_flight.union if in_flight else None,
        "covered_ps": in_flight.covered if in_flight else None,
        "other_ps": in_flight.other if in_flight else None,
        "payload_bytes": payload_of(transfers),
        "bus_bytes": None if bus_bytes is None else round(bus_bytes),
        "group_size": first.exchange.who.size,
        "groups": first.exchange.who.label,
        "bus_gbps": gbps_of(transfers, in_flight),
        **peer_fields(peers, transfers),
        "plan": sorted(set().union(*(transfer.plan for transfer in transfers))) or None,
    }


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "rows"

PARTS: tuple[Part, ...] = (
    Says(
        "\nNo communication ran in this step. If other steps communicate, pick one with --step N"
        " (--mode summary lists the steps), or use --step all.",
        when="step_source !totals.by_collective !totals.host_in_flight_union_ps",
    ),
    Section(
        (
            Says(
                "\nexposed {totals.exposed_ps:time} ({totals.exposed_pct_of_step:percent} of the"
                " step); in flight {totals.in_flight_union_ps:time}, of which"
                " {totals.hidden_union_ps:time} is hidden by math or copies",
                when="totals.exposed_ps",
            ),
            Says(
                "host: exposed {totals.host_ps:time} ({totals.host_pct_of_step:percent} of the"
                " step); in flight {totals.host_in_flight_union_ps:time}, of which"
                " {totals.host_hidden_union_ps:time} is hidden",
                when="totals.host_in_flight_union_ps",
            ),
            Table(
                "by collective; run is time on the core, wait is for asynchronous collectives",
                "totals.by_collective",
                (
                    Column("collective", "key", "word"),
                    Column("run", "sync_dur_ps", "time"),
                    Column("wait", "wait_dur_ps", "time"),
                    RUNS,
                    Column("payload", "payload_bytes", "bytes"),
                ),
            ),
        )
    ),
    PEERS,
    Table(
        "by device; caused is the time that all devices together wait for this device",
        "totals.peers.by_device",
        (
            Column("device", "device"),
            Column("waits", "peer_wait_ps", "time"),
            Column("last", "n_last", "count"),
            Column("caused", "caused_ps", "time"),
            Column("at barriers", "barrier_ps", "time"),
        ),
    ),
    Table(
        "waiting for a late device, by line",
        "rows",
        (
            Column("transfer", "transfer_ps", "time"),
            Column("waits", "peer_wait_ps", "time"),
            Column("collective", "collective", "word"),
            Column("last device", "last_device", null=""),
            Column("% of waits", "last_pct", "percent", null=""),
            LIKELY,
        ),
        by="peer_wait_ps",
        unless_0="peer_wait_ps",
        size="peer_wait_ps",
        what="row",
    ),
    Table(
        "transfers, of which a line can have several; moved is the bytes on the bus, GB/s a lower"
        " bound on the bandwidth",
        "rows",
        (
            Column("run", "sync_dur_ps", "time"),
            Column("wait", "wait_dur_ps", "time"),
            RUNS,
            Column("hidden", "covered_ps", "time", null=""),
            Column("moved", "bus_bytes", "bytes"),
            Column("GB/s", "bus_gbps", "number"),
            Column("collective", "collective", "word", least=10),
            LOOP,
            Column("groups", "groups", "word", null="", least=6),
            LIKELY._replace(least=16),
        ),
        size="pct_of_step",
        whole="",
        what="row",
        omitted="tail.n_rows_omitted",
        tail={"run": "tail.sync_dur_ps", "wait": "tail.wait_dur_ps"},
    ),
)


WORTH_A_LOOK_PCT = 3


def sentences(answer: Json) -> Iterator[str]:
    step, totals, rows = answer["step_duration_ps"], answer["totals"], answer["rows"]
    exposed, host = totals["exposed_ps"], totals["host_ps"]
    of_step = answer["step_source"] is not None
    stops = "the step" if of_step else "the device"
    if not exposed and not host:
        yield f"Nothing{' in this step' if of_step else ''} waits for communication."
    if exposed and totals["peers"] and totals["peers"]["by_device"]:
        yield from waiting(answer, totals["peers"])
    elif exposed:
        share = bracketed(totals["exposed_pct_of_step"])
        yield f"Communication stops {stops} for {part_of(exposed, step)}{share}."
    if host:
        share = bracketed(totals["host_pct_of_step"])
        yield f"Transfers between host and device stop {stops} for {part_of(host, step)}{share}."
    if rows and (exposed or host):
        top = max(rows, key=lambda row: row["sync_dur_ps"] + row["wait_dur_ps"])
        line = at_line_of(top, answer)
        took = time(top["sync_dur_ps"] + top["wait_dur_ps"])
        yield f"The largest transfer is {top['collective']}{line}: {took}."


def waiting(answer: Json, peers: Json) -> Iterator[str]:
    """Yield sentences that say whether communication waits for a late device or for the network."""
    exposed, unmatched = answer["totals"]["exposed_ps"], peers["unmatched_ps"] or 0
    wait, transfer = peers["peer_wait_ps"] or 0, peers["transfer_ps"] or 0
    own = next(row for row in peers["by_device"] if row["device"] == answer["device"])
    last = max(peers["by_device"], key=lambda row: row["caused_ps"])
    if not wait + transfer:
        yield (
            f"None of the {time(exposed)} of exposed communication could be matched with other"
            " devices."
        )
    else:
        rest = f"; {time(unmatched)} is unknown" if 100 * unmatched > exposed else ""
        yield (
            f"Exposed communication takes {time(exposed)}: {time(wait)} is waiting for a late"
            f" device, {time(transfer)} is transfer{rest}."
        )
    if last["caused_ps"] * 100 > exposed and last["caused_ps"] > 2 * last["peer_wait_ps"]:
        whom = "this device" if last is own else last["device"].removeprefix("/device:")
        yield f"All devices together wait {time(last['caused_ps'])} for {whom}."
    if own["barrier_ps"] > wait:
        yield f"This device waits {time(own['barrier_ps'])} at barriers before collectives."


def next_steps(answer: Json) -> Iterator[Next]:
    peers = answer["totals"]["peers"]
    if (answer["totals"]["exposed_pct_of_step"] or 0) >= WORTH_A_LOOK_PCT:
        if peers is None:
            yield Next(
                "whether communication waits for a late device", ("--mode", "comm", "--peers")
            )
        elif (
            20 * sum(row["caused_ps"] for row in peers["by_device"])
            > answer["totals"]["exposed_ps"]
        ):
            yield Next("on which lines the late device is slow", ("--mode", "spread"))
        if answer["program"]["hlo"]:
            yield Next("how the compiler moves each collective", ("--mode", "program"))
