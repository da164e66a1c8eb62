"""The compiled programs that a capture holds beside its trace, by the id that ops name.

Which there are is told without opening one. A program is optional, and so is all that is asked of
it: what can't be read is None, and a note says so. (The profiler can be told to leave programs
out, and a program compiled elsewhere is not in the file.)
"""

from __future__ import annotations

import re

from _proto.errors import Damage
from _proto.record import record
from _proto.trace.trace import Attachment, Trace
from _proto.trace.wire import LENGTH, fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _proto.hlo.module import Program

# The stat with the program; libtpu 0.0.37 writes the latter.
_STATS = ("Hlo Proto", "HLO Proto")
_ID_STAT = "program_id"
_ID_IN_NAME = re.compile(r"\((-?[0-9]{1,20})\)\Z")
# Fields of HloProto.
_MODULE, _BUFFERS = 1, 3
# Protobuf parses no more at once.
_SIZE_LIMIT = (1 << 31) - 1
_IDS = 1 << 64


@record
class _Entry:
    name: str
    # Where the HloProto lies.
    hlo: tuple[int, int] | None
    program: Program | None = None
    is_read: bool = False
    has_note: bool = False


class Programs:
    """The programs of a trace, to be asked as long as the trace is open.

    `notes` gets one for each program that can't be read, in whole or in part. Nothing that is
    asked here or of a program raises Damage.
    """

    def __init__(
        self, trace: Trace, device: str | None = None, notes: list[str] | None = None
    ) -> None:
        self.notes = [] if notes is None else notes
        self._trace = trace
        self._entries: dict[int, _Entry] = {}
        damage: list[Damage] = []
        # The ranks of a merged capture often have the same programs; the device's own come first.
        for plane in trace.program_planes(device):
            of_plane: dict[int, _Entry] = {}
            for each in trace.attachments(plane, _STATS, _ID_STAT, damage):
                program_id = _id_of(each)
                # An entry without a program must not hide a program of the same id.
                if each.span or program_id not in of_plane or not of_plane[program_id].hlo:
                    of_plane[program_id] = _Entry(each.name, each.span)
            for program_id, entry in of_plane.items():
                if not self.has_hlo(program_id):
                    self._entries[program_id] = entry
        if damage:
            more = f" (and {len(damage) - 1} more)" if len(damage) > 1 else ""
            self._note(f"{self._trace.in_file(damage[0])}{more}")

    @property
    def names(self) -> dict[int, str]:
        """What there is, by id, unsigned: programs, and entries of other kinds without HLO."""
        return {program_id: entry.name for program_id, entry in self._entries.items()}

    @property
    def sizes(self) -> dict[int, int]:
        """How many bytes the HLO of those takes that have it, by id, unsigned."""
        spans = {program_id: entry.hlo for program_id, entry in self._entries.items()}
        return {program_id: span[1] - span[0] for program_id, span in spans.items() if span}

    def has_hlo(self, program_id: int) -> bool:
        """Whether the program's HLO is there; whether it can be read is another question."""
        entry = self._entries.get(program_id % _IDS)
        return entry is not None and entry.hlo is not None

    def program(self, program_id: int) -> Program | None:
        """The program of that id, of either sign; it is read when first asked for."""
        entry = self._entries.get(program_id % _IDS)
        if entry is None or entry.hlo is None:
            return None
        if not entry.is_read:
            entry.is_read = True
            try:
                entry.program = self._read(entry, *entry.hlo)
            except (Damage, OSError) as error:
                self._note_once(entry, self._said_of(error))
        return entry.program

    def _read(self, entry: _Entry, start: int, end: int) -> Program:
        from _proto.hlo.module import Program

        parts: dict[int, tuple[int, int]] = {}

        def read_buffers() -> bytes | None:
            try:
                return self._part(*parts[_BUFFERS]) if _BUFFERS in parts else None
            except (Damage, OSError) as error:
                self._note_once(entry, self._said_of(error))
                return None

        for at, number, wire, value, stop in fields(self._trace, start, end):
            if number in (_MODULE, _BUFFERS):
                if wire != LENGTH or number in parts:
                    raise Damage(at, f"field {number} of the HloProto is no message, or a second")
                parts[number] = value, stop
        if _MODULE not in parts:
            raise Damage(start, "there is no module in the HloProto")
        return Program(
            self._part(*parts[_MODULE]),
            parts[_MODULE][0],
            read_buffers,
            lambda what: self._note_once(entry, what),
        )

    def _part(self, start: int, end: int) -> bytes:
        if end - start > _SIZE_LIMIT:
            raise Damage(start, f"{end - start} bytes are more than a message can have")
        return self._trace.take(start, end)

    def _said_of(self, error: Damage | OSError) -> str:
        return str(self._trace.in_file(error) if isinstance(error, Damage) else error)

    def _note_once(self, entry: _Entry, what: str) -> None:
        if not entry.has_note:
            entry.has_note = True
            self._note(f"{entry.name}: {what}" if entry.name else what)

    def _note(self, what: str) -> None:
        self.notes.append(f"the program's HLO can't be read: {what}; answered without it")


def _id_of(entry: Attachment) -> int:
    """Return a program's id, unsigned: the entry's stat, else the end of its name, else its key.

    Where they disagree the first of these is right. Keys are ids in old captures only: later they
    are indices, and in those of libtpu 0.0.37 wrong ids. The stat is as exact as the name, and
    newer; it is also what ops carry.
    """
    if entry.number is not None:
        return entry.number % _IDS
    in_name = _ID_IN_NAME.search(entry.name)
    return (int(in_name[1]) if in_name else entry.key) % _IDS
