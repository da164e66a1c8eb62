"""Format times and counts for notes and messages."""

from __future__ import annotations

_UNITS = (("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 10**3))


def with_unit(ps: int, digits: int = 4) -> str:
    """Return a time with a unit, such as `3.74 ms` or `961.3 us`."""
    for unit, size in _UNITS:
        if abs(ps) >= size:
            decimals = max(0, min(2, digits - len(str(abs(ps) // size))))
            return f"{ps / size:.{decimals}f} {unit}"
    return f"{ps} ps"


def plural(n: int, singular: str, several: str | None = None) -> str:
    """Return a count with its noun, such as `1 step` or `2 steps`."""
    return f"{n} {singular if n == 1 else several or singular + 's'}"
