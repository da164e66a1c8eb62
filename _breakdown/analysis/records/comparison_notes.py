"""Write the notes about a comparison: what differs besides the code, and what is not certain."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.records.comparison import Comparison
from _breakdown.units import percentage

# Add a note if unmatched lines take more than this percentage of either side's op time.
UNMATCHED_PCT = 5
RUN_TO_RUN = (
    "run-to-run noise is not included; to measure it, compare two captures of the same code"
)


# Times of the same program on two nodes differed by up to this percentage (a public ledger, v6e).
BETWEEN_NODES_PCT = 1.3


def note_on_gate(found: Comparison, limit: float) -> Iterator[str]:
    """Yield a note if the gate's limit is smaller than what hosts differ by."""
    hosts = ({run.record.host for run in side.runs} for side in (found.before, found.after))
    if limit < BETWEEN_NODES_PCT and set.isdisjoint(*hosts):
        yield (
            f"the hosts differ, and the same program can take up to {BETWEEN_NODES_PCT} % longer on"
            f" another host: --fail-over {limit:g} can fail without a change"
        )


def warnings_of(found: Comparison) -> Iterator[str]:
    noise, unit = found.noise, found.unit
    yield from notes_on_causes(found)
    yield from notes_on_devices(found)
    if unit == "step" and noise.n_before != noise.n_after:
        yield f"the number of steps differs: {noise.n_before} before, {noise.n_after} after"
    if noise.too_few_samples:
        yield (
            f"{noise.n_before} + {noise.n_after} {unit}s are too few to distinguish a change from"
            " noise; use at least 4 per side"
        )
    parts = found.unmatched_pct
    if max(part or 0 for part in parts) > UNMATCHED_PCT:
        of_before, of_after = ("nothing" if part is None else percentage(part) for part in parts)
        yield (
            f"lines without a counterpart: {of_before} of the time before, {of_after} after;"
            " by_file compares files"
        )


def notes_on_causes(found: Comparison) -> Iterator[str]:
    """Yield notes on causes that cannot be compared."""
    devices = {"before": found.before.first.device, "after": found.after.first.device}
    lacking = [side for side, device in devices.items() if device.causes is None]
    if lacking:
        yield (
            f"causes are not compared, because {' and '.join(lacking)} the change, there is a"
            " record without them (of version 2.0, or of a device after the first); record the"
            " trace again"
        )
    examined = {side: device.causes.examined for side, device in devices.items() if device.causes}
    for side, names in examined.items() if len(examined) == len(devices) else ():
        only = sorted(name for name in names if any(name not in of for of in examined.values()))
        if only:
            yield (
                f"these causes are not compared, because only the capture {side} the change can"
                f" show them: {', '.join(only)}"
            )


def notes_on_devices(found: Comparison) -> Iterator[str]:
    """Yield notes on devices that differ between the two sides or within one side."""
    attributes = [("device", "name"), ("device_type", "device_type"), ("clock", "clock")]
    if found.program.same is None and not found.program.rows:
        attributes.append(("program", "program"))
    for what, attribute in attributes:
        before, after = (
            list(dict.fromkeys(str(getattr(run.device, attribute)) for run in side.runs))
            for side in (found.before, found.after)
        )
        if len({*before, *after}) > 1:
            yield f"{what} differs: {' and '.join(before)} before, {' and '.join(after)} after"
