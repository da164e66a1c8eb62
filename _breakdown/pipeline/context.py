"""Pass a run's request, notes and progress through all stages of the pipeline."""

from __future__ import annotations

from _breakdown.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Final, TypeVar

    T = TypeVar("T")

    from _breakdown.pipeline.streams import Progress

# Version of the output format. The major number increases when a field is removed or changes its
# meaning or type; the minor number increases when a field is added.
SCHEMA_VERSION: Final = "4.0"
DEVICE = "/device:TPU:0"


def forms_of_device(name: str) -> list[str]:
    """Return the plane names that a --device value can refer to: the value itself and, if it is N
    or TPU:N, the plane of the TPU with this number."""
    number = name.removeprefix("TPU:")
    return [name, f"/device:TPU:{number}"] if number.isdecimal() else [name]


class Request(NamedTuple):
    """The parsed command line."""

    profile: str
    mode: str
    device: str | None
    host: str | None
    # Output format.
    form: str
    mode_options: dict[str, Any]
    # The arguments on the command line.
    words: Sequence[str] = ()
    # With `--all`, text and Markdown also list small rows.
    shows_all: bool = False
    # Value of `--top`, or None if the option is not given.
    top: int | None = None
    # True if the user named a device, so a missing device is an error.
    names_device: bool = False
    # Version of the program.
    version: str = ""
    # Traces and records that a Python program passed as bytes or dicts, by the name used as their
    # path.
    in_memory: Mapping[str, bytes | Mapping[str, Any]] = {}
    # Maximum number of processes, or None to base it on the number of cores.
    processes: int | None = None
    # Captures after the first, in modes that accept several.
    more_profiles: Sequence[str] = ()

    @property
    def profiles(self) -> list[str]:
        return [self.profile, *self.more_profiles]

    def bytes_of(self, path: str) -> bytes | None:
        """Return the bytes of an in-memory trace, or None if `path` is a file."""
        data = self.in_memory.get(path)
        return data if isinstance(data, bytes) else None


class Outcome(NamedTuple):
    """Output and exit status of the process."""

    fields: dict[str, Any]
    status: int
    # Text for stderr.
    complaint: str = ""
    form: str = "json"
    request: Request | None = None


class Context:
    """A run's request, the notes for its answer, and its progress.

    Notes say which file, step and peaks were chosen. Warnings say what is missing, assumed or
    doubtful.
    """

    def __init__(self, request: Request, on_progress: Progress | None = None) -> None:
        self.request = request
        self.on_progress = on_progress
        self.warnings: list[str] = []
        self.provenance: list[str] = []

    @property
    def notes(self) -> list[str]:
        """Return all warnings and then all notes, without duplicates."""
        return list(dict.fromkeys((*self.warnings, *self.provenance)))

    def note(self, *texts: str) -> None:
        self.provenance += texts

    def warn(self, *texts: str) -> None:
        self.warnings += texts

    def show_progress(self, activity: str, done: int, total: int) -> None:
        if self.on_progress:
            self.on_progress(activity, done, total)

    def doing(self, activity: str, i: int, n: int, work: Callable[[], T]) -> T:
        """Return what `work` returns; progress counts it as part `i` of a work with `n` parts."""
        progress = self.on_progress
        has_begun = progress is not None and progress.begin(activity, i, n)
        try:
            return work()
        finally:
            if progress and has_begun:
                progress.end()

    def with_own_notes(self) -> Context:
        """Return a copy of the context without notes, so that the caller can choose which new notes
        to keep."""
        return Context(self.request, self.on_progress)
