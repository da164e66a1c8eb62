"""Read the schedule of a kernel: what each bundle of instructions does, and for which source line.

A bundle is what the core starts in one cycle. libtpu drops some of the empty bundles later, but the
numbers in a schedule, and those of markers in a trace, count them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from _breakdown.light import NamedTuple
from _proto import llo_pb2 as pb
from _proto.errors import Damage
from _proto.trace.wire import decode

Span = tuple[int, int]

UNITS = ("mxu", "xlu", "valu", "eup", "load", "store")
# Work without a source line. Of the kinds in one bundle, the first one counts.
SPILL, VECTOR, SCALAR = KINDS = ("spill", "vector", "scalar")

# Opcodes. They are the same in libtpu 0.0.40 and 0.0.52, on v4 to v7x.
_LOAD, _STORE, _MARKER, _DMA_WAIT = 50, 66, 156, 248
# Register files.
_NONE, _MASKS, _VECTORS = 0, 3, 4
# The first four bits of the number that a marker writes to the trace; the others are its id. The
# marker is at a place in the code, at the start or at the end of a named region.
_PLACE, _START, _END = 0xA, 0xB, 0xC
_ID_BITS = 28
# The bit of an id that is set if the other bits are the number of a region, not of a bundle.
_OF_REGION = 1 << 27


class SourceLine(NamedTuple):
    """A source line with its file, and the outermost line from which it is called."""

    line: str
    called_from: str
    primitive: str
    scope: str


Work: TypeAlias = "SourceLine | str"


class ScheduledLoop(NamedTuple):
    start: int
    end: int
    # None if the kernel computes the bounds.
    trips: int | None


class Schedule:
    """The schedule of one op. Raises Damage if the bytes are not a schedule."""

    def __init__(self, data: bytes) -> None:
        module = decode(pb.Module, data, 0)
        code = _Code(module.root)
        placed = [(i.twice_bundle >> 1, i) for i in code.found if i.HasField("twice_bundle")]
        self.n_bundles = max(code.end, max((bundle for bundle, _ in placed), default=-1) + 1)
        # Each bundle takes more than a byte.
        if not 0 < self.n_bundles <= len(data) or any(bundle < 0 for bundle, _ in placed):
            raise Damage(0, "the numbers of the bundles are impossible")
        self.loops = [loop for loop in code.loops if 0 <= loop.start < loop.end <= self.n_bundles]
        # What an if skips.
        self.bodies = [span for span in code.bodies if 0 <= span[0] < span[1] <= self.n_bundles]
        self.has_sources = len(module.sources.entries) > 0
        self.spilled_bytes = sum(_spill_slots(module).values())
        # Bundles of vector stores and loads that only move registers out of the way and back.
        self.spills: list[int] = []
        self.fills: list[int] = []
        self.n_stores = 0
        self.dma_waits: list[int] = []
        # The bundle of each region's marker, and the places of each named region.
        self._regions: dict[int, int] = {}
        self.named: dict[str, list[Span]] = {}
        # libtpu counts the use of bundles after it has inserted such markers: the rows of uses are
        # those of other bundles, unless there are as many. Without them, v5p has one row more.
        n_more = 0 if self._read_markers(module, code.found) else 1
        # The fraction of each unit that each bundle uses; empty if it is unknown.
        units = {name: getattr(module.units, name) for name in UNITS}
        n_rows = range(self.n_bundles, self.n_bundles + n_more + 1)
        if any(unit.capacity < 1 or len(unit.used) not in n_rows for unit in units.values()):
            units = {}
        self.units = {
            name: [used / unit.capacity for used in unit.used[: self.n_bundles]]
            for name, unit in units.items()
        }
        # What each bundle works for, in equal parts.
        self.claims = self._claims(module, code.found, placed)

    def bundle_of(self, marker: int) -> int | None:
        """Return the bundle of the marker with this id."""
        bundle = self._regions.get(marker) if marker & _OF_REGION else marker
        return None if bundle is None or bundle >= self.n_bundles else bundle

    def _read_markers(self, module: pb.Module, found: Iterable[pb.Instruction]) -> bool:
        """Return whether markers have the numbers of bundles, as if every tenth one has one."""
        starts: dict[int, tuple[str, int]] = {}
        ends: dict[int, int] = {}
        has_numbers = False
        for instruction in found:
            bundle = instruction.twice_bundle >> 1
            for value in _values(module, instruction) if instruction.opcode == _MARKER else ():
                kind, number = divmod(value, 1 << _ID_BITS)
                if kind == _PLACE and not number & _OF_REGION:
                    has_numbers = True
                elif not instruction.HasField("twice_bundle"):
                    continue
                elif kind == _PLACE:
                    self._regions[number] = bundle
                elif kind == _START and 0 <= instruction.note < len(module.notes):
                    note = module.notes[instruction.note].decode(errors="replace")
                    starts[number] = note[note.find("(") + 1 : note.rfind(")")], bundle
                elif kind == _END:
                    ends[number] = bundle
        for number, (name, start) in starts.items():
            if start < ends.get(number, 0):
                self.named.setdefault(name, []).append((start, ends[number]))
        return has_numbers

    def _claims(
        self,
        module: pb.Module,
        found: Iterable[pb.Instruction],
        placed: Iterable[tuple[int, pb.Instruction]],
    ) -> list[list[Work]]:
        sources, spill_slots = _sources_of(module.sources), _spill_slots(module).keys()
        files = {instruction.id: instruction.register_file for instruction in found}
        work: list[list[Work]] = [[] for _ in range(self.n_bundles)]
        for bundle, instruction in placed:
            opcode = instruction.opcode
            if opcode == _MARKER:
                continue
            self.n_stores += opcode == _STORE
            if opcode == _DMA_WAIT:
                self.dma_waits.append(bundle)
            if not spill_slots.isdisjoint([o.constant for o in instruction.operands]):
                if opcode in (_STORE, _LOAD):
                    (self.spills if opcode == _STORE else self.fills).append(bundle)
                work[bundle].append(SPILL)
                continue
            source: Work | None = sources.get(instruction.id)
            if source is None:
                reads = [i for o in instruction.operands if (i := o.instruction) != -1]
                if len(reads) == 1 and files.get(reads[0]) == _NONE:
                    # The result of a unit belongs to the line that started the unit.
                    source = sources.get(reads[0])
                if source is None:
                    registers = {instruction.register_file, *map(files.get, reads)}
                    source = SCALAR if registers.isdisjoint((_MASKS, _VECTORS)) else VECTOR
            work[bundle].append(source)
        claims: list[list[Work]] = []
        following: list[Work] = [SCALAR]
        bodies = {start for start, _ in self.bodies}
        for bundle, works in zip(reversed(range(self.n_bundles)), reversed(work), strict=True):
            # A bundle without an instruction waits for what the next one needs, or for a branch.
            if bundle + 1 in bodies:
                following = [SCALAR]
            if works:
                lines: list[Work] = [work for work in works if isinstance(work, SourceLine)]
                following = lines or [next(kind for kind in KINDS if kind in works)]
            claims.append(following)
        return claims[::-1]


class _Code:
    """The instructions, loops and ifs in a tree of regions."""

    def __init__(self, root: pb.Region) -> None:
        self.found: list[pb.Instruction] = []
        self.loops: list[ScheduledLoop] = []
        self.bodies: list[Span] = []
        self.end = 0
        self._add(root)

    def _add(self, region: pb.Region) -> None:
        self.end = max(self.end, region.end)
        for item in region.items:
            if item.HasField("instruction"):
                self.found.append(item.instruction)
            elif item.HasField("loop"):
                self._add_loop(item.loop)
            elif item.HasField("branch"):
                self._add_branch(item.branch)
            else:
                self._add(item.region)

    def _add_loop(self, loop: pb.Loop) -> None:
        repeated = loop.body, loop.header, loop.header_branch, loop.footer, loop.footer_branch
        bounds = loop.bounds
        trips = -((bounds.start - bounds.limit) // bounds.step) if bounds.step else None
        self.loops.append(ScheduledLoop(loop.body.start, max(part.end for part in repeated), trips))
        for part in (loop.pre_header, *repeated, loop.exit):
            self._add(part)

    def _add_branch(self, branch: pb.Branch) -> None:
        # The check overlaps the range of the body.
        self.bodies.append((branch.check_branch.end, branch.body.end))
        for part in (branch.check, branch.check_branch, branch.body, branch.fallthrough):
            self._add(part)


def _values(module: pb.Module, instruction: pb.Instruction) -> list[int]:
    indices = [operand.constant for operand in instruction.operands]
    return [module.constants[i].value for i in indices if 0 <= i < len(module.constants)]


def _spill_slots(module: pb.Module) -> dict[int, int]:
    """Return the size of each constant that is memory for spilled registers."""
    allocations = (constant.allocation for constant in module.constants)
    return {i: max(0, a.bytes) for i, a in enumerate(allocations) if a.is_spill}


def _sources_of(table: pb.Sources) -> dict[int, SourceLine]:
    """Return the source of each instruction.

    JAX 0.10.2 and later lower a primitive once per shape, and give each later use the frames of the
    first one, inside its own. These false frames are cut off.
    """
    texts = [text.decode(errors="replace") for text in table.texts]

    def named(index: int) -> str:
        return texts[index] if 0 <= index < len(texts) else ""

    stacks = [
        tuple((f.file, f.line, f.column, f.end_line, f.end_column) for f in entry.frames)
        for entry in table.entries
    ]
    uses = {(entry.primitive, stack) for entry, stack in zip(table.entries, stacks, strict=True)}
    found = {}
    for entry, stack in zip(table.entries, stacks, strict=True):
        inner = (i for i in range(1, len(stack)) if (entry.primitive, stack[i:]) in uses)
        lines = [f"{named(file)}:{line}" for file, line, *_ in stack[: next(inner, None)]]
        if lines:
            scope = "/".join(map(named, entry.scopes))
            source = SourceLine(lines[-1], lines[0], named(entry.primitive), scope)
            found.update(dict.fromkeys(entry.instructions, source))
    return found
