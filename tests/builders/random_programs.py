"""Make random compiled programs for random traces, with instructions for most ops.

`RandomPrograms` assigns a program to each op of a trace, then makes these programs and the plane
that holds them. Programs have nested fusions, dots, asynchronous chains, loops and branches,
kernels with declared costs, and stack frames. Sometimes a program is missing.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.builders.hlo_proto import (
    Computation,
    HloProto,
    Instruction,
    Module,
    OpMetadata,
    Shape,
    StackFrames,
    array,
    iota,
    listed_groups,
    mesh,
    pairs,
    precision,
    tuple_of,
)
from tests.builders.random_buffers import BufferMaker
from tests.builders.xspace import (
    EventMetadata,
    Plane,
    Stat,
    StatMetadata,
    Value,
    bytes_field,
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
COLLECTIVES = (
    *("all-gather", "all-gather", "all-reduce", "reduce-scatter", "all-to-all"),
    *("collective-permute", "collective-broadcast", "ragged-all-to-all"),
)
# Replica groups in all fields that compilers have used; some groups are inconsistent.
GROUPS = (
    *(
        b"",
        listed_groups((0, 1), (2, 3)),
        listed_groups((0, 3), (1, 2)),
        listed_groups((0, 1, 2), (3,)),
    ),
    *(listed_groups((0, 1), (1, 2)), listed_groups(())),
    bytes_field(87, listed_groups((0, 2), (1, 3)).replace(b"\x8a\x03", b"\x0a")),
    *(bytes_field(92, iota(4, 2, (8,))), bytes_field(92, iota(4, 2, (2, 4), (1, 0)))),
    *(
        bytes_field(87, bytes_field(2, iota(2, 4, (4, 2), (1, 0)))),
        bytes_field(92, iota(3, 2, (8,))),
    ),
    *(
        mesh((4, 2), (0,)),
        mesh((4, 2), ((0, 2, 2),)),
        mesh((4,), (0,), (3, 1, 2, 0)),
        mesh((4,), (1,)),
    ),
)
PAIRS = (b"", pairs((0, 1), (1, 0)), pairs((0, 0), (1, 2), (2, 1)))
DOT_DTYPES = (
    *("bf16", "bf16", "bf16", "f32", "f32", "f16", "f8e4m3fn", "f8e5m2", "s8", "s4", "f64"),
    *("pred", "pred"),
)
MATH = ("add", "multiply", "tanh", "convert", "copy", "broadcast", "iota", "bitcast", "constant")
OP_NAMES = (
    *(None, None, None, "", "jit(f)/add", "jit(f)/jvp(block/attn)/dot", "jit(f)/jit(main)/mlp/add"),
    *("jit(f)/while/body/block/jit(silu)", "w['a/b']"),
)
ARGUMENTS = ("params['emb']['w']", "params['b']", "opt_state[0].mu['w']", "tok", "['x']", "[]", "")
COST_ESTIMATES: tuple[dict[str, str | int], ...] = (
    {"flops": "34628173824", "transcendentals": "67108864", "bytes_accessed": "67108864"},
    {"flops": "34628173824", "bytes_accessed": "67108864"},
    {"flops": "2000000000", "bytes_accessed": "4096"},
    {"flops": 5000, "bytes_accessed": 4096},
    {"flops": "5000", "bytes_accessed": "0"},
    {"flops": "5000"},
    {"flops": "5000", "transcendentals": "7"},
    {"flops": "0", "bytes_accessed": "4096"},
    {"flops": "-1", "bytes_accessed": "4096"},
    {"bytes_accessed": "4096"},
    {},
)


# Names of fused computations; some names identify the fusion as a collective.
BODIES = (*["fused_computation"] * 5, "all-reduce-scatter", "async_collective_fusion")


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
        data = encode(ProgramMaker(rng, ops).make())
        kind = rng.choice((7, 7, 9))
        return [*([Stat(8, string("more"))] if chance(rng, 0.1) else []), Stat(kind, raw(data))]


class ProgramMaker:
    """Make a program with instructions for some ops, operands before users."""

    def __init__(self, rng: random.Random, ops: Sequence[SeenOp]) -> None:
        self.rng = rng
        self.ops = list(ops)
        rng.shuffle(self.ops)
        self.computations: list[Computation] = []
        self.n_instructions = 0
        self.first_id = rng.choice((1, 1, 2**33))
        self.share_with_frames = rng.choice((0.02, 0.05, 0.1, 0.2, 0.2, 0.5, 0.9))
        self.writes_frames = rng.choice(("ids", "lines", "both", "any"))
        n = len(PLACES)
        self.frames = StackFrames(
            files=list(FILES),
            locations=[(1 + FILES.index(file), line, 5) for file, line in PLACES],
            # A frame's caller is an earlier frame or the frame itself.
            frames=[(1 + i, rng.choice((0, i, i, 1 + i))) for i in range(n)],
        )
        self.dot_dtypes = rng.sample(DOT_DTYPES, rng.choice((1, 2, 4)))
        self.ended: set[int | None] = set()  # Ids of starts that already have a done.

    def make(self) -> HloProto:
        rng = self.rng
        ops = [op for op in self.ops if not chance(rng, 0.04)]
        inner: list[Instruction] = []
        # Move some of the ops into loops and branches.
        for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
            n = rng.randrange(len(ops) + 1)
            inner.append(self.enclosing(self.computation(ops[:n], inner)))
            ops = ops[n:]
            inner = inner if chance(rng, 0.3) else inner[-1:]
        entry = self.computation(ops, inner)
        self.place_ops()
        frames = None if chance(rng, 0.02) else self.frames
        devices = rng.choice((None, None, (8, 1), (1, 8), (2, 2), (1, 1), (0, 4)))
        made = Module(self.computations, frames, devices, entry_id=entry.id)
        return HloProto(made, self.buffers())

    def buffers(self) -> bytes | None:
        everything = [i for c in self.computations for i in c.instructions]
        if not everything or chance(self.rng, 0.1):
            return None
        return BufferMaker(self.rng, everything).make()

    # instructions

    def instruction(
        self,
        name: str | None,
        opcode: str,
        operands: Sequence[Instruction] = (),
        calls: Sequence[Computation] = (),
        *,
        shape: Shape | None = None,
        extra: bytes = b"",
        config: bytes | None = None,
    ) -> Instruction:
        self.n_instructions += 1
        number = self.n_instructions
        if opcode.removesuffix("-start") in COLLECTIVES:
            extra += self.rng.choice(PAIRS if "permute" in opcode else GROUPS)
        return Instruction(
            f"{opcode}.made.{number}" if name is None else name,
            opcode,
            shape or self.shape(),
            self.metadata(),
            id=self.first_id + number,
            thread="sparsecore" if opcode == "async-start" and chance(self.rng, 0.3) else None,
            operand_ids=[operand.id or 0 for operand in operands],
            called_computation_ids=[computation.id or 0 for computation in calls],
            backend_config=config,
            extra=extra,
            target=self.target() if opcode == "custom-call" else None,
        )

    def target(self) -> str | None:
        return self.rng.choice((*["tpu_custom_call"] * 4, "AllocateBuffer", None))

    def shape(self) -> Shape:
        dims = self.rng.choice((8, 8, 16, 32)), 128
        one = array(self.rng.choice(DOT_DTYPES), *dims)
        return tuple_of(one, array("token")) if chance(self.rng, 0.05) else one

    def metadata(self) -> OpMetadata | None:
        rng = self.rng
        if not chance(rng, self.share_with_frames):
            return rng.choice((None, OpMetadata(rng.choice(OP_NAMES))))
        return self.metadata_at(rng.randrange(len(self.frames.locations)))

    def metadata_at(self, place: int) -> OpMetadata:
        rng = self.rng
        form = self.writes_frames
        if form == "any":
            form = rng.choice(("ids", "lines", "both"))
        written = OpMetadata(rng.choice((*OP_NAMES, "jit(f)/mul")))
        if form in ("ids", "both"):
            written.stack_frame_id = 1 + place
        if form in ("lines", "both"):
            # If the frame and the line differ, the frame takes precedence.
            file, line, _ = self.frames.locations[rng.choice((place, 0))]
            written.source_file, written.source_line = FILES[file - 1], line
        return written

    def place_ops(self) -> None:
        """Assign to some instructions the line at one end of their op's stack."""
        if chance(self.rng, 0.4):
            return
        places = {op.name: op.place for op in self.ops if op.place is not None}
        for instruction in (i for c in self.computations for i in c.instructions):
            place = places.get(instruction.name or "")
            if place is not None and chance(self.rng, 0.8):
                instruction.metadata = self.metadata_at(place)

    def some(self, instructions: Sequence[Instruction], most: int) -> list[Instruction]:
        """Choose operands, mostly from recent instructions, so that chains become long."""
        n = self.rng.randrange(most + 1)
        near = instructions[-3:] if chance(self.rng, 0.7) else instructions
        return [self.rng.choice(near) for _ in range(n) if near]

    def new(self, made: list[Instruction], opcode: str, most: int = 2) -> Instruction:
        made.append(self.instruction(None, opcode, self.some(made, most)))
        return made[-1]

    # computations

    def close(self, instructions: list[Instruction], name: str) -> Computation:
        """Make a computation from instructions; usually, the last is the root."""
        root = instructions[-1] if instructions else None
        if instructions and chance(self.rng, 0.1):
            root = self.rng.choice(instructions)
        number = 1 + len(self.computations)
        made = Computation(f"{name}.{number}", instructions, number, root.id if root else None)
        self.computations.append(made)
        return made

    def parameters(self) -> list[Instruction]:
        made = [self.instruction(None, "parameter") for _ in range(self.rng.randrange(4))]
        numbers = self.rng.sample(range(len(made)), len(made))
        for parameter, number in zip(made, numbers, strict=True):
            parameter.number = number
            if chance(self.rng, 0.15):
                parts = [replace(self.shape(), memory_space=space) for space in (None, 1, 5)]
                parameter.shape = tuple_of(*parts[: self.rng.randrange(4)], array("token"))
            elif chance(self.rng, 0.2):
                dynamic = self.rng.choice(((), (False, False), (True, False)))
                parameter.shape = replace(array("bf16", 8, 128, space=5), dynamic=dynamic)
            if parameter.metadata and chance(self.rng, 0.7):
                parameter.metadata.op_name = self.rng.choice(ARGUMENTS)
        return made

    def computation(self, ops: Sequence[SeenOp], inner: Sequence[Instruction]) -> Computation:
        made = self.parameters()
        for instruction in inner:
            instruction.operand_ids = [operand.id or 0 for operand in self.some(made, 2)]
            made.append(instruction)
        for op in ops:
            for _ in range(self.rng.choice((0, 0, 1, 2))):
                self.new(made, self.rng.choice(MATH))
            self.add_op(made, op)
        for _ in range(self.rng.choice((0, 1, 4))):
            self.new(made, self.rng.choice((*MATH, "tuple", "get-tuple-element")))
        return self.close(made, "region")

    def enclosing(self, body: Computation) -> Instruction:
        rng = self.rng
        opcode = rng.choice(("while", "while", "conditional", "call"))
        calls = [body]
        if opcode == "while":
            made = self.parameters()
            self.new(made, "compare")
            calls.append(self.close(made, "condition"))
        elif chance(rng, 0.5):
            calls.append(self.close(self.parameters(), "branch"))
        named = [op for op in self.ops if op.opcode == opcode]
        return self.instruction(rng.choice(named).name if named else None, opcode, calls=calls)

    def dot(self, made: list[Instruction], name: str | None = None) -> Instruction:
        """Add a dot instruction and its operands."""
        rng = self.rng
        operands = [
            self.instruction(None, "convert", self.some(made, 1), shape=array(dtype, 8, 8))
            for dtype in rng.choices(self.dot_dtypes, k=2)
        ]
        extra = rng.choice(
            (
                *(b"", b"", b"", precision(0, 0), precision(1, 1), precision(2, 2)),
                *(precision(2, 0), precision(0, 1), precision(2), precision(0, 0, algorithm=0)),
                precision(0, 0, algorithm=6),
            )
        )
        opcode = rng.choice(("convolution", "convolution", "dot"))
        made += [*operands, self.instruction(name, opcode, operands, extra=extra)]
        return made[-1]

    def body(self, depth: int = 0) -> Computation:
        """Make the body of a fusion."""
        rng = self.rng
        made = self.parameters()
        for _ in range(rng.choice((0, 1, 2, 5))):
            choice = rng.randrange(10)
            if choice < 2:
                self.dot(made)
            elif choice < 4 and depth < 3:
                inner = self.body(depth + 1)
                made.append(self.instruction(None, "fusion", self.some(made, 2), [inner]))
            else:
                self.new(made, rng.choice(MATH))
        if chance(rng, 0.1):
            self.new(made, rng.choice(COLLECTIVES))
        if made and chance(rng, 0.9):
            self.new(made, rng.choice(("tuple", "add")))
        return self.close(made, rng.choice(BODIES))

    def wrapped(self, opcode: str | None) -> Computation:
        """Make the computation of an asynchronous operation, called directly or through another
        call.
        """
        rng = self.rng
        made = self.parameters()
        if chance(rng, 0.2):
            self.new(made, rng.choice(MATH))
        self.new(made, opcode or rng.choice((*COLLECTIVES, "slice", "copy", "gather")))
        computation = self.close(made, "called_computation")
        computation.thread = rng.choice((None, None, "sparsecore"))
        if chance(rng, 0.5):
            return computation
        outer = self.parameters()
        outer.append(self.instruction(None, "custom-call", self.some(outer, 1), [computation]))
        return self.close(outer, "async_computation")

    # The following methods add instructions for the trace's ops.

    def add_op(self, made: list[Instruction], op: SeenOp) -> None:
        rng = self.rng
        family, _, role = op.opcode.rpartition("-")
        if op.name.startswith("async-collective-done") and op.opcode == "fusion":
            self.add_fused_done(made, op)
        elif op.opcode in ("dot", "convolution"):
            self.dot(made, op.name)
        elif op.opcode == "custom-call":
            config = self.kernel_config() if chance(rng, 0.7) else None
            operands = self.some(made, 3)
            made.append(self.instruction(op.name, op.opcode, operands, config=config))
        elif role == "start" or op.opcode in ("send", "recv"):
            self.add_start(made, op.name, op.opcode)
        elif role == "done":
            self.add_end(made, op, family)
        elif role == "update":
            pass  # In real traces, updates do not occur as ops.
        else:
            calls = []
            if op.opcode == "fusion" and chance(rng, 0.3):
                calls = [self.wrapped(None)]
            elif op.opcode == "fusion" or chance(rng, 0.03):
                calls = [self.body()]
            if chance(rng, 0.02) and self.computations:
                calls.append(rng.choice(self.computations))
            made.append(self.instruction(op.name, op.opcode, self.some(made, 3), calls))

    def kernel_config(self) -> bytes:
        rng = self.rng
        kernel = {"body": "TUzvUgFN", "cost_estimate": rng.choice(COST_ESTIMATES)}
        return json.dumps({"custom_call_config": kernel}).encode()

    def add_start(self, made: list[Instruction], name: str | None, opcode: str) -> Instruction:
        calls = []
        if opcode == "async-start":
            named = [known for known in COLLECTIVES if (name or "").startswith(known)]
            calls = [self.wrapped(named[0] if named else None)]
        shape = tuple_of(array("bf16", 8), array("bf16", 8), array("u32"))
        made.append(self.instruction(name, opcode, self.some(made, 2), calls, shape=shape))
        return made[-1]

    def add_end(self, made: list[Instruction], op: SeenOp, family: str) -> None:
        """Add a done for an existing start or for a new start."""
        rng = self.rng
        opcode = family if family in ("send", "recv") else f"{family}-start"
        there = [
            instruction
            for instruction in made
            if instruction.opcode == opcode and instruction.id not in self.ended
        ]
        start = rng.choice(there) if there and chance(rng, 0.8) else None
        if start is None:
            invented = re.sub("-(done|update)", "-start", op.name)
            taken = {seen.name for seen in self.ops}
            start = self.add_start(made, None if invented in taken else invented, opcode)
        self.ended.add(start.id)
        calls = []
        if start.called_computation_ids and chance(rng, 0.5):
            calls = [c for c in self.computations if c.id == start.called_computation_ids[0]]
        behind = start
        if family == "async" and chance(rng, 0.5):
            for _ in range(rng.choice((0, 1, 2))):
                self.new(made, rng.choice(MATH))
            more = [operand for operand in self.some(made, 2) if operand is not start]
            behind = self.instruction(None, "async-update", [start, *more], calls)
            made.append(behind)
        elif chance(rng, 0.1):
            behind = self.instruction(None, "get-tuple-element", [start])
            made.append(behind)
        for _ in range(rng.choice((0, 0, 1, 2))):
            self.new(made, rng.choice(MATH), most=1)
        made.append(self.instruction(op.name, op.opcode, [behind], calls))

    def add_fused_done(self, made: list[Instruction], op: SeenOp) -> None:
        """Add the done of a collective that consists of two fusions, with math between them."""
        rng = self.rng
        there = [
            instruction
            for instruction in made
            if (instruction.name or "").startswith("async-collective-start")
            and instruction.opcode == "fusion"
            and instruction.id not in self.ended
        ]
        if there and chance(rng, 0.8):
            behind = rng.choice(there)
        else:
            made.append(self.instruction(None, "fusion", self.some(made, 2), [self.body()]))
            behind = made[-1]
            behind.name = f"async-collective-start.{self.n_instructions}"
        self.ended.add(behind.id)
        for _ in range(rng.choice((0, 0, 1, 2))):
            made.append(self.instruction(None, "get-tuple-element", [behind]))
            made.append(self.instruction(None, "fusion", [made[-1]], [self.body()]))
            behind = made[-1]
        made.append(self.instruction(op.name, "fusion", [behind], [self.body()]))
