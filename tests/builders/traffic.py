"""Build programs whose ops move arrays, and run by_array on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import _breakdown.modes.by_array
from _breakdown.analysis.arrays.engine import Change, Engine, Gain
from _breakdown.analysis.causes.shared.cause import StepFacts
from _breakdown.analysis.causes.shared.step_program import StepProgram
from _breakdown.analysis.kernel.kernel_regions import inside_kernels
from _breakdown.analysis.roof.ledger import ledger_of
from _breakdown.analysis.roof.roofs import roofs_of
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.normalize import Step
from _proto.hlo.program import Program as Compiled
from tests.analysis.small_programs import DURATION, PROGRAM_ID, Json, Program
from tests.builders import hlo_proto
from tests.builders.hlo_proto import metadata_plane, op
from tests.builders.xspace import Op, Space, encode, tpu_plane
from tests.harness import answer

COPY = "data formatting"
# Each array of the default shape has 8 x 128 values of 4 bytes.
SIZE = 4096
IN_VMEM = hlo_proto.Shape("f32", (8, 128), memory_space=1)
SLOW = ("--peak-hbm-gibps", "1", "--no-merge")


def by_array(program: Program, ran: Sequence[Op], *options: str, **more: Any) -> Json:
    for execution in ran:
        execution.stats["program_id"] = PROGRAM_ID
    metadata = metadata_plane({PROGRAM_ID: ("jit_f(7)", hlo_proto.hlo_proto(program, **more))})
    data = encode(Space([tpu_plane(ran, [("0", 0, DURATION)]), metadata]))
    result: Json = answer(data, "by_array", *(options or SLOW))
    return result


def given(name: str = "x", number: int = 0, shape: hlo_proto.Shape | None = None) -> hlo_proto.Op:
    return op(name, "parameter", number=number, shape=shape, tf_op=name)


Find = Callable[[str], Executions]


def estimated(program: Program, ran: Sequence[Op], changes: Callable[[Find], list[Change]]) -> Gain:
    """Return the estimate for a step of 1000 ps on a chip whose HBM moves 1 GiB/s."""
    found: list[Gain] = []

    answer = _breakdown.modes.by_array.by_array

    def mode(step: Step, context: Context, **options: Any) -> Json:
        # The program can be read only while the trace is open.
        roofs = roofs_of(step.device, None, {"hbm_gibps": 1.0, "bf16": 1e-6})
        ledger = ledger_of(step, roofs, {})
        compiled = next(entry.ran.op.program for entry in ledger)
        assert isinstance(compiled, Compiled)
        facts = StepFacts(step, ledger, roofs, inside_kernels(step), None, None, context)
        links = StepProgram(facts, compiled, ledger).links
        by_name = {entry.ran.op.name: entry.ran for entry in ledger}
        engine = Engine(ledger, lambda: facts.arrays, lambda _: links)
        found.append(engine.without(changes(by_name.__getitem__)))
        return answer(step, context, **options)

    with mock.patch.object(_breakdown.modes.by_array, "by_array", mode):
        by_array(program, ran)
    return found[0]
