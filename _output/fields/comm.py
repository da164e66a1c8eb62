"""Fields of `comm`."""

from typing import Literal, TypedDict

from .common import Lead, StepFields, Totals
from .rows import InLoop, Line, PeersOfRow, PeersOfStep, ScopeFields
from .units import Bytes, Count, Gbps, Percent, Picoseconds

TransferMode = Literal["sync", "async"]
Engine = Literal["core", "sparse_core"]
GroupsFrom = Literal["text", "program", "shapes"]


class Collective(TypedDict):
    """Sums over the executions of one collective."""

    n_executions: Count
    """Number of executions on the core, including waits. A `send` or `recv` and its wait count as
    two executions."""
    sync_dur_ps: Picoseconds
    """Time during which the core runs the collective."""
    wait_dur_ps: Picoseconds
    """Time during which the core waits for the collective."""
    payload_bytes: Bytes | None
    """Logical bytes of all executions, as in `rows`, except that a `send` or `recv` and its wait
    count once. Null if unknown for any execution."""


class OwnTotals(TypedDict):
    exposed_ps: Picoseconds
    """Time that the core spends on communication or on waiting for it, excluding transfers to and
    from the host."""
    exposed_pct_of_step: Percent | None
    """`exposed_ps` as a percentage of the step's duration."""
    host_ps: Picoseconds
    """Time during which the core runs or waits for transfers to and from the host; not part of
    `exposed_ps`."""
    host_pct_of_step: Percent | None
    """`host_ps` as a percentage of the step's duration."""
    in_flight_union_ps: Picoseconds
    """Wall-clock time during which at least one collective is under way: a synchronous collective
    runs on the core, or an asynchronous collective with a known start is in flight. Transfers to
    and from the host are excluded."""
    hidden_union_ps: Picoseconds
    """The part of `in_flight_union_ps` that overlaps ops other than waits and communication."""
    host_in_flight_union_ps: Picoseconds
    """Wall-clock time during which at least one transfer to or from the host is under way."""
    host_hidden_union_ps: Picoseconds
    """The part of `host_in_flight_union_ps` that overlaps ops other than waits and
    communication."""
    by_collective: dict[str, Collective]
    """Sums by collective, in order of first appearance."""
    peers: PeersOfStep | None
    """Time spent waiting for late devices; null without `--peers`."""


class CommTotals(Totals, OwnTotals):
    """Sums over the step, and over the step's communication."""


class Pairs(TypedDict):
    """Results of pairing waits with starts."""

    paired: Count
    """Number of waits whose start was found."""
    ambiguous: Count
    """Number of paired executions that overlap another execution with the same name. The pairing
    assumes that the execution that started first also ends first."""
    unpaired: Count
    """Number of executions that could not be paired, because the communication began before the
    step, or its start op is unknown."""


class CommRow(Line, ScopeFields, InLoop, PeersOfRow):
    """Communication with the same collective, mode, engine, group of ops, source line and replica
    groups."""

    collective: str
    """Name of the collective, as in the field `waits_for` of `comm_rollup` in summary. If the op's
    name shows only that it is a collective, the name comes from the program. Copies to and from
    host memory are named `to_host` and `from_host`; other transfers to and from the host are named
    `host`."""
    mode: TransferMode
    """`sync` if the core runs the communication itself, `async` if the core waits for it."""
    engine: Engine
    """`sparse_core` if a SparseCore runs the collective, according to the op, its start or the
    program; otherwise `core`."""
    agg_key: str
    """Key of the group."""
    tf_op: str | None
    """The last 200 characters of the first op's path; null if it has none."""
    n_executions: Count
    """Number of executions; for `async`, this is the number of waits."""
    sync_dur_ps: Picoseconds
    """Time during which the core runs the communication."""
    wait_dur_ps: Picoseconds
    """Time during which the core waits for the communication."""
    pct_of_step: Percent | None
    """`sync_dur_ps` plus `wait_dur_ps`, as a percentage of the step's duration."""
    pairs: Pairs | None
    """Results of pairing the waits with the ops that start the communication; null for `sync`."""
    in_flight_ps: Picoseconds | None
    """Total time that the paired executions are in flight, from the beginning of the start op to
    the end of the wait, including any time outside of the step. An execution that ends before it
    begins, because the two clocks disagree, counts as 0; a note reports the number of such
    executions. Rows overlap in time, so do not add up their `in_flight_ps`. Null for `sync`, and if
    no execution is paired."""
    in_flight_union_ps: Picoseconds | None
    """Wall-clock time during which at least one of the row's executions is in flight. Null if
    `in_flight_ps` is null."""
    covered_ps: Picoseconds | None
    """Hidden time: the part of the time from start to wait in which the core runs ops that neither
    wait nor communicate. Null if `in_flight_ps` is null."""
    other_ps: Picoseconds | None
    """The part of the time from start to wait in which the core waits for other ops, runs other
    communication or is idle. This time is neither hidden nor spent waiting for this communication.
    Null if `in_flight_ps` is null."""
    payload_bytes: Bytes | None
    """Logical bytes of all executions: the result of an all-gather, the operand of a reduce-scatter
    or permute, the smaller of operand and result of an all-reduce or all-to-all, the array of a
    copy. Null if the bytes of any execution are unknown, for example for a ragged all-to-all, a
    permute that writes slices in place, or a casting fusion without a program in the file."""
    bus_bytes: Bytes | None
    """Minimum number of bytes that each device must send, where n is `group_size`: (n - 1) / n of
    the payload, 2 (n - 1) / n for an all-reduce, the full payload for a broadcast or copy. Null if
    the payload is unknown or, except for a broadcast or copy, n is unknown. Also null for permutes,
    `send` and `recv`, because devices send different amounts."""
    group_size: Count | None
    """Number of devices (n) in a replica group; null if unknown, if groups differ in size, and for
    permutes."""
    groups: str | None
    """Replica groups as text; equal groups have equal texts. `4 x 2, stride 4` means 4 groups of 2
    devices: {0,4}, {1,5}, {2,6} and {3,7}. Irregular groups are listed in full, up to 8 groups with
    up to 64 members each. For a permute, the text is for example `8 pairs, 4 to self`. Device ids
    are positions in the program's device assignment, not chip numbers. Null if unknown. Example: `4
    x 2, stride 2`"""
    groups_from: GroupsFrom | None
    """Origin of `groups` and `group_size`: the HLO `text` of the op or of the matching start, the
    `program`, or the `shapes` if the ratio of input size to output size gives the group size.
    Null if unknown."""
    bus_gbps: Gbps | None
    """`bus_bytes` divided by the time that `bus_gbps_over` specifies; for `async`, only paired
    executions count. The links' actual bandwidth can be higher than this value, because devices can
    arrive late and because the end of a hidden transfer is not visible. Null if unknown."""
    bus_gbps_over: Literal["duration", "in_flight_union"]
    """Time by which `bus_bytes` is divided to compute `bus_gbps`: `duration` for `sync`,
    `in_flight_union` for `async`."""
    plan: list[str] | None
    """Algorithms that the compiler recorded for the row's ops, as in `plan` of [program](#program);
    null if none are recorded."""


class CommTail(TypedDict):
    """Rows that `--top` omits."""

    n_rows_omitted: Count
    """Number of omitted rows."""
    sync_dur_ps: Picoseconds
    """Time during which the core runs the omitted communication."""
    wait_dur_ps: Picoseconds
    """Time during which the core waits for the omitted communication."""


class Fields(TypedDict):
    rows: list[CommRow]
    """Communication, up to `--top` rows, most exposed time first. Each row has one collective,
    mode, engine, group of ops, source line and set of replica groups."""
    tail: CommTail
    """Sums of the omitted rows."""


class Returned(Fields):
    """The fields of the mode, and the mode's additions to the totals."""

    totals: OwnTotals


class WithTotals(TypedDict):
    totals: CommTotals
    """Sums over the step, and over the step's communication."""


class Answer(Lead, StepFields, WithTotals, Fields):
    pass
