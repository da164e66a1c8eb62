"""Process items in parallel, in several processes.

Callers of the Python API must request several processes explicitly, because a fork can deadlock a
program that has threads.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from _breakdown.pipeline.context import Context

K = TypeVar("K")
T = TypeVar("T")

# TPU hosts have about a hundred cores, but other programs may need them.
MOST_PROCESSES = 8
# Files of up to this many bytes are too small to be worth several processes.
SMALL_FILE = 1 << 22


class Child:
    """A child process that handles a share of the items and sends back the results."""

    def __init__(self, work: Callable[[K], object], share: Sequence[K]) -> None:
        reader, writer = os.pipe()
        try:
            self.pid = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            raise
        if not self.pid:
            run_as_child(work, share, writer)
        os.close(writer)
        self._pipe = os.fdopen(reader, "rb")
        self._is_over = False

    def take(self) -> list[Any] | None:
        """Return the results of the process, or None if the process failed for any reason."""
        import pickle

        data = self._pipe.read()
        found: list[Any] | None = None if self._end() else pickle.loads(data)
        return found

    def kill(self) -> None:
        if not self._is_over:
            os.kill(self.pid, signal.SIGKILL)
            self._end()

    def _end(self) -> int:
        self._pipe.close()
        _, status = os.waitpid(self.pid, 0)
        self._is_over = True
        return status


def run_as_child(work: Callable[[K], object], share: Sequence[K], writer: int) -> None:
    global is_child  # noqa: PLW0603
    is_child = True
    with suppress(BaseException), open(writer, "wb") as pipe:
        import pickle

        pickle.dump([work(item) for item in share], pipe)
        pipe.flush()
        os._exit(0)
    os._exit(1)


# True in a child process, which must not start further processes.
is_child = False


def work_on(
    work: Callable[[K], T], items: Sequence[K], activity: str, context: Context, n_bytes: int
) -> list[T]:
    """Process items. Use several processes if the items' files are large (`n_bytes` in total).
    Progress messages describe the work as `activity`."""

    def work_at(i: int) -> T:
        # Every process works on every nth item, so the index is close to the number of finished
        # items.
        return context.doing(activity, i, len(items), lambda: work(items[i]))

    if n_bytes <= SMALL_FILE:
        return in_turn(work_at, range(len(items)))
    return in_processes(work_at, range(len(items)), context.request.processes)


def in_processes(work: Callable[[K], T], items: Sequence[K], most: int | None = None) -> list[T]:
    """Process items in parallel in several processes, including the current process.

    `most` limits the number of processes; if it is None, the limit is the number of cores or
    `MOST_PROCESSES`, whichever is lower. If a child fails, the current process repeats its share,
    so that errors are raised in the current process.
    """
    most = min(n_cores(), MOST_PROCESSES) if most is None else most
    n = 1 if is_child else max(1, min(most, len(items)))
    shares = [items[i::n] for i in range(n)]
    children: list[Child] = []
    try:
        # If the system rejects further processes, the current process handles their shares.
        with suppress(OSError):
            for share in shares[1:]:
                children.append(Child(work, share))
        done = [[work(item) for item in shares[0]]]
        for i, share in enumerate(shares[1:]):
            found = children[i].take() if i < len(children) else None
            done.append([work(item) for item in share] if found is None else found)
    finally:
        for child in children:
            child.kill()
    return [done[i % n][i // n] for i in range(len(items))]


def in_turn(work: Callable[[K], T], items: Sequence[K]) -> list[T]:
    """Process all items in the current process."""
    return [work(item) for item in items]


def n_cores() -> int:
    """Return the number of cores that the current process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
