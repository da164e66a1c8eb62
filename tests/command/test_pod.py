"""Run the examples for multi-host captures: the guide's launcher, the Kubernetes job and Ray."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import unittest
from collections.abc import Mapping
from pathlib import Path

from tests.harness import ROOT, SCRIPT, InFolder, bound, run
from tests.modes.small_steps import small_capture
from tests.pages import GUIDE, blocks

HOSTS = ("t1v-n-0", "t1v-n-1")
TRACE = small_capture()
CUT_OFF = TRACE[: len(TRACE) // 2]
# This stand-in for srun runs the command once per host, on a shared disk.
SRUN = f"""[ "$1" = --ntasks-per-node=1 ] && shift
for HOST in {shlex.join(HOSTS)}; do
  export HOST
  "$@" || failed=$?
done
exit "${{failed:-0}}"
"""
# Start a Ray cluster with two workers, then run the example on it.
CLUSTER = """import runpy, sys
import ray
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=10**8)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
JOB = (ROOT / "tests/examples/records.yaml").read_text(encoding="utf-8")


class Pod(InFolder):
    """Provide a folder, and a PATH with the commands that the examples call."""

    def setUp(self) -> None:
        super().setUp()
        self.install("compute-breakdown", f'exec {shlex.join([sys.executable, str(SCRIPT)])} "$@"')

    def install(self, name: str, script: str) -> None:
        self.write(f"bin/{name}", f"#!/bin/sh\n{script}\n".encode()).chmod(0o755)

    def write_traces(self, folder: str, *traces: bytes) -> Path:
        """Write one trace per host into a folder."""
        for host, trace in zip((*HOSTS, "t1v-n-2"), traces, strict=False):
            self.write(f"{folder}/{host}.xplane.pb", trace)
        return self.folder / folder

    def call(
        self, *command: str, cwd: Path | None = None, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            command,
            cwd=cwd or self.folder,
            env={**os.environ, "PATH": path, **(variables or {})},
            capture_output=True,
            timeout=bound(60),
            check=False,
        )

    def assert_joined(self, records: Path, n_hosts: int, *unreadable: str) -> None:
        answer = run(records, "spread").object
        self.assertEqual((answer["n_hosts"], answer["n_devices"]), (n_hosts, 2 * n_hosts))
        self.assertEqual(answer["n_hosts_unreadable"], len(unreadable))
        notes = [note for note in answer["notes"] if "cannot be read" in note]
        for note, host in zip(notes, unreadable, strict=True):
            self.assertIn(
                f"{host}.json: the file holds an error instead of a record: unreadable_xplane_pb",
                note,
            )


class Launcher(Pod):
    def launch(self, *traces: bytes) -> subprocess.CompletedProcess[bytes]:
        self.install("srun", SRUN)
        self.install("hostname", 'echo "$HOST"')
        self.write_traces("logs/plugins/profile/2026_01_02", *traces)
        (commands,) = [block.text for block in blocks(GUIDE) if "srun" in block.text]
        return self.call("bash", "-c", commands)

    def test_each_host_writes_a_record_next_to_the_trace(self) -> None:
        done = self.launch(TRACE, TRACE)
        self.assertEqual((done.stderr, done.returncode), (b"", 0))
        spread = self.call("compute-breakdown", "logs", "--mode", "spread")
        self.assertEqual(done.stdout, spread.stdout)
        self.assert_joined(self.folder / "logs/plugins/profile/2026_01_02", 2)

    def test_failing_host_is_reported_by_spread(self) -> None:
        done = self.launch(TRACE, CUT_OFF)
        self.assertIn(b"t1v-n-1.xplane.pb: byte ", done.stderr)
        self.assert_joined(self.folder / "logs/plugins/profile/2026_01_02", 1, "t1v-n-1")


class Kubernetes(Pod):
    def shell(self) -> str:
        """Return the container's shell command; YAML folds its lines into one."""
        found = re.search(r"command: \[sh, -euc, '([^']*)'\]", JOB)
        assert found
        return re.sub(r"\s*\n\s*", " ", found[1])

    @unittest.skipUnless(importlib.util.find_spec("yaml"), "needs PyYAML")
    def test_kubernetes_job_is_valid_yaml_with_consistent_fields(self) -> None:
        job = importlib.import_module("yaml").safe_load(JOB)
        self.assertEqual((job["apiVersion"], job["kind"]), ("batch/v1", "Job"))
        spec, pod = job["spec"], job["spec"]["template"]["spec"]
        self.assertEqual((spec["completionMode"], pod["restartPolicy"]), ("Indexed", "Never"))
        self.assertEqual((spec["backoffLimitPerIndex"], spec["completions"]), (2, 64))
        [container], [volume] = pod["containers"], pod["volumes"]
        self.assertEqual(container["command"], ["sh", "-euc", self.shell()])
        [mount] = container["volumeMounts"]
        self.assertEqual(mount["mountPath"], container["workingDir"])
        self.assertEqual(mount["name"], volume["name"])

    def test_each_index_records_one_trace_and_failures_are_reported(self) -> None:
        traces = self.write_traces("traces", TRACE, CUT_OFF)

        def status(index: int) -> int:
            variables = {"JOB_COMPLETION_INDEX": str(index)}
            command = ("sh", "-euc", self.shell())
            return self.call(*command, cwd=traces, variables=variables).returncode

        # Index 1 fails and runs twice, because Kubernetes retries failed indexes.
        self.assertEqual([status(i) for i in (1, 0, 1)], [1, 0, 1])
        self.assert_joined(traces, 1, "t1v-n-1")
        before = sorted(traces.iterdir())
        self.assertNotEqual(status(2), 0, "there is no third trace")
        self.assertEqual(sorted(traces.iterdir()), before)


@unittest.skipUnless(
    importlib.util.find_spec("ray") and importlib.util.find_spec("fsspec"), "needs Ray and fsspec"
)
class Ray(Pod):
    def test_ray_records_each_trace_and_retries_failures(self) -> None:
        program = (self.folder / "bin/compute-breakdown").rename(self.folder / "bin/program")
        calls = self.folder / "calls"
        self.install("compute-breakdown", f'echo "$1" >>{calls}\nexec {program} "$@"')
        traces = self.write_traces("traces", TRACE, TRACE, CUT_OFF)
        example = str(ROOT / "tests/examples/records_with_ray.py")
        self.write("cluster.py", CLUSTER.encode())
        variables = {
            **dict.fromkeys(("HOME", "RAY_TMPDIR"), str(self.folder)),
            "RAY_USAGE_STATS_ENABLED": "0",
            # Without RAY_ADDRESS, the example could connect to a real cluster.
            "RAY_ADDRESS": "local",
        }
        command = [sys.executable, "cluster.py", example, f"{traces.as_uri()}/*.xplane.pb"]
        done = self.call(*command, variables=variables)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        named = calls.read_text(encoding="utf-8").split()
        names = [f"{host}.xplane.pb" for host in (*HOSTS, "t1v-n-2")]
        self.assertEqual([named.count(name) for name in names], [1, 1, 3])
        self.assert_joined(self.folder / "records", 2, "t1v-n-2")
