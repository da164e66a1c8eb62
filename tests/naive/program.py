"""Decode what the core needs of the programs in a trace: names, lines and paths of instructions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tests.naive.wire import (
    Message,
    StatValue,
    decode_map,
    decode_stats,
    every,
    fields,
    last,
    text_in,
)

COLLECTIVES = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all"),
    *("collective-permute", "collective-broadcast"),
)
TRANSFERS = ("send", "recv")


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
    line: str | None
    op_name: str


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


def file_and_line(file: str, line: int) -> str | None:
    return f"{file}:{line}" if file and line else None


def decode_instruction(message: Message, frames: Frames) -> Instruction:
    metadata = fields(last(message, 7, b""))
    in_file = file_and_line(text_in(metadata, 3), last(metadata, 4, 0))
    return Instruction(
        name=text_in(message, 1).removeprefix("%"),
        line=frames.line(last(metadata, 15, 0)) or in_file,
        op_name=text_in(metadata, 2),
    )


def decode_instructions(data: bytes) -> list[Instruction]:
    """Return the instructions of a program."""
    module = fields(last(fields(data), 1, b""))
    index = fields(last(module, 17, b""))
    frames = Frames(
        files=[file.decode() for file in every(index, 1)],
        locations=[fields(location) for location in every(index, 3)],
        frames=[fields(frame) for frame in every(index, 4)],
    )
    return [
        decode_instruction(fields(instruction), frames)
        for computation in every(module, 3)
        for instruction in every(fields(computation), 2)
    ]


@dataclass
class Entry:
    """Represent an entry in the plane of programs."""

    name: str
    hlo: bytes | None

    @cached_property
    def instructions(self) -> list[Instruction]:
        return [] if self.hlo is None else decode_instructions(self.hlo)

    def named(self, name: str | None) -> Instruction | None:
        """Return the instruction with a name, given with or without `%`, or None if the name is not
        unique."""
        found = [i for i in self.instructions if name and i.name == name.removeprefix("%")]
        return found[0] if len(found) == 1 else None


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
