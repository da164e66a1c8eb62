"""Make small random programs for random traces, with an instruction for most ops.

A program is one computation, whose instructions use earlier ones. Its instructions have a line, a
path or neither, and a heap holds some of their outputs.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from tests.builders.hlo_proto import (
    ALLOC,
    FREE,
    Computation,
    HloProto,
    Instruction,
    Module,
    OpMetadata,
    StackFrames,
    allocation,
    array,
    buffer,
    heap_trace,
)
from tests.builders.xspace import (
    EventMetadata,
    Plane,
    Stat,
    StatMetadata,
    Value,
    encode,
    int64,
    raw,
    string,
    uint64,
)

PROGRAM_IDS = (2**63 + 12345, 12190760917235803885, 7, 2**64 - 1, 0)
FILES = (
    *("train.py", "model/layer.py", "a dir/moe.py", "\u00fc.py"),
    "/venv/lib/python3.11/site-packages/flax/linen.py",
)
# The source lines that instructions can have.
PLACES = [(file, line) for line in range(1, 5) for file in FILES]
FRAMES = StackFrames(
    files=list(FILES),
    locations=[(1 + FILES.index(file), line, 5) for file, line in PLACES],
    # Each frame's caller is the frame before it.
    frames=[(1 + i, i) for i in range(len(PLACES))],
)
OP_NAMES = (
    *(None, None, None, "", "jit(f)/add", "jit(f)/jvp(block/attn)/dot", "jit(f)/jit(main)/mlp/add"),
    *("jit(f)/while/body/block/jit(silu)", "w['a/b']"),
)


def chance(rng: random.Random, probability: float) -> bool:
    return rng.random() < probability


@dataclass
class SeenOp:
    name: str
    opcode: str
    # Index of the source location at one end of the op's stack.
    place: int | None = None


# Stat names in the plane of programs, by id.
STAT_NAMES = {
    7: "Hlo Proto",
    8: "something else",
    9: "HLO Proto",
    10: "llo_proto",
    11: "program_id",
}
ID_STAT = 11
LLO = Stat(10, raw(b"what a kernel became"))


class RandomPrograms:
    """Make the programs for a trace."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.ids = rng.sample(PROGRAM_IDS, rng.choice((1, 1, 1, 2, 3)))
        self.has_unique_names = chance(rng, 0.8)
        self.ops: dict[int, list[SeenOp]] = {i: [] for i in self.ids}

    def place(self, text: str, place: int | None = None) -> tuple[str, Value | None]:
        """Return an op's text, perhaps with another name, and its stat `program_id`.

        `place` is the index of the source location that the op's instruction usually gets.
        """
        rng = self.rng
        program_id = rng.choice(self.ids)
        written = re.fullmatch(r"%([\w.-]+)( = .*? ([a-z-]+)\(.*)", text, re.DOTALL)
        if written:
            name, rest, opcode = written.groups()
            taken = {op.name for op in self.ops[program_id]}
            if self.has_unique_names and name in taken:
                name = f"{name}.{len(taken) + 100}"
                text = f"%{name}{rest}"
            self.ops[program_id].append(SeenOp(name, opcode, place))
        if chance(rng, 0.05):
            return text, rng.choice((None, uint64(99)))
        as_signed = program_id - 2**64 if program_id >= 2**63 else program_id
        return text, rng.choice((uint64(program_id), uint64(program_id), int64(as_signed)))

    def planes(self) -> list[Plane]:
        """Return a list with the plane of programs; sometimes, the list is empty."""
        rng = self.rng
        if chance(rng, 0.1):
            return []
        entries = [self.entry(i, self.hlo(ops)) for i, ops in self.ops.items() if chance(rng, 0.95)]
        if chance(rng, 0.3):
            entries += [
                EventMetadata(2**33, "XDB_COMPILER_METADATA:7"),
                EventMetadata(2**34, "jit_convert_element_type(3)", self.hlo([])),
            ]
            rng.shuffle(entries)
        if chance(rng, 0.3):
            # Real traces also contain entries of kernel code, whose names resemble program names.
            others = [EventMetadata(2**35 + n, "", [LLO]) for n in range(rng.choice((1, 3)))]
            for entry in others:
                program_id = rng.choice(self.ids)
                entry.name = rng.choice((f"jit_f({program_id})::f.1", f"jit_f({program_id})"))
                entry.stats += rng.choice(([], [Stat(ID_STAT, uint64(program_id))]))
            entries = rng.choice(([*others, *entries], [*entries, *others]))
        names = [StatMetadata(i, name) for i, name in STAT_NAMES.items()]
        plane = Plane("/host:metadata", [], entries, names)
        return [plane, Plane("/host:metadata")] if chance(rng, 0.01) else [plane]

    def entry(self, program_id: int, stats: list[Stat]) -> EventMetadata:
        """Make a program's metadata entry, with the program id in one of the places that traces
        use."""
        rng = self.rng
        other = rng.choice((1, 2, 3, 2**64 - 7))
        match rng.randrange(4):
            case 0 | 1:
                return EventMetadata(program_id, f"jit_f({program_id})", stats)
            case 2:
                return EventMetadata(other, f"f({program_id})", stats)
            case _:
                as_signed = program_id - 2**64 if program_id >= 2**63 else program_id
                value = rng.choice((uint64(program_id), int64(as_signed), int64(as_signed)))
                name = rng.choice((f"jit_f({program_id})", f"jit_f({other})", "jit_f"))
                key = rng.choice((program_id, other))
                return EventMetadata(key, name, [Stat(ID_STAT, value), *stats])

    def hlo(self, ops: list[SeenOp]) -> list[Stat]:
        rng = self.rng
        if chance(rng, 0.04):
            return rng.choice(([], [LLO]))
        data = encode(random_program(rng, ops))
        kind = rng.choice((7, 7, 9))
        return [*([Stat(8, string("more"))] if chance(rng, 0.1) else []), Stat(kind, raw(data))]


def random_program(rng: random.Random, ops: list[SeenOp]) -> HloProto:
    """Return a program with instructions for most of the ops."""
    share_with_line, form = rng.choice((0.1, 0.5, 0.9)), rng.choice(("frame", "line", "both"))
    made: list[Instruction] = []
    for op in rng.sample(ops, len(ops)):
        if chance(rng, 0.04):
            continue
        metadata = OpMetadata(rng.choice(OP_NAMES))
        # Most ops with a stack have the line at one end of the stack.
        place = op.place if chance(rng, 0.5) else None
        if place is not None or chance(rng, share_with_line):
            place = rng.randrange(len(PLACES)) if place is None else place
            set_line(metadata, place, form)
        operands = [rng.choice(made[-3:]).id or 0 for _ in range(rng.randrange(3)) if made]
        shape = array(rng.choice(("bf16", "f32", "pred")), 8, rng.choice((16, 128)))
        made.append(
            Instruction(op.name, op.opcode, shape, metadata, len(made) + 1, operand_ids=operands)
        )
    computation = Computation("main", made, 1, made[-1].id if made else None)
    module = Module([computation], FRAMES, entry_id=1)
    return HloProto(module, random_buffers(rng, made) if made and chance(rng, 0.9) else None)


def set_line(metadata: OpMetadata, place: int, form: str) -> None:
    if form != "line":
        metadata.stack_frame_id = 1 + place
    if form != "frame":
        metadata.source_file, metadata.source_line = PLACES[place]


def random_buffers(rng: random.Random, instructions: list[Instruction]) -> bytes:
    """Return the buffer assignment of a heap in which each buffer has its own place."""
    held = [(i.id or 0, i.name or "", rng.choice((0, 512, 4096))) for i in instructions]
    places = [(number, 4096 * at, size) for at, (number, _, size) in enumerate(held)]
    events = [(ALLOC, number, name, 0) for number, name, _ in held]
    events += [(FREE, number, "", 0) for number, _, _ in held if chance(rng, 0.5)]
    buffers = [buffer(number, size, number) for number, _, size in held]
    heap = allocation(0, 4096 * len(held), *places)
    return b"".join([*buffers, heap, heap_trace(*events)])
