"""Write the `--out` file completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from _pipeline.no_answer import NoAnswer


@contextmanager
def replacing(out: str) -> Iterator[str]:
    """Yield the path of a new empty file, which replaces `out` at the end of the block.

    The new file is in the same folder as `out`, and the umask determines its permissions. After an
    error, the new file is removed and `out` is unchanged.
    """
    target = os.path.realpath(out)
    half = os.path.join(os.path.dirname(target), f".{os.urandom(8).hex()}.part")
    try:
        if os.path.exists(target) and not os.path.isfile(target):
            raise cant_write(f"--out {out} is not a regular file; choose another name")
        with open(half, "xb"):
            pass
        yield half
        os.replace(half, target)
    except OSError as error:
        raise cant_write(f"{out}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            os.unlink(half)


def cant_write(detail: str) -> NoAnswer:
    return NoAnswer("cant_write", detail=detail)
