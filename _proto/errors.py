"""What is said of bytes that can't be read."""


class Damage(Exception):
    """The bytes at `offset` can't be read as what they should be."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"byte {offset}: {what}")
