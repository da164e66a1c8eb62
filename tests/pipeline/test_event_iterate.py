"""Test which events belong to a step."""

from __future__ import annotations

import random
import unittest

from _proto.trace.events import Events
from tests.builders.xspace import Event, Line, Space, encode
from tests.harness import answer
from tests.pipeline.small_steps import plane


class Admission(unittest.TestCase):
    def test_events_without_metadata_or_valid_time_are_dropped_and_noted(self) -> None:
        for problem, bad in (
            ("no metadata", Event(8, 200, 10)),
            ("no metadata", Event(None, 200, 10)),
            ("no time, only a number of occurrences", Event(7, None, 10, num_occurrences=3)),
            ("negative duration", Event(7, 200, -10)),
        ):
            with self.subTest(problem=problem):
                line = Line("XLA Ops", [Event(7, 0, 50), bad, Event(7, 80, 20)])
                step = answer(encode(Space([plane(line)])), "summary")
                self.assertEqual(step["step_window_ps"], [0, 100])
                self.assertEqual(step["totals"]["n_events_unresolved"], 1)
                self.assertEqual(step["totals"]["n_events_total"], 2)
                self.assertEqual(step["totals"]["compute_duration_ps"], 70)
                self.assertIn(f"left out 1 event of the XLA Ops line ({problem})", step["notes"])


class Windows(unittest.TestCase):
    def test_reading_several_windows_at_once_selects_the_same_events(self) -> None:
        rng = random.Random(2)
        for _ in range(300):
            offsets = rng.choices(range(30), k=rng.randrange(1, 20))
            if rng.random() < 0.7:
                offsets.sort()
            starts = sorted(rng.choices(range(-3, 33), k=rng.randrange(1, 6)))
            windows = [(start, start + rng.randrange(20)) for start in starts]
            n = len(offsets)
            events = Events(
                list(range(n)), offsets, [1] * n, [0] * n, [0] * n, list(range(n)), frozenset()
            )
            expected = [list(events.between(*window).metadata_ids) for window in windows]
            found = list(events.among(windows))
            self.assertEqual([list(within.metadata_ids) for within in found], expected)
            for within in found:
                span = (min(within.offsets), max(within.offsets)) if len(within) else (0, -1)
                self.assertEqual((within.first, within.last), span)
