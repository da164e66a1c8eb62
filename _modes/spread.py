"""Which device of which host is slow, and on which lines."""

from __future__ import annotations

import os
from functools import lru_cache, partial

from _analysis.captures import (
    RECORD_SUFFIXES,
    answer_of_records,
    find_captures,
    host_of_record,
    record_at,
    records_at,
)
from _analysis.processes import SMALL_FILE, in_processes, in_turn
from _analysis.stragglers import spread_of_records
from _pipeline.load import Place, of_host
from _pipeline.no_answer import NoAnswer
from _proto.trace import STDIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from _analysis.record_format import Record
    from _pipeline.context import Context

    Json = dict[str, Any]


def spread(
    context: Context,
    *,
    steps: slice = slice(None),
    top: int = 50,
) -> Json:
    request = context.request
    places = of_host(find_captures(request.profile, context), request.host)

    def load_all(place: Place) -> list[Record | NoAnswer]:
        if place.host is None:
            return records_at(place.path, request.device, context)
        return [record_at(place, request.device, context.with_own_notes())]

    def refused(place: Place, absent: NoAnswer) -> NoAnswer:
        name = os.path.basename(place.path)
        detail = absent.fields.get("detail", absent.reason)
        named = detail if detail.startswith(f"{name}: ") else f"{name}: {detail}"
        return NoAnswer(absent.reason, **{**absent.fields, "detail": named})

    def load(place: Place) -> Sequence[Record | NoAnswer]:
        try:
            found = load_all(place)
        except NoAnswer as absent:
            raise refused(place, absent) from None
        records = [refused(place, each) if isinstance(each, NoAnswer) else each for each in found]
        first = records[0]
        is_record = place.path.endswith(RECORD_SUFFIXES)
        if is_record and not isinstance(first, NoAnswer) and first["host"] == STDIN:
            # Made of a pipe it knows no name, and so would be any other's.
            first["host"] = host_of_record(place.path)
        return records

    # Of some the lines are asked for again: of a single one at once, and standard input is read
    # only once.
    load_again = lru_cache(maxsize=1)(load)
    loaders = {os.path.basename(place.path): partial(load_again, place) for place in places}
    n_bytes = sum(size_of(place.path) for place in places)
    on_each = in_processes if n_bytes > SMALL_FILE else in_turn
    fields = spread_of_records(
        loaders, device=request.device, steps=steps, top=top, on_each=on_each
    )
    return answer_of_records(context, fields)


def size_of(path: str) -> int:
    """Of what isn't there, or is standard input, nothing: it is read here."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
