"""Choose the peak rates of a device plane by its chip, and apply overrides.

One TFLOPS is 10**12 flops per second, and one GiB is 2**30 bytes. Vendors publish bandwidth in GB/s
(1 GB is 10**9 bytes), so it is stored in GB/s and converted on use.
"""

from __future__ import annotations

from _breakdown.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

DTYPES = ("bf16", "fp8", "int8", "int4", "fp32", "fp16")
DEFAULT_CHIP = "v7x"
PROFILE_CHIP = "profile"


class Peaks(NamedTuple):
    """Peak rates of one device; a rate is None if it is not published."""

    source: str
    hbm_gibps: float | None
    bf16: float | None = None
    fp8: float | None = None
    int8: float | None = None
    int4: float | None = None
    fp32: float | None = None
    fp16: float | None = None

    def tflops(self, dtype: str) -> float | None:
        peak: float | None = getattr(self, dtype) if dtype in DTYPES else None
        return peak


class Chip(NamedTuple):
    """All facts about a TPU generation that the tool uses.

    `device_types` are its names in traces (`device_type_string`) and in JAX (`device_kind`).
    `overlap` is what can run its collectives beside math: asynchronous fusions, or the chip's
    SparseCores; None if that is not known.
    """

    device_types: tuple[str, ...]
    bf16: float
    fp8: float | None = None
    int8: float | None = None
    int4: float | None = None
    hbm_gibps: float | None = None
    hbm_gbps: float | None = None
    overlap: Literal["fusions", "sparse_cores"] | None = None
    # Memory that a program on one device can use; on v4 and v5p, both TensorCores share it.
    hbm_gib: int | None = None


# On v2 to v4, v5p and v8i, a device plane is one of the chip's two TensorCores, and on v7x one of
# its two chiplets, so it has half the chip's peaks. The table of peaks on FIELDS.md has the sources
# of all rates. `overlap` of v5e, v6e and v7x is read off compiled programs, of v5p off a capture,
# and of v4 off public launch scripts.
CHIPS = {
    "v2": Chip(("TPU v2",), 23.0, hbm_gbps=358.0),
    "v3": Chip(("TPU v3",), 61.5, hbm_gbps=450.0),
    "v4i": Chip(("TPU v4 Lite", "TPU v4i"), 137.0, hbm_gbps=614.0),
    # XProf's roofline tables have slightly other rates than the vendor, from captures.
    "v4": Chip(("TPU v4",), 139.8, int8=137.5, hbm_gibps=572.2, overlap="fusions", hbm_gib=32),
    "v5e": Chip(
        ("TPU v5 Lite", "TPU v5e"),
        197.0,
        int8=393.0,
        int4=788.0,
        hbm_gbps=819.0,
        overlap="fusions",
        hbm_gib=16,
    ),
    "v5p": Chip(
        ("TPU v5", "TPU v5p"),
        233.4,
        fp8=229.5,
        int8=459.0,
        int4=920.0,
        hbm_gibps=1287.45,
        overlap="fusions",
        hbm_gib=95,
    ),
    "v6e": Chip(
        ("TPU v6 Lite", "TPU v6e"),
        918.0,
        fp8=918.0,
        int8=1836.0,
        int4=3680.0,
        hbm_gbps=1638.0,
        overlap="sparse_cores",
        hbm_gib=32,
    ),
    # This tool's predecessor misread 7380 GB/s as GiB/s; keep its value so that results stay
    # comparable.
    "v7x": Chip(
        ("TPU v7x", "TPU7x", "TPU v7", "TPU7"),
        1153.5,
        fp8=2307.0,
        hbm_gibps=3690.0,
        overlap="sparse_cores",
        hbm_gib=96,
    ),
    "v8i": Chip(("TPU v8i", "TPU8i"), 550.5, fp8=4404.0, hbm_gbps=4300.5),
    "v8t": Chip(("TPU v8t", "TPU8t"), 996.1, fp8=5976.9, int8=996.1, int4=11953.8, hbm_gbps=6528.0),
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
    rates = chip.bf16, chip.fp8, chip.int8, chip.int4
    return Peaks(f"builtin {name} table", hbm, *rates)


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
    key = _key(device_type)
    for name, chip in CHIPS.items():
        if key in map(_key, chip.device_types):
            return name
    return None


def _key(device_type: str) -> str:
    """Return what is left of a chip's name in all spellings: `TPU v8i`, `TPU8i` and `tpu-8i` are
    one chip."""
    return "".join(filter(str.isalnum, device_type.lower())).removeprefix("tpu").removeprefix("v")


class Choice(NamedTuple):
    """The peaks in use, the chip's name, and notes if the peaks may be wrong for the device.

    `is_assumed` is True if neither an option nor the trace tells which peaks are right.
    """

    chip: str
    is_assumed: bool
    peaks: Peaks
    notes: list[str]


def choose(
    requested: str | None, device_type: str | None, own: Peaks, overrides: Mapping[str, float]
) -> Choice:
    """Return the peaks of the requested chip, or of the device's chip if none is requested. If it
    is unknown, return `own`, the peaks that the trace declares, or else those of DEFAULT_CHIP."""
    known = requested or chip_of(device_type or "")
    if known is None and (own.bf16 or own.hbm_gibps):
        known = PROFILE_CHIP
    chip = known or DEFAULT_CHIP
    used = override(own if chip == PROFILE_CHIP else builtin(chip), overrides)
    notes = [*_chip_notes(requested, device_type, chip, own), *_own_notes(own, used)]
    return Choice(chip, known is None, used, notes)


def _chip_notes(requested: str | None, device_type: str | None, chip: str, own: Peaks) -> list[str]:
    fits = chip_of(device_type or "")
    device = f"a {device_type!r}" if device_type else "a device without a type"
    if requested is None:
        if chip == DEFAULT_CHIP:
            return []
        used = f"the peaks of {fits}" if fits else "the peaks in the trace"
        return [f"the trace is of {device}; using {used} (--chip selects others)"]
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
