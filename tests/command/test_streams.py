"""Test stdin, stdout, stderr, terminals and interruptions.

Even if a stream fails, the exit status is as documented, and stdout has one complete object or
nothing.
"""

from __future__ import annotations

import fcntl
import gzip
import itertools
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from array import array
from pathlib import Path

from _breakdown import command
from tests import harness
from tests.builders.xspace import op, trace
from tests.fuzz import check_outcome, damaged_at
from tests.modes.small_steps import small_capture

OPS = [op(f"fusion.{i}", "loop fusion", 10 * i, 9, tf_op=f"op{i}") for i in range(300)]
SMALL = trace(OPS[:2], [("0", 0, 150)])
# The answer for this trace exceeds the capacity of a pipe.
LARGE = trace(OPS, [("0", 0, 3000)])
# Pass only the variables that Python needs, because others, such as PYTHONUNBUFFERED, could hide
# errors.
ERASE = "\r\x1b[K"
BARE = {"LANG": "C.UTF-8"} | {
    name: os.environ[name] for name in ("PATH", "PYTHONPATH", "TMPDIR") if name in os.environ
}
UNBUFFERED = {**BARE, "PYTHONUNBUFFERED": "1"}


class StreamsTest(harness.InFolder):
    def setUp(self) -> None:
        super().setUp()
        self.small = self.write("small.xplane.pb", SMALL)
        self.large = self.write("large.xplane.pb", LARGE)

    def shell(
        self, line: str, *arguments: str | Path, env: dict[str, str] = BARE
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command line, in which "$@" is the program with its arguments."""
        command = [sys.executable, str(harness.SCRIPT), *map(str, arguments)]
        return subprocess.run(
            ["bash", "-c", line, "bash", *command],
            capture_output=True, text=True, check=False, env=env, timeout=harness.bound(30),
        )  # fmt: skip


class Stderr(StreamsTest):
    def test_exit_status_is_unchanged_if_stderr_cannot_be_written(self) -> None:
        empty = self.write("empty.xplane.pb", b"")
        for redirection, env, status, arguments in (
            ("2>&-", BARE, 0, (self.small, "--mode", "summary")),
            ("2>/dev/full", BARE, 1, (empty, "--mode", "summary")),
            ("2>/dev/full", UNBUFFERED, 2, (self.small, "--mode", "none")),
            ("2< /dev/null", BARE, 2, (self.small, "--mode", "none")),
        ):
            with self.subTest(redirection=redirection, status=status):
                done = self.shell(f'"$@" {redirection}', *arguments, env=env)
                self.assertEqual(done.returncode, status)
                json.loads(done.stdout)


class Stdout(StreamsTest):
    def test_closed_stdout_is_an_error(self) -> None:
        for line, arguments in (
            ('"$@" >&-', (self.small, "--mode", "summary")),
            ('"$@" <&- >&-', ("--help",)),
            ('"$@" <&- >&- 2>&-', (self.small, "--mode", "summary")),
        ):
            with self.subTest(line=line, arguments=arguments):
                done = self.shell(line, *arguments)
                complaint = "compute_breakdown: cannot write to stdout: Bad file descriptor\n"
                expected = (1, "", complaint * ("2>&-" not in line))
                self.assertEqual((done.returncode, done.stdout, done.stderr), expected)

    def test_full_disk_is_an_error(self) -> None:
        summary = (self.large, "--mode", "by_source")
        for env, arguments in ((BARE, summary), (UNBUFFERED, summary), (BARE, ("--version",))):
            with self.subTest(env=env, arguments=arguments):
                done = self.shell('"$@" >/dev/full', *arguments, env=env)
                complaint = "compute_breakdown: cannot write to stdout: No space left on device\n"
                self.assertEqual((done.returncode, done.stderr), (1, complaint))

    def test_slow_reader_of_a_nonblocking_pipe_gets_the_complete_answer(self) -> None:
        for env in (BARE, UNBUFFERED):
            reader, writer = os.pipe()
            os.set_blocking(writer, False)
            process = subprocess.Popen(
                [sys.executable, harness.SCRIPT, self.large, "--mode", "by_source"],
                stdout=writer,
                env=env,
            )
            os.close(writer)
            time.sleep(0.3)
            with os.fdopen(reader, "rb") as pipe:
                groups = json.load(pipe)["groups"]
            self.assertEqual((process.wait(harness.bound(30)), len(groups)), (0, len(OPS)), env)

    def test_program_exits_quietly_if_the_reader_of_stdout_exits(self) -> None:
        modes = (*harness.MODES_OF_TRACE, "record", "spread", "anatomy")
        for mode, reader in harness.sampled(itertools.product(modes, ("head -c 1", "true")), 2):
            with self.subTest(mode=mode, reader=reader):
                line = f'{{ "$@"; echo $? >&2; }} | {reader}'
                done = self.shell(line, self.large, "--mode", mode)
                self.assertIn(done.stderr, ("0\n", "141\n"))


class Terminal(StreamsTest):
    def on_terminal(
        self, *arguments: str | Path, stderr: int | None = None, setup: str = ""
    ) -> tuple[str, str]:
        """Run the program on a terminal; return the text that stays there, and the text of stderr
        if it is a pipe.

        The Python code `setup` runs before the program, in the same process; the text then has the
        progress, too.
        """
        master, slave = pty.openpty()
        code = f"{setup}; from _breakdown import command as c; raise SystemExit(c.main())"
        process = subprocess.Popen(
            [sys.executable, *(("-c", code) if setup else (harness.SCRIPT,)), *arguments],
            stdout=slave,
            stderr=slave if stderr is None else stderr,
            text=True,
            env=BARE,
            cwd=harness.ROOT if setup else None,
        )
        os.close(slave)
        result = b""
        while select.select([master], [], [], harness.bound(30))[0]:
            try:
                result += os.read(master, 1 << 16)
            except OSError:
                break
        os.close(master)
        rest = process.communicate(timeout=harness.bound(30))[1] or ""
        text = result.decode().replace("\r\n", "\n")
        # A slow machine also shows progress, which the program erases before it prints the answer.
        return text if setup else text.rpartition(ERASE)[2], rest

    def test_answer_on_a_terminal_is_indented_and_followed_by_a_hint(self) -> None:
        result, _ = self.on_terminal(self.small, "--mode", "summary")
        text, _, hint = result.rstrip("\n").rpartition("\n")
        self.assertEqual(
            {**json.loads(text), "next_steps": []}, harness.run(self.small, "summary").object
        )
        self.assertTrue(text.startswith('{\n  "status": "ok",\n'))
        self.assertEqual(f"{hint}\n", command.HINT)
        for word in ("--format text", "jq", "--top"):
            self.assertIn(word, hint)

    def test_mode_page_prints_the_path_and_the_headline_on_a_terminal(self) -> None:
        out = self.folder / "step.html"
        result, _ = self.on_terminal(self.small, "--mode", "page", "--out", str(out))
        self.assertIn(f"Wrote {out} (", " ".join(result.split()))
        headline = harness.run(self.small, "bottleneck").object["headline"]
        self.assertIn(headline, " ".join(result.split()))
        result, _ = self.on_terminal(self.small, "--mode", "page", "--out", str(self.folder))
        self.assertTrue(result.startswith("page: no answer for "), result)
        result, _ = self.on_terminal(
            self.small, "--mode", "page", "--out", str(out), "--format=json"
        )
        self.assertIn('"status": "ok"', result)

    def test_answer_on_a_terminal_is_text_unless_a_mode_is_given(self) -> None:
        text, _ = self.on_terminal(self.small)
        self.assertIn("\nbottleneck: ", text)
        result, _ = self.on_terminal(self.small, "--mode", "bottleneck")
        self.assertIn('"status": "ok"', result)
        result, _ = self.on_terminal(self.small, "--baseline", str(self.small))
        self.assertIn("\ncompare", result)

    def test_long_runs_show_progress_for_each_activity(self) -> None:
        # This clock advances ten seconds with each reading, so every progress line appears.
        late = "import itertools, time; time.monotonic = itertools.count(0, 10).__next__"
        page, database = str(self.folder / "x.html"), str(self.folder / "x.db")
        cases: tuple[tuple[tuple[str, ...], set[str]], ...] = (
            (("summary",), {"reading"}),
            (("comm", "--peers"), {"reading", "reading devices"}),
            (("bottleneck", "--peers"), {"reading", "reading devices"}),
            (("record",), {"reading", "reading devices"}),
            (("spread", str(self.write("b.xplane.pb", small_capture()))), {"reading captures"}),
            (("anatomy",), {"reading planes"}),
            (("page", "--out", page), {"reading", "computing", "reading devices"}),
            (("export", "--out", database), {"reading", "writing"}),
        )
        capture = self.write("a.xplane.pb", small_capture())
        for options, activities in harness.sampled(cases, 3):
            with self.subTest(options=options):
                result, _ = self.on_terminal(capture, "--mode", *options, setup=late)
                *lines, answer = result.split(ERASE)
                found: dict[str, list[int]] = {}
                for line in filter(None, lines):
                    activity, _, share = line.removesuffix(" %").rpartition(": ")
                    found.setdefault(activity, []).append(int(share))
                self.assertEqual(found.keys() - {"unpacking"}, activities)
                for activity, shares in found.items():
                    self.assertEqual(shares, sorted(shares), activity)
                self.assertRegex(answer, r"\A(?:\{|\x1b\[1mWrote )")


class Stdin(StreamsTest):
    def from_pipe(self, data: bytes) -> harness.Outcome:
        done = subprocess.run(
            [sys.executable, harness.SCRIPT, "-", "--mode", "summary"],
            input=data, capture_output=True, check=False, timeout=harness.bound(30), env=BARE,
        )  # fmt: skip
        outcome = harness.Outcome(json.loads(done.stdout), done.returncode, done.stderr.decode())
        check_outcome(outcome)
        return outcome

    def test_trace_from_stdin_gives_the_same_answer(self) -> None:
        names = dict.fromkeys(("profile_dir", "xplane_file"), "-")
        expected = {**harness.answer(LARGE, "summary"), **names}
        for data in (LARGE, gzip.compress(LARGE)):
            self.assertEqual(self.from_pipe(data).object, expected)
        done = self.shell(f'"$@" < {self.small}', "-", "--mode", "summary")
        self.assertEqual(json.loads(done.stdout)["status"], "ok")

    def test_damaged_stdin_is_rejected(self) -> None:
        for what, data, at in (
            ("nothing", b"", 0),
            ("cut off", SMALL[:-1], 0),
            ("gzipped, a field too many", gzip.compress(SMALL + b"\0"), len(SMALL)),
        ):
            with self.subTest(what):
                outcome = self.from_pipe(data)
                self.assertEqual(outcome.object["reason"], "unreadable_xplane_pb")
                self.assertEqual(damaged_at(outcome), at)

    def test_closed_stdin_is_an_error(self) -> None:
        done = self.shell('"$@" <&-', "-", "--mode", "summary")
        self.assertEqual(done.returncode, 1)
        self.assertIn("Bad file descriptor", json.loads(done.stdout)["detail"])


class Started(StreamsTest):
    """Test the ways to start the program, and the messages about missing requirements."""

    def test_missing_old_or_broken_protobuf_is_reported(self) -> None:
        for what, code in {
            "old": "",
            "of another Python": "raise TypeError('Descriptors cannot be created directly.')",
        }.items():
            package = self.folder / what / "google" / "protobuf"
            package.mkdir(parents=True)
            (package.parent / "__init__.py").touch()
            (package / "__init__.py").write_text(code)
            env = {**BARE, "PYTHONPATH": str(self.folder / what)}
            done = self.shell('"$@"', self.small, "--mode", "bottleneck", "--text", env=env)
            with self.subTest(what):
                self.assertIn("bottleneck: no answer for", done.stdout)
            done = self.shell('"$@"', self.small, "--mode", "summary", env=env)
            with self.subTest(what):
                self.assertEqual(done.returncode, 1, done.stderr)
                result = json.loads(done.stdout)
                self.assertEqual(result["reason"], "protobuf_not_installed")
                self.assertIn("4.21.1", result["detail"])
                self.assertEqual(done.stderr.count("\n"), 1)

    def test_old_python_is_rejected_with_one_line(self) -> None:
        found = filter(None, map(shutil.which, ("python3.8", "python3.9")))
        # A version manager can provide the command `python3.N` even if that version is not
        # installed.
        pythons = [
            python for python in found
            if not subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode
        ]  # fmt: skip
        if not pythons:
            self.skipTest("no older Python")
        for python in pythons:
            command = [python, "-B", str(harness.SCRIPT), str(self.small), "--mode", "summary"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("Python 3.10 or newer", done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)


def handle_interrupts() -> None:
    """Restore the default action of SIGINT, which background jobs of a shell ignore."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Interrupted(StreamsTest):
    def python_that_runs_first(self, code: str) -> dict[str, str]:
        """Return environment variables that make the program run the given code at the first import
        of its own modules."""
        finder = f"""
import sys
class First:
    def find_spec(name, *_):
        if name == "_breakdown.light":
            {code}
sys.meta_path.insert(0, First)
"""
        self.write("sitecustomize.py", finder.encode())
        return {**BARE, "PYTHONPATH": f"{self.folder}:{BARE.get('PYTHONPATH', '')}"}

    def test_interruption_while_reading_stdin_exits_with_status_130(self) -> None:
        process = subprocess.Popen(
            [sys.executable, harness.SCRIPT, "-", "--mode", "summary"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=BARE,
            preexec_fn=handle_interrupts,  # noqa: PLW1509
        )
        assert process.stdin is not None
        process.stdin.write(SMALL)
        process.stdin.flush()
        unread = array("i", [1])
        while unread[0] and process.poll() is None:
            time.sleep(0.01)
            fcntl.ioctl(process.stdin, termios.FIONREAD, unread)
        process.send_signal(signal.SIGINT)
        out, complaint = process.communicate(timeout=harness.bound(30))
        self.assertEqual((process.returncode, out, complaint), (130, b"", b""))

    def test_interruption_during_imports_terminates_by_the_signal(self) -> None:
        code = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)"
        done = subprocess.run(
            [sys.executable, harness.SCRIPT, self.small, "--mode", "summary"],
            capture_output=True,
            check=False,
            env=self.python_that_runs_first(code),
            timeout=harness.bound(30),
            preexec_fn=handle_interrupts,
        )
        self.assertEqual((done.returncode, done.stderr), (-signal.SIGINT, b""))
