"""Test captures in folders that contain traces, records and other files."""

from __future__ import annotations

import gzip
import json
import shlex
import tempfile
import unittest
from functools import cache
from pathlib import Path

from _breakdown.command import outcome_of
from tests.builders.xspace import Plane, Space, encode, op, tpu_plane
from tests.harness import SCRIPT, Json, Outcome, run

Files = dict[str, bytes]

HOSTS = ("h0", "h1", "h2")
DEVICES = ("/device:TPU:0", "/device:TPU:1")
SLOW = {"host": "h1", "device": "/device:TPU:0"}


@cache
def a_trace(host: str) -> bytes:
    """Return a trace of five steps on two devices; the devices of all hosts wait for h1's first."""

    def plane(device: str) -> Plane:
        work = 380 if {"host": host, "device": device} == SLOW else 300
        ops = [
            op_of_step
            for begin in range(0, 5000, 1000)
            for op_of_step in (
                op("a", "loop fusion", begin, work, stack="model.py:1:2"),
                op("all-reduce.1", "all-reduce", begin + work, 800 - work),
            )
        ]
        return tpu_plane(ops, [(str(i), 1000 * i, 900) for i in range(5)], name=device)

    return encode(Space([plane(device) for device in DEVICES]))


@cache
def a_record(host: str) -> bytes:
    """Return a host's record as it is printed."""
    return made_of(host, a_trace(host))


def made_of(host: str, trace: bytes) -> bytes:
    return (json.dumps(on_files({f"{host}.xplane.pb": trace}, "record").object) + "\n").encode()


def traces() -> Files:
    return {f"{host}.xplane.pb": a_trace(host) for host in HOSTS}


def records() -> Files:
    return {f"{host}.json": a_record(host) for host in HOSTS}


def on_files(files: Files, mode: str, *options: str) -> Outcome:
    """Run a mode on a folder with the given files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        outcome = run(folder, mode, *options)
        # Mask the folder's path so that answers for different folders can be compared.
        outcome.object["profile_dir"] = outcome.object["profile_dir"].replace(folder, "folder")
        return outcome


def spread(files: Files, *options: str) -> Json:
    outcome = on_files(files, "spread", *options)
    if (outcome.object["status"], outcome.status) != ("ok", 0):
        raise AssertionError(outcome)
    # The folder differs between calls.
    del outcome.object["trace_of_straggler"]
    return outcome.object


def straggler(answer: Json) -> Json | None:
    found: Json | None = answer["cohorts"][0]["verdict"]["straggler"]
    return found


class NextSteps(unittest.TestCase):
    """Test the command that `spread` suggests for the slow device."""

    def commands(self, files: Files, *profiles: str) -> list[str]:
        """Run `spread` on files in a folder; return the commands that it suggests, as the words
        after the name of the program."""
        with tempfile.TemporaryDirectory() as folder:
            for name, data in files.items():
                path = Path(folder, name)
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(data)
            paths = [str(Path(folder, profile)) for profile in profiles or ("",)]
            found = outcome_of([*paths, "--mode", "spread"]).fields
            commands = [step["command"] for step in found["next_steps"]]
            for command in commands:
                answer = outcome_of(shlex.split(command)[2:]).fields
                self.assertEqual((answer["status"], answer["device"]), ("ok", SLOW["device"]))
                times = {row["class"]: row["dur_ps"] for row in answer["budget"]}
                self.assertEqual(times["unjudged"], 380)
            return [command.partition(f"{SCRIPT} ")[2].replace(folder, "F") for command in commands]

    def test_command_reads_the_slow_host_of_a_folder(self) -> None:
        words = "F --mode bottleneck --device /device:TPU:0 --host h1"
        self.assertEqual(self.commands(traces()), [words])
        # Records next to the traces take precedence, but other modes read the traces.
        self.assertEqual(self.commands(traces() | records()), [words])


class Sources(unittest.TestCase):
    def test_records_gzipped_records_and_traces_give_the_same_answer(self) -> None:
        answer = spread(records())
        self.assertEqual(straggler(answer), SLOW)
        self.assertEqual((answer["n_hosts"], answer["n_devices"], answer["notes"]), (3, 6, []))
        zipped = {f"{name}.gz": gzip.compress(data) for name, data in records().items()}
        some = traces() | {"h1.json": a_record("h1")}
        del some["h1.xplane.pb"]
        for files in (traces(), zipped, some):
            with self.subTest(files=list(files)):
                self.assertEqual(spread(files), answer)

    def test_newest_run_with_a_record_is_used_in_a_log_directory(self) -> None:
        """Users may keep the records and remove the traces."""
        with tempfile.TemporaryDirectory() as folder:
            runs = Path(folder, "plugins", "profile")
            for run_name, files in {
                "r1": traces(),
                "r2": records(),
                "r3": {"x.json": b"1"},
            }.items():
                (runs / run_name).mkdir(parents=True)
                for name, content in files.items():
                    (runs / run_name / name).write_bytes(content)
            for path in (Path(folder), runs):
                result = run(path, "spread").object
                self.assertEqual(result["n_hosts"], len(records()))
                start = "using run r2, the last by name with a record; the others in "
                self.assertEqual(result["notes"][0][: len(start)], start)
                compared = run(path, "compare", "--baseline", str(runs / "r1")).object
                self.assertEqual(compared["status"], "ok")
                # Single-step modes do not read records.
                self.assertTrue(
                    any("using run r1" in note for note in run(path, "summary").object["notes"])
                )
            detail = run(runs / "r3", "spread").object["detail"]
            self.assertTrue(detail.startswith("neither a .xplane.pb file nor a record in"))
            self.assertTrue(detail.endswith(f"; pass {runs}, which has such a file"))


class Options(unittest.TestCase):
    def test_host_device_and_steps_options_select_part_of_a_run(self) -> None:
        for files in (records(), traces()):
            answer = spread(files, "--host", "h1")
            self.assertEqual((answer["n_hosts"], answer["n_devices"]), (1, 2))
            answer = spread(files, "--device", DEVICES[1])
            self.assertEqual((answer["n_hosts"], answer["n_devices"]), (3, 3))
            self.assertIsNone(straggler(answer))
            answer = spread(files, "--steps", "1:-1")
            self.assertEqual([s["name"] for s in answer["cohorts"][0]["steps"]], ["1", "2", "3"])
            outcome = on_files(files, "spread", "--steps", "5:")
            self.assertEqual((outcome.object["reason"], outcome.status), ("step_not_found", 1))
            detail = "--steps selects no usable step of any device"
            self.assertEqual(outcome.object["detail"], detail)

    def test_missing_host_or_device_is_rejected_and_available_names_are_listed(self) -> None:
        for files in (records(), traces()):
            outcome = on_files(files, "spread", "--host", "h9")
            self.assertEqual((outcome.object["reason"], outcome.status), ("host_not_found", 1))
            self.assertEqual(outcome.object["available_hosts"], list(HOSTS))
            outcome = on_files(files, "spread", "--device", "/device:TPU:9")
            self.assertEqual((outcome.object["reason"], outcome.status), ("device_not_found", 1))
            self.assertEqual(outcome.object["available_devices"], list(DEVICES))

    def test_compressed_copy_of_a_record_counts_once(self) -> None:
        answer = spread(records() | {"h1.json.gz": gzip.compress(a_record("h1"))})
        self.assertEqual(answer, spread(records()))

    def test_different_records_of_the_same_host_are_rejected(self) -> None:
        """The folder may still contain a record of an earlier capture of the host."""
        old = json.dumps({**json.loads(a_record("h2")), "host": "h1"}).encode()
        for other in ({"old.json": old}, {"old.json.gz": gzip.compress(old)}):
            for files in (records(), traces()):
                outcome = on_files(files | other, "spread")
                self.assertEqual((outcome.object["reason"], outcome.status), ("duplicate_host", 1))
                for name in (*other, next(name for name in files if name.startswith("h1"))):
                    self.assertIn(name, outcome.object["detail"])
                self.assertEqual(len(outcome.stderr.splitlines()), 1)

    def test_compare_selects_a_host_before_and_after(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name, data in records().items():
                Path(folder, name).write_bytes(data)
            for host, baseline_host in ((None, None), ("h1", None), (None, "h1"), ("h2", "h1")):
                options = ["--host", host] if host else []
                options += ["--baseline-host", baseline_host] if baseline_host else []
                for files in (records(), traces()):
                    answer = on_files(files, "compare", "--baseline", folder, *options).object
                    self.assertEqual(answer["after"]["host"], host or "h0")
                    self.assertEqual(answer["before"]["host"], baseline_host or "h0")
                    duration = answer["totals"]["compute"]["delta_ps"]
                    self.assertEqual(duration, 80 * ((host == "h1") - (baseline_host == "h1")))
            options = ["--baseline", folder, "--baseline-host", "h9"]
            outcome = on_files(traces(), "compare", *options)
            self.assertEqual((outcome.object["reason"], outcome.status), ("host_not_found", 1))
            self.assertEqual(outcome.object["side"], "baseline")
            self.assertEqual(outcome.object["available_hosts"], list(HOSTS))


# Contents of incomplete record files, by description.
CUT_OFF = {
    "nothing": b"",
    "a newline": b"\n",
    "zeros": bytes(4096),
    **{f"{n} bytes": a_record("h1")[:n] for n in (1, 2, 5, 8, 9, 10, 11, 100, 900)},
    "all but the end": a_record("h1").rstrip()[:-1],
}


class Unreadable(unittest.TestCase):
    def assert_one_lost(self, files: Files, *texts: str) -> None:
        answer = spread(files)
        self.assertEqual((answer["n_hosts"], answer["n_hosts_unreadable"]), (2, 1))
        self.assertEqual(answer["n_devices"], 4)
        [note] = [note for note in answer["notes"] if "cannot be read" in note]
        for text in ("h1.", *texts):
            self.assertIn(text, note)
        rest = {name: data for name, data in files.items() if not name.startswith("h1.")}
        self.assertEqual(answer["cohorts"], spread(rest)["cohorts"])

    def test_truncated_files_are_counted_as_unreadable_hosts(self) -> None:
        for what, data in CUT_OFF.items():
            with self.subTest(what=what):
                self.assert_one_lost(records() | {"h1.json": data}, "h1.json: not JSON")
        zipped = gzip.compress(a_record("h1"))
        rest = {name: data for name, data in records().items() if name != "h1.json"}
        for n in (0, 1, 5, 10, 11, 30, len(zipped) - 1):
            with self.subTest(n_bytes=n):
                self.assert_one_lost(rest | {"h1.json.gz": zipped[:n]}, "h1.json.gz: ")
        for data in (b"", b"no trace", a_trace("h1")[:-1]):
            self.assert_one_lost(traces() | {"h1.xplane.pb": data}, "h1.xplane.pb: byte ")
