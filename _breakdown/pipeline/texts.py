"""Limit the length of texts in an answer, and compute digests that identify texts."""

from __future__ import annotations

from _breakdown.light import TYPE_CHECKING
from _breakdown.units import counted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# Maximum number of characters of a text in an answer.
LONGEST_TEXT = 1 << 16
# `jq` and JavaScript read integers as floats, which are exact up to this number.
LARGEST_EXACT = 1 << 53


def exact(number: int) -> int | str:
    """Return a number for JSON, converted to decimal text if readers would round it."""
    return number if abs(number) <= LARGEST_EXACT else str(number)


def cut_texts(fields: Mapping[str, Any], longest: int = LONGEST_TEXT) -> None:
    """Cut long texts in an answer in place, and add a note with their number."""
    n_cut = _cut_in(fields, longest)
    if n_cut:
        fields["notes"].append(f"cut {counted(n_cut, 'text')} to {longest} characters")


def _cut_in(value: Any, longest: int) -> int:
    """Cut long texts and keys inside a value, and return the number of cuts."""
    n_cut = 0
    if isinstance(value, list) and set(map(type, value)) <= {int}:
        # Records have long lists of integers.
        return 0
    for place, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, (dict, list)):
            n_cut += _cut_in(item, longest)
        elif isinstance(item, str) and len(item) > longest:
            value[place] = f"{item[:longest]}…"
            n_cut += 1
    if isinstance(value, dict) and max(map(len, value), default=0) > longest:
        n_cut += sum(len(key) > longest for key in value)
        items = list(value.items())
        value.clear()
        for key, item in items:
            short = key if len(key) <= longest else f"{key[:longest]}…"
            while short in value:
                short += "…"
            value[short] = item
    return n_cut


def encoded(fields: Mapping[str, Any], for_people: bool) -> str:
    """Return an answer as the JSON text that the command prints."""
    form: dict[str, Any] = {"indent": 2} if for_people else {"separators": (",", ":")}
    # Import late: the module takes a twentieth of the time of `--help`.
    import json

    text = json.dumps(fields, allow_nan=False, **form)
    # Escape `</`, because it could end a script in a page.
    return text.replace("</", r"<\/") + "\n"


def digest_of(text: str) -> str:
    """Return 16 hexadecimal digits that identify a text."""
    try:
        # Avoid `hashlib` if possible: it loads OpenSSL, which takes 12 % of the time of mode
        # `summary` on the demo.
        from _sha1 import sha1  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from hashlib import sha1
    digest: str = sha1(text.encode(), usedforsecurity=False).hexdigest()
    return digest[:16]
