"""Texts of the output, which names in a trace may make long."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Json = dict[str, Any]

# How long a text of the output may be. All that are longer than short together may take so much,
# and so much more for each byte of the file; else the limit is lowered until they do: thousands
# of ops may share one text.
LONGEST_TEXT, SHORT_TEXT = 1 << 16, 1 << 7
# How long a text of the output may be. All that are longer than short together may take so much,
# and so much more for each byte of the file; else the limit is lowered until they do: thousands
# of ops may share one text.
LONGEST_TEXT, SHORT_TEXT = 1 << 16, 1 << 7
ALL_TEXTS, TEXT_PER_BYTE = 8 << 20, 4
ALL_TEXTS, TEXT_PER_BYTE = 8 << 20, 4


# Larger integers aren't what they were once `jq` or JavaScript has read them.
LARGEST_EXACT = 1 << 53


def exact(number: int) -> int | str:
    """A number of any size, as a decimal text if it is large."""
    return number if abs(number) <= LARGEST_EXACT else str(number)


def cut_texts(fields: Json, file_size: int = 0) -> None:
    """Cut texts that are too long, in place; a note counts them."""
    sizes = [len(text) for text in texts_in(fields) if len(text) > SHORT_TEXT]
    limit = LONGEST_TEXT
    allowed = ALL_TEXTS + TEXT_PER_BYTE * file_size
    while limit > SHORT_TEXT and sum(min(size, limit) for size in sizes) > allowed:
        limit //= 2
    n_cut = sum(size > limit for size in sizes)
    if n_cut:
        cut_in(fields, limit)
        fields["notes"].append(f"{n_cut} texts are longer than {limit} characters: cut")


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            if isinstance(item, (str, list, dict)):
                yield from texts_in(item)
    else:
        for item in value:
            if isinstance(item, (str, list, dict)):
                yield from texts_in(item)


def cut_in(value: Any, limit: int) -> None:
    places = list(enumerate(value)) if isinstance(value, list) else list(value.items())
    for place, item in places:
        if isinstance(item, (list, dict)):
            cut_in(item, limit)
        elif isinstance(item, str):
            value[place] = cut(item, limit)
    if isinstance(value, dict) and max(map(len, value), default=0) > limit:
        for key in list(value):
            # Taken out and put in, each of them, to keep the order.
            item, name = value.pop(key), cut(key, limit)
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
    return text if len(text) <= limit else f"{text[:limit]}…"
