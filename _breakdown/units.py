"""Format times, sizes, percentages and counts for sentences: headlines, causes, notes and messages.

Tables use the same units, but all figures of a column have one unit and as many decimals.
"""

from __future__ import annotations

from _breakdown.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeAlias

Unit: TypeAlias = tuple[str, int]
Units: TypeAlias = tuple[Unit, ...]

TIMES: Units = (("ps", 1), ("ns", 10**3), ("us", 10**6), ("ms", 10**9), ("s", 10**12))
BYTES: Units = (("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40))


def time(duration_ps: int) -> str:
    """Format a duration, such as `18.3 ms`."""
    return amount(duration_ps, unit_of(duration_ps, TIMES))


def size(n_bytes: int) -> str:
    """Format a number of bytes, such as `500.0 MiB`."""
    return amount(n_bytes, unit_of(n_bytes, BYTES))


def percentage(pct: float) -> str:
    """Format a percentage, such as `16.0 %`."""
    return f"{pct:.1f} %"


def part_of(part_ps: int, whole_ps: int) -> str:
    """Format a part of a duration, such as `6.17 of 18.3 ms`. If the part is less than 1 % of
    the whole, each of the two has its own unit."""
    if part_ps and part_ps * 100 < whole_ps:
        return f"{time(part_ps)} of {time(whole_ps)}"
    unit = unit_of(whole_ps, TIMES)
    return f"{number(part_ps, unit)} of {amount(whole_ps, unit)}"


def span(shortest_ps: int, longest_ps: int) -> str:
    """Format two durations, such as `34.0 to 40.0 ms`, or one if they look the same."""
    unit = unit_of(longest_ps, TIMES)
    shortest, longest = number(shortest_ps, unit), number(longest_ps, unit)
    return f"{longest if shortest == longest else f'{shortest} to {longest}'} {unit[0]}"


def unit_of(value: int, units: Units) -> Unit:
    """Return the largest unit in which the value is at least 1, also after rounding."""
    return next((unit for unit in reversed(units) if abs(value) * 2000 >= unit[1] * 1999), units[0])


def amount(value: int, unit: Unit) -> str:
    return f"{number(value, unit)} {unit[0]}"


def number(value: int, unit: Unit) -> str:
    """Format a value without its unit: with at least three significant digits, or with two if it
    is below 1. The smallest unit has no decimals."""
    scaled = value / unit[1]
    if unit[1] == 1:
        return str(value)
    if abs(scaled) < 0.995:
        return f"{scaled:.2g}"
    return rounded(value, unit[1], 1 if abs(scaled) >= 9.995 else 2)


def rounded(value: int, size: int, decimals: int) -> str:
    """Format a value in units of `size`, rounded half up as everywhere in the answer."""
    whole, rest = divmod(digits_of(value, size, decimals), 10**decimals)
    text = f"{whole}.{rest:0{decimals}}" if decimals else str(whole)
    return f"-{text}" if value < 0 else text


def digits_of(value: int, size: int, decimals: int) -> int:
    """Return the absolute value in units of the last decimal place, rounded half up."""
    # The type checker cannot know that `decimals` is not negative.
    many: int = 10**decimals
    return (2 * abs(value) * many + size) // (2 * size)


def counted(n: int, noun: str) -> str:
    """Return a count with its noun, such as `1 step` or `2 steps`."""
    return f"{n} {plural(noun, n)}"


def plural(noun: str, n: int) -> str:
    if n == 1:
        return noun
    if noun.endswith("y") and not noun.endswith("ay"):
        return f"{noun[:-1]}ies"
    return f"{noun}{'es' if noun[-1] == 's' else 's'}"
