"""What communication costs and moves: pairs, times in flight, payloads, groups; a case for each
rule on small traces, and real captures where they lie beside the repository."""

from __future__ import annotations

import random
import unittest
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from _analysis import exchanges
from _analysis.flights import Flight, flights_of
from _analysis.transfers import Starts
from _pipeline import vocabulary
from _pipeline.clocks import ON_TRACE, Clock
from _pipeline.device import open_device, read_steps
from _pipeline.event_iterate import read_events
from _pipeline.normalize import Step, normalize
from _pipeline.ops import Op as RealOp
from _proto.hlo.collectives import COLLECTIVES
from _proto.hlo.text import FROM_HOST, TO_HOST, HloText
from _proto.trace import open_trace
from tests.builders import hlo_proto
from tests.builders.hlo_proto import array, metadata_plane, tuple_of
from tests.builders.random_comm import GROUPS
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Op,
    Plane,
    Space,
    Stat,
    StatMetadata,
    bytes_field,
    encode,
    int64,
    op,
    string,
    tpu_plane,
)
from tests.harness import FULL, OFFLOADING, TRAINING, answer, context_of, run, sampled, within
from tests.naive.wire import every, fields

PROGRAM_ID = 77
STEP = ("s", 0, 1000)

Json = dict[str, Any]
Program = dict[str, list[hlo_proto.Op]]
CONTRADICTION = "1 pairs end before they begin, because the two clocks disagree"


def start(name: str, at: int, dur: int = 0, **more: Any) -> Op:
    kind = name.partition("-start")[0]
    return op(name, more.pop("category", f"{kind}-start"), at, dur, **more)


def done(of: str, at: int, dur: int = 0, **more: Any) -> Op:
    """A wait whose operand has that name."""
    kind = of.partition("-start")[0].partition("-update")[0]
    name = more.pop("name", of.replace("-start", "-done").replace("-update", "-done"))
    operands = more.pop("operands", f"(f32[8]{{0}}, f32[8]{{0}}) %{of}")
    return op(name, more.pop("category", f"{kind}-done"), at, dur, operands=operands, **more)


def math(at: int, dur: int, **more: Any) -> Op:
    return op(more.pop("name", "fusion.9"), "loop fusion", at, dur, **more)


def file_of(
    ops: Sequence[Op],
    program: Program | None = None,
    *,
    modules: Sequence[tuple[int, int]] = (),
    steps: Sequence[tuple[str, int, int]] = (STEP,),
    **more: Any,
) -> bytes:
    """A trace of these ops, of executions of programs, and of the program itself."""
    for each in ops:
        each.stats.setdefault("program_id", PROGRAM_ID)
    plane = tpu_plane(ops, steps)
    runs = [Event(10**6, begin, end - begin or None) for begin, end in modules]
    if runs:
        plane.event_metadata.append(EventMetadata(10**6, "jit_f(77)"))
        plane.lines.append(Line("XLA Modules", runs))
    planes = [plane]
    if program is not None:
        hlo = hlo_proto.hlo_proto(program, **more)
        planes.append(metadata_plane({PROGRAM_ID: ("jit_f(77)", hlo)}))
    return encode(Space(planes))


def rows(ops: Sequence[Op], program: Program | None = None, **more: Any) -> list[Json]:
    found: list[Json] = answer(file_of(ops, program, **more), "comm", "--top", "100")["rows"]
    return found


def row(ops: Sequence[Op], program: Program | None = None, **more: Any) -> Json:
    (only,) = rows(ops, program, **more)
    return only


def pairs(ops: Sequence[Op], program: Program | None = None, **more: Any) -> tuple[int, ...]:
    """Paired, ambiguous, unpaired over all rows."""
    found = [each["pairs"] for each in rows(ops, program, **more) if each["pairs"]]
    return tuple(sum(each[key] for each in found) for key in ("paired", "ambiguous", "unpaired"))


class Pairing(unittest.TestCase):
    """Which op begins what a wait ends."""

    def test_its_operand(self) -> None:
        name = "all-gather-start.5"
        ops = [start(name, 0), done(name, 10, 5, name="another-name")]
        self.assertEqual(pairs(ops), (1, 0, 0))

    def test_an_update_stands_for_its_start(self) -> None:
        ops = [
            start("all-gather.1.call-start", 0, category="async-start"),
            done("all-gather.1.call-update", 10, 5, category="async-done", name="all-gather.x"),
        ]
        self.assertEqual(pairs(ops), (1, 0, 0))

    def test_the_last_update_in_a_name_is_the_updates(self) -> None:
        name = "dynamic-update-slice-start.2"
        host = "f32[8]{0:S(5)}"
        for operand in (name, "dynamic-update-slice-update.2"):
            ops = [
                start(name, 0, category="async-start", shape=host),
                done(operand, 10, 5, category="async-done", name="copy.x", shape=host),
            ]
            self.assertEqual(pairs(ops), (1, 0, 0), operand)

    def test_an_operand_that_begins_nothing_is_none(self) -> None:
        ops = [
            math(0, 1, name="all-gather-start.5"),
            done("all-gather-start.5", 10, 5),
        ]
        self.assertEqual(pairs(ops), (0, 0, 1))

    def upstream(self, *between: hlo_proto.Op, last: str) -> Program:
        return {
            "main": [
                hlo_proto.op("all-gather-start.5", "all-gather-start"),
                *between,
                hlo_proto.op("all-gather-done.7", "all-gather-done", last),
            ]
        }

    def test_upstream_in_the_program(self) -> None:
        program = self.upstream(
            hlo_proto.op("copy-start.1", "copy-start"),
            hlo_proto.op("f", "fusion", "copy-start.1", "all-gather-start.5"),
            hlo_proto.op("g", "get-tuple-element", "f"),
            last="g",
        )
        wait = done("g", 10, 5, category="all-gather-done", name="all-gather-done.7")
        begun = [start("all-gather-start.5", 0), start("copy-start.1", 2)]
        # Its operand begins nothing, be it in the trace or not.
        ops = [*begun, math(4, 1, name="g"), wait]
        self.assertEqual(pairs(ops, program), (1, 0, 0))
        ops = [*begun, wait]
        self.assertEqual(pairs(ops, program), (1, 0, 0))
        self.assertEqual(row(ops, program)["in_flight_ps"], 15)
        self.assertEqual(pairs(ops), (0, 0, 1))

    def test_the_operand_counts_before_the_program_and_that_before_the_name(self) -> None:
        program = self.upstream(last="all-gather-start.5")
        by_name = start("all-gather-start.7", 4)
        by_program = start("all-gather-start.5", 2)
        by_operand = start("all-gather-start.6", 0)
        wait = done("all-gather-start.6", 10, 5, name="all-gather-done.7")
        for ops, in_flight in (
            ([by_operand, by_program, by_name, wait], 15),
            ([by_program, by_name, wait], 13),
            # The program knows better than the name, even if what it knows isn't in the trace.
            ([by_name, wait], None),
        ):
            self.assertEqual(row(ops, program)["in_flight_ps"], in_flight)
        self.assertEqual(row([by_program, by_name, wait])["in_flight_ps"], 11)

    def test_its_name(self) -> None:
        for begin, end in (
            ("all-gather-start.3", "all-gather-done.3"),
            ("all-gather.1.cloned.1.call-start", "all-gather.1.cloned.1.call-done"),
            ("all-gather_async_start", "all-gather_async_done"),
            ("all-gather_of_done_start", "all-gather_of_done_done"),
        ):
            ops = [
                start(begin, 0, category="async-start", attributes=", replica_groups={{0,1}}"),
                done("get-tuple-element.1", 10, 5, category="async-done", name=end),
            ]
            self.assertEqual(pairs(ops), (1, 0, 0), end)
            self.assertEqual(row(ops)["groups"], "1 x 2, stride 1", end)

    def test_its_name_where_the_program_has_nothing_upstream(self) -> None:
        """As where the loop before began it."""
        program: Program = {
            "body": [
                hlo_proto.op("p", "parameter"),
                hlo_proto.op("g", "get-tuple-element", "p"),
                hlo_proto.op("all-gather-done.7", "all-gather-done", "g"),
                hlo_proto.op("all-gather-start.7", "all-gather-start"),
            ]
        }
        wait = done("g", 10, 5, category="all-gather-done", name="all-gather-done.7")
        self.assertEqual(pairs([start("all-gather-start.7", 0), wait], program), (1, 0, 0))

    def test_async_collective_fusions(self) -> None:
        ops = [
            op("async-collective-start.3", "custom fusion", 0, 1),
            op("async-collective-done.3", "custom fusion", 10, 5, operands="f32[8] %gte.1"),
        ]
        self.assertEqual(pairs(ops), (1, 0, 0))

    def test_what_is_sent_begins_when_it_is_sent(self) -> None:
        ops = [op("send.3", "send", 0, 1), done("send.3", 10, 5, category="send-done", name="d")]
        self.assertEqual(pairs(ops), (1, 0, 0))

    def test_without_names_nothing_is_paired(self) -> None:
        ops = [
            op("", "all-gather-start", 0, text="no HLO at all"),
            op("", "all-gather-done", 10, 5, text="neither is this"),
        ]
        self.assertEqual(pairs(ops), (0, 0, 1))

    def test_names_are_of_programs(self) -> None:
        name = "all-gather-start.5"
        ops = [start(name, 0, program_id=1), done(name, 10, 5, program_id=2)]
        self.assertEqual(pairs(ops), (0, 0, 1))

    def test_a_start_outside_of_the_step_lends_its_text(self) -> None:
        groups = ", replica_groups={{0,1},{2,3}}"
        name = "all-gather-start.5"
        ops = [start(name, 0, attributes=groups), done(name, 100, 5)]
        said = row(ops, steps=[("s", 50, 100)])
        self.assertEqual(said["pairs"], {"paired": 0, "ambiguous": 0, "unpaired": 1})
        self.assertEqual((said["groups"], said["groups_from"]), ("2 x 2, stride 1", "text"))

    def test_of_several_texts_of_a_start_one_in_the_step_counts_else_the_first(self) -> None:
        name = "all-gather-start.5"
        ops = [
            start(name, at, attributes=f", replica_groups=[{8 // n},{n}]<=[8]")
            for at, n in ((0, 8), (10, 4), (60, 2), (70, 1))
        ]
        for begin, size in ((50, 2), (90, 8)):
            said = row([*ops, done(name, 100, 5)], steps=[("s", begin, 100)])
            self.assertEqual(said["group_size"], size)


class Executions(unittest.TestCase):
    NAME = "all-gather-start.5"

    def begin(self, at: int, dur: int = 0) -> Op:
        return start(self.NAME, at, dur)

    def end(self, at: int, dur: int = 5) -> Op:
        return done(self.NAME, at, dur)

    def test_the_oldest_ends_first(self) -> None:
        ops = [self.begin(0), self.begin(10), math(12, 5), self.end(30), self.end(50)]
        said = row(ops)
        self.assertEqual(said["pairs"], {"paired": 2, "ambiguous": 2, "unpaired": 0})
        self.assertEqual(said["in_flight_ps"], 35 + 45)
        self.assertEqual((said["covered_ps"], said["other_ps"]), (5 + 5, 25 + 35))

    def test_ambiguous_is_what_was_ever_accompanied(self) -> None:
        one_by_one = [self.begin(0), self.end(10), self.begin(20), self.end(30)]
        self.assertEqual(pairs(one_by_one), (2, 0, 0))
        # The second begins while the first is under way, and ends alone.
        second = [self.begin(0), self.begin(5), self.end(10), self.end(30), self.begin(40),
                  self.end(50)]  # fmt: skip
        self.assertEqual(pairs(second), (3, 2, 0))
        # What never ends accompanies, too.
        said = row([self.begin(0), self.begin(5), self.end(10)])
        self.assertEqual(said["pairs"], {"paired": 1, "ambiguous": 1, "unpaired": 0})
        self.assertEqual(said["in_flight_ps"], 15)

    def test_at_one_instant_starts_come_first(self) -> None:
        ops = [self.end(10), self.begin(10)]
        self.assertEqual(pairs(ops), (1, 0, 0))

    def test_an_end_without_a_begin_takes_no_later_one(self) -> None:
        ops = [self.end(5), self.begin(10), self.end(30)]
        said = row(ops)
        self.assertEqual(said["pairs"], {"paired": 1, "ambiguous": 0, "unpaired": 1})
        self.assertEqual(said["in_flight_ps"], 25)

    def test_none_outlasts_the_execution_of_its_program(self) -> None:
        ops = [self.begin(0), self.end(30)]
        for modules, paired in (
            ([(0, 20), (20, 60)], 0),
            ([(0, 31)], 1),
            # Emptied before the ops that start at that instant.
            ([(0, 30)], 0),
            ([(0, 20), (5, 60)], 0),
            # Those that begin first may end last.
            ([(0, 70), (1, 60), (2, 20)], 0),
            ([(40, 60)], 1),
        ):
            self.assertEqual(pairs(ops, modules=modules)[0], paired, modules)

    def test_a_start_at_a_border_is_behind_it(self) -> None:
        ops = [self.begin(0), self.begin(20), self.end(30)]
        said = row(ops, modules=[(0, 20), (20, 60)])
        self.assertEqual(said["pairs"], {"paired": 1, "ambiguous": 0, "unpaired": 0})
        self.assertEqual(said["in_flight_ps"], 15)

    def timed(self, *times: tuple[int, int, int]) -> Json:
        """What is said of a start, a wait and math, each with its offset on the trace's clock, and
        begin and duration on the core's."""
        stats = [StatMetadata(1, "device_offset_ps"), StatMetadata(2, "device_duration_ps"),
                 StatMetadata(3, "hlo_category")]  # fmt: skip
        entries, events = [], []
        categories = ("all-gather-start", "all-gather-done", "loop fusion")
        for i, (category, (at, begin, dur)) in enumerate(zip(categories, times, strict=True)):
            name = self.NAME if i == 0 else f"{category.partition(' ')[0]}.5"
            text = f"%{name} = f32[8] {category.partition(' ')[0]}(f32[8] %{self.NAME})"
            entries.append(EventMetadata(i, text, [Stat(3, string(category))]))
            clocks = [Stat(1, int64(begin)), Stat(2, int64(dur))]
            events.append(Event(i, at, 90 * (i == 1), stats=clocks))
        plane = Plane("/device:TPU:0", [Line("XLA Ops", events)], entries, stats)
        return answer(encode(Space([plane])), "comm")

    def test_order_is_the_traces_and_time_the_devices(self) -> None:
        """By the trace's clock the end stands where its begin does, and lasts longer."""
        said = self.timed((0, 100, 2), (0, 130, 20), (0, 110, 5))
        (only,) = said["rows"]
        self.assertEqual((only["in_flight_ps"], only["wait_dur_ps"]), (50, 20))
        self.assertEqual(only["covered_ps"], 5)

    def test_where_the_clocks_contradict_nothing_is_covered(self) -> None:
        said = self.timed((0, 200, 2), (10, 100, 20), (5, 130, 50))
        (only,) = said["rows"]
        self.assertEqual(only["pairs"]["paired"], 1)
        for name in ("in_flight_ps", "in_flight_union_ps", "covered_ps", "other_ps"):
            self.assertEqual(only[name], 0, name)
        self.assertIsNone(only["bus_gbps"])
        self.assertEqual([note for note in said["notes"] if "clocks" in note], [CONTRADICTION])
        self.assertEqual(said["totals"]["in_flight_union_ps"], 0)
        self.assertEqual(said["totals"]["hidden_union_ps"], 0)

    def test_a_wait_that_began_before_its_start_is_all_there_is_of_a_flight(self) -> None:
        said = self.timed((0, 110, 2), (10, 100, 20), (5, 130, 50))
        (only,) = said["rows"]
        self.assertEqual((only["in_flight_ps"], only["in_flight_union_ps"]), (10, 10))
        self.assertEqual((only["covered_ps"], only["other_ps"]), (0, 0))
        self.assertNotIn(CONTRADICTION, said["notes"])

    def test_what_the_file_says_first_counts_nothing_but_at_one_instant(self) -> None:
        ops = [self.end(30), self.end(50), self.begin(10), self.begin(0)]
        self.assertEqual(row(ops)["in_flight_ps"], 35 + 45)


class Time(unittest.TestCase):
    NAME = "all-gather-start.5"

    def test_in_flight_is_waited_for_covered_or_other(self) -> None:
        ops = [
            start(self.NAME, 0, 1),
            math(10, 20),
            op("copy.1", "copy", 25, 10),  # overlaps; counts once
            op("copy-done.1", "copy-done", 40, 10),  # another wait hides nothing
            op("all-reduce.1", "all-reduce", 50, 10),  # nor does other communication
            done(self.NAME, 70, 30),
        ]
        said = {each["collective"]: each for each in rows(ops)}["all-gather"]
        self.assertEqual(said["in_flight_ps"], 100)
        self.assertEqual((said["wait_dur_ps"], said["sync_dur_ps"]), (30, 0))
        self.assertEqual((said["covered_ps"], said["other_ps"]), (25, 45))
        self.assertEqual(said["pct_of_step"], 3)

    def test_only_what_lies_before_the_wait_covers(self) -> None:
        ops = [start(self.NAME, 10), math(0, 15), math(50, 100, name="f"), done(self.NAME, 60, 10)]
        self.assertEqual(row(ops)["covered_ps"], 5 + 10)

    def test_it_is_not_cut_to_the_step(self) -> None:
        ops = [start(self.NAME, 900), done(self.NAME, 990, 100)]
        said = answer(file_of(ops), "comm")
        self.assertEqual(said["rows"][0]["in_flight_ps"], 190)
        self.assertEqual(said["totals"]["in_flight_union_ps"], 190)

    def test_what_is_not_paired_is_unknown_and_synchronous_ones_dont_fly(self) -> None:
        for ops in ([done(self.NAME, 60, 10)], [op("all-reduce.1", "all-reduce", 50, 10)]):
            said = row(ops)
            for name in ("in_flight_ps", "in_flight_union_ps", "covered_ps", "other_ps"):
                self.assertIsNone(said[name], name)
        self.assertIsNone(said["pairs"])

    def test_unions(self) -> None:
        host = "f32[8]{0:S(5)}"
        ops = [
            start("all-gather-start.1", 0),
            start("collective-permute-start.2", 50),
            start("copy-start.3", 200, shape=f"({host}, {host})"),
            math(20, 60),
            done("all-gather-start.1", 90, 10),
            math(105, 5),
            done("collective-permute-start.2", 110, 10),
            math(205, 10),
            done("copy-start.3", 220, 10, shape=host),
        ]
        totals = answer(file_of(ops), "comm")["totals"]
        self.assertEqual(totals["in_flight_union_ps"], 120)
        self.assertEqual(totals["hidden_union_ps"], 60 + 5)
        self.assertEqual(totals["host_in_flight_union_ps"], 30)
        self.assertEqual(totals["host_hidden_union_ps"], 10)
        self.assertEqual((totals["exposed_ps"], totals["host_ps"]), (20, 10))
        self.assertEqual(totals["exposed_pct_of_step"], 2)

    def test_unions_are_those_of_every_single_picosecond(self) -> None:
        rng = random.Random(5)
        for _ in range(30):
            ops, under_way, hidden = [], set[int](), set[int]()
            for i in range(rng.randrange(1, 6)):
                name = f"all-gather-start.{i}"
                begin, wait = sorted(rng.sample(range(200), 2))
                ops += [start(name, begin), done(name, wait, rng.randrange(30))]
                under_way |= set(range(begin, wait + ops[-1].dur))
            for i in range(rng.randrange(8)):
                ops.append(math(rng.randrange(200), rng.randrange(40), name=f"f.{i}"))
                hidden |= set(range(ops[-1].start, ops[-1].start + ops[-1].dur))
            rng.shuffle(ops)
            totals = answer(file_of(ops), "comm", "--top", "0")["totals"]
            self.assertEqual(totals["in_flight_union_ps"], len(under_way))
            self.assertEqual(totals["hidden_union_ps"], len(under_way & hidden))


PAIRS_OF_TWO = ", channel_id=1, replica_groups={{0,1},{2,3}}"
OF_FOUR = ", channel_id=1, replica_groups=[2,4]<=[8], use_global_device_ids=true"


class Payload(unittest.TestCase):
    def test_of_what_runs_on_the_core(self) -> None:
        """8 · 128 elements go in, and 32 · 128 come out, or the other way round; n is 4."""
        small, large = 8 * 128 * 2, 32 * 128 * 2
        shapes = "bf16[8,128]{1,0}", "bf16[32,128]{1,0}"
        for name, (into, out), payload, bus in (
            ("all-gather", shapes, large, large * 3 // 4),
            ("reduce-scatter", shapes[::-1], large, large * 3 // 4),
            ("all-reduce", shapes[:1] * 2, small, small * 2 * 3 // 4),
            ("all-to-all", shapes[:1] * 2, small, small * 3 // 4),
            ("collective-broadcast", shapes[:1] * 2, small, small),
            ("collective-permute", shapes[:1] * 2, small, None),
            ("ragged-all-to-all", shapes[:1] * 2, None, None),
        ):
            each = op(f"{name}.1", name, 0, 1000, shape=out, operands=f"{into} %x",
                      attributes=OF_FOUR)  # fmt: skip
            said = row([each, op(each.text[1:].split()[0], name, 0, 1000, text=each.text)])
            self.assertEqual(said["n_executions"], 2)
            for figure, of_one in (("payload_bytes", payload), ("bus_bytes", bus)):
                self.assertEqual(said[figure], None if of_one is None else 2 * of_one, name)
            gbps = None if bus is None else round(2 * bus / 2000 * 1000, 3)
            self.assertEqual((said["bus_gbps"], said["bus_gbps_over"]), (gbps, "duration"))

    def test_operands_and_results_are_added_up(self) -> None:
        both = "(f32[4]{0}, /*index=1*/s8[6]{0}, token[])"
        said = row([op("a", "all-reduce", 0, 1, shape=both, operands="f32[4] %a, s8[6] %b")])
        self.assertEqual(said["payload_bytes"], 16 + 6)

    def test_narrow_elements_are_packed(self) -> None:
        for shape, size in (
            *(("s4[5]", 3), ("pred[5]", 5), ("s2[4]", 1), ("f8e4m3fn[3]", 3), ("f4e2m1fn[2]", 1)),
            *(("c64[2]", 16), ("f32[]", 4), ("f32[0]", 0), ("f32[<=8]", None), ("odd[2]", None)),
            *(("s8[9223372036854775807]", 2**63 - 1), ("s8[9223372036854775808]", None)),
        ):
            said = row([op("a", "all-reduce", 0, 1, shape=shape)])
            self.assertEqual(said["payload_bytes"], size, shape)

    def test_of_a_pair_the_start_takes_and_the_end_gives(self) -> None:
        small, large = "f32[8]{0}", "f32[32]{0}"
        name = "all-gather-start.1"
        ops = [
            start(name, 0, shape=f"({small}, {large})", operands=f"{small} %x"),
            done(name, 90, 10, shape=large, operands=f"({small}, {large}) %{name}"),
        ]
        said = row(ops)
        self.assertEqual((said["payload_bytes"], said["group_size"]), (128, 4))
        self.assertEqual((said["groups"], said["groups_from"]), (None, "shapes"))
        self.assertEqual((said["bus_gbps"], said["bus_gbps_over"]), (960, "in_flight_union"))

    def sparse(self, name: str, into: str, out: str) -> list[Op]:
        flags = "(s32[8192]{0}, s32[69]{0:S(11)})"
        return [
            op(f"{name}.1.call-start", "async-start", 0, 1, shape=f"((), (), {flags})",
               operands="", attributes=', async_execution_thread="sparsecore", calls=%c'),
            op(f"{name}.1.call-done", "async-done", 90, 10, shape=out,
               operands=f"(({into}), {out}, {flags}) %{name}.1.call-update"),
        ]  # fmt: skip

    def test_what_is_handed_to_a_sparse_core_is_with_its_end(self) -> None:
        small, large = "f32[8]{0}", "f32[32]{0}"
        for name, into, out, payload, n in (
            ("all-gather", small, large, 128, 4),
            ("reduce-scatter", large, small, 128, 4),
            ("all-reduce", small, small, 32, None),
            ("all-to-all", small, small, 32, None),
            ("reduce-scatter", "f32[20]{0}", small, 80, None),
        ):
            said = row(self.sparse(name, into, out))
            self.assertEqual((said["payload_bytes"], said["group_size"]), (payload, n), name)
            self.assertEqual(said["groups_from"], n and "shapes")
            self.assertEqual(said["engine"], "sparse_core")
            self.assertEqual(said["pairs"]["paired"], 1)

    def test_casts_make_no_other_number_of_members(self) -> None:
        for name, into, out, n in (
            ("reduce-scatter", "bf16[64]{0}", "f32[8]{0}", 8),
            ("reduce-scatter", "f32[64]{0}", "bf16[8]{0}", 8),
            ("reduce-scatter", "f32[12]{0}", "bf16[8]{0}", None),
            ("all-gather", "f32[4]{0}", "bf16[16]{0}", 4),
            # Of few narrow elements the bytes aren't even proportional.
            ("all-gather", "s4[1]{0}", "s4[4]{0}", 4),
            ("all-gather", "f32[0]{0}", "f32[4]{0}", None),
            ("reduce-scatter", "f32[0]{0}", "f32[4]{0}", None),
        ):
            said = row(self.sparse(name, into, out))
            self.assertEqual((said["group_size"], said["groups_from"]), (n, n and "shapes"), out)
        fused = op("fusion.1", "all-reduce-scatter fusion", 0, 10, shape="bf16[32]{0}",
                   operands="f32[64]{0} %x")  # fmt: skip
        self.assertEqual(row([fused])["group_size"], 2)

    def test_only_what_is_paired_has_a_rate(self) -> None:
        name = "all-gather-start.1"
        ends = [done(name, at, 10, attributes=OF_FOUR) for at in (20, 90)]
        said = row([start(name, 40), *ends])
        self.assertEqual(said["payload_bytes"], 2 * 4096)
        self.assertEqual(said["bus_gbps"], 4096 * 3 / 4 * 1000 / 60)
        self.assertIsNone(row(ends)["bus_gbps"])

    def test_flights_that_overlap_take_their_time_once(self) -> None:
        ops = [
            start("all-gather-start.1", 0),
            start("all-gather-start.2", 10),
            done("all-gather-start.1", 35, 5, attributes=OF_FOUR),
            done("all-gather-start.2", 40, 10, attributes=OF_FOUR),
            # And one by itself.
            start("all-gather-start.3", 70),
            done("all-gather-start.3", 75, 5, attributes=OF_FOUR),
        ]
        said = row(ops)
        self.assertEqual((said["in_flight_ps"], said["in_flight_union_ps"]), (40 + 40 + 10, 60))
        self.assertEqual(said["bus_gbps"], 3 * 4096 * 3 / 4 * 1000 / 60)

    def test_a_row_of_which_one_is_unknown_is_unknown(self) -> None:
        ops = [
            op("all-reduce.1", "all-reduce", 0, 10, shape="f32[8]"),
            op("all-reduce.2", "all-reduce", 10, 10, shape="f32[<=8]"),
        ]
        said = answer(file_of(ops), "comm")
        self.assertIsNone(said["rows"][0]["payload_bytes"])
        self.assertIsNone(said["totals"]["by_collective"]["all-reduce"]["payload_bytes"])

    def test_the_bound_of_a_dynamic_size_is_none_in_a_program_either(self) -> None:
        for dynamic, size in ((False, 32), (True, None)):
            shape = hlo_proto.Shape("f32", (8,), dynamic=(dynamic,))
            program: Program = {
                "main": [
                    hlo_proto.op("x", "parameter", shape=shape),
                    hlo_proto.op("all-reduce.1", "all-reduce", "x", shape=shape),
                ]
            }
            text = "f32[<=8]" if dynamic else "f32[8]"
            said = row([op("all-reduce.1", "all-reduce", 0, 10, shape=text)], program)
            self.assertEqual(said["payload_bytes"], size)

    def test_of_a_sum_that_widens_the_narrower_side_counts(self) -> None:
        narrow, wide = "bf16[8]{0}", "f32[8]{0}"
        for operand, result in ((narrow, wide), (wide, narrow)):
            said = row([op("all-reduce.1", "all-reduce", 0, 10, shape=result,
                           operands=f"{operand} %x", attributes=OF_FOUR)])  # fmt: skip
            self.assertEqual((said["payload_bytes"], said["bus_bytes"]), (16, 24))
            for name in ("all-to-all", "collective-permute", "collective-broadcast"):
                said = row([op("a", name, 0, 1, shape=result, operands=f"{operand} %x")])
                self.assertEqual(said["payload_bytes"], 16, name)

    def test_what_a_fusion_moves_of_what_it_changes_is_not_known(self) -> None:
        for name, operand, result, payload in (
            ("all-reduce", "f32[8]{0}", "f32[8]{0}", 32),
            ("all-reduce", "f32[8,16]{1,0}", "f32[16]{0}", None),
            ("all-reduce", "f32[8]{0}", "bf16[8]{0}", None),
            ("all-gather", "f32[4]{0}", "f32[8]{0}", 32),
            ("all-gather", "f32[4]{0}", "bf16[8]{0}", None),
            ("all-reduce-scatter", "f32[8]{0}", "f32[4]{0}", 32),
            ("all-reduce-scatter", "f32[8]{0}", "bf16[4]{0}", None),
        ):
            said = row([op("fusion.1", f"{name} fusion", 0, 10, shape=result,
                           operands=f"{operand} %x")])  # fmt: skip
            self.assertEqual(said["payload_bytes"], payload, (name, operand, result))

    def test_fractions_are_rounded_once(self) -> None:
        groups = ", replica_groups={{0,1,2}}"
        ops = [op("all-to-all.1", "all-to-all", at, 1, shape="s8[1]", attributes=groups)
               for at in (0, 10, 20)]  # fmt: skip
        said = row(ops)
        self.assertEqual((said["bus_bytes"], said["bus_gbps"]), (2, 666.667))
        self.assertEqual(row(ops[:1])["bus_bytes"], 1)

    def test_alone_in_a_group_none_is_sent(self) -> None:
        alone = ", replica_groups={{0},{1}}"
        said = row([op("a", "all-reduce", 0, 10, attributes=alone)])
        self.assertEqual((said["group_size"], said["bus_bytes"], said["bus_gbps"]), (1, 0, 0))
        self.assertEqual(said["groups"], "2 x 1")

    def test_nothing_is_divided_by_no_time(self) -> None:
        said = row([op("a", "all-reduce", 0, 0, attributes=OF_FOUR)])
        self.assertEqual((said["bus_gbps"], said["bus_gbps_over"]), (None, "duration"))

    def test_copies_of_the_host(self) -> None:
        host, here = "f32[8]{0:S(5)}", "f32[8]{0}"
        for shape, other, name in ((host, here, "to_host"), (here, host, "from_host")):
            ops = [
                start("copy-start.1", 0, shape=f"({shape}, {other}, u32[])", operands=other),
                done("copy-start.1", 10, 6, shape=shape,
                     operands=f"({shape}, {other}, u32[]) %copy-start.1"),
            ]  # fmt: skip
            said = row(ops)
            self.assertEqual((said["collective"], said["mode"]), (name, "async"))
            self.assertEqual((said["payload_bytes"], said["bus_bytes"]), (32, 32))
            self.assertEqual((said["group_size"], said["groups"], said["bus_gbps"]),
                             (None, None, 2000))  # fmt: skip

    def test_into_a_buffer_of_the_host_only_the_update_is_copied(self) -> None:
        host, piece = "f32[800]{0:S(5)}", "f32[8]{0}"
        name = "dynamic-update-slice-start.1"
        whole = f"(({host}, {piece}, s32[]), {host}, u32[])"
        end = op("dynamic-update-slice-done.1", "async-done", 10, 6, shape=host,
                 operands=f"{whole} %{name}")  # fmt: skip
        begin = start(name, 0, category="async-start", shape=whole,
                      operands=f"{host} %a, {piece} %b, s32[] %c")  # fmt: skip
        for ops in ([begin, end], [end]):
            said = row(ops)
            self.assertEqual((said["collective"], said["payload_bytes"]), ("to_host", 32))

    def test_a_collective_may_be_called_like_what_it_is_fused_with(self) -> None:
        said = row([op("dynamic-update-slice_fusion.1", "all-gather fusion", 0, 10,
                       shape="f32[64]{0}", operands="f32[64]{0} %buf, f32[16]{0} %a",
                       attributes=OF_FOUR)])  # fmt: skip
        self.assertEqual((said["payload_bytes"], said["bus_bytes"]), (256, 192))

    def test_in_place_of_a_permute_what_moves_is_unknown(self) -> None:
        """Slices of what goes in are written into what else goes in."""
        sent, into, at = "f32[64]{0}", "f32[128]{0}", "(s32[], s32[])"
        name, sizes = "collective-permute-start.1", ", slice_sizes={{4},{4}}"
        whole = f"({sent}, {into}, {at}, {at})"
        shapes = [array("f32", 64), array("f32", 128), *[tuple_of(array("s32"), array("s32"))] * 2]
        program: Program = {
            "main": [
                *(hlo_proto.op(f"p.{i}", "parameter", shape=each) for i, each in enumerate(shapes)),
                hlo_proto.op(name, "collective-permute-start", "p.0", "p.1", "p.2", "p.3"),
                hlo_proto.op("collective-permute-done.1", "collective-permute-done", name,
                             shape=array("f32", 128)),
            ]
        }  # fmt: skip
        shown = f"{sent} %in, {into} %out, {at} %from, {at} %to"
        bare = "%p.0, %p.1, %p.2, %p.3"
        for operands, more, of in (
            (shown, "", None),
            (shown, sizes, program),
            (bare, sizes, None),
            (bare, "", program),
        ):
            for shape in (into, "()"):
                begin = start(name, 0, shape=whole, operands=operands, attributes=more)
                ops = [begin, done(name, 10, 5, shape=shape, operands=f"{whole} %{name}")]
                self.assertIsNone(row(ops, of)["payload_bytes"], (operands, more))
        alone = op("a", "collective-permute", 0, 1, shape=into, operands=shown)
        self.assertIsNone(row([alone])["payload_bytes"])
        # One that is sent is all, even where nobody says what came.
        alone = op("a", "collective-permute", 0, 1, shape="()", operands=f"{sent} %a")
        self.assertEqual(row([alone])["payload_bytes"], 256)
        # Several arrays may go to one place at once.
        both = f"({sent}, {into})"
        together = op("a", "collective-permute", 0, 1, shape=both, operands=f"{sent} %a, {into} %b")
        self.assertEqual(row([together])["payload_bytes"], 768)

    def test_other_transfers_of_the_host(self) -> None:
        for category in ("infeed", "outfeed", "host send", "host recv-done"):
            said = row([op("a", category, 0, 10)])
            self.assertEqual((said["collective"], said["payload_bytes"]), ("host", None))

    def test_what_is_sent_and_received(self) -> None:
        data, token = "f32[8]{0}", "token[]"
        half = f"({data}, u32[], {token})"
        ops = [
            op("send.1", "send", 0, 1, shape=half, operands=f"{data} %x, {token} %t"),
            op("recv.1", "recv", 1, 1, shape=half, operands=f"{token} %t"),
            done("send.1", 10, 5, category="send-done", name="send-done.1", shape=token,
                 operands=f"{half} %send.1"),
            done("recv.1", 20, 5, category="recv-done", name="recv-done.1",
                 shape=f"({data}, {token})", operands=f"{half} %recv.1"),
        ]  # fmt: skip
        found = {(each["collective"], each["mode"]): each for each in rows(ops)}
        self.assertEqual(
            {key: each["payload_bytes"] for key, each in found.items()},
            {("send", "sync"): 32, ("recv", "sync"): None, ("send", "async"): 32,
             ("recv", "async"): 32},
        )  # fmt: skip
        self.assertEqual({each["bus_bytes"] for each in found.values()}, {None})
        self.assertEqual(found["recv", "async"]["pairs"]["paired"], 1)
        # Both halves are one transfer.
        by_collective = answer(file_of(ops), "comm")["totals"]["by_collective"]
        for name in ("send", "recv"):
            of_both = by_collective[name]
            self.assertEqual((of_both["n_executions"], of_both["payload_bytes"]), (2, 32))

    def test_half_a_transfer_counts_where_the_other_is_not_to_be_seen(self) -> None:
        data, token = "f32[8]{0}", "token[]"
        half = f"({data}, u32[], {token})"
        send = [
            op(f"send.{i}", "send", i, 1, shape=half, operands=f"{data} %x, {token} %t")
            for i in (1, 2, 3)
        ]
        end = done("send.1", 10, 5, category="send-done", name="send-done.1", shape=token)
        other = done("send.2", 20, 5, category="recv-done", name="recv-done.2", shape=data)
        said = answer(file_of([*send, end, other]), "comm")["totals"]["by_collective"]
        self.assertEqual(said["send"]["payload_bytes"], 3 * 32)


class Vocabulary(unittest.TestCase):
    def test_all_know_the_same_collectives(self) -> None:
        known = set(vocabulary.COLLECTIVES)
        self.assertEqual(known, COLLECTIVES | {"send", "recv"})
        copies = {TO_HOST, FROM_HOST}
        # Of one only its run knows what is moved.
        self.assertEqual(exchanges._PAYLOADS.keys(), known - {"ragged-all-to-all"} | copies)


class Groups(unittest.TestCase):
    def of(self, written: str, **more: Any) -> tuple[Any, ...]:
        attributes = f", channel_id=3, replica_groups={written}, dimensions={{0}}"
        said = row([op("all-to-all.1", "all-to-all", 0, 10, attributes=attributes)], **more)
        return said["group_size"], said["groups"], said["groups_from"]

    def test_every_way_to_write_them(self) -> None:
        for written, size, label in (
            ("{{0,1},{2,3}}", 2, "2 x 2, stride 1"),
            ("{{3,2},{1,0}}", 2, "2 x 2, stride 1"),
            ("{{0,2},{1,3}}", 2, "2 x 2, stride 2"),
            ("[4,2]<=[8]", 2, "4 x 2, stride 1"),
            ("[4,2]<=[2,4]T(1,0)", 2, "4 x 2, stride 4"),
            ("[2,4]<=[4,2]T(1,0)", 4, "2 x 4, stride 2"),
            ("[4,2]<=[2,2,2]T(0,2,1)", 2, "4 x 2, stride 2"),
            ("mesh['axis_0'=4,'axis_1'=2] {'axis_0'}", 4, "2 x 4, stride 2"),
            ("mesh['axis_0'=4,'axis_1'=2] {'axis_1'}", 2, "4 x 2, stride 1"),
            ("mesh['axis_0'=4,'axis_1'=2] {'axis_0':(2)2}", 2, "4 x 2, stride 2"),
            ("mesh['axis_0'=4,'axis_1'=2] {'axis_0':(1)2}", 2, "4 x 2, stride 4"),
            ("mesh['axis_0'=4,'axis_1'=2] {'axis_1','axis_0'}", 8, "1 x 8, stride 1"),
            ("{{0},{1},{2}}", 1, "3 x 1"),
            ("{{0,3},{1,2}}", 2, "{0,3},{1,2}"),
            ("{{4,5},{6,7}}", 2, "{4,5},{6,7}"),
            ("{{0,1,2},{3}}", None, "{0,1,2},{3}"),
            ("[9,2]<=[3,2,3]T(2,0,1)", 2, "9 x 2, stride 3"),
            ("[9,2]<=[2,3,3]T(1,0,2)", 2,
             "{0,1},{2,9},{3,4},{5,12},{6,7},{8,15},{10,11},{13,14},…"),
            # No more than a label shows.
            ("{{0,16},{1,9},{2,10},{3,11},{4,12},{5,13},{6,14},{7,15}}", 2,
             "{0,16},{1,9},{2,10},{3,11},{4,12},{5,13},{6,14},{7,15}"),
            ("[1,70]<=[70]", 70, "1 x 70, stride 1"),
        ):  # fmt: skip
            with self.subTest(written=written):
                self.assertEqual(self.of(written), (size, label, "text"))

    def test_equal_sets_share_a_row(self) -> None:
        ways = ("[2,4]<=[4,2]T(1,0)", "mesh['axis_0'=4,'axis_1'=2] {'axis_0'}",
                "{{1,3,5,7},{0,2,4,6}}")  # fmt: skip
        ops = [
            op(f"all-reduce.{i}", "all-reduce", 10 * i, 10, attributes=f", replica_groups={way}")
            for i, way in enumerate(ways)
        ]
        self.assertEqual(row(ops)["n_executions"], 3)
        # Others of that size don't.
        ops.append(op("a", "all-reduce", 40, 10, attributes=", replica_groups=[2,4]<=[8]"))
        said = [(each["n_executions"], each["groups"]) for each in rows(ops)]
        self.assertEqual(said, [(3, "2 x 4, stride 2"), (1, "2 x 4, stride 1")])

    def test_what_contradicts_itself_or_is_cut_says_nothing(self) -> None:
        for written in (
            *("{{0,1},{1,2}}", "{{0,0}}", "{{}}", "{{0,1}", "{{0,1},{2", "[3,2]<=[8]", "[4,2]<="),
            *("[4,2]<=[2,4]T(0,0)", "[4,2]<=[2,4]T(1,0,2)", "[2,4]<=[2,4]T(1", "[0,8]<=[8]"),
            *("mesh['a'=2] {'b'}", "mesh['a'=2,'a'=2] {'a'}", "mesh['a'=4] {'a':(3)2}"),
            *("mesh['a'=4]", "[1,200000]<=[200000]", "{{99999999999999999999,1}}", "all"),
            "[1,1]<=[" + ",".join(["999999999"] * 50) + "]",
        ):
            with self.subTest(written=written):
                self.assertEqual(self.of(written), (None, None, None))

    def test_many_members_are_listed_in_part(self) -> None:
        members = ",".join(map(str, [*range(69), 70]))
        size, label, _ = self.of("{{" + members + "}}")
        self.assertEqual((size, label), (70, "{" + ",".join(map(str, range(64))) + ",…}"))
        all_of_them = "{" + ",".join(map(str, [*range(63), 64])) + "}"
        self.assertEqual(self.of(f"{{{all_of_them}}}"), (64, all_of_them, "text"))

    def test_what_only_the_labels_have_in_common_is_two(self) -> None:
        """In order of appearance, where nothing else tells them apart."""
        for program in (False, True):
            rest = [[[20, 21], [22]], [[20], [21, 22]], [[22], [20, 21]]]
            groups = [[*([i] for i in range(10)), *more] for more in rest]
            ops, main = [], []
            for i, each in enumerate(groups):
                written = ",".join("{" + ",".join(map(str, group)) + "}" for group in each)
                attributes = "" if program else f", replica_groups={{{written}}}"
                ops.append(op(f"all-reduce.{i}", "all-reduce", 30 * i, 20 if i == 1 else 10,
                              attributes=attributes))  # fmt: skip
                main.append(hlo_proto.op(f"all-reduce.{i}", "all-reduce",
                                         extra=hlo_proto.listed_groups(*each)))  # fmt: skip
            said = rows(ops, {"main": main} if program else None)
            self.assertEqual([each["n_executions"] for each in said], [2, 1])
            self.assertEqual(len({each["groups"] for each in said}), 1)

    def test_all_devices_are_those_of_the_program(self) -> None:
        self.assertEqual(self.of("{}"), (None, None, None))
        program: Program = {"main": [hlo_proto.op("x", "add")]}
        self.assertEqual(
            self.of("{}", program=program, devices=(1, 16)), (16, "1 x 16, stride 1", "text")
        )
        self.assertEqual(self.of("{}", program=program, devices=(1, 1)), (1, "1 x 1", "text"))

    def test_a_starts_text_counts_behind_the_ends_own(self) -> None:
        name = "all-gather-start.1"
        begin = start(name, 0, attributes=", replica_groups=[4,2]<=[8]")
        self.assertEqual(row([begin, done(name, 10, 5)])["groups"], "4 x 2, stride 1")
        both = [begin, done(name, 10, 5, attributes=", replica_groups=[2,4]<=[8]")]
        self.assertEqual(row(both)["groups"], "2 x 4, stride 1")
        # What isn't waited for has none, whatever it takes.
        said = rows([begin, op("a", "all-reduce", 10, 5, operands=f"f32[8]{{0}} %{name}")])
        self.assertEqual([each["groups"] for each in said], [None])

    def test_pairs_of_a_permute(self) -> None:
        name = "collective-permute-start.1"
        written = ", channel_id=1, source_target_pairs={{0,0},{2,2},{4,1},{1,4}}"
        said = row([start(name, 0, attributes=written), done(name, 10, 5)])
        self.assertEqual(
            (said["group_size"], said["groups"], said["groups_from"]),
            (None, "4 pairs, 2 to self", "text"),
        )

    def test_equal_pairs_are_one(self) -> None:
        written = ", source_target_pairs={{0,1},{1,0},{0,1}}"
        said = row([op("a", "collective-permute", 0, 10, attributes=written)])
        self.assertEqual(said["groups"], "2 pairs, 0 to self")

    def program(self, extra: bytes, **more: Any) -> Program:
        return {
            "called": [
                hlo_proto.op("p", "parameter", shape=array("f32", 8)),
                hlo_proto.op("all-to-all.9", "all-to-all", "p", shape=array("f32", 8), extra=extra),
            ],
            "main": [
                hlo_proto.op("a.call-start", "async-start", calls=["called"], **more),
                hlo_proto.op("a.call-done", "async-done", "a.call-start"),
            ],
        }

    def test_of_the_program(self) -> None:
        ops = [
            op("a.call-start", "async-start", 0, 1, shape="((), (), ())", operands=""),
            op("a.call-done", "async-done", 10, 5, shape="()", operands="() %a.call-start"),
        ]
        extra = hlo_proto.listed_groups((0, 2), (1, 3))
        said = row(ops, self.program(extra))
        self.assertEqual(said["collective"], "all-to-all")
        self.assertEqual(
            (said["group_size"], said["groups"], said["groups_from"]),
            (2, "2 x 2, stride 2", "program"),
        )
        self.assertEqual((said["payload_bytes"], said["bus_bytes"]), (32, 16))
        self.assertEqual(said["engine"], "core")
        self.assertEqual(row(ops, self.program(extra, thread="sparsecore"))["engine"],
                         "sparse_core")  # fmt: skip
        # All devices, and nobody says how many.
        said = row(ops, self.program(b""))
        self.assertEqual((said["group_size"], said["groups_from"]), (None, None))
        self.assertEqual(row(ops, self.program(b""), devices=(2, 3))["groups"], "1 x 6, stride 1")
        # Without the program nobody says what it is.
        self.assertEqual(row(ops)["collective"], "collective")
        self.assertIsNone(row(ops)["payload_bytes"])
        gathered = self.program(extra)
        gathered["called"][1] = hlo_proto.op("x", "all-gather", "p", shape=array("f32", 16))
        self.assertEqual(row(ops, gathered)["payload_bytes"], 64)
        # What the text has of sizes counts before it.
        ops[1] = op(
            "a.call-done", "async-done", 10, 5, shape="f32[32]", operands="() %a.call-start"
        )
        self.assertEqual(row(ops, gathered)["payload_bytes"], 128)

    def test_what_the_program_says_of_another_collective_is_not_taken(self) -> None:
        ops = [op("a.call-done", "all-gather-done", 10, 5, shape="f32[8]{0}", operands="() %x")]
        program = self.program(hlo_proto.listed_groups((0, 2), (1, 3)))
        for opcode in ("all-to-all", "all-reduce"):
            program["called"][1].instruction.opcode = opcode
            said = row(ops, program)
            self.assertEqual((said["collective"], said["groups"]), ("all-gather", None))

    def test_a_scatter_may_be_a_sum_of_which_a_part_is_taken(self) -> None:
        program: Program = {
            "body": [
                hlo_proto.op("p", "parameter", shape=array("bf16", 64)),
                hlo_proto.op("all-reduce.9", "all-reduce", "p", shape=array("bf16", 64),
                             extra=hlo_proto.listed_groups((0, 1), (2, 3))),
                hlo_proto.op("slice", "dynamic-slice", "all-reduce.9"),
            ],
            "main": [hlo_proto.op("fusion.1", "fusion", calls=["body"])],
        }  # fmt: skip
        fused = op("fusion.1", "all-reduce-scatter fusion", 0, 10, shape="bf16[32]{0}",
                   operands="f32[64]{0} %x, s32[] %i")  # fmt: skip
        said = row([fused], program)
        self.assertEqual((said["collective"], said["mode"]), ("reduce-scatter", "sync"))
        self.assertEqual((said["payload_bytes"], said["bus_bytes"]), (128, 64))
        self.assertEqual((said["groups"], said["groups_from"]), ("2 x 2, stride 1", "program"))
        self.assertIsNone(row([fused])["payload_bytes"])
        # A fusion's operand may be of another dtype than what is scattered.
        fused = op("fusion.1", "all-reduce-scatter fusion", 0, 10, shape="bf16[32]{0}",
                   operands="f32[64]{0} %x")  # fmt: skip
        self.assertEqual(row([fused], program)["payload_bytes"], 128)
        # What comes out is the part, whatever the sum inside gives.
        program["body"][1].instruction.extra = hlo_proto.listed_groups((0, 1), (1, 2))
        said = row([fused], program)
        self.assertEqual((said["group_size"], said["groups_from"]), (2, "shapes"))

    def test_of_a_sum_within_a_fusion_the_program_tells_what_it_widens(self) -> None:
        program: Program = {
            "body": [
                hlo_proto.op("p", "parameter", shape=array("bf16", 8)),
                hlo_proto.op("all-reduce.9", "all-reduce", "p", shape=array("f32", 8)),
            ],
            "main": [hlo_proto.op("fusion.1", "fusion", calls=["body"])],
        }
        fused = op("fusion.1", "all-reduce fusion", 0, 10, shape="f32[8]{0}",
                   operands="bf16[8]{0} %x")  # fmt: skip
        self.assertEqual(row([fused], program)["payload_bytes"], 16)
        self.assertIsNone(row([fused])["payload_bytes"])

    def test_a_fusion_of_one_operand_tells_by_itself(self) -> None:
        said = row([op("fusion.1", "all-reduce-scatter fusion", 0, 10, shape="f32[32]{0}",
                       operands="f32[64]{0} %x")])  # fmt: skip
        self.assertEqual((said["payload_bytes"], said["group_size"], said["groups_from"]),
                         (256, 2, "shapes"))  # fmt: skip

    def test_of_an_asynchronous_fusion_the_program_has_only_pieces(self) -> None:
        piece = hlo_proto.op("all-gather.9", "all-gather", "p", shape=array("f32", 16),
                             extra=hlo_proto.listed_groups((0, 1, 2, 3)))  # fmt: skip
        program: Program = {
            "body": [hlo_proto.op("p", "parameter", shape=array("f32", 8)), piece],
            "main": [
                hlo_proto.op("async-collective-start.1", "fusion", calls=["body"]),
                hlo_proto.op("g", "get-tuple-element", "async-collective-start.1"),
                hlo_proto.op("async-collective-done.1", "fusion", "g"),
            ],
        }
        ops = [
            op("async-collective-start.1", "custom fusion", 0, 1, operands="f32[8]{0} %x"),
            op("async-collective-done.1", "custom fusion", 10, 5, shape="f32[32]{0}",
               operands="f32[32]{0} %g"),
        ]  # fmt: skip
        said = row(ops, program)
        self.assertEqual((said["collective"], said["payload_bytes"]), ("all-gather", 128))
        self.assertEqual((said["groups"], said["groups_from"]), ("1 x 4, stride 1", "program"))
        ops[1] = op("async-collective-done.1", "custom fusion", 10, 5,
                    shape="(f32[32]{0}, f32[4]{0})", operands="f32[32]{0} %g")  # fmt: skip
        self.assertIsNone(row(ops, program)["payload_bytes"])
        # Nor of what it casts besides.
        ops[1] = op("async-collective-done.1", "custom fusion", 10, 5, shape="bf16[32]{0}",
                    operands="f32[32]{0} %g")  # fmt: skip
        self.assertIsNone(row(ops, program)["payload_bytes"])


class Rows(unittest.TestCase):
    def ops(self) -> list[Op]:
        return [
            op("all-reduce.1", "all-reduce", 0, 10, stack="m.py:1:1"),
            op("all-reduce.2", "all-reduce", 10, 20, stack="m.py:2:1"),
            op("all-reduce.3", "all-reduce", 30, 20, attributes=PAIRS_OF_TWO, stack="m.py:2:1"),
            op("all-reduce-done.1", "all-reduce-done", 50, 5, stack="m.py:2:1"),
            op("all-gather-done.1", "async-done", 60, 5, tf_op=f"jit(f)/{'x' * 300}:",
               source="m.py:3"),
            op("slice-done.1", "async-done", 70, 100),
            op("gather_offload_done", "async-done", 170, 100),
        ]  # fmt: skip

    def test_a_row_is_a_collective_of_a_line_among_some(self) -> None:
        said = rows(self.ops())
        keys = ("collective", "mode", "source_inner", "groups", "sync_dur_ps", "wait_dur_ps")
        self.assertEqual(
            [tuple(each[key] for key in keys) for each in said],
            [
                ("all-reduce", "sync", "m.py:2", None, 20, 0),
                ("all-reduce", "sync", "m.py:2", "2 x 2, stride 1", 20, 0),
                ("all-reduce", "sync", "m.py:1", None, 10, 0),
                ("all-gather", "async", "m.py:3", None, 0, 5),
                ("all-reduce", "async", "m.py:2", None, 0, 5),
            ],
        )
        self.assertEqual({each["source_is"] for each in said}, {"own"})
        self.assertEqual(len(said[3]["tf_op"]), 201)

    def test_what_has_no_stack_is_split_by_line_and_all_by_the_size_of_groups(self) -> None:
        ops = [
            op("all-gather.1", "all-gather", 0, 9, shape="s8[4]", operands="s8[2] %a"),
            op("all-gather.2", "all-gather", 10, 8, shape="s8[8]", operands="s8[2] %a"),
            op("all-gather.3", "all-gather", 20, 7, shape="s8[8]", operands="s8[2] %a",
               source="m.py:1"),
            # Alone in its group, or among nobody knows how many.
            op("all-gather.4", "all-gather", 30, 6, shape="s8[8]", operands="s8[8] %a"),
            op("all-gather.5", "all-gather", 40, 5, shape="s8[8]", operands="%a"),
        ]  # fmt: skip
        said = [(each["source_inner"], each["group_size"]) for each in rows(ops)]
        self.assertEqual(said, [(None, 2), (None, 4), ("m.py:1", 4), (None, 1), (None, None)])

    def test_most_of_the_time_tells_how_a_line_is_known(self) -> None:
        program: Program = {
            "main": [
                hlo_proto.op("all-gather.1", "all-gather"),
                hlo_proto.op("used", "negate", "all-gather.1", line="m.py:1"),
                hlo_proto.op("all-gather.2", "all-gather", line="m.py:1"),
            ]
        }
        for first, second, how in ((5, 6, "own"), (6, 5, "consumer"), (5, 5, "consumer")):
            ops = [
                op("all-gather.1", "all-gather", 0, first),
                op("all-gather.2", "all-gather", 10, second),
            ]
            said = row(ops, program)
            self.assertEqual((said["source_inner"], said["source_is"]), ("m.py:1", how))
        # What has a stack has a line.
        said = row([op("all-gather.1", "all-gather", 0, 5, stack="n.py:7:1")], program)
        self.assertEqual((said["source_inner"], said["source_is"]), ("n.py:7", "own"))

    def test_a_row_is_described_by_its_first_execution(self) -> None:
        ops = [
            op(f"all-reduce.{i}", "all-reduce", 10 * i, i, stack="m.py:1:1", tf_op=f"f/{i}:")
            for i in (1, 2)
        ]
        self.assertEqual(row(ops)["tf_op"], "f/1:")
        self.assertEqual(row(ops[::-1])["tf_op"], "f/2:")
        self.assertRegex(row(ops)["agg_key"], "^stack:[0-9a-f]{16}$")

    def test_ties_go_by_the_keys_and_what_is_unknown_comes_first(self) -> None:
        stack = {"stack": "m.py:1:1"}
        listed = ", replica_groups={{0},{1,2}}"
        ops = [
            op("all-reduce-done.1", "all-reduce-done", 0, 1, **stack),
            op("all-gather.2", "all-gather", 20, 1, source="m.py:3"),
            op("all-gather.3", "all-gather", 30, 1),
            op("all-reduce.1", "all-reduce", 40, 1, attributes=OF_FOUR, **stack),
            op("all-reduce.2", "all-reduce", 50, 1, attributes=listed, **stack),
            op("all-reduce.3", "all-reduce", 60, 1, **stack),
            op("all-gather.4", "all-gather", 70, 1, shape="s8[4]", operands="s8[2] %a", **stack),
            op("all-gather.5", "all-gather", 80, 1, shape="s8[4]", operands="%a", **stack),
        ]
        self.assertEqual(
            [(each["collective"], each["mode"], each["source_inner"], each["groups"],
              each["group_size"]) for each in rows(ops)],
            [
                ("all-gather", "sync", None, None, 1),
                ("all-gather", "sync", "m.py:3", None, 1),
                ("all-gather", "sync", "m.py:1", None, None),
                ("all-gather", "sync", "m.py:1", None, 2),
                ("all-reduce", "async", "m.py:1", None, None),
                ("all-reduce", "sync", "m.py:1", None, None),
                ("all-reduce", "sync", "m.py:1", "2 x 4, stride 1", 4),
                ("all-reduce", "sync", "m.py:1", "{0},{1,2}", None),
            ],
        )  # fmt: skip

    def test_the_tail_is_what_is_left_out_and_totals_are_not(self) -> None:
        data = file_of(self.ops())
        whole = answer(data, "comm")
        for top in range(6):
            said = answer(data, "comm", "--top", str(top))
            self.assertEqual(said["rows"], whole["rows"][:top])
            self.assertEqual(said["totals"], whole["totals"])
            left_out = whole["rows"][top:]
            self.assertEqual(
                said["tail"],
                {
                    "n_rows_omitted": len(left_out),
                    "sync_dur_ps": sum(each["sync_dur_ps"] for each in left_out),
                    "wait_dur_ps": sum(each["wait_dur_ps"] for each in left_out),
                },
            )
        self.assertEqual(
            {name: (of["n_executions"], of["sync_dur_ps"], of["wait_dur_ps"])
             for name, of in whole["totals"]["by_collective"].items()},
            {"all-reduce": (4, 50, 5), "all-gather": (1, 0, 5)},
        )  # fmt: skip

    def test_twenty_unless_asked_for_more(self) -> None:
        ops = [op(f"all-reduce.{i}", "all-reduce", i, 1, stack=f"m.py:{i}:1") for i in range(25)]
        said = answer(file_of(ops), "comm")
        self.assertEqual((len(said["rows"]), said["tail"]["n_rows_omitted"]), (20, 5))

    def test_without_communication(self) -> None:
        said = answer(file_of([math(0, 10)]), "comm")
        self.assertEqual(said["rows"], [])
        self.assertEqual(
            {name: said["totals"][name] for name in ("exposed_ps", "host_ps", "by_collective",
                                                     "in_flight_union_ps", "hidden_union_ps")},
            {"exposed_ps": 0, "host_ps": 0, "by_collective": {}, "in_flight_union_ps": 0,
             "hidden_union_ps": 0},
        )  # fmt: skip


class Garbage(unittest.TestCase):
    def test_a_hundred_thousand_members(self) -> None:
        listed = "{" + ",".join(f"{{{2 * i},{2 * i + 1}}}" for i in range(50_000)) + "}"
        for written, label in (
            (listed, "50000 x 2, stride 1"),
            (listed[:-1], None),
            ("[50000,2]<=[2,50000]T(1,0)", "50000 x 2, stride 50000"),
        ):
            attributes = f", replica_groups={written}"
            with within(2):
                said = row([op("a", "all-reduce", 0, 10, attributes=attributes)])
            self.assertEqual(said["groups"], label)

    def assert_quick(self, extras: Sequence[bytes], seconds: float) -> list[Json]:
        """Of a program that has collectives with these fields, each called by several ops."""
        n = len(extras)
        called: Program = {
            f"called.{i}": [hlo_proto.op(f"all-reduce.{i}", "all-reduce", extra=extra)]
            for i, extra in enumerate(extras)
        }
        names = [f"fusion.{i}" for i in range(2000)]
        main = [hlo_proto.op(name, "fusion", calls=[f"called.{i % n}"])
                for i, name in enumerate(names)]  # fmt: skip
        ops = [op(name, "all-reduce fusion", i % 1000, 1) for i, name in enumerate(names)]
        data = file_of(ops, {**called, "main": main})
        with within(seconds):
            outcome = run(data, "comm", "--top", "100")
        found: list[Json] = outcome.object["rows"]
        return found

    def test_members_of_groups_in_a_program(self) -> None:
        """A long list is read once, however many ops share it."""
        one = range(1 << 17 if FULL else 1 << 14)
        (said,) = self.assert_quick([hlo_proto.listed_groups(*([i] for i in one))], 4)
        self.assertEqual((said["groups"], said["groups_from"]), (f"{len(one)} x 1", "program"))

    def test_a_long_text_that_many_wait_for(self) -> None:
        members = ",".join(f"{{{i},{i}}}" for i in range(30_000))
        long = ", ".join(["f32[8] %x"] * 30_000)
        for kind, attributes, operands in (
            ("collective-permute", f", source_target_pairs={{{members}}}", "f32[8] %x"),
            ("all-reduce", f", replica_groups={{{members}", "f32[8] %x"),
            ("all-to-all", "", long),
        ):
            name = f"{kind}-start.1"
            waits = [done(name, i, 1, name=f"{kind}-done.{i}") for i in range(500)]
            with within(3):
                rows([start(name, 0, attributes=attributes, operands=operands), *waits])

    def test_a_pod_is_known(self) -> None:
        """All ways of a mesh of ten thousand devices, and many ops."""
        dims = [16, 24, 24, 2]
        ways = [hlo_proto.mesh(dims, axes) for axes in ([0], [1], [2], [3], [0, 1], [0, 1, 2])]
        found = self.assert_quick(ways * 100, 4)
        self.assertEqual(len(found), len(ways))
        self.assertTrue(all(said["groups_from"] == "program" for said in found))

    def test_one_name_in_many_programs_and_many_times_in_one_op(self) -> None:
        n, name = 4000, "all-gather-start.1"
        others = [start(name, i, 1, program_id=i, text=f"%{name} = f32[{i}] c()") for i in range(n)]
        operands = ", ".join([f"%{name}"] * n)
        wait = done(name, 5000, 9, operands=operands, program_id=n)
        with within(3):
            said = rows([*others, wait], steps=[("s", 4500, 6000)])
        self.assertEqual([each["pairs"]["unpaired"] for each in said], [1])

    def test_programs_that_are_cut_anywhere(self) -> None:
        program = {
            "called": [
                hlo_proto.op("p", "parameter"),
                hlo_proto.op("all-gather.9", "all-gather", "p",
                             extra=hlo_proto.mesh((4, 2), ((0, 2, 2),))),
            ],
            "main": [
                hlo_proto.op("all-gather.1.call-start", "async-start", calls=["called"]),
                hlo_proto.op("all-gather.1.call-done", "async-done", "all-gather.1.call-start"),
            ],
        }  # fmt: skip
        hlo = hlo_proto.hlo_proto(program, devices=(1, 8))
        ops = [
            op("all-gather.1.call-start", "async-start", 0, 1),
            op("all-gather.1.call-done", "async-done", 10, 5, operands="() %u"),
        ]
        for each in ops:
            each.stats["program_id"] = PROGRAM_ID
        rng = random.Random(1)
        for size in sampled(range(1, len(hlo), 3), 20):
            data = bytearray(hlo[:size])
            if size % 2:
                data[rng.randrange(size)] = rng.randrange(256)
            planes = [tpu_plane(ops, [STEP]), metadata_plane({PROGRAM_ID: ("f", bytes(data))})]
            outcome = run(encode(Space(planes)), "comm")
            self.assertEqual(outcome.object["status"], "ok", size)

    def test_texts_that_are_cut_anywhere(self) -> None:
        for written in sampled(GROUPS, 3):
            text = (
                "%all-gather-done.1 = bf16[8,4]{1,0} all-gather-done(((bf16[2,4]), bf16[8,4])"
                f" %all-gather-update.1), replica_groups={written}, source_target_pairs={{{{0,1}}}}"
            )
            ops = [op("", "all-gather-done", i, 1, text=text[:i]) for i in range(len(text))]
            self.assertEqual(run(file_of(ops), "comm").object["status"], "ok")


# --- real captures -------------------------------------------------------------------------------


def waits_of(step: Step) -> dict[int, RealOp]:
    return {each.metadata_id: each.op for each in step.leaves if each.op.is_wait}


def flights_in(step: Step, clock: Clock) -> dict[str, list[Flight]]:
    """Those of all waits, whatever for, by their names."""
    starts = Starts(step)
    dones = {i: starts.of(wait)[0] for i, wait in waits_of(step).items()}
    begun = {each.metadata_id: each.op.place for each in step.leaves if each.op.begins}
    plane = step.device.plane
    modules, _ = read_steps(plane, "XLA Modules", step.device.base)
    borders = sorted(each.end for each in modules)
    flights = flights_of(step.admitted.pieces, clock, begun, dones, borders)
    return {wait.name: flights[i] for i, wait in waits_of(step).items()}


def steps_of(path: Any, *names: str) -> Iterator[Step]:
    """Each step of each device, or all of it where there are none."""
    for name in names:
        with open_trace(str(path)) as (trace,):
            context = context_of(str(path))
            device = open_device(str(path), trace, name, [], context)
            is_training = device.step_source == "steps"
            for picked in device.steps if is_training else [None]:
                yield normalize(device, picked, read_events(device, picked), context)


def events_in(
    step: Step,
) -> Iterator[tuple[RealOp, int, int]]:
    """All of them in the file's order, by the trace's clock."""
    for piece in step.admitted.pieces:
        for metadata_id, begin, end in zip(piece.metadata_ids, *piece.on_trace(), strict=True):
            yield step.executions[metadata_id].op, begin, end


@unittest.skipUnless(OFFLOADING.exists(), "the capture isn't here")
class Offloading(unittest.TestCase):
    """A real v6e, whose line `Async XLA Ops` has every copy's time in flight."""

    def on_async_line(self) -> dict[str, list[tuple[int, int]]]:
        spans: dict[str, list[tuple[int, int]]] = {}
        with open_trace(str(OFFLOADING)) as (trace,):
            plane = trace.plane("/device:TPU:0")
            for line in plane.lines("Async XLA Ops"):
                for events in line.events(0, 1 << 62):
                    for metadata_id, begin, lasting, *_ in events.rows():
                        metadata = plane.metadata(metadata_id)
                        assert metadata is not None
                        name = HloText(metadata.name).name.replace("start", "done")
                        spans.setdefault(name, []).append((begin, begin + lasting))
        return spans

    def test_every_span_is_that_of_the_async_line(self) -> None:
        by_trace = Clock(ON_TRACE, {})
        found = {
            name: sorted((flight.start, flight.end) for flight in flights)
            for step in steps_of(OFFLOADING, "/device:TPU:0")
            for name, flights in flights_in(step, by_trace).items()
        }
        self.assertEqual(found, {name: sorted(of) for name, of in self.on_async_line().items()})
        self.assertEqual(sum(map(len, found.values())), 600)

    def test_in_the_order_of_the_file_many_would_be_wrong_and_none_would_look_so(self) -> None:
        open_since: dict[str, list[int]] = {}
        spans: list[tuple[str, int, int]] = []
        n_orphans = 0
        for step in steps_of(OFFLOADING, "/device:TPU:0"):
            for each, begin, end in events_in(step):
                if each.is_start:
                    open_since.setdefault(each.name.replace("start", "done"), []).append(begin)
                elif each.is_wait and open_since.get(each.name):
                    spans.append((each.name, open_since[each.name].pop(0), end))
                elif each.is_wait:
                    n_orphans += 1
        right = {(name, *span) for name, of in self.on_async_line().items() for span in of}
        self.assertEqual((len(spans), n_orphans), (598, 2))
        self.assertEqual(sum(span not in right for span in spans), 106)
        self.assertTrue(all(begin <= end for _, begin, end in spans))

    def test_its_all_reduce(self) -> None:
        for device in range(4):
            options = "--step", "all", "--device", f"/device:TPU:{device}"
            said = answer(OFFLOADING, "comm", *options)
            (summed,) = [each for each in said["rows"] if each["collective"] == "all-reduce"]
            n = summed["n_executions"]
            self.assertEqual(summed["payload_bytes"], n * 5_368_709_120)
            self.assertEqual(summed["bus_bytes"], n * 5_368_709_120)
            self.assertEqual((summed["group_size"], summed["groups"]), (2, "4 x 2, stride 4"))
            self.assertEqual(summed["groups_from"], "text")
            self.assertAlmostEqual(summed["bus_gbps"], 44.1, 1)
            for name in ("to_host", "from_host"):
                (copies,) = [each for each in said["rows"] if each["collective"] == name]
                self.assertEqual(copies["pairs"], {"paired": 300, "ambiguous": 0, "unpaired": 0})
                self.assertEqual(copies["payload_bytes"], 300 * 5_368_709_120)
            self.assertEqual(said["totals"]["in_flight_union_ps"], 0)


def without_program(data: bytes) -> bytes:
    planes = every(fields(data), 1)
    return b"".join(
        bytes_field(1, plane) for plane in planes if b"/host:metadata" not in plane[:100]
    )


@unittest.skipUnless(TRAINING.exists(), "the profile isn't here")
class Training(unittest.TestCase):
    """TPU7x, with most collectives on the SparseCore: the texts of these hold no groups."""

    devices = "/device:TPU:0", "/device:TPU:1"

    def test_all_waits_are_paired(self) -> None:
        for step in steps_of(TRAINING, *self.devices):
            flights = flights_in(step, step.clock)
            self.assertEqual(len(flights), 170)
            self.assertEqual(
                {name: len(of) for name, of in flights.items()},
                {each.op.name: each.n for each in step.leaves if each.op.is_wait},
            )
            self.assertFalse(any(flight.is_ambiguous for of in flights.values() for flight in of))
            starts = Starts(step)
            for wait in waits_of(step).values():
                (_, name), begin = starts.of(wait)
                self.assertEqual(name, wait.name.replace("done", "start"))
                self.assertIsNotNone(begin)

    def test_the_program_tells_all(self) -> None:
        for device in self.devices:
            said = answer(TRAINING, "comm", "--device", device, "--top", "1000")
            offloaded = [each for each in said["rows"] if each["engine"] == "sparse_core"]
            self.assertEqual(
                Counter(each["collective"] for each in offloaded).keys(),
                {"all-gather", "reduce-scatter", "all-reduce"},
            )
            for each in said["rows"]:
                self.assertIsNotNone(each["source_inner"])
                self.assertIsNotNone(each["groups"])
                self.assertGreater(each["payload_bytes"], 0)
                is_permute = each["collective"] == "collective-permute"
                self.assertEqual(each["bus_bytes"] is None, is_permute)
                by_program = each["engine"] == "sparse_core"
                self.assertEqual(each["groups_from"], "program" if by_program else "text")
                if each["pairs"]:
                    self.assertEqual(
                        each["in_flight_ps"],
                        each["wait_dur_ps"] + each["covered_ps"] + each["other_ps"],
                    )

    def test_without_it_the_rest_is_unknown_and_what_is_known_the_same(self) -> None:
        data = TRAINING.read_bytes()
        told = answer(data, "comm", "--top", "1000")
        said = answer(without_program(data), "comm", "--top", "1000")
        for name in ("exposed_ps", "in_flight_union_ps", "hidden_union_ps", "by_collective"):
            self.assertEqual(said["totals"][name], told["totals"][name], name)
        sources = Counter[Any]()
        for each in said["rows"]:
            sources[each["collective"], each["mode"], each["groups_from"]] += 1
            if each["groups_from"] == "shapes":
                self.assertIsNone(each["groups"])
                self.assertIn(each["group_size"], (2, 4))
        self.assertEqual(
            set(sources),
            {
                ("all-gather", "async", "shapes"),
                ("reduce-scatter", "async", "shapes"),
                ("all-reduce", "async", None),
                ("all-reduce", "sync", "text"),
                ("all-to-all", "sync", "text"),
                ("collective-permute", "async", "text"),
            },
        )
        scattered = [each for each in said["rows"] if each["collective"] == "reduce-scatter"]
        self.assertEqual({each["source_inner"] for each in scattered}, {None})


if __name__ == "__main__":
    unittest.main()
