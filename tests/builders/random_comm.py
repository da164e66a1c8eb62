"""Make random communication ops: pairs of start and done, with replica groups in every notation.

Names come from a small pool and often clash. So the program must find a done's start in different
ways: by the operand's name, through an update, by the done's own name, or in the compiled program.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

LISTED = [
    *("{{0,1},{2,3}}", "{{2,3},{1,0}}", "{{0,2},{1,3}}", "{{0,1,2,3}}", "{{0},{1},{2},{3}}", "{}"),
    *(
        "{{0,3},{1,2}}",
        "{{4,5},{6,7}}",
        "{{0,1,2},{3}}",
        "{{0,1},{1,2}}",
        "{{0,0}}",
        "{{}}",
        "{{0,1}",
    ),
]
IOTA = [
    *("[4,2]<=[8]", "[2,4]<=[8]", "[1,8]<=[8]", "[8,1]<=[8]", "[4,2]<=[2,4]T(1,0)"),
    *(
        "[2,4]<=[4,2]T(1,0)",
        "[4,2]<=[2,2,2]T(0,2,1)",
        "[3,4]<=[2,3,2]T(1,2,0)",
        "[2,2]<=[2,2]T(0,1)",
    ),
    *("[9,2]<=[3,2,3]T(0,2,1)", "[10,2]<=[5,4]T(1,0)", "[10,3]<=[3,2,5]T(2,1,0)"),
    *("[3,2]<=[8]", "[4,2]<=[2,4]T(0,0)", "[2,4]<=[2,4]T(1", "[0,8]<=[8]", "[1,200000]<=[200000]"),
]
MESH = [
    "mesh['axis_0'=4,'axis_1'=2] {'axis_0'}",
    "mesh['axis_0'=4,'axis_1'=2] {'axis_1'}",
    "mesh['axis_0'=4,'axis_1'=2] {'axis_1','axis_0'}",
    "mesh['axis_0'=4,'axis_1'=2] {'axis_0':(2)2}",
    "mesh['axis_0'=4,'axis_1'=2] {'axis_0':(1)2}",
    "mesh['axis_0'=8,'axis_1'=2] {'axis_0':(1)2,'axis_0':(4)2}",
    "mesh['a'=2,'b'=2,'c'=2] {'a','c'}",
    "mesh['a'=2,'b'=2] {}",
    "mesh['a'=4] {'a':(3)2}",
    "mesh['a'=2] {'b'}",
    "mesh['a'=2,'a'=2] {'a'}",
]
# These lists of groups differ only beyond the part that a label shows.
_ALONE = ",".join(f"{{{i}}}" for i in range(9))
LONG = [f"{{{_ALONE},{rest}}}" for rest in ("{9,10},{11}", "{9},{10,11}", "{11},{10,9}")]
GROUPS = [*LISTED, *IOTA, *MESH, *LONG]
PAIRS = ["{{0,0},{2,2},{4,1},{6,3}}", "{{0,1},{1,0}}", "{{0,1},{1,0},{0,1}}", "{}", "{{0,1,2}}"]

SYNC = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-broadcast"),
    *("collective-permute", "ragged-all-to-all"),
)
FUSED = ("all-reduce fusion", "all-gather fusion", "all-reduce-scatter fusion")
DTYPES = ("bf16", "bf16", "f32", "s4", "pred", "s8")

# An op's category, HLO text and shape.
OpText = tuple[str, str, str]


def random_communication(rng: random.Random) -> list[OpText]:
    """Return a synchronous collective, an op that can hide communication, or a start and its done,
    one of which may be missing.
    """
    alone = rng.choice((sync, sync, fused, hiding, hiding))
    pair = rng.choice(
        (in_half, in_half, on_sparse_core, on_sparse_core, fused_pair, host_copy, sent)
    )
    if rng.random() < 0.3:
        return [alone(rng)]
    both = list(pair(rng))
    return both if rng.random() < 0.8 else [rng.choice(both)]


def array(rng: random.Random, space: str = "") -> str:
    dims = [rng.choice((1, 2, 4, 8)), rng.choice((64, 128, 128, 3))]
    shown = [f"<={d}" if rng.random() < 0.02 else str(d) for d in dims[: rng.choice((1, 2, 2))]]
    order = ",".join(map(str, reversed(range(len(shown)))))
    return f"{rng.choice(DTYPES)}[{','.join(shown)}]{{{order}{':' if space else ''}{space}}}"


def arrays(rng: random.Random) -> list[str]:
    return [array(rng) for _ in range(rng.choice((1, 1, 1, 1, 2, 0)))]


def as_result(shapes: Sequence[str]) -> str:
    return shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"


def as_operands(shapes: Sequence[str]) -> str:
    return ", ".join(f"{shape} %p.{i}" for i, shape in enumerate(shapes))


def who(rng: random.Random, opcode: str) -> str:
    """Return a collective's attributes, which usually list the participating devices."""
    parts = [", channel_id=3"] if rng.random() < 0.7 else []
    if opcode.startswith("collective-permute"):
        in_place = ", slice_sizes={{4}}" if rng.random() < 0.1 else ""
        parts.append(f", source_target_pairs={rng.choice(PAIRS)}{in_place}")
    else:
        parts.append(f", replica_groups={rng.choice(GROUPS)}")
    if rng.random() < 0.2:
        parts.pop()
    return "".join([*parts, ", use_global_device_ids=true" if rng.random() < 0.5 else ""])


def number(rng: random.Random) -> str:
    return rng.choice(("", ".1", ".2"))


def sync(rng: random.Random) -> OpText:
    opcode = rng.choice(SYNC)
    result = as_result(arrays(rng))
    text = (
        f"%{opcode}{number(rng)} = {result} {opcode}({as_operands(arrays(rng))}){who(rng, opcode)}"
    )
    return opcode, text, result


def fused(rng: random.Random) -> OpText:
    result = as_result(arrays(rng))
    text = f"%fusion{number(rng)} = {result} fusion({as_operands(arrays(rng))}), kind=kCustom"
    return rng.choice(FUSED), text, result


def in_half(rng: random.Random) -> tuple[OpText, OpText]:
    kind = rng.choice(("all-gather", "all-reduce", "collective-permute", "ragged-all-to-all"))
    name, into, out = f"{kind}-start{number(rng)}", array(rng), array(rng)
    whole = f"({into}, {out})"
    operands = as_operands([into]) if rng.random() < 0.9 else "%bare.1"
    operand = rng.choice((name, name, name, name.replace("start", "update"), "get-tuple-element.3"))
    own = name.replace("start", "done")
    more = who(rng, kind) if rng.random() < 0.1 else ""
    start = f"%{name} = {whole} {kind}-start({operands}){who(rng, kind)}"
    done = f"%{own} = {out} {kind}-done({whole} %{operand}){more}"
    return (f"{kind}-start", start, whole), (f"{kind}-done", done, out)


def on_sparse_core(rng: random.Random) -> tuple[OpText, OpText]:
    """Return a collective on the SparseCore: the text of the start has no operands, and the done
    has all attributes."""
    kind = rng.choice(("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "mystery"))
    stem = f"{kind}{number(rng)}.cloned.1.call"
    flags = "(s32[8192]{0:T(1024)}, s32[69]{0:T(1)S(11)})"
    thread = ', async_execution_thread="sparsecore"' if rng.random() < 0.8 else ""
    whole = f"((), (), {flags})"
    start = f"%{stem}-start = {whole} async-start(){thread}, calls=%a.1"
    out, into = as_result(arrays(rng)), f"({', '.join(arrays(rng))})"
    into = into if rng.random() < 0.9 else array(rng)
    operand = rng.choice(("update", "update", "start"))
    done = f"%{stem}-done = {out} async-done(({into}, {out}, {flags}) %{stem}-{operand})"
    return ("async-start", start, whole), ("async-done", done, out)


def fused_pair(rng: random.Random) -> tuple[OpText, OpText]:
    ops = []
    n = number(rng)
    for part in ("start", "done"):
        result = as_result(arrays(rng))
        text = f"%async-collective-{part}{n} = {result} fusion({as_operands(arrays(rng))})"
        if rng.random() < 0.5:
            text = text.replace("%p.0", f"%async-collective-start{number(rng)}")
        ops.append(("custom fusion", f"{text}, kind=kCustom, calls=%f.2", result))
    return ops[0], ops[1]


def host_copy(rng: random.Random) -> tuple[OpText, OpText]:
    kind = rng.choice(("copy", "copy", "slice", "dynamic-update-slice"))
    opcode, n = "copy" if kind == "copy" else "async", number(rng)
    spaces = rng.choice((("S(5)", ""), ("", "S(5)"), ("S(5)", "S(5)")))
    out, into = (array(rng, space) for space in spaces)
    inputs = [into] + [array(rng)] * (kind == "dynamic-update-slice")
    whole = (
        f"({out}, {into}, u32[])" if kind == "copy" else f"(({', '.join(inputs)}), {out}, u32[])"
    )
    start = f"%{kind}-start{n} = {whole} {opcode}-start({as_operands(inputs)})"
    done = f"%{kind}-done{n} = {out} {opcode}-done({whole} %{kind}-start{n})"
    return (f"{opcode}-start", start, whole), (f"{opcode}-done", done, out)


def sent(rng: random.Random) -> tuple[OpText, OpText]:
    """Return the start and done of a send or of a recv."""
    kind, data, n = rng.choice(("send", "recv")), array(rng), number(rng)
    category = kind if rng.random() < 0.7 else f"host {kind}"
    whole = f"({data}, u32[], token[])"
    operands = f"{data} %p.1, token[] %t" if kind == "send" else "token[] %t"
    out = "token[]" if kind == "send" else f"({data}, token[])"
    begin = f"%{kind}{n} = {whole} {kind}({operands}), channel_id=4"
    end = f"%{kind}-done{n} = {out} {kind}-done({whole} %{kind}{n})"
    return (category, begin, whole), (f"{category}-done", end, out)


def hiding(rng: random.Random) -> OpText:
    shape = array(rng)
    if rng.random() < 0.1:
        return "infeed", f"%infeed.1 = ({shape}, token[]) infeed(token[] %t)", shape
    category, opcode = rng.choice((("loop fusion", "fusion"), ("copy", "copy")))
    return category, f"%{opcode}{number(rng)} = {shape} {opcode}({shape} %p.1)", shape
