"""Show the compiler's decisions about collectives, kernels and parameters, and the effects of
flags.

question: what the compiler decided: collectives, kernels, parameters, flags
reads: a step
options: --top, --flags
example: --top 10
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from _breakdown.analysis.comm.collective_plans import Planned, planned_collectives
from _breakdown.analysis.comm.xla_flags import flag_findings, read_flags
from _breakdown.analysis.records.program_digest import donated_bytes, opcodes_outside_fusions
from _breakdown.analysis.report import Runs, program_id_of, runs_of
from _breakdown.analysis.source.rows import declared_row
from _breakdown.output.columns import BYTES, RUNS, TOTAL
from _breakdown.output.phrases import Next, short
from _breakdown.output.screen import Column, Part, Says, Table
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.groups import Group, grouped, sum_if_known
from _breakdown.pipeline.no_answer import no_program
from _breakdown.pipeline.normalize import Step
from _breakdown.units import counted, size
from _proto.hlo.backend_config import DeclaredCost
from _proto.hlo.parameters import Parameter, read_parameters
from _proto.hlo.program import Instruction
from _proto.hlo.text import HBM, base_name

Json = dict[str, Any]
# The properties that a row's kernels share: name, VMEM used, VMEM limit, declared cost.
Kernel = tuple[str, int | None, int | None, DeclaredCost | None]

N_SET_FLAGS = 200


def program(step: Step, context: Context, *, top: int = 20, flags: str | None = None) -> Json:
    given = None if flags is None else read_flags(flags, context)
    program_id = program_id_of(step)
    found = None if program_id is None else step.device.programs.program(program_id)
    if found is None or program_id is None:
        raise no_program()
    runs = runs_of(step, program_id)
    planned = planned_collectives(found, step, program_id)
    instructions = list(found.instructions())
    opcodes = opcodes_outside_fusions(found)
    parameters = read_parameters(found)
    ranked = None if parameters is None else sorted(parameters, key=rank_of)
    return {
        "n_computations": len(found.computations),
        "n_instructions": len(instructions),
        "n_fusions": opcodes["fusion"],
        "n_devices": found.n_devices,
        "opcodes": dict(sorted(opcodes.items(), key=lambda item: (-item[1], item[0]))),
        "collectives": collective_rows(planned),
        "kernels": kernel_rows(instructions, runs),
        "parameters": (
            None
            if ranked is None
            else [parameter_row(parameter, found.n_devices) for parameter in ranked[:top]]
        ),
        "tail": None if ranked is None else tail_row(ranked[top:]),
        "aliased_bytes": None if ranked is None else donated_bytes(ranked),
        "donated_unused_bytes": None if ranked is None else donated_unused_bytes(ranked),
        "flags": None if given is None else flags_row(given, planned),
    }


def collective_rows(planned: Sequence[Planned]) -> list[Json]:
    """Return a row for each combination of `collective`, `how` and `plan`, longest exposed time
    first."""
    alike = grouped(((each.collective, each.how, tuple(each.plan)), each) for each in planned)
    ranked = sorted(
        alike.items(),
        key=lambda item: (-sum(collective.exposed for collective in item[1]), item[0]),
    )
    return [collective_row(collectives) for _, collectives in ranked]


def collective_row(alike: Sequence[Planned]) -> Json:
    first = alike[0]
    transfers = [transfer for collective in alike for transfer in collective.transfers]
    payload = sum_if_known((transfer.ran.n, transfer.exchange.payload) for transfer in transfers)
    return {
        "collective": first.collective,
        "how": first.how,
        "plan": first.plan or None,
        "n_instructions": len(alike),
        "n_executions": sum(transfer.ran.n for transfer in transfers),
        "sync_dur_ps": sum(collective.sync for collective in alike),
        "wait_dur_ps": sum(collective.wait for collective in alike),
        "payload_bytes": payload if transfers else None,
    }


def executions_of(instructions: Iterable[Instruction], runs: Runs) -> Group:
    return Group([ran for instruction in instructions for ran in runs.get(instruction, ())])


def kernel_rows(instructions: Iterable[Instruction], runs: Runs) -> list[Json]:
    calls = (each for each in instructions if each.opcode == "custom-call")
    alike = grouped((kernel_of(each), each) for each in calls if each.is_kernel)
    groups = {kernel: executions_of(found, runs) for kernel, found in alike.items()}

    def rank(kernel: Kernel) -> list[Any]:
        # If time and name are equal, unknown figures come first.
        name, used, limit, declared = kernel
        facts = [(fact is not None, fact or 0) for fact in (used, limit, *(declared or ()))]
        return [-groups[kernel].total, name, *facts[:2], declared is not None, facts[2:]]

    return [
        kernel_row(kernel, len(alike[kernel]), groups[kernel]) for kernel in sorted(alike, key=rank)
    ]


def kernel_of(instruction: Instruction) -> Kernel:
    config = instruction.config
    name = base_name(instruction.name)
    return name, config.vmem_used, config.vmem_limit, config.declared_cost


def kernel_row(kernel: Kernel, n_instructions: int, group: Group) -> Json:
    name, used, limit, declared = kernel
    return {
        "kernel": name,
        "vmem_used_bytes": used,
        "vmem_limit_bytes": limit,
        "declared": declared_row(declared) if declared else None,
        "n_instructions": n_instructions,
        "n_executions": group.n,
        "total_dur_ps": group.total,
    }


def rank_of(parameter: Parameter) -> tuple[bool, int, int, tuple[int, ...]]:
    """Return a parameter's sort key: largest first, unknown sizes last."""
    n_bytes = bytes_of(parameter)
    return n_bytes is None, -(n_bytes or 0), parameter.number, parameter.shape_index


def bytes_of(parameter: Parameter) -> int | None:
    return parameter.array.n_bytes if parameter.array else None


def tail_row(omitted: Sequence[Parameter]) -> Json:
    return {
        "n_parameters_omitted": len(omitted),
        "bytes": sum_if_known((1, bytes_of(parameter)) for parameter in omitted),
    }


def donated_unused_bytes(parameters: Iterable[Parameter]) -> int | None:
    """Return the bytes of donated parameters whose memory no output reuses."""
    return hbm_bytes(
        parameter for parameter in parameters if parameter.is_donor and not parameter.is_aliased
    )


def hbm_bytes(parameters: Iterable[Parameter]) -> int | None:
    return sum_if_known(
        (1, bytes_of(parameter))
        for parameter in parameters
        if parameter.array is None or parameter.array.memory_space == HBM
    )


def parameter_row(parameter: Parameter, n_devices: int | None) -> Json:
    array = parameter.array
    return {
        "number": parameter.number,
        "shape_index": list(parameter.shape_index),
        "path": parameter.path,
        "shape": array.text if array else None,
        "global_shape": global_shape(parameter, n_devices),
        "sharding": parameter.sharding.text if parameter.sharding else None,
        "bytes": bytes_of(parameter),
        "memory_space": array.memory_space if array else None,
        "aliased_to_output": parameter.is_aliased,
    }


def global_shape(parameter: Parameter, n_devices: int | None) -> str | None:
    """Return the array's shape before sharding, rounded up if tiles are uneven; None if unknown."""
    array, sharding = parameter.array, parameter.sharding
    if array is None:
        return None
    if sharding is None:
        # A single device holds the whole array; one of several devices may hold only a tile.
        return array.text if n_devices == 1 else None
    tiles = sharding.tiles(len(array.dims))
    if tiles is None:
        return None
    return array.text_of([dim * n for dim, n in zip(array.dims, tiles, strict=True)])


def flags_row(values: dict[str, str], planned: Sequence[Planned]) -> Json:
    return {
        "n": len(values),
        "set": dict(list(values.items())[:N_SET_FLAGS]),
        "findings": [
            {
                "flag": finding.flag,
                "set_to": finding.set_to,
                "n_instructions": finding.n_instructions,
                "n_seen": finding.n_seen,
                "exposed_ps": finding.exposed,
                "says": finding.says,
            }
            for finding in flag_findings(values, planned)
        ],
    }


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "collectives"

PARTS: tuple[Part, ...] = (
    Says(
        "\ninstructions: {n_instructions:count}, computations: {n_computations:count},"
        " fusions: {n_fusions:count}, devices: {n_devices:count}"
    ),
    Says(
        "outputs reuse {aliased_bytes:bytes} of the parameters' HBM;"
        " {donated_unused_bytes:bytes} of it were donated but not reused"
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


def sentences(answer: Json) -> Iterator[str]:
    devices = answer["n_devices"]
    on = f" ({counted(devices, 'device')})" if devices else ""
    collectives = sum(row["n_instructions"] for row in answer["collectives"])
    parts = [counted(answer["n_instructions"], "instruction")]
    if collectives:
        parts.append(counted(collectives, "collective"))
    if answer["kernels"]:
        parts.append(counted(len(answer["kernels"]), "kernel"))
    yield f"The program {short(answer['program']['name'])}{on} has {', '.join(parts)}."
    if answer["donated_unused_bytes"]:
        yield f"{size(answer['donated_unused_bytes'])} of donated arguments are not reused."


def next_steps(answer: Json) -> Iterator[Next]:
    if answer["collectives"]:
        yield Next("what communication costs", ("--mode", "comm"))
