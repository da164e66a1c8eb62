"""All that knows how a trace is written: its bytes, its HLO texts, the programs beside it.

This is its face. It costs nothing to import; opening a trace imports protobuf.
"""

from __future__ import annotations

from contextlib import contextmanager

from .clocks import ON_DEVICE, ON_TRACE, Clock, Piece, clock_of, piece_of
from .errors import Damage
from .hlo_text import (
    HOST_MEMORY,
    Array,
    HloText,
    dtype_and_layout_change,
    main_dtype,
    parse_shape,
)
from .record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .hlo_facts import DeclaredCost, Dot
    from .hlo_module import Instruction, Program
    from .lines import Events, Line
    from .programs import Programs
    from .reader import Metadata, Plane, Stats, Trace, Value

__all__ = [
    "HOST_MEMORY",
    "ON_DEVICE",
    "ON_TRACE",
    "Array",
    "Clock",
    "Damage",
    "DeclaredCost",
    "Dot",
    "Events",
    "HloText",
    "Instruction",
    "Line",
    "Metadata",
    "Piece",
    "Plane",
    "Program",
    "Programs",
    "Stats",
    "Trace",
    "Value",
    "clock_of",
    "dtype_and_layout_change",
    "main_dtype",
    "open_trace",
    "parse_shape",
    "piece_of",
    "programs_of",
    "record",
]


@contextmanager
def open_trace(path: str, on_read: Callable[[int, int], None] | None = None) -> Iterator[Trace]:
    """Open a trace, gzipped or not. `on_read` is told (position, size) after every read.

    Here and in all that reads from it, Damage says what can't be read, OSError what can't be
    opened.
    """
    from .reader import Trace
    from .source import open_source

    with open_source(path, on_read) as source:
        yield Trace(source)


def programs_of(trace: Trace) -> Programs:
    """The compiled programs in a trace, to be asked while it is open."""
    from .programs import Programs

    return Programs(trace)
