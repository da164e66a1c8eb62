"""Fill the sections of the page with the sentences and tables that the text shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from _breakdown.light import NamedTuple
from _breakdown.output.blocks import HEAD, blocks_of, ready
from _breakdown.output.characters import Characters
from _breakdown.output.column_texts import texts_of
from _breakdown.output.fill import (
    ALL,
    Block,
    Figure,
    Grid,
    Name,
    Paragraph,
    Span,
    filled,
    is_figure,
    with_unit,
)
from _breakdown.output.screen import Column, View
from _breakdown.units import Unit

Json = dict[str, Any]

EVERYTHING: Final = View(shows_all=True)
# Most lines of a comparison did not change, so hide these as the text does.
VIEWS: Final = {"compare": View(top=20)}
# Columns with the class of a row's ops, which the page shows with its colour and in words.
CLASSES: Final = ("class", "class_words")
CHARACTERS: Final = Characters("utf-8")


class PageSection(NamedTuple):
    """The parts of a mode's answer that a section shows. `tables` has the paths of the rows of its
    tables; None stands for all tables."""

    mode: str
    tables: Sequence[str] | None = None
    has_sentences: bool = True


SECTIONS: Final = {
    "changes": PageSection("compare"),
    "lead": PageSection("bottleneck", ("causes",), has_sentences=False),
    "budget": PageSection("bottleneck", ("budget",)),
    "findings": PageSection(
        "bottleneck",
        ("lines", "findings", "kernels_of_unknown_cost"),
        has_sentences=False,
    ),
    "roofline": PageSection("roofline"),
    "comm": PageSection("comm"),
    "memory": PageSection("memory"),
    "arrays": PageSection("by_array"),
    "idle": PageSection("idle"),
    "lines": PageSection("by_source"),
    "layers": PageSection("by_scope"),
    "ops": PageSection("by_op"),
    "kernels": PageSection("kernel"),
    "moves": PageSection("non_compute"),
    "steps": PageSection(
        "summary",
        ("by_phase_rollup", "steps_rollup.by_name", "steps"),
        has_sentences=False,
    ),
    "program": PageSection("program"),
}


def sections_of(data: Json, screens: Mapping[str, Any]) -> Json:
    """Return the sentences and tables of each section of the page, and of its header. `screens` has
    the files of the modes."""
    blocks = {mode: blocks_of_mode(data, mode, screens[mode]) for mode in data["parts"]}
    sections = {
        section: [shown(block, place.mode) for block in blocks[place.mode] if fits(block, place)]
        for section, place in SECTIONS.items()
        if place.mode in blocks
    }
    head = {**ready(whole(data, "bottleneck"), None), "mode": "capture"}
    header = (block for part in HEAD for block in filled(part, head, EVERYTHING))
    return {"header": [shown(block, "") for block in header], **sections}


def blocks_of_mode(data: Json, mode: str, module: Any) -> list[Block]:
    fields = whole(data, mode)
    if fields["status"] == "absent":
        return [*blocks_of(fields, EVERYTHING, module)]
    fields, view = ready(fields, module), VIEWS.get(mode, EVERYTHING)
    return [block for part in module.PARTS for block in filled(part, fields, view)]


def whole(data: Json, mode: str) -> Json:
    """Return a mode's answer with the fields that all modes have."""
    answer: Json = data["answers"].get(mode, {})
    reason = data["parts"][mode]
    if mode == "compare":
        return answer
    common = data["page"]
    status = {} if reason == "ok" else {"status": "absent", "reason": reason}
    totals = {**common["totals"], **answer.get("totals", {})}
    return {**common, **answer, "mode": mode, "totals": totals, **status}


def fits(block: Block, place: PageSection) -> bool:
    if isinstance(block.part, Grid):
        return place.tables is None or block.part.path in place.tables
    return place.has_sentences


def shown(block: Block, mode: str) -> Json:
    """Return a sentence as `says`, or a table: its columns, and the paths of its rows."""
    if isinstance(block.part, Paragraph):
        return {"says": sentence(block.part.spans, block.unit)}
    grid = block.part
    columns = zip(grid.columns, grid.cells, strict=True)
    return {
        "mode": mode,
        "path": grid.path,
        "title": sentence(grid.title, block.unit),
        "columns": [column_of(column, cells, block.unit) for column, cells in columns],
        "rows": [row.get("@") for row in grid.rows],
        "below": {str(i): sentence(spans, block.unit) for i, spans in grid.below.items()},
        "code": {str(i): "\n".join(lines) for i, lines in grid.code.items()},
    }


def column_of(column: Column, cells: Sequence[Span], time: Unit) -> Json:
    """Return a column's heading, kind and texts; if it has figures, also their exact values."""
    unit, found = texts_of(column, cells, time)
    # The page has no options.
    texts = [text.removesuffix(ALL) for text in found]
    heading = f"{column.heading} {CHARACTERS.unit(unit)}".rstrip()
    kind = "class" if column.path in CLASSES else column.kind
    shown = {"heading": heading, "kind": kind, "texts": texts}
    if not is_figure(column):
        return shown
    values = (cell.value if isinstance(cell, Figure) else None for cell in cells)
    # Large integers are strings of digits in an answer.
    exact = [int(value) if isinstance(value, str) else value for value in values]
    return {**shown, "values": exact}


def sentence(spans: Iterable[Span], unit: Unit) -> str:
    return "".join(text_of(span, unit) for span in spans)


def text_of(span: Span, unit: Unit) -> str:
    if isinstance(span, Figure):
        return ", ".join(
            " ".join(filter(None, (key, text, CHARACTERS.unit(name))))
            for key, text, name in with_unit(span, unit)
        )
    if isinstance(span, Name):
        return CHARACTERS.prose(span.text) if span.kind == "whole" else span.text
    return span
