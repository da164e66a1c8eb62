"""Test traces that store an op's stats, such as flops, on its events instead of its metadata."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

from _breakdown.pipeline.make_ops import USED_STATS
from tests.builders.hlo_proto import hlo_proto, metadata_plane, op as instruction
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Plane,
    Space,
    StatNames,
    StatValue,
    bytes_field,
    encode,
    int_field,
    memory_access_breakdown,
    op,
    tpu_plane,
)
from tests.fuzz import damaged_at
from tests.harness import Json, answer, run

STEPS = [("0", 0, 100), ("1", 100, 100), ("2", 200, 100)]
PROGRAM = hlo_proto({"main": [instruction("a", "add", line="model.py:7"), instruction("d", "dot")]})


def traced(plane: Plane) -> bytes:
    return encode(Space([plane, metadata_plane({7: ("jit_f(7)", PROGRAM)})]))


def full_facts(flops: int = 800) -> dict[str, Any]:
    """Return all stats of an op except its category."""
    return {
        "flops": flops,
        "model_flops": flops // 2,
        "bytes_accessed": 64,
        "memory_access_breakdown": memory_access_breakdown((1, 1, 48), (2, 3, 16)),
        "source": "model.py:7",
        "source_stack": "model.py:7:3\ntrain.py:9:1",
        "tf_op": "jit(f)/jvp(layer)/dot_general:",
        "program_id": 7,
    }


def moved(plane: Plane, is_on: Callable[[int], bool]) -> Plane:
    """Move all stats from each op's metadata to the executions whose index `is_on` accepts."""
    facts = {i for i, name in ((m.id, m.name) for m in plane.stat_metadata) if name in USED_STATS}
    stats = {
        entry.id: [stat for stat in entry.stats if stat.metadata_id in facts]
        for entry in plane.event_metadata
    }
    metadata = [
        replace(entry, stats=[stat for stat in entry.stats if stat.metadata_id not in facts])
        for entry in plane.event_metadata
    ]
    of_steps, of_ops = plane.lines
    n_before: dict[int | None, int] = {}
    events = []
    for event in of_ops.events:
        n = n_before[event.metadata_id] = n_before.get(event.metadata_id, -1) + 1
        more = stats[event.metadata_id] if is_on(n) else []
        events.append(replace(event, stats=[*event.stats, *more]))
    new_lines = [of_steps, replace(of_ops, events=events)]
    return replace(plane, lines=new_lines, event_metadata=metadata)


class Case:
    """Build a trace of one op with its category in the metadata and other stats on its events."""

    def __init__(self, category: str | None = "loop fusion", **on_metadata: Any) -> None:
        self.names = StatNames()
        self.events: list[Event] = []
        self.plane = tpu_plane([op("f", category, 0, 10, text="%f", **on_metadata)], STEPS)
        self.names.names = [str(entry.name) for entry in self.plane.stat_metadata]

    def event(self, start: int, **stats: StatValue) -> Event:
        made = [self.names.stat(name.replace("__", " "), value) for name, value in stats.items()]
        self.events.append(Event(1, start, 10, stats=made))
        return self.events[-1]

    def data(self) -> bytes:
        self.plane.lines[1].events = self.events
        self.plane.stat_metadata = self.names.metadata()
        return encode(Space([self.plane]))

    def op(self, step: str = "0") -> Json:
        """Return the op's row in `by_op`."""
        (row,) = answer(self.data(), "by_op", "--step", step)["ops"]
        found: Json = row
        return found

    def facts(self, step: str = "0") -> tuple[int | None, int | None, str | None]:
        row = self.op(step)
        return row["flops"], row["bytes_accessed"], row["tf_op"]


class FactsOnEvents(unittest.TestCase):
    def test_record_uses_stats_of_the_first_execution_in_any_step(self) -> None:
        case = Case()
        case.event(0)
        case.event(100, tf_op="second")
        case.event(200, tf_op="third")
        (group,) = answer(case.data(), "record")["groups"]
        self.assertEqual(group["tf_ops"], ["second"])

    def test_counts_on_events_of_custom_calls_are_ignored(self) -> None:
        """Test that counts on a kernel's events are ignored: they count the body of each loop
        in the kernel only once."""
        facts = full_facts()
        for category, on_event in (("custom-call", {}), (None, {"hlo_category": "custom-call"})):
            case = Case(category)
            case.event(0, **facts, **on_event)
            self.assertEqual(case.facts(), (None, None, facts["tf_op"]))
            self.assertIsNone(case.op()["hbm_bytes"])
            self.assertEqual(case.op()["source_inner"], "model.py:7")
        case = Case("custom-call", flops=5)
        case.event(0, flops=6, bytes_accessed=7)
        self.assertEqual(case.facts(), (5, None, None))


class DamagedFacts(unittest.TestCase):
    def test_damaged_breakdown_is_rejected_with_the_offset_of_the_damage(self) -> None:
        case = Case()
        broken = b"\x0a\x07abc"
        case.event(0, memory_access_breakdown=broken)
        data = case.data()
        outcome = run(data, "by_op", "--step", "0")
        self.assertEqual(damaged_at(outcome), data.index(broken))

    def test_damaged_text_that_no_op_needs_is_ignored(self) -> None:
        case = Case(tf_op="of the metadata")
        case.event(0, flops=4)
        # The second op has no tf_op.
        case.plane.event_metadata.append(EventMetadata(9, "%other"))
        case.event(20).metadata_id = 9
        for name in ("tf_op", "hlo_op"):
            stat = case.names.stat(name, "").metadata_id
            text = bytes_field(4, int_field(1, stat or 0) + bytes_field(5, b"\xffx"))
            case.events[0].extra += text
        row, other = answer(case.data(), "by_op", "--step", "0")["ops"]
        self.assertEqual((row["tf_op"], row["flops"]), ("of the metadata", 4))
        self.assertEqual((other["tf_op"], other["flops"]), (None, None))


class Reading(unittest.TestCase):
    def test_stats_on_events_are_not_decoded_if_the_metadata_has_them(self) -> None:
        facts: dict[str, Any] = {"flops": 4, "tf_op": "x"}
        case = Case(**facts)
        case.event(0, **facts)
        with mock.patch("_proto.trace.event_stats._as_xstats", side_effect=AssertionError):
            self.assertEqual(case.op()["flops"], 4)
