"""Read a trace's bytes by position, from plain, gzipped and Riegeli files.

A trace consists of one or more records, each of which is a serialized XSpace. A plain or gzipped
file contains one record. Gzip data, standard input and Riegeli files are unpacked into a temporary
file, or in memory if they are small or if a Python program passes them as bytes.

Files are read with `os.pread`. With a memory map, touched pages would count as used memory, and the
process would be killed if the file shrank.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import IO, Protocol, TypeVar

from _proto.errors import Damage
from _proto.trace.riegeli import BLOCK, SIGNATURE, RiegeliRecord, Unpacked, unpack

GZIP_MAGIC = b"\x1f\x8b"
# Maximum number of bytes that are unpacked into a temporary file.
COPY_LIMIT = 16 << 30
# Maximum number of unpacked bytes that are held in memory instead. On small traces, to import
# `tempfile` and to copy would take 4 % of the time of mode `summary`.
_HELD_LIMIT = 4 << 20
_CHUNK = 1 << 20
_HEAD = 512
# Number of signature bytes that identify a Riegeli file; wrong bytes after them are reported as
# damage.
_RIEGELI_HEAD = 8
# Possible first bytes of a trace: tags of the fields of XSpace, and the first byte of a Riegeli
# file.
_FIRST_BYTES = b"\x0a\x12\x1a\x22" + SIGNATURE[:1]

# Files that users pass by mistake: patterns of their first bytes, and descriptions.
_OTHERS = (
    (
        rb"\s*\{\s*\"status\"",
        "not a trace but a record; pass it to --mode compare or spread, in a file named .json or"
        " .json.gz",
    ),
    (
        rb"\s*[\[{]\s*[\[{\"\]}\d]",
        "not a trace but JSON; instead of a .trace.json.gz, pass the .xplane.pb in the same folder",
    ),
    (rb"version https://git-lfs", "not a trace but a Git LFS pointer; run git lfs pull first"),
    (rb"(?i)\s*<(?:!doctype|html|\?xml)", "not a trace but HTML or XML; pass an .xplane.pb file"),
)
# Matches text, as opposed to other bytes.
_TEXT_RE = re.compile(r"[^\x00-\x08\x0e-\x1f\x7f]*")
_MANGLED = (
    "mangled by a text conversion, which replaced bytes with U+FFFD and cannot be undone;"
    " copy the original file again in binary mode"
)

# A function that is called after every read with the activity, the number of bytes done, and the
# total number of bytes (0 if unknown).
OnRead = Callable[[str, int, int], None]
T = TypeVar("T")


def not_a_trace(head: bytes) -> str | None:
    """Return why a file that begins with the given bytes is no trace, or None if it may be one."""
    for pattern, what in _OTHERS:
        if re.match(pattern, head):
            return what
    # The lengths of the first fields in a trace are not valid UTF-8, so a text conversion replaces
    # some of the first bytes with U+FFFD.
    try:
        decoded = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return None
    if "\ufffd" in decoded:
        return _MANGLED
    is_text = head[:1] not in _FIRST_BYTES and _TEXT_RE.fullmatch(decoded)
    return "not a trace but text; pass an .xplane.pb file" if is_text else None


class Content(Protocol):
    """Bytes that can be read by position."""

    @property
    def size(self) -> int: ...
    def read(self, start: int, length: int) -> bytes: ...
    def close(self) -> None: ...


class FileContent:
    """The bytes of a file."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read(self, start: int, length: int) -> bytes:
        return os.pread(self.fd, length, start)

    def close(self) -> None:
        os.close(self.fd)


class MemoryContent:
    """Bytes in memory."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self.size = len(data)

    def read(self, start: int, length: int) -> bytes:
        return bytes(self._data[start : start + length])

    def close(self) -> None:
        """Do nothing, because the bytes belong to the caller."""


class Source:
    """An open trace."""

    def __init__(
        self,
        content: Content,
        on_read: OnRead | None = None,
        riegeli: list[RiegeliRecord] | None = None,
        riegeli_size: int = 0,
    ) -> None:
        self._content = content
        self._on_read = on_read
        self._riegeli = riegeli
        self.size = content.size
        # Size of a Riegeli file before its records are unpacked; 0 for other files.
        self.riegeli_size = riegeli_size
        # The damage that stopped unpacking or copying early, or None.
        self.damage: Damage | None = None
        self._done = 0
        self._left = 0
        self._shown = 0.0

    @property
    def unpacked_size(self) -> int:
        """Return the size in bytes, after unpacking gzip data but before unpacking Riegeli
        records."""
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
        """Return a note if a Riegeli file lacks the padding at its end."""
        if self.riegeli_size % BLOCK == 0:
            return []
        return [
            f"the file has {self.riegeli_size} bytes, which is not a multiple of {BLOCK}, so"
            " it may lack its last records"
        ]

    def in_file(self, damage: Damage) -> Damage:
        """Convert damage in a record to damage at the record's chunk in the Riegeli file."""
        for record in self._riegeli or ():
            if record.start <= damage.offset < record.end:
                return Damage(record.chunk, damage.what)
        return damage

    def read(self, start: int, length: int) -> bytes:
        data = b""
        try:
            data = self._content.read(start, length)
            while len(data) < length:
                more = self._content.read(start + len(data), length - len(data))
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
        """Adjust the number of bytes that are still to be read, to show the correct progress."""
        self._left = max(0, self._left + n_bytes)

    def _show_progress(self, on_read: OnRead, length: int) -> None:
        expected = min(length, self._left)
        self._left -= expected
        self._done += expected
        share = self._done / (self._done + self._left or 1)
        # If `expect` adds bytes, the share falls. Then show no progress until the share exceeds the
        # last shown value.
        if share > self._shown:
            self._shown = share
            on_read("reading", self._done, self._done + self._left or self.size)

    def not_a_trace(self) -> str | None:
        """Return why the file is no trace, or None if it may be one."""
        try:
            return not_a_trace(self.read(0, min(_HEAD, self.size)))
        except Damage:
            return None

    def explained(self, damage: Damage) -> Damage:
        """Return the damage, with the reason if the file is no trace."""
        return Damage(damage.offset, self.not_a_trace() or damage.what)


@contextmanager
def open_source(
    path: str | None,
    on_read: OnRead | None = None,
    limit: int = COPY_LIMIT,
    data: bytes | None = None,
) -> Iterator[Source]:
    """Open the bytes in `data` if given, else the file at `path`, or standard input if `path` is
    None.

    Raise OSError or Damage if the file cannot be opened. At most `limit` bytes are unpacked.
    """
    content: Content = FileContent(_open(path)) if data is None else MemoryContent(data)
    try:
        damage = None
        is_stream = data is None and path is None
        if isinstance(content, FileContent) and path is not None:
            _check_file(content, path)
        if is_stream or content.read(0, _HEAD).startswith(GZIP_MAGIC):
            packed = content
            chunks = _chunks_of(packed, 0 if is_stream else packed.size, on_read)
            content, damage = _unpacked(
                lambda file: _copy(_gunzipped(chunks), file, limit), in_memory=data is not None
            )
            packed.close()
        records, riegeli_size = None, 0
        if content.read(0, _HEAD).startswith(SIGNATURE[:_RIEGELI_HEAD]):
            riegeli_size = content.size
            riegeli = content
            content, unpacked = _unpacked(
                lambda file: _unpack_records(riegeli, file, on_read), in_memory=data is not None
            )
            riegeli.close()
            records = unpacked.records
            # If the gzip data is cut off, the last chunk is cut off, too. Report the damage in the
            # gzip data, because it is the cause.
            damage = damage or unpacked.damage
        source = Source(content, on_read, records, riegeli_size)
        source.damage = damage
        yield source
    finally:
        content.close()


def _open(path: str | None) -> int:
    if path is None:
        if sys.stdin is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if sys.stdin.isatty():
            raise Damage(0, "standard input is a terminal; pipe a trace in")
        return os.dup(sys.stdin.fileno())
    # With O_NONBLOCK, `open` does not wait for a writer if the path is a FIFO.
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _check_file(file: FileContent, path: str) -> None:
    """Raise Damage if a file cannot be a trace because of its kind or its name."""
    if not stat.S_ISREG(os.fstat(file.fd).st_mode):
        raise Damage(0, "not a regular file; pipe its content in and pass - as PROFILE")
    head = file.read(0, _HEAD)
    if path.endswith(".gz") and head and not head.startswith(GZIP_MAGIC):
        otherwise = "not gzip data, although the name ends in .gz; rename the file"
        raise Damage(0, not_a_trace(head) or otherwise)


def _chunks_of(content: Content, size: int, on_read: OnRead | None) -> Iterator[bytes]:
    """Yield the content from the current position to the end; `size` is 0 if unknown."""
    n_read = 0
    while data := _read_chunk(content, n_read):
        n_read += len(data)
        if on_read is not None:
            on_read("unpacking", n_read, size)
        yield data


def _read_chunk(content: Content, start: int) -> bytes:
    if not isinstance(content, FileContent):
        return content.read(start, _CHUNK)
    # Standard input may be a pipe, which cannot be read by position.
    while True:
        try:
            return os.read(content.fd, _CHUNK)
        except BlockingIOError:
            # Another process made this pipe non-blocking.
            import select

            select.select([content.fd], [], [])


class _Spool:
    """Collect bytes in memory, and in an unnamed temporary file once they exceed a limit."""

    def __init__(self, limit: int) -> None:
        self.file: IO[bytes] = io.BytesIO()
        self._left = limit

    def write(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0 and isinstance(self.file, io.BytesIO):
            import tempfile

            held = self.file
            self.file = tempfile.TemporaryFile()  # noqa: SIM115
            self.file.write(held.getbuffer())
        self.file.write(data)

    def content(self) -> Content:
        if isinstance(self.file, io.BytesIO):
            # A view of the buffer would make Python 3.13 complain when it is collected.
            return MemoryContent(self.file.getvalue())
        with self.file:
            self.file.flush()
            return FileContent(os.dup(self.file.fileno()))


def _unpacked(write: Callable[[_Spool], T], *, in_memory: bool) -> tuple[Content, T]:
    """Call `write` with a place for the unpacked bytes; return these and the result of `write`."""
    spool = _Spool(COPY_LIMIT if in_memory else _HELD_LIMIT)
    try:
        result = write(spool)
        return spool.content(), result
    except OSError as error:
        why = error.strerror or error
        raise Damage(0, f"the data cannot be copied to a temporary file: {why}") from None


def _copy(chunks: Iterable[bytes], file: _Spool, limit: int) -> Damage | None:
    """Write chunks to a file. If damaged input ends them early, return the damage, otherwise
    None."""
    written = 0
    head = b""
    try:
        for chunk in chunks:
            if chunk and not head:
                head = chunk
                # Check the first byte before copying, because an endless stream of other data would
                # fill the disk.
                if head[0] not in _FIRST_BYTES:
                    raise Damage(
                        0, f"not a trace: a trace cannot begin with the byte 0x{head[0]:02x}"
                    )
            written += len(chunk)
            if written > limit:
                raise Damage(limit, f"the data exceeds the limit of {limit} bytes")
            file.write(chunk)
    except Damage as error:
        return Damage(error.offset, not_a_trace(head) or error.what)
    return None


def _unpack_records(content: Content, file: _Spool, on_read: OnRead | None) -> Unpacked:
    """Write the records of a Riegeli file to another file."""
    size = content.size
    packed = Source(content)

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

    The module `gzip` would not return the last, incomplete chunk of a truncated file.
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
        # A gzip file may be padded with zeros at its end.
        packed = inflater.unused_data.lstrip(b"\0")
        while not packed and (more := next(chunks, b"")):
            packed = more.lstrip(b"\0")
