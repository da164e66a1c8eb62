"""Build the page: one HTML file with all parts of the page and the JSON of the answers."""

from __future__ import annotations

import pkgutil
from base64 import b64encode
from hashlib import sha256

FOLDER = "page_parts"
# Scripts of the page in order. All scripts share one scope; the last script starts the page.
SCRIPTS = "core marks table flame charts roofline memory overview lead changes sections".split()


def html_of(encoded: str) -> bytes:
    """Return the HTML of the page with the given JSON."""
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
    """Read a part of the page from a folder or a zip archive."""
    data = pkgutil.get_data("_output", f"{FOLDER}/{name}")
    assert data is not None  # Python's loaders for files and archives have get_data.
    return data.decode()


def hash_of(text: str) -> str:
    """Return the hash that the page's security policy uses to allow only this style or script."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
