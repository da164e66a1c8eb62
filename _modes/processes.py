"""Work on several things at once, in processes of their own."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    K = TypeVar("K")
    T = TypeVar("T")


# Of a file; a smaller one isn't worth a process of its own.
SMALL_FILE = 1 << 22


def map_in_processes(work: Callable[[K], T], items: Sequence[K], file_size: int) -> list[T]:
    """Work on all items of a file, in two processes where that is worth it."""
    if file_size > SMALL_FILE and len(items) > 1 and n_cores() > 1:
        return in_two_processes(work, items)
    return list(map(work, items))


def in_two_processes(work: Callable[[K], T], items: Sequence[K]) -> list[T]:
    """Work on every other item in a process of its own.

    If that fails, for whatever reason, it is done again here, and fails as it would have.
    """
    import pickle

    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError:
        # There may be no more.
        os.close(reader)
        os.close(writer)
        return list(map(work, items))
    if not child:
        with suppress(BaseException), open(writer, "wb") as pipe:
            pickle.dump([work(item) for item in items[1::2]], pipe)
            pipe.flush()
            os._exit(0)
        os._exit(1)
    os.close(writer)
    with open(reader, "rb") as pipe:
        try:
            ours = [work(item) for item in items[::2]]
        except BaseException:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    theirs = [work(item) for item in items[1::2]] if status else pickle.loads(data)
    both = [*ours, *theirs]
    both[::2], both[1::2] = ours, theirs
    return both


def n_cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
