"""Edit the stacks in a trace and keep all other bytes."""

from __future__ import annotations

from collections.abc import Callable

from tests.builders.xspace import bytes_field, int_field
from tests.naive.wire import decode_map, fields, last, signed, text_in

Edit = Callable[[str], str]


def turned_around(stack: str) -> str:
    """Reverse the frames of a stack."""
    end = "\n" if stack.endswith("\n") else ""
    return "\n".join(reversed(stack.removesuffix("\n").split("\n"))) + end


def with_stacks(data: bytes, edit: Edit) -> bytes:
    """Edit each `source_stack` in a file that stores stacks as plain strings."""
    return mapped(data, 1, lambda plane: plane_with_stacks(plane, edit))


def plane_with_stacks(plane: bytes, edit: Edit) -> bytes:
    names = decode_map(fields(plane), 5)
    ids = [i for i, metadata in names.items() if text_in(metadata, 2) == "source_stack"]

    def edited(stat: bytes) -> bytes:
        if signed(last(fields(stat), 1, 0)) not in ids:
            return stat
        return mapped(stat, 5, lambda text: edit(text.decode()).encode())

    def metadata(entry: bytes) -> bytes:
        return mapped(entry, 2, lambda value: mapped(value, 5, edited))

    return mapped(plane, 4, metadata)


def mapped(message: bytes, number: int, change: Callable[[bytes], bytes]) -> bytes:
    """Apply `change` to each field with the given number. The message must contain no doubles and
    no fixed-size integers.
    """
    return b"".join(
        int_field(n, value)
        if isinstance(value, int)
        else bytes_field(n, change(value) if n == number else value)
        for n, value in fields(message)
    )
