"""Find the compiled programs in a capture, and look them up by program id.

Listing programs does not read their contents. A program may be missing: the profiler has an option
to omit programs, and a program that was compiled elsewhere is not in the file. Unreadable values of
a program are None, and a note reports the damage.
"""

from __future__ import annotations

import re

from _proto.errors import Damage
from _proto.trace.trace import Attachment, Trace
from _proto.trace.wire import LENGTH, fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _proto.hlo.program import Program

# Names of the stat that contains the program; libtpu 0.0.37 writes the second name.
_STATS = ("Hlo Proto", "HLO Proto")
_ID_STAT = "program_id"
_ID_IN_NAME = re.compile(r"\((-?[0-9]{1,20})\)\Z")
# Fields of HloProto.
_MODULE, _BUFFERS = 1, 3
_UNSIGNED = 1 << 64


class _Entry:
    """An entry in a plane of programs; `span` is the position of its HloProto in the file."""

    def __init__(self, name: str, span: tuple[int, int] | None) -> None:
        self.name = name
        self.span = span
        self.program: Program | None = None
        self.is_read = False
        self.has_note = False


class Programs:
    """A trace's programs, which can be read only while the trace is open.

    One note is added to `notes` for each program that is wholly or partly unreadable. The methods
    of this class, and of the programs that it returns, never raise Damage.
    """

    def __init__(
        self, trace: Trace, device: str | None = None, notes: list[str] | None = None
    ) -> None:
        self.notes = [] if notes is None else notes
        # False if anything was unreadable.
        self.is_intact = True
        self._trace = trace
        self._entries: dict[int, _Entry] = {}
        damage: list[Damage] = []
        # In merged captures, several ranks often have equal programs. The first one is used, and
        # the planes of the device's own rank come first.
        for plane in trace.program_planes(device):
            of_plane: dict[int, _Entry] = {}
            for attachment in trace.attachments(plane, _STATS, _ID_STAT, damage):
                program_id = _id_of(attachment)
                # An entry without HLO must not replace an entry that has HLO and the same id.
                if attachment.span or program_id not in of_plane or not of_plane[program_id].span:
                    of_plane[program_id] = _Entry(attachment.name, attachment.span)
            for program_id, entry in of_plane.items():
                if not self.has_hlo(program_id):
                    self._entries[program_id] = entry
        if damage:
            more = f" (and {len(damage) - 1} more)" if len(damage) > 1 else ""
            self._note(f"{self._trace.in_file(damage[0])}{more}")

    @property
    def names(self) -> dict[int, str]:
        """Map unsigned program ids to names; include programs without HLO."""
        return {program_id: entry.name for program_id, entry in self._entries.items()}

    @property
    def sizes(self) -> dict[int, int]:
        """Map unsigned program ids to the size of the HLO in bytes."""
        spans = {program_id: entry.span for program_id, entry in self._entries.items()}
        return {program_id: span[1] - span[0] for program_id, span in spans.items() if span}

    def has_hlo(self, program_id: int) -> bool:
        """Return whether the file contains the program's HLO, readable or not."""
        entry = self._entries.get(program_id % _UNSIGNED)
        return entry is not None and entry.span is not None

    def program(self, program_id: int) -> Program | None:
        """Return the program with the given signed or unsigned id. The first call reads the
        program."""
        entry = self._entries.get(program_id % _UNSIGNED)
        if entry is None or entry.span is None:
            return None
        if not entry.is_read:
            entry.is_read = True
            try:
                entry.program = self._read(entry, *entry.span)
            except (Damage, OSError) as error:
                self._note_error(entry, error)
        return entry.program

    def _read(self, entry: _Entry, start: int, end: int) -> Program:
        # Import late, because captures without programs do not need the module.
        from _proto.hlo.program import Program

        parts: dict[int, tuple[int, int]] = {}

        def read_buffer_assignment() -> bytes | None:
            try:
                return part(*parts[_BUFFERS]) if _BUFFERS in parts else None
            except (Damage, OSError) as error:
                self._note_error(entry, error)
                return None

        def part(first: int, last: int) -> bytes:
            return self._trace.read(first, last - first)

        for _, number, wire, value, stop in fields(self._trace, start, end):
            if wire == LENGTH:
                parts[number] = value, stop
        if _MODULE not in parts:
            raise Damage(start, "the HloProto has no module")
        return Program(
            part(*parts[_MODULE]),
            parts[_MODULE][0],
            read_buffer_assignment,
            lambda what: self._note_once(entry, what),
        )

    def _note_error(self, entry: _Entry, error: Damage | OSError) -> None:
        located = self._trace.in_file(error) if isinstance(error, Damage) else error
        self._note_once(entry, str(located))

    def _note_once(self, entry: _Entry, what: str) -> None:
        if not entry.has_note:
            entry.has_note = True
            self._note(f"{entry.name}: {what}" if entry.name else what)

    def _note(self, what: str) -> None:
        self.is_intact = False
        self.notes.append(
            f"the program's HLO can't be read: {what}; fields that depend on it are null"
        )


def _id_of(entry: Attachment) -> int:
    """Return a program's unsigned id from the entry's stat, else from the end of its name, else
    from its key.

    Keys are ids only in old captures. In later captures, keys are indices; in captures of libtpu
    0.0.37, keys are wrong ids. The stat contains the same program id as the ops.
    """
    if entry.number is not None:
        return entry.number % _UNSIGNED
    in_name = _ID_IN_NAME.search(entry.name)
    return (int(in_name[1]) if in_name else entry.key) % _UNSIGNED
