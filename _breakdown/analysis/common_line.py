"""Find the source line that has most of the step's time, and what separates the time better.

Lines say little if the user's own code is one call of a training step, or if a framework calls all
layers from one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.frames import file_of, innermost_own, is_not_plumbing, package_of
from _breakdown.pipeline.groups import summed
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.scopes import names_layer, scope_of
from _breakdown.units import percentage

Json = dict[str, Any]

BY_SCOPE = "--mode by_scope"


def warning_about(common: Json) -> str:
    return (
        f"{percentage(common['pct_of_step'])} of the step's time has the source line"
        f" {common['source_user']}; to separate it, pass {common['separated_by']}"
    )


def common_line_of(step: Step) -> Json | None:
    """Return the line with more than half of the step's time, if anything separates the time."""
    # Find it once, because reading all stacks takes long.
    return step.once(common_line_of, lambda: _find(step))


def scopes_say_more(step: Step) -> bool:
    """Return whether one line has most of the step's time, and scopes separate it best."""
    common = common_line_of(step)
    return common is not None and common["separated_by"] == BY_SCOPE


def _find(step: Step) -> Json | None:
    times = summed((ran.op.source_user, ran.total) for ran in step.leaves)
    times.pop(None, None)
    line = max(times, key=times.__getitem__, default=None)
    if line is None or 2 * times[line] <= step.duration:
        return None
    separated_by = best_separation(step)
    if separated_by is None:
        return None
    return {
        "source_user": line,
        "pct_of_step": round(100 * times[line] / step.duration, 3),
        "separated_by": separated_by,
    }


def best_separation(step: Step) -> str | None:
    """Return the options with which the largest share of the time is smallest, if it is below one
    half: a package, whose lines count as own code, or scopes."""
    shares = {f"--own {name}/": share for name, share in shares_by_package(step.leaves).items()}
    # Read paths in the trace only, because programs take long to read.
    paths = [(ran.op.tf_op, ran.total) for ran in step.leaves]
    if any(path and names_layer(path) for path, _ in paths):
        shares[BY_SCOPE] = largest((path and scope_of(path).name, total) for path, total in paths)
    best = min(shares, key=lambda name: (shares[name], name != BY_SCOPE, name), default=None)
    return best if best is not None and 2 * shares[best] < step.duration else None


def shares_by_package(leaves: Sequence[Executions]) -> dict[str, int]:
    """Return the largest time of one line, for each installed package that is not plumbing."""
    stacks = [(ran.op.stack, ran.total) for ran in leaves]
    # Stacks share most of their frames, so find each file once.
    frames = set[str]().union(*{stack.frames for stack, _ in stacks if stack})
    files = filter(is_not_plumbing, set(map(file_of, frames)))
    shares = {}
    for package in set(filter(None, map(package_of, files))):

        def is_own(file: str, name: str = f"{package}/") -> bool:
            return name in file

        shares[package] = largest(
            (innermost_own(stack.frames, is_own) if stack else None, total)
            for stack, total in stacks
        )
    return shares


def largest(times: Iterable[tuple[str | None, int]]) -> int:
    """Return the largest sum of times with the same name."""
    return max(summed(times).values(), default=0)
