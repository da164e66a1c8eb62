"""Texts of the output, which names in a trace may make long."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from json.encoder import encode_basestring_ascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

# How long a text of the output may be, in bytes as JSON writes it: a control character takes six.
# All that are longer than short together may take so much, and so much more for each byte of the
# file; else the limit is lowered until they do: thousands of ops may share one text.
LONGEST_TEXT, SHORT_TEXT = 1 << 16, 1 << 7
ALL_TEXTS, TEXT_PER_BYTE = 8 << 20, 4
# What JSON makes of a character at the most: two surrogates.
MOST_BYTES = 12
# Larger integers aren't what they were once `jq` or JavaScript has read them.
LARGEST_EXACT = 1 << 53


def exact(number: int) -> int | str:
    """A number of any size, as a decimal text if it is large."""
    return number if abs(number) <= LARGEST_EXACT else str(number)


def cut_texts(
    fields: Mapping[str, Any],
    file_size: int = 0,
    *,
    longest: int = LONGEST_TEXT,
    all_texts: int = ALL_TEXTS,
) -> None:
    """Cut texts that are too long, in place; a note counts them."""
    texts: list[str] = []
    gather(fields, texts)
    # Most are there many times, and short whatever they hold.
    long = [
        (text, size, n)
        for text, n in Counter(texts).items()
        if len(text) * MOST_BYTES > SHORT_TEXT and (size := size_of(text)) > SHORT_TEXT
    ]
    limit = longest
    allowed = all_texts + TEXT_PER_BYTE * file_size
    while limit > SHORT_TEXT and sum(min(size, limit) * n for _, size, n in long) > allowed:
        limit //= 2
    n_cut = sum(n for _, size, n in long if size > limit)
    if n_cut:
        replace_in(fields, {text: cut(text, limit) for text, size, _ in long if size > limit})
        fields["notes"].append(f"{n_cut} texts are longer than {limit} bytes: cut")


def size_of(text: str) -> int:
    """How many bytes it is printed in; of one that is far too long, more than there may be."""
    text = text[: LONGEST_TEXT + 1]
    # Between quotes; and of a slash that would end a script in a page there is more.
    return len(encode_basestring_ascii(text)) - 2 + text.count("</")


def gather(value: Mapping[str, Any] | list[Any], texts: list[str]) -> None:
    """Into the list all texts in it, keys among them."""
    items: Iterable[Any] = value
    if isinstance(value, dict):
        texts += value
        items = value.values()
    for item in items:
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, (list, dict)):
            gather(item, texts)


def replace_in(value: Any, texts: Mapping[str, str]) -> None:
    """In place each text by another, keys among them."""
    places = enumerate(value) if isinstance(value, list) else value.items()
    for place, item in places:
        if isinstance(item, (list, dict)):
            replace_in(item, texts)
        elif item in texts:
            value[place] = texts[item]
    if isinstance(value, dict) and not texts.keys().isdisjoint(value):
        for key in list(value):
            # Taken out and put in, each of them, to keep the order.
            item, name = value.pop(key), texts.get(key, key)
            while name in value:
                name += "…"
            value[name] = item


def digest_of(text: str) -> str:
    """By which equal texts are known."""
    try:
        # For this alone hashlib would load OpenSSL, at a tenth of the time of a small trace.
        from _sha1 import sha1  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from hashlib import sha1
    digest: str = sha1(text.encode(), usedforsecurity=False).hexdigest()
    return digest[:16]


def cut(text: str, limit: int) -> str:
    """As much of it as fits into so many bytes, and an ellipsis for the rest."""
    if len(text) * MOST_BYTES <= limit:
        return text
    # A character takes a byte at least.
    start = text[: limit + 1]
    if size_of(start) <= limit:
        return text
    n = bisect_right(range(limit + 1), limit, key=lambda n: size_of(start[:n])) - 1
    return f"{start[:n]}…"
