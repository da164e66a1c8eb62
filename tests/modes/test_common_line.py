"""Test steps in which one source line has most of the time: warning, scopes first, headlines."""

from __future__ import annotations

import unittest
from collections.abc import Sequence

from tests.builders.xspace import Op, op, trace
from tests.harness import Json, answer

MAIN = "/home/dev/train.py:3:1"


def at(number: int, dur: int, path: str, *inner: str) -> Op:
    """Return an op that the line `train.py:3` calls; `inner` are the frames below it."""
    frames = (MAIN, *inner)
    source = frames[-1].rpartition(":")[0]
    stack = "\n".join(frames)
    return op(
        f"f.{number}", "loop fusion", 100 * number, dur, stack=stack, source=source, tf_op=path
    )


def packages(*names: str) -> list[str]:
    """Return frames of installed packages, given as `package/file:line`."""
    return [f"/v/lib/python3.11/site-packages/{name}:1" for name in names]


def result_of(mode: str, ops: Sequence[Op], *options: str) -> Json:
    return answer(trace(ops, [("s", 0, 1000)]), mode, *options)


def common(ops: Sequence[Op], *options: str) -> tuple[str, str] | None:
    row = result_of("summary", ops, *options)["totals"]["common_line"]
    return row and (row["source_user"], row["separated_by"])


class Warned(unittest.TestCase):
    def test_warning_needs_one_line_with_more_than_half_of_the_step(self) -> None:
        for dur, is_common in ((500, False), (502, True)):
            ops = [
                at(0, dur // 2, "jit(f)/attn/mul:"),
                at(5, dur // 2, "jit(f)/mlp/mul:"),
                op("f.9", "loop fusion", 950, 50, stack="other.py:1:0", source="other.py:1"),
            ]
            found = result_of("summary", ops)
            warning = (
                "50.2 % of the step's time has the source line /home/dev/train.py:3; to separate"
                " it, pass --mode by_scope"
            )
            self.assertEqual(warning in found["notes"], is_common)
            self.assertEqual(found["totals"]["common_line"] is not None, is_common)
            self.assertNotIn(warning, result_of("by_scope", ops)["notes"])

    def test_findings_of_a_common_line_are_grouped_by_layer(self) -> None:
        ops = [
            at(0, 60, "jit(f)/block_0/attn/mul:", "/home/dev/a.py:1:1"),
            at(1, 50, "jit(f)/block_1/attn/mul:", "/home/dev/a.py:1:1"),
            at(2, 80, "jit(f)/block_0/mlp/mul:", "/home/dev/a.py:1:1"),
            at(3, 90, "jit(f)/block_1/mlp/mul:", "/home/dev/a.py:1:1"),
            at(4, 95, "jit(f)/head/mul:", "/home/dev/a.py:1:1"),
            at(5, 85, "jit(f)/head/mul:", "/home/dev/a.py:1:1"),
            at(6, 80, "jit(f)/embed/mul:", "/home/dev/a.py:1:1"),
        ]
        found = result_of("bottleneck", ops)
        scopes = [(row["scope"], row["n_scopes"], row["dur_ps"]) for row in found["lines"]]
        expected = [
            ("head", 1, 180),
            ("block_*/mlp", 2, 170),
            ("block_*/attn", 2, 110),
            ("embed", 1, 80),
        ]
        self.assertEqual(scopes, expected)
        self.assertEqual(sum(row["dur_ps"] for row in found["findings"]), 540)
        # Without a common line, scopes do not divide findings.
        few = result_of("bottleneck", ops[:3])
        self.assertEqual([row["dur_ps"] for row in few["lines"]], [190])

    def test_line_is_not_common_if_nothing_separates_the_time(self) -> None:
        for path in ("jit(f)/mul:", "jit(f)/attn/mul:"):
            self.assertIsNone(common([at(0, 900, path)]))

    def test_scopes_are_proposed_if_they_separate_the_time_at_least_as_well(self) -> None:
        for scopes, separated_by in (
            ("aabbccddee", "--own model/"),
            ("abcdefghij", "--mode by_scope"),
        ):
            ops = [
                at(
                    i,
                    90,
                    f"jit(f)/{scope}/mul:",
                    *packages(f"model/layer.py:{i}", "wrap/call.py:7"),
                )
                for i, scope in enumerate(scopes)
            ]
            self.assertEqual((common(ops) or ("", ""))[1], separated_by)
