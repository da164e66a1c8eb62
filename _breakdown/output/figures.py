"""Format figures with units, and names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

from _breakdown.output.screen import UNKNOWN
from _breakdown.units import BYTES, TIMES, Unit, Units, digits_of, rounded

Json = dict[str, Any]

LONGEST_FIGURE: Final = 9
MOST_DECIMALS: Final = 6

# Tables show no smaller units of times and sizes.
TIME: Units = TIMES[1:]
SIZE: Units = BYTES[1:]
FLOPS: Units = (("MFLOP", 10**6), ("GFLOP", 10**9), ("TFLOP", 10**12))
UNITS = {"time": TIME, "delta": TIME, "bytes": SIZE, "flops": FLOPS}
PERCENTS = ("percent", "change", "share")
# Kinds of numeric values, which tables align to the right. All other kinds are names.
FIGURES = (*UNITS, *PERCENTS, "number", "decimal", "trips", "chance", "count")
# Kinds of names from a fixed vocabulary, which Markdown shows as words, not as code.
WORDS = ("word", "initials")
SIGNED = ("delta", "change")
NO_UNIT: Unit = ("", 1)


def is_time(kind: str) -> bool:
    return UNITS.get(kind) is TIME


def unit_of(values: Iterable[Any], kind: str) -> Unit:
    """Return the largest unit in which the largest value is at least 1, if there is one."""
    largest = max((abs(int(value)) for value in values if value is not None), default=0)
    if not largest or kind not in UNITS:
        return NO_UNIT
    units = UNITS[kind]
    for unit, (_, beyond) in pairwise(units):
        decimals = decimals_of(largest, unit[1])
        if digits_of(largest, unit[1], decimals) * unit[1] < beyond * 10**decimals:
            return unit
    return units[-1]


def decimals_of(largest: int, size: int) -> int:
    """Return the number of decimals that gives four significant digits, or three if the figure is
    below 1."""
    # A figure just below 1 may be rounded to 1.000.
    beyond = 10**4 if abs(largest) >= size else 10**3 + 1
    most = min(MOST_DECIMALS, len(str(size)) - 1)
    fitting = (n for n in range(most, 0, -1) if digits_of(largest, size, n) < beyond)
    # A figure with more than four digits before the decimal point has no decimals.
    return min(next(fitting, 0), 3 if abs(largest) >= size else most)


def figure(value: Any, kind: str, size: int = 1, decimals: int = 0) -> str:
    """Format a known value. Zero is `0` in every unit, to distinguish it from a small value rounded
    to `0.000`."""
    # In the JSON, large integers are strings of decimal digits.
    number = int(value) if isinstance(value, str) else value
    if kind in UNITS:
        if not number:
            return "0"
        text = rounded(number, size, decimals)
    elif kind == "count":
        text = str(number)
    elif kind in ("number", "trips"):
        text = _with_4_digits(number)
    elif kind == "chance":
        text = f"{number:.3f}"
    else:
        # The kind is "decimal" or one of PERCENTS.
        number *= 100 if kind == "share" else 1
        text = f"{number:.1f}"
    if len(text) > LONGEST_FIGURE - 1:
        text = f"{number:.2e}" if isinstance(number, float) else _with_exponent(number, size)
    if not text.strip("-0."):
        # Remove the sign of a figure that was rounded to zero.
        return text.removeprefix("-")
    return f"+{text}" if kind in SIGNED and number > 0 else text


def _with_4_digits(number: float) -> str:
    if number == int(number):
        return str(int(number))
    if abs(number) < 1e-3:
        return f"{number:.1e}"
    texts = (f"{number:.{decimals}f}" for decimals in (3, 2, 1, 0))
    return next((text for text in texts if sum(map(str.isdigit, text)) <= 4), f"{number:.0f}")


def _with_exponent(number: int, size: int) -> str:
    """Format an integer that may be too large for a float, for example as `1.23e+400`."""
    whole = digits_of(number, size, 0)
    n = len(str(whole)) - 3
    digits = digits_of(whole, 10**n, 0)
    if digits == 1000:
        n, digits = n + 1, 100
    sign = "-" if number < 0 else ""
    return f"{sign}{digits // 100}.{digits % 100:02}e+{n + 2:02}"


# Matches an array's layout, which follows the dimensions.
LAYOUT_RE = re.compile(r"\{[^{}]*\}")


def name_of(value: Any, kind: str, null: str = UNKNOWN) -> str:
    """Format a value of a given kind as text."""
    if isinstance(value, dict):
        value = _name_of_map(value, kind)
    if value is None or value in ([], ""):
        return null
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(name_of(item, kind) for item in value)
    if kind == "op":
        # Shorten HLO text to the op's name.
        return str(value).partition(" = ")[0].removeprefix("%")
    if kind == "stack":
        return str(value).replace("\n", " > ")
    if kind == "shape":
        return LAYOUT_RE.sub("", str(value))
    return what_of(value) if kind == "what" else str(value)


def _name_of_map(fields: Json, kind: str) -> str:
    """Format a map as text: by default, the key with the largest figure and the number of other
    keys."""
    if kind == "values":
        return ", ".join(f"{key}={name_of(value, kind)}" for key, value in fields.items())
    keys = sorted((key for key in fields if fields[key]), key=lambda key: -fields[key])
    if kind == "initials":
        return " ".join(key[:1].upper() for key in keys)
    return f"{keys[0]} +{len(keys) - 1}" if len(keys) > 1 else "".join(keys)


def what_of(signature: str) -> str:
    """Shorten an op signature: `fusion [loop fusion]` becomes `loop fusion`."""
    name, _, category = signature.removeprefix("custom-call:").removesuffix("]").partition(" [")
    return category if name in category.split() else name
