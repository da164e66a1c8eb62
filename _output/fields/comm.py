"""Fields of `comm`."""

from typing import Literal, TypedDict

from _output.fields.common import Lead, StepFields, Totals
from _output.fields.rows import InLoop, Line
from _output.fields.units import Bytes, Count, Gbps, Percent, Picoseconds

TransferMode = Literal["sync", "async"]
Engine = Literal["core", "sparse_core"]
GroupsFrom = Literal["text", "program", "shapes"]


class Collective(TypedDict):
    """Sums of one collective."""

    n_executions: Count
    """Ops that run on the core, and waits; a `send` or `recv` and the wait for it are two."""
    sync_dur_ps: Picoseconds
    """Time during which the core runs them."""
    wait_dur_ps: Picoseconds
    """Time during which the core waits for them."""
    payload_bytes: Bytes | None
    """Bytes as in `rows`, but a `send` or `recv` counts once: with its wait, if there is one."""


class OwnTotals(TypedDict):
    exposed_ps: Picoseconds
    """Time during which the core runs communication or waits for it, without transfers to and from
    the host."""
    exposed_pct_of_step: Percent | None
    """`exposed_ps` in percent of the step."""
    host_ps: Picoseconds
    """Time during which the core runs transfers to and from the host, or waits for them. It is not
    part of `exposed_ps`."""
    host_pct_of_step: Percent | None
    """`host_ps` in percent of the step."""
    in_flight_union_ps: Picoseconds
    """Wall-clock time during which at least one collective is under way: a paired asynchronous one
    in flight, or a synchronous one on the core. Transfers to and from the host are left out."""
    hidden_union_ps: Picoseconds
    """The part of `in_flight_union_ps` during which ops run that neither wait nor communicate."""
    host_in_flight_union_ps: Picoseconds
    """Wall-clock time during which at least one transfer to or from the host is under way."""
    host_hidden_union_ps: Picoseconds
    """The part of `host_in_flight_union_ps` during which ops run that neither wait nor
    communicate."""
    by_collective: dict[str, Collective]
    """Sums by collective, in order of first appearance."""


class CommTotals(Totals, OwnTotals):
    """Sums over the step, and over its communication."""


class Pairs(TypedDict):
    """Counts of waits that were paired with the op that starts the communication."""

    paired: Count
    """Executions that are paired."""
    ambiguous: Count
    """Paired executions that overlap others of the same name: the oldest is assumed to end
    first."""
    unpaired: Count
    """The others: they began before the step, or their start is unknown."""


class CommRow(Line, InLoop):
    """Communication of one collective, mode, engine, group of ops, line and replica groups."""

    collective: str
    """The collective, as `waits_for` in `comm_rollup` of summary, but read from the program if the
    name says only `collective`. Copies to and from host memory are `to_host` and `from_host`, other
    transfers of the host `host`."""
    mode: TransferMode
    """`sync` if it runs on the core, `async` if the core waits for it."""
    engine: Engine
    """`sparse_core` if the op, its start or the program says so."""
    agg_key: str
    """Key of the group."""
    tf_op: str | None
    """Path of the first op; the last 200 characters."""
    n_executions: Count
    """Executions; for `async` the number of waits."""
    sync_dur_ps: Picoseconds
    """Time during which the core runs them."""
    wait_dur_ps: Picoseconds
    """Time during which the core waits for them."""
    pct_of_step: Percent | None
    """Both together, in percent of the step."""
    pairs: Pairs | None
    """Counts of waits that were paired with their starts; null for `sync`."""
    in_flight_ps: Picoseconds | None
    """Sum over the paired executions of the time from the beginning of the start to the end of the
    wait, not cut to the step. Each counts at least 0; a note counts those that end before they
    begin because the two clocks disagree. Rows overlap, so never add them up. Null for `sync`, and
    if none is paired."""
    in_flight_union_ps: Picoseconds | None
    """Wall-clock time during which at least one of them is in flight."""
    covered_ps: Picoseconds | None
    """Hidden time: the part of the time before the wait during which ops run that neither wait nor
    communicate."""
    other_ps: Picoseconds | None
    """The rest of the time before the wait, during other waits, other communication and gaps:
    neither hidden nor waited for."""
    payload_bytes: Bytes | None
    """Logical bytes of all executions: the result of an all-gather, the operand of a reduce-scatter
    or permute, the smaller of both of an all-reduce or all-to-all, the array of a copy. Null if
    unknown for any execution, as for a ragged all-to-all, a permute that writes slices in place, or
    a fusion that casts and whose program is missing."""
    bus_bytes: Bytes | None
    """Bytes that each device must send at least: (n - 1) / n of the payload, twice that for an
    all-reduce, all of it for a broadcast or copy. Null if n is unknown, and for permutes, `send`
    and `recv`, where devices differ."""
    group_size: Count | None
    """n: the devices in a group; null if groups differ in size, and for permutes."""
    groups: str | None
    """The replica groups; equal groups have equal texts. `4 x 2, stride 4` is 4 groups of 2, here
    {0,4} to {3,7}; less regular groups are spelled out, at most 8 sets of 64 members; permutes read
    `8 pairs, 4 to self`. Ids are places in the program's device assignment, not chips.
    Example: `4 x 2, stride 2`"""
    groups_from: GroupsFrom | None
    """Where `groups` comes from: the `text` of the op or its start, the `program`, or the `shapes`,
    since their ratio is n."""
    bus_gbps: Gbps | None
    """`bus_bytes` over time; for `async` only paired executions count. This is a lower bound
    for the links: peers arrive late, and the end of hidden transfers is not visible."""
    bus_gbps_over: Literal["duration", "in_flight_union"]
    """The time that `bus_gbps` divides by; `in_flight_union` for `async`."""
    plan: list[str] | None
    """The compiler's plan for all ops of the row, as in [program](#program)."""


class CommTail(TypedDict):
    """The rows that the list leaves out."""

    n_rows_omitted: Count
    """Rows beyond `--top`."""
    sync_dur_ps: Picoseconds
    """Time during which the core runs them."""
    wait_dur_ps: Picoseconds
    """Time during which the core waits for them."""


class Fields(TypedDict):
    rows: list[CommRow]
    """Communication, most exposed time first, at most `--top` rows."""
    tail: CommTail
    """Sums of the omitted rows."""


class Returned(Fields):
    """The fields of the mode, and what it adds to the totals of all modes."""

    totals: OwnTotals


class WithTotals(TypedDict):
    totals: CommTotals
    """Sums over the step, and over its communication."""


class Answer(Lead, StepFields, WithTotals, Fields):
    pass
