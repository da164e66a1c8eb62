"""The programs beside a trace: what they tell of an op, and that they never cost an answer."""

from __future__ import annotations

import functools
import json
import random
import tempfile
import unittest
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from _proto.hlo.buffers import Allocation, Assigned, Buffer, BufferAssignment, HeapEvent
from _proto.hlo.configs import DeclaredCost
from _proto.hlo.facts import Collective, Dot
from _proto.hlo.module import Instruction, Program
from _proto.hlo.programs import Programs
from _proto.hlo.replica_groups import (
    MAX_DEVICES,
    AxisPart,
    Participants,
    in_groups,
    iota_groups,
    listed_groups,
    mesh_groups,
)
from _proto.hlo.search import LikelyLine
from _proto.hlo.shapes import Array
from _proto.trace import open_trace
from _proto.trace import plane as plane_module
from tests.builders.hlo_proto import (
    Op,
    Shape,
    StackFrames,
    allocation,
    array,
    buffer,
    heap_trace,
    hlo_proto,
    iota,
    mesh,
    metadata_plane,
    module,
    op,
    packed,
    pairs,
    precision,
    tuple_of,
)
from tests.builders.hlo_proto import listed_groups as listed_field
from tests.builders.xspace import (
    NO_VALUE,
    EventMetadata,
    Plane,
    Space,
    Stat,
    StatMetadata,
    Value,
    as_value,
    bytes_field,
    double,
    encode,
    int64,
    int_field,
    raw,
    string,
    text_field,
)
from tests.harness import FULL, OFFLOADING, TRAINING, sampled, within

BIG = 12190760917235803885
NOTE = "the program's HLO can't be read: "
NOTE_END = "; answered without it"


@contextmanager
def programs_in(data: bytes | Path) -> Iterator[Programs]:
    """The programs of a file, as long as it is open."""
    with tempfile.TemporaryDirectory() as folder:
        path = data
        if isinstance(path, bytes):
            path = Path(folder) / "test.xplane.pb"
            path.write_bytes(data if isinstance(data, bytes) else b"")
        with open_trace(str(path)) as (trace,):
            yield Programs(trace)


class Opened:
    """A program alone in a trace, with the notes that were made of it."""

    def __init__(self, hlo: bytes) -> None:
        with programs_in(encode(Space([metadata_plane({1: ("jit_f(1)", hlo)})]))) as programs:
            self.program = programs.program(1)
            # All that is read later is the buffer assignment.
            self.buffers = self.program.buffers() if self.program else None
        self.notes = programs.notes

    def __getitem__(self, name: str) -> Instruction:
        found = self.program.instruction(name) if self.program else None
        if found is None:
            raise AssertionError(f"no {name}: {self.notes}")
        return found


def opened(computations: dict[str, list[Op]], **more: Any) -> Opened:
    return Opened(hlo_proto(computations, **more))


def likely(
    program: Opened,
    name: str,
    *,
    producer_first: bool = False,
    sources: dict[str, str] | None = None,
) -> tuple[str, str, int] | None:
    found = program[name].likely_line(producer_first, sources)
    return (found.line, found.how, found.hops) if found else None


STAT_NAMES = dict(enumerate(("Hlo Proto", "HLO Proto", "llo_proto", "program_id"), 3))
STAT_IDS = {name: i for i, name in STAT_NAMES.items()}


def entry(
    key: int,
    name: str,
    stat: str | None = "Hlo Proto",
    number: int | Value | None = None,
    *,
    instruction: str = "a",
) -> EventMetadata:
    """Make an entry of `/host:metadata` whose program has one instruction."""
    hlo = hlo_proto({"main": [op(instruction, "add")]})
    stats = [] if stat is None else [Stat(STAT_IDS[stat], raw(hlo))]
    if number is not None:
        stats.insert(0, Stat(STAT_IDS["program_id"], as_value(number)))
    return EventMetadata(key, name, stats)


class Entries(unittest.TestCase):
    """Which programs there are."""

    def test_ids_are_unsigned_whatever_the_sign_they_are_asked_with(self) -> None:
        hlo = hlo_proto({"main": [op("a", "add")]})
        plane = metadata_plane({BIG - 2**64: (f"jit_f({BIG})", hlo)})
        with programs_in(encode(Space([plane]))) as programs:
            self.assertEqual(programs.names, {BIG: f"jit_f({BIG})"})
            for program_id in (BIG, BIG - 2**64):
                self.assertTrue(programs.has_hlo(program_id))
                program = programs.program(program_id)
                self.assertIsNotNone(program and program.instruction("a"))
            self.assertIs(programs.program(BIG), programs.program(BIG - 2**64))
            self.assertIsNone(programs.program(BIG + 1))
            self.assertEqual(programs.notes, [])

    def test_an_entry_without_hlo_is_named_all_the_same(self) -> None:
        plane = metadata_plane({1: ("SYMBOL_MAP:7", None), 2: ("jit_g(2)", None)})
        plane.event_metadata[1].stats = [Stat(7, string("no bytes")), Stat(8, raw(b"other"))]
        with programs_in(encode(Space([plane]))) as programs:
            self.assertEqual(programs.names, {1: "SYMBOL_MAP:7", 2: "jit_g(2)"})
            self.assertFalse(programs.has_hlo(1) or programs.has_hlo(2))
            self.assertIsNone(programs.program(2))
            self.assertEqual(programs.notes, [])

    def assert_ids(self, entries: list[EventMetadata], *ids: int) -> None:
        """Insist that these are the ids of the programs, and that each program can be read."""
        names = [StatMetadata(i, name) for i, name in STAT_NAMES.items()]
        plane = Plane("/host:metadata", [], entries, names)
        with programs_in(encode(Space([plane]))) as programs:
            self.assertEqual(sorted(programs.sizes), sorted(ids))
            for program_id in ids:
                found = programs.program(program_id)
                self.assertIsNotNone(found and found.instruction("a"))
            self.assertEqual(programs.notes, [])

    def test_the_id_is_the_stat_else_in_the_name_else_the_key(self) -> None:
        for stat in ("Hlo Proto", "HLO Proto"):
            self.assert_ids([entry(6, f"jit_f({BIG})", stat, 3)], 3)
            self.assert_ids([entry(6, f"jit_f({BIG})", stat)], BIG)
            self.assert_ids([entry(6, "jit_f", stat)], 6)
            self.assert_ids([entry(BIG - 2**64, "jit_f", stat)], BIG)

    def test_an_id_may_be_written_as_negative(self) -> None:
        self.assert_ids([entry(6, "jit_f", number=int64(BIG - 2**64))], BIG)
        self.assert_ids([entry(6, f"jit_f({BIG - 2**64})")], BIG)

    def test_an_id_that_is_no_integer_does_not_count(self) -> None:
        for value in (string("3"), double(3.0), raw(b"3"), NO_VALUE):
            self.assert_ids([entry(6, f"jit_f({BIG})", number=value)], BIG)

    def test_only_a_number_that_ends_the_name_is_an_id(self) -> None:
        for name in (
            *("jit_f(35)::fusion.28", "jit_f(35) ", "jit_f(3", "jit_f()", "jit_f(0x23)", "jit_f3"),
            *("jit_f(\u0663)", f"jit_f({'3' * 21})"),
        ):
            self.assert_ids([entry(6, name)], 6)
        self.assert_ids([entry(6, "jit_f(4)(35)"), entry(7, "(36)")], 35, 36)

    def test_two_keys_swapped_against_their_names(self) -> None:
        swapped = [entry(BIG - 2**64, "jit_f(7)"), entry(7, f"jit_f({BIG})", instruction="b")]
        names = [StatMetadata(i, name) for i, name in STAT_NAMES.items()]
        plane = Plane("/host:metadata", [], swapped, names)
        with programs_in(encode(Space([plane]))) as programs:
            for program_id, name in ((7, "a"), (BIG, "b")):
                found = programs.program(program_id)
                self.assertIsNotNone(found and found.instruction(name))

    def test_entries_of_other_kinds_do_not_hide_a_program(self) -> None:
        program = entry(6, "jit_f(35)")
        others = [
            entry(7, "jit_f(35)::f.1", "llo_proto", 35),
            entry(35, "SYMBOL_MAP:35", None),
            entry(8, "jit_f(35)", "llo_proto"),
            entry(9, "jit_f(35)", None),
            EventMetadata(
                10, "XDB_COMPILER_METADATA:35", [Stat(STAT_IDS["program_id"], int64(35))]
            ),
        ]
        for entries in ([program, *others], [*others, program]):
            self.assert_ids(entries, 35)

    def test_a_damaged_id_is_a_note(self) -> None:
        damaged = entry(6, "jit_f(3)")
        damaged.extra = bytes_field(5, int_field(1, STAT_IDS["program_id"]) + text_field(3, "x"))
        names = [StatMetadata(i, name) for i, name in STAT_NAMES.items()]
        plane = Plane("/host:metadata", [], [damaged, entry(7, "jit_g(4)")], names)
        with programs_in(encode(Space([plane]))) as programs:
            self.assertEqual(list(programs.sizes), [4])
            (note,) = programs.notes
            self.assertIn("XStat.uint64_value has wire type 2", note)

    def test_a_trace_without_the_plane_has_none(self) -> None:
        with programs_in(encode(Space([Plane("/device:TPU:0")]))) as programs:
            self.assertEqual((programs.names, programs.notes), ({}, []))
            self.assertIsNone(programs.program(1))

    def test_the_order_of_fields_does_not_matter(self) -> None:
        hlo = hlo_proto({"main": [op("a", "add", line="m.py:1")]})
        plane = metadata_plane({5: ("jit_f(5)", hlo)})
        with programs_in(encode(Space([plane]), lambda fields: list(reversed(fields)))) as programs:
            program = programs.program(5)
            self.assertIsNotNone(program and program.instruction("a"))

    def test_damage_in_one_entry_is_noted_and_leaves_the_others(self) -> None:
        hlo = hlo_proto({"main": [op("a", "add")]})
        wrong_wire = EventMetadata(3, "jit_g(3)", extra=int_field(5, 1))
        not_text = EventMetadata(4, extra=bytes_field(2, b"\xff\xfe"))
        plane = metadata_plane({1: ("jit_f(1)", hlo)})
        plane.event_metadata += [wrong_wire, not_text]
        plane.stat_metadata.append(StatMetadata(9, extra=int_field(2, 1)))
        with programs_in(encode(Space([plane]))) as programs:
            self.assertIsNotNone(programs.program(1))
            (note,) = programs.notes
            self.assertTrue(note.startswith(NOTE) and note.endswith(NOTE_END), note)
            self.assertIn("(and 2 more)", note)


class Damaged(unittest.TestCase):
    """What can't be read is a note and None, whatever it is."""

    takes_seconds = 10

    def assert_refused(self, hlo: bytes, what: str) -> None:
        read = Opened(hlo)
        self.assertIsNone(read.program)
        (note,) = read.notes
        self.assertTrue(note.startswith(f"{NOTE}jit_f(1): "), note)
        self.assertTrue(note.endswith(NOTE_END), note)
        self.assertIn(what, note)

    def test_what_is_no_program(self) -> None:
        good = hlo_proto({"main": [op("a", "add")]})
        self.assert_refused(b"", "no module")
        self.assert_refused(int_field(1, 5), "field 1")
        self.assert_refused(good + good, "field 1")
        self.assert_refused(good[:-1], "claims")
        self.assert_refused(b"\xff" * 40, "byte")
        self.assert_refused(bytes_field(1, bytes_field(3, b"\x12\x7f")), "claims 127 bytes")
        self.assert_refused(bytes_field(1, bytes_field(3, bytes_field(1, b"\xff"))), "UTF-8")

    def test_crowds_of_nothing(self) -> None:
        crowd = bytes_field(1, bytes_field(3, bytes_field(2, b"") * 2_000_000))
        self.assert_refused(crowd, "2000001 instructions")

    def test_a_program_is_noted_once(self) -> None:
        plane = metadata_plane({1: ("jit_f(1)", b"\xff"), 2: ("jit_g(2)", b"\xff")})
        with programs_in(encode(Space([plane]))) as programs:
            for program_id in (1, 1, 2, 2, 1):
                self.assertIsNone(programs.program(program_id))
            self.assertEqual(len(programs.notes), 2)

    def test_ids_that_are_given_twice_or_to_nothing_lead_nowhere(self) -> None:
        ops = [op("x", "abs", line="m.py:1"), op("y", "neg"), op("a", "b", "y"), op("b", "c", "x")]
        made = module({"main": ops})
        first, second, user, _ = made.computations[0].instructions
        second.id = first.id
        user.operand_ids = [77]
        user.called_computation_ids = [99]
        read = Opened(bytes_field(1, encode(made)))
        for name in ("a", "b"):
            self.assertEqual(list(read[name].operands), [])
            self.assertEqual(list(read[name].called), [])
            self.assertIsNone(likely(read, name))
        self.assertEqual(len(read.notes), 0 if read.program is None else 1)

    def test_a_name_that_two_have_is_nobodys(self) -> None:
        read = opened({"main": [op("a", "add"), op("a", "sub"), op("b", "neg")]})
        assert read.program is not None
        self.assertIsNone(read.program.instruction("a"))
        self.assertIsNotNone(read.program.instruction("b"))
        self.assertIsNone(read.program.instruction("c"))

    def test_names_with_their_sign(self) -> None:
        read = opened({"main": [op("%a", "add"), op("b", "neg")]})
        for name in ("a", "%a", "b", "%b"):
            self.assertTrue(read[name])

    def test_circles_of_operands_and_calls_end(self) -> None:
        ops = [op(f"op.{i}", "negate", f"op.{(i + 1) % 3}") for i in range(3)]
        read = opened({"main": [*ops, op("f", "fusion", calls=["main"])]})
        self.assertIsNone(likely(read, "op.0"))
        self.assertIsNone(likely(read, "op.0", sources={"op.9": "m.py:1"}))
        known = likely(read, "op.0", producer_first=True, sources={"op.2": "m.py:1"})
        self.assertEqual(known, ("m.py:1", "producer", 2))
        self.assertEqual(read["f"].lines_inside(), {})
        self.assertIsNone(read["f"].dot())
        self.assertEqual([each.name for each in read["op.0"].operands], ["op.1"])
        self.assertEqual(len(read.notes), 1)
        self.assertIn("go in a circle", read.notes[0])

    def test_operands_may_stand_behind_their_users(self) -> None:
        ops = [op("b", "abs", "a"), op("a", "abs", line="m.py:1")]
        read = opened({"main": ops})
        self.assertEqual(likely(read, "b"), ("m.py:1", "producer", 1))
        self.assertEqual(read.notes, [])

    def test_depth_is_no_matter(self) -> None:
        n = 20_000 if FULL else 5_000
        computations = {"c0": [op("deep", "convolution", "deep", "deep", line="m.py:1")]}
        for i in range(1, n):
            computations[f"c{i}"] = [op(f"f{i}", "fusion", calls=[f"c{i - 1}"])]
        line = [op("o0", "abs")] + [op(f"o{i}", "abs", f"o{i - 1}") for i in range(1, n)]
        computations["main"] = [*line, op("top", "fusion", f"o{n - 1}", calls=[f"c{n - 1}"])]
        read = opened(computations)
        self.assertEqual(read["top"].dot(), Dot("bf16", "f32"))
        self.assertEqual(read["top"].lines_inside(), {("m.py:1", "convolution"): 1})
        self.assertIsNone(likely(read, "o0"))

    def test_a_hundred_thousand_instructions_are_searched_in_bounded_time(self) -> None:
        # Each of a crowd leads to each of another by one hop over a hub, and nobody has a line.
        n = 50_000 if FULL else 1_000
        crowd = [op(f"copy-done.{i}", "copy-done") for i in range(n)]
        hub = op("hub", "tuple", *(each.name for each in crowd))
        users = [op(f"user.{i}", "copy-done", "hub") for i in range(n)]
        read = opened({"main": [*crowd, hub, *users], "far": [op("x", "abs", line="m.py:1")]})
        self.assertEqual(likely(read, "x"), ("m.py:1", "own", 0))
        with within(30):
            for i in range(n):
                self.assertIsNone(likely(read, f"copy-done.{i}"))
                self.assertIsNone(likely(read, f"user.{i}", producer_first=True))
                self.assertEqual(len(read[f"user.{i}"].chain), 1)
        self.assertEqual(len(read.notes), 1)
        self.assertIn("too tangled", read.notes[0])
        # What needs no search is answered all the same.
        self.assertEqual(likely(read, "x"), ("m.py:1", "own", 0))

    def test_noise_and_cuts_never_raise(self) -> None:
        dice = random.Random(7)
        whole = hlo_proto(everything(), frames=FRAMES, devices=(4, 2), buffers=SOME_BUFFERS)
        for _ in sampled(range(600), 150):
            data = bytearray(whole)
            for _ in range(dice.choice((1, 1, 2, 8, 64))):
                data[dice.randrange(len(data))] = dice.randrange(256)
            if dice.random() < 0.3:
                del data[dice.randrange(len(data)) :]
            read = Opened(bytes(data))
            if read.program is None:
                self.assertEqual(len(read.notes), 1)
                continue
            for computation in read.program.computations:
                for each in computation.instructions:
                    ask_everything(each)
            self.assertLessEqual(len(read.notes), 1)
            self.assertTrue(all(note.startswith(NOTE) for note in read.notes))


FRAMES = StackFrames(
    ["model.py", "train.py"],
    [(1, 7, 3), (2, 40, 1), (2, 41, 5)],
    [(2, 0), (1, 1), (3, 2)],
)


def everything() -> dict[str, list[Op]]:
    """A program with a bit of everything."""
    return {
        "fused": [
            op("p.0", "parameter", shape=array("bf16", 8, 8)),
            op("dot.1", "convolution", "p.0", "p.0", frame=2, extra=precision(2, 2)),
        ],
        "wrapped": [
            op("w.0", "parameter"),
            op(
                "ag.1",
                "all-gather",
                "w.0",
                frame=3,
                extra=bytes_field(92, iota(4, 2, [2, 4], [1, 0])),
            ),
        ],
        "main": [
            op("x", "parameter", frame=1),
            op("fusion.1", "fusion", "x", calls=["fused"]),
            op("kernel.1", "custom-call", "x", config=declared(flops="5", bytes_accessed="6")),
            op("ag-start", "async-start", "fusion.1", calls=["wrapped"], thread="sparsecore"),
            op("ag-update", "async-update", "ag-start", "kernel.1"),
            op(
                "ag-done", "async-done", "ag-update", shape=tuple_of(array("s4", 3), array("token"))
            ),
            op("ar", "all-reduce", "ag-done", extra=mesh([4, 2], [(0, 2, 2)])),
            op("permute", "collective-permute", "ar", extra=pairs((0, 1), (1, 0))),
            op("copy.1", "copy", "permute", line="model.py:9"),
        ],
    }


def ask_everything(each: Instruction) -> None:
    for producer_first in (False, True):
        each.likely_line(producer_first, {"copy.1": "x.py:1"})
    _ = each.chain, each.on_sparse_core, each.tf_op, each.line, each.stack, each.users
    _ = each.arrays, each.declared_cost, each.parameter_number, each.leaves
    _ = each.config, each.plan, each.retried, each.is_kernel
    each.dot()
    each.collective()
    each.lines_inside()


class Lines(unittest.TestCase):
    def test_a_frame_counts_before_file_and_line(self) -> None:
        read = opened(
            {
                "main": [
                    op("both", "add", frame=2, line="other.py:1"),
                    op("frame", "add", frame=3, tf_op="jit(f)/add"),
                    op("file", "add", line="dir/a b.py:12"),
                    op("none", "add"),
                ]
            },
            frames=FRAMES,
        )
        self.assertEqual(read["both"].line, "model.py:7")
        self.assertEqual(read["both"].stack, "train.py:40:1\nmodel.py:7:3")
        self.assertEqual(read["frame"].line, "train.py:41")
        self.assertEqual(read["frame"].stack, "train.py:40:1\nmodel.py:7:3\ntrain.py:41:5")
        self.assertEqual(read["frame"].tf_op, "jit(f)/add:")
        self.assertEqual(read["file"].line, "dir/a b.py:12")
        self.assertEqual((read["none"].line, read["none"].stack, read["none"].tf_op), (None,) * 3)
        self.assertEqual(read.notes, [])

    def test_broken_frames_are_none(self) -> None:
        frames = StackFrames(
            ["a.py"], [(1, 1, 1), (2, 1, 1), (1, 0, 1)], [(1, 1), (2, 0), (3, 0), (9, 0), (1, 4)]
        )
        ops = [op(f"op.{i}", "add", frame=i) for i in range(1, 7)]
        ops.append(op("op.7", "add", frame=99, line="b.py:2"))
        read = opened({"main": ops}, frames=frames)
        lines = [read[f"op.{i}"].line for i in range(1, 8)]
        self.assertEqual(lines, ["a.py:1", None, None, None, "a.py:1", None, "b.py:2"])
        # The first is its own caller, the fifth's caller is broken.
        self.assertEqual([read[f"op.{i}"].stack for i in range(1, 8)], [None] * 7)

    def test_lines_inside_are_counted_at_any_depth(self) -> None:
        read = opened(
            {
                "inner": [op("i.0", "parameter", line="m.py:9"), op("i.1", "add", line="m.py:1")],
                "fused": [
                    op("f.0", "broadcast", line="m.py:2"),
                    op("f.1", "multiply", line="m.py:2"),
                    op("f.2", "multiply", line="m.py:2"),
                    op("f.3", "add"),
                    op("f.4", "fusion", calls=["inner"], line="m.py:3"),
                ],
                "main": [
                    op("fusion.1", "fusion", calls=["fused"]),
                    op("while.1", "while", calls=["fused"]),
                    op("add.1", "add", line="m.py:1"),
                ],
            }
        )
        expected = {("m.py:2", "multiply"): 2, ("m.py:3", "fusion"): 1, ("m.py:1", "add"): 1}
        self.assertEqual(read["fusion.1"].lines_inside(), expected)
        self.assertEqual(read["while.1"].lines_inside(), {})
        self.assertEqual(read["add.1"].lines_inside(), {})


def dot_program(
    operands: Sequence[str], *, depth: int = 1, opcode: str = "convolution", extra: bytes = b""
) -> Opened:
    """A program whose op `top` is a dot, or has one `depth` fusions deep. Its output is f32."""
    names = [f"p.{i}" for i in range(len(operands))]
    body = [
        *(
            op(name, "parameter", shape=array(dtype, 8, 8))
            for name, dtype in zip(names, operands, strict=True)
        ),
        op("top" if depth == 0 else "dot.1", opcode, *names, extra=extra),
    ]
    computations = {"c0": body}
    for i in range(depth):
        name = "top" if i == depth - 1 else f"fusion.{i}"
        computations[f"c{i + 1}"] = [op(name, "fusion", calls=[f"c{i}"])]
    return opened(computations)


class Dots(unittest.TestCase):
    def test_the_wider_operand_decides_and_default_f32_is_bf16(self) -> None:
        for operands, stated, dot in (
            (("bf16", "bf16"), b"", Dot("bf16", "bf16")),
            (("f8e4m3fn", "f8e5m2"), b"", Dot("fp8", "f8e4m3fn")),
            (("f8e4m3fn", "bf16"), b"", Dot("bf16", "bf16")),
            (("f16", "bf16"), b"", Dot("fp16", "f16")),
            (("bf16", "f16"), b"", Dot("bf16", "bf16")),
            (("f32", "f32"), b"", Dot("bf16", "f32")),
            (("f32", "f32"), precision(0, 0), Dot("bf16", "f32")),
            (("f32", "f32"), precision(1, 1), Dot("fp32", "f32")),
            (("f32", "f32"), precision(2, 2), Dot("fp32", "f32")),
            (("f32", "f32"), precision(0, 2), Dot("fp32", "f32")),
            (("f32", "f32"), precision(algorithm=3), Dot("fp32", "f32")),
            (("f8e4m3fn", "f32"), b"", Dot("bf16", "f32")),
            (("f16", "f32"), b"", Dot("fp16", "f32")),
            (("bf16", "f32"), precision(2, 0), Dot("bf16", "f32")),
            (("bf16", "bf16"), precision(2, 2), Dot("bf16", "bf16")),
            (("s8", "s8"), b"", Dot("other", "s8")),
            (("s8", "bf16"), b"", Dot("other", "bf16")),
            (("bf16", "f64"), b"", Dot("other", "f64")),
            # A predicate, as in a one-hot matrix, is taken in the dtype of the other operand.
            (("pred", "bf16"), b"", Dot("bf16", "bf16")),
            (("f8e4m3fn", "pred"), b"", Dot("fp8", "f8e4m3fn")),
            (("pred", "f8e4m3fn"), b"", Dot("fp8", "f8e4m3fn")),
            (("pred", "f32"), precision(2, 0), Dot("bf16", "f32")),
            (("pred", "f32"), precision(0, 2), Dot("fp32", "f32")),
            (("f32", "pred"), b"", Dot("bf16", "f32")),
            (("pred", "s4"), b"", Dot("other", "s4")),
            (("pred", "pred"), b"", Dot("other", "pred")),
        ):
            for depth, opcode in product((0, 1, 2), ("convolution", "dot")):
                with self.subTest(operands=operands, stated=stated, depth=depth, opcode=opcode):
                    read = dot_program(operands, depth=depth, opcode=opcode, extra=stated)
                    self.assertEqual(read["top"].dot(), dot)
                    self.assertEqual(read.notes, [])

    def test_of_several_dots_the_widest_decides(self) -> None:
        def dtype_of(*dtypes: str) -> Dot | None:
            body = []
            for i, dtype in enumerate(dtypes):
                body.append(op(f"p.{i}", "parameter", shape=array(dtype, 4)))
                body.append(op(f"d.{i}", "dot", f"p.{i}", f"p.{i}"))
            return opened({"c": body, "main": [op("top", "fusion", calls=["c"])]})["top"].dot()

        self.assertEqual(dtype_of("f8e5m2", "bf16"), Dot("bf16", "bf16"))
        self.assertEqual(dtype_of("f16", "bf16"), Dot("fp16", "f16"))
        self.assertEqual(dtype_of("bf16", "s8"), Dot("other", "bf16"))

    def test_converted_predicates_count_as_what_they_are_converted_to(self) -> None:
        for dtype, dot in (("bf16", Dot("bf16", "bf16")), ("f32", Dot("bf16", "f32"))):
            body = [
                op("mask", "parameter", shape=array("pred", 8, 8)),
                op("x", "parameter", shape=array("bf16", 8, 8)),
                op("c", "convert", "mask", shape=array(dtype, 8, 8)),
                op("d", "dot", "c", "x", shape=array("f32", 8, 8)),
            ]
            program = opened({"c": body, "main": [op("top", "fusion", calls=["c"])]})
            self.assertEqual(program["top"].dot(), dot)

    def test_without_a_dot_or_its_operands_there_is_none(self) -> None:
        read = opened({"c": [op("a", "add")], "main": [op("top", "fusion", calls=["c"])]})
        self.assertIsNone(read["top"].dot())
        self.assertIsNone(read["a"].dot())
        self.assertIsNone(dot_program(["bf16"])["top"].dot())
        pair = tuple_of(array("bf16", 8), array("bf16", 8))
        read = opened({"main": [op("p", "tuple", shape=pair), op("d", "dot", "p", "p")]})
        self.assertIsNone(read["d"].dot())
        made = module({"main": [op("p", "parameter"), op("d", "dot", "p", "p")]})
        made.computations[0].instructions[1].operand_ids[1] = 9
        self.assertIsNone(Opened(bytes_field(1, encode(made)))["d"].dot())

    def test_damaged_precision_is_no_default(self) -> None:
        read = dot_program(["f32", "f32"], extra=bytes_field(51, b"\x0a\x09"))
        self.assertIsNone(read["top"].dot())


def declared(**estimate: object) -> bytes:
    return json.dumps({"custom_call_config": {"body": "TUzv", "cost_estimate": estimate}}).encode()


class DeclaredCosts(unittest.TestCase):
    def test_what_is_declared(self) -> None:
        for config, cost in (
            (declared(flops="34628173824", bytes_accessed="67108864"), (34628173824, 67108864)),
            (declared(flops=5, bytes_accessed=6.0), (5, 6)),
            (declared(flops=5, transcendentals="7"), (5, None, 7)),
            (declared(flops="0"), (0, None)),
            (declared(), (None, None)),
            (declared(flops="-1", bytes_accessed=str(1 << 63)), (None, None)),
            (declared(flops=str((1 << 63) - 1), bytes_accessed=-1), ((1 << 63) - 1, None)),
            (declared(flops=True, bytes_accessed="1e9"), (None, None)),
            (declared(flops="١٢", bytes_accessed=" 12 "), (None, None)),
            (declared(flops=float("nan"), bytes_accessed=float("inf")), (None, None)),
            (declared(flops="9" * 100_000, bytes_accessed=[1]), (None, None)),
            (declared(flops=10**400), (None, None)),
        ):
            with self.subTest(config=config[:200]):
                read = opened({"main": [op("k", "custom-call", config=config)]})
                self.assertEqual(read["k"].declared_cost, DeclaredCost(*cost))

    def test_without_a_declaration_there_is_none(self) -> None:
        for config in (
            *(None, b"", b"{}", b"[]", b"null", b'{"custom_call_config":{}}'),
            *(b'["cost_estimate"]', b'{"custom_call_config":{"cost_estimate":null}}'),
            *(
                b'{"cost_estimate"',
                b'{"cost_estimate":"\xff"}',
                b'{"cost_estimate":' + b"[" * 99_999,
            ),
        ):
            with self.subTest(config=config and config[:80]):
                read = opened({"main": [op("k", "custom-call", config=config)]})
                self.assertIsNone(read["k"].declared_cost)

    def test_only_a_kernel_declares(self) -> None:
        read = opened({"main": [op("k", "fusion", config=declared(flops="5"))]})
        self.assertIsNone(read["k"].declared_cost)


def chain_names(program: Opened, name: str) -> list[str]:
    return [part.name for part in program[name].chain]


class Chains(unittest.TestCase):
    def test_start_update_and_done_know_each_other(self) -> None:
        read = opened(
            {
                "main": [
                    op("x", "parameter"),
                    op("a-start", "async-start", "x"),
                    op("b-start", "async-start", "x"),
                    op("a-update", "async-update", "a-start", "x"),
                    op("a-done", "async-done", "a-update"),
                    op("b-done", "async-done", "b-start"),
                    op("copy-start.1", "copy-start", "b-done"),
                    op("copy-done.1", "copy-done", "copy-start.1"),
                    op("send.1", "send", "x"),
                    op("send-done.1", "send-done", "send.1"),
                ]
            }
        )
        for chain in (
            ["a-start", "a-update", "a-done"],
            ["b-start", "b-done"],
            ["copy-start.1", "copy-done.1"],
            ["send.1", "send-done.1"],
            ["x"],
        ):
            for name in chain:
                self.assertEqual(chain_names(read, name), chain)

    def test_the_nearest_start_of_the_kind_is_found_behind_other_instructions(self) -> None:
        read = opened(
            {
                "main": [
                    op("w-start", "copy-start"),
                    op("async-collective-start.1", "fusion"),
                    op("w-done", "copy-done", "w-start"),
                    op("gte.1", "get-tuple-element", "async-collective-start.1"),
                    op("fusion.7", "fusion", "w-done", "gte.1"),
                    op("gte.2", "get-tuple-element", "fusion.7"),
                    op("async-collective-done.1", "fusion", "gte.2"),
                    op("async-collective-starter", "fusion"),
                ]
            }
        )
        chain = ["async-collective-start.1", "async-collective-done.1"]
        for name in chain:
            self.assertEqual(chain_names(read, name), chain)
        for name in ("fusion.7", "async-collective-starter"):
            self.assertEqual(chain_names(read, name), [name])

    def test_a_done_whose_start_is_elsewhere_is_alone(self) -> None:
        read = opened(
            {
                "body": [
                    op("p", "parameter"),
                    op("gte.1", "get-tuple-element", "p"),
                    op("recv-done.1", "recv-done", "gte.1"),
                    op("recv.2", "recv", "recv-done.1"),
                ]
            }
        )
        self.assertEqual(chain_names(read, "recv-done.1"), ["recv-done.1"])
        self.assertEqual(chain_names(read, "recv.2"), ["recv.2"])

    def test_a_sparse_core_is_told_by_the_thread_of_any_part(self) -> None:
        read = opened(
            {
                "sc": [op("s", "abs")],
                "main": [
                    op("a-start", "async-start", calls=["sc"]),
                    op("a-done", "async-done", "a-start"),
                    op("b-start", "async-start", thread="sparsecore"),
                    op("b-done", "async-done", "b-start"),
                    op("c-start", "async-start"),
                    op("c-done", "async-done", "c-start"),
                ],
            },
            threads={"sc": "sparsecore"},
        )
        on = {name: read[name].on_sparse_core for name in ("a-done", "b-done", "c-done", "s")}
        self.assertEqual(on, {"a-done": True, "b-done": True, "c-done": False, "s": True})


class LikelyLines(unittest.TestCase):
    def test_its_own_counts_first_and_a_dones_is_its_starts(self) -> None:
        read = opened(
            {
                "main": [
                    op("x", "abs", line="m.py:1"),
                    op("copy-start.1", "copy-start", "x", line="m.py:2"),
                    op("copy-done.1", "copy-done", "copy-start.1"),
                    op("copy-start.2", "copy-start", "x"),
                    op("copy-done.2", "copy-done", "copy-start.2", line="m.py:3"),
                    op("y", "abs", "copy-done.2", line="m.py:4"),
                ]
            }
        )
        self.assertEqual(likely(read, "x"), ("m.py:1", "own", 0))
        self.assertEqual(likely(read, "copy-done.1"), ("m.py:2", "own", 0))
        self.assertEqual(likely(read, "copy-done.2"), ("m.py:3", "own", 0))
        # A start is not its done: whose line that is may be another's.
        self.assertEqual(likely(read, "copy-start.2"), ("m.py:4", "consumer", 1))

    def test_the_lines_of_the_trace_count_where_the_program_has_none(self) -> None:
        read = opened(
            {"main": [op("x", "abs"), op("copy.1", "copy", "x"), op("y", "abs", "copy.1")]}
        )
        self.assertEqual(likely(read, "copy.1", sources={"copy.1": "t.py:1"}), ("t.py:1", "own", 0))
        self.assertEqual(likely(read, "copy.1", sources={"y": "t.py:2"}), ("t.py:2", "consumer", 1))
        self.assertIsNone(likely(read, "copy.1"))

    def test_a_collective_inside_counts_before_producer_and_consumer(self) -> None:
        def program(inner: list[Op], root: str | None, *before: Op) -> Opened:
            return opened(
                {
                    "inner": inner,
                    "wrapped": [
                        op("p", "parameter", line="m.py:9"),
                        *before,
                        op("call", "custom-call", "p", calls=["inner"], line=root),
                    ],
                    "main": [
                        op("x", "abs", line="m.py:1"),
                        op("ag-start", "async-start", "x", calls=["wrapped"]),
                        op("ag-update", "async-update", "ag-start", "x"),
                        op("ag-done", "async-done", "ag-update"),
                    ],
                }
            )

        gather = op("all-gather.1", "all-gather", "p", line="m.py:5")
        other = op("all-reduce.1", "all-reduce", "p")
        inner = [op("all-gather.2", "all-gather", line="m.py:7"), op("i.1", "abs", line="m.py:8")]
        for name in ("ag-start", "ag-done"):
            for read, line in (
                (program(inner, "m.py:6", gather), "m.py:5"),
                (program(inner, "m.py:6"), "m.py:7"),
                # The first collective has none, so it is the root's.
                (program(inner, "m.py:6", other), "m.py:6"),
                (program(inner[1:], "m.py:6"), "m.py:6"),
                (program(inner[1:], None), "m.py:8"),
            ):
                self.assertEqual(likely(read, name, producer_first=True), (line, "inside", 0))

    def test_reducers_are_not_what_is_inside(self) -> None:
        read = opened(
            {
                "add": [op("sum", "add", line="lax.py:1")],
                "main": [
                    op("x", "abs", line="m.py:1"),
                    op("ar-start", "all-reduce-start", "x", calls=["add"]),
                    op("ar-done", "all-reduce-done", "ar-start"),
                ],
            }
        )
        self.assertEqual(likely(read, "ar-done"), ("m.py:1", "producer", 1))

    def test_the_producer_is_upstream_of_start_and_update_in_the_order_of_operands(self) -> None:
        read = opened(
            {
                "main": [
                    op("far", "abs", line="m.py:1"),
                    op("near", "abs", "far"),
                    op("data", "abs", line="m.py:2"),
                    op("also", "abs", line="m.py:3"),
                    op("rs-start", "async-start", "near"),
                    op("rs-update", "async-update", "rs-start", "data", "also"),
                    op("rs-done", "async-done", "rs-update"),
                    op("user.1", "abs", "rs-done"),
                    op("user.2", "abs", "rs-done", line="m.py:4"),
                    op("user.3", "abs", "rs-done", line="m.py:5"),
                ]
            }
        )
        for name in ("rs-start", "rs-done"):
            self.assertEqual(likely(read, name, producer_first=True), ("m.py:2", "producer", 1))
            self.assertEqual(likely(read, name), ("m.py:4", "consumer", 1))

    def test_who_is_asked_second_answers_where_the_first_has_nothing(self) -> None:
        before = opened({"main": [op("x", "abs", line="m.py:1"), op("copy.1", "copy", "x")]})
        self.assertEqual(likely(before, "copy.1"), ("m.py:1", "producer", 1))
        after = opened({"main": [op("copy.1", "copy"), op("x", "abs", "copy.1", line="m.py:1")]})
        self.assertEqual(likely(after, "copy.1", producer_first=True), ("m.py:1", "consumer", 1))

    def test_eight_hops_and_no_more(self) -> None:
        for hops, expected in ((8, ("m.py:1", "consumer", 8)), (9, None)):
            ops = [op("copy.0", "copy")]
            ops += [op(f"copy.{i}", "copy", f"copy.{i - 1}") for i in range(1, hops)]
            ops.append(op("end", "abs", f"copy.{hops - 1}", line="m.py:1"))
            self.assertEqual(likely(opened({"main": ops}), "copy.0"), expected)

    def test_a_parameter_is_never_the_answer(self) -> None:
        read = opened({"main": [op("x", "parameter", line="m.py:1"), op("copy.1", "copy", "x")]})
        self.assertIsNone(likely(read, "copy.1"))
        self.assertIsNone(likely(read, "copy.1", sources={"x": "m.py:1"}))

    def body(self, *callers: Op) -> Opened:
        return opened(
            {
                "body": [
                    op("p", "parameter"),
                    op("copy.1", "copy", "p"),
                    op("t", "tuple", "copy.1"),
                ],
                "main": [
                    op("x", "abs", line="m.py:1"),
                    *callers,
                    op("y", "abs", callers[0].name, line="m.py:2"),
                ],
            }
        )

    def test_the_way_leads_out_of_a_computation_that_one_instruction_calls(self) -> None:
        read = self.body(op("while.1", "while", "x", calls=["body"]))
        # copy.1 -> p -> while.1 -> x, and copy.1 -> t -> while.1 -> y.
        self.assertEqual(likely(read, "copy.1", producer_first=True), ("m.py:1", "producer", 3))
        self.assertEqual(likely(read, "copy.1"), ("m.py:2", "consumer", 3))
        # The caller's own line is nearer.
        read = self.body(op("while.1", "while", "x", calls=["body"], line="m.py:3"))
        self.assertEqual(likely(read, "copy.1", producer_first=True), ("m.py:3", "producer", 2))

    def test_it_does_not_where_two_call(self) -> None:
        read = self.body(
            op("while.1", "while", "x", calls=["body"]), op("while.2", "while", "x", calls=["body"])
        )
        self.assertIsNone(likely(read, "copy.1"))
        # One that calls it twice, as body and condition, is one.
        read = self.body(op("while.1", "while", "x", calls=["body", "body"]))
        self.assertEqual(likely(read, "copy.1"), ("m.py:2", "consumer", 3))

    def test_a_computation_that_calls_itself_is_entered_once(self) -> None:
        read = opened(
            {
                "body": [
                    op("p", "parameter"),
                    op("copy.1", "copy", "p"),
                    op("call.1", "call", "copy.1", calls=["body"]),
                    op("out", "abs", "call.1", line="m.py:1"),
                    op("t", "tuple", "copy.1"),
                ]
            }
        )
        self.assertEqual(likely(read, "copy.1"), ("m.py:1", "consumer", 2))
        self.assertEqual(likely(read, "copy.1", producer_first=True), ("m.py:1", "consumer", 2))

    def test_it_is_that_of_a_plain_search_on_random_programs(self) -> None:
        dice = random.Random(3)
        n_found = 0
        for _ in range(60):
            ops: list[Op] = []
            for i in range(30):
                names = [each.name for each in ops]
                operands = dice.sample(names, min(len(names), dice.choice((0, 1, 1, 2, 3))))
                line = f"m.py:{i + 1}" if dice.random() < 0.15 else None
                ops.append(
                    op(f"op.{i}", dice.choice(("abs", "abs", "parameter")), *operands, line=line)
                )
            read = opened({"main": ops})
            for each in ops:
                producer_first = dice.random() < 0.5
                expected = plain_search(ops, each, producer_first)
                self.assertEqual(likely(read, each.name, producer_first=producer_first), expected)
                n_found += expected is not None
        self.assertGreater(n_found, 500)


def plain_search(ops: list[Op], start: Op, producer_first: bool) -> tuple[str, str, int] | None:
    """The likely line in a program of one computation without asynchronous ops."""

    def line_of(each: Op) -> str | None:
        metadata = each.instruction.metadata
        if each.opcode == "parameter" or metadata is None or metadata.source_line is None:
            return None
        return f"m.py:{metadata.source_line}"

    def neighbours(each: Op, how: str) -> list[Op]:
        if how == "consumer":
            return [other for other in ops if each.name in other.operands]
        if each.opcode == "parameter":
            return []
        return [other for name in each.operands for other in ops if other.name == name]

    if line := line_of(start):
        return line, "own", 0
    for how in ("producer", "consumer") if producer_first else ("consumer", "producer"):
        queue, seen = [(start, 0)], [start]
        for each, hops in queue:
            for other in neighbours(each, how) if hops < 8 else []:
                if other not in seen:
                    seen.append(other)
                    queue.append((other, hops + 1))
        for each, hops in queue[1:]:
            if line := line_of(each):
                return line, how, hops
    return None


class Groups(unittest.TestCase):
    """Who takes part, in all forms that were met."""

    def test_iota(self) -> None:
        self.assertEqual(iota_groups(4, 2, [8]), ((0, 1), (2, 3), (4, 5), (6, 7)))
        self.assertEqual(iota_groups(4, 2, [2, 4], [1, 0]), ((0, 4), (1, 5), (2, 6), (3, 7)))
        self.assertEqual(iota_groups(2, 4, [4, 2], [1, 0]), ((0, 2, 4, 6), (1, 3, 5, 7)))
        self.assertEqual(iota_groups(1, 8, [2, 2, 2], [2, 1, 0]), (tuple(range(8)),))
        self.assertEqual(iota_groups(4, 2, [2, 2, 2], [0, 2, 1]), ((0, 2), (1, 3), (4, 6), (5, 7)))

    def test_mesh(self) -> None:
        self.assertEqual(mesh_groups([4, 2], [AxisPart(0)]), ((0, 2, 4, 6), (1, 3, 5, 7)))
        self.assertEqual(mesh_groups([4, 2], [AxisPart(1)]), ((0, 1), (2, 3), (4, 5), (6, 7)))
        self.assertEqual(mesh_groups([4, 2], [AxisPart(0, 2, 2)]), ((0, 2), (1, 3), (4, 6), (5, 7)))
        self.assertEqual(mesh_groups([4, 2], [AxisPart(0, 1, 2)]), ((0, 4), (1, 5), (2, 6), (3, 7)))
        both = [AxisPart(1), AxisPart(0, 1, 2)]
        self.assertEqual(mesh_groups([4, 2], both), ((0, 1, 4, 5), (2, 3, 6, 7)))
        around = [AxisPart(0, 4, 2), AxisPart(0, 1, 2)]
        self.assertEqual(mesh_groups([8], around), ((0, 1, 4, 5), (2, 3, 6, 7)))
        self.assertEqual(mesh_groups([2, 2], [AxisPart(1)], [3, 1, 2, 0]), ((0, 2), (1, 3)))
        self.assertEqual(mesh_groups([2, 2], []), ((0,), (1,), (2,), (3,)))

    def test_listed(self) -> None:
        self.assertEqual(listed_groups([[3, 1], [2, 0]]), ((0, 2), (1, 3)))
        self.assertEqual(listed_groups([]), ())
        wrong: list[int]
        for wrong in ([0, 0], [0, 1, 0], [-1], []):
            self.assertIsNone(listed_groups([[5], wrong]))
        self.assertIsNone(listed_groups([[1], [1]]))

    def test_what_contradicts_itself_is_unknown(self) -> None:
        for groups in (
            iota_groups(4, 2, [4]),
            iota_groups(4, 2, [2, 4], [1, 1]),
            iota_groups(4, 2, [2, 4], [1]),
            iota_groups(0, 8, [8]),
            iota_groups(-1, -8, [8]),
            iota_groups(1, 0, [0]),
            iota_groups(1, 1, []),
            iota_groups(1, MAX_DEVICES + 1, [MAX_DEVICES + 1]),
            iota_groups(1 << 62, 1 << 62, [1 << 62, 1 << 62]),
            mesh_groups([4, 2], [AxisPart(2)]),
            mesh_groups([4, 2], [AxisPart(-1)]),
            mesh_groups([4, 2], [AxisPart(0), AxisPart(0)]),
            mesh_groups([4, 2], [AxisPart(0, 3, 2)]),
            mesh_groups([4, 2], [AxisPart(0, 2, 4)]),
            mesh_groups([8], [AxisPart(0, 1, 4), AxisPart(0, 2, 2)]),
            mesh_groups([4, 0], [AxisPart(0)]),
            mesh_groups([2, 2], [AxisPart(0)], [0, 1, 2]),
            mesh_groups([2, 2], [AxisPart(0)], [0, 1, 2, 2]),
            mesh_groups([2] * 70, [AxisPart(0)]),
        ):
            self.assertIsNone(groups)

    def test_every_field_that_has_held_them(self) -> None:
        cut, transposed = iota(4, 2, [8]), iota(4, 2, [2, 4], [1, 0])
        by_twos = ((0, 1), (2, 3), (4, 5), (6, 7))
        spelled = bytes_field(1, packed(1, [0, 1])) + bytes_field(1, packed(1, [2, 3]))
        for field, groups in (
            (listed_field([0, 1], [2, 3]), ((0, 1), (2, 3))),
            (bytes_field(87, spelled), ((0, 1), (2, 3))),
            (bytes_field(87, bytes_field(2, cut)), by_twos),
            (bytes_field(92, transposed), ((0, 4), (1, 5), (2, 6), (3, 7))),
            (mesh([4, 2], [1]), by_twos),
            (mesh([4, 2], [0]), ((0, 2, 4, 6), (1, 3, 5, 7))),
            (mesh([4, 2], [(0, 2, 2)]), ((0, 2), (1, 3), (4, 6), (5, 7))),
            (mesh([2, 2], [1], [3, 1, 2, 0]), ((0, 2), (1, 3))),
            (b"", ()),
            (bytes_field(92, iota(3, 2, [8])), None),
            (bytes_field(87, b"\x0a\x7f"), None),
            (mesh([4, 2], [5]), None),
        ):
            with self.subTest(field=field):
                read = opened({"main": [op("x", "abs"), op("ar", "all-reduce", "x", extra=field)]})
                found = read["ar"].collective()
                expected = None if groups is None else in_groups(groups, None)
                self.assertEqual(found and found.who, expected)


class Collectives(unittest.TestCase):
    def test_one_that_is_handed_to_a_sparse_core(self) -> None:
        half, whole = array("bf16", 4, 512), array("bf16", 4, 1024, space=1)
        read = opened(
            {
                "called": [
                    op("c.0", "parameter", shape=half),
                    op("all-gather.168", "all-gather", "c.0", shape=whole, extra=mesh([4, 2], [1])),
                ],
                "wrapped": [
                    op("w.0", "parameter", shape=half),
                    op("w.1", "custom-call", "w.0", calls=["called"]),
                    op("later", "all-reduce", "w.0"),
                ],
                "main": [
                    op("x", "abs"),
                    op("ag-start", "async-start", calls=["wrapped"], thread="sparsecore"),
                    op("ag-update", "async-update", "ag-start", "x"),
                    op("ag-done", "async-done", "ag-update"),
                ],
            },
            devices=(4, 2),
        )
        expected = Collective(
            "all-gather.168",
            "all-gather",
            [Array("bf16", (4, 512), 0)],
            [Array("bf16", (4, 1024), 1)],
            Participants(2, "4 x 2, stride 1"),
        )
        for name in ("ag-start", "ag-update", "ag-done"):
            self.assertEqual(read[name].collective(), expected)
            self.assertTrue(read[name].on_sparse_core)
        self.assertEqual(read.program and read.program.n_devices, 8)
        self.assertIsNone(read["x"].collective())

    def test_a_pair_has_the_starts_operands_and_the_dones_result(self) -> None:
        data = array("bf16", 8, 256)
        read = opened(
            {
                "main": [
                    op("x", "abs", shape=data),
                    op(
                        "cp-start",
                        "collective-permute-start",
                        "x",
                        shape=tuple_of(data, data, array("u32")),
                        extra=pairs((0, 0), (2, 1)),
                    ),
                    op("cp-done", "collective-permute-done", "cp-start", shape=data),
                    op("lone-start", "all-gather-start", "x", shape=tuple_of(data, data)),
                    op("lone-done", "all-reduce-done", "x", shape=data),
                ]
            }
        )
        arrays = [Array("bf16", (8, 256), 0)]
        for name in ("cp-start", "cp-done"):
            self.assertEqual(
                read[name].collective(),
                Collective(
                    "cp-start",
                    "collective-permute",
                    arrays,
                    arrays,
                    Participants(None, "2 pairs, 1 to self"),
                ),
            )
        self.assertEqual(
            read["lone-start"].collective(),
            Collective("lone-start", "all-gather", arrays, None, Participants(None, None)),
        )
        # What a done alone takes is bookkeeping, and its groups stand on the start.
        self.assertEqual(
            read["lone-done"].collective(),
            Collective("lone-done", "all-reduce", None, arrays, None),
        )

    def test_the_devices_of_a_program(self) -> None:
        for devices, n in ((None, None), ((1, 8), 8), ((0, 8), None), ((-1, -8), None)):
            read = opened({"main": [op("x", "abs")]}, devices=devices)
            self.assertEqual(read.program and read.program.n_devices, n)


class Shapes(unittest.TestCase):
    def test_tuples_are_flattened_and_paths_lead_into_them(self) -> None:
        inner = tuple_of(array("s4", 3, 5), array("token"), array("pred", 7))
        shape = tuple_of(array("bf16", 2, 3, space=1), inner, array("f8e4m3fn"))
        read = opened({"main": [op("x", "abs", shape=shape)]})
        names = [array.dtype for array in read["x"].arrays or []]
        self.assertEqual(names, ["bf16", "s4", "pred", "f8e4m3fn"])
        self.assertEqual(
            read["x"].arrays_at([(0,), (1, 2)]),
            [Array("bf16", (2, 3), 1), Array("pred", (7,), 0)],
        )
        # Tuples are no arrays, and tokens have no data.
        for path in ((), (1,), (1, 1), (3,), (0, 0), (-1,), (1, 3)):
            self.assertEqual(read["x"].arrays_at([path]), [None])
        self.assertEqual(read.notes, [])

    def test_sizes(self) -> None:
        for dtype, dims, n_bytes in (
            *(("bf16", (2, 3), 12), ("s4", (3,), 2), ("pred", (7,), 7), ("f32", (), 4)),
            *(("f8e5m2", (5,), 5), ("c64", (2,), 16), ("f32", (0, 9), 0), ("f32", (-1,), None)),
            ("invalid", (2,), None),
        ):
            self.assertEqual(Array(dtype, dims).n_bytes, n_bytes)

    def test_of_a_dynamic_shape_only_a_run_knows_the_size(self) -> None:
        for dynamic, n_bytes in (((), 64), ((False, False), 64), ((False, True), None)):
            shape = Shape("f32", (2, 8), dynamic=dynamic)
            (only,) = opened({"main": [op("x", "abs", shape=shape)]})["x"].arrays or []
            self.assertEqual((only.dims, only.n_bytes), ((2, 8), n_bytes))

    def test_shapes_that_no_one_has(self) -> None:
        for shape in (
            Shape("f32", dims=(1,) * 65),
            Shape("tuple", parts=(array("f32"),) * 300_000),
        ):
            self.assertIsNone(opened({"main": [op("x", "abs", shape=shape)]})["x"].arrays)
        deep = int_field(2, 13)
        for _ in range(5000):
            deep = int_field(2, 13) + bytes_field(4, deep)
        read = opened({"main": [op("x", "abs", extra=bytes_field(3, deep))]})
        self.assertIsNone(read["x"].arrays)


SOME_BUFFERS = (
    buffer(14, 100, 1)
    + buffer(15, 50, 2, 0, 1, color=5)
    + allocation(0, 100, (14, 0, 100), parameter=3, index=[0, 2])
    + allocation(1, 64, (15, 8, 50), color=5)
    + allocation(2, 7, thread_local=True, live_out=True, constant=True)
    + heap_trace()
    + heap_trace((0, 15, "y", 0), (2, 14, "y", 15), (1, 15, "x", 0))
)


class Buffers(unittest.TestCase):
    def test_as_they_stand_there(self) -> None:
        computations = {"main": [op("x", "abs"), op("y", "abs", "x")]}
        read = opened(computations, buffers=SOME_BUFFERS)
        self.assertEqual(
            read.buffers,
            BufferAssignment(
                [
                    Allocation(0, 100, 0, False, True, 3, False, False, [Assigned(14, 0, 100)]),
                    Allocation(1, 64, 5, False, False, 0, False, False, [Assigned(15, 8, 50)]),
                    Allocation(2, 7, 0, True, False, 0, True, True, []),
                ],
                {14: Buffer(14, 100, read["x"], ()), 15: Buffer(15, 50, read["y"], (0, 1))},
                [
                    [],
                    [
                        HeapEvent("alloc", 15, 0, "y"),
                        HeapEvent("share", 14, 15, "y"),
                        HeapEvent("free", 15, 0, "x"),
                    ],
                ],
            ),
        )
        self.assertEqual(read.notes, [])
        self.assertIsNone(opened(computations).buffers)

    def test_damage_is_a_note(self) -> None:
        for damaged in (
            b"\x0a\x05",
            buffer(1, 5, 1) + buffer(1, 5, 1),
            buffer(1, -5, 1),
            allocation(1, -5),
            allocation(1, 5, (1, -1, 2)),
            allocation(1, 5, (1, 1, -2)),
            heap_trace((3, 1, "x", 0)),
            heap_trace((-1, 1, "x", 0)),
            bytes_field(1, b"\xff"),
            bytes_field(3, b"\xff"),
            bytes_field(4, b"\xff"),
            bytes_field(4, bytes_field(1, b"") * 2_000_000),
        ):
            with self.subTest(damaged=damaged[:80]):
                read = opened({"main": [op("x", "abs")]}, buffers=damaged)
                self.assertIsNone(read.buffers)
                (note,) = read.notes
                self.assertIn("the buffer assignment", note)
                self.assertTrue(read["x"])

    def test_a_buffer_of_no_instruction_has_none(self) -> None:
        read = opened({"main": [op("x", "abs")]}, buffers=buffer(1, 5, 99))
        self.assertEqual(read.buffers and read.buffers.buffers[1].instruction, None)
        self.assertEqual(len(read.notes), 1)


class RealOp(NamedTuple):
    instruction: Instruction | None
    metadata: plane_module.Metadata
    dur_ps: int

    @property
    def name(self) -> str:
        return self.metadata.name.partition(" = ")[0].removeprefix("%")

    def likely(self) -> LikelyLine | None:
        """With the producer first where the op sums up, or copies to the host."""
        output = self.metadata.name.partition("(")[0]
        sums = self.name.startswith(("reduce-scatter", "all-reduce"))
        assert self.instruction is not None
        return self.instruction.likely_line(sums or "S(5)" in output)


class Real(NamedTuple):
    ops: list[RealOp]
    programs: list[Program]
    buffers: list[BufferAssignment]
    notes: list[str]

    @property
    def without_stack(self) -> list[RealOp]:
        return [each for each in self.ops if each.metadata.stats.get("source_stack") is None]


@functools.cache
def real(path: Path) -> Real:
    """The ops of a real profile's first device, with the instructions that they are."""
    if not path.exists():
        raise unittest.SkipTest(f"{path.name} is not there")
    with open_trace(str(path)) as (trace,):
        plane = trace.plane("/device:TPU:0")
        durations: Counter[int] = Counter()
        for line in plane.lines("XLA Ops"):
            for events in line.events(-(1 << 80), 1 << 80):
                for metadata_id, duration in zip(
                    events.metadata_ids, events.durations, strict=True
                ):
                    durations[metadata_id] += duration
        programs = Programs(trace)
        ops = []
        for metadata_id, dur_ps in durations.items():
            metadata = plane.metadata(metadata_id)
            assert metadata is not None
            program_id = metadata.stats.get("program_id")
            program = programs.program(program_id) if isinstance(program_id, int) else None
            name = metadata.name.partition(" = ")[0]
            instruction = program.instruction(name) if program else None
            ops.append(RealOp(instruction, metadata, dur_ps))
        read = [program for each in programs.names if (program := programs.program(each))]
        buffers = [found for program in read if (found := program.buffers())]
    return Real(ops, read, buffers, programs.notes)


class RealPrograms(unittest.TestCase):
    def test_every_op_is_an_instruction_and_says_what_the_trace_says(self) -> None:
        for path, n_ops in ((TRAINING, 560), (OFFLOADING, 17)):
            with self.subTest(path.name):
                found = real(path)
                self.assertEqual(len(found.ops), n_ops)
                for each in found.ops:
                    stats = each.metadata.stats
                    assert each.instruction is not None, each.name
                    self.assertEqual(each.instruction.line, stats.get("source"))
                    stack = stats.get("source_stack")
                    # The older of the two ends it in a line's end.
                    told = stack.removesuffix("\n") if isinstance(stack, str) else None
                    self.assertEqual(each.instruction.stack, told)
                    self.assertEqual(each.instruction.tf_op, stats.get("tf_op"))
                self.assertEqual(found.notes, [])

    def test_all_time_without_a_stack_has_a_likely_line(self) -> None:
        for path in (TRAINING, OFFLOADING):
            with self.subTest(path.name):
                ops = real(path).without_stack
                known = sum(each.dur_ps for each in ops if each.likely())
                self.assertGreater(known, 0)
                self.assertEqual(known, sum(each.dur_ps for each in ops))

    def test_whose_lines_these_are(self) -> None:
        how: dict[tuple[str, str], Counter[str]] = {}
        for each in real(TRAINING).without_stack:
            found = each.likely()
            assert found is not None
            category = str(each.metadata.stats.get("hlo_category"))
            how.setdefault((each.name.partition(".")[0], category), Counter())[found.how] += 1
        self.assertEqual(how["reduce-scatter", "async-done"], {"producer": 13, "inside": 1})
        self.assertEqual(how["slice-done", "async-done"], {"consumer": 30})
        # What is copied last has no consumer.
        self.assertEqual(how["copy-done", "copy-done"], {"consumer": 86, "producer": 10})
        (line,) = {
            each.likely() for each in real(OFFLOADING).without_stack if each.name == "copy-done.5"
        }
        # A copy to the host: what it copies was made at line 29.
        assert line is not None
        self.assertEqual((line.line.rpartition(":")[2], line.how, line.hops), ("29", "producer", 1))

    def test_host_copies_have_a_line(self) -> None:
        copies = [each for each in real(OFFLOADING).ops if each.name.startswith("copy-done")]
        self.assertEqual(sum(each.dur_ps for each in copies) // 10**12, 76)
        self.assertTrue(all(each.likely() for each in copies))

    def test_all_dots_are_of_bf16(self) -> None:
        instructions = [each.instruction for each in real(TRAINING).ops if each.instruction]
        dots = Counter(each.dot() for each in instructions)
        self.assertEqual(dots, {None: 532, Dot("bf16", "bf16"): 28})

    def test_what_the_forward_kernel_declares(self) -> None:
        instructions = [each.instruction for each in real(TRAINING).ops if each.instruction]
        costs = {each.name: each.declared_cost for each in instructions if each.declared_cost}
        forward = DeclaredCost(34628173824, bytes_accessed=67108864, transcendentals=67108864)
        self.assertEqual(costs, {"flash_attention.2": forward, "flash_attention.3": forward})

    def test_lines_that_are_no_ops_own(self) -> None:
        own = set()
        inside = set()
        for each in real(TRAINING).ops:
            assert each.instruction is not None
            own.add(each.instruction.line)
            inside |= {line for line, _ in each.instruction.lines_inside()}
        hidden = {line.rpartition("/")[2] for line in inside - own}
        self.assertEqual(hidden, {"train.py:36", "train.py:53", "train.py:54"})

    def test_every_start_has_its_done_and_every_collective_its_groups(self) -> None:
        kinds: Counter[str] = Counter()
        for each in real(TRAINING).ops:
            assert each.instruction is not None
            if each.instruction.opcode.endswith(("-start", "-done")):
                chain = each.instruction.chain
                self.assertEqual(chain[0].opcode[-6:] + chain[-1].opcode[-5:], "-start-done")
            found = each.instruction.collective()
            if found is not None and each.instruction.opcode.endswith("-done"):
                kinds[found.opcode] += 1
                assert found.who is not None and found.who.label is not None
                is_permute = found.opcode == "collective-permute"
                self.assertIn("8 pairs, " if is_permute else " x ", found.who.label)
                self.assertTrue(found.inputs and found.outputs)
        gathered = {
            "all-gather": 23,
            "reduce-scatter": 14,
            "all-reduce": 1,
            "collective-permute": 4,
        }
        self.assertEqual(kinds, gathered)
        (reduced,) = (
            found
            for program in real(OFFLOADING).programs
            if (summed := program.instruction("all-reduce")) and (found := summed.collective())
        )
        self.assertEqual(reduced.who, Participants(2, "4 x 2, stride 4"))
        self.assertEqual([array.n_bytes for array in reduced.inputs or []], [5_368_709_120])
        self.assertEqual({program.n_devices for program in real(TRAINING).programs}, {8})

    def test_the_largest_buffers_and_what_defines_them(self) -> None:
        (found,) = real(TRAINING).buffers
        self.assertEqual((len(found.allocations), len(found.buffers)), (362, 2240))
        shown = set()
        inside_fusions = {
            place.buffer_id
            for each in found.allocations
            if each.is_thread_local
            for place in each.assigned
        }
        for each in found.buffers.values():
            if each.size >= 250 << 20 and each.id not in inside_fusions:
                assert each.instruction is not None
                line = (each.instruction.line or "").rpartition("/")[2]
                shown.add((each.instruction.name, each.shape_index, each.size >> 20, line))
        self.assertIn(("fusion.115", (0,), 500, "train.py:49"), shown)
        self.assertIn(("fusion.115", (1,), 250, "train.py:49"), shown)

    def test_noise_in_a_real_program_never_raises(self) -> None:
        if not OFFLOADING.exists():
            self.skipTest(f"{OFFLOADING.name} is not there")
        whole = OFFLOADING.read_bytes()
        at = whole.find(b"jit_f(12190760917235803885)")
        dice = random.Random(11)
        for _ in range(40):
            data = bytearray(whole)
            for _ in range(dice.choice((1, 4, 16))):
                data[at + 40 + dice.randrange(8000)] = dice.randrange(256)
            with programs_in(bytes(data)) as programs:
                program = programs.program(BIG)
                for computation in program.computations if program else []:
                    for each in computation.instructions:
                        ask_everything(each)
                if program:
                    program.buffers()
                self.assertLessEqual(len(programs.notes), 3)


if __name__ == "__main__":
    unittest.main()
