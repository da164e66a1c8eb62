"""Write to the streams of the process, and show progress on a terminal."""

from __future__ import annotations

import errno
import math
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


class Progress:
    """Shows progress in a line on the terminal if a run takes longer than a second, and erases the
    line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._process = os.getpid()
        self._due = time.monotonic() + 1
        self._shown = False

    def __call__(self, activity: str, done: int, total: int) -> None:
        """Show how many of all bytes are done; `total` is 0 if unknown."""
        now = time.monotonic()
        # Forked processes inherit this object; only the first process may write.
        if now >= self._due and os.getpid() == self._process:
            self._due = now + 0.1
            self._shown = True
            progress = f"{100 * done // total} %" if total else f"{done >> 20} MiB"
            self._show(f"{activity}: {progress}")

    def erase(self) -> None:
        if self._shown:
            self._show("")

    def _show(self, line: str) -> None:
        try:
            write(self._stream, f"\r\x1b[K{line}")
        except OSError:
            # The terminal is gone, but the run can go on.
            self._due = math.inf


def write(stream: TextIO | None, text: str) -> None:
    """Write a whole text to the file descriptor of a stream.

    Don't use the stream itself: a buffered stream keeps unwritten text, tries again at exit, and
    then changes the exit status. An unbuffered stream may write only a part of a text, without an
    error.
    """
    if stream is None:
        # The stream was closed when the process started, so the stream's descriptor may belong to
        # another file by now.
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    fd = stream.fileno()
    remaining = memoryview(text.encode(stream.encoding, "backslashreplace"))
    while remaining:
        try:
            remaining = remaining[os.write(fd, remaining) :]
        except BlockingIOError:
            # Another process has made this pipe non-blocking.
            import select

            select.select([], [fd], [])
