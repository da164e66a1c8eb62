"""Rows and parts of rows that several modes share."""

from typing import TypedDict

from .units import (
    AggKeyKind,
    Bytes,
    Count,
    Executions,
    Flops,
    FlopsPerByte,
    Gibps,
    Percent,
    Picoseconds,
    SourceIs,
    Tflops,
)


class Durations(TypedDict):
    total_dur_ps: Picoseconds
    """Total duration of the executions."""
    min_dur_ps: Picoseconds
    """Shortest execution."""
    max_dur_ps: Picoseconds
    """Longest execution."""
    avg_dur_ps: Picoseconds
    """Mean duration of an execution."""


class Loop(TypedDict):
    """The innermost loop around an op, from the events of the trace alone."""

    depth: Count
    """Number of `while` events around the op."""
    trips: Executions
    """Number of executions of the op for each run of the innermost loop."""


class InLoop(TypedDict):
    loop: Loop | None
    """The innermost loop in which most of the time is spent. If several ops run in the loop,
    `trips` belongs to the op that takes most time. Null if most of the time is in no loop."""


class Line(TypedDict):
    source_inner: str | None
    """Source line `file:line`, taken from the stack, or without a stack the likely line. Null if no
    line is known."""
    source_user: str | None
    """Innermost line of the user's own code in the stack that `source_inner` comes from; null if
    the stack has no such line."""
    source_is: SourceIs | None
    """Origin of the line. `own` is the op's own line in its stack or program (for a done op, the
    line of the matching start op). `inside` is the line of the collective inside the op. `producer`
    is the line of the nearest op that produces the data, and `consumer` the line of the nearest op
    that uses the data. Lines with `inside`, `producer` or `consumer` are inferred. Null if no line
    is known."""


class SourceKey(TypedDict):
    agg_key: str
    """Key of the group, which is `stack:` and a hash of the stack, `tfop:` and the path, or `<no
    source>:` and the category. Example: `stack:df2a14f10859df78`"""
    agg_key_kind: AggKeyKind
    """Kind of the key."""
    source_inner: str | None
    """Source line `file:line` of the group's first op: the source that the trace gives, otherwise
    the innermost frame of the stack.
    Example: `…/site-packages/jax/experimental/pallas/ops/tpu/flash_attention.py:199`"""
    source_user: str | None
    """Innermost frame of the stack in the user's own code, as `file:line`. Own code is every file
    outside of installed packages and of Python itself, or what `--own` selects. For an op without a
    stack, the op's source if the source is own code. Null if no frame is own code. Example:
    `/home/dev/model/layers/attention.py:15`"""
    tf_op: str | None
    """Path of the group's first op, with the trailing `:`.
    Example: `jit(train_step)/jvp()/while/body/closed_call/decoder_layer/mlp/dot_general:`"""


class StackKey(SourceKey):
    source_stack: str | None
    r"""Stack of the group's first op, as frames `file:line:column`, outermost first, one per line.
    Example: `"/home/dev/model/train.py:67:0\n/home/dev/model/train.py:58:11\n/home/dev/model/train.py:49:9"`"""  # noqa: E501


class LikelySource(Line):
    """A source line that ops of a group without a stack most likely belong to."""

    dur_ps: Picoseconds
    """Total duration of the ops of this line."""
    n_executions: Count
    """Number of executions of the ops of this line."""


class HloOpBreakdown(TypedDict):
    """Ops of a group that have the same signature."""

    signature: str
    """The op's name without numbers (or the opcode), then the category in brackets. For custom
    calls, the target. Example: `slice_reduce_fusion [loop fusion]`"""
    hlo_category: str
    """HLO category of the ops."""
    total_dur_ps: Picoseconds
    """Total duration of the executions."""
    n_executions: Count
    """Number of executions."""
    pct_of_group: Percent | None
    """Total duration as a percentage of the group's total duration."""
    example_hlo_op: str
    """HLO text of the longest execution."""
    example_hlo_op_dur_ps: Picoseconds
    """Duration of the longest execution."""


class HloOpBreakdownOverflow(TypedDict):
    """The signatures of a group that `hlo_op_breakdown` leaves out."""

    n_signatures: Count
    """Number of signatures that are left out."""
    n_executions: Count
    """Number of executions of the omitted ops."""
    total_dur_ps: Picoseconds
    """Total duration of the omitted ops."""


class GroupFields(StackKey, Durations):
    """Ops that share a kind and a key. `source_inner` can occur in several groups: a line that is
    called from two places has two groups."""

    n_executions: Count
    """Number of executions."""
    pct_of_compute: Percent | None
    """Total duration as a percentage of the step's compute time, also for groups of other kinds."""
    pct_of_step: Percent | None
    """Total duration as a percentage of the step's duration."""
    hlo_categories: dict[str, Count]
    """Number of executions by category. Example: `{"custom-call": 8, "loop fusion": 8}`"""
    flops_sum: Flops | None
    """Flops of all executions; null if no op of the group has known flops."""
    flops_known_pct: Percent | None
    """Total duration of the ops with known flops, as a percentage of the group's duration.
    `flops_sum` leaves out ops with unknown flops, such as kernels. Null if the group takes no
    time."""
    bytes_accessed_sum: Bytes | None
    """Bytes read and written in all memories; null if no op of the group has known bytes."""
    phases: dict[str, Picoseconds]
    """Total duration by phase. Example: `{"forward": 2263430715, "recompute": 2385789864}`"""
    likely_sources: list[LikelySource] | None
    """For a group without a stack: the lines of the data that the group's ops move or wait for. The
    rows add up to the group; the last row has no line and sums the rest. Null for groups with a
    stack, and if the program is unknown."""
    example_hlo_op: str
    """HLO text of the longest execution."""
    example_hlo_op_dur_ps: Picoseconds
    """Duration of the longest execution."""
    hlo_op_breakdown: list[HloOpBreakdown]
    """The eight signatures that take most of the group's time."""
    hlo_op_breakdown_overflow: HloOpBreakdownOverflow | None
    """Sums of the omitted signatures; null if `hlo_op_breakdown` is complete."""


class GroupTail(TypedDict):
    """The groups that a list omits because it is full."""

    n_groups_omitted: Count
    """Number of groups that are left out."""
    dur_ps: Picoseconds
    """Total duration of the omitted groups."""


class LeftOut(TypedDict):
    """Time other than math that the lists of this mode leave out."""

    data_move: Picoseconds
    """Time of copies, casts and layout changes."""
    comm: Picoseconds
    """Communication."""
    other: Picoseconds
    """Time of bookkeeping, and of ops of unknown categories."""


class DtypeFields(TypedDict):
    dtype_uncertain: bool
    """True if a matmul may have worked in another precision than the dtype of the output shows."""
    operand_dtypes: dict[str, Picoseconds]
    """Total duration by the precision of the matrix unit's input. The precision of an op is the
    dtype of the wider operand of the dot in the program (`pred` only if both operands are `pred`),
    or without a known dot the dtype of the largest operand that is a float or a narrow integer. Ops
    without operands of these dtypes are left out. Example: `{"bf16": 146272060, "fp32":
    47149264}`"""


class Declared(TypedDict):
    """Cost of one execution of a kernel, as the kernel's author declares it."""

    flops: Flops | None
    """Declared number of floating-point operations."""
    bytes_accessed: Bytes | None
    """Declared number of bytes."""
    transcendentals: Count | None
    """Declared number of exponentials and similar operations."""


class VmemFields(TypedDict):
    vmem_used_bytes: Bytes | None
    """Scoped VMEM that the instruction uses, according to the compiler."""
    vmem_limit_bytes: Bytes | None
    """Scoped VMEM that the instruction may use. Often null, because present compilers list the
    limit only if the kernel sets a limit."""


class ChipFields(TypedDict):
    chip: str
    """The chip that the peaks belong to."""
    chip_is_assumed: bool
    """True if neither the trace nor `--chip` names a known chip, so the peaks may be wrong."""


class PeaksUsed(TypedDict):
    """Peak rates that ops are compared with."""

    peak_tflops_bf16: Tflops | None
    """Peak rate for bf16; null if unknown."""
    peak_tflops_fp8: Tflops | None
    """Peak rate for fp8; null if unknown."""
    peak_tflops_fp32: Tflops | None
    """Peak rate for fp32; null if unknown."""
    peak_tflops_fp16: Tflops | None
    """Peak rate for fp16; null if unknown."""
    peak_hbm_gibps: Gibps | None
    """Peak bandwidth of the HBM; null if unknown."""
    ridge_points: dict[str, FlopsPerByte]
    """Flops per byte above which an op is compute-bound, by dtype, for each known peak.
    Example: `{"bf16": 291.133, "fp8": 582.2659}`"""
    source: str
    """Origin of the peaks: the built-in table or the profile, and whether options changed the
    peaks. Example: `builtin v7x table`"""
    unit: str
    """Unit of the HBM peak rate."""


class RecomputeTotal(TypedDict):
    recompute_total_dur_ps: Picoseconds
    """Time of all ops of phase `recompute`: math, communication, copies and others."""
    recompute_total_pct_of_step: Percent | None
    """`recompute_total_dur_ps` as a percentage of the step's duration."""


class IdleByCause(TypedDict):
    """Idle time by cause."""

    barrier: Picoseconds
    """The core waits for other cores: time during an event `barrier-cores` on the line `XLA
    TraceMe`."""
    dependency: Picoseconds
    """The program waits for inputs: time during an event `dependency-wait` on the line `XLA
    TraceMe`."""
    in_container: Picoseconds
    """Time inside a container: a loop's bookkeeping, or a megacore fusion while only the half on
    the other core runs."""
    between_programs: Picoseconds
    """No program runs on the core: time outside of all events on the line `XLA Modules`, if the
    device has this line."""
    in_program: Picoseconds
    """Idle time that has none of the other causes."""


class PeriodFields(TypedDict):
    """Times between the starts of steps that share a name, on the trace's clock."""

    period_ps: Picoseconds | None
    """Time from the start of a step to the start of the next step of the same name: the median over
    all steps of the picked step's name (the lower of the two middle values if their number is
    even). Steps with numbers count as steps of one name. Null if no other step has the picked
    step's name, and with `--step all`."""
    between_steps_ps: Picoseconds | None
    """The part of the period during which no step runs: the median over the steps that `period_ps`
    counts. Null if `period_ps` is null."""


class Gap(TypedDict):
    start_ps: Picoseconds
    """Start of the gap, on the scale of `step_window_ps`."""
    dur_ps: Picoseconds
    """Length of the gap."""
    pct_of_step: Percent
    """Length of the gap as a percentage of the step's duration."""
    after_hlo_op: str | None
    """HLO text of the preceding op; null for a gap at the start of the step."""
    before_hlo_op: str | None
    """HLO text of the following op; null for a gap at the end of the step."""
    inside: str | None
    """Name of the innermost container around the start of the gap; the gap may end after the
    container. The device causes gaps inside a loop, the host often causes gaps outside of loops.
    Example: `while.43`"""


class DeviceName(TypedDict):
    """A device of a host."""

    host: str
    """Name of the host."""
    device: str
    """Name of the device's plane."""


class PeersOfRow(TypedDict):
    """Times that show if communication waits for a late device or for the network."""

    transfer_ps: Picoseconds | None
    """With `--peers`: time of transfer. The transfer of a matched execution takes as long as the
    shortest duration among the devices that take part, because the device that arrives last does
    not wait. Null if no execution is matched, and without `--peers`."""
    peer_wait_ps: Picoseconds | None
    """With `--peers`: time beyond `transfer_ps`, during which this device waits for the last
    device. For `async` communication this time is an upper bound, because a device with more math
    before the wait also waits less."""
    n_matched: Count | None
    """With `--peers`: number of executions for which the executions of the other devices were
    found."""
    n_unmatched: Count | None
    """With `--peers`: number of executions for which the executions of the other devices were not
    found. The reason is that only this device takes part, that the devices did not run the op
    equally often, that the devices that take part are unknown, or that the op is a `send`, a `recv`
    or a transfer of the host."""
    last_device: str | None
    """With `--peers`: the device that causes more than half of the waiting of all devices that take
    part, because it arrived last; null if there is no such device."""
    last_pct: Percent | None
    """Percentage of the waiting that `last_device` causes."""


class WaitsOfDevice(TypedDict):
    """A device's part in the matched executions of the picked device's communication."""

    device: str
    """Name of the device."""
    peer_wait_ps: Picoseconds
    """Time during which the device waits for the last device."""
    n_last: Count
    """Number of executions in which the device arrives last. If several devices share the shortest
    time, no device counts as last."""
    caused_ps: Picoseconds
    """Time that all devices together wait for this device."""
    barrier_ps: Picoseconds
    """Idle time at barriers, as `barrier` in [idle](#idle): the device waits for other devices
    before a collective, not during the collective."""


class PeersOfStep(TypedDict):
    """Exposed communication with other devices, split into transfer, waiting for late devices, and
    unmatched time. The three times add up to all exposed communication except transfers to and from
    the host."""

    n_devices: Count
    """Number of devices in the file that have the step."""
    complete: bool | None
    """True if all devices that take part in the matched executions are known to be in the file. If
    false, the true transfers can be shorter and the true waits longer. `complete` and the next
    three fields are null if only one device has the step."""
    transfer_ps: Picoseconds | None
    """Sum of the field `transfer_ps` of all rows of [comm](#comm)."""
    peer_wait_ps: Picoseconds | None
    """Sum of the field `peer_wait_ps` of all rows of [comm](#comm)."""
    unmatched_ps: Picoseconds | None
    """Time of executions for which the executions of the other devices were not found."""
    by_device: list[WaitsOfDevice]
    """All devices that have the step, sorted by number; empty if only one device has the step."""
