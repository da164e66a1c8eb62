"""Represent an answer for Python programs."""

from __future__ import annotations

from typing import Any


class Answer(dict[str, Any]):
    """The JSON object that the command prints, as a dict. Notebooks show it as tables."""

    # Value of the option `top`, which `render` needs: it also limits the rows of text.
    top: int | None = None

    def _repr_html_(self) -> str | None:
        from _output.notebook import html_of

        return html_of(self)
