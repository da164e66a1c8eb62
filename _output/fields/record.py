"""Fields of `record`."""

from typing import Literal, TypedDict

from _output.fields.common import FileAnswer
from _output.fields.units import AggKeyKind, Clock, Count, Kind, Picoseconds, StepSource

WhyNot = Literal["no_ops", "other_op_count", "other_program", "not_asked"]


class RecordGroup(TypedDict):
    """A group as in [by_source](#by_source), here of all four kinds."""

    kind: Kind
    """Kind of its ops."""
    agg_key: str
    """Key, as in by_source."""
    agg_key_kind: AggKeyKind
    """Kind of the key."""
    frames: list[Count]
    """Its stack as places in the list `frames`, outermost first. Example: `[0, 1, 2, 3]`"""
    source: str | None
    """The `source_inner` of by_source; the first by name if there are several."""
    tf_ops: list[str]
    """Distinct paths of its ops, sorted, at most 32."""
    signatures: list[str]
    """Distinct signatures of its ops, sorted, at most 32.
    Example: `["all-gather.call-done [async-done]", …]`"""
    shapes: list[str]
    """Distinct dtypes and dimensions of their outputs, sorted, at most 32.
    Example: `["bf16[16000,1024]", …]`"""
    kernel: str | None
    """Name of the custom kernel among its ops, the first by name if there are several; null without
    one. Example: `flash_attention`"""
    truncated: bool
    """True if one of the three lists was cut."""
    ops: str
    """Hash of the HLO texts of its ops: equal for equal ops. Example: `bf81ab36e49a9a34`"""


class RecordDevice(TypedDict):
    """A TPU plane that has ops."""

    device: str
    """Name of the plane."""
    device_type: str | None
    """Type of the device, as in every mode of one step."""
    clock: Clock
    """`device` if ops of a used step have times measured by the core, otherwise `trace`."""
    step_source: StepSource | None
    """Where steps come from, as in every mode of one step."""
    program: str
    """Hash of the HLO texts of all used steps, without branches of conditionals: devices of equal
    programs ran the same. Example: `d1695dee8bdd240e`"""


class RecordStep(TypedDict):
    """A step of a device. Columns follow the order of `groups`."""

    device: Count
    """Place in the list `devices`."""
    index: Count
    """Index by time."""
    name: str | None
    """Name of the step's event."""
    used: bool
    """True if there are figures for the step."""
    why_not: WhyNot | None
    """Why a step is not used: `no_ops`; `other_op_count`, the number of ops differs by more than
    2 % from the lower median; `other_program`, an execution of a program with fewer ops;
    `not_asked`, left out by `--steps`."""
    n_xla_ops_events: Count
    """Ops that start in it."""
    duration_ps: Picoseconds
    """Length on the clock of the device, also if it is `not_asked`; for other steps that are not
    used, on the trace's clock."""
    busy_ps: Picoseconds | None
    """As `busy_duration_ps` of every mode of one step; null, like the next five, if the step is not
    used."""
    comm_ps: Picoseconds | None
    """Sum of the rows of `comm_rollup` that are collectives, send and recv."""
    host_ps: Picoseconds | None
    """The row of `comm_rollup` with `waits_for` `host`."""
    wait_ps: Picoseconds | None
    """As `wait_duration_ps`."""
    durs_ps: list[Picoseconds] | None
    """Time of each group; zeros at the end are left out. Example: `[101822873, 57253659, …]`"""
    ns: list[Count] | None
    """Executions of each group; zeros at the end are left out. Example: `[7, 5, …]`"""


class Answer(FileAnswer):
    format: Literal[1]
    """Version of the format of records; a reader refuses others."""
    run: str | None
    """Name of the run's folder, if that is in a folder `profile`. Example: `2026_11_21_00_00_00`"""
    host: str
    """Name of the host: the file's name without `.xplane.pb` or `.xplane.riegeli`; of a merged file
    with several hosts the host's name, or `FILE:NUMBER` if it has none. Records of standard input
    have `-`, and `spread` uses the name of the record's file. Example: `t1v-n-0`"""
    frames: list[str]
    """All different frames, `file:line:column`. Example: `["/home/dev/model/train.py:67:0", …]`"""
    groups: list[RecordGroup]
    """Groups in order of appearance."""
    devices: list[RecordDevice]
    """The TPU planes that have ops."""
    steps: list[RecordStep]
    """Steps by device, then by time."""
