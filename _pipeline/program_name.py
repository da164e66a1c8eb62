"""Find the name under which the user called the command."""

from __future__ import annotations

import os
import sys


def program_name() -> str:
    """Return the command that started this process, as shown in the usage line."""
    spec = sys.modules["__main__"].__spec__
    # A program in a zip archive also has a spec, with the name `__main__`.
    if spec is not None and spec.name != "__main__":
        return "python -m compute_breakdown"
    return os.path.basename(sys.argv[0])
