"""Export the Python API from the installed package.

The command imports this file, too, so each function is imported only on first use.
"""

from __future__ import annotations

import os
import sys

__all__ = ["NoAnswer", "analyse", "capture", "render"]

HERE = os.path.dirname(os.path.realpath(__file__))
# Unpickling an answer from another process imports modules from this folder, possibly before the
# program calls a function.
if HERE not in sys.path:
    sys.path.append(HERE)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._breakdown.output.python import Analyse, CaptureSteps, Render
    from ._breakdown.pipeline.no_answer import NoAnswer

    __version__: str
    analyse: Analyse
    capture: CaptureSteps
    render: Render
else:

    def __getattr__(name: str) -> object:
        if name not in (*__all__, "__version__"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module("_breakdown.command"), name)

    def __dir__() -> list[str]:
        """Return the names that are imported on first use, too, so that editors complete them."""
        return sorted((*globals(), *__all__, "__version__"))
