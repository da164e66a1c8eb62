"""Gives ops the facts that a trace keeps on their executions instead of on their metadata."""

from __future__ import annotations

from functools import partial
from itertools import chain

from _pipeline.ops import as_text
from _pipeline.vocabulary import CUSTOM_CALL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from _pipeline.clocks import Piece
    from _pipeline.device import Device
    from _proto.trace.joined import AnyLine
    from _proto.trace.plane import Metadata, Stats

# On events of custom calls they are static counts of the kernel's code, which leave out its loops.
COUNTS = ("flops", "model_flops", "bytes_accessed", "memory_access_breakdown")
# All that `Op` reads.
FACTS = {
    *("hlo_category", "program_id", "source", "source_stack", "tf_op", "shape_with_layout"),
    *COUNTS,
}


def complete_ops(
    device: Device, pieces: Iterable[Piece], is_admitted: Callable[[AnyLine, int], bool]
) -> None:
    """Normalize the ops whose metadata lacks facts that executions may have.

    Each such fact is that of the first admitted event of the op that has it. `pieces` are the
    admitted events. `is_admitted` is given a line and an `offset_ps` on it.
    """
    plane = device.plane
    on_events = FACTS & set().union(*(line.stat_names() for line in device.lines))
    if not on_events:
        return
    # This imports protobuf, which may be missing when this module is loaded.
    from _proto.trace.event_stats import first_stats

    entries: dict[int, Metadata] = {}
    wanted: dict[int, set[str]] = {}
    metadata_ids = set(chain.from_iterable(piece.metadata_ids for piece in pieces))
    for metadata_id in device.not_normalized(metadata_ids):
        metadata = plane.metadata(metadata_id)
        assert metadata is not None  # or else its events weren't admitted
        lacking = {name for name in on_events if name not in metadata.stats}
        if lacking:
            entries[metadata_id], wanted[metadata_id] = metadata, lacking
    found: dict[int, dict[str, Stats]] = {metadata_id: {} for metadata_id in entries}
    for line in device.lines:
        for metadata_id, name, stats in first_stats(
            plane, line, wanted, partial(is_admitted, line)
        ):
            found[metadata_id][name] = stats
    for metadata_id, metadata in entries.items():
        adopt(metadata.stats, found[metadata_id])
        device.normalize(metadata_id, metadata)


def adopt(stats: Stats, on_events: dict[str, Stats]) -> None:
    """Add an op's facts on events to those of its metadata."""
    for name, of_event in on_events.items():
        if name not in COUNTS:
            stats.adopt(name, of_event)
    # The category may be one of the facts on events.
    if as_text(stats.get("hlo_category")) == CUSTOM_CALL:
        return
    for name in COUNTS:
        if name in on_events:
            stats.adopt(name, on_events[name])
