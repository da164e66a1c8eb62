"""Find how many bytes a collective moves, and which devices take part.

Bytes and devices are read from the collective's HLO texts and from the program. An asynchronous
collective has two texts: the start op's text has the input, and the done op's text has the result.
Sizes are logical: the number of elements times the element size, excluding tile padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from _breakdown.light import NamedTuple
from _proto.hlo.collectives import Collective
from _proto.hlo.program import Program
from _proto.hlo.replica_groups import Participants, groups_in_text, pairs_in_text
from _proto.hlo.shapes import Array
from _proto.hlo.text import FROM_HOST, TO_HOST, ArrayText, HloText

# Which data counts as the payload: the input, the output, or the smaller of the two. Input and
# output differ in size if a sum has a wider dtype than its operands; devices must send at least the
# smaller one. The payload of other collectives depends on the data and is therefore unknown.
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
# How many times each of n devices sends (n - 1) / n of the payload. In the collectives of `_WHOLE`,
# each device sends the full payload.
_ROUNDS = {"all-gather": 1, "reduce-scatter": 1, "all-reduce": 2, "all-to-all": 1}
_COPIES = (TO_HOST, FROM_HOST)
_WHOLE = ("collective-broadcast", *_COPIES)
_RATIOS = ("all-gather", "reduce-scatter")
_PERMUTE, _IN_PLACE = "collective-permute", ", slice_sizes="
_MOST_BYTES = 1 << 63

_Arrays = Sequence[ArrayText | Array] | None


class _Size(NamedTuple):
    """The total size of several arrays."""

    n_bytes: int
    n_elements: int


class Exchange(NamedTuple):
    """The bytes that one execution moves, and the devices that take part; None if unknown.

    `bus` is the minimum number of bytes that each device must send if all devices send the same
    amount. `who` describes the devices.
    """

    payload: int | None
    bus: Fraction | None
    who: Participants


def exchange_of(
    collective: str,
    op: HloText,
    start: HloText | None,
    *,
    is_done: bool,
    program: Program | None,
    inside: Collective | None,
) -> Exchange:
    """Return the exchange of an op. If the op is a done, `start` is the HLO text of the matching
    start.

    `inside` is the collective that the op contains according to the program.
    """
    # A program can represent a reduce-scatter as an all-reduce and a slice of its result.
    names = (collective, "all-reduce") if collective == "reduce-scatter" else (collective,)
    in_program = inside if inside and inside.opcode in names else None
    sizes = _sizes(collective, op, start, is_done, in_program)
    payload = None
    if (in_program and not is_done) or op.opcode != "fusion" or not _differs(collective, *sizes):
        moved = filter(None, (sizes[side] for side in _PAYLOADS.get(collective, ())))
        payload = min((size.n_bytes for size in moved), default=None)
    who = (
        _written(collective, (op, start), program.n_devices if program else None)
        or (in_program and in_program.who)
        or Participants(_ratio(collective, *sizes), None)
    )
    return Exchange(payload, _bus(collective, payload, who), who)


def _written(
    collective: str, texts: Iterable[HloText | None], n_devices: int | None
) -> Participants | None:
    """Return the participants that the HLO texts contain."""
    for text in filter(None, texts):
        if collective == _PERMUTE:
            who = pairs_in_text(text.attributes)
        else:
            who = groups_in_text(text.attributes, n_devices)
        if who:
            return who
    return None


def _ratio(collective: str, into: _Size | None, out: _Size | None) -> int | None:
    """Derive the number of devices from the ratio of input elements to output elements.

    Compare element counts instead of bytes, because a fusion can cast the data.
    """
    part, whole = (into, out) if collective == "all-gather" else (out, into)
    if collective not in _RATIOS or not part or not whole:
        return None
    n, rest = divmod(whole.n_elements, part.n_elements) if part.n_elements else (0, 0)
    return None if rest else n or None


def _differs(collective: str, into: _Size | None, out: _Size | None) -> bool:
    """Return whether the sizes show that a fusion also changes the data, for example by a cast
    before or after the transfer."""
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
) -> tuple[_Size | None, _Size | None]:
    """Return the sizes of a collective's input and output; None for unknown sizes."""
    into, out = op.operands, op.outputs
    if is_done:
        into = (start.operands if start else []) or op.wrapped_inputs
    elif op.opcode == "recv":
        # Ignore the output of a recv: the data arrives at the matching done.
        out = []
    if collective in _COPIES and op.name.startswith("dynamic-update-slice"):
        # The output is the full array, but only the second operand is transferred.
        out = into[1:2]
    if op.opcode == "fusion":
        # A fusion can contain ops other than the collective. If a fusion has several inputs or
        # outputs, it is therefore unknown which of them belong to the collective.
        into, out = (side if len(side) == 1 else [] for side in (into, out))
    sources: list[tuple[_Arrays, _Arrays]] = [(into, out)]
    # For an asynchronous fusion, the program shows only pieces of the arrays.
    if in_program and not (is_done and op.opcode == "fusion"):
        outputs = in_program.outputs if in_program.opcode == collective else None
        sources.insert(0 if op.opcode == "fusion" else 1, (in_program.inputs, outputs))
    if collective == _PERMUTE and (
        any(text and _IN_PLACE in text.attributes for text in (op, start))
        or any(len(into or ()) > max(1, len(out or ())) for into, out in sources)
    ):
        # This permute writes slices of the input in place, and their sizes are known only at run
        # time.
        return None, None
    return _first(into for into, _ in sources), _first(out for _, out in sources)


def _size(arrays: _Arrays) -> _Size | None:
    """Return the total size of the arrays; None if there are no arrays or any size is unknown."""
    n_bytes = n_elements = 0
    for array in arrays or ():
        if array.n_bytes is None:
            return None
        n_bytes += array.n_bytes
        n_elements += array.n_elements
    return _Size(n_bytes, n_elements) if arrays and n_bytes < _MOST_BYTES else None


def _first(sources: Iterable[_Arrays]) -> _Size | None:
    """Return the size of the first arrays whose size is known."""
    return next((size for arrays in sources if (size := _size(arrays))), None)
