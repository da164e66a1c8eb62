"""Test the mode `by_scope`: tree, ops without a scope, options, odd paths, and real captures."""

from __future__ import annotations

import unittest
from typing import Any

from tests.builders import hlo_proto
from tests.builders.hlo_proto import metadata_plane, op as instruction
from tests.builders.xspace import Op, Space, encode, op, tpu_plane, trace
from tests.harness import Json, answer, run
from tests.naive.invariants import faults

STEP = [("s", 0, 1000)]


def at(start: int, dur: int, path: str | None, category: str = "loop fusion", **facts: Any) -> Op:
    """Return an op with the given path; its name is unique because it contains the start."""
    if path is not None:
        facts["tf_op"] = path
    return op(facts.pop("name", f"f.{start}"), category, start, dur, **facts)


def result_of(ops: list[Op], *options: str) -> Json:
    return answer(trace(ops, STEP), "by_scope", *options)


def check(case: unittest.TestCase, result: Json) -> None:
    """Check that no time is lost or counted twice."""
    case.assertEqual(list(faults(result)), [])


class Tree(unittest.TestCase):
    def test_all_phases_of_a_layer_share_a_scope(self) -> None:
        result = result_of(
            [
                at(0, 1, "jit(f)/transpose(jvp(mlp))/mul:"),
                at(1, 2, "jit(f)/jvp(mlp)/mul:"),
                at(3, 4, "jit(f)/transpose(jvp())/checkpoint/rematted_computation/mlp/mul:"),
                at(7, 8, "jit(f)/mlp/mul:"),
                at(15, 0, "jit(f)/mlp/mul:", name="f.remat"),
            ]
        )
        _, mlp = result["scopes"]
        self.assertEqual((mlp["scope"], mlp["n_executions"]), ("mlp", 5))
        self.assertEqual(
            list(mlp["phases"].items()),
            [("backward", 1), ("forward", 2), ("recompute", 4), ("other", 8)],
        )


class NoScope(unittest.TestCase):
    def result(self, *, with_program: bool) -> Json:
        program = hlo_proto.hlo_proto(
            {"main": [instruction("a", "copy"), instruction("b", "fusion", "a", line="p.py:9")]}
        )
        ops = [
            op("b", "loop fusion", 0, 10, program_id=7, tf_op="jit(f)/x/mul:"),
            op("a", "copy", 10, 20, program_id=7),
            op("c", "loop fusion", 30, 30, stack="m.py:1:1", program_id=7),
            op("d", "copy", 60, 5, stack="m.py:1:1", program_id=7),
            op("e", "tuple", 65, 0, program_id=7),
        ]
        programs = [metadata_plane({7: ("f", program)})] if with_program else []
        result: Json = answer(encode(Space([tpu_plane(ops, STEP), *programs])), "by_scope")[
            "no_scope"
        ]
        return result

    def test_ops_without_a_scope_have_kinds_and_likely_sources(self) -> None:
        result = self.result(with_program=True)
        self.assertEqual((result["n_executions"], result["dur_ps"]), (4, 55))
        self.assertEqual(result["kinds"], {"data_move": 25, "compute": 30})
        rows = result["likely_sources"]
        self.assertEqual(
            [(row["source_inner"], row["source_is"], row["dur_ps"]) for row in rows],
            [("m.py:1", "own", 35), ("p.py:9", "consumer", 20), (None, None, 0)],
        )


class Options(unittest.TestCase):
    OPS = (
        at(0, 10, "jit(f)/m/layers_0/attn/q/mul:"),
        at(10, 20, "jit(f)/m/layers_1/attn/q/mul:"),
        at(30, 30, "jit(f)/m/layers_1/mlp/mul:"),
        at(60, 40, "jit(f)/m/layers_10/mlp/w1/w2/w3/mul:"),
        at(100, 5, "jit(f)/head/mul:"),
    )

    def result(self, *options: str) -> Json:
        return result_of(list(self.OPS), *options)

    def test_depth_limits_the_rows_but_not_the_sums(self) -> None:
        everything = self.result("--depth", "all")
        check(self, everything)
        n = len(everything["scopes"])
        self.assertEqual(max(row["depth"] for row in everything["scopes"]), 6)
        for options, depth in (
            ((), 4),
            (("--depth", "0"), 0),
            (("--depth", "2"), 2),
            (("--depth", "99"), 6),
        ):
            result = self.result(*options)
            shown = [row for row in everything["scopes"] if row["depth"] <= depth]
            self.assertEqual(result["scopes"], shown)
            self.assertEqual(result["n_scopes_omitted"], n - len(shown))

    def test_option_below_shows_a_subtree_with_unchanged_rows(self) -> None:
        everything = self.result("--depth", "all")["scopes"]
        for name in ("m", "m/layers_1", "m/layers_10/mlp/w1", "head"):
            below = [row for row in everything if f"{row['scope']}/".startswith(f"{name}/")]
            result = self.result("--depth", "all", "--below", name)
            self.assertEqual(result["scopes"], below)
        self.assertEqual(self.result("--depth", "all", "--below", "")["scopes"], everything)

    def test_depth_is_relative_to_the_scope_given_by_below(self) -> None:
        result = self.result("--below", "m/layers_10", "--depth", "1")
        self.assertEqual(
            [(row["scope"], row["depth"]) for row in result["scopes"]],
            [("m/layers_10", 2), ("m/layers_10/mlp", 3)],
        )
        self.assertEqual(result["n_scopes_omitted"], 3)

    def test_unknown_scope_is_rejected_and_similar_scopes_are_listed(self) -> None:
        for options, near in (
            (("--below", "nothing"), ["m", "head"]),
            (("--below", "MLP"), ["m/layers_1/mlp", "m/layers_10/mlp", "m", "head"]),
            (("--below", "m/layers_2"), ["m/layers_0", "m/layers_1", "m/layers_10", "head"]),
            (
                ("--below", "m/layers_1/"),
                ["m/layers_1/mlp", "m/layers_1/attn", "m/layers_10", "m/layers_0", "head"],
            ),
            (("--below", "m/layers_*"), ["m/layers_0", "m/layers_1", "m/layers_10", "head"]),
            (("--below", "layers_10", "--merge-layers"), ["head", "m"]),
        ):
            with self.subTest(options=options):
                outcome = run(trace(list(self.OPS), STEP), "by_scope", *options)
                self.assertEqual((outcome.object["reason"], outcome.status), ("scope_not_found", 1))
                self.assertEqual(set(outcome.object["available_scopes"]), set(near))
                self.assertIn(repr(options[1]), outcome.object["detail"])
                self.assertEqual(outcome.stderr.count("\n"), 1)


class OddPaths(unittest.TestCase):
    def test_scopes_with_unusual_characters_can_be_selected(self) -> None:
        paths = [
            *("x['a/b']/mul:", "call(a/b)/c/mul:", '"q/r"/s/mul:', "{a/b}/[c/d]/mul:", "it's/mul:"),
            *("a(/b/mul:", "a[)/b]/mul:", "(/mul:", "]/x/mul:", "'/'/'/mul:", "\u00fc/\u2028/mul:"),
            *("aten::mul.Tensor/mn,pn->mp/dot:", "a b/ c /mul:", "//a//b//mul:", "a/b;c/d/e:"),
            *("jit(f)/jvp(a/b)/c/mul:", "\x00/\x7f/mul:", "-1/--depth/mul:", "</script>/mul:"),
        ]
        result = result_of([at(10 * i, 5, path) for i, path in enumerate(paths)], "--depth", "all")
        check(self, result)
        self.assertEqual(result["scopes"][0]["total_dur_ps"], 5 * len(paths))
        data = trace([at(10 * i, 5, path) for i, path in enumerate(paths)], STEP)
        for row in result["scopes"]:
            again = answer(data, "by_scope", "--depth", "0", f"--below={row['scope']}")
            self.assertEqual(again["scopes"], [row])


class NoLayers(unittest.TestCase):
    def test_step_without_named_scopes_has_a_warning(self) -> None:
        warning = "no scope names a layer, because"
        for path, is_named in (
            ("jit(f)/jvp()/dot_general:", False),
            ("jit(f)/transpose(jvp(jit(silu)))/mul:", False),
            ("jit(f)/jit(silu)/jit(_where)/mul:", False),
            ("jit(f)/jvp(mlp)/jit(silu)/mul:", True),
            ("jit(f)/jvp(jit(mlp)/attn)/mul:", True),
            (None, False),
        ):
            with self.subTest(path=path):
                result = result_of([at(0, 10, path), at(10, 5, None)])
                n = sum(note.startswith(warning) for note in result["notes"])
                self.assertEqual(n, 0 if is_named else 1)
