"""What communication costs, what hides it, and what it moves."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain

from _analysis.likely_lines import LikelyLine
from _analysis.report import Report
from _analysis.roofs import rounded
from _analysis.rows import likely_fields, shortened
from _analysis.transfers import cover_of, transfers_of
from _pipeline.groups import Group, how_most, percent, sum_if_known
from _pipeline.intervals import length_of, union
from _pipeline.vocabulary import COMM, HOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from _analysis.transfers import Transfer
    from _pipeline.context import Context
    from _pipeline.intervals import Cover
    from _pipeline.normalize import Step

    Json = dict[str, Any]


def comm(step: Step, context: Context, *, top: int = 20) -> Report:
    transfers = transfers_of(step)
    hiding = Group(step.leaves).where(lambda op: not op.is_wait and op.kind != COMM)
    cover = cover_of(step, {each.metadata_id for each in hiding.members})
    by_key: dict[Any, list[Transfer]] = {}
    by_collective: dict[str, list[Transfer]] = {}
    for each in transfers:
        by_key.setdefault((each.key, each.exchange.who.mark), []).append(each)
        by_collective.setdefault(each.collective, []).append(each)
    ranked = sorted(by_key.values(), key=lambda some: (-total_of(some), some[0].key))
    tail = list(chain.from_iterable(ranked[top:]))
    with_host = [each for each in transfers if each.op.waits_for == HOST]
    among_devices = [each for each in transfers if each.op.waits_for != HOST]
    context.notes += clock_notes(transfers)
    return Report(
        {
            "rows": [comm_row(some, cover, step) for some in ranked[:top]],
            "tail": {"n_rows_omitted": len(ranked[top:]), **exposed_fields(tail)},
        },
        totals={
            "exposed_ps": total_of(among_devices),
            "exposed_pct_of_step": percent(total_of(among_devices), step.duration),
            "host_ps": total_of(with_host),
            **union_fields("", among_devices, cover),
            **union_fields("host_", with_host, cover),
            "by_collective": {
                name: {
                    "n_executions": sum(each.executions.n for each in some),
                    **exposed_fields(some),
                    "payload_bytes": payload_of(without_halves(some)),
                }
                for name, some in by_collective.items()
            },
        },
    )


def total_of(transfers: Iterable[Transfer]) -> int:
    return sum(each.executions.total for each in transfers)


def exposed_fields(transfers: Sequence[Transfer]) -> Json:
    wait = total_of(each for each in transfers if each.op.is_wait)
    return {"sync_dur_ps": total_of(transfers) - wait, "wait_dur_ps": wait}


def without_halves(transfers: Sequence[Transfer]) -> list[Transfer]:
    """Of what is sent or received only the wait, if there is one: both halves move it once."""
    awaited = {each.place for each in transfers if each.op.is_wait}
    return [each for each in transfers if not (each.op.begins and each.place in awaited)]


def payload_of(transfers: Iterable[Transfer]) -> int | None:
    return sum_if_known((each.executions.n, each.exchange.payload) for each in transfers)


def union_of(transfers: Iterable[Transfer]) -> list[tuple[int, int]]:
    """When at least one of them is under way."""
    flights = chain.from_iterable(each.flights for each in transfers)
    return union((each.start, each.end) for each in flights if each.start < each.end)


def union_fields(prefix: str, transfers: Iterable[Transfer], cover: Cover) -> Json:
    under_way = union_of(transfers)
    return {
        f"{prefix}in_flight_union_ps": length_of(under_way),
        f"{prefix}hidden_union_ps": sum(cover.within(start, end) for start, end in under_way),
    }


def clock_notes(transfers: Iterable[Transfer]) -> list[str]:
    """Pairs are made by the trace's clock, and timed by the device's."""
    flights = chain.from_iterable(each.flights for each in transfers)
    n = sum(flight.end < flight.start for flight in flights)
    if not n:
        return []
    return [f"the two clocks contradict each other on {n} pairs, which end before they begin"]


def comm_row(transfers: Sequence[Transfer], cover: Cover, step: Step) -> Json:
    first, total = transfers[0], total_of(transfers)
    n_executions = sum(each.executions.n for each in transfers)
    bus = sum_if_known((each.executions.n, each.exchange.bus) for each in transfers)
    # What is moved in which time; asynchronous only as far as it is paired.
    moved, lasted = bus, total
    pairs = in_flight = union = covered = other = None
    if first.op.is_wait:
        flights = [flight for each in transfers for flight in each.flights]
        pairs = {
            "paired": len(flights),
            "ambiguous": sum(flight.is_ambiguous for flight in flights),
            "unpaired": n_executions - len(flights),
        }
        paired = [each for each in transfers if each.flights]
        moved = sum_if_known((len(each.flights), each.exchange.bus) for each in paired)
        lasted = length_of(union_of(paired))
        if flights:
            union = lasted
            in_flight = sum(max(0, flight.end - flight.start) for flight in flights)
            covered = sum(cover.within(flight.start, flight.wait) for flight in flights)
            other = sum(max(0, flight.wait - flight.start) for flight in flights) - covered
    # Bytes a picosecond are thousands of gigabytes a second.
    how = how_most((each.likely.how, each.executions.total) for each in transfers)
    gbps = None if moved is None or lasted <= 0 else rounded(1000 * Fraction(moved) / lasted, 3)
    return {
        "collective": first.collective,
        "mode": first.mode,
        "engine": first.engine,
        **likely_fields(LikelyLine(first.likely.line, first.likely.line_user, how)),
        "agg_key": first.op.agg_key,
        "tf_op": shortened(first.op.tf_op),
        "n_executions": n_executions,
        **exposed_fields(transfers),
        "pct_of_step": percent(total, step.duration),
        "pairs": pairs,
        "in_flight_ps": in_flight,
        "in_flight_union_ps": union,
        "covered_ps": covered,
        "other_ps": other,
        "payload_bytes": payload_of(transfers),
        "bus_bytes": None if bus is None else round(bus),
        "group_size": first.exchange.who.size,
        "groups": first.exchange.who.label,
        "groups_from": first.exchange.who_is,
        "bus_gbps": gbps,
        "bus_gbps_over": "in_flight_union" if first.op.is_wait else "duration",
        "plan": sorted(set().union(*(each.plan for each in transfers))) or None,
    }
