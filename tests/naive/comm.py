"""Implement the mode `comm` naively: executions are paired one by one, replica groups are sets of
devices, and overlap is computed by interval arithmetic.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import TypeVar

from tests.naive.op import (
    Event,
    LineEvent,
    Op,
    Shape,
    duration,
    grouped,
    length,
    pct,
    ratio,
    union,
)
from tests.naive.program import COLLECTIVES, TRANSFERS, Instruction, known
from tests.naive.step import Json, Picked
from tests.naive.wire import every, fields, last, numbers_in, signed

T = TypeVar("T")
Sets = frozenset[frozenset[int]]
# A size is (number of bytes, number of elements).
Size = tuple[int, int]
MOST_DEVICES = 2**17
MOST_BYTES = 2**63
# Collectives whose outputs are as large as their inputs.
EVEN = ("all-reduce", "all-to-all", "collective-permute", "collective-broadcast")


def as_sets(groups: Sequence[Sequence[int]]) -> Sets | None:
    """Return the groups as sets, or None if a group is empty or two groups share a device."""
    members = [device for group in groups for device in group]
    if len(set(members)) < len(members) or not all(groups) or any(m < 0 for m in members):
        return None
    return frozenset(frozenset(group) for group in groups)


def are_dims(dims: Sequence[int]) -> bool:
    return 0 < len(dims) < 64 and min(dims) > 0 and prod(dims) <= MOST_DEVICES


def places(dims: Sequence[int]) -> list[tuple[int, ...]]:
    """Return all coordinates of a mesh; the last dimension varies fastest."""
    return list(itertools.product(*map(range, dims)))


def iota_sets(shape: Sequence[int], dims: Sequence[int], order: Sequence[int]) -> Sets | None:
    """Number the devices along `dims`, permute the dimensions, and divide the ids into groups."""
    order = order or list(range(len(dims)))
    if len(shape) != 2 or not are_dims(dims) or sorted(order) != list(range(len(dims))):
        return None
    n_groups, size = shape
    if min(shape) < 1 or n_groups * size != prod(dims):
        return None
    id_at = {place: i for i, place in enumerate(places(dims))}
    permuted = places([dims[axis] for axis in order])
    ids = [
        id_at[tuple(place[order.index(axis)] for axis in range(len(dims)))] for place in permuted
    ]
    return as_sets([ids[i * size : (i + 1) * size] for i in range(n_groups)])


def mesh_sets(
    dims: Sequence[int],
    parts: Sequence[tuple[int, int, int | None]],
    device_ids: Sequence[int],
) -> Sets | None:
    """Group devices whose coordinates differ only along the given axes or parts of axes.

    A part is (axis, product of the preceding parts' sizes, size); the size None means the whole
    axis.
    """
    if not are_dims(dims) or (device_ids and len(device_ids) != prod(dims)):
        return None
    if any(not 0 <= axis < len(dims) for axis, _, _ in parts):
        return None
    factors = []  # Each varying part is (axis, stride, size).
    for axis, before, factor in parts:
        size = dims[axis] if factor is None else factor
        if before < 1 or size < 1 or dims[axis] % (before * size):
            return None
        factors.append((axis, dims[axis] // (before * size), size))
    for one, other in itertools.combinations(factors, 2):
        # Two parts of the same axis must not overlap.
        (_, s, _), (_, t, m) = sorted([one, other], key=lambda f: -f[1])
        if one[0] == other[0] and s % (t * m):
            return None
    outside: dict[tuple[int, ...], list[int]] = {}
    for i, place in enumerate(places(dims)):
        fixed = list(place)
        for axis, stride, size in factors:
            fixed[axis] -= stride * (place[axis] // stride % size)
        outside.setdefault(tuple(fixed), []).append(device_ids[i] if device_ids else i)
    return as_sets(list(outside.values()))


@dataclass(frozen=True)
class Who:
    size: int | None = None
    label: str | None = None
    # The groups are None for permutes, and if there are too many devices to list.
    sets: Sets | None = None

    @staticmethod
    def of_sets(sets: Sets | None, n_devices: int | None) -> Who | None:
        if sets is None:
            return None
        if not sets:  # No groups means that all devices form one group.
            if n_devices is None:
                return Who()
            stride = ", stride 1" if n_devices > 1 else ""
            return Who(n_devices, f"1 x {n_devices}{stride}")
        sizes = {len(group) for group in sets}
        return Who(sizes.pop() if len(sizes) == 1 else None, label_of(sets), sets)

    @staticmethod
    def of_pairs(pairs: Sequence[tuple[int, int]]) -> Who | None:
        if not pairs:
            return None
        to_self = {pair for pair in pairs if pair[0] == pair[1]}
        return Who(None, f"{len(set(pairs))} pairs, {len(to_self)} to self")


def label_of(sets: Sets) -> str:
    groups = sorted(sorted(group) for group in sets)
    steps = {b - a for group in groups for a, b in itertools.pairwise(group)}
    sizes = {len(group) for group in groups}
    everyone = sorted(member for group in groups for member in group)
    if everyone == list(range(len(everyone))) and len(sizes) == 1 and len(steps) <= 1:
        shape = f"{len(groups)} x {sizes.pop()}"
        return f"{shape}, stride {steps.pop()}" if steps else shape
    shown = []
    for group in groups[:8]:
        members = [str(member) for member in group[:64]]
        members += ["…"] if len(group) > 64 else []
        shown.append("{" + ",".join(members) + "}")
    return ",".join(shown + (["…"] if len(groups) > 8 else []))


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def sets_in_text(text: str) -> Sets | None:
    """Parse the value of `replica_groups=`."""
    if text == "{}":
        return frozenset()
    if re.fullmatch(r"\{\{\d+(,\d+)*\}(,\{\d+(,\d+)*\})*\}", text):
        return as_sets([numbers(group) for group in text[1:-1].split("},{")])
    if re.fullmatch(r"\[\d+,\d+\]<=\[\d+(,\d+)*\](T\(\d+(,\d+)*\))?", text):
        shape, rest = text.split("<=")
        dims, _, order = rest.partition("T")
        return iota_sets(numbers(shape), numbers(dims), numbers(order))
    mesh = re.fullmatch(r"mesh\[(.*)\] \{(.*)\}", text)
    if not mesh:
        return None
    axes = [axis.split("=") for axis in mesh[1].split(",")]
    names = [name for name, _ in axes]
    parts: list[tuple[int, int, int | None]] = []
    for part in mesh[2].split(",") if mesh[2] else []:
        name, _, factor = part.partition(":")
        if name not in names:
            return None
        before, size = numbers(factor) or (1, None)
        parts.append((names.index(name), before, size))
    if len(set(names)) < len(names):
        return None
    return mesh_sets([int(size) for _, size in axes], parts, [])


def sets_in_program(instruction: Instruction) -> Sets | None:
    """Return the groups from the first of these fields that is present: 93, 87.2, 92, the lists
    in 49 and 87.1."""
    message = instruction.message
    if last(message, 93, b""):
        written = fields(last(message, 93, b""))
        mesh = fields(last(written, 1, b""))
        dims = [signed(last(fields(axis), 2, 0)) for axis in every(mesh, 1)]
        parts: list[tuple[int, int, int | None]] = []
        for axis in map(fields, every(written, 2)):
            subs = every(axis, 2)
            sub = fields(subs[-1]) if subs else []
            size = last(sub, 2, 0) if subs else None
            parts.append((last(axis, 1, 0), last(sub, 1, 0) if subs else 1, size))
        return mesh_sets(dims, parts, numbers_in(mesh, 2))
    listed = fields(last(message, 87, b""))
    iota = fields(last(listed, 2, b"") or last(message, 92, b""))
    if last(iota, 1, 0):
        return iota_sets(
            [last(iota, 1, 0), last(iota, 2, 0)], numbers_in(iota, 3), numbers_in(iota, 4)
        )
    groups = [*every(message, 49), *every(listed, 1)]
    return as_sets([numbers_in(fields(group), 1) for group in groups])


def pairs_in_program(instruction: Instruction) -> list[tuple[int, int]]:
    pairs = [fields(pair) for pair in every(instruction.message, 52)]
    return [(last(pair, 1, 0), last(pair, 2, 0)) for pair in pairs]


def bits(dtype: str | None) -> int | None:
    """Return the number of bits of an element."""
    if dtype == "pred":
        return 8
    digits = re.match(r"[a-z]+(\d+)", dtype or "")
    return int(digits[1]) if digits else None


def size_of(arrays: Iterable[tuple[str | None, Sequence[int]]]) -> Size | None:
    """Return the number of bytes and elements, or None if a size is unknown. Each array's size is
    rounded up to whole bytes."""
    sizes = []
    for dtype, dims in arrays:
        width = bits(dtype)
        if width is None:
            return None
        sizes.append((-(-prod(dims) * width // 8), prod(dims)))
    n_bytes = sum(of_one for of_one, _ in sizes)
    return (n_bytes, sum(n for _, n in sizes)) if sizes and n_bytes < MOST_BYTES else None


def size_of_shapes(shapes: Sequence[Shape]) -> Size | None:
    """Return the total size of shapes in an HLO text, or None if a dimension is dynamic."""
    if any("<=" in shape.text for shape in shapes):
        return None
    return size_of((shape.dtype, shape.dims) for shape in shapes)


def begins(op: Op) -> bool:
    # Starts and dones are paired by name, so an op without a name has no pair.
    if op.hlo.name is None:
        return False
    is_half = op.category in (*TRANSFERS, "host send", "host recv")
    return op.category.endswith("-start") or op.is_async_fusion_start or is_half


def first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


@dataclass(eq=False)
class Transfer:
    """Represent an op that communicates; for a wait, `start` is the op that starts the transfer."""

    op: Op
    start: Op | None

    @cached_property
    def inside(self) -> Instruction | None:
        """Return the collective that the op's instruction performs or contains."""
        if self.op.program is None or self.op.instruction is None:
            return None
        return self.op.program.collective_of(self.op.instruction)

    @cached_property
    def collective(self) -> str:
        if self.op.waits_for == "collective" and self.inside is not None:
            return str(self.inside.collective)
        if self.op.waits_for == "host" and self.op.kind != "comm":
            return "to_host" if self.op.is_copy_to_host else "from_host"
        return self.op.waits_for

    @property
    def mode(self) -> str:
        return "async" if self.op.is_wait else "sync"

    @property
    def engine(self) -> str:
        ops = [op for op in (self.op, self.start) if op is not None]
        threads = [op.hlo.attributes.get("async_execution_thread") for op in ops]
        if '"sparsecore"' in threads:
            return "sparse_core"
        program, instruction = self.op.program, self.op.instruction
        if program is None or instruction is None:
            return "core"
        return "sparse_core" if program.is_on_sparse_core(instruction) else "core"

    @property
    def matching_inside(self) -> Instruction | None:
        """Return the collective in the op's instruction if its kind matches the op's, else
        None. An all-reduce in a reduce-scatter also matches.
        """
        inside = self.inside.collective if self.inside is not None else None
        made_of_it = (self.collective, inside) == ("reduce-scatter", "all-reduce")
        return self.inside if inside == self.collective or made_of_it else None

    # sizes

    @property
    def is_fusion(self) -> bool:
        return self.op.hlo.opcode == "fusion"

    @property
    def shapes_in(self) -> list[Shape]:
        if not self.op.is_wait:
            return self.op.hlo.operand_arrays()
        of_start = self.start.hlo.operand_arrays() if self.start is not None else []
        operands = self.op.hlo.operands
        if of_start or not operands or f"{self.op.hlo.opcode}(((" not in self.op.text:
            return of_start
        return operands[0].elements[0].arrays()  # The operand's shape is ((inputs), outputs, …).

    @property
    def shapes_out(self) -> list[Shape]:
        is_copy = self.collective in ("to_host", "from_host")
        if is_copy and (self.op.hlo.name or "").startswith("dynamic-update-slice"):
            return self.shapes_in[1:2]
        if self.op.hlo.opcode == "recv" and not self.op.is_wait:
            return []
        return self.op.output_arrays

    def in_text(self, shapes: list[Shape]) -> Size | None:
        if self.is_fusion and len(shapes) != 1:
            return None
        return size_of_shapes(shapes)

    def in_program(self, arrays: list[tuple[str, list[int]]] | None) -> Size | None:
        if arrays is None or (self.is_fusion and self.op.is_wait):
            return None
        return size_of(arrays)

    @property
    def bytes_in(self) -> int | None:
        return None if self.size_in is None else self.size_in[0]

    @property
    def bytes_out(self) -> int | None:
        return None if self.size_out is None else self.size_out[0]

    @property
    def elements_in(self) -> int | None:
        return None if self.size_in is None else self.size_in[1]

    @property
    def elements_out(self) -> int | None:
        return None if self.size_out is None else self.size_out[1]

    @cached_property
    def size_in(self) -> Size | None:
        program = None if self.matching_inside is None else self.op.program
        arrays = None
        if program is not None and self.matching_inside is not None:
            arrays = program.arrays_into(self.matching_inside)
        ways = [self.in_text(self.shapes_in), self.in_program(arrays)]
        return first(reversed(ways) if self.is_fusion else ways)

    @cached_property
    def size_out(self) -> Size | None:
        arrays = None
        if self.matching_inside is not None and self.matching_inside.collective == self.collective:
            assert self.op.program is not None
            arrays = self.op.program.arrays_out_of(self.matching_inside)
        ways = [self.in_text(self.shapes_out), self.in_program(arrays)]
        return first(reversed(ways) if self.is_fusion else ways)

    @property
    def is_in_place(self) -> bool:
        """Return True if a permute writes into a part of its input."""
        texts = [op.hlo.attributes for op in (self.op, self.start) if op is not None]
        if any("slice_sizes" in attributes for attributes in texts):
            return True
        into, out = len(self.shapes_in), len(self.shapes_out)
        if not self.is_fusion and into > 1 and into > out:
            return True
        program, matching_inside = self.op.program, self.matching_inside
        if program is None or matching_inside is None or (self.is_fusion and self.op.is_wait):
            return False
        into, out = (
            len(program.arrays_into(matching_inside) or []),
            len(program.arrays_out_of(matching_inside) or []),
        )
        return into > 1 and into > out

    @property
    def also_computes(self) -> bool:
        """Return True if a fusion does more than move its input, as far as its text shows."""
        into, out = self.size_in, self.size_out
        is_in_program = self.matching_inside is not None and not self.op.is_wait
        if not self.is_fusion or is_in_program or into is None or out is None:
            return False
        if self.collective in EVEN:
            return into != out
        return into[0] * out[1] != out[0] * into[1]

    @property
    def payload(self) -> int | None:
        if self.collective == "collective-permute" and self.is_in_place:
            return None
        if self.also_computes:
            return None
        match self.collective:
            case "all-gather" | "recv" | "to_host" | "from_host":
                return self.bytes_out
            case "reduce-scatter" | "send":
                return self.bytes_in
        if self.collective in EVEN:
            return min(known([self.bytes_in, self.bytes_out]), default=None)
        return None

    @property
    def bus(self) -> Fraction | None:
        if self.payload is None:
            return None
        if self.collective in ("collective-broadcast", "to_host", "from_host"):
            return Fraction(self.payload)
        n = self.who.size
        if not n:
            return None
        match self.collective:
            case "all-gather" | "reduce-scatter" | "all-to-all":
                return Fraction(n - 1, n) * self.payload
            case "all-reduce":
                return 2 * Fraction(n - 1, n) * self.payload
        return None

    # who takes part

    @property
    def n_devices(self) -> int | None:
        return None if self.op.program is None else self.op.program.n_devices

    def who_in_text(self, op: Op | None) -> Who | None:
        if op is None:
            return None
        attributes = op.hlo.attributes
        if self.collective == "collective-permute":
            pairs = attributes.get("source_target_pairs", "")
            if not re.fullmatch(r"\{(\{\d+,\d+\},?)+\}", pairs):
                return None
            ids = numbers(pairs)
            return Who.of_pairs(list(zip(ids[::2], ids[1::2], strict=True)))
        return Who.of_sets(sets_in_text(attributes.get("replica_groups", "")), self.n_devices)

    def who_in_program(self) -> Who | None:
        program, matching_inside = self.op.program, self.matching_inside
        if program is None or matching_inside is None:
            return None
        start = program.first_of(matching_inside)
        if start is None:
            return None
        if self.collective == "collective-permute":
            return Who.of_pairs(pairs_in_program(start))
        return Who.of_sets(sets_in_program(start), self.n_devices)

    @cached_property
    def participants_and_origin(self) -> tuple[Who, str]:
        in_text = self.who_in_text(self.op) or self.who_in_text(self.start)
        if in_text is not None:
            return in_text, "text"
        in_program = self.who_in_program()
        if in_program is not None:
            return in_program, "program"
        n = None
        a, b = self.elements_in, self.elements_out
        if a and b and self.collective == "all-gather" and b % a == 0:
            n = b // a
        if a and b and self.collective == "reduce-scatter" and a % b == 0:
            n = a // b
        return Who(n), "shapes"

    @property
    def who(self) -> Who:
        return self.participants_and_origin[0]

    @property
    def who_from(self) -> str | None:
        return None if self.who == Who() else self.participants_and_origin[1]


@dataclass(eq=False)
class Pair:
    begin: Event
    end: Event
    is_ambiguous: bool


class Comm:
    def __init__(self, step: Picked) -> None:
        self.step = step

    def is_ours(self, op: Op) -> bool:
        is_exposed = op.is_wait or op.is_synchronous_comm
        names = (*COLLECTIVES, *TRANSFERS, "collective", "host")
        return is_exposed and op.waits_for in names

    @cached_property
    def ours(self) -> list[Event]:
        return [e for e in self.step.leaves if self.is_ours(e.op)]

    # pairs

    def ops_called(self, program_id: int | None, name: str) -> list[Op]:
        """Return ops with the given name that start a transfer: those in the step, else any on the
        device.
        """
        in_step = [e.op for e in self.step.leaves]
        return [
            op
            for op in [*in_step, *self.step.plane.ops.values()]
            if (op.program_id, op.hlo.name) == (program_id, name)
            and begins(op)
            and not op.is_container
        ]

    def start_name(self, done: Op) -> str:
        for name in done.hlo.operand_names:
            parts = name.split(".")
            read = ".".join(
                part.removesuffix("-update") + "-start" if part.endswith("-update") else part
                for part in parts
            )
            if self.ops_called(done.program_id, read):
                return read
        if done.program is not None and done.instruction is not None and done.instruction.is_done:
            begin = done.program.path_to_start(done.instruction)[0]
            if begin is not done.instruction:
                return begin.name
        before, found, after = (done.hlo.name or "").rpartition("done")
        return before + "start" + after if found else after

    @cached_property
    def start_names(self) -> dict[int, str]:
        return {id(e.op): self.start_name(e.op) for e in self.ours if e.op.is_wait}

    @cached_property
    def transfers(self) -> dict[int, Transfer]:
        found: dict[int, Transfer] = {}
        for e in self.ours:
            starts: list[Op] = []
            if e.op.is_wait and id(e.op) not in found:
                starts = self.ops_called(e.op.program_id, self.start_names[id(e.op)])
            found.setdefault(id(e.op), Transfer(e.op, starts[0] if starts else None))
        return found

    def module_ends(self) -> list[int]:
        """Return the times at which program executions end, on the trace's clock."""
        events: list[LineEvent] = self.step.plane.events_of("XLA Modules")
        return [span.end for e in events if (span := e.on_trace) is not None]

    @cached_property
    def pairs(self) -> list[Pair]:
        """Pair starts and dones in one queue per name, which is emptied when a program ends."""
        borders = sorted(set(self.module_ends()))
        found = []
        waits = [e for e in self.ours if e.op.is_wait]

        def queue_of(event: Event) -> tuple[int | None, str | None]:
            if id(event.op) in self.start_names:
                return event.op.program_id, self.start_names[id(event.op)]
            return event.op.program_id, event.op.hlo.name

        stretches = grouped(
            self.step.leaves, lambda e: sum(border <= e.on_trace.start for border in borders)
        )
        for key in distinct_keys(map(queue_of, waits)):
            for stretch in stretches.values():
                begun = [e for e in stretch if begins(e.op) and queue_of(e) == key]
                ended = [e for e in stretch if e in waits and queue_of(e) == key]
                # The sort is stable, so equal events remain in the order of the file.
                order = sorted(
                    [e for e in stretch if e in begun or e in ended],
                    key=lambda e: (e.on_trace.start, e in ended),
                )
                found += pairs_in(order, ended)
        return found

    # time

    @cached_property
    def covering(self) -> list[tuple[int, int]]:
        hiding = [e for e in self.step.leaves if not e.op.is_wait and e.op.kind != "comm"]
        return union((e.start, e.end) for e in hiding)

    def covered(self, start: int, end: int) -> int:
        return length(union((max(s, start), min(e, end)) for s, e in self.covering))

    # output

    def key(self, event: Event) -> tuple[str | int, ...]:
        of = self.transfers[id(event.op)]
        who = of.who
        return (
            *(of.collective, of.mode, of.engine, event.op.agg_key, event.op.row_line or ""),
            *(who.label or "", who.size or 0),
        )

    def answer(self) -> Json:
        rows = grouped(self.ours, lambda e: (self.key(e), self.transfers[id(e.op)].who.sets))
        ranked = [rows[k] for k in sorted(rows, key=lambda k: (-duration(rows[k]), k[0]))]
        top = 20 if self.step.options.top is None else self.step.options.top
        left_out = [e for events in ranked[top:] for e in events]
        for_devices = [e for e in self.ours if e.op.waits_for != "host"]
        for_host = [e for e in self.ours if e.op.waits_for == "host"]
        with_host = [p for p in self.pairs if p.end.op.waits_for == "host"]
        among_devices = [p for p in self.pairs if p not in with_host]
        if any(p.end.end < p.begin.start for p in self.pairs):
            self.step.notes.append("~some pairs end before they begin")
        by_collective = grouped(self.ours, lambda e: self.transfers[id(e.op)].collective)
        totals = {
            "exposed_ps": duration(for_devices),
            "exposed_pct_of_step": pct(duration(for_devices), self.step.duration),
            "host_ps": duration(for_host),
            "host_pct_of_step": pct(duration(for_host), self.step.duration),
            "in_flight_union_ps": length(under_way(among_devices, for_devices)),
            "hidden_union_ps": self.hidden_during(under_way(among_devices, for_devices)),
            "host_in_flight_union_ps": length(under_way(with_host, for_host)),
            "host_hidden_union_ps": self.hidden_during(under_way(with_host, for_host)),
            "by_collective": {
                name: {
                    "n_executions": len(events),
                    **by_mode(events),
                    "payload_bytes": self.sum_of(self.once(events), lambda of: of.payload),
                }
                for name, events in by_collective.items()
            },
        }
        return {
            "rows": [self.row(events) for events in ranked[:top]],
            "tail": {"n_rows_omitted": len(ranked[top:]), **by_mode(left_out)},
            "totals": totals,
        }

    def hidden_during(self, stretches: list[tuple[int, int]]) -> int:
        return sum(self.covered(*stretch) for stretch in stretches)

    def once(self, events: list[Event]) -> list[Event]:
        """Return the events, except starts whose wait is also among them."""
        ends = [(e.op.program_id, self.start_names[id(e.op)]) for e in events if e.op.is_wait]
        return [
            e
            for e in events
            if e.op.is_wait or not begins(e.op) or (e.op.program_id, e.op.hlo.name) not in ends
        ]

    def sum_of(
        self, events: list[Event], fact: Callable[[Transfer], int | Fraction | None]
    ) -> int | None:
        """Return the sum of a value over events, rounded at the end, or None if any value is
        unknown."""
        facts = [fact(self.transfers[id(e.op)]) for e in events]
        known = [Fraction(value) for value in facts if value is not None]
        return round(sum(known, Fraction(0))) if len(known) == len(facts) else None

    def row(self, events: list[Event]) -> Json:
        of = self.transfers[id(events[0].op)]
        ways = grouped(events, lambda e: e.op.row_how)
        return {
            "collective": of.collective,
            "mode": of.mode,
            "engine": of.engine,
            "source_inner": of.op.row_line,
            "source_user": of.op.row_user,
            "source_is": max(ways, key=lambda way: duration(ways[way])),
            "agg_key": of.op.agg_key,
            "tf_op": shortened(of.op.tf_op),
            "n_executions": len(events),
            **by_mode(events),
            "pct_of_step": pct(duration(events), self.step.duration),
            **self.flight(events),
            "payload_bytes": self.sum_of(events, lambda of: of.payload),
            "bus_bytes": self.sum_of(events, lambda of: of.bus),
            "group_size": of.who.size,
            "groups": of.who.label,
            "groups_from": of.who_from,
            **self.rate(events),
        }

    def pairs_of(self, events: list[Event]) -> list[Pair]:
        return [pair for pair in self.pairs if pair.end in events]

    def flight(self, events: list[Event]) -> Json:
        nothing = dict.fromkeys(("pairs", "in_flight_ps", "in_flight_union_ps"))
        nothing |= dict.fromkeys(("covered_ps", "other_ps"))
        if not events[0].op.is_wait:
            return nothing
        pairs = self.pairs_of(events)
        result: Json = {
            **nothing,
            "pairs": {
                "paired": len(pairs),
                "ambiguous": sum(pair.is_ambiguous for pair in pairs),
                "unpaired": len(events) - len(pairs),
            },
        }
        if pairs:
            covered = sum(self.covered(pair.begin.start, pair.end.start) for pair in pairs)
            unawaited = sum(max(0, pair.end.start - pair.begin.start) for pair in pairs)
            result |= {
                "in_flight_ps": sum(max(0, pair.end.end - pair.begin.start) for pair in pairs),
                "in_flight_union_ps": length(under_way(pairs)),
                "covered_ps": covered,
                "other_ps": unawaited - covered,
            }
        return result

    def rate(self, events: list[Event]) -> Json:
        over, counted, time = "duration", events, duration(events)
        if events[0].op.is_wait:
            pairs = self.pairs_of(events)
            over, counted = "in_flight_union", [pair.end for pair in pairs]
            time = length(under_way(pairs))
        rates = [self.transfers[id(e.op)].bus for e in counted]
        known = [bus for bus in rates if bus is not None]
        moved = sum(known, Fraction(0)) if len(known) == len(rates) else None
        seconds = Fraction(time, 10**12)
        gbps = ratio(None if moved is None else moved / 10**9, seconds, 3)
        return {"bus_gbps": gbps, "bus_gbps_over": over}


def distinct_keys(
    keys: Iterable[tuple[int | None, str | None]],
) -> list[tuple[int | None, str | None]]:
    return list(dict.fromkeys(keys))


def pairs_in(order: list[Event], ended: list[Event]) -> list[Pair]:
    """Pair each end with the oldest start that has no end yet."""
    found = []
    open_since: list[Event] = []
    shared: list[Event] = []
    for event in order:
        if event not in ended:
            open_since.append(event)
        elif open_since:
            found.append((open_since[0], event))
            open_since = open_since[1:]
        if len(open_since) > 1:
            shared += open_since
    return [Pair(begin, end, begin in shared) for begin, end in found]


def under_way(pairs: list[Pair], events: Sequence[Event] = ()) -> list[tuple[int, int]]:
    """Return the intervals in which a transfer is in flight or an op other than a wait runs."""
    flights = [(pair.begin.start, max(pair.begin.start, pair.end.end)) for pair in pairs]
    return union([*flights, *((e.start, e.end) for e in events if not e.op.is_wait)])


def by_mode(events: list[Event]) -> Json:
    waits = [e for e in events if e.op.is_wait]
    return {
        "sync_dur_ps": duration([e for e in events if not e.op.is_wait]),
        "wait_dur_ps": duration(waits),
    }


def shortened(text: str | None) -> str | None:
    return text if text is None or len(text) <= 200 else "…" + text[-200:]
