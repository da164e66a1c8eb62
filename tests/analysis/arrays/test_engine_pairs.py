"""Compare the engine's estimates with the true gains of pairs: a step with a planted fault, edited
by hand, against the same step without the fault.

`python -m tests.analysis.arrays.test_engine_pairs` prints the table. The captures are in the folder
`shared` next to the repository. Tests skip them if it is missing.
"""

from __future__ import annotations

import functools
import lzma
import unittest
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import _breakdown.modes.by_array
from _breakdown.analysis.arrays.engine import Change, Engine, Gain, Resize, Retime, removal_of
from _breakdown.analysis.arrays.of_step import TEMPORARY, StepArrays
from _breakdown.analysis.causes.shared.cause import StepFacts
from _breakdown.analysis.causes.shared.find import programs_of
from _breakdown.analysis.kernel.kernel_regions import inside_kernels
from _breakdown.analysis.roof.ledger import ledger_of
from _breakdown.analysis.roof.roofs import roofs_of
from _breakdown.analysis.source.likely_lines import line_of
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.vocabulary import COMM, COMPUTE, DATA_MOVE
from tests.analysis.small_programs import Json
from tests.harness import PROFILES, answer, sampled

CORPUS = PROFILES.parent / "corpus"
MS = 10**9
Edit = Callable[[Step, StepArrays], list[Change]]


class Estimate(NamedTuple):
    """The estimated gain in ms, and its range."""

    estimate: float
    low: float | None
    high: float | None


def data_of(capture: str) -> bytes:
    return lzma.decompress((CORPUS / f"{capture}.xplane.pb.xz").read_bytes())


@functools.cache
def shapes_of(capture: str) -> set[str]:
    found = answer(data_of(capture), "by_array", "--top", "100000", "--no-merge")["arrays"]
    return {row["shape"] for row in found}


def chosen(step: Step, is_wanted: Callable[[Executions], object]) -> set[Executions]:
    return {ran for ran in step.leaves if is_wanted(ran)}


def file_line(ran: Executions) -> str:
    likely = line_of(ran.op)
    return (likely.line_user or likely.line or "").rpartition("/")[2]


def log_probabilities(step: Step, arrays: StepArrays) -> list[Change]:
    """Leave out the log-probabilities, and the gradient of the gather that reads them."""
    left_out = [a.value for a in arrays if a.shape.text == "f32[4,2048,32768]"]
    gradient = chosen(step, lambda ran: ran.op.name == "select_reduce_fusion")
    return [*(Resize(value, 0) for value in left_out), *removal_of(gradient)]


def constraint(step: Step, _: StepArrays) -> list[Change]:
    """Remove the all-to-alls, and the copies at the lines that they serve."""
    lines = "attention.py:15", "attention.py:34"
    moves = chosen(
        step,
        lambda ran: (
            "all-to-all" in ran.op.name or (ran.op.kind == DATA_MOVE and file_line(ran) in lines)
        ),
    )
    return removal_of(moves)


def widened(_: Step, arrays: StepArrays) -> list[Change]:
    """Give the f32 arrays that are bf16 in the repaired step half of their bytes."""
    shapes = shapes_of("fixed_b")
    return [
        Resize(array.value, 0.5)
        for array in arrays
        if array.shape.n_elements > 1 << 20
        and arrays.kind_of(array) == TEMPORARY
        and array.shape.text not in shapes
        and array.shape._replace(dtype="bf16").text in shapes
    ]


def one_hot(step: Step, _: StepArrays) -> list[Change]:
    """Remove the one-hot array, and look up and scatter at the speed of the repaired step."""
    made = chosen(step, lambda ran: ran.op.name in ("fusion.272", "fusion.268"))
    (lookup,) = chosen(step, lambda ran: ran.op.name == "fusion.144")
    (scatter,) = chosen(step, lambda ran: ran.op.name == "fusion.158")
    return [*removal_of(made), Retime(lookup, MS * 12 // 100), Retime(scatter, MS * 5 // 100)]


def reduced_once(step: Step, _: StepArrays) -> list[Change]:
    """Reduce the gradients once, and not in each of four micro-batches."""
    reductions = chosen(step, lambda ran: ran.op.kind == COMM and file_line(ran) == "step.py:13")
    return [Retime(ran, ran.total / 4) for ran in reductions]


def inner_checkpoint(step: Step, _: StepArrays) -> list[Change]:
    """Remove what only the checkpoint inside a checkpoint recomputes, and its communication."""
    again = chosen(
        step,
        lambda ran: (
            ran.op.phase == "recompute"
            and (ran.op.kind == COMM or (ran.op.path or "").count("checkpoint") == 2)
        ),
    )
    return removal_of(again)


def second_pass(step: Step, _: StepArrays) -> list[Change]:
    """Remove the reductions that read activations once more, without a matmul."""

    def is_reduction(ran: Executions) -> bool:
        here, op = ran.op.instruction, ran.op
        arrays = here.arrays if here else None
        if here is None or op.kind != COMPUTE or op.phase not in ("forward", "backward"):
            return False
        is_small = arrays is not None and len(arrays) == 1 and arrays[0].n_elements <= 2048
        return is_small and all(inner.opcode != "convolution" for inner in here.inside())

    return [*removal_of(chosen(step, is_reduction))]


def slow_kernels(step: Step, _: StepArrays) -> list[Change]:
    """Let the kernels of the slow device take as long as those of the others."""
    return [Retime(ran, ran.total / 1.3) for ran in step.leaves if ran.op.kernel]


# For each capture: the true gain in ms, and the edits that repair it.
PAIRS: dict[str, tuple[float, Edit]] = {
    "a": (5.69, log_probabilities),
    "b": (16.03, constraint),
    "d": (8.93, widened),
    "f": (3.28, one_hot),
    "g": (18.24, reduced_once),
    "h": (4.07, inner_checkpoint),
    "e": (7.56, slow_kernels),
    "resnet": (7.1, second_pass),
}


def gain_of(capture: str, edit: Edit) -> Estimate:
    found: list[Gain] = []
    if edit is widened:
        # Read the repaired step first, because the harness reads one trace at a time.
        shapes_of("fixed_b")
    original = _breakdown.modes.by_array.by_array

    def mode(step: Step, context: Context, **options: Any) -> Json:
        # The program can be read only while the trace is open.
        roofs = roofs_of(step.device, None, {})
        ledger = ledger_of(step, roofs, {})
        facts = StepFacts(step, ledger, roofs, inside_kernels(step), None, None, context)
        links = {of.program: of.links for of in programs_of(facts)}
        engine = Engine(ledger, lambda: facts.arrays, links.get)
        found.append(engine.without(edit(step, facts.arrays)))
        return original(step, context, top=1)

    with mock.patch.object(_breakdown.modes.by_array, "by_array", mode):
        device = ["--device", "/device:TPU:2"] if edit is slow_kernels else []
        answer(data_of(capture), "by_array", *device)
    ((estimate, low, high),) = found
    return Estimate(estimate / MS, low and low / MS, high and high / MS)


def rows(captures: Iterable[str] = PAIRS) -> Iterator[tuple[str, float, Estimate]]:
    for capture in captures:
        true, edit = PAIRS[capture]
        yield capture, true, gain_of(capture, edit)


@unittest.skipUnless(CORPUS.is_dir(), "needs the pairs of captures")
class Pairs(unittest.TestCase):
    takes_seconds = 15

    def test_range_holds_the_true_gain_and_is_narrow(self) -> None:
        for capture, true, gain in rows(sampled(PAIRS, 2)):
            with self.subTest(capture):
                assert gain.low is not None and gain.high is not None
                self.assertLessEqual(gain.low, true)
                self.assertGreaterEqual(gain.high, true)
                self.assertLessEqual(gain.high, 2.5 * gain.low)


if __name__ == "__main__":
    for capture, true, gain in rows():
        print(f"{capture:8} true {true:6.2f}  estimate {gain.estimate:6.2f}", gain[1:])
