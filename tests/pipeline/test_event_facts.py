"""Test traces that store an op's stats, such as flops, on its events instead of its metadata."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

from _breakdown.pipeline.make_ops import USED_STATS
from _proto.trace import lines
from tests.builders.hlo_proto import hlo_proto, metadata_plane
from tests.builders.hlo_proto import op as instruction
from tests.builders.xspace import (
    NO_VALUE,
    Event,
    EventMetadata,
    Plane,
    Space,
    StatNames,
    StatValue,
    bytes_field,
    compressed,
    encode,
    int64,
    int_field,
    memory_access_breakdown,
    op,
    raw,
    ref,
    string,
    tpu_plane,
)
from tests.fuzz import damaged_at
from tests.harness import MODES, Json, answer, run, sampled

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


def small_plane() -> Plane:
    """Return a plane with three steps and two ops that have all stats."""
    ops = [
        made
        for _, start, _ in STEPS
        for made in (
            op("a", "loop fusion", start, 30, text="%a", **full_facts()),
            op("d", "dot", start + 40, 50, text="%d", **full_facts(1600)),
        )
    ]
    return tpu_plane(ops, STEPS, stats={"device_type_string": "TPU v6 Lite"})


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
    def test_answers_do_not_depend_on_where_stats_are_stored(self) -> None:
        for mode in sampled((*MODES, "record"), 6):
            expected = run(traced(small_plane()), mode).object
            for is_on in (lambda n: True, lambda n: n == 1):
                with self.subTest(mode=mode):
                    # The middle one of the three equal steps is picked, so `n == 1` selects its
                    # executions.
                    data = traced(moved(small_plane(), is_on))
                    self.assertEqual(run(data, mode).object, expected)

    def test_stat_without_a_value_is_ignored(self) -> None:
        case = Case(flops=NO_VALUE)
        case.event(0, flops=NO_VALUE)
        case.event(10, flops=6)
        self.assertEqual(case.facts(), (6, None, None))

    def test_record_uses_stats_of_the_first_execution_in_any_step(self) -> None:
        case = Case()
        case.event(0)
        case.event(100, tf_op="second")
        case.event(200, tf_op="third")
        (group,) = answer(case.data(), "record")["groups"]
        self.assertEqual(group["tf_ops"], ["second"])

    def test_texts_can_be_stored_as_any_stat_type(self) -> None:
        for value in (string("x/y"), ref("x/y"), compressed("x/y"), raw(b"x/y")):
            case = Case()
            case.event(0, tf_op=value, flops=3)
            self.assertEqual(case.facts(), (3, None, "x/y"), value)

    def test_stats_are_found_in_every_piece_of_every_line(self) -> None:
        case = Case()
        for start in range(90):
            case.event(start, device_offset_ps=start, device_duration_ps=1)
        case.event(90, flops=6)
        case.data()
        ops = case.plane.lines[1]
        case.plane.lines[1:] = [replace(ops, events=ops.events[:3]), replace(ops, timestamp_ns=0)]
        with mock.patch.object(lines, "_PIECE_BYTES", 100):
            (row,) = answer(encode(Space([case.plane])), "by_op", "--step", "0")["ops"]
        self.assertEqual((row["flops"], row["n_executions"]), (6, 94))

    def test_ids_of_ops_and_stats_can_be_0(self) -> None:
        case = Case()
        case.names.first_id = 0
        case.event(0, hlo_category="dot", flops=4).metadata_id = None
        case.plane.event_metadata[0].id = None
        case.plane.event_metadata[0].stats = []
        for event in case.events:
            event.stats = [replace(s, metadata_id=s.metadata_id or None) for s in event.stats]
        row = case.op()
        self.assertEqual((row["hlo_category"], row["flops"]), ("dot", 4))

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
    def test_damaged_text_is_rejected_with_its_offset(self) -> None:
        case = Case()
        case.event(0, device_offset_ps=5, device_duration_ps=1)
        case.event(10, flops=4, tf_op=raw(b""))
        stat = case.names.stat("tf_op", raw(b"")).metadata_id
        case.events[1].stats[1:] = []
        case.events[1].extra = bytes_field(4, int_field(1, stat or 0) + bytes_field(5, b"\xffx"))
        data = case.data()
        outcome = run(data, "by_op", "--step", "0")
        self.assertIn("str_value is not UTF-8", outcome.object["detail"])
        self.assertEqual(damaged_at(outcome), data.index(bytes_field(5, b"\xffx")))

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
    def test_events_without_relevant_stats_are_read_only_once(self) -> None:
        case = Case()
        case.event(0, device_offset_ps=5, device_duration_ps=1)
        case.event(10, flow=3, hlo_op="f", _a=int64(1))
        with mock.patch.object(lines.Line, "pieces_with", side_effect=AssertionError):
            self.assertIsNone(case.op()["flops"])

    def test_stats_on_events_are_not_decoded_if_the_metadata_has_them(self) -> None:
        facts: dict[str, Any] = {"flops": 4, "tf_op": "x"}
        case = Case(**facts)
        case.event(0, **facts)
        with mock.patch("_proto.trace.event_stats._as_xstats", side_effect=AssertionError):
            self.assertEqual(case.op()["flops"], 4)
