"""Test a window's busy time for separate and for overlapping ops."""

from __future__ import annotations

import random
import unittest

from _breakdown.pipeline.window_sums import busy_without_overlap
from tests.builders.xspace import Op, Space, encode, op, tpu_plane
from tests.harness import answer

Span = tuple[int, int]


def covered(spans: list[Span], start: int, end: int) -> int:
    """Return the busy time, counted picosecond by picosecond."""
    return sum(any(first <= at < last for first, last in spans) for at in range(start, end))


class Busy(unittest.TestCase):
    def test_busy_time_of_separate_ops_is_their_time_within_the_window(self) -> None:
        rng = random.Random(1)
        for _ in range(200):
            marks = sorted(rng.choices(range(60), k=2 * rng.randint(0, 8)))
            spans = list(zip(marks[::2], marks[1::2], strict=True))
            pieces: list[tuple[list[int], list[int], list[int]]] = [
                ([first for first, _ in part], [last - first for first, last in part], [])
                for cut in [rng.randint(0, len(spans))]
                for part in (spans[:cut], spans[cut:])
            ]
            end = max(marks[-2:-1] or [0], default=0) + rng.randint(0, 9)
            expected = covered(spans, 0, end)
            self.assertEqual(busy_without_overlap(pieces, 0, end), expected, (spans, end))

    def test_busy_time_in_a_record_counts_overlapping_ops_once(self) -> None:
        rng = random.Random(2)
        for _ in range(40):
            spans = [(rng.randint(0, 90), rng.randint(0, 20)) for _ in range(rng.randint(1, 8))]
            if rng.random() < 0.5:
                spans.sort()
            ops: list[Op] = [
                op(f"fusion.{i}", "loop fusion", start, duration)
                for i, (start, duration) in enumerate(spans)
            ]
            data = encode(Space([tpu_plane(ops, [("0", 0, 100)])]))
            [step] = answer(data, "record")["steps"]
            ends = [(start, start + duration) for start, duration in spans]
            self.assertEqual(step["busy_ps"], covered(ends, 0, 100), spans)
            self.assertEqual(sum(step["durs_ps"]), sum(duration for _, duration in spans))
