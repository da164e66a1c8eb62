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
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from _analysis.processes import work_on
from _pipeline.context import SCHEMA_VERSION, Context, forms_of_device
from _pipeline.folders import host_of
from _pipeline.load import (
    Candidates,
    Place,
    find_files,
    host_not_found,
    merge_notes,
    surveyed,
)
from _pipeline.no_answer import UNREADABLE, NoAnswer, unreadable
from _pipeline.texts import cut_texts, exact, exact_if_integer
from _proto.errors import Damage
from _proto.trace.plane import Value
from _proto.trace.ranks import host_labels, planes_named, split_hosts
from _proto.trace.survey import Survey, SurveyedLine, SurveyedPlane
from _proto.trace.trace import Trace
from _units import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _analysis.counters import Counters
    from _analysis.tallies import Sampled, Tally
    from _output.fields.anatomy import (
        AnatomyLine,
        AnatomyPlane,
        AnatomyProgram,
        Counter,
        LineIfPlane,
        Returned,
        SampleEvent,
        StatValue,
    )

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
) -> Returned:
    request = context.request
    options = Options(plane, line, grep, sample)
    candidates = Candidates(find_files(request.profile, context), request.host, context)
    for place in candidates.places:
        with candidates.attempt(place):
            try:
                with surveyed(place.path, context) as survey:
                    return answer_of(place, survey, options, context)
            except NoAnswer as failure:
                if failure.reason in UNREADABLE:
                    # If the file cannot be opened, report an empty list of planes.
                    failure.fields.setdefault("planes", [])
                raise
    raise candidates.no_answer()


def answer_of(place: Place, survey: Survey, options: Options, context: Context) -> Returned:
    """Return the answer; if the file is damaged, raise NoAnswer with the readable planes."""
    request = context.request
    indices = planes_asked_for(survey, place, options.plane)
    rows, damage = plane_rows(survey, indices, options, context)
    if damage is not None:
        failure = unreadable(place.path, survey.source.explained(damage))
        failure.fields["planes"] = rows
        raise failure
    # Import late: the module requires protobuf, which may be missing.
    from _analysis.profile_options import profile_options_of, versions_of

    hosts = [trace for trace in survey.hosts() if place.host in (None, *trace.host.names)]
    context.warn(*survey.source.notes)
    for trace in hosts:
        context.note(*merge_notes(trace, None))
    profile_options = profile_options_of(survey, context)
    programs = program_rows(hosts, context)
    answer: Returned = {
        "status": "ok",
        "mode": request.mode,
        "schema_version": SCHEMA_VERSION,
        "profile_dir": request.profile,
        "xplane_file": os.path.basename(place.path),
        "notes": context.notes,
        "file_bytes": survey.source.unpacked_size,
        "n_records": survey.n_records,
        "hostnames": survey.texts["hostnames"],
        "errors": survey.texts["errors"],
        "warnings": survey.texts["warnings"],
        "versions": versions_of(survey),
        "profile_options": profile_options,
        "planes": rows,
        "programs": programs,
    }
    cut_texts(answer)
    return answer


def plane_rows(
    survey: Survey, indices: Sequence[int], options: Options, context: Context
) -> tuple[list[AnatomyPlane], Damage | None]:
    """Return a row for each readable plane, and the first damage found."""

    def row_of(index: int) -> tuple[AnatomyPlane, tuple[int, str] | None]:
        plane = survey.plane(index)
        row = plane_row(plane, options, context)
        # Return the offset and text of the damage: the exception itself cannot be pickled.
        return row, (plane.damage.offset, plane.damage.what) if plane.damage else None

    found = work_on(row_of, indices, "reading planes", context, survey.source.stored_size)
    rows = [row for row, _ in found]
    met = [survey.source.in_file(Damage(*damage)) for _, damage in found if damage is not None]
    damage = next(iter(met), survey.damage and survey.source.in_file(survey.damage))
    # If decompression lost part of the file, report this loss rather than the truncated plane.
    return rows, survey.source.damage or damage


def planes_asked_for(survey: Survey, place: Place, name: str | None) -> list[int]:
    """Return the indices of the requested planes. If several planes share the requested name,
    return only the first."""
    indices = planes_of_host(survey, place)
    if name is None:
        return indices
    names = [survey.names[index] for index in indices]
    for form in forms_of_device(name):
        for found in planes_named(form, names)[:1]:
            return [indices[names.index(found)]]
    if survey.source.damage or survey.damage:
        return []
    raise NoAnswer(
        "plane_not_found",
        detail=f"no plane is named {name!r}",
        available_planes=list(dict.fromkeys(names)),
    )


def planes_of_host(survey: Survey, place: Place) -> list[int]:
    if place.host is None:
        return list(range(len(survey.names)))
    hosts = split_hosts(survey.names)
    labels = host_labels(len(hosts), survey.texts["hostnames"])
    if len(hosts) == 1:
        raise host_not_found(place.host, [host_of(place.path)])
    for number, (label, indices) in enumerate(zip(labels, hosts, strict=True)):
        if place.host in (label, str(number)):
            return indices
    raise host_not_found(place.host, labels)


def plane_row(plane: SurveyedPlane, options: Options, context: Context) -> AnatomyPlane:
    others: list[str] = []
    rows: list[AnatomyLine] = []
    for line in plane.lines():
        if options.line not in (None, line.name):
            others.append(line.name)
            continue
        row = line_row(line)
        if options.plane is not None:
            row = with_events(row, line, options, context)
        rows.append(row)
    stats = {name: plain(value) for name, value in plane.plane_stats().items()}
    if options.line is not None and not rows and plane.damage is None:
        raise NoAnswer(
            "line_not_found",
            detail=f"no line of {plane.name} is named {options.line!r}",
            available_lines=list(dict.fromkeys(others)),
        )
    return {
        "name": plane.name,
        "bytes": plane.n_bytes,
        "n_event_metadata": plane.n_event_metadata,
        "n_stat_metadata": plane.n_stat_metadata,
        "stats": stats,
        "stat_names": sorted(plane.stat_names),
        "lines": rows,
    }


def line_row(line: SurveyedLine) -> AnatomyLine:
    return {
        "id": exact(line.id),
        "name": line.name,
        "display_name": line.display_name,
        "timestamp_ns": exact(line.timestamp_ns),
        "n_events": line.n_events,
        "bytes": line.n_bytes,
    }


def with_events(
    row: AnatomyLine, line: SurveyedLine, options: Options, context: Context
) -> AnatomyLine:
    """Extend a line's row with statistics about its events; with `--grep`, only about matching
    events."""
    from _analysis.counters import COUNTER, Counters
    from _analysis.tallies import Tally

    counters = Counters() if COUNTER in line.name else None
    tally = Tally(options.grep, options.n_sampled or 0, counters)
    try:
        for part, shift, at, events in line.events():
            tally.add(part, shift, at, events)
    except Damage as damage:
        line.parts[0].plane.meet(damage)
    context.warn(*notes_of(line, tally))
    names, n_names = tally.names()
    base = line.timestamp_ns * 1000
    figures: LineIfPlane = {
        "first_start_ps": None if tally.first is None else exact(base + tally.first),
        "last_end_ps": None if tally.end is None else exact(base + tally.end),
        "busy_ps": exact(tally.busy.duration()),
        "event_stats": dict(tally.event_stats),
        "names": [
            {"name": name.name, "n": name.n, "total_dur_ps": exact(name.total)} for name in names
        ],
        "n_names": n_names,
        "counters": None if counters is None else list(counter_rows(counters)),
    }
    if options.n_sampled is not None:
        figures["sample"] = [sample_row(event, base) for event in tally.sampled]
    return {**row, "n_events": tally.n_events, **figures}


def notes_of(line: SurveyedLine, tally: Tally) -> Iterator[str]:
    if tally.n_timeless:
        n = counted(tally.n_timeless, "event")
        yield f"{line.name}: the trace has no time for {n}, only a number of occurrences"
    if tally.n_negative:
        n = counted(tally.n_negative, "event")
        yield f"{line.name}: negative durations ({n}) count as 0"


def counter_rows(counters: Counters) -> Iterator[Counter]:
    for (name, stat), figures in counters.figures.items():
        yield {
            "name": name,
            "stat": stat,
            "n": figures.n,
            "min": exact_if_integer(figures.least),
            "mean": figures.mean,
            "max": exact_if_integer(figures.most),
            "first": None if figures.first is None else exact_if_integer(figures.first),
            "last": None if figures.last is None else exact_if_integer(figures.last),
        }


def sample_row(sampled: Sampled, base: int) -> SampleEvent:
    return {
        "name": sampled.name,
        "start_ps": None if sampled.start is None else exact(base + sampled.start),
        "dur_ps": exact(sampled.duration),
        "stats": {name: plain(value) for name, value in sampled.stats.items()},
        "metadata_stats": {name: plain(value) for name, value in sampled.metadata_stats.items()},
    }


def plain(value: Value | None) -> StatValue:
    """Convert a stat's value to a JSON type."""
    if isinstance(value, bytes):
        return {"bytes": len(value), "hex": value[:N_HEX].hex()}
    if isinstance(value, int):
        return exact(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def program_rows(hosts: Sequence[Trace], context: Context) -> list[AnatomyProgram]:
    """Return a row for each program in the file."""
    from _proto.hlo.programs import Programs

    rows: dict[int, AnatomyProgram] = {}
    for trace in hosts:
        programs = Programs(trace, notes=context.warnings)
        names = programs.names
        for program_id, n_bytes in programs.sizes.items():
            row: AnatomyProgram = {
                "program_id": str(program_id),
                "name": names[program_id],
                "hlo_bytes": n_bytes,
            }
            # All hosts of a job run the same programs, so list each program once.
            rows.setdefault(program_id, row)
    return list(rows.values())
