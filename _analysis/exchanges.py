"""The bytes that a collective moves and the devices that take part.

Both come from its HLO texts, else from its program. An asynchronous collective has two texts: its
start has the input, its done the result. Sizes are logical: dimensions times the size of an
element, without the padding of tiles.
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
# The sides that count as the payload: the input, the output, or the smaller of both. They differ
# if a sum has a wider dtype than its operands; the smaller one is what has to be sent at least. The
# payload of other collectives depends on data, so it is unknown.
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
# How many times each of n devices sends (n - 1) / n of the payload. Those in _WHOLE send all of it.
_ROUNDS = {"all-gather": 1, "reduce-scatter": 1, "all-reduce": 2, "all-to-all": 1}
_COPIES = (TO_HOST, FROM_HOST)
_WHOLE = ("collective-broadcast", *_COPIES)
_RATIOS = ("all-gather", "reduce-scatter")
_PERMUTE, _IN_PLACE = "collective-permute", ", slice_sizes="
_MOST_BYTES = 1 << 63

_Arrays = Sequence[Array | ProgramArray] | None


class _Size(NamedTuple):
    """The size of arrays together."""

    n_bytes: int
    n_elements: int


class Exchange(NamedTuple):
    """The bytes that one execution moves, and the devices that take part; None if unknown.

    `bus` are the bytes that each device has to send at least, if all devices send the same.
    `who_is` is the source of `who`.
    """

    payload: int | None
    bus: Fraction | None
    who: Participants
    who_is: GroupsFrom | None


class Exchanges:
    """Finds the exchanges of a device's collectives."""

    def __init__(self) -> None:
        # Many ops can share a long text or list. Sizes are kept by the id of the list; the list is
        # kept, too, so that no other object gets its id.
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
        """Return the exchange of an op; `start` is the text of the start that a done waits for.

        `inside` is the collective that the program has inside the op.
        """
        # A reduce-scatter can be written as an all-reduce and a slice of its result.
        names = (collective, "all-reduce") if collective == "reduce-scatter" else (collective,)
        in_program = inside if inside and inside.opcode in names else None
        sizes = _sizes(collective, op, start, is_done, in_program, self._size)
        payload = None
        if (
            (in_program and not is_done)
            or op.opcode != "fusion"
            or not _differs(collective, *sizes)
        ):
            moved = filter(None, (sizes[side] for side in _PAYLOADS.get(collective, ())))
            payload = min((size.n_bytes for size in moved), default=None)
        n_devices = program.n_devices if program else None
        who, who_is = (
            self._written(collective, (op, start), n_devices)
            or (in_program and in_program.who and (in_program.who, PROGRAM))
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
    """Return the number of devices from the ratio of the elements of both sides.

    Bytes do not tell it, since a fusion can cast the data.
    """
    part, whole = (into, out) if collective == "all-gather" else (out, into)
    if collective not in _RATIOS or not part or not whole:
        return None
    n, rest = divmod(whole.n_elements, part.n_elements) if part.n_elements else (0, 0)
    return None if rest else n or None


def _differs(collective: str, into: _Size | None, out: _Size | None) -> bool:
    """Return True if a fusion also changes the data, such as by a cast before or after the move."""
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
    in_program: Collective | None,
    size: Callable[[_Arrays], _Size | None],
) -> tuple[_Size | None, _Size | None]:
    """Return the sizes of the input and the output."""
    into, out = op.operands, op.outputs
    if is_done:
        into = (start.operands if start else []) or op.wrapped_inputs
    elif op.opcode == "recv":
        # A recv has received nothing yet.
        out = []
    if collective in _COPIES and op.name.startswith("dynamic-update-slice"):
        # The output is the whole array; the second operand is the part that is written.
        out = into[1:2]
    if op.opcode == "fusion":
        # If a fusion has several arrays, some belong to other work.
        into, out = (side if len(side) == 1 else [] for side in (into, out))
    sources: list[tuple[_Arrays, _Arrays]] = [(into, out)]
    # Inside an asynchronous fusion the program has only pieces of the arrays.
    if in_program and not (is_done and op.opcode == "fusion"):
        outputs = in_program.outputs if in_program.opcode == collective else None
        sources.insert(0 if op.opcode == "fusion" else 1, (in_program.inputs, outputs))
    if collective == _PERMUTE and (
        any(text and _IN_PLACE in text.attributes for text in (op, start))
        or any(len(into or ()) > max(1, len(out or ())) for into, out in sources)
    ):
        # It sends slices of the input in place; only the run knows their size.
        return None, None
    return _first(size(into) for into, _ in sources), _first(size(out) for _, out in sources)


def _size(arrays: _Arrays) -> _Size | None:
    """Return the sum over all arrays; None if there is none or the size of one is unknown."""
    n_bytes = n_elements = 0
    for array in arrays or ():
        if array.n_bytes is None:
            return None
        n_bytes += array.n_bytes
        n_elements += array.n_elements
    return _Size(n_bytes, n_elements) if arrays and n_bytes < _MOST_BYTES else None


def _first(sizes: Iterable[_Size | None]) -> _Size | None:
    return next((size for size in sizes if size is not None), None)
