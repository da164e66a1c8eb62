"""Holds the pages against the program: fields, options, exits, figures, recipes, pictures."""

from __future__ import annotations

import functools
import gzip
import importlib
import importlib.metadata
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import _peaks
import compute_breakdown
from _analysis import judging, ledger
from _pipeline import load, no_answer, vocabulary
from _pipeline.scopes import scope_of
from _proto import errors
from tests.builders import hlo_proto, records, xspace
from tests.builders.allocator import SIZES, allocator, with_host
from tests.builders.make_pictures import PICTURES
from tests.builders.xspace import Space, StatValue, encode, op, tpu_plane, trace
from tests.harness import (
    DEMO,
    PROFILES,
    ROOT,
    SCRIPT,
    STEP_MODES,
    Outcome,
    answer,
    bound,
    run,
    sampled,
)
from tests.modes import test_idle

PAGES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in (
        "README.md",
        "GUIDE.md",
        "FIELDS.md",
        "SKILL.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    )
}
README, GUIDE, FIELDS, SKILL = (
    PAGES[name] for name in ("README.md", "GUIDE.md", "FIELDS.md", "SKILL.md")
)
DEMO_IN_README = "tests/data/demo"
BEFORE_IN_README, AFTER_IN_README = "tests/data/before.json.gz", "tests/data/after.json.gz"
DATA = ROOT / "tests" / "data"
# What is left of two runs of the demo's program: see tests/builders/make_runs.py.
BEFORE, AFTER = DATA / "before.json.gz", DATA / "after.json.gz"
MODES = tuple(mode.name for mode in compute_breakdown.MODES)
ABSENT = "absent"
# What `demo`, `answers` and `refusals` have asked for, all of them need: see tests/parallel.py.
BATCH = "answers of all modes"

Json = dict[str, Any]

# ----------------------------------------------------------------------------------------------
# Reading the pages.


@dataclass
class Block:
    """A fenced block and the headings it stands under."""

    section: str
    heading: str
    language: str
    text: str


def blocks(page: str) -> list[Block]:
    found = []
    section = heading = ""
    fence: Block | None = None
    for line in page.splitlines(keepends=True):
        if line.startswith("```"):
            if fence is None:
                fence = Block(section, heading, line.strip().removeprefix("```"), "")
            else:
                found.append(fence)
                fence = None
        elif fence is not None:
            fence.text += line
        elif line.startswith("## "):
            section = heading = line[3:].strip()
        elif line.startswith("### "):
            heading = line[4:].strip()
    return found


def tables(page: str) -> Iterator[list[list[str]]]:
    """The tables, each as rows of cells, the header first, the rule left out."""
    rows: list[list[str]] = []
    for line in [*page.splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not all(set(cell) <= set("-: ") and cell for cell in cells):
                rows.append(cells)
        elif rows:
            yield rows
            rows = []


def table(page: str, *first_cells: str) -> list[list[str]]:
    """The rows of the one table whose header begins so."""
    (found,) = [rows for rows in tables(page) if rows[0][: len(first_cells)] == list(first_cells)]
    return found[1:]


def flags(cell: str) -> list[str]:
    """The options that a cell names, without what they take."""
    return [quoted.split()[0] for quoted in re.findall(r"`(--[^`]*)`", cell)]


def slug(heading: str) -> str:
    """What a link to it ends in."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def code(cell: str) -> str:
    quoted = re.search(r"`([^`]*)`", cell)
    return quoted[1] if quoted else ""


# ----------------------------------------------------------------------------------------------
# Runs that between them print all there is.

UNTRACED = xspace.Op("", {}, 0, 0)
KERNEL = ', custom_call_target="tpu_custom_call"'


def mixed_trace() -> bytes:
    """What the demo lacks: ops of unknown make, events that resolve to nothing, dead sources."""
    stack = "model.py:7:3"
    ops = [
        UNTRACED,
        # Ten signatures in one group, more shapes than are listed.
        *(
            op(f"f{'x' * i}", "loop fusion", 10 * i, 10, stack=stack, shape=f"f32[{i + 1}]{{0}}")
            for i in range(10)
        ),
        op("a", "loop fusion", 100, 10, tf_op="jit(f)/add:", flops=8, bytes_accessed=64),
        op("b", "loop fusion", 110, 10, tf_op="jit(f)/sub:", shape="bf16[8]{0}", flops=8),
        op("bare", "convolution fusion", 120, 0, shape="bf16[8]{0}", flops=8, bytes_accessed=64),
        op("part", "mystery", 120, 10),
        op("k.1", "custom-call", 130, 10, attributes=KERNEL, shape="bf16[8]{0}"),
        op("copy.1", "data formatting", 140, 10, text="%copy.1 = f32[8] copy(f32[8] %x)"),
        op("all-reduce.1", "all-reduce", 150, 10),
        op("r", "convolution fusion", 160, 10, shape="bf16[9]{0}", flops=8, bytes_accessed=64),
    ]
    space = xspace.Space([tpu_plane(ops)])
    events = space.planes[0].lines[0].events
    events += [xspace.Event(999, 10, 1), xspace.Event(events[1].metadata_id, 10, -5)]
    return xspace.encode(space)


def unnamed_steps() -> bytes:
    plane = tpu_plane([op("a", "loop fusion", 0, 10)], steps=[("0", 0, 20)])
    plane.event_metadata = [each for each in plane.event_metadata if each.name != "0"]
    return xspace.encode(xspace.Space([plane]))


def sourceless() -> bytes:
    """Ops of a program that knows no line of theirs."""
    program = hlo_proto.hlo_proto({"main": [hlo_proto.op("a", "negate")]})
    ops = [
        op("a", category, 10 * i, 10, program_id=7)
        for i, category in enumerate(("loop fusion", "copy"))
    ]
    planes = [tpu_plane(ops), hlo_proto.metadata_plane({7: ("jit_f(7)", program)})]
    return xspace.encode(xspace.Space(planes))


def holding(buffers: bytes | None) -> bytes:
    """An op of a program that has this buffer assignment."""
    program = hlo_proto.hlo_proto({"main": [hlo_proto.op("a", "negate")]}, buffers=buffers)
    plane = tpu_plane([op("a", "loop fusion", 0, 10, program_id=7)])
    return xspace.encode(xspace.Space([plane, hlo_proto.metadata_plane({7: ("f", program)})]))


def hand_made_memories() -> list[bytes]:
    """What is live, of which little is known."""
    all_known: dict[str, StatValue] = dict.fromkeys((*SIZES, "fragmentation"), 1)
    return [
        # An allocator that says all, and one that says nothing.
        *(
            with_host(holding(hlo_proto.allocation(0, 64, live_out=True)), allocator((5, 0, says)))
            for says in (all_known, {})
        ),
        # Without a buffer; with one of no instruction; reached at no instruction.
        holding(
            hlo_proto.buffer(1, 512, 99)
            + hlo_proto.allocation(0, 64, live_out=True)
            + hlo_proto.allocation(1, 512, (1, 0, 512))
            + hlo_proto.heap_trace((hlo_proto.ALLOC, 1, "gone", 0))
        ),
        # Of nothing, and no trace tells when.
        holding(hlo_proto.buffer(1, 0, 1) + hlo_proto.allocation(0, 0, (1, 0, 0), constant=True)),
    ]


def hand_made_programs() -> list[bytes]:
    """What was compiled, of which little is known: what the program is called with, even that."""
    nothing_declared = b'{"custom_call_config": {"cost_estimate": {}}}'
    main = [
        hlo_proto.op("p", "parameter", extra=b"\x1a\x01\xff"),
        hlo_proto.op("k", "custom-call", target="tpu_custom_call"),
        hlo_proto.op("l", "custom-call", target="tpu_custom_call", config=nothing_declared),
        hlo_proto.op("a", "all-reduce", config=b'{"retry_config": {"retry_count": "1"}}'),
    ]
    module = hlo_proto.module({"main": main}, extra=hlo_proto.aliases((0, ())))
    programs = [xspace.encode(hlo_proto.HloProto(module))]
    module.extra = hlo_proto.donors((0, ()))
    programs.append(xspace.encode(hlo_proto.HloProto(module)))
    module.entry_id = None
    programs.append(xspace.encode(hlo_proto.HloProto(module)))
    plane = tpu_plane([op("b", "loop fusion", 0, 10, program_id=7)])
    return [
        xspace.encode(xspace.Space([plane, hlo_proto.metadata_plane({7: ("f", program)})]))
        for program in programs
    ]


def hand_made(mode: str) -> list[bytes]:
    if mode == "anatomy":
        return [*hand_made_traces(), measurements()]
    of_its_own = {
        "idle": hand_made_idleness,
        "memory": hand_made_memories,
        "program": hand_made_programs,
    }
    return of_its_own.get(mode, hand_made_traces)()


def hand_made_idleness() -> list[bytes]:
    """Gaps in which the host does something, and one that the trace's clock leaves nothing of."""
    ops = [op("a", "loop fusion", 0, 10), op("b", "loop fusion", 10, 10)]
    apart = tpu_plane(ops)
    apart.stat_metadata += [
        xspace.StatMetadata(91, "device_offset_ps"),
        xspace.StatMetadata(92, "device_duration_ps"),
    ]
    for start, event in zip((0, 50), apart.lines[0].events, strict=True):
        event.stats = [
            xspace.Stat(91 + i, xspace.uint64(time)) for i, time in enumerate((start, 10))
        ]
    calls = xspace.Line("main", [xspace.Event(1, 0, 2 * 10**6), xspace.Event(2, 20, 30)])
    names = [xspace.EventMetadata(1, "$train.py:3 main"), xspace.EventMetadata(2, "device_put")]
    host = xspace.Plane("/host:CPU", [calls], names)
    busy = tpu_plane([*ops, op("c", "loop fusion", 10**6 + 50, 5)])
    return [
        *hand_made_traces(),
        *(xspace.encode(xspace.Space([plane, host])) for plane in (apart, busy)),
    ]


def measurements() -> bytes:
    """What is in a file at all: readings of counters, and events and stats that say little."""
    reading = xspace.Stat(1, xspace.double(61.5))
    lines = [
        xspace.Line("_counters_", [xspace.Event(1, 5, 1, stats=[reading])], 2**62),
        xspace.Line("counters_0", [xspace.Event(9, num_occurrences=2, stats=[reading])]),
        xspace.Line("Steps"),
    ]
    stats = [reading, xspace.Stat(2, xspace.raw(b"raw")), xspace.Stat(3)]
    metadata = [xspace.EventMetadata(1, "HBM", stats)]
    plane = xspace.Plane("/device:TPU:0", lines, metadata, stats=stats)
    options = xspace.StatNames()
    stats = [options.stat("profile_options", xspace.int_field(2, 1))]
    task = xspace.Plane("Task Environment", stats=stats, stat_metadata=options.metadata())
    return xspace.encode(xspace.Space([plane, task]))


def hand_made_traces() -> list[bytes]:
    return [
        mixed_trace(),
        unnamed_steps(),
        sourceless(),
        # All at one instant, so nothing to divide by.
        trace(
            [
                op("v", "convolution fusion", 0, shape="bf16[8]{0}", flops=8, bytes_accessed=8,
                   memory_access_breakdown=b""),
                op("k", "custom-call", 0, attributes=KERNEL),
                op("all-reduce.1", "all-reduce", 0),
                op("mystery.1-done", "async-done", 0, tf_op="jit(f)/x:"),
            ]
        ),
        # A gap at the start of the step.
        trace([op("a", "loop fusion", 10, 10)], steps=[("0", 0, 30)]),
        # A step of no length; no compute.
        trace([], steps=[("0", 5, 0)]),
        # No traffic: an intensity of no value under --bytes hbm. No fp32 peak: no roof per op.
        trace(
            [
                op("v", "convolution fusion", 0, 10, shape="bf16[8]{0}", flops=8, stack="m.py:1",
                   bytes_accessed=8, memory_access_breakdown=b""),
                op("w", "loop fusion", 10, 5, shape="f32[8]{0}", flops=8, stack="m.py:1",
                   bytes_accessed=8, memory_access_breakdown=b""),
                op("x", "loop fusion", 15, 5, shape="s32[]", flops=8, tf_op="jit(f)/x:"),
            ]
        ),
    ]  # fmt: skip


FLAG_FILE = DEMO.parent / "flags" / "launch.sh"
ALL_OPTIONS = {
    "bottleneck": ["--top=3", "--model-flops=1e12", "--tokens=1e6", "--peak-tflops-fp32=70"],
    "summary": ["--top=3", "--include-comm"],
    "by_source": ["--include-data-move", "--include-comm", "--top=3"],
    "by_scope": ["--depth=all", "--merge-layers", "--below="],
    "by_op": ["--top=3", "--peak-tflops-fp32=70"],
    "non_compute": ["--include-comm", "--top=3"],
    "roofline": ["--top=14", "--chip=profile", "--bytes=hbm", "--peak-tflops-fp32=70"],
    "comm": ["--top=3"],
    "memory": ["--top=3"],
    "idle": ["--top=3"],
    "program": ["--top=0", f"--flags={FLAG_FILE}"],
    "page": [],
    "record": ["--steps=1:"],
    "compare": ["--top=3"],
    "spread": ["--top=1"],
    "anatomy": ["--plane=/device:TPU:0", "--sample=3"],
}
DEMO_KERNEL = "--kernel-cost=flash_attention=34359738368,67108864,bf16"


@functools.cache
def answers() -> list[Json]:
    """Answers of every mode, with and without options."""
    found = [demo("roofline", DEMO_KERNEL)]
    folder = tempfile.TemporaryDirectory()
    for mode in MODES:
        needed = {
            "compare": ["--baseline", str(BEFORE)],
            "page": ["--out", f"{folder.name}/step.html"],
        }.get(mode, [])
        for options in ([], ALL_OPTIONS[mode]) if ALL_OPTIONS[mode] else ([],):
            found.append(demo(mode, *needed, *options))
            for data in hand_made(mode):
                is_for_all = mode in (*STEP_MODES, "anatomy")
                if is_for_all or run(data, "record").object["status"] == "ok":
                    found.append(answer(data, mode, *needed, *options))
    folder.cleanup()
    # Only its bytes to and from HBM are known.
    accesses = xspace.memory_access_breakdown((1, 1, 64))
    shape = "bf16[8]{0}"
    only_hbm = op("f", "add", 0, 5, shape=shape, flops=8, memory_access_breakdown=accesses)
    found.append(answer(trace([only_hbm]), "roofline", "--bytes=hbm"))
    # A layer without a primitive.
    found.append(answer(trace([op("f", "loop fusion", 0, 5, tf_op="jit(f)/jit(g):")]), "by_scope"))
    found += single_ops()
    found += idle_hosts()
    found += captures()
    return found


def single_ops() -> list[Json]:
    """Ops looked at one by one: of most kinds, and those of which little is known."""
    of_demo = ("flash_attention.3", "fusion.365", "while.43", "all-gather.116.cloned.1.call-done")
    found = [demo("by_op", f"--op={name}") for name in of_demo]
    for data in hand_made_traces():
        for row in answer(data, "by_op")["ops"]:
            found.append(answer(data, "by_op", "--top=0", f"--op={row['hlo_op']}"))
    # What the program tells neither shape nor line of.
    parts = {
        "in": [hlo_proto.op("x", "parameter")],
        "main": [
            hlo_proto.op("y", "add"),
            hlo_proto.op("a", "fusion", "y", calls=["in"]),
            hlo_proto.op("z", "add", "a"),
        ],
    }
    for instruction in itertools.chain(*parts.values()):
        instruction.instruction.shape = None
    program = hlo_proto.hlo_proto(parts)
    plane = tpu_plane([op("a", "loop fusion", 0, 10, program_id=7)])
    beside = hlo_proto.metadata_plane({7: ("f", program)})
    return [*found, answer(xspace.encode(xspace.Space([plane, beside])), "by_op", "--op=a")]


def idle_hosts() -> list[Json]:
    """What a host does in gaps that are long enough, and a gap that the trace's clock lacks."""
    us = test_idle.US
    threads = (
        ("t", [("outer", 0, 99 * us), ("inner", 12 * us, 18 * us)]),
        ("u", [("e", 0, 99 * us)]),
    )
    ops: list[test_idle.Drawn] = [("a", 0, 10 * us), ("b", 20 * us, 30 * us)]
    bent: list[test_idle.Drawn] = [
        ("a", 0, 10, 1000, 10),
        ("b", 10, 20, 1050, 10),
        ("c", 25, 30, 1065, 5),
    ]
    planes = (
        (test_idle.device(ops, (0, 40 * us)), test_idle.host(*threads)),
        (test_idle.device(bent, (0, 30)), test_idle.host(*threads)),
    )
    return [answer(encode(Space(list(each))), "idle") for each in planes]


def captures() -> list[Json]:
    """Answers about more than one trace."""
    found = [answer(AFTER, "compare", "--baseline", str(BEFORE))]
    with tempfile.TemporaryDirectory() as folder:
        nameless = Path(folder) / "nameless.xplane.pb"
        nameless.write_bytes(unnamed_steps())
        instant = Path(folder) / "instant.xplane.pb"
        instant.write_bytes(trace([op("f", "loop fusion", 5, 0)]))
        found.append(answer(AFTER, "compare", "--baseline", str(instant)))
        found.append(answer(AFTER, "compare", "--baseline", str(nameless)))
        found.append(answer(nameless, "compare", "--baseline", str(BEFORE)))
        names = [(host, f"/device:TPU:{number}") for host in "ab" for number in range(2)]
        for those in (names[1:2], names[2:]):
            slow = dict.fromkeys(those, lambda *_: 1.06)
            for each in records.pod(records.made_up(0), names, 6, slow=slow):
                (Path(folder) / f"{each['host']}.json").write_text(json.dumps(each))
            found.append(answer(folder, "spread"))
    for steps, durations in ((("1", "2"), (5, 5)), (("1", "1"), (0, 5))):
        with tempfile.TemporaryDirectory() as folder:
            for host, step, duration in zip("ab", steps, durations, strict=True):
                data = trace([op("f", "loop fusion", 5, duration)], [(step, 0, 20)])
                (Path(folder) / f"{host}.xplane.pb").write_bytes(data)
            found.append(answer(folder, "spread"))
    return found


@functools.cache
def demo(mode: str, *options: str) -> Json:
    outcome = run(DEMO, mode, *options)
    if outcome.object["status"] != "ok":
        raise AssertionError(outcome)
    return outcome.object


@functools.cache
def refusals() -> list[Outcome]:
    """One outcome of every reason, more of some."""
    all_known: dict[str, StatValue] = dict.fromkeys((*SIZES, "fragmentation"), 1)
    no_line = xspace.Space([xspace.Plane("/device:TPU:0", [xspace.Line("Steps")])])
    found = [
        run("no such path", "summary"),
        run(DEMO, "summary", "--device", "none"),
        run(xspace.encode(no_line), "summary"),
        run(trace([]), "summary"),
        run(mixed_trace(), "memory"),
        *(
            run(with_host(mixed_trace(), allocator((5, 0, says))), "memory")
            for says in (all_known, {})
        ),
        run(holding(None), "memory"),
        run(mixed_trace(), "program"),
        run(DEMO, "program", "--flags", "no such path"),
        run(DEMO, "page", "--out", "no such folder/step.html"),
        run(b"garbage", "summary"),
        run(measurements() + b"\x0a\x7f", "anatomy", *ALL_OPTIONS["anatomy"]),
        run(DEMO, "anatomy", "--plane", "none"),
        run(DEMO, "anatomy", "--plane", "0", "--line", "none"),
        run(xspace.encode(xspace.Space([xspace.Plane("/device:GPU:0")])), "summary"),
        run(DEMO, "summary", "--step", "99"),
        run(unnamed_steps(), "summary", "--step", "99"),
        run(DEMO, "summary", "--host", "none"),
        run(DEMO, "roofline", "--kernel-cost", "none=1,1"),
        run(DEMO, "by_op", "--op", "none"),
        run(DEMO, "by_scope", "--below", "none"),
        run(DEMO, "summary", "--chip", "v4"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        found.append(run(folder, "summary"))
        (Path(folder) / "empty.json").touch()
        found.append(run(AFTER, "compare", "--baseline", f"{folder}/empty.json"))
        Path(folder, "empty.json").unlink()
        for made in (BEFORE, AFTER):
            shutil.copy(made, folder)
        found.append(run(folder, "spread"))
    no_mode = compute_breakdown.outcome_of([str(DEMO)])
    found.append(Outcome(no_mode.fields, no_mode.status, no_mode.complaint))
    for missing in (
        errors.NoProtobuf("No module named 'google'"),
        errors.MissingPackage("no brotli: pip install brotli"),
    ):
        with mock.patch.object(load, "open_trace", side_effect=missing):
            found.append(run(DEMO, "summary"))
    return found


# ----------------------------------------------------------------------------------------------
# Contents and exits.


class Contents(unittest.TestCase):
    def test_the_contents_lead_to_every_section(self) -> None:
        for page in (FIELDS, GUIDE):
            contents, *sections = page.split("\n## ")
            for section in sections:
                with self.subTest(section=section.partition("\n")[0]):
                    self.assertIn(f"](#{slug(section.partition(chr(10))[0])})", contents)


class Exits(unittest.TestCase):
    batch = BATCH

    def test_the_table_says_what_happens(self) -> None:
        said = {
            code(reason): (int(status), stderr)
            for _, reason, status, stderr in table(FIELDS, "situation", "`reason`")
            if reason
        }
        happens: dict[str, tuple[int, str]] = {}
        for outcome in refusals():
            complaint = outcome.stderr.splitlines()
            stderr = ["empty", "one line", "usage and one line"][min(len(complaint), 2)]
            happens[outcome.object["reason"]] = outcome.status, stderr
        self.assertEqual(said, happens)

    def test_no_reason_is_forgotten(self) -> None:
        known = set(no_answer.EXIT_STATUS)
        self.assertEqual(known, {outcome.object["reason"] for outcome in refusals()})

    def test_detail_is_there_wherever_there_is_more_to_say(self) -> None:
        for outcome in refusals():
            said = outcome.object
            is_of_gpu = said.get("available_devices") == ["/device:GPU:0"]
            more = outcome.status != 0 or said["reason"] == "no_xplane_pb" or is_of_gpu
            self.assertEqual("detail" in said, more, said)


# ----------------------------------------------------------------------------------------------
# Options, peaks, set-up.


class Options(unittest.TestCase):
    def test_the_table_and_the_help_name_the_same_options(self) -> None:
        asked = [sys.executable, str(SCRIPT), "--help"]
        printed = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        in_help = re.findall(r"^  (?:-h, )?(--[\w-]+)", printed, re.MULTILINE)
        in_table = [flag for row in table(FIELDS, "option") for flag in flags(row[0])]
        self.assertEqual(sorted(in_table), sorted(in_help))

    def test_the_table_names_the_modes_of_each_option(self) -> None:
        for option, said, *_ in table(FIELDS, "option"):
            for flag in flags(option):
                modes = [m.name for m in compute_breakdown.MODES if flag in m.options]
                without = [m.name for m in compute_breakdown.MODES if flag not in m.options]
                names = (
                    [", ".join(modes), f"all but {', '.join(without)}"] if modes else ["all", ""]
                )
                if flag == "--device":
                    # It is of the pipeline, and this mode doesn't pick a device.
                    names.append("all but anatomy")
                if modes == [*STEP_MODES]:
                    names.append("those of one step")
                with self.subTest(option=flag):
                    self.assertIn(said, names)

    def test_no_page_shows_an_option_that_is_none(self) -> None:
        known = {*compute_breakdown.OPTIONS, "--mode", "--schema", "--version", "--help"}
        shown = set()
        for page in (README, GUIDE, SKILL):
            commands = re.findall(r"(?:compute-breakdown|compute_breakdown\.py)[^|\n`]*", page)
            shown |= set(re.findall(r"(?<![\w-])--[a-z][\w-]*", " ".join(commands)))
        quoted = set(re.findall(r"`(--[a-z][\w-]*)", README + GUIDE + SKILL))
        others = {flag for flag in quoted if flag.startswith("--xla")} | {"--from", "--argjson"}
        self.assertLessEqual((shown | quoted) - others, known)


class Peaks(unittest.TestCase):
    def test_the_table_is_that_of_the_program(self) -> None:
        rows = {code(chip): (bf16, fp8, hbm) for chip, bf16, fp8, hbm in table(FIELDS, "chip")}
        known = {}
        for name, chip in _peaks.CHIPS.items():
            gbps, gibps = chip.hbm_gbps, chip.hbm_gibps
            hbm = f"{gbps:g} GB/s" if gbps is not None else f"{gibps:g} GiB/s"
            known[name] = f"{chip.bf16:g}", f"{chip.fp8:g}" if chip.fp8 else "", hbm
        self.assertEqual(rows, known)


class SetUp(unittest.TestCase):
    def test_the_first_command_prints_what_the_page_shows(self) -> None:
        command, *_ = (block.text for block in blocks(README) if "--format text" in block.text)
        words = shlex.split(command.rpartition("compute-breakdown ")[2])
        done = subprocess.run(
            [sys.executable, str(SCRIPT), *words], cwd=ROOT, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        shown, _, notes = done.stdout.partition("\nnotes\n")
        self.assertEqual(next(b.text for b in blocks(README) if b.language == "text"), shown)
        self.assertTrue(notes)

    def test_two_lines_at_the_top_are_what_ci_runs(self) -> None:
        commands = [
            block.text.strip()
            for block in blocks(README)
            if block.section == "" and block.text.startswith("python3 -m venv")
        ]
        self.assertEqual(len(commands), 2)
        ci = ROOT / ".ci" / "run"
        if not ci.exists():
            self.skipTest("no .ci/run")
        for command in commands:
            self.assertNotIn("\n", command)
            self.assertIn(command, ci.read_text(encoding="utf-8"))

    def test_pages_can_be_read_in_one_go(self) -> None:
        self.assertLessEqual(len(README.encode()), 14_000)
        self.assertLessEqual(len(SKILL.encode()), 11_264)

    def test_every_mode_answers_a_question(self) -> None:
        answering = [
            name
            for _, modes in table(README, "question", "mode")
            for name in re.findall(r"\w+", modes)
        ]
        self.assertEqual(set(answering), set(MODES))

    def test_one_file_says_the_same_bytes(self) -> None:
        """By the README's lines, run where nothing but the sources lies."""
        (block,) = (block for block in blocks(README) if "zipapp" in block.text)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for source in ("compute_breakdown.py", "_peaks.py"):
                shutil.copy(ROOT / source, folder)
            for source in ("_analysis", "_modes", "_output", "_pipeline", "_proto"):
                shutil.copytree(ROOT / source, folder / source)
            commands = block.text.replace("python3 -m", f"{shlex.quote(sys.executable)} -m")
            subprocess.run(["sh", "-euc", commands], cwd=folder, check=True)
            archive = folder / "compute-breakdown.pyz"
            self.assertTrue(archive.read_bytes().startswith(b"#!/usr/bin/env python3\n"))
            self.assertTrue(os.access(archive, os.X_OK))
            moved = archive.rename(folder / "moved.pyz")
            every = (
                [str(DEMO), "--mode", "page", "--out", str(folder / "step.html")],
                [str(DEMO), "--mode", "memory"],
                [str(AFTER), "--mode", "compare", f"--baseline={BEFORE}"],
                [str(DEMO), "--mode", "summary", "--chip", "v4"],
                ["--schema", "bottleneck"],
            )
            for asked in sampled(every, 2):
                of_script, of_archive = (
                    subprocess.run(
                        [sys.executable, run_what, *asked], capture_output=True, check=False
                    )
                    for run_what in (SCRIPT, moved)
                )
                with self.subTest(asked=asked):
                    self.assertEqual(of_archive.stdout, of_script.stdout)
                    self.assertEqual(of_archive.returncode, of_script.returncode)

    def test_speed_is_told_of_every_mode(self) -> None:
        of_modes = [code(row[0]) for row in table(FIELDS, "mode", "wall")]
        # The others compare what `record` reads.
        self.assertCountEqual(of_modes, set(MODES) - {"compare", "spread"})

    def test_links_lead_somewhere(self) -> None:
        for name, page in PAGES.items():
            for file, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page):
                with self.subTest(page=name, link=f"{file}#{anchor}"):
                    self.assertTrue((ROOT / file).exists())
                    text = PAGES.get(file or name, "")
                    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
                    anchors = {*map(slug, headings), *re.findall(r'<a id="(.*?)"></a>', text)}
                    self.assertTrue(not anchor or anchor in anchors)

    def test_pages_name_no_path_of_a_machine(self) -> None:
        for page in PAGES.values():
            paths = set(re.findall(r"(?<![\w.$\"/…-])/(?:home|work|tmp|root|Users)\b[\w/]*", page))
            self.assertLessEqual({path for path in paths if "/home/dev/" not in path}, set())

    def test_contributing_names_what_there_is(self) -> None:
        page = PAGES["CONTRIBUTING.md"]
        for path in set(re.findall(r"`([\w.]+/[\w./]*|\w+\.py)`", page)):
            with self.subTest(path=path):
                self.assertTrue((ROOT / path.replace("NAME", "comm")).exists())
        for owner, name, path in re.findall(r"`(?:(\w+)\.)?(\w+)` in `([\w./]+\.py)`", page):
            with self.subTest(name=name):
                module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
                self.assertTrue(hasattr(getattr(module, owner) if owner else module, name))

    def test_the_wheel_holds_what_is_needed_without_the_clone(self) -> None:
        settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        _, _, packed = settings.partition("[tool.hatch.build.targets.wheel.force-include]\n")
        named = set(re.findall(r'^"(.*?)" = "compute_breakdown/', packed, re.MULTILINE))
        modules = {path.name for path in ROOT.glob("*.py")}
        rooms = {"_analysis", "_modes", "_output", "_pipeline", "_proto"}
        self.assertEqual(named, modules | rooms | {"SKILL.md", "GUIDE.md", "FIELDS.md"})

    def test_version_has_an_entry_in_the_changelog(self) -> None:
        self.assertIn(f"\n## [{compute_breakdown.__version__}]", PAGES["CHANGELOG.md"])


# ----------------------------------------------------------------------------------------------
# Figures.

ELLIPSIS = "…"
TOKEN_RE = re.compile(r'"(?:[^"\\]|\\.)*"|.', re.DOTALL)


def parse_excerpt(text: str) -> Any:
    """JSON in which a bare `…` stands for elements or members that were left out."""
    out = []
    open_brackets = ""
    for token in TOKEN_RE.findall(text):
        if token in "[{":
            open_brackets += token
        elif token in "]}":
            open_brackets = open_brackets[:-1]
        out.append(token)
        if token == ELLIPSIS:
            out[-1] = f'"{ELLIPSIS}"' + (": null" if open_brackets[-1] == "{" else "")
    return json.loads("".join(out))


def is_excerpt(excerpt: Any, whole: Any) -> bool:
    """Whether all that the excerpt shows is there, in order; and all there is, but at a `…`."""
    match excerpt, whole:
        case dict(), dict():
            shown = [name for name in excerpt if name != ELLIPSIS]
            return (
                shown == [name for name in whole if name in excerpt]
                and (ELLIPSIS in excerpt or len(shown) == len(whole))
                and all(is_excerpt(excerpt[name], whole[name]) for name in shown)
            )
        case list(), list():
            return is_part_of_list(excerpt, whole)
        case str(), str() if ELLIPSIS in excerpt:
            parts = ".*".join(map(re.escape, excerpt.split(ELLIPSIS)))
            return re.fullmatch(parts, whole, re.DOTALL) is not None
        case _:
            return type(excerpt) is type(whole) and bool(excerpt == whole)


def is_part_of_list(excerpt: Sequence[Any], whole: Sequence[Any]) -> bool:
    if not excerpt:
        return not whole
    if excerpt[0] == ELLIPSIS:
        return any(is_part_of_list(excerpt[1:], whole[i:]) for i in range(len(whole) + 1))
    return (
        bool(whole) and is_excerpt(excerpt[0], whole[0]) and is_part_of_list(excerpt[1:], whole[1:])
    )


def first_difference(excerpt: Any, whole: Any, path: str = "") -> str:
    """Where an excerpt goes wrong, for the failure's message."""
    if isinstance(excerpt, dict) and isinstance(whole, dict):
        for name, value in excerpt.items():
            if name != ELLIPSIS and not is_excerpt(value, whole.get(name)):
                return first_difference(value, whole.get(name), f"{path}.{name}")
    return f"{path or '.'}: {json.dumps(excerpt, ensure_ascii=False)[:300]}"


class Excerpts(unittest.TestCase):
    batch = BATCH

    def test_what_the_examples_show_is_what_is_printed(self) -> None:
        shown = [*blocks(README), *blocks(GUIDE)]
        modes = set()
        for before, excerpt in itertools.pairwise(shown):
            if excerpt.language != "json":
                continue
            words = shlex.split(before.text.replace("tests/data/", f"{DATA}/"))
            program, profile, _, mode, *options = words
            self.assertEqual(program, "compute-breakdown")
            modes.add(mode)
            with self.subTest(command=before.text.strip()):
                is_demo = profile == str(DEMO)
                real = demo(mode, *options) if is_demo else answer(profile, mode, *options)
                parsed = parse_excerpt(excerpt.text)
                if not is_excerpt(parsed, real):
                    self.fail(first_difference(parsed, real))
        # Of a record one reads what others make of it, of a page what a browser does.
        self.assertEqual(modes, set(MODES) - {"record", "page"})

    def test_an_excerpt_that_is_not_true_fails(self) -> None:
        whole = {"a": 1, "b": [{"c": 2, "d": "text"}, {"c": 3}]}
        for text, expected in (
            ('{"a": 1, …}', True),
            ('{"a": 1}', False),
            ('{"a": 2, …}', False),
            ('{"a": 1.0, …}', False),
            ('{"z": 1, …}', False),
            ('{"b": […, {"c": 3}], …}', True),
            ('{"b": [{"c": 3}, …], …}', False),
            ('{"b": [{"d": "t…t", …}, …], …}', True),
            ('{"b": [{"d": "x…t", …}, …], …}', False),
            ('{"b": [{"c": 2, …}], …}', False),
        ):
            with self.subTest(text=text):
                self.assertEqual(is_excerpt(parse_excerpt(text), whole), expected)

    def assert_says(self, *claims: str, page: str = GUIDE) -> None:
        """Shown alone: the page would bury it."""
        for claim in claims:
            with self.subTest(claim=claim):
                self.assertTrue(claim in page, "no such text on the page")

    def test_figures_of_the_bottleneck_are_true(self) -> None:
        said = demo("bottleneck")
        light, budget = said["speed_of_light"], {row["class"]: row for row in said["budget"]}
        first, second, *others = said["findings"]
        roof, kept = first["at_roof_ps"], first["phases"]["recompute"]
        cost = first["at_roof_ps"] * 1153.5 / first["n_executions"]
        self.assertEqual((first["kernel"], second["top_signature"].split()[0]),
                         ("flash_attention", "all-to-all"))  # fmt: skip
        self.assertTrue(second["source_inner"].endswith("train.py:32"))
        backward = [row for row in others if row["class"] == "kernel"]
        self.assertEqual(budget["kernel"]["dur_ps"], sum(row["dur_ps"] for row in backward))
        for row in backward:
            self.assertEqual(set(re.findall(r"block\w*?_(\d+)", row["kernel"])), {"128"})
        # Without the recomputation half of the executions are left, and half of the roof.
        self.assertAlmostEqual(kept / first["dur_ps"], 0.5, 2)
        duration, unknown = said["step_duration_ps"] / 1e9, budget["kernel"]["dur_ps"] / 1e9
        self.assert_says(
            f"step takes {duration:.1f} ms. The forward attention kernel runs far above its roof "
            f"and loses {first['lost_ps'] / 1e9:.1f} ms",
            f"stands still for {second['lost_ps'] / 1e9:.1f} ms at line 32",
            f"two backward kernels take {unknown:.1f} ms",
            page=README,
        )
        self.assertEqual(len(backward), 2)
        self.assertGreater(second["waits_for"]["all-to-all"], 0.95 * second["dur_ps"])
        self.assert_says(
            f"The step takes {duration:.1f} ms, and the chip would need "
            f"{light['pct_at_least']:.1f} % of that at the least",
            f"the declared cost were true, it would need {light['pct_at_most']:.1f} %",
            f"far above its roof | {first['lost_ps'] / 1e9:.1f} ms",
            f"a second time | {kept / 1e9:.1f} ms",
            f"stall the core | {second['lost_ps'] / 1e9:.1f} ms",
            f"together they win {(first['dur_ps'] - roof / 2) / 1e9:.1f} ms, "
            f"not {(first['lost_ps'] + kept) / 1e9:.1f}",
            f"its declared {cost / 1e9:.1f} GFLOP a run",
            f"half as high and it loses {(first['dur_ps'] - roof / 2) / 1e9:.1f} ms",
            f"so their {unknown:.1f} ms are unknown",
        )
        self.assertLess(budget["idle"]["pct_of_step"], 1)

    def test_figures_of_the_modes_are_true(self) -> None:
        summary = demo("summary")
        step, recompute = summary["step_duration_ps"], summary["by_phase_rollup"]["recompute"]
        waits = {row["waits_for"]: row for row in summary["comm_rollup"]}
        reshuffles = waits["all-to-all"]
        lines = demo("by_source")["groups"]
        loss = max(at(lines, "train.py:49"), key=lambda group: group["total_dur_ps"])
        at_32 = at(all_groups(), "train.py:32")
        n_at_32 = sum(group["hlo_categories"].get("all-to-all", 0) for group in at_32)
        self.assert_says(
            f"by itself: {summary['totals']['while_pct_of_step']} in the demo",
            f"costs {recompute['pct_of_compute']:.1f} % of compute, "
            f"{100 * recompute['dur_ps'] / step:.1f} % of the step",
            f"stall the core for {reshuffles['pct_of_step']:.1f} % of the step",
            f"takes {loss['pct_of_compute']:.0f} % of compute",
            f"{loss['flops_sum'] / loss['bytes_accessed_sum']:.1f} flops a byte",
            f"has {n_at_32} of the {reshuffles['n']} all-to-alls",
        )
        of_comm = demo("comm")["totals"]
        under_way, hidden = of_comm["in_flight_union_ps"], of_comm["hidden_union_ps"]
        self.assert_says(
            f"under way in {100 * under_way / step:.0f} % of the step, and "
            f"{100 * hidden / under_way:.0f} % of that time lies under math or copies; the core "
            f"stands in communication for {of_comm['exposed_pct_of_step']:.0f} %"
        )
        collectives = [waits[name] for name in vocabulary.COLLECTIVES if name in waits]
        self.assertGreater(
            reshuffles["sync_dur_ps"], sum(row["wait_dur_ps"] for row in collectives)
        )

    def test_figures_of_the_scopes_are_true(self) -> None:
        said = demo("by_scope")
        rows = {row["scope"]: row for row in said["scopes"]}
        attention, mlp = rows["decoder_layer/attention"], rows["decoder_layer/mlp"]
        kept, phases = attention["phases"]["recompute"], mlp["phases"]
        self.assertAlmostEqual(kept / attention["total_dur_ps"], 1 / 3, 1)
        ops = demo("by_op", "--top=999")["ops"]
        backward = [
            row["total_dur_ps"]
            for row in ops
            if (row["scope"], row["phase"]) == (mlp["scope"], "backward") and row["kind"] == "comm"
        ]
        self.assert_says(
            f"Attention takes {attention['pct_of_step']:.0f} % of the step. A third of that, "
            f"{kept / 1e9:.1f} ms",
            f"The MLP takes {mlp['pct_of_step']:.0f} %. Its backward pass takes "
            f"{phases['backward'] / phases['forward']:.1f} times as long",
            f"and {100 * sum(backward) / phases['backward']:.0f} % of that is communication",
        )
        (fusion,) = [row for row in ops if row["hlo_op"] == "fusion.365"]
        self.assertAlmostEqual(fusion["achieved_tflops"] / _peaks.CHIPS["v7x"].bf16, 1 / 3, 1)
        self.assert_says(f"At {fusion['achieved_tflops']:.0f} TFLOP/s it runs at a third")

    def test_figures_of_the_roofline_are_true(self) -> None:
        roof, lines = demo("roofline"), demo("by_source")["groups"]
        accessed, hbm = (
            sum(group[name] or 0 for group in lines)
            for name in ("bytes_accessed_sum", "hbm_bytes_sum")
        )
        mixed = max(at(roof["groups"], "train.py:32"), key=lambda group: group["shortfall_ps"])
        (claimed,) = [group for group in roof["groups"] if group["cost_source"] == "declared"]
        summary = roof["step_summary"]
        share = claimed["total_dur_ps"] / summary["rooflined_dur_ps"]
        self.assertAlmostEqual(share, 0.5, 1)
        fp32 = [
            [group for group in demo("roofline", option)["groups"] if group["dtype"] == "fp32"]
            for option in ("--peak-tflops-fp32=50", "--peak-tflops-fp32=1000")
        ]
        self.assertEqual({group["bound"] for groups in fp32 for group in groups}, {"memory"})
        for low, high in zip(*fp32, strict=True):
            for name in ("hbm_util", "shortfall_ps"):
                self.assertEqual(low[name], high[name])
        for options, what in (([], "memory"), (["--bytes=hbm"], "compute")):
            (query,) = at(demo("roofline", *options)["groups"], "attention.py:9")
            self.assertEqual(query["bound"], what)
        heads = 4 * 4 * 2048
        (kernel,) = [
            row for row in demo("summary")["kernels"] if row["kernel"] == claimed["kernel"]
        ]
        self.assertIn("bf16[4,4,2048,128]", kernel["shapes_in"][0])
        # q, k, v and the output are of two bytes; two arrays of row statistics of four.
        moved = heads * 128 * (4 * 2 + 2 * 4)
        self.assertEqual(claimed["bytes_accessed_sum"], moved * claimed["n_executions"])
        self.assert_says(
            f"The MFU is {100 * summary['weighted_avg_mfu']:.0f} % over "
            f"{summary['rooflined_pct_of_compute']:.0f} % of the compute time",
            f"{mixed['shortfall_per_op_ps'] / 1e9:.2f} ms of its time are lost "
            f"rather than {mixed['shortfall_ps'] / 1e9:.2f} ms",
            f"all {len(fp32[0])} fp32 rows of the demo stay memory-bound",
            f"in this step's compute {100 * (accessed / hbm - 1):.0f} % too much",
            f"flash_attention={2 * 2 * heads * 2048 * 128},{moved},bf16`",
            f"it moves {moved:,} bytes".replace(",", " "),
        )

    def test_figures_of_comm_are_true(self) -> None:
        said = demo("comm")
        totals, (_, gathers, *_) = said["totals"], said["rows"]
        union = totals["in_flight_union_ps"]
        ms = {name: gathers[name] / 1e9 for name in gathers if name.endswith("_ps")}
        self.assert_says(
            f"under way in {100 * union / said['step_duration_ps']:.0f} % of the step, and "
            f"{100 * totals['hidden_union_ps'] / union:.0f} % of that time",
            f"in communication for {totals['exposed_pct_of_step']:.0f} %",
            f"are {ms['in_flight_ps']:.2f} ms in flight, {ms['wait_dur_ps']:.2f} are waited for, "
            f"{ms['covered_ps']:.2f} hidden, and {ms['other_ps']:.2f} lie behind other waits",
        )

    def test_figures_of_the_memory_are_true(self) -> None:
        said = demo("memory")
        peak, logits = said["peak_bytes"], said["buffers"][:3]
        lines = {row["source_inner"].rpartition(":")[2] for row in logits}
        self.assertEqual(lines, {"45", "49"})
        self.assertEqual({row["shape"].partition("[")[2] for row in logits}, {"4,2047,16000]"})
        reserved, share = said["reserved_bytes"], sum(row["bytes"] for row in logits)
        self.assert_says(
            f"needs {peak / 1e9:.2f} GB at its peak and reserves {reserved / 1e9:.2f}",
            f"are {100 * share / peak:.0f} % of the peak",
            f"(`by_argument`), {100 * said['by_kind']['parameter'] / peak:.0f} %",
        )

    def test_figures_of_the_program_are_true(self) -> None:
        said = demo("program", f"--flags={FLAG_FILE}", "--top=1")
        rows = said["collectives"]
        n = {how: sum(row["n_instructions"] for row in rows if how in ("all", row["how"]))
             for how in ("all", "sparse_core", "async_fusion")}  # fmt: skip
        exposed = sum(row["sync_dur_ps"] + row["wait_dur_ps"] for row in rows)
        self.assertEqual((rows[0]["collective"], rows[0]["n_instructions"]), ("all-to-all", 2))
        self.assertEqual(n["async_fusion"], 0)
        shares = [100 * row["vmem_used_bytes"] / row["vmem_limit_bytes"] for row in said["kernels"]]
        self.assert_says(
            f"{n['sparse_core']} of the demo's {n['all']} collectives are offloaded",
            f"are synchronous, and {100 * rows[0]['sync_dur_ps'] / exposed:.0f} % of all exposed",
            f"use {min(shares):.1f} to {max(shares):.1f} % of the VMEM",
        )

    def test_figures_of_compare_are_true(self) -> None:
        said = answer(AFTER, "compare", "--baseline", str(BEFORE))
        first, *others = said["rows"]
        self.assertEqual(first["source_inner"], "/home/dev/model/train.py:52")
        self.assertFalse(any(row["significant"] for row in others))
        delta = said["totals"]["step_duration"]["delta_ps"]
        self.assertGreater(first["delta_ps"], 0.9 * delta)
        self.assert_says(f"The step became {delta / 1e9:.2f} ms slower, nearly all of it on one")

    def test_scopes_of_the_demo_are_as_told(self) -> None:
        loops = at(all_groups(), "train.py:42")
        scopes = {row["scope"]: row["dur_ps"] for each in loops for row in each["scopes"]}
        for scope in ("dynamic_index_in_dim", "dynamic_update_index_in_dim"):
            self.assertIn(scope, scopes)
            self.assert_says(f"(`{scope}`)")
        told = re.search(r"Of `(jit[^`]*)` it is `([^`]*)`", GUIDE)
        assert told
        self.assertEqual(scope_of(told[1]).name, told[2])
        self.assertTrue(any(each["tf_op"] == told[1] for each in all_groups()))


@unittest.skipUnless(PROFILES.is_dir(), "needs captures that are not part of the repository")
class Inference(unittest.TestCase):
    """What the guide says of two real captures."""

    batch = BATCH

    NAMES = ("vllm-bf16", "vllm-fp4-tuned")

    @classmethod
    @functools.cache
    def of(cls, name: str, mode: str = "by_source") -> Json:
        options = {
            "by_source": ["--include-data-move", "--include-comm"],
            "by_scope": ["--depth=1"],
        }
        return answer(PROFILES / f"{name}.xplane.pb", mode, *options.get(mode, []))

    def printed(self, text: str, name: str) -> list[list[str]]:
        """What the `jq` of a command says of a capture."""
        mode = "by_scope" if "--mode by_scope" in text else "by_source"
        program = re.search(r"jq -r '(.*?)'\s*$", text, re.DOTALL)
        assert program
        command = ["jq", "-r", program[1]]
        said = json.dumps(self.of(name, mode))
        done = subprocess.run(command, input=said, capture_output=True, text=True, check=True)
        return rows_of(done.stdout)

    @unittest.skipUnless(shutil.which("jq"), "needs jq")
    def test_time_by_file_and_by_scope(self) -> None:
        by_scope = next(b.text for b in blocks(GUIDE) if '["%", "scope"]' in b.text)
        for what, command in (("file", RECIPES["Time per module"]), ("scope", by_scope)):
            rows = table(GUIDE, what, "bf16, %")
            told = [
                [(float(row[column]), code(row[0])) for row in rows if row[column]]
                for column in (1, 2)
            ]
            for name, shown in zip(self.NAMES, told, strict=True):
                _, *found = self.printed(command, name)
                if what == "file":
                    found = [[pct, re.sub(r".*/(?=[^/]*/)", "", file)] for _, pct, file in found]
                    self.assertFalse(any("site-packages" in file for _, file in found))
                with self.subTest(capture=name, what=what):
                    above = {(float(pct), key) for pct, key in found if float(pct) >= 1}
                    self.assertEqual(set(shown), above)

    @unittest.skipUnless(shutil.which("jq"), "needs jq")
    def test_lines_and_scopes(self) -> None:
        command, printed = next(
            (block.text, shown.text)
            for block, shown in itertools.pairwise(blocks(GUIDE))
            if '["ms", "line", "scope"]' in block.text
        )
        self.assertEqual(rows_of(printed), self.printed(command, "vllm-bf16"))

    def test_the_false_stack(self) -> None:
        said = self.of("vllm-bf16")
        largest = max(said["groups"], key=lambda group: group["total_dur_ps"])
        self.assertTrue(largest["source_inner"].endswith("attention_interface.py:335"))
        self.assertEqual(largest["source_user"], largest["source_inner"])
        scope = largest["scopes"][0]["scope"].partition("/")[0]
        ps, every = largest["total_dur_ps"], sum(each["total_dur_ps"] for each in said["groups"])
        self.assertIn("(bf16[27648,5120]{", largest["example_hlo_op"])
        claim = f"takes {ps / 1e9:.1f} ms, {100 * ps / every:.0f} % of the time"
        for text in (claim, f"Its scope is `{scope}`", "operands is `bf16[27648,5120]`"):
            self.assertIn(text, GUIDE)
        # Its source is as false.
        self.assertFalse(any("may be false" in note for note in said["notes"]))

    def test_what_else_is_told(self) -> None:
        shares = []
        for name, n_ms in zip(self.NAMES, (67, 63), strict=True):
            said = self.of(name)
            self.assertEqual(round(said["step_duration_ps"] / 1e9), n_ms)
            self.assertEqual(said["step_source"], "modules")
            self.assertTrue(said["step_name"].startswith("jit_step_fun"))
            self.assertFalse(said["program"]["hlo"])
            self.assertEqual(said["stack_order"], "innermost_first")
            inner = summed(
                ((each["source_inner"] or "").rpartition(":")[0], each["total_dur_ps"])
                for each in said["groups"]
            )
            library = {file: ps for file, ps in inner.items() if "site-packages" in file}
            shares.append(round(100 * sum(library.values()) / sum(inner.values())))
            torch = max(library, key=library.__getitem__)
            self.assertTrue(torch.endswith("torch/nn/modules/module.py"))
            self.assertGreater(library[torch], sum(library.values()) / 2)
        self.assertIn(f"{shares[0]} % and {shares[1]} % of the time", GUIDE)
        columns = [
            {code(row[0]): float(row[column] or 0) for row in table(GUIDE, "scope", "bf16, %")}
            for column in (1, 2)
        ]
        linear = [sum(ps for scope, ps in of.items() if "Linear" in scope) for of in columns]
        attention = [of["_jax_attn_func"] for of in columns]
        self.assertIn(
            f"linear layers take {linear[0]:.0f} % of the time in bf16 and {linear[1]:.0f} % in "
            f"fp4, attention {attention[0]:.0f} % and {attention[1]:.0f} %",
            GUIDE,
        )


def at(groups: Iterable[Json], line: str) -> list[Json]:
    return [group for group in groups if (group["source_inner"] or "").endswith(line)]


# ----------------------------------------------------------------------------------------------
# Recipes.

RECIPES = {block.heading: block.text for block in blocks(README) if block.section == "Recipes"}
TOOLS = ("bash", "jq", "xargs")


def rows_of(printed: str, separator: str | None = "\t") -> list[list[str]]:
    return [line.split(separator) for line in printed.splitlines()]


def installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def us(ps: int) -> float:
    return ps / 1e6


def summed(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for key, value in pairs:
        sums[key] += value
    return dict(sums)


def all_groups(*options: str) -> list[Json]:
    groups: list[Json] = demo("by_source", "--include-data-move", "--include-comm", *options)[
        "groups"
    ]
    return groups


def without_number(frame: str) -> str:
    return re.sub(r":\d+\Z", "", frame)


@unittest.skipUnless(all(map(shutil.which, TOOLS)), f"needs {', '.join(TOOLS)}")
class Recipes(unittest.TestCase):
    folder: tempfile.TemporaryDirectory[str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        for name, command in (
            ("compute-breakdown", [sys.executable, str(SCRIPT)]),
            ("python3", [sys.executable]),
        ):
            installed = Path(cls.folder.name, name)
            installed.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
            installed.chmod(0o755)
        # What recipes write shall not lie in the clone.
        Path(cls.folder.name, "tests").symlink_to(ROOT / "tests")

    def cook(self, recipe: str, profile: str = DEMO_IN_README) -> str:
        done = self.run_bash(RECIPES[recipe].replace(DEMO_IN_README, shlex.quote(profile)))
        self.assertEqual((done.stderr, done.returncode), ("", 0))
        return done.stdout

    def run_bash(self, text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", text],
            cwd=self.folder.name,
            env={**os.environ, "PATH": f"{self.folder.name}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=bound(60),
            check=False,
        )

    def test_without_an_answer_they_say_what_was_refused(self) -> None:
        guide = [block.text for block in blocks(GUIDE) if "jq -r" in block.text]
        self.assertEqual(len(guide), 2)
        for text in (*RECIPES.values(), *guide):
            if DEMO_IN_README in text:
                with self.subTest(text=text[:80]):
                    done = self.run_bash(text.replace(DEMO_IN_README, "nowhere"))
                    (said,) = (line for line in done.stderr.splitlines() if "jq:" in line)
                    self.assertTrue(said.endswith(": no_such_path"), said)

    def assert_times(self, printed: Sequence[str], times: Sequence[int]) -> None:
        """Microseconds, rounded to one decimal."""
        self.assertEqual(len(printed), len(times))
        for text, ps in zip(printed, times, strict=True):
            self.assertAlmostEqual(float(text), us(ps), delta=0.0501)

    def test_every_recipe_is_checked(self) -> None:
        checked = "".join(
            name.removeprefix("test_") + "\n" for name in dir(self) if name.startswith("test_")
        )
        for recipe in RECIPES:
            with self.subTest(recipe=recipe):
                self.assertIn(re.sub(r"\W+", "_", recipe.lower()) + "\n", checked)

    def test_time_per_module(self) -> None:
        header, *rows = rows_of(self.cook("Time per module"))
        self.assertEqual(header, ["us", "%", "file"])
        times = summed(
            (re.sub(r":\d+\Z", "", line["source_user"] or "(none)"), line["dur_ps"])
            for group in all_groups()
            for line in group["likely_sources"] or [{**group, "dur_ps": group["total_dur_ps"]}]
        )
        whole = summed((group["kind"], group["total_dur_ps"]) for group in all_groups())
        self.assertEqual(sum(times.values()), sum(whole.values()))
        # What has no stack has a likely line nearly always.
        self.assertLess(times["(none)"], sum(times.values()) / 10_000)
        self.assertIn("/home/dev/model/layers/attention.py", times)
        self.assertEqual({row[2] for row in rows}, set(times))
        self.assert_times([row[0] for row in rows], sorted(times.values(), reverse=True))
        self.assert_times([row[0] for row in rows], [times[row[2]] for row in rows])
        for _, percent, file in rows:
            share = 100 * times[file] / sum(times.values())
            self.assertAlmostEqual(float(percent), share, delta=0.0501)

    def test_casts_and_layout_changes_by_cost(self) -> None:
        header, *rows = rows_of(self.cook("Casts and layout changes by cost"))
        self.assertEqual(header, ["us", "change", "line", "from", "to"])
        expected = [
            (row[f"{field}_change_dur_ps"], change, row)
            for row in demo("non_compute", "--no-comm-stalls")["by_source_within_category"]
            for change, field in (("cast", "dtype"), ("layout", "layout"))
            if row[f"{field}_change"] and row[f"{field}_change_dur_ps"]
        ]
        expected.sort(key=lambda each: -each[0])
        self.assert_times([row[0] for row in rows], [ps for ps, *_ in expected])
        self.assertEqual(
            [row[1:] for row in rows],
            [
                [
                    change,
                    row["source_user"] or row["source_inner"] or row["agg_key"],
                    " ".join(row["shapes_in"]),
                    " ".join(row["shapes_out"]),
                ]
                for _, change, row in expected
            ],
        )
        self.assertEqual({row[1] for row in rows}, {"cast", "layout"})
        self.assertTrue(rows[0][2].endswith("attention.py:16"), "the README's reading")
        # Of some groups not all executions change something.
        self.assertTrue(any(ps < row["total_dur_ps"] for ps, _, row in expected))

    def test_a_gate_for_ci(self) -> None:
        recipe = "A gate for CI"
        done = self.run_bash(RECIPES[recipe])
        self.assertEqual(
            (done.stdout, done.stderr, done.returncode),
            ("false\nslower, or not to be compared\n", "", 1),
        )
        before = json.loads(gzip.decompress(BEFORE.read_bytes()))
        for device in before["devices"]:
            device["device_type"] = "TPU v4"
        Path(self.folder.name, "other_chip.json").write_text(json.dumps(before))
        template = RECIPES[recipe].replace(BEFORE_IN_README, "{}")
        template = template.replace(AFTER_IN_README, "{1}").replace("{}", "{0}")
        pairs = (
            (BEFORE_IN_README, BEFORE_IN_README, True),
            (AFTER_IN_README, BEFORE_IN_README, True),
            (BEFORE_IN_README, "nowhere.json", False),
            ("other_chip.json", AFTER_IN_README, False),
            (DEMO_IN_README, DEMO_IN_README, False),
        )
        for before, after, passes in sampled(pairs, 3):
            text = template.format(before, after)
            with self.subTest(before=before, after=after):
                done = self.run_bash(text)
                self.assertEqual(done.stdout.startswith("true\n"), passes)
                # A job of CI goes by this alone.
                self.assertEqual(done.returncode, 0 if passes else 1)

    def folded(self, profile: str = DEMO_IN_README, *, own: bool = False) -> str:
        text = RECIPES["Flame graph"].replace(DEMO_IN_README, shlex.quote(profile))
        if own:
            self.assertIn("`--argjson own true`", README)
            text = text.replace("--argjson own false", "--argjson own true")
        done = self.run_bash(text)
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("", "", 0))
        return Path(self.folder.name, "demo.folded").read_text(encoding="utf-8")

    def test_flame_graph(self) -> None:
        groups = all_groups()
        ends = set()
        for own in (False, True):
            stacks = [line.rpartition(" ") for line in self.folded(own=own).splitlines()]
            self.assertEqual([int(ps) for *_, ps in stacks], [g["total_dur_ps"] for g in groups])
            for (stack, *_), group in zip(stacks, groups, strict=True):
                frames = stack.split(";")
                if not group["source_stack"]:
                    self.assertEqual(frames, [group["agg_key"]])
                    continue
                whole = [without_number(frame) for frame in group["source_stack"].split("\n")]
                self.assertEqual(frames, whole[: len(frames)])
                end = group["source_user" if own else "source_inner"]
                self.assertEqual(frames[-1], end)
                ends.add(end)
        # Where the two differ.
        self.assertTrue(any("site-packages" in end for end in ends))

    def test_flame_graph_of_awkward_frames(self) -> None:
        path = Path(self.folder.name, "frames.xplane.pb")
        stack = "<module 'a;b'>:1:2\n \nno column.py:7\nc d.py:3:4\n"
        path.write_bytes(trace([op("a", "loop fusion", 0, 10, stack=stack, source="c d.py:3")]))
        whole = "<module 'a,b'>:1;no column.py:7;c d.py:3 10\n"
        self.assertEqual(self.folded(str(path)), whole)
        self.assertEqual(self.folded(str(path), own=True), whole)
        path.write_bytes(
            trace([op("a", "loop fusion", 0, 10, stack="my;own.py:1:2\n<x>:3:4", source="<x>:3")])
        )
        self.assertEqual(self.folded(str(path), own=True), "my,own.py:1 10\n")


class Pictures(unittest.TestCase):
    def test_they_are_there_and_small(self) -> None:
        """Made of the page by tests.builders.make_pictures."""
        shown = re.findall(r"!\[[^\]]+\]\((.*?)\)", README + GUIDE)
        self.assertEqual({f"tests/data/{name}.png" for name in PICTURES}, set(shown))
        for name in shown:
            with self.subTest(picture=name):
                data = (ROOT / name).read_bytes()
                self.assertTrue(data.startswith(b"\x89PNG"))
                self.assertLess(len(data), 150_000)


# ----------------------------------------------------------------------------------------------
# SKILL.md.


class Skill(unittest.TestCase):
    batch = BATCH

    def test_front_matter(self) -> None:
        opening, front_matter, body = SKILL.split("---\n", 2)
        self.assertEqual(opening, "")
        self.assertTrue(body.startswith("\n# "))
        entries = dict(line.split(": ", 1) for line in front_matter.splitlines())
        self.assertEqual(list(entries), ["name", "description", "argument-hint"])
        self.assertEqual(entries["name"], "compute-breakdown")
        self.assertIn("Use it when", entries["description"])
        self.assertLess(len(entries["description"]), 1024)
        # Plain YAML scalars hold no ": " and no " #", quoted ones are closed.
        self.assertNotRegex(entries["description"], r": | #|\A[\W]")
        self.assertRegex(entries["argument-hint"], r'\A"[^"\\]*"\Z')

    def test_every_name_in_it_is_one(self) -> None:
        classes = {code(row[0]) for row in table(FIELDS, "class")}
        self.assertEqual(classes, {*ledger.CLASSES})
        known = {*re.findall(r'^\| <a id=".*?"></a>`(\w+)`', FIELDS, re.MULTILINE), *MODES}
        known |= {*re.findall(r"^\| `(\w+)`", FIELDS, re.MULTILINE)}
        known |= {outcome.object["reason"] for outcome in refusals()}
        known |= {*judging.SKIP_REASONS, "sparse_core", "data_move", "no_source"}
        known |= classes | {"at_roof", "step_duration"}
        named = re.findall(r"(?<![\w$/-])[a-z]+(?:_[a-z0-9]+)+\b(?![/.])", SKILL)
        shapes = {"decoder_layer", "dot_general", "sort_by", "map_values"}
        self.assertEqual(set(named) - shapes - known, set())

    def test_the_guide_has_every_class(self) -> None:
        known = {*ledger.CLASSES, "idle", "overlap", "at_roof"}
        guide = table(SKILL, "class", "what it means")
        self.assertEqual({name for row in guide for name in re.findall(r"`(\w+)`", row[0])}, known)

    @unittest.skipUnless(shutil.which("jq"), "needs jq")
    def test_its_filters_bear_whatever_is_null(self) -> None:
        """As an agent would copy them, on traces that know next to nothing, too."""
        recipes = [block.text for block in blocks(SKILL) if "jq" in block.text]
        commands = re.findall(
            r"compute-breakdown PROFILE (.*?)\|\s*jq (.*?)'(.*?)'", "\n".join(recipes), re.DOTALL
        )
        # Of a record one reads what others make of it, and a page is for people.
        asked_for = {shlex.split(asked)[1] for asked, *_ in commands}
        self.assertEqual(asked_for, set(MODES) - {"record", "page"})
        hand_made = [*hand_made_traces(), *hand_made_memories(), *hand_made_programs()]
        for data in (None, *sampled(hand_made, 1)):
            for asked, options, program in commands:
                words = asked.replace("BASELINE", shlex.quote(str(BEFORE)))
                mode, *rest = shlex.split(words.replace("NAME", "fusion.365"))[1:]
                said = demo(mode, *rest) if data is None else run(data, mode, *rest).object
                done = subprocess.run(
                    ["jq", *shlex.split(options.replace("LINE", "train.py:49")), program],
                    input=json.dumps(said),
                    capture_output=True,
                    text=True,
                    check=False,
                )
                self.assertEqual((done.returncode, done.stderr), (0, ""), program)
                self.assertTrue(done.stdout or data is not None, program)

    @unittest.skipUnless(shutil.which("jq"), "needs jq")
    def test_a_layer_and_an_op_are_one_call_of_few_bytes_each(self) -> None:
        commands = re.findall(r"--mode (by_scope|by_op) ([^|]*)\| jq -c '(.*?)'", SKILL, re.DOTALL)
        self.assertEqual([mode for mode, *_ in commands], ["by_scope", "by_op"])
        for path in sampled((DEMO, *sorted(PROFILES.glob("*.xplane.pb"))), 1):
            names = [row["hlo_op"] for row in answer(path, "by_op", "--top=20")["ops"]]
            for mode, options, program in commands:
                for name in sampled(names[:8], 3) if mode == "by_op" else names[:1]:
                    said = run(path, mode, *options.replace("NAME", name).split()).object
                    command = ["jq", "-c", program]
                    done = subprocess.run(
                        command, input=json.dumps(said).encode(), capture_output=True, check=True
                    )
                    with self.subTest(path=path.name, mode=mode, name=name):
                        self.assertLessEqual(len(done.stdout), 4000)

    def test_its_commands_work_from_another_folder(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            command = f'{shlex.quote(sys.executable)} "$SKILL/compute_breakdown.py"'
            self.assertIn('python3 "$SKILL/compute_breakdown.py" PROFILE --mode bottleneck', SKILL)
            done = subprocess.run(
                ["sh", "-c", f"{command} {shlex.quote(str(DEMO))} --mode bottleneck"],
                cwd=folder,
                env={**os.environ, "SKILL": str(ROOT)},
                capture_output=True,
                text=True,
                check=True,
            )
            self.assertEqual(json.loads(done.stdout)["status"], "ok")


if __name__ == "__main__":
    unittest.main()
