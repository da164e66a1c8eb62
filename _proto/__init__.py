"""All that knows how a trace is written: its bytes, its HLO texts, the programs beside it.

This is its face. It costs nothing to import; opening a trace imports protobuf.
"""

from __future__ import annotations

from contextlib import contextmanager

from .clocks import ON_DEVICE, ON_TRACE, Clock, Piece, clock_of, piece_of
from .errors import Damage, NoProtobuf, check_memory
from .flights import Flight, flights_of
from .folders import FilesIn, files_below, files_in, folder_nearby, host_of, is_folder
from .hlo_text import (
    FROM_HOST,
    HOST_MEMORY,
    TO_HOST,
    Array,
    HloText,
    dtype_and_layout_change,
    dtype_class,
    main_dtype,
    parse_shape,
)
from .record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .exchange import Exchange, Exchanges
    from .heap import Held, Peak
    from .hlo_facts import Collective, DeclaredCost, Dot
    from .hlo_module import Instruction, Program
    from .lines import Events, Line
    from .programs import Programs
    from .reader import Metadata, Plane, Stats, Trace, Value

__all__ = [
    "FROM_HOST",
    "HOST_MEMORY",
    "ON_DEVICE",
    "ON_TRACE",
    "STDIN",
    "TO_HOST",
    "Array",
    "Clock",
    "Collective",
    "Damage",
    "DeclaredCost",
    "Dot",
    "Events",
    "Exchange",
    "Exchanges",
    "FilesIn",
    "Flight",
    "Held",
    "HloText",
    "Instruction",
    "Line",
    "Metadata",
    "NoProtobuf",
    "Peak",
    "Piece",
    "Plane",
    "Program",
    "Programs",
    "Stats",
    "Trace",
    "Value",
    "check_memory",
    "clock_of",
    "dtype_and_layout_change",
    "dtype_class",
    "exchanges",
    "files_below",
    "files_in",
    "flights_of",
    "folder_nearby",
    "host_of",
    "is_folder",
    "main_dtype",
    "open_trace",
    "parse_shape",
    "piece_of",
    "programs_of",
    "record",
]

# Instead of a path.
STDIN = "-"


@contextmanager
def open_trace(
    path: str, on_read: Callable[[str, int, int], None] | None = None
) -> Iterator[Trace]:
    """Open a trace, gzipped or not. `on_read` is told what is being done after every read, how
    many bytes of it are done, and how many there are, 0 if that isn't known.

    Here and in all that reads from it, Damage says what can't be read, OSError what can't be
    opened.
    """
    try:
        # Not only does a broken or too old one lack what is imported.
        from google.protobuf import unknown_fields  # noqa: F401

        from . import columns_pb2, xplane_pb2  # noqa: F401
    except Exception as error:
        check_memory()
        raise NoProtobuf(f"{type(error).__name__}: {error}") from error
    from .reader import Trace
    from .source import open_source

    with open_source(path, on_read) as source:
        yield Trace(source)


def programs_of(trace: Trace) -> Programs:
    """The compiled programs in a trace, to be asked while it is open."""
    from .programs import Programs

    return Programs(trace)


def exchanges() -> Exchanges:
    """To be asked what the collectives of a device move."""
    from .exchange import Exchanges

    return Exchanges()
