"""Compare the four modes of the skill that the tool comes from with a reading of its rules.

The reading shares no code with the program. It follows the skill, except for the differences that
docs/GUIDE.md lists. The comments name them with the words in bold there.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import lzma
import re
import unittest
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests.harness import DEMO, FULL, PROFILES, answer
from tests.naive.op import LineEvent, Plane, decode_plane, plane_name
from tests.naive.wire import every, fields

Json = dict[str, Any]

TRACES = [*sorted(DEMO.rglob("*.xplane.pb*"))]
TRACES += [PROFILES.parent / f"corpus/{name}.xplane.pb.xz" for name in ("lev", "resnet")]
DEVICE = "/device:TPU:0"

COMPUTE = (
    "loop fusion, convolution fusion, custom fusion, output fusion, non-fusion elementwise, reduce,"
    " reduce-window, sort, rng-bit-generator, custom-call"
).split(", ")
DATA_MOVE = (
    "copy-start, copy-done, data formatting, pad, broadcast, slice, dynamic-slice,"
    " dynamic-update-slice, iota, convert"
).split(", ")
COMM = "async-start, async-done, all-reduce, all-gather, reduce-scatter, collective-permute, send"
# "Kinds": categories that the skill counts as `other`, and containers besides `while`.
KINDS = {
    **dict.fromkeys(COMPUTE, "compute"),
    **dict.fromkeys(DATA_MOVE, "data_move"),
    **dict.fromkeys([*COMM.split(", "), "recv"], "comm"),
    "all-to-all": "comm",
    "collective-permute-done": "comm",
    "collective-permute-start": "comm",
    "select-and-scatter": "compute",
    "conditional": "container",
    "call": "container",
    "while": "container",
}


# Names of asynchronous work on the chip.
LOCAL = r"(dynamic-)?(update-)?slice|copy|pad|(gather|scatter)_offload|sparse-core-data-format"


class Record(NamedTuple):
    """An execution of an op in the step."""

    duration: int
    category: str
    kind: str
    key: str
    text: str
    stats: Json


def text_at(stats: Json, name: str) -> str:
    value = stats.get(name) or ""
    return value.decode() if isinstance(value, bytes) else str(value)


def key_of(stats: Json, category: str) -> str:
    stack = [line.strip() for line in text_at(stats, "source_stack").splitlines() if line.strip()]
    if stack:
        # "Keys": the outermost frame comes first.
        source = text_at(stats, "source")
        if source and stack[0].startswith(f"{source}:") and not stack[-1].startswith(f"{source}:"):
            stack.reverse()
        return "stack:" + hashlib.sha1("\n".join(stack).encode()).hexdigest()[:16]
    path = text_at(stats, "tf_op")
    return f"tfop:{path}" if path else f"<no source>:{category}"


def record_of(event: LineEvent, plane: Plane) -> Record:
    op = plane.ops[event.metadata_id]
    category, name = text_at(op.stats, "hlo_category"), op.text.removeprefix("%").partition(" ")[0]
    # "Kinds": casts, and asynchronous work on the chip, are data movement.
    if category == "non-fusion elementwise" and re.search(r" convert\(", op.text):
        category = "convert"
    kind = KINDS.get(category, "other")
    if category.startswith("async-") and re.match(LOCAL, name):
        kind = "data_move"
    # "Step and times": the device's clock, if the trace has it.
    duration = int(event.stats.get("device_duration_ps", event.duration))
    return Record(duration, category, kind, key_of(op.stats, category), op.text, op.stats)


@functools.cache
def plane_in(path: Path) -> tuple[bytes, Plane]:
    """Return a trace and its device."""
    unpack = gzip.decompress if path.suffix == ".gz" else lzma.decompress
    data = unpack(path.read_bytes())
    planes = map(fields, every(fields(data), 1))
    return data, next(decode_plane(found) for found in planes if plane_name(found) == DEVICE)


def read(plane: Plane, step: int) -> list[Record]:
    """Return the executions in a step, and check that no step has more events."""
    events = [event for event in plane.events_of("XLA Ops") if event.on_trace]
    spans = [event.on_trace for event in plane.events_of("Steps") if event.on_trace]
    spans.sort(key=lambda span: span.start)
    inside = [[event for event in events if span.holds(event.start)] for span in spans]
    assert len(inside[step]) == max(map(len, inside)), "the picked step is not the busiest one"
    return [record_of(event, plane) for event in inside[step]]


def total(records: Iterable[Record]) -> int:
    return sum(record.duration for record in records)


def known_sum(records: Iterable[Record], stat: str) -> int | None:
    known = [int(record.stats[stat]) for record in records if stat in record.stats]
    return sum(known) if known else None


def by_key(records: Iterable[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.key, []).append(record)
    return groups


def is_opaque(record: Record) -> bool:
    """Return whether XLA knows no flops of a custom call."""
    return record.category == "custom-call" and not record.stats.get("flops")


class Origin(unittest.TestCase):
    def setUp(self) -> None:
        # Reading the larger captures takes a tenth of the time of all tests.
        self.paths = [path for path in TRACES[: None if FULL else 1] if path.exists()]
        self.assertTrue(self.paths)

    def cases(self, mode: str, *options: str) -> Iterable[tuple[Json, list[Record]]]:
        for path in self.paths:
            data, plane = plane_in(path)
            result = answer(data, mode, *options)
            records = read(plane, result["step_id"])
            with self.subTest(path=path.name):
                totals = result["totals"]
                for kind in ("compute", "data_move", "comm", "other"):
                    its = [record for record in records if record.kind == kind]
                    self.assertEqual(totals[f"{kind}_duration_ps"], total(its), kind)
                    self.assertEqual(totals[f"n_events_{kind}"], len(its), kind)
                loops = total(record for record in records if record.category == "while")
                self.assertEqual(totals["while_container_duration_ps"], loops)
                yield result, records

    def assert_group(self, row: Json, its: list[Record]) -> None:
        durations = [record.duration for record in its]
        expected = {
            "n_executions": len(its),
            "total_dur_ps": sum(durations),
            "min_dur_ps": min(durations),
            "max_dur_ps": max(durations),
            # "Counts": an average is an integer.
            "avg_dur_ps": round(sum(durations) / len(its)),
            "hlo_categories": dict(Counter(record.category for record in its)),
            "flops_sum": known_sum(its, "flops"),
            # "Counts": the count of XLA has a name of its own.
            "xla_bytes_accessed_sum": known_sum(its, "bytes_accessed"),
            "example_hlo_op_dur_ps": max(durations),
        }
        self.assertEqual({name: row[name] for name in expected}, expected, row["agg_key"])

    def test_summary_ranks_the_groups_and_sums_the_rest(self) -> None:
        for top in (3, 50):
            for result, records in self.cases("summary", "--top", str(top)):
                math = by_key(record for record in records if record.kind == "compute")
                ranked = sorted(math, key=lambda key: (-total(math[key]), key))
                rows = result["top_compute_groups"]
                self.assertEqual(
                    [(row["rank"], row["agg_key"]) for row in rows], [*enumerate(ranked[:top], 1)]
                )
                for row in rows:
                    self.assert_group(row, math[row["agg_key"]])
                rest = {
                    "n_groups_omitted": len(ranked[top:]),
                    "dur_ps": sum(total(math[key]) for key in ranked[top:]),
                }
                self.assertEqual(result["tail_compute"], rest)

    def test_non_compute_sums_categories_and_their_groups(self) -> None:
        for options, with_stalls in (((), True), (("--no-comm-stalls",), False)):
            for result, records in self.cases("non_compute", *options):
                categories: Counter[str] = Counter()
                groups: Counter[tuple[str, str]] = Counter()
                for record in records:
                    category = record.category
                    if record.kind == "comm" and category.endswith("-done") and with_stalls:
                        category = "async-done (comm stall)"
                    elif record.kind != "data_move":
                        continue
                    # "Kinds": a category is listed once for each kind.
                    categories[category] += record.duration
                    groups[category, record.key] += record.duration
                sums: Counter[str] = Counter()
                for row in result["by_category"]:
                    sums[row["hlo_category"]] += row["total_dur_ps"]
                self.assertEqual(sums, categories)
                found = {
                    (row["hlo_category"], row["agg_key"]): row["total_dur_ps"]
                    for row in result["by_source_within_category"]
                }
                self.assertEqual(found, groups)
                whole = result["totals"]["non_compute_duration_ps"]
                self.assertEqual(whole, sum(categories.values()))

    def test_roofline_compares_groups_with_the_peaks_of_the_skill(self) -> None:
        peaks = {"bf16": 1153.5, "fp8": 2307.0}
        for result, records in self.cases("roofline", "--chip", "v7x"):
            math = by_key(record for record in records if record.kind == "compute")
            rooflined = 0
            for row in result["groups"]:
                its = math[row["agg_key"]]
                # "Roofline": T excludes custom calls of unknown cost, not kernels of declared cost.
                whole = total(record for record in its if not is_opaque(record))
                self.assertEqual(row["total_dur_ps"], whole + row["kernel_dur_ps"])
                t_compute = row["flops_sum"] / peaks[row["dtype"]]
                t_hbm = row["bytes_accessed_sum"] / (3690 * 2**30 / 1e12)
                self.assertAlmostEqual(row["t_compute_theory_ps"], t_compute, delta=1)
                self.assertAlmostEqual(row["t_hbm_theory_ps"], t_hbm, delta=1)
                roof = max(row["t_compute_theory_ps"], row["t_hbm_theory_ps"])
                self.assertEqual(row["t_roofline_theory_ps"], roof)
                self.assertEqual(row["shortfall_ps"], row["total_dur_ps"] - roof)
                self.assertEqual(row["bound"], "compute" if t_compute >= t_hbm else "memory")
                # "Counts": only these can differ from XLA's.
                if not row["kernel_dur_ps"]:
                    counted = known_sum((r for r in its if not is_opaque(r)), "bytes_accessed")
                    self.assertLessEqual(row["bytes_accessed_sum"], counted)
                rooflined += row["total_dur_ps"]
            summary = result["step_summary"]
            self.assertEqual(summary["rooflined_dur_ps"], rooflined)
            self.assertEqual(summary["step_compute_dur_ps_total"], sum(map(total, math.values())))
