"""What is written to the streams that the command was given."""

from __future__ import annotations

import errno
import math
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


class Progress:
    """One line on a terminal that erases itself, for runs that take longer than a second."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._process = os.getpid()
        self._due = time.monotonic() + 1
        self._shown = False

    def __call__(self, doing: str, done: int, whole: int) -> None:
        """So many bytes are done; how many there are is 0 where nobody knows."""
        now = time.monotonic()
        # Of two processes at work one tells.
        if now >= self._due and os.getpid() == self._process:
            self._due = now + 0.1
            self._shown = True
            how_far = f"{100 * done // whole} %" if whole else f"{done >> 20} MiB"
            self._show(f"{doing}: {how_far}")

    def erase(self) -> None:
        if self._shown:
            self._show("")

    def _show(self, line: str) -> None:
        try:
            write(self._stream, f"\r\x1b[K{line}")
        except OSError:
            # The terminal went away: no reason to stop.
            self._due = math.inf


def write(stream: TextIO | None, text: str) -> None:
    """Write all of it, and past the stream.

    What a stream couldn't write it keeps, tries again when the process ends, and makes that fail
    which had ended otherwise. Unbuffered, it may write a part and say nothing.
    """
    if stream is None:
        # It was closed from the start. By now its number may be that of another file.
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    fd = stream.fileno()
    left = memoryview(text.encode(stream.encoding, "backslashreplace"))
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            import select

            select.select([], [fd], [])
