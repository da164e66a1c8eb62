"""What a collective moves and among whom, by its HLO texts, and by its program where these are
silent.

Of an asynchronous one the texts of both ends count: its start takes the input, its done gives the
result. Sizes are logical: dims times the size of an element, without the padding of tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from _proto.hlo.replica_groups import Participants, groups_in_text, pairs_in_text
from _proto.hlo.shapes import Array as ProgramArray
from _proto.hlo.text import FROM_HOST, TO_HOST, Array, HloText

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from _output.fields.comm import GroupsFrom
    from _proto.hlo.collectives import Collective
    from _proto.hlo.program import Program

# The sources that the participants are known from.
TEXT: Final = "text"
PROGRAM: Final = "program"
SHAPES: Final = "shapes"
# What counts as the payload, what goes in or what comes out. Both are equal, unless a sum is of a
# wider dtype than its operands: then the smaller, which is the least that has to be sent. What
# isn't here moves as much as only its run knows.
_IN, _OUT = 0, 1
_PAYLOADS = {
    "all-gather": (_OUT,),
    "reduce-scatter": (_IN,),
    "all-reduce": (_OUT, _IN),
    "all-to-all": (_OUT, _IN),
    "collective-permute": (_IN, _OUT),
    "collective-broadcast": (_IN, _OUT),
    "send": (_IN,),
    "recv": (_OUT,),
    TO_HOST: (_OUT,),
    FROM_HOST: (_OUT,),
}
# How many times each of n devices has to send (n - 1) / n of it; or once, but all of it.
_ROUNDS = {"all-gather": 1, "reduce-scatter": 1, "all-reduce": 2, "all-to-all": 1}
_COPIES = (TO_HOST, FROM_HOST)
_WHOLE = ("collective-broadcast", *_COPIES)
_RATIOS = ("all-gather", "reduce-scatter")
_PERMUTE, _IN_PLACE = "collective-permute", ", slice_sizes="
_MOST_BYTES = 1 << 63

_Arrays = Sequence[Array | ProgramArray] | None


class _Size(NamedTuple):
    """How much arrays hold together."""

    n_bytes: int
    n_elements: int


class Exchange(NamedTuple):
    """What one execution moves, in bytes, and among whom; what isn't known is None.

    `bus` is what each device has to send at the least, where all send as much. `who_is` says what
    tells of `who`.
    """

    payload: int | None
    bus: Fraction | None
    who: Participants
    who_is: GroupsFrom | None


class Exchanges:
    """Looks at the collectives of a device."""

    def __init__(self) -> None:
        # Many ops may share a long text or list: who takes part by the former, the size of the
        # latter by its id. Each is kept, so that its id stays its own.
        self._who: dict[tuple[HloText, bool], Participants | None] = {}
        self._sizes: dict[int, tuple[_Arrays, _Size | None]] = {}

    def of(
        self,
        collective: str,
        op: HloText,
        start: HloText | None,
        *,
        is_done: bool,
        program: Program | None,
        inside: Collective | None,
    ) -> Exchange:
        """That of an op; if it is the end of another, with the text of its start.

        `inside` is the collective that its program finds in it.
        """
        # What sums up and scatters may be written as an all-reduce of which a part is taken.
        names = (collective, "all-reduce") if collective == "reduce-scatter" else (collective,)
        told = inside if inside and inside.opcode in names else None
        sizes = _sizes(collective, op, start, is_done, told, self._size)
        payload = None
        if (told and not is_done) or op.opcode != "fusion" or not _differs(collective, *sizes):
            moved = filter(None, (sizes[side] for side in _PAYLOADS.get(collective, ())))
            payload = min((size.n_bytes for size in moved), default=None)
        n_devices = program.n_devices if program else None
        who, who_is = (
            self._written(collective, (op, start), n_devices)
            or (told and told.who and (told.who, PROGRAM))
            or (Participants(_ratio(collective, *sizes), None), SHAPES)
        )
        is_known = who.size is not None or who.label is not None
        return Exchange(payload, _bus(collective, payload, who), who, who_is if is_known else None)

    def _written(
        self, collective: str, texts: Iterable[HloText | None], n_devices: int | None
    ) -> tuple[Participants, GroupsFrom] | None:
        for text in filter(None, texts):
            key = text, collective == _PERMUTE
            if key not in self._who:
                self._who[key] = (
                    pairs_in_text(text.attributes)
                    if collective == _PERMUTE
                    else groups_in_text(text.attributes, n_devices)
                )
            if who := self._who[key]:
                return who, TEXT
        return None

    def _size(self, arrays: _Arrays) -> _Size | None:
        if id(arrays) not in self._sizes:
            self._sizes[id(arrays)] = arrays, _size(arrays)
        return self._sizes[id(arrays)][1]


def _ratio(collective: str, into: _Size | None, out: _Size | None) -> int | None:
    """How many take part, by how many more elements one side has: what is gathered or summed up
    may be cast on the way."""
    part, whole = (into, out) if collective == "all-gather" else (out, into)
    if collective not in _RATIOS or not part or not whole:
        return None
    n, rest = divmod(whole.n_elements, part.n_elements) if part.n_elements else (0, 0)
    return None if rest else n or None


def _differs(collective: str, into: _Size | None, out: _Size | None) -> bool:
    """Whether a fusion does more to what it moves, such as a cast: before or after, who knows."""
    if not into or not out:
        return False
    if len(_PAYLOADS.get(collective, ())) > 1:
        return into != out
    return into.n_bytes * out.n_elements != out.n_bytes * into.n_elements


def _bus(collective: str, payload: int | None, who: Participants) -> Fraction | None:
    if payload is None or collective in _WHOLE:
        return None if payload is None else Fraction(payload)
    rounds = _ROUNDS.get(collective)
    return Fraction(payload * rounds * (who.size - 1), who.size) if rounds and who.size else None


def _sizes(
    collective: str,
    op: HloText,
    start: HloText | None,
    is_done: bool,
    told: Collective | None,
    size: Callable[[_Arrays], _Size | None],
) -> tuple[_Size | None, _Size | None]:
    """What goes in, and what comes out."""
    into, out = op.operands, op.outputs
    if is_done:
        into = (start.operands if start else []) or op.wrapped_inputs
    elif op.opcode == "recv":
        # Nothing has come yet.
        out = []
    if collective in _COPIES and op.name.startswith("dynamic-update-slice"):
        # It gives back all of what it is written into.
        out = into[1:2]
    if op.opcode == "fusion":
        # Of several arrays some belong to other work. Of one that is asynchronous the program has
        # pieces, of any other the very operands.
        into, out = (side if len(side) == 1 else [] for side in (into, out))
    sources: list[tuple[_Arrays, _Arrays]] = [(into, out)]
    if told and not (is_done and op.opcode == "fusion"):
        in_program = told.inputs, told.outputs if told.opcode == collective else None
        sources.insert(0 if op.opcode == "fusion" else 1, in_program)
    if collective == _PERMUTE and (
        any(text and _IN_PLACE in text.attributes for text in (op, start))
        or any(len(into or ()) > max(1, len(out or ())) for into, out in sources)
    ):
        # Of what goes in, slices are sent, of a size that the run knows, and written into the rest.
        return None, None
    return _first(size(into) for into, _ in sources), _first(size(out) for _, out in sources)


def _size(arrays: _Arrays) -> _Size | None:
    """Of all of them; None where there are none, or that of one isn't known."""
    n_bytes = n_elements = 0
    for array in arrays or ():
        if array.n_bytes is None:
            return None
        n_bytes += array.n_bytes
        n_elements += array.n_elements
    return _Size(n_bytes, n_elements) if arrays and n_bytes < _MOST_BYTES else None


def _first(sizes: Iterable[_Size | None]) -> _Size | None:
    return next((size for size in sizes if size is not None), None)
