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
    """Duration of the shortest execution."""
    max_dur_ps: Picoseconds
    """Duration of the longest execution."""
    avg_dur_ps: Picoseconds
    """Mean duration of an execution."""


class Loop(TypedDict):
    """The innermost loop around an op, determined from the trace's events alone."""

    depth: Count
    """Number of nested `while` events that contain the op."""
    trips: Executions
    """Mean number of executions of the op per run of the innermost loop."""


class InLoop(TypedDict):
    loop: Loop | None
    """The innermost loop in which most of the time is spent. If several ops run in this loop,
    `trips` refers to the op that takes the most time. Null if most of the time is spent outside of
    loops."""


class Line(TypedDict):
    source_inner: str | None
    """Source line as `file:line`, from the stack; if there is no stack, the likely line. Null if
    unknown."""
    source_user: str | None
    """Innermost line of the user's own code in the stack that `source_inner` comes from; null if
    the stack has no such line."""
    source_is: SourceIs | None
    """Relation of the line to the op. `own`: the op's own line, from its stack or program (for a
    done op, from the matching start op). `inside`: the line of the collective inside the op.
    `producer`: the line of the nearest op that produces the data. `consumer`: the line of the
    nearest op that uses the data. `likely`: the line of your own code with the most time in the
    op's scope, or in the nearest enclosing scope. `doubtful`: the op's own line, in a file that is
    named after another scope than the op's, so the stack may be wrong. All lines except those with
    `own` are inferred. Null if no line is known."""


class ScopeFields(TypedDict):
    scope: str | None
    """Innermost scope that contains all ops of the row, as in [by_scope](#by_scope). A collective
    that the compiler combined is in the scopes of the ops that compute its inputs. Empty for the
    top level of the program; null if most of the time has no known scope. In findings and lines
    of `bottleneck` that are grouped by scope, `*` stands for numbers."""
    n_scopes: Count
    """Number of scopes that the ops of the row are in."""


class SourceKey(TypedDict):
    agg_key: str
    """Key of the group: `stack:` and a hash of the stack, `tfop:` and the path, or `<no source>:`
    and the category. Example: `stack:df2a14f10859df78`"""
    agg_key_kind: AggKeyKind
    """Kind of the group's key."""
    source_inner: str | None
    """Source line of the group's first op, as `file:line`: the innermost frame of the stack, or the
    source stored in the trace if there is no stack or if the two differ. Null if unknown. Example:
    `…/site-packages/jax/experimental/pallas/ops/tpu/flash_attention.py:199`"""
    source_user: str | None
    """Innermost stack frame in the user's own code, as `file:line`; for an op without a stack, the
    op's source if it is own code. Own code is all code except plumbing (Python, and packages that
    models are written with, such as JAX, Flax or NumPy), or the code that `--own` selects. Null if
    no frame is own code. Example:
    `/home/dev/model/layers/attention.py:15`"""
    tf_op: str | None
    """Path of the group's first op, including the trailing `:`; null if it has none. Example:
    `jit(train_step)/jvp()/while/body/closed_call/decoder_layer/mlp/dot_general:`"""


class StackKey(SourceKey):
    source_stack: str | None
    r"""Stack of the group's first op, as frames `file:line:column`, outermost first, one per line.
    Example: `"/home/dev/model/train.py:67:0\n/home/dev/model/train.py:58:11\n/home/dev/model/train.py:49:9"`"""  # noqa: E501


class LikelySource(Line):
    """Likely source line of some ops in a group without a stack."""

    dur_ps: Picoseconds
    """Total duration of the ops of this line."""
    n_executions: Count
    """Number of executions of the ops of this line."""


class HloOpBreakdown(TypedDict):
    """Ops in a group that have the same signature."""

    signature: str
    """Op name without numbers (fusions and `async-…` ops) or opcode (other ops), followed by the
    category in brackets. For custom calls, `custom-call:` followed by the target. Example:
    `slice_reduce_fusion [loop fusion]`"""
    hlo_category: str
    """HLO category of the ops."""
    total_dur_ps: Picoseconds
    """Total duration of the executions."""
    n_executions: Count
    """Number of executions."""
    pct_of_group: Percent | None
    """`total_dur_ps` as a percentage of the group's total duration."""
    example_hlo_op: str
    """HLO text of the longest execution."""
    example_hlo_op_dur_ps: Picoseconds
    """Duration of the longest execution."""


class HloOpBreakdownOverflow(TypedDict):
    """Signatures that are omitted from `hlo_op_breakdown`."""

    n_signatures: Count
    """Number of omitted signatures."""
    n_executions: Count
    """Number of executions of the omitted ops."""
    total_dur_ps: Picoseconds
    """Total duration of the omitted ops."""


class GroupFields(StackKey, ScopeFields, Durations):
    """Ops that share a kind and a key. Several groups can have the same `source_inner`, because a
    line that is called from two places belongs to two groups."""

    n_executions: Count
    """Number of executions."""
    pct_of_compute: Percent | None
    """`total_dur_ps` as a percentage of the step's compute time, also for groups of kinds other
    than compute."""
    pct_of_step: Percent | None
    """`total_dur_ps` as a percentage of the step's duration."""
    hlo_categories: dict[str, Count]
    """Number of executions by category. Example: `{"custom-call": 8, "loop fusion": 8}`"""
    flops_sum: Flops | None
    """Flops of all executions; null if no op of the group has known flops."""
    flops_known_pct: Percent | None
    """Total duration of the ops with known flops, as a percentage of the group's duration.
    `flops_sum` excludes ops with unknown flops, such as kernels. Null if the group's duration is
    zero."""
    bytes_accessed_sum: Bytes | None
    """Bytes that all executions read and write in all memories; null if no op of the group has
    known bytes."""
    phases: dict[str, Picoseconds]
    """Total duration by phase. Example: `{"forward": 2263430715, "recompute": 2385789864}`"""
    likely_sources: list[LikelySource] | None
    """For a group without a stack: the source lines of the data that the group's ops move or wait
    for. The rows add up to the group's duration; if there is a rest, the last row contains it and
    has no line. Null for groups with a stack, and if the program is unknown."""
    example_hlo_op: str
    """HLO text of the longest execution."""
    example_hlo_op_dur_ps: Picoseconds
    """Duration of the longest execution."""
    hlo_op_breakdown: list[HloOpBreakdown]
    """The eight signatures that take the most time in the group."""
    hlo_op_breakdown_overflow: HloOpBreakdownOverflow | None
    """Sums of the omitted signatures; null if `hlo_op_breakdown` is complete."""


class GroupTail(TypedDict):
    """Groups that `--top` omits from the list."""

    n_groups_omitted: Count
    """Number of omitted groups."""
    dur_ps: Picoseconds
    """Total duration of the omitted groups."""


class TailIfAsked(TypedDict, total=False):
    tail: GroupTail
    """Sums of the omitted groups; printed only with `--top`."""


class LeftOut(TypedDict):
    """Time, other than math, that is omitted from the lists of this mode."""

    data_move: Picoseconds
    """Time of copies, casts and layout changes."""
    comm: Picoseconds
    """Time of communication."""
    other: Picoseconds
    """Time of bookkeeping and of ops of unknown categories."""


class DtypeFields(TypedDict):
    dtype_uncertain: bool
    """True if a matmul may have used a precision other than its output's dtype."""
    operand_dtypes: dict[str, Picoseconds]
    """Total duration by the precision of the matrix unit's input. For an op with a known dot, the
    precision is the dtype of the dot's wider operand (`pred` only if both operands are `pred`). For
    other ops, the precision is the dtype of the largest operand that is a float or a narrow
    integer; ops without such an operand are excluded. Example: `{"bf16": 146272060, "fp32":
    47149264}`"""


class Declared(TypedDict):
    """Cost of one execution of a kernel, as declared by its author."""

    flops: Flops | None
    """Declared number of floating-point operations; null if not declared."""
    bytes_accessed: Bytes | None
    """Declared number of bytes read and written; null if not declared."""
    transcendentals: Count | None
    """Declared number of exponentials and similar operations; null if not declared."""


class VmemFields(TypedDict):
    vmem_used_bytes: Bytes | None
    """Scoped VMEM that the instruction uses, according to the compiler; null if unknown."""
    vmem_limit_bytes: Bytes | None
    """Maximum scoped VMEM that the instruction may use. Often null, because current compilers
    record the limit only if the kernel sets one."""


class ChipFields(TypedDict):
    chip: str
    """Chip that the peaks belong to."""
    chip_is_assumed: bool
    """True if neither the trace nor `--chip` names a known chip, so the peaks may be wrong."""


class PeaksUsed(TypedDict):
    """Peak rates of the chip that ops are compared with."""

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
    """Flops per byte above which an op is compute-bound, for each dtype with a known peak. Example:
    `{"bf16": 291.133, "fp8": 582.2659}`"""
    source: str
    """Origin of the peaks: the built-in table or the profile, and whether options override any
    peaks. Example: `builtin v7x table`"""
    unit: str
    """Unit of the HBM peak rate."""


class RecomputeTotal(TypedDict):
    recompute_total_dur_ps: Picoseconds
    """Total duration of all ops of phase `recompute`, including communication and copies."""
    recompute_total_pct_of_step: Percent | None
    """`recompute_total_dur_ps` as a percentage of the step's duration."""


class IdleByCause(TypedDict):
    """Idle time by cause."""

    barrier: Picoseconds
    """Idle time during which the core waits for other cores, shown by an event `barrier-cores` on
    the line `XLA TraceMe`."""
    dependency: Picoseconds
    """Idle time during which the program waits for inputs, shown by an event `dependency-wait` on
    the line `XLA TraceMe`."""
    in_container: Picoseconds
    """Idle time inside a container: a loop's bookkeeping, or a megacore fusion of which only the
    half on the other core is running."""
    between_programs: Picoseconds
    """Idle time during which no program runs on the core: time outside of all events on the line
    `XLA Modules`. The value is 0 if the device has no such events."""
    in_program: Picoseconds
    """Idle time without any of the other causes."""


class Pauses(TypedDict):
    """Number and lengths of pauses. A gap is the time between two steps of the same name. A pause
    counts only if it takes at least a twentieth of the longest pause."""

    n: Count
    """Number of gaps with a pause that counts."""
    n_gaps: Count
    """Number of gaps."""
    when: str
    """Steps after which there is a pause, such as `after every second step`."""
    min_ps: Picoseconds
    """Shortest pause that counts."""
    max_ps: Picoseconds
    """Longest pause."""
    pct_of_period: Percent
    """Mean time of these pauses per period, as a percentage of `period_ps`."""


class PeriodFields(TypedDict):
    """Times between the starts of steps that share a name, on the trace's clock."""

    period_ps: Picoseconds | None
    """Mean time from the start of a step to the start of the next step with the same name, over
    all steps with the picked step's name. All numbered steps count as having the same name. Null
    if no other step has the picked step's name, and with `--step all`."""
    period_median_ps: Picoseconds | None
    """Median of the times whose mean is `period_ps`. For an even number of values, the median is
    the lower of the two middle values. Null if `period_ps` is null."""
    between_steps_ps: Picoseconds | None
    """Mean pause: the time during which no step runs, between the start of the first step and the
    end of the last step with the picked step's name, divided by the number of periods. Null if
    `period_ps` is null."""
    between_steps_median_ps: Picoseconds | None
    """Median of the pauses whose mean is `between_steps_ps`; for an even number of values, the
    lower of the two middle values. Null if `period_ps` is null."""
    pauses: Pauses | None
    """Number and lengths of the pauses between steps; null if `between_steps_ps` is null or there
    is no pause."""


class Gap(TypedDict):
    start_ps: Picoseconds
    """Start of the gap, on the same time scale as `step_window_ps`."""
    dur_ps: Picoseconds
    """Duration of the gap."""
    pct_of_step: Percent
    """`dur_ps` as a percentage of the step's duration."""
    after_hlo_op: str | None
    """HLO text of the op before the gap; null for a gap at the start of the step."""
    before_hlo_op: str | None
    """HLO text of the op after the gap; null for a gap at the end of the step."""
    inside: str | None
    """Name of the innermost container that is running when the gap starts; the container may end
    before the gap does. Null if no container is running. The device causes gaps inside a loop; the
    host often causes gaps outside of loops. Example: `while.43`"""


class DeviceName(TypedDict):
    """A device of a host."""

    host: str
    """Name of the host."""
    device: str
    """Name of the device's plane."""


class PeersOfRow(TypedDict):
    """Times that show whether communication waits for a late device or for the network."""

    transfer_ps: Picoseconds | None
    """With `--peers`: time of the transfer itself. For a matched execution, this time is the
    shortest duration among the participating devices, because the device that arrives last does not
    wait. Null if no execution is matched, and without `--peers`."""
    peer_wait_ps: Picoseconds | None
    """With `--peers`: time of the matched executions beyond `transfer_ps`, during which this device
    waits for the device that arrives last. For `async` communication, this time is an upper bound,
    because a device with more math before the wait also waits less. Null if `transfer_ps` is
    null."""
    n_matched: Count | None
    """With `--peers`: number of executions that were matched with executions on the other
    devices."""
    n_unmatched: Count | None
    """With `--peers`: number of executions that could not be matched. An execution is not matched
    if only this device participates, if the devices did not run the op equally often, if the
    participating devices are unknown, or if the op is a `send`, a `recv` or a transfer to or from
    the host."""
    last_device: str | None
    """With `--peers`: the device that, by arriving last, causes more than half of the waiting time
    of all participating devices; null if there is none."""
    last_pct: Percent | None
    """Percentage of the waiting time that `last_device` causes; null if `last_device` is null."""


class WaitsOfDevice(TypedDict):
    """Time that a device waits for others, and that others wait for it, in the matched executions
    of the picked device's communication."""

    device: str
    """Name of the device."""
    peer_wait_ps: Picoseconds
    """Time during which the device waits for the device that arrives last."""
    n_last: Count
    """Number of executions in which the device arrives last. If several devices share the shortest
    duration, no device counts as last."""
    caused_ps: Picoseconds
    """Total time that all devices wait for this device."""
    barrier_ps: Picoseconds
    """Idle time of the device at barriers, as `barrier` in [idle](#idle). At a barrier, a device
    waits for other devices before a collective rather than during it."""


class PeersOfStep(TypedDict):
    """Exposed communication with other devices, split into transfer, waiting for late devices, and
    unmatched time. The three times add up to all exposed communication except transfers to and from
    the host."""

    n_devices: Count
    """Number of devices in the file that have the step."""
    complete: bool | None
    """True if all devices that participate in the matched executions are known to be in the file.
    If false, the actual transfers can be shorter and the actual waits longer. `complete` and the
    following three fields are null if only one device has the step."""
    transfer_ps: Picoseconds | None
    """Sum of `transfer_ps` over all rows of [comm](#comm)."""
    peer_wait_ps: Picoseconds | None
    """Sum of `peer_wait_ps` over all rows of [comm](#comm)."""
    unmatched_ps: Picoseconds | None
    """Total duration of the executions that could not be matched."""
    by_device: list[WaitsOfDevice]
    """All devices that have the step, sorted by device number; empty if only one device has the
    step."""
