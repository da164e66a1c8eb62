"""Write the `--out` file completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from _breakdown.pipeline.no_answer import NoAnswer

# Bytes at the beginning of a file that tell what it is.
_LOOKED_AT = 1024


@contextmanager
def replacing(out: str, what: str, is_ours: Callable[[bytes], bool]) -> Iterator[str]:
    """Yield the path of a new empty file, which replaces `out` at the end of the block.

    `is_ours` returns whether a file that begins with these bytes is `what`; other files than these
    and empty files are not replaced. The new file is in the same folder as `out`, and the umask
    determines its permissions. After an error, the new file is removed and `out` is unchanged.
    """
    target = os.path.realpath(out)
    half = os.path.join(os.path.dirname(target), f".{os.urandom(8).hex()}.part")
    try:
        if os.path.exists(target):
            if not os.path.isfile(target):
                raise cant_write(f"--out {out} is not a regular file; choose another name")
            with open(target, "rb") as file:
                begin = file.read(_LOOKED_AT)
            if begin and not is_ours(begin):
                raise cant_write(f"--out {out} exists and is not {what}; choose another name")
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
