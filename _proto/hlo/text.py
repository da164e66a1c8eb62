"""Parse HLO texts of ops: `%name = shape opcode(operands), attributes`.

In a trace, an op's HLO text contains its shapes, opcode and operands. Missing parts are
empty: the text can be cut off, and need not be an instruction.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from math import prod
from typing import Final, Literal

from _breakdown.light import cached_property

DtypeClass = Literal["bf16", "fp8", "int8", "int4", "fp32", "fp16", "other"]

NAME = r"%?(?P<name>[\w.\-]+)"
ARRAY = r"\b(?P<dtype>[a-z][a-z0-9]*)\[(?P<dims>[0-9,<=? ]*)\](?:\{(?P<layout>[^{}]*)\})?"
RESULT_RE = re.compile(rf"\s*(?:ROOT\s+)?{NAME}\s*(?:=\s*|\Z)")
ARRAY_RE = re.compile(ARRAY)
# Skip the name of an operand as a whole; otherwise a part of it could match as an array.
OPERAND_OR_PARENTHESIS_RE = re.compile(rf"({ARRAY})(?: %[\w.\-]+)?|[()]")
OPCODE_RE = re.compile(r"\s*(?P<opcode>[a-z][\w\-]*)\(")
# A layout is `minor_to_major:T(tile)(tile)…S(memory space)`; each part is optional.
# Compiled on use, as few modes read tiles.
TILES = r"T(?P<tiles>(?:\([^()]*\))+)"
MEMORY_SPACE_RE = re.compile(r"S\((?P<space>\d{1,20})\)")
# Arrays in host memory have the layout `…S(5)`.
HOST_MARK = "S(5)"
TARGET_MARK = "custom_call_target"
TARGET_RE = re.compile(r'custom_call_target="(?P<target>[^"]*)"')
ON_SPARSE_CORE = 'async_execution_thread="sparsecore"'
SSA_PART_RE = re.compile(r"\d+|(?:clone|cloned|remat)\d*")
# Names of the two fusions that form an asynchronous collective in programs for v5e and similar
# chips.
ASYNC_COLLECTIVE = "async-collective"
ASYNC_COLLECTIVE_ENDS = ("async-collective-start", "async-collective-done")

# Memory spaces outside the chip; all others are on the chip.
HBM, HOST_MEMORY = 0, 5
# Names of copies to and from host memory, which answers list among the collectives.
TO_HOST, FROM_HOST = "to_host", "from_host"
# The class of all dtypes for which no chip has a peak rate.
OTHER: Final = "other"
DTYPE_CLASSES: dict[str, DtypeClass] = {
    "bf16": "bf16",
    "f16": "fp16",
    "f32": "fp32",
    "s8": "int8",
    "u8": "int8",
    "s4": "int4",
    "u4": "int4",
}
# Types that look like arrays in HLO texts but contain no data.
NO_DATA = ("token", "opaque")


class ArrayText:
    """The shape of an array, parsed from HLO text."""

    def __init__(self, text: str, dtype: str, dims: str, layout: str | None) -> None:
        self.text = text
        self.dtype = dtype
        self.dims = dims
        self.layout = layout

    @property
    def rank(self) -> int:
        return self.dims.count(",") + 1 if self.dims else 0

    @cached_property
    def n_elements(self) -> int:
        """Return the number of elements; a dynamic dimension such as `<=128` counts as its upper
        bound."""
        # Keep only 20 digits, because damaged texts can have numbers with thousands of digits,
        # which Python refuses to convert.
        return prod(int(dim[:20]) for dim in re.findall(r"\d+", self.dims))

    @property
    def n_bytes(self) -> int | None:
        """Return the size without padding, or None for a dynamic size or an unknown dtype."""
        if not {"<", "?"}.isdisjoint(self.dims):
            return None
        return size_of(self.dtype, self.n_elements)

    @cached_property
    def memory_space(self) -> int:
        space = MEMORY_SPACE_RE.search(self.layout or "")
        return int(space["space"]) if space else HBM

    @property
    def is_off_chip(self) -> bool:
        return self.memory_space in (HBM, HOST_MEMORY)

    @cached_property
    def order_and_tiles(self) -> tuple[str, str] | None:
        if self.layout is None:
            return None
        order, _, rest = self.layout.partition(":")
        tiles = re.search(TILES, rest)
        return order, tiles["tiles"] if tiles else ""


class HloText:
    """An HLO text. Tuples are flattened to the list of their arrays.

    Parts of a text are parsed on demand, because a text can have hundreds of operands, which few
    modes need. The class has slots because a step can have many ops.
    """

    __slots__ = ("_operands", "_outputs", "_shape_start", "name", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        result = RESULT_RE.match(text)
        self.name: str = result["name"] if result else ""
        self._shape_start = result.end() if result else len(text)
        self._outputs: tuple[list[ArrayText], int] | None = None
        self._operands: tuple[list[ArrayText], int] | None = None

    @property
    def _outputs_and_end(self) -> tuple[list[ArrayText], int]:
        if self._outputs is None:
            self._outputs = parse_shape(self.text, self._shape_start)
        return self._outputs

    @property
    def _opcode(self) -> re.Match[str] | None:
        return OPCODE_RE.match(self.text, self._outputs_and_end[1])

    @property
    def _operands_and_end(self) -> tuple[list[ArrayText], int]:
        if self._operands is None:
            self._operands = parse_shape(self.text, self._operands_start)
        return self._operands

    @property
    def _operands_start(self) -> int:
        """Return the position of the parenthesis before the operands."""
        opcode = self._opcode
        return opcode.end() - 1 if opcode else len(self.text)

    @property
    def outputs(self) -> list[ArrayText]:
        return self._outputs_and_end[0]

    @property
    def shape(self) -> str:
        """Return the text of the output's shape, including tuples."""
        return self.text[self._shape_start : self._outputs_and_end[1]]

    @property
    def opcode(self) -> str:
        """Return the opcode, or an empty text if the HLO text is only a name."""
        opcode = self._opcode
        return opcode["opcode"] if opcode else ""

    @property
    def operands(self) -> list[ArrayText]:
        return self._operands_and_end[0]

    @property
    def operand_names(self) -> list[str]:
        """Return the names of all operands that have a name."""
        start, end = self._operands_start, self._operands_and_end[1]
        return re.findall(r"%([\w.\-]+)", self.text[start:end])

    @property
    def wrapped_inputs(self) -> list[ArrayText]:
        """Return an asynchronous op's inputs from the text of its done, whose operand has the shape
        `((inputs), output, …)`."""
        start = self._operands_start
        return parse_shape(self.text, start + 2)[0] if self.text.startswith("(((", start) else []

    @property
    def attributes(self) -> str:
        """Return the text after the operands."""
        return self.text[self._operands_and_end[1] :]

    @property
    def on_sparse_core(self) -> bool:
        """Return whether the text says that the op runs on a SparseCore."""
        return ON_SPARSE_CORE in self.attributes

    @property
    def target(self) -> str | None:
        # `target` is read for every op but rarely present, so search for TARGET_MARK first.
        opcode = self._opcode if TARGET_MARK in self.text else None
        if opcode is None or opcode["opcode"] != "custom-call":
            return None
        target = TARGET_RE.search(self.text, opcode.end())
        return target["target"] if target else None

    @property
    def can_name_host_memory(self) -> bool:
        """Return False if no array is in host memory; the text need not be parsed to know it."""
        return HOST_MARK in self.text

    @property
    def base_name(self) -> str:
        """Return the op's name without SSA parts: `fusion` for `fusion.48.clone.3`."""
        return base_name(self.name)

    @property
    def is_on_chip(self) -> bool:
        """Return whether the text contains arrays, all of them in on-chip memory."""
        # If an output is off the chip, the operands are not parsed.
        if any(array.is_off_chip for array in self.outputs):
            return False
        return bool(self.outputs or self.operands) and not any(
            array.is_off_chip for array in self.operands
        )

    @property
    def moved_array(self) -> ArrayText | None:
        """Return the array that the op moves: the first operand, or the source of a copy-done."""
        # The operand of a copy-done is the tuple (destination, source, context). The destination
        # has as many arrays as the output.
        operands = self.operands
        is_done = len(operands) > 1 and self.opcode == "copy-done"
        place = len(self.outputs) if is_done else 0
        return operands[place] if place < len(operands) else None


def base_name(name: str) -> str:
    """Return an op's name without SSA parts."""
    named = ".".join(part for part in name.split(".") if not SSA_PART_RE.fullmatch(part))
    return named or name


def named_after(name: str, others: tuple[str, ...]) -> str | None:
    """Return which of `others` is the base of an op's name: `slice` for `slice-done.10`, but not
    for `slices`."""
    # Do not use regular expressions: compiling four of them takes as long as reading the metadata
    # of 100 ops.
    if not name.startswith(others):
        return None
    # Only a number or another part may follow the base of the name.
    ends = (
        (start, name[len(start) : len(start) + 1]) for start in others if name.startswith(start)
    )
    return next((start for start, end in ends if end in "-_.0123456789"), None)


def parse_shape(text: str, start: int = 0) -> tuple[list[ArrayText], int]:
    """Return the arrays in the array, tuple or operand list that begins at `start`, and the
    position after it.

    Names, commas and comments like `/*index=5*/` between the arrays are skipped.
    """
    if not text.startswith("(", start):
        only = ARRAY_RE.match(text, start)
        if only is None:
            return [], start
        return [array_of(only[0])] * (only[1] not in NO_DATA), only.end()
    arrays = []
    depth = 0
    for token in OPERAND_OR_PARENTHESIS_RE.finditer(text, start):
        if token.lastindex:
            if token[2] not in NO_DATA:
                arrays.append(array_of(token[1]))
        elif token[0] == "(":
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return arrays, token.end()
    return arrays, len(text)


# Cache results, because the ops of a program have few different shapes.
@lru_cache(maxsize=1 << 12)
def array_of(text: str) -> ArrayText:
    parts = ARRAY_RE.match(text)
    assert parts
    return ArrayText(*parts.group(0, 1, 2, 3))


def dtype_class(hlo_dtype: str) -> DtypeClass:
    """Return the class of an HLO dtype, which decides the peak."""
    if hlo_dtype.startswith("f8"):
        return "fp8"
    return DTYPE_CLASSES.get(hlo_dtype, OTHER)


@cache
def bits_of(hlo_dtype: str) -> int | None:
    """Return the number of bits per element, or None for an unknown dtype."""
    if hlo_dtype == "pred":
        return 8
    named = re.match(r"[a-z]+(\d{1,3})(?!\d)", hlo_dtype)
    return int(named[1]) if named else None


def size_of(hlo_dtype: str, n_elements: int) -> int | None:
    """Return the size of packed elements in bytes, or None for an unknown dtype."""
    bits = bits_of(hlo_dtype)
    return None if bits is None else (n_elements * bits + 7) // 8


def main_dtype(arrays: list[ArrayText]) -> str:
    """Return the dtype of the array with the most elements, or of the first one if several are
    equally large."""
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) == 1:
        return dtypes.pop()
    return max(arrays, key=lambda array: array.n_elements).dtype


def dtype_and_layout_change(hlo: HloText) -> tuple[bool | None, bool | None]:
    """Return whether an op changes the dtype, and whether it changes the layout. Both are None if
    an array is missing; the second is None if the layouts cannot be compared."""
    before, after = hlo.moved_array, hlo.outputs[0] if hlo.outputs else None
    if before is None or after is None:
        return None, None
    layouts = before.order_and_tiles, after.order_and_tiles
    comparable = None not in layouts and before.rank == after.rank
    return before.dtype != after.dtype, layouts[0] != layouts[1] if comparable else None
