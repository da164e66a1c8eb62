"""Test the mode `memory`: the HBM peak of small buffer assignments and of real programs."""

from __future__ import annotations

import unittest
from collections.abc import Sequence
from typing import Any

from tests.builders import hlo_proto
from tests.builders.hlo_proto import (
    ALLOC,
    FREE,
    SHARE,
    StackFrames,
    allocation,
    array,
    buffer,
    heap_trace,
    metadata_plane,
    op as instruction,
    tuple_of,
)
from tests.builders.xspace import Op, Space, encode, op, tpu_plane
from tests.harness import DEMO, Json, answer, run

BOUND = "the peak is an upper bound: "
DAMAGED = "the program's HLO can't be read: "
# Instruction ids, which start at 1.
X, Y, Z = 1, 2, 3
MAIN = [
    instruction("x", "parameter", tf_op="params['w']['b']"),
    instruction("y", "negate", "x", line="m.py:2"),
    instruction("z", "add", "x", "y", line="m.py:3", tf_op="jit(f)/add"),
]
RUN = (op("y", "loop fusion", 100, 10), op("z", "loop fusion", 150, 10))


def traced(
    buffers: bytes | None,
    *,
    main: Sequence[hlo_proto.Op] = MAIN,
    ran: Sequence[Op] = RUN,
    **more: Any,
) -> bytes:
    """Encode a trace of the given ops, with their program and its buffer assignment."""
    for ran_op in ran:
        ran_op.stats.setdefault("program_id", 7)
    program = hlo_proto.hlo_proto({"main": list(main)}, buffers=buffers, **more)
    plane = tpu_plane(list(ran), [("s", 90, 200)])
    return encode(Space([plane, metadata_plane({7: ("jit_f(7)", program)})]))


def result_of(buffers: bytes, *options: str, **more: Any) -> Json:
    return answer(traced(buffers, **more), "memory", *options)


def whole(number: int, size: int, **flags: Any) -> bytes:
    """Encode an allocation that consists of a single buffer of `x`."""
    return buffer(number, size, X) + allocation(number, size, (number, 0, size), **flags)


def heap(size: int, *ids: int, number: int = 90) -> bytes:
    """Encode a temporary allocation that holds the given buffers."""
    return allocation(number, size, *((i, 0, 0) for i in ids))


def buffers_of(sizes: dict[int, int], made_by: int = Y) -> bytes:
    return b"".join(buffer(i, size, made_by) for i, size in sizes.items())


def parsed(events: str) -> list[tuple[int, int, str, int]]:
    """Parse heap events of `y`: `+1` allocates buffer 1, `-1` frees it, and with `2=1`, buffer 2
    shares its memory."""
    found = []
    for event in events.split():
        number, _, shared = event.lstrip("+-").partition("=")
        kind = SHARE if shared else FREE if event.startswith("-") else ALLOC
        found.append((kind, int(number), "y", int(shared or 0)))
    return found


def rows(result: Json, *names: str) -> list[Any]:
    found = [tuple(row[name] for name in names) for row in result["buffers"]]
    return [row[0] for row in found] if len(names) == 1 else found


class MemoryTest(unittest.TestCase):
    def assert_peak(self, expected: int, buffers: bytes, live: Sequence[int] | None = None) -> Json:
        result = result_of(buffers)
        self.assertEqual(result["peak_bytes"], expected)
        if live is not None:
            self.assertEqual(rows(result, "bytes"), list(live))
        self.assert_adds_up(result)
        return result

    def assert_adds_up(self, result: Json) -> None:
        peak = result["peak_bytes"]
        for name in ("by_source", "by_op_name", "by_argument"):
            self.assertEqual(sum(row["bytes"] for row in result[name]), peak)
        self.assertEqual(sum(result["by_kind"].values()), peak)
        self.assertEqual(sum(rows(result, "bytes")) + result["tail"]["bytes"], peak)
        self.assertGreaterEqual(result["reserved_bytes"], peak)

    def assert_absent(self, reason: str, data: bytes, note: str | None = None) -> None:
        outcome = run(data, "memory")
        result = outcome.object
        self.assertEqual((result["status"], result.get("reason")), ("absent", reason))
        self.assertEqual((outcome.status, outcome.stderr.count("\n")), (0, 1))
        self.assertTrue(outcome.stderr.startswith(f"compute_breakdown: {reason}"))
        notes = [line for line in result["notes"] if line.startswith(DAMAGED)]
        self.assertEqual(len(notes), 0 if note is None else 1, notes)
        self.assertIn(note or "", "".join(notes))


class Lasting(MemoryTest):
    """Test allocations that last as long as the program."""

    def test_allocations_are_classified_by_kind(self) -> None:
        result = self.assert_peak(
            15,
            whole(1, 1, parameter=0, live_out=True, constant=True)
            + whole(2, 2, live_out=True, constant=True)
            + whole(3, 4, constant=True)
            + whole(4, 8, parameter=2),
            [8, 4, 2, 1],
        )
        by_kind = {"parameter": 9, "output": 2, "constant": 4, "temporary": 0}
        self.assertEqual(result["by_kind"], by_kind)
        kinds = ["parameter", "constant", "output", "parameter"]
        self.assertEqual(rows(result, "kind"), kinds)
        self.assertEqual(rows(result, "pct_of_peak"), [53.333, 26.667, 13.333, 6.667])
        self.assertIsNone(result["peak_at"])


class Heap(MemoryTest):
    """Test buffers that share the temporary memory."""

    def test_peak_of_a_heap_depends_on_its_events(self) -> None:
        for what, sizes, size, events, live in (
            ("shared memory counts once", {1: 8, 2: 8, 3: 7}, 15, "+1 2=1 -1 +3 -2", [8, 7]),
            ("sharing keeps freed memory", {1: 8, 2: 8, 3: 7}, 15, "+1 -1 2=1 +3", [8, 7]),
            ("sharing is transitive", {1: 8, 2: 8, 3: 8}, 8, "+1 2=1 3=2", [8]),
            # Like the index table of a tuple, buffer 2 has no event in the heap trace.
            ("buffers without events do not count", {1: 8, 2: 32}, 40, "+1", [8]),
        ):
            with self.subTest(what):
                # The second buffer is of `z`, but the first one owns the memory.
                buffers = b"".join(buffer(i, n, Z if i == 2 else Y) for i, n in sizes.items())
                heaps = heap(size, *sizes) + heap_trace(*parsed(events))
                result = self.assert_peak(sum(live), buffers + heaps, live)
                self.assertEqual(rows(result, "hlo_op")[0], "y")

    def test_heap_events_of_buffers_outside_of_hbm_heaps_are_ignored(self) -> None:
        self.assert_peak(
            9,
            whole(5, 1, parameter=0)
            + buffers_of({1: 8, 2: 16, 3: 32})
            + heap(8, 1)
            + allocation(2, 64, (2, 0, 16), color=1)
            + heap_trace(*((ALLOC, i, "y", 0) for i in (3, 2, 1, 5))),
            [8, 1],
        )

    def test_peaks_of_several_heaps_are_summed_with_a_note(self) -> None:
        for copies in (1, 2):
            with self.subTest(copies=copies):
                # Compilers repeat the heap's trace for each of its allocations.
                events = [(ALLOC, 1, "y", 0), (FREE, 1, "y", 0), (ALLOC, 2, "z", 0)]
                result = self.assert_peak(
                    24,
                    buffers_of({1: 8, 2: 16})
                    + heap(8, 1)
                    + heap(20, 2, number=91)
                    + heap_trace(*events) * copies,
                    [16, 8],
                )
                self.assertEqual(result["peak_at"]["hlo_op"], "z")
                self.assertEqual(len([n for n in result["notes"] if n.startswith(BOUND)]), 1)

    def test_heap_without_a_trace_counts_in_full(self) -> None:
        result = self.assert_peak(20, buffers_of({1: 8, 2: 9}) + heap(20, 1, 2), [20])
        self.assertEqual(rows(result, "kind", "hlo_op"), [("temporary", "y")])
        self.assertIn(f"{BOUND}20 bytes", " ".join(result["notes"]))
        self.assertIsNone(result["peak_at"])
        result = self.assert_peak(
            29, buffers_of({1: 8}) + heap(20, 1) + heap(9, number=91), [20, 9]
        )
        self.assertIn(f"{BOUND}29 bytes", " ".join(result["notes"]))
        # An empty heap causes no note.
        result = self.assert_peak(1, whole(1, 1, parameter=0) + heap(0), [1])
        self.assertFalse(any(note.startswith(BOUND) for note in result["notes"]))


class Contradictions(MemoryTest):
    def test_contradictory_assignment_is_rejected_with_a_note(self) -> None:
        some = buffers_of({1: 8, 2: 8})
        fine = some + heap(16, 1, 2)
        for why, buffers in {
            "unknown buffer 3": fine + heap_trace((ALLOC, 3, "y", 0)),
            "refers to the unknown buffer 3": some + heap(16, 1, 3),
            "is in two allocations": fine + allocation(0, 8, (1, 0, 8), live_out=True),
            "exceeds allocation": some + allocation(0, 16, (1, 9, 8)),
            "2 is freed": fine + heap_trace((ALLOC, 1, "y", 0), (FREE, 2, "y", 0)),
            "1 is freed": fine
            + heap_trace((ALLOC, 1, "y", 0), (FREE, 1, "y", 0), (FREE, 1, "y", 0)),
            "allocated twice": fine + heap_trace((ALLOC, 1, "y", 0), (ALLOC, 1, "y", 0)),
            "shares memory with 2": fine + heap_trace((SHARE, 1, "y", 2)),
            "is smaller than": some
            + heap(15, 1, 2)
            + heap_trace((ALLOC, 1, "y", 0), (ALLOC, 2, "y", 0)),
            "allocation 90 is smaller than": some
            + heap(15, 1, 2)
            + heap_trace((ALLOC, 1, "y", 0))
            + heap_trace((ALLOC, 2, "y", 0)),
            "disagree about buffer 1": fine
            + heap_trace((ALLOC, 1, "y", 0))
            + heap_trace((ALLOC, 2, "y", 0), (ALLOC, 1, "y", 0)),
            "two buffers have the id 1": fine + buffers_of({1: 8}),
            "buffer 3 has a negative size": buffers_of({3: -1}) + heap(16, 3),
            "allocation 0 has a negative size": fine + allocation(0, -1),
            "buffer 1 has a negative": some + allocation(1, 16, (1, -8, 8)),
            "buffer 2 has a negative": some + allocation(2, 16, (2, 0, -8)),
            "kind -1": fine + heap_trace((-1, 1, "y", 0)),
            "kind 3": fine + heap_trace((3, 1, "y", 0)),
            "field 1 has 5 bytes": fine + b"\x0a\x05",
            "the buffer assignment has no allocations": b"",
        }.items():
            with self.subTest(why):
                self.assert_absent("no_buffer_assignment", traced(buffers), why)

    def test_answer_is_absent_without_a_program(self) -> None:
        plane = tpu_plane([op("y", "loop fusion", 100, 10, program_id=7)], [("s", 90, 200)])
        nameless = tpu_plane([op("y", "loop fusion", 100, 10)], [("s", 90, 200)])
        for planes, note in (
            ([plane], None),
            ([nameless, metadata_plane({7: ("f", hlo_proto.hlo_proto({"main": MAIN}))})], None),
            ([plane, metadata_plane({7: ("f", None), 8: ("g", b"")})], None),
            ([plane, metadata_plane({7: ("f", b"no program")})], "f"),
        ):
            self.assert_absent("no_program", encode(Space(planes)), note)


class Rows(MemoryTest):
    def test_buffers_are_ordered_by_size_name_and_index(self) -> None:
        main = [instruction("b", "fusion"), instruction("a", "fusion"), *MAIN]
        made = [(1, 8, 1, 1), (2, 8, 1, 0), (3, 8, 2), (4, 9, 3), (7, 8, 99)]
        result = result_of(
            b"".join(buffer(*facts) for facts in made)
            + b"".join(allocation(i, size, (i, 0, size), live_out=True) for i, size, *_ in made)
            # These allocations have no buffer.
            + b"".join(allocation(i, 8, live_out=True) for i in (5, 6)),
            main=main,
        )
        self.assertEqual(rows(result, "hlo_op"), ["x", *[None] * 3, "a", "b", "b"])

    def test_buffer_of_a_tuple_element_has_its_shape(self) -> None:
        shape = tuple_of(array("bf16", 4, 8), tuple_of(array("f32"), array("token")))
        main = [instruction("x", "fusion", shape=shape)]
        for index, expected in (
            ((0,), "bf16[4,8]"),
            ((1, 0), "f32[]"),
            ((), None),
            ((1,), None),
            ((1, 1), None),
            ((9,), None),
        ):
            buffers = buffer(1, 8, 1, *index) + allocation(0, 8, (1, 0, 8), live_out=True)
            self.assertEqual(rows(result_of(buffers, main=main), "shape"), [expected])

    def test_parameters_are_grouped_by_argument(self) -> None:
        paths = ("params['w']['b']", "params.x", "opt_state[0].mu['w']", "tok", "['x']", "[]", None)
        main = [instruction(f"p{i}", "parameter", tf_op=path) for i, path in enumerate(paths)]
        main.append(instruction("y", "negate", tf_op="jit(f)/neg"))
        result = result_of(
            b"".join(
                buffer(i, 1, i) + allocation(i, 1, (i, 0, 1), parameter=i)
                for i in range(1, len(main) + 1)
            ),
            main=main,
        )
        shares = [(row["argument"], row["bytes"]) for row in result["by_argument"]]
        named = [("params", 2), ("opt_state", 1), ("tok", 1), ("x", 1)]
        self.assertEqual(shares, [*named, (None, 3)])
        tf_ops = {path and f"{path}:" for path in (*paths, "jit(f)/neg")}
        self.assertEqual(set(rows(result, "tf_op")), tf_ops)

    def test_buffers_have_the_likely_source_line_of_their_instruction(self) -> None:
        frames = StackFrames(["m.py"], [(1, 7, 3), (1, 9, 5)], [(1, 0), (2, 1)])
        main = [
            # A parameter's own line says little about the buffer, so it is not used.
            instruction("p", "parameter", line="m.py:1"),
            instruction("copy", "copy", "p"),
            instruction("use", "negate", "copy", frame=2),
            instruction("end", "copy", "use"),
        ]
        buffers = b"".join(
            buffer(i, 9 - i, i) + allocation(i, 9 - i, (i, 0, 1), live_out=True)
            for i in range(1, 6)
        )
        result = result_of(buffers, main=main, frames=frames)
        expected = [
            ("m.py:9", "consumer"),
            ("m.py:9", "consumer"),
            ("m.py:9", "own"),
            ("m.py:9", "producer"),
            (None, None),
        ]
        self.assertEqual(rows(result, "source_inner", "source_is"), expected)
        sources = [tuple(row.values()) for row in result["by_source"]]
        self.assertEqual(sources, [("m.py:9", 26, 4), (None, 4, 1)])
        # The source in the trace takes precedence over the one in the program.
        ran = [op("end", "copy", 100 + i, 10, source=f"n.py:{5 - i}") for i in range(2)]
        result = result_of(buffers, main=main, frames=frames, ran=ran)
        self.assertEqual(rows(result, "source_inner", "source_is")[3], ("n.py:5", "own"))


class Padding(MemoryTest):
    SHAPED = (
        instruction("x", "parameter", shape=array("bf16", 2, 3)),
        instruction("y", "negate", "x", shape=tuple_of(array("s4", 3), array("pred", 5))),
        instruction("z", "add", "x", "y", shape=array("f32", 4), tf_op="jit(f)/add"),
    )

    def test_padding_is_the_part_of_a_buffer_beyond_its_array(self) -> None:
        # Cases: an array of 12 bytes in a buffer of 32; a tuple; 3 packed s4 elements in 16 bytes;
        # an array without padding; a buffer that is smaller than its array.
        result = result_of(
            buffer(1, 32, X)
            + allocation(0, 32, (1, 0, 32), parameter=0)
            + buffer(2, 8, Y)
            + buffer(3, 16, Y, 0)
            + buffer(4, 5, Y, 1)
            + buffer(5, 15, Z)
            + heap(99, 2, 3, 4, 5)
            + heap_trace(*((ALLOC, i, "z", 0) for i in (2, 3, 4, 5))),
            main=self.SHAPED,
        )
        self.assertEqual(
            rows(result, "bytes", "shape", "padding_bytes"),
            [
                (32, "bf16[2,3]", 20),
                (16, "s4[3]", 14),
                (15, "f32[4]", None),
                (8, None, None),
                (5, "pred[5]", 0),
            ],
        )
        self.assertEqual(result["padding_bytes"], 20 + 14)
        self.assert_adds_up(result)
        self.assertEqual(
            result["by_op_name"],
            [
                {"tf_op": "jit(f)/add:", "bytes": 15, "n_buffers": 1},
                {"tf_op": None, "bytes": 32 + 16 + 8 + 5, "n_buffers": 4},
            ],
        )

    def test_non_default_memories_are_summed_by_color(self) -> None:
        result = result_of(
            whole(1, 4, parameter=0)
            + whole(2, 8, color=5)
            + whole(3, 16, color=1)
            + whole(4, 32, color=1)
            + whole(5, 64, color=1, thread_local=True)
        )
        self.assertEqual(list(result["other_spaces"].items()), [("5", 8), ("1", 48)])
        self.assertEqual(result_of(whole(1, 4, parameter=0))["other_spaces"], {})


class PeakAt(MemoryTest):
    BUFFERS = buffers_of({1: 8}) + heap(8, 1)

    def test_peak_has_its_instruction_and_source_line(self) -> None:
        result = result_of(self.BUFFERS + heap_trace((ALLOC, 1, "z", 0)))
        expected = {
            "hlo_op": "z",
            "source_inner": "m.py:3",
            "source_is": "own",
            "tf_op": "jit(f)/add:",
        }
        self.assertEqual(result["peak_at"], expected)


class Roles(MemoryTest):
    """Test the roles of buffers in a training step of a model with one table."""

    TABLE, ROWS = array("f32", 64, 8), array("f32", 16, 8)
    FORWARD, BACKWARD = "jit(f)/jvp(layer)/dot:", "jit(f)/transpose(jvp(layer))/dot:"
    STEP = (
        instruction("w", "parameter", shape=TABLE, tf_op="state['w']"),
        instruction("m", "parameter", shape=TABLE, number=1, tf_op="state['m']"),
        instruction("x", "parameter", shape=ROWS, number=2, tf_op="x"),
        instruction("rows", "gather", "w", "x", shape=ROWS),
        instruction("logits", "add", "rows", "w", shape=array("f32", 16, 64)),
        instruction("scratch", "add", "logits", shape=array("f32", 16, 3)),
        instruction("grad", "add", "scratch", "rows", shape=TABLE),
        instruction("update", "add", "m", "grad", shape=TABLE),
        instruction("unread", "custom-call", shape=ROWS),
    )

    def roles(self, *donated: int) -> Json:
        """Return the roles if each buffer has as many bytes as the sum of all before it, plus 1."""
        phases = {"rows": self.FORWARD, "logits": self.FORWARD}
        phases |= {"scratch": self.BACKWARD, "grad": self.BACKWARD}
        ran = [
            op(of.name, "loop fusion", 100 + i, 1, tf_op=phases.get(of.name, "jit(f)/add:"))
            for i, of in enumerate(self.STEP[3:8])
        ]
        buffers = b"".join(buffer(i + 1, 1 << i, i + 1) for i in range(len(self.STEP)))
        buffers += b"".join(
            allocation(i, 1 << i, (i + 1, 0, 1 << i), parameter=i) for i in range(3)
        )
        buffers += heap(1 << 9, *range(4, 10), number=9)
        buffers += heap_trace(*((ALLOC, i, "x", 0) for i in range(4, 10)))
        aliased = hlo_proto.aliases(*((number, ()) for number in donated))
        result = result_of(buffers, main=self.STEP, ran=ran, extra=aliased)
        self.assertEqual(sum(result["by_role"].values()), result["peak_bytes"])
        return {role: n_bytes for role, n_bytes in result["by_role"].items() if n_bytes}

    def test_roles_follow_from_the_passes_that_read_and_write_an_array(self) -> None:
        expected = {
            "unknown": 256,
            "temporary": 32 + 128,
            "gradient": 64,
            "logits": 16,
            "activation": 8,
            "input": 4,
            "optimizer_state": 2,
            "parameter": 1,
        }
        self.assertEqual(self.roles(0, 1), expected)

    def test_number_is_no_array_of_logits(self) -> None:
        main = (
            instruction("x", "parameter", shape=self.ROWS, tf_op="x"),
            instruction("loss", "add", "x", shape=array("f32")),
            instruction("out", "add", "loss", shape=self.ROWS),
        )
        ran = [op("loss", "loop fusion", 100, 1), op("out", "loop fusion", 110, 1)]
        buffers = buffer(1, 8, 2) + heap(8, 1) + heap_trace((ALLOC, 1, "loss", 0))
        sizes = result_of(buffers, main=main, ran=ran)["by_role"]
        self.assertEqual((sizes["logits"], sum(sizes.values())), (0, 8))

    def test_arguments_are_parameters_if_the_step_replaces_no_optimizer_state(self) -> None:
        found = self.roles()
        self.assertEqual((found["parameter"], "input" in found), (7, False))


class Real(MemoryTest):
    """Compare real programs with the figures in XProf's memory viewer."""

    def assert_answer(self, result: Json, peak: int, reserved: int) -> None:
        self.assert_adds_up(result)
        self.assertEqual((result["peak_bytes"], result["reserved_bytes"]), (peak, reserved))
        self.assertFalse(any(note.startswith((BOUND, DAMAGED)) for note in result["notes"]))

    def test_peak_of_the_demo_equals_the_peak_in_the_memory_viewer(self) -> None:
        result = answer(DEMO, "memory")
        self.assert_answer(result, 1_277_657_728, 1_324_710_016)
        self.assertEqual(f"{result['peak_bytes'] / 2**20:.2f}", "1218.47")
        largest = [
            (row["bytes"] >> 20, row["shape"], row["source_inner"].rpartition("/")[2])
            for row in result["buffers"][:3]
        ]
        logits = "bf16[4,2047,16000]"
        self.assertEqual(
            largest,
            [
                (500, "f32[4,2047,16000]", "train.py:49"),
                (250, logits, "train.py:49"),
                (250, logits, "train.py:45"),
            ],
        )
        arguments = [row["argument"] for row in result["by_argument"]]
        self.assertEqual(arguments, ["m", "v", "w", "tok", None])
