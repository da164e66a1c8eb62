"""Read the schedules of kernels in a capture. libtpu writes them if a flag is set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from _breakdown.analysis.source.rows import op_name
from _breakdown.light import TYPE_CHECKING
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.device import Device
from _breakdown.pipeline.groups import Group
from _proto.errors import Damage
from _proto.trace.plane import Span

if TYPE_CHECKING:
    from _proto.llo import Schedule

# The positions of schedules in the file, by the names of program and op.
Spans = Mapping[tuple[str, str], list[Span]]

# The stat that has the schedule of an op.
STAT = "llo_proto"

# Schedules are read until this many bytes, which takes about a second. A kernel of a few hundred
# lines has half a megabyte.
MOST_BYTES = 8 << 20
NULL = "fields that depend on it are null"


def spans_of_schedules(device: Device, kernels: Sequence[Group]) -> Spans:
    """Return where the file has schedules of kernels, by the names of program and op. A schedule
    names its program but not its id, so equal names cannot be told apart."""
    ops = {op_name(ran.op) for kernel in kernels for ran in kernel.members}
    spans: dict[tuple[str, str], list[Span]] = {}
    for plane in device.trace.program_planes(device.plane.name) if kernels else ():
        of_plane: dict[tuple[str, str], list[Span]] = {}
        for entry in device.trace.attachments(plane, (STAT,), "", []):
            program, _, op = entry.name.partition("::")
            if entry.span and op in ops:
                of_plane.setdefault((without_id(program), op), []).append(entry.span)
        # Planes of other processes come later, and can have the same programs.
        spans = of_plane | spans
    return spans


def without_id(program: str) -> str:
    """Return the name of a program, which can end with an id in parentheses."""
    return program.rpartition("(")[0] or program


def schedules_of(
    device: Device, kernels: Iterable[Group], spans: Spans, context: Context
) -> dict[int, Schedule]:
    """Read the schedules of the kernels' ops, by metadata id. Ops without a readable schedule are
    omitted."""
    # Import late, because few captures have schedules.
    from _proto.llo import Schedule

    found: dict[int, Schedule] = {}
    n_bytes = 0
    members = [ran for group in kernels for ran in group.members]
    # The number of bytes is limited, so begin with the costliest op.
    for ran in sorted(members, key=lambda ran: -ran.total):
        name, program_id = op_name(ran.op), ran.op.program_id
        program = None if program_id is None else device.programs.names.get(program_id)
        same = [
            span
            for (of_program, of_op), several in spans.items()
            if of_op == name and (program is None or of_program == without_id(program))
            for span in several
        ]
        if len(same) > 1:
            context.warn(
                f"the capture has {len(same)} schedules of ops named {name}, and does not say which"
                f" one ran; {NULL}"
            )
        if len(same) != 1:
            continue
        start, end = same[0]
        n_bytes += end - start
        if found and n_bytes > MOST_BYTES:
            context.warn(f"the schedule of {name} is left out, to save time; {NULL}")
            continue
        try:
            found[ran.metadata_id] = Schedule(device.trace.read(start, end - start))
        except Damage as damage:
            context.warn(f"the schedule of {name} can't be read: {damage.what}; {NULL}")
    return found
