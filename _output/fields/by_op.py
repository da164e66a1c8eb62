"""Fields of `by_op`."""

from typing import TypedDict

from _output.fields.common import Lead, StepAnswer
from _output.fields.rows import ChipFields, Durations, InLoop, Line, PeaksUsed
from _output.fields.units import (
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
    """An op: a name in a program. Facts are those of its first execution, figures are of all
    executions in the step."""

    hlo_op: str
    """Name without `%`; the text in its place if the op has no name."""
    program_id: str | None
    """Id of its program, an unsigned decimal; null if ops carry no program id."""
    hlo_category: str
    """Category."""
    kind: KindOrContainer
    """Kind of the category."""
    n_executions: Count
    """Executions."""
    pct_of_step: Percent | None
    """Time in percent of the step."""
    phase: Phase
    """Phase, read from its names."""
    scope: str | None
    """Scope, as in [by_scope](#by_scope); null if unknown."""
    tf_op: str | None
    """Path, as in the trace."""
    shape: str | None
    """Shape of the output, with layout."""
    dtype: Dtype
    """Dtype that decides the peak."""
    dtype_source: DtypeSource
    """Origin of `dtype`, as in [roofline](#roofline)."""
    operand_dtypes: list[str] | None
    """HLO dtypes that the op's dots read, each one once: those of their operands in memory, before
    a fusion converts them. An operand that the fusion computes counts as it is multiplied. Null
    without a dot or a program. Example: `["bf16"]`"""
    cost_source: CostSource | None
    """Origin of flops and bytes, as in [roofline](#roofline); null for a custom call of
    unknown flops."""
    flops: Flops | None
    """Flops of one execution."""
    bytes_accessed: Bytes | None
    """Bytes that one execution reads and writes, in all memories."""
    hbm_bytes: Bytes | None
    """Bytes that one execution moves to and from HBM."""
    achieved_tflops: Tflops | None
    """`flops` over `avg_dur_ps`; null if they are unknown or zero. Null for containers, as their
    counts do not include how often the body runs."""
    achieved_gbps: Gbps | None
    """`hbm_bytes` (if unknown, `bytes_accessed`) over `avg_dur_ps`; null in the same cases."""
    at_roof_ps: Picoseconds | None
    """Time that the chip needs at least, as in [bottleneck](#bottleneck); null if unknown for any
    of its executions."""
    lost_ps: Picoseconds | None
    """Time beyond `at_roof_ps`."""
    kernel: str | None
    """Name of a Pallas kernel, or of a custom call with a declared cost."""
    waits_for: str | None
    """The operation that the core waits for, as in `comm_rollup` of summary; null if it does not
    wait."""


OpClassed = TypedDict("OpClassed", {"class": OpClass})
"""Class, as in [bottleneck](#bottleneck)."""


class Op(OpFields, OpClassed):
    """A leaf op."""

    rank: Count
    """Place by time, from 1."""


class OpsTail(TypedDict):
    """The ops that the list leaves out."""

    n_ops_omitted: Count
    """Ops beyond `--top`."""
    dur_ps: Picoseconds
    """Their time."""


class Container(TypedDict):
    """An op that encloses other ops."""

    hlo_op: str
    """Name."""
    hlo_category: str
    """`while`, `conditional`, `call` or `megacore fusion`."""
    n_executions: Count
    """Executions."""
    total_dur_ps: Picoseconds
    """Time, including everything inside."""


class Instruction(TypedDict):
    """An instruction of the program."""

    name: str
    """Name of the instruction."""
    opcode: str
    """Opcode."""
    shape: str | None
    """Dtype and dimensions of the output, tuples in parentheses; null if unknown."""
    source_inner: str | None
    """Source line."""


class CalledInstruction(Instruction):
    """An instruction of a called computation."""

    operands: list[str]
    """Names of its operands."""


class Called(TypedDict):
    """A computation that an op calls: a fusion's body, a loop's body or condition."""

    name: str
    """Name of the computation."""
    n_instructions: Count
    """Number of its instructions."""
    instructions: list[CalledInstruction]
    """The first 200 instructions, in order."""


class OpInProgram(TypedDict):
    """An op in its program."""

    opcode: str
    """Opcode."""
    computation: str
    """Computation that contains the op."""
    operands: list[Instruction]
    """The first 50 operands, in order."""
    users: list[Instruction]
    """The first 50 instructions that use the result, in the order of the computation."""
    chain: list[str]
    """For an asynchronous op the names of start, updates and done, as far as they are found;
    otherwise empty."""
    called: list[Called]
    """The first 20 computations that the op calls itself."""


DetailClassed = TypedDict("DetailClassed", {"class": OpClass | None})
"""Class, as in [bottleneck](#bottleneck); null for a container."""


class OpDetail(OpFields, DetailClassed):
    """One op, or container, with everything known about it."""

    rank: Count | None
    """Place by time among all leaf ops; null for a container."""
    text: str
    """HLO text."""
    source_stack: str | None
    """Stack, outermost frame first."""
    executions: list[list[Picoseconds]]
    """Start and duration of the first 1000 executions, ordered by start, on the scale of
    `step_window_ps`."""
    n_executions_omitted: Count
    """Executions that `executions` leaves out."""
    program: OpInProgram | None
    """The op in its program; null if the program, or an instruction of this name, is missing."""


class OpIfAsked(TypedDict, total=False):
    op: OpDetail
    """The op named by `--op`; only with that option."""


class Fields(OpIfAsked, ChipFields):
    ops: list[Op]
    """The leaf ops that take most time, at most `--top`; ties by name."""
    tail: OpsTail
    """Sums of the omitted ops. Together with `ops` they are all leaf ops
    (`non_while_duration_ps_sum`)."""
    containers: list[Container]
    """All ops that enclose other ops, most time first."""
    peaks_used: PeaksUsed
    """The peaks."""


class Answer(Lead, StepAnswer, Fields):
    pass
