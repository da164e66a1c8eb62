"""Test how `compare` reports whether and how the compiled program changed."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from typing import Any, TypeAlias

from tests.builders import hlo_proto
from tests.builders.hlo_proto import (
    REPLICATED,
    TILED,
    Op,
    Shape,
    aliases,
    array,
    listed_groups,
    metadata_plane,
    op,
    sharding,
    shardings,
)
from tests.builders.records import Json
from tests.builders.xspace import (
    Space,
    bytes_field,
    encode,
    int_field,
    op as event,
    text_field,
    tpu_plane,
)
from tests.harness import DEMO, InFolder, answer
from tests.naive import wire

PROGRAM_ID = 7
LITERAL, CHANNEL, DIMENSIONS, WINDOW, ATTRIBUTES = 8, 26, 14, 15, 68
# The fields of an HloProto that contain its instructions.
Messages: TypeAlias = "dict[int, Messages]"
HLO_PROTO: Messages = {1: {3: {2: {}}}}


def in_reverse_order(data: bytes, messages: Messages) -> bytes:
    """Write the same message with the fields in descending order of their numbers."""
    parts = []
    for number, value in wire.fields(data):
        if number in messages:
            part = bytes_field(number, in_reverse_order(value, messages[number]))
        else:
            part = (int_field if isinstance(value, int) else bytes_field)(number, value)
        parts.append((number, part))
    return b"".join(part for _, part in sorted(parts, key=lambda part: -part[0]))


# This function is long, because each argument changes one property of the program.
def capture(
    *,
    numbers: int = 0,
    line: str = "a.py:1",
    channel: int = 1,
    opcode: str = "multiply",
    shape: Shape | None = None,
    layout: tuple[int, ...] = (1, 0),
    operands: tuple[str, str] = ("x", "w"),
    constant: bytes = b"\x01",
    groups: tuple[tuple[int, ...], ...] = ((0, 1), (2, 3)),
    collective: str = "all-gather",
    tiles: int = 2,
    donated: tuple[int, ...] = (1,),
    body: str = "code",
    vmem: int = 64,
    config: bytes = b"{}",
    thread: str = "sparsecore",
    attributes: tuple[str, ...] = ("a", "b"),
    dimensions: bytes = b"\0",
    swapped: bool = False,
    has_program: bool = True,
    is_reversed: bool = False,
) -> bytes:
    """Encode a trace with a program that has the given properties."""

    def name(base: str) -> str:
        return f"{base}.{numbers}" if numbers else base

    shape = shape or array("f32", 8, 128)
    array_in = Shape("f32", (8, 128), minor_to_major=layout)
    kernel_config = {
        "custom_call_config": {"body": body},
        "used_scoped_memory_configs": [{"memory_space": "1", "size": str(vmem)}],
    }
    inside = [
        op(name("p"), "parameter", shape=shape),
        op(name("inner"), opcode, name("p"), name("p"), shape=shape, line=line),
    ]
    attribute = b"".join(
        bytes_field(1, text_field(1, key) + text_field(2, "1")) for key in attributes
    )
    middle = [
        op(name("c"), "constant", shape=array("f32"), extra=bytes_field(LITERAL, constant)),
        op(
            name("gather"),
            collective,
            name("x"),
            shape=array("f32", 16, 128),
            extra=listed_groups(*groups)
            + int_field(CHANNEL, channel)
            + bytes_field(DIMENSIONS, dimensions)
            + bytes_field(WINDOW, bytes_field(1, int_field(1, 3) + int_field(2, 1))),
        ),
    ]
    main = [
        op(name("x"), "parameter", shape=array_in, tf_op="x", number=0),
        op(name("w"), "parameter", shape=array("f32", 8, 128), tf_op="w", number=1),
        *(reversed(middle) if swapped else middle),
        op(name("fusion"), "fusion", *map(name, operands), calls=[name("fused")], config=config),
        op(
            name("flash"),
            "custom-call",
            name("fusion"),
            target="tpu_custom_call",
            config=json.dumps(kernel_config).encode(),
            thread=thread,
            extra=bytes_field(ATTRIBUTES, attribute),
        ),
        op(name("out"), "add", name("flash"), name("fusion"), line=line),
    ]
    # Moving an unused computation changes the ids of the other computations.
    first: dict[str, list[Op]] = {name("fused"): inside}
    unused = {name("unused"): [op(name("u"), "parameter")]}
    computations = {**(unused | first if numbers else first | unused), name("main"): main}
    program = hlo_proto.hlo_proto(
        computations,
        extra=aliases(*((number, ()) for number in donated))
        + shardings(sharding(REPLICATED), sharding(TILED, [tiles, 1], devices=range(tiles))),
    )
    if is_reversed:
        program = in_reverse_order(program, HLO_PROTO)
    planes = [
        tpu_plane(
            [event("fusion.1", "loop fusion", 0, 10, program_id=PROGRAM_ID)], [("0", 0, 1000)]
        )
    ]
    if has_program:
        planes.append(metadata_plane({PROGRAM_ID: ("jit_f(7)", program)}))
    return encode(Space(planes))


class Changes(InFolder):
    def setUp(self) -> None:
        super().setUp()
        self.n_files = 0

    def record(self, data: bytes) -> Path:
        self.n_files += 1
        result = answer(data, "record")
        return self.write(f"{self.n_files}.json", json.dumps(result).encode())

    def compare(self, after: Path, *before: Path) -> Json:
        options = [word for path in before for word in ("--baseline", str(path))]
        return answer(after, "compare", *options)

    def changes(self, **changed: Any) -> tuple[bool | None, list[tuple[str, str | None, Any, Any]]]:
        result = self.compare(self.record(capture(**changed)), self.record(capture()))
        found = result["program_changes"]
        rows = [(row["what"], row["name"], row["before"], row["after"]) for row in found["rows"]]
        return found["same_program"], rows

    def test_program_is_the_same_if_only_names_ids_lines_and_channels_differ(self) -> None:
        for changed in (
            {},
            {"numbers": 17},
            {"line": "b.py:99"},
            {"channel": 5},
            {"attributes": ("b", "a")},
            {"is_reversed": True},
        ):
            with self.subTest(changed=changed):
                self.assertEqual(self.changes(**changed), (True, []))

    def test_every_change_in_the_code_is_a_change_in_the_program(self) -> None:
        for changed in (
            {"opcode": "add"},
            {"shape": array("bf16", 8, 128)},
            {"shape": array("f32", 8, 256)},
            {"layout": (0, 1)},
            {"operands": ("w", "x")},
            {"constant": b"\x02"},
            {"groups": ((0, 2), (1, 3))},
            {"collective": "all-to-all"},
            {"tiles": 4},
            {"donated": ()},
            {"donated": (0,)},
            {"vmem": 128},
            {"config": b'{"flag":1}'},
            {"thread": "tensorcore"},
            {"attributes": ("a", "c")},
            {"dimensions": b"\1"},
            {"swapped": True},
        ):
            with self.subTest(changed=changed):
                same, rows = self.changes(**changed)
                self.assertIs(same, False)
                self.assertTrue(rows)
                self.assertEqual(self.changes(**changed, numbers=3), (same, rows))

    def test_first_row_describes_the_change(self) -> None:
        x = {"shape": "f32[8,128]", "sharding": "{replicated}", "donated": False}
        w = {"shape": "f32[8,128]", "sharding": "{devices=[2,1]0,1}", "donated": True}
        kernel = {"n": 1, "vmem_used_bytes": 64, "shapes": ["f32[8,128]"]}
        gather = {"n": 1, "bytes": 16 * 128 * 4}
        for changed, row in (
            ({"collective": "all-to-all"}, ("collective", "all-gather sync", gather, None)),
            ({"vmem": 128}, ("kernel", "flash", kernel, {**kernel, "vmem_used_bytes": 128})),
            (
                {"body": "x", "vmem": 9},
                ("kernel", "flash", kernel, {**kernel, "vmem_used_bytes": 9}),
            ),
            ({"donated": ()}, ("parameter", "w", w, {**w, "donated": False})),
            ({"donated": (0, 1)}, ("parameter", "x", x, {**x, "donated": True})),
            ({"tiles": 4}, ("parameter", "w", w, {**w, "sharding": "{devices=[4,1]0,1,2,3}"})),
        ):
            with self.subTest(changed=changed):
                self.assertEqual(self.changes(**changed)[1][0], row)
        self.assertIn(("donation", None, 4096, 0), self.changes(donated=())[1])
        _, rows = self.changes(collective="all-to-all")
        names = ["all-gather sync", "all-to-all sync"]
        self.assertEqual([row[:2] for row in rows[:2]], [("collective", name) for name in names])
        self.assertIn(("opcode", "all-to-all", None, 1), rows)

    def test_same_program_is_null_if_only_the_code_of_a_kernel_changed(self) -> None:
        same, [(what, name, _, _)] = self.changes(body="other", line="c.py:3")
        self.assertEqual((same, what, name), (None, "kernel_code", "flash"))
        result = self.compare(self.record(capture(body="other")), self.record(capture()))
        self.assertIn("In the compiled program, only the code of kernel flash",
                      result["headline"])  # fmt: skip

    def test_program_changes_are_unknown_if_a_capture_has_no_program(self) -> None:
        for before, after in ((False, True), (True, False), (False, False)):
            paths = [self.record(capture(has_program=has)) for has in (before, after)]
            result = self.compare(paths[1], paths[0])
            self.assertEqual(result["program_changes"], {"same_program": None, "rows": []})
            # The texts of the ops are equal.
            self.assertEqual(result["before"]["program"], result["after"]["program"])


class Demo(unittest.TestCase):
    def test_digest_of_the_demo_is_small_and_agrees_with_other_modes(self) -> None:
        [digest] = answer(DEMO, "record")["programs"]
        self.assertLess(len(json.dumps(digest, separators=(",", ":"))), 10_000)
        self.assertEqual(digest["memory"], answer(DEMO, "memory")["peak_bytes"])
        program = answer(DEMO, "program", "--top=1000")
        self.assertEqual(digest["opcode"], program["opcodes"])
        self.assertEqual(digest["fusion"], program["n_fusions"])
        self.assertEqual(digest["donation"], program["aliased_bytes"])
        self.assertEqual(len(digest["parameter"]), len(program["parameters"]))
        n = sum(row["n_instructions"] for row in program["collectives"])
        self.assertEqual(sum(fact["n"] for fact in digest["collective"].values()), n)
