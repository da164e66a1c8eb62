"""Test the features that all modes share: options, `--top`, and fusions that are collectives."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path
from unittest import mock

import _peaks
from _breakdown import command
from _breakdown.pipeline.command_line import name_of
from _breakdown.pipeline.context import Outcome
from _breakdown.pipeline.options import FORMS, FORMS_OF, OPTIONS
from tests.builders.xspace import op, trace
from tests.harness import (
    AFTER,
    ALL_MODES,
    BEFORE,
    LISTED_MODES,
    STEP_MODES,
    answer,
    keywords_of,
    run,
    sampled,
    shared_file,
)
from tests.modes.small_steps import HERE, STALL, STALLS, STEP, column, kernel, small_capture

SMALL = shared_file("small.xplane.pb", small_capture())
# The name of the file that `page` or `export` writes into a temporary folder.
OUT = "written"


# Options of which a command accepts only one.
EXCLUSIVE = (
    {"--step", "--step-id", "--baseline"},
    {"--model-flops", "--params", "--flops-per-token"},
    {"--peers", "--no-peers"},
)


def calls_with(options: list[list[str]]) -> list[list[str]]:
    """Distribute options over as few calls as possible."""
    calls: list[list[str]] = []
    for option in options:
        flags = {word for word in option if word.startswith("--")}
        for call in calls:
            others = set(call)
            if option[0] not in call and not any(
                flags & names and others & names and flags & names != others & names
                for names in EXCLUSIVE
            ):
                # Do not repeat an option that this option needs.
                call.extend(option[:2] if flags & others else option)
                break
        else:
            calls.append([*option])
    return calls


class OptionsOfModes(unittest.TestCase):
    # Words of a command line with an option, and the modes that accept the option.
    OPTIONS: dict[tuple[str, ...], str] = {  # noqa: RUF012
        ("--peers",): "bottleneck comm",
        ("--no-peers",): "bottleneck",
        ("--code", str(SMALL.parent)): "bottleneck page",
        ("--include-comm",): "summary by_source non_compute",
        ("--step", "0"): " ".join(STEP_MODES),
        ("--step-id", "100"): " ".join(STEP_MODES),
        ("--own", "m.py"): " ".join(STEP_MODES),
        ("--top", "3"): "bottleneck summary by_source by_op by_array non_compute roofline comm "
        "memory idle program kernel compare spread",
        ("--steps", ":1"): "record compare spread",
        ("--baseline", str(SMALL)): "compare page",
        ("--fail-over", "1"): "compare",
        ("--baseline-device", "/device:TPU:0", "--baseline", str(SMALL)): "compare page",
        ("--baseline-host", "small", "--baseline", str(SMALL)): "compare page",
        ("--include-data-move",): "by_source",
        ("--no-comm-stalls",): "non_compute",
        ("--depth", "all"): "by_scope",
        ("--below", ""): "by_scope",
        ("--merge-layers",): "by_scope",
        ("--op", "flash.3"): "by_op",
        ("--no-merge",): "by_op by_array",
        ("--chip", "v7x"): "bottleneck roofline by_op by_array kernel export",
        ("--bytes", "hbm"): "roofline",
        ("--kernel-cost", "flash=1,1"): "bottleneck roofline by_op kernel export",
        ("--kernel", "flash"): "kernel",
        ("--model-flops", "1e9"): "bottleneck",
        ("--tokens", "8"): "bottleneck compare",
        ("--flops-per-token", "1e9", "--tokens", "8", "--n-devices", "2"): "bottleneck",
        ("--params", "7e9", "--tokens", "8", "--n-devices", "2"): "bottleneck",
        ("--n-devices", "2", "--tokens", "8", "--params", "7e9"): "bottleneck",
        ("--flags", __file__): "program",
        ("--out", OUT): "page export",
        ("--open",): "page",
        ("--plane", "0"): "anatomy",
        ("--line", "XLA Ops"): "anatomy",
        ("--grep", "fl.sh"): "anatomy",
        ("--sample", "1"): "anatomy",
        **{
            (f"--peak-{peak}", "5"): "bottleneck roofline by_op by_array kernel export"
            for peak in (*(f"tflops-{dtype}" for dtype in _peaks.DTYPES), "hbm-gibps")
        },
    }

    def setUp(self) -> None:
        # `--open` must not start a browser.
        patched = mock.patch("webbrowser.open")
        patched.start()
        self.addCleanup(patched.stop)

    def test_table_of_this_test_lists_every_option(self) -> None:
        self.assertEqual(
            {use[0] for use in self.OPTIONS},
            {flag for mode in LISTED_MODES for flag in mode.options},
            "give each option a line in OptionsOfModes.OPTIONS and one in the table of options on"
            " the user's page, and draw it in tests/builders/random_xspace.py",
        )

    def test_option_of_another_mode_is_rejected(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        out = Path(folder.name, OUT)
        for option, modes in sampled(self.OPTIONS.items(), 4):
            # The text form is tested in tests/modes/test_text.py.
            for mode in () if "--text" in option else ALL_MODES:
                needed = {
                    "compare": ["--baseline", str(SMALL)],
                    "anatomy": ["--plane", "/device:TPU:0"],
                    "page": ["--out", str(out)],
                    "export": ["--out", str(out)],
                }.get(mode, [])
                # An option must not be passed twice with different values.
                needed = needed if needed[:1] != [*option[:1]] else []
                with self.subTest(option=option, mode=mode):
                    # A mode does not replace a file that another mode wrote.
                    out.unlink(missing_ok=True)
                    given = [str(out) if word == OUT else word for word in option]
                    outcome = run(SMALL, mode, *needed, *given)
                    is_own = mode in modes.split()
                    self.assertEqual(outcome.object["status"], "ok" if is_own else "absent")
                    reason = None if is_own else "bad_arguments"
                    self.assertEqual(outcome.object.get("reason"), reason)
                    # With too few steps, the gate exits with 1.
                    passed = 1 if "--fail-over" in option else 0
                    self.assertEqual(outcome.status, passed if is_own else 2)

    def test_mode_function_takes_exactly_the_options_of_its_mode(self) -> None:
        """Check this in a test, because type checkers do not check calls with `**options`."""
        names = {flag: name_of(flag, option) for flag, option in OPTIONS.items()}
        for mode in LISTED_MODES:
            with self.subTest(mode=mode.name):
                keywords = [
                    keyword
                    for keyword in keywords_of(mode).values()
                    if keyword.kind is not keyword.POSITIONAL_OR_KEYWORD
                ]
                for keyword in keywords:
                    self.assertIs(keyword.kind, keyword.KEYWORD_ONLY, keyword)
                    if keyword.name not in ("baseline", "out"):
                        self.assertIsNot(keyword.default, keyword.empty, f"{keyword}: no default")
                self.assertEqual(
                    {keyword.name for keyword in keywords},
                    {names[flag] for flag in mode.options} - {"step", "step_id", "own"},
                    f"the keyword parameters of {mode.name} are not what its options give",
                )
                self.assertEqual(len(set(mode.options)), len(mode.options))

    def test_every_option_belongs_to_a_mode_or_to_the_pipeline(self) -> None:
        taken = {flag for mode in LISTED_MODES for flag in mode.options}
        pipeline = set(command.PIPELINE_OPTIONS)
        self.assertFalse(taken & pipeline)
        self.assertEqual(taken | pipeline, set(OPTIONS))

    def test_every_option_works_in_every_format(self) -> None:
        """Test all options of all modes, as many in one call as possible. Each answer is computed
        once for all formats."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        needed = {mode: ["--out", str(Path(folder.name, OUT))] for mode in ("page", "export")}
        needed |= {"anatomy": ["--plane", "0"], "compare": ["--baseline", str(BEFORE)]}
        for mode in ALL_MODES:
            options = [
                [*option]
                for option, modes in self.OPTIONS.items()
                if mode in modes.split() and option[0] not in needed.get(mode, ())
            ]
            for call in calls_with(options):
                profile = str(AFTER if mode == "compare" else SMALL)
                words = [profile, "--mode", mode, *needed.get(mode, ()), *call]
                with self.subTest(words=words):
                    Path(folder.name, OUT).unlink(missing_ok=True)
                    outcome = command.outcome_of(words)
                    self.assertEqual(outcome.fields["status"], "ok", outcome.fields)
                    self.check_formats(words, outcome)

    def check_formats(self, words: list[str], outcome: Outcome) -> None:
        """Print an answer in all formats, which must not change the options of the mode."""
        mode = outcome.fields["mode"]
        for form in FORMS_OF.get(mode, FORMS):
            for more in ((), ("--all",)) if form in ("text", "markdown") else ((),):
                options = [*words, "--format", form, *more]
                request = command.parse_command_line(options)
                assert outcome.request
                self.assertEqual(request.mode_options, outcome.request.mode_options)
                shown = outcome._replace(form=form, request=request)
                self.assertTrue(command.printed(shown, for_people=False))

    def test_invalid_option_values_are_rejected(self) -> None:
        for mode, option, values in (
            ("summary", "--top", ("-1", "x", "1.5", "")),
            ("summary", "--step", ("x", "1.5", "")),
            ("roofline", "--peak-tflops-bf16", ("0", "-1", "nan", "inf", "x", "")),
            ("roofline", "--peak-hbm-gibps", ("0", "-1", "nan", "inf", "x", "")),
            ("roofline", "--chip", ("v99", "")),
            ("roofline", "--bytes", ("vmem", "")),
            (
                "roofline",
                "--kernel-cost",
                (
                    *("", "flash", "flash=", "flash=1", "=1,1", "flash=1,x", "flash=-1,1"),
                    *("flash=1,-1", "flash=nan,1", "flash=inf,1", "flash=1,inf", "flash=1e400,1"),
                    *("flash=1.5,1", "flash=1,1.5", "flash=1e-1,1", f"flash={2**63},1"),
                    *("flash=1,1,s8", "flash=1,1,", "flash=1,1,bf16,1"),
                ),
            ),
        ):
            for value in values:
                with self.subTest(option=option, value=value):
                    outcome = run(trace([kernel(0, 5)]), mode, option, value)
                    self.assertEqual(outcome.object.get("reason"), "bad_arguments")
                    self.assertEqual((outcome.status, outcome.object["mode"]), (2, None))


class AsyncCollectiveFusions(unittest.TestCase):
    """Test asynchronous collectives of v5e, which are pairs of fusions around math."""

    OPS = (
        op("async-collective-start.1", "loop fusion", 0, 1, stack=HERE),
        op("async_collective_fusion.1", "convolution fusion", 10, 2, stack=HERE),
        op("async-collective-done.1", "output fusion", 20, 4, stack=HERE),
        op("async-collective-done", "fusion", 30, 8),
        op("async-collective-dones", "loop fusion", 40, 16),
        op("async-collective-done.3", "copy", 60, 32),
        op("my-async-collective-done", "loop fusion", 100, 64),
        op("async-collective-done.4", "while", 200, 128),
    )

    def test_done_fusion_counts_as_a_stall(self) -> None:
        for options, stalls, comm in (
            ([], 12, []),
            (["--no-comm-stalls"], 0, []),
            (["--include-comm"], 12, [("loop fusion", 1)]),
            (["--include-comm", "--no-comm-stalls"], 0, [("loop fusion", 1)]),
        ):
            result = answer(trace(list(self.OPS), STEP), "non_compute", *options)
            rows = column(result["by_category"], "hlo_category", "total_dur_ps")
            expected = [("copy", 32), *comm, *([(STALL, stalls)] if stalls else [])]
            self.assertEqual(sorted(rows), sorted(expected))
            self.assertEqual(STALLS in result["notes"], bool(stalls))
        rows = answer(trace(list(self.OPS), STEP), "non_compute")["by_source_within_category"]
        keys = [row["agg_key"] for row in rows if row["hlo_category"] == STALL]
        self.assertEqual(keys[1], "<no source>:fusion")
