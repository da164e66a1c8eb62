"""Build small files, and run the program on damaged ones."""

from __future__ import annotations

from pathlib import Path

from tests import fuzz, harness
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    StatMetadata,
    bytes_field,
    encode,
    int_field,
    op,
    text_field,
    trace,
)
from tests.fuzz import check_outcome, damaged_at

OPS = [
    op("fusion.1", "loop fusion", 0, 90, flops=800, bytes_accessed=64, stack="model.py:7:3"),
    op("copy.2", "data formatting", 100, 50, opcode="copy"),
]
SMALL = trace(OPS, [("0", 0, 150), ("1", 150, 10)])


def run(profile: str | Path | bytes, mode: str = "summary", *options: str) -> harness.Outcome:
    outcome = harness.run(profile, mode, *options)
    check_outcome(outcome)
    return outcome


class RobustnessTest(harness.InFolder):
    def assert_unreadable(self, outcome: harness.Outcome, at: int | None = None) -> None:
        self.assertEqual(outcome.object.get("reason"), "unreadable_xplane_pb", outcome.object)
        if at is not None:
            self.assertEqual(damaged_at(outcome), at, outcome.object["detail"])


def with_extra(place: str, extra: bytes) -> bytes:
    """Return a trace with bytes appended to one of the messages that every mode reads."""

    def at(where: str) -> bytes:
        return extra if where == place else b""

    category = int_field(1, 1) + text_field(5, "loop fusion") + at("op stat")
    value = int_field(1, 1) + text_field(2, "%fusion.1 = f32[2]{0} fusion()")
    value += bytes_field(5, category) + at("event metadata")
    op_entry = int_field(1, 1) + bytes_field(2, value) + at("event entry")
    name = StatMetadata(1, "hlo_category", extra=at("stat metadata"))
    stat_entry = int_field(1, 1) + bytes_field(2, encode(name)) + at("stat entry")
    plane = Plane(
        fuzz.DEVICE,
        [
            Line("Steps", [Event(2, 0, 100)], extra=at("steps line")),
            Line("XLA Ops", [Event(1, 0, 10, extra=at("event"))], extra=at("ops line")),
        ],
        [EventMetadata(2, "0")],
        extra=bytes_field(4, op_entry) + bytes_field(5, stat_entry) + at("plane"),
    )
    return encode(Space([plane], extra=at("space")))
