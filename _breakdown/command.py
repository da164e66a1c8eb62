"""Parse the command line, compute the answer and print it; offer the same to Python programs.

The script `compute_breakdown.py` contains almost nothing, because Python compiles a script at each
start, but a module only once.

Single-step modes share one pipeline: load the trace, pick a step, iterate over the events that
start in it, and normalize them to executions of ops and a timeline. The mode then computes its
answer from this step. `record` runs the pipeline for each step of each device. `compare` and
`spread` read records, and convert traces to records.

Modules are imported only if the answer needs them.
"""

from __future__ import annotations

import gc
import os
import sys

from _breakdown.light import TYPE_CHECKING, leave_out_modules
from _breakdown.modes import NAMES, STEP_OPTIONS, Mode, mode_named
from _breakdown.pipeline.command_line import (
    Option,
    help_rows,
    name_of,
    program_name,
    short_help,
    uses,
    wrong,
)
from _breakdown.pipeline.context import DEVICE, SCHEMA_VERSION, Context, Outcome, Request
from _breakdown.pipeline.no_answer import (
    BAD_ARGUMENTS,
    DEVICE_NOT_FOUND,
    NO_PROTOBUF,
    NoAnswer,
    available_in,
    gate_status,
    gate_without_answer,
    unreadable,
)
from _breakdown.pipeline.options import (
    FORMS,
    OF_CAPTURES,
    OPTIONS,
    PEAK_OPTIONS,
    contradictions_in,
    default_form,
    form_among,
    one_of,
)
from _breakdown.pipeline.streams import Progress, is_terminal, write
from _breakdown.pipeline.texts import cut_texts, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn

    from _breakdown.output.python import Analyse, Captures, Form
    from _breakdown.pipeline.python_values import Call

    Json = dict[str, Any]

__version__ = "3.2.0"

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
    from _breakdown.analysis.report import answer_of
    from _breakdown.pipeline.device import open_device
    from _breakdown.pipeline.event_iterate import read_events
    from _breakdown.pipeline.frames import own_code
    from _breakdown.pipeline.load import Candidates, find_files, hosts_known, opened
    from _breakdown.pipeline.normalize import normalize
    from _breakdown.pipeline.step_pick import StepChoice, pick_step

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
# The command line. `pipeline/options.py` lists the options, and `modes` lists the modes.

PIPELINE_OPTIONS = ("--device", "--host", "--format", "--text", "--all")
# Options of this command that a command in `next_steps` keeps if its mode accepts them.
KEPT = ("--device", *STEP_OPTIONS, *PEAK_OPTIONS, "--kernel-cost")
PROFILE = Option(
    "an .xplane.pb file (plain or gzipped), an .xplane.riegeli file, a run or log directory with"
    " such files, or - for standard input; compare and spread also accept records (.json or"
    " .json.gz), directories of records, and several PROFILEs"
)


def cause_named(name: str) -> str:
    from _breakdown.analysis.causes import RULE_NAMED

    return one_of(sorted(RULE_NAMED))(name)


# Options that print a page instead of an answer.
PAGES = {
    "-h": Option("short for --help"),
    "--help": Option("show this help message and exit"),
    "--version": Option("show program's version number and exit"),
    "--schema": Option(
        "print the JSON Schema of a mode's answers; needs no PROFILE", "MODE", one_of(NAMES)
    ),
    "--explain": Option(
        "explain a cause that bottleneck finds; needs no PROFILE", "CAUSE", cause_named
    ),
}
MODE = Option(
    f"{', '.join(NAMES)} (default: {NAMES[0]}, or compare with --baseline)", "MODE", one_of(NAMES)
)
ALL_OPTIONS = {**PAGES, "--mode": MODE, **OPTIONS}
# What to write instead of options that other tools have.
MEANT = {
    **{f"--{form}": f"--format {form}" for form in FORMS},
    **{f"--{mode}": f"--mode {mode}" for mode in NAMES},
}


class PageRequested(Exception):
    """Raised to print a page instead of an answer, such as the help."""


def page_of(flag: str, value: str) -> str:
    """Return what an option prints instead of an answer."""
    if flag == "--version":
        return f"compute_breakdown {__version__}\n"
    if flag == "--schema":
        from _breakdown.output.schema import schema_of

        return encoded(schema_of(value), is_terminal(sys.stdout))
    if flag == "--explain":
        from _breakdown.output.pages import explanation_of

        return explanation_of(value)
    return help_text()


def is_command() -> bool:
    """Return whether this process runs the command. If not, another program imported the script or
    the installed package."""
    return getattr(sys.modules["__main__"], "command", None) is command


def usage() -> str:
    name = program_name() if is_command() else "compute_breakdown.py"
    return f"usage: {name} PROFILE [--mode MODE] [options]\n"


def help_text() -> str:
    name = program_name()
    common = (*PIPELINE_OPTIONS, *STEP_OPTIONS)
    shown = {flag: ALL_OPTIONS[flag] for flag in (*PAGES, "--mode", *common)}
    lines = [
        *(usage(), "Where does a TPU step's time go, by source line? Prints one JSON object."),
        *("", *help_rows({"PROFILE": PROFILE}), "", "options:"),
        *help_rows(shown),
    ]
    for mode in map(mode_named, NAMES):
        example = f"example: {name} PROFILE --mode {mode.name} {mode.example}"
        lines += ["", f"--mode {mode.name}:", f"  {mode.question}", f"  {example}"]
        shared = [flag for flag in mode.options if flag in shown and flag not in common]
        if shared:
            lines.append(f"  also accepts {', '.join(shared)}")
        own = {flag: OPTIONS[flag] for flag in mode.options if flag not in shown}
        lines += ["", *help_rows(own)] if own else []
        shown |= own
    return "\n".join((*lines, ""))


def given_by(words: Sequence[str]) -> tuple[Json, list[str], list[str]]:
    """Return the values of the options by name, the options, and the other words: the PROFILEs.
    Raise PageRequested if the words ask for a page."""
    if not words:
        raise PageRequested(short_help(NAMES))
    values: Json = {}
    flags, profiles = [], []
    for flag, value in uses(words, ALL_OPTIONS, MEANT):
        if flag in PAGES:
            raise PageRequested(page_of(flag, value))
        if not flag:
            profiles.append(value)
            continue
        flags.append(flag)
        option = ALL_OPTIONS[flag]
        name = name_of(flag, option)
        if option.repeats:
            values.setdefault(name, []).append(value)
        elif values.setdefault(name, value) != value:
            raise wrong(f"{flag} was passed twice, with different values; pass it once")
    return values, flags, profiles


def default_mode(given: Mapping[str, Any]) -> str:
    return "compare" if given.get("baseline") is not None else NAMES[0]


def parse_command_line(words: Sequence[str]) -> Request:
    given, flags, profiles = given_by(words)
    if not profiles:
        raise wrong("PROFILE is missing; pass an .xplane.pb file, or a run or log directory")
    mode = mode_named(given.get("mode") or default_mode(given))
    if len(profiles) > 1 and mode.name not in OF_CAPTURES:
        also = next((word for word in profiles[1:] if word in NAMES), profiles[1])
        how = f"write --mode {also}" if also in NAMES else "pass a second capture with --baseline"
        raise wrong(f"only one PROFILE is accepted, also got {also!r}; {how}")
    for flag in flags:
        if flag not in ("--mode", *PIPELINE_OPTIONS, *mode.options):
            names = [name for name in NAMES if flag in mode_named(name).options]
            raise wrong(f"{flag} is only valid with --mode {' or '.join(names)}")
    form = given.setdefault("format", default_form(given.get("mode"), is_terminal(sys.stdout)))
    for contradiction in contradictions_in(mode.name, given, profiles):
        raise wrong(contradiction)
    own = {name_of(flag, OPTIONS[flag]) for flag in mode.options}
    return Request(
        profile=profiles[0],
        mode=mode.name,
        device=given.get("device", mode.device),
        host=given.get("host"),
        form=form,
        mode_options={name: value for name, value in given.items() if name in own},
        shows_all=given.get("all", False),
        top=given.get("top"),
        names_device=bool(given.keys() & {"device", "baseline_device"}),
        words=words,
        version=__version__,
        more_profiles=profiles[1:],
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
    from _breakdown.output.lead import called_as, following, from_python, with_lead

    module = mode_named(request.mode).module
    if not hasattr(module, "sentences"):
        # `compare` and `spread` read the answers of `record`; people do not.
        return answer

    def command(words: Sequence[str], profile: str | None) -> str:
        mode = mode_named(words[1])
        kept = {"--host", *(KEPT if mode.is_of_step else ())}.intersection(
            (*PIPELINE_OPTIONS, *mode.options)
        )
        start = called_as(len(request.words)) if is_command() else from_python()
        return following(start, profile or request.profile, request.words, words, kept)

    # Suggest commands only for files: stdin can be read only once, and a command cannot read this
    # program's memory.
    is_file = request.profile != "-" and not request.in_memory
    return with_lead(answer, module, command if is_file else None)


HINT = "compute_breakdown: pass --format text for tables, --top 5 for fewer rows, or pipe into jq\n"


def outcome_of(words: Sequence[str], progress: Progress | None = None, **more: Any) -> Outcome:
    """Run a command line; `more` sets fields of the request that have no option."""
    request = context = None
    try:
        request = parse_command_line(words)._replace(**more)
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
    form = form_among(words, is_terminal(sys.stdout))
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
    cut_texts(fields)
    details = "; ".join(filter(None, (fields.get("detail"), *available_in(failure.fields))))
    line = ": ".join(filter(None, ("compute_breakdown", failure.reason, details)))
    start = usage() if failure.reason == BAD_ARGUMENTS else ""
    complaint = f"{start}{''.join(c if c.isprintable() else '?' for c in line)}\n"
    if request and "fail_over" in request.mode_options:
        fields["gate"] = gate_without_answer(request.mode_options["fail_over"], failure.reason)
    return Outcome(fields, status or gate_status(fields), complaint, form, request)


def main(argv: Sequence[str] | None = None) -> int:
    # The program creates no reference cycles; disabling the GC saves about 17 % of the time.
    gc.disable()
    words = sys.argv[1:] if argv is None else argv
    try:
        has_terminal = is_terminal(sys.stderr)
        for_people = is_terminal(sys.stdout)
        progress = Progress(sys.stderr) if sys.stderr and has_terminal else None
        try:
            outcome = outcome_of(words, progress)
        except PageRequested as page:
            write(sys.stdout, str(page))
            return OK
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
    try:
        write(sys.stderr, complaint)
    except OSError:
        return status
    return status


def module_of(answer: Mapping[str, Any]) -> Any:
    """Return the file of the answer's mode, or None if the command line was wrong, or if the file
    cannot be imported without protobuf."""
    has_module = answer["mode"] and answer.get("reason") != NO_PROTOBUF
    return mode_named(answer["mode"]).module if has_module else None


def printed(outcome: Outcome, for_people: bool) -> str:
    if outcome.form == "json":
        return encoded(outcome.fields, for_people)
    from _breakdown.output.forms import in_form

    fields = outcome.fields
    if for_people and outcome.form == "text" and fields["mode"] == "bottleneck":
        from _breakdown.output.code import add_own_code

        add_own_code(fields.get("causes", []))
    return in_form(outcome.form, fields, module_of(fields), outcome.request, sys.stdout)


def command() -> NoReturn:
    """Run `main` and end the process without freeing memory.

    Freeing all objects would take 10 % of the time for a small trace, and `write` leaves no text in
    Python's buffers. Profilers and debuggers need a normal exit.
    """
    leave_out_modules()
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
    """The JSON object that the command prints, as a dict. Notebooks show it as tables, and Python's
    prompt shows its first sentence."""

    # Value of the option `top`, which `render` needs: it also limits the rows of text.
    top: int | None = None

    def __repr__(self) -> str:
        says = self.get("headline") or self.get("detail") or self.get("reason") or ""
        return f"<{self['mode']}: {self['status']}, {len(self)} fields> {says}".rstrip()

    def _repr_markdown_(self) -> str | None:
        from _breakdown.output.forms import in_pipe

        module = module_of(self)
        return in_pipe("markdown", self, module) if hasattr(module, "PARTS") else None


def checked(profile: Captures, mode: str, options: Json) -> Call:
    """Return the command line for Python values; raise TypeError or ValueError if one is wrong."""
    from _breakdown.pipeline.python_values import call_of

    flags = (*PIPELINE_OPTIONS[:2], *(mode_named(mode).options if mode in NAMES else ()))
    return call_of(profile, mode, options, {flag: OPTIONS[flag] for flag in flags})


@typed
def analyse(profile: Captures, mode: str | None = None, **options: Any) -> Any:
    """Return the answer as a dict, with the same fields as the command's JSON.

    Without a mode, the answer is that of `compare` if there is a baseline, else of `bottleneck`.
    `profile` is a path or the bytes of a trace; for compare and spread also a record or a list.
    Pass options as keyword arguments, such as `include_comm=True` for `--include-comm`;
    `processes=N` uses up to N processes. Raise NoAnswer if there is no answer, TypeError for an
    unknown option or a wrong type, and ValueError for an invalid value.
    """
    call = checked(profile, default_mode(options) if mode is None else mode, options)
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
    from _breakdown.pipeline.capture import Capture, run_steps

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
    from _breakdown.output.forms import in_pipe

    if format == "json":
        return encoded(answer, False)
    return in_pipe(format, dict(answer), module_of(answer), getattr(answer, "top", None))
