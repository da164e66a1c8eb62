"""Test the mode `record`: which steps it uses, and the figures of these steps."""

from __future__ import annotations

import gzip
import hashlib
import json
import tempfile
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from _breakdown.analysis import processes
from _breakdown.analysis.devices import peer_devices
from tests.builders.make_runs import write_runs
from tests.builders.peers import with_slow_device
from tests.builders.records import DEVICE, Json
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Op,
    Plane,
    Space,
    encode,
    op,
    tpu_plane,
)
from tests.harness import DEMO, answer, run

DATA = DEMO.parent
STEP_PS = 10_000


def digest(*texts: str) -> str:
    return hashlib.sha1("\n".join(sorted(texts)).encode()).hexdigest()[:16]


def steps_of(numbers: Sequence[int]) -> list[Op]:
    """Return executions of an op; `numbers` says how many each step has."""
    return [
        op("fusion.1", "loop fusion", number * STEP_PS + 10 * i, 10, stack="a.py:1:2")
        for number, n in enumerate(numbers)
        for i in range(n)
    ]


def record(planes: Sequence[Plane] | Plane, *options: str) -> Json:
    planes = [planes] if isinstance(planes, Plane) else planes
    return answer(encode(Space(list(planes))), "record", *options)


def counted(numbers: Sequence[int], *options: str, **of: Any) -> list[Json]:
    """Return the steps in a record; `numbers` says how many ops each step has."""
    steps = [(str(i), i * STEP_PS, STEP_PS) for i in range(len(numbers))]
    rows: list[Json] = record(tpu_plane(steps_of(numbers), steps, **of), *options)["steps"]
    return rows


class Demo(unittest.TestCase):
    def test_stored_records_equal_new_records_of_the_demo(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name, run_folder in write_runs(Path(folder)).items():
                kept = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
                result = {**answer(run_folder, "record"), "profile_dir": name}
                # Version 2.0 wrote the stored records: newer fields are missing, and the notes are
                # worded differently.
                del result["schema_version"], result["programs"], result["notes"], kept["notes"]
                for device in result["devices"]:
                    del device["hlo"], device["causes"], device["examined"], device["mfu_at_least"]
                for group in result["groups"]:
                    del group["kernel"]
                # Later versions do not write these fields.
                for group in kept["groups"]:
                    del group["shapes"], group["truncated"], group["signatures"], group["ops"]
                for step in result["steps"]:
                    del step["period_ps"], step["barrier_ps"]
                # Version 2.0 left out the starts of communication.
                for step, before in zip(result["steps"], kept["steps"], strict=True):
                    self.assertGreater(step.pop("comm_ps"), before.pop("comm_ps"))
                self.assertEqual(result, kept)


class UsedSteps(unittest.TestCase):
    def reasons(self, numbers: Sequence[int], *options: str) -> list[str | None]:
        rows = counted(numbers, *options)
        self.assertEqual([row["n_xla_ops_events"] for row in rows], list(numbers))
        self.assertEqual([row["index"] for row in rows], list(range(len(rows))))
        for row in rows:
            self.assertEqual(row["duration_ps"], STEP_PS)
            self.assertEqual(row["used"], row["why_not"] is None)
            for figure in (
                "busy_ps",
                "comm_ps",
                "host_ps",
                "wait_ps",
                "barrier_ps",
                "durs_ps",
                "ns",
            ):
                self.assertEqual(row[figure] is None, not row["used"])
        return [row["why_not"] for row in rows]

    def test_steps_have_the_idle_time_at_barriers(self) -> None:
        # Each step has an op in its first 10 ps.
        for steps, times in (
            ([("0", 0, STEP_PS), ("1", STEP_PS, STEP_PS)], [0, 5]),
            ([("0", 0, STEP_PS), ("1", STEP_PS, STEP_PS), ("2", 2 * STEP_PS, STEP_PS)], [0, 5, 45]),
            (None, [5]),
        ):
            plane = tpu_plane(steps_of([1] * len(steps or "123")), steps)
            plane.event_metadata.append(EventMetadata(99, "barrier-cores"))
            # The first barrier ends in the last op, and the second one is after it.
            events = [Event(99, 2 * STEP_PS - 5, 10), Event(99, 2 * STEP_PS + 100, 45)]
            plane.lines.append(Line("XLA TraceMe", events))
            rows = record(plane)["steps"]
            self.assertEqual([row["barrier_ps"] for row in rows], times, steps)

    def test_steps_may_differ_by_one_op_in_fifty(self) -> None:
        other = "other_op_count"
        self.assertEqual(self.reasons([50, 49, 51, 50]), [None] * 4)
        self.assertEqual(self.reasons([50, 48, 52, 50, 50]), [None, other, other, None, None])
        self.assertEqual(self.reasons([49, 48, 49, 50, 49]), [None, other, None, other, None])
        self.assertEqual(
            self.reasons([100, 98, 102, 97, 100, 103]), [*[None] * 3, other, None, other]
        )

    def test_number_of_ops_is_compared_with_the_lower_median_of_nonempty_steps(self) -> None:
        self.assertEqual(self.reasons([3, 7]), [None, "other_op_count"])
        self.assertEqual(self.reasons([3, 7, 7]), ["other_op_count", None, None])
        self.assertEqual(self.reasons([0, 0, 0, 7]), [*["no_ops"] * 3, None])
        self.assertEqual(
            self.reasons([2, 9, 0, 9, 2]),
            [None, "other_op_count", "no_ops", "other_op_count", None],
        )

    def test_steps_option_excludes_only_steps_used_by_default(self) -> None:
        numbers = [0, 3, 3, 7, 3, 3]
        whole = counted(numbers)
        for asked, kept in (("2:", (2, 4, 5)), (":-1", (1, 2, 4)), ("-2:-1", (4,)), ("3:4", ())):
            for row, was in zip(counted(numbers, f"--steps={asked}"), whole, strict=True):
                if row["index"] in kept or not was["used"]:
                    self.assertEqual(row, was)
                else:
                    self.assertEqual(row["why_not"], "not_asked")
                    self.assertEqual(row["duration_ps"], was["duration_ps"])

    def test_only_executions_of_the_program_with_most_ops_are_used(self) -> None:
        # `jit_g` has more executions and the largest one, but `jit_f` has more ops in total.
        names = ("jit_f(1)", *["jit_g(2)"] * 5, *["jit_f(1)"] * 3)
        numbers = (9, 1, 1, 1, 1, 12, 0, 9, 9)
        plane = tpu_plane(steps_of(numbers))
        ids = {name: 100 + i for i, name in enumerate(dict.fromkeys(names))}
        plane.event_metadata += [EventMetadata(i, name) for name, i in ids.items()]
        events = [Event(ids[name], i * STEP_PS, STEP_PS) for i, name in enumerate(names)]
        plane.lines.append(Line("XLA Modules", events))
        of = record(plane)
        self.assertEqual(of["devices"][0]["step_source"], "modules")
        self.assertEqual([row["name"] for row in of["steps"]], list(names))
        self.assertEqual(
            [row["why_not"] for row in of["steps"]],
            [None, *["other_program"] * 5, "no_ops", None, None],
        )

    def test_trace_without_steps_counts_as_a_single_step(self) -> None:
        of = record(tpu_plane(steps_of([2, 0, 1])))
        [step] = of["steps"]
        self.assertIsNone(of["devices"][0]["step_source"])
        self.assertEqual((step["index"], step["name"], step["used"]), (0, None, True))
        self.assertEqual((step["duration_ps"], step["busy_ps"]), (2 * STEP_PS + 10, 30))
        self.assertEqual((step["durs_ps"], step["ns"]), ([30], [3]))


class Figures(unittest.TestCase):
    def of(self, *ops: Op) -> tuple[int, ...]:
        (step,) = record(tpu_plane(ops, [("0", 0, 1000)]))["steps"]
        return tuple(step[f"{name}_ps"] for name in ("duration", "busy", "comm", "host", "wait"))

    def test_containers_belong_to_no_group(self) -> None:
        of = record(tpu_plane([op("while.1", "while", 0, 100)], [("0", 0, 1000)]))
        [step] = of["steps"]
        self.assertEqual((step["used"], step["busy_ps"], step["durs_ps"]), (True, 0, []))
        self.assertEqual(of["groups"], [])


class Groups(unittest.TestCase):
    def test_groups_are_in_order_of_appearance_across_all_devices(self) -> None:
        a, b, c = (
            {
                "category": "loop fusion",
                "stack": f"m.py:9:1\n  {name}.py:5:3 \n\n",
                "source": f"{name}.py:5",
            }
            for name in "abc"
        )
        steps = [("7", 0, 100), ("8", 100, 100)]
        of = record(
            [
                tpu_plane(
                    [op("f.1", **a, start=5, dur=10), op("f.2", **b, start=120, dur=20)],
                    steps,
                    name="/device:TPU:1",
                ),
                tpu_plane(
                    [op("f.3", **c, start=5, dur=1), op("f.4", **a, start=105, dur=2)], steps
                ),
                tpu_plane(
                    [op("f.5", **c, start=5, dur=1)], steps, name="/device:TPU:0 SparseCore 0"
                ),
                tpu_plane([], steps, name="/device:TPU:2"),
            ]
        )
        self.assertEqual([device["device"] for device in of["devices"]], ["/device:TPU:1", DEVICE])
        self.assertEqual(of["frames"], ["m.py:9:1", "a.py:5:3", "b.py:5:3", "c.py:5:3"])
        self.assertEqual([group["frames"] for group in of["groups"]], [[0, 1], [0, 2], [0, 3]])
        self.assertEqual(
            [group["source"] for group in of["groups"]], ["a.py:5", "b.py:5", "c.py:5"]
        )
        self.assertEqual(
            [(row["device"], row["durs_ps"], row["ns"]) for row in of["steps"]],
            [(0, [10], [1]), (0, [0, 20], [0, 1]), (1, [0, 0, 1], [0, 0, 1]), (1, [2], [1])],
        )
        texts = [op(name, "loop fusion", 0).text for name in ("f.1", "f.2", "f.3", "f.4")]
        self.assertEqual(of["devices"][0]["program"], digest(*texts[:2]))
        self.assertEqual(of["devices"][1]["program"], digest(*texts[2:]))


class SlowDevice(unittest.TestCase):
    def test_slow_device_is_the_one_that_bottleneck_finds(self) -> None:
        data = with_slow_device()
        of_step = answer(data, "bottleneck")["causes"]
        expected = [(row["cause"], row["gain_ps"], row["evidence"]["device"]) for row in of_step]
        self.assertEqual(expected[0][::2], ("slow_device", "/device:TPU:1"))
        # The typical step is step 2. A first device without ops is not recorded.
        idle = encode(Space([tpu_plane([], [("1", 0, 100)], name="/device:TPU:9")]))
        for trace, *options in ((data,), (data, "--steps", ":2"), (idle + data,)):
            with self.subTest(options=options):
                device = answer(trace, "record", *options)["devices"][0]
                found = [(row["cause"], row["gain_ps"], row["device"]) for row in device["causes"]]
                self.assertEqual(found, expected)

    def test_first_device_without_ops_does_not_choose_the_compared_step(self) -> None:
        # The first device has only the step with index 0, in which another device is slow.
        data = with_slow_device(slow_in={0: 2, 1: 1, 2: 1, 3: 1, 4: 1})
        expected = answer(data, "record")["devices"][0]["causes"]
        idle = encode(Space([tpu_plane([], [("0", 0, 10_000)], name="/device:TPU:9")]))
        self.assertEqual(answer(idle + data, "record")["devices"][0]["causes"], expected)

    def test_causes_read_no_device_again(self) -> None:
        with patch.object(peer_devices, "_read_device") as read:
            causes = answer(with_slow_device(), "record")["devices"][0]["causes"]
        self.assertIn("slow_device", [row["cause"] for row in causes])
        read.assert_not_called()


class Processes(unittest.TestCase):
    def test_paths_of_a_group_are_merged_across_processes(self) -> None:
        planes = [
            tpu_plane(
                [op(f"f.{i}", "loop fusion", 0, 1, stack="a.py:1:2", tf_op=f"{i}:")],
                [("0", 0, 100)],
                name=f"/device:TPU:{i}",
            )
            for i in range(3)
        ]
        [group] = self.assert_same(encode(Space(planes)))["groups"]
        self.assertEqual(group["tf_ops"], ["0:", "1:", "2:"])

    def assert_same(self, data: bytes) -> Json:
        alone = run(data, "record").object
        with (
            patch.object(processes, "SMALL_FILE", 0),
            patch.object(processes, "n_cores", lambda: 2),
        ):
            together = run(data, "record").object
        self.assertEqual(alone | {"profile_dir": ""}, together | {"profile_dir": ""})
        return together


class Programs(unittest.TestCase):
    def program(self, *ops: Op) -> Any:
        return record(tpu_plane(ops, [("0", 0, 1000)]))["devices"][0]["program"]

    def test_program_is_the_same_whichever_branch_is_taken(self) -> None:
        first = op("f.1", "loop fusion", 0, 100)
        loop = op("while.1", "while", 200, 500)
        branching = op("conditional.1", "conditional", 200, 300)
        after = op("f.9", "loop fusion", 500, 10)
        always = digest(first.text, loop.text, branching.text, after.text)
        taken = (op("f.2", "loop fusion", 200, 100), op("f.3", "loop fusion", 499, 5))
        other = (op("conditional.2", "conditional", 210, 10), op("f.4", "copy", 215, 90))
        for inside in (taken, other, (*taken, *other), ()):
            ops = first, loop, branching, *inside, after
            for in_file in (ops, ops[::-1]):
                self.assertEqual(self.program(*in_file), always)
        self.assertNotEqual(self.program(first, loop, branching), always)
