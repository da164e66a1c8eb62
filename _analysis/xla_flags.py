"""XLA's flags: what a launch script sets, and whether a program shows the effect.

No capture holds a flag's value. What a flag does is seen in how collectives are moved; each pair
was found by switching one flag at a time and comparing the compiled programs.
"""

from __future__ import annotations

import os
import re
import stat

from _analysis.collective_plans import ASYNC, ASYNC_FUSION
from _pipeline.no_answer import NoAnswer
from _pipeline.vocabulary import SPARSE_CORE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from _analysis.collective_plans import Planned
    from _pipeline.context import Context

    Json = dict[str, Any]

# Which collectives a flag is about, None for all; and by what its effect is seen.
FLAGS: dict[str, tuple[str | None, tuple[str, ...]]] = {
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
ON, OFF = ("true", "1", "yes", "on"), ("false", "0", "no", "off")

# Launch scripts are small, and so are all flags of a compiler.
MAX_BYTES = 16 << 20
N_SET, N_NAMED = 200, 8

LINE_END_RE = re.compile(r"\r\n?")
COMMENT_RE = re.compile(r"(?:^|(?<=\s))#.*", re.MULTILINE)
# In quotes of its own, which a quote around may have escaped; or bare, up to white space or the
# quote around.
FLAG_RE = re.compile(
    r"""--(?P<name>xla[\w-]*)
    (?P<is_set>=(?:\\*(?P<quote>["'`])(?P<quoted>.*?)(?P=quote)|(?P<bare>[^\s"'`]*)))?""",
    re.VERBOSE | re.ASCII,
)
# What stands behind a flag in lists, calls and lines that go on.
BEHIND = "\\,;)]"


def read_flags(path: str, context: Context) -> dict[str, str]:
    """Return the flags that a file sets, by name."""
    try:
        # Not blocking: opening a FIFO that nobody writes to must not wait.
        with open(path, "rb", opener=lambda at, how: os.open(at, how | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("not a regular file: copy it into one")
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise NoAnswer("unreadable_flags", detail=f"{path}: {reason or error}") from None
    if len(data) > MAX_BYTES:
        detail = f"{path}: more than {MAX_BYTES >> 20} MiB are no text that sets flags"
        raise NoAnswer("unreadable_flags", detail=detail)
    return flags_in(data.decode(errors="replace"), os.path.basename(path), context)


def flags_in(text: str, where: str, context: Context) -> dict[str, str]:
    text = COMMENT_RE.sub("", LINE_END_RE.sub("\n", text))
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
            # Backslashes of an escaped quote: to the pattern they'd take the square of the time.
            values[name] = found["quoted"].rstrip("\\")
        else:
            values[name] = stripped(found["bare"])
    if again:
        more = f" and {len(again) - N_NAMED} more" if len(again) > N_NAMED else ""
        names = ", ".join(list(again)[:N_NAMED])
        context.note(f"given more than once in {where}, the last counts: {names}{more}")
    if n_not_set:
        context.note(f"{n_not_set} flags without = in {where} are left out")
    if not values:
        context.note(f"no flag --xla…=value in {where}")
    return values


def stripped(value: str) -> str:
    # A variable of the shell may end in what else would belong to the text around it.
    return value.rstrip("\\" if value.startswith("$") else BEHIND)


def flag_fields(values: dict[str, str], planned: Sequence[Planned]) -> Json:
    return {
        "n": len(values),
        "set": dict(list(values.items())[:N_SET]),
        "findings": [finding(flag, values.get(flag), planned) for flag in FLAGS],
    }


def finding(flag: str, value: str | None, planned: Iterable[Planned]) -> Json:
    name, effect = FLAGS[flag]
    about = [each for each in planned if name in (None, each.collective)]
    others = [each for each in about if each.how not in effect]
    n_seen = len(about) - len(others)
    return {
        "flag": flag,
        "set_to": value,
        "n_instructions": len(about),
        "n_seen": n_seen,
        "exposed_ps": sum(each.exposed for each in others),
        "says": None if value is None else judged(value.lower(), len(about), n_seen),
    }


def judged(value: str, n_about: int, n_seen: int) -> str:
    """Whether a program that was compiled with this value can look like that."""
    if value not in (*ON, *OFF) or not n_about:
        return "unknown"
    if value in OFF and n_seen:
        return "contradicts"
    if value in ON and not n_seen:
        return "no_effect"
    return "consistent"
