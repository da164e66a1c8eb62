"""Declare the options of the command line, parse their values, and find options that contradict
each other.

The functions of the modes define the defaults.
"""

from __future__ import annotations

import math

import _peaks
from _breakdown.light import TYPE_CHECKING
from _breakdown.pipeline.command_line import Option
from _breakdown.pipeline.context import DEVICE, forms_of_device
from _breakdown.pipeline.names import suggestion

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import Any

    Json = dict[str, Any]


def not_empty(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def plane_of(name: str) -> str:
    """Return the plane name for a --device value."""
    return forms_of_device(not_empty(name))[-1]


def index_or_all(text: str) -> int | str:
    return text if text == "all" else int(text)


def count_or_all(text: str) -> int | str:
    return text if text == "all" else count(text)


def slice_of(text: str) -> slice:
    start, stop = (int(part) if part else None for part in text.split(":"))
    return slice(start, stop)


def count(text: str) -> int:
    """Parse a whole number, which can be written as 1.2e12."""
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


def regex(text: str) -> re.Pattern[str]:
    import re

    try:
        return re.compile(text)
    except re.error:
        raise ValueError from None


def converter(convert: Callable[[str], Any], expected: str) -> Callable[[str], Any]:
    """Return a converter whose error message says which values are valid."""

    def convert_or_reject(text: str) -> Any:
        try:
            return convert(text)
        except (ValueError, OverflowError, RecursionError):
            raise ValueError(f"must be {expected}, got {text!r}") from None

    return convert_or_reject


def one_of(names: Collection[str]) -> Callable[[str], str]:
    """Return a converter that accepts only these names."""

    def convert_or_reject(text: str) -> str:
        if text not in names:
            hint = suggestion(text, names)
            raise ValueError(f"must be one of {', '.join(names)}, got {text!r}{hint}")
        return text

    return convert_or_reject


TO_NATURAL = converter(count, "a whole number of at least 0")
TO_DEPTH = converter(count_or_all, "a whole number of at least 0, or all")
TO_REGEX = converter(regex, "a Python regular expression")
TO_STEP = converter(index_or_all, "a whole number, or all")
TO_SLICE = converter(slice_of, "a Python slice A:B, such as 2: or :-1")
TO_COST = converter(
    cost, f"NAME=FLOPS,BYTES[,DTYPE], where DTYPE is one of {', '.join(_peaks.DTYPES)}"
)
TO_COUNT = converter(count, "a whole number of at least 0 that fits into 63 bits, such as 6e12")
TO_POSITIVE = converter(positive, "a finite number above 0")
TO_LIMIT = converter(limit, "a finite number of at least 0, in percent")
TO_WHOLE = converter(whole, "a whole number above 0, such as 1e6")


def choice(names: Sequence[str], help: str, name: str = "") -> Option:
    """Return an option whose value is one of several names."""
    return Option(help, f"{{{','.join(names)}}}", one_of(names), name=name)


def peak(name: str, help: str) -> Option:
    """Return an option that overrides a peak rate."""
    convert = converter(lambda text: (name, float(positive(text))), "a finite number above 0")
    return Option(f"override the {help}", "X", convert, repeats=True, name="peaks")


FORMS = ("json", "text", "markdown", "csv")
PEAK_OPTIONS = {
    "--chip": choice(
        [*_peaks.CHIPS, _peaks.PROFILE_CHIP],
        "chip whose peak rates are used; profile means the peaks in the trace (default: the chip"
        f" of the trace; if it is unknown, profile, else {_peaks.DEFAULT_CHIP})",
    ),
    **{
        f"--peak-tflops-{dtype}": peak(dtype, f"{dtype} peak, in TFLOPS") for dtype in _peaks.DTYPES
    },
    "--peak-hbm-gibps": peak("hbm_gibps", "HBM peak, in GiB/s"),
}
OPTIONS = {
    "--device": Option(
        f"name of the device's plane, or N or TPU:N for /device:TPU:N (default: {DEVICE}; all"
        " TPUs in record and spread)",
        "NAME",
        plane_of,
    ),
    "--host": Option(
        "host of a multi-host run: a file name without .xplane.pb; in a merged file, the name or"
        " number of a host, or FILE:HOST (default: the first readable file, by name, that"
        " contains the device)",
        "NAME",
    ),
    "--format": choice(
        FORMS,
        "output format: json, tables as text or Markdown, or the main table as CSV (default:"
        " json; on a terminal text, without --mode and for the page)",
    ),
    "--text": Option("short for --format text", name="format", constant="text"),
    "--all": Option(
        "in text and Markdown, show all rows of the answer, also those below 0.1 % of the step,"
        " all notes, and whole sentences; in bottleneck, also all fields"
    ),
    "--no-merge": Option("list each op separately, even if names differ only in numbers"),
    "--step": Option(
        "index of the step in time order, from 0; a negative index counts from the end; all"
        " covers the whole capture (default: a typical step among the busiest)",
        "N",
        TO_STEP,
    ),
    "--step-id": Option("name of the step, or a unique prefix of the name", "NAME"),
    "--own": Option(
        "treat frames with TEXT in their file name as the user's own code (repeatable; default:"
        " all files except Python and packages such as JAX or NumPy)",
        "TEXT",
        not_empty,
        repeats=True,
    ),
    "--steps": Option(
        "Python slice of the steps in time order, such as 2: or -3: (default: all)",
        "A:B",
        TO_SLICE,
    ),
    "--baseline": Option(
        "capture from before the change (compare requires one and accepts several; with one,"
        " page also shows what changed)",
        "PROFILE",
        repeats=True,
    ),
    "--fail-over": Option(
        "exit with status 3 if the step or the period is significantly slower by more than PCT"
        " percent, and with 1 if there are too few samples to decide",
        "PCT",
        TO_LIMIT,
    ),
    "--baseline-device": Option(f"device of the baseline (default: {DEVICE})", "NAME", plane_of),
    "--baseline-host": Option("host of the baseline, as for --host", "NAME"),
    "--top": Option(
        "maximum number of rows (default: 5 in bottleneck, 10 in idle, 10 in kernel, 20 in"
        " by_array, 20 in comm, 20 in memory, 20 in program, 50 in summary, 50 in by_op, 50 in"
        " compare, 50 in spread; other modes list all rows in the order of the trace)",
        "K",
        TO_NATURAL,
    ),
    "--depth": Option(
        "show at most this number of scope levels below the first, or all (default: 4)",
        "D",
        TO_DEPTH,
    ),
    "--below": Option("show only this scope, spelled as in the answer", "SCOPE"),
    "--merge-layers": Option(
        "replace numbers in scopes with *, so that layers_0 to layers_63 become one row"
    ),
    "--op": Option("show one op in detail; NAME can be a unique prefix", "NAME"),
    "--kernel": Option(
        "show the ops of one kernel; NAME is the name of the kernel or of one of its ops, or a"
        " unique prefix",
        "NAME",
    ),
    "--peers": Option(
        "also read the other devices, and tell transfers from waiting for a late device"
    ),
    "--no-peers": Option("do not read the other devices"),
    "--include-comm": Option("also include communication"),
    "--include-data-move": Option("also list data movement"),
    "--no-comm-stalls": Option("leave out waits for communication"),
    **PEAK_OPTIONS,
    "--plane": Option(
        "count all events of one plane; NAME is the plane's name or a TPU's number", "NAME"
    ),
    "--line": Option("count only events of lines with this name", "NAME"),
    "--grep": Option("count only events whose name matches", "REGEX", TO_REGEX),
    "--sample": Option("also print the first K events of each line", "K", TO_NATURAL),
    "--bytes": choice(
        ["accessed", "hbm"],
        "count the bytes of all memories, or only those of HBM (default: accessed)",
        name="traffic",
    ),
    "--model-flops": Option(
        "useful flops of the step on one device (such as 6e12), computed from batch size and"
        " model; the answer then includes mfu",
        "F",
        TO_COUNT,
    ),
    "--tokens": Option(
        "tokens per step over all devices; the answer then includes tokens_per_s, and with"
        " --flops-per-token or --params also mfu",
        "N",
        TO_WHOLE,
    ),
    "--flops-per-token": Option("useful flops per token", "F", TO_POSITIVE),
    "--params": Option(
        "active parameters of a model in training; assumes 6 flops per parameter and token",
        "P",
        TO_POSITIVE,
    ),
    "--n-devices": Option(
        "number of devices that share the tokens (default: the number in the program)",
        "D",
        TO_WHOLE,
    ),
    "--code": Option(
        "also show the source code of the lines in the first rows, from files below DIR", "DIR"
    ),
    "--flags": Option(
        "file that sets XLA flags, such as a launch script; the answer then shows which flags"
        " have an effect",
        "FILE",
    ),
    "--out": Option("path of the file to write (required)", "FILE", not_empty),
    "--open": Option("open the page in the browser"),
    "--kernel-cost": Option(
        "cost of one execution of a kernel; NAME can be a unique prefix (repeatable)",
        "NAME=FLOPS,BYTES[,DTYPE]",
        TO_COST,
        repeats=True,
    ),
}
# Modes that write a file, with an example file name for each.
WRITING = {"page": "step.html", "export": "step.db"}
# Formats of the modes that do not have all formats.
FORMS_OF = {"record": ("json",), "export": ("json",), "page": ("json", "text", "markdown")}
# Modes that accept several captures, and records.
OF_CAPTURES = ("compare", "spread")
# Options of which only one can be passed, and how a message names them.
EXCLUSIVE = {
    ("step", "step_id"): "--step and --step-id",
    ("peers", "no_peers"): "--peers and --no-peers",
    ("model_flops", "flops_per_token", "params"): "--model-flops, --flops-per-token and --params",
}
# Options that require one of others, with the message.
REQUIRING = {
    ("baseline_device", "baseline_host"): (
        ("baseline",),
        "--baseline-device and --baseline-host require --baseline",
    ),
    ("flops_per_token", "params"): (
        ("tokens",),
        "--flops-per-token and --params require --tokens, the tokens of one step on all devices",
    ),
    ("n_devices",): (
        ("flops_per_token", "params"),
        "--n-devices requires --flops-per-token or --params",
    ),
    ("line", "grep", "sample"): (("plane",), "--line, --grep and --sample require --plane"),
}


def contradictions_in(mode: str, given: Json, profiles: Sequence[str]) -> Iterator[str]:
    """Yield a message for each rule that the combination of options breaks."""
    # Import late, because --help does not need the module.
    from _breakdown.pipeline.folders import is_trace

    for names, what in EXCLUSIVE.items():
        if len(given.keys() & {*names}) > 1:
            yield f"{what} exclude each other; pass only one"
    for names, (needed, what) in REQUIRING.items():
        if given.keys() & {*names} and not given.keys() & {*needed}:
            yield what
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
    if [*profiles, *given.get("baseline", ())].count("-") > 1:
        yield "- was passed twice, but stdin can be read only once; replace one - with a file"
    kernels = [kernel for kernel, *_ in given.get("kernel_cost", ())]
    for kernel in dict.fromkeys(kernels):
        if kernels.count(kernel) > 1:
            yield f"--kernel-cost was passed twice for {kernel}; pass one cost per kernel"
    form = given["format"]
    if form not in FORMS_OF.get(mode, FORMS):
        yield f"--mode {mode} has no {form} format; leave out --format {form}"
    if mode == "anatomy" and "device" in given:
        yield "--mode anatomy does not accept --device; use --plane"


def contradictions_with_baseline(given: Json) -> Iterator[str]:
    """Yield a message for each rule about `--baseline` that the options of mode `page` break."""
    baseline = given.get("baseline", [])
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
