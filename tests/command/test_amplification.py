"""What a small file may cost, however it is made: CPU time, memory, and the length of the answer.

A file of 100 kB may cost 2 s of CPU and 200 MiB, one of 1 MB 6 s and 250 MiB. The answer stays
below 20 MB, but for lists as long as the file's own. Either there is an answer, or a word of why
the file can be no trace. `python3 -m tests.command.test_amplification --table` prints what each
costs.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import compute_breakdown
from _pipeline import texts
from _proto.trace import lines
from tests import harness
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    Stat,
    StatMetadata,
    bytes_field,
    compressed,
    encode,
    int64,
    int_field,
    raw,
    ref,
    string,
    text_field,
    uint64,
)
from tests.fuzz import DEVICE, check_outcome

MIB = 1 << 20
SMALL, LARGE = 100_000, 1_000_000
# By the size of the file: seconds of CPU as `harness.bound` takes them, and bytes of memory.
BOUNDS = {SMALL: (2, 200 * MIB), LARGE: (6, 250 * MIB)}
LONGEST_ANSWER = 20_000_000

# A process of its own: memory of whoever starts the program would count as the program's.
MEASURE = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss << 10, file=sys.stderr)
sys.exit(status)
"""


class Cost(NamedTuple):
    outcome: harness.Outcome
    seconds: float
    memory: int
    length: int


def cost(path: Path, mode: str, *options: str) -> Cost:
    """Run as a command."""
    command = [sys.executable, str(harness.SCRIPT), str(path), "--mode", mode, *options]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *command],
        capture_output=True,
        text=True,
        timeout=harness.bound(120),
        check=False,
    )
    complaint, _, figures = done.stderr.rstrip().rpartition("\n")
    seconds, memory = figures.split()
    complaint += "\n" * bool(complaint)
    outcome = harness.Outcome(json.loads(done.stdout), done.returncode, complaint)
    check_outcome(outcome)
    return Cost(outcome, float(seconds), int(memory), len(done.stdout))


# --- files ---------------------------------------------------------------------------------------

OP = EventMetadata(1, "%fusion.1 = f32[2]{0} fusion()")
OPS = Line("XLA Ops", [Event(1, 0, 10)])
# Incompressible, so that gzip data is as large as it is to be.
NOISE = 14


def trace(
    lines: list[Line],
    metadata: list[EventMetadata] | None = None,
    names: dict[int, str] | None = None,
    extra: bytes = b"",
) -> bytes:
    stat_names = [StatMetadata(i, name) for i, name in (names or {}).items()]
    return encode(Space([Plane(DEVICE, lines, metadata or [OP], stat_names, extra=extra)]))


def executions(n: int) -> Line:
    """One of each op."""
    return Line("XLA Ops", [Event(i, 10 * i, 5) for i in range(1, n + 1)])


def sharing(size: int, what: str, text: str, **others: str) -> bytes:
    """Ops that share a text, each on a line of its own."""
    ops = []
    names = {1: what, 2: text, 3: "tf_op" if what == "source_stack" else "source_stack"}
    names |= {10 + i: name for i, name in enumerate(others)}
    for i in range(1, (size - len(text)) // (60 + 20 * len(others))):
        stats = [Stat(1, ref(2)), Stat(3, string(f"m.py:{i}:1"))]
        stats += [Stat(10 + n, string(value)) for n, value in enumerate(others.values())]
        stats.append(Stat(99, int64(1)))
        ops.append(EventMetadata(i, f"%f.{i}", stats))
    return trace([executions(len(ops))], ops, names)


def repeating(size: int, data: bytes) -> bytes:
    """Gzip data of that size, of which the trace is a small part."""
    return gzip.compress(data + bytes_field(NOISE, os.urandom(size - 5000)), 6)


def compressed_stacks(size: int) -> bytes:
    ops = [
        EventMetadata(i, OP.name, [Stat(1, compressed("x" * (4 * MIB - 64) + str(i)))])
        for i in range(1, size // 4200)
    ]
    return trace([executions(len(ops))], ops, {1: "source_stack"})


def steps_and_lines(size: int) -> bytes:
    steps = Line("Steps", [Event(2, 100 * i, 100) for i in range(size // 24)])
    lines = [Line("XLA Ops", [Event(1, 37 * i, 5)]) for i in range(size // 91)]
    return trace([steps, *lines], [OP, EventMetadata(2, "s")])


def loops(events: Iterable[Event]) -> bytes:
    loop = EventMetadata(2, "%while.1 = f32[2] while()", [Stat(1, string("while"))])
    return trace([Line("XLA Ops", list(events))], [OP, loop], {1: "hlo_category"})


def gaps(size: int) -> bytes:
    ops = [EventMetadata(i, f"%f.{i}" + "a" * (size // 2 - 300)) for i in (1, 2)]
    return trace([Line("XLA Ops", [Event(1 + i % 2, 101 * i, 5) for i in range(40)])], ops)


def one_op(text: str = OP.name or "", extra: bytes = b"", **stats: bytes) -> bytes:
    names = dict(enumerate(stats, 1))
    values = [Stat(i, raw(value)) for i, value in enumerate(stats.values(), 1)]
    return trace([OPS], [EventMetadata(1, text, values, extra=extra)], names)


def ops_line(extra: bytes) -> bytes:
    return trace([Line("XLA Ops", [Event(1, 0, 5)], extra=extra)])


# A table, as long as there are ways to ask too much.
def makers(size: int) -> dict[str, Callable[[], bytes]]:
    """What makes a file of about that size, by what is too much in it."""
    long = 45_000
    shapes = "(" + "f32[8]{0}, bf16[2]{0}, " * (long // 24) + ")"
    # Of gzip data a thousandth, repeated a thousand times.
    unknown = b"\x78\x01" * (100 * size)
    return {
        "compressed stacks": lambda: compressed_stacks(size),
        "one tf_op for all": lambda: sharing(size, "tf_op", "t" * long),
        "one stack for all": lambda: sharing(size, "source_stack", "a/b.py:1:2\n" * (long // 11)),
        "one category for all": lambda: sharing(size, "hlo_category", "c" * long + " fusion"),
        "one source for all": lambda: sharing(size, "source", "s" * long),
        "one shape for all": lambda: sharing(
            size, "shape_with_layout", shapes, hlo_category="convolution fusion"
        ),
        "steps and lines": lambda: steps_and_lines(size),
        "a long dimension": lambda: one_op(f"%f.1 = f32[{'9' * (size - 200)}] fusion(f32[2] %a)"),
        "many dimensions": lambda: one_op(
            f"%f.1 = (f32[{'9999,' * (size // 5 - 40)}1], bf16[2]) dot(f32[2] %a)"
        ),
        "events that lead nowhere": lambda: ops_line(
            (b"\x22\x00" * 2030 + b"\x78\x01" * 18) * (size // 4096)
        ),
        "loops that begin together": lambda: loops(
            Event(2, 0, 10**9 - i) for i in range(size // 14)
        ),
        "loops of nothing": lambda: loops(Event(2, 7 * i, 10**9) for i in range(size // 16)),
        "gaps between long names": lambda: gaps(size),
        "accesses to nothing": lambda: one_op(
            memory_access_breakdown=b"\x0a\x00" * (size // 2 - 100)
        ),
        "empty lines": lambda: trace([OPS], extra=b"\x1a\x00" * (size // 2)),
        "lines of ops": lambda: trace(
            [OPS], extra=bytes_field(3, text_field(2, "XLA Ops")) * (size // 11)
        ),
        "empty metadata": lambda: trace([OPS], extra=b"\x22\x00" * (size // 2)),
        "empty stats of a device": lambda: trace([OPS], extra=b"\x32\x00" * (size // 2)),
        "empty stats of an op": lambda: one_op(extra=b"\x2a\x00" * (size // 2)),
        "steps": lambda: trace([Line("Steps", extra=b"\x22\x02\x18\x05" * (size // 4)), OPS]),
        "empty steps": lambda: trace([Line("Steps", extra=b"\x22\x00" * (size // 2)), OPS]),
        "gzip: unknown fields of a file": lambda: gzip.compress(trace([OPS]) + unknown, 6),
        "gzip: unknown fields of a device": lambda: gzip.compress(trace([OPS], extra=unknown), 6),
        "gzip: unknown fields of a line": lambda: gzip.compress(ops_line(unknown), 6),
        "gzip: unknown fields of an event": lambda: gzip.compress(
            trace([Line("XLA Ops", [Event(1, 0, 5, extra=unknown)])]), 6
        ),
        "gzip: unknown fields of an op": lambda: gzip.compress(
            one_op(extra=unknown[: 20 * size]), 6
        ),
        "gzip: empty stats of an op": lambda: gzip.compress(
            one_op(extra=b"\x2a\x00" * (10 * size)), 6
        ),
        "gzip: a long name": lambda: repeating(size, one_op("%f.1 = f32[2] f(" + "a" * 20 * size)),
        "gzip: empty lines": lambda: repeating(size, trace([OPS], extra=b"\x1a\x00" * size)),
        "gzip: empty metadata": lambda: repeating(size, trace([OPS], extra=b"\x22\x00" * size)),
        "gzip: ops": lambda: repeating(size, ops_line(b"\x22\x02\x08\x01" * size)),
        "gzip: counts of ops": lambda: repeating(
            size, ops_line(b"\x22\x04\x08\x01\x28\x01" * size)
        ),
        "gzip: steps": lambda: gzip.compress(
            trace([Line("Steps", extra=b"\x22\x00" * (30 * size)), OPS]), 6
        ),
        "gzip: steps and noise": lambda: repeating(
            size, trace([Line("Steps", extra=b"\x22\x00" * (size // 3)), OPS])
        ),
    }


# Where the cost could grow with the square of the size, a large file shows it.
SQUARES = (
    "one stack for all", "one category for all", "one shape for all", "steps and lines",
    "a long dimension", "many dimensions", "events that lead nowhere",
    "loops that begin together", "loops of nothing", "empty stats of a device", "steps",
    "gzip: steps and noise",
)  # fmt: skip


def measure(what: str, data: bytes, mode: str) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("x.xplane.pb" + ".gz" * what.startswith("gzip"))
        path.write_bytes(data)
        return cost(path, mode)


class Amplification(unittest.TestCase):
    def test_no_file_costs_more_than_its_size_allows(self) -> None:
        for size, names, n in ((SMALL, tuple(makers(SMALL)), 4), (LARGE, SQUARES, 1)):
            for what in harness.sampled(names, n):
                with self.subTest(what, size=size):
                    self.check(what, size)

    def check(self, what: str, size: int) -> None:
        seconds, memory = BOUNDS[size]
        data = makers(size)[what]()
        self.assertLess(len(data), 1.4 * size)
        mode = "summary" if "steps" in what or "gaps" in what else "by_source"
        of = measure(what, data, mode)
        self.assertLess(of.seconds, harness.bound(seconds))
        self.assertLess(of.memory, memory)
        said = of.outcome.object
        n_listed = len(said.get("steps", [])) + len(said.get("groups", []))
        self.assertLess(of.length, LONGEST_ANSWER + 2000 * n_listed)


class Texts(unittest.TestCase):
    def answer(self, texts: list[str]) -> dict[str, Any]:
        """by_source of ops that have these names, each from a line of its own."""
        ops = [
            EventMetadata(i, text, [Stat(1, string("loop fusion")), Stat(2, string(f"m.py:{i}:1"))])
            for i, text in enumerate(texts, 1)
        ]
        names = {1: "hlo_category", 2: "source_stack"}
        data = trace([executions(len(ops))], ops, names)
        return harness.answer(gzip.compress(data), "by_source")

    def test_a_long_text_is_cut_and_a_note_says_so(self) -> None:
        for length, is_cut in ((65_536, False), (65_537, True)):
            text = "%f.1 = f32[2] fusion(".ljust(length, "a")
            said = self.answer([text])
            (group,) = said["groups"]
            expected = text[:65_536] + "…" * is_cut
            self.assertEqual(group["example_hlo_op"], expected)
            self.assertEqual(group["hlo_op_breakdown"][0]["example_hlo_op"], expected)
            notes = [note for note in said["notes"] if note.endswith("bytes: cut")]
            self.assertEqual(notes, ["2 texts are longer than 65536 bytes: cut"] if is_cut else [])

    def test_a_text_is_as_long_as_it_is_printed(self) -> None:
        """A control character takes six bytes: 100 kB of them were 52 MB of an answer."""
        for char, size in {
            "a": 1, '"': 2, "\n": 2, "\x01": 6, "é": 6, "\ud800": 6, "😀": 12, "</": 3, "\x7f": 6
        }.items():  # fmt: skip
            with self.subTest(repr(char)):
                self.assertEqual(texts.size_of(char * 100), size * 100)
                n = 65_536 // size
                for fields in (
                    {"notes": [], "a": char * n},
                    {"notes": [], "a": {char * n: None}},
                    {"notes": [], "a": [["b" * 65_536]]},
                ):
                    before = json.dumps(fields)
                    texts.cut_texts(fields)
                    self.assertEqual(json.dumps(fields), before)
                for of in ({"a": char * 200_000}, {"a": char * n + "b" * size}):
                    texts.cut_texts(fields := {"notes": [], **of})
                    self.assertEqual(fields["a"], of["a"][: fields["a"].index("…")] + "…")
                    printed = compute_breakdown.encoded({"a": fields["a"][:-1]}, for_people=False)
                    length = len(printed) - len('{"a":""}\n')
                    self.assertLessEqual(length, 65_536)
                    self.assertGreater(length, 65_536 - size)
                    [note] = fields["notes"]
                    self.assertEqual(note, "1 texts are longer than 65536 bytes: cut")
                    # Whoever reads it and writes it again cuts nothing more of it.
                    again: dict[str, Any] = {"notes": [], "a": fields["a"]}
                    texts.cut_texts(again)
                    self.assertEqual(again["a"], fields["a"])

    def test_so_are_all_together(self) -> None:
        n = 2000 if harness.FULL else 300
        for text in ("\x01" * 20_000, "é" * 20_000, "\x01" * 100, "a" * 60_000):
            fields: dict[str, Any] = {"notes": [], "a": [f"{i}{text}" for i in range(n)]}
            texts.cut_texts(fields)
            self.assertLess(len(json.dumps(fields)), texts.ALL_TEXTS + n * 16)
            self.assertEqual(len(set(fields["a"])), n)

    def test_what_that_takes(self) -> None:
        """Next to nothing of what the answer takes, and of texts of any size no more than that."""
        said = harness.answer(harness.DEMO, "by_source")
        with harness.within(50 * 0.01):
            for _ in range(50):
                texts.cut_texts(said)
        fields = {"notes": [], "a": ["\x01" * 30_000_000, *("é" * 200_000 for _ in range(200))]}
        with harness.within(2):
            texts.cut_texts(fields)

    def test_many_long_ones_are_cut_shorter(self) -> None:
        said = self.answer([f"%f.{i} = f32[2] fusion(" + "a" * 60_000 for i in range(200)])
        texts = [group["example_hlo_op"] for group in said["groups"]]
        self.assertEqual(len(set(texts)), 200)
        (length,) = {len(text) for text in texts}
        self.assertTrue(1000 < length < 60_000 and texts[0].endswith("a…"))
        self.assertTrue(any(f"{length - 1} bytes" in note for note in said["notes"]))

    def test_what_is_cut_to_the_same_stays_two(self) -> None:
        text = "x" * 70_000
        fields = {"notes": [], "map": {text + "1": 1, "short": 2, text + "2": 3}}
        texts.cut_texts(fields)
        cut = "x" * 65_536
        self.assertEqual(
            list(fields["map"].items()),  # type: ignore[attr-defined]
            [(cut + "…", 1), ("short", 2), (cut + "……", 3)],
        )

    def test_a_category_is_no_essay(self) -> None:
        said = harness.answer(sharing(SMALL, "hlo_category", "c" * 50_000), "summary")
        (row,) = (row for row in said["by_hlo_category"] if "c" in row["hlo_category"])
        self.assertEqual(row["hlo_category"], "c" * 1000 + "…")


class OneUnknownField(unittest.TestCase):
    """A newer profiler may add one to every event: they are read in columns all the same, which
    takes a quarter of the time of reading them one by one."""

    def test_of_each_event(self) -> None:
        def data(extra: bytes, of_stat: bytes = b"") -> bytes:
            events = []
            for i in range(3000):
                stats = b"".join(
                    bytes_field(4, encode(Stat(j, uint64(value))) + of_stat)
                    for j, value in ((1, 100 * i), (2, 50))
                )
                events.append(Event(1, 100 * i, 50, extra=stats + extra))
            return trace(
                [Line("XLA Ops", events)], [OP], {1: "device_offset_ps", 2: "device_duration_ps"}
            )

        plain = harness.answer(data(b""), "summary")["totals"]
        self.assertEqual(plain["n_events_total"], 3000)
        for what, arguments in {
            "of an event": (int_field(9, 77),),
            "of a stat": (b"", int_field(9, 77)),
        }.items():
            with (
                self.subTest(what),
                mock.patch.object(lines, "_legible", side_effect=AssertionError),
            ):
                said = harness.answer(data(*arguments), "summary")
                self.assertEqual(said["totals"], plain)


def main() -> None:
    """Print what each file costs, as rows of a table."""
    for size in BOUNDS:
        for what, make in makers(size).items():
            data = make()
            for mode in ("summary", "by_source", "roofline"):
                of = measure(what, data, mode)
                row = (
                    *(what, f"{size // 1000} kB", mode, f"{of.seconds:.1f} s"),
                    *(f"{of.memory // MIB} MiB", f"{of.length / 1e6:.1f} MB"),
                    of.outcome.object.get("reason", "ok"),
                )
                print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main() if "--table" in sys.argv else unittest.main()
