"""Test that `record`, `compare` and `spread` give the same answers for traces and for records.

The traces are written for these tests: they run the demo's program, or an edited version of it.
Other tests of `compare` and `spread` use records.
"""

from __future__ import annotations

import gzip
import json
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.builders import records, rewrite
from tests.builders.edits import edits_of, small
from tests.builders.records import DEVICE, Json, Name, Program
from tests.harness import DEMO, InFolder, answer


class WithFiles(InFolder):
    def record_of(self, trace: Path, name: str, *options: str) -> Path:
        """Write the record of a trace."""
        return self.write(name, json.dumps(answer(trace, "record", *options)).encode())


def compare(before: Path, after: Path, *options: str) -> Json:
    return answer(after, "compare", "--baseline", str(before), *options)


def comparable(of: Json) -> Json:
    """Return an answer without the fields that name files."""
    return {key: of[key] for key in of.keys() - {"profile_dir", "baseline_dir", "notes"}}


class Record(unittest.TestCase):
    def test_rewritten_trace_of_the_demo_has_the_same_record_as_the_demo(self) -> None:
        again = answer(
            rewrite.trace(records.of_demo(), 2, devices=(DEVICE, "/device:TPU:3")), "record"
        )
        demo = answer(DEMO, "record")
        self.assertEqual(again["groups"], demo["groups"])
        self.assertEqual(again["frames"], demo["frames"])
        programs = {device["program"] for of in (again, demo) for device in of["devices"]}
        self.assertEqual(len(programs), 1)
        # Ignore the fields that differ between the steps; a device's last step has no period.
        some = {"index": 0, "name": "", "device": 0, "period_ps": None}
        first, *others = ({**step, **some} for step in again["steps"])
        self.assertEqual(first, {**demo["steps"][0], **some})
        for other in others:
            self.assertEqual(other, first)


class Compared(WithFiles):
    sides: tuple[bytes, bytes]

    @classmethod
    def setUpClass(cls) -> None:
        program = small(records.of_demo())
        changed = records.renumber(edits_of(program, seed=3)["all at once"][0](program))
        cls.sides = (
            rewrite.trace(program, 4, jitter=0.04, seed=1),
            rewrite.trace(changed, 4, jitter=0.04, seed=2),
        )

    def setUp(self) -> None:
        super().setUp()
        self.traces = [
            self.write(f"{i}/host.xplane.pb", trace) for i, trace in enumerate(self.sides)
        ]

    def test_compare_gives_the_same_answer_for_a_record_and_its_trace(self) -> None:
        before, after = self.traces
        expected = comparable(compare(before, after))
        ours = self.record_of(before, "before/plain.json")
        plain = self.record_of(after, "plain.json").read_bytes()
        theirs = self.write("after/gzipped.json.gz", gzip.compress(plain))
        for pair in ((ours, theirs), (ours, after), (ours.parent, theirs.parent)):
            self.assertEqual(comparable(compare(*pair)), expected, pair)


def names_of(n_hosts: int, n_devices: int) -> list[Name]:
    return [(f"h{h}", f"/device:TPU:{d}") for h in range(n_hosts) for d in range(n_devices)]


class Spread(WithFiles):
    program: Program

    @classmethod
    def setUpClass(cls) -> None:
        cls.program = small(records.of_demo())

    def write_pod(self, folder: str, names: Sequence[Name], n_steps: int, **of: Any) -> Path:
        pod = rewrite.pod(self.program, names, n_steps, **of)
        for host, data in pod.items():
            self.write(f"{folder}/{host}.xplane.pb", data)
        return self.folder / folder

    def test_spread_is_the_same_for_reordered_split_and_compressed_files(self) -> None:
        names = names_of(2, 2)
        traces = self.write_pod("traces", names, 3, jitter=0.01)
        expected = comparable(answer(traces, "spread"))
        for i, path in enumerate(sorted(traces.iterdir(), reverse=True)):
            data = path.read_bytes()
            self.write(f"gzipped/{path.name}.gz", gzip.compress(data, 1))
            plain = self.record_of(path, f"records/{i}.json").read_bytes()
            self.write(f"gzipped records/{i}.json.gz", gzip.compress(plain))
            for device in dict.fromkeys(device for _, device in names):
                split = f"split/{9 - i}{device[-1]}.json"
                self.record_of(path, split, "--device", device)
        for form in ("gzipped", "records", "gzipped records", "split"):
            with self.subTest(form):
                self.assertEqual(comparable(answer(self.folder / form, "spread")), expected)
