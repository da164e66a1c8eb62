"""Test that a row has the common scope of all its ops, and the shape that takes the most time."""

from __future__ import annotations

import unittest
from typing import Any

from tests.builders import hlo_proto
from tests.builders.hlo_proto import metadata_plane
from tests.builders.xspace import Op, Space, encode, op, tpu_plane
from tests.harness import Json, answer

PROGRAM_ID = 7


def answer_of(mode: str, ops: list[Op], *instructions: hlo_proto.Op, **others: Any) -> Json:
    planes = [tpu_plane(ops, [("s", 0, 10_000)])]
    if instructions:
        program = hlo_proto.hlo_proto({"main": list(instructions), **others})
        planes.append(metadata_plane({PROGRAM_ID: (f"jit_f({PROGRAM_ID})", program)}))
    return answer(encode(Space(planes)), mode)


def math(number: int, path: str | None, dur: int = 10, shape: str = "f32[8]") -> Op:
    facts: Json = {"tf_op": path} if path else {}
    return op(
        *(f"f.{number}", "loop fusion", 100 * number, dur),
        shape=shape,
        stack="m.py:1:0",
        source="m.py:1",
        **facts,
    )


class ScopeOfRow(unittest.TestCase):
    def scope(self, *ops: Op) -> set[tuple[str | None, int]]:
        """Return the scope in the rows of several modes."""
        found = set()
        for mode, path in (
            ("bottleneck", "findings"),
            ("by_source", "groups"),
            ("summary", "top_compute_groups"),
        ):
            [row] = answer_of(mode, list(ops))[path]
            found.add((row["scope"], row["n_scopes"]))
        return found

    def test_row_has_the_common_prefix_of_the_scopes_of_its_ops(self) -> None:
        for paths, scope, n in (
            (("a/b/c/mul:", "a/b/d/mul:"), "a/b", 2),
            (("a/b/mul:", "a/b/add:"), "a/b", 1),
            (("a/bc/mul:", "a/bd/mul:"), "a", 2),
            (("a/mul:", "b/mul:", "b/c/mul:"), "", 3),
            (("a/mul:", "mul:"), "", 2),
        ):
            with self.subTest(paths=paths):
                ops = [math(i, f"jit(f)/{path}") for i, path in enumerate(paths)]
                self.assertEqual(self.scope(*ops), {(scope, n)})

    def test_ops_without_a_scope_decide_if_they_take_most_of_the_time(self) -> None:
        for dur, scope in ((9, "a"), (10, "a"), (11, None)):
            ops = math(0, "jit(f)/a/mul:"), math(1, None, dur)
            self.assertEqual(self.scope(*ops), {(scope, 1)})
        self.assertEqual(self.scope(math(0, None)), {(None, 0)})


class CombinedCollective(unittest.TestCase):
    def scope(
        self, mode: str, *instructions: hlo_proto.Op, **others: Any
    ) -> tuple[str | None, int]:
        """Return the scope of the op `all-reduce.1`, whose own path is in the layer `a`."""
        collective = op(
            *("all-reduce.1", "all-reduce", 0, 50),
            program_id=PROGRAM_ID,
            tf_op="jit(f)/net/a/psum:",
        )
        answered = answer_of(mode, [collective], *instructions, **others)
        [row] = answered["ops" if mode == "by_op" else "rows"]
        return row["scope"], row["n_scopes"]

    def test_combined_collective_is_in_the_scopes_of_its_producers(self) -> None:
        a = hlo_proto.op("x", "fusion", tf_op="jit(f)/net/a/dot:")
        b = hlo_proto.op("y", "fusion", tf_op="jit(f)/net/b/dot:")
        same = hlo_proto.op("y", "fusion", tf_op="jit(f)/net/a/mul:")
        copied = hlo_proto.op("z", "copy", "y")
        passed = hlo_proto.op("v", "reshape", "y", tf_op="jit(f)/jit(update)/broadcast_in_dim:")
        argument = hlo_proto.op("y", "parameter", tf_op="params['w']")
        for mode in ("by_op", "comm"):
            for producers, operands, scope in (
                ((a, b), ("x", "y"), ("net", 2)),
                ((a, b, copied), ("x", "z"), ("net", 2)),
                ((a, b, passed), ("x", "v"), ("net", 2)),
                ((a, same), ("x", "y"), ("net/a", 1)),
                ((b,), ("y",), ("net/a", 1)),
                ((argument,), ("y", "y"), ("net/a", 1)),
            ):
                with self.subTest(mode=mode, operands=operands, scope=scope):
                    reduce = hlo_proto.op("all-reduce.1", "all-reduce", *operands)
                    self.assertEqual(self.scope(mode, *producers, reduce), scope)
