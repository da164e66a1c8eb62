"""Fields of `program`."""

from typing import Literal, TypedDict

from _output.fields.common import Lead, StepAnswer
from _output.fields.rows import Declared, VmemFields
from _output.fields.units import Bytes, Count, Picoseconds

How = Literal["sync", "async", "async_fusion", "sparse_core"]
FlagVerdict = Literal["unknown", "contradicts", "no_effect", "consistent"]


class ProgramCollective(TypedDict):
    """The collectives of one type that the compiler carries out in one way, by one plan."""

    collective: str
    """Type of the collective; `collective` for an asynchronous fusion of unknown type."""
    how: How
    """`sync`: it runs on the core, perhaps within a fusion; `async`: a start and a done;
    `async_fusion`: fusions that carry out parts of it along with math, as on v5e; `sparse_core`:
    offloaded to SparseCores."""
    plan: list[str] | None
    """The compiler's record: `sparse_core`, emitter and strategy of an algorithm,
    directions and mesh axes of rings; null if it recorded nothing."""
    n_instructions: Count
    """Instructions in the program."""
    n_executions: Count
    """Executions in the step."""
    sync_dur_ps: Picoseconds
    """Time during which the core ran them."""
    wait_dur_ps: Picoseconds
    """Time during which the core waited for them."""
    payload_bytes: Bytes | None
    """Logical bytes of all executions, as in [comm](#comm); null without an execution, or if
    unknown for any."""


class ProgramKernel(VmemFields):
    """A custom kernel (`tpu_custom_call`)."""

    kernel: str
    """Name of the kernel."""
    declared: Declared | None
    """The cost of one run as its author declares it; null if nothing is declared."""
    n_instructions: Count
    """Instructions in the program."""
    n_executions: Count
    """Executions in the step."""
    total_dur_ps: Picoseconds
    """Their time."""


class Retry(VmemFields):
    """An instruction that the compiler tried more than once. The trace does not say why."""

    hlo_op: str
    """Name of the instruction."""
    retry_count: Count
    """Number of further tries."""
    n_executions: Count
    """Executions in the step."""
    total_dur_ps: Picoseconds
    """Their time."""


class Parameter(TypedDict):
    """An array that the program is called with."""

    number: Count
    """Number of the program's parameter; JAX drops arguments that are not used."""
    shape_index: list[Count]
    """Place in the parameter if that is a tuple, as with more than 2 000 arguments; otherwise
    empty."""
    path: str | None
    """Name in the user's code, such as `params['w']`; null in a tuple."""
    shape: str | None
    """Dtype and dimensions of the part that this device holds; null if unreadable."""
    global_shape: str | None
    """Shape of the user's whole array: local shape times number of tiles of the sharding, rounded
    up if tiles are uneven. Null if unknown: manual or unknown shardings, a sharding of another
    rank, or none on several devices."""
    sharding: str | None
    """Sharding, as HLO texts write it."""
    bytes: Bytes | None
    """Size of the part that this device holds, without padding; null if only a run can tell."""
    memory_space: Count | None
    """Memory space: 0 is HBM, 5 the host's memory."""
    aliased_to_output: bool
    """True if an output takes its memory."""


class ParametersTail(TypedDict):
    """The parameters that the list leaves out."""

    n_parameters_omitted: Count
    """Arrays beyond `--top`."""
    bytes: Bytes | None
    """Their size; null if unknown for any of them."""


class FlagFinding(TypedDict):
    """A flag and its visible effect."""

    flag: str
    """Name of the flag."""
    set_to: str | None
    """Its value in FILE; null if FILE does not set it."""
    n_instructions: Count
    """Collectives of the program that the flag is about."""
    n_seen: Count
    """Collectives that show the flag's effect."""
    exposed_ps: Picoseconds
    """Time during which the core runs the other collectives or waits for them."""
    says: FlagVerdict | None
    """Null if FILE does not set the flag. `unknown`: the value is none of true, 1, yes, on, false,
    0, no, off, or there is no such collective. `contradicts`: it is off, but its effect is there,
    so the program was compiled with other flags. `no_effect`: it is on and nothing shows it:
    another flag overrides it, a requirement is not met, or it is not for this chip. Otherwise
    `consistent`, which proves nothing."""


class SetFlags(TypedDict):
    """The flags that `--flags FILE` sets."""

    n: Count
    """Number of flags that FILE sets."""
    set: dict[str, str]
    """The first 200 of them, without the leading `--`, and their values."""
    findings: list[FlagFinding]
    """Ten flags of collectives, always all ten, and their visible effects."""


class Fields(TypedDict):
    name: str
    """Name of the program, as in `program`."""
    program_id: str
    """Id of the program."""
    n_computations: Count
    """Computations of the program."""
    n_instructions: Count
    """Instructions of all computations."""
    n_fusions: Count
    """Fusions that are not inside other fusions."""
    n_devices: Count | None
    """Devices that run the program together: replicas times partitions; null if unknown."""
    opcodes: dict[str, Count]
    """Instructions by opcode, in computations that no fusion calls, most first."""
    collectives: list[ProgramCollective]
    """All collectives by type, way and plan; most exposed time first. Each counts once, at the op
    that runs it or waits for it. `send` and `recv` are not included."""
    kernels: list[ProgramKernel]
    """All custom kernels; most time first."""
    retries: list[Retry]
    """All instructions that the compiler tried more than once; most time first."""
    parameters: list[Parameter] | None
    """The arrays that the program is called with, most bytes first, at most `--top`. Null, like the
    next three fields, if the program has no entry computation."""
    tail: ParametersTail | None
    """Sums of the omitted parameters."""
    aliased_bytes: Bytes | None
    """Bytes of parameters in HBM whose memory an output takes; null also if the size of one is
    unknown."""
    donated_unused_bytes: Bytes | None
    """Bytes of parameters in HBM that were donated in vain, because no output takes their memory;
    null in the same cases."""
    flags: SetFlags | None
    """The flags that `--flags FILE` sets, and their visible effects; null without the option."""


class Answer(Lead, StepAnswer, Fields):
    pass
