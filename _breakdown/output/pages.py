"""Read the pages that the program prints parts of: `docs/FIELDS.md` and `docs/CAUSES.md`."""

from __future__ import annotations

import os
import re
from textwrap import wrap

__all__ = ["explanation_of", "page_named"]

WIDTH = 100


def page_named(name: str) -> str:
    """Return the text of a page in `docs`, which is next to the packages in the clone, the wheel
    and the `.pyz`."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    data: bytes = __spec__.loader.get_data(os.path.join(root, "docs", name))  # type: ignore[union-attr]
    return data.decode()


def explanation_of(cause: str) -> str:
    """Return the section about a cause on CAUSES.md, with short lines outside of code."""
    section = page_named("CAUSES.md").split(f"\n## {cause}\n", 1)[1].partition("\n## ")[0]
    parts = re.split(r"(?ms)^(```.*?^```$)", f"{cause}\n{section.rstrip()}\n")
    parts[::2] = (re.sub("(?m)^.+$", shortened, prose) for prose in parts[::2])
    return "".join(parts)


def shortened(line: re.Match[str]) -> str:
    return "\n".join(wrap(line[0], WIDTH, subsequent_indent="  " * line[0].startswith("- ")))
