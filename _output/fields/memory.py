"""Fields of `memory`."""

from typing import Literal, TypedDict

from .common import AbsentAnswer, Lead, StepAnswer
from .units import (
    BigPicoseconds,
    Bytes,
    Count,
    Fraction,
    Percent,
    Picoseconds,
    SourceIs,
)

BufferKind = Literal["parameter", "output", "constant", "temporary"]


class ByKind(TypedDict):
    """Bytes at the peak by kind of buffer."""

    parameter: Bytes
    """Arguments of the program, such as weights, optimizer state and a batch, including arguments
    that results overwrite."""
    output: Bytes
    """Results of the program that have their own memory."""
    constant: Bytes
    """Constants of the program."""
    temporary: Bytes
    """Temporary buffers, such as activations, gradients and copies."""


class PeakAt(TypedDict):
    """The instruction at which the peak is first reached."""

    hlo_op: str
    """Name of the instruction."""
    source_inner: str | None
    """Likely source line of the instruction; null if unknown."""
    source_is: SourceIs | None
    """Relation of the line to the instruction, as in `likely_sources`."""
    tf_op: str | None
    """Path of the instruction; null if it has none."""
    first_start_ps: Picoseconds | None
    """First start of the instruction in the step, on the same time scale as `step_window_ps`; null
    if the trace has no op of this name."""


class Buffer(TypedDict):
    """A buffer that is live at the peak."""

    rank: Count
    """Rank among the buffers by size, from 1."""
    bytes: Bytes
    """Size of the buffer, including the padding of tiles."""
    padding_bytes: Bytes | None
    """Size of the buffer minus the product of its dimensions and element size; null if the buffer
    is not an array or is smaller than this product."""
    pct_of_peak: Percent | None
    """`bytes` as a percentage of `peak_bytes`."""
    kind: BufferKind
    """Kind of the buffer, as in `by_kind`; a buffer of several kinds has the kind that `by_kind`
    lists first."""
    shape: str | None
    """Dtype and dimensions of the array; null for a tuple, which is a table of pointers.
    Example: `f32[4,2047,16000]`"""
    hlo_op: str | None
    """Name of the instruction that outputs the buffer. If several instructions share the memory,
    this is the parameter or, if there is none, the instruction with the largest output. Null if the
    program has no such instruction. Example: `fusion.115`"""
    opcode: str | None
    """Opcode of the instruction; null if there is none."""
    shape_index: list[Count] | None
    """Position of the buffer in the instruction's output, as indexes into nested tuples. Example:
    `[0]`"""
    parameter_number: Count | None
    """Index of the parameter, from 0; null for buffers that are not parameters."""
    tf_op: str | None
    """Path of the instruction; for a parameter, the path of the argument, such as `params['w']:`"""
    source_inner: str | None
    """Likely source line of the instruction; null if unknown."""
    source_is: SourceIs | None
    """Relation of the line to the instruction, as in `likely_sources`; never `own` for a
    parameter."""
    source_stack: str | None
    """Stack of the instruction itself; null if it has none."""


class BufferSum(TypedDict):
    bytes: Bytes
    """Total size of the buffers that are live at the peak."""
    n_buffers: Count
    """Number of buffers that are live at the peak."""


class SourceSum(BufferSum):
    """The buffers with the same source line."""

    source_inner: str | None
    """Source line of the buffers; null for buffers without a line."""


class PathSum(BufferSum):
    """The buffers with the same path."""

    tf_op: str | None
    """Path of the buffers; null for buffers without a path."""


class OpcodeSum(BufferSum):
    """The buffers with the same opcode."""

    opcode: str | None
    """Opcode of the buffers; null for buffers without an opcode."""


class ArgumentSum(BufferSum):
    """The buffers of one argument of the program."""

    argument: str | None
    """First part of a parameter's path, such as `params` for `params['w']`. Null for buffers that
    are not parameters. Example: `w`"""


class BuffersTail(TypedDict):
    """Buffers that `--top` omits."""

    n_buffers_omitted: Count
    """Number of omitted buffers."""
    bytes: Bytes
    """Total size of the omitted buffers."""


class Runtime(TypedDict):
    """The allocator's reports for this device during the capture."""

    capacity_bytes: Bytes | None
    """Largest sum of reserved, allocated and available bytes during the capture; null if
    unknown."""
    peak_bytes: Bytes | None
    """Largest sum of reserved and allocated bytes during the capture; null if unknown."""
    peak_at_ps: BigPicoseconds | None
    """Absolute time on the trace's clock at which the peak was first reached; null if unknown."""
    peak_reserved_bytes: Bytes | None
    """Bytes reserved by programs at the peak; null if unknown."""
    peak_allocated_bytes: Bytes | None
    """Bytes allocated for arrays at the peak; null if unknown."""
    min_available_bytes: Bytes | None
    """Smallest number of available bytes during the capture; null if unknown."""
    max_fragmentation: Fraction | None
    """Largest reported fragmentation; 0 means that the free memory is a single block. Null if
    unknown."""
    n_events: Count
    """Number of allocation and deallocation events."""


class Fields(TypedDict):
    peak_bytes: Bytes
    """Bytes that are live at the peak. A note reports if `peak_bytes` is only an upper bound."""
    reserved_bytes: Bytes
    """Bytes of HBM that the program reserves while it runs."""
    fragmentation_bytes: Bytes
    """`reserved_bytes` minus `peak_bytes`: reserved memory that no buffer uses at the peak."""
    padding_bytes: Bytes | None
    """Total `padding_bytes` of the buffers that are live at the peak and have known padding; null
    if no buffer has known padding."""
    by_kind: ByKind
    """Bytes at the peak by kind of buffer."""
    other_spaces: dict[str, Bytes]
    """Bytes of the program's allocations in memory spaces other than HBM, by number of the memory
    space, where `1` is VMEM and `5` is host memory. Example: `{"1": 67043328, …}`"""
    peak_at: PeakAt | None
    """The instruction at which the peak is first reached; null if the program does not describe its
    temporary buffers."""
    buffers: list[Buffer]
    """The buffers that are live at the peak, up to `--top` rows, largest first."""
    by_source: list[SourceSum]
    """All buffers that are live at the peak, by source line, most bytes first; buffers without a
    line come last."""
    by_op_name: list[PathSum]
    """All buffers that are live at the peak, by path, which contains the names of the model's
    modules."""
    by_opcode: list[OpcodeSum]
    """All buffers that are live at the peak, by opcode."""
    by_argument: list[ArgumentSum]
    """All buffers that are live at the peak, by argument of the program."""
    tail: BuffersTail
    """Sums of the omitted buffers."""
    runtime: Runtime | None
    """The allocator's reports for this device during the capture, from the host's plane; null if
    the allocator reported nothing. Temporary buffers of programs count as reserved; arguments and
    results are arrays and count as allocated."""


class Answer(Lead, StepAnswer, Fields):
    pass


class Absent(AbsentAnswer, total=False):
    """The object that is printed instead of an answer."""

    runtime: Runtime | None
    """The field `runtime` as in an answer; printed only if the device was found. The allocator's
    reports do not require a program."""
