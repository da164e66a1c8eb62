"""Test help, usage errors, abbreviated names and the progress line."""

from __future__ import annotations

import gc
import itertools
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import compute_breakdown
from _breakdown import command
from _breakdown.modes import STEP_OPTIONS
from _breakdown.pipeline import streams
from _breakdown.pipeline.context import Request
from _breakdown.pipeline.options import OPTIONS
from tests.builders.xspace import Space, encode, op, tpu_plane, trace
from tests.harness import (
    AFTER,
    BEFORE,
    BRIEF,
    DEMO,
    LISTED_MODES,
    ROOT,
    SCRIPT,
    as_process,
    keywords_of,
    run,
    shared_file,
)
from tests.modes.small_steps import kernel, small_capture


def printed(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout


class Help(unittest.TestCase):
    def test_help_has_a_section_with_options_and_an_example_for_each_mode(self) -> None:
        text = printed(str(SCRIPT), "--help")
        for mode in LISTED_MODES:
            with self.subTest(mode=mode.name):
                section = text.split(f"--mode {mode.name}:\n")[1].split("\n--mode ")[0]
                self.assertIn(f"example: compute_breakdown.py PROFILE --mode {mode.name} ", section)
                for flag in mode.options:
                    is_common = flag in STEP_OPTIONS
                    self.assertIn(flag, text if is_common else section)

    def test_every_example_in_the_help_works(self) -> None:
        capture = small_capture()
        baseline = str(shared_file("small.xplane.pb", capture))
        for mode in LISTED_MODES:
            with self.subTest(mode=mode.name):
                example = mode.example.replace("BASELINE", baseline).split()
                # These examples name an op and a kernel of the demo.
                profile = DEMO if mode.name in ("by_op", "kernel") else capture
                outcome = run(profile, mode.name, *example)
                self.assertEqual(outcome.object["status"], "ok")

    def test_help_of_top_shows_the_default_of_each_mode(self) -> None:
        text = OPTIONS["--top"].help
        for mode in LISTED_MODES:
            if "--top" in mode.options:
                with self.subTest(mode=mode.name):
                    default = keywords_of(mode)["top"].default
                    if default is None:
                        self.assertIn("other modes list all rows in the order of the trace", text)
                        self.assertNotIn(f" in {mode.name}", text)
                    else:
                        self.assertIn(f"{default} in {mode.name}", text)


class WithoutMode(unittest.TestCase):
    def test_command_without_arguments_prints_a_short_help(self) -> None:
        outcome = subprocess.run(
            [sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False
        )
        self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
        self.assertLessEqual(outcome.stdout.count("\n"), 10)
        for mode in LISTED_MODES:
            self.assertIn(mode.name, outcome.stdout)

    def test_mode_without_the_option_is_bottleneck_or_compare(self) -> None:
        path = shared_file("small.xplane.pb", small_capture())
        outcome = as_process(path, "--top", "3")
        self.assertEqual(outcome.object, run(path, "bottleneck", "--top", "3", BRIEF).object)
        outcome = as_process(AFTER, "--baseline", BEFORE)
        self.assertEqual(outcome.object["mode"], "compare")
        outcome = as_process(path, "--kernel", "x")
        self.assertEqual(outcome.object["detail"], "--kernel is only valid with --mode kernel")


class UsageErrors(unittest.TestCase):
    def test_command_prints_an_object_and_the_usage(self) -> None:
        outcome = as_process("--top", "3")
        self.assertEqual((outcome.status, outcome.object["reason"]), (2, "bad_arguments"))
        self.assertTrue(outcome.stderr.startswith("usage: "))

    def assert_usage_error(self, detail: str, *arguments: str | Path) -> None:
        outcome = command.outcome_of([*map(str, arguments)])
        self.assertEqual((outcome.status, outcome.fields["reason"]), (2, "bad_arguments"))
        self.assertEqual(outcome.fields["detail"], detail)
        usage, line = outcome.complaint.splitlines()
        self.assertTrue(usage.startswith("usage: "))
        self.assertEqual(line, f"compute_breakdown: bad_arguments: {detail}")

    def test_profile_is_required(self) -> None:
        detail = "PROFILE is missing; pass an .xplane.pb file, or a run or log directory"
        self.assert_usage_error(detail, "--top", "3")

    def test_second_cost_for_the_same_kernel_is_rejected(self) -> None:
        for again in ("k=1,1", "k=2,3,fp8"):
            self.assert_usage_error(
                "--kernel-cost was passed twice for k; pass one cost per kernel",
                *(DEMO, "--mode", "roofline", "--kernel-cost", "k=1,1"),
                *("--kernel-cost", "j=1,1", "--kernel-cost", again),
            )

    def test_abbreviated_options_are_rejected_with_a_suggestion(self) -> None:
        self.assert_usage_error(
            "unknown option --inc; did you mean --include-comm?",
            *(DEMO, "--mode", "summary", "--inc"),
        )


class Words(unittest.TestCase):
    """Test how the words of a command line become options, values and profiles."""

    def parsed(self, *words: str) -> Request:
        return command.parse_command_line(words)

    def options(self, mode: str, *words: str) -> dict[str, Any]:
        return self.parsed("x.pb", "--mode", mode, *words).mode_options

    def test_options_and_profiles_can_have_any_order(self) -> None:
        words = (["--mode", "spread"], ["--top=3"], ["a.json"], ["b.json"])
        for order in itertools.permutations(words):
            request = self.parsed(*itertools.chain(*order))
            given = (request.mode, request.mode_options, sorted(request.profiles))
            self.assertEqual(given, ("spread", {"top": 3}, ["a.json", "b.json"]))

    def test_value_can_begin_with_a_hyphen(self) -> None:
        self.assertEqual(self.options("idle", "--step", "-1"), {"step": -1})
        for words in (["--steps", "-3:"], ["--steps=-3:"]):
            self.assertEqual(self.options("record", *words), {"steps": slice(-3, None)})
        for value in ("-", "--", "-x", "--top", "a=b"):
            self.assertEqual(self.options("by_op", f"--op={value}"), {"op": value})
        self.assertEqual(self.options("page", "--out", "x", "--baseline", "-")["baseline"], ["-"])

    def test_words_after_two_hyphens_are_profiles(self) -> None:
        request = self.parsed("--mode", "spread", "--", "--top", "-h", "--")
        self.assertEqual(request.profiles, ["--top", "-h", "--"])

    def test_page_is_printed_without_a_profile(self) -> None:
        for words, start in (
            (["-h"], "usage: "),
            (["--top", "3", "--help"], "usage: "),
            (["--help", "--nonsense"], "usage: "),
            (["--version"], "compute_breakdown "),
            (["--schema", "idle"], "{"),
            (["--explain=not_donated"], "not_donated\n"),
        ):
            with self.subTest(words), self.assertRaises(command.PageRequested) as page:
                self.parsed(*words)
            self.assertTrue(str(page.exception).startswith(start), page.exception)
        with self.assertRaisesRegex(compute_breakdown.NoAnswer, "--explain must be one of .*did"):
            self.parsed("--explain", "not_donate")


class Misspellings(unittest.TestCase):
    def assert_suggested(self, name: str | None, *options: str) -> None:
        """Check that an error answer suggests the given name, or no name if it is None."""
        with self.subTest(options):
            detail = run(DEMO, *options).object.get("detail", "")
            self.assertEqual(detail.partition("; did you mean ")[2], f"{name}?" if name else "")

    def test_error_answer_suggests_the_most_similar_name(self) -> None:
        self.assert_suggested("--top", "idle", "--tpo=3")
        self.assert_suggested("bottleneck", "bottelneck")
        self.assert_suggested("text", "idle", "--format", "txt")
        self.assert_suggested("v6e", "bottleneck", "--chip", "v6")


class ShortNames(unittest.TestCase):
    def test_device_is_found_by_its_number(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        record = Path(folder.name, "record.json")
        planes = [
            tpu_plane([op("a", "loop fusion", 0, 5 + i)], [("0", 0, 9)], name=f"/device:TPU:{i}")
            for i in range(2)
        ]
        capture = Path(folder.name, "capture.xplane.pb")
        capture.write_bytes(encode(Space(planes)))
        record.write_text(json.dumps(run(capture, "record").object), encoding="utf-8")
        names = {
            "1": "/device:TPU:1",
            "TPU:1": "/device:TPU:1",
            "/device:TPU:1": "/device:TPU:1",
            "0": "/device:TPU:0",
        }
        pairs = ((capture, record), (record, capture))
        for (profile, base), short in itertools.product(pairs, names):
            baseline, name = ("--baseline", str(base)), names[short]
            result = run(profile, "compare", *baseline, "--device", short).object
            self.assertEqual(result["after"]["device"], name)
            result = run(profile, "compare", *baseline, "--baseline-device", short).object
            self.assertEqual(result["before"]["device"], name)
            result = run(profile, "spread", "--device", short).object
            self.assertEqual(result["cohorts"][0]["devices"][0]["device"], name)
        for mode in ("summary", "record"):
            self.assertEqual(
                run(capture, mode, "--device", "1").object,
                run(capture, mode, "--device", "/device:TPU:1").object,
            )
        outcome = run(capture, "summary", "--device", "7")
        self.assertEqual(
            (outcome.object["reason"], outcome.object["device"], outcome.status),
            ("device_not_found", "/device:TPU:7", 1),
        )
        for other in ("TPU:", "TPU", "-1", "1.0", "tpu:1", "TPU:x", "device:TPU:1"):
            result = run(capture, "summary", f"--device={other}").object
            self.assertEqual((result["reason"], result["device"]), ("device_not_found", other))

    def test_step_is_found_by_a_unique_prefix_of_its_name(self) -> None:
        ops = [op("a", "loop fusion", 10 * i, 5) for i in range(6)]
        names = ["train 1", "train 2", "eval", "12", "1x", "train 2"]
        data = trace(ops, [(name, 10 * i, 10) for i, name in enumerate(names)])
        for asked, name in {
            "eval": "eval",
            "e": "eval",
            # Two steps have this name.
            "train 2": "train 2",
            "1x": "1x",
            "12": "12",
            "train": None,
            "1": None,
            "evaluation": None,
            "Eval": None,
            "train 22": None,
        }.items():
            with self.subTest(asked):
                outcome = run(data, "summary", "--step-id", asked)
                result = outcome.object
                note = f"--step-id {asked}: using {name}, the only name with this prefix"
                self.assertEqual(note in result["notes"], name not in (None, asked))
                if name is None:
                    self.assertEqual((result["reason"], outcome.status), ("step_not_found", 1))
                    self.assertEqual(result["available_steps"], names)
                else:
                    self.assertEqual(result["step_name"], name)


class KernelNames(unittest.TestCase):
    def test_kernel_is_found_by_a_unique_prefix_of_its_name(self) -> None:
        kernels = ["flash_backward", "flash_forward"]
        data = trace([kernel(10 * i, 10, f"{name}.{i}") for i, name in enumerate(kernels)])
        short, whole_name = "flash_f", kernels[1]
        for mode in ("roofline", "bottleneck"):
            whole = run(data, mode, "--kernel-cost", f"{whole_name}=1e12,1e9").object
            result = run(data, mode, "--kernel-cost", f"{short}=1e12,1e9").object
            note = f"--kernel-cost {short}: using {whole_name}, the only name with this prefix"
            self.assertIn(note, result["notes"])
            result["notes"].remove(note)
            self.assertEqual(result, whole)
            twice = ("--kernel-cost", f"{short}=1,1", "--kernel-cost", f"{whole_name}=1,1")
            outcome = run(data, mode, *twice)
            self.assertEqual((outcome.object["reason"], outcome.status), ("bad_arguments", 2))
            self.assertIn(f"--kernel-cost was passed twice for {whole_name}", outcome.stderr)
            for asked in ("f", "nothing"):
                result = run(data, mode, "--kernel-cost", f"{asked}=1,1").object
                self.assertEqual(result["reason"], "kernel_not_found", asked)
                self.assertEqual(set(result["available_kernels"]), set(kernels))


class Escapes(unittest.TestCase):
    def test_slash_after_a_less_than_sign_is_escaped_in_json(self) -> None:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "</script>", "--mode", "summary"],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertNotIn("</", done.stdout)
        self.assertIn(r'"profile_dir":"<\/script>"', done.stdout)
        self.assertEqual(json.loads(done.stdout)["profile_dir"], "</script>")


class ProgressLine(unittest.TestCase):
    def setUp(self) -> None:
        self.stream = tempfile.TemporaryFile("w+", newline="")  # noqa: SIM115
        self.addCleanup(self.stream.close)

    def shown(self) -> list[str]:
        self.stream.seek(0)
        text: str = self.stream.read()
        return text.split("\r\x1b[K")

    def test_progress_line_appears_after_one_second_and_is_erased(self) -> None:
        with mock.patch("time.monotonic", side_effect=[0.0, 0.5, 1.5, 1.55, 1.7]):
            progress = streams.Progress(self.stream)
            for position in (1, 2, 3, 4):
                progress("reading", position, 9)
        progress.erase()
        self.assertEqual(self.shown(), ["", "reading: 22 %", "reading: 44 %", ""])

    def test_progress_is_shown_only_on_terminals(self) -> None:
        for is_terminal in (False, True):
            with (
                self.subTest(is_terminal=is_terminal),
                mock.patch.object(self.stream, "isatty", return_value=is_terminal),
                mock.patch("sys.stderr", self.stream),
                mock.patch("time.monotonic", side_effect=range(0, 10**6, 10)),
                tempfile.TemporaryFile("w+") as stdout,
                mock.patch("sys.stdout", stdout),
            ):
                self.addCleanup(gc.enable)
                path = shared_file("small.xplane.pb", small_capture())
                command.main([str(path), "--mode", "summary"])
                shown = self.shown()
                self.assertEqual(any("reading" in line for line in shown), is_terminal)
                self.assertEqual(shown[-1], "")
