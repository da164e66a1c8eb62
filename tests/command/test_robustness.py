"""Test that damaged and odd files give either a complete answer or an error with a reason.

`run` also checks that status, reason, exit status and stderr are consistent.
"""

from __future__ import annotations

import functools
import gzip
import itertools
import json
import os
import random
import subprocess
import sys
import unittest
import zlib
from typing import Any
from unittest import mock

from _proto.trace import source
from tests import fuzz, harness
from tests.builders.damaged import OPS, SMALL, RobustnessTest, run, with_extra
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    bytes_field,
    encode,
    int_field,
    op,
    text_field,
    tpu_plane,
    trace,
    varint,
)
from tests.fuzz import damaged_at

MAX = 2**63 - 1


def answer_of(data: bytes, *options: str) -> dict[str, Any]:
    """Return the answer without the fields that contain the file's name."""
    fields = run(data, *options or ("summary",)).object
    return {k: v for k, v in fields.items() if k not in ("profile_dir", "xplane_file")}


class RandomDamage(unittest.TestCase):
    takes_seconds = 2

    def test_randomly_damaged_files_give_a_complete_answer_or_an_error(self) -> None:
        failures: list[str] = []
        fuzz.fuzz(0, harness.sampled(range(fuzz.N_CASES), 30), failures.append)
        self.assertFalse(failures, f"{len(failures)} failures, the first:\n{failures[:1]}")


# This unknown field marks where a test inserts damage.
HERE = text_field(14, "here")
UNREADABLE = {
    "field number 0": b"\0",
    "wire type 6": b"\x7e",
    "tag cut off": b"\xf8",
    "varint cut off": b"\x78\x80",
    "varint of eleven bytes": b"\x78" + b"\x80" * 10 + b"\0",
    "double cut off": b"\x79\0\0\0",
    "length of one byte too many": b"\x7a\x02\0",
    "length of 2**31": b"\x7a" + varint(2**31),
    "length of 2**63": b"\x7a" + varint(2**63),
}
PLACES = (
    "space", "plane", "ops line", "steps line", "event", "event entry", "event metadata",
    "op stat", "stat entry", "stat metadata",
)  # fmt: skip


class Damage(RobustnessTest):
    def test_unreadable_field_is_reported_with_its_offset(self) -> None:
        for place, (what, bad) in itertools.product(PLACES, UNREADABLE.items()):
            with self.subTest(place=place, what=what):
                data = with_extra(place, HERE + bad)
                self.assert_unreadable(run(data), data.index(HERE) + len(HERE))

    def test_damage_is_reported_identically_with_pure_python_protobuf(self) -> None:
        for place, bad in (("event", b""), ("op stat", b"\x2a\x01\xff"), ("ops line", b"\x78")):
            data = with_extra(place, HERE + bad)
            path = self.write("x.xplane.pb", data)
            python = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
            with self.subTest(place), mock.patch.dict(os.environ, python):
                outcome = harness.as_process(path, "--mode", "summary")
                self.assertEqual(outcome, run(path))
                if bad:
                    self.assert_unreadable(outcome, data.index(HERE) + len(HERE))

    def test_truncated_file_is_rejected_at_any_length(self) -> None:
        data = SMALL + encode(Space([Plane("/host:CPU", [Line("main", [Event(1, 5, 5)])])]))
        self.assert_unreadable(run(b""), 0)
        for cut in harness.sampled(range(1, len(data)), 100):
            if cut != len(SMALL):
                with self.subTest(cut):
                    at = 0 if cut < len(SMALL) else len(SMALL)
                    self.assert_unreadable(run(data[:cut]), at)

    def test_file_of_another_known_format_is_reported_with_the_format(self) -> None:
        for what, data in {
            "HTML": b"<!DOCTYPE html><html></html>",
            "a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\n",
            "JSON": b'{"traceEvents": []}',
            "text": b"# Notes\n\nOn caf\xc3\xa9s.\n",
        }.items():
            with self.subTest(what):
                outcome = run(data)
                self.assert_unreadable(outcome)
                self.assertIn(f": not a trace but {what}", outcome.object["detail"])
        # A trace with nothing but a host name looks like text.
        lone = run(encode(Space([], hostnames=["a-host-with-a-name-of-40-characters-or-so"])))
        self.assertEqual(lone.object["reason"], "device_not_found")


class UnseenDamage(RobustnessTest):
    """Test that damage in parts that no mode reads does not change the answer."""

    def test_damage_in_lines_that_no_mode_reads_is_ignored(self) -> None:
        answers = []
        for extra in (b"", b"\0\xff"):
            ops = Line("XLA Ops", [Event(1, 0, 10)])
            lines = [Line("Steps", [Event(2, 0, 99)]), ops, Line("Overlay", extra=extra)]
            names = [EventMetadata(1, "%a.1 = f32[2] add()"), EventMetadata(2, "0")]
            answers.append(answer_of(encode(Space([Plane(fuzz.DEVICE, lines, names)]))))
        self.assertEqual(answers[1], answers[0])

    def test_damaged_metadata_of_ops_in_other_steps_is_ignored(self) -> None:
        lines = [
            Line("Steps", [Event(3, 0, 100), Event(4, 200, 200)]),
            Line("XLA Ops", [Event(1, 0, 10), Event(2, 200, 10), Event(1, 300, 10)]),
        ]
        known = [EventMetadata(1, "%a"), EventMetadata(3, "0"), EventMetadata(4, "1")]
        intact = encode(Space([Plane(fuzz.DEVICE, lines, [*known, EventMetadata(2, "%b")])]))
        bad = bytes_field(4, int_field(1, 2) + bytes_field(2, b"\0"))
        damaged = encode(Space([Plane(fuzz.DEVICE, lines, known, extra=bad)]))
        for mode in harness.MODES_OF_TRACE:
            with self.subTest(mode):
                expected = answer_of(intact, mode, "--step", "0")
                self.assertEqual(answer_of(damaged, mode, "--step", "0"), expected)
                self.assert_unreadable(run(damaged, mode, "--step", "1"), damaged.rindex(b"\0"))


class EdgeNumbers(RobustnessTest):
    def test_events_with_negative_durations_are_left_out_with_a_note(self) -> None:
        negative = [op("fusion.1", "loop fusion", 10, -1), op("fusion.1", "loop fusion", 20, -MAX)]
        answer = answer_of(trace([*OPS, *negative], [("0", 0, 150), ("1", 500, -7)]))
        self.assertEqual(answer["totals"]["compute_duration_ps"], 90)
        self.assertEqual(answer["totals"]["n_events_unresolved"], 2)
        self.assertEqual(len(answer["steps"]), 1)
        for word in ("negative", "Steps"):
            self.assertEqual(sum(word in note for note in answer["notes"]), 1, answer["notes"])

    def test_flops_and_bytes_that_are_not_counts_are_null(self) -> None:
        for value in (
            float("nan"), -float("inf"), 1e300, 2.0**63, -1, -0.5, 2**64 - 1, "12",
        ):  # fmt: skip
            facts: dict[str, Any] = {"flops": value, "model_flops": value, "bytes_accessed": value}
            data = trace([op("fusion.1", "loop fusion", 0, 10, **facts)])
            for mode in ("by_source", "roofline"):
                with self.subTest(value=value, mode=mode):
                    answer = answer_of(data, mode)
                    for group in answer["groups"]:
                        self.assertIsNone(group["flops_sum"])
                        self.assertIsNone(group["bytes_accessed_sum"])


HOSTILE = (
    "\x1b]0;title\x07\x1b[2J\x1b[31m", "line\r\nline", "</script><script>alert(1)</script>",
    "\u202egpj.exe", "\u2028\u2029", "\x7f\x80\x9b", '"\\"', "\U0001f9e8", "\ufeff\ufffe",
)  # fmt: skip


class Texts(RobustnessTest):
    def test_hostile_names_are_printed_unchanged(self) -> None:
        for text in HOSTILE:
            named = op("x", text, 0, 10, text=text, stack=text, tf_op=text, shape=text)
            plane = tpu_plane([named], [(text, 0, 10)], name=text)
            path = self.write("test.xplane.pb", encode(Space([plane], [text])))
            for mode in harness.MODES_OF_TRACE:
                with self.subTest(text=text, mode=mode):
                    answer = run(path, mode, "--device", text).object
                    self.assertEqual(answer["step_name"], text)

    def test_stdout_is_ascii_and_stderr_is_printable(self) -> None:
        text = "".join(HOSTILE)
        plane = tpu_plane([op("x", text, 0, 10, text=text)], [(text, 0, 10)], name=text)
        path = self.write("\x1b[31m\n.xplane.pb", encode(Space([plane])))
        broken = self.write("\x1b]0;\x07\u202e.xplane.pb", b"\0")
        for arguments in (
            [path, "--mode", "summary", "--device", text],
            [path, "--mode", "summary", "--device", text, "--step-id", "\x1b[31m\n"],
            [path, "--mode", "\x1b[31m\n"],
            [broken, "--mode", "summary"],
            [os.fsdecode(b"\xff\xfe\x1b"), "--mode", "summary"],
        ):
            with self.subTest(arguments):
                command = [sys.executable, harness.SCRIPT, *arguments]
                done = subprocess.run(command, capture_output=True, check=False)
                self.assertTrue(done.stdout.isascii())
                self.assertTrue(done.stdout[:-1].decode().isprintable())
                json.loads(done.stdout)
                for line in done.stderr.decode().split("\n"):
                    self.assertTrue(line.isprintable(), line)


class Gzip(RobustnessTest):
    def test_gzipped_file_gives_the_same_answer(self) -> None:
        totals = answer_of(SMALL)["totals"]
        for name, data in (
            ("a.xplane.pb.gz", gzip.compress(SMALL)),
            ("two-members.xplane.pb.gz", gzip.compress(SMALL[:99]) + gzip.compress(SMALL[99:])),
            ("named-as-if-plain.xplane.pb", gzip.compress(SMALL)),
            ("zeros-at-the-end.xplane.pb.gz", gzip.compress(SMALL) + bytes(512)),
        ):
            with self.subTest(name):
                self.assertEqual(run(self.write(name, data)).object["totals"], totals)

    def test_truncated_gzip_data_is_rejected(self) -> None:
        noise = bytes_field(15, random.Random(0).randbytes(3 << 20))
        packed = gzip.compress(SMALL + noise, 1)
        for cut in (3, 10, 100, len(packed) // 2, len(packed) - 9, len(packed) - 1):
            with self.subTest(cut):
                outcome = run(self.write("x.xplane.pb.gz", packed[:cut]))
                whole = zlib.decompressobj(wbits=31).decompress(packed[:cut])
                # The offset is the start of the first incomplete field, or the end of the data.
                at = len(SMALL) if len(SMALL) <= len(whole) < len(SMALL + noise) else 0
                self.assertIn(damaged_at(outcome), {at, len(whole)}, outcome.object)

    def test_unpacked_size_is_limited(self) -> None:
        self.assertEqual(source.COPY_LIMIT, 16 << 30)
        path = self.write("x.xplane.pb.gz", gzip.compress(SMALL))
        for limit in (len(SMALL), len(SMALL) - 1):
            small = functools.partial(source.open_source, limit=limit)
            with self.subTest(limit), mock.patch.object(source, "open_source", small):
                if limit == len(SMALL):
                    self.assertEqual(run(path).object["status"], "ok")
                else:
                    self.assert_unreadable(run(path), limit)


class OddFiles(RobustnessTest):
    def test_symbolic_links_are_followed(self) -> None:
        link = self.folder / "link.xplane.pb"
        link.symlink_to(link)
        self.assert_unreadable(run(link))
        link.unlink()
        link.symlink_to(self.folder / "nowhere")
        self.assertEqual(run(link).object["reason"], "no_such_path")
        link.unlink()
        link.symlink_to(self.write("target", SMALL))
        self.assertEqual(run(link).object["status"], "ok")

    @unittest.skipUnless(os.geteuid(), "root may read everything")
    def test_file_or_folder_without_read_permission_is_reported(self) -> None:
        path = self.write("run/x.xplane.pb", SMALL)
        path.chmod(0)
        self.assert_unreadable(run(path), 0)
        path.parent.chmod(0)
        self.assert_unreadable(run(path), 0)
        self.assert_unreadable(run(path.parent), 0)
        path.parent.chmod(0o700)

    def test_read_errors_are_reported_with_their_offset(self) -> None:
        path = self.write("x.xplane.pb", SMALL)
        pread = os.pread
        for n_good in range(4):
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
                outcome = run(path)
                self.assert_unreadable(outcome, failed[0])
                self.assertIn("Input/output error", outcome.object["detail"])

    def test_file_that_shrinks_during_reading_is_rejected(self) -> None:
        pread = os.pread
        path = self.write("x.xplane.pb", SMALL)
        for cut, n_whole_reads in itertools.product((0, 50, len(SMALL) - 1), (0, 1, 3)):
            calls = iter(range(n_whole_reads))

            def shrunk(fd: int, n: int, at: int, calls: Any = calls, cut: int = cut) -> bytes:
                return pread(fd, n if next(calls, None) is not None else max(0, cut - at), at)

            with self.subTest(cut=cut, n=n_whole_reads), mock.patch("os.pread", shrunk):
                self.assert_unreadable(run(path))
