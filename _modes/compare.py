"""What a change did: two captures line by line, and what of it is more than noise."""

from __future__ import annotations

from _analysis.captures import answer_of_records, find_captures, record_at
from _analysis.comparison import compare_records
from _pipeline.context import DEVICE
from _pipeline.load import Candidates
from _pipeline.no_answer import NoAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from _analysis.record_format import Record
    from _pipeline.context import Context

    Json = dict[str, Any]


def compare(
    context: Context,
    *,
    baseline: str,
    baseline_device: str = DEVICE,
    baseline_host: str | None = None,
    steps: slice = slice(None),
    top: int = 50,
) -> Json:
    request = context.request
    device = request.device or DEVICE
    after = read_record(request.profile, request.host, device, context)
    of_baseline = context.with_own_notes()
    try:
        before = read_record(baseline, baseline_host, baseline_device, of_baseline)
    except NoAnswer as failure:
        failure.fields["side"] = "baseline"
        raise
    finally:
        context.notes += [f"baseline: {note}" for note in of_baseline.notes]
    devices = {"before_device": baseline_device, "after_device": device}
    fields = compare_records(before, after, **devices, steps=steps, top=top)
    return answer_of_records(context, fields, baseline_dir=baseline)


def read_record(profile: str, host: str | None, device: str, context: Context) -> Record:
    """Return the record of the first file that can be read and has the device."""
    candidates = Candidates(find_captures(profile, context), host, context)
    for place in candidates.places:
        with candidates.attempt(place):
            return record_at(place, device, context)
    raise candidates.no_answer()
