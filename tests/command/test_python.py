"""Test the Python functions `analyse` and `render`: answers, option values, side effects."""

from __future__ import annotations

import gc
import gzip
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import unittest
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import compute_breakdown
from _breakdown.analysis import processes
from compute_breakdown import NoAnswer
from tests.builders.riegeli import chunk_of, records_of, riegeli
from tests.builders.xspace import op, trace
from tests.harness import (
    AFTER,
    ALL_MODES,
    BEFORE,
    BRIEF,
    MODES_OF_TRACE,
    ROOT,
    InFolder,
    Json,
    bound,
    run,
    sampled,
    shared_file,
)
from tests.modes.small_steps import small_capture

# Type these as Any, because some tests pass wrong types.
analyse: Any = compute_breakdown.analyse
render: Any = compute_breakdown.render
DATA = small_capture()
SMALL = shared_file("small.xplane.pb", DATA)
# These modes require no option.
MODES = tuple(mode for mode in ALL_MODES if mode not in ("compare", "page", "export"))


def printed(profile: str | Path, mode: str, *options: str) -> Json:
    """Return the answer that the command prints, without `next_steps`, which contain the command's
    name."""
    return run(profile, mode, *options, BRIEF).object


def without_commands(answer: Json) -> Json:
    return {**answer, "next_steps": []} if "next_steps" in answer else dict(answer)


class Answers(InFolder):
    def test_answer_equals_what_the_command_prints(self) -> None:
        for mode in MODES:
            with self.subTest(mode=mode):
                self.assertEqual(without_commands(analyse(SMALL, mode)), printed(SMALL, mode))
        self.assertEqual(analyse(str(SMALL), "idle"), analyse(SMALL, "idle"))

    def test_compare_equals_what_the_command_prints(self) -> None:
        found = analyse(AFTER, "compare", baseline=BEFORE)
        expected = printed(AFTER, "compare", "--baseline", str(BEFORE))
        self.assertEqual(without_commands(found), expected)

    def test_trace_in_memory_gives_the_same_answer_as_the_file(self) -> None:
        forms = {
            "plain": DATA,
            "gzipped": gzip.compress(DATA),
            "riegeli": riegeli([chunk_of(records_of(DATA, 2))]),
        }
        for form, data in forms.items():
            suffix = {"plain": "pb", "gzipped": "pb.gz", "riegeli": "riegeli"}[form]
            # A trace in memory is named `-`, like stdin, so the file gets this name too.
            path = self.write(f"-.xplane.{suffix}", data)
            for mode in MODES:
                if form == "riegeli" and mode not in MODES_OF_TRACE:
                    # The continuous capture built here has no programs.
                    continue
                with self.subTest(form=form, mode=mode):
                    found, expected = analyse(data, mode), printed(path, mode)
                    self.assertEqual(found["profile_dir"], "-")
                    self.assertEqual(found.get("xplane_file", "-"), "-")
                    result = json.dumps(expected).replace(str(path), "-").replace(path.name, "-")
                    self.assertEqual(without_commands(found), json.loads(result))

    def test_page_export_and_compare_accept_traces_in_memory(self) -> None:
        data = trace([op("f", "loop fusion", 0, 50), op("g", "copy", 50, 10)], [("0", 0, 100)])
        path = self.write("-.xplane.pb", data)
        for mode in ("page", "export"):
            out = self.folder / mode
            expected = printed(path, mode, "--out", str(out))
            found = analyse(data, mode, out=out)
            # The page contains the trace's name a few times, so its size depends on the path.
            n_bytes = 9 * (len(str(path)) - 1) if mode == "page" else 0
            self.assertLessEqual(abs(expected.pop("bytes") - found.pop("bytes")), n_bytes)
            # The headline of a page contains its size.
            del expected["headline"], found["headline"]
            result = json.dumps(expected).replace(str(path), "-").replace(path.name, "-")
            self.assertEqual(without_commands(found), json.loads(result))
        expected = printed(path, "compare", "--baseline", str(path))
        found = analyse(data, "compare", baseline=data)
        for field in ("headline", "totals", "rows", "program_changes", "notes"):
            self.assertEqual(found[field], expected[field], field)

    def test_record_can_be_a_dict_or_bytes(self) -> None:
        record = {**analyse(DATA, "record"), "host": "host"}
        before = json.dumps(record).encode()
        after = {**record, "steps": record["steps"][:1]}
        zipped = self.write("before.json.gz", gzip.compress(before))
        path = self.write("after.json", json.dumps(after).encode())
        expected = printed(path, "compare", "--baseline", str(zipped))
        for profile, baseline in (
            (after, before),
            (path, zipped.read_bytes()),
            (after, record),
            (path, zipped),
        ):
            found = analyse(profile, "compare", baseline=baseline)
            for field in expected.keys() - {"profile_dir", "baseline_dir", "next_steps"}:
                self.assertEqual(found[field], expected[field], field)
        self.assertEqual(analyse(after, "compare", baseline=zipped)["profile_dir"], "-")
        self.assertEqual(analyse(path, "compare", baseline=before)["baseline_dir"], "-")
        both = analyse(after, "compare", baseline=before)
        self.assertEqual((both["profile_dir"], both["baseline_dir"]), ("-", "<capture 2>"))
        spread = analyse(after, "spread")
        self.assertEqual(spread["cohorts"], printed(path, "spread")["cohorts"])

    def test_answer_is_a_dict_that_can_be_serialised(self) -> None:
        found = analyse(SMALL, "summary")
        self.assertIsInstance(found, dict)
        self.assertEqual(json.loads(json.dumps(found)), found)
        self.assertEqual(pickle.loads(pickle.dumps(found)), found)

    def test_mode_is_bottleneck_by_default_and_compare_with_a_baseline(self) -> None:
        self.assertEqual(analyse(SMALL), analyse(SMALL, "bottleneck"))
        self.assertEqual(
            analyse(AFTER, baseline=BEFORE), analyse(AFTER, "compare", baseline=BEFORE)
        )

    def test_prompt_shows_the_first_sentence(self) -> None:
        found = analyse(SMALL, "summary")
        expected = f"<summary: ok, {len(found)} fields> {found['headline']}"
        self.assertEqual(repr(found), expected)

    def test_next_steps_run_as_printed(self) -> None:
        found = analyse(SMALL, "idle")
        (step,) = found["next_steps"]
        done = subprocess.run(
            step["command"], shell=True, capture_output=True, text=True, check=True
        )
        self.assertEqual(json.loads(done.stdout)["mode"], "idle")
        self.assertEqual(analyse(DATA, "idle")["next_steps"], [])


class Options(unittest.TestCase):
    def assert_same(self, mode: str, options: Json, *words: str) -> None:
        with self.subTest(mode=mode, options=options):
            found = without_commands(analyse(SMALL, mode, **options))
            self.assertEqual(found, printed(SMALL, mode, *words))

    def test_keyword_arguments_equal_command_line_options(self) -> None:
        cases: tuple[tuple[str, Json, list[str]], ...] = (
            (
                "summary",
                {"include_comm": True, "top": 3, "step": -1, "own": ["norm", "x"], "device": 1},
                ["--include-comm", "--top=3", "--step=-1", "--own=norm", "--own=x", "--device=1"],
            ),
            (
                "summary",
                {"include_comm": False, "top": None, "step_id": "101", "own": "norm"},
                ["--step-id=101", "--own=norm"],
            ),
            ("record", {"steps": slice(1, None)}, ["--steps=1:"]),
            ("record", {"steps": slice(-2, -1)}, ["--steps=-2:-1"]),
            ("record", {"steps": ":1"}, ["--steps=:1"]),
            ("roofline", {"bytes": "hbm", "top": 0}, ["--bytes=hbm", "--top=0"]),
            (
                "by_op",
                {"step": "all", "peaks": {"bf16": 500, "hbm_gibps": 1000.5}},
                ["--step=all", "--peak-tflops-bf16=500", "--peak-hbm-gibps=1000.5"],
            ),
            ("by_op", {"peak_hbm_gibps": 1000.5}, ["--peak-hbm-gibps=1000.5"]),
            (
                "bottleneck",
                {"model_flops": 6e12, "kernel_cost": ["flash=1e9,1e6", "ring=2,3"]},
                ["--model-flops=6e12", "--kernel-cost=flash=1e9,1e6", "--kernel-cost=ring=2,3"],
            ),
        )
        for mode, options, words in cases:
            self.assert_same(mode, options, *words)

    def test_wrong_option_name_raises_type_error(self) -> None:
        for mode, options in (
            ("summary", {"tpo": 3}),
            ("summary", {"peers": True}),
            ("summary", {"format": "text"}),
            ("summary", {"peaks": {"bf16": 3}}),
            ("idle", {"mode_": 1}),
        ):
            (name,) = options
            with self.subTest(name), self.assertRaisesRegex(TypeError, f"no option '{name}'"):
                analyse(SMALL, mode, **options)
        with self.assertRaisesRegex(TypeError, "did you mean include_comm"):
            analyse(SMALL, "summary", include_com=True)


class Refusals(unittest.TestCase):
    def test_no_answer_exception_contains_the_answer_that_the_command_prints(self) -> None:
        for profile, mode, options, words in (
            ("/no/such", "summary", {}, []),
            (SMALL, "summary", {"device": 9}, ["--device=9"]),
            (SMALL, "by_op", {"op": "nothing"}, ["--op=nothing"]),
        ):
            with self.assertRaises(NoAnswer) as raised:
                analyse(profile, mode, **options)
            result, failure = printed(profile, mode, *words), raised.exception
            self.assertEqual(failure.answer, result)
            self.assertEqual(failure.reason, result["reason"])
            self.assertEqual(failure.detail, result.get("detail"))
            self.assertTrue(str(failure).startswith(f"{failure.reason}: "))
            again = pickle.loads(pickle.dumps(failure))
            self.assertEqual((again.reason, again.answer), (failure.reason, failure.answer))

    def test_damaged_bytes_raise_no_answer(self) -> None:
        for data in (
            b"",
            DATA[:1000],
            gzip.compress(DATA)[:100],
            b"text, not a trace",
            b"\x1f\x8b",
        ):
            for mode in ("summary", "record", "anatomy", "compare"):
                more = {"baseline": BEFORE} if mode == "compare" else {}
                with self.subTest(data[:10], mode=mode), self.assertRaises(NoAnswer) as raised:
                    analyse(data, mode, **more)
                self.assertIn(
                    raised.exception.reason, ("unreadable_xplane_pb", "unreadable_record")
                )


class Render(unittest.TestCase):
    def test_render_returns_what_the_command_prints_into_a_pipe(self) -> None:
        environment = {**os.environ, "COLUMNS": "60"}
        for mode in sampled(("summary", "idle"), 1):
            for form in ("json", *sampled(("text", "markdown", "csv"), 1)):
                words = [str(SMALL), "--mode", mode, "--format", form]
                done = subprocess.run(
                    [sys.executable, str(ROOT / "compute_breakdown.py"), *words],
                    capture_output=True, text=True, check=True, encoding="utf-8",
                    env={k: v for k, v in environment.items() if k != "COLUMNS"},
                )  # fmt: skip
                with self.subTest(mode=mode, form=form):
                    found = analyse(SMALL, mode)
                    with mock.patch.dict(os.environ, environment):
                        self.assertEqual(render(found, form), done.stdout)


class SideEffects(InFolder):
    def test_several_threads_get_the_same_answers(self) -> None:
        modes = ("memory", "idle")
        expected = {mode: analyse(DATA, mode) for mode in modes}
        found: list[tuple[str, Json]] = []
        threads = [
            threading.Thread(target=lambda mode=mode: found.append((mode, analyse(DATA, mode))))
            for mode in (*modes, *modes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(found), len(threads))
        for mode, answer in found:
            self.assertEqual(answer, expected[mode])

    def test_functions_print_nothing(self) -> None:
        code = (
            "import compute_breakdown as c\n"
            f"c.analyse({str(SMALL)!r}, 'summary')\n"
            "for call in (lambda: c.analyse('/no', 'summary'), lambda: c.analyse('', 'x')):\n"
            "    try: call()\n"
            "    except (c.NoAnswer, ValueError): pass\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
        )
        self.assertEqual((done.stdout, done.stderr), ("", ""))

    def test_state_of_the_process_is_unchanged(self) -> None:
        def state() -> Json:
            umask = os.umask(0o22)
            os.umask(umask)
            return {
                "signal handlers": {n: signal.getsignal(n) for n in signal.valid_signals()},
                "garbage collection": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()),
                "folder, umask, environment": (os.getcwd(), umask, dict(os.environ)),
                "search path and hooks": (*sys.path, *sys.meta_path, sys.excepthook),
                "streams": (sys.stdin, sys.stdout, sys.stderr),
                "warnings and limits": (*warnings.filters, sys.getrecursionlimit()),
                "threads": threading.enumerate(),
                "open files": os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd") else 0,
            }

        was_enabled = gc.isenabled()
        gc.enable()
        self.addCleanup(gc.enable if was_enabled else gc.disable)
        before = state()
        with mock.patch.object(gc, "disable", side_effect=AssertionError("gc.disable")):
            for mode in ALL_MODES:
                options: Json = {"baseline": BEFORE} if mode == "compare" else {}
                if mode in ("page", "export"):
                    options["out"] = self.folder / mode
                with self.subTest(mode=mode):
                    analyse(SMALL, mode, **options)
                    self.assertEqual(state(), before)
        with self.assertRaises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)

    def test_processes_are_started_only_on_request(self) -> None:
        pids: list[int] = []
        fork = os.fork

        def counted_fork() -> int:
            pid = fork()
            pids.append(pid)
            return pid

        with (
            mock.patch.object(os, "fork", counted_fork),
            mock.patch.object(processes, "SMALL_FILE", 0),
            mock.patch.object(processes, "n_cores", lambda: 8),
        ):
            cases: tuple[tuple[str, Path | bytes], ...] = (
                *(("record", SMALL), ("spread", DATA), ("anatomy", SMALL)),
            )
            for mode, profile in cases:
                pids.clear()
                alone = analyse(profile, mode)
                self.assertEqual(pids, [])
                self.assertEqual(analyse(profile, mode, processes=2), alone)
                self.assertNotEqual(pids, [])

    def test_import_takes_little_cpu_time(self) -> None:
        # Let Python cache compiled modules, as it does for users, but in a separate folder.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = str(self.folder)
        code = (
            "import time, google.protobuf\nbegin = time.process_time()\n"
            "import compute_breakdown\nprint(time.process_time() - begin)"
        )
        times = [
            float(subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, env=environment))
            for _ in range(4)
        ]
        self.assertLess(min(times), bound(0.04))
