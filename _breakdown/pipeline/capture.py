"""Trace steps of a JAX program, for `compute_breakdown.capture`. Only this file imports JAX."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from types import TracebackType
from typing import Any

CARRY = "pass carry=lambda out, args: next_args, which returns the arguments of the next call"


class Capture:
    """Trace what runs inside `with`, and analyse the trace at the end.

    The trace is in `folder`, or in a temporary folder that is deleted at the end. An exception
    inside `with` also ends the trace.
    """

    def __init__(
        self, analyse: Callable[[str], dict[str, Any]], folder: str | os.PathLike[str] | None
    ) -> None:
        self._analyse = analyse
        self._folder = None if folder is None else os.fspath(folder)
        self._answer: dict[str, Any] | None = None

    @property
    def answer(self) -> dict[str, Any]:
        if self._answer is None:
            raise ValueError("the answer is known at the end of the with statement")
        return self._answer

    def __enter__(self) -> Capture:
        import jax

        if self._folder is not None:
            # If the profiler could not write the trace, it could not start another one.
            os.makedirs(self._folder, exist_ok=True)
        self._traced = self._folder or tempfile.mkdtemp(prefix="compute_breakdown_")
        try:
            jax.profiler.start_trace(self._traced)
        except BaseException:
            self._clean()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        import jax

        try:
            # An exception inside `with` is more important than one at the end of the trace.
            with suppress(Exception) if kind else nullcontext():
                jax.profiler.stop_trace()
            if kind is None:
                answer = self._analyse(self._traced)
                if self._folder is None and "next_steps" in answer:
                    # Commands could not read the trace, which is deleted.
                    answer["next_steps"] = []
                self._answer = answer
        finally:
            self._clean()

    def _clean(self) -> None:
        if self._folder is None:
            shutil.rmtree(self._traced, ignore_errors=True)


def run_steps(
    capture: Capture,
    step: Callable[..., Any],
    args: Sequence[Any],
    n: int,
    carry: Callable[[Any, Sequence[Any]], Sequence[Any]] | None,
) -> None:
    """Call a step once, so that it is compiled, and then `n` times inside the capture."""
    import jax

    if carry is None and _donates(step, args):
        raise ValueError(f"the step donates its arguments; {CARRY}")

    def next_args(out: Any, args: Sequence[Any]) -> Sequence[Any]:
        return args if carry is None else carry(out, args)

    out = jax.block_until_ready(step(*args))
    args = next_args(out, args)
    if any(getattr(leaf, "is_deleted", bool)() for leaf in jax.tree_util.tree_leaves(args)):
        # A function that is not jitted does not tell beforehand that it donates.
        raise ValueError(f"the first call deleted its arguments; {CARRY}")
    with capture:
        for i in range(n):
            with jax.profiler.StepTraceAnnotation("step", step_num=i):
                out = step(*args)
            args = next_args(out, args)
        # Wait only here: a wait after each step would be a pause that the program does not have.
        jax.block_until_ready(out)


def _donates(step: Callable[..., Any], args: Sequence[Any]) -> bool:
    """Return whether a jitted step donates arguments; False for other functions."""
    import jax

    if not hasattr(step, "lower"):
        return False
    infos = getattr(step.lower(*args), "args_info", ())
    return any(getattr(info, "donated", False) for info in jax.tree_util.tree_leaves(infos))
