"""List what a trace file contains, for any device: planes, lines, stats, programs, single
events.

question: the contents of a trace of any device: planes, lines, stats, programs, events
reads: all devices
options: --plane, --line, --grep, --sample
example: --plane 0 --sample 1
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from _breakdown.analysis.processes import work_on
from _breakdown.light import NamedTuple
from _breakdown.output.phrases import Next
from _breakdown.output.screen import Column, Each, Part, Says, Table
from _breakdown.pipeline.context import SCHEMA_VERSION, Context, forms_of_device
from _breakdown.pipeline.folders import host_of
from _breakdown.pipeline.load import (
    Candidates,
    Place,
    find_files,
    host_not_found,
    merge_notes,
    opened_contents,
)
from _breakdown.pipeline.no_answer import UNREADABLE, NoAnswer, unreadable
from _breakdown.pipeline.texts import cut_texts, exact
from _breakdown.units import counted, size
from _proto.errors import Damage
from _proto.trace.ranks import planes_named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _breakdown.analysis.tallies import Sampled, Tally
    from _proto.trace.lines import Line
    from _proto.trace.plane import Plane, Value
    from _proto.trace.source import Source
    from _proto.trace.trace import Contents, NamedPlane, Trace

Json = dict[str, Any]

# Maximum number of bytes to print of a stat that holds raw bytes.
N_HEX = 32


class Options(NamedTuple):
    """Values of `--plane`, `--line`, `--grep` and `--sample`; None if the option is absent."""

    plane: str | None
    line: str | None
    grep: re.Pattern[str] | None
    n_sampled: int | None


def anatomy(
    context: Context,
    *,
    plane: str | None = None,
    line: str | None = None,
    grep: re.Pattern[str] | None = None,
    sample: int | None = None,
) -> Json:
    request = context.request
    options = Options(plane, line, grep, sample)
    candidates = Candidates(find_files(request.profile, context), request.host, context)
    for place in candidates.places:
        with candidates.attempt(place):
            try:
                with opened_contents(place.path, context) as contents:
                    return answer_of(place, contents, options, context)
            except NoAnswer as failure:
                if failure.reason in UNREADABLE:
                    # If the file cannot be opened, report an empty list of planes.
                    failure.fields.setdefault("planes", [])
                raise
    raise candidates.no_answer()


def answer_of(place: Place, contents: Contents, options: Options, context: Context) -> Json:
    """Return the answer; if the file is damaged, raise NoAnswer with the readable planes."""
    request = context.request
    source = contents.source
    source.expect(source.size)
    planes = planes_asked_for(contents, place, options.plane)
    rows, damage = plane_rows(source, planes, options, context)
    damage = damage or contents.damage
    if damage is not None:
        failure = unreadable(place.path, source.explained(damage))
        failure.fields["planes"] = rows
        raise failure
    # Import late: the module requires protobuf, which may be missing.
    from _breakdown.analysis.profile_options import profile_options_of, versions_of

    hosts = contents.traces()
    asked = [trace for trace in hosts if place.host in (None, *trace.host.names)]
    context.warn(*source.notes)
    for trace in asked:
        context.note(*merge_notes(trace, None))
    profile_options = profile_options_of(hosts, context)
    programs = program_rows(asked, context)
    answer: Json = {
        "status": "ok",
        "mode": request.mode,
        "schema_version": SCHEMA_VERSION,
        "profile_dir": request.profile,
        "xplane_file": os.path.basename(place.path),
        "notes": context.notes,
        "file_bytes": source.unpacked_size,
        **contents.texts,
        "versions": versions_of(hosts),
        "profile_options": profile_options,
        "planes": rows,
        "programs": programs,
    }
    cut_texts(answer)
    return answer


def planes_asked_for(contents: Contents, place: Place, name: str | None) -> list[NamedPlane]:
    """Return the requested planes. If several planes share the requested name, return only the
    first."""
    planes = contents.planes if place.host is None else planes_of_host(contents, place)
    if name is None:
        return planes
    names = [plane for plane, _ in planes]
    for form in forms_of_device(name):
        for found in planes_named(form, names)[:1]:
            return [planes[names.index(found)]]
    if contents.damage:
        return []
    raise NoAnswer(
        "plane_not_found",
        detail=f"no plane is named {name!r}",
        available_planes=list(dict.fromkeys(names)),
    )


def planes_of_host(contents: Contents, place: Place) -> list[NamedPlane]:
    hosts = contents.by_host()
    for host, planes in hosts:
        if len(hosts) > 1 and place.host in host.names:
            return planes
    known = [host_of(place.path)] if len(hosts) == 1 else hosts[0][0].labels
    raise host_not_found(place.host or "", known)


def plane_rows(
    source: Source, planes: Sequence[NamedPlane], options: Options, context: Context
) -> tuple[list[Json], Damage | None]:
    """Return a row for each readable plane, and the first damage found."""
    # Import late: the modules require protobuf, which may be missing.
    from _proto.trace.plane import Plane

    def row_of(plane: NamedPlane) -> Json | tuple[int, str]:
        name, spans = plane
        try:
            return plane_row([Plane(name, source, *span) for span in spans], options, context)
        except Damage as damage:
            # Return offset and text: the exception itself cannot be pickled.
            return damage.offset, damage.what

    found = work_on(row_of, planes, "reading planes", context, source.size)
    damages = [source.in_file(Damage(*row)) for row in found if isinstance(row, tuple)]
    return [row for row in found if isinstance(row, dict)], next(iter(damages), None)


def plane_row(parts: Sequence[Plane], options: Options, context: Context) -> Json:
    """Return the row of a plane, which has a part in each record."""
    rows: list[Json] = []
    others: list[str] = []
    for line_parts in lines_of(parts):
        name = line_parts[0].line.name
        if options.line in (None, name):
            rows.append(line_row(line_parts, options, context))
        else:
            others.append(name)
    if options.line is not None and not rows:
        raise NoAnswer(
            "line_not_found",
            detail=f"no line of {parts[0].name} is named {options.line!r}",
            available_lines=list(dict.fromkeys(others)),
        )
    stats = next((part for part in parts if part.has_stats), parts[0]).stats()
    return {
        "name": parts[0].name,
        "bytes": sum(part.n_bytes for part in parts),
        "n_event_metadata": sum(part.n_event_metadata for part in parts),
        "n_stat_metadata": sum(len(part.stat_names) for part in parts),
        "stats": stats_row(dict(stats.items())),
        "lines": rows,
    }


class LinePart(NamedTuple):
    """The part of a line in one record. Parts can have different base times."""

    plane: Plane
    line: Line


def lines_of(parts: Sequence[Plane]) -> Iterable[list[LinePart]]:
    """Return the lines of a plane. Parts of several records are one line if they have the same id
    and name; within one record, lines with the same name stay separate."""
    lines: dict[object, list[LinePart]] = {}
    for plane in parts:
        for n, line in enumerate(plane.all_lines()):
            key = n if len(parts) == 1 else (line.id, line.name)
            lines.setdefault(key, []).append(LinePart(plane, line))
    return lines.values()


def line_row(parts: Sequence[LinePart], options: Options, context: Context) -> Json:
    lines = [line for _, line in parts]
    row = {
        "name": lines[0].name,
        "display_name": next((line.display_name for line in lines if line.display_name), ""),
        "n_events": sum(line.n_events for line in lines),
        "bytes": sum(line.n_bytes for line in lines),
    }
    return row if options.plane is None else row | event_fields(parts, options, context)


def event_fields(parts: Sequence[LinePart], options: Options, context: Context) -> Json:
    """Return statistics about a line's events; with `--grep`, only about matching events."""
    # Import late: the modules require protobuf, which may be missing.
    from _breakdown.analysis.tallies import Tally
    from _proto import xplane_pb2 as pb
    from _proto.trace.wire import decode

    name, base = parts[0].line.name, min(line.base_ps for _, line in parts)
    tally = Tally(options.grep, options.n_sampled or 0)
    for plane, line in parts:
        for data, at in line.pieces():
            tally.add(plane, line.base_ps - base, at, decode(pb.XLine, data, at).events)
    context.warn(*notes_of(name, tally))
    names, n_names = tally.names()
    figures: Json = {
        "n_events": tally.n_events,
        "busy_ps": exact(tally.busy()),
        "event_stats": dict(tally.event_stats),
        "names": [
            {"name": name.name, "n": name.n, "total_dur_ps": exact(name.total)} for name in names
        ],
        "n_names": n_names,
    }
    if options.n_sampled is not None:
        figures["sample"] = [sample_row(event, base) for event in tally.sampled]
    return figures


def notes_of(name: str, tally: Tally) -> Iterator[str]:
    if tally.n_timeless:
        n = counted(tally.n_timeless, "event")
        yield f"{name}: the trace has no time for {n}, only a number of occurrences"
    if tally.n_negative:
        yield f"{name}: negative durations ({counted(tally.n_negative, 'event')}) count as 0"


def sample_row(event: Sampled, base: int) -> Json:
    return {
        "name": event.name,
        "start_ps": None if event.start is None else exact(base + event.start),
        "dur_ps": exact(event.duration),
        "stats": stats_row(event.stats),
        "metadata_stats": stats_row(event.metadata_stats),
    }


def stats_row(stats: Mapping[str, Value | None]) -> Json:
    return {name: plain(value) for name, value in stats.items()}


def plain(value: Value | None) -> Any:
    """Convert a stat's value to a JSON type."""
    if isinstance(value, bytes):
        return {"bytes": len(value), "hex": value[:N_HEX].hex()}
    if isinstance(value, int):
        return exact(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def program_rows(hosts: Sequence[Trace], context: Context) -> list[Json]:
    """Return a row for each program in the file."""
    from _proto.hlo.programs import Programs

    rows: dict[int, Json] = {}
    for trace in hosts:
        programs = Programs(trace, notes=context.warnings)
        names = programs.names
        for program_id, n_bytes in programs.sizes.items():
            # All hosts of a job run the same programs, so list each program once.
            rows.setdefault(
                program_id,
                {
                    "program_id": str(program_id),
                    "name": names[program_id],
                    "hlo_bytes": n_bytes,
                },
            )
    return list(rows.values())


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "planes"

PARTS: tuple[Part, ...] = (
    Says("{mode:word}: {trace:file}, {file_bytes:bytes}, host {hostnames}"),
    Says("versions: {versions:values}", when="versions"),
    Says("profiler options: {profile_options:values}", when="profile_options"),
    Says("errors: {errors:whole}", when="errors"),
    Says("warnings: {warnings:whole}", when="warnings"),
    Table(
        "planes",
        "planes",
        (
            Column("size", "bytes", "bytes"),
            Column("names", "n_event_metadata", "count"),
            Column("stats", "n_stat_metadata", "count"),
            Column("plane", "name"),
        ),
    ),
    Each(
        "planes",
        (
            Table(
                "lines of {name}",
                "lines",
                (
                    Column("events", "n_events", "count"),
                    Column("size", "bytes", "bytes"),
                    Column("busy", "busy_ps", "time"),
                    Column("names", "n_names", "count"),
                    Column("line", "name"),
                    Column("shown as", "display_name", null=""),
                ),
            ),
            Each(
                "lines",
                (
                    Table(
                        "events of {name}: the costliest of {n_names:count} names",
                        "names",
                        (
                            Column("time", "total_dur_ps", "time"),
                            Column("n", "n", "count"),
                            Column("name", "name"),
                        ),
                    ),
                    Table(
                        "first events of {name}",
                        "sample",
                        (
                            Column("time", "dur_ps", "time"),
                            Column("name", "name"),
                            Column("stats", "stats", "values", null=""),
                        ),
                    ),
                ),
            ),
        ),
    ),
    Table(
        "programs",
        "programs",
        (Column("HLO", "hlo_bytes", "bytes"), Column("id", "program_id"), Column("name", "name")),
    ),
)


def sentences(answer: Json) -> Iterator[str]:
    planes = [plane["name"] for plane in answer["planes"]]
    devices = sum(name.startswith("/device:TPU:") for name in planes)
    jax = answer["versions"].get("jax_version")
    version = f" (JAX {jax})" if jax else ""
    # With `--plane` or `--host`, the answer does not have all planes.
    yield f"The file{version} is {size(answer['file_bytes'])}."
    yield (
        f"The answer has {counted(len(planes), 'plane')} ({devices} of TPUs) and"
        f" {counted(len(answer['programs']), 'program')}."
    )


def next_steps(answer: Json) -> Iterator[Next]:
    if any(plane["name"].startswith("/device:TPU:") for plane in answer["planes"]):
        yield Next("where a step's time goes", ("--mode", "bottleneck"))
