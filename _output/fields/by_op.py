"""Fields of `by_op`."""

from typing import TypedDict

from .common import Lead, StepAnswer
from .rows import ChipFields, Durations, InLoop, Line, PeaksUsed, ScopeFields
from .units import (
    Bytes,
    CostSource,
    Count,
    Dtype,
    DtypeSource,
    Flops,
    Gbps,
    KindOrContainer,
    OpClass,
    Percent,
    Phase,
    Picoseconds,
    Tflops,
)


class OpFields(Durations, Line, ScopeFields, InLoop):
    """An op, identified by program and name. Properties come from the op's first execution in the
    step; figures cover all executions in the step."""

    hlo_op: str
    """Name of the op without `%`; the HLO text if the op has no name."""
    program_id: str | None
    """Id of the op's program, as an unsigned decimal; null if the op has no program id."""
    hlo_category: str
    """HLO category of the op."""
    kind: KindOrContainer
    """Kind of the op."""
    n_executions: Count
    """Number of executions."""
    pct_of_step: Percent | None
    """`total_dur_ps` as a percentage of the step's duration."""
    phase: Phase
    """Phase of the op, according to the op's name and path in the trace."""
    tf_op: str | None
    """Path of the op, as in the trace; null if it has none."""
    shape: str | None
    """Shape of the op's output, with layout; null if unknown."""
    dtype: Dtype
    """Dtype that decides which peak applies to the op."""
    dtype_source: DtypeSource
    """Origin of `dtype`, as in [roofline](#roofline)."""
    operand_dtypes: list[str] | None
    """Distinct HLO dtypes that the operands of the op's dots have in memory, before a fusion
    converts them. For an operand that the fusion computes, this is the dtype in which the dot
    multiplies the operand. Null if the op has no dot, or if the program is unknown. Example:
    `["bf16"]`"""
    cost_source: CostSource | None
    """Origin of flops and bytes, as in [roofline](#roofline); null for a custom call with unknown
    flops."""
    flops: Flops | None
    """Flops of one execution; null if unknown."""
    bytes_accessed: Bytes | None
    """Bytes that one execution reads and writes in all memories; null if unknown."""
    hbm_bytes: Bytes | None
    """Bytes that one execution moves to and from HBM; null if unknown."""
    achieved_tflops: Tflops | None
    """`flops` divided by `avg_dur_ps`; null if `flops` is unknown or zero. Also null for
    containers, because their flops do not account for the number of iterations."""
    achieved_gbps: Gbps | None
    """`hbm_bytes` (if unknown, `bytes_accessed`) divided by `avg_dur_ps`; null if the bytes are
    unknown or zero, and for containers."""
    at_roof_ps: Picoseconds | None
    """Minimum time that the chip needs for all executions, as in [bottleneck](#bottleneck); null if
    unknown for any execution."""
    lost_ps: Picoseconds | None
    """Lost time: `total_dur_ps` minus `at_roof_ps`; null if unknown."""
    kernel: str | None
    """Name of the op's Pallas kernel, or of its custom call with a declared cost; null for other
    ops."""
    waits_for: str | None
    """Operation that the core runs or waits for during the op, named as in `comm_rollup` of
    summary; null for ops that `comm_rollup` does not count."""


OpClassed = TypedDict("OpClassed", {"class": OpClass})
"""Class of the op, as in [bottleneck](#bottleneck)."""


class Op(OpFields, OpClassed):
    """A leaf op."""

    rank: Count
    """Rank among all leaf ops by total duration, from 1."""


class MergedOps(InLoop, OpClassed):
    """One or several ops whose names and scopes differ only in numbers, such as the copies of an op
    in unrolled layers. The ops also agree in line, class, kind, category, phase and dtype."""

    hlo_op: str
    """Name of the ops, with `*` for numbers if the names differ."""
    scope: str | None
    """Scope of the ops, with `*` for numbers if the scopes differ; null if unknown."""
    source_inner: str | None
    """Innermost line of the ops; null if unknown, or if the ops agree only in `source_user`."""
    source_user: str | None
    """User line of the ops; null if unknown."""
    n_ops: Count
    """Number of ops."""
    n_executions: Count
    """Number of executions of all ops."""
    n_executions_each: Count | None
    """Number of executions of each op; null if the ops differ."""
    total_dur_ps: Picoseconds
    """Total duration of the executions."""
    avg_dur_ps: Picoseconds
    """Mean duration of an execution."""
    pct_of_step: Percent | None
    """`total_dur_ps` as a percentage of the step's duration."""
    at_roof_ps: Picoseconds | None
    """Sum of the ops' `at_roof_ps`; null if unknown for any op."""
    lost_ps: Picoseconds | None
    """Sum of the ops' `lost_ps`; null if unknown for any op."""


class OpsTail(TypedDict):
    """Leaf ops that `--top` omits."""

    n_ops_omitted: Count
    """Number of omitted ops."""
    dur_ps: Picoseconds
    """Total duration of the omitted ops."""


class Container(TypedDict):
    """An op that encloses other ops."""

    hlo_op: str
    """Name of the container."""
    hlo_category: str
    """HLO category, which is `while`, `conditional`, `call` or `megacore fusion`."""
    n_executions: Count
    """Number of executions."""
    total_dur_ps: Picoseconds
    """Total duration, including everything inside the container."""


class Instruction(TypedDict):
    """An instruction of the program."""

    name: str
    """Name of the instruction."""
    opcode: str
    """Opcode of the instruction."""
    shape: str | None
    """Dtype and dimensions of the output, with tuples in parentheses; null if unknown."""
    source_inner: str | None
    """Source line of the instruction; null if unknown."""


class CalledInstruction(Instruction):
    """An instruction of a called computation."""

    operands: list[str]
    """Names of the instruction's operands."""


class Called(TypedDict):
    """A computation that an op calls, such as a fusion's body, or a loop's body or condition."""

    name: str
    """Name of the computation."""
    n_instructions: Count
    """Number of instructions in the computation."""
    instructions: list[CalledInstruction]
    """The first 200 instructions of the computation, in order."""


class OpInProgram(TypedDict):
    """The op's instruction in the program, with its operands, users and called computations."""

    opcode: str
    """Opcode of the op."""
    computation: str
    """Computation that contains the op."""
    operands: list[Instruction]
    """The first 50 operands of the op, in order."""
    users: list[Instruction]
    """The first 50 instructions that use the op's result, in the order of the computation."""
    chain: list[str]
    """For an asynchronous op: names of its start, its updates and its done, as far as known. For
    other ops, the list is empty."""
    called: list[Called]
    """The first 20 computations that the op calls directly, such as a fusion's body, or a loop's
    body and condition."""


DetailClassed = TypedDict("DetailClassed", {"class": OpClass | None})
"""Class of the op, as in [bottleneck](#bottleneck); null for a container."""


class OpDetail(OpFields, DetailClassed):
    """All details about one op or container."""

    rank: Count | None
    """Rank among all leaf ops by total duration; null for a container."""
    text: str
    """HLO text of the op."""
    source_stack: str | None
    """Stack of the op, outermost frame first; null if it has none."""
    executions: list[list[Picoseconds]]
    """Start and duration of the first 1000 executions, in order of start. Starts are on the same
    time scale as `step_window_ps`."""
    n_executions_omitted: Count
    """Number of executions omitted from `executions`."""
    program: OpInProgram | None
    """The op's instruction in the program, with its operands, users and called computations; null
    if the program is missing or has no instruction with the op's name."""


class OpIfAsked(TypedDict, total=False):
    op: OpDetail
    """Details about the op that `--op` selects; printed only with this option."""


class MergedUnlessAsked(TypedDict, total=False):
    merged: list[MergedOps]
    """The costliest merged ops, up to `--top` rows. All leaf ops are merged, then the rows are cut.
    Omitted with `--no-merge`."""


class Fields(OpIfAsked, MergedUnlessAsked, ChipFields):
    ops: list[Op]
    """The leaf ops that take the most time, up to `--top` rows; ties are in order of name."""
    tail: OpsTail
    """Sums of the omitted ops. The times of `ops` and `tail` add up to `non_while_duration_ps_sum`,
    because together they cover all leaf ops."""
    containers: list[Container]
    """All ops that enclose other ops, most time first."""
    peaks_used: PeaksUsed
    """Peak rates of the chip that ops are compared with."""


class Answer(Lead, StepAnswer, Fields):
    pass
