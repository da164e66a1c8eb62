"""Find the trace files that a path refers to, and open the trace of one host (the stage load)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

from _breakdown.light import NamedTuple
from _breakdown.pipeline import folders
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.folders import (
    FilesIn,
    files_below,
    folders_nearby,
    host_of,
    is_folder,
    notes_on_forms,
)
from _breakdown.pipeline.no_answer import (
    DEVICE_NOT_FOUND,
    MISSING_DEPENDENCY,
    NO_PROTOBUF,
    UNREADABLE,
    NoAnswer,
    no_device,
    unreadable,
)
from _proto.errors import Damage, MissingPackage, NoProtobuf
from _proto.trace import STDIN, open_contents, open_trace
from _proto.trace.ranks import TPU_RE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _proto.trace.trace import Contents, Trace


class Place(NamedTuple):
    """A trace file, and the name or number of the requested host in it."""

    path: str
    host: str | None = None


def find_files(
    profile: str,
    context: Context,
    files_in: FilesIn | None = None,
    missing: str = "no .xplane.pb file",
) -> dict[str, str]:
    """Return the files that a path refers to, by host; add a note that names the run."""
    files_in = files_in or folders.files_in
    if profile == STDIN or profile in context.request.in_memory:
        return {profile: profile}
    try:
        if not is_folder(profile):
            os.stat(profile)
            return {host_of(profile): profile}
        files = files_below(profile, context, files_in)
        if files:
            context.note(*notes_on_forms(files.values()))
            return files
        near = folders_nearby(profile, context, files_in)
    except (FileNotFoundError, NotADirectoryError):
        detail = f"{profile} does not exist; check the path"
        if re.match(r"[A-Za-z][A-Za-z0-9+.\-]+:/", profile):
            detail = f"{profile} is a URL; copy the file to a local path, or pipe it in and pass -"
        raise NoAnswer("no_such_path", detail=detail) from None
    except (OSError, ValueError) as error:
        raise unreadable(profile, error) from None
    detail = f"{missing} in {profile}, in its runs or in its plugins/profile"
    if len(near) == 1:
        detail += f"; pass {near[0]}, which has such a file"
    elif near:
        detail += f"; pass one of its folders that have such files: {', '.join(near)}"
    raise NoAnswer("no_xplane_pb", detail=detail)


def of_host(files: dict[str, str], host: str | None) -> list[Place]:
    """Return the files that can contain the requested host. `host` is a file's name, or FILE:HOST
    for one of several hosts in a file.

    If there is only one file, `host` can also be just HOST.
    """
    if host is None:
        return [Place(path) for path in files.values()]
    if host in files:
        return [Place(files[host])]
    for name, path in files.items():
        if host.startswith(f"{name}:"):
            return [Place(path, host.removeprefix(f"{name}:"))]
    if len(files) == 1:
        return [Place(path, host) for path in files.values()]
    raise host_not_found(host, list(files))


def host_not_found(host: str, available: list[str]) -> NoAnswer:
    return NoAnswer(
        "host_not_found", detail=f"no host is named {host!r}", available_hosts=available
    )


class Candidates:
    """The files that can contain the answer, to be tried one by one:

    for place in candidates.places:
        with candidates.attempt(place):
            ...
            return answer
    raise candidates.no_answer()
    """

    def __init__(self, files: dict[str, str], host: str | None, context: Context) -> None:
        self.places = of_host(files, host)
        self._context = context
        self._failures: list[NoAnswer] = []
        self._without_device: list[NoAnswer] = []

    @contextmanager
    def attempt(self, place: Place) -> Iterator[None]:
        """Suppress the exception if the file is unreadable or lacks the device, so that the caller
        can try the next file."""
        context = self._context
        lengths = len(context.warnings), len(context.provenance)
        if len(self.places) > 1:
            name = os.path.basename(place.path)
            context.note(f"using {name}, one of {len(self.places)} files (--host selects another)")
        try:
            yield
        except NoAnswer as failure:
            # A failure with the field `side` is about the baseline, not about the file at `place`.
            if failure.reason not in (*UNREADABLE, DEVICE_NOT_FOUND) or "side" in failure.fields:
                raise
            del context.warnings[lengths[0] :], context.provenance[lengths[1] :]
            if failure.reason == DEVICE_NOT_FOUND:
                self._without_device.append(failure)
                return
            self._failures.append(failure)
            if len(self.places) > 1:
                context.warn(
                    f"a file is skipped, because it cannot be read: {failure.fields['detail']}"
                )

    def no_answer(self) -> NoAnswer:
        """Return the exception that explains why no file contains the answer."""
        if len(self._without_device) == 1:
            return self._without_device[0]
        if self._without_device:
            devices = (failure.fields["available_devices"] for failure in self._without_device)
            return no_device(chain.from_iterable(devices))
        # Prefer a failure that the user can fix by installing a package.
        return min(self._failures, key=lambda failure: failure.reason != MISSING_DEPENDENCY)


@contextmanager
def opened(place: Place, device: str | None, context: Context) -> Iterator[Trace]:
    """Open the trace of one host. The trace is read on demand, so the caller can use it only inside
    the `with` block."""
    with opened_hosts(place.path, context) as hosts:
        trace = host_among(hosts, place, device)
        context.warn(*trace.notes)
        context.note(*merge_notes(trace, device))
        yield trace


@contextmanager
def opened_hosts(path: str, context: Context) -> Iterator[list[Trace]]:
    """Open the traces of all hosts in a file. Only a merged file has several hosts."""
    data = context.request.bytes_of(path)
    with no_answer_if_unreadable(path), open_trace(path, context.on_progress, data) as hosts:
        yield hosts


def host_among(hosts: list[Trace], place: Place, device: str | None) -> Trace:
    """Return the requested host or, by default, the first host that has the device."""
    if place.host is not None:
        for trace in hosts:
            if len(hosts) > 1 and place.host in trace.host.names:
                return trace
        alone = {host_of(place.path): place.path}
        raise host_not_found(place.host, hosts_known(hosts[0], place, alone))
    for trace in hosts:
        if device is None or trace.device_named(device):
            return trace
    if len(hosts) > 1:
        raise no_device(name for trace in hosts for name in trace.plane_names)
    return hosts[0]


def hosts_known(trace: Trace, place: Place, files: dict[str, str]) -> list[str]:
    """Return the values that --host accepts: file names, or host names in a file with several
    hosts."""
    labels = trace.host.labels
    if not trace.host.is_one_of_several:
        return list(files)
    if len(files) == 1:
        return labels
    known = []
    for host, path in files.items():
        known += [f"{host}:{label}" for label in labels] if path == place.path else [host]
    return known


def merge_notes(trace: Trace, device: str | None) -> list[str]:
    """Return a note about the hosts and ranks in a merged file, or an empty list for other
    files."""
    merged = []
    if trace.host.is_one_of_several:
        labels = trace.host.labels
        merged.append(
            f"{len(labels)} hosts ({', '.join(labels)}; using {trace.host.label}, --host selects"
            " another)"
        )
    if len(trace.ranks) > 1:
        numbers = [
            f"{rank.number}: {', '.join(filter(TPU_RE.match, rank.names)) or '?'}"
            for rank in trace.ranks
        ]
        of_device = ""
        plane = trace.device_named(device) if device else None
        if plane:
            rank = trace.rank_of(plane)
            of_device = f"; {plane} belongs to rank {rank.number if rank else '?'}"
        merged.append(f"{len(trace.ranks)} ranks ({'; '.join(numbers)}){of_device}")
    return [f"this file merges {' and '.join(merged)}"] if merged else []


@contextmanager
def opened_contents(path: str, context: Context) -> Iterator[Contents]:
    """List the planes of a file, up to the first damage."""
    data = context.request.bytes_of(path)
    with no_answer_if_unreadable(path), open_contents(path, context.on_progress, data) as contents:
        yield contents


@contextmanager
def no_answer_if_unreadable(path: str) -> Iterator[None]:
    """If a file cannot be read, convert the error to NoAnswer."""
    try:
        yield
    except OverflowError:
        damage = Damage(0, "a time in the trace does not fit into 64 bits")
        raise unreadable(path, damage) from None
    except (Damage, OSError, MemoryError) as error:
        raise unreadable(path, error) from None
    except MissingPackage as error:
        detail = f"{os.path.basename(path)}: {error}"
        raise NoAnswer(MISSING_DEPENDENCY, detail=detail) from None
    except NoProtobuf as error:
        advice = f"{error}; protobuf 4.21.1 or newer is required: pip install 'protobuf>=4.21.1'"
        raise NoAnswer(NO_PROTOBUF, detail=advice) from None
