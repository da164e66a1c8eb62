"""Fields of all answers, and of all answers about one step."""

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
    """Always `ok`. If there is no answer, `status` is `absent` instead."""
    mode: str
    """Name of the mode."""
    schema_version: Literal["4.0"]
    """Version of the printed fields. The major number is raised if a field is removed, or if its
    meaning or type changes. The minor number is raised if a field is added."""
    profile_dir: str
    """PROFILE as given on the command line."""
    notes: list[str]
    """Notes about choices, assumptions, omissions and doubtful figures, warnings first. Read the
    notes before the figures. Example: `["auto-picked the busiest step (index 1, …"]`"""


class NextStep(TypedDict):
    """A suggested next command."""

    why: str
    """The question that the command answers.
    Example: `why the device is idle in the whole capture`"""
    command: str
    """Complete command line, quoted for a shell. The command has the same PROFILE and host as the
    command that printed this answer, and, if its mode accepts them, the same device, step (or
    `--step all`) and peaks."""


class Lead(TypedDict):
    """The most important figures of an answer, and the commands to run next."""

    headline: str
    """A few sentences with the most important figures, up to 240 characters."""
    next_steps: list[NextStep]
    """Up to three commands to run next; empty if PROFILE is standard input."""


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
    """The object that is printed instead of an answer."""

    status: Literal["absent"]
    """Always `absent`, which means that there is no answer."""
    reason: Reason
    """Reason why there is no answer; see the table of reasons."""
    mode: str | None
    """Requested mode; null if the command line could not be parsed."""
    schema_version: Literal["4.0"]
    """Version of the printed fields, as in every answer."""
    profile_dir: str | None
    """PROFILE as given on the command line; null if the command line could not be parsed."""
    device: str | None
    """Requested device; null for modes that read all devices, and if the command line could not be
    parsed."""
    notes: list[str]
    """Notes about choices, assumptions and omissions that the tool made before it failed."""


class AbsentAnswer(AbsentFields, total=False):
    """The object that is printed instead of an answer."""

    detail: str
    """Explanation of the `reason`. For a damaged file, the file name and the byte offset of the
    damage. For gzip data, the offset refers to the decompressed data; for a `.riegeli`, to the file
    as stored."""
    available_devices: list[str]
    """With `device_not_found`: the device planes in the file; in `spread`, the TPUs that were
    read."""
    available_lines: list[str]
    """With `no_xla_ops_line` and `line_not_found`: the lines in the plane."""
    available_planes: list[str]
    """With `plane_not_found`: the planes in the file."""
    available_steps: list[str | None]
    """With `step_not_found`: the names of the steps; null for a step without a name."""
    available_hosts: list[str]
    """With `host_not_found`: the names that `--host` accepts."""
    available_kernels: list[str]
    """With `kernel_not_found`: the kernels of the step."""
    available_ops: list[str]
    """With `op_not_found`: up to 20 op names. Names that contain the given text come first,
    followed by the most similar names."""
    available_scopes: list[str]
    """With `scope_not_found`: up to 20 scopes. Scopes that contain the given text come first,
    followed by the most similar scopes."""


class ProgramOfStep(TypedDict):
    """The compiled program that takes most of the step's time."""

    name: str | None
    """Name of the program in the trace file; null if the file does not contain the program.
    Example: `jit_train_step(9646411105960254074)`"""
    program_id: str | None
    """Id of the program, as an unsigned decimal; null if the ops have no program id."""
    n_programs: Count
    """Number of programs that the step's ops belong to."""
    hlo: bool
    """True if the trace file contains the program's HLO. Without the HLO, figures that need it are
    null."""


class CommonLine(TypedDict):
    """A source line that has more than half of the step's time, so that lines say little."""

    source_user: str
    """The line."""
    pct_of_step: Percent
    """Time of the ops with this line, as a percentage of the step's duration."""
    separated_by: str
    """Option that separates the time best: `--own PACKAGE/` or `--mode by_scope`."""


class Totals(TypedDict):
    """Sums over the step. The sums are equal in all modes. The full duration of an op counts
    towards the step in which it starts. Properties of an op, such as flops, bytes, source line and
    category, come from its metadata in the trace. A property that the metadata lacks comes from the
    op's executions: from the first one in the step that has the property. Flops and bytes stored
    with the executions of a custom call are ignored, because they do not account for the loops
    inside the call."""

    common_line: CommonLine | None
    """The line with more than half of the step's time; headlines and tables then name the scope
    before the line. Null if there is no such line, or if neither a package nor scopes bring the
    largest share below one half."""
    n_events_total: Count
    """Number of executions of leaf ops of all four kinds."""
    n_events_compute: Count
    """Number of executions of ops of kind compute."""
    n_events_data_move: Count
    """Number of executions of ops of kind data_move."""
    n_events_comm: Count
    """Number of executions of ops of kind comm."""
    n_events_other: Count
    """Number of executions of ops of kind other: bookkeeping, and ops of unknown categories."""
    n_events_container: Count
    """Number of executions of containers, which are ops that enclose other ops, such as loops."""
    n_events_unresolved: Count
    """Number of events that were dropped because they have no metadata, no start time (aggregated
    events) or a negative duration. A note reports the number of dropped events for each reason."""
    compute_duration_ps: Picoseconds
    """Total duration of ops of kind compute."""
    data_move_duration_ps: Picoseconds
    """Total duration of ops of kind data_move."""
    comm_duration_ps: Picoseconds
    """Total duration of ops of kind comm."""
    other_duration_ps: Picoseconds
    """Total duration of ops of kind other."""
    non_while_duration_ps_sum: Picoseconds
    """Total duration of the ops of all four kinds. Because ops can overlap, this sum is not
    wall-clock time."""
    while_container_duration_ps: Picoseconds
    """Total duration of `while` ops, including their loop bodies."""
    while_pct_of_step: Percent | None
    """`while_container_duration_ps` as a percentage of the step's duration. The value can exceed
    100 if loops are nested."""
    container_durations_ps: dict[str, Picoseconds]
    """Total duration of containers by category. Example: `{"while": 15567309124}`"""
    container_self_duration_ps: Picoseconds
    """Time inside containers during which no leaf op runs."""
    busy_duration_ps: Picoseconds
    """Wall-clock time during which at least one leaf op runs; waiting ops count as running."""
    idle_duration_ps: Picoseconds
    """Time in the step during which no leaf op runs."""
    idle_pct_of_step: Percent | None
    """`idle_duration_ps` as a percentage of the step's duration."""
    wait_duration_ps: Picoseconds
    """Total duration of ops with a category that ends in `-done`, and of fusions named
    `async-collective-done…`. During such an op, the core waits for an asynchronous operation."""
    wait_pct_of_step: Percent | None
    """`wait_duration_ps` as a percentage of the step's duration."""
    agg_key_coverage: dict[str, Count]
    """Number of executions by kind of group key: `stack`, `tf_op` or `no_source`. Example:
    `{"stack": 733, "tf_op": 13, "no_source": 745}`"""
    unknown_categories: dict[str, Count]
    """Number of executions of ops whose category the tool does not know, by category. Ops without a
    category count as `<none>`."""


class StepFields(FileAnswer):
    """The fields of every mode of one step."""

    device: str
    """Name of the device's plane. Example: `/device:TPU:0`"""
    device_type: str | None
    """Type of the device as stored in the trace, such as `TPU v7x`; null if it is not stored."""
    clock: Clock
    """Clock that the step's times refer to: `device` if the core measured the times of at least one
    op in the step, otherwise `trace`."""
    stack_order: StackOrder | None
    """Frame order in most of the step's stacks as stored in the trace; null if there are no stacks.
    In printed stacks, the outermost frame always comes first."""
    step_source: StepSource | None
    """Origin of the steps. The value is `steps` if the profiler recorded steps. Otherwise it is
    `modules`, and each execution of a program counts as a step. Null with `--step all`, and if the
    trace has neither steps nor executions of programs."""
    program: ProgramOfStep
    """The compiled program that takes most of the step's time."""
    step_id: Count | None
    """Index of the step in order of time, from 0; null if `step_source` is null."""
    step_name: str | None
    """Name of the step's event; null if there is no step or it has no name. Example: `101`"""
    step_window_ps: list[Picoseconds]
    """Start and end of the step, on the clock that `clock` specifies. If there is no step, the
    earliest start and the latest end of all ops. Example: `[5371555615367, 5389864092681]`"""
    step_duration_ps: Picoseconds
    """Duration of the step."""


class StepAnswer(StepFields):
    """The fields of every mode of one step."""

    totals: Totals
    """Sums over the step."""
