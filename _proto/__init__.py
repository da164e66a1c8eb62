"""All that knows the bytes of an xplane.pb: the schema, the framing, the reader.

This is its face. It costs nothing to import; opening a trace imports protobuf.
"""

from __future__ import annotations

from contextlib import contextmanager

from .errors import Damage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .reader import Line, Metadata, Plane, Trace, Value

__all__ = ["Damage", "Line", "Metadata", "Plane", "Trace", "Value", "open_trace"]


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
