"""Test the mode `anatomy`: planes, provenance, one plane in detail, counters, and damaged files.

For random traces and for captures, tests/naive/invariants.py compares the answers with protobuf's
own decoding.
"""

from __future__ import annotations

import random
import unittest

from tests.builders import hlo_proto
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    StatNames,
    StatValue,
    bytes_field,
    encode,
    int_field,
    op,
    ref,
    text_field,
    tpu_plane,
)
from tests.harness import InFolder, Json, answer, run, sampled
from tests.naive.wire import every, fields

DEVICE = "/device:TPU:0"
EPOCH = 1795320900663590481
KERNEL = "void cutlass::Kernel<f16>(Params)"
STREAM = "Stream #13(Compute,MemcpyD2H)"


def gpu() -> Space:
    """Return a GPU capture like one that XLA's profiler writes."""
    names = StatNames()
    events = [
        Event(1, 1000, 500, stats=[names.stat("correlation_id", 7)]),
        # This event starts before the first event and overlaps half of it.
        Event(2, 500, 750, stats=[names.stat("correlation_id", 6)]),
        Event(1, 3000, 500, stats=[names.stat("occupancy_pct", 62.5)]),
    ]
    device = Plane(
        "/device:GPU:0",
        [Line(STREAM, events, EPOCH, id=13, display_name="Stream 13"), Line("_counters_")],
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
    programs = hlo_proto.metadata_plane({2**64 - 3: ("jit_f", b"hlo")})
    return Space([device, programs, Plane("/host:CPU")], ["gpu-host"])


def one_line(data: bytes, *options: str) -> Json:
    (plane,) = answer(data, "anatomy", *options)["planes"]
    (line,) = plane["lines"]
    found: Json = line
    return found


class Planes(unittest.TestCase):
    def test_gpu_capture_is_listed(self) -> None:
        data = encode(gpu())
        result = answer(data + text_field(2, "lost") + text_field(3, "slow"), "anatomy")
        texts = {key: result[key] for key in ("hostnames", "errors", "warnings", "notes")}
        expected = {"hostnames": ["gpu-host"], "errors": ["lost"], "warnings": ["slow"]}
        self.assertEqual(texts, {**expected, "notes": []})
        self.assertEqual(result["file_bytes"], len(data) + 12)
        device, programs, host = result["planes"]
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
            device["lines"][0],
            {
                "name": STREAM,
                "display_name": "Stream 13",
                "n_events": 3,
                "bytes": len(encode(gpu().planes[0].lines[0])),
            },
        )
        counters = device["lines"][1]
        self.assertEqual(counters["bytes"], 12)
        self.assertEqual((device["n_event_metadata"], device["n_stat_metadata"]), (2, 8))
        self.assertEqual(device["bytes"], len(encode(gpu().planes[0])))
        self.assertEqual((programs["name"], host["name"]), ("/host:metadata", "/host:CPU"))
        program = {"program_id": str(2**64 - 3), "name": "jit_f", "hlo_bytes": 3}
        self.assertEqual(result["programs"], [program])


def captured(*planes: tuple[str, dict[str, StatValue]]) -> bytes:
    """Encode a file with the given planes, which have stats but no lines."""
    made = []
    for name, stats in planes:
        names = StatNames()
        values = [names.stat(stat, value) for stat, value in stats.items()]
        made.append(Plane(name, stats=values, stat_metadata=names.metadata()))
    return encode(Space(made))


def setting(name: str, value: bytes) -> bytes:
    """Encode an entry of `advanced_configuration`."""
    return bytes_field(12, text_field(1, name) + bytes_field(2, value))


# JAX 0.10.0's default options, encoded.
DEFAULTS = bytes.fromhex("080110021801200128013801")


class Provenance(unittest.TestCase):
    def options(self, data: StatValue) -> Json:
        result = answer(captured(("Task Environment", {"profile_options": data})), "anatomy")
        self.assertEqual(result["notes"], [])
        found: Json = result["profile_options"]
        return found

    def test_versions_are_read_only_from_the_metadata_plane(self) -> None:
        stats: dict[str, StatValue] = {
            "tpu_version": "PJRT C API\nTPU v6 lite",
            "cpu_version": "cpu",
            "jax_version": ref("0.10.0"),
            "process_id": 7,
        }
        expected = {"jax_version": "0.10.0", "tpu_version": "PJRT C API\nTPU v6 lite"}
        result = answer(captured(("/host:metadata", stats)), "anatomy")
        self.assertEqual(result["versions"], expected)
        result = answer(captured(("/host:CPU", stats)), "anatomy")
        self.assertEqual((result["versions"], result["profile_options"]), ({}, None))

    def test_unset_profile_options_are_omitted(self) -> None:
        defaults = {
            "include_dataset_ops": True,
            "host_tracer_level": 2,
            "device_tracer_level": 1,
            "python_tracer_level": 1,
            "version": 1,
            "enable_hlo_proto": True,
        }
        self.assertEqual(self.options(DEFAULTS), defaults)
        self.assertEqual(self.options(b""), {})
        self.assertIsNone(self.options("text"), "only bytes are options")
        self.assertEqual(self.options(int_field(6, 9)), {"device_type": 9}, "a later device type")

    def test_every_profile_option_is_decoded(self) -> None:
        data = (
            *(int_field(6, 3), int_field(8, 2**63 + 1), int_field(9, 1500)),
            *(text_field(10, "gs://x"), bytes_field(11, int_field(1, 255)), int_field(13, 0)),
            *(text_field(14, "run-1"), text_field(15, "host-7"), int_field(99, 1)),
            *(setting("mode", text_field(1, "TRACE_COMPUTE")), setting("on", int_field(2, 1))),
            *(setting("long", int_field(3, -(2**60))), setting("short", int_field(4, -3))),
            *(setting("none", b""), setting("on", int_field(2, 0))),
        )
        self.assertEqual(
            self.options(b"".join(data)),
            {
                "device_type": "TPU",
                "start_timestamp_ns": str(2**63 + 1),
                "duration_ms": 1500,
                "repository_path": "gs://x",
                "trace_options": {"host_traceme_filter_mask": 255},
                "advanced_configuration": {
                    "mode": "TRACE_COMPUTE",
                    "on": False,
                    "long": str(-(2**60)),
                    "short": -3,
                    "none": None,
                },
                "raise_error_on_start_failure": False,
                "session_id": "run-1",
                "override_hostname": "host-7",
            },
        )

    def test_damaged_profile_options_are_null_with_a_note(self) -> None:
        for data in (DEFAULTS[:-1], bytes_field(14, b"\xff")):
            with self.subTest(data=data):
                options: dict[str, StatValue] = {"profile_options": data}
                result = answer(captured(("Task Environment", options)), "anatomy")
                self.assertIsNone(result["profile_options"])
                (note,) = result["notes"]
                self.assertIn("profile_options", note)


class OnePlane(unittest.TestCase):
    def test_lines_have_times_stat_counts_and_event_names(self) -> None:
        line, _ = answer(encode(gpu()), "anatomy", "--plane", "/device:GPU:0")["planes"][0]["lines"]
        self.assertEqual(line["busy_ps"], 1500, "500 to 1500 and 3000 to 3500")
        self.assertEqual(line["event_stats"], {"correlation_id": 2, "occupancy_pct": 1})
        names = [
            {"name": KERNEL, "n": 2, "total_dur_ps": 1000},
            {"name": "MemcpyD2H", "n": 1, "total_dur_ps": 750},
        ]
        self.assertEqual((line["names"], line["n_names"]), (names, 2))
        self.assertNotIn("sample", line)

    def test_line_grep_and_sample_options_select_events(self) -> None:
        words = ("--plane", "/device:GPU:0", "--line", STREAM, "--grep", "cutlass.*f16")
        line = one_line(encode(gpu()), *words, "--sample", "1")
        self.assertEqual((line["n_events"], line["busy_ps"], line["n_names"]), (2, 1000, 1))
        event = {
            "name": KERNEL,
            "start_ps": str(EPOCH * 1000 + 1000),
            "dur_ps": 500,
            "stats": {"correlation_id": 7},
            "metadata_stats": {"kernel_details": "regs:128 grid:8,1,1"},
        }
        self.assertEqual(line["sample"], [event])

    def test_plane_is_selected_by_name_or_by_tpu_number(self) -> None:
        names = [DEVICE, "7", "/device:TPU:7", "/device:TPU:7", "TPU:0", "/host:CPU"]
        data = encode(Space([Plane(name, [Line(str(i))]) for i, name in enumerate(names)]))
        for given, place in (
            *((DEVICE, 0), ("0", 0), ("/device:TPU:7", 2), ("TPU:7", 2), ("/host:CPU", 5)),
            # An exact name takes precedence over a TPU number.
            *(("TPU:0", 4), ("7", 1)),
        ):
            with self.subTest(given=given):
                self.assertEqual(one_line(data, "--plane", given)["name"], str(place))

    def test_unknown_plane_or_line_is_rejected_and_available_names_are_listed(self) -> None:
        for words, reason, field, names in (
            (
                *(["--plane", "GPU:0"], "plane_not_found", "available_planes"),
                ["/device:GPU:0", "/host:metadata", "/host:CPU"],
            ),
            (
                *(["--plane", "/device:GPU:0", "--line", "Steps"], "line_not_found"),
                *("available_lines", [STREAM, "_counters_"]),
            ),
        ):
            outcome = run(encode(gpu()), "anatomy", *words)
            self.assertEqual((outcome.object["reason"], outcome.status), (reason, 1))
            self.assertEqual(outcome.object[field], names)

    def test_twenty_event_names_with_most_time_are_shown(self) -> None:
        metadata = [EventMetadata(i, f"n{i:02}") for i in range(1, 31)]
        metadata.append(EventMetadata(31, "n05"))  # Ids 31 and 5 have the same name.
        events = [Event(i, 10 * i, 9 if i in (5, 7, 31) else 4) for i in range(1, 32)]
        data = encode(Space([Plane(DEVICE, [Line("l", events)], metadata)]))
        line = one_line(data, "--plane", "0")
        names = ["n05", "n07", *(f"n{i:02}" for i in range(1, 31) if i not in (5, 7))]
        self.assertEqual([row["name"] for row in line["names"]], names[:20])
        self.assertEqual(line["names"][0], {"name": "n05", "n": 2, "total_dur_ps": 18})
        self.assertEqual(line["n_names"], 30)

    def test_overlapping_events_count_once_as_busy_time(self) -> None:
        in_order = [(0, 100), (10, 20), (50, 100), (300, 10)]
        for spans in (in_order, in_order[::-1]):
            events = [Event(1, start, duration) for start, duration in spans]
            line = one_line(encode(Space([Plane(DEVICE, [Line("l", events)])])), "--plane", "0")
            self.assertEqual(line["busy_ps"], 160, "0 to 150 and 300 to 310")

    def test_invalid_options_are_rejected(self) -> None:
        for words in (
            *(["--line", "x"], ["--grep", "x"], ["--sample", "0"], ["--device", DEVICE]),
            *(["--device", DEVICE, "--plane", "0"], ["--plane", "0", "--grep", "("]),
            *(["--plane", "0", "--sample", "-1"], ["--plane", "0", "--top", "3"]),
            ["--plane", "0", "--grep", "a{99999999999999999999}"],
        ):
            with self.subTest(words=words):
                outcome = run(encode(gpu()), "anatomy", *words)
                reason = outcome.object.get("reason")
                self.assertEqual((reason, outcome.status), ("bad_arguments", 2))


class Damaged(InFolder):
    """Test that a damaged file is rejected and that its readable planes are listed."""

    def whole(self) -> bytes:
        ops = [op(f"f.{i}", "loop fusion", 10 * i, 5, stack="m.py:1:2") for i in range(6)]
        tpu = tpu_plane(ops, [("0", 0, 100)], stats={"device_type_string": "TPU v7x"})
        return encode(Space([tpu, *gpu().planes], ["host"]))

    def refused(self, data: bytes, *options: str) -> Json:
        outcome = run(data, "anatomy", *options)
        result = outcome.object
        self.assertEqual((result.get("reason"), outcome.status), ("unreadable_xplane_pb", 1))
        self.assertRegex(result["detail"], r"byte \d+")
        return result

    def test_planes_of_a_truncated_file_are_listed(self) -> None:
        data = self.whole()
        intact = answer(data, "anatomy")["planes"]
        lengths = [len(bytes_field(1, plane)) for plane in every(fields(data), 1)]
        ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
        for end in sampled(range(1, len(data), 3), 60):
            with self.subTest(end=end):
                n_whole = sum(plane_end <= end for plane_end in ends)
                if end in ends or end >= ends[-1]:
                    result = run(data[:end], "anatomy").object
                else:
                    result = self.refused(data[:end])
                self.assertEqual(result["planes"][:n_whole], intact[:n_whole])
                self.assertLessEqual(len(result["planes"]), n_whole + 1)
                for plane, before in zip(
                    result["planes"][n_whole:], intact[n_whole:], strict=False
                ):
                    for line, whole in zip(plane["lines"], before["lines"], strict=False):
                        self.assertLessEqual(line["n_events"], whole["n_events"])

    def test_selected_plane_of_a_truncated_file_is_complete_if_it_precedes_the_cut(self) -> None:
        data = self.whole()
        options = ("--plane", "0", "--sample", "2", "--grep", "f")
        intact = answer(data, "anatomy", *options)["planes"]
        n_of_first = intact[0]["bytes"]
        for end in range(n_of_first + 21, len(data), 101):
            self.assertEqual(run(data[:end], "anatomy", *options).object["planes"], intact)
        self.assertEqual(self.refused(data[: n_of_first // 2], "--plane", "0")["planes"], [])

    def test_damaged_plane_is_left_out_and_other_planes_are_listed(self) -> None:
        bad = Line("bad", [Event(1, 5, 1), Event(1, 6, 1)], extra=b"\x7f")
        planes = [Plane("a", [Line("l", [Event(1, 7, 1)])]), Plane(DEVICE, [bad]), Plane("b")]
        data = encode(Space(planes))
        result = self.refused(data)
        self.assertEqual([plane["name"] for plane in result["planes"]], ["a", "b"])
        self.assertIn(f"byte {data.index(0x7F)}:", result["detail"])

    def test_damaged_event_is_an_error_only_if_its_plane_is_selected(self) -> None:
        bad = Line("l", [Event(1, 5, 1)], extra=bytes_field(4, int_field(1, 1) + b"\x7f"))
        data = encode(Space([Plane(DEVICE, [bad])]))
        self.assertEqual(one_line(data)["n_events"], 2)
        self.assertIn(f"byte {len(data) - 1}", self.refused(data, "--plane", "0")["detail"])

    def test_invalid_error_warning_or_hostname_has_replacement_characters(self) -> None:
        for number, name in ((2, "errors"), (3, "warnings"), (4, "hostnames")):
            result = answer(self.whole() + bytes_field(number, b"a\xff"), "anatomy")
            self.assertEqual(result[name][-1], "a\ufffd")

    def test_randomly_corrupted_file_gives_an_answer_or_an_expected_reason(self) -> None:
        for seed in sampled(range(300), 30):
            rng = random.Random(seed)
            data = bytearray(self.whole())
            for _ in range(rng.choice((1, 3, 30))):
                data[rng.randrange(len(data))] = rng.randrange(256)
            options = rng.choice(((), ("--plane", "0", "--sample", "9"), ("--plane", "")))
            with self.subTest(seed=seed):
                outcome = run(bytes(data), "anatomy", *options)
                reasons = (None, "unreadable_xplane_pb", "plane_not_found")
                self.assertIn(outcome.object.get("reason"), reasons)
                self.assertEqual(outcome.status, int(outcome.object["status"] != "ok"))
