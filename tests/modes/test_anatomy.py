"""What is in a file of any device, by hand: what each field says, and what damage leaves."""

from __future__ import annotations

import gzip
import random
import unittest
from collections.abc import Sequence
from typing import Any
from unittest import mock

from _analysis import processes
from _modes import anatomy
from _output.text import text_of
from _proto.trace import lines
from tests import fuzz
from tests.builders import hlo_proto
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    Stat,
    StatMetadata,
    StatNames,
    StatValue,
    bytes_field,
    double,
    encode,
    int64,
    int_field,
    op,
    raw,
    ref,
    string,
    text_field,
    tpu_plane,
    uint64,
)
from tests.fuzz import DEVICE, check_outcome, damaged_at, time_limit
from tests.harness import InFolder, answer, command, run, sampled
from tests.naive.wire import read_varint

Json = dict[str, Any]
EPOCH = 1795320900663590481
KERNEL = "void cutlass::Kernel<f16>(Params)"


def gpu() -> Space:
    """As XLA's profiler writes a capture of a GPU, and the host beside it."""
    names = StatNames()
    device = Plane(
        "/device:GPU:0",
        [
            Line(
                "Stream #13(Compute,MemcpyD2H)",
                [
                    Event(1, 1000, 500, stats=[names.stat("correlation_id", 7)]),
                    # Out of order, and half of it while the other runs.
                    Event(2, 500, 750, stats=[names.stat("correlation_id", 6)]),
                    Event(1, 3000, 500, stats=[names.stat("occupancy_pct", 62.5)]),
                ],
                EPOCH,
                id=13,
                display_name="Stream 13",
            ),
            Line("_counters_"),
        ],
        [
            EventMetadata(1, KERNEL, [names.stat("kernel_details", "regs:128 grid:8,1,1")]),
            EventMetadata(2, "MemcpyD2H"),
        ],
        stats=[
            names.stat("device_vendor", "Nvidia"),
            names.stat("clock_rate", 1980000),
            names.stat("memory_size", 2**64 - 1),
            names.stat("uuid", bytes(range(40))),
            names.stat("nothing", float("nan")),
        ],
        id=1,
    )
    device.stat_metadata = names.metadata()
    beside = hlo_proto.metadata_plane({2**64 - 3: ("jit_f", b"hlo")})
    return Space([device, beside, Plane("/host:CPU")], ["gpu-host"])


def counters(readings: Sequence[Event], name: str = "_counters_") -> bytes:
    metadata = [EventMetadata(1, "HBM 0"), EventMetadata(2, "TensorCore"), EventMetadata(3, "")]
    stats = ["power (W)", "throttle %", "% util", "P State"]
    names = [StatMetadata(i, stat) for i, stat in enumerate(stats, 1)]
    return encode(Space([Plane(DEVICE, [Line(name, list(readings), 2)], metadata, names)]))


def one_line(data: bytes, *options: str) -> Json:
    (plane,) = answer(data, "anatomy", *options)["planes"]
    (line,) = plane["lines"]
    found: Json = line
    return found


class Whole(unittest.TestCase):
    """Without options: all planes and lines, of any device."""

    def test_a_capture_of_a_gpu(self) -> None:
        data = encode(gpu())
        said = answer(data + text_field(2, "lost") + text_field(3, "slow"), "anatomy")
        self.assertEqual(
            {key: said[key] for key in ("hostnames", "errors", "warnings", "notes")},
            {"hostnames": ["gpu-host"], "errors": ["lost"], "warnings": ["slow"], "notes": []},
        )
        self.assertEqual(said["file_bytes"], len(data) + 12)
        device, beside, host = said["planes"]
        self.assertEqual(
            device["stats"],
            {
                "device_vendor": "Nvidia",
                "clock_rate": 1980000,
                "memory_size": "18446744073709551615",
                "uuid": {"bytes": 40, "hex": bytes(range(32)).hex()},
                "nothing": None,
            },
        )
        self.assertEqual(
            device["lines"],
            [
                {
                    "id": 13,
                    "name": "Stream #13(Compute,MemcpyD2H)",
                    "display_name": "Stream 13",
                    "timestamp_ns": str(EPOCH),
                    "n_events": 3,
                    "bytes": len(encode(gpu().planes[0].lines[0])),
                },
                {
                    "id": 0,
                    "name": "_counters_",
                    "display_name": "",
                    "timestamp_ns": 0,
                    "n_events": 0,
                    "bytes": 12,
                },
            ],
        )
        self.assertEqual((device["n_event_metadata"], device["n_stat_metadata"]), (2, 8))
        self.assertEqual(device["stat_names"], sorted(device["stat_names"]))
        self.assertEqual(device["bytes"], len(encode(gpu().planes[0])))
        self.assertEqual((beside["name"], host["name"]), ("/host:metadata", "/host:CPU"))
        self.assertEqual(host["lines"], [])
        self.assertEqual(
            said["programs"],
            [{"program_id": str(2**64 - 3), "name": "jit_f", "hlo_bytes": 3}],
        )

    def test_nothing_but_an_index_is_decoded(self) -> None:
        """Events of which no byte can be read are counted all the same."""
        line = Line("XLA Ops", extra=bytes_field(4, b"\xff") * 3)
        data = encode(Space([Plane(DEVICE, [line])]))
        self.assertEqual(one_line(data)["n_events"], 3)
        self.assertEqual(run(data, "anatomy", "--plane", "0").object["status"], "absent")

    def test_what_has_no_name(self) -> None:
        plane = Plane(
            None,
            [Line(None, [Event(9, 1, 1), Event(8, 2, 1), Event(None, 3, 1)])],
            [EventMetadata(8, "", [Stat(7, uint64(2**53))])],
            [StatMetadata(4, ""), StatMetadata(5)],
            [Stat(4, int64(-(2**53) - 1)), Stat(5), Stat(-6, double(float("inf")))],
        )
        data = encode(Space([plane]))
        (said,) = answer(data, "anatomy", "--plane", "", "--sample", "2")["planes"]
        self.assertEqual((said["name"], said["lines"][0]["name"]), ("", ""))
        self.assertEqual(said["stats"], {"4": "-9007199254740993", "5": None, "-6": None})
        self.assertEqual(said["stat_names"], ["4", "5"])
        (line,) = said["lines"]
        self.assertEqual(line["names"], [{"name": None, "n": 3, "total_dur_ps": 3}])
        self.assertEqual([each["name"] for each in line["sample"]], [None, None])
        self.assertEqual(line["sample"][1]["metadata_stats"], {"7": 2**53})

    def test_several_processes_say_what_one_does(self) -> None:
        planes = [tpu_plane([op("f", "copy", 0, 5)], name=f"/device:TPU:{i}") for i in range(5)]
        data = encode(Space(planes))
        damaged = data + bytes_field(1, text_field(2, "more") + bytes_field(3, b"\x7f"))
        with mock.patch.object(processes, "n_cores", lambda: 2):
            for each in (data, damaged):
                alone = run(each, "anatomy").object
                with mock.patch.object(anatomy, "SMALL_FILE", 0):
                    several = run(each, "anatomy").object
                for said in (alone, several):
                    del said["profile_dir"]
                self.assertEqual(several, alone)


def captured(*planes: tuple[str, dict[str, StatValue]]) -> bytes:
    """A file of planes that have nothing but these stats."""
    made = []
    for name, stats in planes:
        names = StatNames()
        values = [names.stat(stat, value) for stat, value in stats.items()]
        made.append(Plane(name, stats=values, stat_metadata=names.metadata()))
    return encode(Space(made))


def with_options(data: StatValue) -> bytes:
    return captured(("Task Environment", {"profile_start_time": 5, "profile_options": data}))


def configured(name: str, value: bytes) -> bytes:
    """An entry of the advanced configuration."""
    return bytes_field(12, text_field(1, name) + bytes_field(2, value))


# What JAX 0.10.0 wrote for its defaults.
DEFAULTS = bytes.fromhex("080110021801200128013801")


class Provenance(unittest.TestCase):
    """Which versions took a capture, and with which options."""

    def versions(self, **stats: StatValue) -> Json:
        found: Json = answer(captured(("/host:metadata", stats)), "anatomy")["versions"]
        return found

    def options(self, data: StatValue) -> Json:
        said = answer(with_options(data), "anatomy")
        self.assertEqual(said["notes"], [])
        found: Json = said["profile_options"]
        return found

    def test_versions_are_stats_of_the_programs_plane(self) -> None:
        self.assertEqual(
            self.versions(
                tpu_version="PJRT C API\nTPU v6 lite",
                cpu_version="cpu",
                jax_version=ref("0.10.0"),
                process_id=7,
            ),
            {"jax_version": "0.10.0", "tpu_version": "PJRT C API\nTPU v6 lite"},
        )

    def test_versions_of_any_other_plane_are_none(self) -> None:
        data = captured(("/host:CPU", {"jax_version": "0.10.0"}))
        said = answer(data, "anatomy")
        self.assertEqual((said["versions"], said["profile_options"]), ({}, None))

    def test_they_are_there_whatever_plane_is_asked_for(self) -> None:
        data = captured(
            ("/host:metadata", {"jax_version": "0.10.0"}),
            ("Task Environment", {"profile_options": DEFAULTS}),
            ("other", {}),
        )
        said = answer(data, "anatomy", "--plane", "other")
        self.assertEqual(said["versions"], {"jax_version": "0.10.0"})
        self.assertEqual(said["profile_options"]["host_tracer_level"], 2)

    def test_options_as_jax_writes_them(self) -> None:
        self.assertEqual(
            self.options(DEFAULTS),
            {
                "include_dataset_ops": True,
                "host_tracer_level": 2,
                "device_tracer_level": 1,
                "python_tracer_level": 1,
                "version": 1,
                "enable_hlo_proto": True,
            },
        )

    def test_every_option(self) -> None:
        data = (
            *(
                int_field(6, 3),
                int_field(8, 2**63 + 1),
                int_field(9, 1500),
                text_field(10, "gs://x"),
            ),
            *(bytes_field(11, int_field(1, 255)), int_field(13, 0)),
            *(text_field(14, "run-1"), text_field(15, "host-7"), int_field(99, 1)),
        )
        self.assertEqual(
            self.options(b"".join(data)),
            {
                "device_type": "TPU",
                "start_timestamp_ns": str(2**63 + 1),
                "duration_ms": 1500,
                "repository_path": "gs://x",
                "trace_options": {"host_traceme_filter_mask": 255},
                "raise_error_on_start_failure": False,
                "session_id": "run-1",
                "override_hostname": "host-7",
            },
        )

    def test_an_advanced_configuration(self) -> None:
        data = (
            *(
                configured("mode", text_field(1, "TRACE_COMPUTE")),
                configured("on", int_field(2, 1)),
            ),
            *(configured("long", int_field(3, -(2**60))), configured("short", int_field(4, -3))),
            *(configured("none", b""), configured("on", int_field(2, 0))),
        )
        self.assertEqual(
            self.options(b"".join(data))["advanced_configuration"],
            {
                "mode": "TRACE_COMPUTE",
                "on": False,
                "long": str(-(2**60)),
                "short": -3,
                "none": None,
            },
        )

    def test_a_type_of_device_that_is_newer_is_its_number(self) -> None:
        self.assertEqual(self.options(int_field(6, 9)), {"device_type": 9})

    def test_options_of_which_none_is_set(self) -> None:
        self.assertEqual(self.options(b""), {})

    def test_damaged_options_are_null_with_a_note(self) -> None:
        large = b"".join([configured("x", b"")] * 20_000)
        for data, what in (
            (DEFAULTS[:-1], "the message ends inside a field"),
            (bytes_field(14, b"\xff"), "UTF-8"),
            (large, f"{len(large)} bytes are more than the limit"),
        ):
            said = answer(with_options(data), "anatomy")
            self.assertIsNone(said["profile_options"])
            (note,) = said["notes"]
            self.assertIn("profile_options can't be decoded: ", note)
            self.assertIn(what, note)

    def test_options_that_are_no_bytes_are_none(self) -> None:
        self.assertIsNone(answer(with_options("text"), "anatomy")["profile_options"])

    def test_they_are_in_the_text(self) -> None:
        options = b"".join((DEFAULTS, configured("mode", text_field(1, "TRACE_COMPUTE"))))
        data = captured(
            ("/host:metadata", {"jax_version": "0.10.0"}),
            ("Task Environment", {"profile_options": options}),
        )
        shown = " ".join(text_of(answer(data, "anatomy"), "utf-8").split())
        self.assertIn("versions: jax_version=0.10.0 ", shown)
        self.assertIn("host_tracer_level=2, ", shown)
        self.assertIn("advanced_configuration=mode=TRACE_COMPUTE", shown)


class Closely(unittest.TestCase):
    """One plane, counted through."""

    def test_a_stream_of_a_gpu(self) -> None:
        line, _ = answer(encode(gpu()), "anatomy", "--plane", "/device:GPU:0")["planes"][0]["lines"]
        base = EPOCH * 1000
        self.assertEqual(line["first_start_ps"], str(base + 500))
        self.assertEqual(line["last_end_ps"], str(base + 3500))
        # 500 to 1500 and 3000 to 3500.
        self.assertEqual(line["busy_ps"], 1500)
        self.assertEqual(line["event_stats"], {"correlation_id": 2, "occupancy_pct": 1})
        self.assertEqual(
            line["names"],
            [
                {"name": KERNEL, "n": 2, "total_dur_ps": 1000},
                {"name": "MemcpyD2H", "n": 1, "total_dur_ps": 750},
            ],
        )
        self.assertEqual((line["n_names"], line["counters"]), (2, None))
        self.assertNotIn("sample", line)

    def test_down_to_one_event(self) -> None:
        said = answer(
            encode(gpu()),
            *("anatomy", "--plane", "/device:GPU:0", "--line", "Stream #13(Compute,MemcpyD2H)"),
            *("--grep", "cutlass.*f16", "--sample", "1"),
        )
        ((line,),) = [plane["lines"] for plane in said["planes"]]
        self.assertEqual((line["n_events"], line["busy_ps"], line["n_names"]), (2, 1000, 1))
        self.assertEqual(line["bytes"], len(encode(gpu().planes[0].lines[0])))
        self.assertEqual(
            line["sample"],
            [
                {
                    "name": KERNEL,
                    "start_ps": str(EPOCH * 1000 + 1000),
                    "dur_ps": 500,
                    "stats": {"correlation_id": 7},
                    "metadata_stats": {"kernel_details": "regs:128 grid:8,1,1"},
                }
            ],
        )

    def test_a_plane_by_its_name_or_a_tpu_by_its_number(self) -> None:
        names = ["/device:TPU:0", "7", "/device:TPU:7", "/device:TPU:7", "TPU:0", "/host:CPU"]
        planes = [Plane(name, id=i) for i, name in enumerate(names)]
        data = encode(Space([Plane(p.name, [Line(str(p.id))]) for p in planes]))
        for given, place in (
            ("/device:TPU:0", 0),
            ("0", 0),
            # Its own name comes first.
            ("TPU:0", 4),
            ("7", 1),
            ("TPU:7", 2),
            ("/device:TPU:7", 2),
            ("/host:CPU", 5),
        ):
            with self.subTest(given=given):
                self.assertEqual(one_line(data, "--plane", given)["name"], str(place))

    def test_a_plane_or_a_line_that_is_not_there(self) -> None:
        outcome = run(encode(gpu()), "anatomy", "--plane", "GPU:0")
        check_outcome(outcome)
        self.assertEqual(outcome.object["reason"], "plane_not_found")
        available = ["/device:GPU:0", "/host:metadata", "/host:CPU"]
        self.assertEqual(outcome.object["available_planes"], available)
        outcome = run(encode(gpu()), "anatomy", "--plane", "/device:GPU:0", "--line", "Steps")
        check_outcome(outcome)
        self.assertEqual(outcome.object["reason"], "line_not_found")
        available = ["Stream #13(Compute,MemcpyD2H)", "_counters_"]
        self.assertEqual(outcome.object["available_lines"], available)

    def test_all_lines_of_one_name(self) -> None:
        all_lines = [Line("a", [Event(1, 5, 1)]), Line("b"), Line("a", [Event(1, 7, 1)])]
        data = encode(Space([Plane(DEVICE, all_lines)]))
        (plane,) = answer(data, "anatomy", "--plane", "0", "--line", "a")["planes"]
        self.assertEqual([line["first_start_ps"] for line in plane["lines"]], [5, 7])

    def test_the_longest_names_come_first(self) -> None:
        metadata = [EventMetadata(i, f"n{i:02}") for i in range(1, 31)]
        # Two ids of one name are one; of equal ones the first by name.
        metadata.append(EventMetadata(31, "n05"))
        events = [Event(i, 10 * i, 9 if i in (5, 7, 31) else 4) for i in range(1, 32)]
        data = encode(Space([Plane(DEVICE, [Line("l", events)], metadata)]))
        line = one_line(data, "--plane", "0")
        names = ["n05", "n07", *(f"n{i:02}" for i in range(1, 31) if i not in (5, 7))]
        self.assertEqual([row["name"] for row in line["names"]], names[:20])
        self.assertEqual(line["names"][0], {"name": "n05", "n": 2, "total_dur_ps": 18})
        self.assertEqual(line["n_names"], 30)

    def test_events_without_a_time_or_with_a_negative_one(self) -> None:
        events = [Event(1, 10, -4), Event(1, num_occurrences=3, duration_ps=6), Event(1, 20, 5)]
        data = encode(Space([Plane(DEVICE, [Line("l", events)], [EventMetadata(1, "x")])]))
        said = answer(data, "anatomy", "--plane", "0", "--sample", "5")
        (line,) = said["planes"][0]["lines"]
        self.assertEqual((line["first_start_ps"], line["last_end_ps"]), (10, 25))
        self.assertEqual((line["n_events"], line["busy_ps"]), (3, 5))
        self.assertEqual(line["names"], [{"name": "x", "n": 3, "total_dur_ps": 11}])
        starts = [(each["start_ps"], each["dur_ps"]) for each in line["sample"]]
        self.assertEqual(starts, [(10, -4), (None, 6), (20, 5)])
        self.assertEqual(len(said["notes"]), 2)

    def test_times_at_the_edge(self) -> None:
        end = 2**63 - 1
        events = [Event(1, end, end), Event(1, -end - 1, end), Event(1, -1, 5), Event(1, 0, end)]
        data = encode(Space([Plane(DEVICE, [Line("l", events, end)])]))
        line = one_line(data, "--plane", "0")
        self.assertEqual(line["first_start_ps"], str(end * 1000 - end - 1))
        self.assertEqual(line["last_end_ps"], str(end * 1000 + end + end))
        self.assertEqual(line["busy_ps"], str(3 * end + 1))

    def test_pieces_do_not_show(self) -> None:
        rng = random.Random(0)
        events = [
            Event(rng.randrange(1, 4), rng.randrange(0, 900, 10), 10 * rng.randrange(9))
            for _ in range(300)
        ]
        metadata = [EventMetadata(i, f"n{i}", [Stat(1, string("x" * i))]) for i in (1, 2, 3)]
        data = encode(Space([Plane(DEVICE, [Line("counters_0", events)], metadata)]))
        whole = answer(data, "anatomy", "--plane", "0", "--sample", "40")["planes"]
        for size in (1, 60, 500):
            with mock.patch.object(lines, "_PIECE_BYTES", size):
                pieces = answer(data, "anatomy", "--plane", "0", "--sample", "40")["planes"]
            self.assertEqual(pieces, whole)

    def test_an_event_larger_than_any_piece(self) -> None:
        for n_bytes in (200_000, 3 << 20):
            event = Event(1, 5, 7, stats=[Stat(1, string("x" * n_bytes))])
            data = encode(Space([Plane(DEVICE, [Line("l", [event, Event(1, 20, 1)])])]))
            line = one_line(data, "--plane", "0", "--sample", "1")
            self.assertEqual((line["n_events"], line["busy_ps"]), (2, 8))
            self.assertEqual(len(line["sample"][0]["stats"]["1"]), 65_537)

    def test_options_ask_for_a_plane(self) -> None:
        for arguments in (
            ["--line", "x"],
            ["--grep", "x"],
            ["--sample", "0"],
            ["--device", "/device:TPU:0"],
            ["--device", "/device:TPU:0", "--plane", "0"],
            ["--plane", "0", "--grep", "("],
            ["--plane", "0", "--grep", "(" * 100_000],
            ["--plane", "0", "--grep", "a{99999999999999999999}"],
            ["--plane", "0", "--sample", "-1"],
            ["--plane", "0", "--top", "3"],
        ):
            with self.subTest(arguments=arguments):
                outcome = run(encode(gpu()), "anatomy", *arguments)
                reason = outcome.object.get("reason")
                self.assertEqual((reason, outcome.status), ("bad_arguments", 2))


class Counters(unittest.TestCase):
    """Lines of measurements, as captures have them where they were asked for."""

    def test_power_throttling_and_utilization(self) -> None:
        data = counters(
            [
                # In another order than by time.
                Event(1, 300, stats=[Stat(1, double(250.5)), Stat(2, int64(0))]),
                Event(1, 100, stats=[Stat(1, double(180.25)), Stat(2, int64(12))]),
                Event(1, 200, stats=[Stat(1, double(199.25))]),
                Event(2, 100, stats=[Stat(3, string("71.5")), Stat(4, string("3"))]),
                Event(2, 200, stats=[Stat(3, string("idle")), Stat(4, string("1"))]),
            ]
        )
        row = ("name", "stat", "n", "min", "mean", "max", "first", "last")
        self.assertEqual(
            one_line(data, "--plane", "0")["counters"],
            [
                dict(zip(row, each, strict=True))
                for each in (
                    ("HBM 0", "power (W)", 3, 180.25, 210, 250.5, 180.25, 250.5),
                    ("HBM 0", "throttle %", 2, 0, 6, 12, 12, 0),
                    ("TensorCore", "% util", 1, 71.5, 71.5, 71.5, 71.5, 71.5),
                    ("TensorCore", "P State", 2, 1, 2, 3, 3, 1),
                )
            ],
        )

    def test_of_equal_times_the_first_and_the_last_in_the_file(self) -> None:
        readings = [Event(3, 50, stats=[Stat(1, int64(i))]) for i in (4, 9, 2)]
        readings.append(Event(3, num_occurrences=2, stats=[Stat(1, int64(11))]))
        (row,) = one_line(counters(readings), "--plane", "0")["counters"]
        self.assertEqual((row["name"], row["first"], row["last"]), (None, 4, 2))
        self.assertEqual((row["n"], row["max"], row["mean"]), (4, 11, 6.5))

    def test_the_mean_is_rounded_once(self) -> None:
        values = [double(1e300), double(1.0), double(-1e300), uint64(2**64 - 1), double(1.0)]
        readings = [Event(1, i, stats=[Stat(1, value)]) for i, value in enumerate(values)]
        (row,) = one_line(counters(readings), "--plane", "0")["counters"]
        self.assertEqual(row["mean"], (2**64 + 1) / 5)

    def test_what_is_no_number_is_no_reading(self) -> None:
        values = [double(float("nan")), string("3 W"), raw(b"7"), string("1e400"), string("")]
        readings = [Event(1, i, stats=[Stat(1, value)]) for i, value in enumerate(values)]
        self.assertEqual(one_line(counters(readings), "--plane", "0")["counters"], [])

    def test_of_other_lines_none_are_read(self) -> None:
        reading = Event(1, 5, stats=[Stat(1, int64(3))])
        for name, is_counter in (("counters_0", True), ("XLA Ops", False), ("Counters", False)):
            found = one_line(counters([reading], name), "--plane", "0")["counters"]
            self.assertEqual(found is not None, is_counter, name)


def events_before(data: bytes, end: int) -> dict[str, list[int]]:
    """By plane, how many events of each line lie wholly before a byte of an intact file."""
    found: dict[str, list[int]] = {}

    def walk(start: int, stop: int, path: tuple[int, ...], plane: str) -> None:
        at = start
        while at < min(stop, end):
            key, i = read_varint(data, at)
            size, i = read_varint(data, i)
            if key % 8 != 2:
                at = i
                continue
            here = (*path, key // 8)
            if here == (1,) and i <= end:
                plane = f"{len(found)}"
                found[plane] = []
            elif here == (1, 3) and i <= end:
                found[plane].append(0)
            elif here == (1, 3, 4) and i + size <= end:
                found[plane][-1] += 1
            if here in ((1,), (1, 3)) and i <= end:
                walk(i, i + size, here, plane)
            at = i + size

    walk(0, len(data), (), "")
    return found


class Damaged(InFolder):
    """What can be read is listed, and it is told where that ends."""

    def whole(self) -> bytes:
        ops = [op(f"f.{i}", "loop fusion", 10 * i, 5, stack="m.py:1:2") for i in range(6)]
        tpu = tpu_plane(ops, [("0", 0, 100)], stats={"device_type_string": "TPU v7x"})
        return encode(Space([tpu, *gpu().planes], ["host"]))

    def test_cut_off_anywhere(self) -> None:
        data = self.whole()
        intact = answer(data, "anatomy")["planes"]
        for end in sampled(range(0, len(data), 3), 100):
            with self.subTest(end=end):
                outcome = run(data[:end], "anatomy")
                check_outcome(outcome)
                said = outcome.object
                counted = [
                    [line["n_events"] for line in plane["lines"]]
                    for plane in said.get("planes", [])
                ]
                if said["status"] == "ok":
                    # Between two planes nothing shows that there was more.
                    self.assertEqual(said["planes"], intact[: len(counted)])
                    continue
                at = damaged_at(outcome)
                self.assertTrue(at is not None and at <= end)
                self.assertEqual(counted, list(events_before(data, end).values()))
                for before, plane in zip(intact, said["planes"][:-1], strict=False):
                    self.assertEqual(plane, before)

    def test_cut_off_anywhere_one_plane(self) -> None:
        data = self.whole()
        options = ("--plane", "0", "--sample", "2", "--grep", "f")
        intact = answer(data, "anatomy", *options)["planes"]
        n_of_first = intact[0]["bytes"]
        for end in sampled(range(0, len(data), 7), 50):
            with self.subTest(end=end):
                outcome = run(data[:end], "anatomy", *options)
                check_outcome(outcome)
                if end > n_of_first + 20:
                    # Whatever comes behind it.
                    self.assertEqual(outcome.object["planes"], intact)
        # Without metadata no event has a name; the lines come first.
        (plane,) = run(data[: n_of_first // 2], "anatomy", "--plane", "0").object["planes"]
        ops = plane["lines"][1]
        self.assertEqual((ops["name"], ops["n_events"]), ("XLA Ops", 6))

    def test_gzip_data_that_is_cut_off(self) -> None:
        rng = random.Random(0)
        # Noise between the planes, so that something is left of most cuts.
        noise = bytes_field(14, rng.randbytes(3000))
        data = self.whole() + noise + encode(gpu())
        packed = gzip.compress(data, mtime=0)
        counts = set()
        for end in range(0, len(packed), 97):
            path = self.write("cut.xplane.pb.gz", packed[:end])
            outcome = run(path, "anatomy")
            check_outcome(outcome)
            self.assertEqual(outcome.object["reason"], "unreadable_xplane_pb")
            other = run(path, "summary").object
            self.assertEqual(other["detail"], outcome.object["detail"])
            counts.add(len(outcome.object["planes"]))
        self.assertGreaterEqual(counts, {0, 4})

    def test_damage_inside_a_line_hides_no_other(self) -> None:
        bad = Line("bad", [Event(1, 5, 1), Event(1, 6, 1)], extra=b"\x7f")
        planes = [Plane(DEVICE, [bad, Line("good", [Event(1, 7, 1)])]), Plane("/host:CPU")]
        outcome = run(encode(Space(planes)), "anatomy")
        check_outcome(outcome)
        names = [plane["name"] for plane in outcome.object["planes"]]
        self.assertEqual(names, [DEVICE, "/host:CPU"])
        found = [(each["name"], each["n_events"]) for each in outcome.object["planes"][0]["lines"]]
        self.assertEqual(found, [("bad", 2), ("good", 1)])

    def test_damage_inside_an_event_shows_when_it_is_counted(self) -> None:
        bad = Line("l", [Event(1, 5, 1)], extra=bytes_field(4, int_field(1, 1) + b"\x7f"))
        data = encode(Space([Plane(DEVICE, [bad])]))
        self.assertEqual(answer(data, "anatomy")["planes"][0]["lines"][0]["n_events"], 2)
        outcome = run(data, "anatomy", "--plane", "0")
        check_outcome(outcome)
        self.assertEqual(damaged_at(outcome), len(data) - 1)

    def test_damage_that_no_other_mode_minds(self) -> None:
        """It reads texts that others pass over."""
        for number in (2, 3, 4):
            outcome = run(self.whole() + bytes_field(number, b"\xff"), "anatomy")
            check_outcome(outcome)
            self.assertEqual(damaged_at(outcome), len(self.whole()))
            self.assertEqual(len(outcome.object["planes"]), 4)

    def test_what_is_no_trace(self) -> None:
        for data, words in (
            (b"", "the file is empty"),
            (b'{"traceEvents": []}', "JSON"),
            (b"PK\x03\x04" + bytes(40), "a zip archive"),
        ):
            outcome = run(data, "anatomy")
            check_outcome(outcome)
            self.assertIn(words, outcome.object["detail"])
            self.assertEqual(outcome.object["planes"], [])

    def test_of_several_hosts_one_that_can_be_read(self) -> None:
        self.write("a.xplane.pb", self.whole()[:-3])
        self.write("b.xplane.pb", self.whole())
        said = answer(self.folder, "anatomy")
        self.assertEqual(said["xplane_file"], "b.xplane.pb")
        self.assertIn("a file can't be read: a.xplane.pb: byte", said["notes"][0])
        outcome = run(self.folder, "anatomy", "--host", "a")
        self.assertEqual(len(outcome.object["planes"]), 4)

    def test_whatever_is_done_to_a_file(self) -> None:
        for seed in sampled(range(300), 40):
            rng = random.Random(seed)
            data, done = fuzz.mutate(rng, self.whole() if rng.random() < 0.5 else fuzz.sample())
            options = rng.choice(((), (), ("--plane", "0", "--sample", "9"), ("--plane", "")))
            with self.subTest(seed=seed, done=done), time_limit(20), fuzz.small_pieces(rng):
                outcome = run(data, "anatomy", *options)
                check_outcome(outcome)
                if outcome.object.get("reason") == "unreadable_xplane_pb":
                    self.assertIsInstance(outcome.object["planes"], list)

    def test_as_a_command(self) -> None:
        path = self.write("cut.xplane.pb", self.whole()[:-3])
        outcome = command(path, "--mode", "anatomy")
        self.assertEqual((outcome.status, len(outcome.stderr.splitlines())), (1, 1))


if __name__ == "__main__":
    unittest.main()
