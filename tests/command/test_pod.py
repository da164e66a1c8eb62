"""What the guide says of a pod: its three examples run as they stand there."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.command.test_readme import GUIDE, blocks
from tests.harness import DEMO, SCRIPT, bound, run

Json = dict[str, Any]

HOSTS = ("t1v-n-0", "t1v-n-1")
EXAMPLES = {block.language: block.text for block in blocks(GUIDE) if block.section == "A pod"}
TRACE = gzip.decompress(next(DEMO.rglob("*.xplane.pb.gz")).read_bytes())
CUT_OFF = TRACE[: len(TRACE) // 2]

# A launcher that runs a command on each host, all of which see one disk.
SRUN = f"""[ "$1" = --ntasks-per-node=1 ] && shift
for HOST in {shlex.join(HOSTS)}; do
  export HOST
  "$@" || failed=$?
done
exit "${{failed:-0}}"
"""
# The cluster that the example would find, of two workers.
CLUSTER = """import runpy, sys
import ray
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=10**8)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Pod(unittest.TestCase):
    """Runs in a folder of its own, with what the examples call on its PATH."""

    root: Path

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.install("compute-breakdown", f'exec {shlex.join([sys.executable, str(SCRIPT)])} "$@"')

    def install(self, name: str, script: str) -> None:
        path = self.root / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def write(self, folder: str, *traces: bytes) -> Path:
        """A run with a trace of each host."""
        path = self.root / folder
        path.mkdir(parents=True)
        for host, trace in zip((*HOSTS, "t1v-n-2"), traces, strict=False):
            (path / f"{host}.xplane.pb").write_bytes(trace)
        return path

    def call(
        self, *command: str, cwd: Path | None = None, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        path = f"{self.root / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            command,
            cwd=cwd or self.root,
            env={**os.environ, "PATH": path, **(variables or {})},
            capture_output=True,
            timeout=bound(60),
            check=False,
        )

    def said(self, *command: str, cwd: Path | None = None) -> bytes:
        return self.call("compute-breakdown", *command, cwd=cwd).stdout

    def assert_joined(self, records: Path, n_hosts: int, *unreadable: str) -> None:
        answer = run(records, "spread").object
        self.assertEqual((answer["n_hosts"], answer["n_devices"]), (n_hosts, 2 * n_hosts))
        self.assertEqual(answer["n_hosts_unreadable"], len(unreadable))
        notes = [note for note in answer["notes"] if "can't be read" in note]
        for note, host in zip(notes, unreadable, strict=True):
            self.assertIn(f"{host}.json: no record could be made: unreadable_xplane_pb", note)


class Launcher(Pod):
    def setUp(self) -> None:
        super().setUp()
        self.install("srun", SRUN)
        self.install("hostname", 'echo "$HOST"')

    def launch(self) -> subprocess.CompletedProcess[bytes]:
        return self.call("bash", "-c", EXAMPLES["bash"])

    def test_each_host_writes_its_record_beside_its_trace(self) -> None:
        traces = self.write("logs/plugins/profile/2026_01_02", TRACE, TRACE)
        done = self.launch()
        self.assertEqual((done.stderr, done.returncode), (b"", 0))
        self.assertEqual(done.stdout, self.said("logs", "--mode", "spread"))
        self.assert_joined(traces, 2)
        for host in HOSTS:
            record = (traces / f"{host}.json").read_bytes()
            path = f"logs/plugins/profile/2026_01_02/{host}.xplane.pb"
            self.assertEqual(record, self.said(path, "--mode", "record"))

    def test_a_host_that_fails_is_counted(self) -> None:
        traces = self.write("logs/plugins/profile/2026_01_02", TRACE, CUT_OFF)
        done = self.launch()
        self.assertIn(b"t1v-n-1.xplane.pb: byte ", done.stderr)
        self.assert_joined(traces, 1, "t1v-n-1")


class Kubernetes(Pod):
    def shell(self) -> str:
        """The command of the container, folded as YAML does."""
        found = re.search(r"command: \[sh, -euc, '([^']*)'\]", EXAMPLES["yaml"])
        assert found
        return re.sub(r"\s*\n\s*", " ", found[1])

    def index(self, number: int, cwd: Path) -> int:
        variables = {"JOB_COMPLETION_INDEX": str(number)}
        return self.call("sh", "-euc", self.shell(), cwd=cwd, variables=variables).returncode

    def test_the_job_retries_single_files(self) -> None:
        job = EXAMPLES["yaml"]
        for line in ("completionMode: Indexed", "backoffLimitPerIndex: 2", "restartPolicy: Never"):
            self.assertRegex(job, rf"(?m)^ *{line}$")

    @unittest.skipUnless(importlib.util.find_spec("yaml"), "needs PyYAML")
    def test_the_job_is_yaml(self) -> None:
        job = importlib.import_module("yaml").safe_load(EXAMPLES["yaml"])
        self.assertEqual((job["apiVersion"], job["kind"]), ("batch/v1", "Job"))
        # Those that can't be taken without the others.
        spec, pod = job["spec"], job["spec"]["template"]["spec"]
        self.assertEqual((spec["completionMode"], pod["restartPolicy"]), ("Indexed", "Never"))
        self.assertEqual((spec["backoffLimitPerIndex"], spec["completions"]), (2, 64))
        [container] = pod["containers"]
        self.assertEqual(container["command"], ["sh", "-euc", self.shell()])
        [mount], [volume] = container["volumeMounts"], pod["volumes"]
        self.assertEqual(mount["mountPath"], container["workingDir"])
        self.assertEqual(mount["name"], volume["name"])

    def test_each_index_takes_its_trace(self) -> None:
        traces = self.write("traces", TRACE, TRACE)
        for index, host in enumerate(HOSTS):
            self.assertEqual(self.index(index, traces), 0)
            record = (traces / f"{host}.json").read_bytes()
            self.assertEqual(record, self.said(f"{host}.xplane.pb", "--mode", "record", cwd=traces))
        self.assert_joined(traces, 2)
        # More indexes than traces.
        before = sorted(traces.iterdir())
        for index in (2, 3):
            self.assertNotEqual(self.index(index, traces), 0)
        self.assertEqual(sorted(traces.iterdir()), before)

    def test_an_index_that_fails_is_counted(self) -> None:
        traces = self.write("traces", TRACE, CUT_OFF)
        # As often as it is tried.
        self.assertEqual([self.index(i, traces) for i in (1, 0, 1)], [1, 0, 1])
        self.assert_joined(traces, 1, "t1v-n-1")


@unittest.skipUnless(
    importlib.util.find_spec("ray") and importlib.util.find_spec("fsspec"), "needs Ray and fsspec"
)
class Ray(Pod):
    def record_all(self, traces: Path) -> None:
        (self.root / "pod.py").write_text(EXAMPLES["python"], encoding="utf-8")
        (self.root / "cluster.py").write_text(CLUSTER, encoding="utf-8")
        variables = {
            "HOME": str(self.root),
            "RAY_TMPDIR": str(self.root),
            "RAY_USAGE_STATS_ENABLED": "0",
            # None that runs elsewhere.
            "RAY_ADDRESS": "local",
        }
        command = [sys.executable, "cluster.py", "pod.py", f"{traces.as_uri()}/*.xplane.pb"]
        done = self.call(*command, variables=variables)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])

    def test_the_answer_is_that_of_a_local_call_and_failures_are_counted(self) -> None:
        program = (self.root / "bin" / "compute-breakdown").rename(self.root / "bin" / "program")
        self.install("compute-breakdown", f'echo "$1" >>{self.root}/calls\nexec {program} "$@"')
        traces = self.write("traces", TRACE, TRACE, CUT_OFF)
        self.record_all(traces)
        calls = (self.root / "calls").read_text(encoding="utf-8").split()
        names = [f"{host}.xplane.pb" for host in (*HOSTS, "t1v-n-2")]
        self.assertEqual([calls.count(name) for name in names], [1, 1, 3])
        records = self.root / "records"
        self.assert_joined(records, 2, "t1v-n-2")
        for name in names:
            record = (records / name).with_suffix("").with_suffix(".json").read_bytes()
            self.assertEqual(record, self.said(name, "--mode", "record", cwd=traces))
        # Without the one that failed: of traces whose folder has the same name.
        local = self.root / "local"
        local.mkdir()
        shutil.copytree(traces, local / "records")
        (local / "records" / "t1v-n-2.xplane.pb").unlink()
        (records / "t1v-n-2.json").unlink()
        self.assert_joined(records, 2)
        joined = self.said("records", "--mode", "spread")
        self.assertEqual(joined, self.said("records", "--mode", "spread", cwd=local))
