"""List the modes. Each mode is a file of this package, which is imported only when the mode runs.

The docstring of a mode's file has the row of the mode in `--help`:

    question: the question that the mode answers
    reads: a step, all devices or captures
    options: the options that the mode accepts besides those of its kind, if there are any; `peaks`
      are the options of the peak rates
    example: options of an example

The file defines

- a function with the mode's name, which returns the answer's own fields. Its arguments are the
  step (only if the mode reads a step), the context, and the mode's options;
- `PARTS`, the sentences and tables of the text output, and `MAIN`, the path of the main table;
- `sentences` of the headline and `next_steps`, which read the answer;
- `brief`, if there is much that only `--all` prints: it returns the answer without that.
"""

from __future__ import annotations

import os
from importlib import import_module

from _breakdown.light import TYPE_CHECKING, NamedTuple
from _breakdown.pipeline.context import DEVICE
from _breakdown.pipeline.options import PEAK_OPTIONS

if TYPE_CHECKING:
    from typing import Any

NAMES = (
    "bottleneck",
    "summary",
    "by_source",
    "by_scope",
    "by_op",
    "by_array",
    "non_compute",
    "roofline",
    "comm",
    "memory",
    "idle",
    "program",
    "kernel",
    "page",
    "export",
    "record",
    "compare",
    "spread",
    "anatomy",
)
STEP_OPTIONS = ("--step", "--step-id", "--own")


class Mode(NamedTuple):
    """The command line's facts about a mode."""

    name: str
    question: str
    options: tuple[str, ...]
    example: str
    is_of_step: bool
    # The default device, or None for all devices.
    device: str | None

    @property
    def module(self) -> Any:
        return module_named(self.name)


def module_named(name: str) -> Any:
    """Import a mode's file."""
    return import_module(f"_breakdown.modes.{name}")


def mode_named(name: str) -> Mode:
    """Read the docstring of a mode's file, without importing the file: importing all modes would
    take 0.2 s."""
    path = os.path.join(os.path.dirname(__file__), f"{name}.py")
    # Use the loader, because it can also read from a zip archive.
    source = __loader__.get_data(path).decode()  # type: ignore[name-defined]
    # A line that begins with two spaces continues the line before it.
    lines = source.split('"""', 2)[1].replace("\n  ", " ").splitlines()
    facts = dict(line.split(": ", 1) for line in lines if ": " in line)
    is_of_step = facts["reads"] == "a step"
    options: list[str] = [*STEP_OPTIONS] if is_of_step else []
    for option in filter(None, facts["options"].split(", ")):
        options += PEAK_OPTIONS if option == "peaks" else [option]
    return Mode(
        name,
        facts["question"],
        tuple(options),
        facts["example"],
        is_of_step,
        None if facts["reads"] == "all devices" else DEVICE,
    )
