"""The naive implementation of what the compiler decided: every instruction asked for every fact,
every flag looked for letter by letter."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from tests.naive.comm import Comm, bits
from tests.naive.config import at, config_of, number, plan_of, vmem
from tests.naive.op import Event, duration, grouped, without_ssa_parts
from tests.naive.program import (
    COLLECTIVES,
    ELEMENT_TYPES,
    Computation,
    Instruction,
    Program,
    known,
    with_id,
)
from tests.naive.step import AbsentError, Json, Picked
from tests.naive.wire import Message, every, fields, last, numbers_in, signed, text_in

# --- collectives ---------------------------------------------------------------------------------


@dataclass(eq=False)
class Planned:
    instruction: Instruction
    collective: str
    how: str
    plan: list[str]
    events: list[Event]

    @property
    def exposed(self) -> int:
        return duration(self.events)


def name_of_collective(program: Program, instruction: Instruction) -> str | None:
    inside = program.collective_of(instruction)
    return None if inside is None else inside.collective


def moved(program: Program, instruction: Instruction) -> tuple[str, str] | None:
    """Which collective counts at an instruction, and how it is moved."""
    inside = name_of_collective(program, instruction)
    if instruction.opcode == "fusion":
        names = [computation.name for computation in program.called(instruction)]
        if instruction.is_done:
            return inside or "collective", "async_fusion"
        if instruction.is_start:
            return None
        if any(name.startswith("all-reduce-scatter") for name in names):
            return "reduce-scatter", "sync"
        is_carrier = any(name.startswith("async_collective_fusion") for name in names)
        return (inside, "sync") if inside and not is_carrier else None
    if instruction.opcode in COLLECTIVES:
        return instruction.opcode, "sync"
    if not instruction.is_done:
        return None
    name = instruction.collective or inside
    if name is None:
        return None
    return name, "sparse_core" if program.is_on_sparse_core(instruction) else "async"


# --- parameters ----------------------------------------------------------------------------------


@dataclass
class Leaf:
    """What a shape is made of; the dtype of what has no data is token or opaque."""

    index: list[int]
    dtype: str
    dims: list[int]
    is_dynamic: bool
    memory_space: int

    @staticmethod
    def all_of(shape: Message, index: list[int]) -> list[Leaf]:
        dtype = ELEMENT_TYPES.get(last(shape, 2, 0), "invalid")
        if dtype == "tuple":
            parts = [fields(part) for part in every(shape, 4)]
            return [leaf for i, part in enumerate(parts) for leaf in Leaf.all_of(part, [*index, i])]
        return [
            Leaf(
                index,
                "invalid" if dtype == "?" else dtype,
                [signed(dim) for dim in numbers_in(shape, 3)],
                any(numbers_in(shape, 6)),
                signed(last(fields(last(shape, 5, b"")), 8, 0)),
            )
        ]

    @property
    def has_data(self) -> bool:
        return self.dtype not in ("token", "opaque")

    @property
    def bytes(self) -> int | None:
        width = bits(self.dtype)
        if width is None or self.is_dynamic or any(dim < 0 for dim in self.dims):
            return None
        return (prod(self.dims) * width + 7) // 8

    def text(self, dims: Sequence[int]) -> str:
        return self.dtype + "[" + ",".join(str(dim) for dim in dims) + "]"


def comma(numbers: Sequence[int]) -> str:
    return ",".join(str(number) for number in numbers)


class Sharding:
    KINDS = ("replicated", "maximal", "tuple", "", "manual", "unknown", "unreduced")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.kind = last(message, 1, 0)
        self.dims = numbers_in(message, 3)
        subgroups = numbers_in(message, 8)
        self.subgroups = [self.KINDS[i] if i < 7 else "?" for i in subgroups]
        self.shares_last = bool(last(message, 6, 0))

    def of_leaves(self, n: int) -> list[Sharding] | None:
        """None where it is of another shape."""
        if self.kind != 2:
            return [self] * n
        parts = [sharding_of(part) for part in every(self.message, 5)]
        return parts if len(parts) == n else None

    def global_dims(self, dims: list[int]) -> list[int] | None:
        if self.kind in (0, 1, 6):
            return dims
        n_shared = len(self.subgroups) or int(self.shares_last)
        whole = ("replicated", "maximal", "unreduced")
        if self.kind != 3 or any(kind not in whole for kind in self.subgroups):
            return None
        tiles = [signed(n) for n in self.dims][: max(0, len(self.dims) - n_shared)]
        if len(self.dims) != len(dims) + n_shared or any(n < 1 for n in tiles):
            return None
        return [dim * n for dim, n in zip(dims, tiles, strict=True)]

    @property
    def text(self) -> str | None:
        devices = [signed(i) for i in numbers_in(self.message, 4)]
        if self.kind == 1:
            return "{maximal device=" + comma(devices) + "}"
        if self.kind in (0, 4, 5, 6):
            return "{" + self.KINDS[self.kind] + "}"
        if self.kind != 3:
            return None
        text = "devices=[" + comma([signed(dim) for dim in self.dims]) + "]"
        reshaped, order = numbers_in(self.message, 9), numbers_in(self.message, 10)
        if reshaped:
            text += "<=[" + comma(reshaped) + "]"
            text += "T(" + comma(order) + ")" if len(reshaped) > 1 else ""
        else:
            text += comma(devices)
        if self.subgroups:
            names = [name or "tiled" for name in self.subgroups]
            text += " last_tile_dims={" + ", ".join(names) + "}"
        elif self.shares_last:
            text += " last_tile_dim_replicate"
        return "{" + text + "}"


class NamedSharding(Sharding):
    """By the names of mesh axes."""

    def __init__(self, message: Message) -> None:
        self.named = message
        self.parts = every(message, 1)
        self.mesh = fields(last(message, 2, b""))
        self.axes = [fields(axis) for axis in every(self.mesh, 1)]
        self.sizes = [signed(last(axis, 2, 0)) for axis in self.axes]
        self.dim_axes = [self.refs(fields(dim), 1) for dim in every(message, 3)]
        self.is_cut = any(self.dim_axes)

    def refs(self, message: Message, number: int) -> list[Message]:
        return [fields(ref) for ref in every(message, number)]

    @property
    def all_refs(self) -> list[Message]:
        shared = [ref for number in (4, 5, 7) for ref in self.refs(self.named, number)]
        return [ref for refs in self.dim_axes for ref in refs] + shared

    @property
    def makes_sense(self) -> bool:
        return not self.parts and all(
            0 <= signed(last(ref, 1, 0)) < len(self.axes) for ref in self.all_refs
        )

    def of_leaves(self, n: int) -> list[Sharding] | None:
        if not self.parts:
            return [self] * n
        shardings: list[Sharding] = [NamedSharding(fields(part)) for part in self.parts]
        return shardings if len(shardings) == n else None

    def size(self, ref: Message) -> int:
        sub = every(ref, 2)
        size = signed(last(fields(sub[-1]), 2, 0)) if sub else self.sizes[last(ref, 1, 0)]
        return max(0, size)

    def global_dims(self, dims: list[int]) -> list[int] | None:
        if self.parts or every(self.named, 7):
            return None
        if not self.is_cut:
            return dims
        if not self.makes_sense or len(self.dim_axes) != len(dims):
            return None
        tiles = [prod(self.size(ref) for ref in refs) for refs in self.dim_axes]
        return None if 0 in tiles else [d * n for d, n in zip(dims, tiles, strict=True)]

    def name(self, ref: Message) -> str:
        name = "'" + text_in(self.axes[last(ref, 1, 0)], 1) + "'"
        for sub in every(ref, 2)[-1:]:
            part = fields(sub)
            name += f":({signed(last(part, 1, 0))}){signed(last(part, 2, 0))}"
        return name

    @property
    def text(self) -> str | None:
        if not self.makes_sense:
            return None
        devices = [signed(i) for i in numbers_in(self.mesh, 2)]
        if devices and not self.axes:
            return "{maximal_mesh[device_id=" + comma(devices) + "]}"
        named = [f"'{text_in(a, 1)}'={n}" for a, n in zip(self.axes, self.sizes, strict=True)]
        said = ["mesh[" + ",".join(named) + "]"]
        if devices:
            said.append("device_ids=(" + comma(devices) + ")")
        shared = {
            word: [self.name(ref) for ref in self.refs(self.named, number)]
            for word, number in (("replicated", 4), ("unreduced", 5), ("manual", 7))
        }
        everything = ["'" + text_in(axis, 1) + "'" for axis in self.axes]
        if not self.is_cut and not any(shared.values()):
            return "{" + ", ".join([*said, "replicated"]) + "}"
        for word in ("unreduced", "manual"):
            others = [axes for other, axes in shared.items() if other != word]
            if not self.is_cut and not any(others) and shared[word] == everything:
                return "{" + ", ".join([*said, word]) + "}"
        dims = []
        for dim, refs in zip(every(self.named, 3), self.dim_axes, strict=True):
            is_closed = last(fields(dim), 2, 0)
            dims.append(
                "{" + ", ".join([*map(self.name, refs), *([] if is_closed else ["?"])]) + "}"
            )
        said.append("[" + ", ".join(dims if self.is_cut else []) + "]")
        said += [f"{word}={{{', '.join(axes)}}}" for word, axes in shared.items() if axes]
        return "{" + ", ".join(said) + "}"


def sharding_of(data: bytes) -> Sharding:
    message = fields(data)
    if every(message, 14):
        return NamedSharding(fields(last(message, 14, b"")))
    return Sharding(message)


@dataclass
class Parameter:
    number: int
    leaf: Leaf
    path: str | None
    sharding: Sharding | None
    is_aliased: bool
    is_donor: bool


def places(message: Message, number: int, index: int) -> list[tuple[int, list[int]]]:
    return [
        (signed(last(entry, number, 0)), [signed(i) for i in numbers_in(entry, index)])
        for entry in map(fields, every(message, 1))
    ]


def parameters_of(program: Program) -> list[Parameter] | None:
    entry = with_id(signed(last(program.module, 6, 0)), program.computations)
    if entry is None:
        return None
    aliases = places(fields(last(program.module, 8, b"")), 2, 3)
    donors = places(fields(last(program.module, 18, b"")), 1, 2)
    shardings = [sharding_of(data) for data in every(program.module, 14)]
    found = []
    for instruction in entry.instructions:
        if instruction.opcode != "parameter":
            continue
        number = signed(last(instruction.message, 9, 0))
        leaves = Leaf.all_of(instruction.shape, [])
        of_leaves = None
        if 0 <= number < len(shardings):
            of_leaves = shardings[number].of_leaves(len(leaves))
        for i, leaf in enumerate(leaves):
            if leaf.has_data:
                place = (number, leaf.index)
                path = None if leaf.index else instruction.op_name or None
                sharding = of_leaves[i] if of_leaves else None
                found.append(
                    Parameter(number, leaf, path, sharding, place in aliases, place in donors)
                )
    return found


# --- flags ---------------------------------------------------------------------------------------

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
QUOTES = "\"'`"
ALL_GATHER, ALL_REDUCE = ["all-gather"], ["all-reduce"]
FLAGS: list[tuple[str, Sequence[str], list[str]]] = [
    ("xla_tpu_enable_async_collective_fusion", COLLECTIVES, ["async_fusion"]),
    ("xla_tpu_overlap_compute_collective_tc", COLLECTIVES, ["async_fusion"]),
    (
        "xla_tpu_enable_async_collective_fusion_fuse_all_gather",
        ALL_GATHER,
        ["async_fusion"],
    ),
    ("xla_tpu_enable_async_collective_fusion_fuse_all_reduce", ALL_REDUCE, ["async_fusion"]),
    ("xla_tpu_enable_sparse_core_collective_offload_all_gather", ALL_GATHER, ["sparse_core"]),
    (
        "xla_tpu_enable_sparse_core_collective_offload_reduce_scatter",
        ["reduce-scatter"],
        ["sparse_core"],
    ),
    ("xla_tpu_enable_sparse_core_collective_offload_all_reduce", ALL_REDUCE, ["sparse_core"]),
    ("xla_enable_async_all_gather", ALL_GATHER, ["async", "async_fusion"]),
    ("xla_enable_async_all_reduce", ALL_REDUCE, ["async", "async_fusion"]),
    ("xla_enable_async_collective_permute", ["collective-permute"], ["async"]),
]


def without_comment(line: str) -> str:
    for i, letter in enumerate(line):
        if letter == "#" and (i == 0 or line[i - 1].isspace()):
            return line[:i]
    return line


def flags_in(text: str) -> dict[str, str]:
    """Name and value of each, in order of first appearance; the last value counts."""
    values: dict[str, str] = {}
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        rest = without_comment(line)
        while "--xla" in rest:
            rest = rest[rest.index("--xla") + 2 :]
            name = ""
            while rest and rest[0] in LETTERS:
                name, rest = name + rest[0], rest[1:]
            if not rest.startswith("="):
                continue
            values[name], rest = value_in(rest[1:])
    return values


def value_in(text: str) -> tuple[str, str]:
    """The value that a text begins with, and what is behind it."""
    inner = text.lstrip("\\")
    if inner and inner[0] in QUOTES and inner[0] in inner[1:]:
        value, rest = inner[1:].split(inner[0], 1)
        return value.rstrip("\\"), rest
    value = ""
    while text and not text[0].isspace() and text[0] not in QUOTES:
        value, text = value + text[0], text[1:]
    ends = "\\" if value.startswith("$") else "\\,;)]"
    while value and value[-1] in ends:
        value = value[:-1]
    return value, text


# --- the mode ------------------------------------------------------------------------------------


class ProgramMode:
    def __init__(self, step: Picked) -> None:
        self.step = step
        op = step.program_op
        if op is None or op.program is None or op.entry is None:
            raise AbsentError("no_program")
        self.hlo: Program = op.program
        self.name, self.program_id = op.entry.name, op.program_id
        self.comm = Comm(step)

    def reached(self, computation: Computation, seen: list[Computation]) -> list[Computation]:
        if computation not in seen:
            seen.append(computation)
            for instruction in computation.instructions:
                for called in self.hlo.called(instruction):
                    self.reached(called, seen)
        return seen

    @cached_property
    def planned(self) -> list[Planned]:
        enclosed: list[Computation] = []
        for i in self.hlo.instructions:
            if i.opcode == "fusion" or i.is_asynchronous:
                for called in self.hlo.called(i):
                    self.reached(called, enclosed)
        found = []
        for i in self.hlo.instructions:
            told = moved(self.hlo, i)
            if told is not None and self.hlo.home(i) not in enclosed:
                events = [e for e in self.comm.ours if self.ran_as(e, i)]
                found.append(Planned(i, *told, plan_of(self.hlo, i), events))
        return found

    def ran_as(self, event: Event, instruction: Instruction) -> bool:
        return event.op.program_id == self.program_id and event.op.instruction is instruction

    def events_of(self, instructions: list[Instruction]) -> list[Event]:
        events = self.step.leaves + self.step.containers
        return [e for e in events if any(self.ran_as(e, i) for i in instructions)]

    def answer(self) -> Json:
        fused = [
            computation
            for i in self.hlo.instructions
            if i.opcode == "fusion"
            for computation in self.hlo.called(i)
        ]
        counted = [i for i in self.hlo.instructions if self.hlo.home(i) not in fused]
        opcodes = grouped(counted, lambda i: i.opcode)
        return {
            "name": self.name,
            "program_id": str(self.program_id),
            "n_computations": len(self.hlo.computations),
            "n_instructions": len(self.hlo.instructions),
            "n_fusions": len(opcodes.get("fusion", [])),
            "n_devices": self.hlo.n_devices,
            "opcodes": {
                opcode: len(opcodes[opcode])
                for opcode in sorted(opcodes, key=lambda o: (-len(opcodes[o]), o))
            },
            "collectives": self.collectives(),
            "kernels": self.kernels(),
            "retries": self.retries(),
            **self.parameters(),
            "flags": self.flags(),
        }

    def collectives(self) -> list[Json]:
        rows = grouped(self.planned, lambda p: (p.collective, p.how, tuple(p.plan)))
        exposed = {key: sum(p.exposed for p in rows[key]) for key in rows}
        return [
            {
                "collective": collective,
                "how": how,
                "plan": list(plan) or None,
                "n_instructions": len(alike),
                **self.times([e for p in alike for e in p.events]),
            }
            for collective, how, plan in sorted(rows, key=lambda key: (-exposed[key], *key))
            for alike in [rows[collective, how, plan]]
        ]

    def times(self, events: list[Event]) -> Json:
        payload = self.comm.sum_of(events, lambda of: of.payload)
        waits = [e for e in events if e.op.is_wait]
        return {
            "n_executions": len(events),
            "sync_dur_ps": duration([e for e in events if not e.op.is_wait]),
            "wait_dur_ps": duration(waits),
            "payload_bytes": payload if events else None,
        }

    def kernels(self) -> list[Json]:
        kernels = [
            i
            for i in self.hlo.instructions
            if i.opcode == "custom-call" and text_in(i.message, 28) == "tpu_custom_call"
        ]
        rows = []
        for alike in grouped(kernels, lambda i: json.dumps(self.kernel(i))).values():
            events = self.events_of(alike)
            rows.append(
                {
                    **self.kernel(alike[0]),
                    "n_instructions": len(alike),
                    "n_executions": len(events),
                    "total_dur_ps": duration(events),
                }
            )

        def rank(row: Json) -> tuple[Any, ...]:
            def null_first(value: int | None) -> int:
                return -1 if value is None else value

            return (
                -row["total_dur_ps"],
                row["kernel"],
                null_first(row["vmem_used_bytes"]),
                null_first(row["vmem_limit_bytes"]),
                [null_first(value) for value in (row["declared"] or {}).values()],
            )

        return sorted(rows, key=rank)

    def kernel(self, instruction: Instruction) -> Json:
        config = config_of(instruction)
        estimate = at(config, "custom_call_config", "cost_estimate")
        declared = None
        if isinstance(estimate, dict):
            names = ("flops", "bytes_accessed", "transcendentals")
            declared = {name: number(estimate.get(name)) for name in names}
        return {
            "kernel": without_ssa_parts(instruction.name),
            "vmem_used_bytes": vmem(config, "used_scoped_memory_configs"),
            "vmem_limit_bytes": vmem(config, "scoped_memory_configs"),
            "declared": declared,
        }

    def retries(self) -> list[Json]:
        rows = []
        for i in self.hlo.instructions:
            config, events = config_of(i), self.events_of([i])
            count = number(at(config, "retry_config", "retry_count"))
            if count:
                rows.append(
                    {
                        "hlo_op": i.name,
                        "retry_count": count,
                        "n_executions": len(events),
                        "total_dur_ps": duration(events),
                        "vmem_used_bytes": vmem(config, "used_scoped_memory_configs"),
                        "vmem_limit_bytes": vmem(config, "scoped_memory_configs"),
                    }
                )
        return sorted(rows, key=lambda row: (-row["total_dur_ps"], row["hlo_op"]))

    def parameters(self) -> Json:
        found = parameters_of(self.hlo)
        names = ("parameters", "tail", "aliased_bytes", "donated_unused_bytes")
        if found is None:
            return dict.fromkeys(names)
        found.sort(key=lambda p: (p.number, p.leaf.index))
        found.sort(key=lambda p: -1 if p.leaf.bytes is None else p.leaf.bytes, reverse=True)
        top = 20 if self.step.options.top is None else self.step.options.top
        return {
            "parameters": [self.parameter_row(each) for each in found[:top]],
            "tail": {
                "n_parameters_omitted": len(found[top:]),
                "bytes": self.bytes(found[top:], lambda _: True),
            },
            "aliased_bytes": self.bytes(found, lambda p: p.is_aliased and p.leaf.memory_space == 0),
            "donated_unused_bytes": self.bytes(
                found, lambda p: p.is_donor and not p.is_aliased and p.leaf.memory_space == 0
            ),
        }

    def bytes(self, found: list[Parameter], is_meant: Callable[[Parameter], bool]) -> int | None:
        sizes = [p.leaf.bytes for p in found if is_meant(p)]
        return None if None in sizes else sum(known(sizes))

    def parameter_row(self, parameter: Parameter) -> Json:
        leaf, sharding = parameter.leaf, parameter.sharding
        dims = leaf.dims if self.hlo.n_devices == 1 else None
        if sharding is not None:
            dims = sharding.global_dims(leaf.dims)
        return {
            "number": parameter.number,
            "shape_index": leaf.index,
            "path": parameter.path,
            "shape": leaf.text(leaf.dims),
            "global_shape": None if dims is None else leaf.text(dims),
            "sharding": None if sharding is None else sharding.text,
            "bytes": leaf.bytes,
            "memory_space": leaf.memory_space,
            "aliased_to_output": parameter.is_aliased,
        }

    def flags(self) -> Json | None:
        path = self.step.options.flags
        if path is None:
            return None
        values = flags_in(Path(path).read_bytes().decode(errors="replace"))
        return {
            "n": len(values),
            "set": {name: values[name] for name in list(values)[:200]},
            "findings": [self.finding(*flag, values) for flag in FLAGS],
        }

    def finding(
        self, flag: str, about: Sequence[str], effect: list[str], values: dict[str, str]
    ) -> Json:
        is_all = about is COLLECTIVES
        ours = [p for p in self.planned if is_all or p.collective in about]
        seen = [p for p in ours if p.how in effect]
        value = values.get(flag)
        says = None
        if value is not None:
            is_on = value.lower() in ("true", "1", "yes", "on")
            is_off = value.lower() in ("false", "0", "no", "off")
            if not ours or not (is_on or is_off):
                says = "unknown"
            elif is_on:
                says = "consistent" if seen else "no_effect"
            else:
                says = "contradicts" if seen else "consistent"
        return {
            "flag": flag,
            "set_to": value,
            "n_instructions": len(ours),
            "n_seen": len(seen),
            "exposed_ps": sum(p.exposed for p in ours if p not in seen),
            "says": says,
        }
