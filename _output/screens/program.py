"""Show program: the decisions of the compiler."""

from __future__ import annotations

from _output.screen import Column, Says, Table
from _output.screens.shared import BYTES, RUNS, TOTAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from _output.screen import Part

MAIN: Final = "collectives"
WITHOUT_ANSWER: Final = {
    "no_program": "`--mode anatomy` lists the programs of a capture.",
}

PARTS: tuple[Part, ...] = (
    Says(
        "\n{n_instructions:count} instructions in {n_computations:count} computations,"
        " {n_fusions:count} fusions, for {n_devices:count} devices"
    ),
    Says(
        "{aliased_bytes:bytes} of parameters become outputs in place,"
        " {donated_unused_bytes:bytes} were donated in vain"
    ),
    Table(
        "collectives",
        "collectives",
        (
            Column("collective", "collective", "word"),
            Column("how", "how", "word"),
            Column("plan", "plan", "word", null=""),
            Column("ops", "n_instructions", "count"),
            RUNS,
            Column("run", "sync_dur_ps", "time"),
            Column("wait", "wait_dur_ps", "time"),
            Column("payload", "payload_bytes", "bytes"),
        ),
    ),
    Table(
        "{flags.n:count} flags are set; these are about collectives",
        "flags.findings",
        (
            Column("flag", "flag", "file"),
            Column("set to", "set_to", null="(not set)"),
            Column("ops", "n_instructions", "count"),
            Column("seen", "n_seen", "count"),
            Column("exposed", "exposed_ps", "time"),
            Column("says", "says", "word", null=""),
        ),
    ),
    Table(
        "kernels",
        "kernels",
        (
            TOTAL,
            RUNS,
            Column("ops", "n_instructions", "count"),
            Column("VMEM", "vmem_used_bytes", "bytes"),
            Column("limit", "vmem_limit_bytes", "bytes"),
            Column("declared", "declared.flops", "flops"),
            Column("kernel", "kernel"),
        ),
        size="total_dur_ps",
        what="kernel",
        tail={"time": ""},
    ),
    Table(
        "ops that the compiler tried more than once",
        "retries",
        (
            Column("op", "hlo_op"),
            Column("retries", "retry_count", "count"),
            TOTAL,
            RUNS,
            Column("VMEM", "vmem_used_bytes", "bytes"),
            Column("limit", "vmem_limit_bytes", "bytes"),
        ),
    ),
    Table(
        "parameters",
        "parameters",
        (
            BYTES,
            Column("no.", "number", "count"),
            Column("path", "path"),
            Column("shape", "shape", "shape"),
            Column("of", "global_shape", "shape"),
            Column("sharding", "sharding"),
            Column("in place", "aliased_to_output", "word"),
        ),
        what="parameter",
        omitted="tail.n_parameters_omitted",
        tail={"size": "tail.bytes"},
    ),
    Says("\ninstructions: {opcodes:count}"),
    Says("flags set: {flags.set:values}", when="flags.set"),
)
