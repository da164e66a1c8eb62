"""What the compiler decided: how collectives are moved, what kernels take, how parameters are cut
and whose memory they lend; and whether flags that were given show."""

from __future__ import annotations

from collections import Counter

from _analysis.collective_plans import collective_rows, planned_collectives
from _analysis.program_parameters import parameter_fields
from _analysis.report import Report, program_id_of
from _analysis.xla_flags import flag_fields, read_flags
from _pipeline.groups import Group
from _pipeline.no_answer import NoAnswer
from _proto.hlo.text import base_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from _pipeline.context import Context
    from _pipeline.executions import Executions
    from _pipeline.normalize import Step
    from _proto.hlo.backend_config import DeclaredCost
    from _proto.hlo.program import Instruction, Program

    Json = dict[str, Any]
    # Of kernels that are alike: name, VMEM used and allowed, and what is declared.
    Kernel = tuple[str, "int | None", "int | None", "DeclaredCost | None"]
    # What ran, by what the program says of it.
    Ran = dict[Instruction, list[Executions]]


def program(step: Step, context: Context, *, top: int = 20, flags: str | None = None) -> Report:
    given = None if flags is None else read_flags(flags, context)
    program_id = program_id_of(step)
    found = None if program_id is None else step.device.programs.program(program_id)
    if found is None or program_id is None:
        raise NoAnswer("no_program")
    ran: Ran = {}
    for each in [*step.leaves, *step.containers]:
        if each.op.program_id == program_id and each.op.instruction:
            ran.setdefault(each.op.instruction, []).append(each)
    planned = planned_collectives(found, step, program_id)
    return Report(
        {
            "name": step.device.programs.names.get(program_id),
            "program_id": str(program_id),
            **count_fields(found),
            "collectives": collective_rows(planned),
            "kernels": kernel_rows(found, ran),
            "retries": retry_rows(found, ran),
            **parameter_fields(found, top),
            "flags": None if given is None else flag_fields(given, planned),
        },
    )


def count_fields(program: Program) -> Json:
    instructions = list(program.instructions())
    fused = {called for each in instructions if each.opcode == "fusion" for called in each.called}
    opcodes = Counter(each.opcode for each in instructions if each.computation not in fused)
    return {
        "n_computations": len(program.computations),
        "n_instructions": len(instructions),
        "n_fusions": opcodes["fusion"],
        "n_devices": program.n_devices,
        "opcodes": dict(sorted(opcodes.items(), key=lambda item: (-item[1], item[0]))),
    }


def ran_as(instructions: Iterable[Instruction], ran: Ran) -> Group:
    return Group([each for instruction in instructions for each in ran.get(instruction, ())])


def kernel_rows(program: Program, ran: Ran) -> list[Json]:
    alike: dict[Kernel, list[Instruction]] = {}
    for each in program.instructions():
        if each.is_kernel:
            config = each.config
            limits = config.vmem_used, config.vmem_limit
            kernel = base_name(each.name), *limits, config.declared_cost
            alike.setdefault(kernel, []).append(each)
    groups = {kernel: ran_as(instructions, ran) for kernel, instructions in alike.items()}

    def rank(kernel: Kernel) -> list[Any]:
        # What isn't known comes first.
        name, used, limit, declared = kernel
        facts = [(fact is not None, fact or 0) for fact in (used, limit, *(declared or ()))]
        return [-groups[kernel].total, name, *facts[:2], declared is not None, facts[2:]]

    return [
        {
            "kernel": name,
            "vmem_used_bytes": used,
            "vmem_limit_bytes": limit,
            "declared": declared._asdict() if declared else None,
            "n_instructions": len(alike[kernel]),
            "n_executions": groups[kernel].n,
            "total_dur_ps": groups[kernel].total,
        }
        for kernel in sorted(alike, key=rank)
        for name, used, limit, declared in [kernel]
    ]


def retry_rows(program: Program, ran: Ran) -> list[Json]:
    rows = []
    for each in program.instructions():
        config = each.retried
        if config:
            group = ran_as([each], ran)
            rows.append(
                {
                    "hlo_op": each.name,
                    "retry_count": config.retry_count,
                    "n_executions": group.n,
                    "total_dur_ps": group.total,
                    "vmem_used_bytes": config.vmem_used,
                    "vmem_limit_bytes": config.vmem_limit,
                }
            )
    return sorted(rows, key=lambda row: (-row["total_dur_ps"], row["hlo_op"]))
