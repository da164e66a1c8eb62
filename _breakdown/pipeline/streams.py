"""Write to stdout and stderr, and show progress on a terminal."""

from __future__ import annotations

import errno
import math
import os
import time

from _breakdown.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO


class Progress:
    """Shows progress on one line of the terminal if a run takes longer than a second; `erase`
    removes the line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._process = os.getpid()
        self._due = time.monotonic() + 1
        self._shown = False
        # The works that consist of parts, the innermost last: the activity, the part that is being
        # done, and the number of parts.
        self._works: list[tuple[str, int, int]] = []
        self._furthest, self._last = 0.0, ""

    def __call__(self, activity: str, done: int, total: int) -> None:
        """Show how much is done. If `total` is 0 (unknown), `done` must be in bytes."""
        share = done / total if total else 0.0
        for outer, i, n in reversed(self._works):
            activity, share = outer, (i + share) / n
        if self._works:
            # A file is read in several passes, each of which begins with 0 %.
            self._furthest = share = max(share, self._furthest)
        now = time.monotonic()
        # Forked processes inherit this object, but only the original process may write.
        if now >= self._due and os.getpid() == self._process:
            self._due = now + 0.1
            self._shown = True
            is_known = total or self._works
            self._show(
                f"{activity}: {f'{int(100 * share)} %' if is_known else f'{done >> 20} MiB'}"
            )

    def begin(self, activity: str, i: int, n: int) -> bool:
        """Count what is done until `end` as part `i` of a work with `n` parts; return False if the
        work has begun already. A work that does a part again never falls back."""
        if self._works and self._works[0][0] == activity:
            return False
        if not self._works and activity != self._last:
            self._furthest, self._last = 0.0, activity
        self._works.append((activity, i, n))
        self(activity, 0, 1)
        return True

    def end(self) -> None:
        self._works.pop()

    def erase(self) -> None:
        if self._shown:
            self._show("")

    def _show(self, line: str) -> None:
        try:
            write(self._stream, f"\r\x1b[K{line}")
        except OSError:
            # The terminal is gone, but the run can continue.
            self._due = math.inf


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def write(stream: TextIO | None, text: str) -> None:
    """Write all of a text to a stream's file descriptor.

    Do not use the stream itself: after an error, a buffered stream would try to write the text
    again at exit, and change the exit status. An unbuffered stream may write only part of a text
    without an error.
    """
    if stream is None:
        # The stream was closed when the process started, so its descriptor may belong to another
        # file by now.
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
