"""Which ops belong to a step."""

from __future__ import annotations

import random
import unittest
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from _pipeline.event_iterate import admit
from _proto.trace.events import Events
from tests.builders.xspace import Event, Line, Space, encode, op
from tests.harness import answer
from tests.pipeline.small_steps import Steps, groups, leaf, plane, totals


class Admission(unittest.TestCase):
    STEP: Steps = [("s", 100, 100)]  # noqa: RUF012

    def test_from_the_start_to_before_the_end(self) -> None:
        for start, admitted in ((99, 0), (100, 1), (150, 1), (199, 1), (200, 0)):
            for dur in (0, 1, 50):
                with self.subTest(start=start, dur=dur):
                    step = totals([leaf(start, dur)], self.STEP)
                    self.assertEqual(step["n_events_total"], admitted)
                    self.assertEqual(step["compute_duration_ps"], dur * admitted)

    def test_a_duration_counts_in_full_past_the_end(self) -> None:
        step = totals([leaf(190, 30)], self.STEP)
        self.assertEqual(step["compute_duration_ps"], 30)
        self.assertEqual((step["busy_duration_ps"], step["idle_duration_ps"]), (10, 90))

    def test_what_reaches_in_from_before_is_not_busy(self) -> None:
        step = totals([leaf(50, 100), op("w", "while", 50, 100)], self.STEP)
        self.assertEqual((step["n_events_total"], step["n_events_container"]), (0, 0))
        self.assertEqual((step["busy_duration_ps"], step["container_self_duration_ps"]), (0, 0))

    def test_instant_ops_are_executions(self) -> None:
        (row,) = groups([leaf(10, 0), leaf(20, 0)])
        self.assertEqual(
            [
                row[k]
                for k in ("n_executions", "total_dur_ps", "min_dur_ps", "max_dur_ps", "avg_dur_ps")
            ],
            [2, 0, 0, 0, 0],
        )
        self.assertIsNone(row["pct_of_compute"])
        self.assertEqual(row["pct_of_step"], 0.0)

    def test_an_offset_that_is_not_written_is_0(self) -> None:
        data = encode(Space([plane(Line("XLA Ops", [Event(7, None, 5), Event(7, 10, 5)]))]))
        self.assertEqual(answer(data, "summary")["step_window_ps"], [0, 15])

    def test_events_that_cannot_be_placed_are_counted_and_dropped(self) -> None:
        good = [Event(7, 0, 50), Event(7, 80, 20)]
        for what, bad in (
            ("unresolved", Event(8, 200, 10)),
            ("no id", Event(None, 200, 10)),
            ("aggregated", Event(7, None, 10, num_occurrences=3)),
            ("negative", Event(7, 200, -10)),
        ):
            with self.subTest(what=what):
                line = Line("XLA Ops", [good[0], bad, good[1]])
                step = answer(encode(Space([plane(line)])), "summary")
                self.assertEqual(step["step_window_ps"], [0, 100])
                self.assertEqual(step["totals"]["n_events_unresolved"], 1)
                self.assertEqual(step["totals"]["n_events_total"], 2)
                self.assertEqual(step["totals"]["compute_duration_ps"], 70)
                self.assertEqual(len(step["notes"]), 2)
                self.assertTrue(step["notes"][0].startswith("1 "))

    def test_only_bad_events_of_the_step_are_counted(self) -> None:
        line = Line(
            "XLA Ops", [Event(7, 110, 5), Event(8, 99, 1), Event(8, 120, 1), Event(8, 200, 1)]
        )
        steps = Line("Steps", [Event(7, 100, 100)])
        step = answer(encode(Space([plane(steps, line)])), "summary")
        self.assertEqual(step["totals"]["n_events_unresolved"], 1)
        self.assertEqual(step["steps"][0]["n_xla_ops_events"], 2)
        self.assertIn("n_xla_ops_events=2 of 4 in 1 steps", step["notes"][0])


class Column(list[int]):
    """A column that counts how many of its numbers are looked at."""

    n_seen = 0

    def __iter__(self) -> Iterator[int]:
        self.n_seen += len(self)
        return super().__iter__()

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.n_seen += len(found) if isinstance(at, slice) else 1
        return found


def events_at(offsets: Sequence[int]) -> Events:
    """Events that last 1 ps, each with its place as its metadata id."""
    n = len(offsets)
    return Events(
        list(range(n)), list(offsets), [1] * n, [0] * n, [0] * n, [False] * n, frozenset()
    )


class Windows(unittest.TestCase):
    def test_events_are_found_for_all_windows_as_for_each(self) -> None:
        rng = random.Random(2)
        for _ in range(300):
            offsets = rng.choices(range(30), k=rng.randrange(1, 20))
            if rng.random() < 0.7:
                offsets.sort()
            starts = sorted(rng.choices(range(-3, 33), k=rng.randrange(1, 6)))
            windows = [(start, start + rng.randrange(20)) for start in starts]
            events = events_at(offsets)
            expected = [list(events.between(*window).metadata_ids) for window in windows]
            found = list(events.among(windows))
            self.assertEqual([list(each.metadata_ids) for each in found], expected)
            for each in found:
                span = (min(each.offsets), max(each.offsets)) if len(each) else (0, -1)
                self.assertEqual((each.first, each.last), span)

    def test_cost_grows_with_events_not_with_events_times_windows(self) -> None:
        few, many = self.offsets_seen(100), self.offsets_seen(400)
        self.assertGreater(few, 100)
        self.assertLess(many, 5 * few)

    def offsets_seen(self, n_windows: int) -> int:
        """Count how many offsets are looked at to admit two events to each window."""
        events = events_at(range(2 * n_windows))
        events.offsets = column = Column(events.offsets)  # type: ignore[assignment]
        line = SimpleNamespace(
            base_ps=0, n_aggregated=0, stat_names=set, events=lambda start, end: [events]
        )
        plane = SimpleNamespace(unknown=lambda ids: set())
        device: Any = SimpleNamespace(base=0, lines=[line], plane=plane)
        found = admit(device, [(2 * i, 2 * i + 2) for i in range(n_windows)])
        self.assertEqual([each.n_started for each in found], [2] * n_windows)
        return column.n_seen


if __name__ == "__main__":
    unittest.main()
