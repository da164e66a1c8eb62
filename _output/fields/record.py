"""Fields of `record`."""

from typing import Literal, TypedDict

from .common import FileAnswer
from .units import AggKeyKind, Bytes, Clock, Count, Kind, Picoseconds, StepSource

WhyNot = Literal["no_ops", "other_op_count", "other_program", "not_asked"]


class RecordGroup(TypedDict):
    """A group, as in [by_source](#by_source). A record contains groups of all four kinds."""

    kind: Kind
    """Kind of the group's ops."""
    agg_key: str
    """Key of the group, as in [by_source](#by_source)."""
    agg_key_kind: AggKeyKind
    """Kind of the group's key."""
    frames: list[Count]
    """Stack of the group as indexes into the list `frames`, outermost first. Example: `[0, 1, 2,
    3]`"""
    source: str | None
    """Source line of the group, as `source_inner` of by_source; if there are several, the
    alphabetically first. Null if unknown."""
    tf_ops: list[str]
    """Distinct paths of the group's ops, up to 32, sorted."""
    signatures: list[str]
    """Distinct signatures of the group's ops, up to 32, sorted. Example: `["all-gather.call-done
    [async-done]", …]`"""
    shapes: list[str]
    """Distinct dtypes and dimensions of the ops' outputs, up to 32, sorted. Example:
    `["bf16[16000,1024]", …]`"""
    kernel: str | None
    """Name of the custom kernel that the group's ops run; if there are several, the alphabetically
    first; null if there is no kernel. Example: `flash_attention`"""
    truncated: bool
    """True if `tf_ops`, `signatures` or `shapes` had more than 32 entries, so some of them are
    omitted."""
    ops: str
    """Hash of the HLO texts of the group's ops. Groups with equal ops have equal hashes. Example:
    `bf81ab36e49a9a34`"""


class RecordDevice(TypedDict):
    """A TPU plane that has ops."""

    device: str
    """Name of the plane."""
    device_type: str | None
    """Type of the device, as in every mode of one step."""
    clock: Clock
    """Clock of the figures: `device` if the core measured the times of at least one op in a step
    that is used or `not_asked`, otherwise `trace`."""
    step_source: StepSource | None
    """Origin of the steps, as in every mode of one step."""
    program: str
    """Hash of the HLO texts of the ops in all steps that are used or `not_asked`, excluding ops in
    branches of conditionals. Devices with equal hashes ran equal programs. Example:
    `d1695dee8bdd240e`"""
    hlo: Count | None
    """Index in the list `programs` of the program that takes the most time in the steps that are
    used or `not_asked`; null if the trace does not contain it."""


class CollectiveFact(TypedDict):
    """Collectives of a program that have the same opcode and `how`, as in [program](#program)."""

    n: Count
    """Number of instructions."""
    bytes: Bytes | None
    """Bytes of the collectives' outputs; null if unknown."""


class KernelFact(TypedDict):
    """Kernels that share a name."""

    n: Count
    """Number of instructions."""
    vmem_used_bytes: Bytes | None
    """Total scoped VMEM that the kernels use; null if unknown."""
    shapes: list[str]
    """Shapes of the kernels' outputs, up to four."""


class ParameterFact(TypedDict):
    """An array that a program is called with."""

    shape: str | None
    """Shape of the array on one device; null if unreadable."""
    sharding: str | None
    """Sharding, as in HLO texts; null for an array without a sharding."""
    donated: bool
    """True if an output may reuse the array's memory."""


class RecordProgram(TypedDict):
    """Facts about a compiled program that `compare` uses to detect changes."""

    fingerprint: str
    """Hash of the optimized HLO in schedule order: opcodes, shapes and layouts, operands by
    position, called computations, constants with their values, replica groups, threads, backend
    configuration, shardings of parameters, aliasing. Names, ids, channels, metadata with source
    lines and the code of kernels are excluded."""
    collective: dict[str, CollectiveFact]
    """Collectives by opcode and `how`, as in [program](#program), for example `all-gather
    async`."""
    kernel: dict[str, KernelFact]
    """Kernels by name."""
    kernel_code: dict[str, str]
    """Hash of each kernel's code, which includes source lines, by kernel name."""
    parameter: dict[str, ParameterFact]
    """Parameters by path, or by number if the path is unknown."""
    donation: Bytes | None
    """Bytes of parameters in HBM whose memory an output reuses; null if unknown."""
    memory: Bytes | None
    """Bytes of HBM in use at the peak, as in [memory](#memory); null without a buffer
    assignment."""
    opcode: dict[str, Count]
    """Number of instructions by opcode. Instructions inside fusions are excluded."""
    fusion: Count
    """Number of fusions."""


class RecordStep(TypedDict):
    """A step of a device. Each entry of `durs_ps` and `ns` belongs to the entry of `groups` at the
    same position."""

    device: Count
    """Index into the list `devices`."""
    index: Count
    """Index of the step in order of time, from 0."""
    name: str | None
    """Name of the step's event; null if it has none."""
    used: bool
    """True if the record has figures for the step."""
    why_not: WhyNot | None
    """Reason why the step is not used; null if it is used. `no_ops`: the step has no ops.
    `other_op_count`: the number of ops differs by more than 2 % from the lower median over the
    steps. `other_program`: the step is an execution of a program with fewer ops, or its
    name differs from the name whose steps have the most ops. `not_asked`:
    `--steps` excludes the step."""
    n_xla_ops_events: Count
    """Number of ops that start in the step."""
    duration_ps: Picoseconds
    """Duration of the step, measured on the device's clock for steps that are used or `not_asked`,
    and on the trace's clock for all others."""
    period_ps: Picoseconds | None
    """Time on the trace's clock from the start of the step to the start of the next step with the
    same name; null if there is no next step. All numbered steps count as having the same name."""
    busy_ps: Picoseconds | None
    """`busy_duration_ps`, as in every mode of one step. `busy_ps` and the following five fields are
    null if the step is not used."""
    comm_ps: Picoseconds | None
    """Total time of collectives, `send` and `recv`, as in `comm_rollup` of summary."""
    host_ps: Picoseconds | None
    """Total time of transfers to and from the host, as `host` in `comm_rollup` of summary."""
    wait_ps: Picoseconds | None
    """`wait_duration_ps`, as in every mode of one step."""
    durs_ps: list[Picoseconds] | None
    """Total duration of each group; zeros at the end of the list are omitted. Example: `[101822873,
    57253659, …]`"""
    ns: list[Count] | None
    """Number of executions of each group; zeros at the end of the list are omitted. Example: `[7,
    5, …]`"""


class Answer(FileAnswer):
    format: Literal[1]
    """Version of the record format; a reader rejects other versions."""
    run: str | None
    """Name of the run's folder, if the run is in a folder named `profile`; otherwise null. Example:
    `2026_11_21_00_00_00`"""
    host: str
    """Name of the host: the file's name without `.xplane.pb` or `.xplane.riegeli`. In a merged file
    with several hosts: the host's name, or `FILE:NUMBER` for a host without a name. If the trace
    was read from standard input, the host is `-`, which `spread` replaces with the name of the
    record's file. Example: `t1v-n-0`"""
    frames: list[str]
    """All distinct frames, as `file:line:column`. Example: `["/home/dev/model/train.py:67:0",
    …]`"""
    groups: list[RecordGroup]
    """Groups in order of appearance."""
    programs: list[RecordProgram]
    """Facts about the compiled programs."""
    devices: list[RecordDevice]
    """The TPU planes that have ops."""
    steps: list[RecordStep]
    """Steps of all devices, ordered by device, then by time."""
