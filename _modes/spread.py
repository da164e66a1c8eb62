"""Which device of which host is slow, and on which lines."""

from __future__ import annotations

import os
from functools import lru_cache, partial

from _modes.captures import (
    RECORD_SUFFIXES,
    answer_of_records,
    find_captures,
    host_of_record,
    record_at,
)
from _modes.processes import SMALL_FILE, in_processes, in_turn
from _modes.record_format import NoAnswer
from _modes.stragglers import spread_of_records
from _pipeline.load import of_host
from _pipeline.request import DEVICE_NOT_FOUND, Absent
from _proto.trace import STDIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from _modes.record_format import Record
    from _pipeline.request import Request

    Json = dict[str, Any]
    # Told what is done, how many bytes of it, and of how many.
    OnRead = Callable[[str, int, int], None]


def spread(
    request: Request,
    notes: list[str],
    on_read: OnRead | None,
    *,
    steps: slice = slice(None),
    top: int = 50,
) -> Json:
    files = of_host(find_captures(request.profile, notes), request.host)

    def load_any(path: str) -> Record:
        try:
            return record_at(path, request.device, [], on_read)
        except Absent as absent:
            if request.device is None or absent.reason != DEVICE_NOT_FOUND:
                raise
        # Not that device; but the others tell that the host is there.
        return record_at(path, None, [], on_read)

    def load(path: str) -> Record:
        try:
            record = load_any(path)
            if record["host"] == STDIN and path.endswith(RECORD_SUFFIXES):
                # Made of a pipe it knows no name, and so would be any other's.
                record["host"] = host_of_record(path)
            return record
        except Absent as absent:
            name, detail = os.path.basename(path), absent.fields.get("detail", absent.reason)
            named = detail if detail.startswith(f"{name}: ") else f"{name}: {detail}"
            raise NoAnswer(absent.reason, **{**absent.fields, "detail": named}) from None

    # Of some the lines are asked for again: of a single one at once, and standard input is read
    # only once.
    load_again = lru_cache(maxsize=1)(load)
    loaders = {os.path.basename(path): partial(load_again, path) for path in files.values()}
    on_each = in_processes if sum(map(size_of, files.values())) > SMALL_FILE else in_turn
    told = partial(
        spread_of_records, loaders, device=request.device, steps=steps, top=top, on_each=on_each
    )
    return answer_of_records(request, told, notes)


def size_of(path: str) -> int:
    """Of what isn't there, or is standard input, nothing: it is read here."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
