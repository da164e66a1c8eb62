"""Describe the output of mode `memory`: the buffers that are live at the HBM peak."""

from __future__ import annotations

from typing import Final

from _output.columns import BYTES, KIND
from _output.screen import Column, End, Part, Says, Table

MAIN: Final = "buffers"
WITHOUT_ANSWER: Final = {
    "no_program": "The program says what is in memory, but this capture lacks this step's program."
    " Capture the first call of the step, too, or set the profiler's options that save programs"
    " (`--mode anatomy` lists the programs in a capture).",
}

BUFFERS = Column("buffers", "n_buffers", "count")


def by(title: str, rows: str, what: str, column: Column) -> Table:
    """Return a table of buffer sizes, summed by a property."""
    return Table(
        title, rows, (BYTES, BUFFERS, column), by="bytes",
        size="bytes", whole="peak_bytes", most=10, what=what, tail={"size": ""},
    )  # fmt: skip


PARTS: tuple[Part, ...] = (
    Says(
        "\n{peak_bytes:bytes} live at the peak ({by_kind:bytes}),"
        " {reserved_bytes:bytes} reserved; {padding_bytes:bytes} of padding"
    ),
    Says(
        "the peak is at {peak_at.hlo_op}, {peak_at.source_inner:file}",
        when="peak_at",
    ),
    Says(
        "runtime: {runtime.peak_bytes:bytes} of {runtime.capacity_bytes:bytes} at the peak"
        " ({runtime.peak_reserved_bytes:bytes} reserved for programs,"
        " {runtime.peak_allocated_bytes:bytes} in arrays),"
        " at least {runtime.min_available_bytes:bytes} free",
        when="runtime",
    ),
    Table(
        "buffers live at the peak",
        "buffers",
        (
            BYTES,
            Column("% peak", "pct_of_peak", "percent"),
            KIND,
            Column("shape", "shape", "shape"),
            Column("op", "hlo_op"),
            Column("line", ("source_inner", "tf_op"), "file"),
        ),
        size="bytes",
        whole="peak_bytes",
        what="buffer",
        omitted="tail.n_buffers_omitted",
        tail={"size": "tail.bytes"},
        ends=(End("peak_bytes", {"line": "all", "size": "peak_bytes"}),),
    ),
    by("by line", "by_source", "line", Column("line", "source_inner", "file")),
    by("by argument", "by_argument", "argument", Column("argument", "argument", null="(none)")),
    by("by opcode", "by_opcode", "opcode", Column("opcode", "opcode", "word", "(none)")),
    by("by op name", "by_op_name", "op name", Column("op name", "tf_op", "file", "(none)")),
    Table(
        "in other memory spaces (1 is VMEM, 5 is host memory)",
        "other_spaces",
        (Column("size", "value", "bytes"), Column("space", "key", "word")),
        by="value",
        size="value",
        whole="peak_bytes",
        what="space",
    ),
)
