"""Format the cells of a filled table as text, one column after the other."""

from __future__ import annotations

from collections.abc import Sequence

from _breakdown.light import NamedTuple
from _breakdown.output.figures import NO_UNIT, UNITS, decimals_of, figure, is_time, unit_of
from _breakdown.output.fill import Figure, Grid, Name, Span, is_figure
from _breakdown.output.screen import Column
from _breakdown.units import Unit


class Shown(NamedTuple):
    """A column of a table as text. If all rows have the same value, `said` has it, and the title
    says it instead of the column."""

    column: Column
    unit: str
    cells: Sequence[Span]
    texts: Sequence[str]
    said: str


def columns_of(grid: Grid, time: Unit) -> list[Shown]:
    """Return the columns of a table as text."""
    n_rows = len(grid.rows)
    shown = []
    for column, cells in zip(grid.columns, grid.cells, strict=True):
        unit, texts = texts_of(column, cells, time)
        rows, ends = set(texts[:n_rows]), set(texts[n_rows:])
        is_same = n_rows > 1 and len(rows) == 1 and ends <= {"", *rows}
        said = f"{texts[0].strip()} {unit}".rstrip() if is_same else ""
        shown.append(Shown(column, unit, cells, texts, said))
    if all(column.said for column in shown):
        return [column._replace(said="") for column in shown]
    return shown


def texts_of(column: Column, cells: Sequence[Span], time: Unit) -> tuple[str, list[str]]:
    """Return the unit of a column, and its cells as text."""
    if not is_figure(column):
        return NO_UNIT[0], [cell.text if isinstance(cell, Name) else str(cell) for cell in cells]
    values = [cell.value for cell in cells if isinstance(cell, Figure) and cell.value is not None]
    largest = max((abs(int(value)) for value in values), default=0) if column.kind in UNITS else 0
    unit, size = NO_UNIT
    if largest:
        unit, size = time if is_time(column.kind) else unit_of(values, column.kind)
    decimals = decimals_of(largest, size) if largest else 0
    texts = []
    for cell in cells:
        if isinstance(cell, Figure):
            known = cell.value is not None
            shown = figure(cell.value, cell.kind, size, decimals) if known else cell.null
            texts.append(shown)
        else:
            # Cells without a figure are empty.
            texts.append(str(cell))
    return unit, texts
