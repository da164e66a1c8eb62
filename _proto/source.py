"""A trace file as bytes by position: plain or gzipped, of any size, never read whole.

Reads go through `os.pread`. A memory map would count touched pages as memory, and a file that
shrinks under a map kills the process; a read past the end of a shrunken file only comes up short.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .errors import Damage
from .wire import FramingCheck

GZIP_MAGIC = b"\x1f\x8b"
GZIP_LIMIT = 16 << 30
_CHUNK = 1 << 20

OnRead = Callable[[int, int], None]


class Source:
    """An open file. `on_read` is told the position after every read (for a progress display)."""

    __slots__ = ("_fd", "_on_read", "size", "stored_size")

    def __init__(self, fd: int, stored_size: int, on_read: OnRead | None = None) -> None:
        self._fd = fd
        self._on_read = on_read
        self.size = os.fstat(fd).st_size
        # Of the file as it was given, gzipped or not.
        self.stored_size = stored_size

    def read(self, start: int, length: int) -> bytes:
        data = os.pread(self._fd, length, start)
        while len(data) < length:
            more = os.pread(self._fd, length - len(data), start + len(data))
            if not more:
                raise Damage(start + len(data), "the file ends here: it shrank while it was read")
            data += more
        if self._on_read is not None:
            self._on_read(start + length, self.size)
        return data


@contextmanager
def open_source(
    path: str,
    on_read: OnRead | None = None,
    gzip_limit: int = GZIP_LIMIT,
) -> Iterator[Source]:
    """Open `path`, gzipped or not; raise OSError or Damage where that can't be done."""
    # O_NONBLOCK: opening a FIFO that nobody writes to must not wait.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Damage(0, "not a regular file")
        stored_size = os.fstat(fd).st_size
        gzipped = os.pread(fd, len(GZIP_MAGIC), 0) == GZIP_MAGIC
        if path.endswith(".gz") and not gzipped:
            raise Damage(0, "not gzip data")
        if gzipped:
            inflated = _unpack(fd, gzip_limit, on_read)
            os.close(fd)
            fd = inflated
        yield Source(fd, stored_size, on_read)
    finally:
        os.close(fd)


def _unpack(fd: int, limit: int, on_read: OnRead | None) -> int:
    """Decompress into a temporary file without a name; return its descriptor.

    The top-level framing is checked on the way, so that data which can't be a trace (a bomb of
    zeros, say) stops at its first bad field and not at the limit.
    """
    import tempfile

    framing = FramingCheck()
    size = os.fstat(fd).st_size
    written = 0
    with tempfile.TemporaryFile() as plain:
        for chunk in _gunzip(fd):
            framing.feed(chunk)
            written += len(chunk)
            if written > limit:
                raise Damage(limit, f"gzip data expands past the limit of {limit} bytes")
            plain.write(chunk)
            if on_read is not None:
                on_read(os.lseek(fd, 0, os.SEEK_CUR), size)
        plain.flush()
        return os.dup(plain.fileno())


def _gunzip(fd: int) -> Iterator[bytes]:
    """Decompress all members of a gzip file, in chunks, up to the first byte that is damaged.

    (The module `gzip` would keep the last, incomplete chunk of a file that was cut off.)
    """
    import zlib

    done = 0
    packed = os.read(fd, _CHUNK)
    while packed:
        inflater = zlib.decompressobj(wbits=31)
        while not inflater.eof:
            try:
                chunk = inflater.decompress(packed, _CHUNK)
            except zlib.error as error:
                raise Damage(done, f"bad gzip data: {error}") from None
            done += len(chunk)
            yield chunk
            packed = inflater.unconsumed_tail
            if not packed and len(chunk) < _CHUNK and not inflater.eof:
                packed = os.read(fd, _CHUNK)
                if not packed:
                    raise Damage(done, "the gzip data is cut off")
        # Zeros may pad the end of a file, or of a tape's block.
        packed = inflater.unused_data.lstrip(b"\0")
        while not packed and (more := os.read(fd, _CHUNK)):
            packed = more.lstrip(b"\0")
