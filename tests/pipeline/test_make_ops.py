"""Test when a device has the ops of another device, instead of reading equal metadata again."""

from __future__ import annotations

import unittest

from _breakdown.pipeline.device import open_device
from _breakdown.pipeline.event_iterate import read_events
from _breakdown.pipeline.make_ops import make_ops
from _proto.trace import open_trace
from tests.builders import hlo_proto
from tests.builders.xspace import Op, Space, encode, op, tpu_plane
from tests.harness import answer, context_of

FUSION, COPY = op("f.1", "loop fusion", 0, 10), op("copy.1", "copy", 20, 10)


def trace_of(*devices: list[Op]) -> bytes:
    planes = [tpu_plane(ops, name=f"/device:TPU:{i}") for i, ops in enumerate(devices)]
    return encode(Space(planes))


def read(data: bytes) -> tuple[list[str], int]:
    """Return the texts of the second device's ops, and how many of these are ops of the first
    device."""
    context = context_of("")
    with open_trace("", data=data) as (trace,):
        first = open_device("", trace, "/device:TPU:0", [], context)
        ops = make_ops(first, [read_events(first, None)], context)
        second = open_device("", trace, "/device:TPU:1", [], context, programs=first.programs)
        found = make_ops(second, [read_events(second, None)], context, (first, ops))
        n_shared = sum(ops.get(metadata_id) is one for metadata_id, one in found.items())
        return [one.text for one in found.values()], n_shared


class Shared(unittest.TestCase):
    def test_equal_metadata_gives_the_same_ops(self) -> None:
        self.assertEqual(read(trace_of([FUSION, COPY], [FUSION, COPY])),
                         ([FUSION.text, COPY.text], 2))  # fmt: skip

    def test_different_metadata_gives_other_ops(self) -> None:
        other = op("f.2", "loop fusion", 0, 10)
        self.assertEqual(read(trace_of([FUSION, COPY], [other, COPY])),
                         ([other.text, COPY.text], 0))  # fmt: skip

    def test_op_that_only_one_device_runs_gives_other_ops(self) -> None:
        self.assertEqual(read(trace_of([FUSION], [FUSION, COPY])), ([FUSION.text, COPY.text], 0))


class Notes(unittest.TestCase):
    def test_each_device_notes_a_damaged_program(self) -> None:
        """Test that a program which all devices need is noted without the name of a device."""
        ops = [op("async-collective-done.1", "loop fusion", 0, 10, program_id=7)]
        planes = [tpu_plane(ops, [("0", 0, 20)], name=f"/device:TPU:{i}") for i in range(3)]
        broken = hlo_proto.metadata_plane({7: ("jit_f(7)", b"no program")})
        notes = answer(encode(Space([*planes, broken])), "record")["notes"]
        says = "the program's HLO can't be read: jit_f(7): "
        found = [note for note in notes if says in note]
        self.assertTrue(found)
        self.assertTrue(all(note.startswith(says) for note in found), found)
