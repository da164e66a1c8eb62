"""Format an answer as text for a terminal: align columns, shorten long names and wrap lines.

All figures and names come from the answer's JSON.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from _breakdown.light import NamedTuple
from _breakdown.output.blocks import blocks_of, shown_notes
from _breakdown.output.characters import Characters
from _breakdown.output.column_texts import Shown, columns_of
from _breakdown.output.figures import FIGURES
from _breakdown.output.fill import (
    ALL,
    INDENT,
    Figure,
    Grid,
    Name,
    Paragraph,
    Span,
    is_figure,
    label_of,
    with_unit,
)
from _breakdown.output.screen import Column, View
from _breakdown.units import Unit, plural

Json = dict[str, Any]

WIDTH: Final = 100
# Minimum line width, also used on narrower terminals.
NARROWEST: Final = 60
GAP: Final = "  "
# A NUL character stands for a space at which lines must not break. Names contain no NUL, because it
# is escaped in them.
TIED: Final = "\0"
# A name is not cut to fewer terminal columns than this.
SHORTEST_CUT: Final = 12
# Maximum width of a sentence, and of a name in a sentence, in terminal columns.
LONGEST_SENTENCE, LONGEST_NAME = 1000, 70
PROSE = ("whole",)
WHOLE = (*PROSE, "stack", "values")
UNIT_RE: Final = re.compile(r"(?<=\d) (?=%|(?:[pnuµm]?s|(?:[KMGT]i)?B)\b)")
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


class Style(NamedTuple):
    """The line width, and whether the terminal can show bold letters and colours."""

    width: int = WIDTH
    has_colours: bool = False


def text_of(
    fields: Json,
    encoding: str,
    module: object,
    view: View | None = None,
    style: Style | None = None,
) -> str:
    """Return an answer as text for a stream with this encoding; `module` is the mode's file."""
    page = TextPage(Characters(encoding), style or Style())
    lines = page.lines_of(fields, module, view or View())
    return "".join(f"{line.rstrip()}\n" for line in lines)


class TextPage:
    """Lays out an answer for one stream."""

    def __init__(self, characters: Characters, style: Style) -> None:
        self.characters = characters
        self.width = max(style.width, NARROWEST)
        self.has_colours = style.has_colours
        self.shows_all = False

    def lines_of(self, fields: Json, module: object, view: View) -> Iterator[str]:
        self.shows_all = view.shows_all
        if fields.get("headline"):
            yield from self.bold(self.wrapped(self.characters.prose(fields["headline"]), rest=""))
        for block in blocks_of(fields, view, module):
            if isinstance(block.part, Grid):
                yield from self.lines_of_table(block.part, block.unit)
            else:
                yield from self.lines_of_sentence(block.part, block.unit)
        if fields.get("next_steps") or fields["notes"]:
            yield ""
        for step in fields.get("next_steps", ()):
            # Don't wrap lines that contain commands, so that they can be copied.
            command = f"next: {self.seen(step['command'])} --text"
            both = f"{command}  # {self.seen(step['why'])}"
            yield both if view.shows_all or self.characters.width(both) <= self.width else command
        notes, n_more = shown_notes(fields, view)
        for line in self.joined(notes):
            yield from self.wrapped(line, "- ")
        if n_more:
            yield f"- {n_more} more {plural('note', n_more)}{ALL}"
        if fields.get("gate"):
            yield from ("", f"gate: {self.seen(fields['gate']['says'])}")

    def joined(self, notes: Iterable[str]) -> list[str]:
        """Join short notes on one line."""
        lines: list[str] = []
        for note in map(self.characters.prose, notes):
            both = f"{lines[-1]}; {note}" if lines else note
            if lines and self.characters.width(both) + len(INDENT) <= self.width:
                lines[-1] = both
            else:
                lines.append(note)
        return lines

    def seen(self, text: str) -> str:
        return self.characters.seen(text)

    def bold(self, lines: Sequence[str]) -> Iterator[str]:
        for line in lines:
            yield f"{BOLD}{line}{PLAIN}" if self.has_colours else line

    def lines_of_sentence(self, sentence: Paragraph, unit: Unit) -> Iterator[str]:
        if sentence.is_new:
            yield ""
        yield from self.wrapped(self.sentence(sentence.spans, unit))

    def sentence(self, spans: Sequence[Span], unit: Unit) -> str:
        return "".join(self.span(span, unit) for span in spans)

    def span(self, span: Span, unit: Unit) -> str:
        if isinstance(span, Figure):
            shown = (
                TIED.join(filter(None, (self.name(key, "name"), text, self.characters.unit(name))))
                for key, text, name in with_unit(span, unit)
            )
            return ", ".join(shown)
        return self.name(span.text, span.kind) if isinstance(span, Name) else self.seen(span)

    def name(self, text: str, kind: str) -> str:
        longest = LONGEST_SENTENCE if kind in WHOLE else LONGEST_NAME
        if kind in PROSE:
            text = self.characters.prose(text)
        return self.cut(self.characters.seen(text, longest), kind, longest)

    def cut(self, text: str, kind: str, width: int) -> str:
        """Shorten a text to a width, keeping the end of a file name or both ends of any other
        name."""
        if kind == "file":
            return self.characters.end_of(text, width)
        return self.characters.ends_of(text, width)

    def wrapped(self, text: str, first: str = "", rest: str = INDENT) -> list[str]:
        """Break a text into lines, if possible between words."""
        width = self.characters.width
        lines = [first]
        is_empty = True
        text = UNIT_RE.sub(TIED, self.characters.ends_of(text, LONGEST_SENTENCE))
        for word in text.split(" "):
            left = word
            if not is_empty and width(f"{lines[-1]} {left}") > self.width:
                lines.append(rest)
                is_empty = True
            while width(lines[-1] + left) > self.width:
                start = self.characters.start_of(left, self.width - width(lines[-1]))
                lines[-1] += start
                lines.append(rest)
                left = left[len(start) :]
            lines[-1] += left if is_empty else f" {left}"
            is_empty = False
        return [line.replace(TIED, " ") for line in lines]

    def lines_of_table(self, grid: Grid, time: Unit) -> Iterator[str]:
        yield ""
        shown = columns_of(grid, time)
        title = self.sentence(grid.title, time)
        if said_once := ", ".join(self.said(column) for column in shown if column.said):
            title = f"{title}; all rows: {said_once}" if title else f"all rows: {said_once}"
        if title:
            yield from self.bold(self.wrapped(title))
        columns, cells = [], []
        for column, unit, _, texts, said in shown:
            if not said:
                heading = f"{column.heading} {self.characters.unit(unit)}".rstrip()
                cells.append([heading, *(self.characters.seen(text, self.width) for text in texts)])
                columns.append(column)
        kept = self.fitting(cells, columns)
        cells, columns = [cells[i] for i in kept], [columns[i] for i in kept]
        widths = self.widths_of(cells, columns)
        headings, *rows = zip(*cells, strict=True)
        yield from self.bold([self.row(headings, columns, widths)])
        lines = [self.row(row, columns, widths) for row in rows]
        below = [self.sentence(grid.below.get(i, ""), time) for i in range(len(rows))]
        n_alike = Counter(zip(lines, below, strict=True))
        for i, line in enumerate(lines):
            n = 1 if self.shows_all else n_alike.pop((line, below[i]), 0)
            if not n:
                # A row above stands for this one.
                continue
            yield line
            if below[i]:
                yield from self.wrapped(below[i], INDENT * 2, INDENT * 2)
            if n > 1:
                yield f"{INDENT * 2}({n} rows like this)"
            for line_of_code in grid.code.get(i, ()):
                seen = self.characters.seen(line_of_code, LONGEST_SENTENCE)
                yield INDENT * 2 + self.characters.start_of(seen, self.width - 2 * len(INDENT))

    def row(self, cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
        last = max((i for i, cell in enumerate(cells) if cell), default=0)
        # A row's last name may fill the rest of the line.
        rest = self.width - len(INDENT) - sum(width + len(GAP) for width in widths[:last])
        padded: list[str] = []
        for i, (cell, column, width) in enumerate(zip(cells, columns, widths, strict=True)):
            room = width if i != last else max(width, rest)
            if i == last and cell.endswith(ALL):
                # The count of hidden rows may extend to the left, into empty cells.
                while padded and padded[-1].isspace() and self.characters.width(cell) > room:
                    room += len(padded.pop()) + len(GAP)
            shown = self.cut(cell, column.kind, room)
            pad = 0 if i > last else max(width, self.characters.width(shown))
            padded.append(self.characters.padded(shown, pad, is_figure(column)))
        return f"{INDENT}{GAP.join(padded)}".rstrip()

    def said(self, column: Shown) -> str:
        value = self.name(column.said.removesuffix(column.unit), column.column.kind)
        return f"{column.column.heading} {value}{self.characters.unit(column.unit)}".strip()

    def fitting(self, cells: Sequence[Sequence[str]], columns: Sequence[Column]) -> list[int]:
        """Return the indices of the columns to show: if the line is too long even with short names,
        leave out columns: first those that give way, then figures, then names, from the
        right."""
        least = []
        for texts, column in zip(cells, columns, strict=True):
            width = max(map(self.characters.width, texts))
            is_name = column.kind not in FIGURES
            least.append(min(width, max(column.least, SHORTEST_CUT)) if is_name else width)
        kept = list(range(len(columns)))
        label = label_of(columns)
        while sum(least[i] + len(GAP) for i in kept) > self.width - len(INDENT) + len(GAP):
            others = [i for i in kept[1:] if columns[i] is not label]
            if not others:
                break
            is_figure = [column.kind in FIGURES for column in columns]
            kept.remove(max(others, key=lambda i: (columns[i].gives_way, is_figure[i], i)))
        return kept

    def widths_of(self, cells: Sequence[Sequence[str]], columns: Sequence[Column]) -> list[int]:
        """Return the columns' widths; if the line is too long, narrow the widest columns of
        names."""
        widths = [min(max(map(self.characters.width, texts)), self.width) for texts in cells]
        names = [i for i, column in enumerate(columns) if column.kind not in FIGURES]
        room = self.width - len(INDENT) - len(GAP) * (len(columns) - 1)
        while sum(widths) > room:
            wide = [i for i in names if widths[i] > columns[i].least] or [
                i for i in names if widths[i] > len(self.characters.ellipsis)
            ]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
        return widths
