"""Define exceptions for unreadable bytes and missing packages."""


class Damage(Exception):
    """The bytes at `offset` are damaged."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"byte {offset}: {what}")
        self.offset = offset
        self.what = what


class CutOff(Damage):
    """A field extends beyond the end of the enclosing message. The field's payload begins at
    `start`.

    `number` is the field number, or 0 if the field's header is incomplete.
    """

    def __init__(self, offset: int, what: str, number: int, start: int) -> None:
        super().__init__(offset, what)
        self.number = number
        self.start = start


class NoProtobuf(Exception):
    """The package protobuf is missing, too old, or broken."""


class MissingPackage(Exception):
    """An optional package that is required to read a file is not installed."""
