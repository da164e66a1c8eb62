"""Format times with a unit, for notes and other sentences."""

from __future__ import annotations

_UNITS = (("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 10**3))


def with_unit(ps: int) -> str:
    """Return a time with three or four digits and its unit: `13.75 s`, `961.3 us`."""
    for unit, size in _UNITS:
        if abs(ps) >= size:
            decimals = 2 if abs(ps) < 100 * size else 1
            return f"{ps / size:.{decimals}f} {unit}"
    return f"{ps} ps"
