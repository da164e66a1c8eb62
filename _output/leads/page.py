"""Write the headline and next steps for mode `page`: the file that was written."""

from __future__ import annotations

from _output.phrases import Next
from _units import size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.page import Answer


def headline(answer: Answer) -> str:
    return f"Wrote {answer['out']} ({size(answer['bytes'])})."


def next_steps(answer: Answer) -> list[Next]:
    return []
