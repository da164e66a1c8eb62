"""The grammar of HLO texts: `%name = shape opcode(operands), attributes`.

An op's text is what a trace tells of its shapes, opcode and operands. It is taken apart as far
as somebody asks, and as far as it is one: of any other text all parts are empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, Literal

    DtypeClass = Literal["bf16", "fp8", "fp32", "fp16", "other"]

NAME = r"%?(?P<name>[\w.\-]+)"
ARRAY = r"\b(?P<dtype>[a-z][a-z0-9]*)\[(?P<dims>[0-9,<=? ]*)\](?:\{(?P<layout>[^{}]*)\})?"
OPCODE = r"\s*(?P<opcode>[a-z][\w\-]*)\("
# A layout is `minor_to_major:T(tile)(tile)…S(memory space)`, all of it optional.
TILES = r"T(?P<tiles>(?:\([^()]*\))+)"
MEMORY_SPACE = r"S\((?P<space>\d+)\)"
TARGET = r'custom_call_target="(?P<target>[^"]*)"'
ON_SPARSE_CORE = 'async_execution_thread="sparsecore"'

RESULT_RE = re.compile(rf"\s*(?:ROOT\s+)?{NAME}\s*(?:=\s*|\Z)")
ARRAY_RE = re.compile(ARRAY)
# An operand's name is passed over at once: else each of its letters could begin an array.
OPERAND_OR_PARENTHESIS_RE = re.compile(rf"({ARRAY})(?: %[\w.\-]+)?|[()]")
OPCODE_RE = re.compile(OPCODE)
TILES_RE = re.compile(TILES)
MEMORY_SPACE_RE = re.compile(MEMORY_SPACE)
TARGET_MARK = "custom_call_target"
# v5e and its like write an asynchronous collective as a pair of fusions, told by their names.
ASYNC_COLLECTIVE = "async-collective"
ASYNC_COLLECTIVE_ENDS = ("async-collective-start", "async-collective-done")
TARGET_RE = re.compile(TARGET)
OPERAND_NAME_RE = re.compile(r"%([\w.\-]+)")
BITS_RE = re.compile(r"[a-z]+(\d{1,3})(?!\d)")
SSA_PART_RE = re.compile(r"\d+|(?:clone|cloned|remat)\d*")

# Elements: more than any array has.
ENDLESS = 1 << 128
# Of memory spaces: any other is on the chip.
HBM, HOST_MEMORY = 0, 5
# What copies between the two are called, beside the collectives.
TO_HOST, FROM_HOST = "to_host", "from_host"
# The dtypes without a peak of their own.
OTHER: Final = "other"
DTYPE_CLASSES: dict[str, DtypeClass] = {"bf16": "bf16", "f16": "fp16", "f32": "fp32"}
# Shaped like arrays, but nothing is in them.
NO_DATA = ("token", "opaque")


class Array:
    """The shape of an array, as written and taken apart."""

    __slots__ = ("dims", "dtype", "layout", "text")

    def __init__(self, text: str, dtype: str, dims: str, layout: str | None) -> None:
        self.text = text
        self.dtype = dtype
        self.dims = dims
        self.layout = layout

    def __repr__(self) -> str:
        return f"Array({self.text!r})"

    @property
    def rank(self) -> int:
        return self.dims.count(",") + 1 if self.dims else 0

    @property
    def n_elements(self) -> int:
        # A dynamic dimension, `<=128`, counts with its bound.
        # Python reads no number of thousands of digits, nor need it: the text is nonsense then.
        dims = [int(dim) if len(dim) < 20 else 1 << 64 for dim in re.findall(r"\d+", self.dims)]
        if 0 in dims:
            return 0
        n_elements = 1
        for dim in dims:
            n_elements *= dim
            if n_elements >= ENDLESS:
                return ENDLESS
        return n_elements

    @property
    def n_bytes(self) -> int | None:
        """Of all elements, without padding; None where that can't be told, as of a dynamic size."""
        n_elements = self.n_elements
        if n_elements >= ENDLESS or not {"<", "?"}.isdisjoint(self.dims):
            return None
        return size_of(self.dtype, n_elements)

    @property
    def memory_space(self) -> int:
        space = MEMORY_SPACE_RE.search(self.layout or "")
        return int(space["space"][:20]) if space else HBM

    def order_and_tiles(self) -> tuple[str, str] | None:
        if self.layout is None:
            return None
        order, _, rest = self.layout.partition(":")
        tiles = TILES_RE.search(rest)
        return order, tiles["tiles"] if tiles else ""


class HloText:
    """What an HLO text says. Tuples are flattened to their arrays, in order."""

    __slots__ = (
        *("_opcode", "_operands", "_operands_end", "_outputs", "_shape_end", "_shape_start"),
        *("name", "text"),
    )

    def __init__(self, text: str) -> None:
        self.text = text
        result = RESULT_RE.match(text)
        self.name: str = result["name"] if result else ""
        self._shape_start = result.end() if result else len(text)
        # Parsed when first asked for: there can be hundreds of operands, and few modes ask.
        self._shape_end = -1
        self._outputs: list[Array] = []
        self._opcode: re.Match[str] | None = None
        self._operands: list[Array] = []
        self._operands_end = -1

    def __repr__(self) -> str:
        return f"HloText({self.text!r})"

    def _parse_result(self) -> None:
        if self._shape_end < 0:
            self._outputs, self._shape_end = parse_shape(self.text, self._shape_start)
            self._opcode = OPCODE_RE.match(self.text, self._shape_end)

    @property
    def outputs(self) -> list[Array]:
        self._parse_result()
        return self._outputs

    @property
    def shape(self) -> str:
        """The text of the output's shape, tuples whole."""
        self._parse_result()
        return self.text[self._shape_start : self._shape_end]

    @property
    def opcode(self) -> str:
        """Empty where the text is no more than a name."""
        self._parse_result()
        return self._opcode["opcode"] if self._opcode else ""

    def _parse_operands(self) -> None:
        if self._operands_end < 0:
            self._operands, self._operands_end = parse_shape(self.text, self._operands_start)

    @property
    def _operands_start(self) -> int:
        """Where their parenthesis opens."""
        self._parse_result()
        return self._opcode.end() - 1 if self._opcode else len(self.text)

    @property
    def operands(self) -> list[Array]:
        self._parse_operands()
        return self._operands

    @property
    def operand_names(self) -> Iterator[str]:
        """The names of those operands that have one."""
        self._parse_operands()
        found = OPERAND_NAME_RE.finditer(self.text, self._operands_start, self._operands_end)
        return (name[1] for name in found)

    @property
    def wrapped_inputs(self) -> list[Array]:
        """What went into the asynchronous op that this one ends: `((inputs), output, …)`."""
        start = self._operands_start
        return parse_shape(self.text, start + 2)[0] if self.text.startswith("(((", start) else []

    @property
    def attributes(self) -> str:
        """What follows the operands."""
        self._parse_operands()
        return self.text[self._operands_end :]

    @property
    def on_sparse_core(self) -> bool:
        """Whether it says that a SparseCore runs what it starts."""
        return ON_SPARSE_CORE in self.attributes

    @property
    def target(self) -> str | None:
        # Few have one, and all are asked.
        if TARGET_MARK not in self.text or self.opcode != "custom-call" or self._opcode is None:
            return None
        target = TARGET_RE.search(self.text, self._opcode.end())
        return target["target"] if target else None

    @property
    def base_name(self) -> str:
        """The name without its SSA parts: `fusion.48.clone.3` is a `fusion`."""
        return base_name(self.name)

    @property
    def is_on_chip(self) -> bool:
        """Whether all arrays that the text shows, if any, lie on the chip."""
        arrays = [*self.outputs, *self.operands]
        off_chip = any(array.memory_space in (HBM, HOST_MEMORY) for array in arrays)
        return bool(arrays) and not off_chip

    @property
    def moved_array(self) -> Array | None:
        """The array whose data the op moves: its first operand, for want of any better word."""
        # The operand of a copy-done is (destination, source, context), the first shaped as its
        # output.
        is_done = self.opcode == "copy-done" and len(self.operands) > 1
        place = len(self.outputs) if is_done else 0
        return self.operands[place] if place < len(self.operands) else None


def base_name(name: str) -> str:
    """An op's name without its SSA parts."""
    named = ".".join(part for part in name.split(".") if not SSA_PART_RE.fullmatch(part))
    return named or name


def without_ssa_end(name: str) -> str:
    """A name without the SSA parts at its end; those that stand within stay."""
    head, dot, last = name.rpartition(".")
    while dot and head and SSA_PART_RE.fullmatch(last):
        name = head
        head, dot, last = name.rpartition(".")
    return name


def named_after(name: str, others: tuple[str, ...]) -> str | None:
    """Which of these an op is called after: `slice-done.10` after `slice`, `slices` after none.

    No regular expressions: making four takes as long as reading the metadata of a hundred ops.
    """
    if not name.startswith(others):
        return None
    # Behind a whole name there is nothing, or what is counted or joined to it.
    ends = ((each, name[len(each) : len(each) + 1]) for each in others if name.startswith(each))
    return next((each for each, end in ends if end in "-_.0123456789"), None)


def parse_shape(text: str, start: int = 0) -> tuple[list[Array], int]:
    """The arrays of the array, tuple or operand list that begins at `start`, and where it ends.

    Between the parentheses may stand names, commas and `/*index=5*/` comments: passed over.
    """
    if not text.startswith("(", start):
        only = ARRAY_RE.match(text, start)
        if only is None:
            return [], start
        return [Array(*only.group(0, 1, 2, 3))] * (only[1] not in NO_DATA), only.end()
    arrays = []
    depth = 0
    for token in OPERAND_OR_PARENTHESIS_RE.finditer(text, start):
        if token.lastindex:
            if token[2] not in NO_DATA:
                arrays.append(Array(*token.group(1, 2, 3, 4)))
        elif token[0] == "(":
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return arrays, token.end()
    return arrays, len(text)


def dtype_class(hlo_dtype: str) -> DtypeClass:
    """The class of dtypes that has a peak: bf16, fp8, fp16, fp32; or else other."""
    if hlo_dtype.startswith("f8"):
        return "fp8"
    return DTYPE_CLASSES.get(hlo_dtype, OTHER)


def bits_of(hlo_dtype: str) -> int | None:
    """Of one element; None for a dtype that isn't known."""
    if hlo_dtype == "pred":
        return 8
    named = BITS_RE.match(hlo_dtype)
    return int(named[1]) if named else None


def size_of(hlo_dtype: str, n_elements: int) -> int | None:
    """The bytes of so many elements, packed."""
    bits = bits_of(hlo_dtype)
    return None if bits is None else (n_elements * bits + 7) // 8


def main_dtype(arrays: list[Array]) -> str:
    """The dtype of the array of most elements, the first of several."""
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) == 1:
        return dtypes.pop()
    return max(arrays, key=lambda array: array.n_elements).dtype


def dtype_and_layout_change(hlo: HloText) -> tuple[bool | None, bool | None]:
    """Whether an op changes the dtype, and the layout; None where that can't be compared."""
    before, after = hlo.moved_array, hlo.outputs[0] if hlo.outputs else None
    if before is None or after is None:
        return None, None
    layouts = before.order_and_tiles(), after.order_and_tiles()
    comparable = None not in layouts and before.rank == after.rank
    return before.dtype != after.dtype, layouts[0] != layouts[1] if comparable else None
