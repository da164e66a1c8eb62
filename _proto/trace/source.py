"""Read the bytes of a trace by position, for all forms of files: plain, gzipped and Riegeli.

A trace is one or more records; each record is a serialized XSpace. A plain or gzipped file is one
record. Gzip data, standard input and Riegeli files are unpacked into a temporary file.

Reads go through `os.pread`. A memory map would count touched pages as memory, and a file that
shrinks under a map kills the process.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import IO, TypeVar

from _proto.errors import Damage
from _proto.trace.riegeli import BLOCK, SIGNATURE, Record, Unpacked, unpack

GZIP_MAGIC = b"\x1f\x8b"
# Maximum number of bytes that are unpacked into a temporary file.
COPY_LIMIT = 16 << 30
_CHUNK = 1 << 20
_HEAD = 512
# Number of bytes of the signature that identify a Riegeli file; damage in later bytes is reported
# as damage.
_RIEGELI_HEAD = 8
# Possible first bytes: tags of the fields of XSpace, and the first byte of a Riegeli file.
_FIRST_BYTES = b"\x0a\x12\x1a\x22" + SIGNATURE[:1]

# Files that users give by mistake: patterns of the first bytes, and descriptions.
_OTHERS = (
    (
        rb"\s*\{\s*\"status\"",
        "a record, which compare and spread read from a file named .json or .json.gz",
    ),
    (
        rb"\s*[\[{]\s*[\[{\"\]}\d]",
        "JSON; instead of a .trace.json.gz, give the .xplane.pb in the same folder",
    ),
    (rb"\xfd7zXZ\0", "xz data; unpack the file first"),
    (rb"PK\x03\x04", "a zip archive; unpack the file first"),
    (rb"\x28\xb5\x2f\xfd", "zstd data; unpack the file first"),
    (rb"BZh\d1AY", "bzip2 data; unpack the file first"),
    (rb".{257}ustar", "a tar archive; unpack the file first"),
    (rb"version https://git-lfs", "a pointer of Git LFS; run git lfs pull first"),
    (rb"(?i)\s*<(?:!doctype|html|\?xml)", "HTML or XML"),
    # Text has no control character among the first bytes. A trace has one among the first five
    # bytes, except a trace with only the name of a host, which begins with a quotation mark.
    (rb"[\t\n\r !#-~][\t\n\r -~]{15}", "text"),
)

NOT_A_TRACE = "not a trace but "
MANGLED = (
    "mangled by a text conversion, which replaced bytes by U+FFFD and cannot be undone; copy the"
    " original file again in binary mode"
)

# A function that is called after every read with the activity, the number of bytes done, and the
# total.
OnRead = Callable[[str, int, int], None]
T = TypeVar("T")


def not_a_trace(head: bytes) -> str | None:
    """Return the kind of file that has these first bytes, or None if the file may be a trace."""
    for pattern, what in _OTHERS:
        if re.match(pattern, head, re.DOTALL):
            return NOT_A_TRACE + what
    return None


def is_mangled(chunks: Iterable[bytes]) -> bool:
    """Return whether a text conversion replaced all bytes that are not UTF-8 by U+FFFD.

    After such a conversion, the file is valid UTF-8 with U+FFFD in the first chunk, because the
    lengths of the first fields in a trace are not UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    found = False
    try:
        for chunk in chunks:
            found = "\ufffd" in decoder.decode(chunk) or found
            if not found:
                break
    except (UnicodeDecodeError, Damage):
        return False
    return found


class Source:
    """An open trace file."""

    def __init__(
        self,
        fd: int,
        stored_size: int,
        on_read: OnRead | None = None,
        riegeli: list[Record] | None = None,
        riegeli_size: int = 0,
    ) -> None:
        self._fd = fd
        self._on_read = on_read
        self._riegeli = riegeli
        self.size = os.fstat(fd).st_size
        # Size of the file as given by the user, before unpacking.
        self.stored_size = stored_size
        # Size of a Riegeli file before unpacking of the records; 0 for other files.
        self.riegeli_size = riegeli_size
        # The damage that stopped unpacking or copying early.
        self.damage: Damage | None = None
        self._done = 0
        self._left = 0
        self._shown = 0.0

    @property
    def unpacked_size(self) -> int:
        """Return the size in bytes: for gzip data after unpacking, for a Riegeli file before
        unpacking."""
        return self.riegeli_size or self.size

    @property
    def is_riegeli(self) -> bool:
        return self._riegeli is not None

    @property
    def records(self) -> list[tuple[int, int]]:
        """Return start and end of each XSpace."""
        if self._riegeli is None:
            return [(0, self.size)]
        return [(record.start, record.end) for record in self._riegeli]

    @property
    def notes(self) -> list[str]:
        """Return a note if a Riegeli file lacks the padding at the end."""
        if self.riegeli_size % BLOCK == 0:
            return []
        return [
            f"the file has {self.riegeli_size} bytes, not a multiple of {BLOCK}: the file may be"
            " incomplete, without the last records"
        ]

    def in_file(self, damage: Damage) -> Damage:
        """Return damage in a record with the offset of the record's chunk in the Riegeli file."""
        for record in self._riegeli or ():
            if record.start <= damage.offset < record.end:
                return Damage(record.chunk, damage.what)
        return damage

    def read(self, start: int, length: int) -> bytes:
        data = b""
        try:
            data = os.pread(self._fd, length, start)
            while len(data) < length:
                more = os.pread(self._fd, length - len(data), start + len(data))
                if not more:
                    at = start + len(data)
                    raise Damage(at, "the file ends here: it shrank while it was read")
                data += more
        except OSError as error:
            raise Damage(start + len(data), os.strerror(error.errno or 0)) from None
        if self._on_read is not None:
            self._show_progress(self._on_read, length)
        return data

    def expect(self, n_bytes: int) -> None:
        """Add a number of bytes to the bytes that are still to be read, for showing progress."""
        self._left = max(0, self._left + n_bytes)

    def _show_progress(self, on_read: OnRead, length: int) -> None:
        expected = min(length, self._left)
        self._left -= expected
        self._done += expected
        share = self._done / (self._done + self._left or 1)
        # If more bytes become expected, the share falls. Show no progress until the share reaches
        # the last shown value.
        if share >= self._shown:
            self._shown = share
            on_read("reading", self._done, self._done + self._left or self.size)

    def not_a_trace(self) -> str | None:
        """Return the kind of the file, or None if the file may be a trace."""
        try:
            return not_a_trace(self.read(0, min(_HEAD, self.size)))
        except Damage:
            return None

    def explained(self, damage: Damage) -> Damage:
        """Return the damage, with an explanation if a text conversion mangled the whole file."""
        starts = range(0, self.size, _CHUNK)
        chunks = (self.read(at, min(_CHUNK, self.size - at)) for at in starts)
        if damage.what.startswith(NOT_A_TRACE) or not is_mangled(chunks):
            return damage
        return Damage(damage.offset, MANGLED)


@contextmanager
def open_source(
    path: str | None, on_read: OnRead | None = None, limit: int = COPY_LIMIT
) -> Iterator[Source]:
    """Open a file, or standard input if `path` is None.

    Raise OSError or Damage if the file cannot be opened. At most `limit` bytes are unpacked.
    """
    fd = _open(path)
    try:
        size = os.fstat(fd).st_size
        is_gzipped = False
        damage = None
        head = b""
        if path is not None:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Damage(0, "not a regular file; pipe the content in and give - as PROFILE")
            head = os.pread(fd, _HEAD, 0)
            is_gzipped = head.startswith(GZIP_MAGIC)
            if path.endswith(".gz") and not is_gzipped:
                mangled = is_mangled(_Stream(fd, size, None))
                raise Damage(
                    0,
                    not_a_trace(head)
                    or (
                        MANGLED
                        if mangled
                        else "not gzip data, although the name ends in .gz; rename the file"
                    ),
                )
        if path is None or is_gzipped:
            stream = _Stream(fd, size if is_gzipped else 0, on_read)
            copy, damage = _in_new_file(lambda file: _copy(_gunzipped(stream), file, limit))
            os.close(fd)
            fd, size = copy, stream.n_read
            head = os.pread(fd, _HEAD, 0)
        records, riegeli_size = None, 0
        if head.startswith(SIGNATURE[:_RIEGELI_HEAD]):
            riegeli_size = os.fstat(fd).st_size
            packed = fd
            copy, unpacked = _in_new_file(lambda file: _unpack_records(packed, file, on_read))
            os.close(fd)
            fd, records = copy, unpacked.records
            # If the gzip data is cut off, the last chunk is cut off, too. Report the damage of the
            # gzip data, which says more.
            damage = damage or unpacked.damage
        source = Source(fd, size, on_read, records, riegeli_size)
        source.damage = damage
        yield source
    finally:
        os.close(fd)


def _open(path: str | None) -> int:
    if path is None:
        if sys.stdin is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if sys.stdin.isatty():
            raise Damage(0, "standard input is a terminal; pipe a trace in")
        return os.dup(sys.stdin.fileno())
    # O_NONBLOCK prevents waiting in `open` for a writer if the path is a FIFO.
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


class _Stream:
    """Iterates over a file from the current position to the end."""

    def __init__(self, fd: int, size: int, on_read: OnRead | None) -> None:
        self._fd = fd
        self._size = size
        self._on_read = on_read
        self.n_read = 0

    def __iter__(self) -> Iterator[bytes]:
        while data := self._read():
            self.n_read += len(data)
            if self._on_read is not None:
                self._on_read("unpacking", self.n_read, self._size)
            yield data

    def _read(self) -> bytes:
        while True:
            try:
                return os.read(self._fd, _CHUNK)
            except BlockingIOError:
                # Another process made this pipe non-blocking.
                import select

                select.select([self._fd], [], [])


def _in_new_file(write: Callable[[IO[bytes]], T]) -> tuple[int, T]:
    """Call `write` with an unnamed temporary file; return the file's descriptor and the result of
    `write`."""
    import tempfile

    try:
        with tempfile.TemporaryFile() as file:
            result = write(file)
            file.flush()
            return os.dup(file.fileno()), result
    except OSError as error:
        why = error.strerror or error
        raise Damage(0, f"the data cannot be copied to a temporary file: {why}") from None


def _copy(chunks: Iterable[bytes], file: IO[bytes], limit: int) -> Damage | None:
    """Write chunks to a file; return the damage that stopped writing early, or None."""
    written = 0
    head = b""
    try:
        for chunk in chunks:
            if chunk and not head:
                head = chunk
                # Without this check, an endless stream of other data would fill the disk.
                if head[0] not in _FIRST_BYTES:
                    raise Damage(0, f"a trace cannot begin with the byte 0x{head[0]:02x}")
            written += len(chunk)
            if written > limit:
                raise Damage(limit, f"the data exceeds the limit of {limit} bytes")
            file.write(chunk)
    except Damage as error:
        what = not_a_trace(head) or (MANGLED if is_mangled([head]) else error.what)
        return Damage(error.offset, what)
    return None


def _unpack_records(fd: int, file: IO[bytes], on_read: OnRead | None) -> Unpacked:
    """Write the records of a Riegeli file to another file."""
    size = os.fstat(fd).st_size
    packed = Source(fd, size)

    def read(start: int, length: int) -> bytes:
        if on_read is not None:
            on_read("unpacking", start, size)
        return packed.read(start, length)

    return unpack(read, size, file.write)


def _gunzipped(stream: Iterable[bytes]) -> Iterator[bytes]:
    """Decompress a stream of gzip data; return any other stream unchanged."""
    chunks = iter(stream)
    head = b""
    while len(head) < len(GZIP_MAGIC) and (more := next(chunks, b"")):
        head += more
    chunks = chain([head] if head else [], chunks)
    return _gunzip(chunks) if head.startswith(GZIP_MAGIC) else chunks


def _gunzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress all members of a gzip file, up to the first damaged byte.

    The module `gzip` would not return the last, incomplete chunk of a file that was cut off.
    """
    import zlib

    done = 0
    packed = next(chunks, b"")
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
                packed = next(chunks, b"")
                if not packed:
                    raise Damage(done, "the gzip data is cut off")
        # Zeros may pad the end of a gzip file.
        packed = inflater.unused_data.lstrip(b"\0")
        while not packed and (more := next(chunks, b"")):
            packed = more.lstrip(b"\0")
