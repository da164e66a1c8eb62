"""Parse the values of command-line options, and find options that contradict each other."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import _peaks
from _pipeline.context import forms_of_device
from _pipeline.folders import is_trace
from _pipeline.names import suggestion

Json = dict[str, Any]


def plane_of(name: str) -> str:
    """Return the plane name for a --device value."""
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
    """Parse flops or bytes, which can be written as 1.2e12."""
    number = int(text) if text.isdecimal() else float(text)
    if not (0 <= number < 1 << 63 and number == int(number)):
        raise ValueError
    return int(number)


def limit(text: str) -> float:
    """Parse a percentage that is at least 0."""
    number = float(text)
    if not 0 <= number < math.inf:
        raise ValueError
    return number


def positive(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError
    # Return an int if possible, because a float cannot represent every integer exactly.
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


def converter(convert: Callable[[str], Any], expected: str) -> Callable[[str], Any]:
    """Return an argparse converter whose error message says which values are valid."""

    def convert_or_reject(text: str) -> Any:
        try:
            return convert(text)
        except (ValueError, OverflowError, RecursionError, re.error):
            # argparse adds "argument --option:" before the message.
            raise argparse.ArgumentTypeError(f"must be {expected}, got {text!r}") from None

    return convert_or_reject


TO_NATURAL = converter(natural, "a whole number of at least 0")
TO_DEPTH = converter(natural_or_all, "a whole number of at least 0, or all")
TO_REGEX = converter(re.compile, "a Python regular expression")
TO_STEP = converter(index_or_all, "a whole number, or all")
TO_SLICE = converter(slice_of, "a Python slice A:B, such as 2: or :-1")
TO_COST = converter(
    cost, f"NAME=FLOPS,BYTES[,DTYPE], where DTYPE is one of {', '.join(_peaks.DTYPES)}"
)
TO_COUNT = converter(count, "a whole number of at least 0 that fits into 63 bits, such as 6e12")
TO_POSITIVE = converter(positive, "a finite number above 0")
TO_LIMIT = converter(limit, "a finite number of at least 0, in percent")
TO_WHOLE = converter(whole, "a whole number above 0, such as 1e6")


def peak_of(name: str) -> Callable[[str], tuple[str, float]]:
    """Return the converter for an option that overrides a peak."""
    return converter(lambda text: (name, float(positive(text))), "a finite number above 0")


def argument_error(
    message: str, choices: Mapping[str, Collection[str]], options: Collection[str]
) -> str:
    """Rewrite an argparse error message as a plain sentence."""
    unknown = re.fullmatch(r"unrecognized arguments: (\S*).*", message, re.DOTALL)
    if unknown:
        return unknown_argument(unknown[1], options)
    choice = re.match(r"argument (\S+): invalid choice: '(.*)' \(", message)
    if choice:
        names = choices[choice[1]]
        message = f"{choice[1]} must be one of {', '.join(names)}, got {choice[2]!r}"
        return message + suggestion(choice[2], names)
    # Shorten "argument --top: must be a whole number" to "--top must be a whole number".
    return re.sub(r"\Aargument (\S+): must", r"\1 must", message)


def wrong_words(words: Sequence[str], mode: str) -> list[str]:
    """Return those words after the first PROFILE that the mode does not accept as additional
    PROFILEs."""
    return [
        word for word in words if mode not in OF_CAPTURES or (word.startswith("-") and word != "-")
    ]


def unknown_argument(word: str, options: Collection[str]) -> str:
    """Return the message for a word that is neither a known option nor the first PROFILE."""
    if word.startswith("-"):
        flag = word.partition("=")[0]
        return f"unknown option {flag}{suggestion(flag, options)}"
    return f"only one PROFILE is accepted, also got {word!r}; pass a second capture with --baseline"


FORMS = ("json", "text", "markdown", "csv")
# argparse arguments of the options for the output format.
FORM_OPTIONS: dict[str, Json] = {
    "--format": {
        "choices": FORMS,
        "help": "output format: json, tables as text or Markdown, or the main table as CSV"
        " (default: json; on a terminal text, without --mode and for the page)",
    },
    "--text": {
        "dest": "format",
        "action": "store_const",
        "const": "text",
        "help": "short for --format text",
    },
    "--all": {
        "action": "store_true",
        "help": "in text and Markdown, show all rows of the answer, also those below 0.1 %% of the"
        " step, all notes, and whole sentences; in bottleneck, also all fields",
    },
    "--no-merge": {
        "action": "store_true",
        "help": "list each op separately, even if names differ only in numbers",
    },
}
PEAK_ARGUMENTS: dict[str, Json] = {
    "--chip": {
        "choices": [*_peaks.CHIPS, _peaks.PROFILE_CHIP],
        "help": "chip whose peak rates are used; profile means the peaks in the trace"
        f" (default: the chip of the trace, else {_peaks.DEFAULT_CHIP})",
    },
    **{
        f"--peak-tflops-{dtype}": {
            "dest": "peaks",
            "metavar": "X",
            "type": peak_of(dtype),
            "action": "append",
            "help": f"override the {dtype} peak, in TFLOPS",
        }
        for dtype in _peaks.DTYPES
    },
    "--peak-hbm-gibps": {
        "dest": "peaks",
        "metavar": "X",
        "type": peak_of("hbm_gibps"),
        "action": "append",
        "help": "override the HBM peak, in GiB/s",
    },
}
# Modes that write a file, with an example file name for each.
WRITING = {"page": "step.html", "export": "step.db"}
# Formats of the modes that do not have all formats.
FORMS_OF = {"record": ("json",), "export": ("json",), "page": ("json", "text", "markdown")}
# Modes that accept several captures, and records.
OF_CAPTURES = ("compare", "spread")


def contradictions_in(mode: str, given: Json, more: Sequence[str]) -> Iterator[str]:
    """Yield a message for each rule that the combination of options breaks."""
    if "step" in given and "step_id" in given:
        yield "--step and --step-id exclude each other; pass only one"
    if {"peers", "no_peers"} <= given.keys():
        yield "--peers and --no-peers exclude each other; pass only one"
    if mode == "compare" and "baseline" not in given:
        yield "--mode compare requires --baseline PROFILE, the capture before the change"
    if mode in WRITING and "out" not in given:
        yield f"--mode {mode} requires --out FILE, for example --out {WRITING[mode]}"
    if given.get("out") == "-":
        yield "--out must be a file, got '-'; stdout is used for the JSON answer"
    if is_trace(given.get("out", "")):
        yield f"--out {given['out']} would overwrite a trace; pass a name such as {WRITING[mode]}"
    if mode == "page":
        yield from contradictions_with_baseline(given)
    if [given["profile"], *more, *given.get("baseline", ())].count("-") > 1:
        yield "- was passed twice, but stdin can be read only once; replace one - with a file"
    if len({"model_flops", "flops_per_token", "params"} & given.keys()) > 1:
        yield "--model-flops, --flops-per-token and --params exclude each other; pass only one"
    per_token = {"flops_per_token", "params"} & given.keys()
    if per_token and "tokens" not in given:
        yield (
            "--flops-per-token and --params require --tokens, the tokens of one step on all devices"
        )
    if "n_devices" in given and not per_token:
        yield "--n-devices requires --flops-per-token or --params"
    kernels = [kernel for kernel, *_ in given.get("kernel_cost", ())]
    for kernel in dict.fromkeys(kernels):
        if kernels.count(kernel) > 1:
            yield f"--kernel-cost was passed twice for {kernel}; pass one cost per kernel"
    form = given["format"]
    if form not in FORMS_OF.get(mode, FORMS):
        yield f"--mode {mode} has no {form} format; leave out --format {form}"
    if "all" in given and form not in ("text", "markdown") and mode != "bottleneck":
        yield f"--all requires --format text or --format markdown in mode {mode}"
    if mode == "anatomy" and "device" in given:
        yield "--mode anatomy does not accept --device; use --plane"
    if given.keys() & {"line", "grep", "sample"} and "plane" not in given:
        yield "--line, --grep and --sample require --plane"


def contradictions_with_baseline(given: Json) -> Iterator[str]:
    """Yield a message for each rule about `--baseline` that the options of mode `page` break."""
    baseline = given.get("baseline", [])
    if given.keys() & {"baseline_device", "baseline_host"} and not baseline:
        yield "--baseline-device and --baseline-host require --baseline"
    if len(baseline) > 1:
        yield f"--mode page accepts only one --baseline, got {len(baseline)}"
    if baseline and given.keys() & {"step", "step_id"}:
        yield "--baseline compares all steps; leave out --step and --step-id"


def default_form(mode: str | None, is_for_people: bool) -> str:
    """Return the output format without `--format`: text on a terminal, if no mode is given or the
    mode writes a page."""
    return "text" if is_for_people and mode in (None, "page") else "json"


def form_among(words: Sequence[str], is_for_people: bool) -> str:
    """Return the output format, even if the command line is otherwise invalid."""
    forms = []
    mode = None
    for word, following in zip(words, [*words[1:], ""], strict=False):
        option, equals, value = word.partition("=")
        if option == "--format":
            forms.append(value if equals else following)
        elif option == "--text":
            forms.append("text")
        elif option == "--mode":
            mode = value if equals else following
    known = [form for form in forms if form in FORMS]
    return known[-1] if known else default_form(mode, is_for_people)
