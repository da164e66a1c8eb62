"""Test `compute_breakdown.capture`, with a stand-in for JAX, and with JAX itself if installed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import compute_breakdown
from tests.harness import ROOT, InFolder
from tests.modes.small_steps import small_capture

capture: Any = compute_breakdown.capture


class Leaf:
    """An array that a step can delete."""

    is_gone = False

    def is_deleted(self) -> bool:
        return self.is_gone


class StandIn:
    """A stand-in for the module `jax` whose profiler writes a small capture."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.is_tracing = False
        self.folder = ""
        self.profiler = SimpleNamespace(
            start_trace=self.start, stop_trace=self.stop, StepTraceAnnotation=self.annotation
        )
        self.tree_util = SimpleNamespace(tree_leaves=list)

    def start(self, folder: str) -> None:
        if self.is_tracing:
            raise RuntimeError("Profile has already been started.")
        self.is_tracing, self.folder = True, folder

    def stop(self) -> None:
        self.is_tracing = False
        Path(self.folder).mkdir(exist_ok=True)
        Path(self.folder, "small.xplane.pb").write_bytes(small_capture())

    @contextlib.contextmanager
    def annotation(self, name: str, *, step_num: int) -> Iterator[None]:
        self.said.append(f"{name} {step_num} {'traced' if self.is_tracing else 'not traced'}")
        yield

    def block_until_ready(self, out: object) -> object:
        self.said.append("wait")
        return out


class WithStandIn(InFolder):
    def setUp(self) -> None:
        super().setUp()
        self.jax = StandIn()
        for patch in (
            mock.patch.dict(sys.modules, {"jax": self.jax}),
            mock.patch.object(tempfile, "tempdir", str(self.folder)),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def step(self, *args: Leaf) -> str:
        self.jax.said.append("call")
        return "out"

    def assert_nothing_is_left(self) -> None:
        self.assertFalse(self.jax.is_tracing)
        self.assertEqual(os.listdir(self.folder), [])

    def test_answer_is_that_of_the_trace(self) -> None:
        answer = capture(self.step, Leaf(), n=2)
        expected = compute_breakdown.analyse(small_capture(), "bottleneck")
        self.assertEqual(answer["causes"], expected["causes"])
        self.assertEqual(answer["headline"], expected["headline"])
        self.assertEqual(answer["next_steps"], [], "commands cannot read a deleted trace")
        self.assert_nothing_is_left()

    def test_step_is_called_once_before_the_trace_and_not_waited_for_inside(self) -> None:
        capture(self.step, n=2, mode="summary", top=1)
        self.assertEqual(
            self.jax.said,
            ["call", "wait", "step 0 traced", "call", "step 1 traced", "call", "wait"],
        )

    def test_block_of_code_is_traced(self) -> None:
        with capture(mode="idle", step="all") as captured:
            self.step()
            self.assertTrue(self.jax.is_tracing)
            with self.assertRaisesRegex(ValueError, "at the end of the with statement"):
                _ = captured.answer
        self.assertEqual(captured.answer["mode"], "idle")
        self.assert_nothing_is_left()

    def test_exception_ends_the_trace(self) -> None:
        for n_calls in (0, 1):

            def failing(*args: Leaf, left: list[int] = [n_calls]) -> None:  # noqa: B006
                if not left[0]:
                    raise ZeroDivisionError
                left[0] -= 1

            with self.assertRaises(ZeroDivisionError):
                capture(failing)
            self.assert_nothing_is_left()
        with self.assertRaises(ZeroDivisionError), capture():
            raise ZeroDivisionError
        self.assert_nothing_is_left()

    def test_running_trace_of_the_user_goes_on(self) -> None:
        self.jax.start("elsewhere")
        with self.assertRaisesRegex(RuntimeError, "already been started"), capture():
            self.fail("the block must not run")
        self.assertTrue(self.jax.is_tracing)
        self.assertEqual(os.listdir(self.folder), [])

    def test_step_that_donates_needs_carry(self) -> None:
        infos = SimpleNamespace(args_info=[SimpleNamespace(donated=True)])
        jitted = mock.Mock(lower=mock.Mock(return_value=infos))
        with self.assertRaisesRegex(ValueError, "donates its arguments; pass carry="):
            capture(jitted, Leaf())
        jitted.assert_not_called()

        def plain(leaf: Leaf) -> Leaf:
            self.assertFalse(leaf.is_gone)
            leaf.is_gone = True
            return Leaf()

        with self.assertRaisesRegex(ValueError, "first call deleted its arguments; pass carry="):
            capture(plain, Leaf())
        self.assertEqual(capture(plain, Leaf(), carry=lambda out, args: (out,))["status"], "ok")
        self.assert_nothing_is_left()

    def test_wrong_option_is_an_error_before_the_first_call(self) -> None:
        with self.assertRaises(TypeError):
            capture(self.step, mode="idle", peers=True)
        for options in (
            {"mode": "nope"},
            {"mode": "page"},
            {"mode": "compare"},
            {"top": -3},
            {"chip": "v99"},
            {"n": 0},
            {"n": "3"},
        ):
            with self.subTest(options), self.assertRaises((TypeError, ValueError)):
                capture(self.step, **options)
        for of_steps in ({"n": 2}, {"carry": print}):
            with self.subTest(of_steps), self.assertRaises(TypeError):
                capture(**of_steps)
        self.assertEqual(self.jax.said, [], "the step was called although the option is wrong")
        self.assert_nothing_is_left()


CPU = """\
import os, tempfile
import jax
import compute_breakdown
add = jax.jit(lambda x: x @ x + 1)
donating = jax.jit(lambda x: x + 1, donate_argnums=0)
array = jax.numpy.ones((64, 64))
def refused(*args, **options):
    try:
        compute_breakdown.capture(*args, **options)
    except (compute_breakdown.NoAnswer, ValueError) as error:
        return str(error)
print(refused(add, array))
print(refused(donating, array), array.is_deleted())
print(refused(donating, array, carry=lambda out, args: (out,)), array.is_deleted())
print(os.listdir(tempfile.gettempdir()))
with jax.profiler.trace(os.path.join(tempfile.gettempdir(), "mine")):
    print("a new trace can be started")
"""


@unittest.skipUnless(find_spec("jax"), "JAX is not installed")
class WithJax(InFolder):
    def test_trace_of_a_cpu_has_no_tpu(self) -> None:
        done = subprocess.run(
            [sys.executable, "-c", CPU],
            env={**os.environ, "JAX_PLATFORMS": "cpu", "TMPDIR": str(self.folder)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        no_tpu = "device_not_found: the capture is of CPU, not of a TPU"
        refusal = "the step donates its arguments; pass carry=lambda out, args: next_args"
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 5, done.stderr)
        self.assertTrue(lines[0].startswith(no_tpu), lines[0])
        self.assertTrue(lines[1].startswith(refusal) and lines[1].endswith(" False"), lines[1])
        self.assertTrue(lines[2].startswith(no_tpu) and lines[2].endswith(" True"), lines[2])
        self.assertEqual(lines[3:], ["[]", "a new trace can be started"])
