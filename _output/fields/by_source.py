"""Fields of `by_source`."""

from typing import Literal, TypedDict

from .common import Lead, StepFields, Totals
from .rows import DtypeFields, GroupFields, InLoop, LeftOut, TailIfAsked
from .units import Bytes, Count, Flops, Picoseconds

ListedKind = Literal["compute", "data_move", "comm"]


class ScopeShare(TypedDict):
    """A scope that some ops of a group belong to."""

    scope: str | None
    """Position of the ops in the model, derived from the path in `tf_op`, or from the instruction's
    path if `tf_op` is missing. The program's name, the primitive at the end, and parts that only
    show how code runs (`jit()`, `jvp()`, `while`, `body`, …) are removed. Null if unknown. If file
    and scope contradict each other, trust the scope, because the stack is wrong. Example:
    `decoder_layer/attention`"""
    dur_ps: Picoseconds
    """Total duration of the group's ops in this scope."""


class AlsoFused(TypedDict):
    """Another source line with instructions inside the group's fusions."""

    source_inner: str
    """Source line of the instructions."""
    n_instructions: Count
    """Number of instructions from this line; an op that runs several times counts once. The number
    does not measure time, because a fusion's time cannot be split among its instructions."""


class Group(GroupFields, DtypeFields, InLoop):
    """Ops that share a kind and a key."""

    kind: ListedKind
    """Kind of the group's ops."""
    model_flops_sum: Flops | None
    """Flops of all executions that the model's code requires; the compiler can add or remove flops.
    Null if unknown."""
    hbm_bytes_sum: Bytes | None
    """Bytes that all executions move to and from HBM; null if unknown for any op that reads or
    writes memory."""
    dtypes: dict[str, Count]
    """Number of executions by dtype of the output: bf16, fp8, fp32, fp16, other.
    Example: `{"bf16": 36, "fp32": 28}`"""
    also_fused: list[AlsoFused] | None
    """Up to eight source lines other than the group's own: those with the most instructions inside
    the group's fusions. Null without a program."""
    scopes: list[ScopeShare]
    """The four scopes that take the most time in the group. A group has several scopes if they all
    call the same function."""
    shapes: list[str]
    """Distinct output shapes, up to eight. Example: `[…, "(f32[4,2047,16000]{2,1,0:T(8,128)},
    bf16[4,2047,16000]{…})"]`"""
    shapes_truncated: bool
    """True if the group has more than eight distinct output shapes."""


class OwnTotals(TypedDict):
    n_groups_total: Count
    """Number of all groups, including those that `--top` omits."""
    left_out_ps: LeftOut
    """Time of ops other than math that are in no group; see `--include-data-move` and
    `--include-comm`."""


class GroupTotals(Totals, OwnTotals):
    """Sums over the step, and the number of groups."""


class Fields(TailIfAsked):
    groups: list[Group]
    """Every group, in order of appearance; with `--top`, the groups that take the most time."""


class Returned(Fields):
    """The fields of the mode, and the mode's additions to the totals."""

    totals: OwnTotals


class WithTotals(TypedDict):
    totals: GroupTotals
    """Sums over the step."""


class Answer(Lead, StepFields, WithTotals, Fields):
    pass
