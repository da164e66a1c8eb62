"""Fields that all answers, or all answers about one step, have."""

from typing import Literal, TypedDict

from .units import (
    Clock,
    Count,
    Percent,
    Picoseconds,
    StackOrder,
    StepSource,
)


class OkAnswer(TypedDict):
    status: Literal["ok"]
    """The value `ok` means that the object is an answer."""
    mode: str
    """Name of the mode."""
    schema_version: Literal["3.1"]
    """Version of the printed fields. The major number changes when a field is removed or changes
    its meaning or type, the minor number when a field is added."""
    profile_dir: str
    """PROFILE as given on the command line."""
    notes: list[str]
    """Choices, assumptions, omissions and doubts that concern the figures, warnings first. Read the
    notes first.
    Example: `["using run 2026_11_21_00_00_00", "auto-picked the busiest step (index 1, …"]`"""


class NextStep(TypedDict):
    """A command that is worth running next."""

    why: str
    """The question that the command answers.
    Example: `why the device is idle in the whole capture`"""
    command: str
    """A complete command line, quoted for a shell, with the PROFILE, device, step and peaks of the
    command that was run."""


class Lead(TypedDict):
    """The most important facts of an answer."""

    headline: str
    """One or two sentences with the figures that matter most, at most 240 characters."""
    next_steps: list[NextStep]
    """Up to three commands that the answer suggests; empty if PROFILE is standard input."""


class FileAnswer(OkAnswer):
    xplane_file: str
    """Name of the trace file that was read."""


Reason = Literal[
    "no_xplane_pb",
    "device_not_found",
    "no_xla_ops_line",
    "empty_xla_ops_line",
    "no_program",
    "no_buffer_assignment",
    "no_such_path",
    "unreadable_xplane_pb",
    "unreadable_record",
    "plane_not_found",
    "line_not_found",
    "step_not_found",
    "host_not_found",
    "kernel_not_found",
    "duplicate_host",
    "unreadable_flags",
    "cant_write",
    "op_not_found",
    "scope_not_found",
    "protobuf_not_installed",
    "missing_dependency",
    "bad_arguments",
]


class AbsentFields(TypedDict):
    """The object that is printed if there is no answer."""

    status: Literal["absent"]
    """The value `absent` means that there is no answer."""
    reason: Reason
    """Why there is no answer; see the table of reasons."""
    mode: str | None
    """The mode that was asked for; null if the command line could not be parsed."""
    schema_version: Literal["3.1"]
    """Version of the printed fields, as in every answer."""
    profile_dir: str | None
    """PROFILE as given; null if the command line could not be parsed."""
    device: str | None
    """The device that was asked for; null if the command line could not be parsed, and for modes
    that read all devices."""
    notes: list[str]
    """Choices, assumptions and omissions that the tool made before it failed."""


class AbsentAnswer(AbsentFields, total=False):
    """The object that is printed if there is no answer."""

    detail: str
    """Details that `reason` does not give. For a damaged file: the file's name and the
    byte offset of the damage, in the decompressed stream for gzip data, in the file for a
    `.riegeli`."""
    available_devices: list[str]
    """With `device_not_found`: the device planes of the file; in `spread` the TPUs that were
    read."""
    available_lines: list[str]
    """With `no_xla_ops_line` and `line_not_found`: the lines of the plane."""
    available_planes: list[str]
    """With `plane_not_found`: the planes of the file."""
    available_steps: list[str | None]
    """With `step_not_found`: the names of the steps; null for a step without a name."""
    available_hosts: list[str]
    """With `host_not_found`: the names that `--host` accepts."""
    available_kernels: list[str]
    """With `kernel_not_found`: the kernels of the step."""
    available_modes: dict[str, str]
    """With `bad_arguments` if `--mode` is missing, or if the mode given to `--schema` is unknown:
    each mode and the question that the mode answers."""
    available_ops: list[str]
    """With `op_not_found`: up to 20 names of ops. Names that contain the text come first, then the
    most similar names."""
    available_scopes: list[str]
    """With `scope_not_found`: up to 20 scopes. Scopes that contain the text come first, then the
    most similar scopes."""


class ProgramOfStep(TypedDict):
    """The compiled program that takes most of the step's time."""

    name: str | None
    """Name of the program in the trace file; null if the file does not have this program.
    Example: `jit_train_step(9646411105960254074)`"""
    program_id: str | None
    """Id of the program, an unsigned decimal; null if ops carry no program id."""
    n_programs: Count
    """Number of programs that the step's ops belong to."""
    hlo: bool
    """True if the trace file contains the program's HLO. Without the HLO, figures that need the HLO
    are null."""


class Totals(TypedDict):
    """Sums over the step, equal in all modes. An op counts with its full duration in the step in
    which the op starts. Facts about all executions of an op (flops, bytes, lines, category and
    others) come from the op's metadata in the trace. A fact that the metadata lacks comes from the
    first execution in the step that has the fact. Flops and bytes on the executions of a custom
    call are ignored, because they do not include the loops of the call."""

    n_events_total: Count
    """Number of executions of leaf ops of all four kinds."""
    n_events_compute: Count
    """Number of executions of kind compute."""
    n_events_data_move: Count
    """Number of executions of kind data_move."""
    n_events_comm: Count
    """Number of executions of kind comm."""
    n_events_other: Count
    """Number of executions of kind other, which is bookkeeping and unknown categories."""
    n_events_container: Count
    """Number of executions of ops that enclose other ops, such as loops."""
    n_events_unresolved: Count
    """Number of events that were dropped because they have no metadata, no start time (aggregated
    events) or a negative duration. A note gives the number of dropped events for each reason."""
    compute_duration_ps: Picoseconds
    """Total duration of kind compute."""
    data_move_duration_ps: Picoseconds
    """Total duration of kind data_move."""
    comm_duration_ps: Picoseconds
    """Total duration of kind comm."""
    other_duration_ps: Picoseconds
    """Total duration of kind other."""
    non_while_duration_ps_sum: Picoseconds
    """Sum of the durations of the four kinds. Since ops can overlap, this sum is not wall-clock
    time."""
    while_container_duration_ps: Picoseconds
    """Total duration of `while` ops, loop bodies included."""
    while_pct_of_step: Percent | None
    """`while_container_duration_ps` as a percentage of the step's duration; nested loops can exceed
    100."""
    container_durations_ps: dict[str, Picoseconds]
    """Total duration of containers by category. Example: `{"while": 15567309124}`"""
    container_self_duration_ps: Picoseconds
    """Time inside containers during which no leaf op runs."""
    busy_duration_ps: Picoseconds
    """Wall-clock time during which at least one leaf op runs; ops that wait count as running."""
    idle_duration_ps: Picoseconds
    """Time in the step during which no leaf op runs."""
    idle_pct_of_step: Percent | None
    """`idle_duration_ps` as a percentage of the step's duration."""
    wait_duration_ps: Picoseconds
    """Time in ops with a category that ends in `-done`: the core waits for an asynchronous
    operation."""
    wait_pct_of_step: Percent | None
    """`wait_duration_ps` as a percentage of the step's duration."""
    agg_key_coverage: dict[str, Count]
    """Number of executions by kind of the group's key, which is `stack`, `tf_op` or `no_source`.
    Example: `{"stack": 733, "tf_op": 13, "no_source": 745}`"""
    unknown_categories: dict[str, Count]
    """Number of executions of categories that the tool does not know, by category; `<none>` for ops
    without a category."""


class StepFields(FileAnswer):
    """The fields of every mode of one step."""

    device: str
    """Name of the device's plane. Example: `/device:TPU:0`"""
    device_type: str | None
    """Type of the device as the trace has it, such as `TPU v7x`."""
    clock: Clock
    """Clock of the step's times, which is `device` if the core measured the times of at least one
    op of the step, otherwise `trace`."""
    stack_order: StackOrder | None
    """Order of the frames in most stacks of the step, as the trace lists the frames; null without
    stacks. Printed stacks always have the outermost frame first."""
    step_source: StepSource | None
    """Origin of the steps, which is `steps` for steps of the profiler, or `modules` for executions
    of programs if the profiler wrote no steps. Null with `--step all`, and if the trace has neither
    steps nor modules."""
    program: ProgramOfStep
    """The compiled program that takes most of the step's time."""
    step_id: Count | None
    """Index of the step by time; null if `step_source` is null."""
    step_name: str | None
    """Name of the step's event. Example: `101`"""
    step_window_ps: list[Picoseconds]
    """Start and end of the step, on the clock that the field `clock` names. Without a step: the
    first start and the last end of all ops. Example: `[5371555615367, 5389864092681]`"""
    step_duration_ps: Picoseconds
    """Length of the step."""


class StepAnswer(StepFields):
    """The fields of every mode of one step."""

    totals: Totals
    """Sums over the step."""
