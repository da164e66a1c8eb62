"""Fields of `memory`."""

from typing import Literal, TypedDict

from _output.fields.common import AbsentAnswer, Lead, StepAnswer
from _output.fields.units import (
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
    """The peak by kind of buffer."""

    parameter: Bytes
    """Arguments of the program: weights, optimizer state, a batch; also if results are written over
    them."""
    output: Bytes
    """Results with memory of their own."""
    constant: Bytes
    """Constants."""
    temporary: Bytes
    """Activations, gradients, copies."""


class PeakAt(TypedDict):
    """The instruction at which the peak is first reached."""

    hlo_op: str
    """Name of the instruction."""
    source_inner: str | None
    """Likely line of the instruction."""
    source_is: SourceIs | None
    """Origin of the line, as in `likely_sources`."""
    tf_op: str | None
    """Path of the instruction."""
    first_start_ps: Picoseconds | None
    """First start in the step, on the scale of `step_window_ps`; null if it does not run under this
    name."""


class Buffer(TypedDict):
    """A buffer that is live at the peak."""

    rank: Count
    """Place by size, from 1."""
    bytes: Bytes
    """Size, with the padding of tiles."""
    padding_bytes: Bytes | None
    """The part beyond dimensions times element size; null if it is not an array, or smaller than
    that."""
    pct_of_peak: Percent | None
    """Size in percent of the peak."""
    kind: BufferKind
    """Kind as in `by_kind`; the first one if there are several."""
    shape: str | None
    """Dtype and dimensions; null for a tuple, which is a table of pointers.
    Example: `f32[4,2047,16000]`"""
    hlo_op: str | None
    """Name of the instruction that outputs the buffer. If several share the memory: the parameter,
    otherwise the largest one. Null if the program has no such instruction.
    Example: `fusion.115`"""
    opcode: str | None
    """Opcode of the instruction."""
    shape_index: list[Count] | None
    """Place of the buffer in the instruction's output, by indexes in nested tuples.
    Example: `[0]`"""
    parameter_number: Count | None
    """Number of the parameter, from 0; null for other buffers."""
    tf_op: str | None
    """Path of the instruction; for a parameter the path of the argument, such as `params['w']:`"""
    source_inner: str | None
    """Likely line of the instruction."""
    source_is: SourceIs | None
    """Origin of the line, as in `likely_sources`; never `own` for a parameter."""
    source_stack: str | None
    """Stack of the instruction itself."""


class BufferSum(TypedDict):
    bytes: Bytes
    """Bytes that are live at the peak."""
    n_buffers: Count
    """Number of buffers."""


class SourceSum(BufferSum):
    """The buffers of one source line."""

    source_inner: str | None
    """The line; null for buffers without one."""


class PathSum(BufferSum):
    """The buffers of one path."""

    tf_op: str | None
    """The path; null for buffers without one."""


class OpcodeSum(BufferSum):
    """The buffers of one opcode."""

    opcode: str | None
    """The opcode; null for buffers without one."""


class ArgumentSum(BufferSum):
    """The buffers of one argument."""

    argument: str | None
    """First part of a parameter's path: `params` for `params['w']`. Null for everything that is not
    a parameter. Example: `w`"""


class BuffersTail(TypedDict):
    """The buffers that the list leaves out."""

    n_buffers_omitted: Count
    """Buffers beyond `--top`."""
    bytes: Bytes
    """Their size."""


class Runtime(TypedDict):
    """The allocator's reports for this device during the capture."""

    capacity_bytes: Bytes | None
    """Largest sum of reserved, allocated and available bytes."""
    peak_bytes: Bytes | None
    """Largest sum of reserved and allocated bytes."""
    peak_at_ps: BigPicoseconds | None
    """Time at which the peak was first reached, absolute, on the trace's clock."""
    peak_reserved_bytes: Bytes | None
    """Bytes reserved by programs at the peak."""
    peak_allocated_bytes: Bytes | None
    """Bytes allocated for arrays at the peak."""
    min_available_bytes: Bytes | None
    """Smallest number of available bytes."""
    max_fragmentation: Fraction | None
    """Worst fragmentation reported; 0 means one free block."""
    n_events: Count
    """Number of allocation and deallocation events."""


class Fields(TypedDict):
    peak_bytes: Bytes
    """Bytes that are live at the peak. A note says if this is an upper bound."""
    reserved_bytes: Bytes
    """Bytes that the program reserves while it runs."""
    fragmentation_bytes: Bytes
    """The difference: never live at once, or lost between buffers."""
    padding_bytes: Bytes | None
    """Bytes at the peak that tiles add to arrays: the sum over the buffers with known padding; null
    if there is none."""
    by_kind: ByKind
    """The peak by kind of buffer."""
    other_spaces: dict[str, Bytes]
    """Bytes of the program's allocations in other memory spaces: `1` is VMEM, `5` the host's
    memory. Example: `{"1": 67043328, …}`"""
    peak_at: PeakAt | None
    """The instruction at which the peak is first reached; null if the program has no record of
    temporary buffers."""
    buffers: list[Buffer]
    """The buffers that are live at the peak, largest first, at most `--top`."""
    by_source: list[SourceSum]
    """All of the peak by line, most bytes first; buffers without a line come last."""
    by_op_name: list[PathSum]
    """All of the peak by path, which names the model's modules."""
    by_opcode: list[OpcodeSum]
    """All of the peak by opcode."""
    by_argument: list[ArgumentSum]
    """All of the peak by argument of the program."""
    tail: BuffersTail
    """Sums of the omitted buffers."""
    runtime: Runtime | None
    """The allocator's reports for this device during the capture, from the host's plane; null
    if it reported nothing. Programs reserve their temporaries; arguments and results are arrays and
    count as allocated."""


class Answer(Lead, StepAnswer, Fields):
    pass


class Absent(AbsentAnswer, total=False):
    """The object that is printed instead of an answer."""

    runtime: Runtime | None
    """As in the answer, if the device was found: the allocator's report needs no program."""
