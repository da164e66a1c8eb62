"""Format an answer as text, Markdown or CSV."""

from __future__ import annotations

import os
from typing import Any, Final, Protocol, TextIO

from _breakdown.output.screen import View
from _breakdown.output.text import WIDTH, Style, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    Json = dict[str, Any]

    class ViewOptions(Protocol):
        """The command-line options used in this file."""

        @property
        def shows_all(self) -> bool: ...
        @property
        def top(self) -> int | None: ...


FORMS: Final = ("text", "markdown", "csv")


def in_form(
    form: str, fields: Json, module: Any, request: ViewOptions | None, stream: TextIO | None
) -> str:
    """Return an answer in a format other than JSON, using only characters that the stream can
    show."""
    is_terminal = stream is not None and stream.isatty()
    view = View(request.shows_all, request.top) if request else View()
    encoding = stream.encoding if stream else "ascii"
    style = style_of(stream, is_terminal=is_terminal)
    return formatted(form, fields, module, view, encoding, style, is_terminal=is_terminal)


def in_pipe(form: str, fields: Json, module: Any, top: int | None = None) -> str:
    """Return an answer as printed to a UTF-8 pipe, with lines of up to 100 columns."""
    if form not in FORMS:
        raise ValueError(f"format must be json, {', '.join(FORMS)}, got {form!r}")
    if not hasattr(module, "PARTS"):
        raise ValueError(f"mode {fields['mode']} has no {form} format; use json")
    return formatted(form, fields, module, View(top=top), "utf-8", Style())


def formatted(
    form: str,
    fields: Json,
    module: Any,
    view: View,
    encoding: str,
    style: Style,
    *,
    is_terminal: bool = False,
) -> str:
    if form == "text":
        return text_of(fields, encoding, module, view, style)
    if form == "markdown":
        from _breakdown.output.markdown import markdown_of

        return markdown_of(fields, encoding, module, view)
    from _breakdown.output.csv import csv_of

    return csv_of(fields, getattr(module, "MAIN", ""), is_terminal=is_terminal)


def style_of(stream: TextIO | None, *, is_terminal: bool) -> Style:
    """Return the stream's width (from COLUMNS or the terminal), and whether it can show colours."""
    width = os.environ.get("COLUMNS", "")
    columns = int(width) if width.isascii() and width.isdigit() else 0
    if not columns and is_terminal and stream:
        # Don't use `shutil.get_terminal_size`, because `shutil` is slow to import.
        try:
            columns = os.get_terminal_size(stream.fileno()).columns
        except OSError:
            columns = 0
    has_colours = is_terminal and not os.environ.get("NO_COLOR")
    return Style(columns or WIDTH, has_colours and os.environ.get("TERM") != "dumb")
