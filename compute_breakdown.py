#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = ["protobuf>=4.21.1"]
# ///
"""Show where a TPU step's time goes, by source line.

The command reads an XProf trace (`*.xplane.pb`) and prints one JSON object. `_breakdown/modes/`
has the possible answers, and `_breakdown/command.py` the command line and the pipeline.
"""

from __future__ import annotations

import os
import sys

# IS_COMMAND is False if another program imports this file.
IS_COMMAND = __name__.endswith("__main__")
if IS_COMMAND and sys.version_info < (3, 10):
    # Older versions of Python can parse this file, so the check can report the version.
    found = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"compute_breakdown: requires Python 3.10 or newer (found {found})")
if IS_COMMAND:
    # Let Ctrl-C during the imports end the process without a traceback.
    sys.excepthook = lambda kind, *of: (
        None if kind is KeyboardInterrupt else sys.__excepthook__(kind, *of)
    )

# The packages are next to this file in a clone, in an installation and in a zip archive.
HERE = os.path.dirname(os.path.realpath(__file__))
if IS_COMMAND and sys.path[0] != HERE:
    sys.path.insert(0, HERE)
elif HERE not in sys.path:
    sys.path.append(HERE)

from _breakdown.command import __version__, analyse, capture, command, render  # noqa: E402
from _breakdown.pipeline.no_answer import NoAnswer  # noqa: E402

__all__ = ["NoAnswer", "__version__", "analyse", "capture", "render"]

if __name__ == "__main__":
    command()
