"""Define exceptions for unreadable bytes and missing packages."""


class Damage(Exception):
    """The bytes at `offset` are damaged."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"byte {offset}: {what}")
        self.offset = offset
        self.what = what


class NoProtobuf(Exception):
    """The package protobuf is missing, too old, or broken."""


class MissingPackage(Exception):
    """An optional package that is required to read a file is not installed."""
