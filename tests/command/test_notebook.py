"""Run the Python examples, and test how notebooks show answers."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import compute_breakdown
from tests.builders.xspace import op, trace
from tests.harness import ROOT, shared_file
from tests.modes.small_steps import small_capture

analyse: Any = compute_breakdown.analyse
HOSTILE = "<script>alert(1)</script><b>&amp;$x$\x1b[31m"
EXAMPLES = ROOT / "tests" / "examples"
SMALL = shared_file("small.xplane.pb", small_capture())


def hostile_answer() -> Any:
    return analyse(trace([op(HOSTILE, "loop fusion", 0, 5)], [(HOSTILE, 0, 10)]), "by_op")


class Markdown(unittest.TestCase):
    def test_notebook_shows_the_answer_as_markdown(self) -> None:
        answer = analyse(SMALL, "by_op")
        self.assertEqual(answer._repr_markdown_(), compute_breakdown.render(answer, "markdown"))
        self.assertIsNone(analyse(SMALL, "record")._repr_markdown_())


@unittest.skipUnless(find_spec("nbclient") and find_spec("ipykernel"), "needs nbclient, ipykernel")
class Notebook(unittest.TestCase):
    def test_notebook_cell_shows_an_answer_as_tables(self) -> None:
        import nbformat  # type: ignore[import-not-found, unused-ignore]
        from nbclient import NotebookClient  # type: ignore[import-not-found, unused-ignore]

        code = (
            f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
            "from tests.command.test_notebook import hostile_answer\nhostile_answer()"
        )
        notebook: Any = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
        NotebookClient(notebook, timeout=120).execute()
        (output,) = notebook.cells[0].outputs
        self.assertEqual(output.output_type, "execute_result")
        self.assertIn("|:---|", output.data["text/markdown"].replace(" ", ""))


class Examples(unittest.TestCase):
    def test_example_prints_a_table_of_captures(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(SMALL, folder)
            done = self.example("table_of_captures.py", folder, PYTHONPATH=str(ROOT))
        (row,) = csv.DictReader(io.StringIO(done.stdout))
        answer = analyse(SMALL, "bottleneck")
        self.assertEqual(row["capture"], answer["xplane_file"])
        self.assertEqual(float(row["step_ms"]), answer["step_duration_ps"] / 1e9)
        self.assertEqual(row["headline"], answer["headline"])
        self.assertEqual(done.stderr, "")

    def test_example_captures_steps(self) -> None:
        done = self.with_stand_in("capture_steps.py")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        headlines = [analyse(SMALL, mode)["headline"] for mode in ("bottleneck", "idle")]
        self.assertEqual(done.stdout.splitlines(), headlines)

    def test_example_times_a_kernel(self) -> None:
        row = analyse(SMALL, "kernel", step="all")["kernels"][0]
        done = self.with_stand_in("time_kernel.py")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        first = f"{row['kernel']} {row['n_executions']} {row['avg_dur_ps'] / 1e6:.3f} us"
        self.assertEqual(done.stdout.splitlines()[0], first)

    def with_stand_in(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run an example with a stand-in for JAX whose profiler writes a small capture."""
        with tempfile.TemporaryDirectory() as folder:
            for name, code in STAND_IN.items():
                path = Path(folder, *name.split("."), "__init__.py")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(code, encoding="utf-8")
            return self.example(script, PYTHONPATH=f"{folder}:{ROOT}")

    @unittest.skipUnless(find_spec("jax"), "needs jax")
    def test_examples_that_trace_fail_with_the_reason_on_a_cpu(self) -> None:
        for script in ("time_kernel.py", "capture_steps.py"):
            done = self.example(script, PYTHONPATH=str(ROOT), JAX_PLATFORMS="cpu")
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("device_not_found: the capture is of CPU, not of a TPU", done.stderr)

    def example(
        self, script: str, *arguments: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(EXAMPLES / script), *arguments],
            env={**os.environ, **environment}, capture_output=True, text=True, check=False,
        )  # fmt: skip


# Modules that replace the parts of JAX that the example uses; their `trace` copies a small capture.
STAND_IN = {
    "jax": "from jax import profiler, tree_util\njit = block_until_ready = lambda value: value\n"
    "default_backend = lambda: 'tpu'\nShapeDtypeStruct = lambda shape, dtype: (shape, dtype)",
    "jax.profiler": f"""
import contextlib, shutil

def start_trace(folder):
    shutil.copy({str(SMALL)!r}, folder)

def stop_trace():
    pass

def StepTraceAnnotation(name, step_num):
    return contextlib.nullcontext()
""",
    "jax.tree_util": "tree_leaves = list",
    "jax.numpy": """
float32 = "f32"

class ones(float):
    def __new__(cls, shape, dtype):
        array = super().__new__(cls, 1)
        array.shape, array.dtype = shape, dtype
        return array
""",
    "jax.experimental": "",
    "jax.experimental.pallas": "pallas_call = lambda kernel, **options: lambda x: x",
}
