"""Rows and parts of rows that several modes share."""

from typing import TypedDict

from _output.fields.units import (
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
    """Executions of the op divided by the runs of that loop."""


class InLoop(TypedDict):
    loop: Loop | None
    """The innermost loop around most of the time; of several ops in it, the trips are those of the
    op that takes most time. Null if most of the time is in no loop."""


class Line(TypedDict):
    source_inner: str | None
    """Source line `file:line`: the line of the stack, or without a stack the likely line. Null if
    there is none."""
    source_user: str | None
    """Innermost line of the user's own code in the stack that `source_inner` comes from; null if
    there is none."""
    source_is: SourceIs | None
    """Origin of the line: `own` is the op's own line in its stack or program (for a done op, the
    line of its start); `inside` the line of the collective inside it; `producer` the line of the
    nearest op that produces its data; `consumer` the line of the nearest op that uses it. All but
    `own` are inferred. Null without a line."""


class SourceKey(TypedDict):
    agg_key: str
    """Key of the group: `stack:` and a hash of the stack, or `tfop:` and the path, or
    `<no source>:` and the category. Example: `stack:df2a14f10859df78`"""
    agg_key_kind: AggKeyKind
    """Kind of the key."""
    source_inner: str | None
    """Line `file:line` of the first member: the source that the trace gives, otherwise the
    innermost frame of its stack.
    Example: `…/site-packages/jax/experimental/pallas/ops/tpu/flash_attention.py:199`"""
    source_user: str | None
    """Innermost frame of the stack that is the user's own code, as `file:line`: not in an installed
    package or in Python itself, or as set by `--own`. Without a stack, the op's source if it
    qualifies. Null if there is none. Example: `/home/dev/model/layers/attention.py:15`"""
    tf_op: str | None
    """Path of the first member, with the trailing `:`.
    Example: `jit(train_step)/jvp()/while/body/closed_call/decoder_layer/mlp/dot_general:`"""


class StackKey(SourceKey):
    source_stack: str | None
    r"""Frames `file:line:column` of the first member, outermost first, one per line.
    Example: `"/home/dev/model/train.py:67:0\n/home/dev/model/train.py:58:11\n/home/dev/model/train.py:49:9"`"""  # noqa: E501


class LikelySource(Line):
    """A line that the ops of a group without a stack most likely belong to."""

    dur_ps: Picoseconds
    """Time of the ops of this line."""
    n_executions: Count
    """Executions of the ops of this line."""


class HloOpBreakdown(TypedDict):
    """Ops of a group that have the same signature."""

    signature: str
    """The op's name without numbers, or its opcode, and its category; for custom calls the target.
    Example: `slice_reduce_fusion [loop fusion]`"""
    hlo_category: str
    """Category of the ops."""
    total_dur_ps: Picoseconds
    """Total duration of the executions."""
    n_executions: Count
    """Executions."""
    pct_of_group: Percent | None
    """Time in percent of the group."""
    example_hlo_op: str
    """HLO text of the longest execution."""
    example_hlo_op_dur_ps: Picoseconds
    """Duration of the longest execution."""


class HloOpBreakdownOverflow(TypedDict):
    """The signatures of a group that `hlo_op_breakdown` leaves out."""

    n_signatures: Count
    """Signatures that are left out."""
    n_executions: Count
    """Their executions."""
    total_dur_ps: Picoseconds
    """Their time."""


class GroupFields(StackKey, Durations):
    """Ops of one kind and one key. `source_inner` need not be unique: a line that is called from
    two places is two groups."""

    n_executions: Count
    """Executions."""
    pct_of_compute: Percent | None
    """Time in percent of the step's compute time, also for groups of other kinds."""
    pct_of_step: Percent | None
    """Time in percent of the step."""
    hlo_categories: dict[str, Count]
    """Executions by category. Example: `{"custom-call": 8, "loop fusion": 8}`"""
    flops_sum: Flops | None
    """Flops of all executions; null if no member has a figure."""
    flops_known_pct: Percent | None
    """Time of the ops with known flops, in percent of the group. `flops_sum` leaves out the others,
    such as kernels. Null if the group takes no time."""
    bytes_accessed_sum: Bytes | None
    """Bytes read and written in all memories together; null if no member has a figure."""
    phases: dict[str, Picoseconds]
    """Time by phase. Example: `{"forward": 2263430715, "recompute": 2385789864}`"""
    likely_sources: list[LikelySource] | None
    """For a group without a stack: the lines whose data its ops move or wait for; they add up to
    the group. The last row has no line and sums the rest. Null for groups with a stack, and without
    a program."""
    example_hlo_op: str
    """HLO text of the longest execution."""
    example_hlo_op_dur_ps: Picoseconds
    """Duration of the longest execution."""
    hlo_op_breakdown: list[HloOpBreakdown]
    """The eight signatures that take most of the group's time."""
    hlo_op_breakdown_overflow: HloOpBreakdownOverflow | None
    """Sums of the omitted signatures; null if `hlo_op_breakdown` is complete."""


class GroupTail(TypedDict):
    """The groups that a list leaves out."""

    n_groups_omitted: Count
    """Groups that are left out."""
    dur_ps: Picoseconds
    """Their time."""


class LeftOut(TypedDict):
    """Time other than math that the lists of this mode leave out."""

    data_move: Picoseconds
    """Copies, casts and layout changes."""
    comm: Picoseconds
    """Communication."""
    other: Picoseconds
    """Bookkeeping, and ops of unknown categories."""


class DtypeFields(TypedDict):
    dtype_uncertain: bool
    """True if a matmul may have worked in another precision than its output shows."""
    operand_dtypes: dict[str, Picoseconds]
    """Time by the precision that the matrix unit was fed with: for each op the wider operand of its
    dot in the program (a `pred` operand counts only if both are), otherwise its largest operand
    that is a float or a narrow integer. Ops without such an operand are left out.
    Example: `{"bf16": 146272060, "fp32": 47149264}`"""


class Declared(TypedDict):
    """The cost of one run as its author declares it."""

    flops: Flops | None
    """Floating-point operations."""
    bytes_accessed: Bytes | None
    """Bytes."""
    transcendentals: Count | None
    """Exponentials and similar operations."""


class VmemFields(TypedDict):
    vmem_used_bytes: Bytes | None
    """Scoped VMEM that it uses, according to the compiler."""
    vmem_limit_bytes: Bytes | None
    """Scoped VMEM that it may use. Often null: present compilers list it only if the kernel sets
    it."""


class ChipFields(TypedDict):
    chip: str
    """The chip that the peaks belong to."""
    chip_is_assumed: bool
    """True if neither the trace nor `--chip` names a known chip, so the peaks may be wrong."""


class PeaksUsed(TypedDict):
    """Peak rates that ops are compared with."""

    peak_tflops_bf16: Tflops | None
    """Peak for bf16; null if unknown."""
    peak_tflops_fp8: Tflops | None
    """Peak for fp8; null if unknown."""
    peak_tflops_fp32: Tflops | None
    """Peak for fp32; null if unknown."""
    peak_tflops_fp16: Tflops | None
    """Peak for fp16; null if unknown."""
    peak_hbm_gibps: Gibps | None
    """Peak bandwidth of the HBM; null if unknown."""
    ridge_points: dict[str, FlopsPerByte]
    """For each known peak by dtype: the flops per byte from which on an op is compute-bound.
    Example: `{"bf16": 291.133, "fp8": 582.2659}`"""
    source: str
    """Origin of the peaks: the built-in table or the profile, and whether options changed
    them. Example: `builtin v7x table`"""
    unit: str
    """Unit of the HBM peak."""


class RecomputeTotal(TypedDict):
    recompute_total_dur_ps: Picoseconds
    """Time of all ops of phase `recompute`: math, communication, copies and others."""
    recompute_total_pct_of_step: Percent | None
    """`recompute_total_dur_ps` in percent of the step."""


class IdleByCause(TypedDict):
    """Idle time by cause."""

    barrier: Picoseconds
    """Waiting for the other cores: under an event `barrier-cores` of the line `XLA TraceMe`."""
    dependency: Picoseconds
    """The program waits for its inputs: under an event `dependency-wait` of that line."""
    in_container: Picoseconds
    """Under a container: a loop's bookkeeping, or a megacore fusion with only its other half
    running."""
    between_programs: Picoseconds
    """No program is on the core: under no event of the line `XLA Modules`, if there is such a
    line."""
    in_program: Picoseconds
    """All other idle time."""


class PeriodFields(TypedDict):
    """The time from step to step, on the trace's clock."""

    period_ps: Picoseconds | None
    """Time from the start of a step to the start of the next step of the same name: the median over
    all steps of the picked step's name, of an even number the lower of the two middle ones.
    Numbered steps are one name. Null for a single step of its name and with `--step all`."""
    between_steps_ps: Picoseconds | None
    """The part of that time in which no step runs: its median over the same steps. Null as
    `period_ps`."""


class Gap(TypedDict):
    start_ps: Picoseconds
    """Start of the gap, on the scale of `step_window_ps`."""
    dur_ps: Picoseconds
    """Length of the gap."""
    pct_of_step: Percent
    """Length in percent of the step."""
    after_hlo_op: str | None
    """HLO text of the op before the gap; null at the start of the step."""
    before_hlo_op: str | None
    """HLO text of the op after the gap; null at the end of the step."""
    inside: str | None
    """Name of the innermost container around the start of the gap; the gap may end outside it. A
    gap inside a loop is caused by the device, one outside often by the host. Example: `while.43`"""


class DeviceName(TypedDict):
    """A device of a host."""

    host: str
    """Name of the host."""
    device: str
    """Name of the device's plane."""
