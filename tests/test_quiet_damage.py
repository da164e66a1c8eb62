"""What would go wrong without a word: fields that a parser drops, facts that can't be read.

Each case is either answered as its bytes say, or refused by the offset of what is wrong.
"""

from __future__ import annotations

import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tests import harness
from tests.fuzz import DEVICE, check_outcome, padded
from tests.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    StatMetadata,
    bytes_field,
    encode,
    int_field,
    text_field,
    varint,
)

VARINT, LENGTH = 0, 2
NAME = "%fusion.1 = f32[2]{0} fusion()"


def trace_with(event: bytes = b"", events: bytes = b"", op: bytes = b"", stat: bytes = b"") -> bytes:
    """A trace of one op of 10 ps, with more fields in its parts."""
    category = int_field(1, 1) + text_field(5, "loop fusion") + stat
    metadata = EventMetadata(1, NAME, extra=bytes_field(5, category) + op)
    line = Line("XLA Ops", [Event(1, 0, 10, extra=event)], extra=events)
    names = [StatMetadata(1, "hlo_category")]
    return encode(Space([Plane(DEVICE, [line], [metadata], names)]))


def tag(number: int, wire: int, size: int) -> bytes:
    """A tag in so many bytes, more than it takes."""
    return padded(varint(number << 3 | wire), size)


class OverLongTags(unittest.TestCase):
    """protobuf's parser in Python takes a field with such a tag for an unknown one."""

    def totals(self, data: bytes, implementation: str) -> dict[str, int]:
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.dict(
                os.environ, {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
            ),
        ):
            path = Path(folder) / "x.xplane.pb"
            path.write_bytes(data)
            outcome = harness.command(path, "--mode", "by_source", "--include-data-move")
        check_outcome(outcome)
        self.assertEqual(outcome.object["status"], "ok", outcome.object)
        said: dict[str, int] = outcome.object["totals"]
        return {**said, "text": outcome.object["groups"][-1]["example_hlo_op"]}

    def test_no_parser_loses_a_field(self) -> None:
        event = encode(Event(1, 20, 5))
        renamed = b"%other.1 = f32[2]{0} fusion()"
        for size in (2, 5):
            cases = {
                "duration": (
                    trace_with(event=tag(3, VARINT, size) + varint(77)),
                    {"compute_duration_ps": 77},
                ),
                "event": (
                    trace_with(events=tag(4, LENGTH, size) + varint(len(event)) + event),
                    {"compute_duration_ps": 15, "n_events_total": 2},
                ),
                "name": (
                    trace_with(op=tag(2, LENGTH, size) + varint(len(renamed)) + renamed),
                    {"text": renamed.decode()},
                ),
                "category": (
                    trace_with(stat=tag(5, LENGTH, size) + varint(4) + b"copy"),
                    {"data_move_duration_ps": 10},
                ),
            }
            for what, (data, expected) in cases.items():
                for implementation in ("upb", "python"):
                    with self.subTest(what, size=size, implementation=implementation):
                        totals = self.totals(data, implementation)
                        self.assertEqual({key: totals[key] for key in expected}, expected)


if __name__ == "__main__":
    unittest.main()
