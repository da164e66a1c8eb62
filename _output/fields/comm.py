"""Fields of `comm`."""

from typing import Literal, TypedDict

from .common import Lead, StepFields, Totals
from .rows import InLoop, Line, PeersOfRow, PeersOfStep
from .units import Bytes, Count, Gbps, Percent, Picoseconds

TransferMode = Literal["sync", "async"]
Engine = Literal["core", "sparse_core"]
GroupsFrom = Literal["text", "program", "shapes"]


class Collective(TypedDict):
    """Sums over the executions of one collective."""

    n_executions: Count
    """Number of ops that run on the core, plus waits; a `send` or `recv` and the wait that follows
    count as two."""
    sync_dur_ps: Picoseconds
    """Time during which the core runs the collective."""
    wait_dur_ps: Picoseconds
    """Time during which the core waits for the collective."""
    payload_bytes: Bytes | None
    """Bytes as in `rows`, except that a `send` or `recv` and the wait that follows count once."""


class OwnTotals(TypedDict):
    exposed_ps: Picoseconds
    """Time during which the core runs or waits for communication, without transfers to and from the
    host."""
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
    and from the host are left out."""
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
    """Results of pairing waits with the ops that start the communication."""

    paired: Count
    """Number of waits for which the start was found."""
    ambiguous: Count
    """Number of paired executions that overlap another execution of the same name. The oldest
    execution is assumed to end first."""
    unpaired: Count
    """Number of executions that could not be paired, because the communication began before the
    step or the start op is unknown."""


class CommRow(Line, InLoop, PeersOfRow):
    """Communication that has the same collective, mode, engine, group of ops, source line and
    replica groups."""

    collective: str
    """Name of the collective, as `waits_for` in `comm_rollup` of summary; if the op's name shows
    only that it is a collective, the name comes from the program. Copies to and from host memory
    are `to_host` and `from_host`, other transfers of the host are `host`."""
    mode: TransferMode
    """`sync` if the core runs the communication, `async` if the core waits for the
    communication."""
    engine: Engine
    """`sparse_core` if a SparseCore runs the collective, according to the op, the start or the
    program."""
    agg_key: str
    """Key of the group."""
    tf_op: str | None
    """The last 200 characters of the first op's path."""
    n_executions: Count
    """Number of executions; for `async` the number of waits."""
    sync_dur_ps: Picoseconds
    """Time during which the core runs the communication."""
    wait_dur_ps: Picoseconds
    """Time during which the core waits for the communication."""
    pct_of_step: Percent | None
    """`sync_dur_ps` plus `wait_dur_ps`, as a percentage of the step's duration."""
    pairs: Pairs | None
    """Number of waits that were paired with a start; null for `sync`."""
    in_flight_ps: Picoseconds | None
    """Total time of the paired executions from the beginning of the start op to the end of the
    wait, including any time outside of the step. An execution that ends before it begins, because
    the two clocks disagree, counts as 0; a note gives the number of such executions. Rows overlap,
    so never add up `in_flight_ps` of several rows. Null for `sync`, and if no execution is
    paired."""
    in_flight_union_ps: Picoseconds | None
    """Wall-clock time during which at least one of the row's executions is in flight."""
    covered_ps: Picoseconds | None
    """Hidden time, which is the part of the time before the wait during which ops run that neither
    wait nor communicate."""
    other_ps: Picoseconds | None
    """The part of the time before the wait during which the core waits for other ops, runs other
    communication or is idle. This time is neither hidden nor spent on waiting for this
    communication."""
    payload_bytes: Bytes | None
    """Logical bytes of all executions: the result of an all-gather, the operand of a reduce-scatter
    or permute, the smaller of operand and result of an all-reduce or all-to-all, the array of a
    copy. Null if the bytes of any execution are unknown, for example of a ragged all-to-all, a
    permute that writes slices in place, or a casting fusion without a program in the file."""
    bus_bytes: Bytes | None
    """Least number of bytes that each device must send: (n - 1) / n of the payload, 2 (n - 1) / n
    for an all-reduce, the whole payload for a broadcast or copy. Null if n is unknown, and for
    permutes, `send` and `recv`, where devices differ."""
    group_size: Count | None
    """Number of devices (n) in a replica group; null if groups differ in size, and for permutes."""
    groups: str | None
    """The replica groups as text; equal groups have equal texts. `4 x 2, stride 4` is 4 groups of
    2, here {0,4} to {3,7}. Irregular groups are spelled out, at most 8 sets of 64 members. For a
    permute, the text is for example `8 pairs, 4 to self`. Device ids are positions in the program's
    device assignment, not numbers of chips. Example: `4 x 2, stride 2`"""
    groups_from: GroupsFrom | None
    """Origin of `groups`: the HLO `text` of the op or of the matching start, the `program`, or the
    `shapes`, if n is computed from the ratio of input and output size."""
    bus_gbps: Gbps | None
    """`bus_bytes` divided by time; for `async` only paired executions count. The real bandwidth of
    the links can be higher, because peers arrive late, and the end of hidden transfers is not
    visible."""
    bus_gbps_over: Literal["duration", "in_flight_union"]
    """The time by which `bus_bytes` is divided to compute `bus_gbps`; `in_flight_union` for
    `async`."""
    plan: list[str] | None
    """Compiler's plan for all ops of the row, as in [program](#program)."""


class CommTail(TypedDict):
    """The rows that `--top` leaves out."""

    n_rows_omitted: Count
    """Number of omitted rows."""
    sync_dur_ps: Picoseconds
    """Time during which the core runs the omitted communication."""
    wait_dur_ps: Picoseconds
    """Time during which the core waits for the omitted communication."""


class Fields(TypedDict):
    rows: list[CommRow]
    """Communication, most exposed time first, at most `--top` rows."""
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
