#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = ["protobuf>=4.21.1"]
# ///
"""Where does a TPU step's time go, by source line?

Reads an XProf trace (`*.xplane.pb`) and prints one JSON object, in one of these modes:

    bottleneck   where to look first: what the step's time is lost to, and on which lines
    summary      the costliest source lines, and the step's time by kind and category
    by_source    every source line, complete
    by_scope     how long each layer takes, by the program's own structure
    by_op        what each op costs, and what it is made of
    non_compute  what is data movement and waiting rather than math
    roofline     how far each source line is from what the chip could do
    comm         what communication costs, what hides it, and what it moves
    memory       what fills the HBM when it is fullest, by buffer and source line
    idle         why nothing runs, and what the host does meanwhile
    program      what the compiler decided: collectives, kernels, parameters, flags
    page         all of these in one HTML file, for people to look at
    record       all steps of all devices as one small object, to be kept and compared
    compare      what a change did: two captures line by line, and what of it is more than noise
    spread       which device of which host is slow, and on which lines
    anatomy      what is in the file, of whatever device: planes, lines, stats, programs, events

The modes of one step share one pipeline: load the trace, pick a step, iterate over the events that
start in it, normalize them into executions of ops and a timeline; a mode turns the step into a
dict. A record goes the same way for each step of each device; the last two read records, or traces
into records.

The code is in `_pipeline`, `_analysis`, `_modes` and `_output`; only what an answer needs is
imported.
"""

from __future__ import annotations

import os
import signal
import sys

# Whether this is the command: a script, `python -m`, or what the package calls.
IS_COMMAND = __name__.endswith("__main__")
if IS_COMMAND and sys.version_info < (3, 10):
    # So far, and in its syntax to the end, this file is for older ones as well.
    this = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"compute_breakdown: it takes Python 3.10 or newer, this is {this}")
if IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # While the rest loads Ctrl-C ends it without a traceback; once it runs, see `main`.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# ruff: noqa: E402

import argparse
import gc
import json
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    Json = dict[str, Any]

# The other half lies beside this file: in a clone, installed, and in an archive that is run.
HERE = os.path.dirname(os.path.realpath(__file__))
if HERE not in sys.path:
    sys.path.insert(0, HERE)

import _peaks
from _pipeline.context import Context
from _pipeline.no_answer import BAD_ARGUMENTS, NoAnswer, unreadable
from _pipeline.option_values import (
    TO_COST,
    TO_COUNT,
    TO_DEPTH,
    TO_NATURAL,
    TO_POSITIVE,
    TO_REGEX,
    TO_SLICE,
    TO_STEP,
    TO_WHOLE,
    contradictions_in,
    peak_of,
    plane_of,
)
from _pipeline.request import DEVICE, SCHEMA_VERSION, Request
from _pipeline.streams import Progress, write
from _pipeline.texts import cut_texts

__version__ = "2.0.0"

# Of the process, by how else than by an answer or its absence it ends; the latter two as a shell
# reports the signals.
OK, CANT_WRITE, INTERRUPTED, CLOSED_PIPE = 0, 1, 130, 141


# ----------------------------------------------------------------------------------------------
# The stages in a row.


def answer_on_step(
    mode: Mode,
    context: Context,
    *,
    step: int | str | None = None,
    step_id: str | None = None,
    own: Sequence[str] = (),
    **options: Any,
) -> Json:
    """Return the answer of a mode of one step."""
    from _analysis import report
    from _pipeline import device, event_iterate, frames, load, normalize, step_pick

    request = context.request
    name = request.device or DEVICE
    choice, is_own = step_pick.StepChoice(step, step_id), frames.own_code(own)
    files = load.find_files(request.profile, context)
    candidates = load.Candidates(files, request.host, context)
    for place in candidates.places:
        with candidates.attempt(place), load.opened(place, name, context) as trace:
            try:
                hosts = load.hosts_known(trace, place, files)
                opened = device.open_device(place.path, trace, name, hosts, context, is_own)
                picked = step_pick.pick_step(opened, choice, context)
                admitted = event_iterate.read_events(opened, picked)
                normalized = normalize.normalize(opened, picked, admitted, context)
                fields = mode.load()(normalized, context, **options)
                return report.answer_of(normalized, fields, context)
            except NoAnswer as failure:
                if mode.anyway:
                    failure.fields |= loaded(mode.anyway)(trace, name, context)
                raise
    raise candidates.no_answer()


# ----------------------------------------------------------------------------------------------
# The command line. A mode is a row of MODES; an option is a row of OPTIONS.

STEP_OPTIONS = ("--step", "--step-id", "--own")


class Mode:
    """A row of MODES. `function` is written `module:name`, since a run loads only its own mode.

    A mode of one step takes the step, the context and its own options; other modes take the context
    and their own options.
    """

    def __init__(
        self,
        name: str,
        function: str,
        says: str,
        options: tuple[str, ...],
        example: str,
        *,
        is_of_step: bool = False,
        # The device if none is named; None for all devices.
        device: str | None = DEVICE,
        # Returns fields that are printed even if there is no answer.
        anyway: str = "",
    ) -> None:
        self.name, self.function, self.says = name, function, says
        self.options = (*STEP_OPTIONS, *options) if is_of_step else options
        self.example = example
        self.is_of_step = is_of_step
        self.device, self.anyway = device, anyway

    def load(self) -> Callable[..., Any]:
        return loaded(self.function)

    def answer(self, context: Context) -> Json:
        options = context.request.mode_options
        if self.is_of_step:
            return answer_on_step(self, context, **options)
        answer: Json = self.load()(context, **options)
        return answer


def loaded(place: str) -> Callable[..., Any]:
    from importlib import import_module

    module, _, name = place.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def of_step(
    name: str, function: str, says: str, options: tuple[str, ...], example: str, anyway: str = ""
) -> Mode:
    """A mode that reports on one step."""
    return Mode(name, function, says, options, example, is_of_step=True, anyway=anyway)


PEAK_OPTIONS = ("--chip", *(f"--peak-tflops-{each}" for each in _peaks.DTYPES), "--peak-hbm-gibps")

TOKEN_OPTIONS = ("--tokens", "--flops-per-token", "--params", "--n-devices")

MODES = (
    of_step(
        "bottleneck",
        "_modes.bottleneck:bottleneck",
        "where to look first: what the step's time is lost to, and on which lines",
        ("--top", *PEAK_OPTIONS, "--kernel-cost", "--model-flops", *TOKEN_OPTIONS),
        "--top 5",
    ),
    of_step(
        "summary",
        "_modes.summary:summary",
        "the costliest source lines, and the step's time by kind and category",
        ("--top", "--include-comm"),
        "--top 10",
    ),
    of_step(
        "by_source",
        "_modes.by_source:by_source",
        "every source line, complete",
        ("--include-data-move", "--include-comm", "--top"),
        "--include-data-move",
    ),
    of_step(
        "by_scope",
        "_modes.by_scope:by_scope",
        "how long each layer takes, by the program's own structure",
        ("--depth", "--below", "--merge-layers"),
        "--depth 2 --merge-layers",
    ),
    of_step(
        "by_op",
        "_modes.by_op:by_op",
        "what each op costs, and what it is made of",
        ("--top", *PEAK_OPTIONS, "--kernel-cost", "--op"),
        "--top 0 --op fusion.115",
    ),
    of_step(
        "non_compute",
        "_modes.non_compute:non_compute",
        "what is data movement and waiting rather than math",
        ("--no-comm-stalls", "--include-comm", "--top"),
        "--no-comm-stalls",
    ),
    of_step(
        "roofline",
        "_modes.roofline:roofline",
        "how far each source line is from what the chip could do",
        ("--top", *PEAK_OPTIONS, "--bytes", "--kernel-cost"),
        "--peak-tflops-fp32 70",
    ),
    of_step(
        "comm",
        "_modes.comm:comm",
        "what communication costs, what hides it, and what it moves",
        ("--top",),
        "--top 10",
    ),
    of_step(
        "memory",
        "_modes.memory:memory",
        "what fills the HBM when it is fullest, by buffer and source line",
        ("--top",),
        "--top 10",
        "_modes.memory:runtime_anyway",
    ),
    of_step(
        "idle",
        "_modes.idle:idle",
        "why nothing runs, and what the host does meanwhile",
        ("--top",),
        "--step all",
    ),
    of_step(
        "program",
        "_modes.program:program",
        "what the compiler decided: collectives, kernels, parameters, flags",
        ("--top", "--flags"),
        "--top 10",
    ),
    of_step(
        "page",
        "_modes.page:page",
        "all of these in one HTML file, for people to look at",
        ("--out",),
        "--out step.html",
    ),
    Mode(
        "record",
        "_modes.record:record",
        "all steps of all devices as one small object, to be kept and compared",
        ("--steps",),
        "--steps 1:",
        device=None,
    ),
    Mode(
        "compare",
        "_modes.compare:compare",
        "what a change did: two captures line by line, and what of it is more than noise",
        ("--baseline", "--baseline-device", "--baseline-host", "--steps", "--top"),
        "--baseline BASELINE",
    ),
    Mode(
        "spread",
        "_modes.spread:spread",
        "which device of which host is slow, and on which lines",
        ("--steps", "--top"),
        "--top 5",
        device=None,
    ),
    Mode(
        "anatomy",
        "_modes.anatomy:anatomy",
        "what is in the file, of whatever device: planes, lines, stats, programs, events",
        ("--plane", "--line", "--grep", "--sample"),
        "--plane 0 --sample 1",
        device=None,
    ),
)


# What argparse is told of each option. None has a default here: the modes have them.
OPTIONS: dict[str, Json] = {
    "--device": {
        "metavar": "NAME",
        "type": plane_of,
        "help": "name of the plane; N or TPU:N for /device:TPU:N"
        f" (default: {DEVICE}; in record and spread all TPUs)",
    },
    "--host": {
        "metavar": "NAME",
        "help": "which file of a multi-host run: its name without .xplane.pb; in a merged file a"
        " host's name or number, or FILE:HOST"
        " (default: the first by name that can be read and has the device)",
    },
    "--format": {
        "choices": ["json", "text"],
        "help": "json for programs, or text: tables for people (default: json)",
    },
    "--step": {
        "metavar": "N",
        "type": TO_STEP,
        "help": "which step by time, from 0; negative from the end; all for every op"
        " (default: the typical of the busiest)",
    },
    "--step-id": {
        "metavar": "NAME",
        "help": "which step, by its name, or by what the name of just one begins with",
    },
    "--own": {
        "metavar": "TEXT",
        "action": "append",
        "help": "frames whose file has TEXT in its name are the user's own code (repeatable;"
        " default: all but installed packages and Python's own)",
    },
    "--steps": {
        "metavar": "A:B",
        "type": TO_SLICE,
        "help": "which steps by time, as a slice of Python; one that begins below 0 as"
        " --steps=-3: (default: all)",
    },
    "--baseline": {"metavar": "PROFILE", "help": "the capture before the change (required)"},
    "--baseline-device": {
        "metavar": "NAME",
        "type": plane_of,
        "help": f"its device (default: {DEVICE})",
    },
    "--baseline-host": {"metavar": "NAME", "help": "which file of its hosts'"},
    "--top": {
        "metavar": "K",
        "type": TO_NATURAL,
        "help": "how many rows (default: 8 in bottleneck, 10 in idle, 20 in comm, 20 in memory,"
        " 20 in program, 50 in summary, 50 in by_op, 50 in compare, 50 in spread, else all in"
        " order of appearance)",
    },
    "--depth": {
        "metavar": "D",
        "type": TO_DEPTH,
        "help": "how many levels of scopes below the first, or all (default: 4)",
    },
    "--below": {"metavar": "SCOPE", "help": "only what is in this scope, named as printed"},
    "--merge-layers": {
        "action": "store_true",
        "help": "read numbers in scopes as *, so that layers_0 to layers_63 are one",
    },
    "--op": {
        "metavar": "NAME",
        "help": "all that is known of one op, by its name or what only that begins with",
    },
    "--include-comm": {"action": "store_true", "help": "also rank or list communication"},
    "--include-data-move": {"action": "store_true", "help": "also list data movement"},
    "--no-comm-stalls": {"action": "store_true", "help": "leave out waits for communication"},
    "--chip": {
        "choices": [*_peaks.CHIPS, _peaks.PROFILE_CHIP],
        "help": "whose peaks; profile: those that the trace gives"
        f" (default: those of the trace's device, else {_peaks.DEFAULT_CHIP})",
    },
    **{
        f"--peak-tflops-{dtype}": {
            "dest": "peaks",
            "metavar": "X",
            "type": peak_of(dtype),
            "action": "append",
            "help": f"override the {dtype} peak",
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
    "--plane": {"metavar": "NAME", "help": "count one plane through: its name, or N of a TPU"},
    "--line": {"metavar": "NAME", "help": "only its lines of that name"},
    "--grep": {
        "metavar": "REGEX",
        "type": TO_REGEX,
        "help": "only events in whose name it is found",
    },
    "--sample": {"metavar": "K", "type": TO_NATURAL, "help": "also the first K events of a line"},
    "--bytes": {
        "dest": "traffic",
        "choices": ["accessed", "hbm"],
        "help": "count the bytes of all memories, or of HBM alone (default: accessed)",
    },
    "--model-flops": {
        "metavar": "F",
        "type": TO_COUNT,
        "help": "useful flops of the step on one device, by batch and model: gives the mfu;"
        " 6e12 is fine",
    },
    "--tokens": {
        "metavar": "N",
        "type": TO_WHOLE,
        "help": "tokens of one step over all devices: gives tokens_per_s, and with one of the next"
        " two the mfu",
    },
    "--flops-per-token": {"metavar": "F", "type": TO_POSITIVE, "help": "useful flops of one token"},
    "--params": {
        "metavar": "P",
        "type": TO_POSITIVE,
        "help": "active parameters of a model in training: 6 flops each a token",
    },
    "--n-devices": {
        "metavar": "D",
        "type": TO_WHOLE,
        "help": "over how many devices the tokens are (default: as many as the program runs on)",
    },
    "--flags": {
        "metavar": "FILE",
        "help": "a text that sets XLA flags, such as a launch script: is their effect seen?",
    },
    "--out": {"metavar": "FILE", "help": "where the page is written (required)"},
    "--kernel-cost": {
        "metavar": "NAME=FLOPS,BYTES[,DTYPE]",
        "type": TO_COST,
        "action": "append",
        "help": "what one execution of a custom kernel costs; NAME may be what the name of just"
        " one begins with (repeatable)",
    },
}
PIPELINE_OPTIONS = ("--device", "--host", "--format")


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise NoAnswer(BAD_ARGUMENTS, detail=message)

    def _print_message(self, message: str, file: Any = None) -> None:
        # Of --help and --version.
        write(sys.stdout, message)


class PrintSchema(argparse.Action):
    """Print the JSON Schema of a mode's answers and exit."""

    def __call__(self, parser: Any, namespace: Any, mode: Any, option: str | None = None) -> None:
        from _output.schema import schema_of

        write(sys.stdout, encoded(schema_of(mode), sys.stdout is not None and sys.stdout.isatty()))
        parser.exit()


def called() -> str:
    """What the user called, for the usage."""
    if not IS_COMMAND:
        return "compute_breakdown.py"
    spec = sys.modules["__main__"].__spec__
    # An archive that is run has one, too.
    if spec is not None and spec.name != "__main__":
        return "python -m compute_breakdown"
    return os.path.basename(sys.argv[0])


def parser_of_modes() -> tuple[Parser, dict[str, str]]:
    """The parser, and under which name it keeps what each option is given."""
    parser = Parser(
        prog=called(),
        usage="%(prog)s PROFILE --mode MODE [options]",
        description="Where does a TPU step's time go, by source line? Prints one JSON object.",
        argument_default=argparse.SUPPRESS,
        # Of a given width: to ask the terminal, argparse imports a module that takes 3 ms.
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=80),
        allow_abbrev=False,
    )
    parser.add_argument(
        "profile",
        metavar="PROFILE",
        help="an .xplane.pb file, plain or gzipped, or .xplane.riegeli, or a run or log directory"
        " that holds some;"
        " - for one on standard input; for compare and spread also a record, .json or .json.gz,"
        " or a directory of records",
    )
    parser.add_argument(
        "--mode", required=True, metavar="MODE", choices=[mode.name for mode in MODES],
        help=", ".join(mode.name for mode in MODES),
    )  # fmt: skip
    parser.add_argument(
        "--schema", action=PrintSchema, metavar="MODE", choices=[mode.name for mode in MODES],
        help="print the JSON Schema of a mode's answers; needs no PROFILE",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"compute_breakdown {__version__}")
    common = (*PIPELINE_OPTIONS, *STEP_OPTIONS)
    dest_of = {flag: parser.add_argument(flag, **OPTIONS[flag]).dest for flag in common}
    for mode in MODES:
        says = f"{mode.says}\nexample: %(prog)s PROFILE --mode {mode.name} {mode.example}"
        shared = [flag for flag in mode.options if flag in dest_of and flag not in common]
        if shared:
            says += f"\nalso takes {', '.join(shared)}"
        section = parser.add_argument_group(f"--mode {mode.name}", says)
        for flag in mode.options:
            if flag not in dest_of:
                dest_of[flag] = section.add_argument(flag, **OPTIONS[flag]).dest
    return parser, dest_of


def parse_command_line(argv: Sequence[str] | None) -> Request:
    parser, dest_of = parser_of_modes()
    words = sys.argv[1:] if argv is None else argv
    for word in words:
        if word.startswith("--") and word.endswith("=--"):
            # To argparse it would be nothing at all, whatever the option takes.
            parser.error(f"argument {word[:-3]}: takes no --")
    try:
        given = vars(parser.parse_args(argv))
    except NoAnswer as refusal:
        if not any(word.partition("=")[0] == "--mode" for word in words):
            refusal.fields["available_modes"] = {mode.name: mode.says for mode in MODES}
        raise
    mode = next(mode for mode in MODES if mode.name == given["mode"])
    for flag, dest in dest_of.items():
        if dest in given and flag not in (*PIPELINE_OPTIONS, *mode.options):
            names = [other.name for other in MODES if flag in other.options]
            parser.error(f"{flag} belongs to --mode {' or '.join(names)}")
    for contradiction in contradictions_in(mode.name, given):
        parser.error(contradiction)
    return Request(
        profile=given["profile"],
        mode=mode.name,
        device=given.get("device", mode.device),
        host=given.get("host"),
        form=given.get("format", "json"),
        mode_options={
            dest_of[flag]: given[dest_of[flag]] for flag in mode.options if dest_of[flag] in given
        },
    )


def analyse(context: Context) -> Json:
    """Return the answer to a request, or raise NoAnswer."""
    mode = next(mode for mode in MODES if mode.name == context.request.mode)
    return mode.answer(context)


class Outcome(NamedTuple):
    """What the process prints and returns."""

    fields: Json
    status: int
    # Printed on stderr.
    complaint: str = ""
    form: str = "json"


HINT = "compute_breakdown: --format text shows tables, `| jq .totals` a part, --top 5 fewer rows\n"


def outcome_of(argv: Sequence[str] | None) -> Outcome:
    progress = Progress(sys.stderr) if sys.stderr and sys.stderr.isatty() else None
    request = context = None
    try:
        request = parse_command_line(argv)
        context = Context(request, progress)
        return Outcome(analyse(context), OK, "", request.form)
    except NoAnswer as error:
        # Without its frames, which hold what was read.
        failure = error.with_traceback(None)
    except MemoryError as error:
        failure = unreadable(request.profile if request else "", error)
    finally:
        if progress:
            progress.erase()
    return refusal(failure, request, context.notes if context else [])


def refusal(failure: NoAnswer, request: Request | None, notes: list[str]) -> Outcome:
    """Return the outcome of a run without an answer."""
    fields = {
        "status": "absent",
        "reason": failure.reason,
        "mode": request.mode if request else None,
        "schema_version": SCHEMA_VERSION,
        "profile_dir": request.profile if request else None,
        "device": request.device if request else None,
        "notes": notes,
        **failure.fields,
    }
    cut_texts(fields)
    usage = usage_for(failure) if failure.reason == BAD_ARGUMENTS else ""
    said = [fields["detail"]] if "detail" in fields else available_in(failure.fields)
    line = ": ".join(("compute_breakdown", failure.reason, *said))
    complaint = f"{usage}{''.join(c if c.isprintable() else '?' for c in line)}\n"
    return Outcome(fields, failure.exit_status, complaint, request.form if request else "json")


def usage_for(failure: NoAnswer) -> str:
    usage = parser_of_modes()[0].format_usage()
    modes = failure.fields.get("available_modes")
    if modes is None:
        return usage
    listed = "".join(f"  {name:13}{says}\n" for name, says in modes.items())
    return f"{usage}modes:\n{listed}"


def available_in(fields: Json) -> list[str]:
    """What there is instead, in a few words."""
    lists = {name: each for name, each in fields.items() if name.startswith("available_")}
    return [f"{name} {', '.join(map(str, each[:9]))}" for name, each in lists.items()]


def main(argv: Sequence[str] | None = None) -> int:
    # The program creates no reference cycles; disabling the GC saves about 17 %.
    gc.disable()
    try:
        if IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        outcome = outcome_of(argv)
        for_people = sys.stdout is not None and sys.stdout.isatty()
        write(sys.stdout, printed(outcome, for_people))
        status, complaint = outcome.status, outcome.complaint
        is_json = outcome.form == "json"
        if is_json and for_people and not complaint and sys.stderr and sys.stderr.isatty():
            complaint = HINT
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return CLOSED_PIPE
    except OSError as error:
        status, complaint = CANT_WRITE, f"compute_breakdown: can't write: {error.strerror}\n"
    with suppress(OSError):
        write(sys.stderr, complaint)
    return status


def printed(outcome: Outcome, for_people: bool) -> str:
    if outcome.form == "json":
        return encoded(outcome.fields, for_people)
    from _output.text import text_of

    return text_of(outcome.fields, sys.stdout.encoding if sys.stdout else "ascii")


def encoded(fields: Json, for_people: bool) -> str:
    form: Json = {"indent": 2} if for_people else {"separators": (",", ":")}
    text = json.dumps(fields, allow_nan=False, **form)
    # Escaped so that it can be put into a page as it is.
    return text.replace("</", r"<\/") + "\n"


def command() -> NoReturn:
    """The same for a process, which ends here.

    All is written by now, past Python's buffers. To free what was read, object by object, would
    take a tenth of the time of a small trace. A profiler or debugger speaks at the end.
    """
    status = main()
    if sys.getprofile() or sys.gettrace():
        sys.exit(status)
    os._exit(status)


if __name__ == "__main__":
    command()
