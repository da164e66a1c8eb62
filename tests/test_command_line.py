"""What the command line says and shows: help, usage errors, the progress line, start-up."""

from __future__ import annotations

import io
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

import compute_breakdown
from tests.harness import DEMO, ROOT, SCRIPT, command, run


def printed(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout


class Help(unittest.TestCase):
    def test_help_has_a_section_with_an_example_for_each_mode(self) -> None:
        text = printed(str(SCRIPT), "--help")
        for mode in compute_breakdown.MODES:
            with self.subTest(mode=mode.name):
                section = text.split(f"--mode {mode.name}:\n")[1].split("\n--mode ")[0]
                self.assertIn(f"example: compute_breakdown PROFILE --mode {mode.name} ", section)
                for flag in mode.options:
                    self.assertIn(flag, section)

    def test_every_example_in_the_help_works(self) -> None:
        for mode in compute_breakdown.MODES:
            with self.subTest(mode=mode.name):
                outcome = run(DEMO, mode.name, *mode.example.split())
                self.assertEqual(outcome.object["status"], "ok")

    def test_version_is_that_of_the_module(self) -> None:
        self.assertEqual(
            printed(str(SCRIPT), "--version"),
            f"compute_breakdown {compute_breakdown.__version__}\n",
        )

    def test_help_does_not_wait_for_protobuf(self) -> None:
        loaded = printed(
            "-c",
            "import sys, compute_breakdown as c\n"
            "try: c.main(['--help'])\n"
            "except SystemExit: print([m for m in sys.modules if m.startswith('google')])",
        )
        self.assertEqual(loaded.splitlines()[-1], "[]")


class UsageErrors(unittest.TestCase):
    def assert_usage_error(self, detail: str, *arguments: str | Path) -> None:
        outcome = command(*arguments)
        self.assertEqual((outcome.status, outcome.object["reason"]), (2, "bad_arguments"))
        self.assertEqual(outcome.object["detail"], detail)
        usage, line = outcome.stderr.splitlines()
        self.assertTrue(usage.startswith("usage: "))
        self.assertEqual(line, f"compute_breakdown: bad_arguments: {detail}")

    def test_an_option_of_another_mode_names_its_own(self) -> None:
        self.assert_usage_error(
            "--no-comm-stalls belongs to --mode non_compute",
            *(DEMO, "--mode", "summary", "--no-comm-stalls"),
        )
        self.assert_usage_error(
            "--include-comm belongs to --mode summary or by_source or non_compute",
            *(DEMO, "--mode", "roofline", "--include-comm"),
        )

    def test_step_and_step_id_exclude_each_other(self) -> None:
        self.assert_usage_error(
            "--step and --step-id exclude each other",
            *(DEMO, "--mode", "summary", "--step", "0", "--step-id", "100"),
        )

    def test_abbreviated_options_are_not_guessed(self) -> None:
        self.assert_usage_error("unrecognized arguments: --inc", DEMO, "--mode", "summary", "--inc")


class ProgressLine(unittest.TestCase):
    def test_nothing_is_shown_in_the_first_second(self) -> None:
        stream = io.StringIO()
        progress = compute_breakdown.Progress(stream)
        progress(1 << 20, 2 << 20)
        progress.erase()
        self.assertEqual(stream.getvalue(), "")

    def test_after_a_second_a_line_is_shown_and_erased(self) -> None:
        stream = io.StringIO()
        with mock.patch("time.monotonic", side_effect=[0.0, 0.5, 1.5, 1.55, 1.7]):
            progress = compute_breakdown.Progress(stream)
            for position in (1, 2, 3, 4):
                progress(position << 20, 9 << 20)
        progress.erase()
        shown = stream.getvalue().split("\r\x1b[K")
        self.assertEqual(shown, ["", "reading: 2 of 9 MiB", "reading: 4 of 9 MiB", ""])

    def test_only_a_terminal_sees_it(self) -> None:
        for is_terminal in (False, True):
            stream = io.StringIO()
            with (
                self.subTest(is_terminal=is_terminal),
                mock.patch.object(stream, "isatty", return_value=is_terminal),
                mock.patch("sys.stderr", stream),
                mock.patch("time.monotonic", side_effect=range(0, 10**6, 10)),
            ):
                run(DEMO, "summary")
                self.assertEqual("reading" in stream.getvalue(), is_terminal)
                self.assertTrue(stream.getvalue().endswith("\r\x1b[K" if is_terminal else ""))


if __name__ == "__main__":
    unittest.main()
