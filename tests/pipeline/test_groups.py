"""Test the keys that group executions."""

from __future__ import annotations

import hashlib
import unittest
from typing import Any

from tests.builders.xspace import op
from tests.pipeline.small_steps import groups

STACK = "<embedded module '_launcher'>:153:2\nmain.py:3:1\n  /a b/model.py:7:30\n\n"


class GroupKeys(unittest.TestCase):
    def key(self, **stats: Any) -> tuple[Any, ...]:
        (row,) = groups([op("f.1", "loop fusion", 0, 5, **stats)])
        return row["agg_key"], row["agg_key_kind"], row["source_inner"], row["source_stack"]

    def test_group_key_is_the_hash_of_the_printed_stack(self) -> None:
        printed = "<embedded module '_launcher'>:153:2\nmain.py:3:1\n/a b/model.py:7:30"
        digest = hashlib.sha1(printed.encode()).hexdigest()[:16]
        self.assertEqual(
            self.key(source_stack=STACK, tf_op="jit(f)/add:", source="/a b/model.py:7"),
            (f"stack:{digest}", "stack", "/a b/model.py:7", printed),
        )

    def test_groups_never_mix_kinds(self) -> None:
        ops = [
            op("f", "loop fusion", 0, 1, stack="m.py:1:1"),
            op("c", "copy", 1, 2, stack="m.py:1:1"),
            op("r", "all-reduce", 3, 4, stack="m.py:1:1"),
            op("g", "custom fusion", 7, 8, stack="m.py:1:1"),
        ]
        rows = groups(ops)
        self.assertEqual(
            [(row["kind"], row["total_dur_ps"]) for row in rows],
            [("compute", 9), ("data_move", 2), ("comm", 4)],
        )
        self.assertEqual(len({row["agg_key"] for row in rows}), 1)

    def test_equal_tf_ops_in_several_programs_share_a_group(self) -> None:
        ops = [op(f"f.{i}", "loop fusion", i, 1, tf_op="t", program_id=2**63 + i) for i in range(3)]
        self.assertEqual([row["n_executions"] for row in groups(ops)], [3])
