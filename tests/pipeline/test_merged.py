"""Test that each rank of a merged capture has the same answers as its own capture."""

from __future__ import annotations

import random
import unittest
from pathlib import Path
from typing import Any

from _proto import xplane_pb2 as pb
from _proto.trace.ranks import ranks_of, split_hosts
from tests.builders.allocator import allocator, with_host
from tests.builders.merged import merged, with_environment
from tests.builders.random_xspace import command_line, random_case
from tests.builders.xspace import Space, encode, op, tpu_plane, trace
from tests.harness import DEMO, MODES, SAMPLES, InFolder, answer, run, sampled

# These fields depend on the file or the device number.
NOT_COMPARED = {"profile_dir", "xplane_file", "notes", "device", "capture", "run", "host"}
ONE_OP = trace([op("fusion.1", "loop fusion", 0, 100)])
TWO_OPS = trace([op("fusion.1", "loop fusion", 0, 100), op("fusion.2", "loop fusion", 200, 70)])


def compared(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in NOT_COMPARED}


def busy(trace: bytes, *options: str) -> int:
    totals: dict[str, int] = answer(trace, "summary", *options)["totals"]
    return totals["busy_duration_ps"]


class Ranks(unittest.TestCase):
    def test_task_environment_is_the_last_plane_of_a_rank(self) -> None:
        one = ["/host:metadata 0", "/device:TPU:0", "/device:TPU:1", "/host:CPU 0"]
        two = ["/device:TPU:2", "/host:metadata 1", "/host:CPU 1"]
        names = [*one, "Task Environment 0", *two, "Task Environment 1"]
        self.assert_ranks(names, [*one, "Task Environment 0"], [*two, "Task Environment 1"])

    def assert_ranks(self, names: list[str], *expected: list[str]) -> None:
        self.assertEqual([rank.names for rank in ranks_of(names)], [*expected])

    def test_planes_of_a_subprocess_form_a_separate_rank(self) -> None:
        for number in ("", " 0"):
            own = ["/device:TPU:0", f"/host:CPU{number}", f"Task Environment{number}"]
            ids = ("/host:CPU [77]", "Task Environment [77]")
            child = ["/device:TPU:0 [77]", *(name + number for name in ids)]
            self.assert_ranks(own + child, own, child)

    def test_devices_belong_to_no_rank_without_task_environments(self) -> None:
        names = ["/device:TPU:0", "/host:CPU 0", "/device:TPU:1", "/host:CPU 1"]
        self.assert_ranks(names, ["/host:CPU 0"], ["/host:CPU 1"])

    def test_repeated_device_name_starts_a_new_host(self) -> None:
        first = ["/device:TPU:0", "/host:CPU 0", "Task Environment 0"]
        second = ["/host:metadata 0", *first]
        self.assertEqual(split_hosts([*first, *second]), [[0, 1, 2], [3, 4, 5, 6]])
        self.assertEqual(split_hosts(["/device:TPU:0", "/device:TPU:0"]), [[0], [1]])
        self.assertEqual(split_hosts(["/device:TPU:0", "/host:CPU", "/host:CPU"]), [[0, 1, 2]])


class Answers(InFolder):
    def test_each_rank_gives_the_same_answers_as_its_own_capture(self) -> None:
        n_compared = 0
        for seed in sampled(range(200), 15):
            rng = random.Random(seed)
            data, mode, options = random_case(rng)
            # Merging keeps only the last of several map entries with the same key, so drop the
            # others first.
            data = pb.XSpace.FromString(data).SerializeToString()
            other, _, _ = random_case(rng)
            numbers = tpu_numbers(data)
            # The allocator counts devices within a rank, so skip traces with other device numbers.
            # The devices of other ranks are peers, so do not compare devices.
            if numbers != list(range(len(numbers))) or {"device", "tokens"} & options.keys():
                continue
            options.pop("peers", None)
            if mode == "bottleneck":
                options["no_peers"] = True
            alone = run(data, mode, *command_line(options))
            n_before = len(tpu_numbers(other))
            # Remove the other rank's programs, because a tested rank without programs could use
            # them.
            other = without_programs(other)
            of_both = merged([[with_environment(other), with_environment(data)]])
            together = run(of_both, mode, "--device", str(n_before), *command_line(options))
            if alone.object["status"] == "ok":
                n_compared += 1
                with self.subTest(seed=seed, mode=mode):
                    self.assertEqual(compared(together.object), compared(alone.object))
        self.assertGreater(n_compared, 4)

    def test_option_host_selects_a_host(self) -> None:
        of_both = merged([[with_environment(ONE_OP)], [with_environment(TWO_OPS)]])
        self.assertEqual([busy(of_both, "--host", host) for host in "01"], [100, 170])
        self.assertEqual(busy(of_both), 100)
        note = "this file merges 2 hosts (0, 1; using 0, --host selects another)"
        self.assertIn(note, answer(of_both, "summary")["notes"])
        outcome = run(of_both, "summary", "--host", "2")
        self.assertEqual((outcome.object["reason"], outcome.status), ("host_not_found", 1))
        self.assertEqual(outcome.object["available_hosts"], ["0", "1"])

    def test_hosts_can_be_selected_by_name(self) -> None:
        hosts = [[with_environment(ONE_OP)], [with_environment(TWO_OPS)]]
        of_both = merged(hosts, ["east", "west"])
        for host in ("west", "1"):
            self.assertEqual(busy(of_both, "--host", host), 170)
        self.assertEqual(answer(of_both, "record", "--host", "west")["host"], "west")
        self.assertEqual(run(merged(hosts, ["east"]), "summary", "--host", "east").status, 1)

    def test_host_of_a_merged_file_in_a_folder_is_selected_by_file_and_host(self) -> None:
        of_both = merged([[with_environment(ONE_OP)], [with_environment(TWO_OPS)]])
        self.write("run/a.xplane.pb", ONE_OP)
        self.write("run/b.xplane.pb", of_both)
        folder = self.folder / "run"
        totals = answer(folder, "summary", "--host", "b:1")["totals"]
        self.assertEqual(totals["busy_duration_ps"], 170)
        self.assertEqual(
            run(folder, "summary", "--host", "1").object["available_hosts"], ["a", "b"]
        )
        self.assertEqual(answer(folder, "record", "--host", "b:1")["host"], "b:1")

    def test_spread_compares_the_hosts_of_a_merged_file(self) -> None:
        of_both = merged([[with_environment(ONE_OP)], [with_environment(ONE_OP)]])
        fields = answer(self.write("m.xplane.pb", of_both), "spread")
        (cohort,) = fields["cohorts"]
        self.assertEqual(
            sorted(row["host"] for row in cohort["devices"]), ["m:0", "m:1"], "devices by host"
        )
        one = answer(self.write("m.xplane.pb", of_both), "spread", "--host", "1")
        self.assertEqual([row["host"] for row in one["cohorts"][0]["devices"]], ["m:1"])

    def test_spread_omits_a_host_without_an_ops_line(self) -> None:
        space = pb.XSpace.FromString(ONE_OP)
        space.planes[0].lines[0].name = "Other"
        hosts = [ONE_OP, space.SerializeToString(), ONE_OP]
        data = merged([[with_environment(host)] for host in hosts])
        fields = answer(self.write("m.xplane.pb", data), "spread")
        self.assertEqual((fields["n_hosts"], fields["n_hosts_unreadable"]), (2, 1))
        self.assertIn("m.xplane.pb: host 1: no_xla_ops_line", " ".join(fields["notes"]))

    def test_anatomy_lists_the_planes_of_all_hosts_or_of_the_selected_host(self) -> None:
        of_both = merged([[with_environment(ONE_OP)], [with_environment(TWO_OPS)]])
        names = ["/device:TPU:0", "Task Environment 0"]
        listed = answer(of_both, "anatomy")["planes"]
        self.assertEqual([row["name"] for row in listed], [*names, *names])
        of_second = answer(of_both, "anatomy", "--host", "1", "--plane", "0")["planes"]
        self.assertEqual([line["n_events"] for line in of_second[0]["lines"]], [2])

    def test_allocator_counts_devices_within_a_rank(self) -> None:
        ranks = [with_environment(space_with_allocator(n_bytes)) for n_bytes in (1000, 2000)]
        of_both = merged([ranks])
        for device, expected in (("0", 1000), ("1", 2000)):
            runtime = run(of_both, "memory", "--device", device).object["runtime"]
            self.assertEqual(runtime["peak_allocated_bytes"], expected)

    def test_allocator_device_number_is_read_from_core_details(self) -> None:
        ranks = [with_environment(rank) for rank in (ONE_OP, space_with_allocator(7))]
        space = pb.XSpace.FromString(merged([ranks]))
        self.assertIsNotNone(runtime_of(space, "1"))
        plane = next(plane for plane in space.planes if plane.name == "/device:TPU:1")
        plane.stat_metadata[99].name = "core_details"
        stat = plane.stats.add(metadata_id=99, bytes_value=b"\x10\x05")
        # The allocator has no events of device 5.
        self.assertIsNone(runtime_of(space, "1"))
        # Protobuf omits the number 0, so core_details without the number means device 0.
        stat.bytes_value = b"\x20\x01"
        self.assertIsNotNone(runtime_of(space, "1"))

    def test_threads_in_all_host_planes_are_read(self) -> None:
        gap = trace([op("fusion.1", "add", 0, 100), op("fusion.2", "add", 3_000_000, 100)])
        space = pb.XSpace.FromString(gap)
        # In a file with a single process, process ids in plane names are ignored.
        planes = ("/host:CPU [7]", "/host:TPU-runtime", "/host:python-tracer [7]")
        for name in (*planes, "/host:tfstreamz"):
            plane = space.planes.add(name=name)
            plane.event_metadata[1].name = f"event of {name}"
            event = plane.lines.add(name="main").events.add(metadata_id=1)
            event.offset_ps, event.duration_ps = 1_000, 2_000_000
        (row,) = answer(space.SerializeToString(), "idle")["gaps"]
        self.assertEqual(
            [event["event"] for event in row["host"]], [f"event of {name}" for name in planes]
        )

    def test_device_is_matched_to_a_rank_by_run_id_without_task_environments(self) -> None:
        launched, other = (space_with_run_id(run_id) for run_id in (5, 6))
        fields = answer(merged([[other, launched]]), "idle", "--device", "1")
        self.assertIn("/device:TPU:1 belongs to rank 1", " ".join(fields["notes"]))
        fields = answer(merged([[launched, launched]]), "idle", "--device", "1")
        self.assertIn("/device:TPU:1 belongs to rank ?", " ".join(fields["notes"]))
        self.assertIsNone(fields["host_events"])
        self.assertIn("the host's activity is unknown", " ".join(fields["notes"]))


class ProcessIds(unittest.TestCase):
    """Test device planes whose names end with the id of the process that wrote them."""

    def space(self, *names: str) -> bytes:
        steps = [("s", 0, 500)]
        planes = [
            tpu_plane([op("fusion.1", "add", 0, 100 * (i + 1))], steps, name=name)
            for i, name in enumerate(names)
        ]
        return encode(Space(planes))

    def test_process_id_can_be_omitted_in_all_modes(self) -> None:
        data = self.space("/device:TPU:0 [4711]", "/device:TPU:1 [4711]")
        for mode in ("summary", "bottleneck", "idle"):
            self.assertEqual(answer(data, mode)["device"], "/device:TPU:0 [4711]")
            for name in ("1", "TPU:1", "/device:TPU:1", "/device:TPU:1 [4711]"):
                found = answer(data, mode, "--device", name)
                self.assertEqual(found["device"], "/device:TPU:1 [4711]")
        (device,) = answer(data, "record", "--device", "1")["devices"]
        self.assertEqual(device["device"], "/device:TPU:1 [4711]")
        (plane,) = answer(data, "anatomy", "--plane", "1")["planes"]
        self.assertEqual(plane["name"], "/device:TPU:1 [4711]")

    def test_exact_name_comes_first_and_else_the_first_process(self) -> None:
        own, child = "/device:TPU:0", "/device:TPU:0 [7]"
        self.assertEqual(answer(self.space(child, own), "summary")["device"], own)
        found = answer(self.space(child, f"{own} [8]"), "summary")
        self.assertEqual(found["device"], child)
        self.assertIn(
            f"using {child}, one of 2 planes of {own} (--device selects another)", found["notes"]
        )

    def test_only_tensor_cores_are_offered_if_the_device_is_missing(self) -> None:
        names = ("/device:TPU:0", "/device:TPU:1 SparseCore 0", "/device:TPU:1 [7]")
        found = run(self.space(*names), "summary", "--device", "5").object
        self.assertEqual(found["available_devices"], ["/device:TPU:0", "/device:TPU:1 [7]"])


def tpu_numbers(trace: bytes) -> list[int]:
    names = [plane.name for plane in pb.XSpace.FromString(trace).planes]
    return [int(name[12:]) for name in names if name[:12] == "/device:TPU:" and name[12:].isdigit()]


def without_programs(trace: bytes) -> bytes:
    space = pb.XSpace.FromString(trace)
    kept = [plane for plane in space.planes if plane.name != "/host:metadata"]
    return pb.XSpace(planes=kept).SerializeToString()


def runtime_of(space: pb.XSpace, device: str) -> dict[str, Any] | None:
    fields = run(space.SerializeToString(), "memory", "--device", device).object
    runtime: dict[str, Any] | None = fields["runtime"]
    return runtime


def space_with_allocator(n_bytes: int, index_on_host: int = 0) -> bytes:
    sizes = {"bytes_reserved": 0, "bytes_allocated": n_bytes, "bytes_available": 9}
    return with_host(ONE_OP, allocator((0, index_on_host, {**sizes})))


def space_with_run_id(run_id: int) -> bytes:
    space = pb.XSpace.FromString(ONE_OP)
    host = space.planes.add(name="/host:CPU")
    for plane, name in ((space.planes[0], "XLA Modules"), (host, "main")):
        plane.stat_metadata[77].name = "run_id"
        plane.event_metadata[88].name = "jit_f"
        event = plane.lines.add(name=name).events.add(metadata_id=88, duration_ps=50)
        event.stats.add(metadata_id=77, uint64_value=run_id)
    return space.SerializeToString()


@unittest.skipUnless(SAMPLES.exists(), "needs the samples")
class Samples(unittest.TestCase):
    def assert_same(self, sample: str, options: str, alone: Path, device: str) -> None:
        for mode in sampled(MODES, 1):
            # The devices of other ranks are peers, so do not compare devices.
            more = ["--no-peers"] if mode == "bottleneck" else []
            expected = answer(alone, mode, "--device", device, *more)
            fields = answer(SAMPLES / f"{sample}.xplane.pb.gz", mode, *options.split(), *more)
            with self.subTest(sample=sample, options=options, mode=mode):
                self.assertEqual(compared(fields), compared(expected))

    def test_merged_ranks_have_the_answers_of_their_own_captures(self) -> None:
        self.assert_same("merged-ranks", "--device 0", DEMO, "0")
        self.assert_same("merged-ranks", "--device 3", DEMO, "1")
