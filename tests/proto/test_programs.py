"""Test how programs are found, decoded and searched, and that damage in programs only adds a
note."""

from __future__ import annotations

import json
import random
import tempfile
import unittest
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _proto.hlo.backend_config import DeclaredCost
from _proto.hlo.buffers import read_buffers
from _proto.hlo.collectives import collective_of, plan_of
from _proto.hlo.dots import Dot, dot_of
from _proto.hlo.nearest_line import lines_inside, nearest_line
from _proto.hlo.program import Instruction
from _proto.hlo.programs import Programs
from _proto.hlo.replica_groups import in_groups
from _proto.hlo.shapes import Array
from _proto.trace import open_trace
from tests.builders.hlo_proto import (
    Op,
    StackFrames,
    allocation,
    array,
    buffer,
    heap_trace,
    hlo_proto,
    iota,
    listed_groups as listed_field,
    mesh,
    metadata_plane,
    module,
    op,
    packed,
    pairs,
    precision,
    tuple_of,
)
from tests.builders.xspace import (
    EventMetadata,
    Plane,
    Space,
    Stat,
    StatMetadata,
    Value,
    as_value,
    bytes_field,
    encode,
    int64,
    int_field,
    raw,
)
from tests.harness import sampled

BIG = 12190760917235803885
NOTE = "the program's HLO can't be read: "
NOTE_END = "; fields that depend on it are null"


@contextmanager
def programs_in(data: bytes | Path) -> Iterator[Programs]:
    """Open a trace and yield its programs."""
    with tempfile.TemporaryDirectory() as folder:
        path = data
        if isinstance(path, bytes):
            path = Path(folder) / "test.xplane.pb"
            path.write_bytes(data if isinstance(data, bytes) else b"")
        with open_trace(str(path)) as (trace,):
            yield Programs(trace)


class Opened:
    """Read a program from a trace; hold the program, its buffer assignment and the notes."""

    def __init__(self, hlo: bytes) -> None:
        with programs_in(encode(Space([metadata_plane({1: ("jit_f(1)", hlo)})]))) as programs:
            self.program = programs.program(1)
            # The buffer assignment must be read before the file is closed.
            self.buffers = read_buffers(self.program) if self.program else None
        self.notes = programs.notes

    def __getitem__(self, name: str) -> Instruction:
        found = self.program.instruction(name) if self.program else None
        if found is None:
            raise AssertionError(f"no {name}: {self.notes}")
        return found


def opened(computations: dict[str, list[Op]], **more: Any) -> Opened:
    return Opened(hlo_proto(computations, **more))


def main_of(*ops: Op, **more: Any) -> Opened:
    return opened({"main": list(ops)}, **more)


def nearest(program: Opened, name: str, *, producer_first: bool = False) -> tuple[str, str] | None:
    found = nearest_line(program[name], producer_first)
    return (found.line, found.how) if found else None


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
    """Return an entry of `/host:metadata` with a program of one instruction."""
    hlo = hlo_proto({"main": [op(instruction, "add")]})
    stats = [] if stat is None else [Stat(STAT_IDS[stat], raw(hlo))]
    if number is not None:
        stats.insert(0, Stat(STAT_IDS["program_id"], as_value(number)))
    return EventMetadata(key, name, stats)


class Entries(unittest.TestCase):
    """Test how programs and their ids are found in a trace."""

    def test_programs_are_found_by_signed_and_unsigned_id(self) -> None:
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

    def assert_ids(self, entries: list[EventMetadata], *ids: int) -> None:
        """Check that the entries contain readable programs with exactly the given ids."""
        names = [StatMetadata(i, name) for i, name in STAT_NAMES.items()]
        plane = Plane("/host:metadata", [], entries, names)
        with programs_in(encode(Space([plane]))) as programs:
            self.assertEqual(sorted(programs.sizes), sorted(ids))
            for program_id in ids:
                found = programs.program(program_id)
                self.assertIsNotNone(found and found.instruction("a"), program_id)
            self.assertEqual(programs.notes, [])

    def test_program_id_comes_from_the_stat_else_from_the_name_else_from_the_key(self) -> None:
        for stat in ("Hlo Proto", "HLO Proto"):
            with self.subTest(stat=stat):
                self.assert_ids([entry(6, f"jit_f({BIG})", stat, 3)], 3)
                self.assert_ids([entry(6, f"jit_f({BIG})", stat)], BIG)
                self.assert_ids([entry(6, "jit_f", stat)], 6)
                self.assert_ids([entry(BIG - 2**64, "jit_f", stat)], BIG)

    def test_program_id_in_a_name_is_a_decimal_number_in_parentheses_at_the_end(self) -> None:
        for name in (
            *("jit_f(35)::fusion.28", "jit_f(35) ", "jit_f(3", "jit_f()", "jit_f(0x23)", "jit_f3"),
            *("jit_f(\u0663)", f"jit_f({'3' * 21})"),
        ):
            with self.subTest(name=name):
                self.assert_ids([entry(6, name)], 6)
        self.assert_ids([entry(6, "jit_f(4)(35)"), entry(7, "(36)")], 35, 36)

    def test_entry_without_a_program_does_not_hide_a_program_with_the_same_id(self) -> None:
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

    def test_damaged_entries_give_a_single_note_and_keep_other_programs(self) -> None:
        hlo = hlo_proto({"main": [op("a", "add")]})
        wrong_wire = EventMetadata(3, "jit_g(3)", extra=int_field(5, 1))
        not_text = EventMetadata(4, extra=bytes_field(2, b"\xff\xfe"))
        plane = metadata_plane({1: ("jit_f(1)", hlo)})
        plane.event_metadata.append(wrong_wire)
        for damaged, n_more in ((not_text, 1), (EventMetadata(5, extra=not_text.extra), 2)):
            plane.event_metadata.append(damaged)
            with programs_in(encode(Space([plane]))) as programs:
                self.assertIsNotNone(programs.program(1))
                (note,) = programs.notes
                self.assertTrue(note.startswith(NOTE) and note.endswith(NOTE_END), note)
                self.assertIn(f"(and {n_more} more)", note)


class Damaged(unittest.TestCase):
    """Test that a damaged program is omitted and noted."""

    def test_damaged_program_is_omitted_with_the_cause_in_a_note(self) -> None:
        good = hlo_proto({"main": [op("a", "add")]})
        for hlo, what in (
            (b"", "no module"),
            (int_field(1, 5), "no module"),
            (good[:-1], "are left"),
            (b"\xff" * 40, "byte"),
            (bytes_field(1, bytes_field(3, b"\x12\x7f")), "has 127 bytes, but only 0"),
            (bytes_field(1, bytes_field(3, bytes_field(1, b"\xff"))), "UTF-8"),
        ):
            with self.subTest(what=what, hlo=hlo):
                read = Opened(hlo)
                self.assertIsNone(read.program)
                (note,) = read.notes
                self.assertTrue(note.startswith(f"{NOTE}jit_f(1): "), note)
                self.assertTrue(note.endswith(NOTE_END), note)
                self.assertIn(what, note)

    def test_references_to_missing_or_ambiguous_instructions_are_ignored(self) -> None:
        ops = [op("x", "abs", line="m.py:1"), op("y", "neg"), op("a", "b", "y"), op("b", "c", "x")]
        made = module({"main": ops})
        first, second, user, _ = made.computations[0].instructions
        second.id = first.id
        user.operand_ids = [77]
        user.called_computation_ids = [99]
        read = Opened(bytes_field(1, encode(made)))
        for name in ("a", "b"):
            self.assertEqual(list(read[name].operands), [], name)
            self.assertEqual(list(read[name].called), [], name)
            self.assertIsNone(nearest(read, name), name)
        self.assertEqual(len(read.notes), 1)
        self.assertIn("is missing or not unique", read.notes[0])

    def test_instruction_with_an_ambiguous_name_is_not_found(self) -> None:
        read = main_of(op("a", "add"), op("a", "sub"), op("b", "neg"))
        assert read.program is not None
        self.assertIsNone(read.program.instruction("a"))
        self.assertIsNotNone(read.program.instruction("b"))
        self.assertIsNone(read.program.instruction("c"))

    def test_op_is_found_although_another_instruction_inside_a_fusion_has_its_name(self) -> None:
        fused = [op("a", "neg"), op("inner", "abs")]
        loop = [op("b", "add"), op("f", "fusion", calls=["fused"])]
        main = [op("a", "add"), op("w", "while", calls=["loop"])]
        read = opened({"fused": fused, "loop": loop, "main": main})
        found = {name: read[name].computation.name for name in ("a", "b", "inner")}
        self.assertEqual(found, {"a": "main", "b": "loop", "inner": "fused"})
        self.assertEqual(read.notes, [])

    def test_searches_terminate_if_operands_or_calls_are_circular(self) -> None:
        ops = [op(f"op.{i}", "negate", f"op.{(i + 1) % 3}") for i in range(3)]
        read = main_of(*ops, op("f", "fusion", calls=["main"]))
        self.assertIsNone(nearest(read, "op.0"))
        lined = main_of(*ops[:2], op("op.2", "negate", "op.0", line="m.py:1"))
        found = nearest(lined, "op.0", producer_first=True)
        self.assertEqual(found, ("m.py:1", "producer"))
        self.assertEqual(lines_inside(read["f"]), {})
        self.assertIsNone(dot_of(read["f"]))
        self.assertEqual([operand.name for operand in read["op.0"].operands], ["op.1"])

    def test_randomly_damaged_programs_never_raise(self) -> None:
        dice = random.Random(7)
        whole = hlo_proto(everything(), frames=FRAMES, devices=(4, 2), buffers=SOME_BUFFERS)
        for case in sampled(range(600), 60):
            data = bytearray(whole)
            for _ in range(dice.choice((1, 1, 2, 8, 64))):
                data[dice.randrange(len(data))] = dice.randrange(256)
            if dice.random() < 0.3:
                del data[dice.randrange(len(data)) :]
            read = Opened(bytes(data))
            if read.program is None:
                self.assertEqual(len(read.notes), 1, case)
                continue
            for instruction in read.program.instructions():
                ask_everything(instruction)
            self.assertLessEqual(len(read.notes), 1, case)
            self.assertTrue(all(note.startswith(NOTE) for note in read.notes), read.notes)


FRAMES = StackFrames(
    ["model.py", "train.py"], [(1, 7, 3), (2, 40, 1), (2, 41, 5)], [(2, 0), (1, 1), (3, 2)]
)


def everything() -> dict[str, list[Op]]:
    """Return a program with every kind of instruction that has special handling."""
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


def ask_everything(one: Instruction) -> None:
    for producer_first in (False, True):
        nearest_line(one, producer_first)
    _ = one.chain, one.on_sparse_core, one.tf_op, one.line, one.stack, one.users, one.shape
    _ = one.arrays, one.declared_cost, one.leaves
    _ = one.config, one.is_kernel
    dot_of(one)
    collective_of(one)
    plan_of(one)
    lines_inside(one)


class Lines(unittest.TestCase):
    def test_stack_frame_takes_precedence_over_source_file_and_line(self) -> None:
        read = main_of(
            op("both", "add", frame=2, line="other.py:1"),
            op("frame", "add", frame=3, tf_op="jit(f)/add"),
            op("file", "add", line="dir/a b.py:12"),
            op("none", "add"),
            frames=FRAMES,
        )
        self.assertEqual(read["both"].line, "model.py:7")
        self.assertEqual(read["both"].stack, "train.py:40:1\nmodel.py:7:3")
        self.assertEqual(read["frame"].line, "train.py:41")
        self.assertEqual(read["frame"].stack, "train.py:40:1\nmodel.py:7:3\ntrain.py:41:5")
        self.assertEqual(read["frame"].tf_op, "jit(f)/add:")
        self.assertEqual(read["file"].line, "dir/a b.py:12")
        self.assertIsNone(read["none"].line)
        self.assertIsNone(read["none"].stack)
        self.assertIsNone(read["none"].tf_op)
        self.assertEqual(read.notes, [])

    def test_damaged_stack_frames_give_no_line_or_stack(self) -> None:
        frames = StackFrames(
            ["a.py"], [(1, 1, 1), (2, 1, 1), (1, 0, 1)], [(1, 1), (2, 0), (3, 0), (9, 0), (1, 4)]
        )
        ops = [op(f"op.{i}", "add", frame=i) for i in range(1, 7)]
        ops.append(op("op.7", "add", frame=99, line="b.py:2"))
        read = opened({"main": ops}, frames=frames)
        lines = [read[f"op.{i}"].line for i in range(1, 8)]
        self.assertEqual(lines, ["a.py:1", None, None, None, "a.py:1", None, "b.py:2"])
        # No stack is complete: frame 1 is its own caller, and frame 5's caller has no line.
        self.assertEqual([read[f"op.{i}"].stack for i in range(1, 8)], [None] * 7)


def dot_program(
    operands: Sequence[str], *, depth: int = 1, opcode: str = "convolution", extra: bytes = b""
) -> Opened:
    """Return a program in which `top` is a dot, or a fusion with a dot at the given depth."""
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
    def test_dot_has_the_wider_dtype_but_f32_at_default_precision_counts_as_bf16(self) -> None:
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
            (("s8", "s8"), b"", Dot("int8", "s8")),
            (("s8", "bf16"), b"", Dot("bf16", "bf16")),
            (("bf16", "f64"), b"", Dot("other", "f64")),
            # If one operand is a predicate, as in a one-hot matmul, the other operand's dtype is
            # used.
            (("pred", "bf16"), b"", Dot("bf16", "bf16")),
            (("f8e4m3fn", "pred"), b"", Dot("fp8", "f8e4m3fn")),
            (("pred", "f8e4m3fn"), b"", Dot("fp8", "f8e4m3fn")),
            (("pred", "f32"), precision(2, 0), Dot("bf16", "f32")),
            (("pred", "f32"), precision(0, 2), Dot("fp32", "f32")),
            (("f32", "pred"), b"", Dot("bf16", "f32")),
            (("pred", "s4"), b"", Dot("int4", "s4")),
            (("s4", "u8"), b"", Dot("int8", "u8")),
            (("pred", "pred"), b"", Dot("other", "pred")),
        ):
            for depth, opcode in ((0, "dot"), (1, "convolution"), (2, "dot")):
                with self.subTest(operands=operands, stated=stated, depth=depth, opcode=opcode):
                    read = dot_program(operands, depth=depth, opcode=opcode, extra=stated)
                    self.assertEqual(dot_of(read["top"]), dot)
                    self.assertEqual(read.notes, [])

    def test_dtype_of_several_dots_is_that_of_the_widest(self) -> None:
        def dtype_of(*dtypes: str) -> Dot | None:
            body = []
            for i, dtype in enumerate(dtypes):
                body.append(op(f"p.{i}", "parameter", shape=array(dtype, 4)))
                body.append(op(f"d.{i}", "dot", f"p.{i}", f"p.{i}"))
            return dot_of(opened({"c": body, "main": [op("top", "fusion", calls=["c"])]})["top"])

        self.assertEqual(dtype_of("f8e5m2", "bf16"), Dot("bf16", "bf16"))
        self.assertEqual(dtype_of("f16", "bf16"), Dot("fp16", "f16"))
        self.assertEqual(dtype_of("bf16", "s32"), Dot("other", "s32"))

    def test_dot_is_none_if_there_is_no_dot_or_an_operand_is_unknown(self) -> None:
        read = opened({"c": [op("a", "add")], "main": [op("top", "fusion", calls=["c"])]})
        self.assertIsNone(dot_of(read["top"]))
        self.assertIsNone(dot_of(read["a"]))
        self.assertIsNone(dot_of(dot_program(["bf16"])["top"]))
        pair = tuple_of(array("bf16", 8), array("bf16", 8))
        read = main_of(op("p", "tuple", shape=pair), op("d", "dot", "p", "p"))
        self.assertIsNone(dot_of(read["d"]))
        made = module({"main": [op("p", "parameter"), op("d", "dot", "p", "p")]})
        made.computations[0].instructions[1].operand_ids[1] = 9
        self.assertIsNone(dot_of(Opened(bytes_field(1, encode(made)))["d"]))


def declared(**estimate: object) -> bytes:
    return json.dumps({"custom_call_config": {"body": "TUzv", "cost_estimate": estimate}}).encode()


class DeclaredCosts(unittest.TestCase):
    def test_declared_costs_that_are_not_valid_counts_are_none(self) -> None:
        for config, cost in (
            (declared(flops="34628173824", bytes_accessed="67108864"), (34628173824, 67108864)),
            (declared(flops=5, bytes_accessed=6.0), (5, 6)),
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
                read = main_of(op("k", "custom-call", config=config))
                self.assertEqual(read["k"].declared_cost, DeclaredCost(*cost))


def chain_names(program: Opened, name: str) -> list[str]:
    return [part.name for part in program[name].chain]


class Chains(unittest.TestCase):
    def test_done_is_paired_with_its_start_across_unrelated_instructions(self) -> None:
        read = main_of(
            op("w-start", "copy-start"),
            op("async-collective-start.1", "fusion"),
            op("w-done", "copy-done", "w-start"),
            op("gte.1", "get-tuple-element", "async-collective-start.1"),
            op("fusion.7", "fusion", "w-done", "gte.1"),
            op("gte.2", "get-tuple-element", "fusion.7"),
            op("async-collective-done.1", "fusion", "gte.2"),
            op("async-collective-starter", "fusion"),
        )
        chain = ["async-collective-start.1", "async-collective-done.1"]
        for name in chain:
            self.assertEqual(chain_names(read, name), chain, name)
        for name in ("fusion.7", "async-collective-starter"):
            self.assertEqual(chain_names(read, name), [name])


class NearestLines(unittest.TestCase):
    def test_line_of_a_wrapped_collective_is_preferred_to_producer_and_consumer(self) -> None:
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
                # The first collective has no line, so the root's line is used.
                (program(inner, "m.py:6", other), "m.py:6"),
                (program(inner[1:], "m.py:6"), "m.py:6"),
                (program(inner[1:], None), "m.py:8"),
            ):
                self.assertEqual(nearest(read, name, producer_first=True), (line, "inside"))

    def test_producers_of_start_update_and_done_are_searched(self) -> None:
        read = main_of(
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
        )
        for name in ("rs-start", "rs-done"):
            self.assertEqual(nearest(read, name, producer_first=True), ("m.py:2", "producer"))
            self.assertEqual(nearest(read, name), ("m.py:4", "consumer"))

    def test_lines_are_found_up_to_eight_hops_away(self) -> None:
        for hops, expected in ((8, ("m.py:1", "consumer")), (9, None)):
            ops = [op("copy.0", "copy")]
            ops += [op(f"copy.{i}", "copy", f"copy.{i - 1}") for i in range(1, hops)]
            ops.append(op("end", "abs", f"copy.{hops - 1}", line="m.py:1"))
            self.assertEqual(nearest(opened({"main": ops}), "copy.0"), expected)

    def test_line_of_a_parameter_is_not_used_as_the_nearest_line(self) -> None:
        read = main_of(op("x", "parameter", line="m.py:1"), op("copy.1", "copy", "x"))
        self.assertIsNone(nearest(read, "copy.1"))

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

    def test_search_continues_at_the_only_caller_of_a_computation(self) -> None:
        read = self.body(op("while.1", "while", "x", calls=["body"]))
        # The paths are copy.1 -> p -> while.1 -> x, and copy.1 -> t -> while.1 -> y.
        self.assertEqual(nearest(read, "copy.1", producer_first=True), ("m.py:1", "producer"))
        self.assertEqual(nearest(read, "copy.1"), ("m.py:2", "consumer"))
        # If the calling instruction has its own line, that line is nearer.
        read = self.body(op("while.1", "while", "x", calls=["body"], line="m.py:3"))
        self.assertEqual(nearest(read, "copy.1", producer_first=True), ("m.py:3", "producer"))

    def test_search_ends_in_a_computation_with_two_callers(self) -> None:
        read = self.body(
            op("while.1", "while", "x", calls=["body"]), op("while.2", "while", "x", calls=["body"])
        )
        self.assertIsNone(nearest(read, "copy.1"))
        # An instruction that uses the computation as body and condition counts as a single caller.
        read = self.body(op("while.1", "while", "x", calls=["body", "body"]))
        self.assertEqual(nearest(read, "copy.1"), ("m.py:2", "consumer"))


class Groups(unittest.TestCase):
    """Test all known encodings of the devices that take part in a collective."""

    def test_groups_are_read_from_the_fields_of_all_compiler_versions(self) -> None:
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
                read = main_of(op("x", "abs"), op("ar", "all-reduce", "x", extra=field))
                found = collective_of(read["ar"])
                expected = None if groups is None else in_groups(groups, None)
                self.assertEqual(found and found.who, expected)


class Collectives(unittest.TestCase):
    def test_start_alone_has_no_outputs_and_done_alone_no_inputs(self) -> None:
        data, arrays = array("bf16", 8, 256), [Array("bf16", (8, 256), 0)]
        read = main_of(
            op("x", "abs", shape=data),
            op("start", "all-gather-start", "x", shape=tuple_of(data, data)),
            op("done", "all-reduce-done", "x", shape=data),
        )
        for name, expected in (("start", (arrays, None)), ("done", (None, arrays))):
            found = collective_of(read[name])
            self.assertEqual(found and (found.inputs, found.outputs), expected)

    def test_number_of_devices_comes_from_the_device_assignment(self) -> None:
        for devices, n in ((None, None), ((1, 8), 8), ((0, 8), None), ((-1, -8), None)):
            read = main_of(op("x", "abs"), devices=devices)
            self.assertEqual(read.program and read.program.n_devices, n)


class Shapes(unittest.TestCase):
    def test_nested_tuples_are_flattened_and_leaves_have_paths(self) -> None:
        inner = tuple_of(array("s4", 3, 5), array("token"), array("pred", 7))
        shape = tuple_of(array("bf16", 2, 3, space=1), inner, array("f8e4m3fn"))
        read = main_of(op("x", "abs", shape=shape))
        names = [array.dtype for array in read["x"].arrays or []]
        self.assertEqual(names, ["bf16", "s4", "pred", "f8e4m3fn"])
        # A token has no data, so its leaf is None.
        leaves = [(path, array and array.dtype) for path, array in read["x"].leaves or []]
        expected = [((0,), "bf16"), ((1, 0), "s4"), ((1, 1), None), ((1, 2), "pred")]
        self.assertEqual(leaves, [*expected, ((2,), "f8e4m3fn")])
        self.assertEqual(read["x"].shape, "(bf16[2,3], (s4[3,5], token[], pred[7]), f8e4m3fn[])")
        self.assertEqual(read.notes, [])

    def test_type_that_only_newer_compilers_have_is_invalid(self) -> None:
        newer = op("x", "abs")
        newer.instruction.shape, newer.instruction.extra = None, bytes_field(3, int_field(2, 99))
        self.assertEqual(main_of(newer)["x"].shape, "invalid[]")

    def test_arrays_have_a_size_in_bytes(self) -> None:
        for dtype, dims, n_bytes in (
            *(("bf16", (2, 3), 12), ("s4", (3,), 2), ("pred", (7,), 7), ("f32", (), 4)),
            *(("f8e5m2", (5,), 5), ("c64", (2,), 16), ("f32", (0, 9), 0), ("f32", (-1,), None)),
            ("invalid", (2,), None),
        ):
            self.assertEqual(Array(dtype, dims).n_bytes, n_bytes, dtype)


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
    def test_damaged_buffer_assignment_is_noted(self) -> None:
        for damaged in (
            b"\x0a\x05",
            buffer(1, 5, 1) + buffer(1, 5, 1),
            allocation(1, -5),
            bytes_field(1, b"\xff"),
            bytes_field(3, b"\xff"),
            bytes_field(4, b"\xff"),
        ):
            with self.subTest(damaged=damaged[:80]):
                read = main_of(op("x", "abs"), buffers=damaged)
                self.assertIsNone(read.buffers)
                (note,) = read.notes
                self.assertIn("the buffer assignment", note)
                self.assertTrue(read["x"])
