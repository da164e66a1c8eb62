"""What is in a file, of whatever device: planes, lines, stats, programs, down to single events."""

from __future__ import annotations

import math
import os

from _analysis.processes import SMALL_FILE, in_processes, in_turn
from _pipeline.context import SCHEMA_VERSION, forms_of_device
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
from _pipeline.texts import cut_texts, exact
from _proto.errors import Damage
from _proto.record import record
from _proto.trace.ranks import split_hosts

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Sequence
    from typing import Any

    from _analysis.counters import Counters
    from _analysis.tallies import Sampled, Tally
    from _pipeline.context import Context
    from _proto.trace.plane import Value
    from _proto.trace.survey import Survey, SurveyedLine, SurveyedPlane
    from _proto.trace.trace import Trace

    Json = dict[str, Any]

# Of what is no text, so many bytes are shown.
N_HEX = 32


@record
class Asked:
    """What is to be looked at closely; None for nothing."""

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
    asked = Asked(plane, line, grep, sample)
    candidates = Candidates(find_files(request.profile, context), request.host, context)
    for place in candidates.places:
        with candidates.attempt(place):
            try:
                with surveyed(place.path, context) as survey:
                    return fields_of(place, survey, asked, context)
            except NoAnswer as failure:
                if failure.reason in UNREADABLE:
                    # The file may not even open, and then no plane is known.
                    failure.fields.setdefault("planes", [])
                raise
    raise candidates.no_answer()


def fields_of(place: Place, survey: Survey, asked: Asked, context: Context) -> Json:
    """Return the whole answer; raise NoAnswer with the readable planes if the file is damaged."""
    request = context.request
    places = places_of(survey, place, asked.plane)
    rows, damage = plane_rows(survey, places, asked, context)
    if damage is not None:
        absent = unreadable(place.path, survey.source.explained(damage))
        absent.fields["planes"] = rows
        raise absent
    # It imports protobuf, which may be missing.
    from _analysis.profile_options import profile_options_of, versions_of

    hosts = [trace for trace in survey.hosts() if place.host in (None, *trace.host.names)]
    context.notes += survey.source.notes
    for trace in hosts:
        context.notes += merge_notes(trace, None)
    fields: Json = {
        "status": "ok",
        "mode": request.mode,
        "schema_version": SCHEMA_VERSION,
        "profile_dir": request.profile,
        "xplane_file": os.path.basename(place.path),
        "notes": context.notes,
        "file_bytes": survey.source.unpacked_size,
        "n_records": survey.n_records,
        **survey.texts,
        "versions": versions_of(survey),
        "profile_options": profile_options_of(survey, context),
        "planes": rows,
        "programs": program_rows(hosts, context),
    }
    cut_texts(fields)
    return fields


def plane_rows(
    survey: Survey, places: Sequence[int], asked: Asked, context: Context
) -> tuple[list[Json], Damage | None]:
    """Return a row for each of these planes, as far as it can be read, and the first damage."""

    def row_of(place: int) -> tuple[Json, tuple[int, str] | None]:
        plane = survey.plane(place)
        row = plane_row(plane, asked, context)
        # In parts, as it can go from one process to another.
        return row, (plane.damage.offset, plane.damage.what) if plane.damage else None

    on_each = in_processes if survey.source.stored_size > SMALL_FILE else in_turn
    found = on_each(row_of, places)
    rows = [row for row, _ in found]
    met = [survey.source.in_file(Damage(*damage)) for _, damage in found if damage is not None]
    # What was lost on the way here has cut off a plane as well, and says why.
    damage = next(iter(met), survey.damage and survey.source.in_file(survey.damage))
    return rows, survey.source.damage or damage


def places_of(survey: Survey, place: Place, name: str | None) -> list[int]:
    """Return the places of the planes that are asked for; of two of one name the first."""
    places = places_of_host(survey, place)
    if name is None:
        return places
    names = [survey.names[i] for i in places]
    for each in forms_of_device(name):
        if each in names:
            return [places[names.index(each)]]
    if survey.source.damage or survey.damage:
        return []
    raise NoAnswer(
        "plane_not_found",
        detail=f"no plane {name!r}",
        available_planes=list(dict.fromkeys(names)),
    )


def places_of_host(survey: Survey, place: Place) -> list[int]:
    if place.host is None:
        return list(range(len(survey.names)))
    hosts = split_hosts(survey.names)
    numbers = list(map(str, range(len(hosts))))
    said = list(dict.fromkeys(survey.texts["hostnames"]))
    names = said if len(said) == len(hosts) else numbers
    if len(hosts) > 1:
        for number, name, places in zip(numbers, names, hosts, strict=True):
            if place.host in (number, name):
                return places
    raise host_not_found(place.host, names if len(hosts) > 1 else [host_of(place.path)])


def plane_row(plane: SurveyedPlane, asked: Asked, context: Context) -> Json:
    others = []
    rows = []
    for line in plane.lines():
        if asked.line not in (None, line.name):
            others.append(line.name)
            continue
        rows.append(line_row(line))
        if asked.plane is not None:
            rows[-1] |= figures_of(line, asked, context)
    stats = {name: plain(value) for name, value in plane.plane_stats().items()}
    if asked.line is not None and not rows and plane.damage is None:
        raise NoAnswer(
            "line_not_found",
            detail=f"no line {asked.line!r} on {plane.name}",
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


def line_row(line: SurveyedLine) -> Json:
    return {
        "id": plain(line.id),
        "name": line.name,
        "display_name": line.display_name,
        "timestamp_ns": plain(line.timestamp_ns),
        "n_events": line.n_events,
        "bytes": line.n_bytes,
    }


def figures_of(line: SurveyedLine, asked: Asked, context: Context) -> Json:
    """What counting a line through adds; where only some of its events are asked for, of these."""
    from _analysis.counters import COUNTER, Counters
    from _analysis.tallies import Tally

    counters = Counters() if COUNTER in line.name else None
    tally = Tally(asked.grep, asked.n_sampled or 0, counters)
    try:
        for part, shift, at, events in line.events():
            tally.add(part, shift, at, events)
    except Damage as damage:
        line.parts[0].plane.meet(damage)
    context.notes += notes_of(line, tally)
    names, n_names = tally.names()
    base = line.timestamp_ns * 1000
    fields = {
        "n_events": tally.n_events,
        "first_start_ps": None if tally.first is None else plain(base + tally.first),
        "last_end_ps": None if tally.end is None else plain(base + tally.end),
        "busy_ps": plain(tally.busy.duration()),
        "event_stats": dict(tally.event_stats),
        "names": [
            {"name": each.name, "n": each.n, "total_dur_ps": plain(each.total)} for each in names
        ],
        "n_names": n_names,
        "counters": None if counters is None else list(counter_rows(counters)),
    }
    if asked.n_sampled is not None:
        fields["sample"] = [sample_row(each, base) for each in tally.sampled]
    return fields


def notes_of(line: SurveyedLine, tally: Tally) -> Iterator[str]:
    if tally.n_timeless:
        yield f"{line.name}: {tally.n_timeless} events tell how often something occurred, not when"
    if tally.n_negative:
        yield f"{line.name}: {tally.n_negative} events of a negative duration count as instants"


def counter_rows(counters: Counters) -> Iterator[Json]:
    for (name, stat), figures in counters.figures.items():
        yield {
            "name": name,
            "stat": stat,
            "n": figures.n,
            "min": plain(figures.least),
            "mean": figures.mean,
            "max": plain(figures.most),
            "first": plain(figures.first),
            "last": plain(figures.last),
        }


def sample_row(sampled: Sampled, base: int) -> Json:
    return {
        "name": sampled.name,
        "start_ps": None if sampled.start is None else plain(base + sampled.start),
        "dur_ps": plain(sampled.duration),
        "stats": {name: plain(value) for name, value in sampled.stats.items()},
        "metadata_stats": {name: plain(value) for name, value in sampled.metadata_stats.items()},
    }


def plain(value: Value | None) -> Json | int | float | str | None:
    """A value as JSON can have it, and as readers of JSON take it."""
    if isinstance(value, bytes):
        return {"bytes": len(value), "hex": value[:N_HEX].hex()}
    if isinstance(value, int):
        return exact(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def program_rows(hosts: Sequence[Trace], context: Context) -> list[Json]:
    """Return the programs that are beside the trace."""
    from _proto.hlo.programs import Programs

    rows: dict[int, Json] = {}
    for trace in hosts:
        programs = Programs(trace, notes=context.notes)
        names = programs.names
        for program_id, n_bytes in programs.sizes.items():
            row = {"program_id": str(program_id), "name": names[program_id], "hlo_bytes": n_bytes}
            # The hosts of a job have the same programs.
            rows.setdefault(program_id, row)
    return list(rows.values())
