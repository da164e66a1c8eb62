"""Format answers as the command does: with the file of the answer's mode."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from _breakdown import command
from _breakdown.modes import mode_named
from _breakdown.output import blocks, csv, markdown, text
from _breakdown.output.fill import Block
from _breakdown.output.merged import merged_lines
from _breakdown.output.phrases import joined
from _breakdown.output.screen import Part, View
from tests.harness import DEMO, Json, answer

# The lists whose rows text merges by line.
MERGED = {
    "summary": "top_compute_groups",
    "by_source": "groups",
    "non_compute": "by_source_within_category",
}


def text_of(
    fields: Json, encoding: str, view: View | None = None, style: text.Style | None = None
) -> str:
    return text.text_of(fields, encoding, command.module_of(fields), view, style)


def markdown_of(fields: Json, encoding: str, view: View | None = None) -> str:
    return markdown.markdown_of(fields, encoding, command.module_of(fields), view)


def csv_of(fields: Json) -> str:
    return csv.csv_of(fields, main_of(fields["mode"]))


def merged_of(fields: Json) -> list[Json]:
    """Return the rows in which text and headlines add up the groups of a line."""
    if fields["mode"] not in MERGED:
        return []
    has_common_line = fields["totals"]["common_line"] is not None
    return merged_lines(fields[MERGED[fields["mode"]]], with_scope=has_common_line)


def blocks_of(fields: Json, view: View) -> Iterator[Block]:
    return blocks.blocks_of(fields, view, command.module_of(fields))


def main_of(mode: str) -> str:
    """Return the path of the mode's main table."""
    main: str = mode_named(mode).module.MAIN
    return main


def parts_of(mode: str) -> tuple[Part, ...]:
    """Return the sentences and tables of the mode."""
    parts: tuple[Part, ...] = mode_named(mode).module.PARTS
    return parts


def headline_of(fields: Json) -> str:
    headline: str = joined(mode_named(fields["mode"]).module.sentences(fields))
    return headline


def data_of(html: bytes) -> Json:
    """Return the JSON that a page contains."""
    (found,) = re.findall(rb'<script type="application/json" id="data">(.*?)</script>', html)
    data: Json = json.loads(found)
    return data


@functools.cache
def page_of_demo() -> tuple[Json, bytes]:
    """Return the printed answer and the page."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "step.html")
        return answer(DEMO, "page", "--out", str(out)), out.read_bytes()
