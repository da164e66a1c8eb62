"""Build steps with pauses, and threads of the host that do something in them."""

from __future__ import annotations

from typing import Any

from tests.builders.drawn import Calls, host
from tests.builders.xspace import Plane, Space, encode, tpu_plane
from tests.harness import answer
from tests.modes.small_steps import leaf

MS = 10**9
# There are three steps of 80 ms, with pauses of 20 ms.
STEPS = [(str(i), 100 * i * MS, 80 * MS) for i in range(3)]
FEED = "$feed.py:17 get_batch"
LAUNCH = "PjitFunction(f)"
# The thread launches the steps at the end of the pauses.
LAUNCHES = [(LAUNCH, 99, 100), (LAUNCH, 199, 200)]
TOKENIZE = "$feed.py:44 tokenize"


def device(steps: list[tuple[str, int, int]] = STEPS) -> Plane:
    return tpu_plane([leaf(start, dur) for _, start, dur in steps], steps)


def thread(*calls: tuple[str, int, int], name: str = "main") -> Calls:
    """Return a thread that launches programs; `calls` have times in milliseconds."""
    launch = (LAUNCH, -2 * MS, -MS)
    return name, [launch, *((call, start * MS, end * MS) for call, start, end in calls)]


def answer_of(
    *threads: Calls, steps: list[tuple[str, int, int]] = STEPS, options: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the answer for the step with index 1."""
    data = encode(Space([device(steps), host(*threads)]))
    return answer(data, "bottleneck", "--step", "1", *options)


def row(*calls: tuple[str, int, int]) -> dict[str, Any]:
    """Return the only cause; the device pauses from 80 to 100 ms, and from 180 to 200 ms."""
    (found,) = answer_of(thread(*calls, *LAUNCHES))["causes"]
    assert isinstance(found, dict)
    return found


# Steps of 80 ms, with pauses of 20 ms after the steps 2 and 5.
EVERY_THIRD = [(str(i), (80 * i + 20 * (i // 3)) * MS, 80 * MS) for i in range(7)]
