"""One op: what it runs, when it ran, and what its program says that it is made of."""

from __future__ import annotations

from heapq import nsmallest
from operator import itemgetter

from _pipeline.names import nearest_names, resolve_name
from _pipeline.no_answer import NoAnswer
from _pipeline.timeline import events_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from _pipeline.context import Context
    from _pipeline.groups import Group
    from _pipeline.normalize import Step
    from _pipeline.ops import Op
    from _proto.hlo.program import Computation, Instruction

    Json = dict[str, Any]

N_EXECUTIONS = 1000
N_NEIGHBOURS = 50
N_CALLED, N_INSTRUCTIONS = 20, 200


def name_of(op: Op) -> str:
    """The name of its instruction; of what runs under no such name, whatever it is called."""
    return op.name or op.text.removeprefix("%")


def found_as(asked: str, ops: Sequence[Group], context: Context) -> Group:
    """The op of that name, of several programs that where it took most time."""
    by_name: dict[str, list[Group]] = {}
    for group in ops:
        by_name.setdefault(name_of(group.op), []).append(group)
    name = resolve_name(asked.removeprefix("%"), by_name, "--op", context)
    if name is None:
        raise NoAnswer(
            "op_not_found",
            detail=f"no op of the step is named {asked!r}, nor does just one begin so",
            available_ops=nearest_names(asked.removeprefix("%"), by_name),
        )
    found = max(by_name[name], key=lambda group: group.total)
    if len(by_name[name]) > 1:
        context.note(
            f"{len(by_name[name])} programs have an op {name}: that of {found.op.program_id} taken,"
            " in which it took most time"
        )
    return found


def one_op(group: Group, step: Step) -> Json:
    ids = {each.metadata_id for each in group.members}
    events = events_of(step.admitted.pieces, step.clock, ids)
    shown = nsmallest(N_EXECUTIONS, events, key=itemgetter(0))
    return {
        "text": group.op.text,
        "source_stack": group.op.source_stack,
        "executions": [[start, duration] for start, duration, _ in shown],
        "n_executions_omitted": group.n - len(shown),
        "program": program_part(group.op.instruction),
    }


def program_part(instruction: Instruction | None) -> Json | None:
    if instruction is None:
        return None
    return {
        "opcode": instruction.opcode,
        "computation": instruction.computation.name,
        "operands": neighbour_rows(instruction.operands),
        "users": neighbour_rows(instruction.users),
        "chain": [part.name for part in instruction.chain] if instruction.is_asynchronous else [],
        "called": [called_row(each) for each in instruction.called[:N_CALLED]],
    }


def neighbour_rows(instructions: Iterable[Instruction]) -> list[Json]:
    return [
        {
            "name": each.name,
            "opcode": each.opcode,
            "shape": each.shape,
            "source_inner": each.line,
        }
        for each in list(instructions)[:N_NEIGHBOURS]
    ]


def called_row(computation: Computation) -> Json:
    """What is called, in its order: the body of a fusion, or of a loop."""
    return {
        "name": computation.name,
        "n_instructions": len(computation.instructions),
        "instructions": [
            {
                "name": each.name,
                "opcode": each.opcode,
                "shape": each.shape,
                "operands": [operand.name for operand in each.operands],
                "source_inner": each.line,
            }
            for each in computation.instructions[:N_INSTRUCTIONS]
        ],
    }
