"""Test lines that contradict the op's scope, and likely lines of ops without a stack."""

from __future__ import annotations

import unittest
from typing import Any

from tests.builders.xspace import Op, op, trace
from tests.harness import answer

MAIN = "train.py:1:0"


def at(number: int, path: str | None, *frames: str, dur: int = 10, **facts: Any) -> Op:
    """Return an op with a path and a stack, outermost frame first."""
    stack = "\n".join((MAIN, *frames)) if frames else None
    source = frames[-1].rpartition(":")[0] if frames else ""
    facts |= {"tf_op": path} if path else {}
    category = facts.pop("category", "loop fusion")
    return op(f"f.{number}", category, 100 * number, dur, stack=stack, source=source, **facts)


def lines_of(*ops: Op) -> dict[str, tuple[str | None, str | None]]:
    """Return the line of each op and its relation to the op."""
    rows = answer(trace(ops, [("s", 0, 10_000)]), "by_op")["ops"]
    return {row["hlo_op"]: (row["source_user"], row["source_is"]) for row in rows}


class Doubtful(unittest.TestCase):
    def how(self, path: str, *frames: str, others: tuple[str, ...] = ()) -> str | None:
        others = ("jit(f)/attention/mul:", "jit(f)/mlp/linear/mul:", *others)
        rest = [at(i, path, "x.py:1:0") for i, path in enumerate(others, 2)]
        return lines_of(at(1, path, *frames), *rest)["f.1"][1]

    def test_line_in_a_file_named_after_another_scope_is_doubtful(self) -> None:
        for path, file, is_doubtful in (
            ("jit(f)/mlp/linear/dot:", "attention_interface.py", True),
            ("jit(f)/mlp/linear/dot:", "AttentionInterface.py", True),
            ("jit(f)/mlp/linear/dot:", "/a/layers/attn.py", True),
            ("jit(f)/mlp/linear/dot:", r"C:\a\attention.py", True),
            ("jit(f)/attention/dot:", "mlp.py", True),
            # The stem is in the scope, in full or by its first letters.
            ("jit(f)/attention/dot:", "attention.py", False),
            ("jit(f)/self_attn/dot:", "attention.py", False),
            ("jit(f)/SelfAttention_3/dot:", "attention.py", False),
            ("jit(f)/mlp/linear/dot:", "linears.py", False),
            ("jit(f)/mlp/linear/dot:", "lin.py", False),
            # The stem is in no scope, or says nothing.
            ("jit(f)/mlp/linear/dot:", "norm.py", False),
            ("jit(f)/mlp/linear/dot:", "attention/model.py", False),
            ("jit(f)/mlp/linear/dot:", "attention/utils.py", False),
            # The scope names no layer.
            ("jit(f)/dot:", "attention.py", False),
            ("jit(f)/jit(_where)/select_n:", "attention.py", False),
        ):
            with self.subTest(path=path, file=file):
                how = self.how(path, f"{file}:7:0")
                self.assertEqual(how, "doubtful" if is_doubtful else "own")

    def test_line_of_a_helper_that_the_scope_calls_is_not_doubtful(self) -> None:
        norm = "jit(f)/norm/mul:"
        path = "jit(f)/attention/mul:"
        self.assertEqual(self.how(path, "norm.py:3:0", others=(norm,)), "doubtful")
        self.assertEqual(self.how(path, "attention.py:9:0", "norm.py:3:0", others=(norm,)), "own")

    def test_word_that_all_scopes_have_proves_nothing(self) -> None:
        a, b = "jit(f)/LlamaMlp/dot:", "jit(f)/LlamaAttention/dot:"
        ops = at(1, a, "llama.py:1:0"), at(2, b, "llama.py:2:0")
        self.assertEqual({how for _, how in lines_of(*ops).values()}, {"own"})


class Likely(unittest.TestCase):
    def test_math_without_a_stack_has_the_line_with_the_most_time_in_its_scope(self) -> None:
        known = (
            at(1, "jit(f)/attn/mul:", "attn.py:1:0", dur=10),
            at(2, "jit(f)/attn/add:", "attn.py:2:0", dur=30),
            at(3, "jit(f)/attn/qkv/dot:", "linear.py:3:0", dur=90),
            at(4, "jit(f)/mlp/dot:", "mlp.py:4:0", dur=99),
        )
        for path, line in (
            ("jit(f)/attn/pallas_call:", "attn.py:2"),
            ("jit(f)/attn/kernel/pallas_call:", "attn.py:2"),
            ("jit(f)/attn/qkv/kernel/x/pallas_call:", "linear.py:3"),
            ("jit(f)/transpose(jvp(attn))/pallas_call:", "attn.py:2"),
            ("jit(f)/other/pallas_call:", None),
            ("jit(f)/pallas_call:", None),
            (None, None),
        ):
            with self.subTest(path=path):
                found = lines_of(*known, at(5, path, category="custom-call"))["f.5"]
                self.assertEqual(found, (line, "likely" if line else None))

    def test_copy_without_a_stack_has_no_likely_line_of_its_scope(self) -> None:
        known = at(1, "jit(f)/attn/mul:", "attn.py:1:0")
        copy = at(2, "jit(f)/attn/copy:", category="copy")
        self.assertEqual(lines_of(known, copy)["f.2"], (None, None))

    def test_stack_of_plumbing_alone_has_the_likely_line_of_its_scope(self) -> None:
        known = at(1, "jit(f)/attn/mul:", "attn.py:1:0")
        library = op(
            *("f.2", "loop fusion", 200, 10),
            stack="x/site-packages/jax/a.py:1:0\nx/site-packages/jax/b.py:2:0",
            source="x/site-packages/jax/b.py:2",
            tf_op="jit(f)/attn/add:",
        )
        [row] = [
            row
            for row in answer(trace([known, library], [("s", 0, 10_000)]), "by_op")["ops"]
            if row["hlo_op"] == "f.2"
        ]
        self.assertEqual(
            (row["source_inner"], row["source_user"], row["source_is"]),
            ("x/site-packages/jax/b.py:2", "attn.py:1", "likely"),
        )
