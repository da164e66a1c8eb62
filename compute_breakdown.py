#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = ["protobuf>=4.21.1"]
# ///
"""Show where a TPU step's time goes, by source line.

The command reads an XProf trace (`*.xplane.pb`) and prints one JSON object. `_modes` has
the possible answers.

Single-step modes share one pipeline: load the trace, pick a step, iterate over the events that
start in it, and normalize them to executions of ops and a timeline. The mode then computes its
answer from this step. `record` runs the pipeline for each step of each device. `compare` and
`spread` read records, and convert traces to records.

The code is in `_pipeline`, `_analysis`, `_modes` and `_output`. Modules are imported only if the
answer needs them.
"""

from __future__ import annotations

import os
import signal
import sys

# IS_COMMAND is False if another program imports this file or the installed package.
IS_COMMAND = __name__.endswith("__main__") and not getattr(
    sys.modules.get(__package__ or ""), "is_imported", False
)
if IS_COMMAND and sys.version_info < (3, 10):
    # Older versions of Python can parse this file, so the check can report the version.
    found = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"compute_breakdown: requires Python 3.10 or newer (found {found})")
if IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # During the imports, let Ctrl-C end the process without a traceback. `main` restores the
    # handler.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# ruff: noqa: E402

import argparse
import gc
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn

    from _output.python import Analyse, Captures, Form
    from _pipeline.python_values import Call

    Json = dict[str, Any]

# The packages are next to this file in a clone, in an installation and in a zip archive.
HERE = os.path.dirname(os.path.realpath(__file__))
if IS_COMMAND and sys.path[0] != HERE:
    sys.path.insert(0, HERE)
elif HERE not in sys.path:
    sys.path.append(HERE)

from _modes import NAMES, STEP_OPTIONS, Mode, mode_named
from _pipeline.context import DEVICE, SCHEMA_VERSION, Context, Outcome, Request
from _pipeline.gate import gate_status, gate_without_answer
from _pipeline.names import suggestion, with_suggestion
from _pipeline.no_answer import BAD_ARGUMENTS, DEVICE_NOT_FOUND, NoAnswer, available_in, unreadable
from _pipeline.option_values import (
    FORM_OPTIONS,
    PEAK_ARGUMENTS,
    TO_COST,
    TO_COUNT,
    TO_DEPTH,
    TO_LIMIT,
    TO_NATURAL,
    TO_POSITIVE,
    TO_REGEX,
    TO_SLICE,
    TO_STEP,
    TO_WHOLE,
    argument_error,
    contradictions_in,
    default_form,
    form_among,
    plane_of,
    wrong_words,
)
from _pipeline.program_name import program_name, short_help
from _pipeline.streams import Progress, is_terminal, write
from _pipeline.texts import cut_texts, encoded

__version__ = "2.0.0"
__all__ = ["NoAnswer", "analyse", "capture", "render"]

# Exit codes of runs without an `absent` answer; EXIT_STATUS has the codes for `absent` answers. The
# last two are the codes that a shell reports for SIGINT and SIGPIPE.
OK, CANT_WRITE, INTERRUPTED, CLOSED_PIPE = 0, 1, 130, 141


# ----------------------------------------------------------------------------------------------
# The pipeline.


def answer_on_step(
    mode: Mode,
    context: Context,
    *,
    step: int | str | None = None,
    step_id: str | None = None,
    own: Sequence[str] = (),
    **options: Any,
) -> Json:
    """Return the answer of a single-step mode."""
    from _analysis.report import answer_of
    from _pipeline.device import open_device
    from _pipeline.event_iterate import read_events
    from _pipeline.frames import own_code
    from _pipeline.load import Candidates, find_files, hosts_known, opened
    from _pipeline.normalize import normalize
    from _pipeline.step_pick import StepChoice, pick_step

    request = context.request
    name = request.device or DEVICE
    choice, is_own = StepChoice(step, step_id), own_code(own)
    files = find_files(request.profile, context)
    candidates = Candidates(files, request.host, context)
    for place in candidates.places:
        with candidates.attempt(place), opened(place, name, context) as trace:
            try:
                hosts = hosts_known(trace, place, files)
                device = open_device(place.path, trace, name, hosts, context, is_own)
                picked = pick_step(device, choice, context)
                admitted = read_events(device, picked)
                normalized = normalize(device, picked, admitted, context)
                fields = getattr(mode.module, mode.name)(normalized, context, **options)
                return answer_of(normalized, fields, context)
            except NoAnswer as failure:
                fields_anyway = getattr(mode.module, "fields_anyway", None)
                if fields_anyway:
                    failure.fields |= fields_anyway(trace, name, context)
                raise
    raise candidates.no_answer()


# ----------------------------------------------------------------------------------------------
# The command line. Each option is an entry of OPTIONS; `_modes` lists the modes.

# argparse arguments of each option. The functions of the modes define the defaults.
OPTIONS: dict[str, Json] = {
    "--device": {
        "metavar": "NAME",
        "type": plane_of,
        "help": f"name of the device's plane, or N or TPU:N for /device:TPU:N (default: {DEVICE};"
        " all TPUs in record and spread)",
    },
    "--host": {
        "metavar": "NAME",
        "help": "host of a multi-host run: a file name without .xplane.pb; in a merged file, the"
        " name or number of a host, or FILE:HOST (default: the first readable file, by"
        " name, that contains the device)",
    },
    **FORM_OPTIONS,
    "--step": {
        "metavar": "N",
        "type": TO_STEP,
        "help": "index of the step in time order, from 0; a negative index counts from the end; all"
        " covers the whole capture (default: a typical step among the busiest)",
    },
    "--step-id": {
        "metavar": "NAME",
        "help": "name of the step, or a unique prefix of the name",
    },
    "--own": {
        "metavar": "TEXT",
        "action": "append",
        "help": "treat frames with TEXT in their file name as the user's own code (repeatable;"
        " default: all files except Python and packages such as JAX or NumPy)",
    },
    "--steps": {
        "metavar": "A:B",
        "type": TO_SLICE,
        "help": "Python slice of the steps in time order; write a negative start as --steps=-3:"
        " (default: all)",
    },
    "--baseline": {
        "metavar": "PROFILE",
        "action": "append",
        "help": "capture from before the change (compare requires one and accepts several; with"
        " one, page also shows what changed)",
    },
    "--fail-over": {
        "metavar": "PCT",
        "type": TO_LIMIT,
        "help": "exit with status 3 if the step or the period is significantly slower by more than"
        " PCT percent, and with 1 if there are too few samples to decide",
    },
    "--baseline-device": {
        "metavar": "NAME",
        "type": plane_of,
        "help": f"device of the baseline (default: {DEVICE})",
    },
    "--baseline-host": {"metavar": "NAME", "help": "host of the baseline, as for --host"},
    "--top": {
        "metavar": "K",
        "type": TO_NATURAL,
        "help": "maximum number of rows (default: 5 in bottleneck, 10 in idle, 10 in kernel, 20 in"
        " by_array, 20 in comm, 20 in memory, 20 in program, 50 in summary, 50 in by_op, 50 in"
        " compare, 50 in spread; other modes list all rows in the order of the trace)",
    },
    "--depth": {
        "metavar": "D",
        "type": TO_DEPTH,
        "help": "show at most this number of scope levels below the first, or all (default: 4)",
    },
    "--below": {"metavar": "SCOPE", "help": "show only this scope, spelled as in the answer"},
    "--merge-layers": {
        "action": "store_true",
        "help": "replace numbers in scopes with *, so that layers_0 to layers_63 become one row",
    },
    "--op": {
        "metavar": "NAME",
        "help": "show one op in detail; NAME can be a unique prefix",
    },
    "--kernel": {
        "metavar": "NAME",
        "help": "show the ops of one kernel; NAME is the name of the kernel or of one of its ops,"
        " or a unique prefix",
    },
    "--peers": {
        "action": "store_true",
        "help": "also read the other devices, and tell transfers from waiting for a late device",
    },
    "--no-peers": {"action": "store_true", "help": "do not read the other devices"},
    "--include-comm": {"action": "store_true", "help": "also include communication"},
    "--include-data-move": {"action": "store_true", "help": "also list data movement"},
    "--no-comm-stalls": {"action": "store_true", "help": "leave out waits for communication"},
    **PEAK_ARGUMENTS,
    "--plane": {
        "metavar": "NAME",
        "help": "count all events of one plane; NAME is the plane's name or a TPU's number",
    },
    "--line": {"metavar": "NAME", "help": "count only events of lines with this name"},
    "--grep": {
        "metavar": "REGEX",
        "type": TO_REGEX,
        "help": "count only events whose name matches",
    },
    "--sample": {
        "metavar": "K",
        "type": TO_NATURAL,
        "help": "also print the first K events of each line",
    },
    "--bytes": {
        "dest": "traffic",
        "choices": ["accessed", "hbm"],
        "help": "count the bytes of all memories, or only those of HBM (default: accessed)",
    },
    "--model-flops": {
        "metavar": "F",
        "type": TO_COUNT,
        "help": "useful flops of the step on one device (such as 6e12), computed from batch size"
        " and model; the answer then includes mfu",
    },
    "--tokens": {
        "metavar": "N",
        "type": TO_WHOLE,
        "help": "tokens per step over all devices; the answer then includes tokens_per_s, and with"
        " --flops-per-token or --params also mfu",
    },
    "--flops-per-token": {"metavar": "F", "type": TO_POSITIVE, "help": "useful flops per token"},
    "--params": {
        "metavar": "P",
        "type": TO_POSITIVE,
        "help": "active parameters of a model in training; assumes 6 flops per parameter and token",
    },
    "--n-devices": {
        "metavar": "D",
        "type": TO_WHOLE,
        "help": "number of devices that share the tokens (default: the number in the program)",
    },
    "--code": {
        "metavar": "DIR",
        "help": "also show the source code of the lines in the first rows, from files below DIR",
    },
    "--flags": {
        "metavar": "FILE",
        "help": "file that sets XLA flags, such as a launch script; the answer then shows which"
        " flags have an effect",
    },
    "--out": {"metavar": "FILE", "help": "path of the file to write (required)"},
    "--open": {"action": "store_true", "help": "open the page in the browser"},
    "--kernel-cost": {
        "metavar": "NAME=FLOPS,BYTES[,DTYPE]",
        "type": TO_COST,
        "action": "append",
        "help": "cost of one execution of a kernel; NAME can be a unique prefix (repeatable)",
    },
}
PIPELINE_OPTIONS = ("--device", "--host", "--format", "--text", "--all")
CHOICES = {"--mode": NAMES, "--schema": NAMES} | {
    flag: arguments["choices"] for flag, arguments in OPTIONS.items() if "choices" in arguments
}
# Options of this command that a command in `next_steps` keeps if its mode accepts them.
KEPT = ("--device", *STEP_OPTIONS, *PEAK_ARGUMENTS, "--kernel-cost")


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise NoAnswer(BAD_ARGUMENTS, detail=argument_error(message, CHOICES, OPTIONS))

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse calls this method to print --help and --version.
        write(sys.stdout, message)


class PrintSchema(argparse.Action):
    """Print the JSON Schema of a mode's answers and exit."""

    def __call__(self, parser: Any, namespace: Any, mode: Any, option: str | None = None) -> None:
        from _output.schema import schema_of

        write(sys.stdout, encoded(schema_of(mode), is_terminal(sys.stdout)))
        parser.exit()


class ExplainCause(argparse.Action):
    """Print what is known about a cause and exit."""

    def __call__(self, parser: Any, namespace: Any, cause: Any, option: str | None = None) -> None:
        from _analysis.causes import NAMES as CAUSES
        from _analysis.causes import rule_named

        if cause not in CAUSES:
            names = ", ".join(sorted(CAUSES))
            hint = suggestion(cause, CAUSES)
            parser.error(f"--explain must be one of {names}, got {cause!r}{hint}")
        write(sys.stdout, rule_named(cause).explanation)
        parser.exit()


def parser_of_modes() -> tuple[Parser, dict[str, str]]:
    """Return the parser, and the name of each option's attribute in the parsed namespace."""
    parser = Parser(
        prog=program_name() if IS_COMMAND else "compute_breakdown.py",
        usage="%(prog)s PROFILE [--mode MODE] [options]",
        description="Where does a TPU step's time go, by source line? Prints one JSON object.",
        argument_default=argparse.SUPPRESS,
        # Without `width`, argparse would import a module, which takes 3 ms.
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=80),
        allow_abbrev=False,
    )
    parser.add_argument(
        "profile",
        metavar="PROFILE",
        help=(
            "an .xplane.pb file (plain or gzipped), an .xplane.riegeli file, a run or log"
            " directory with such files, or - for standard input; compare and spread also"
            " accept records (.json or .json.gz), directories of records, and several PROFILEs"
        ),
    )
    parser.add_argument(
        "--mode", metavar="MODE", choices=NAMES,
        help=f"{', '.join(NAMES)} (default: {NAMES[0]}, or compare with --baseline)",
    )  # fmt: skip
    parser.add_argument(
        "--schema", action=PrintSchema, metavar="MODE", choices=NAMES,
        help="print the JSON Schema of a mode's answers; needs no PROFILE",
    )  # fmt: skip
    parser.add_argument(
        "--explain", action=ExplainCause, metavar="CAUSE",
        help="explain a cause that bottleneck finds; needs no PROFILE",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"compute_breakdown {__version__}")
    common = (*PIPELINE_OPTIONS, *STEP_OPTIONS)
    dest_of = {flag: parser.add_argument(flag, **OPTIONS[flag]).dest for flag in common}
    for mode in map(mode_named, NAMES):
        description = (
            f"{mode.question}\nexample: %(prog)s PROFILE --mode {mode.name} {mode.example}"
        )
        shared = [flag for flag in mode.options if flag in dest_of and flag not in common]
        if shared:
            description += f"\nalso accepts {', '.join(shared)}"
        section = parser.add_argument_group(f"--mode {mode.name}", description)
        for flag in mode.options:
            if flag not in dest_of:
                dest_of[flag] = section.add_argument(flag, **OPTIONS[flag]).dest
    return parser, dest_of


def parse_command_line(argv: Sequence[str] | None) -> Request:
    parser, dest_of = parser_of_modes()
    words = sys.argv[1:] if argv is None else argv
    for word in words:
        if word.startswith("--") and word.endswith("=--"):
            # Reject the value here: argparse would silently drop it.
            parser.error(f"{word[:-3]} must not be '--'; pass another value")
    namespace, more = parser.parse_known_args(argv)
    given = vars(namespace)
    mode = mode_named(given.get("mode") or ("compare" if "baseline" in given else NAMES[0]))
    if wrong := wrong_words(more, mode.name):
        parser.error(f"unrecognized arguments: {wrong[0]}")
    for flag, dest in dest_of.items():
        if dest in given and flag not in (*PIPELINE_OPTIONS, *mode.options):
            names = [name for name in NAMES if flag in mode_named(name).options]
            parser.error(f"{flag} is only valid with --mode {' or '.join(names)}")
    form = given.setdefault("format", default_form(given.get("mode"), is_terminal(sys.stdout)))
    for contradiction in contradictions_in(mode.name, given, more):
        parser.error(contradiction)
    options = {
        dest_of[flag]: given[dest_of[flag]] for flag in mode.options if dest_of[flag] in given
    }
    return Request(
        profile=given["profile"],
        mode=mode.name,
        device=given.get("device", mode.device),
        host=given.get("host"),
        form=form,
        mode_options=options,
        shows_all=given.get("all", False),
        top=given.get("top"),
        names_device=bool(given.keys() & {"device", "baseline_device"}),
        words=words,
        version=__version__,
        more_profiles=more,
    )


def answered(context: Context) -> Json:
    """Return the answer to a request, or raise NoAnswer."""
    request = context.request
    mode = mode_named(request.mode)
    code = request.mode_options.get("code")
    if code is not None and not os.path.isdir(code):
        raise NoAnswer("no_such_path", detail=f"--code: there is no folder {code}")
    if mode.is_of_step:
        answer = answer_on_step(mode, context, **request.mode_options)
    else:
        answer = getattr(mode.module, mode.name)(context, **request.mode_options)
    answer = with_lead(answer, request)
    # The columns of CSV do not depend on the rows.
    is_brief = not request.shows_all and request.form != "csv" and hasattr(mode.module, "brief")
    return mode.module.brief(answer) if is_brief else answer


def with_lead(answer: Json, request: Request) -> Json:
    """Return the answer with a headline and commands to run next."""
    from _output.command import called_as, following, from_python
    from _output.lead import with_lead

    lead = mode_named(request.mode).module
    if not hasattr(lead, "headline"):
        # `compare` and `spread` read the answers of `record`; people do not.
        return answer

    def command(words: Sequence[str], profile: str | None) -> str:
        mode = mode_named(words[1])
        kept = {"--host", *(KEPT if mode.is_of_step else ())}.intersection(
            (*PIPELINE_OPTIONS, *mode.options)
        )
        start = called_as(len(request.words)) if IS_COMMAND else from_python()
        return following(start, profile or request.profile, request.words, words, kept)

    # Suggest commands only for files: stdin can be read only once, and a command cannot read this
    # program's memory.
    is_file = request.profile != "-" and not request.in_memory
    return with_lead(answer, lead, command if is_file else None)


HINT = "compute_breakdown: pass --format text for tables, --top 5 for fewer rows, or pipe into jq\n"


def outcome_of(
    argv: Sequence[str] | None, progress: Progress | None = None, **more: Any
) -> Outcome:
    """Run a command line; `more` sets fields of the request that have no option."""
    request = context = None
    try:
        request = parse_command_line(argv)._replace(**more)
        context = Context(request, progress)
        answer = answered(context)
        return Outcome(answer, gate_status(answer) or OK, "", request.form, request)
    except NoAnswer as error:
        # Drop the traceback, because its frames would keep the trace in memory.
        failure = error.with_traceback(None)
    except MemoryError as error:
        failure = unreadable(request.profile if request else "", error)
    finally:
        if progress:
            progress.erase()
    form = form_among(sys.argv[1:] if argv is None else argv, is_terminal(sys.stdout))
    return outcome_without_answer(failure, request, context.notes if context else [], form)


def outcome_without_answer(
    failure: NoAnswer, request: Request | None, notes: list[str], form: str
) -> Outcome:
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
    status = failure.exit_status
    if request and request.names_device and failure.reason == DEVICE_NOT_FOUND:
        status = 1
        fields.setdefault("detail", "the capture does not have the given device")
    if request:
        given = {"device": request.device, "host": request.host, **request.mode_options}
        fields |= with_suggestion(fields, given)
    cut_texts(fields)
    usage = ""
    if failure.reason == BAD_ARGUMENTS:
        usage = parser_of_modes()[0].format_usage()
    details = "; ".join(filter(None, (fields.get("detail"), *available_in(failure.fields))))
    line = ": ".join(filter(None, ("compute_breakdown", failure.reason, details)))
    complaint = f"{usage}{''.join(c if c.isprintable() else '?' for c in line)}\n"
    if request and "fail_over" in request.mode_options:
        fields["gate"] = gate_without_answer(request.mode_options["fail_over"], failure.reason)
    return Outcome(fields, status or gate_status(fields), complaint, form, request)


def main(argv: Sequence[str] | None = None) -> int:
    # The program creates no reference cycles; disabling the GC saves about 17 % of the time.
    gc.disable()
    try:
        if IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        has_terminal = is_terminal(sys.stderr)
        for_people = is_terminal(sys.stdout)
        if not (sys.argv[1:] if argv is None else argv):
            write(sys.stdout, short_help(NAMES))
            return OK
        outcome = outcome_of(argv, Progress(sys.stderr) if sys.stderr and has_terminal else None)
        write(sys.stdout, printed(outcome, for_people))
        status, complaint = outcome.status, outcome.complaint
        if for_people and has_terminal:
            # The terminal already shows the answer, which includes the complaint.
            complaint = HINT if outcome.form == "json" and not complaint else ""
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return CLOSED_PIPE
    except OSError as error:
        status = CANT_WRITE
        complaint = f"compute_breakdown: cannot write to stdout: {error.strerror}\n"
    with suppress(OSError):
        write(sys.stderr, complaint)
    return status


def screen_of(answer: Mapping[str, Any]) -> Any:
    """Return the file of the answer's mode, or None if the command line was wrong."""
    return mode_named(answer["mode"]).module if answer["mode"] else None


def printed(outcome: Outcome, for_people: bool) -> str:
    if outcome.form == "json":
        return encoded(outcome.fields, for_people)
    from _output.forms import in_form

    if for_people and outcome.form == "text":
        add_own_code(outcome)

    return in_form(
        outcome.form, outcome.fields, screen_of(outcome.fields), outcome.request, sys.stdout
    )


def add_own_code(outcome: Outcome) -> None:
    """On a terminal, show the code of causes from Python files below the current folder."""
    from _output.code import add_code

    causes = outcome.fields.get("causes", [])
    if outcome.fields["mode"] == "bottleneck" and not any("code" in cause for cause in causes):
        add_code(causes, ".", ".py")


def command() -> NoReturn:
    """Run `main` and end the process without freeing memory.

    Freeing all objects would take 10 % of the time for a small trace, and `write` leaves no text in
    Python's buffers. Profilers and debuggers need a normal exit.
    """
    status = main()
    if sys.getprofile() or sys.gettrace():
        sys.exit(status)
    os._exit(status)


# ----------------------------------------------------------------------------------------------
# The Python API. These functions print nothing and do not change the state of the process.


def typed(function: Callable[..., Any]) -> Analyse:
    """Return the function unchanged, with the type that type checkers should see."""
    return function


class Answer(dict[str, "Any"]):
    """The JSON object that the command prints, as a dict. Notebooks show it as tables."""

    # Value of the option `top`, which `render` needs: it also limits the rows of text.
    top: int | None = None

    def _repr_html_(self) -> str | None:
        from _output.notebook import html_of

        screen = screen_of(self)
        return html_of(self, screen) if hasattr(screen, "PARTS") else None


def checked(profile: Captures, mode: str, options: Json) -> Call:
    """Return the command line for Python values; raise TypeError or ValueError if one is wrong."""
    from _pipeline.python_values import call_of

    flags = (*PIPELINE_OPTIONS[:2], *(mode_named(mode).options if mode in NAMES else ()))
    return call_of(profile, mode, options, {flag: OPTIONS[flag] for flag in flags})


@typed
def analyse(profile: Captures, mode: str, **options: Any) -> Any:
    """Return the answer as a dict, with the same fields as the command's JSON.

    `profile` is a path or the bytes of a trace; for compare and spread also a record or a list.
    Pass options as keyword arguments, such as `include_comm=True` for `--include-comm`;
    `processes=N` uses up to N processes. Raise NoAnswer if there is no answer, TypeError for an
    unknown option or a wrong type, and ValueError for an invalid value.
    """
    call = checked(profile, mode, options)
    outcome = outcome_of(call.words, in_memory=call.in_memory, processes=call.processes)
    answer = Answer(outcome.fields)
    answer.top = outcome.request.top if outcome.request else None
    if answer["status"] == "ok":
        return answer
    if answer["reason"] == BAD_ARGUMENTS:
        raise ValueError(answer["detail"])
    raise NoAnswer.with_answer(answer)


def capture(
    step: Callable[..., Any] | None = None,
    /,
    *args: Any,
    n: int = 3,
    carry: Callable[[Any, Sequence[Any]], Sequence[Any]] | None = None,
    folder: str | os.PathLike[str] | None = None,
    mode: str = "bottleneck",
    **options: Any,
) -> Any:
    """Run a JAX step `n` times after a warm-up, trace it, and return the answer of `mode`.

    Without a step, return a context manager that traces what runs inside `with`; its attribute
    `answer` is then the answer. The trace is in `folder`, or in a temporary folder that is deleted.
    A step that donates its arguments needs `carry`, which returns the arguments of the next call;
    these arguments are gone afterwards.
    Options and exceptions are those of `analyse`.
    """
    from _pipeline.capture import Capture, run_steps

    if not isinstance(n, int) or n < 1:
        raise ValueError(f"n must be a number of steps, at least 1, got {n!r}")
    try:
        # Reject wrong options before the step runs.
        parse_command_line(checked("", mode, options).words)
    except NoAnswer as failure:
        raise ValueError(failure.detail) from None
    if step is None and (args or carry or n != 3):
        raise TypeError("without a step, capture takes no arguments for it: n, carry and args")
    captured = Capture(lambda path: analyse(path, mode, **options), folder)
    if step is None:
        return captured
    run_steps(captured, step, args, n, carry)
    return captured.answer


def render(answer: Mapping[str, object], format: Form) -> str:
    """Format an answer as the command prints it to a pipe: json, text, markdown or csv."""
    from _output.forms import in_pipe

    if format == "json":
        return encoded(answer, False)
    return in_pipe(format, dict(answer), screen_of(answer), getattr(answer, "top", None))


if __name__ == "__main__":
    command()
