"""Decode the compiled programs in a trace.

Each HloProto is decoded completely, into plain objects. Every lookup searches all objects again:
the users of an instruction, for example, are found by examining the operands of every instruction.
Only lookups by id are cached, so that real programs take seconds instead of minutes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from tests.naive.frames import Place
from tests.naive.wire import (
    Message,
    StatValue,
    decode_map,
    decode_stats,
    every,
    fields,
    last,
    numbers_in,
    text_in,
)

ELEMENT_TYPES = dict(
    enumerate("? pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 tuple opaque c64 bf16".split())
)
ELEMENT_TYPES |= dict(
    enumerate("token c128 f8e5m2 f8e4m3fn s4 u4 f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz".split(), 17)
)
ELEMENT_TYPES |= {26: "s2", 27: "u2", 28: "f8e4m3", 29: "f8e3m4", 32: "f4e2m1fn", 33: "f8e8m0fnu"}
COLLECTIVES = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all"),
    *("collective-permute", "collective-broadcast"),
)
TRANSFERS = ("send", "recv")
MAX_HOPS = 8
# Each array is (dtype, dims).
Arrays = list[tuple[str, list[int]]]

T = TypeVar("T")
Identified = TypeVar("Identified", "Instruction", "Computation")


def has_prefix(name: str | None, prefix: str) -> bool:
    """Return True if a name is `prefix`, or begins with it, followed by a separator or digit."""
    return (
        name is not None
        and name.startswith(prefix)
        and (name == prefix or name[len(prefix)] in "-_.0123456789")
    )


@dataclass(eq=False)
class Instruction:
    name: str
    opcode: str
    dtype: str
    id: int
    operand_ids: list[int]
    called_ids: list[int]
    line: str | None
    stack: str | None
    # Unlike `stack`, this is also set if the outermost frames are unknown.
    known_stack: str | None
    op_name: str
    shape: Message
    message: Message

    @property
    def place(self) -> Place | None:
        return Place.of(self.line, self.known_stack)

    @property
    def is_start(self) -> bool:
        """Return True if the instruction starts an asynchronous operation; this includes `send` and
        `recv`.
        """
        is_fusion = self.opcode == "fusion" and has_prefix(self.name, "async-collective-start")
        return is_fusion or self.opcode.endswith("-start") or self.opcode in TRANSFERS

    @property
    def is_update(self) -> bool:
        return self.opcode.endswith("-update") and self.opcode != "dynamic-update-slice"

    @property
    def is_done(self) -> bool:
        is_fusion = self.opcode == "fusion" and has_prefix(self.name, "async-collective-done")
        return is_fusion or self.opcode.endswith("-done")

    @property
    def family(self) -> str:
        """Return the opcode without `-start`, `-update` and `-done`."""
        return re.sub("-(start|update|done)$", "", self.opcode)

    @property
    def arrays(self) -> Arrays:
        """Return the arrays of the output, with tuples flattened."""
        return arrays_of(fields(last(self.message, 3, b"")))

    @property
    def is_asynchronous(self) -> bool:
        return self.is_start or self.is_update or self.is_done

    @property
    def collective(self) -> str | None:
        """Return the collective that the instruction performs, starts or ends."""
        named = self.opcode if self.opcode == "dynamic-update-slice" else self.family
        return named if named in COLLECTIVES else None


def arrays_of(shape: Message) -> Arrays:
    dtype = ELEMENT_TYPES.get(last(shape, 2, 0), "?")
    if dtype == "tuple":
        return [array for part in every(shape, 4) for array in arrays_of(fields(part))]
    return [] if dtype in ("token", "opaque") else [(dtype, numbers_in(shape, 3))]


@dataclass(eq=False)
class Computation:
    id: int
    root_id: int
    instructions: list[Instruction]
    name: str = ""
    thread: str = ""

    @property
    def root(self) -> Instruction | None:
        return with_id(self.root_id, self.instructions)


def with_id(wanted: int, items: Sequence[Identified]) -> Identified | None:
    """Return the item with the given id, or None unless exactly one item has it."""
    found = [item for item in items if item.id == wanted]
    return found[0] if len(found) == 1 else None


def unique(items: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(items))


def known(items: Iterable[T | None]) -> list[T]:
    return [item for item in items if item is not None]


@dataclass
class Frames:
    """Represent the stack frames of a program; ids start at 1."""

    files: list[str]
    locations: list[Message]
    frames: list[Message]

    def line(self, frame_id: int) -> str | None:
        if not 1 <= frame_id <= len(self.frames):
            return None
        location_id = last(self.frames[frame_id - 1], 1, 0)
        if not 1 <= location_id <= len(self.locations):
            return None
        location = self.locations[location_id - 1]
        file_id = last(location, 1, 0)
        if not 1 <= file_id <= len(self.files):
            return None
        return file_and_line(self.files[file_id - 1], last(location, 3, 0))

    def stack(self, frame_id: int) -> str | None:
        """Return a stack from the outermost frame to the innermost, or None if it is incomplete."""
        stack, ends = self.known_stack(frame_id)
        return stack if ends else None

    def known_stack(self, frame_id: int) -> tuple[str | None, bool]:
        """Return a tuple: the known part of a stack, outermost frame first; and True if the stack
        is complete.
        """
        ids: list[int] = []
        while frame_id != 0 and frame_id not in ids and self.line(frame_id) is not None:
            ids.append(frame_id)
            frame_id = last(self.frames[frame_id - 1], 2, 0)
        frames = [f"{self.line(i)}:{self.column(i)}" for i in reversed(ids)]
        return "\n".join(frames) or None, frame_id == 0

    def column(self, frame_id: int) -> int:
        column: int = last(self.locations[last(self.frames[frame_id - 1], 1, 0) - 1], 4, 0)
        return column


def file_and_line(file: str, line: int) -> str | None:
    return f"{file}:{line}" if file and line else None


def decode_instruction(message: Message, frames: Frames) -> Instruction:
    metadata = fields(last(message, 7, b""))
    in_file = file_and_line(text_in(metadata, 3), last(metadata, 4, 0))
    shape = fields(last(message, 3, b""))
    return Instruction(
        name=text_in(message, 1).removeprefix("%"),
        opcode=text_in(message, 2),
        dtype=ELEMENT_TYPES.get(last(shape, 2, 0), "?"),
        id=last(message, 35, 0),
        operand_ids=numbers_in(message, 36),
        called_ids=numbers_in(message, 38),
        line=frames.line(last(metadata, 15, 0)) or in_file,
        stack=frames.stack(last(metadata, 15, 0)),
        known_stack=frames.known_stack(last(metadata, 15, 0))[0],
        op_name=text_in(metadata, 2),
        shape=shape,
        message=message,
    )


def decode_program(data: bytes) -> Program:
    module = fields(last(fields(data), 1, b""))
    index = fields(last(module, 17, b""))
    assignment = fields(last(module, 15, b""))
    replicas, partitions = last(assignment, 1, 0), last(assignment, 2, 0)
    frames = Frames(
        files=[file.decode() for file in every(index, 1)],
        locations=[fields(location) for location in every(index, 3)],
        frames=[fields(frame) for frame in every(index, 4)],
    )
    return Program(
        [
            Computation(
                id=last(computation, 5, 0),
                root_id=last(computation, 6, 0),
                instructions=[
                    decode_instruction(fields(instruction), frames)
                    for instruction in every(computation, 2)
                ],
                name=text_in(computation, 1),
                thread=text_in(computation, 8),
            )
            for computation in map(fields, every(module, 3))
        ],
        n_devices=replicas * partitions or None,
        module=module,
    )


@dataclass
class Entry:
    """Represent an entry in the plane of programs."""

    name: str
    hlo: bytes | None

    @cached_property
    def buffers(self) -> bytes | None:
        """Return the encoded buffer assignment."""
        return last(fields(self.hlo), 3, None) if self.hlo else None

    @cached_property
    def program(self) -> Program | None:
        return None if self.hlo is None else decode_program(self.hlo)


def decode_entries(plane: Message) -> dict[int, Entry]:
    """Return the entries by program id, which is between 0 and 2**64 - 1."""
    stat_names = {i: text_in(message, 2) for i, message in decode_map(plane, 5).items()}
    entries: dict[int, Entry] = {}
    for written in map(fields, every(plane, 4)):
        message = fields(last(written, 2, b""))
        stats = decode_stats(every(message, 5), stat_names)
        programs = [stats.get("Hlo Proto"), stats.get("HLO Proto")]
        hlo = next((data for data in programs if isinstance(data, bytes)), None)
        program_id = id_of_program(
            stats.get("program_id"), text_in(message, 2), last(written, 1, 0)
        )
        if hlo is not None or program_id not in entries or entries[program_id].hlo is None:
            entries[program_id] = Entry(text_in(message, 2), hlo)
    return entries


def id_of_program(stat: StatValue | None, name: str, key: int) -> int:
    """Return the program id: the stat, else the number in parentheses at the end of the name, else
    the key."""
    if isinstance(stat, int):
        return stat % 2**64
    before, _, number = name.removesuffix(")").rpartition("(")
    digits = number.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 20
    if name.endswith(")") and name == f"{before}({number})" and is_number:
        return int(number) % 2**64
    return key % 2**64


@dataclass(eq=False)
class Program:
    computations: list[Computation]
    n_devices: int | None = None
    module: Message = field(default_factory=list)
    instructions: list[Instruction] = field(init=False)

    def __post_init__(self) -> None:
        self.instructions = [i for c in self.computations for i in c.instructions]

    def named(self, name: str | None) -> Instruction | None:
        """Return the instruction with a name, given with or without `%`, or None if the name is not
        unique."""
        found = [i for i in self.instructions if name and i.name == name.removeprefix("%")]
        return found[0] if len(found) == 1 else None

    @cached_property
    def homes(self) -> dict[Instruction, Computation]:
        return {
            i: computation for computation in self.computations for i in computation.instructions
        }

    @cached_property
    def all_operands(self) -> dict[Instruction, list[Instruction]]:
        """Return each instruction's operands, which must be in the same computation."""
        return {
            user: unique(known(with_id(i, home.instructions) for i in user.operand_ids))
            for user, home in self.homes.items()
        }

    @cached_property
    def all_called(self) -> dict[Instruction, list[Computation]]:
        return {
            caller: unique(known(with_id(i, self.computations) for i in caller.called_ids))
            for caller in self.instructions
        }

    def home(self, instruction: Instruction) -> Computation:
        return self.homes[instruction]

    def operands(self, instruction: Instruction) -> list[Instruction]:
        return self.all_operands[instruction]

    def users(self, instruction: Instruction) -> list[Instruction]:
        """Return the users of an instruction, in the order of its computation."""
        return [i for i in self.home(instruction).instructions if instruction in self.operands(i)]

    def called(self, instruction: Instruction) -> list[Computation]:
        return self.all_called[instruction]

    def callers(self, computation: Computation) -> list[Instruction]:
        return [i for i in self.instructions if computation in self.called(i)]

    def inside(self, called: list[Computation], seen: list[Computation]) -> list[Instruction]:
        """Return all instructions in the given computations and in those they call, depth first."""
        out: list[Instruction] = []
        for computation in called:
            if computation in seen:
                continue
            seen.append(computation)
            for instruction in computation.instructions:
                out += [instruction, *self.inside(self.called(instruction), seen)]
        return out

    # asynchronous operations

    def nearest(
        self,
        origin: Instruction,
        neighbours: Callable[[Instruction], list[Instruction]],
        is_wanted: Callable[[Instruction], bool],
    ) -> list[Instruction]:
        """Return the path from `origin`, excluding it, to the nearest matching instruction, found
        breadth first.
        """
        ways = [[origin]]
        seen = [origin]
        for way in ways:  # The list grows during the loop.
            for reached in neighbours(way[-1]):
                if reached in seen:
                    continue
                if is_wanted(reached):
                    return [*way[1:], reached]
                seen.append(reached)
                ways.append([*way, reached])
        return []

    def chain(self, instruction: Instruction) -> list[Instruction]:
        """Return the path from start to done, through updates and other instructions, as far as
        known.

        The chain of a synchronous instruction contains only the instruction.
        """
        if not instruction.is_asynchronous:
            return [instruction]
        way = self.path_to_start(instruction)
        if instruction.is_done:
            return way
        after = self.nearest(
            instruction,
            self.users,
            lambda i: i.is_done and self.path_to_start(i)[0] is way[0],
        )
        return way + after

    def path_to_start(self, instruction: Instruction) -> list[Instruction]:
        """Return the path to the instruction from the nearest start with the same `family`."""
        if instruction.is_start:
            return [instruction]
        back = self.nearest(
            instruction,
            self.operands,
            lambda i: i.is_start and i.family == instruction.family,
        )
        return [*back[::-1], instruction]

    def wrapped(self, instruction: Instruction) -> list[Computation]:
        """Return the computations that the parts of an asynchronous operation call."""
        links = [link for link in self.chain(instruction) if link.is_asynchronous]
        return unique(computation for link in links for computation in self.called(link))

    def collective_inside(self, instruction: Instruction) -> Instruction | None:
        """Return the first collective that an asynchronous operation wraps."""
        inside = self.inside(self.wrapped(instruction), [])
        return next((i for i in inside if i.collective), None)

    def parts(self, instruction: Instruction) -> list[Instruction]:
        """Return the known start, updates and done of an asynchronous operation. For other
        instructions, return only the instruction itself."""
        chain = self.chain(instruction)
        return [link for link in chain if link.is_asynchronous] or chain

    def collective_of(self, instruction: Instruction) -> Instruction | None:
        """Return the first collective that one of the instruction's parts performs or contains."""
        for part in self.parts(instruction):
            for candidate in (part, *self.inside(self.called(part), [])):
                if candidate.collective:
                    return candidate
        return None

    def first_of(self, collective: Instruction) -> Instruction | None:
        """Return the instruction whose operands are the collective's input."""
        begin = self.parts(collective)[0]
        name = collective.collective
        return begin if begin.opcode in (name, f"{name}-start") else None

    def arrays_into(self, collective: Instruction) -> Arrays | None:
        begin = self.first_of(collective)
        if begin is None:
            return None
        there = self.home(begin).instructions
        operands = [with_id(i, there) for i in begin.operand_ids]
        if None in operands:
            return None
        return [array for operand in known(operands) for array in operand.arrays]

    def arrays_out_of(self, collective: Instruction) -> Arrays | None:
        end = self.parts(collective)[-1]
        return None if end.is_start else end.arrays

    def is_on_sparse_core(self, instruction: Instruction) -> bool:
        threads = []
        for part in self.parts(instruction):
            threads.append(text_in(part.message, 79))
            threads += [home.thread for home in [self.home(part), *self.called(part)]]
        return "sparsecore" in threads

    # likely lines

    def place_of(self, instruction: Instruction) -> Place | None:
        """Return an instruction's place, or None for a parameter."""
        if instruction.opcode == "parameter":
            return None
        return instruction.place

    def own_place(self, instruction: Instruction, source: str | None) -> Place | None:
        """Return the instruction's own place; `source` is the op's source in the trace."""
        places = [self.place_of(instruction)]
        if instruction.opcode != "parameter":
            places.append(Place.of(source))
        if instruction.is_done or instruction.is_update:
            places += [self.place_of(link) for link in self.chain(instruction) if link.is_start]
        return next(iter(known(places)), None)

    def path_of(self, instruction: Instruction) -> str | None:
        """Return an instruction's op_name. For a done without op_name, return its start's."""
        links = [instruction, *(self.chain(instruction) if instruction.is_done else [])]
        named = [link.op_name for link in links if link is instruction or link.is_start]
        return next((name for name in named if name), None)

    def roots(self, computation: Computation, seen: list[Computation]) -> list[Instruction]:
        """Return a computation's root, and the roots of the computations that this root calls."""
        if computation in seen or computation.root is None:
            return []
        seen.append(computation)
        inner = [self.roots(called, seen) for called in self.called(computation.root)]
        return [computation.root, *(root for roots in inner for root in roots)]

    def place_inside(self, instruction: Instruction) -> Place | None:
        # Other operations, such as `reduce`, call computations without wrapping them.
        if not instruction.is_asynchronous or instruction.family not in ("async", "fusion"):
            return None
        collective = self.collective_inside(instruction)
        roots = [root for c in self.wrapped(instruction) for root in self.roots(c, [])]
        inside = known([collective, *roots])
        return next(iter(known(self.place_of(i) for i in inside)), None)

    def place_around(
        self,
        begin: list[Instruction],
        nearby: Callable[[Instruction], list[Instruction]],
    ) -> Place | None:
        """Return the nearest known place, up to MAX_HOPS hops away."""
        seen = list(begin)
        ring = list(begin)
        entered = [self.home(near) for near in begin]
        for _ in range(MAX_HOPS):
            reached = []
            for near in ring:
                for i in nearby(near):
                    home = self.home(i)
                    if i not in seen and (home is self.home(near) or home not in entered):
                        reached.append(i)
            ring = unique(reached)
            entered += [self.home(near) for near in ring]
            for near in ring:
                place = self.place_of(near)
                if place is not None:
                    return place
            seen += ring
        return None

    def upstream(self, instruction: Instruction) -> list[Instruction]:
        callers = self.callers(self.home(instruction))
        if instruction.opcode == "parameter":
            return callers if len(callers) == 1 else []
        return self.operands(instruction)

    def downstream(self, instruction: Instruction) -> list[Instruction]:
        home = self.home(instruction)
        callers = self.callers(home)
        leaves = instruction is home.root and len(callers) == 1
        return self.users(instruction) + (callers if leaves else [])

    def producer(self, instruction: Instruction) -> Place | None:
        return self.place_around(self.chain(instruction), self.upstream)

    def consumer(self, instruction: Instruction) -> Place | None:
        return self.place_around(self.chain(instruction)[-1:], self.downstream)
