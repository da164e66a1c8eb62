"""Fields of `export`."""

from .common import Lead, StepAnswer
from .rows import ChipFields, PeaksUsed
from .units import Bytes, Count


class Fields(ChipFields):
    peaks_used: PeaksUsed
    """Peak rates of the chip from which `at_roof_ps` and `lost_ps` in the table `ops` are
    computed."""
    out: str
    """Name of the written file, as given with `--out`."""
    bytes: Bytes
    """Size of the written file."""
    n_rows: dict[str, Count]
    """Number of rows of each table."""


class Answer(Lead, StepAnswer, Fields):
    pass
