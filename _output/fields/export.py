"""Fields of `export`."""

from .common import Lead, StepAnswer
from .rows import ChipFields, PeaksUsed
from .units import Bytes, Count


class Fields(ChipFields):
    peaks_used: PeaksUsed
    """Peak rates that `at_roof_ps` and `lost_ps` of the table `ops` are computed with."""
    out: str
    """Name of the written file, as given."""
    bytes: Bytes
    """Size of the written file."""
    n_rows: dict[str, Count]
    """Number of rows of each table."""


class Answer(Lead, StepAnswer, Fields):
    pass
