"""Carry the request, the notes and the progress callback of a run through all stages of the
pipeline."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    # The callback receives the current activity, how much is done, and the total (0 if unknown),
    # in bytes or other units.
    OnProgress = Callable[[str, int, int], None]

# Version of the printed fields. The major number changes when a field is removed or when a field's
# meaning or type changes; the minor number changes when a field is added.
SCHEMA_VERSION: Final = "3.1"
DEVICE = "/device:TPU:0"


def forms_of_device(name: str) -> list[str]:
    """Return the names of planes that a value of --device can mean: a plane of that name, or the
    TPU with that number."""
    number = name.removeprefix("TPU:")
    return [name, f"/device:TPU:{number}"] if number.isdecimal() else [name]


class Request(NamedTuple):
    """The parsed command line."""

    profile: str
    mode: str
    device: str | None
    host: str | None
    # Output format; `line` is the one line that the mode `page` prints on a terminal.
    form: str
    mode_options: dict[str, Any]
    # The words of the command line.
    words: Sequence[str] = ()
    # Options of the formats text and Markdown: `--all` also lists small rows; `--no-merge` lists
    # ops separately whose names differ only in numbers.
    shows_all: bool = False
    merges: bool = True
    # Value of `--top`, or None if the option is not given.
    top: int | None = None
    # Version of the program.
    version: str = ""
    # Traces and records that a Python program passed as bytes or dicts, by the name that replaces
    # the path.
    in_memory: Mapping[str, bytes | Mapping[str, Any]] = {}
    # Number of processes to use at most, or None to decide by the number of cores.
    processes: int | None = None
    # Further captures, in modes that take several captures.
    more_profiles: Sequence[str] = ()

    @property
    def profiles(self) -> list[str]:
        return [self.profile, *self.more_profiles]

    def bytes_of(self, path: str) -> bytes | None:
        """Return the content of a trace that is in memory, or None if `path` is a file."""
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
    """The request of a run, the notes for the answer, and the progress callback.

    A note says where figures come from: which file, step and peaks were chosen. A warning says what
    is missing, assumed or doubtful.
    """

    def __init__(self, request: Request, on_progress: OnProgress | None = None) -> None:
        self.request = request
        self.on_progress = on_progress
        self.warnings: list[str] = []
        self.provenance: list[str] = []

    @property
    def notes(self) -> list[str]:
        """Return all notes, each once: warnings first."""
        return list(dict.fromkeys((*self.warnings, *self.provenance)))

    def note(self, *texts: str) -> None:
        self.provenance += texts

    def warn(self, *texts: str) -> None:
        self.warnings += texts

    def show_progress(self, activity: str, done: int, total: int) -> None:
        if self.on_progress:
            self.on_progress(activity, done, total)

    def with_own_notes(self) -> Context:
        """Return a copy of the context with an empty list of notes, so that the caller can decide
        which notes to keep."""
        return Context(self.request, self.on_progress)
