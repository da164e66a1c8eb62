"""List the arrays that the step moves through HBM: how many bytes, how often, from where to where.

question: which arrays move through HBM, how often, and what that costs
reads: a step
options: --top, peaks, --no-merge
example: --top 10
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from _breakdown.analysis.arrays.of_step import StepArray, StepArrays, Use, arrays_of_step
from _breakdown.analysis.roof.ledger import LedgerEntry, ledger_of
from _breakdown.analysis.roof.roofs import Roofs, roofs_of
from _breakdown.analysis.source.likely_lines import line_of
from _breakdown.analysis.source.rows import chip_fields, likely_fields, peaks_used, scope_fields
from _breakdown.output.columns import PEAKS, STEP_SHARE, TIME
from _breakdown.output.phrases import Next, at_line_of, bracketed, capital, short
from _breakdown.output.screen import Column, Part, Says, Table
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped, percent
from _breakdown.pipeline.no_answer import no_program
from _breakdown.pipeline.normalize import Step
from _breakdown.units import part_of, size

Json = dict[str, Any]

NUMBER_RE = re.compile(r"\d+")
N_READERS = 3


def by_array(
    step: Step,
    context: Context,
    *,
    top: int = 20,
    chip: str | None = None,
    peaks: Sequence[tuple[str, float]] = (),
    no_merge: bool = False,
) -> Json:
    roofs = roofs_of(step.device, chip, dict(peaks))
    ledger = ledger_of(step, roofs, {})
    arrays = arrays_of_step(step, ledger, roofs)
    if not any(entry.ran.op.program for entry in ledger):
        raise no_program()
    context.note(*roofs.choice.notes)
    moved = [array for array in arrays if array.moved]
    n_bytes = sum(array.moved for array in moved)
    rows = Rows(step, arrays, ledger, roofs)
    groups = rows.costliest(moved, top, is_merged=not no_merge)
    compared = arrays.compared_time
    return {
        "arrays": [rows.row(group) for group in groups],
        "tail": {
            "n_arrays_omitted": len(moved) - sum(map(len, groups)),
            "hbm_bytes": n_bytes - sum(array.moved for group in groups for array in group),
            "dur_ps": arrays.bound_time - sum(array.time for group in groups for array in group),
        },
        "totals": {
            "hbm_bytes": n_bytes,
            "bound_ps": arrays.bound_time,
            "unattributed_bytes": arrays.unattributed,
            "agreeing_pct": percent(arrays.agreeing_time, compared) if compared else None,
        },
        **chip_fields(roofs),
        "peaks_used": peaks_used(roofs),
    }


class Rows:
    """Build the rows of the arrays of a step."""

    def __init__(
        self, step: Step, arrays: StepArrays, ledger: Sequence[LedgerEntry], roofs: Roofs
    ) -> None:
        self.step, self.arrays, self.roofs = step, arrays, roofs
        self.class_of = {id(entry.ran): entry.name for entry in ledger}

    def costliest(
        self, arrays: Sequence[StepArray], top: int, *, is_merged: bool
    ) -> Sequence[Sequence[StepArray]]:
        """Return the `top` costliest arrays, each merged with the same array of other layers: the
        shapes and lines are the same, and the names and scopes differ only in numbers."""
        if not is_merged:
            return sorted(([array] for array in arrays), key=rank_of)[:top]
        alike = grouped(
            ((look_of(array), self.role_of(array), line_of_maker(array)), array) for array in arrays
        )
        return sorted(alike.values(), key=rank_of)[:top]

    def role_of(self, array: StepArray) -> Hashable:
        """Return what arrays of several layers have in common, except their look and line."""
        scope, phase = None, None
        if makers := array.makers:
            op = makers[0].op
            scope, phase = starred(op.scope.name if op.scope else None), op.phase
        origin = self.origin_of(array)
        return self.arrays.kind_of(array), scope, phase, origin.shape if origin else None

    def row(self, group: Sequence[StepArray]) -> Json:
        first = max(group, key=lambda array: array.moved)
        arrays = self.arrays
        makers = [ran for array in group for ran in array.makers]
        reads = [use for array in group for use in array.reads if use.n_bytes]
        writes = [use for array in group for use in array.writes if use.n_bytes]
        readers = self.reader_rows(reads)
        moved, time = sum(array.moved for array in group), sum(array.time for array in group)
        at_peak = self.roofs.t_memory(sum(array.moved_by_bound_ops for array in group))
        return {
            "shape": first.shape.text,
            "bytes": first.shape.n_bytes,
            "n_arrays": len(group),
            "kind": arrays.kind_of(first),
            "name": common_name([array.name for array in group]),
            "hlo_op": common_name([ran.op.name for ran in makers]),
            **place_fields(makers),
            "dur_ps": time,
            "pct_of_step": percent(time, self.step.duration),
            "at_roof_ps": None if at_peak is None else round(at_peak),
            "hbm_bytes": moved,
            "written_bytes": sum(use.n_bytes for use in writes),
            "n_writes": sum(use.ran.n for use in writes),
            "read_bytes": sum(use.n_bytes for use in reads),
            "n_reads": sum(use.ran.n for use in reads),
            "readers": readers[:N_READERS],
            "n_readers": len(readers),
            "saved_for_backward": any(map(arrays.is_saved, group)),
            "copy_of": self.copy_row(first, [self.origin_of(array) for array in group]),
            "widened_from": first.widened_from,
            "never_read_whole": all(map(arrays.is_never_whole, group)),
        }

    def reader_rows(self, reads: Sequence[Use]) -> list[Json]:
        """Return the readers of an array by line, scope and class, the largest first."""
        found: dict[Hashable, list[Use]] = {}
        for use in reads:
            op = use.ran.op
            likely = line_of(op)
            scope = starred(op.scope.name if op.scope else None)
            key = likely.line_user or likely.line, scope, self.class_of[id(use.ran)]
            found.setdefault(key, []).append(use)
        rows = [
            {
                "class": self.class_of[id(uses[0].ran)],
                **place_fields([use.ran for use in uses]),
                "bytes": sum(use.n_bytes for use in uses),
                "n_executions": sum(use.ran.n for use in uses),
            }
            for uses in found.values()
        ]
        return sorted(rows, key=lambda row: -row["bytes"])

    def origin_of(self, array: StepArray) -> StepArray | None:
        return self.arrays.by_value.get(array.origin) if array.origin else None

    def copy_row(self, array: StepArray, origins: Sequence[StepArray | None]) -> Json | None:
        """Describe the array of which an array is a copy, or a copy of a slice. `origins` has the
        original of each array in the row."""
        origin = self.origin_of(array)
        if origin is None:
            return None
        makers = origin.makers
        return {
            "is_slice": array.shape.n_elements < origin.shape.n_elements,
            "shape": origin.shape.text,
            "name": common_name([other.name for other in origins if other]),
            "hlo_op": makers[0].op.name if makers else origin.value.instruction.name,
            **place_fields(makers),
        }


def look_of(array: StepArray) -> Hashable:
    return array.shape, starred(array.name)


def line_of_maker(array: StepArray) -> str | None:
    makers = array.makers
    if not makers:
        return None
    likely = line_of(makers[0].op)
    return likely.line_user or likely.line


def rank_of(group: Sequence[StepArray]) -> tuple[int, int]:
    return -sum(array.time for array in group), -sum(array.moved for array in group)


def place_fields(members: Sequence[Executions]) -> Json:
    """Return the common scope of ops, and the line of the first one."""
    if not members:
        nowhere = {"source_inner": None, "source_user": None, "source_is": None}
        return {"scope": None, "n_scopes": 0, **nowhere}
    return {**scope_fields(members), **likely_fields(line_of(members[0].op))}


def starred(name: str | None) -> str | None:
    return None if name is None else NUMBER_RE.sub("*", name)


def common_name(names: Sequence[str | None]) -> str | None:
    """Return the names' common form, with `*` for numbers, or else the first name."""
    if len(set(names)) > 1 and len(set(map(starred, names))) == 1:
        return starred(names[0])
    return names[0] if names else None


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "arrays"


def with_sentences(rows: list[Json]) -> list[Json]:
    """Add the number of arrays, the times that they are written and read, and a sentence about
    each row."""
    return [
        {
            **row,
            "array": f"{row['n_arrays']} x {row['shape']}" if row["n_arrays"] > 1 else row["shape"],
            "accesses": f"{row['n_writes']}/{row['n_reads']}",
            "in_short": "; ".join(described(row)),
        }
        for row in rows
    ]


def described(row: Json) -> Iterator[str]:
    """Yield the place where an array is made, the places where it is read, and other facts."""
    made, name = place_of(row), row["name"]
    if name:
        yield f"{row['kind'].replace('_', ' ')} {short(name)}"
    elif made:
        yield f"made at {made}"
    if row["readers"]:
        places = dict.fromkeys(map(place_of, row["readers"]))
        named = ["the same place" if place == made else place for place in places if place]
        if named:
            yield f"read at {' and '.join(named)}"
    if row["kind"] == "result":
        yield "a result of the step"
    yield from marks(row)


def marks(row: Json) -> Iterator[str]:
    """Yield what is special about an array."""
    if row["copy_of"]:
        noun = "slice" if row["copy_of"]["is_slice"] else "copy"
        yield f"a {noun} of {short(row['copy_of']['name'] or row['copy_of']['shape'])}"
    if row["saved_for_backward"]:
        yield "saved for the backward pass"
    if row["widened_from"]:
        yield f"wider than the {row['widened_from']} that it is made from"
    if row["never_read_whole"]:
        yield "less than half of it is read"


def place_of(row: Json) -> str:
    """Return the innermost scope and the line of an op, as far as they are known."""
    scope = (row["scope"] or "").rpartition("/")[2]
    line = (row["source_user"] or row["source_inner"] or "").rpartition("/")[2]
    return " ".join(filter(None, (line, scope and f"({short(scope)})")))


PARTS: tuple[Part, ...] = (
    Says(
        "\n{totals.hbm_bytes:bytes} move through HBM; the ops that HBM limits take"
        " {totals.bound_ps:time}"
    ),
    Table(
        "arrays, with their share of the time of these ops",
        "arrays",
        (
            TIME,
            STEP_SHARE,
            Column("at peak", "at_roof_ps", "time"),
            Column("written", "written_bytes", "bytes"),
            Column("read", "read_bytes", "bytes"),
            Column("writes/reads", "accesses", "word"),
            Column("array", "array", "shape", least=20),
        ),
        derive=with_sentences,
        size="dur_ps",
        most=10,
        takes_top=True,
        what="array",
        omitted="tail.n_arrays_omitted",
        tail={"time": "tail.dur_ps"},
        below="{in_short:whole}",
    ),
    PEAKS,
)


def sentences(answer: Json) -> Iterator[str]:
    total = size(answer["totals"]["hbm_bytes"])
    if not answer["arrays"]:
        listed = "" if answer["totals"]["hbm_bytes"] else ", as far as the program shows"
        yield f"The arrays of this step move {total} through HBM{listed}."
        return
    row = answer["arrays"][0]
    taken = part_of(row["dur_ps"], answer["step_duration_ps"]) + bracketed(row["pct_of_step"])
    array = array_of(row, answer)
    if row["dur_ps"]:
        yield f"{array} {'costs' if row['n_arrays'] == 1 else 'cost'} {taken}."
    else:
        yield f"No op that moves {array} is known to be limited by HBM."
    about = "; ".join(marks(row))
    if about:
        yield f"{capital(about)}."
    yield f"All arrays of the step move {total} through HBM."


def array_of(row: Json, answer: Json) -> str:
    n, n_bytes = row["n_arrays"], row["bytes"]
    arrays, each = ("", "") if n == 1 else (f"{n} arrays ", " each")
    sized = "" if n_bytes is None else f" ({size(n_bytes)}{each})"
    named = f" of {row['kind'].replace('_', ' ')} {short(row['name'])}" if row["name"] else ""
    made = at_line_of(row, answer)
    return f"{arrays}{row['shape']}{sized}{named}{f', made{made},' if made else ''}"


def next_steps(answer: Json) -> Iterator[Next]:
    makers = [row["hlo_op"] for row in answer["arrays"][:1] if row["hlo_op"]]
    if makers and "*" not in makers[0]:
        yield Next("the op that makes this array", ("--mode", "by_op", "--op", makers[0]))
    yield Next("what fills the memory at the peak", ("--mode", "memory"))
