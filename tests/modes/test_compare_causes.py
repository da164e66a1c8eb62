"""Test how `compare` reports causes that are new, gone or changed, and lines of the user's code."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from typing import Any

from _breakdown.analysis.devices.record_format import RecordedCause, RecordedCauses
from _breakdown.analysis.records.changed_causes import changed_causes
from _breakdown.output.program_facts import facts
from tests.analysis.small_programs import lookup
from tests.builders import hlo_proto
from tests.builders.compared import compare, op as recorded_op
from tests.builders.drawn import host
from tests.builders.hlo_proto import array, metadata_plane
from tests.builders.pauses import MS, thread
from tests.builders.peers import with_slow_device
from tests.builders.records import record
from tests.builders.xspace import Op, Space, encode, op, tpu_plane
from tests.harness import InFolder, Json, answer, run
from tests.shown import headline_of

PROGRAM_ID = 7
STEP = 1_000_000
ALL = ("widened_dtype", "resharding", "slow_device", "pause_between_steps")


def cause(
    name: str,
    line: str | None,
    gain: int | None,
    scope: str | None = None,
    gain_bytes: int | None = None,
) -> RecordedCause:
    unknown = 90 if gain is None else None
    return RecordedCause(name, gain, unknown, gain_bytes, line, scope, None)


def changed(
    before: list[RecordedCause],
    after: list[RecordedCause],
    *,
    same_program: bool = False,
    examined: tuple[str, ...] = ALL,
) -> list[tuple[str, str, int | None]]:
    """Return change, line and difference in gain of each cause, for steps of 1000 ps."""
    sides = RecordedCauses(before, [*ALL]), RecordedCauses(after, [*examined])
    rows = changed_causes(*sides, 1000, same_program=same_program)
    return [(row.change, row.shown.source_user or "", row.delta) for row in rows]


class Changed(unittest.TestCase):
    def test_cause_whose_line_moved_in_its_scope_is_the_same(self) -> None:
        for moved in (
            cause("resharding", "a.py:9", 40, "mlp"),
            cause("resharding", "b.py:5", 40, "mlp"),
            cause("resharding", "a.py:7", 60),
        ):
            self.assertEqual(changed([cause("resharding", "a.py:5", 40, "mlp")], [moved])[1:], [])
        # In another scope, a far larger gain is another cause.
        other = cause("resharding", "a.py:7", 90)
        self.assertEqual(
            changed([cause("resharding", "a.py:5", 40, "mlp")], [other]),
            [("new", "a.py:7", 90), ("gone", "a.py:5", -40)],
        )

    def test_scope_tells_the_causes_of_a_file_apart_if_its_lines_moved(self) -> None:
        places = (("a.py:10", 40, "mlp"), ("a.py:20", 50, "x"))
        before = [cause("resharding", *place) for place in places]
        after = [cause("resharding", "a.py:19", 44, "mlp")]
        self.assertEqual(changed(before, after), [("gone", "a.py:20", -50)])

    def test_files_in_another_folder_are_the_same(self) -> None:
        before, after = (cause("resharding", f"/{side}/a.py:5", 40) for side in ("old", "new"))
        self.assertEqual(changed([before], [after]), [])

    def test_nearest_line_of_a_file_is_the_same(self) -> None:
        before = [cause("resharding", f"a.py:{line}", 40) for line in (10, 30)]
        after = [cause("resharding", "a.py:29", 40)]
        self.assertEqual(changed(before, after), [("gone", "a.py:10", -40)])

    def test_gain_that_differs_a_little_has_not_changed(self) -> None:
        # The limits are 0.5 % of the step of 1000 ps, and 10 % of the gain.
        for gain, other, n in ((20, 25, 0), (20, 26, 1), (200, 220, 0), (200, 225, 1)):
            sides = [cause("resharding", "a.py:5", gain)], [cause("resharding", "a.py:5", other)]
            self.assertEqual(len(changed(*sides)), n, (gain, other))
            self.assertEqual(len(changed(*sides[::-1])), n, (other, gain))
        # The floor of the slower step hides a cause of 5 ps.
        self.assertEqual(changed([cause("resharding", "a.py:5", 5)], []), [])

    def test_cause_of_unknown_gain_or_of_memory_is_new_or_gone(self) -> None:
        unknown = cause("resharding", "a.py:5", None)
        self.assertEqual(changed([unknown], []), [("gone", "a.py:5", None)])
        self.assertEqual(changed([unknown], [cause("resharding", "a.py:5", 90)]), [])
        of_memory = cause("resharding", "a.py:5", 0, gain_bytes=1 << 30)
        self.assertEqual(changed([], [of_memory]), [("new", "a.py:5", 0)])
        self.assertEqual(changed([of_memory], [of_memory]), [])

    def test_equal_programs_differ_only_in_causes_outside_the_program(self) -> None:
        after = [cause("resharding", "a.py:5", 90), cause("slow_device", "a.py:7", 80)]
        self.assertEqual(changed([], after, same_program=True), [("new", "a.py:7", 80)])

    def test_cause_that_one_capture_cannot_show_is_left_out(self) -> None:
        before = [cause("resharding", "a.py:5", 90), cause("slow_device", "a.py:7", 80)]
        found = changed(before, [], examined=("resharding",))
        self.assertEqual(found, [("gone", "a.py:5", -90)])
        # A later version may know more causes.
        self.assertEqual(changed([cause("other", "a.py:5", 90)], [], examined=("other",)), [])


def capture(ops: list[tuple[str, str, int, int]], program: list[hlo_proto.Op]) -> bytes:
    """Encode five steps; each op has a name, a category, a start and a duration."""
    steps = [(str(i), STEP * i, STEP) for i in range(5)]
    executions: list[Op] = [
        op(name, category, step + start, duration, program_id=PROGRAM_ID)
        for _, step, _ in steps
        for name, category, start, duration in ops
    ]
    module = hlo_proto.hlo_proto({"main": program})
    metadata = metadata_plane({PROGRAM_ID: ("jit_f(7)", module)})
    return encode(Space([tpu_plane(executions, steps), metadata]))


def one_hot() -> bytes:
    ops = [
        ("eq.1", "non-fusion elementwise", 0, 100_000),
        ("dot.1", "convolution fusion", 100_000, 200_000),
    ]
    return capture(ops, lookup())


def gather() -> bytes:
    shape = array("f32", 64, 8)
    found = hlo_proto.op("g.1", "gather", "table", "tokens", shape=shape, line="embed.py:3")
    return capture([("g.1", "gather", 0, 20_000)], [*lookup()[:2], found])


def paused(pause: int) -> bytes:
    """Encode steps with pauses in which the host is in `feed.py`."""
    starts = [i * (80 + pause) for i in range(5)]
    steps = [(str(i), start * MS, 80 * MS) for i, start in enumerate(starts)]
    device = tpu_plane([op("f.1", "loop fusion", start, dur) for _, start, dur in steps], steps)
    calls = [("$feed.py:17 get_batch", start + 81, start + 79 + pause) for start in starts]
    return encode(Space([device, host(thread(*(calls if pause else ())))]))


class FirstSentences(InFolder):
    def headlines(self, before: bytes, after: bytes) -> list[str]:
        """Return the headline in both directions, after checking that records give the same
        answer."""
        found = []
        traces = [self.write(f"{i}.xplane.pb", data) for i, data in enumerate((before, after))]
        records = [
            self.write(f"{path.name}.json", json.dumps(answer(path, "record")).encode())
            for path in traces
        ]
        for one, other in ((0, 1), (1, 0)):
            answers = [
                answer(paths[other], "compare", "--baseline", str(paths[one]))
                for paths in (traces, records)
            ]
            for result in answers:
                del result["profile_dir"], result["baseline_dir"]
            self.assertEqual(*answers)
            found.append(answers[0]["headline"])
        return found

    def test_headline_begins_with_the_cause_in_the_program(self) -> None:
        slower, faster = self.headlines(gather(), one_hot())
        self.assertRegex(
            slower,
            r"\AA matmul with a one-hot matrix at embed.py:3 is new: about \+[\d.]+ ns\."
            r" The step takes 1.00 us before and after\.",
        )
        self.assertRegex(faster, r"\AA matmul with a one-hot matrix at embed.py:3 is gone: about -")

    def test_headline_names_the_pause(self) -> None:
        longer, shorter = self.headlines(paused(0), paused(20))
        self.assertEqual(
            longer,
            "The time between steps is longer: a step starts every 100.0 ms, which is 20.0 ms"
            " (25.0 %) longer. The step takes 80.0 ms before and after. Waiting for the host at"
            " feed.py:17 is new: about +20.0 ms.",
        )
        self.assertIn("Waiting for the host at feed.py:17 is gone", shorter)


class MainCause(unittest.TestCase):
    """The step takes 1000 ps before the change."""

    def compared(self, *causes: Json, more: int = 100) -> Json:
        sides = (
            record([recorded_op(1, "m.py:1:1", tf_op="f/x:", duration=duration)], 5, idle=0)
            for duration in (1000, 1000 + more)
        )
        found = compare(*sides)
        found["profile_dir"] = "after.xplane.pb"
        found["causes"] = [
            {
                "device": None, "unknown_ps": None, "gain_bytes": None, "change": "new",
                "cause": "resharding", "source_user": "a.py:5", "before_source_user": None,
                "before_ps": 0, "after_ps": row["delta_ps"], **row,
            }
            for row in causes
        ]  # fmt: skip
        return found

    def test_largest_difference_comes_first(self) -> None:
        of_step = "The step is 100 ps (10.0 %) slower, more than the noise between steps."
        gone = {"delta_ps": -90, "change": "gone", "source_user": "b.py:6"}
        unknown = {"delta_ps": None, "unknown_ps": 500, "source_user": "c.py:7"}
        for causes, begins in (
            (({"delta_ps": 100},), f"{of_step} Resharding arrays at a.py:5 is new: about +100 ps."),
            (({"delta_ps": 101},), f"Resharding arrays at a.py:5 is new: about +101 ps. {of_step}"),
            (({"delta_ps": 40}, gone), f"{of_step} Resharding arrays at b.py:6 is gone: about -90"),
            # Ops of 500 ps do not tell how much the step changes.
            (
                (gone, unknown),
                f"{of_step} Resharding arrays at c.py:7 is new, in ops that take 500",
            ),
        ):
            headline = headline_of(self.compared(*causes))
            self.assertTrue(headline.startswith(begins), headline)

    def test_other_chips_and_sizes_come_before_all_differences(self) -> None:
        found = self.compared({"delta_ps": 300})
        found["before"]["device_type"], found["after"]["device_type"] = "TPU v5 Lite", "TPU v7x"
        sizes = [{"shape": f"f32[{n},8]", "sharding": None, "donated": False} for n in (4, 8)]
        of_parameter = {"what": "parameter", "name": "x", "before": sizes[0], "after": sizes[1]}
        found["program_changes"] = {"same_program": False, "rows": [of_parameter]}
        begins = (
            "The chips differ: TPU v5 Lite before, TPU v7x after. 1 parameter has other sizes, such"
            " as x: f32[4,8] before, f32[8,8] after. Resharding arrays at a.py:5 is new"
        )
        self.assertTrue(headline_of(found).startswith(begins), headline_of(found))
        sizes[1] = {**sizes[0], "donated": True}
        found["program_changes"]["rows"] = [{**of_parameter, "after": sizes[1]}]
        self.assertNotIn("other sizes", headline_of(found))


class SameProgram(unittest.TestCase):
    def headline(self, *durations: int) -> str:
        """Return the headline if each of three lines takes 300 ps before the change."""
        sides = (
            record([recorded_op(n, f"m.py:{n}:1", tf_op=f"f/{n}:", duration=time)
                    for n, time in enumerate(side)], 5)
            for side in ((300, 300, 300), durations)
        )  # fmt: skip
        found = compare(*sides)
        found["program_changes"]["same_program"] = True
        return headline_of(found)

    def test_headline_tells_a_slow_clock_from_a_slow_line(self) -> None:
        for durations, is_uniform in (
            ((310, 310, 310), True),
            ((310, 315, 310), True),
            ((310, 330, 310), False),
            ((290, 290, 290), False),
        ):
            found = self.headline(*durations)
            self.assertEqual("all lines take longer by about the same factor" in found, is_uniform)
            self.assertEqual("The largest change is at" in found, not is_uniform, found)


class Unknown(InFolder):
    def compared(self, before: Path, after: Path, *options: str) -> Json:
        return answer(after, "compare", "--baseline", str(before), *options)

    def test_device_after_the_first_has_no_causes_in_a_record(self) -> None:
        made = answer(with_slow_device(), "record")
        path = self.write("r.json", json.dumps(made).encode())
        device = "/device:TPU:1"
        options = "--device", device, "--baseline-device", device
        self.assertIsNone(self.compared(path, path, *options)["causes"])
        # A record of this device alone has them.
        alone = answer(with_slow_device(), "record", "--device", device)
        path = self.write("alone.json", json.dumps(alone).encode())
        self.assertEqual(self.compared(path, path, *options)["causes"], [])

    def test_capture_without_a_program_cannot_show_causes_in_the_program(self) -> None:
        steps = [(str(i), STEP * i, STEP) for i in range(5)]
        ops = [op("f.1", "loop fusion", start, 9) for _, start, _ in steps]
        without = self.write("without.xplane.pb", encode(Space([tpu_plane(ops, steps)])))
        found = self.compared(without, self.write("with.xplane.pb", one_hot()))
        self.assertEqual(found["causes"], [])
        self.assertRegex(" ".join(found["notes"]), "only the capture after .* one_hot_matmul")

    def test_record_with_an_invalid_cause_is_rejected(self) -> None:
        made = answer(one_hot(), "record")
        made["devices"][0]["causes"][0]["gain_ps"] = "much"
        path = self.write("r.json", json.dumps(made).encode())
        found = run(path, "compare", "--baseline", str(path)).object
        self.assertEqual(found["reason"], "unreadable_record")
        self.assertIn("devices[0].causes[0].gain_ps", found["detail"])


LIBRARY = "/lib/python3.11/site-packages/jax/nn.py"


class UserLines(unittest.TestCase):
    def rows(self, before: Json, after: Json) -> list[tuple[Any, ...]]:
        names = "before_source_user source_user before_ps after_ps n_lines".split()
        return [tuple(row[name] for name in names) for row in compare(before, after)["rows"]]

    def test_lines_of_a_library_are_joined_by_the_line_that_calls_them(self) -> None:
        def program(*durations: int) -> Json:
            ops = [
                recorded_op(
                    n, f"m.py:{n // 2}:1", f"{LIBRARY}:{n}:1", tf_op=f"f/{n}:", duration=time
                )
                for n, time in enumerate(durations)
            ]
            return record(ops)

        self.assertEqual(
            self.rows(program(10, 20, 30, 5, 30, 5), program(13, 24, 30, 5, 30, 5)),
            [
                ("m.py:0", "m.py:0", 30, 37, 1),
                ("m.py:1", "m.py:1", 35, 35, 1),
                ("m.py:2", "m.py:2", 35, 35, 1),
            ],
        )
        # A line with most of the time is not joined, because all rows would be one.
        self.assertEqual(len(self.rows(program(80, 20), program(80, 30))), 2)

    def test_rewritten_code_of_a_line_is_compared_if_the_lines_of_its_file_have_not_moved(
        self,
    ) -> None:
        def program(call: str, kept: int, other: tuple[int, int] = (20, 1)) -> Json:
            called = "m.py:7:1", f"/lib/python3.11/{call}.py:7:1"
            line, duration = other
            ops = [
                recorded_op(1, f"m.py:{kept}:1", tf_op="f/x:", duration=40),
                recorded_op(2, f"n.py:{kept}:1", tf_op="f/z:", duration=40),
                recorded_op(3, *called, tf_op=f"f/{call}:", duration=30),
                recorded_op(4, f"m.py:{line}:1", tf_op="f/y:", duration=duration),
            ]
            return record(ops)

        same = ("m.py:7", "m.py:7", 30, 30, 1)
        self.assertIn(same, self.rows(program("a", 5), program("b", 5)))
        # A tenth of the file's time may have moved: calls on one line can be alike.
        for duration, is_same in ((4, True), (5, False)):
            sides = program("a", 5, (20, duration)), program("b", 5, (21, duration))
            self.assertEqual(same in self.rows(*sides), is_same)
        moved = self.rows(program("a", 5), program("b", 6))
        self.assertIn(("m.py:7", None, 30, 0, 1), moved)
        self.assertIn((None, "m.py:7", 0, 30, 1), moved)


class Facts(unittest.TestCase):
    def test_facts_show_what_differs_with_units(self) -> None:
        memory = {"what": "memory", "before": 1 << 30, "after": (1 << 30) - 2048}
        (row,) = facts([memory])
        self.assertEqual(row["seen_after"], "1.00 GiB (-2.00 KiB)")
        kernel = {"n": 1, "vmem_used_bytes": 1 << 20, "shapes": ["bf16[4,8,2048]", "s32[]"]}
        wide = {"n": 1, "vmem_used_bytes": 3 << 20, "shapes": ["f32[4,8,2048]", "s32[]"]}
        rows: list[Json] = [
            {"what": "collective", "before": None, "after": {"n": 2, "bytes": 2048}},
            {"what": "kernel", "before": kernel, "after": wide},
            {"what": "opcode", "before": 1, "after": 2},
            {"what": "donation", "before": 1 << 30, "after": (1 << 30) + 1},
            {"what": "memory", "before": 1 << 30, "after": 3 << 29},
        ]
        self.assertEqual(
            [(row["what"], row["seen_before"], row["seen_after"]) for row in facts(rows)],
            [
                ("memory", "1.00 GiB", "1.50 GiB (+50.0 %)"),
                ("collective", "", "n=2, 2.00 KiB"),
                ("kernel", "vmem=1.00 MiB, bf16…", "vmem=3.00 MiB, f32…"),
                ("donation", "1073741824 B", "1073741825 B"),
            ],
        )
