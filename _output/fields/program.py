"""Fields of `program`."""

from typing import Literal, TypedDict

from .common import Lead, StepAnswer
from .rows import Declared, VmemFields
from .units import Bytes, Count, Picoseconds

How = Literal["sync", "async", "async_fusion", "sparse_core"]
FlagVerdict = Literal["unknown", "contradicts", "no_effect", "consistent"]


class ProgramCollective(TypedDict):
    """Collectives of one type that the compiler implements in one way, with one plan."""

    collective: str
    """Type of the collective; `collective` for an asynchronous fusion of unknown type."""
    how: How
    """Way in which the collective runs. `sync` means on the core, possibly within a fusion. `async`
    means asynchronously, from a start op to a done op. `async_fusion` means in fusions that combine
    parts of the collective with math, as on v5e. `sparse_core` means offloaded to SparseCores."""
    plan: list[str] | None
    """Algorithm that the compiler recorded, which can include `sparse_core`, emitter and strategy,
    directions and mesh axes of rings; null if the compiler recorded nothing."""
    n_instructions: Count
    """Number of instructions in the program."""
    n_executions: Count
    """Number of executions in the step."""
    sync_dur_ps: Picoseconds
    """Time during which the core runs the collectives."""
    wait_dur_ps: Picoseconds
    """Time during which the core waits for the collectives."""
    payload_bytes: Bytes | None
    """Logical bytes of all executions, as in [comm](#comm); null without an execution, or if
    unknown for any execution."""


class ProgramKernel(VmemFields):
    """A custom kernel (`tpu_custom_call`)."""

    kernel: str
    """Name of the kernel."""
    declared: Declared | None
    """Cost of one execution of the kernel, as the kernel's author declares it; null if nothing is
    declared."""
    n_instructions: Count
    """Number of instructions in the program."""
    n_executions: Count
    """Number of executions in the step."""
    total_dur_ps: Picoseconds
    """Total duration of the executions."""


class Retry(VmemFields):
    """An instruction that the compiler tried more than once. The trace does not have the reasons
    for repeated tries."""

    hlo_op: str
    """Name of the instruction."""
    retry_count: Count
    """Number of tries after the first."""
    n_executions: Count
    """Number of executions in the step."""
    total_dur_ps: Picoseconds
    """Total duration of the executions."""


class Parameter(TypedDict):
    """An array that the program is called with."""

    number: Count
    """Number of the program's parameter; JAX drops arguments that are not used."""
    shape_index: list[Count]
    """Position of the array in a parameter that is a tuple, as in programs with more than 2 000
    arguments; otherwise empty."""
    path: str | None
    """Name of the array in the user's code, such as `params['w']`; null for an array in a tuple."""
    shape: str | None
    """Dtype and dimensions of the part that this device holds; null if unreadable."""
    global_shape: str | None
    """Shape of the user's whole array: local shape times number of tiles of the sharding, rounded
    up if tiles are uneven. Null if the sharding is manual, unknown, of another rank, or missing on
    several devices."""
    sharding: str | None
    """Sharding, as HLO texts write it."""
    bytes: Bytes | None
    """Size of the part that this device holds, without padding; null if the size is known only at
    run time."""
    memory_space: Count | None
    """Memory space of the array, where 0 is HBM and 5 is host memory."""
    aliased_to_output: bool
    """True if an output reuses the array's memory."""


class ParametersTail(TypedDict):
    """The arrays that `--top` leaves out."""

    n_parameters_omitted: Count
    """Number of omitted arrays."""
    bytes: Bytes | None
    """Total size of the omitted arrays; null if any size is unknown."""


class FlagFinding(TypedDict):
    """A flag and its visible effect."""

    flag: str
    """Name of the flag."""
    set_to: str | None
    """Value of the flag in FILE; null if FILE does not set the flag."""
    n_instructions: Count
    """Number of collectives in the program that the flag can affect."""
    n_seen: Count
    """Number of collectives that show the flag's effect."""
    exposed_ps: Picoseconds
    """Time during which the core runs or waits for collectives that do not show the effect."""
    says: FlagVerdict | None
    """Verdict on the flag's value and effect; null if FILE does not set the flag. `unknown` means
    that the value is none of true, 1, yes, on, false, 0, no, off, or that the flag affects none of
    the program's collectives. `contradicts` means that the flag is off but the program shows the
    effect, so the program was compiled with other flags. `no_effect` means that the flag is on
    without an effect, because another flag overrides this flag, a requirement is not met, or the
    flag is not for this chip. `consistent` means that the flag's value and the program agree, which
    does not prove that the flag caused the effect."""


class SetFlags(TypedDict):
    """Values of flags in the file that `--flags` names."""

    n: Count
    """Number of flags that FILE sets."""
    set: dict[str, str]
    """Names, without the leading `--`, and values of the first 200 flags."""
    findings: list[FlagFinding]
    """Always the same ten flags of collectives, with the visible effect of each flag."""


class Fields(TypedDict):
    name: str
    """Name of the program, as in `program`."""
    program_id: str
    """Id of the program."""
    n_computations: Count
    """Number of computations in the program."""
    n_instructions: Count
    """Number of instructions in all computations."""
    n_fusions: Count
    """Number of fusions that are not inside other fusions."""
    n_devices: Count | None
    """Number of devices that run the program together: replicas times partitions; null if
    unknown."""
    opcodes: dict[str, Count]
    """Number of instructions by opcode, most frequent first. Instructions inside fusions are not
    counted."""
    collectives: list[ProgramCollective]
    """All collectives by type, `how` and plan; most exposed time first. Each collective counts
    once, at the op that runs the collective or waits for the end. `send` and `recv` are not
    included."""
    kernels: list[ProgramKernel]
    """All custom kernels; most time first."""
    retries: list[Retry]
    """All instructions that the compiler tried more than once; most time first."""
    parameters: list[Parameter] | None
    """The arrays that the program is called with, most bytes first, at most `--top`. `parameters`
    and the next three fields are null if the program has no entry computation."""
    tail: ParametersTail | None
    """Sums of the omitted parameters."""
    aliased_bytes: Bytes | None
    """Bytes of parameters in HBM with memory that an output takes over; null also if the size of
    any such parameter is unknown."""
    donated_unused_bytes: Bytes | None
    """Bytes of parameters in HBM that were donated in vain, because no output takes over their
    memory; null also if the size of any such parameter is unknown."""
    flags: SetFlags | None
    """Values of flags in the file that `--flags` names, next to the effects that the program shows;
    null without `--flags`."""


class Answer(Lead, StepAnswer, Fields):
    pass
