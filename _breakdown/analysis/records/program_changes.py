"""Compare the compiled programs of two sides, using the digests in their records."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from _breakdown.analysis.devices.record_format import Fact, ProgramWhat, RecordedProgram
from _breakdown.light import NamedTuple

DIMENSIONS = re.compile(r"\[([0-9,]+)\]")
KERNEL_CODE: Final = "kernel_code"


class ProgramChange(NamedTuple):
    """A property that differs between two programs; None on a side that lacks it."""

    what: ProgramWhat
    name: str | None
    before: Fact | None
    after: Fact | None


class ProgramChanges(NamedTuple):
    """Differences between two programs. `same` is None if it is unknown whether the programs are
    equal, or if only the code of kernels differs."""

    same: bool | None
    rows: list[ProgramChange]


def program_changes(
    before: Sequence[RecordedProgram | None], after: Sequence[RecordedProgram | None]
) -> ProgramChanges:
    """Decide whether the programs of all captures are equal, and return the differences between
    the first programs of both sides."""
    programs = [program for program in (*before, *after) if program]
    if len(programs) < len(before) + len(after):
        return ProgramChanges(None, [])
    first, other = programs[0], programs[len(before)]
    rows = list(changes_between(first, other))
    if len({program.fingerprint for program in programs}) == 1:
        code = [row for row in rows if row.what == KERNEL_CODE]
        is_same = all(
            program.facts[KERNEL_CODE] == first.facts[KERNEL_CODE] for program in programs
        )
        return ProgramChanges(True, []) if is_same else ProgramChanges(None, code)
    if all(row.what == KERNEL_CODE for row in rows) and first.fingerprint != other.fingerprint:
        rows.append(ProgramChange("other", None, first.fingerprint, other.fingerprint))
    return ProgramChanges(False, rows)


def changes_between(before: RecordedProgram, after: RecordedProgram) -> Iterator[ProgramChange]:
    """Yield the properties that differ; within each type, the largest change comes first."""
    for what, facts in before.facts.items():
        others = after.facts[what]
        rows = [
            ProgramChange(what, name or None, facts.get(name), others.get(name))
            for name in {**facts, **others}
            if facts.get(name) != others.get(name)
        ]
        yield from sorted(rows, key=lambda row: (-size_of(row), row.name or ""))


def size_of(row: ProgramChange) -> int:
    """Return the size of a change, by which changes are sorted. The unit is bytes or a count if
    known, else array elements."""
    before, after = amount(row.before), amount(row.after)
    return abs(after - before) or max(before, after)


def amount(fact: Fact | None) -> int:
    if isinstance(fact, int):
        return fact
    if not isinstance(fact, dict):
        return 0
    texts = [text for value in fact.values() for text in texts_in(value)]
    elements = sum(elements_in(text) for text in texts)
    return known_bytes(fact) or elements


def known_bytes(fact: Mapping[str, object]) -> int:
    figures = (fact.get("bytes"), fact.get("vmem_used_bytes"), fact.get("n"))
    return next((figure for figure in figures if isinstance(figure, int) and figure), 0)


def texts_in(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str)]


def elements_in(shape: str) -> int:
    return sum(math.prod(map(int, dims.split(","))) for dims in DIMENSIONS.findall(shape))
