"""Format an answer's figures and names as parts of English sentences."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Final

    from _output.fields.rows import PeriodFields

    Units = tuple[tuple[int, str], ...]

LONGEST_HEADLINE, LONGEST_NAME = 240, 60
# Fields with the line of a row. Headlines and tables show the first one that has a value: the line
# of the user's own code, else the innermost line.
LINE: Final = ("source_user", "source_inner")
TIME_UNITS: Units = ((10**12, "s"), (10**9, "ms"), (10**6, "us"), (10**3, "ns"), (1, "ps"))
BYTE_UNITS: Units = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))


class Next(NamedTuple):
    """A command that is worth running next: the mode and the options."""

    why: str
    words: tuple[str, ...]


def time(duration_ps: int) -> str:
    """Format a duration, such as `18.3 ms`, in the largest unit in which the number is at least
    1."""
    return amount(duration_ps, unit_of(duration_ps, TIME_UNITS))


def size(n_bytes: int) -> str:
    return amount(n_bytes, unit_of(n_bytes, BYTE_UNITS))


def part_of(part_ps: int, whole_ps: int) -> str:
    """Format a part of a duration, such as `6.17 of 18.3 ms`. If the part is less than 1 % of
    the whole, each of the two has its own unit."""
    if part_ps and part_ps * 100 < whole_ps:
        return f"{time(part_ps)} of {time(whole_ps)}"
    unit = unit_of(whole_ps, TIME_UNITS)
    return f"{digits(part_ps / unit[0])} of {amount(whole_ps, unit)}"


def unit_of(value: int, units: Units) -> tuple[int, str]:
    return next((unit for unit in units if abs(value) >= unit[0]), units[-1])


def amount(value: int, unit: tuple[int, str]) -> str:
    size_of_unit, name = unit
    return f"{digits(value / size_of_unit)} {name}"


def digits(value: float) -> str:
    """Format a value with at least three significant digits, or with two if the value is below
    1."""
    if abs(value) >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.995 else f"{value:.2g}"


def percent(share: float | None) -> str:
    """Format a percentage in parentheses, such as ` (16.0 %)`; empty if unknown."""
    return "" if share is None else f" ({share:.1f} %)"


def pause_sentence(answer: PeriodFields) -> str:
    """Return a sentence about the pauses between steps; empty if they take at most 1 % of the
    time."""
    pauses, period, mean = answer["pauses"], answer["period_ps"], answer["between_steps_ps"]
    if not pauses or not period or not mean or 100 * mean <= period:
        return ""
    share = percent(pauses["pct_of_period"])
    if not differs(mean, answer["between_steps_median_ps"]):
        return f"A step starts every {time(period)}, with a pause of {time(mean)}{share}."
    how_often = f"{span(pauses['min_ps'], pauses['max_ps'])} {pauses['when']}"
    return (
        f"On average, a step starts every {time(period)}, and {time(mean)}{share} pass between"
        f" steps: {how_often}."
    )


def differs(mean_ps: int | None, median_ps: int | None) -> bool:
    """Return whether a mean and a median differ by more than 5 %, so that both are shown."""
    mean, median = mean_ps or 0, median_ps or 0
    return 20 * abs(mean - median) > median


def span(shortest_ps: int, longest_ps: int) -> str:
    """Format two durations, such as `34.0 to 40.0 ms`, or one if they look the same."""
    unit = unit_of(longest_ps, TIME_UNITS)
    shortest, longest = (digits(time / unit[0]) for time in (shortest_ps, longest_ps))
    both = longest if shortest == longest else f"{shortest} to {longest}"
    return f"{both} {unit[1]}"


def short_path(place: str) -> str:
    """Shorten a path to its last two parts, such as `…/layers/attention.py:15`."""
    parts = place.rsplit("/", 2)
    return short(f"…/{parts[1]}/{parts[2]}" if len(parts) == 3 and parts[0] else place)


def short(name: str) -> str:
    if len(name) <= LONGEST_NAME:
        return name
    half = (LONGEST_NAME - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def at_line_of(row: Mapping[str, object]) -> str:
    """Return ` at LINE` for a row of a table, or nothing if its line is unknown."""
    return at(next((line for line in map(row.get, LINE) if isinstance(line, str)), None))


def at(place: str | None) -> str:
    """Return ` at LINE`, or nothing if the line is unknown."""
    return f" at {short_path(place)}" if place else ""


def counted(n: int, noun: str) -> str:
    return f"{n} {plural(noun, n)}"


def plural(noun: str, n: int) -> str:
    if n == 1:
        return noun
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}{'es' if noun[-1] == 's' else 's'}"


def joined(sentences: Iterable[str]) -> str:
    """Join the sentences, skipping those that would exceed LONGEST_HEADLINE characters."""
    headline = ""
    for sentence in sentences:
        longer = f"{headline} {sentence}".strip()
        if len(longer) <= LONGEST_HEADLINE:
            headline = longer
    return headline
