"""Parse the pages: fenced blocks, sections, tables, and calls of the program."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from tests.harness import ROOT

NAMES = (
    "README.md",
    "docs/GUIDE.md",
    "docs/FIELDS.md",
    "SKILL.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/CAUSES.md",
)
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in NAMES}
README, GUIDE, FIELDS, SKILL, CONTRIBUTING, CHANGELOG, CAUSES = PAGES.values()
PLACEHOLDERS = {
    "PROFILE": "tests/data/demo",
    "BASELINE": "tests/data/before.json.gz",
    "NAME": "fusion.365",
    "LINE": "train.py:49",
}


class Block(NamedTuple):
    """Represent a fenced block and the heading above it."""

    heading: str
    language: str
    text: str


def blocks(page: str) -> list[Block]:
    found = []
    heading = ""
    fence: Block | None = None
    for line in page.splitlines(keepends=True):
        if line.startswith("```"):
            if fence is None:
                fence = Block(heading, line.strip().removeprefix("```"), "")
            else:
                found.append(fence)
                fence = None
        elif fence is not None:
            fence = fence._replace(text=fence.text + line)
        elif re.match("##+ ", line):
            heading = line.strip("# \n")
    return found


def sections(page: str) -> Iterator[tuple[str, str]]:
    """Yield each heading with the prose below it, without fenced blocks."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    for section in re.split(r"^##+ ", prose, flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        yield heading, text


def table(page: str, *first_cells: str) -> list[list[str]]:
    """Return the rows of the table whose header begins with the given cells."""
    found = []
    for lines in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.split("\n")]
        if rows[0][: len(first_cells)] == list(first_cells):
            found.append([row for row in rows[2:] if len(row) > 1])
    (rows,) = found
    return rows


def code(cell: str) -> str:
    quoted = re.search(r"`([^`]*)`", cell)
    return quoted[1] if quoted else ""


def slug(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


CALL_RE = re.compile(r"(?:\S*/)?compute-breakdown ((?:PROFILE|tests/data/)[^|>&\n]*)")


class Call(NamedTuple):
    """Represent a call of the program on a page, and the block that contains it."""

    block: Block
    words: tuple[str, ...]
    # The rest of the shell command, usually a filter that the output is piped into.
    pipe: str


def calls(page: str) -> list[Call]:
    found = []
    for block in blocks(page):
        if block.language == "bash":
            text = block.text.replace("\\\n", " ")
            ends = [*(match.start() for match in CALL_RE.finditer(text)), len(text)]
            for match, end in zip(CALL_RE.finditer(text), ends[1:], strict=True):
                words = (PLACEHOLDERS.get(word, word) for word in shlex.split(match[1]))
                found.append(Call(block, tuple(words), text[match.end() : end]))
    return found
