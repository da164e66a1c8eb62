"""What a run carries through all stages: the request, its notes, and who watches its progress."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from _pipeline.request import Request

    # Called with what is being done, how many bytes are done, and how many there are.
    OnProgress = Callable[[str, int, int], None]


class Context:
    """Holds the request, collects notes for the answer, and passes progress on."""

    def __init__(self, request: Request, on_progress: OnProgress | None = None) -> None:
        self.request = request
        self.notes: list[str] = []
        self.on_progress = on_progress

    def note(self, text: str) -> None:
        self.notes.append(text)

    def with_own_notes(self) -> Context:
        """Return a context for a part of the run that decides itself what becomes of its notes."""
        return Context(self.request, self.on_progress)
