"""The modes record, compare and spread on traces of the demo's program, edited and run again."""

from __future__ import annotations

import gzip
import json
import random
import unittest
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.builders import records, rewrite
from tests.builders.edits import edits_of
from tests.builders.records import DEVICE, Json, Name, Op, Program, groups_of
from tests.harness import DEMO, InFolder, answer, run, sampled

ALL = ("--top", "1000000")
Keys = frozenset[tuple[str, str]]
RUN = "2026_11_21_00_00_00"


def small(program: Program) -> Program:
    """Return the longest ops of a program and one op of each line."""
    rng = random.Random(4)
    kept = {id(rng.choice(ops)) for ops in groups_of(program).values()}
    longest = sorted(program, key=lambda op: -op.duration)[: len(program) // 10]
    kept |= {id(op) for op in longest}
    return [op for op in program if id(op) in kept]


class WithFiles(InFolder):
    def record_of(self, trace: Path, name: str, *options: str) -> Path:
        """Write the record of a trace, compressed if the name ends in .gz."""
        text = json.dumps(answer(trace, "record", *options)).encode()
        return self.write(name, gzip.compress(text) if name.endswith(".gz") else text)


def compare(before: Path, after: Path, *options: str) -> Json:
    return answer(after, "compare", "--baseline", str(before), *options)


def said(of: Json) -> Json:
    """Return an answer without the fields that name files."""
    return {key: of[key] for key in of.keys() - {"profile_dir", "baseline_dir", "notes"}}


def keys_of(row: Json) -> tuple[Keys, Keys]:
    ours, theirs = (
        frozenset((row["kind"], key) for key in row[f"agg_keys_{side}"])
        for side in ("before", "after")
    )
    return ours, theirs


# --- record --------------------------------------------------------------------------------------


class Record(WithFiles):
    def test_run_and_host_come_from_the_path(self) -> None:
        trace = rewrite.trace(small(records.of_demo()), 1)
        for name, where in (
            ("log/plugins/profile/today/h0.xplane.pb", "today"),
            ("profile/h0.xplane.pb", None),
            ("profile/7/h0.xplane.pb", "7"),
            ("elsewhere/h0.xplane.pb", None),
        ):
            with self.subTest(name=name):
                path = self.write(name, trace)
                for profile in (path, path.parent):
                    record = answer(profile, "record")
                    self.assertEqual(record["run"], where)
                    self.assertEqual((record["host"], record["xplane_file"]), ("h0", path.name))

    def test_program_run_again_has_the_same_record(self) -> None:
        again = answer(
            rewrite.trace(records.of_demo(), 2, devices=(DEVICE, "/device:TPU:3")), "record"
        )
        demo = answer(DEMO, "record")
        self.assertEqual(again["groups"], demo["groups"])
        self.assertEqual(again["frames"], demo["frames"])
        programs = {device["program"] for of in (again, demo) for device in of["devices"]}
        self.assertEqual(len(programs), 1)
        first, *others = ({**step, "index": 0, "name": "", "device": 0} for step in again["steps"])
        self.assertEqual(first, {**demo["steps"][0], "name": ""})
        for other in others:
            self.assertEqual(other, first)


# --- compare -------------------------------------------------------------------------------------


class Compared(WithFiles):
    sides: tuple[bytes, bytes]

    @classmethod
    def setUpClass(cls) -> None:
        program = small(records.of_demo())
        changed = records.renumber(edits_of(program, seed=3)["all at once"][0](program))
        cls.sides = (
            rewrite.trace(program, 4, jitter=0.04, seed=1),
            rewrite.trace(changed, 4, jitter=0.04, seed=2),
        )

    def setUp(self) -> None:
        super().setUp()
        self.traces = [
            self.write(f"{i}/host.xplane.pb", trace) for i, trace in enumerate(self.sides)
        ]

    def test_trace_equals_itself(self) -> None:
        for trace in self.traces:
            same = compare(trace, trace, *ALL)
            for figure in (*same["rows"], *same["totals"].values()):
                self.assertEqual(figure["delta_ps"], 0)
                self.assertEqual(figure["before_ps"], figure["after_ps"])
                self.assertFalse(figure["significant"])
            self.assertTrue(same["same_program"])

    def test_swapped_sides_give_opposite_changes(self) -> None:
        before, after = self.traces
        there, back = compare(before, after, *ALL), compare(after, before, *ALL)
        rows = {keys_of(row): row["delta_ps"] for row in there["rows"]}
        self.assertEqual(rows, {keys_of(row)[::-1]: -row["delta_ps"] for row in back["rows"]})
        for name, figure in there["totals"].items():
            self.assertEqual(figure["delta_ps"], -back["totals"][name]["delta_ps"])

    def test_rows_and_tail_sum_to_the_totals(self) -> None:
        for top in (0, 3, 1000):
            of = compare(self.traces[0], self.traces[1], "--top", str(top))
            for kind in ("compute", "data_move", "comm", "other"):
                for figure in ("before_ps", "after_ps", "delta_ps"):
                    shown = sum(row[figure] for row in of["rows"] if row["kind"] == kind)
                    shown += of["tail"]["by_kind"][kind][figure]
                    self.assertEqual(shown, of["totals"][kind][figure])

    def test_record_compares_like_its_trace(self) -> None:
        before, after = self.traces
        expected = said(compare(before, after))
        for name in ("plain.json", "gzipped/record.json.gz"):
            ours = self.record_of(before, f"before/{name}")
            theirs = self.record_of(after, f"after/{name}")
            for pair in ((ours, theirs), (ours, after), (ours.parent, theirs.parent)):
                with self.subTest(name=name, pair=pair):
                    self.assertEqual(said(compare(*pair)), expected)

    def test_record_of_some_steps_compares_like_the_steps(self) -> None:
        before, after = self.traces
        some = ("--steps", "1:4")
        expected = said(compare(before, after, *some))
        self.assertEqual(expected["before"]["n_steps"], 3)
        narrowed = self.record_of(after, "some.json", *some)
        self.assertEqual(said(compare(before, narrowed, *some)), expected)

    def test_device_of_either_side_can_be_chosen(self) -> None:
        other = "/device:TPU:1"
        program = small(records.of_demo())
        data = rewrite.trace(program, 2, jitter=0.04, devices=(DEVICE, other))
        both = self.write("both.xplane.pb", data)
        record = self.record_of(both, "both.json")
        there = compare(both, both, "--device", other, *ALL)
        self.assertEqual((there["before"]["device"], there["after"]["device"]), (DEVICE, other))
        back = compare(both, both, "--baseline-device", other, *ALL)
        self.assertEqual((back["before"]["device"], back["after"]["device"]), (other, DEVICE))
        deltas = [row["delta_ps"] for row in there["rows"]]
        self.assertTrue(any(deltas))
        self.assertCountEqual(deltas, [-row["delta_ps"] for row in back["rows"]])
        self.assertEqual(said(compare(record, record, "--device", other, *ALL)), said(there))


class Edited(WithFiles):
    """Edits keep the origin of each op, so the right counterparts are known."""

    def judge(self, before: Program, after: Program, there: Json, back: Json) -> None:
        groups = groups_of(before), groups_of(after)
        rows = [keys_of(row) for row in there["rows"]]
        self.assertCountEqual(rows, [keys_of(row)[::-1] for row in back["rows"]])
        for side in (0, 1):
            self.assertCountEqual([key for row in rows for key in row[side]], groups[side])

        def origin(side: int, keys: Keys) -> frozenset[int]:
            ops = (op for key in keys for op in groups[side][key])
            return frozenset(origin for op in ops for origin in op.origin)

        for ours, theirs in rows:
            if ours and theirs:
                self.assertTrue(origin(0, ours) & origin(1, theirs), f"unrelated: {ours, theirs}")
        row_of = {key: theirs for ours, theirs in rows for key in ours}
        kept = {(key[0], origin(1, frozenset([key]))): key for key in groups[1]}
        for key in groups[0]:
            counterpart = kept.get((key[0], origin(0, frozenset([key]))))
            if counterpart is not None:
                self.assertIn(counterpart, row_of[key])

    def test_lines_are_matched_after_each_edit(self) -> None:
        before = small(records.of_demo())
        ours = self.write("before.xplane.pb", rewrite.trace(before, 1))
        ours = self.record_of(ours, "before.json")
        edits = {kind: of_kind[0] for kind, of_kind in edits_of(before, seed=8).items()}
        edits["names renumbered"] = list
        for kind, edit in sampled(edits.items(), 2):
            with self.subTest(kind):
                after = records.renumber(edit(before))
                theirs = self.write("after.xplane.pb", rewrite.trace(after, 1))
                theirs = self.record_of(theirs, "after.json")
                there, back = compare(ours, theirs, *ALL), compare(theirs, ours, *ALL)
                self.judge(before, after, there, back)

    def test_slower_line_is_found_although_it_moved(self) -> None:
        before = small(records.of_demo())
        ours = self.write("before.xplane.pb", rewrite.trace(before, 1))
        ours = self.record_of(ours, "before.json")
        times = {key: sum(op.duration for op in ops) for key, ops in groups_of(before).items()}
        # Rounding to picoseconds must not hide the factor.
        keys = [key for key in times if times[key] > 10**6]
        for key in sampled(random.Random(5).sample(keys, 5), 2):
            slower = records.slow_down(key, 1.1)(before)
            after = records.renumber(records.shift("/home/dev/model/train.py", 3)(slower))
            theirs = self.write("after.xplane.pb", rewrite.trace(after, 1))
            changed = [row for row in compare(ours, theirs, *ALL)["rows"] if row["delta_ps"]]
            self.assertEqual([keys_of(row)[0] for row in changed], [frozenset([key])])
            self.assertAlmostEqual(changed[0]["delta_pct"], 10, delta=0.01)

    def test_median_line_that_gets_five_percent_slower_is_found(self) -> None:
        """Each execution jitters by 4 %, which the 48 layers of this program average out."""
        program = [replace(op, n=12 * op.n, duration=12 * op.duration) for op in records.of_demo()]
        whole = sum(op.duration for op in program)
        program = [op for op in program if op.duration * 500 > whole]
        times = {key: sum(op.duration for op in ops) for key, ops in groups_of(program).items()}
        median = sorted(times, key=lambda key: times[key])[len(times) // 2]
        slower = records.slow_down(median, 1.05)(program)
        before, after = (
            self.write(f"{i}.xplane.pb", rewrite.trace(each, 4, jitter=0.04, seed=i))
            for i, each in enumerate((program, slower))
        )
        found = [row for row in compare(before, after)["rows"] if row["significant"]]
        self.assertEqual([keys_of(row) for row in found], [(frozenset([median]),) * 2])


class OfOtherMakers(WithFiles):
    def test_long_texts_of_records_are_cut(self) -> None:
        record = records.record(records.made_up(1), 2)
        record["groups"][0]["tf_ops"] = ["x" * 100_000]
        record["host"] = "h" * 100_000
        path = self.write("h.json", json.dumps(record).encode())
        compared, spread = compare(path, path, *ALL), answer(path, "spread")
        [tf_op] = (row["tf_op"] for row in compared["rows"] if "…" in (row["tf_op"] or ""))
        hosts = compared["after"]["host"], spread["cohorts"][0]["devices"][0]["host"]
        for text in (tf_op, *hosts):
            self.assertEqual((len(text), text[-1]), (65_537, "…"))
        for of in (compared, spread):
            self.assertTrue(any(note.endswith(": cut") for note in of["notes"]))


# --- spread --------------------------------------------------------------------------------------


def names_of(n_hosts: int, n_devices: int) -> list[Name]:
    return [(f"h{h}", f"/device:TPU:{d}") for h in range(n_hosts) for d in range(n_devices)]


class Spread(WithFiles):
    program: Program

    @classmethod
    def setUpClass(cls) -> None:
        cls.program = small(records.of_demo())

    def write_pod(self, folder: str, names: Sequence[Name], n_steps: int, **of: Any) -> Path:
        pod = rewrite.pod(self.program, names, n_steps, **of)
        for host, data in pod.items():
            self.write(f"{folder}/{host}.xplane.pb", data)
        return self.folder / folder

    def cohort(self, folder: Path) -> Json:
        [only] = answer(folder, "spread", *ALL)["cohorts"]
        of: Json = only
        return of

    def test_slow_device_is_found(self) -> None:
        # With two devices, one is the slowest of five steps by chance too often.
        sizes = (1, 2, 6), (1, 3, 5), (4, 1, 5), (2, 2, 5), (4, 2, 5)
        for n_hosts, n_devices, n_steps in sampled(sizes, 2):
            names = names_of(n_hosts, n_devices)
            slow = names[len(names) // 2]
            folder = f"{n_hosts}x{n_devices}"
            factors: dict[Name, rewrite.Factor] = {slow: lambda op: 1.06}
            run_of = self.write_pod(
                folder, names, n_steps, jitter=0.003, seed=n_hosts, slow=factors
            )
            with self.subTest(folder):
                cohort = self.cohort(run_of)
                self.assertEqual(
                    (cohort["n_hosts"], cohort["n_devices"]), (n_hosts, n_hosts * n_devices)
                )
                verdict = cohort["verdict"]
                self.assertEqual(verdict["straggler"], {"host": slow[0], "device": slow[1]})
                self.assertEqual(verdict["n_slowest"], n_steps)
                self.assertEqual(verdict["cause"], "own")
                self.assertGreater(verdict["uniform_pct"], 90)
                self.assertAlmostEqual(cohort["slowest_vs_median"]["factor"], 1.06, delta=0.005)
                for step in cohort["steps"]:
                    self.assertLess(step["step_spread_pct"], 0.001)

    def test_slow_line_is_named(self) -> None:
        times = {
            key: sum(op.duration for op in ops)
            for key, ops in groups_of(self.program).items()
            if key[0] == "compute"
        }
        key = sorted(times, key=lambda key: -times[key])[1]
        names = names_of(2, 2)

        def factor(op: Op) -> float:
            return 1.3 if op.key == key else 1.0

        cohort = self.cohort(self.write_pod("run", names, 5, jitter=0.003, slow={names[1]: factor}))
        self.assertEqual(cohort["verdict"]["straggler"], {"host": "h0", "device": "/device:TPU:1"})
        self.assertLess(cohort["verdict"]["uniform_pct"], 30)
        first = cohort["slowest_vs_median"]["rows"][0]
        self.assertEqual((first["kind"], first["agg_key"]), key)
        self.assertAlmostEqual(first["delta_pct"], 30, delta=1)

    def test_programs_have_cohorts_of_their_own(self) -> None:
        names = names_of(2, 2)
        others = {names[3]: records.renumber(self.program)}
        of = answer(self.write_pod("run", names, 2, others=others), "spread")
        self.assertEqual([cohort["n_devices"] for cohort in of["cohorts"]], [3, 1])
        [alone] = of["cohorts"][1]["devices"]
        self.assertEqual((alone["host"], alone["device"]), names[3])
        self.assertEqual(of["cohorts"][1]["verdict"]["why_not"], "one_device")

    def test_unreadable_host_is_counted_and_noted(self) -> None:
        names = names_of(2, 2)
        folder = self.write_pod("run", names, 2, jitter=0.01)
        whole = answer(folder, "spread")
        self.write("run/h7.xplane.pb", b"\x0a\x7fnot a trace")
        some = answer(folder, "spread")
        self.assertEqual((some["n_hosts"], some["n_hosts_unreadable"]), (2, 1))
        self.assertEqual(some["cohorts"], whole["cohorts"])
        self.assertTrue(any("h7.xplane.pb" in note for note in some["notes"]))
        for host in ("h0", "h1"):
            self.write(f"run/{host}.xplane.pb", b"\x0a\x7fnot a trace")
        none = run(folder, "spread")
        self.assertEqual((none.object["reason"], none.status), ("unreadable_xplane_pb", 1))

    def test_broken_link_is_an_unreadable_host(self) -> None:
        made = records.record(records.made_up(1))
        self.write("run/h0.json", json.dumps(made, indent=2, sort_keys=True).encode())
        (self.folder / "run" / "h8.json").symlink_to("nowhere")
        of = answer(self.folder / "run", "spread")
        self.assertEqual((of["n_hosts"], of["n_hosts_unreadable"]), (1, 1))

    def test_order_split_and_form_of_files_do_not_matter(self) -> None:
        names = names_of(2, 2)
        traces = self.write_pod("traces", names, 3, jitter=0.01)
        expected = said(answer(traces, "spread"))
        for i, path in enumerate(sorted(traces.iterdir(), reverse=True)):
            data = path.read_bytes()
            self.write(f"gzipped/{path.name}.gz", gzip.compress(data, 1))
            self.record_of(path, f"records/{i}.json")
            self.record_of(path, f"gzipped records/{i}.json.gz")
            for device in dict.fromkeys(device for _, device in names):
                split = f"split/{9 - i}{device[-1]}.json"
                self.record_of(path, split, "--device", device)
        for form in ("gzipped", "records", "gzipped records", "split"):
            with self.subTest(form):
                self.assertEqual(said(answer(self.folder / form, "spread")), expected)

    def test_hosts_may_have_a_record_a_trace_or_both(self) -> None:
        names = names_of(3, 1)
        traces = self.write_pod("log/plugins/profile/run", names, 3, jitter=0.01)
        expected = said(answer(traces, "spread"))
        for host in ("h0", "h2"):
            self.record_of(traces / f"{host}.xplane.pb", f"log/plugins/profile/run/{host}.json.gz")
        (traces / "h2.xplane.pb").unlink()
        for profile in (traces, self.folder / "log"):
            self.assertEqual(said(answer(profile, "spread")), expected)

    def test_steps_narrow_the_cohort(self) -> None:
        folder = self.write_pod("run", names_of(1, 2), 4, jitter=0.01)
        whole = answer(folder, "spread")["cohorts"][0]["steps"]
        some = answer(folder, "spread", "--steps", "1:3")["cohorts"][0]
        self.assertEqual((some["n_steps"], some["steps"]), (2, whole[1:3]))

    def test_device_narrows_the_cohort(self) -> None:
        names = names_of(2, 2)
        folder = self.write_pod("run", names, 3, jitter=0.01)
        cohort = answer(folder, "spread", "--device", "/device:TPU:1")["cohorts"][0]
        self.assertEqual(
            {(each["host"], each["device"]) for each in cohort["devices"]},
            {name for name in names if name[1] == "/device:TPU:1"},
        )


if __name__ == "__main__":
    unittest.main()
