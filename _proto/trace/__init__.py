"""Open traces, which consist of planes, lines and events. Protobuf is imported only when a trace is
opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from _proto.errors import Damage, NoProtobuf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _proto.trace.source import Source
    from _proto.trace.trace import Contents, Trace

    OnRead = Callable[[str, int, int], None]

# The path that refers to standard input.
STDIN = "-"


@contextmanager
def open_trace(
    path: str, on_read: OnRead | None = None, data: bytes | None = None
) -> Iterator[list[Trace]]:
    """Open a trace file of any format, and yield a list with one Trace for each host in the file.

    The trace is read from `data` if given, else from the file at `path`.

    `on_read` is called after every read with the activity, the number of bytes done, and the total
    number of bytes (0 if unknown). Opening and reading raise Damage for unreadable bytes, and
    OSError for a file that cannot be opened.
    """
    with open_contents(path, on_read, data) as contents:
        traces = contents.traces()
        try:
            yield traces
        except Damage as damage:
            raise contents.source.in_file(damage) from None


@contextmanager
def open_contents(
    path: str, on_read: OnRead | None = None, data: bytes | None = None
) -> Iterator[Contents]:
    """Open a trace like `open_trace`, and yield its planes up to the first damage."""
    with _open_source(path, on_read, data) as source:
        from _proto.trace.trace import Contents

        yield Contents(source)


@contextmanager
def _open_source(path: str, on_read: OnRead | None, data: bytes | None) -> Iterator[Source]:
    try:
        # A broken or old package may lack only some of the modules, so import all of them.
        from google.protobuf import unknown_fields  # noqa: F401

        from _proto import columns_pb2, xplane_pb2  # noqa: F401
    except Exception as error:
        raise NoProtobuf(f"{type(error).__name__}: {error}") from error
    from _proto.trace.source import open_source

    with open_source(None if path == STDIN else path, on_read, data=data) as source:
        try:
            yield source
        except Damage as damage:
            raise source.explained(damage) from None
