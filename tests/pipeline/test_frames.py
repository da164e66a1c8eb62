"""Test the order of stack frames, `source_inner`, `source_user` and scopes."""

from __future__ import annotations

import gzip
import hashlib
import json
import unittest
from collections.abc import Sequence
from typing import Any

from _breakdown.units import counted
from tests.builders import hlo_proto
from tests.builders.hlo_proto import StackFrames, metadata_plane
from tests.builders.random_xspace import command_line
from tests.builders.stacks import turned_around, with_stacks
from tests.builders.xspace import Op, Space, encode, op, tpu_plane
from tests.harness import DEMO, MODES, InFolder, Json, answer, sampled

OUTER, MIDDLE, INNER = "outer.py:1:2", "lib/middle.py:3:4", "a dir/inner.py:5:6"
STACK = f"{OUTER}\n{MIDDLE}\n{INNER}"
TURNED = f"{INNER}\n{MIDDLE}\n{OUTER}"
# A second stack in both orders: outermost frame first and innermost frame first.
OTHER, OTHER_TURNED = "outer.py:1:2\nother.py:7:8", "other.py:7:8\nouter.py:1:2"
INNERMOST_FIRST, OUTERMOST_FIRST = "innermost_first", "outermost_first"
PROGRAM_ID = 7
ALL_KINDS: Json = {"include_comm": True, "include_data_move": True}


def doubtful(n: int, ps: int) -> str:
    return (
        f"in {counted(n, 'op')} ({ps} ps), the source is not the innermost frame of the stack, so"
        " the stack may be wrong"
    )


def key_of(stack: str) -> str:
    """Return the group key for a stack in printed form."""
    return "stack:" + hashlib.sha1(stack.encode()).hexdigest()[:16]


def answer_of(data: bytes, mode: str, **options: Any) -> Json:
    return answer(data, mode, *command_line(options))


class Ops:
    """Collect ops that run back to back for 10 ps each, in steps of 1000 ps."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.n_names = 0

    def add(
        self,
        stack: str | None = None,
        source: str | None = None,
        category: str = "loop fusion",
        n: int = 1,
        step: int = 0,
        name: str | None = None,
        **more: Any,
    ) -> Ops:
        """Add an op with `n` executions."""
        self.n_names += 1
        stats = {k: v for k, v in {"source": source, **more}.items() if v is not None}
        for _ in range(n):
            start = 1000 * step + 10 * len(self.ops)
            its_name = name or f"op.{self.n_names}"
            self.ops.append(op(its_name, category, start, 10, stack=stack, **stats))
        return self

    def data(self, program: bytes | None = None) -> bytes:
        planes = [tpu_plane(self.ops, [("0", 0, 1000), ("1", 1000, 1000)])]
        if program is not None:
            planes.append(metadata_plane({PROGRAM_ID: (f"jit_f({PROGRAM_ID})", program)}))
        return encode(Space(planes))

    def groups(self, program: bytes | None = None, **options: Any) -> list[Json]:
        rows: list[Json] = answer_of(
            self.data(program), "by_source", step=0, **ALL_KINDS, **options
        )["groups"]
        return rows

    def stacks(self, program: bytes | None = None) -> list[str | None]:
        """Return the stack of each group, in the order of the groups."""
        return [row["source_stack"] for row in self.groups(program)]

    def summary(self, program: bytes | None = None) -> Json:
        return answer_of(self.data(program), "summary", step=0)

    def order(self, program: bytes | None = None) -> str | None:
        order: str | None = self.summary(program)["stack_order"]
        return order

    def notes(self, program: bytes | None = None) -> list[str]:
        notes: list[str] = self.summary(program)["notes"]
        return [note for note in notes if "stack" in note]


FRAMES = StackFrames(
    files=["user.py", "/x/site-packages/jax/lib.py", "entry.py"],
    locations=[(1, 1, 5), (1, 2, 5), (2, 3, 5), (3, 4, 5)],
    # The frame of user.py:1 is called from entry.py:4. Three frames have the line lib.py:3: one
    # called from user.py:1, one from user.py:2, and one without a caller.
    frames=[(1, 4), (2, 0), (3, 1), (4, 0), (3, 2), (3, 0)],
)
USER_1, USER_2, LIB_OF_1, ENTRY, LIB_OF_2, LIB = range(1, 7)
LIBRARY = "/x/site-packages/jax/lib.py:3"


def a_program(*instructions: hlo_proto.Op) -> bytes:
    """Return a program with one computation and the stack frames FRAMES."""
    return hlo_proto.hlo_proto({"main": list(instructions)}, frames=FRAMES)


class SourceInner(unittest.TestCase):
    def test_source_that_disagrees_with_the_stack_is_noted(self) -> None:
        ops = Ops().add(OTHER, "other.py:7", n=7)
        self.assertEqual(ops.notes(), [])
        ops.add(STACK, "middle.py:3", n=3)
        self.assertEqual(ops.notes(), [doubtful(1, 30)])
        ops.add(STACK, "elsewhere.py:5", category="copy", n=2)
        self.assertEqual(ops.notes(), [doubtful(2, 50)])
        # Containers, ops without a stack or source, and ops in other steps are not counted.
        ops.add(STACK, "elsewhere.py:5", category="while").add(None, "elsewhere.py:5").add(STACK)
        ops.add(STACK, "elsewhere.py:9", step=1)
        self.assertEqual(ops.notes(), [doubtful(2, 50)])


class SourceUser(unittest.TestCase):
    def user_of(
        self, stack: str | None, source: str | None = None, own: Sequence[str] = ()
    ) -> str | None:
        """Return `source_user` of an op in a trace that lists the outermost frame first."""
        ops = Ops().add(stack, source).add(OTHER, "other.py:7")
        user: str | None = ops.groups(own=own)[0]["source_user"]
        return user

    def test_source_user_is_the_innermost_frame_outside_plumbing(self) -> None:
        installed = "/venv/lib/python3.11/site-packages"
        windows = r"C:\Python311\Lib"
        for file, is_own in (
            ("model.py", True),
            ("/home/dev/model.py", True),
            ("/venv/lib/site-packages/jax/core.py", False),
            ("site-packages/jax/core.py", False),
            ("/usr/lib/python3/dist-packages/torch/nn.py", False),
            ("/home/dev/my-site-packages/model.py", True),
            ("/home/dev/site-packages.py", True),
            # Installed packages with models are own code; their kernels are, too.
            (f"{installed}/levanter/models/llama.py", True),
            (f"{installed}/vllm/kernels/attention.py", True),
            (f"{installed}/flax_models/linear.py", True),
            (f"{installed}/einops.py", False),
            (f"{installed}/jax/experimental/pallas/ops/tpu/flash_attention.py", False),
            # An editable install is a checkout somewhere else.
            ("/home/dev/tpu-inference/tpu_inference/layers/linear.py", True),
            # A clone of plumbing is recognised by folders that no other code has.
            ("/home/dev/flax/flax/linen/linear.py", False),
            ("/home/dev/jax/jax/_src/core.py", False),
            ("/home/dev/jax/train.py", True),
            ("/home/dev/flax/linen.py", True),
            ("/home/dev/keras/model.py", True),
            # Zipped packages, and Python in an archive.
            ("/app/flax-0.8-py3.11.egg/flax/linen.py", False),
            ("/app/app.pyz/site-packages/optax/base.py", False),
            ("/app/app.zip/train.py", True),
            ("/app/app.zip/jax/core.py", False),
            ("/usr/lib/python311.zip/threading.py", False),
            # Windows.
            (rf"{windows}\threading.py", False),
            (rf"{windows}\site-packages\jax\core.py", False),
            (rf"{windows}\site-packages\levanter\models\llama.py", True),
            (r"C:\Users\dev\model.py", True),
            # Notebooks.
            ("<ipython-input-7-0a1b2c>", True),
            ("/tmp/ipykernel_4711/1234567.py", True),
            ("<string>", False),
            ("third_party/py/absl/app.py", False),
            ("/usr/lib64/python3.13t/threading.py", False),
            ("/usr/lib/python3.11/threading.py", False),
            ("/usr/lib/python3/threading.py", True),
            ("lib/python3.11/model.py", True),
            ("<frozen runpy>", False),
            ("<embedded module '_launcher'>", False),
            ("a <dir>/model.py", True),
        ):
            with self.subTest(file=file):
                expected = f"{file}:9" if is_own else "outer.py:1"
                self.assertEqual(self.user_of(f"{OUTER}\n{file}:9:5"), expected)
                self.assertEqual(self.user_of(f"{file}:9:5"), expected if is_own else None)
                # The line of an op without a stack is its `source`.
                self.assertEqual(self.user_of(None, f"{file}:9"), expected if is_own else None)


class LikelyUser(unittest.TestCase):
    """Test `source_user` of ops that have no line of their own, only a likely line."""

    def data(self, *first: tuple[str, int], source: str | None = None) -> bytes:
        """Return copy ops whose operands have stack frames, given as (name of the copy, frame)."""
        ops = Ops()
        instructions = []
        for name, frame in first:
            instructions += [
                hlo_proto.op(f"{name}.from", "add", frame=frame),
                hlo_proto.op(name, "copy", f"{name}.from"),
            ]
            ops.add(category="copy", source=source, name=name, program_id=PROGRAM_ID)
        return ops.data(a_program(*instructions))

    def likely(self, data: bytes, **options: Any) -> list[Json]:
        [group] = answer_of(data, "by_source", **ALL_KINDS, **options)["groups"]
        rows: list[Json] = group["likely_sources"]
        return rows

    def test_likely_line_has_the_innermost_user_frame_of_its_instruction(self) -> None:
        for frame, line, user in (
            (LIB_OF_1, LIBRARY, "user.py:1"),
            (USER_2, "user.py:2", "user.py:2"),
            (LIB, LIBRARY, None),
        ):
            with self.subTest(frame=frame):
                [row] = self.likely(self.data(("a", frame)))
                self.assertEqual((row["source_inner"], row["source_user"]), (line, user))
        [row] = self.likely(self.data(("a", LIB_OF_1)), own=["entry"])
        self.assertEqual(row["source_user"], "entry.py:4")
        [row] = self.likely(self.data(("a", LIB_OF_1)), own=["entry", "lib.py"])
        self.assertEqual(row["source_user"], LIBRARY)


class Scopes(unittest.TestCase):
    def scopes(self, ops: Ops, program: bytes | None = None) -> list[Json]:
        [group] = ops.groups(program)
        names = list(group)
        self.assertEqual(names.index("scopes"), names.index("also_fused") + 1)
        scopes: list[Json] = group["scopes"]
        return scopes

    def check_scope(self, tf_op: str, scope: str) -> None:
        with self.subTest(tf_op=tf_op):
            found = self.scopes(Ops().add(STACK, "inner.py:5", tf_op=tf_op))
            self.assertEqual(found, [{"scope": scope, "dur_ps": 10}])

    def test_scope_is_extracted_from_tf_op(self) -> None:
        for tf_op, scope in (
            ("jit(f)/mlp/dot_general:", "mlp"),
            ("jit(f)/mlp/dot_general", "mlp"),
            ("jit(f)/add:", ""),
            ("add:", ""),
            ("mlp/add:", "mlp"),
            ("jit(f):", ""),
            # Parts that JAX adds for transformations and control flow are omitted.
            ("jit(f)/jit(main)/while/body/closed_call/block/checkpoint/mlp/mul:", "block/mlp"),
            ("jit(f)/cond/remat/remat2/rematted_computation/shard_map/pjit/mlp/mul:", "mlp"),
            ("jit(f)/custom_jvp_call/custom_vjp_call/core_call/xla_call/xla_pmap/x/mul:", "x"),
            ("jit(f)/while_loop/body_2/mul:", "while_loop/body_2"),
            # Wrappers such as `jvp(...)` are removed, but their contents are kept.
            ("jit(f)/jvp(mlp)/mul:", "mlp"),
            ("jit(f)/transpose(jvp(mlp))/mul:", "mlp"),
            ("jit(f)/jvp()/mlp/mul:", "mlp"),
            ("jit(f)/transpose(jvp())/mul:", ""),
            ("jit(f)/vmap(pmap(jit(mlp)))/mul:", "mlp"),
            ("jit(f)/jvp(block/mlp)/mul:", "block/mlp"),
            ("jit(f)/transpose(jvp(block)/mlp)/mul:", "block/mlp"),
            ("jit(f)/jvp(while)/mlp/mul:", "mlp"),
            ("jvp(mlp)/mul:", "mlp"),
            ("jit(f)/custom_jvp(mlp)/mul:", "mlp"),
            ("jit(f)/checkpoint(mlp)/mul:", "mlp"),
            ("jit(f)/remat(jvp(mlp))/custom_vjp_call(act)/mul:", "mlp/act"),
            ("jit(f)/mlp/cond/branch_1_fun/mul:", "mlp"),
            ("jit(f)/unroll(mlp)/mul:", "unroll(mlp)"),
        ):
            self.check_scope(tf_op, scope)

    def test_scope_has_no_loops_and_no_repetitions(self) -> None:
        for tf_op, scope in (
            # Haliax names loops by their axis.
            ("jit(f)/jvp(Llama)/scan(layer)/while/body/Mlp/mul:", "Llama/Mlp"),
            # The backward pass of a checkpoint repeats the scopes around it.
            ("jit(f)/transpose(jvp(attn))/jvp(attn)/checkpoint/mul:", "attn"),
            ("jit(f)/transpose(jvp(a))/b/jvp(a)/b/checkpoint/rematted_computation/c/mul:", "a/b/c"),
            ("jit(f)/transpose(jvp(a))/b/jvp(a)/b/remat2:", "a/b"),
            ("jit(f)/transpose(jvp(a))/b/jvp(a)/b/add_any:", "a/b"),
            ("jit(f)/transpose(jvp(a))/while/body/closed_call/b/b/checkpoint/mul:", "a/b"),
            ("jit(f)/transpose(jvp(a))/while/body/closed_call/a/checkpoint/mul:", "a/a"),
            ("jit(f)/vmap(transpose(jvp(a)))/vmap(jvp(a))/checkpoint/mul:", "a"),
            ("attn/attn/checkpoint/mul:", "attn"),
            # A layer can contain a layer with the same name.
            ("jit(f)/jvp(a)/a/checkpoint/mul:", "a/a"),
            ("jit(f)/transpose(jvp(a))/a/jvp(a)/a/checkpoint/mul:", "a/a"),
            ("jit(f)/transpose(jvp(a))/a/mul:", "a/a"),
            ("jit(f)/transpose(jvp(a))/b/a/checkpoint/mul:", "a/b/a"),
        ):
            self.check_scope(tf_op, scope)

    def test_scope_has_no_brackets_and_one_path(self) -> None:
        for tf_op, scope in (
            # The last part of a path can be inside a wrapper.
            ("jit(f)/mlp/jit(silu):", "mlp/silu"),
            ("jit(f)/mlp/jvp(jit(silu)):", "mlp/silu"),
            ("jit(f)/mlp/jvp():", "mlp"),
            # Slashes inside brackets or quotes do not separate parts.
            ("params_and_buffers['vllm_model.model.layers.0']:", ""),
            ("params['a/b']['c']:", ""),
            ("jit(f)/x['a/b']/mul:", "x['a/b']"),
            ('jit(f)/"a/b"/mul:', '"a/b"'),
            ("jit(f)/call(a/b)/{c/d}/[e/f]/mul:", "call(a/b)/{c/d}/[e/f]"),
            ("jit(f)/jvp(x['a/b']/mlp)/mul:", "x['a/b']/mlp"),
            ("jit(f)/aten::mul.Tensor/mn,pn->mp/dot_general:", "aten::mul.Tensor/mn,pn->mp"),
            # Only the first of several paths is used, and empty parts are ignored.
            ("jit(f)/mlp/mul;jit(f)/attn/add:", "mlp"),
            ("jit(f)/mlp//mul:", "mlp"),
        ):
            self.check_scope(tf_op, scope)

    def test_path_missing_in_the_trace_comes_from_the_program(self) -> None:
        program = a_program(
            hlo_proto.op("a", "fusion", tf_op="jit(f)/jvp(mlp)/mul"),
            hlo_proto.op("b", "fusion", tf_op=""),
        )
        for name, tf_op, scope in (
            ("a", None, "mlp"),
            ("a", "jit(f)/attn/mul:", "attn"),
            ("b", None, None),
            ("c", None, None),
        ):
            ops = Ops().add(STACK, "inner.py:5", name=name, program_id=PROGRAM_ID, tf_op=tf_op)
            self.assertEqual(self.scopes(ops, program)[0]["scope"], scope, (name, tf_op))

    def test_done_without_a_path_has_the_scope_of_its_start(self) -> None:
        for own, scope in (("", "mlp"), ("jit(f)/attn/add", "attn")):
            program = a_program(
                hlo_proto.op("x", "add", tf_op="jit(f)/other/add"),
                hlo_proto.op("copy-start", "copy-start", "x", tf_op="jit(f)/mlp/copy"),
                hlo_proto.op("copy-done", "copy-done", "copy-start", tf_op=own),
            )
            ops = Ops().add(category="copy-done", name="copy-done", program_id=PROGRAM_ID)
            self.assertEqual(self.scopes(ops, program), [{"scope": scope, "dur_ps": 10}])


class Records(unittest.TestCase):
    def frames(self, data: bytes) -> list[list[str]]:
        result = answer(data, "record")
        return [[result["frames"][i] for i in group["frames"]] for group in result["groups"]]

    def test_frames_in_a_record_are_outermost_first(self) -> None:
        for stack in (STACK, TURNED, f"  {TURNED}\n\n"):
            ops = Ops().add(stack, "inner.py:5").add(stack, "inner.py:5", step=1)
            self.assertEqual(self.frames(ops.data()), [[OUTER, MIDDLE, INNER]])
            [group] = answer(ops.data(), "record")["groups"]
            self.assertEqual(
                (group["agg_key"], group["source"]), (key_of(STACK), "a dir/inner.py:5")
            )


def printed(result: Json) -> str:
    """Return an answer as JSON, without paths and the stack order."""
    left_out = ("profile_dir", "baseline_dir", "stack_order")
    return json.dumps({name: value for name, value in result.items() if name not in left_out})


class TurnedAround(InFolder):
    def setUp(self) -> None:
        super().setUp()
        [path] = DEMO.glob("plugins/profile/*/*.xplane.pb.gz")
        data = gzip.decompress(path.read_bytes())
        name = "t1v-n-0.xplane.pb"
        self.demo = self.write(f"as it was/{name}", data)
        self.turned = self.write(f"turned/{name}", with_stacks(data, turned_around))
        self.ended = self.write(f"ended/{name}", with_stacks(data, "{}\n".format))

    def test_reversed_stacks_give_the_same_answers(self) -> None:
        for mode in sampled((*MODES, "record", "spread"), 1):
            with self.subTest(mode=mode):
                before, turned = answer(self.demo, mode), answer(self.turned, mode)
                self.assertEqual(printed(turned), printed(before))
                self.assertEqual(printed(answer(self.ended, mode)), printed(before))
                if mode in MODES:
                    self.assertEqual(before["stack_order"], OUTERMOST_FIRST)
                    self.assertEqual(turned["stack_order"], INNERMOST_FIRST)
