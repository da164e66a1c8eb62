"""Compute throughput and useful flops of a step from the number of tokens passed by the user."""

from __future__ import annotations

from fractions import Fraction

from _breakdown.analysis.report import program_id_of
from _breakdown.analysis.roof.roofs import rounded
from _breakdown.pipeline.no_answer import NoAnswer
from _breakdown.pipeline.normalize import Step

# Training takes two flops per parameter and token in the forward pass, and four in the backward
# pass.
FLOPS_PER_PARAM = 6


def tokens_per_s(time: int, tokens: int | None) -> float | None:
    """Return the rate of tokens, given the time of one step."""
    return None if tokens is None or not time else rounded(Fraction(tokens) * 10**12 / time, 3)


def model_flops_of(
    step: Step,
    tokens: int | None,
    flops_per_token: float | None,
    params: float | None,
    n_devices: int | None,
) -> Fraction | None:
    """Return the useful flops of the step on one device, or None if they were not asked for;
    `tokens` is the number of tokens on all devices."""
    if tokens is None or not (flops_per_token or params):
        return None
    n = n_devices or assigned_devices(step)
    if not n:
        raise NoAnswer(
            "bad_arguments",
            detail="device count unknown, and --tokens counts the tokens of all devices; pass"
            " --n-devices",
        )
    per_token = Fraction(flops_per_token or 0) + FLOPS_PER_PARAM * Fraction(params or 0)
    return tokens * per_token / n


def assigned_devices(step: Step) -> int | None:
    """Return the number of devices that run the step's program, including devices outside the
    capture."""
    program_id = program_id_of(step)
    program = None if program_id is None else step.device.programs.program(program_id)
    return program.n_devices if program else None
