"""Find the name under which the user called the command, and write the short help."""

from __future__ import annotations

import os
import sys

from _light import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def program_name() -> str:
    """Return the command that started this process, as shown in the usage line."""
    spec = sys.modules["__main__"].__spec__
    # A program in a zip archive also has a spec, with the name `__main__`.
    if spec is not None and spec.name != "__main__":
        return "python -m compute_breakdown"
    return os.path.basename(sys.argv[0])


def short_help(modes: Sequence[str]) -> str:
    """Return what the command prints without arguments."""
    name = program_name()
    return f"""\
{name} PROFILE                      where the step loses time
{name} PROFILE --baseline PROFILE   what a change did
{name} PROFILE --mode MODE          one of the modes below
{name} PROFILE --mode page --out step.html   an HTML report
{name} --help                       all options

PROFILE is an .xplane.pb file, or a run or log directory with such files.
modes: {", ".join(modes[:9])},
       {", ".join(modes[9:])}
"""
