"""Test the verdict of `spread`: the slow device, the cause, and the lines."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import unittest
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import comb
from typing import Any

from _breakdown.analysis.devices import cohort as devices, record_format
from _breakdown.analysis.devices.cohort import StepSums
from _breakdown.analysis.devices.run_devices import spread_of_records
from _breakdown.modes.spread import fields_of
from _breakdown.pipeline.no_answer import NoAnswer
from tests.builders import records
from tests.builders.records import Json, Name, pod
from tests.harness import within

Loader = Callable[[], list[record_format.HostRecord | NoAnswer]]


def loader(data: bytes) -> Loader:
    """Return a loader of a single record, which raises NoAnswer if it is unreadable."""

    def load() -> list[record_format.HostRecord | NoAnswer]:
        try:
            return [record_format.decode(data)]
        except record_format.UnreadableRecord as error:
            raise NoAnswer("unreadable_record", detail=str(error)) from None

    return load


def loader_of(record: Json) -> Loader:
    return loader(gzip.compress(json.dumps(record).encode(), 1))


def spread_of(loaders: Mapping[str, Loader], top: int = 10**6, **options: Any) -> Json:
    """Return the answer of `spread` without the fields that describe the files."""
    found = spread_of_records(loaders, **options)
    notes = [
        *(f"a host is omitted, because it cannot be read: {why}" for why in found.unreadable),
        *found.notes,
    ]
    printed: Json = json.loads(json.dumps({"notes": notes, **fields_of(found, top)}))
    return printed


def in_files(loaders: Sequence[Loader]) -> dict[str, Loader]:
    return {f"{number}.json": load for number, load in enumerate(loaders)}


def spread(run: Sequence[Json], **options: Any) -> Json:
    return spread_of(in_files(list(map(loader_of, run))), **options)


def cohort(run: Sequence[Json], **options: Any) -> Json:
    [only] = spread(run, **options)["cohorts"]
    found: Json = only
    return found


def cohort_of(hosts: Sequence[Sequence[int]], n_steps: int) -> devices.Cohort:
    """Return the devices of all hosts; each device has its given load in every step."""
    return devices.Cohort(
        devices.Member(
            f"h{host:02}",
            str(device),
            {step: StepSums(load, load, 0, 0, 0, 0) for step in range(n_steps)},
        )
        for host, loads in enumerate(hosts)
        for device, load in enumerate(loads)
    )


def names_of(n_hosts: int, n_devices: int) -> list[Name]:
    """Return the host name and the device name of each device."""
    return [(f"h{h}", f"/device:TPU:{d}") for h in range(n_hosts) for d in range(n_devices)]


def of(name: Name) -> Json:
    return {"host": name[0], "device": name[1]}


def split(run: Sequence[Json]) -> list[Json]:
    """Return one record per device, with its groups in random order."""
    rng = random.Random(3)
    parts = []
    for record in run:
        for at, device in enumerate(record["devices"]):
            order = rng.sample(range(len(record["groups"])), len(record["groups"]))
            steps = [
                {**step, "device": 0, **{n: [step[n][i] for i in order] for n in ("durs_ps", "ns")}}
                for step in record["steps"]
                if step["device"] == at
            ]
            groups = [record["groups"][i] for i in order]
            parts.append({**record, "devices": [device], "steps": steps, "groups": groups})
    return parts


class Stragglers(unittest.TestCase):
    def test_slow_device_is_found(self) -> None:
        program = records.made_up(0)
        for n_hosts, n_devices in ((1, 3), (1, 8), (2, 2), (2, 4), (4, 1), (4, 2)):
            names = names_of(n_hosts, n_devices)
            slow = names[len(names) // 2]
            run = pod(program, names, slow={slow: lambda *_: 1.06}, seed=n_hosts)
            with self.subTest(n_hosts=n_hosts, n_devices=n_devices):
                answer = cohort(run)
                verdict = answer["verdict"]
                self.assertEqual(verdict["straggler"], of(slow))
                self.assertEqual(verdict["cause"], "own")
                self.assertGreater(verdict["uniform_pct"], 70)
                self.assertEqual((verdict["n_slowest"], answer["n_steps"]), (5, 5))
                self.assertIsNone(verdict["slow_host"])
                self.assertEqual(answer["devices"][0]["device"], slow[1])
                self.assertEqual(answer["hosts"][0]["host"], slow[0])
                for step in answer["steps"]:
                    self.assertEqual(step["slowest"], of(slow))

    def test_cause_of_a_straggler_is_identified(self) -> None:
        program = records.made_up(0)
        names = names_of(2, 4)
        idle = cohort(pod(program, names, idle={names[2]: 10**10}))["verdict"]
        self.assertEqual((idle["straggler"], idle["cause"]), (of(names[2]), "idle"))
        host = cohort(pod(program, names, from_host={names[2]: 10**10}))["verdict"]
        self.assertEqual((host["straggler"], host["cause"]), (of(names[2]), "host"))
        both = {names[2]: 10**10}
        mixed = cohort(pod(program, names, from_host=both, idle=both))["verdict"]
        self.assertEqual((mixed["straggler"], mixed["cause"]), (of(names[2]), None))
        of_host = dict.fromkeys(names[4:], 10**10) | {names[6]: 15 * 10**9}
        sick = cohort(pod(program, names, 8, idle=of_host))["verdict"]
        self.assertEqual((sick["straggler"], sick["slow_host"]["host"]), (of(names[6]), "h1"))

    def test_hosts_are_compared_by_their_fastest_device(self) -> None:
        def slow_host(*hosts: Sequence[int], n_steps: int = 8) -> tuple[str, int, float] | None:
            found = devices.slow_host_of(cohort_of(hosts, n_steps))
            return found and (found.host, found.n_slowest, round(float(found.p_value), 6))

        h1 = ("h01", 8, 0.007812)
        self.assertEqual(slow_host((10, 10), (11, 11)), h1)
        self.assertEqual(slow_host((10, 11), (12, 12)), h1)
        self.assertEqual(slow_host((100, 100), (101, 102)), h1)
        for hosts in (
            # The slowest devices of both hosts are equally slow.
            [(10, 12), (11, 12)],
            # One device has most of the excess.
            [(100, 100), (101, 104)],
            *([(10, 10), (10, 99)], [(10, 10), (10, 10)]),
            # Cases: hosts with one device, hosts with different numbers of devices, a single host.
            *([(10,), (11,)], [(10, 10, 10), (11, 11)], [(10, 10), (11, 11), (9,)], [(10, 11)]),
        ):
            with self.subTest(hosts=hosts):
                self.assertIsNone(slow_host(*hosts))
        # A p-value of exactly 5 % is enough, as with 20 hosts and two steps.
        many = [(10, 10)] * 19 + [(11, 11)]
        self.assertEqual(slow_host(*many, n_steps=2), ("h19", 2, 0.05))
        self.assertIsNone(slow_host(*many, n_steps=1))

        # A device that is slow in one step does not hide the slow host.
        found = cohort_of([(10, 10), (15, 15)], 8)
        found.members[1].steps[0] = StepSums(30, 30, 0, 0, 0, 0)
        self.assertEqual(
            devices.slow_host_of(devices.Cohort(found.members)), ("h01", 8, Fraction(1, 128), 20)
        )

    def test_straggler_has_the_largest_load_and_is_most_often_the_slowest(self) -> None:
        found = cohort_of([(10, 10, 11)], 8)
        self.assertTrue(devices.verdict_of(found).is_straggler)
        found.members[0].steps[0] = StepSums(30, 30, 0, 0, 0, 0)
        verdict = devices.verdict_of(devices.Cohort(found.members))
        self.assertEqual((verdict.slow.device, verdict.n_slowest), ("0", 7))
        self.assertLess(verdict.p_value, devices.ALPHA)
        self.assertFalse(verdict.is_straggler)

    def test_uniform_part_is_what_one_factor_explains_of_a_difference(self) -> None:
        self.assertEqual(devices.uniform_part([(10, 20), (10, 10)]), Fraction(1, 2))
        self.assertEqual(devices.uniform_part([(10, 20), (30, 60)]), 1)
        self.assertEqual(devices.uniform_part([(10, 0), (0, 12)]), 0)
        for times in ([], [(10, 5), (5, 10)], [(0, 5)]):
            self.assertIsNone(devices.uniform_part(times))

    def test_steps_without_duration_have_no_imbalance(self) -> None:
        self.assertIsNone(devices.verdict_of(cohort_of([(0, 0)], 1)).imbalance)

    def test_equal_devices_have_no_straggler(self) -> None:
        run = pod(records.made_up(0), names_of(2, 4), 10, jitter=0)
        answer = cohort(run)
        # The order of the files does not matter.
        self.assertEqual(cohort(run[::-1]), answer)
        self.assertEqual(answer["verdict"]["imbalance"], "balanced")
        self.assertIsNone(answer["verdict"]["straggler"])
        self.assertIsNone(answer["verdict"]["uniform_pct"])
        self.assertEqual(answer["slowest_vs_median"]["excess_ps"], 0)


def exact(devices: dict[Name, Sequence[Json]], base: Json | None = None) -> list[Json]:
    """Return the records of a run; times that `devices` omits are 0, except `busy_ps`."""
    base = base or records.record(records.made_up(1, 12))
    nothing = dict.fromkeys(("duration_ps", "comm_ps", "host_ps", "wait_ps"), 0)
    plain = {**base["steps"][0], **nothing, "durs_ps": [], "ns": []}
    run = []
    for host in dict.fromkeys(host for host, _ in devices):
        there = [name for name in devices if name[0] == host]
        steps = [
            {
                **plain,
                "name": f"step {index}",
                "busy_ps": step.get("duration_ps", 0),
                **step,
                "device": at,
                "index": index,
            }
            for at, name in enumerate(there)
            for index, step in enumerate(devices[name])
        ]
        rows = [{**base["devices"][0], "device": device} for _, device in there]
        run.append({**base, "host": host, "devices": rows, "steps": steps})
    return run


def loaded(loads: Sequence[int], **more: int) -> list[Json]:
    """Return steps of 1000 ps with the given loads."""
    return [{"duration_ps": 1000, "comm_ps": 1000 - load, **more} for load in loads]


class Exact(unittest.TestCase):
    """Test values exactly at a limit, and divisors of zero."""

    def verdict(self, *devices: Sequence[Json], per_host: int = 1) -> Json:
        names = names_of(len(devices) // per_host, per_host)
        of: Json = cohort(exact(dict(zip(names, devices, strict=True))))["verdict"]
        return of

    def test_imbalance_is_slight_from_1_percent_and_large_from_5_percent(self) -> None:
        for first, imbalance in (
            ([500, 518], "balanced"),
            ([500, 540], "slight"),
            ([520, 520], "slight"),
            ([598, 598], "slight"),
            ([600, 600], "large"),
            ([500, 700], "large"),
        ):
            with self.subTest(first):
                verdict = self.verdict(loaded(first), loaded([500, 500]))
                self.assertEqual(verdict["imbalance"], imbalance)

    def test_hosts_are_ordered_by_mean_load(self) -> None:
        loads = {("h0", "0"): 500, ("h0", "1"): 501, ("h1", "0"): 800, ("h2", "0"): 800}
        hosts = cohort(exact({name: loaded([load] * 2) for name, load in loads.items()}))["hosts"]
        self.assertEqual(
            [(host["host"], host["n_devices"], host["load_ps"], host["n_slowest"])
             for host in hosts],
            [("h1", 1, 800, 2), ("h2", 1, 800, 0), ("h0", 2, 501, 0)],
        )  # fmt: skip

    def test_cause_must_explain_80_percent_of_the_excess(self) -> None:
        for host, idle, cause in (
            (0, 20, "own"),
            (0, 21, None),
            (20, 0, "own"),
            (21, 0, None),
            (80, 0, "host"),
            (79, 0, None),
            (0, 80, "idle"),
            (0, 79, None),
            (40, 40, None),
            # The host's part can exceed the whole excess if another part is smaller than on the
            # other devices.
            (120, 0, "host"),
        ):
            slow = loaded([600] * 4, host_ps=100 + host, busy_ps=950 - idle)
            rest = [loaded([500] * 4, host_ps=100, busy_ps=950)] * 3
            with self.subTest(host=host, idle=idle):
                self.assertEqual(self.verdict(*rest, slow)["cause"], cause)

    def test_lines_that_a_device_does_not_run_count_as_zero(self) -> None:
        # All lines differ equally, so they are ordered by name. The median is 0, so there is no
        # factor.
        base = records.record(records.made_up(2))
        durs = [7 * (group["kind"] != "comm") for group in base["groups"]]
        keys = sorted((g["kind"], g["agg_key"]) for g in base["groups"] if g["kind"] != "comm")
        self.assertGreater(len(keys), 20)
        ran = {"duration_ps": 1000, "durs_ps": durs}
        of = cohort(exact({("h0", "0"): [{}], ("h0", "1"): [ran]}, base))
        lines = of["slowest_vs_median"]
        self.assertEqual([(row["kind"], row["agg_key"]) for row in lines["rows"]], keys[:20])
        for row in lines["rows"]:
            figures = tuple(row[f"{name}_ps"] for name in ("slow", "median", "delta"))
            self.assertEqual((*figures, row["delta_pct"]), (7, 0, 7, None))
        self.assertEqual((lines["excess_ps"], lines["rest_ps"]), (1000, 1000 - 20 * 7))
        self.assertIsNone(of["verdict"]["uniform_pct"])
        # Now only the median device runs the lines.
        slow = {"duration_ps": 1500}
        of = cohort(exact({("h0", "0"): [slow], ("h0", "1"): [ran]}, base))
        lines = of["slowest_vs_median"]
        for row in lines["rows"]:
            figures = tuple(row[f"{name}_ps"] for name in ("slow", "median", "delta"))
            self.assertEqual((*figures, row["delta_pct"]), (0, 7, -7, -100))
        self.assertEqual((lines["excess_ps"], lines["rest_ps"]), (500, 500 + 20 * 7))
        self.assertEqual(of["verdict"]["uniform_pct"], 100)


class Joining(unittest.TestCase):
    records: list[Json]

    @classmethod
    def setUpClass(cls) -> None:
        names = names_of(3, 2)
        cls.records = pod(records.made_up(0), names, slow={names[3]: lambda *_: 1.06})

    def test_answer_does_not_depend_on_order_and_number_of_files(self) -> None:
        answer = spread(self.records)
        self.assertEqual(spread(self.records[::-1]), answer)
        parts = split(self.records)
        for seed in range(4):
            shuffled = random.Random(seed).sample(parts, len(parts))
            self.assertEqual(spread(shuffled), answer)

    def test_rows_and_tail_add_up_to_the_totals(self) -> None:
        for top in (0, 2, 100):
            answer = cohort(self.records, top=top)
            self.assertEqual(len(answer["devices"]), min(top, 6))
            self.assertEqual(len(answer["devices"]) + answer["tail"]["n_devices_omitted"], 6)
            n_slowest = sum(device["n_slowest"] for device in answer["devices"])
            self.assertEqual(n_slowest + answer["tail"]["n_slowest"], answer["n_steps"])
            self.assertEqual(sum(host["n_slowest"] for host in answer["hosts"]), answer["n_steps"])
            lines = answer["slowest_vs_median"]
            deltas = sum(row["delta_ps"] for row in lines["rows"])
            self.assertEqual(deltas + lines["rest_ps"], lines["excess_ps"])

    def test_devices_are_grouped_by_program(self) -> None:
        other = pod(records.made_up(2), [("h8", f"/device:TPU:{d}") for d in range(2)])
        answer = spread([*self.records, *other])
        self.assertEqual([cohort["n_devices"] for cohort in answer["cohorts"]], [6, 2])
        self.assertEqual((answer["n_hosts"], answer["n_devices"]), (4, 8))
        self.assertEqual(answer["cohorts"][0], cohort(self.records))
        self.assertEqual(answer["cohorts"][1], cohort(other))
        self.assertEqual(spread([*other, *self.records]), answer)
        # Programs with equally many devices are ordered by name.
        others = [*other, *pod(records.made_up(3), [("h9", "0"), ("h9", "1")])]
        programs = sorted(record["devices"][0]["program"] for record in others)
        for run in (others, others[::-1]):
            self.assertEqual([cohort["program"] for cohort in spread(run)["cohorts"]], programs)

    def test_device_option_selects_a_device_of_each_host(self) -> None:
        answer = spread(self.records, device="/device:TPU:1")
        self.assertEqual(answer["n_devices"], 3)
        self.assertEqual(answer["cohorts"][0]["verdict"]["straggler"], of(("h1", "/device:TPU:1")))
        with self.assertRaises(NoAnswer) as caught:
            spread(self.records, device="/device:TPU:9")
        self.assertEqual(caught.exception.fields["available_devices"],
                         ["/device:TPU:0", "/device:TPU:1"])  # fmt: skip

    def test_device_in_two_files_is_rejected(self) -> None:
        run = {"b.json": self.records[1], "h1 (copy).json": self.records[1]}
        for names in itertools.permutations(run):
            with self.assertRaises(NoAnswer) as caught:
                spread_of({name: loader_of(run[name]) for name in names})
            self.assertEqual(caught.exception.reason, "duplicate_host")
            self.assertEqual(
                caught.exception.fields["detail"],
                "b.json and h1 (copy).json both have /device:TPU:0 of host h1; remove one of the"
                " files",
            )

    def test_steps_are_aligned_by_name_and_repetition(self) -> None:
        run = json.loads(json.dumps(self.records))
        for record in run:
            for step in record["steps"]:
                step["name"] = "train" if step["index"] < 4 else "eval"
        # The capture of one host began later, so its first step is an evaluation.
        for step in run[2]["steps"]:
            step["name"] = ("eval", "train", "train", "train", "train")[step["index"]]
        answer = cohort(run)
        self.assertEqual([step["name"] for step in answer["steps"]], ["train"] * 4 + ["eval"])
        first = answer["steps"][0]
        loads = [
            step["duration_ps"] - step["comm_ps"]
            for at, record in enumerate(run)
            for step in record["steps"]
            if step["index"] == (1 if at == 2 else 0)
        ]
        self.assertEqual(first["max_load_ps"], max(loads))

    def test_only_steps_that_all_devices_use_are_counted(self) -> None:
        run = json.loads(json.dumps(self.records))
        empty = dict.fromkeys(("busy_ps", "comm_ps", "host_ps", "wait_ps", "durs_ps", "ns"))
        run[0]["steps"][1] |= {"used": False, "why_not": "other_op_count", **empty}
        answer = spread(run)
        self.assertEqual([s["name"] for s in answer["cohorts"][0]["steps"]],
                         ["step 0", "step 2", "step 3", "step 4"])  # fmt: skip
        self.assertEqual(len(answer["notes"]), 1)
        # Steps of the same name are aligned by their number; unused steps are counted, too.
        for record in run:
            for step in record["steps"]:
                step["name"] = "train"
        aligned = [{**step, "name": "train"} for step in answer["cohorts"][0]["steps"]]
        self.assertEqual(cohort(run)["steps"], aligned)
        for step in run[0]["steps"]:
            step["used"] = False
        answer = cohort(run)
        self.assertEqual(answer["verdict"]["why_not"], "no_common_step")
        self.assertEqual((answer["n_steps"], answer["steps"]), (0, []))
        self.assertIsNone(answer["devices"][0]["load_ps"])

    def test_program_executions_are_aligned_by_index(self) -> None:
        names = names_of(2, 2)
        run = pod(records.made_up(0), names, step_source="modules")
        for step in run[0]["steps"]:
            step["name"] = "jit_train_step(another)"
        answer = spread(run)
        self.assertEqual(answer["cohorts"][0]["n_steps"], 5)
        self.assertIn("aligned by index", answer["notes"][0])
        # The steps of a single device need no alignment.
        self.assertEqual(spread(run[:1], device="/device:TPU:0")["notes"], [])

    def test_steps_option_selects_steps_of_all_devices(self) -> None:
        some = slice(1, -1)
        answer = cohort(self.records, steps=some)
        self.assertEqual([step["name"] for step in answer["steps"]], ["step 1", "step 2", "step 3"])
        renumbered = json.loads(json.dumps(self.records))
        for record in renumbered:
            record["steps"] = [step for step in record["steps"] if 1 <= step["index"] <= 3]
        self.assertEqual(answer, cohort(renumbered))


class Cost(unittest.TestCase):
    def test_p_value_of_many_steps_is_exact_and_computed_quickly(self) -> None:
        for k, n, d in itertools.product(range(1, 9), range(1, 9), (2, 3, 7)):
            ways = sum(comb(n, i) * (d - 1) ** (n - i) for i in range(k, n + 1))
            expected = min(Fraction(1), d * Fraction(ways, d**n))
            self.assertEqual(devices.chance_of_slowest(k, n, d), expected)
        with within(0.2):
            devices.chance_of_slowest(1, 5000, 8)
