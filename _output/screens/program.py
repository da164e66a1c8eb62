"""Describe the output of mode `program`: the compiler's decisions."""

from __future__ import annotations

from typing import Final

from _output.columns import BYTES, RUNS, TOTAL
from _output.screen import Column, Part, Says, Table

MAIN: Final = "collectives"
WITHOUT_ANSWER: Final = {
    "no_program": "The capture lacks this step's program; `--mode anatomy` lists the programs that"
    " it contains.",
}

PARTS: tuple[Part, ...] = (
    Says(
        "\ninstructions: {n_instructions:count}, computations: {n_computations:count},"
        " fusions: {n_fusions:count}, devices: {n_devices:count}"
    ),
    Says(
        "outputs reuse the memory of {aliased_bytes:bytes} of parameters;"
        " {donated_unused_bytes:bytes} were donated but not reused"
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
        "flags about collectives (flags set in total: {flags.n:count})",
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
        "ops that were compiled more than once",
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
            Column("global shape", "global_shape", "shape"),
            Column("sharding", "sharding"),
            Column("in place", "aliased_to_output", "word"),
        ),
        what="parameter",
        omitted="tail.n_parameters_omitted",
        tail={"size": "tail.bytes"},
    ),
    Says("\nopcodes: {opcodes:count}"),
    Says("flags set: {flags.set:values}", when="flags.set"),
)
