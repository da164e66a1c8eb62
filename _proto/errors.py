"""Define exceptions for bytes that cannot be read and for packages that are missing."""


class Damage(Exception):
    """The bytes at `offset` are damaged."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"byte {offset}: {what}")
        self.offset = offset
        self.what = what


class CutOff(Damage):
    """A field ends after the end of the enclosing message. The payload of the field begins at
    `start`.

    `number` is 0 if the head of the field is incomplete.
    """

    def __init__(self, offset: int, what: str, number: int, start: int) -> None:
        super().__init__(offset, what)
        self.number = number
        self.start = start


class NoProtobuf(Exception):
    """The package protobuf is missing, too old, or broken."""


class MissingPackage(Exception):
    """An optional package is needed to read a file and is not installed."""
