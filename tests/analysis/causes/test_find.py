"""Test the order of causes, and the gain of a cause after those above it."""

from __future__ import annotations

import unittest
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

from _breakdown.analysis.arrays.engine import Change, Engine, Gain, Overlap
from _breakdown.analysis.causes.shared import step_program
from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause, CausePlace
from _breakdown.analysis.causes.shared.find import (
    RankedCause,
    gain_of,
    joined_by_line,
    order_of,
    with_gains_after,
)

# A gain that may be none.
UNSURE = Gain(90, 0, 90)


class Estimates(Engine):
    """Stands in for the engine: each change saves 10, and the same change counts once."""

    def __init__(self) -> None:
        """Read no step."""

    def without(self, changes: Sequence[Change]) -> Gain:
        saved = 10 * len({id(change) for change in changes})
        return Gain(saved, saved // 2, saved)


def cause(*changes: Change, measured: int | None = None, n_bytes: int | None = None) -> Cause:
    return Cause(
        "says",
        "helps",
        LIKELY,
        changes=changes,
        measured=None if measured is None else Gain(measured, measured, measured),
        gain_bytes=n_bytes,
    )


class Places(unittest.TestCase):
    def test_line_with_the_most_time_is_named_even_if_its_scopes_differ(self) -> None:
        members: list[Any] = [
            SimpleNamespace(op=CausePlace(line, line, scope), total=total)
            for line, scope, total in (
                ("a.py:1", "x", 30),
                ("a.py:1", "y", 31),
                ("b.py:1", "z", 50),
            )
        ]
        with mock.patch.object(step_program, "place_of", lambda place: place):
            self.assertEqual(step_program.place_of_longest(members), members[1].op)


class Gains(unittest.TestCase):
    ONE, OTHER = Overlap([]), Overlap(())

    def found(self, *causes: Cause) -> list[RankedCause]:
        engine = Estimates()
        ordered = sorted(
            (RankedCause(each, gain_of(each, engine)) for each in causes), key=order_of
        )
        return list(with_gains_after(ordered, engine))

    def test_gain_after_the_causes_above_counts_shared_changes_once(self) -> None:
        first, second = self.found(cause(self.ONE), cause(self.ONE, self.OTHER))
        self.assertEqual((first.gain.estimate, first.after), (20, 20))
        self.assertEqual((second.gain.estimate, second.after), (10, 0))

    def test_measured_gains_do_not_share_ops(self) -> None:
        first, second = self.found(cause(self.ONE), cause(measured=30))
        self.assertEqual([first.after, second.after], [30, 10])

    def test_causes_are_ordered_by_how_sure_their_gain_is(self) -> None:
        unknown, memory, doubtful = cause(), cause(n_bytes=1), cause()._replace(measured=UNSURE)
        found = self.found(memory, unknown, doubtful, cause(self.ONE))
        self.assertEqual([each.cause for each in found[1:]], [doubtful, unknown, memory])
        self.assertEqual([each.after for each in found], [10, 90, None, None])


class OneFaultOneRow(unittest.TestCase):
    def cause(self, line: str | None, helps: str = "helps", **more: Any) -> Cause:
        """Return a cause at a line with a change of its own."""
        place = CausePlace(source_user=line)
        changes = [Overlap([])]
        return Cause("<line> is slow", helps, SEEN, changes=changes, place=place)._replace(**more)

    def test_causes_at_one_line_with_the_same_remedy_are_one_row(self) -> None:
        (row,) = joined_by_line([self.cause("a.py:1"), self.cause("a.py:1", confidence=LIKELY)])
        self.assertEqual(Estimates().without(row.changes).estimate, 20)
        self.assertEqual(row.says, "<line> (one of 2 such places) is slow")
        self.assertEqual(row.confidence, LIKELY)

    def test_other_lines_remedies_and_measured_gains_stay_apart(self) -> None:
        gain = Gain(1, 1, 1)
        for one, other in (
            (self.cause("a.py:1"), self.cause("a.py:2")),
            (self.cause("a.py:1"), self.cause("a.py:1", "helps, too")),
            (self.cause(None), self.cause(None)),
            (self.cause("a.py:1", measured=gain), self.cause("a.py:1", measured=gain)),
        ):
            self.assertEqual(list(joined_by_line([one, other])), [one, other])
