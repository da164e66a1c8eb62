"""Test the gain in `spread`: the time saved if the slow device or host were as fast as the next
slowest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.builders.xspace import Plane, Space, encode, op, tpu_plane
from tests.harness import InFolder, answer

STEP = 1000
N_STEPS = 8


def device(number: int, loads: Sequence[int]) -> Plane:
    """Return a device with the given loads; communication fills the rest of each step."""
    ops = [
        part
        for i, load in enumerate(loads)
        for part in (
            op("f", "loop fusion", STEP * i, load),
            op("all-reduce.1", "all-reduce", STEP * i + load, STEP - load),
        )
    ]
    steps = [(str(i), STEP * i, STEP) for i in range(len(loads))]
    return tpu_plane(ops, steps, name=f"/device:TPU:{number}")


class Gain(InFolder):
    def cohort(self, *hosts: Sequence[int | Sequence[int]]) -> Any:
        """Return the cohort of the hosts, given for each device one load for all steps or one per
        step."""
        for name, devices in zip("abc", hosts, strict=False):
            planes = [
                device(i, [load] * N_STEPS if isinstance(load, int) else load)
                for i, load in enumerate(devices)
            ]
            self.write(f"{name}.xplane.pb", encode(Space(planes)))
        result = answer(self.folder, "spread")
        self.headline = result["headline"]
        (found,) = result["cohorts"]
        return found

    def test_gain_is_the_difference_from_the_second_slowest_device(self) -> None:
        found = self.cohort([[600, 700], [640, 650], [500, 510]])
        # The mean loads are 650, 645 and 505 ps.
        verdict = found["verdict"]
        self.assertEqual((verdict["gain_ps"], verdict["gain_pct_of_step"]), (5, 0.5))
        first, second = found["steps"]
        self.assertEqual((first["slowest"]["device"], first["gain_ps"]), ("/device:TPU:1", 40))
        self.assertEqual((second["slowest"]["device"], second["gain_ps"]), ("/device:TPU:0", 50))

    def test_straggler_must_cost_at_least_half_a_percent_of_the_step(self) -> None:
        for slow, is_named in ((505, True), (504, False)):
            with self.subTest(slow=slow):
                verdict = self.cohort([slow, 500, 400])["verdict"]
                self.assertEqual(verdict["n_slowest"], N_STEPS)
                straggler = {"host": "a", "device": "/device:TPU:0"} if is_named else None
                self.assertEqual(verdict["straggler"], straggler)
                self.assertEqual(verdict["host_gain_ps"], None)

    def test_device_that_is_often_but_only_slightly_slower_is_no_straggler(self) -> None:
        most = [510] * (N_STEPS - 1)
        verdict = self.cohort([[*most, 500], [*[500] * (N_STEPS - 1), 900]])["verdict"]
        self.assertEqual((verdict["straggler"], verdict["gain_ps"]), (None, 41))

    def test_host_of_equally_slow_devices_is_slow_without_a_straggler(self) -> None:
        for slow, is_named in ((505, True), (504, False)):
            with self.subTest(slow=slow):
                # The host's other device is nearly as slow, so the slowest one alone costs little.
                verdict = self.cohort([slow, slow - 1], [500, 499])["verdict"]
                self.assertEqual(verdict["gain_ps"], 1)
                self.assertIsNone(verdict["straggler"])
                self.assertEqual(verdict["slow_host"] is not None, is_named)
                self.assertEqual(verdict["host_gain_ps"], slow - 500 if is_named else None)
