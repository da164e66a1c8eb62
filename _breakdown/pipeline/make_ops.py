"""Build a device's ops from metadata, stats of their events, and the order of stack frames."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain

from _breakdown.pipeline import frames
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.device import Device
from _breakdown.pipeline.event_iterate import Admitted
from _breakdown.pipeline.ops import Op, as_text
from _breakdown.pipeline.vocabulary import CUSTOM_CALL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _proto.trace.joined import AnyLine
    from _proto.trace.plane import Metadata, Stats

# Names of stats that are counts. For custom calls, events have static counts of the kernel's code,
# in which each loop body counts once.
COUNTS = ("flops", "model_flops", "bytes_accessed", "memory_access_breakdown")
# Names of all stats that `Op` reads.
USED_STATS = {
    *("hlo_category", "program_id", "source", "source_stack", "tf_op", "shape_with_layout"),
    *COUNTS,
}


def make_ops(
    device: Device,
    windows: Sequence[Admitted],
    context: Context,
    other: tuple[Device, Mapping[int, Op]] | None = None,
) -> dict[int, Op]:
    """Return the ops that run in the windows, by metadata id. Windows must be sorted by start.

    `other` is another device with its ops. In most captures, all devices have the same metadata.
    Then return the other device's ops, for which much is already computed.
    """
    ids: dict[int, None] = {}
    for piece in chain.from_iterable(window.pieces for window in windows):
        if not piece.distinct_ids <= ids.keys():
            ids |= dict.fromkeys(piece.metadata_ids)
    if other and are_same_ops(device, *other, ids):
        return {metadata_id: other[1][metadata_id] for metadata_id in ids}
    # `admit` keeps only events with metadata.
    entries = device.plane.metadata_of_ops(ids)
    add_event_stats(device, entries, windows)
    orders = stack_orders(device, entries, context)
    return {
        metadata_id: Op(metadata, device.programs, device.is_own, orders.get(metadata_id))
        for metadata_id, metadata in entries.items()
    }


def op_of_entry(device: Device, metadata_id: int) -> Op | None:
    """Return the op of a metadata entry, or None if the entry is missing. Omit stats of the op's
    events, because the op may not run in the step."""
    metadata = device.plane.metadata(metadata_id)
    return Op(metadata, device.programs, device.is_own, None) if metadata else None


def are_same_ops(
    device: Device, other: Device, ops: Mapping[int, Op], metadata_ids: Collection[int]
) -> bool:
    """Return whether the metadata alone defines a device's ops, and another device has the same."""
    return (
        all(map(ops.__contains__, metadata_ids))
        and device.programs is other.programs
        and device.is_own is other.is_own
        and not stats_on_events(device)
        and not stats_on_events(other)
        and device.plane.has_same_metadata(other.plane, metadata_ids)
    )


def stats_on_events(device: Device) -> set[str]:
    """Return the names of stats of ops that the events of a device can have."""
    return USED_STATS & set().union(*(line.stat_names() for line in device.lines))


def add_event_stats(
    device: Device, entries: Mapping[int, Metadata], windows: Sequence[Admitted]
) -> None:
    """Add stats that metadata entries lack. Each stat comes from the op's first execution that has
    it."""
    plane = device.plane
    on_events = stats_on_events(device)
    if not on_events:
        return
    # Import late, because the module imports protobuf, which may be missing.
    from _proto.trace.event_stats import first_stats

    lacking = {
        metadata_id: {name for name in on_events if name not in metadata.stats}
        for metadata_id, metadata in entries.items()
    }
    wanted = {metadata_id: names for metadata_id, names in lacking.items() if names}
    found: dict[int, dict[str, Stats]] = {metadata_id: {} for metadata_id in wanted}
    starts = [window.window[0] for window in windows]
    reach = list(accumulate((window.window[1] for window in windows), max))

    def is_admitted(line: AnyLine, offset: int) -> bool:
        start = offset + line.base_ps - device.base
        n = bisect_right(starts, start)
        return n > 0 and start < reach[n - 1]

    for line in device.lines:
        for metadata_id, name, stats in first_stats(
            plane, line, wanted, partial(is_admitted, line)
        ):
            found[metadata_id][name] = stats
    for metadata_id, by_name in found.items():
        adopt(entries[metadata_id].stats, by_name)


def adopt(stats: Stats, on_events: dict[str, Stats]) -> None:
    """Add stats of an op's events to the stats of its metadata."""
    for name, of_event in on_events.items():
        if name not in COUNTS:
            stats.adopt(name, of_event)
    # Read the category only after the loop above, which may have added it.
    if as_text(stats.get("hlo_category")) == CUSTOM_CALL:
        return
    for name in COUNTS:
        if name in on_events:
            stats.adopt(name, on_events[name])


def stack_orders(
    device: Device, entries: Mapping[int, Metadata], context: Context
) -> dict[int, frames.StackOrder]:
    """Return the frame order of each op's stack, by metadata id.

    If an op has a `source`, its position in the stack shows the frame order. Stacks whose order is
    not shown get the majority's order. If no `source` shows an order, compare each stack with the
    op's source line in the program, and use the majority's order. If that shows no order either,
    assume innermost first.
    """
    stacks = {
        metadata_id: stack
        for metadata_id, metadata in entries.items()
        if (stack := frames.stack_of(as_text(metadata.stats.get("source_stack"))))
    }
    found = {
        metadata_id: frames.order_shown_by(stack, as_text(entries[metadata_id].stats.get("source")))
        for metadata_id, stack in stacks.items()
    }
    orders = {metadata_id: order for metadata_id, order in found.items() if order}
    if len(orders) == len(stacks):
        return orders
    majority = frames.majority(orders.values()) or frames.majority(
        order_in_program(device, entries[metadata_id], stack)
        for metadata_id, stack in stacks.items()
    )
    unknown = [stacks[metadata_id] for metadata_id in stacks.keys() - orders.keys()]
    if majority is None and any(stack.frames != stack.backwards.frames for stack in unknown):
        context.warn("order of stack frames unknown; assuming innermost first")
    return dict.fromkeys(stacks, majority or frames.INNERMOST_FIRST) | orders


def order_in_program(
    device: Device, metadata: Metadata, stack: frames.Stack
) -> frames.StackOrder | None:
    """Return a stack's frame order if the op's source line in the program shows it, else None."""
    op = Op(metadata, device.programs, device.is_own, None)
    return frames.order_shown_by(stack, op.own_line)


def majority_order(ops: Iterable[Op]) -> frames.StackOrder | None:
    """Return the frame order of most of the ops' stacks, or None if no op has a stack."""
    orders = [op.stack_order for op in ops if op.stored_stack]
    return (frames.majority(orders) or frames.INNERMOST_FIRST) if orders else None
