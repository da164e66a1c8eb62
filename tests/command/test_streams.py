"""The streams of the process: what comes in on stdin, what becomes of stdout and stderr.

Whatever happens to them, the exit status is that of the table, and stdout has one whole object or
nothing that could be taken for one.
"""

from __future__ import annotations

import fcntl
import gzip
import io
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
import unittest
from array import array
from pathlib import Path
from typing import Any
from unittest import mock

import compute_breakdown
from _pipeline import streams
from tests import harness
from tests.builders.xspace import op, trace
from tests.fuzz import check_outcome, damaged_at

OPS = [op(f"fusion.{i}", "loop fusion", 10 * i, 9, tf_op=f"op{i}") for i in range(300)]
SMALL = trace(OPS[:2], [("0", 0, 150)])
# Its answer is longer than a pipe holds.
LARGE = trace(OPS, [("0", 0, 3000)])
OTHER_PYTHONS = ("3.8", "3.9")

# Of this process's own environment what it takes to run: what makes a stream unbuffered, say,
# hides a lot.
BARE = {"LANG": "C.UTF-8"} | {
    name: os.environ[name] for name in ("PATH", "PYTHONPATH", "TMPDIR") if name in os.environ
}
UNBUFFERED = {**BARE, "PYTHONUNBUFFERED": "1"}
# Where little can be written, Python would leave halves of its bytecode behind.
NO_BYTECODE = "export PYTHONDONTWRITEBYTECODE=1; "


class StreamsTest(harness.InFolder):
    def setUp(self) -> None:
        super().setUp()
        self.small = self.folder / "small.xplane.pb"
        self.small.write_bytes(SMALL)
        self.large = self.folder / "large.xplane.pb"
        self.large.write_bytes(LARGE)

    def shell(
        self, line: str, *arguments: str | Path, env: dict[str, str] = BARE, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a line of the shell in which "$@" is the program with its arguments."""
        command = [sys.executable, str(harness.SCRIPT), *map(str, arguments)]
        return subprocess.run(
            ["bash", "-c", line, "bash", *command],
            check=False,
            env=env,
            **{"capture_output": True, "text": True, "timeout": harness.bound(30), **options},
        )


class Stderr(StreamsTest):
    def test_the_status_is_the_tables_where_it_cannot_be_written(self) -> None:
        (self.folder / "y.xplane.pb").write_bytes(b"")
        cases = itertools.product(
            ("2>&-", "2>/dev/full", "2< /dev/null"),
            (BARE, UNBUFFERED),
            (
                (0, (self.small, "--mode", "summary")),
                (1, (self.folder / "y.xplane.pb", "--mode", "summary")),
                (2, (self.small, "--mode", "none")),
            ),
        )
        for redirection, env, (status, arguments) in harness.sampled(cases, 8):
            with self.subTest(redirection=redirection, env=env, status=status):
                done = self.shell(f'"$@" {redirection}', *arguments, env=env)
                self.assertEqual(done.returncode, status)
                json.loads(done.stdout)

    def test_its_reader_went_away(self) -> None:
        done = self.shell('{ "$@"; echo $? >&3; } 3>&1 >/dev/null 2> >(true)', "--mode")
        self.assertEqual(done.stdout, "2\n")

    def test_progress_that_cannot_be_shown_is_no_reason_to_stop(self) -> None:
        with open("/dev/full", "w") as full, mock.patch("time.monotonic", side_effect=range(99)):
            progress = streams.Progress(full)
            for done in range(3):
                progress("reading", done, 3)
            progress.erase()

    def test_terminal_that_goes_away(self) -> None:
        """Progress on a terminal that hangs up, while the answer goes to a file."""
        master, slave = pty.openpty()
        late = "import time; t = time.monotonic; time.monotonic = lambda: 1e3 * t();"
        code = f"{late} import compute_breakdown as c; raise SystemExit(c.main())"
        with (self.folder / "out").open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", code, self.large, "--mode", "summary"],
                stdout=out,
                stderr=slave,
                cwd=harness.ROOT,
            )
            os.close(slave)
            os.close(master)
            self.assertEqual(process.wait(harness.bound(30)), 0)
        self.assertEqual(json.loads((self.folder / "out").read_bytes())["status"], "ok")


class Stdout(StreamsTest):
    def test_closed_from_the_start(self) -> None:
        cases = itertools.product(
            ((self.small, "--mode", "summary"), ("--mode",), ("--help",)),
            ('"$@" >&-', '"$@" <&- >&-', '"$@" <&- >&- 2>&-'),
        )
        for arguments, line in harness.sampled(cases, 5):
            with self.subTest(line=line, arguments=arguments):
                done = self.shell(line, *arguments)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                complaint = "compute_breakdown: can't write: Bad file descriptor\n"
                self.assertEqual(done.stderr, complaint * ("2>&-" not in line))

    def test_closed_and_another_file_has_its_number(self) -> None:
        """What is opened next gets the number of the closed stream: it must not be written to."""
        packed = self.folder / "x.xplane.pb.gz"
        packed.write_bytes(gzip.compress(LARGE))
        before = packed.read_bytes()
        done = self.shell('"$@" >&-', packed, "--mode", "summary")
        self.assertEqual((done.returncode, packed.read_bytes()), (1, before))

    def test_full_disk(self) -> None:
        cases = itertools.product(
            (BARE, UNBUFFERED),
            ((self.large, "--mode", "by_source"), ("--help",), ("--version",)),
        )
        for env, arguments in harness.sampled(cases, 4):
            with self.subTest(env=env, arguments=arguments):
                done = self.shell('"$@" >/dev/full', *arguments, env=env)
                complaint = "compute_breakdown: can't write: No space left on device\n"
                self.assertEqual((done.returncode, done.stderr), (1, complaint))

    def test_limit_of_the_file_size(self) -> None:
        """A part can be written, then nothing: no success."""
        for env in (BARE, UNBUFFERED):
            with self.subTest(env=env):
                line = NO_BYTECODE + f'trap "" XFSZ; ulimit -f 8; "$@" > {self.folder}/out'
                done = self.shell(line, self.large, "--mode", "by_source", env=env)
                complaint = "compute_breakdown: can't write: File too large\n"
                self.assertEqual((done.returncode, done.stderr), (1, complaint))

    def test_a_slow_reader_of_a_pipe_that_does_not_block(self) -> None:
        for env in (BARE, UNBUFFERED):
            with self.subTest(env=env):
                reader, writer = os.pipe()
                os.set_blocking(writer, False)
                process = subprocess.Popen(
                    [sys.executable, harness.SCRIPT, self.large, "--mode", "by_source"],
                    stdout=writer,
                    env=env,
                )
                os.close(writer)
                time.sleep(0.5)
                with os.fdopen(reader, "rb") as pipe:
                    said = json.load(pipe)
                self.assertEqual(
                    (process.wait(harness.bound(30)), len(said["groups"])), (0, len(OPS))
                )

    def test_its_reader_went_away(self) -> None:
        # Those that have an answer without a program.
        modes = (*harness.MODES_OF_TRACE, "record", "compare", "spread", "anatomy")
        for mode, env in harness.sampled(itertools.product(modes, (BARE, UNBUFFERED)), 3):
            with self.subTest(env=env, mode=mode):
                line = '{ "$@"; echo $? >&2; } | head -c 1'
                needed: list[str | Path] = ["--baseline", self.large] if mode == "compare" else []
                done = self.shell(line, self.large, "--mode", mode, *needed, env=env)
                self.assertIn(done.stderr, ("0\n", "141\n"))


class Terminal(StreamsTest):
    def on_terminal(self, *arguments: str | Path, stderr: int | None = None) -> tuple[str, str]:
        """What the program says on a terminal on stdout, and on stderr if that is another one."""
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, harness.SCRIPT, *arguments],
            stdout=slave,
            stderr=slave if stderr is None else stderr,
            text=True,
            env=BARE,
        )
        os.close(slave)
        said = b""
        while select.select([master], [], [], harness.bound(30))[0]:
            try:
                said += os.read(master, 1 << 16)
            except OSError:
                break
        os.close(master)
        rest = process.communicate(timeout=harness.bound(30))[1] or ""
        return said.decode().replace("\r\n", "\n"), rest

    def test_the_object_is_indented_and_a_hint_follows(self) -> None:
        said, _ = self.on_terminal(self.small, "--mode", "summary")
        text, _, hint = said.rstrip("\n").rpartition("\n")
        self.assertEqual(json.loads(text), harness.run(self.small, "summary").object)
        self.assertTrue(text.startswith('{\n  "status": "ok",\n'))
        self.assertIn("--format text", hint)
        self.assertIn("jq", hint)
        self.assertIn("--top", hint)

    def test_text_has_no_hint(self) -> None:
        said, _ = self.on_terminal(self.small, "--mode", "summary", "--format", "text")
        self.assertTrue(said.startswith("summary: "), said)
        self.assertNotIn("jq", said)

    def test_no_hint_where_somebody_keeps_stderr(self) -> None:
        said, rest = self.on_terminal(self.small, "--mode", "summary", stderr=subprocess.PIPE)
        self.assertEqual((json.loads(said)["status"], rest), ("ok", ""))

    def test_no_hint_where_there_is_no_answer(self) -> None:
        said, _ = self.on_terminal(self.small, "--mode", "summary", "--step", "9")
        self.assertTrue(
            said.rstrip("\n").endswith("no step 9; the trace has 1 steps, counted from 0"), said
        )

    def test_one_line_into_a_pipe(self) -> None:
        done = self.shell('"$@"', self.small, "--mode", "summary")
        self.assertEqual((done.stdout.count("\n"), done.stderr), (1, ""))


class Stdin(StreamsTest):
    def from_pipe(self, data: bytes, *options: str) -> harness.Outcome:
        done = subprocess.run(
            [sys.executable, harness.SCRIPT, "-", "--mode", "summary", *options],
            input=data,
            capture_output=True,
            check=False,
            timeout=harness.bound(30),
            env=BARE,
        )
        outcome = harness.Outcome(json.loads(done.stdout), done.returncode, done.stderr.decode())
        check_outcome(outcome)
        return outcome

    def test_a_trace_plain_or_gzipped(self) -> None:
        expected = harness.answer(LARGE, "summary")
        for data in (LARGE, gzip.compress(LARGE)):
            said = self.from_pipe(data).object
            self.assertEqual((said["profile_dir"], said["xplane_file"]), ("-", "-"))
            names = dict.fromkeys(("profile_dir", "xplane_file"), "-")
            self.assertEqual(said, {**expected, **names})

    def test_a_file(self) -> None:
        done = self.shell(f'"$@" < {self.small}', "-", "--mode", "summary")
        self.assertEqual(json.loads(done.stdout)["status"], "ok")

    def test_a_slow_writer(self) -> None:
        """Of one byte at first, from which nobody knows whether it is gzip data."""
        packed = self.folder / "x.gz"
        packed.write_bytes(gzip.compress(SMALL))
        line = f'(head -c 1 {packed}; sleep 0.3; tail -c +2 {packed}) | "$@"'
        done = self.shell(line, "-", "--mode", "summary")
        self.assertEqual(json.loads(done.stdout)["status"], "ok")

    def test_damage(self) -> None:
        for what, data, at in (
            ("nothing", b"", 0),
            ("cut off", SMALL[:-1], 0),
            ("a field behind", SMALL + b"\0", len(SMALL)),
            ("gzipped, a field behind", gzip.compress(SMALL + b"\0"), len(SMALL)),
            ("gzip data cut off", gzip.compress(SMALL)[:-9], None),
        ):
            with self.subTest(what):
                outcome = self.from_pipe(data)
                self.assertEqual(outcome.object["reason"], "unreadable_xplane_pb")
                if at is not None:
                    self.assertEqual(damaged_at(outcome), at)

    def test_endless(self) -> None:
        """What can't be a trace is not copied to its end."""
        for endless in ("yes", "cat /dev/zero", "yes '{'"):
            with self.subTest(endless):
                done = self.shell(f'{endless} | "$@"', "-", "--mode", "summary")
                self.assertEqual(json.loads(done.stdout)["reason"], "unreadable_xplane_pb")

    def test_closed(self) -> None:
        done = self.shell('"$@" <&-', "-", "--mode", "summary")
        self.assertEqual(done.returncode, 1)
        self.assertIn("Bad file descriptor", json.loads(done.stdout)["detail"])

    def test_a_disk_too_small_for_the_copy(self) -> None:
        line = (
            NO_BYTECODE
            + 'trap "" XFSZ; ulimit -f 8; head -c 9000000 /dev/zero | tr "\\0" "\\172" | "$@"'
        )
        done = self.shell(line, "-", "--mode", "summary")
        self.assertEqual(done.returncode, 1)
        self.assertIn("File too large", json.loads(done.stdout)["detail"])


# Takes all the memory there is when a trace is to be read, and keeps it.
class Protobuf(StreamsTest):
    def test_missing_old_or_broken(self) -> None:
        """Whatever its import raises, that is what is told."""
        for what, code in {
            "old": "",
            "of another Python": "raise TypeError('Descriptors cannot be created directly.')",
            "cut off": "def (",
        }.items():
            package = self.folder / what / "google"
            (package / "protobuf").mkdir(parents=True)
            (package / "__init__.py").touch()
            (package / "protobuf" / "__init__.py").write_text(code)
            done = self.shell(
                '"$@"',
                *(self.small, "--mode", "summary"),
                env={**BARE, "PYTHONPATH": str(package.parent)},
            )
            with self.subTest(what):
                self.assertEqual(done.returncode, 1, done.stderr)
                said = json.loads(done.stdout)
                self.assertEqual(said["reason"], "protobuf_not_installed")
                self.assertIn("protobuf 4.21.1 or newer is required", said["detail"])
                self.assertEqual(done.stderr.count("\n"), 1)

    def test_nothing_else_is_called_that(self) -> None:
        with (
            mock.patch.object(compute_breakdown, "analyse", side_effect=ImportError(name="_zlib")),
            self.assertRaises(ImportError),
        ):
            compute_breakdown.outcome_of([str(self.small), "--mode", "summary"])


class ReadErrors(StreamsTest):
    def test_each_is_told_by_its_place(self) -> None:
        pread = os.pread
        for n_good in range(12):
            calls = iter(range(n_good))
            failed: list[int] = []

            def failing(
                fd: int, n: int, at: int, calls: Any = calls, failed: list[int] = failed
            ) -> bytes:
                if next(calls, None) is None:
                    failed.append(at)
                    raise OSError(5, "Input/output error")
                return pread(fd, n, at)

            with self.subTest(n_good), mock.patch("os.pread", failing):
                outcome = harness.run(self.large, "summary")
                check_outcome(outcome)
                self.assertEqual(damaged_at(outcome), failed[0])
                self.assertIn("Input/output error", outcome.object["detail"])


class Called(StreamsTest):
    """The usage names what was called, and every way to call it works."""

    def usage(self, *command: str | Path, cwd: Path = harness.ROOT) -> str:
        done = subprocess.run(
            [*command, "--mode"], capture_output=True, text=True, check=False, cwd=cwd, env=BARE
        )
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr.splitlines()[0]

    def test_in_the_clone(self) -> None:
        link = self.folder / "tpu-time"
        link.symlink_to(harness.SCRIPT)
        for expected, command in {
            "compute_breakdown.py": (sys.executable, harness.SCRIPT),
            "python -m compute_breakdown": (sys.executable, "-m", "compute_breakdown"),
            "tpu-time": (sys.executable, link),
        }.items():
            with self.subTest(expected):
                usage = self.usage(*command)
                self.assertEqual(usage, f"usage: {expected} PROFILE --mode MODE [options]")

    def test_installed(self) -> None:
        """As the wheel has it: the script stands in a package with its neighbours."""
        package = self.folder / "compute_breakdown"
        package.mkdir()
        shutil.copy(harness.SCRIPT, package / "__main__.py")
        for name in ("_peaks.py", "_pipeline", "_proto"):
            (package / name).symlink_to(harness.ROOT / name)
        command = self.folder / "compute-breakdown"
        command.write_text("from compute_breakdown.__main__ import command; command()")
        for expected, called in {
            "compute-breakdown": (sys.executable, command),
            "python -m compute_breakdown": (sys.executable, "-m", "compute_breakdown"),
        }.items():
            with self.subTest(expected):
                usage = self.usage(*called, cwd=self.folder)
                self.assertEqual(usage, f"usage: {expected} PROFILE --mode MODE [options]")

    def test_under_a_profiler(self) -> None:
        # Which writes when the process ends, as this one otherwise doesn't wait for.
        out = self.folder / "profile"
        subprocess.run(
            [sys.executable, "-m", "cProfile", "-o", out, harness.SCRIPT, "--mode"],
            capture_output=True,
            check=False,
        )
        self.assertTrue(out.exists())

    def test_isolated(self) -> None:
        for flag in ("-I", "-P"):
            if flag == "-P" and sys.version_info < (3, 11):
                continue
            # What it needs beside protobuf, which may lie where this Python mustn't look.
            done = subprocess.run(
                [sys.executable, flag, harness.SCRIPT, "--version"],
                capture_output=True,
                text=True,
                check=True,
            )
            self.assertEqual(done.stdout, f"compute_breakdown {compute_breakdown.__version__}\n")

    def test_an_older_python_says_so_in_one_line(self) -> None:
        n_tried = 0
        for version in OTHER_PYTHONS:
            python = shutil.which(f"python{version}")
            if python is None:
                continue
            for command in (str(harness.SCRIPT),), ("-m", "compute_breakdown"):
                done = subprocess.run(
                    [python, "-B", *command, self.small, "--mode", "summary"],
                    capture_output=True,
                    text=True,
                    check=False,
                    cwd=harness.ROOT,
                )
                if done.returncode == 127:
                    # A name without a Python behind it.
                    continue
                n_tried += 1
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                wanted = f"it takes Python 3.10 or newer, this is {version}"
                self.assertEqual(
                    done.stderr[: done.stderr.rindex(".")], f"compute_breakdown: {wanted}"
                )
        if not n_tried:
            self.skipTest("no older Python")


def heed_interrupts() -> None:
    """Which a shell's background jobs, and so perhaps these tests, ignore."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Interrupted(StreamsTest):
    def test_while_it_waits_for_input(self) -> None:
        process = subprocess.Popen(
            [sys.executable, harness.SCRIPT, "-", "--mode", "summary"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=BARE,
            preexec_fn=heed_interrupts,  # noqa: PLW1509
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

    def test_while_it_loads(self) -> None:
        """Ctrl-C during the first import: the signal's own end, as of any command."""
        (self.folder / "argparse.py").write_text(
            "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)"
        )
        env = {**BARE, "PYTHONPATH": f"{self.folder}:{BARE.get('PYTHONPATH', '')}"}
        done = subprocess.run(
            [sys.executable, harness.SCRIPT, self.small, "--mode", "summary"],
            capture_output=True,
            check=False,
            env=env,
            timeout=harness.bound(30),
            preexec_fn=heed_interrupts,
        )
        self.assertEqual((done.returncode, done.stderr), (-signal.SIGINT, b""))

    def test_an_ignored_signal_stays_ignored(self) -> None:
        line = 'trap "" INT; exec "$@"'
        (self.folder / "argparse.py").write_text(
            "import os, signal; os.kill(os.getpid(), signal.SIGINT); raise SystemExit(7)"
        )
        env = {**BARE, "PYTHONPATH": f"{self.folder}:{BARE.get('PYTHONPATH', '')}"}
        self.assertEqual(self.shell(line, "x", env=env).returncode, 7)

    def test_while_it_reads(self) -> None:
        with (
            mock.patch.object(compute_breakdown, "analyse", side_effect=KeyboardInterrupt),
            mock.patch("sys.stdout", io.StringIO()),
        ):
            status = compute_breakdown.main([str(self.small), "--mode", "summary"])
        self.assertEqual(status, 130)


if __name__ == "__main__":
    unittest.main()
