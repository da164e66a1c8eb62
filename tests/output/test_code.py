"""Test which source files `--code` shows, and which it never reads."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any
from unittest import mock

import compute_breakdown
from _breakdown import command
from _breakdown.output.code import SourceFiles
from compute_breakdown import render
from tests.harness import InFolder, in_folder, run, shared_file
from tests.modes.small_steps import small_capture

SMALL = shared_file("small.xplane.pb", small_capture())
TEXT = "import jax\n\ndef f(x):\n\treturn x + 1\n\nprint(f(2))\n"


class Places(InFolder):
    def setUp(self) -> None:
        super().setUp()
        self.root = self.folder / "app"
        (self.root / "layers").mkdir(parents=True)
        (self.root / "layers" / "norm.py").write_text(TEXT)
        (self.root / "train.py").write_text(TEXT)
        (self.folder / "secret.py").write_text(TEXT)
        (self.folder / "layers").mkdir()
        (self.folder / "layers" / "secret.py").write_text(TEXT)
        self.sources = SourceFiles(str(self.root))

    def test_line_is_shown_with_two_lines_around_it(self) -> None:
        for line, first, lines in (
            (1, 1, ["import jax", "", "def f(x):"]),
            (4, 2, ["", "def f(x):", "    return x + 1", "", "print(f(2))"]),
            (6, 4, ["    return x + 1", "", "print(f(2))"]),
        ):
            with self.subTest(line=line):
                self.assertEqual(
                    self.sources.at(f"/home/dev/model/layers/norm.py:{line}"),
                    {"file": "layers/norm.py", "line": line, "first_line": first, "lines": lines},
                )

    def test_no_code_is_shown_for_lines_that_the_file_lacks(self) -> None:
        for place in (None, "", "layers/norm.py", "layers/norm.py:0", "layers/norm.py:7"):
            self.assertIsNone(self.sources.at(place), place)
        for line in ("-1", "x", "1e3", "\N{SUPERSCRIPT TWO}"):
            self.assertIsNone(self.sources.at(f"layers/norm.py:{line}"), line)

    def test_files_outside_of_the_folder_are_never_opened(self) -> None:
        (self.root / "layers" / "link.py").symlink_to(self.folder / "secret.py")
        (self.root / "linked").symlink_to(self.folder / "layers")
        with mock.patch("_breakdown.output.code.os.open", side_effect=AssertionError):
            for place in (
                "layers/link.py",
                "linked/secret.py",
                f"{self.folder}/secret.py",
                f"{self.folder}/layers/secret.py",
                "layers/../../secret.py",
                "../layers/secret.py",
                "/etc/passwd",
                "layers/norm.py\0",
                "layers",
                "/",
            ):
                self.assertIsNone(self.sources.at(f"{place}:1"), place)

    def test_only_files_with_the_given_ending_are_shown(self) -> None:
        Path(self.root / "layers" / "norm.txt").write_text(TEXT)
        sources = SourceFiles(str(self.root), ".py")
        self.assertIsNone(sources.at("layers/norm.txt:1"))
        self.assertIsNotNone(sources.at("layers/norm.py:1"))


class Shown(InFolder):
    """Test where the code is shown."""

    def setUp(self) -> None:
        super().setUp()
        (self.folder / "model").mkdir()
        hostile = "x = 1  # </script><b>\x1b[31m ```\n"
        (self.folder / "model" / "train.py").write_text(hostile * 60)

    def test_every_form_shows_the_code_once_and_escaped(self) -> None:
        answer: Any = compute_breakdown.analyse(SMALL, "bottleneck", code=self.folder)
        first = answer["causes"][0]
        self.assertEqual(first["code"]["file"], "model/train.py")
        self.assertEqual(first["code"]["line"], int(first["source_user"].rpartition(":")[2]))
        rows = [*answer["causes"], *answer["findings"], *answer["lines"]]
        self.assertTrue(all("code" in row for row in rows))
        mark = f"> {first['code']['line']} | x = 1"
        for form in ("text", "markdown"):
            shown = render(answer, form)
            self.assertEqual(shown.count(mark), 1, shown)
            self.assertNotIn("\x1b", shown)

    def test_no_form_for_machines_shows_code_without_the_option(self) -> None:
        with in_folder(self.folder):
            answer = compute_breakdown.analyse(SMALL, "bottleneck")
            page = self.folder / "step.html"
            compute_breakdown.analyse(SMALL, "page", out=page)
        self.assertNotIn('"code":{"file"', render(answer, "json"))
        self.assertNotIn("x = 1", page.read_text())

    def test_page_shows_the_code_with_the_option(self) -> None:
        page = self.folder / "step.html"
        compute_breakdown.analyse(SMALL, "page", out=page, code=self.folder)
        text = page.read_text()
        self.assertIn("x = 1", text)
        self.assertNotIn("</script><b>", text)

    def test_text_on_a_terminal_shows_python_files_below_the_current_folder(self) -> None:
        outcome = command.outcome_of([str(SMALL), "--mode", "bottleneck", "--text"])
        for ending in ("py", "txt"):
            with in_folder(self.folder):
                for for_people in (True, False):
                    own = outcome._replace(fields=copy.deepcopy(outcome.fields))
                    shown = command.printed(own, for_people=for_people)
                    is_shown = for_people and ending == "py"
                    self.assertEqual("| x = 1" in shown, is_shown, (ending, for_people))
            model = self.folder / "model"
            if ending == "py":
                (model / "train.py").rename(model / "train.txt")

    def test_wrong_folder_is_an_error_and_a_folder_without_the_files_a_note(self) -> None:
        nowhere = self.folder / "nowhere"
        outcome = run(SMALL, "bottleneck", "--code", str(nowhere))
        self.assertEqual((outcome.status, outcome.object["reason"]), (1, "no_such_path"))
        self.assertEqual(outcome.object["detail"], f"--code: there is no folder {nowhere}")
        nowhere.mkdir()
        notes = run(SMALL, "bottleneck", "--code", str(nowhere)).object["notes"]
        self.assertIn(f"no line of this answer is in a file below {nowhere}", notes)
