"""Fields of `by_op`."""

from typing import TypedDict

from .common import Lead, StepAnswer
from .rows import ChipFields, Durations, InLoop, Line, PeaksUsed
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


class OpFields(Durations, Line, InLoop):
    """An op, identified by program and name. Facts come from the op's first execution; figures are
    sums over all executions in the step."""

    hlo_op: str
    """Name of the op without `%`; the HLO text if the op has no name."""
    program_id: str | None
    """Id of the op's program, an unsigned decimal; null if ops carry no program id."""
    hlo_category: str
    """Category."""
    kind: KindOrContainer
    """Kind of the op's category."""
    n_executions: Count
    """Number of executions."""
    pct_of_step: Percent | None
    """Total duration as a percentage of the step's duration."""
    phase: Phase
    """Phase of the op, according to the op's name and path in the trace."""
    scope: str | None
    """Scope, as in [by_scope](#by_scope); null if unknown."""
    tf_op: str | None
    """Path of the op, as in the trace."""
    shape: str | None
    """Shape of the output, with layout."""
    dtype: Dtype
    """Dtype that decides which peak applies to the op."""
    dtype_source: DtypeSource
    """Origin of `dtype`, as in [roofline](#roofline)."""
    operand_dtypes: list[str] | None
    """Distinct HLO dtypes that the operands of the op's dots have in memory, before a fusion
    converts the operands. An operand that the fusion computes counts with the dtype in which the
    dot multiplies the operand. Null if the op has no dot, or if the program is unknown. Example:
    `["bf16"]`"""
    cost_source: CostSource | None
    """Origin of flops and bytes, as in [roofline](#roofline); null for a custom call with unknown
    flops."""
    flops: Flops | None
    """Flops of one execution."""
    bytes_accessed: Bytes | None
    """Bytes that one execution reads and writes in all memories."""
    hbm_bytes: Bytes | None
    """Bytes that one execution moves to and from HBM."""
    achieved_tflops: Tflops | None
    """`flops` divided by `avg_dur_ps`; null if `flops` is unknown or zero. Null for containers,
    because the flops of a container do not include how often the body runs."""
    achieved_gbps: Gbps | None
    """`hbm_bytes` (if unknown, `bytes_accessed`) divided by `avg_dur_ps`; null if the bytes are
    unknown or zero, and for containers."""
    at_roof_ps: Picoseconds | None
    """Least time that the chip needs for all executions, as in [bottleneck](#bottleneck); null if
    unknown for any execution."""
    lost_ps: Picoseconds | None
    """Lost time, by which the total duration exceeds `at_roof_ps`."""
    kernel: str | None
    """Name of a Pallas kernel, or of a custom call with a declared cost."""
    waits_for: str | None
    """The operation that the core waits for during the op, as in `comm_rollup` of summary; null if
    the op does not wait."""


OpClassed = TypedDict("OpClassed", {"class": OpClass})
"""Class of the op, as in [bottleneck](#bottleneck)."""


class Op(OpFields, OpClassed):
    """A leaf op."""

    rank: Count
    """Rank among all leaf ops by total duration, from 1."""


class OpsTail(TypedDict):
    """The ops that `--top` leaves out."""

    n_ops_omitted: Count
    """Number of omitted ops."""
    dur_ps: Picoseconds
    """Total duration of the omitted ops."""


class Container(TypedDict):
    """An op that encloses other ops."""

    hlo_op: str
    """Name."""
    hlo_category: str
    """`while`, `conditional`, `call` or `megacore fusion`."""
    n_executions: Count
    """Number of executions."""
    total_dur_ps: Picoseconds
    """Total duration, including everything inside the container."""


class Instruction(TypedDict):
    """An instruction of the program."""

    name: str
    """Name of the instruction."""
    opcode: str
    """Opcode."""
    shape: str | None
    """Dtype and dimensions of the output, with tuples in parentheses; null if unknown."""
    source_inner: str | None
    """Source line of the instruction."""


class CalledInstruction(Instruction):
    """An instruction of a called computation."""

    operands: list[str]
    """Names of the operands."""


class Called(TypedDict):
    """A computation that an op calls: a fusion's body, a loop's body or condition."""

    name: str
    """Name of the computation."""
    n_instructions: Count
    """Number of instructions in the computation."""
    instructions: list[CalledInstruction]
    """The first 200 instructions of the computation, in order."""


class OpInProgram(TypedDict):
    """The neighbours of an op in the program."""

    opcode: str
    """Opcode of the op."""
    computation: str
    """Computation that contains the op."""
    operands: list[Instruction]
    """The first 50 operands of the op, in order."""
    users: list[Instruction]
    """The first 50 instructions that use the op's result, in the order of the computation."""
    chain: list[str]
    """For an asynchronous op, the known names of the start, the updates and the done; otherwise
    empty."""
    called: list[Called]
    """The first 20 computations that the op calls directly."""


DetailClassed = TypedDict("DetailClassed", {"class": OpClass | None})
"""Class of the op, as in [bottleneck](#bottleneck); null for a container."""


class OpDetail(OpFields, DetailClassed):
    """One op, or container, with everything known about it."""

    rank: Count | None
    """Rank among all leaf ops by total duration; null for a container."""
    text: str
    """HLO text of the op."""
    source_stack: str | None
    """Stack of the op, outermost frame first."""
    executions: list[list[Picoseconds]]
    """Start and duration of the first 1000 executions, ordered by start, on the scale of
    `step_window_ps`."""
    n_executions_omitted: Count
    """Number of executions that the list `executions` leaves out."""
    program: OpInProgram | None
    """The op's neighbours in the program; null if the program, or an instruction with the op's
    name, is missing."""


class OpIfAsked(TypedDict, total=False):
    op: OpDetail
    """Details about the op that `--op` names; only with that option."""


class Fields(OpIfAsked, ChipFields):
    ops: list[Op]
    """The leaf ops that take most time, at most `--top`; ops of equal time are ordered by name."""
    tail: OpsTail
    """Sums of the omitted ops. `ops` and `tail` together cover all leaf ops, so their times add up
    to `non_while_duration_ps_sum`."""
    containers: list[Container]
    """All ops that enclose other ops, most time first."""
    peaks_used: PeaksUsed
    """Peak rates of the chip."""


class Answer(Lead, StepAnswer, Fields):
    pass
