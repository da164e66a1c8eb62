"""Fields of `record`."""

from typing import Literal, TypedDict

from .common import FileAnswer
from .units import AggKeyKind, Bytes, Clock, Count, Kind, Picoseconds, StepSource

WhyNot = Literal["no_ops", "other_op_count", "other_program", "not_asked"]


class RecordGroup(TypedDict):
    """A group as in [by_source](#by_source); records have groups of all four kinds."""

    kind: Kind
    """Kind of the group's ops."""
    agg_key: str
    """Key of the group, as in by_source."""
    agg_key_kind: AggKeyKind
    """Kind of the group's key."""
    frames: list[Count]
    """Stack of the group as indexes into the list `frames`, outermost first. Example: `[0, 1, 2,
    3]`"""
    source: str | None
    """Source line as `source_inner` of by_source; if there are several lines, the first by name."""
    tf_ops: list[str]
    """Distinct paths of the group's ops, sorted, at most 32."""
    signatures: list[str]
    """Distinct signatures of the group's ops, sorted, at most 32.
    Example: `["all-gather.call-done [async-done]", …]`"""
    shapes: list[str]
    """Distinct dtypes and dimensions of the ops' outputs, sorted, at most 32.
    Example: `["bf16[16000,1024]", …]`"""
    kernel: str | None
    """Name of the custom kernel that the group's ops run, or the first name if there are several
    kernels; null without a kernel. Example: `flash_attention`"""
    truncated: bool
    """True if `tf_ops`, `signatures` or `shapes` had more than 32 entries, so that some are
    omitted."""
    ops: str
    """Hash of the HLO texts of the group's ops; groups of equal ops have equal hashes. Example:
    `bf81ab36e49a9a34`"""


class RecordDevice(TypedDict):
    """A TPU plane that has ops."""

    device: str
    """Name of the plane."""
    device_type: str | None
    """Type of the device, as in every mode of one step."""
    clock: Clock
    """`device` if ops of a used step have times measured by the core, otherwise the value is
    `trace`."""
    step_source: StepSource | None
    """Origin of the steps, as in every mode of one step."""
    program: str
    """Hash of the HLO texts of all used steps, without branches of conditionals. Devices with equal
    hashes ran equal programs. Example: `d1695dee8bdd240e`"""
    hlo: Count | None
    """Index in the list `programs` of the program that takes most time in the used steps; null if
    the trace does not have the program."""


class CollectiveFact(TypedDict):
    """Collectives of a program that have the same opcode and run in the same way."""

    n: Count
    """Instructions."""
    bytes: Bytes | None
    """Bytes of the collectives' outputs; null if unknown."""


class KernelFact(TypedDict):
    """Kernels that share a name."""

    n: Count
    """Instructions."""
    vmem_used_bytes: Bytes | None
    """Total scoped VMEM that the kernels use; null if unknown."""
    shapes: list[str]
    """Shapes of the kernels' outputs, at most four."""


class ParameterFact(TypedDict):
    """An array that a program is called with."""

    shape: str | None
    """Shape of the array on one device; null if unreadable."""
    sharding: str | None
    """Sharding as in HLO texts; null for an array without a sharding."""
    donated: bool
    """True if an output may take over the array's memory."""


class RecordProgram(TypedDict):
    """Facts about a compiled program, by which `compare` recognises changes."""

    fingerprint: str
    """Hash of the optimized HLO in schedule order: opcodes, shapes and layouts, operands by
    position, called computations, constants with their values, replica groups, threads, backend
    configuration, shardings of parameters, aliasing. Names, ids, channels, metadata with source
    lines and the code of kernels are left out."""
    collective: dict[str, CollectiveFact]
    """Collectives by opcode and way of running, such as `all-gather async`."""
    kernel: dict[str, KernelFact]
    """Kernels by name."""
    kernel_code: dict[str, str]
    """Hash of the code of each kernel; the code includes source lines."""
    parameter: dict[str, ParameterFact]
    """Parameters by path, or by number if the path is unknown."""
    donation: Bytes | None
    """Bytes of the parameters in HBM with memory that outputs take over; null if unknown."""
    memory: Bytes | None
    """The peak of the HBM, as in [memory](#memory); null without a buffer assignment."""
    opcode: dict[str, Count]
    """Number of instructions by opcode; instructions inside fusions are not counted."""
    fusion: Count
    """Fusions."""


class RecordStep(TypedDict):
    """A step of a device; the lists of figures have one entry for each entry of `groups`."""

    device: Count
    """Index into the list `devices`."""
    index: Count
    """Index of the step by time."""
    name: str | None
    """Name of the step's event."""
    used: bool
    """True if there are figures for the step."""
    why_not: WhyNot | None
    """Reason why the step is not used. `no_ops` means that the step has no ops. `other_op_count`
    means that the number of ops differs by more than 2 % from the lower median. `other_program`
    means that the step is an execution of a program with fewer ops. `not_asked` means that
    `--steps` leaves the step out."""
    n_xla_ops_events: Count
    """Number of ops that start in the step."""
    duration_ps: Picoseconds
    """Length of the step, measured on the device's clock for steps that are used or `not_asked`,
    and on the trace's clock for all others."""
    period_ps: Picoseconds | None
    """Time on the trace's clock from the start of the step to the start of the next step of the
    same name; null without a next step. All numbered steps count as having the same name."""
    busy_ps: Picoseconds | None
    """`busy_duration_ps`, as in every mode of one step. `busy_ps` and the next five fields are null
    if the step is not used."""
    comm_ps: Picoseconds | None
    """Total time of the rows of `comm_rollup` for collectives, `send` and `recv`."""
    host_ps: Picoseconds | None
    """Time in the row of `comm_rollup` with `waits_for` `host`."""
    wait_ps: Picoseconds | None
    """`wait_duration_ps`, as in every mode of one step."""
    durs_ps: list[Picoseconds] | None
    """Total duration of each group; zeros at the end of the list are left out. Example:
    `[101822873, 57253659, …]`"""
    ns: list[Count] | None
    """Number of executions of each group; zeros at the end of the list are left out. Example: `[7,
    5, …]`"""


class Answer(FileAnswer):
    format: Literal[1]
    """Version of the record format; a reader refuses other versions."""
    run: str | None
    """Name of the run's folder, if the run is in a folder named `profile`. Example:
    `2026_11_21_00_00_00`"""
    host: str
    """Name of the host: the file's name without `.xplane.pb` or `.xplane.riegeli`. In a merged file
    with several hosts: the host's name, or `FILE:NUMBER` for a host without a name. If the trace
    was read from standard input, the host is `-`, which `spread` replaces by the name of the
    record's file. Example: `t1v-n-0`"""
    frames: list[str]
    """All distinct frames, as `file:line:column`. Example: `["/home/dev/model/train.py:67:0",
    …]`"""
    groups: list[RecordGroup]
    """Groups in order of appearance."""
    programs: list[RecordProgram]
    """Digests of compiled programs."""
    devices: list[RecordDevice]
    """The TPU planes that have ops."""
    steps: list[RecordStep]
    """Steps of all devices, ordered by device, then by time."""
