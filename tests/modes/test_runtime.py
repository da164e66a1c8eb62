"""Test the field `runtime` of the mode `memory`: figures from the host's allocator events."""

from __future__ import annotations

import math
import unittest

from tests.builders import hlo_proto
from tests.builders.allocator import Said, allocator, with_host
from tests.builders.xspace import Op, Space, StatValue, double, encode, op, tpu_plane
from tests.harness import OFFLOADING, Json, answer
from tests.modes.small_steps import STEP


def holding(*ops: Op) -> bytes:
    program = hlo_proto.hlo_proto(
        {"main": [hlo_proto.op("a", "negate")]}, buffers=hlo_proto.allocation(0, 64, live_out=True)
    )
    programs = hlo_proto.metadata_plane({7: ("jit_f(7)", program)})
    ran = ops or (op("a", "loop fusion", 0, 10, program_id=7),)
    return encode(Space([tpu_plane(list(ran), STEP), programs]))


def sizes(reserved: int, allocated: int, available: int) -> dict[str, StatValue]:
    return {"bytes_reserved": reserved, "bytes_allocated": allocated, "bytes_available": available}


def runtime(*events: Said, timestamp_ns: int | None = None) -> Json | None:
    host = allocator(*events, timestamp_ns=timestamp_ns)
    found: Json | None = answer(with_host(holding(), host), "memory")["runtime"]
    return found


class Runtime(unittest.TestCase):
    def test_figures_come_only_from_the_events_of_the_picked_device(self) -> None:
        result = runtime(
            (10, 0, {**sizes(0, 30, 70), "fragmentation": 0}),
            (20, 0, {**sizes(60, 20, 20), "fragmentation": double(0.25)}),
            (15, 1, {**sizes(99, 1, 0), "fragmentation": 1}),
            # At the times 20 and 30, reserved and allocated bytes add up to 80; at 40, to less.
            (30, 0, sizes(40, 40, 20)),
            (40, 0, sizes(70, 5, 25)),
            timestamp_ns=3,
        )
        self.assertEqual(
            result,
            {
                "capacity_bytes": 100,
                "peak_bytes": 80,
                "peak_pct": 80.0,
                "fragmentation_pct": 25.0,
                "peak_reserved_bytes": 60,
                "peak_allocated_bytes": 20,
                "min_available_bytes": 20,
            },
        )

    def test_damaged_host_plane_is_noted(self) -> None:
        host = allocator((10, 0, sizes(1, 2, 3)))
        whole = with_host(holding(), host)
        at = whole.rindex(encode(host.lines[0].events[0]))
        # The first field of the event gets an invalid wire type.
        result = answer(whole[:at] + b"\x0f" + whole[at + 1 :], "memory")
        self.assertIsNone(result["runtime"])
        self.assertEqual(result["reserved_bytes"], 64)
        (note,) = [note for note in result["notes"] if "host's plane cannot be read" in note]
        self.assertIn("byte ", note)

    def test_runtime_of_the_offloading_capture_has_the_expected_figures(self) -> None:
        if not OFFLOADING.exists():
            self.skipTest("the capture is not available")
        result = answer(OFFLOADING, "memory")
        self.assertEqual(result["runtime"]["capacity_bytes"], 33_550_237_696)
        self.assertEqual(result["runtime"]["peak_bytes"], 21_492_569_216)
        self.assertEqual(result["runtime"]["peak_reserved_bytes"], 21_491_712_000)
        self.assertLessEqual(result["peak_bytes"], result["runtime"]["peak_reserved_bytes"])

    def test_fragmentation_that_is_no_share_is_null(self) -> None:
        cases = ((0.0, 0.0), (1.0, 100.0), (1.5, None), (-0.5, None), (math.nan, None))
        for value, expected in cases:
            result = runtime((10, 0, {**sizes(1, 2, 3), "fragmentation": double(value)}))
            assert result
            self.assertEqual(result["fragmentation_pct"], expected, value)
