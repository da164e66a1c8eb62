"""Describe the output of mode `page`: the headline of the written page."""

from __future__ import annotations

from typing import Final

from _output.screen import Says

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.screen import Part

MAIN: Final = ""
HEAD: tuple[Part, ...] = ()
PARTS: tuple[Part, ...] = (Says("{says:whole}"),)
