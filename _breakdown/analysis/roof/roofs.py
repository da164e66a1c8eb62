"""Convert the chip's peaks to exact rates, so that each printed figure is rounded only once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction

import _peaks
from _breakdown.light import NamedTuple
from _breakdown.pipeline.device import Device

_N_LINES_NAMED = 3


def rounded(number: Fraction, digits: int) -> float | None:
    """Round a number to a float; return None if it is too large for a float, which absurd peaks can
    cause."""
    try:
        return round(float(number), digits)
    except OverflowError:
        return None


def over_roof_note(begin: str, lines: Iterable[str]) -> str:
    """Return a note that lists the first few lines whose measured speed is impossible."""
    # The last two parts of a path are enough to identify the file.
    distinct = list(dict.fromkeys("/".join(line.split("/")[-2:]) for line in lines))
    named = distinct[:_N_LINES_NAMED]
    return f"{begin}: {', '.join(named)}{', …' * (len(distinct) > len(named))}"


class Roofs(NamedTuple):
    """The peaks of the chip that roofs are computed from, also as rates per picosecond."""

    choice: _peaks.Choice
    flops: dict[str, Fraction]
    hbm: Fraction | None

    def t_compute(self, flops: int | None, dtype: str) -> Fraction | None:
        """Return the exact time, in picoseconds, that the flops take at the peak rate; None if
        unknown."""
        return None if flops is None or dtype not in self.flops else flops / self.flops[dtype]

    def t_memory(self, n_bytes: int | None) -> Fraction | None:
        """Return the exact time, in picoseconds, that the bytes take at the peak HBM bandwidth;
        None if unknown."""
        return None if n_bytes is None or self.hbm is None else n_bytes / self.hbm

    def ridge_point(self, dtype: str) -> float | None:
        """Return the flops per byte above which ops are compute-bound, or None if unknown."""
        if not self.hbm or dtype not in self.flops:
            return None
        return rounded(self.flops[dtype] / self.hbm, 4)


def roofs_of(device: Device, chip: str | None, overrides: Mapping[str, float]) -> Roofs:
    """Return the peaks specified by the options, by default those of the trace's device."""
    choice = _peaks.choose(chip, device.type, peaks_of_device(device), overrides)
    tflops = {dtype: choice.peaks.tflops(dtype) for dtype in _peaks.DTYPES}
    hbm_gibps = choice.peaks.hbm_gibps
    return Roofs(
        choice,
        {dtype: Fraction(peak) for dtype, peak in tflops.items() if peak is not None},
        None if hbm_gibps is None else Fraction(hbm_gibps) * 2**30 / 10**12,
    )


def peaks_of_device(device: Device) -> _peaks.Peaks:
    """Return the device's peaks as stated in the trace."""

    def positive(name: str) -> float | None:
        value = device.stats.get(name)
        return float(value) if isinstance(value, (int, float)) and 0 < value < math.inf else None

    return _peaks.of_profile(
        positive("peak_teraflops_per_second"), positive("peak_hbm_bw_gigabytes_per_second")
    )
