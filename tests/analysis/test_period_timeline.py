"""Test which steps, pauses and host events the page draws for a period."""

from __future__ import annotations

import unittest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.builders.drawn import Calls, host
from tests.builders.pauses import EVERY_THIRD, FEED, MS, TOKENIZE, device, thread
from tests.builders.xspace import Space, encode
from tests.harness import Json, answer
from tests.shown import data_of


def period(
    *threads: Calls,
    step: int,
    steps: list[tuple[str, int, int]] | None = None,
    options: tuple[str, ...] = (),
) -> Any:
    """Return the data of the page about the period; times are in milliseconds."""
    plane = device(steps) if steps else device()
    with TemporaryDirectory() as folder:
        out = Path(folder, "step.html")
        data = encode(Space([plane, host(*threads)]))
        answer(data, "page", "--out", str(out), "--step", str(step), *options)
        found = data_of(out.read_bytes())["period"]
    if found:
        for row in (found, *found["steps"], *found["pauses"], *found["frames"]):
            for name in row.keys() & {"start_ps", "dur_ps"}:
                row[name] /= MS
    return found


def spans(rows: list[Json]) -> list[tuple[float, float]]:
    return [(row["start_ps"], row["dur_ps"]) for row in rows]


class Period(unittest.TestCase):
    def test_period_is_the_step_and_the_pause_after_it(self) -> None:
        found = period(thread((FEED, 105, 199)), step=1)
        self.assertEqual(found["dur_ps"], 100)
        self.assertEqual(
            found["steps"], [{"start_ps": 0, "dur_ps": 80, "name": "1", "index": 1, "picked": True}]
        )
        self.assertEqual(spans(found["pauses"]), [(80, 20)])
        self.assertEqual((found["thread"], spans(found["frames"])), ("main", [(5, 94)]))

    def test_period_of_the_last_step_is_the_pause_before_it_and_the_step(self) -> None:
        found = period(thread((FEED, 105, 199)), step=2)
        self.assertEqual((found["dur_ps"], spans(found["steps"])), (100, [(20, 80)]))
        self.assertEqual((spans(found["pauses"]), spans(found["frames"])), ([(0, 20)], [(0, 19)]))

    def test_nearest_pause_is_drawn_if_the_step_has_none(self) -> None:
        """Draw the steps between the page's step and the pause, but no others."""
        found = period(thread(), step=4, steps=EVERY_THIRD)
        self.assertEqual(spans(found["steps"]), [(0, 80), (80, 80)])
        self.assertEqual([row["picked"] for row in found["steps"]], [True, False])
        self.assertEqual(spans(found["pauses"]), [(160, 20)])
        self.assertEqual((found["thread"], found["frames"]), (None, []))
        # The pause before step 3 is nearer than the next one.
        found = period(thread(), step=3, steps=EVERY_THIRD)
        self.assertEqual((spans(found["pauses"]), spans(found["steps"])), ([(0, 20)], [(20, 80)]))

    def test_pause_more_than_ten_steps_away_is_not_drawn(self) -> None:
        steps = [(str(i), (80 * i + 20 * (i > 11)) * MS, 80 * MS) for i in range(14)]
        self.assertEqual(len(period(step=2, steps=steps)["steps"]), 10)
        self.assertIsNone(period(step=1, steps=steps))

    def test_short_pauses_are_not_drawn(self) -> None:
        steps = [(str(i), 201 * i * MS, 200 * MS) for i in range(2)]
        self.assertIsNone(period(step=0, steps=steps))
        steps = [(str(i), 200 * i * MS, 199 * MS) for i in range(2)]
        self.assertEqual(spans(period(step=0, steps=steps)["pauses"]), [(199, 1)])
        self.assertIsNone(period(step=0, steps=steps[:1]))


class OwnCode(unittest.TestCase):
    """Test which frames count as own code."""

    LOOP, WAIT = "$loop.py:8 run", "$api.py:2551 block_until_ready"
    # Both calls contain the whole period; `run` is the inner one.
    AROUND = ("$train.py:3 main", -3, 400), (LOOP, -3, 300)

    def frames(self, *calls: tuple[str, int, int], options: tuple[str, ...] = ()) -> Any:
        found = period(thread(*calls), step=0, options=options)["frames"]
        return [(row["name"], row["depth"], row["is_own"]) for row in found]

    def test_python_functions_outside_of_libraries_are_own_code(self) -> None:
        calls = (FEED, 80, 90), (self.WAIT, 90, 95), ("TransferToDevice", 95, 98)
        self.assertEqual(
            self.frames(*calls),
            [(FEED, 0, True), (self.WAIT, 0, False), ("TransferToDevice", 0, False)],
        )
        (frame,) = self.frames((self.WAIT, 80, 95), options=("--own", "api.py"))
        self.assertEqual(frame, (self.WAIT, 0, True))


class Frames(unittest.TestCase):
    def names(self, *threads: Calls) -> list[tuple[str, int]]:
        return [(row["name"], row["depth"]) for row in period(*threads, step=0)["frames"]]

    def test_frames_have_the_number_of_frames_around_them(self) -> None:
        inner = ("a", 80, 85), ("b", 85, 98)
        self.assertEqual(
            self.names(thread((FEED, 5, 99), (TOKENIZE, 6, 98), *inner)),
            [(FEED, 0), (TOKENIZE, 1), ("a", 2), ("b", 2)],
        )

    def test_frames_around_the_period_and_frames_too_short_to_draw_are_left_out(self) -> None:
        # 1/200 of the pause is 0.1 ms.
        short = [(f"{us} us", 90, 90 + us / 1000) for us in (100, 99)]
        calls = [(name, int(start * MS), int(end * MS)) for name, start, end in short]
        main = ("main", [("PjitFunction(f)", -2, -1), ("loop", -3, 300 * MS), *calls])
        self.assertEqual(self.names(main), [("100 us", 0)])

    def test_frames_outside_the_pause_are_left_out(self) -> None:
        self.assertEqual(self.names(thread(("early", 0, 80), (FEED, 79, 90))), [(FEED, 0)])

    def test_frames_are_those_of_the_thread_for_which_the_launching_one_waits(self) -> None:
        wait = ("$queue.py:154 get", 79, 99)
        loader = ("loader", [(FEED, 60 * MS, 99 * MS)])
        found = period(thread(wait, ("PjitFunction(f)", 99, 100)), loader, step=0)
        self.assertEqual(found["thread"], "loader")
        self.assertEqual([row["name"] for row in found["frames"]], [FEED])
