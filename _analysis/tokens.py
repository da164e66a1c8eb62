"""What a step is for, where its user says how many tokens it takes."""

from __future__ import annotations

from fractions import Fraction

from _analysis.report import program_id_of
from _analysis.roofs import rounded
from _pipeline.no_answer import NoAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _pipeline.normalize import Step

# Training takes two flops a parameter forward, and twice that backward.
FLOPS_PER_PARAM = 6


def tokens_per_s(step: Step, tokens: int | None) -> float | None:
    if tokens is None or not step.duration:
        return None
    return rounded(Fraction(tokens) * 10**12 / step.duration, 3)


def model_flops_of(
    step: Step,
    tokens: int,
    flops_per_token: float | None,
    params: float | None,
    n_devices: int | None,
) -> Fraction:
    """The useful flops of the step on one device; the tokens are those of all devices."""
    n = n_devices or assigned_devices(step)
    if not n:
        raise NoAnswer(
            "bad_arguments",
            detail="the tokens are those of all devices, and no program tells how many these are:"
            " --n-devices does",
        )
    of_token = Fraction(flops_per_token or 0) + FLOPS_PER_PARAM * Fraction(params or 0)
    return tokens * of_token / n


def assigned_devices(step: Step) -> int | None:
    """On how many devices the step's program runs, of which few may be in the capture."""
    program_id = program_id_of(step)
    program = None if program_id is None else step.device.programs.program(program_id)
    return program.n_devices if program else None
