"""Build schedules of kernels, as libtpu writes them, byte by byte.

`schedule` encodes a tree of regions. `line` and `marker` are instructions; `loop` and `branch`
contain regions:

    data = schedule(
        region(0, 4, line(1, 0), loop(1, 3, line(2, 1), line(3, 2), trips=8)),
        sources=[source(("k.py", 7), 1, 2)],
    )
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Message,
    Op,
    Plane,
    Space,
    Stat,
    StatMetadata,
    encode,
    raw,
    tpu_plane,
)

# Opcodes. ADD stands for all that have no meaning for the reader.
ADD, LOAD, STORE, MARKER, DMA_WAIT = 1, 50, 66, 156, 248
NO_REGISTER, SCALARS, VECTORS = 0, 2, 4
UNITS = ("mxu", "xlu", "valu", "eup", "load", "store")


@dataclass
class Operand(Message):
    constant: Annotated[int | None, 1] = None
    instruction: Annotated[int | None, 2] = None


@dataclass
class Instruction(Message):
    id: Annotated[int, 1]
    opcode: Annotated[int, 2]
    operands: Annotated[list[Operand], 3]
    twice_bundle: Annotated[int | None, 4]
    register_file: Annotated[int | None, 8]
    note: Annotated[int | None, 9] = None


@dataclass
class Region(Message):
    items: Annotated[list[Item], 1]
    start: Annotated[int, 5]
    end: Annotated[int, 6]


@dataclass
class Bounds(Message):
    start: Annotated[int, 1]
    limit: Annotated[int, 2]
    step: Annotated[int, 3]


@dataclass
class Loop(Message):
    header: Annotated[Region, 2]
    body: Annotated[Region, 4]
    bounds: Annotated[Bounds, 8]


@dataclass
class Branch(Message):
    check_branch: Annotated[Region, 2]
    body: Annotated[Region, 3]


@dataclass
class Item(Message):
    instruction: Annotated[Instruction | None, 1] = None
    loop: Annotated[Loop | None, 2] = None
    branch: Annotated[Branch | None, 3] = None
    region: Annotated[Region | None, 4] = None


@dataclass
class Allocation(Message):
    n_bytes: Annotated[int, 4]
    is_spill: Annotated[int, 10] = 1


@dataclass
class Constant(Message):
    value: Annotated[int | None, 3] = None
    allocation: Annotated[Allocation | None, 5] = None


@dataclass
class Unit(Message):
    used: Annotated[bytes, 1]
    capacity: Annotated[int, 2]


@dataclass
class Units(Message):
    mxu: Annotated[Unit, 1]
    xlu: Annotated[Unit, 2]
    valu: Annotated[Unit, 3]
    eup: Annotated[Unit, 4]
    load: Annotated[Unit, 5]
    store: Annotated[Unit, 6]


@dataclass
class Frame(Message):
    file: Annotated[int, 1]
    line: Annotated[int, 2]
    column: Annotated[int, 4] = 0


@dataclass
class Entry(Message):
    frames: Annotated[list[Frame], 1]
    primitive: Annotated[int, 2]
    scopes: Annotated[list[int], 3]
    instructions: Annotated[list[int], 4]


@dataclass
class Sources(Message):
    entries: Annotated[list[Entry], 1]
    texts: Annotated[list[str], 2]


@dataclass
class Module(Message):
    root: Annotated[Region, 2]
    units: Annotated[Units | None, 6] = None
    constants: Annotated[list[Constant], 8] = field(default_factory=list)
    notes: Annotated[list[str], 9] = field(default_factory=list)
    sources: Annotated[Sources | None, 12] = None


@dataclass
class Stack:
    """The stack of some instructions, outermost first."""

    frames: Sequence[tuple[str, int]]
    ids: Sequence[int]
    primitive: str
    scope: str


def source(
    *stack: tuple[str, int], ids: Sequence[int], primitive: str = "add", scope: str = ""
) -> Stack:
    return Stack(stack, ids, primitive, scope)


@dataclass
class Mark:
    """An instruction that writes a number to the trace. `bundle` is None if it is not in the
    code."""

    number: int
    bundle: int | None
    note: str | None = None


def at_region(region: int, bundle: int | None) -> Mark:
    return Mark(0xA8000000 | region, bundle)


def at_bundle(bundle: int) -> Mark:
    return Mark(0xA0000000 | bundle, None)


def scope(number: int, name: str, start: int, end: int) -> tuple[Mark, Mark]:
    """Return the start and the end of a named region."""
    return (
        Mark(0xB8000000 | number, start, f"TraceMeStart({name}) ["),
        Mark(0xC8000000 | number, end, f"] TraceMeEnd({name})"),
    )


def work(
    id: int,
    bundle: int,
    opcode: int = ADD,
    *,
    reads: Sequence[int] = (),
    registers: int = VECTORS,
    spill: bool = False,
) -> Item:
    """Return an instruction; `spill` lets it use memory for a spilled register."""
    operands = [Operand(instruction=read) for read in reads] + [Operand(constant=0)] * spill
    return Item(Instruction(id, opcode, operands, 2 * bundle, registers))


def region(start: int, end: int, *items: Item) -> Region:
    return Region(list(items), start, end)


def loop(start: int, end: int, *items: Item, trips: int = 0) -> Item:
    """Return a loop; its bounds are not known if it has no trips."""
    bounds = Bounds(3, 3 + 2 * trips, 2 if trips else 0)
    return Item(loop=Loop(region(start, start), region(start, end, *items), bounds))


def branch(start: int, body: int, end: int, *items: Item) -> Item:
    """Return an if, whose body begins after its check."""
    return Item(branch=Branch(region(start, body), region(start, end, *items)))


def schedule(
    root: Region,
    *,
    sources: Sequence[Stack] = (),
    marks: Sequence[Mark] = (),
    used: Mapping[str, Sequence[int]] | None = None,
    capacity: int = 2,
    n_rows: int | None = None,
) -> bytes:
    """Encode a schedule. `used` has the use of units by each bundle, for some of them."""
    constants = [Constant(allocation=Allocation(4096)), *(Constant(mark.number) for mark in marks)]
    notes = [mark.note for mark in marks if mark.note]
    inserted = [
        Item(
            Instruction(
                10_000 + i,
                MARKER,
                [Operand(constant=1 + i)],
                None if mark.bundle is None else 2 * mark.bundle,
                NO_REGISTER,
                notes.index(mark.note) if mark.note else None,
            )
        )
        for i, mark in enumerate(marks)
    ]
    whole = Region([*root.items, Item(region=Region(inserted, -1, -1))], root.start, root.end)
    n_rows = root.end if n_rows is None else n_rows
    rows = {name: bytes((used or {}).get(name, [0] * n_rows)) for name in UNITS}
    units = Units(*(Unit(rows[name], capacity) for name in UNITS))
    return encode(Module(whole, units, constants, notes, table_of(sources) if sources else None))


def table_of(sources: Sequence[Stack]) -> Sources:
    texts: list[str] = []

    def index(text: str) -> int:
        if text not in texts:
            texts.append(text)
        return texts.index(text)

    entries = [
        Entry(
            [Frame(index(file), line) for file, line in one.frames],
            index(one.primitive),
            [index(one.scope)] if one.scope else [],
            list(one.ids),
        )
        for one in sources
    ]
    return Sources(entries, texts)


def traced_kernels(
    ops: Sequence[Op],
    schedules: Sequence[tuple[str, bytes]],
    markers: Sequence[tuple[int, int]] = (),
    regions: Sequence[tuple[str, int, int]] = (),
    programs: Sequence[tuple[int, str]] = (),
) -> bytes:
    """Encode a trace of one step with schedules, markers (id and time) and named regions."""
    plane = tpu_plane(ops, [("s", 0, 1_000_000)])
    names = [f"bundle.{marker}" for marker, _ in markers]
    spans = [(at, at) for _, at in markers]
    for line, events in (
        ("Tensor Core", zip(names, spans, strict=True)),
        ("XLA TraceMe", ((name, (start, end)) for name, start, end in regions)),
    ):
        of_line = Line(line)
        for name, (start, end) in events:
            number = 1 + len(plane.event_metadata)
            plane.event_metadata.append(EventMetadata(number, name))
            of_line.events.append(Event(number, start, end - start))
        plane.lines.append(of_line)
    other = schedules_plane(schedules)
    for number, name in programs:
        other.event_metadata.append(EventMetadata(number, name))
    return encode(Space([plane, other]))


def schedules_plane(schedules: Sequence[tuple[str, bytes]]) -> Plane:
    """Return the plane with schedules by name, such as `jit_f(3)::flash.3`."""
    return Plane(
        "/host:metadata",
        event_metadata=[
            EventMetadata(1 + i, name, [Stat(9, raw(data))])
            for i, (name, data) in enumerate(schedules)
        ],
        stat_metadata=[StatMetadata(9, "llo_proto")],
    )
