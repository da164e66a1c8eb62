"""Print all steps of all devices as one small JSON object for `compare` and `spread`.

question: all steps of all devices as one small JSON object, for compare and spread
reads: all devices
options: --steps
example: --steps 1:
"""

from __future__ import annotations

from typing import Any

from _breakdown.analysis.records.record_rows import record_of_trace
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.load import Candidates, find_files

Json = dict[str, Any]


def record(context: Context, *, steps: slice = slice(None)) -> Json:
    request = context.request
    candidates = Candidates(find_files(request.profile, context), request.host, context)
    for place in candidates.places:
        with candidates.attempt(place):
            return record_of_trace(place, request.device, steps, context, has_causes=True)
    raise candidates.no_answer()
