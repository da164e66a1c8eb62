"""Find traces in folders: each run has its own folder with one file per host."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from _breakdown.pipeline.context import Context

# A function that returns the matching files in a folder, by host.
FilesIn = Callable[[str], dict[str, str]]

# Suffixes of trace files, in order of preference. If a host has several files, the file with the
# first suffix in this list is read.
_SUFFIXES = (".xplane.pb", ".xplane.pb.gz", ".xplane.riegeli")
# Maximum number of runs of a log directory that a note lists.
MOST_RUNS = 8
# Maximum number of subfolders to search for a hint if a folder has no trace.
_N_HINTS = 100


def files_below(profile: str, context: Context, files_in: FilesIn) -> dict[str, str]:
    """Return the matching files in a folder or, if it has none, in its newest run."""
    files = files_in(profile)
    if files:
        return files
    runs = os.path.join(profile, "plugins", "profile")
    return files_of_newest_run(runs if is_folder(runs) else profile, context, files_in)


def folders_nearby(profile: str, context: Context, files_in: FilesIn) -> list[str]:
    """Return the subfolders of `profile` that have matching files, such as the phases of a server
    (`prefill_only`, `decode_only`), or else its parent folder if that has any."""

    def has_files(folder: str) -> bool:
        with suppress(OSError):
            return bool(files_below(folder, context.with_own_notes(), files_in))
        return False

    folders = [os.path.join(profile, name) for name in sorted(os.listdir(profile))[:_N_HINTS]]
    found = list(filter(has_files, filter(os.path.isdir, folders)))
    parent = os.path.join(profile, os.pardir)
    return list(map(os.path.normpath, found or filter(has_files, [parent])))


def is_folder(path: str) -> bool:
    """Return whether a path is a folder. Unlike `os.path.isdir`, raise OSError if access is
    denied."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def files_of_newest_run(folder: str, context: Context, files_in: FilesIn) -> dict[str, str]:
    """Return the matching files of the newest run that has any. The profiler names runs after the
    time, so this is the last name; files can be newer than their run, such as copies."""
    rejected = None
    runs = []
    found: dict[str, str] = {}
    for run in sorted(os.listdir(folder), reverse=True):
        path = os.path.join(folder, run)
        try:
            if not is_folder(path):
                continue
            runs.append(run)
            if not found:
                found = files_in(path)
                newest = run
        except OSError as error:
            if not found:
                context.warn(
                    f"run {run} is skipped, because its folder cannot be listed: {error.strerror}"
                )
                rejected = error
    if found:
        if len(runs) > 1:
            kind = "a trace" if any(map(is_trace, found.values())) else "a record"
            others = [run for run in runs if run != newest]
            more = f" and {len(others) - MOST_RUNS} more" if len(others) > MOST_RUNS else ""
            context.note(
                f"using run {newest}, the last by name with {kind}; the others in {folder}:"
                f" {', '.join(dated(folder, run) for run in others[:MOST_RUNS])}{more}"
            )
    elif rejected is not None:
        raise rejected
    return found


def dated(folder: str, run: str) -> str:
    """Return a run's name, with the time at which its folder was last changed."""
    changed = os.stat(os.path.join(folder, run)).st_mtime
    return f"{run} ({time.strftime('%Y-%m-%d %H:%M', time.localtime(changed))})"


def files_in(folder: str) -> dict[str, str]:
    """Return one trace file per host in a folder, by host."""
    forms: dict[str, list[str]] = {}
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if is_trace(name) and not os.path.isdir(path):
            forms.setdefault(host_of(path), []).append(path)
    return {host: form_to_use(paths) for host, paths in sorted(forms.items())}


def form_to_use(paths: list[str]) -> str:
    """Return the file to read among a host's files: the first nonempty file in order of
    `_SUFFIXES`.

    JAX leaves an empty .xplane.pb if the trace exceeds 2 GiB.
    """
    paths = sorted(paths, key=lambda path: _SUFFIXES.index(suffix_of(path)))
    return next((path for path in paths if not is_empty(path)), paths[0])


def is_empty(path: str) -> bool:
    try:
        return os.stat(path).st_size == 0
    except OSError:
        return False


def notes_on_forms(paths: Iterable[str]) -> Iterator[str]:
    """Yield a note for each ignored file of a host that has several trace files, such as plain and
    gzipped."""
    for path in filter(is_trace, paths):
        stem = path.removesuffix(suffix_of(path))
        others = [stem + suffix for suffix in _SUFFIXES if stem + suffix != path]
        for other in filter(os.path.exists, others):
            why = ", which is empty" if is_empty(other) else ""
            yield f"using {os.path.basename(path)} instead of {os.path.basename(other)}{why}"


def is_trace(path: str) -> bool:
    return path.endswith(_SUFFIXES)


def host_of(path: str) -> str:
    return os.path.basename(path).removesuffix(suffix_of(path))


def suffix_of(path: str) -> str:
    return next((suffix for suffix in _SUFFIXES if path.endswith(suffix)), "")
