"""Put the page together: its parts and the answers' JSON in one HTML file."""

from __future__ import annotations

import pkgutil
from base64 import b64encode
from hashlib import sha256

FOLDER = "page_parts"
# In the order of the page. Scripts share one scope; the last one starts.
SCRIPTS = "core marks table flame charts roofline memory overview sections".split()


def html_of(encoded: str) -> bytes:
    """Return the page for its JSON."""
    style = part("page.css")
    scripts = "\n".join(part(f"{name}.js") for name in SCRIPTS)
    script = f'(() => {{\n"use strict";\n{scripts}\n}})();\n'
    page = part("page.html")
    # Insert the JSON last, so that placeholder-like text in it is left alone.
    for place, text in (
        ("{style}", style),
        ("{script}", script),
        ("{style_hash}", hash_of(style)),
        ("{script_hash}", hash_of(script)),
        ("{data}", encoded),
    ):
        page = page.replace(place, text, 1)
    return page.encode()


def part(name: str) -> str:
    """Read a part of the page, also from an archive."""
    data = pkgutil.get_data("_output", f"{FOLDER}/{name}")
    assert data is not None  # Both of Python's loaders, for files and archives, return data.
    return data.decode()


def hash_of(text: str) -> str:
    """Return the hash by which the page's policy allows its own style and script, and no others."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
