"""Fields of `page`."""

from typing import Literal, TypedDict

from .common import AbsentAnswer, Lead, StepAnswer
from .units import Bytes


class Fields(TypedDict):
    out: str
    """Name of the written file, as given with `--out`."""
    bytes: Bytes
    """Size of the written file, at most 10 MB."""
    parts: dict[str, str]
    """For each mode on the page, `ok` or the reason why the mode has no answer. Only `memory` and
    `program` can lack an answer. With `--baseline`, the map also has `compare`."""
    says: str
    """Headline of [bottleneck](#bottleneck), with which the page begins."""


class Answer(Lead, StepAnswer, Fields):
    pass


class Absent(AbsentAnswer, total=False):
    """The object that is printed instead of an answer."""

    side: Literal["baseline"]
    """Always `baseline`; printed only if the baseline could not be read."""
