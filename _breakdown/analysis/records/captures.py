"""Find and read the captures (records or traces) that `compare` and `spread` compare."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from _breakdown.analysis.devices.record_format import (
    GZIP_MAGIC,
    HostRecord,
    UnreadableRecord,
    decode,
    record_of,
)
from _breakdown.analysis.records.record_rows import record_of_trace, records_of_trace
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.folders import files_in
from _breakdown.pipeline.load import Candidates, Place, find_files
from _breakdown.pipeline.no_answer import DEVICE_NOT_FOUND, NoAnswer, unreadable
from _breakdown.units import counted
from _proto.trace import STDIN
from _proto.trace.ranks import planes_named

RECORD_SUFFIXES = (".json", ".json.gz")
# Substring of the names of trace viewer files: JSON that profilers write in addition to a trace.
TRACE_VIEWER = ".trace.json"
# First bytes of a record as it was written, and of a record whose keys were sorted later. A file
# that ends within these bytes, or has only whitespace and zeros, counts as an incomplete record.
RECORD_STARTS = (b'{"status"', b'{"devices":[{"clock"')
PADDING = b" \t\r\n\0"
N_HEAD = 512


def find_captures(profile: str, context: Context) -> dict[str, str]:
    """Return the path of one trace or record per host. A record takes precedence over a trace with
    the same name."""

    def captures_in(folder: str) -> dict[str, str]:
        return dict(sorted((files_in(folder) | records_in(folder)).items()))

    none = "neither a .xplane.pb file nor a record"
    captures = find_files(profile, context, captures_in, none)
    if os.path.isdir(profile):
        traces = files_in(os.path.dirname(next(iter(captures.values()))))
        n_both = sum(captures[host] != path for host, path in traces.items())
        if n_both:
            context.note(
                f"using {counted(n_both, 'record')} and ignoring traces with the same names"
            )
    return captures


def records_in(folder: str) -> dict[str, str]:
    """Map hosts to the paths of the records in a folder, including unreadable records."""
    found: dict[str, str] = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        is_json = name.endswith(RECORD_SUFFIXES) and TRACE_VIEWER not in name
        # Include broken links, so that reading them reports an error; otherwise they would be
        # ignored silently.
        is_file = os.path.isfile(path) or not os.path.exists(path)
        if is_json and is_file and is_record(path):
            found.setdefault(host_of_record(path), path)
    return found


def host_of_record(path: str) -> str:
    return os.path.basename(path).removesuffix(".gz").removesuffix(".json")


def is_record(path: str) -> bool:
    """Return whether a file begins like a record; True if its first bytes cannot be read."""
    try:
        with open(path, "rb") as file:
            return begins_record(file.read(N_HEAD), is_gzipped=path.endswith(".gz"))
    except OSError:
        # Treat the file as a record, so that reading it later reports why it is unreadable.
        return True


def begins_record(head: bytes, *, is_gzipped: bool) -> bool:
    """Return whether these bytes can be the start of a record."""
    if is_gzipped:
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, N_HEAD)
        except zlib.error:
            return True
    head = head.translate(None, PADDING)
    return any(start.startswith(head[: len(start)]) for start in RECORD_STARTS)


def read_records(
    profiles: Sequence[str], host: str | None, device: str, context: Context
) -> dict[str, HostRecord]:
    """Read the records of one side, keyed by profile; skip a capture that was passed before.
    Traces give causes only in the first record, because `compare` uses no others."""
    records: dict[str, HostRecord] = {}
    places: set[tuple[str, str | None]] = set()
    for profile in profiles:
        of_profile = context.with_own_notes()
        place, record = read_record(profile, host, device, of_profile, has_causes=not records)
        context.warn(*of_profile.warnings)
        context.note(*of_profile.provenance)
        key = os.path.realpath(place.path), place.host
        if key in places:
            context.warn(f"{profile} was passed twice and is used once")
            continue
        places.add(key)
        records[profile] = record
    return records


def read_record(
    profile: str, host: str | None, device: str, context: Context, *, has_causes: bool
) -> tuple[Place, HostRecord]:
    """Return the record of the first readable file that contains the device."""
    candidates = Candidates(find_captures(profile, context), host, context)
    for place in candidates.places:
        with candidates.attempt(place):
            return place, record_at(place, device, context, has_causes=has_causes)
    raise candidates.no_answer()


def record_at(
    place: Place, device: str | None, context: Context, *, has_causes: bool = False
) -> HostRecord:
    """Read a record, or build one from a trace; raise NoAnswer if the device is missing."""
    with refusals_of_records(place.path):
        found = ready_record(place.path, context)
        if found is None:
            row = record_of_trace(place, device, slice(None), context, has_causes=has_causes)
            return record_of(row)
    available = [found_device.name for found_device in found.devices]
    if device is not None and not planes_named(device, available):
        raise NoAnswer(DEVICE_NOT_FOUND, available_devices=available)
    return found


def records_at(path: str, device: str | None, context: Context) -> list[HostRecord | NoAnswer]:
    """Read a file with a record or a trace; return a record or a NoAnswer for each host in it."""
    with refusals_of_records(path):
        ready = ready_record(path, context)
        if ready is not None:
            return [ready]
        found = records_of_trace(path, device, context)
        return [record if isinstance(record, NoAnswer) else record_of(record) for record in found]


def captures_of(profiles: Sequence[str], context: Context) -> dict[str, str]:
    """Return the captures of all profiles by host, as if they were in one folder."""
    captures: dict[str, str] = {}
    seen: set[str] = set()
    for profile in profiles:
        for host, path in find_captures(profile, context).items():
            real = os.path.realpath(path)
            if real in seen:
                context.note(f"{path} was passed twice and is used once")
                continue
            seen.add(real)
            # Files with the same name are assumed to belong to different hosts; if they do not, the
            # answer is `duplicate_host`.
            captures[path if host in captures else host] = path
    return captures


def records_of_file(place: Place, context: Context) -> Sequence[HostRecord | NoAnswer]:
    """Read a file, and return a record (or the reason why there is none) for each host in it."""
    try:
        if place.host is None:
            records = records_at(place.path, context.request.device, context)
        else:
            records = [record_at(place, context.request.device, context.with_own_notes())]
    except NoAnswer as failure:
        raise failure_in(place, failure) from None
    return [
        failure_in(place, record) if isinstance(record, NoAnswer) else with_host(place, record)
        for record in records
    ]


def failure_in(place: Place, failure: NoAnswer) -> NoAnswer:
    """Return the failure with the file's name added to `detail`."""
    name = os.path.basename(place.path)
    named = failure.why if failure.why.startswith(f"{name}: ") else f"{name}: {failure.why}"
    return NoAnswer(failure.reason, **{**failure.fields, "detail": named})


def with_host(place: Place, record: HostRecord) -> HostRecord:
    """Name the host after the record's file if the record was made from standard input."""
    if record.host == STDIN and place.path.endswith(RECORD_SUFFIXES):
        return record._replace(host=host_of_record(place.path))
    return record


def trace_of(host: str, path: str, context: Context) -> dict[str, str] | None:
    """Return the arguments with which other modes read the trace of a host; None if there is no
    trace. `path` is the file that the host was read from: a trace, or a record next to it."""
    request = context.request
    for profile in request.profiles:
        if profile == STDIN or profile in request.in_memory:
            continue
        with suppress(NoAnswer):
            for name, file in find_files(profile, context.with_own_notes()).items():
                if file == path and not path.endswith(RECORD_SUFFIXES):
                    # Only in a merged file, the names of the host and the file can differ.
                    inside = host.removeprefix(f"{name}:")
                    is_merged = inside != name
                    return {"profile": profile, "host": f"{name}:{inside}" if is_merged else name}
                is_beside = os.path.dirname(file) == os.path.dirname(path) and file != path
                if is_beside and host == name == host_of_record(path):
                    return {"profile": profile, "host": name}
    return None


def size_of(place: Place, context: Context) -> int:
    """Return the file's size in bytes; 0 if the file is missing or is standard input."""
    data = context.request.bytes_of(place.path)
    if data is not None:
        return len(data)
    try:
        return os.stat(place.path).st_size
    except OSError:
        return 0


def ready_record(path: str, context: Context) -> HostRecord | None:
    """Read a record from a file or from memory; return None if the input is a trace."""
    given = context.request.in_memory.get(path)
    if given is None:
        return decode(content_of(path)) if path.endswith(RECORD_SUFFIXES) else None
    if not isinstance(given, bytes):
        return record_of(given)
    is_gzipped = given.startswith(GZIP_MAGIC)
    return decode(given) if begins_record(given[:N_HEAD], is_gzipped=is_gzipped) else None


@contextmanager
def refusals_of_records(path: str) -> Iterator[None]:
    """Convert I/O, memory and format errors while reading a record to NoAnswer."""
    try:
        yield
    except (OSError, MemoryError) as error:
        raise NoAnswer(
            "unreadable_record", detail=unreadable(path, error).fields["detail"]
        ) from None
    except UnreadableRecord as error:
        detail = f"{os.path.basename(path)}: {error}"
        raise NoAnswer("unreadable_record", detail=detail) from None


def content_of(path: str) -> bytes:
    # Open in non-blocking mode: opening a FIFO that has no writer would hang.
    with open(path, "rb", opener=lambda at, flags: os.open(at, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UnreadableRecord("byte 0: not a regular file; copy its content to a regular file")
        return file.read()
