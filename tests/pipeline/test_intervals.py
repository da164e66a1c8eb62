"""Compare interval arithmetic and gaps between ops with set arithmetic."""

from __future__ import annotations

import random
import unittest

from _breakdown.pipeline.intervals import Cover, Nested, complement, length_of, union
from _breakdown.pipeline.timeline import gaps_between

Stretch = tuple[int, int]


def random_spans(rng: random.Random) -> list[Stretch]:
    """Return 12 short spans, some of them empty."""
    starts = [rng.randrange(30) for _ in range(12)]
    return [(start, start + rng.randrange(4)) for start in starts]


def instants(spans: list[Stretch]) -> set[int]:
    """Return the set of integer times that the spans cover."""
    return {time for start, end in spans for time in range(start, end)}


class Intervals(unittest.TestCase):
    def test_union_joins_spans_that_overlap_or_touch(self) -> None:
        self.assertEqual(union([(5, 7), (0, 2), (1, 3), (3, 4)]), [(0, 4), (5, 7)])
        self.assertEqual(union([]), [])

    def test_union_of_spans_beyond_64_bits_is_exact(self) -> None:
        self.assertEqual(union([(1, 1 << 70), (0, 2)]), [(0, 1 << 70)])

    def test_complement_is_the_uncovered_part_of_the_window(self) -> None:
        self.assertEqual(complement([(0, 2), (4, 5)], (1, 8)), [(2, 4), (5, 8)])
        self.assertEqual(complement([(9, 12)], (0, 4)), [(0, 4)])
        self.assertEqual(complement([(0, 9)], (2, 4)), [])

    def test_interval_functions_agree_with_set_arithmetic(self) -> None:
        for seed in range(200):
            rng = random.Random(seed)
            spans = random_spans(rng)
            stretches = union(spans)
            cover = Cover.of(stretches)
            covered = instants(spans)
            first, last = sorted((rng.randrange(35), rng.randrange(35)))
            window = set(range(first, last))
            with self.subTest(seed=seed):
                self.assertEqual(instants(stretches), covered)
                self.assertEqual(length_of(stretches), len(covered))
                self.assertEqual(cover.total, len(covered))
                self.assertEqual(cover.within(first, last), len(covered & window))
                self.assertEqual(cover.within_all([first], [last]), cover.within(first, last))
                columns = [list(column) for column in zip(*spans, strict=True)]
                self.assertEqual(list(Cover.spanning(*columns)), stretches)
                self.assertEqual(list(cover), stretches)
                self.assertEqual(instants(complement(stretches, (first, last))), window - covered)

    def test_spans_around_a_time_are_those_that_contain_it(self) -> None:
        for seed in range(200):
            rng = random.Random(seed)
            spans = [(start, start + rng.randrange(15)) for start, _ in random_spans(rng)]
            spans.sort(key=lambda span: (span[0], -span[1]))
            nested = Nested([start for start, _ in spans], [end for _, end in spans])
            time = rng.randrange(45)
            containing = [i for i, (start, end) in enumerate(spans) if start <= time < end]
            with self.subTest(seed=seed):
                self.assertEqual(list(nested.around(time)), containing[::-1])


class Gaps(unittest.TestCase):
    def test_gaps_contain_exactly_the_times_without_an_op(self) -> None:
        for seed in range(300):
            rng = random.Random(seed)
            spans = sorted(random_spans(rng), key=lambda span: span[0])
            cut = rng.randrange(len(spans) + 1)
            pieces: list[tuple[list[int], list[int], list[int]]] = [
                ([start for start, _ in piece], [end - start for start, end in piece], [])
                for piece in (spans[:cut], spans[cut:])
            ]
            first, last = sorted((rng.randrange(40), rng.randrange(40)))
            with self.subTest(seed=seed):
                gaps = gaps_between(pieces, (first, last))
                assert gaps is not None
                found = list(gaps)
                self.assertEqual(instants(found), set(range(first, last)) - instants(spans))
                self.assertEqual(found, union(found), "gaps are apart and in order")

    def test_op_without_duration_does_not_split_a_gap(self) -> None:
        gaps = gaps_between([([2, 5, 8], [1, 0, 1], [0, 0, 0])], (0, 10))
        assert gaps is not None
        self.assertEqual(list(gaps), [(0, 2), (3, 8), (9, 10)])

    def test_unsorted_ops_are_rejected(self) -> None:
        self.assertIsNone(gaps_between([([5, 2], [1, 1], [0, 0])], (0, 10)))
        self.assertIsNone(gaps_between([([5], [1], [0]), ([2], [1], [0])], (0, 10)))
