"""Choose the peak rates of a device plane by its chip, and apply overrides.

One TFLOPS is 10**12 flops per second, and one GiB is 2**30 bytes. Vendors publish bandwidth in GB/s
(1 GB is 10**9 bytes), so it is stored in GB/s and converted on use.
"""

from __future__ import annotations

from _breakdown.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

DTYPES = ("bf16", "fp8", "fp32", "fp16")
DEFAULT_CHIP = "v7x"
PROFILE_CHIP = "profile"


class Peaks(NamedTuple):
    """Peak rates of one device; a rate is None if the vendor does not publish it."""

    source: str
    hbm_gibps: float | None
    bf16: float | None = None
    fp8: float | None = None
    fp32: float | None = None
    fp16: float | None = None

    def tflops(self, dtype: str) -> float | None:
        peak: float | None = getattr(self, dtype) if dtype in DTYPES else None
        return peak


class Chip(NamedTuple):
    """Peak rates of a TPU generation, and its names in traces (`device_type_string`)."""

    device_types: tuple[str, ...]
    bf16: float
    hbm_gibps: float | None = None
    hbm_gbps: float | None = None
    fp8: float | None = None


# On v4 and v5p, a device plane is one of the chip's two TensorCores, so it has half the chip's
# peaks. On v5e and v6e, it is the whole chip, which has one TensorCore. On v7x, it is one of the
# chip's two chiplets. The vendor publishes figures per chip at docs.cloud.google.com/tpu/docs/NAME,
# where NAME is v4, v5e, v5p, v6e or tpu7x.
CHIPS = {
    # These rates are from XProf's roofline tables for v4 captures. The vendor publishes 275 TFLOPS
    # and 1200 GB/s per chip.
    "v4": Chip(("TPU v4",), 139.8, hbm_gibps=572.2),
    # The vendor publishes 197 TFLOPS and 819 GB/s per chip.
    "v5e": Chip(("TPU v5 Lite", "TPU v5e"), 197.0, hbm_gbps=819.0),
    # These rates are from XProf's roofline tables for v5p captures. The vendor publishes 459 TFLOPS
    # and 2765 GB/s per chip.
    "v5p": Chip(("TPU v5", "TPU v5p"), 233.4, hbm_gibps=1287.45),
    # The vendor publishes 918 TFLOPS and 1638 GB/s per chip. Newer v6e captures declare 946.7
    # TFLOPS.
    "v6e": Chip(("TPU v6 Lite", "TPU v6e"), 918.0, hbm_gbps=1638.0),
    # The vendor publishes 2307 TFLOPS in bf16, 4614 TFLOPS in fp8 and 7380 GB/s per chip. This
    # tool's predecessor misread 7380 GB/s as GiB/s; keep its value so that results stay comparable.
    "v7x": Chip(("TPU v7x", "TPU7x", "TPU v7"), 1153.5, hbm_gibps=3690.0, fp8=2307.0),
}
V7X_HBM = (
    "using an HBM peak of 3690 GiB/s per device; for the vendor's 3436.6, pass"
    " --peak-hbm-gibps 3436.6"
)
# Add a note only if the trace's peaks differ from the peaks in use by more than this fraction. For
# example, v6e captures declare 918 or 946.7 TFLOPS.
TOLERANCE = 0.05


def gibps(gbps: float) -> float:
    return gbps / 2**30 * 10**9


def builtin(name: str) -> Peaks:
    chip = CHIPS[name]
    hbm = gibps(chip.hbm_gbps) if chip.hbm_gbps is not None else chip.hbm_gibps
    return Peaks(f"builtin {name} table", hbm, bf16=chip.bf16, fp8=chip.fp8)


def of_profile(tflops: float | None, gbps: float | None) -> Peaks:
    """Return the peaks that a trace declares for the device; `gbps` is the HBM bandwidth in
    GB/s."""
    # A very small rate becomes 0 when converted to GiB/s; treat it as unknown.
    return Peaks("profile", (gibps(gbps) or None) if gbps else None, bf16=tflops)


def override(peaks: Peaks, overrides: Mapping[str, float]) -> Peaks:
    """Return the peaks with some rates replaced; the keys of `overrides` are field names of
    `Peaks`."""
    if not overrides:
        return peaks
    given = {name: overrides.get(name, getattr(peaks, name)) for name in ("hbm_gibps", *DTYPES)}
    return Peaks(f"{peaks.source} + cli override", **given)


def chip_of(device_type: str) -> str | None:
    """Return the name of the chip with the given `device_type_string`."""
    for name, chip in CHIPS.items():
        if device_type.lower() in (known.lower() for known in chip.device_types):
            return name
    return None


class Choice(NamedTuple):
    """The peaks in use, the chip's name, and notes if the peaks may be wrong for the device.

    `is_assumed` is True if neither an option nor the trace names a known chip.
    """

    chip: str
    is_assumed: bool
    peaks: Peaks
    notes: list[str]


def choose(
    requested: str | None, device_type: str | None, own: Peaks, overrides: Mapping[str, float]
) -> Choice:
    """Return the peaks of the requested chip, or of the device's chip if none is requested. `own`
    holds the peaks that the trace declares."""
    known = requested or chip_of(device_type or "")
    chip = known or DEFAULT_CHIP
    used = override(own if chip == PROFILE_CHIP else builtin(chip), overrides)
    notes = [*_chip_notes(requested, device_type, chip, own), *_own_notes(own, used)]
    return Choice(chip, known is None, used, notes)


def _chip_notes(requested: str | None, device_type: str | None, chip: str, own: Peaks) -> list[str]:
    fits = chip_of(device_type or "")
    device = f"a {device_type!r}" if device_type else "a device without a type"
    if requested is None:
        if chip == fits == DEFAULT_CHIP:
            return []
        if fits is None:
            return [
                f"assuming the peaks of {chip}, because {device} has no known peaks; to use"
                " others, pass --chip"
            ]
        return [f"the trace is of {device}; using the peaks of {chip} (--chip selects others)"]
    if not device_type or chip in (fits, PROFILE_CHIP):
        return []
    advice = ""
    if fits:
        advice = f"; pass --chip {fits}"
    elif own.bf16 and own.hbm_gibps:
        advice = f"; for the peaks in the trace, pass --chip {PROFILE_CHIP}"
    return [f"the trace is of {device}, but the peaks of {chip} are used{advice}"]


def _own_notes(own: Peaks, used: Peaks) -> list[str]:
    notes = []
    for text, traced, in_use in (
        ("bf16 peak is {:.6g} TFLOPS", own.bf16, used.bf16),
        ("HBM peak is {:.6g} GiB/s", own.hbm_gibps, used.hbm_gibps),
    ):
        if traced and in_use and abs(traced - in_use) > TOLERANCE * in_use:
            note = f"the trace says that the {text.format(traced)}, but {in_use:.6g} is used"
            notes.append(V7X_HBM if in_use == CHIPS["v7x"].hbm_gibps else note)
    return notes
