"""Test whether two sets of samples (steps or captures) differ by more than chance."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations, islice

from _breakdown.analysis.devices.cohort import ALPHA
from _breakdown.light import NamedTuple

MOST_ASSIGNMENTS = 5000


class Noise(NamedTuple):
    """The size of the permutation test: how many assignments of samples to the two sides are
    examined, and the smallest possible p-value."""

    n_before: int
    n_after: int
    n_assignments: int
    exact: bool
    min_p_value: Fraction

    @property
    def too_few_samples(self) -> bool:
        return self.min_p_value > ALPHA


def noise_of(n_before: int, n_after: int) -> Noise:
    n = math.comb(n_before + n_after, n_before)
    if n > MOST_ASSIGNMENTS:
        return Noise(n_before, n_after, MOST_ASSIGNMENTS, False, Fraction(1, MOST_ASSIGNMENTS))
    # If both sides have the same number of samples, an assignment and its mirror image are equally
    # extreme, so the smallest p-value of n assignments is 2 / n.
    return Noise(n_before, n_after, n, True, Fraction(1 + (n_before == n_after), n))


def assignments(noise: Noise) -> Iterator[Sequence[int]]:
    """Yield each assignment as the indices of the samples assigned to `before`, starting with the
    observed assignment."""
    samples = range(noise.n_before + noise.n_after)
    if noise.exact:
        every = combinations(samples, noise.n_before)
        # Mirror images are equally extreme, so examine only the assignments that contain sample 0:
        # the first half of all combinations.
        has_mirrors = noise.n_before == noise.n_after
        yield from islice(every, noise.n_assignments // 2 if has_mirrors else None)
    else:
        rng = random.Random(0)
        yield samples[: noise.n_before]
        for _ in range(1, noise.n_assignments):
            yield rng.sample(samples, noise.n_before)


class Deviations(NamedTuple):
    """The times of a row, each minus the minimum and multiplied by the number of samples.

    `expected` and `variance` are the constants of the row's test statistic.
    """

    of_samples: list[int]
    expected: int
    variance: int


def deviations_of(sample: Sequence[int], n_chosen: int) -> Deviations:
    n, least = len(sample), min(sample)
    beyond = [x - least for x in sample]
    total = sum(beyond)
    variance = n * sum(x * x for x in beyond) - total * total
    return Deviations([n * x for x in beyond], n_chosen * total, variance)


def p_values_of(
    families: Sequence[Sequence[Sequence[int]]], noise: Noise
) -> Iterator[list[Fraction]]:
    """Yield the p-values of each family's rows: the probability that any row of the family is at
    least as extreme by chance.

    The test statistic of a row x and an assignment c of n_b samples is |z(c)|: the absolute sum
    over c of z_j = (N x_j - S) / sqrt(N sum(x^2) - S^2). The statistic measures the difference of
    the means in units of the spread. For each assignment, the maximum over the rows of the family
    is computed. The p-value of a row is the share of assignments whose maximum is at least the
    row's statistic for the observed assignment. Squares are compared, because they are exact
    fractions.
    """
    rows = [[deviations_of(sample, noise.n_before) for sample in family] for family in families]
    maxima: list[list[Fraction]] = [[] for _ in families]
    for sums in chosen_sums([row.of_samples for family in rows for row in family], noise):
        for of_family, family in zip(maxima, rows, strict=True):
            of_family.append(greatest_square(family, sums))
    for of_family, family in zip(maxima, rows, strict=True):
        of_family.sort()
        own = (greatest_square([row], [sum(row.of_samples[: noise.n_before])]) for row in family)
        n = len(of_family)
        yield [Fraction(n - bisect_left(of_family, square), n) for square in own]


def chosen_sums(rows: Sequence[Sequence[int]], noise: Noise) -> Iterator[Iterator[int]]:
    """Yield, for each assignment, the sum of each row over the chosen samples.

    All rows are added at once: each sample is encoded as one large integer whose digits are the
    rows' times.
    """
    size = max(map(sum, rows)).bit_length() // 8 + 1
    samples = [
        int.from_bytes(b"".join(x.to_bytes(size, "little") for x in sample), "little")
        for sample in zip(*rows, strict=True)
    ]
    starts = range(0, size * len(rows), size)
    for chosen in assignments(noise):
        digits = sum(map(samples.__getitem__, chosen)).to_bytes(size * len(rows), "little")
        yield (int.from_bytes(digits[start : start + size], "little") for start in starts)


def greatest_square(rows: Iterable[Deviations], sums: Iterable[int]) -> Fraction:
    """Return the square of the largest test statistic of the given rows, and consume one sum for
    each row."""
    greatest, variance = 0, 1
    # `zip` must not be strict, because the sums of another family may follow.
    for row, of_row in zip(rows, sums, strict=False):
        difference = of_row - row.expected
        square = difference * difference
        if square * variance > greatest * row.variance:
            greatest, variance = square, row.variance
    return Fraction(greatest, variance)
