"""Test `--peers`, which separates the wait for a late device from the transfer itself."""

from __future__ import annotations

import unittest
from collections.abc import Sequence
from typing import Any

from _breakdown.modes import bottleneck, comm
from compute_breakdown import analyse
from tests.builders import hlo_proto
from tests.builders.hlo_proto import metadata_plane
from tests.builders.peers import PROGRAM_ID, collective, device, durations, with_slow_device
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Op,
    Plane,
    Space,
    bytes_field,
    encode,
    int_field,
    op,
    varint,
)
from tests.harness import OFFLOADING, PROFILES, Json, answer, run, sampled


def assigned(*device_ids: int) -> Plane:
    """Return a program whose device assignment lists the given devices in order."""
    assignment = int_field(1, 1) + int_field(2, len(device_ids))
    for device_id in device_ids:
        assignment += bytes_field(3, bytes_field(1, varint(device_id)))
    main = {"main": [hlo_proto.op("x", "parameter")]}
    program = hlo_proto.hlo_proto(main, extra=bytes_field(15, assignment))
    return metadata_plane({PROGRAM_ID: ("jit_f(77)", program)})


def result_of(planes: Sequence[Plane], *options: str, mode: str = "comm") -> Json:
    return answer(encode(Space(list(planes))), mode, "--peers", *options)


def row(planes: Sequence[Plane], *options: str) -> Json:
    (only,) = result_of(planes, *options)["rows"]
    found: Json = only
    return found


def figures(planes: Sequence[Plane], *options: str) -> tuple[int | None, ...]:
    """Return transfer time, waiting time, and the numbers of matched and unmatched executions."""
    only = row(planes, *options)
    unmatched = only["n_unmatched"]
    matched = None if unmatched is None else only["n_executions"] - unmatched
    return only["transfer_ps"], only["peer_wait_ps"], matched, unmatched


class Waiting(unittest.TestCase):
    def test_time_waiting_for_a_late_device_is_exact(self) -> None:
        late = 1234
        planes = [device(i, durations(50 + late * (i != 1), 50)) for i in range(3)]
        found = result_of(planes)
        (only,) = found["rows"]
        self.assertEqual((only["transfer_ps"], only["peer_wait_ps"]), (100, late))
        self.assertEqual((only["last_device"], only["last_pct"]), ("/device:TPU:1", 100.0))
        peers = found["totals"]["peers"]
        self.assertEqual(
            (peers["transfer_ps"], peers["peer_wait_ps"], peers["unmatched_ps"]), (100, late, 0)
        )
        keys = ("device", "peer_wait_ps", "n_last", "caused_ps", "barrier_ps")
        self.assertEqual(
            [tuple(waits[key] for key in keys) for waits in peers["by_device"]],
            [
                ("/device:TPU:0", late, 0, 0, 0),
                ("/device:TPU:1", 0, 1, 2 * late, 0),
                ("/device:TPU:2", late, 0, 0, 0),
            ],
        )

    def test_last_device_is_null_if_no_device_causes_more_than_half_of_the_waiting(self) -> None:
        for lasted, waited in ((((30,), (10,), (10,)), 20), (((10, 30), (30, 10)), 20)):
            only = row([device(i, durations(*each)) for i, each in enumerate(lasted)])
            found = only["peer_wait_ps"], only["last_device"], only["last_pct"]
            self.assertEqual(found, (waited, None, None))

    def test_executions_are_matched_in_order_of_start(self) -> None:
        first, second = durations(10, 500)
        planes = [device(0, [first, second]), device(1, [second, first])]
        self.assertEqual(figures(planes), (510, 0, 2, 0))

    def test_waits_of_asynchronous_collectives_are_matched(self) -> None:
        def ops(wait: int) -> list[Op]:
            name = "all-gather-start.5"
            return [
                collective(0, 7, name=name, category="all-gather-start"),
                op("fusion.1", "loop fusion", 100, 50, program_id=PROGRAM_ID),
                op("all-gather-done.5", "all-gather-done", 200, wait,
                   operands=f"f32[8]{{0}} %{name}", program_id=PROGRAM_ID),
            ]  # fmt: skip

        self.assertEqual(figures([device(0, ops(40)), device(1, ops(15))]), (7 + 15, 25, 1, 0))

    def test_ops_of_another_program_are_not_matched(self) -> None:
        planes = [device(0, durations(30)), device(1, durations(10, program_id=78))]
        self.assertEqual(figures(planes), (None, None, 0, 1))

    def test_device_that_ran_another_program_does_not_take_part(self) -> None:
        other = [op("fusion.1", "loop fusion", 0, 10, program_id=78)]
        planes = [device(0, durations(30)), device(1, durations(10)), device(2, other)]
        self.assertEqual(figures(planes), (10, 20, 1, 0))

    def test_executions_are_not_matched_if_their_number_differs_between_devices(self) -> None:
        planes = [device(0, durations(30, 30)), device(1, durations(10))]
        found = result_of(planes)
        self.assertEqual(figures(planes), (None, None, 0, 2))
        self.assertEqual(found["totals"]["peers"]["unmatched_ps"], 60)

    def test_send_and_host_transfers_are_not_matched(self) -> None:
        ops = [collective(0, 10, name="send.1"), collective(50, 20, name="infeed.1")]
        found = result_of([device(0, ops), device(1, ops)])
        self.assertEqual([only["n_unmatched"] for only in found["rows"]], [1, 1])
        # Transfers to and from the host involve no other device.
        self.assertEqual(found["totals"]["peers"]["unmatched_ps"], 10)


class Groups(unittest.TestCase):
    """Test which devices take part in a collective."""

    PAIRS_OF_FOUR = "{{0,1},{2,3}}"

    def of_four_devices(self, *cores: int | None, **more: Any) -> list[Plane]:
        """Return four devices that take 40, 30, 20 and 10 ps."""
        more = more or {"groups": self.PAIRS_OF_FOUR}
        return [
            device(i, durations(40 - 10 * i, **more), core=core) for i, core in enumerate(cores)
        ]

    def test_groups_are_resolved_by_global_core_ids(self) -> None:
        planes = [*self.of_four_devices(14, 12, 13, 11), assigned(14, 13, 12, 11)]
        # Devices 0 and 2 are at the places 0 and 1 of the device assignment.
        found = result_of(planes)
        self.assertEqual(figures(planes), (20, 20, 1, 0))
        self.assertIs(found["totals"]["peers"]["complete"], True)
        by_device = found["totals"]["peers"]["by_device"]
        self.assertEqual([waits["peer_wait_ps"] for waits in by_device], [20, 0, 0, 0])
        self.assertEqual([waits["n_last"] for waits in by_device], [0, 0, 1, 0])

    def test_groups_are_resolved_by_device_numbers_if_core_ids_are_unusable(self) -> None:
        for cores in ((None,) * 4, (5, 5, 5, 5)):
            for ids, expected in (((0, 3, 1, 2), (10, 30, 1, 0)), ((0, 2, 1, 3), (20, 20, 1, 0))):
                planes = [*self.of_four_devices(*cores), assigned(*ids)]
                self.assertEqual(figures(planes), expected, (cores, ids))

    def test_all_devices_take_part_if_the_file_lacks_part_of_the_group(self) -> None:
        groups = "{{0,4},{1,5},{2,6},{3,7}}"
        planes = [*self.of_four_devices(0, 1, 2, 3, groups=groups), assigned(*range(8))]
        found = result_of(planes)
        self.assertEqual(figures(planes), (10, 30, 1, 0))
        self.assertIs(found["totals"]["peers"]["complete"], False)
        self.assertTrue(any("if this file lacks devices" in note for note in found["notes"]))

    def test_answer_is_incomplete_if_the_program_has_more_devices_than_the_file(self) -> None:
        for more in (
            *({"groups": "{}"}, {"groups": "{{0,1,2,3}}"}, {"groups": self.PAIRS_OF_FOUR}),
            {"name": "collective-permute.1", "pairs": "{{0,1},{1,2},{2,3},{3,0}}"},
        ):
            found = result_of([*self.of_four_devices(*(None,) * 4, **more), assigned(*range(8))])
            self.assertIs(found["totals"]["peers"]["complete"], False, more)
            self.assertTrue(any("if this file lacks devices" in note for note in found["notes"]))


class Permutes(unittest.TestCase):
    def test_devices_that_send_and_receive_take_part(self) -> None:
        known, unmatched = assigned(0, 1, 2), (None, None, 0, 1)
        for pairs, programs, expected in (
            ("{{0,1},{1,0},{2,2}}", [known], (30, 10, 1, 0)),
            ("{{0,1},{1,2}}", [known], (20, 20, 1, 0)),
            # This device sends to itself, or is in no pair.
            ("{{0,0},{1,2},{2,1}}", [known], unmatched),
            ("{{1,2},{2,1}}", [known], unmatched),
            # Without a device assignment, each device must send and receive.
            ("{{0,1},{1,2},{2,0}}", [], (20, 20, 1, 0)),
            ("{{0,1},{1,2}}", [], unmatched),
            ("{{0,1},{1,0},{2,2}}", [], unmatched),
            ("{{0,1},{1,0},{2,0}}", [], unmatched),
            ("", [], unmatched),
        ):
            planes = [
                device(i, durations(dur, name="collective-permute.1", pairs=pairs))
                for i, dur in enumerate((40, 30, 20))
            ]
            self.assertEqual(figures([*planes, *programs]), expected, (pairs, programs))


class Steps(unittest.TestCase):
    TWO = (("s", 0, 1000), ("t", 1000, 1000), ("s", 2000, 1000))

    def test_kth_steps_with_the_same_name_are_matched(self) -> None:
        at = [("u", 0, 500), ("s", 500, 500), ("s", 2000, 1000), ("t", 3000, 100)]
        one = [collective(100, 70), collective(1500, 80), collective(2100, 90)]
        other = [collective(100, 1), collective(600, 20), collective(2100, 30)]
        planes = [device(0, one, steps=self.TWO), device(1, other, steps=at)]
        self.assertEqual(figures(planes, "--step", "0"), (20, 50, 1, 0))
        self.assertEqual(figures(planes, "--step", "2"), (30, 60, 1, 0))
        # The other device has the step, but does not run the op in it.
        self.assertEqual(figures(planes, "--step", "1"), (None, None, 0, 1))

    def test_ops_of_all_steps_are_matched_with_step_all(self) -> None:
        other = [collective(5, 4), collective(700, 4), collective(8100, 5)]
        planes = [device(0, durations(10, 10, 10), steps=self.TWO), device(1, other)]
        self.assertEqual(figures(planes, "--step", "all"), (13, 17, 3, 0))

    def test_barrier_time_is_reported_by_device(self) -> None:
        late = device(1, durations(10, 10))
        late.event_metadata.append(EventMetadata(99, "barrier-cores"))
        late.lines.append(Line("XLA TraceMe", [Event(99, 400, 300)]))
        by_device = result_of([device(0, durations(10, 10)), late])["totals"]["peers"]["by_device"]
        self.assertEqual([waits["barrier_ps"] for waits in by_device], [0, 300])


class Headline(unittest.TestCase):
    def test_next_steps_suggest_option_peers_unless_it_was_given(self) -> None:
        data = with_slow_device()
        for lead, without in ((bottleneck, "--no-peers"), (comm, "--top=9")):
            mode = lead.__name__.rpartition(".")[2]
            words = [step.words for step in lead.next_steps(answer(data, mode, without))]
            self.assertIn(("--mode", "comm", "--peers"), words)
            words = [step.words for step in lead.next_steps(answer(data, mode, "--peers"))]
            self.assertNotIn(("--mode", "comm", "--peers"), words)
            self.assertIn(("--mode", "spread"), words)


class Alone(unittest.TestCase):
    NULLS = dict.fromkeys(("complete", "transfer_ps", "peer_wait_ps", "unmatched_ps"))

    def test_figures_are_null_if_the_file_has_only_one_device(self) -> None:
        found = result_of([device(0, durations(10))])
        self.assertEqual(found["totals"]["peers"], {"n_devices": 1, **self.NULLS, "by_device": []})
        self.assertTrue(any("no other device in this file" in note for note in found["notes"]))


class ByDefault(unittest.TestCase):
    """Test when `bottleneck` compares devices without being asked."""

    def test_bottleneck_and_comm_report_the_same_totals(self) -> None:
        data = with_slow_device()
        peers = [
            answer(data, *words)["totals"]["peers"]
            for words in (["bottleneck"], ["comm", "--peers"])
        ]
        self.assertEqual(peers[0], peers[1])
        self.assertEqual(peers[0]["peer_wait_ps"], 1000)

    def planes(self, lasted: int, n: int = 2) -> list[Plane]:
        return [device(i, durations(lasted)) for i in range(n)]

    def test_devices_are_compared_if_collectives_take_five_percent_or_on_request(self) -> None:
        sparse = device(0, durations(500))
        sparse.name = "/device:TPU:0 SparseCore 0"
        for planes, options, is_compared in (
            (self.planes(500), [], True),
            (self.planes(499), [], False),
            ([*self.planes(500, 1), sparse], [], False),
            (self.planes(499), ["--peers"], True),
            (self.planes(500), ["--no-peers"], False),
            # Whole captures are compared only on request.
            (self.planes(500), ["--step", "all"], False),
            (self.planes(500), ["--step", "all", "--peers"], True),
        ):
            found = answer(encode(Space(list(planes))), "bottleneck", *options)
            self.assertEqual(found["totals"]["peers"] is not None, is_compared, options)

    def test_both_options_contradict_each_other(self) -> None:
        found = run(encode(Space(self.planes(1))), "bottleneck", "--peers", "--no-peers").object
        self.assertEqual(
            found["detail"], "--peers and --no-peers exclude each other; pass only one"
        )

    def test_step_is_the_same_whether_devices_are_read_by_one_or_several_processes(self) -> None:
        data = with_slow_device()
        self.assertEqual(analyse(data, "bottleneck"), analyse(data, "bottleneck", processes=2))


class ExplainedWait(unittest.TestCase):
    """Test that waiting for a late device does not count as communication that math could hide."""

    def of_synchronous(self, *lasted: int) -> Json:
        """Return the answer for devices on which a collective takes 100 ps plus waiting, while math
        of 400 ps does not need it."""
        program = [
            hlo_proto.op("x", "parameter"),
            hlo_proto.op("free", "negate", "x"),
            hlo_proto.op("moved", "all-gather", "x", line="train.py:9"),
            hlo_proto.op("after", "exponential", "moved"),
        ]
        planes = []
        for number, dur in enumerate(lasted):
            math = op("free", "loop fusion", 0, 1000 - dur, program_id=PROGRAM_ID)
            moved = op("moved", "all-gather", 1000 - dur, dur, program_id=PROGRAM_ID)
            planes.append(device(number, [math, moved], steps=[("s", 0, 1000)]))
        planes.append(
            metadata_plane({PROGRAM_ID: ("jit_f(77)", hlo_proto.hlo_proto({"main": program}))})
        )
        return answer(encode(Space(planes)), "bottleneck", "--peak-hbm-gibps", "1e9")

    def test_only_the_transfer_is_hideable(self) -> None:
        for lasted, hideable in (((100, 100), 100), ((400, 100), 100), ((400, 300), 300)):
            found = self.of_synchronous(*lasted)
            (row,) = [row for row in found["budget"] if row["class"] == "collective"]
            self.assertEqual((row["dur_ps"], row["lost_ps"]), (lasted[0],) * 2)
            self.assertEqual(row["hideable_ps"], hideable)
            (finding,) = [row for row in found["findings"] if row["class"] == "collective"]
            self.assertEqual(finding["hideable_ps"], hideable)
            gains = {cause["cause"]: cause["gain_ps"] for cause in found["causes"]}
            self.assertEqual(gains["synchronous_collective"], hideable)


@unittest.skipUnless(PROFILES.exists(), "the captures aren't here")
class Captures(unittest.TestCase):
    def test_nearly_all_exposed_time_of_a_vllm_step_is_transfer(self) -> None:
        found = answer(PROFILES / "vllm-bf16.xplane.pb", "comm", "--peers")
        peers = found["totals"]["peers"]
        self.assertEqual(found["totals"]["exposed_ps"], 3_433_750_300)
        self.assertEqual(peers["transfer_ps"], 3_370_861_949)
        self.assertEqual(peers["peer_wait_ps"], 62_888_351)
        self.assertEqual(peers["unmatched_ps"], 0)

    def test_barrier_time_of_each_device_equals_its_barrier_time_in_idle(self) -> None:
        for number in sampled(range(4), 2):
            options = "--step", "all", "--device", str(number)
            found = answer(OFFLOADING, "comm", "--peers", *options)
            waits = found["totals"]["peers"]["by_device"][number]
            idle = answer(OFFLOADING, "idle", *options)["idle_by_cause"]
            self.assertEqual(waits["barrier_ps"], idle["barrier"])
