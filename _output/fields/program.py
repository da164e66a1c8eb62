"""Fields of `program`."""

from typing import Any, Literal, TypedDict

from .common import Lead, StepAnswer
from .rows import VmemFields
from .units import Bytes, Count, Picoseconds

How = Literal["sync", "async", "async_fusion", "sparse_core"]
FlagVerdict = Literal["unknown", "contradicts", "no_effect", "consistent"]


class ProgramCollective(TypedDict):
    """Collectives that have the same type, `how` and `plan`."""

    collective: str
    """Type of the collective; `collective` for an asynchronous fusion of unknown type."""
    how: How
    """Implementation of the collective. `sync`: on the core, possibly within a fusion.
    `async`: asynchronously, from a start op to a done op. `async_fusion`: in fusions that combine
    parts of the collective with math, as on v5e. `sparse_core`: offloaded to SparseCores."""
    plan: list[str] | None
    """Algorithm that the compiler recorded, which can include `sparse_core`, the emitter and
    strategy, and the directions and mesh axes of rings. Null if the compiler recorded none."""
    n_instructions: Count
    """Number of instructions in the program."""
    n_executions: Count
    """Number of executions in the step."""
    sync_dur_ps: Picoseconds
    """Time during which the core runs the collectives."""
    wait_dur_ps: Picoseconds
    """Time during which the core waits for the collectives."""
    payload_bytes: Bytes | None
    """Logical bytes of all executions, as in [comm](#comm); null if there is no execution, or if
    unknown for any execution."""


class ProgramKernel(VmemFields):
    """A custom kernel (`tpu_custom_call`)."""

    kernel: str
    """Name of the kernel."""
    declared: dict[str, Any] | None
    """Cost of one execution as declared by the kernel's author; null if nothing is declared."""
    n_instructions: Count
    """Number of instructions in the program."""
    n_executions: Count
    """Number of executions in the step."""
    total_dur_ps: Picoseconds
    """Total duration of the executions."""


class Retry(VmemFields):
    """An instruction that was compiled more than once. The trace does not contain the reasons for
    the additional compilations."""

    hlo_op: str
    """Name of the instruction."""
    retry_count: Count
    """Number of compilations after the first one."""
    n_executions: Count
    """Number of executions in the step."""
    total_dur_ps: Picoseconds
    """Total duration of the executions."""


class Parameter(TypedDict):
    """An array that the program is called with."""

    number: Count
    """Index of the parameter in the program. The index can differ from the argument's position,
    because JAX drops unused arguments."""
    shape_index: list[Count]
    """Position of the array within a parameter that is a tuple, as in programs with more than 2000
    arguments; empty for other parameters."""
    path: str | None
    """Name of the array in the user's code, such as `params['w']`; null for an array in a tuple."""
    shape: str | None
    """Dtype and dimensions of the part that this device holds; null if unreadable."""
    global_shape: str | None
    """Shape of the user's complete array: the local shape times the number of shards along each
    axis, rounded up if shards are uneven. Null if the sharding is manual, unknown or of another
    rank, or if it is missing and the program may run on several devices."""
    sharding: str | None
    """Sharding, as in HLO texts; null for an array without a sharding."""
    bytes: Bytes | None
    """Size of the part that this device holds, without padding; null if the size is known only at
    run time."""
    memory_space: Count | None
    """Memory space of the array, where 0 is HBM and 5 is host memory; null if unknown."""
    aliased_to_output: bool
    """True if an output reuses the array's memory."""


class ParametersTail(TypedDict):
    """Arrays that `--top` omits."""

    n_parameters_omitted: Count
    """Number of omitted arrays."""
    bytes: Bytes | None
    """Total size of the omitted arrays; null if any size is unknown."""


class FlagFinding(TypedDict):
    """A flag and its effect that is visible in the program."""

    flag: str
    """Name of the flag."""
    set_to: str | None
    """Value of the flag in FILE; null if FILE does not set the flag."""
    n_instructions: Count
    """Number of collectives in the program that the flag can affect."""
    n_seen: Count
    """Number of collectives that show the flag's effect."""
    exposed_ps: Picoseconds
    """Time during which the core runs or waits for the other collectives, which do not show the
    effect."""
    says: FlagVerdict | None
    """Verdict on the flag's value and effect; null if FILE does not set the flag. `unknown`: the
    value is none of true, 1, yes, on, false, 0, no, off, or the flag affects none of the program's
    collectives. `contradicts`: the flag is off but the program shows the effect, so it was compiled
    with other flags. `no_effect`: the flag is on but has no effect, because another flag overrides
    it, a requirement is not met, or the flag is not for this chip. `consistent`: the flag's value
    and the program agree, which does not prove that the flag caused the effect."""


class SetFlags(TypedDict):
    """Flags that are set in FILE, the file given with `--flags`."""

    n: Count
    """Number of flags that FILE sets."""
    set: dict[str, str]
    """Values of the first 200 flags by name, without the leading `--`."""
    findings: list[FlagFinding]
    """The ten flags of the table above, and the effect of each that is visible in the program."""


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
    """Number of instructions by opcode, most frequent first. Instructions inside fusions are
    excluded."""
    collectives: list[ProgramCollective]
    """All collectives by type, `how` and plan; most exposed time first. Each collective counts
    once, at the op that runs it or waits for its end. `send` and `recv` are excluded."""
    kernels: list[ProgramKernel]
    """All custom kernels; most time first."""
    retries: list[Retry]
    """All instructions that were compiled more than once; most time first."""
    parameters: list[Parameter] | None
    """The arrays that the program is called with, up to `--top` rows, most bytes first.
    `parameters` and the following three fields are null if the program has no entry computation."""
    tail: ParametersTail | None
    """Number and size of the omitted parameters."""
    aliased_bytes: Bytes | None
    """Bytes of parameters in HBM whose memory an output reuses; also null if the size of any such
    parameter is unknown."""
    donated_unused_bytes: Bytes | None
    """Bytes of donated parameters in HBM whose memory no output reuses; also null if the size of
    any such parameter is unknown."""
    flags: SetFlags | None
    """The flags that FILE sets, and the effects that the program shows; null without `--flags`."""


class Answer(Lead, StepAnswer, Fields):
    pass
