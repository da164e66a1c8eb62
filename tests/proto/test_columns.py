"""Compare events decoded in columns, and decoded one by one, with a reference implementation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from struct import unpack
from typing import Any, NamedTuple
from unittest import mock

from _proto import columns_pb2 as columns
from _proto.trace import lines
from _proto.trace.events import DeviceStats
from _proto.trace.wire import FIXED64
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    Stat,
    StatMetadata,
    bytes_field,
    double_field,
    encode,
    int_field,
    uint64,
)
from tests.harness import FULL, InFolder, answer, sampled

# A protobuf message as (field number, value) pairs in file order.
Fields = list[tuple[int, Any]]
# An event: metadata id, offset, duration, and either the measured (offset, duration) or None.
Row = tuple[int, int, int, tuple[int, int] | None]

MAX = 2**63 - 1
EDGES = (0, 1, 127, 128, 10**12, MAX, 2**63, 2**64 - 1)
DEVICE = DeviceStats(frozenset({8}), frozenset({9}))
# Each entry has two sets of stat ids: those of the measured offset and those of the measured
# duration.
DEVICES = (
    DEVICE,
    DeviceStats(frozenset({9}), frozenset({8})),
    DeviceStats(frozenset({0}), frozenset({9})),
    DeviceStats(frozenset({8, 300}), frozenset({9, 0})),
    # Ids of several bytes.
    DeviceStats(frozenset({0x62 << 7 | 0x60}), frozenset({0x7F << 7 | 0x7F})),
    DeviceStats(frozenset({8}), frozenset()),
)


def encoded(fields: Fields) -> bytes:
    parts = []
    for number, value in fields:
        match value:
            case list():
                parts.append(bytes_field(number, encoded(value)))
            case bytes():
                parts.append(bytes_field(number, value))
            case float():
                parts.append(double_field(number, value))
            case _:
                parts.append(int_field(number, value))
    return b"".join(parts)


def piece_of(events: Sequence[Fields]) -> bytes:
    return b"".join(bytes_field(4, encoded(event)) for event in events)


def signed(value: int) -> int:
    return value - 2**64 if value >> 63 else value


def row_of(event: Fields, device: DeviceStats) -> Row | None:
    """Return the expected row of an event, or None if the event has no time. The last of several
    fields with the same number is used.
    """
    last: dict[int, int] = {}
    times: dict[str, int | None] = {}
    for number, value in event:
        if number == 4:
            stat_id = next((v for n, v in reversed(value) if n == 1), 0)
            values = [(n, v) for n, v in value if n in (2, 3, 4, 5)]
            name = "offset" if stat_id in device.offset_ids else "duration"
            if values and stat_id in device.offset_ids | device.duration_ids:
                kind, time = values[-1]
                time = {3: time, 4: signed(time) if kind == 4 else 0}.get(kind)
                times[name] = time if time is not None and 0 <= time <= MAX else None
        elif number <= 5:
            if number in (2, 5):
                last.pop(7 - number, None)
            last[number] = value
    if 5 in last:
        return None
    start, duration = times.get("offset"), times.get("duration")
    measured = None if start is None or duration is None else (start, duration)
    metadata_id, offset, length = (signed(last.get(i, 0)) for i in (1, 2, 3))
    return metadata_id, offset, length, measured


class Sampler(NamedTuple):
    """Make random events, most of them like those that real profilers write."""

    rng: random.Random
    device: DeviceStats

    def ordinary(self, n_stats: int = 2) -> Fields:
        rng = self.rng
        event: Fields = [(1, rng.randrange(300)), (2, rng.randrange(2**45))]
        event += [(3, rng.randrange(10**9))] * (rng.random() < 0.8)
        usual = [*sorted(self.device.offset_ids)[:1], *sorted(self.device.duration_ids)[:1]]
        times = self.device.offset_ids | self.device.duration_ids
        ids = [*usual, *(i for i in (7, 8, 9, 0) if i not in times)][:n_stats]
        values = (0, 5, 127, rng.randrange(2**45))
        return [*event, *((4, [(1, i), (3, rng.choice(values))]) for i in ids)]

    def changed(self, fields: Fields) -> Fields:
        """Repeat, drop, move, replace or add a field of the event or of one of its stats."""
        rng = self.rng
        fields = list(fields)
        place = rng.randrange(len(fields)) if fields else 0
        if fields and isinstance(fields[place][1], list) and rng.random() < 0.6:
            stat = list(fields[place][1])
            if rng.random() < 0.5:
                stat = self.changed(stat)
            else:
                other = rng.choice(((3, rng.choice(EDGES)), (4, rng.choice(EDGES)), (2, 70.0)))
                stat = [field for field in stat if field[0] == 1] + [other]
            return [*fields[:place], (4, stat), *fields[place + 1 :]]
        match rng.randrange(5) if fields else 4:
            case 0:
                fields.insert(rng.randrange(len(fields) + 1), fields[place])
            case 1:
                del fields[place]
            case 2:
                rng.shuffle(fields)
            case 3 if fields[place][0] in (1, 2, 3) and isinstance(fields[place][1], int):
                fields[place] = fields[place][0], rng.choice(EDGES[:6])
            case _:
                hidden = columns.LineShapes.FromString(piece_of([self.ordinary()]))
                # An unknown field can contain bytes that look like event shapes.
                bytes_inside = rng.choice((b"", b"\xe0", b"\xe1")) + hidden.SerializeToString()
                fields.insert(place, (15, bytes_inside[: rng.randrange(40)]))
        return fields

    def events(self) -> list[Fields]:
        rng = self.rng
        share_other = rng.choice((0, 0.1, 0.5))
        events = [
            self.ordinary(rng.choice((0, 3, 4)) if rng.random() < share_other else 2)
            for _ in range(rng.randrange(1, 12))
        ]
        # Decoding in columns detects one change, but not two changes that cancel each other.
        # Therefore, if one event lacks a duration, no other event may have two durations.
        odd = rng.choice(events)
        changed = self.changed(odd)
        if rng.random() < 0.4 and [number for number, _ in changed].count(3) < 2:
            odd[:] = changed
        elif rng.random() < 0.1:
            odd.insert(rng.randrange(len(odd) + 1), (5, 3))
        return events


class Columns(InFolder):
    def check(self, events: list[Fields], device: DeviceStats) -> bool:
        """Check the rows of events; return True if the events were read in columns."""
        found = [row_of(event, device) for event in events]
        expected = [row for row in found if row is not None]
        data = piece_of(events)
        self.assertEqual(list(lines._events_one_by_one(data, 0, device).rows()), expected)
        in_columns = lines._events_in_columns(data, 0, device)
        if in_columns is not None and len(in_columns) == len(events):
            self.assertEqual(list(in_columns.rows()), expected)
            return True
        return False

    def test_random_events_equal_those_of_the_reference_implementation(self) -> None:
        n_in_columns = n_usual = 0
        for seed in sampled(range(6000), 800):
            rng = random.Random(seed)
            sampler = Sampler(rng, rng.choice(DEVICES))
            with self.subTest(seed=seed):
                n_in_columns += self.check(sampler.events(), sampler.device)
                usual = [sampler.ordinary(rng.choice((2, 2, 0, 3))) for _ in range(9)]
                if len(sampler.device.duration_ids) == 1 and 8 in sampler.device.offset_ids:
                    self.assertTrue(self.check(usual, sampler.device))
                    n_usual += 1
        self.assertGreater(n_in_columns, 1500 if FULL else 200)
        self.assertGreater(n_usual, 20)

    def test_event_with_a_repeated_or_missing_field_is_decoded_correctly(self) -> None:
        start: Fields = [(1, 8), (3, 70)]
        length: Fields = [(1, 9), (3, 90)]
        stats: Fields = [(4, start), (4, length)]
        head: Fields = [(1, 1), (2, 5)]
        plain = [*head, *stats]
        cases: dict[str, Fields] = {
            "no offset": [(1, 1), *stats],
            "two offsets": [*head, (2, 7), *stats],
            "no metadata id": [(2, 5), *stats],
            "two metadata ids": [*head, (1, 3), *stats],
            "stat without an id": [*head, (4, start[1:]), (4, length)],
            "stat with two ids": [*head, (4, start), (4, [(1, 7), *length])],
            "stat without a value": [*head, (4, start[:1]), (4, length)],
            "stat with two values": [*head, (4, start), (4, [*length, (3, 7)])],
            "no offset on the core": [*head, (4, length)],
            "two offsets on the core": [*head, (4, start), *stats],
            "no stats": head,
            "all stats twice": [*head, *stats, *stats],
            "other order of stats": [*head, *stats[::-1]],
            # The tags of these fields are also signs of the layout.
            **{
                f"sign {sign!r}": [*plain, (sign[0] >> 3, unpack("<d", b"\x80" * 7 + b"\x40")[0])]
                for _, sign in lines._SIGNS
                if sign[0] & 7 == FIXED64
            },
        }
        for what, odd in cases.items():
            for events in ([odd], [odd, plain], [plain, odd, plain]):
                with self.subTest(what=what, events=events):
                    self.check(events, DEVICE)

    def test_changes_that_cancel_in_the_columns_are_noticed(self) -> None:
        """Test events of which one lacks a field and another has it twice, so that the columns have
        the expected lengths."""
        start: Fields = [(1, 8), (3, 70)]
        length: Fields = [(1, 9), (3, 90)]
        plain: Fields = [(1, 1), (2, 5), (3, 4), (4, start), (4, length)]
        longer = [(1, 2), (2, 15), (3, 6), (4, [(1, 8), (3, 71)]), (4, [(1, 9), (3, 91)])]
        pairs = [
            *((plain[:i] + plain[i + 1 :], [*longer, longer[i]]) for i in range(len(plain))),
            # A stat that lacks its id or value, and a stat that has one twice.
            *(
                (
                    [*plain[:3], (4, [start[1 - i]]), plain[4]],
                    [*longer[:3], (4, [*start, start[i]]), longer[4]],
                )
                for i in range(2)
            ),
        ]
        for lacking, doubled in pairs:
            with self.subTest(lacking=lacking):
                self.assertFalse(self.check([doubled, plain, lacking], DEVICE))

    def test_events_with_an_unknown_field_are_read_in_columns(self) -> None:
        """Test that events are read in columns even if a newer profiler adds a field, because
        reading them one by one takes four times as long.
        """

        def totals(of_event: bytes, of_stat: bytes) -> dict[str, Any]:
            events = []
            for i in range(300):
                stats = b"".join(
                    bytes_field(4, encode(Stat(j, uint64(value))) + of_stat)
                    for j, value in ((1, 100 * i), (2, 50))
                )
                events.append(Event(1, 100 * i, 50, extra=stats + of_event))
            names = [StatMetadata(1, "device_offset_ps"), StatMetadata(2, "device_duration_ps")]
            ops = [EventMetadata(1, "%fusion.1 = f32[2]{0} fusion()")]
            plane = Plane("/device:TPU:0", [Line("XLA Ops", events)], ops, names)
            found: dict[str, Any] = answer(encode(Space([plane])), "summary")["totals"]
            return found

        plain = totals(b"", b"")
        self.assertEqual(plain["n_events_total"], 300)
        for fields in ((int_field(9, 77), b""), (b"", int_field(9, 77))):
            forbidden = mock.patch.object(lines, "_timed_events", side_effect=AssertionError)
            with self.subTest(fields=fields), forbidden:
                self.assertEqual(totals(*fields), plain)
