"""Build the page: one HTML file with the style, the scripts and the answers as JSON."""

from __future__ import annotations

import os
from base64 import b64encode
from hashlib import sha256

# The page's scripts in order. They share one scope; the last script starts the page.
SCRIPTS = "core marks table flame charts roofline page".split()


def html_of(encoded: str) -> bytes:
    """Return the page's HTML, including the given JSON."""
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
    path = os.path.join(os.path.dirname(__file__), "page_parts", name)
    # Use the loader, because it can also read from a zip archive.
    text: str = __loader__.get_data(path).decode()  # type: ignore[name-defined]
    return text


def hash_of(text: str) -> str:
    """Return the hash with which the page's security policy allows this style or script."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
