"""Format an answer as GitHub Markdown, for pull requests and job summaries.

Names become code spans, because GitHub would read `<none>`, `__init__.py`, `@x` and `#1` as markup.
In sentences with names from the trace, such as notes, each word that GitHub could read as markup
becomes a code span.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from _breakdown.output.blocks import blocks_of, shown_notes
from _breakdown.output.characters import Characters
from _breakdown.output.column_texts import columns_of
from _breakdown.output.figures import NO_UNIT, WORDS
from _breakdown.output.fill import ALL, Figure, Grid, Name, is_figure, label_of, with_unit
from _breakdown.output.screen import View
from _breakdown.units import plural

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _breakdown.output.fill import Span
    from _breakdown.units import Unit

    Json = dict[str, Any]

# Kinds of names that are sentences or words.
PROSE: Final = (*WORDS, "whole")
BACKTICKS_RE = re.compile(r"`+")
# Splits a word from the punctuation around it, which stays outside the word's code span.
PARTS_RE = re.compile(r"\A([\"'(]*)(.*?)([\"').,;:!?]*)\Z", re.DOTALL)
# Matches a word that is a code span already.
CODE_RE = re.compile(r"`([^`]+)`")
# Matches a word without markup: no emphasis, tag, link, mention or reference.
PLAIN_RE = re.compile(r"[^\W_]*(?:(?:[-+/.,:'%=…]|(?<=[^\W_])_(?=[^\W_]))[^\W_]*)*")
# Matches the gap between two code spans, to merge them into one.
BETWEEN_SPANS_RE = re.compile(r"(?<!`)` `(?!`)")
EMOJI_RE = re.compile(r":\w+:")
# Matches the start of a list, heading or quotation.
BLOCK_RE = re.compile(r"\A(\d*)([-+*>#]|(?<=\d)[.)])(?= |\Z)")


def markdown_of(fields: Json, encoding: str, module: object, view: View | None = None) -> str:
    """Return an answer as Markdown for a stream with this encoding; `module` is the mode's file."""
    page = MarkdownPage(Characters(encoding))
    return "\n\n".join(page.blocks(fields, module, view or View())) + "\n"


class MarkdownPage:
    """Formats an answer for one stream."""

    def __init__(self, characters: Characters) -> None:
        self.characters = characters

    def blocks(self, fields: Json, module: object, view: View) -> Iterator[str]:
        if fields.get("headline"):
            yield self.prose(fields["headline"])
        lines: list[str] = []
        for block in blocks_of(fields, view, module):
            if isinstance(block.part, Grid):
                if lines:
                    yield "  \n".join(lines)
                    lines = []
                yield from self.table(block.part, block.unit)
                continue
            if block.part.is_new and lines:
                yield "  \n".join(lines)
                lines = []
            lines.append(self.sentence(block.part.spans, block.unit))
        if lines:
            yield "  \n".join(lines)
        if fields.get("next_steps"):
            steps = fields["next_steps"]
            commands = ((self.code(step["command"]), self.prose(step["why"])) for step in steps)
            yield "**next**\n\n" + "\n".join(f"- {command}: {why}" for command, why in commands)
        notes, n_more = shown_notes(fields, view)
        if notes:
            lines = [self.prose(note) for note in notes]
            if n_more:
                lines.append(f"{n_more} more {plural('note', n_more)}{ALL}")
            yield "**notes**\n\n" + "\n".join(f"- {line}" for line in lines)

    def table(self, grid: Grid, time: Unit) -> Iterator[str]:
        columns, all_rows = [], []
        for column, unit, cells, texts, said in columns_of(grid, time):
            is_plain = is_figure(column) or column.kind in WORDS
            if said:
                value = said.removesuffix(unit) + self.characters.unit(unit)
                shown_value = self.prose(value) if is_plain else self.code(value)
                all_rows.append(f"{column.heading} {shown_value}".strip())
                continue
            heading = f"{column.heading} {self.characters.unit(unit)}".rstrip()
            shown = [
                self.cell(text, is_plain or is_word(cell))
                for text, cell in zip(texts, cells, strict=True)
            ]
            columns.append([heading, "---:" if is_figure(column) else ":---", *shown])
        title = self.sentence(grid.title, time)
        if all_rows:
            title = "; ".join(filter(None, (title, f"all rows: {', '.join(all_rows)}")))
        if title:
            yield f"**{title}**"
        yield "\n".join(f"| {' | '.join(cells)} |" for cells in zip(*columns, strict=True))
        if grid.below:
            yield "\n".join(
                f"- {self.label(grid, i)}{self.sentence(below, time)}"
                for i, below in grid.below.items()
            )
        for code in grid.code.values():
            # Indented, because a fence could also be in the code.
            lines = (self.characters.seen(line) for line in code)
            yield "\n".join(f"    {line}" for line in lines)

    def label(self, grid: Grid, row: int) -> str:
        """Return the names of a row of a table, up to its line."""
        label = label_of(grid.columns)
        n = grid.columns.index(label) + 1 if label else 0
        cells = [cells[row] for cells in grid.cells[:n]]
        names = [self.span(cell, NO_UNIT) for cell in cells if isinstance(cell, Name)]
        return f"{' '.join(names)}: " if names else ""

    def cell(self, text: str, is_plain: bool) -> str:
        return self.prose(text) if is_plain else self.code(text.strip(), is_in_table=True)

    def sentence(self, spans: Sequence[Span], unit: Unit) -> str:
        text = "".join(self.span(span, unit) for span in spans)
        return BLOCK_RE.sub(r"\1\\\2", text)

    def span(self, span: Span, unit: Unit) -> str:
        if isinstance(span, Figure):
            shown = (
                " ".join(filter(None, (key and self.code(key), text, self.characters.unit(name))))
                for key, text, name in with_unit(span, unit)
            )
            return ", ".join(shown)
        if isinstance(span, str):
            return span
        return self.prose(span.text) if span.kind in PROSE else self.code(span.text)

    def prose(self, text: str) -> str:
        """Return a sentence in which words that could be markup are code spans."""
        seen = self.characters.prose(text)
        text = BETWEEN_SPANS_RE.sub(" ", " ".join(map(self.word, seen.split(" "))))
        return BLOCK_RE.sub(r"\1\\\2", text)

    def word(self, word: str) -> str:
        before, core, after = PARTS_RE.findall(word)[0]
        if code := CODE_RE.fullmatch(core):
            return f"{before}{self.code(code[1])}{after}"
        shows_unchanged = is_plain(core) and not EMOJI_RE.search(word)
        return f"{before}{core if shows_unchanged else self.code(core)}{after}"

    def code(self, text: str, *, is_in_table: bool = False) -> str:
        """Return a code span that shows a text unchanged."""
        text = self.characters.seen(text)
        if not text:
            return ""
        if is_in_table and "\\|" in text:
            # If a backslash preceded `\|`, the `|` would no longer be escaped.
            marked = (f"&#{ord(c)};" if not c.isalnum() else c for c in text)
            return f"<code>{''.join(marked)}</code>"
        longest = max((len(ticks) for ticks in BACKTICKS_RE.findall(text)), default=0)
        fence = "`" * (longest + 1)
        pad = " " if text.startswith("`") or text.endswith("`") else ""
        if text.startswith(" ") and text.endswith(" ") and text.strip():
            pad = " "
        shown = text.replace("|", "\\|") if is_in_table else text
        return f"{fence}{pad}{shown}{pad}{fence}"


def is_plain(word: str) -> bool:
    """Return True if GitHub shows a word unchanged."""
    is_link = "://" in word or word.startswith("www.")
    return PLAIN_RE.fullmatch(word) is not None and not is_link


def is_word(cell: Span) -> bool:
    """Return True if the cell contains this tool's words, such as the number of hidden rows."""
    return isinstance(cell, Name) and cell.kind in WORDS
