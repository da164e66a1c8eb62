"""Show an answer in a notebook with the same sentences and tables as in its text output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from _breakdown.output.blocks import blocks_of
from _breakdown.output.characters import Characters
from _breakdown.output.column_texts import texts_of
from _breakdown.output.fill import ALL, Figure, Grid, is_figure, with_unit
from _breakdown.output.screen import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _breakdown.output.fill import Span
    from _breakdown.units import Unit

CHARACTERS = Characters("utf-8")
# Notebooks typeset `$x$` as math, except in elements of these classes.
OPENING = '<div class="tex2jax_ignore mathjax_ignore">'


def html_of(fields: dict[str, Any], module: object) -> str:
    """Return an answer as an HTML element; `module` is the mode's file."""
    return "\n".join((OPENING, *elements(fields, module), "</div>"))


def elements(fields: dict[str, Any], module: object) -> Iterator[str]:
    if fields.get("headline"):
        yield f"<p><b>{prose(fields['headline'])}</b></p>"
    for block in blocks_of(fields, View(), module):
        if isinstance(block.part, Grid):
            yield from table(block.part, block.unit)
        else:
            yield f"<p>{sentence(block.part.spans, block.unit)}</p>"
    for title, texts in (
        ("next", [f"{step['command']}  # {step['why']}" for step in fields.get("next_steps", ())]),
        ("notes", dict.fromkeys(fields["notes"])),
    ):
        if texts:
            items = "".join(f"<li>{prose(text)}</li>" for text in texts)
            yield f"<p>{title}</p><ul>{items}</ul>"


def table(grid: Grid, time: Unit) -> Iterator[str]:
    columns = []
    for column, cells in zip(grid.columns, grid.cells, strict=True):
        unit, texts = texts_of(column, cells, time)
        heading = f"{column.heading} {CHARACTERS.unit(unit)}".rstrip()
        side = "right" if is_figure(column) else "left"
        columns.append(
            [
                cell("th", heading, side),
                *(cell("td", text.removesuffix(ALL), side) for text in texts),
            ]
        )
    head, *rows = ("".join(cells) for cells in zip(*columns, strict=True))
    title = sentence(grid.title, time)
    if title:
        yield f"<p><b>{title}</b></p>"
    yield f"<table><thead><tr>{head}</tr></thead><tbody>"
    for i, row in enumerate(rows):
        yield f"<tr>{row}</tr>"
        if i in grid.below:
            below = sentence(grid.below[i], time)
            yield f'<tr><td colspan="{len(columns)}" style="text-align:left">{below}</td></tr>'
        if i in grid.code:
            code = "\n".join(map(shown, grid.code[i]))
            yield f'<tr><td colspan="{len(columns)}"><pre>{code}</pre></td></tr>'
    yield "</tbody></table>"


def cell(element: str, text: str, side: str) -> str:
    return f'<{element} style="text-align:{side}">{shown(text)}</{element}>'


def sentence(spans: Sequence[Span], unit: Unit) -> str:
    return "".join(span_of(span, unit) for span in spans)


def span_of(span: Span, unit: Unit) -> str:
    if isinstance(span, Figure):
        figures = (
            " ".join(filter(None, (shown(key), text, CHARACTERS.unit(name))))
            for key, text, name in with_unit(span, unit)
        )
        return ", ".join(figures)
    return shown(span if isinstance(span, str) else span.text)


def prose(text: str) -> str:
    return escape(CHARACTERS.prose(text))


def shown(text: str) -> str:
    """Escape a text for HTML, including control characters."""
    return escape(CHARACTERS.seen(text))
