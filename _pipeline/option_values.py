"""What options take: from a word of the command line to a value, or a refusal that says why."""

from __future__ import annotations

import argparse
import math
import re

import _peaks
from _pipeline.request import forms_of_device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Json = dict[str, Any]


def plane_of(name: str) -> str:
    """Of a device."""
    return forms_of_device(name)[-1]


def natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError
    return number


def index_or_all(text: str) -> int | str:
    return text if text == "all" else int(text)


def natural_or_all(text: str) -> int | str:
    return text if text == "all" else natural(text)


def slice_of(text: str) -> slice:
    start, stop = (int(part) if part else None for part in text.split(":"))
    return slice(start, stop)


def count(text: str) -> int:
    """Of flops or bytes: also written as 1.2e12."""
    number = int(text) if text.isdecimal() else float(text)
    if not (0 <= number < 1 << 63 and number == int(number)):
        raise ValueError
    return int(number)


def positive(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError
    # A float may be another number than so many digits.
    return int(text) if text.isdecimal() else number


def whole(text: str) -> int:
    number = positive(text)
    if number != int(number):
        raise ValueError
    return int(number)


def cost(text: str) -> tuple[str, int, int, str | None]:
    name, _, figures = text.rpartition("=")
    flops, n_bytes, *rest = figures.split(",")
    (dtype,) = rest or (None,)
    if not name or dtype not in (None, *_peaks.DTYPES):
        raise ValueError
    return name, count(flops), count(n_bytes), dtype


def converter(convert: Callable[[str], Any], wanted: str) -> Callable[[str], Any]:
    """For argparse, whose refusal then says what would have been right."""

    def convert_or_refuse(text: str) -> Any:
        try:
            return convert(text)
        except (ValueError, re.error, RecursionError, OverflowError):
            raise argparse.ArgumentTypeError(f"takes {wanted}, not {text!r}") from None

    return convert_or_refuse


TO_NATURAL = converter(natural, "a whole number from 0")
TO_DEPTH = converter(natural_or_all, "a whole number from 0, or all")
TO_REGEX = converter(re.compile, "a regular expression of Python")
TO_STEP = converter(index_or_all, "a whole number, or all")
TO_SLICE = converter(slice_of, "A:B as a slice of Python, such as 2: or :-1")
TO_COST = converter(
    cost, f"NAME=FLOPS,BYTES[,DTYPE], where DTYPE is one of {', '.join(_peaks.DTYPES)}"
)
TO_COUNT = converter(count, "a whole number from 0 that fits into 63 bits, such as 6e12")
TO_POSITIVE = converter(positive, "a finite number above 0")
TO_WHOLE = converter(whole, "a whole number above 0, such as 1e6")


def peak_of(what: str) -> Callable[[str], tuple[str, float]]:
    """For one of the options that override a peak."""
    return converter(lambda text: (what, float(positive(text))), "a finite number above 0")


# The one is for programs, the other for eyes.
WITHOUT_TEXT = ("record", "page")


def contradictions_in(mode: str, given: Json) -> Iterator[str]:
    """What each option allows, and all of them together don't."""
    if "step" in given and "step_id" in given:
        yield "--step and --step-id exclude each other"
    if mode == "compare" and "baseline" not in given:
        yield "--mode compare takes --baseline PROFILE, the capture before the change"
    if mode == "page" and "out" not in given:
        yield "--mode page takes --out FILE, where the page is written"
    if given.get("out") == "-":
        yield "--out takes a file: on standard output is the answer"
    if given.get("out", "").endswith((".xplane.pb", ".xplane.pb.gz")):
        yield "--out would overwrite a trace"
    if given["profile"] == given.get("baseline") == "-":
        yield "there is only one standard input: PROFILE and the baseline can't both be -"
    if len({"model_flops", "flops_per_token", "params"} & given.keys()) > 1:
        yield "--model-flops, --flops-per-token and --params exclude each other"
    of_token = {"flops_per_token", "params"} & given.keys()
    if of_token and "tokens" not in given:
        yield "--flops-per-token and --params take --tokens, those of a step in all"
    if "n_devices" in given and not of_token:
        yield "--n-devices takes --flops-per-token or --params"
    kernels = [kernel for kernel, *_ in given.get("kernel_cost", ())]
    if len(set(kernels)) < len(kernels):
        yield "--kernel-cost was given twice for one kernel"
    if given.get("format") == "text" and mode in WITHOUT_TEXT:
        yield f"--mode {mode} has no --format text"
    if mode == "anatomy" and "device" in given:
        yield "--mode anatomy takes --plane, not --device"
    if given.keys() & {"line", "grep", "sample"} and "plane" not in given:
        yield "--line, --grep and --sample ask for --plane"
