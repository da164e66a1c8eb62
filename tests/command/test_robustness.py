"""No input breaks the program: one case for every kind of damage and awkwardness.

Every run, whatever its input, is held to the contract's table of outcomes by `check_outcome`.
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
from pathlib import Path
from typing import Any
from unittest import mock

import compute_breakdown
from _pipeline import folders, no_answer, texts
from _proto.trace import source
from tests import fuzz, harness
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    StatMetadata,
    StatValue,
    bytes_field,
    double_field,
    encode,
    int_field,
    op,
    text_field,
    tpu_plane,
    trace,
    varint,
)
from tests.fuzz import Reading, check_outcome, damaged_at, time_limit

OPS = [
    op("fusion.1", "loop fusion", 0, 90, flops=800, bytes_accessed=64, stack="model.py:7:3"),
    op("copy.2", "data formatting", 100, 50, opcode="copy"),
]
SMALL = trace(OPS, [("0", 0, 150), ("1", 150, 10)])


def run(profile: str | Path | bytes, mode: str = "summary", *options: str) -> harness.Outcome:
    outcome = harness.run(profile, mode, *options)
    check_outcome(outcome)
    return outcome


def command(*arguments: str | Path) -> harness.Outcome:
    outcome = harness.command(*arguments, timeout=30)
    check_outcome(outcome)
    return outcome


def said(data: bytes, *options: str) -> dict[str, Any]:
    """What the program says of a file, less what names the file."""
    fields = run(data, *options or ("summary",)).object
    return {k: v for k, v in fields.items() if k not in ("profile_dir", "xplane_file")}


class RobustnessTest(harness.InFolder):
    def assert_unreadable(self, outcome: harness.Outcome, at: int | None = None) -> None:
        self.assertEqual(outcome.object.get("reason"), "unreadable_xplane_pb", outcome.object)
        if at is not None:
            self.assertEqual(damaged_at(outcome), at, outcome.object["detail"])

    def assert_absent(self, outcome: harness.Outcome, reason: str) -> None:
        self.assertEqual(outcome.object.get("reason"), reason, outcome.object)


class FuzzTest(unittest.TestCase):
    takes_seconds = 6

    def test_every_reason_has_its_exit_status(self) -> None:
        self.assertEqual(
            fuzz.STATUS_OF | {"protobuf_not_installed": 1, "missing_dependency": 1},
            no_answer.EXIT_STATUS,
            "say in STATUS_OF of tests/fuzz.py how a new reason ends, and on the user's page",
        )

    def test_standard_run(self) -> None:
        failures: list[str] = []
        fuzz.fuzz(0, harness.sampled(range(fuzz.STANDARD_CASES), 60), failures.append)
        self.assertFalse(
            failures, f"{len(failures)} failures, the first:\n" + "".join(failures[:1])
        )

    def test_oracle_knows_intact_files(self) -> None:
        reading = Reading(fuzz.sample())
        self.assertEqual((reading.must, reading.may), ([], []))


# --- damage inside the file ----------------------------------------------------------------------

HERE = text_field(14, "here")

# What stands behind HERE, at the end of a message; nobody can read it, whatever the message.
UNREADABLE = {
    "a field number of 0": b"\0",
    "wire type 6": b"\x7e",
    "wire type 7": b"\x7f",
    "the end of a group that was not begun": b"\x7c",
    "a group without an end": b"\x7b",
    "groups nested 200 deep": b"\x7b" * 200 + b"\x7c" * 200,
    "a tag of six bytes": b"\xf8\x80\x80\x80\x80\x00\x00",
    "a tag over 32 bits": b"\xf8\x80\x80\x80\x7f\x00",
    "a tag cut off": b"\xf8",
    "a varint cut off": b"\x78\x80",
    "a varint of eleven bytes": b"\x78" + b"\x80" * 10 + b"\0",
    "a varint over 64 bits": b"\x78" + b"\xff" * 9 + b"\x7f",
    "a varint of 65 bits": b"\x78" + b"\x80" * 9 + b"\x02",
    "a double cut off": b"\x79\0\0\0",
    "a float cut off": b"\x7d\0\0\0",
    "a length that is cut off": b"\x7a\x80",
    "a length of one byte too many": b"\x7a\x02\0",
    "a length of 2**31": b"\x7a" + varint(2**31),
    "a length of 2**63 - 1": b"\x7a" + varint(2**63 - 1),
    "a length of 2**63": b"\x7a" + varint(2**63),
    "a length of 2**64 - 1": b"\x7a" + varint(2**64 - 1),
}

PLACES = (
    "space", "plane", "ops line", "steps line", "event", "event entry", "event metadata",
    "op stat", "stat entry", "stat metadata",
)  # fmt: skip
NEEDED = text_field(2, "%fusion.1 = f32[2]{0} fusion()")


def with_extra(place: str, extra: bytes) -> bytes:
    """A file that has these bytes at the end of a message that every answer needs."""

    def at(where: str) -> bytes:
        return extra if where == place else b""

    category = int_field(1, 1) + text_field(5, "loop fusion") + at("op stat")
    value = int_field(1, 1) + NEEDED + bytes_field(5, category) + at("event metadata")
    op_entry = int_field(1, 1) + bytes_field(2, value) + at("event entry")
    name = StatMetadata(1, "hlo_category", extra=at("stat metadata"))
    stat_entry = int_field(1, 1) + bytes_field(2, encode(name)) + at("stat entry")
    plane = Plane(
        fuzz.DEVICE,
        [
            Line("Steps", [Event(2, 0, 100)], extra=at("steps line")),
            Line("XLA Ops", [Event(1, 0, 10, extra=at("event"))], extra=at("ops line")),
        ],
        [EventMetadata(2, "0")],
        extra=bytes_field(4, op_entry) + bytes_field(5, stat_entry) + at("plane"),
    )
    return encode(Space([plane], extra=at("space")))


# Fields of a type that their message has no use for, with what they would make of the answer.
WRONG_TYPES = {
    "a plane": ("space", int_field(1, 5)),
    "a plane's name": ("plane", None),
    "a line": ("plane", int_field(3, 5)),
    "an entry of the event metadata": ("plane", int_field(4, 5)),
    "an entry of the stat metadata": ("plane", int_field(5, 5)),
    "a line's timestamp": ("ops line", text_field(3, "x")),
    "an event": ("ops line", int_field(4, 5)),
    "an event of the Steps line": ("steps line", int_field(4, 5)),
    "an event's metadata id": ("event", double_field(1, 1.0)),
    "an event's offset": ("event", double_field(2, 1.0)),
    "an event's offset, packed": ("event", bytes_field(2, b"\x05")),
    "an event's offset, packed, empty": ("event", bytes_field(2, b"")),
    "an event's duration": ("event", text_field(3, "\x05\x06")),
    "an event's number of occurrences, packed": ("event", bytes_field(5, b"\x05")),
    "a value of the event metadata": ("event entry", int_field(2, 5)),
    "a name of the event metadata": ("event metadata", int_field(2, 5)),
    "a stat": ("event metadata", int_field(5, 5)),
    "a stat's metadata id": ("op stat", text_field(1, "x")),
    "a stat's double": ("op stat", int_field(2, 5)),
    "a stat's string": ("op stat", int_field(5, 5)),
    "a key of the stat metadata": ("stat entry", text_field(1, "x")),
    "a value of the stat metadata": ("stat entry", int_field(2, 5)),
    "a name of the stat metadata": ("stat metadata", int_field(2, 5)),
}

NOT_UTF8 = {
    "a lone continuation byte": b"\x80",
    "a lone surrogate": b"\xed\xa0\x80",
    "an overlong slash": b"\xc0\xaf",
    "Latin-1": b"caf\xe9",
    "a character cut off": b"\xe2\x82",
}


class DamageTest(RobustnessTest):
    def test_intact(self) -> None:
        answer = said(with_extra("space", b""))
        self.assertEqual(answer["status"], "ok")
        for place in PLACES:
            with self.subTest(place):
                self.assertEqual(said(with_extra(place, HERE)), answer)

    def test_unreadable_field_is_named_by_its_offset(self) -> None:
        for place in PLACES:
            for what, bad in UNREADABLE.items():
                if place == "event" and what.startswith(("a varint over 64", "a varint of 65")):
                    # An unknown field that is whole: nobody needs to know its value.
                    continue
                with self.subTest(place=place, what=what):
                    data = with_extra(place, HERE + bad)
                    self.assert_unreadable(run(data), data.index(HERE) + len(HERE))

    def test_wrong_wire_type_is_damage(self) -> None:
        for what, (place, bad) in WRONG_TYPES.items():
            if bad is None:
                continue
            with self.subTest(what):
                data = with_extra(place, HERE + bad)
                self.assert_unreadable(run(data), data.index(HERE) + len(HERE))

    def test_wrong_wire_type_of_a_name(self) -> None:
        for what, data, at in (
            ("plane", bytes_field(1, int_field(2, 5)), 2),
            ("other plane", SMALL + bytes_field(1, int_field(2, 5)), len(SMALL) + 2),
            ("line", bytes_field(1, text_field(2, fuzz.DEVICE) + bytes_field(3, b"\x10\x05")), 19),
        ):
            with self.subTest(what):
                self.assert_unreadable(run(data), at)

    def test_wrong_wire_type_of_a_key(self) -> None:
        # Whose metadata is it? Left out, it would leave an op without any.
        for what, key in (
            ("double", double_field(1, 1.0)),
            ("float", b"\x0d\x01\0\0\0"),
            ("string", text_field(1, "\x01")),
            ("group", b"\x0b\x0c"),
        ):
            with self.subTest(what):
                data = with_extra("plane", bytes_field(4, key + bytes_field(2, NEEDED)))
                self.assert_unreadable(run(data), data.rindex(key))

    def test_wrong_wire_type_of_the_metadata_under_a_key(self) -> None:
        value = int_field(2, 5)
        data = with_extra("plane", bytes_field(4, int_field(1, 1) + value))
        self.assert_unreadable(run(data), data.rindex(value))

    def test_length_of_more_than_five_bytes(self) -> None:
        # Some versions of the parser take it, others don't.
        data = with_extra("event metadata", HERE + b"\x12\x81\x80\x80\x80\x80\x00x")
        outcome = run(data)
        if outcome.object["status"] != "ok":
            self.assert_unreadable(outcome, data.index(HERE) + len(HERE))

    def test_packed_offsets_are_damage_even_if_their_number_fits(self) -> None:
        packed = bytes_field(2, b"\x05\x06")
        events = bytes_field(4, int_field(1, 1) + packed) + bytes_field(4, int_field(1, 1))
        data = with_extra("ops line", events)
        self.assert_unreadable(run(data), data.index(packed))

    def test_text_that_is_not_utf8(self) -> None:
        device = text_field(2, fuzz.DEVICE)
        for what, text in NOT_UTF8.items():
            bad = bytes_field(2, text)
            for where, data in {
                "plane": bytes_field(1, bad),
                "other plane": SMALL + bytes_field(1, int_field(1, 7) + bad),
                "line": bytes_field(1, device + bytes_field(3, bad)),
                "stat": with_extra("stat metadata", bad),
                "op": with_extra("event metadata", bad),
                "step": encode(
                    Space(
                        [
                            Plane(
                                fuzz.DEVICE,
                                [
                                    Line("XLA Ops", [Event(1, 0, 1)]),
                                    Line("Steps", [Event(2, 0, 9)]),
                                ],
                                [EventMetadata(1, "x"), EventMetadata(2, extra=bad)],
                            )
                        ]
                    )
                ),
            }.items():
                with self.subTest(what=what, where=where):
                    self.assert_unreadable(run(data), data.rindex(bad))
            bad = bytes_field(5, text)
            with self.subTest(what=what, where="stat's value"):
                data = with_extra("op stat", bad)
                self.assert_unreadable(run(data), data.rindex(bad))

    def test_compressed_strings(self) -> None:
        whole = gzip.compress(b"while", mtime=0)
        for what, packed in {
            "empty": b"",
            "no gzip": b"while",
            "cut off": whole[:-9],
            "without its check sum": whole[:-8],
            "wrong check sum": whole[:-8] + bytes(8),
            "not UTF-8": gzip.compress(b"\xff"),
            "garbage behind": whole + b"garbage",
            "bomb": bomb(256),
        }.items():
            with self.subTest(what), time_limit(5):
                bad = bytes_field(8, packed)
                name = encode(StatMetadata(9, "device_type_string"))
                plane_stat = bytes_field(5, int_field(1, 9) + bytes_field(2, name))
                plane_stat += bytes_field(6, int_field(1, 9) + HERE + bad)
                for data in (
                    with_extra("op stat", HERE + bad),
                    with_extra("plane", plane_stat),
                ):
                    self.assert_unreadable(run(data), data.index(HERE) + len(HERE))
                # Nobody asks for an unknown stat.
                unseen = bytes_field(6, int_field(1, 1) + HERE + bad)
                self.assertEqual(said(with_extra("plane", unseen))["status"], "ok")

    def test_many_compressed_strings_take_bounded_memory(self) -> None:
        n = 12
        stack = gzip.compress(b"x" * (32 << 20))
        stat = bytes_field(5, int_field(1, 1) + bytes_field(8, stack))
        plane = Plane(
            fuzz.DEVICE,
            [Line("XLA Ops", [Event(i, i, 1) for i in range(n)])],
            [EventMetadata(i, f"%f.{i} = f32[2] fusion()", extra=stat) for i in range(n)],
            [StatMetadata(1, "source_stack")],
        )
        path = self.write("x.xplane.pb", encode(Space([plane])))
        outcome, seconds, size = measured(path, "--mode", "summary")
        self.assert_unreadable(outcome)
        self.assertLess(seconds, harness.bound(4))
        self.assertLess(size, 128 << 20)

    def test_every_cut(self) -> None:
        # Behind the first plane's name another plane's insides are not read.
        data = SMALL + encode(Space([Plane("/host:CPU", [Line("main", [Event(1, 5, 5)])])]))
        answer = said(data)
        self.assert_unreadable(run(b""), 0)
        for cut in harness.sampled(range(1, len(data)), 200):
            with self.subTest(cut):
                outcome = run(data[:cut])
                if cut == len(SMALL):
                    self.assertEqual(outcome.object["totals"], answer["totals"])
                else:
                    self.assert_unreadable(outcome, 0 if cut < len(SMALL) else len(SMALL))

    def test_text_tools(self) -> None:
        for what, data in {
            "Latin-1 taken for UTF-8": SMALL.decode("latin-1").encode(),
            "replacement characters": SMALL.decode(errors="replace").encode(),
            "seven bits": bytes(byte & 127 for byte in SMALL),
            "a byte order mark": b"\xef\xbb\xbf" + SMALL,
            "a line feed behind": SMALL + b"\n",
            "zeros behind": SMALL + bytes(512),
        }.items():
            with self.subTest(what):
                self.assert_unreadable(run(data))

    def test_a_trace_of_a_host_s_name_alone_is_no_text(self) -> None:
        said = run(encode(Space([], hostnames=["a-host-with-a-name-of-40-characters-or-so"])))
        self.assertEqual(said.object["reason"], "device_not_found")

    def test_other_files_are_called_what_they_are(self) -> None:
        for what, data in {
            "HTML": b"<!DOCTYPE html><html></html>",
            "a pointer of Git LFS": b"version https://git-lfs.github.com/spec/v1\n",
            "JSON": b'{"traceEvents": []}',
            "text": b"# Notes\n\nOf what was tried.\n",
        }.items():
            with self.subTest(what):
                outcome = run(data)
                self.assert_unreadable(outcome)
                self.assertIn(f": not a trace but {what}", outcome.object["detail"])


class PureProtobufTest(RobustnessTest):
    """protobuf without its C parser, as where there is no wheel of it, raises other exceptions."""

    def run_pure(self, data: bytes) -> harness.Outcome:
        path = self.write("x.xplane.pb", data)
        with mock.patch.dict(os.environ, {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}):
            return command(path, "--mode", "summary")

    def test_intact(self) -> None:
        path = self.write("x.xplane.pb", SMALL)
        self.assertEqual(self.run_pure(SMALL), run(path))

    def test_text_that_is_not_utf8(self) -> None:
        for place, bad in (
            ("op stat", b"\x2a\x01\xff"),
            ("event metadata", b"\x12\x01\xff"),
            ("stat metadata", b"\x12\x01\xff"),
            ("ops line", b"\x12\x01\xff"),
        ):
            with self.subTest(place):
                data = with_extra(place, HERE + bad)
                self.assert_unreadable(self.run_pure(data), data.index(HERE) + len(HERE))

    def test_groups_nested_deep(self) -> None:
        data = with_extra("event", HERE + b"\x7b" * 20_000 + b"\x7c" * 20_000)
        self.assert_unreadable(self.run_pure(data), data.index(HERE) + len(HERE))


class UnseenDamageTest(RobustnessTest):
    """What no answer needs may be damaged: the answer stays the same."""

    def assert_unseen(self, intact: bytes, damaged: bytes) -> None:
        self.assertNotEqual(intact, damaged)
        for mode in harness.MODES_OF_TRACE:
            answer = said(intact, mode)
            self.assertEqual(answer["status"], "ok")
            self.assertEqual(said(damaged, mode), answer)

    def plane(self, lines: list[Line], metadata: list[EventMetadata], extra: bytes = b"") -> bytes:
        ops = Line("XLA Ops", [Event(1, 0, 10), Event(2, 200, 10), Event(1, 300, 10)])
        steps = Line("Steps", [Event(3, 0, 100), Event(4, 200, 200)])
        known = [EventMetadata(1, "%a.1 = f32[2] add()"), EventMetadata(4, "1")]
        return encode(
            Space([Plane(fuzz.DEVICE, [steps, ops, *lines], known + metadata, extra=extra)])
        )

    def test_other_planes(self) -> None:
        rng = random.Random(0)
        for _ in range(20 if harness.FULL else 6):
            inside = text_field(2, "/host:other") + rng.randbytes(300)
            intact = SMALL + encode(Space([Plane("/host:other")]))
            self.assert_unseen(intact, SMALL + bytes_field(1, inside))

    def test_other_lines(self) -> None:
        lines = [Line("Steps", [Event(3, 0, 100)])], [EventMetadata(2, "x"), EventMetadata(3, "0")]
        intact = self.plane([*lines[0], Line("Overlay")], lines[1])
        damaged = self.plane([*lines[0], Line("Overlay", extra=b"\0\xff")], lines[1])
        self.assert_unseen(intact, damaged)

    def test_metadata_of_ops_that_do_not_run_in_the_step(self) -> None:
        step = EventMetadata(3, "0")
        bad = int_field(1, 2) + bytes_field(2, b"\0")
        intact = self.plane([], [step, EventMetadata(2, "%b.1 = f32[2] add()")])
        damaged = self.plane([], [step], bytes_field(4, bad))
        for mode in harness.MODES_OF_TRACE:
            with self.subTest(mode):
                answer = said(intact, mode, "--step", "0")
                self.assertEqual(said(damaged, mode, "--step", "0"), answer)
                self.assert_unreadable(run(damaged, mode, "--step", "1"), damaged.rindex(b"\0"))

    def test_stats_of_events_of_other_steps(self) -> None:
        """What the core measured is read of the picked step, in the pieces that reach into it."""
        bad = bytes_field(4, b"\0\xff")
        n, pad = 1000, text_field(14, "x" * 200)
        for damaged_step in (0, 2):
            plane = Plane(
                fuzz.DEVICE,
                [
                    Line("Steps", [Event(3, i * n, n) for i in range(3)]),
                    Line("XLA Ops", [Event(1, i, 1, extra=pad) for i in range(3 * n)]),
                ],
                [EventMetadata(1, "%a.1 = f32[2] add()"), EventMetadata(3, "s")],
            )
            intact = encode(Space([plane]))
            plane.lines[1].events[-1 if damaged_step else 0].extra = bad
            damaged = encode(Space([plane]))
            for mode in harness.MODES_OF_TRACE:
                with self.subTest(mode=mode, damaged_step=damaged_step):
                    answer = said(intact, mode, "--step", "1")
                    self.assertEqual(said(damaged, mode, "--step", "1"), answer)
            outcome = run(damaged, "summary", "--step", str(damaged_step))
            self.assert_unreadable(outcome, damaged.index(b"\0\xff"))

    def test_errors_and_warnings(self) -> None:
        self.assert_unseen(SMALL, SMALL + bytes_field(2, b"\xff") + bytes_field(3, b"\xed\xa0\x80"))


# --- legal, but no writer does it ----------------------------------------------------------------


class AwkwardTest(RobustnessTest):
    def test_over_long_varints(self) -> None:
        answer = said(with_extra("event", int_field(3, 77)))
        for what, field in {
            "tag of five bytes": b"\x98\x80\x80\x80\x00\x4d",
            "value of ten bytes": b"\x18\xcd" + b"\x80" * 8 + b"\x00",
        }.items():
            with self.subTest(what):
                self.assertEqual(said(with_extra("event", field)), answer)

    def test_varints_of_64_bits(self) -> None:
        answer = said(with_extra("space", b""))
        for place in PLACES:
            with self.subTest(place):
                self.assertEqual(said(with_extra(place, b"\x78" + b"\x80" * 9 + b"\x01")), answer)

    def test_groups_as_deep_as_parsers_take_them(self) -> None:
        answer = said(with_extra("space", b""))
        for depth, is_legal in ((100, True), (101, False)):
            with self.subTest(depth):
                data = with_extra("space", HERE + b"\x7b" * depth + b"\x7c" * depth)
                if is_legal:
                    self.assertEqual(said(data), answer)
                else:
                    self.assert_unreadable(run(data), data.index(HERE) + len(HERE))

    def test_a_timestamp_given_twice(self) -> None:
        """The last one counts, wherever it stands: here a line is longer than a piece, too."""
        event = bytes_field(4, int_field(1, 1) + int_field(2, 500) + int_field(3, 5))
        first, last = int_field(3, 7), int_field(3, 9)
        for n in (1, 10_000):
            for fields in (
                first + last + event * n,
                first + event * n + last,
                event * n + first + last,
                event + first + event * (n - 1) + last,
            ):
                with self.subTest(n=n, fields=fields[:20]):
                    steps = Line("Steps", [Event(1, 0, 1000)], timestamp_ns=9)
                    plane = Plane(
                        fuzz.DEVICE,
                        [steps, Line("XLA Ops", extra=fields)],
                        [EventMetadata(1, "%a.1 = f32[2] add()")],
                    )
                    answer = said(encode(Space([plane])))
                    self.assertEqual(answer["step_window_ps"], [0, 1000])
                    self.assertEqual(answer["totals"]["n_events_total"], n)

    def test_lengths_in_more_bytes_than_some_parsers_take(self) -> None:
        answer = said(with_extra("event metadata", NEEDED))
        over_long = NEEDED[:1] + bytes([NEEDED[1] | 128]) + b"\x80" * 4 + b"\0" + NEEDED[2:]
        data = with_extra("event metadata", HERE + over_long)
        outcome = run(data)
        if outcome.object["status"] == "ok":
            self.assertEqual(said(data), answer)
        else:
            self.assert_unreadable(outcome, data.index(HERE) + len(HERE))

    def test_fields_given_twice(self) -> None:
        self.assertEqual(
            said(with_extra("event", int_field(3, 77))),
            said(with_extra("event", int_field(3, 5) + int_field(3, 77))),
        )
        # The second value of a `oneof` puts the first one aside.
        late = bytes_field(4, int_field(1, 1) + int_field(3, 9) + int_field(2, 50))
        for first in (int_field(2, 70), int_field(5, 3)):
            twice = bytes_field(4, int_field(1, 1) + int_field(3, 9) + first + int_field(2, 50))
            for none in (b"", bytes_field(4, int_field(1, 1))):
                with self.subTest(first=first, none=none):
                    self.assertEqual(
                        said(with_extra("ops line", twice + none)),
                        said(with_extra("ops line", late + none)),
                    )

    def test_any_order_of_fields(self) -> None:
        space = Space([tpu_plane(OPS, [("0", 0, 150)])])
        answer = said(encode(space))
        for seed in range(20):
            rng = random.Random(seed)
            with self.subTest(seed):
                # Bind the loop's variable; the order of events and metadata stays as it is.
                def arrange(fields: list[bytes], rng: random.Random = rng) -> list[bytes]:
                    tags = rng.sample(sorted({f[:1] for f in fields}), len({f[:1] for f in fields}))
                    return sorted(fields, key=lambda f: tags.index(f[:1]))

                self.assertEqual(said(encode(space, arrange)), answer)

    def test_unknown_fields_and_groups(self) -> None:
        answer = said(with_extra("space", b""))
        group = b"\x7b" * 40 + int_field(1, 5) + b"\x7c" * 40
        for place in PLACES:
            for unknown in (group, double_field(1000, 1.5), b"\x7d1234", text_field(1000, "x")):
                with self.subTest(place=place, unknown=unknown):
                    self.assertEqual(said(with_extra(place, unknown)), answer)


# --- numbers at the edge -------------------------------------------------------------------------

MAX = 2**63 - 1


class EdgeNumbersTest(RobustnessTest):
    def test_longest_durations(self) -> None:
        ops = [op("fusion.1", "loop fusion", i, MAX) for i in range(5)]
        totals = said(trace(ops))["totals"]
        self.assertEqual(totals["compute_duration_ps"], 5 * MAX)
        self.assertEqual(totals["busy_duration_ps"], MAX + 4)

    def test_farthest_offsets(self) -> None:
        ops = [op("fusion.1", "loop fusion", start, MAX) for start in (-(2**63), 0, MAX)]
        for steps in (None, [("0", -(2**63), MAX), ("1", MAX, MAX)]):
            for mode in harness.MODES_OF_TRACE:
                with self.subTest(steps=steps, mode=mode):
                    answer = said(trace(ops, steps), mode)
                    self.assertEqual(answer["status"], "ok")
        self.assertEqual(said(trace(ops))["step_window_ps"], [-(2**63), 2 * MAX])

    def test_farthest_timestamps(self) -> None:
        data = encode(
            Space([tpu_plane(OPS, [("0", 0, 9)], ops_timestamp_ns=MAX, steps_timestamp_ns=-MAX)])
        )
        self.assertEqual(said(data)["step_window_ps"], [-2000 * MAX, -2000 * MAX + 9])

    def test_negative_durations_are_left_out(self) -> None:
        negative = [op("fusion.1", "loop fusion", 10, -1), op("fusion.1", "loop fusion", 20, -MAX)]
        answer = said(trace([*OPS, *negative], [("0", 0, 150), ("1", 500, -7)]))
        self.assertEqual(answer["totals"]["compute_duration_ps"], 90)
        self.assertEqual(answer["totals"]["n_events_unresolved"], 2)
        self.assertEqual(len(answer["steps"]), 1)
        self.assertEqual(sum("negative" in note for note in answer["notes"]), 1, answer["notes"])
        self.assertEqual(sum("Steps" in note for note in answer["notes"]), 1, answer["notes"])

    def test_facts_that_are_no_counts(self) -> None:
        for value, is_noted in (
            (float("nan"), True), (float("inf"), True), (-float("inf"), True), (1e300, False),
            (2.0**63, False), (-1, False), (-0.5, False), (2**64 - 1, False), ("12", False),
        ):  # fmt: skip
            facts: dict[str, Any] = {"flops": value, "model_flops": value, "bytes_accessed": value}
            data = trace([op("fusion.1", "loop fusion", 0, 10, **facts)])
            for mode in ("summary", "by_source", "roofline"):
                with self.subTest(value=value, mode=mode):
                    answer = said(data, mode)
                    note = "flops or bytes of 1 ops are not finite: treated as absent"
                    self.assertEqual(note in answer["notes"], is_noted)
                    for group in answer.get("groups", []):
                        self.assertIsNone(group["flops_sum"])
                        self.assertIsNone(group["bytes_accessed_sum"])

    def test_each_fact_that_is_endless_is_noted(self) -> None:
        endless: list[dict[str, Any]] = [
            {fact: float("inf")} for fact in ("flops", "model_flops", "bytes_accessed")
        ]
        ops = [op(f"f.{i}", "loop fusion", 9 * i, 9, **facts) for i, facts in enumerate(endless)]
        for some in ([ops[0]], [ops[1]], [ops[2]], ops, [*ops, *ops]):
            with self.subTest(n=len(some)):
                n = len({each.text for each in some})
                note = f"flops or bytes of {n} ops are not finite: treated as absent"
                self.assertIn(note, said(trace(some))["notes"])

    def test_chip_stats_that_are_no_rates(self) -> None:
        ops = [op("dot.1", "dot", 0, 10, shape="bf16[8]", flops=5, bytes_accessed=5)]
        for value in (float("inf"), float("nan"), -1.0, 0.0, 5e-324, 1.7e308, 2**64 - 1, "x"):
            rates: dict[str, StatValue] = {
                "peak_teraflops_per_second": value,
                "peak_hbm_bw_gigabytes_per_second": value,
            }
            data = encode(Space([tpu_plane(ops, stats=rates)]))
            for chip in ("v7x", "profile"):
                with self.subTest(value=value, chip=chip):
                    run(data, "roofline", "--chip", chip)

    def test_peaks_at_the_edge(self) -> None:
        data = trace([op("dot.1", "dot", 0, 10, shape="bf16[8]", flops=2**62, bytes_accessed=1)])
        for tflops in ("1.7e308", "1", "5e-324"):
            for gibps in ("1.7e308", "1", "5e-324"):
                with self.subTest(tflops=tflops, gibps=gibps):
                    run(data, "roofline", "--peak-tflops-bf16", tflops, "--peak-hbm-gibps", gibps)

    def test_kernel_costs_that_are_no_numbers(self) -> None:
        for cost in (
            "k=inf,1",
            "k=1e400,1",
            "k=nan,1",
            "k=1",
            "k=1,2,3,4",
            "k=,",
            "=1,2",
            "k=-1,2",
        ):
            with self.subTest(cost):
                outcome = run(SMALL, "roofline", "--kernel-cost", cost)
                self.assert_absent(outcome, "bad_arguments")


# --- hostile text --------------------------------------------------------------------------------

HOSTILE = (
    "\x1b]0;title\x07\x1b[2J\x1b[31m", "a\0b", "line\r\nline", "</script><script>alert(1)</script>",
    "\u202egpj.exe", "\u2028\u2029", "\x7f\x80\x9b", '"\\"', "\U0001f9e8", "\ufeff\ufffe",
)  # fmt: skip


class HostileTextTest(RobustnessTest):
    def test_names_come_back_as_they_were(self) -> None:
        for text in HOSTILE:
            with self.subTest(text):
                each = op("x", text, 0, 10, text=text, stack=text, tf_op=text, shape=text)
                plane = tpu_plane([each], [(text, 0, 10)], name=text)
                plane.lines.append(Line(text))
                path = self.write("test.xplane.pb", encode(Space([plane], [text])))
                for mode in harness.MODES_OF_TRACE:
                    if "\0" not in text:
                        self.assertEqual(
                            run(path, mode, "--device", text).object["step_name"], text
                        )
                missing = run(path, "anatomy", "--plane", "none").object
                self.assertEqual(missing["available_planes"], [text])

    def test_stdout_is_ascii_and_stderr_is_printable(self) -> None:
        text = "".join(HOSTILE).replace("\0", "")
        plane = tpu_plane([op("x", text, 0, 10, text=text)], [(text, 0, 10)], name=text)
        path = self.write("\x1b[31m\n.xplane.pb", encode(Space([plane])))
        broken = self.write("\x1b]0;\x07\u202e.xplane.pb", b"\0")
        for arguments in (
            [path, "--mode", "summary", "--device", text],
            [path, "--mode", "summary", "--device", text, "--step-id", "\x1b[31m\n"],
            [path, "--mode", "summary", "--host", "\x1b[31m\n"],
            [path, "--mode", "\x1b[31m\n"],
            [path, "--mode", "summary", "--\x1b[31m\n"],
            [broken, "--mode", "summary"],
            [os.fsdecode(b"\xff\xfe\x1b"), "--mode", "summary"],
        ):
            with self.subTest(arguments):
                done = subprocess.run(
                    [sys.executable, harness.SCRIPT, *arguments], capture_output=True, check=False
                )
                self.assertTrue(done.stdout.isascii())
                self.assertTrue(done.stdout[:-1].decode().isprintable())
                json.loads(done.stdout)
                for line in done.stderr.decode().split("\n"):
                    self.assertTrue(line.isprintable(), line)

    def test_huge_texts_take_no_time(self) -> None:
        size = 1 << 18 if harness.FULL else 1 << 16
        for what, text in {
            "a name": "%" + "a" * size,
            "one word": "%f.1 = f32[2]{0} fusion(" + "a" * size,
            "open brackets": "%f.1 = f32[2]{0} fusion(" + "a[" * size,
            "open layouts": "%f.1 = f32[2]{0} fusion(" + "a[]{" * size,
            "open parentheses": "%f.1 = " + "(" * size,
            "closed parentheses": "%f.1 = (" + ")" * size,
            "open tiles": "%copy.1 = f32[2]{0:" + "T(" * size + "} copy(f32[2]{0:T(1)} %a)",
            "many tiles": "%copy.1 = f32[2]{0:T" + "(1)" * size + "} copy(f32[2]{0} %a)",
            "many dimensions": "%f.1 = f32[" + "9999," * size + "1]{0} fusion()",
            "a huge dimension": "%f.1 = f32[" + "9" * size + "]{0} fusion()",
            "many operands": "%f.1 = f32[2]{0} fusion(" + "f32[2]{0} %a, " * (size // 8) + ")",
            "blanks": " " * size,
            "blanks behind the name": "%f.1" + " " * size,
            "open strings": "%f.1 = f32[2] custom-call(), " + 'custom_call_target="' * (size // 16),
            "dots": "%" + "1." * size + " = f32[2]{0} fusion()",
        }.items():
            with self.subTest(what), time_limit(4):
                data = trace([op("f.1", "copy", 0, 10, text=text, shape=text)])
                self.assertEqual(said(data, "non_compute")["status"], "ok")
                stack = {"stack": text, "tf_op": text, "source": text, "hlo_category": text}
                said(trace([op("f.1", None, 0, 10, text=text, **stack)]))

    def test_ten_megabytes_of_hlo(self) -> None:
        operand = "f32[8,128]{1,0:T(8,128)} %operand, "
        text = f"%f.1 = f32[8]{{0}} fusion({operand * (10 * 2**20 // len(operand))}f32[] %b)"
        path = self.write("test.xplane.pb", trace([op("f.1", "loop fusion", 0, 10, text=text)]))
        outcome, seconds, size = measured(path, "--mode", "by_source")
        said = outcome.object["groups"][0]["example_hlo_op"]
        self.assertEqual(said, text[: texts.LONGEST_TEXT] + "…")
        self.assertLess(seconds, harness.bound(4))
        self.assertLess(size, 400 << 20)

    def test_digits_that_are_no_numbers(self) -> None:
        for dims in ("²", "٣", "9" * 5000, "-1", "<=²", "1,²,3", ","):
            with self.subTest(dims[:10]):
                data = trace([op("f.1", "loop fusion", 0, 10, shape=f"f32[{dims}]{{0}}")])
                self.assertEqual(said(data)["status"], "ok")


class ManyThingsTest(RobustnessTest):
    def test_many_containers(self) -> None:
        n = 20_000 if harness.FULL else 8_000
        for what, ops in {
            "one behind the other": [op("call.1", "call", 10 * i, 10) for i in range(n)],
            "nested": [op("while.1", "while", i, 10**9) for i in range(n // 2)]
            + [op("f.1", "loop fusion", n + 10 * i, 1) for i in range(n // 2)],
        }.items():
            with self.subTest(what), time_limit(5):
                self.assertEqual(said(trace(ops))["status"], "ok")

    def test_many_steps(self) -> None:
        n = 20_000 if harness.FULL else 8_000
        steps = [("0", 10 * i, 10) for i in range(n)]
        with time_limit(5):
            answer = said(trace([op("f.1", "loop fusion", 10 * i, 5) for i in range(n)], steps))
        self.assertEqual(len(answer["steps"]), n)


# --- files that are none, or not for long --------------------------------------------------------


# A process of its own: memory of whoever starts the program would count as the program's.
MEASURE = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)
sys.exit(status)
"""


def measured(*arguments: str | Path) -> tuple[harness.Outcome, float, int]:
    """Run as a command; what came of it, its seconds of work, and its peak memory in bytes."""
    command = [sys.executable, "-c", MEASURE, sys.executable, harness.SCRIPT, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=harness.bound(60), check=False
    )
    complaint, _, used = done.stderr.rstrip().rpartition("\n")
    seconds, kibibytes = used.split()
    complaint += "\n" * bool(complaint)
    outcome = harness.Outcome(json.loads(done.stdout), done.returncode, complaint)
    check_outcome(outcome)
    return outcome, float(seconds), int(kibibytes) << 10


def bomb(n_mebibytes: int, head: bytes = b"") -> bytes:
    """Gzip data that expands to `head` and so many MiB of zeros, and never ends."""
    deflate = zlib.compressobj(9, wbits=31)
    start = deflate.compress(head) + deflate.flush(zlib.Z_FULL_FLUSH)
    zeros = deflate.compress(bytes(1 << 20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return start + zeros * n_mebibytes


class GzipTest(RobustnessTest):
    def test_whole(self) -> None:
        answer = said(SMALL)
        for what, name, data in (
            ("one member", "a.xplane.pb.gz", gzip.compress(SMALL)),
            (
                "two members",
                "b.xplane.pb.gz",
                gzip.compress(SMALL[:99]) + gzip.compress(SMALL[99:]),
            ),
            ("named as if it were plain", "c.xplane.pb", gzip.compress(SMALL)),
            ("zeros behind", "d.xplane.pb.gz", gzip.compress(SMALL) + bytes(512)),
        ):
            with self.subTest(what):
                outcome = run(self.write(name, data))
                self.assertEqual(outcome.object["totals"], answer["totals"])

    def test_cut_off(self) -> None:
        rng = random.Random(0)
        noise = bytes_field(15, rng.randbytes(3 << 20))
        packed = gzip.compress(SMALL + noise, 1)
        for cut in (3, 9, 10, 100, len(packed) // 2, len(packed) - 9, len(packed) - 1):
            with self.subTest(cut):
                outcome = run(self.write("x.xplane.pb.gz", packed[:cut]))
                whole = zlib.decompressobj(wbits=31).decompress(packed[:cut])
                # The first field that isn't there in full.
                at = len(SMALL) if len(SMALL) <= len(whole) < len(SMALL + noise) else 0
                self.assertIn(damaged_at(outcome), {at, len(whole)}, outcome.object)

    def test_cut_off_where_a_whole_field_ends(self) -> None:
        # What could be unpacked is a valid file, and shorter.
        size = 1 << 20
        pad = bytes_field(15, bytes(size - len(SMALL) - 4))
        self.assertEqual(len(SMALL + pad), size)
        packed = gzip.compress(SMALL + pad + bytes_field(15, random.Random(0).randbytes(size)))
        self.assert_unreadable(run(self.write("x.xplane.pb.gz", packed[: len(packed) // 2])))
        self.assert_unreadable(run(self.write("x.xplane.pb.gz", packed[:-1])))

    def test_damaged(self) -> None:
        packed = gzip.compress(SMALL, mtime=0)
        for what, data in {
            "not gzip": SMALL,
            "empty": b"",
            "nothing inside": gzip.compress(b""),
            "wrong check sum": packed[:-8] + bytes(4) + packed[-4:],
            "wrong size": packed[:-4] + bytes(4),
            "bits flipped": packed[:60] + bytes([packed[60] ^ 16]) + packed[61:],
            "garbage behind": packed + b"garbage",
            "no deflate": packed[:2] + b"\x07" + packed[3:],
            "a name without end": packed[:3] + b"\x08" + packed[4:10] + b"x" * (1 << 20),
        }.items():
            with self.subTest(what):
                self.assert_unreadable(run(self.write("x.xplane.pb.gz", data)))

    def test_damage_inside_is_told_by_its_place_in_the_plain_file(self) -> None:
        for place in PLACES:
            with self.subTest(place):
                data = with_extra(place, HERE + b"\0")
                at = data.index(HERE) + len(HERE)
                self.assert_unreadable(run(self.write("x.xplane.pb.gz", gzip.compress(data))), at)

    def test_bomb_of_zeros(self) -> None:
        path = self.write("x.xplane.pb.gz", bomb(8 << 10))
        outcome, seconds, size = measured(path, "--mode", "summary")
        self.assert_unreadable(outcome, 0)
        self.assertLess(seconds, harness.bound(2))
        self.assertLess(size, 128 << 20)

    def test_the_limit_is_no_limit_for_what_just_fits(self) -> None:
        self.assertEqual(source.COPY_LIMIT, 16 << 30)
        path = self.write("x.xplane.pb.gz", gzip.compress(SMALL))
        for limit in (len(SMALL), len(SMALL) - 1):
            small = functools.partial(source.open_source, limit=limit)
            with self.subTest(limit), mock.patch.object(source, "open_source", small):
                if limit == len(SMALL):
                    self.assertEqual(run(path).object["status"], "ok")
                else:
                    self.assert_unreadable(run(path), limit)

    def test_bomb_that_looks_like_a_trace(self) -> None:
        limit = 4 << 20
        small = functools.partial(source.open_source, limit=limit)
        path = self.write("x.xplane.pb.gz", bomb(64, b"\x7a" + varint(2**34)))
        with mock.patch.object(source, "open_source", small):
            outcome = run(path)
        self.assert_unreadable(outcome, limit)
        self.assertIn("limit", outcome.object["detail"])


class OddFileTest(RobustnessTest):
    def test_folder_named_like_a_trace(self) -> None:
        (self.folder / "x.xplane.pb").mkdir()
        self.assert_absent(run(self.folder / "x.xplane.pb"), "no_xplane_pb")
        self.assert_absent(run(self.folder), "no_xplane_pb")
        self.write("y.xplane.pb", SMALL)
        self.assertEqual(run(self.folder).object["xplane_file"], "y.xplane.pb")

    def test_fifo(self) -> None:
        os.mkfifo(self.folder / "x.xplane.pb")
        with time_limit(5):
            self.assert_unreadable(run(self.folder / "x.xplane.pb"), 0)
            self.assert_unreadable(run(self.folder), 0)

    def test_device(self) -> None:
        self.assert_unreadable(run("/dev/zero"), 0)

    def test_symbolic_links(self) -> None:
        loop = self.folder / "loop.xplane.pb"
        loop.symlink_to(loop)
        self.assert_unreadable(run(loop))
        self.assert_unreadable(run(self.folder))
        loop.unlink()
        loop.symlink_to(self.folder / "nowhere")
        self.assert_absent(run(loop), "no_such_path")
        loop.unlink()
        loop.symlink_to(self.write("target", SMALL))
        self.assertEqual(run(loop).object["status"], "ok")

    @unittest.skipUnless(os.geteuid(), "root may read everything")
    def test_no_permission(self) -> None:
        path = self.write("run/x.xplane.pb", SMALL)
        path.chmod(0)
        self.assert_unreadable(run(path), 0)
        path.parent.chmod(0)
        self.assert_unreadable(run(path), 0)
        self.assert_unreadable(run(path.parent), 0)
        path.parent.chmod(0o700)

    def test_read_error(self) -> None:
        with mock.patch("os.pread", side_effect=OSError(5, "Input/output error")):
            outcome = run(self.write("x.xplane.pb", SMALL))
        self.assert_unreadable(outcome)
        self.assertIn("Input/output error", outcome.object["detail"])

    def test_shrinks_while_it_is_read(self) -> None:
        pread = os.pread
        for cut in (0, 1, 50, len(SMALL) // 2, len(SMALL) - 1):
            for n_whole_reads in (0, 1, 3):
                calls = iter(range(n_whole_reads))

                def shrunk(fd: int, n: int, at: int, calls: Any = calls, cut: int = cut) -> bytes:
                    return pread(fd, n if next(calls, None) is not None else max(0, cut - at), at)

                with self.subTest(cut=cut, n_whole_reads=n_whole_reads):
                    path = self.write("x.xplane.pb", SMALL)
                    with mock.patch("os.pread", shrunk):
                        self.assert_unreadable(run(path))

    def test_grows_while_it_is_read(self) -> None:
        pread = os.pread
        path = self.write("x.xplane.pb", SMALL)
        answer = run(path)
        calls = itertools.count()

        def growing(fd: int, n: int, at: int) -> bytes:
            # The first read only looks for gzip's magic number.
            if next(calls):
                with path.open("ab") as file:
                    file.write(b"\0\xff")
            return pread(fd, n, at)

        with mock.patch("os.pread", growing):
            self.assertEqual(run(path), answer)

    def test_sparse_file(self) -> None:
        path = self.write("x.xplane.pb", SMALL)
        os.truncate(path, 8 << 30)
        with time_limit(5):
            self.assert_unreadable(run(path), len(SMALL))


# --- where to look -------------------------------------------------------------------------------


class ProfileTest(RobustnessTest):
    def test_path_that_does_not_exist_is_a_failure(self) -> None:
        (self.folder / "empty").mkdir()
        self.write("plain", SMALL)
        for profile in ("nowhere", "", "plain/below", "empty/x.xplane.pb", "nowhere.json.gz"):
            path = str(self.folder / profile) if profile else profile
            for mode in (mode.name for mode in compute_breakdown.MODES):
                with self.subTest(profile=profile, mode=mode):
                    options = {
                        "page": ("--out", str(self.folder / "p.html")),
                        "compare": ("--baseline", str(self.folder / "plain")),
                    }
                    outcome = run(path, mode, *options.get(mode, ()))
                    self.assert_absent(outcome, "no_such_path")
                    self.assertEqual(outcome.object["detail"], f"no such path: {path}")

    def test_compare_names_the_side_whose_path_does_not_exist(self) -> None:
        there = self.write("x.xplane.pb", SMALL)
        for name in ("nowhere", "nowhere.json"):
            nowhere = self.folder / name
            outcome = run(there, "compare", "--baseline", str(nowhere))
            self.assert_absent(outcome, "no_such_path")
            self.assertEqual(outcome.object["side"], "baseline")
            outcome = run(nowhere, "compare", "--baseline", str(there))
            self.assert_absent(outcome, "no_such_path")
            self.assertNotIn("side", outcome.object)

    def test_url_is_a_path_that_does_not_exist(self) -> None:
        outcome = run("gs://bucket/run/h.xplane.pb")
        self.assert_absent(outcome, "no_such_path")
        self.assertEqual(
            outcome.object["detail"],
            "a URL: copy it here first, or pipe it in and give - as the profile",
        )

    def test_directory_without_a_trace_is_no_failure(self) -> None:
        (self.folder / "empty").mkdir()
        self.assert_absent(run(self.folder / "empty"), "no_xplane_pb")

    def test_file_for_the_trace_viewer_is_named_as_no_substitute(self) -> None:
        for folder in ("h", "runs/2024_01_01", "log/plugins/profile/2024_01_01"):
            path = self.write(f"{folder}/h.trace.json.gz", gzip.compress(b"{}"))
            given = self.folder / folder.partition("/")[0]
            for mode in ("summary", "spread", "anatomy"):
                with self.subTest(folder=folder, mode=mode):
                    outcome = run(given, mode)
                    self.assert_absent(outcome, "no_xplane_pb")
                    end = f"; {path} is no substitute: the .xplane.pb file is needed"
                    self.assertTrue(outcome.object["detail"].endswith(end), outcome.object)

    def test_a_folder_that_lies_one_level_off(self) -> None:
        nothing = (
            "no .xplane.pb file in this directory, nor in a run below it or its plugins/profile"
        )
        given = self.folder / "given"
        given.mkdir()
        self.assertEqual(run(given).object["detail"], nothing)
        self.write("given/logs/plugins/profile/2024_01_01/a.xplane.pb", SMALL)
        told = run(given).object["detail"]
        self.assertTrue(told.startswith(f"{nothing}; there is one in "), told)
        self.assertIn("logs", told.removeprefix(nothing))

    def test_newest_run_that_holds_a_trace(self) -> None:
        for name in ("2024_01_01", "2025_06_01", "2025_05_01"):
            self.write(f"plugins/profile/{name}/host.xplane.pb", SMALL)
        (self.folder / "plugins/profile/2026_01_01").mkdir()
        for path in (self.folder, self.folder / "plugins/profile"):
            fields = run(path).object
            self.assertEqual(fields["status"], "ok")
            self.assertTrue(any("2025_06_01" in note for note in fields["notes"]))

    def test_runs_without_a_trace_are_passed_over(self) -> None:
        """However many there are, and whatever else is in them."""
        for name in ("2023_01_01", "2024_01_01"):
            self.write(f"plugins/profile/{name}/{name}.xplane.pb", SMALL)
        self.write("plugins/profile/2025_01_01/trace.json.gz", b"")
        (self.folder / "plugins/profile/2026_01_01").mkdir()
        self.write("plugins/profile/2027_01_01", b"no folder")
        fields = run(self.folder).object
        self.assertEqual(fields["xplane_file"], "2024_01_01.xplane.pb")
        self.assertEqual(fields["notes"][0], "run 2024_01_01 taken, the newest with a trace")

    def test_an_only_run(self) -> None:
        self.write("plugins/profile/2024_01_01/a.xplane.pb", SMALL)
        self.assertEqual(run(self.folder).object["notes"][0], "run 2024_01_01 taken")

    def test_a_run_that_cannot_be_listed_may_hold_a_trace(self) -> None:
        (self.folder / "2025_01_01").mkdir()
        list_files = folders.files_in

        def files_in(folder: str) -> dict[str, str]:
            if folder.endswith("2025_01_01"):
                raise PermissionError(13, "Permission denied", folder)
            return list_files(folder)

        with mock.patch("_pipeline.folders.files_in", files_in):
            self.assert_absent(run(self.folder), "unreadable_xplane_pb")

    def test_a_run_that_cannot_be_listed_hides_no_other(self) -> None:
        for name in ("2024_01_01", "2025_01_01", "2026_01_01"):
            self.write(f"plugins/profile/{name}/host.xplane.pb", SMALL)
        list_files = folders.files_in

        def files_in(folder: str) -> dict[str, str]:
            if folder.endswith(("2024_01_01", "2026_01_01")):
                raise PermissionError(13, "Permission denied")
            return list_files(folder)

        with mock.patch("_pipeline.folders.files_in", files_in):
            notes = run(self.folder / "plugins/profile").object["notes"]
        self.assertEqual(
            notes[:2],
            [
                "run 2026_01_01 can't be listed: Permission denied",
                "run 2025_01_01 taken, the newest with a trace",
            ],
        )

    def test_plain_and_gzipped_side_by_side(self) -> None:
        self.write("host.xplane.pb.gz", b"broken")
        self.write("host.xplane.pb", SMALL)
        self.assertEqual(run(self.folder).object["xplane_file"], "host.xplane.pb")

    def test_one_of_several_hosts_cannot_be_read(self) -> None:
        self.write("a.xplane.pb", SMALL[:-1])
        self.write("b.xplane.pb", encode(Space([Plane("/host:CPU")])))
        self.write("c.xplane.pb.gz", gzip.compress(SMALL))
        fields = run(self.folder).object
        self.assertEqual(fields["xplane_file"], "c.xplane.pb.gz")
        self.assertTrue(any("a.xplane.pb: byte 0" in note for note in fields["notes"]), fields)
        self.assert_unreadable(run(self.folder, "summary", "--host", "a"), 0)
        self.assert_absent(run(self.folder, "summary", "--host", "b"), "device_not_found")
        missing = run(self.folder, "summary", "--host", "d")
        self.assert_absent(missing, "host_not_found")
        self.assertEqual(missing.object["available_hosts"], ["a", "b", "c"])
        (self.folder / "c.xplane.pb.gz").unlink()
        absent = run(self.folder)
        self.assert_absent(absent, "device_not_found")
        self.assertTrue(any("a.xplane.pb" in note for note in absent.object["notes"]))
        (self.folder / "b.xplane.pb").write_bytes(b"\0")
        self.assert_unreadable(run(self.folder), 0)

    def test_hosts_are_sorted_by_their_names(self) -> None:
        """Not by those of their files: a hyphen comes before a full stop."""
        for name in ("a-1.xplane.pb", "a.xplane.pb.gz", "a.b.xplane.pb"):
            self.write(name, gzip.compress(SMALL) if name.endswith(".gz") else SMALL)
        self.assertEqual(run(self.folder).object["xplane_file"], "a.xplane.pb.gz")
        missing = run(self.folder, "summary", "--host", "z").object
        self.assertEqual(missing["available_hosts"], ["a", "a-1", "a.b"])

    def test_notes_of_a_file_that_cannot_be_read_are_not_those_of_another(self) -> None:
        # All is well until an op's metadata is looked up, and a step has been picked by then.
        self.write("a.xplane.pb", with_extra("event metadata", b"\0"))
        self.write("b.xplane.pb", SMALL)
        notes = run(self.folder, "summary").object["notes"]
        self.assertEqual(len(notes), 4, notes)
        self.assertRegex(notes[0], r"\Aa file can't be read: a\.xplane\.pb: byte \d+: ")
        self.assertEqual(notes[1], "b.xplane.pb taken, of 2 files; --host takes another")
        self.assertIn("n_xla_ops_events=2 of 2 in 2 steps", notes[2])

    def test_planes_of_one_name_in_several_files_are_told_once(self) -> None:
        for host in "ab":
            planes = [Plane("/host:CPU"), Plane(f"/device:TPU:{host}"), Plane("/host:CPU")]
            self.write(f"{host}.xplane.pb", encode(Space(planes)))
        absent = run(self.folder)
        self.assert_absent(absent, "device_not_found")
        self.assertEqual(absent.object["available_devices"], ["/device:TPU:a", "/device:TPU:b"])

    def test_device_and_line_are_missing(self) -> None:
        outcome = run(SMALL, "summary", "--device", "/device:TPU:9")
        self.assert_absent(outcome, "device_not_found")
        self.assertEqual(outcome.object["available_devices"], [fuzz.DEVICE])
        outcome = run(encode(Space([Plane(fuzz.DEVICE, [Line("Steps"), Line("Other")])])))
        self.assert_absent(outcome, "no_xla_ops_line")
        self.assertEqual(outcome.object["available_lines"], ["Steps", "Other"])
        self.assert_absent(run(trace([])), "empty_xla_ops_line")
        self.assert_absent(run(trace([op("f.1", "call", 0, -1)])), "empty_xla_ops_line")

    def test_steps(self) -> None:
        for options in (("--step", "2"), ("--step", "-3"), ("--step-id", "2"), ("--step-id", "")):
            with self.subTest(options):
                outcome = run(SMALL, "summary", *options)
                self.assert_absent(outcome, "step_not_found")
                self.assertEqual(outcome.object["available_steps"], ["0", "1"])
                stepless = run(trace(OPS), "summary", *options)
                self.assert_absent(stepless, "step_not_found")
                self.assertEqual(stepless.object["available_steps"], [])


# --- the command line ----------------------------------------------------------------------------

BAD_ARGUMENTS = (
    (), ("x",), ("--mode", "summary"), ("x", "--mode"), ("x", "--mode", "none"),
    ("x", "y", "--mode", "summary"), ("x", "--mode", "summary", "--unknown"),
    ("x", "--mode", "summary", "--step", "one"), ("x", "--mode", "summary", "--step", "9" * 5000),
    ("x", "--mode", "summary", "--step", "1", "--step-id", "1"),
    ("x", "--mode", "summary", "--top", "-1"), ("x", "--mode", "summary", "--top", "1.5"),
    ("x", "--mode", "by_source", "--top", "-1"), ("x", "--mode", "roofline", "--top", "-1"),
    ("x", "--mode", "roofline", "--include-comm"),
    ("x", "--mode", "summary", "--include-data-move"),
    ("x", "--mode", "by_source", "--no-comm-stalls"), ("x", "--mode", "summary", "--chip", "v7x"),
    ("x", "--mode", "roofline", "--chip", "v0"),
    *(("x", "--mode", "roofline", "--peak-hbm-gibps", peak)
      for peak in ("0", "-1", "nan", "inf", "1e999", "x", "")),
)  # fmt: skip


class CommandTest(RobustnessTest):
    def setUp(self) -> None:
        super().setUp()
        self.path = self.write("x.xplane.pb", SMALL)

    def shell(self, line: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a line of the shell in which "$@" is the program with its arguments."""
        command = [sys.executable, str(harness.SCRIPT), *map(str, arguments)]
        return subprocess.run(
            ["sh", "-c", line, "sh", *command],
            capture_output=True, text=True, timeout=harness.bound(30), check=False,
        )  # fmt: skip

    def test_bad_arguments(self) -> None:
        for arguments in BAD_ARGUMENTS:
            with self.subTest(arguments):
                said = compute_breakdown.outcome_of(list(arguments))
                outcome = harness.Outcome(said.fields, said.status, said.complaint)
                check_outcome(outcome)
                self.assert_absent(outcome, "bad_arguments")
                self.assertEqual(
                    [said.fields[k] for k in ("mode", "profile_dir", "device")], [None] * 3
                )

    def test_each_exit_status(self) -> None:
        summary = ("--mode", "summary")
        empty = self.folder / "empty"
        empty.mkdir()
        cases: dict[str, tuple[str | Path, ...]] = {
            "ok": (self.path, *summary),
            "no_such_path": (self.folder / "none", *summary),
            "no_xplane_pb": (empty, *summary),
            "device_not_found": (self.path, *summary, "--device", "none"),
            "unreadable_xplane_pb": (self.write("y.xplane.pb", b""), *summary),
            "step_not_found": (self.path, *summary, "--step", "9"),
            "host_not_found": (self.path, *summary, "--host", "none"),
            "bad_arguments": (self.path, "--mode", "none"),
        }
        for reason, arguments in harness.sampled(cases.items(), 4):
            with self.subTest(reason):
                self.assertEqual(command(*arguments).object.get("reason", "ok"), reason)

    def test_reader_of_stdout_goes_away(self) -> None:
        big = self.write("big.xplane.pb", trace([op(f"f.{i}", "call", i, 1, tf_op=str(i))
                                               for i in range(50)] + OPS))  # fmt: skip
        cases = itertools.product(harness.MODES_OF_TRACE, ("head -c 1", "true"))
        for mode, reader in harness.sampled(cases, 3):
            with self.subTest(mode=mode, reader=reader):
                line = f'{{ "$@"; echo $? >&2; }} | {reader}'
                done = self.shell(line, big, "--mode", mode)
                self.assertIn(done.stderr, ("0\n", "141\n"))

    def test_stdout_cannot_be_written(self) -> None:
        cases = itertools.product(
            (">&-", ">/dev/full", "<&- >&-"),
            (
                (self.path, "--mode", "summary"),
                (self.path, "--mode", "none"),
                ("--help",),
                ("--version",),
            ),
        )
        for redirection, arguments in harness.sampled(cases, 5):
            with self.subTest(redirection=redirection, arguments=arguments):
                done = self.shell(f'exec "$@" {redirection}', *arguments)
                self.assertEqual(done.stdout, "")
                self.assertNotIn("Traceback", done.stderr)
                self.assertNotIn("Exception ignored", done.stderr)
                if arguments[0] == self.path and "full" in redirection:
                    self.assertNotEqual(done.returncode, 0)

    def test_stderr_cannot_be_written(self) -> None:
        for line in ('exec "$@" 2>&-', 'exec "$@" 2>/dev/full', '{ "$@"; } 2>&1 >&3 | true'):
            with self.subTest(line):
                piped = f"{{ {line}; }} 3>&1"
                done = self.shell(piped, self.path, "--mode", "none")
                self.assertEqual(json.loads(done.stdout)["reason"], "bad_arguments")
                if "|" not in line:
                    self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main()
