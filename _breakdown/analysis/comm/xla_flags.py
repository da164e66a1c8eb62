"""Read the values of XLA flags from a launch script, and check whether a compiled program shows
their effects.

A capture does not contain the values of flags, but some flags affect how collectives run. The
effect of each flag was found by changing only this flag and comparing the compiled programs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from _breakdown.analysis.comm.collective_plans import ASYNC, ASYNC_FUSION, How, Planned
from _breakdown.light import NamedTuple
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.no_answer import NoAnswer
from _breakdown.pipeline.vocabulary import SPARSE_CORE
from _breakdown.units import counted

FlagVerdict = Literal["unknown", "contradicts", "no_effect", "excluded", "consistent"]
# For each flag: the collective that it affects (None for all), and the ways of running a collective
# that show its effect.
FLAGS: dict[str, tuple[str | None, tuple[How, ...]]] = {
    "xla_tpu_enable_async_collective_fusion": (None, (ASYNC_FUSION,)),
    "xla_tpu_overlap_compute_collective_tc": (None, (ASYNC_FUSION,)),
    "xla_tpu_enable_async_collective_fusion_fuse_all_gather": ("all-gather", (ASYNC_FUSION,)),
    "xla_tpu_enable_async_collective_fusion_fuse_all_reduce": ("all-reduce", (ASYNC_FUSION,)),
    **{
        f"xla_tpu_enable_sparse_core_collective_offload_{name.replace('-', '_')}": (
            name,
            (SPARSE_CORE,),
        )
        for name in ("all-gather", "reduce-scatter", "all-reduce")
    },
    "xla_enable_async_all_gather": ("all-gather", (ASYNC, ASYNC_FUSION)),
    "xla_enable_async_all_reduce": ("all-reduce", (ASYNC, ASYNC_FUSION)),
    "xla_enable_async_collective_permute": ("collective-permute", (ASYNC,)),
}
# Pairs of flags of which only one can have an effect: a collective is fused or offloaded.
EXCLUSIVE = tuple(
    (
        f"xla_tpu_enable_async_collective_fusion_fuse_{name}",
        f"xla_tpu_enable_sparse_core_collective_offload_{name}",
    )
    for name in ("all_gather", "all_reduce")
)
# The collectives of matmuls that the compiler can run in rings of permutes, unless these flags are
# `none`.
RINGS = {
    f"xla_tpu_{name.replace('-', '_')}_collective_matmul_mode": name
    for name in ("all-gather", "reduce-scatter")
}
NO_RINGS = "none"
ON, OFF = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
N_NAMED = 8

COMMENT_RE = re.compile(r"(?:^|(?<=\s))#.*", re.MULTILINE)
# Matches a flag with a quoted value, or with a bare value that ends at white space or a quote. If
# the entire flag is quoted, the quotes around its value are escaped.
FLAG_RE = re.compile(
    r"""--(?P<name>xla[\w-]*)
    (?P<is_set>=(?:\\*(?P<quote>["'`])(?P<quoted>.*?)(?P=quote)|(?P<bare>[^\s"'`]*)))?""",
    re.VERBOSE | re.ASCII,
)
# Characters that can follow a flag in lists, calls and continued lines.
TRAILING = "\\,;)]"


def read_flags(path: str, context: Context) -> dict[str, str]:
    """Map the names of the flags that a file sets to their values."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise NoAnswer("unreadable_flags", detail=f"{path}: {reason or error}") from None
    return flags_in(text, os.path.basename(path), context)


def flags_in(text: str, where: str, context: Context) -> dict[str, str]:
    text = COMMENT_RE.sub("", text)
    values: dict[str, str] = {}
    again: dict[str, None] = {}
    n_not_set = 0
    for found in FLAG_RE.finditer(text):
        name = found["name"]
        if found["is_set"] is None:
            n_not_set += 1
            continue
        if name in values:
            again[name] = None
        if found["quote"]:
            # Strip the backslash of an escaped quote here, because matching it in the pattern takes
            # quadratic time.
            values[name] = found["quoted"].rstrip("\\")
        else:
            values[name] = stripped(found["bare"])
    if again:
        more = f" and {len(again) - N_NAMED} more" if len(again) > N_NAMED else ""
        names = ", ".join(list(again)[:N_NAMED])
        context.warn(f"flags set more than once in {where} (the last value counts): {names}{more}")
    if n_not_set:
        context.warn(f"{where}: ignoring {counted(n_not_set, 'flag')} without a value (=)")
    if not values:
        context.warn(f"{where} sets no flag; write flags as --xla…=value")
    return values


def stripped(value: str) -> str:
    # Keep `)` and `]` at the end of a value that begins with a shell variable, because they can
    # be part of the value.
    return value.rstrip("\\" if value.startswith("$") else TRAILING)


class FlagFinding(NamedTuple):
    """A flag's effects in the program, compared with its value."""

    flag: str
    set_to: str | None
    # Number of collectives that the flag can affect, and number of those that show its effect.
    n_instructions: int
    n_seen: int
    # Exposed time of the collectives on which the flag has no visible effect.
    exposed: int
    says: FlagVerdict | None


def flag_findings(values: Mapping[str, str], planned: Sequence[Planned]) -> list[FlagFinding]:
    excluded = {
        flag
        for pair in EXCLUSIVE
        if all(values.get(flag, "").lower() in ON for flag in pair)
        for flag in pair
    }
    found = [finding(flag, values.get(flag), planned) for flag in FLAGS]
    return [
        *(
            each._replace(says="excluded")
            if each.says == "no_effect" and each.flag in excluded
            else each
            for each in found
        ),
        *ring_findings(values, planned),
    ]


def ring_findings(values: Mapping[str, str], planned: Sequence[Planned]) -> Iterator[FlagFinding]:
    """Yield the findings of the flags of `RINGS`. A permute does not tell whether its ring stands
    for a gather or for a reduction, so rings contradict only both flags together."""
    rings = sum(
        each.collective == "collective-permute"
        and (each.instruction.op_name or "").endswith("/dot_general")
        for each in planned
    )
    off = [flag for flag in RINGS if values.get(flag, "").lower() == NO_RINGS]
    for flag, name in RINGS.items():
        others = [each for each in planned if each.collective == name]
        says: FlagVerdict = "unknown"
        if flag in off and (others or rings):
            says = "consistent" if not rings else "contradicts" if len(off) == 2 else "unknown"
        value, exposed = values.get(flag), sum(each.exposed for each in others)
        n_about = len(others) + rings
        yield FlagFinding(flag, value, n_about, rings, exposed, says if value is not None else None)


def finding(flag: str, value: str | None, planned: Iterable[Planned]) -> FlagFinding:
    name, effect = FLAGS[flag]
    about = [collective for collective in planned if name in (None, collective.collective)]
    others = [collective for collective in about if collective.how not in effect]
    n_seen = len(about) - len(others)
    return FlagFinding(
        flag,
        value,
        len(about),
        n_seen,
        sum(collective.exposed for collective in others),
        None if value is None else judged(value.lower(), len(about), n_seen),
    )


def judged(value: str, n_about: int, n_seen: int) -> FlagVerdict:
    """Compare a flag's value with its effects in the program."""
    if value not in (*ON, *OFF) or not n_about:
        return "unknown"
    if value in OFF and n_seen:
        return "contradicts"
    if value in ON and not n_seen:
        return "no_effect"
    return "consistent"
