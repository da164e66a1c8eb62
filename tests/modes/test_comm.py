"""Test the mode `comm`: pairs, flight times, payloads and groups, on small and on real traces."""

from __future__ import annotations

import unittest
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from _breakdown.analysis.comm.flights import Flights, flights_of
from _breakdown.analysis.comm.transfers import Starts
from _breakdown.pipeline.clocks import ON_TRACE, Clock
from _breakdown.pipeline.device import open_device, read_steps
from _breakdown.pipeline.event_iterate import read_events
from _breakdown.pipeline.normalize import Step, normalize
from _breakdown.pipeline.ops import Op as RealOp
from _proto.hlo.text import HloText
from _proto.trace import open_trace
from tests.builders import hlo_proto
from tests.builders.hlo_proto import array, metadata_plane, tuple_of
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Op,
    Plane,
    Space,
    Stat,
    StatMetadata,
    encode,
    int64,
    op,
    string,
    tpu_plane,
)
from tests.harness import OFFLOADING, TRAINING, Json, answer, context_of

PROGRAM_ID = 77
STEP = ("s", 0, 1000)

Program = dict[str, list[hlo_proto.Op]]


def start(name: str, at: int, dur: int = 0, **more: Any) -> Op:
    kind = name.partition("-start")[0]
    return op(name, more.pop("category", f"{kind}-start"), at, dur, **more)


def done(of: str, at: int, dur: int = 0, **more: Any) -> Op:
    """Return a wait for the transfer that the op `of` starts."""
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
    """Encode a trace of ops, executions of programs (`modules`), and the compiled program."""
    for ran in ops:
        ran.stats.setdefault("program_id", PROGRAM_ID)
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
    """Return the only row of communication that ends in the step."""
    (only,) = [found for found in rows(ops, program, **more) if found["n_executions"]]
    return only


def pairs(ops: Sequence[Op], program: Program | None = None, **more: Any) -> tuple[int, ...]:
    """Count the paired and the unpaired executions."""
    found = [entry["pairs"] for entry in rows(ops, program, **more) if entry["pairs"]]
    return tuple(sum(entry[key] for entry in found) for key in ("paired", "unpaired"))


class Pairing(unittest.TestCase):
    """Test which op a wait is paired with."""

    def test_wait_is_paired_with_its_operand(self) -> None:
        name = "all-gather-start.5"
        ops = [start(name, 0), done(name, 10, 5, name="another-name")]
        self.assertEqual(pairs(ops), (1, 0))

    def test_wait_for_an_update_is_paired_with_the_start(self) -> None:
        ops = [
            start("all-gather.1.call-start", 0, category="async-start"),
            done("all-gather.1.call-update", 10, 5, category="async-done", name="all-gather.x"),
        ]
        self.assertEqual(pairs(ops), (1, 0))

    def upstream(self, *between: hlo_proto.Op, last: str) -> Program:
        return {
            "main": [
                hlo_proto.op("all-gather-start.5", "all-gather-start"),
                *between,
                hlo_proto.op("all-gather-done.7", "all-gather-done", last),
            ]
        }

    def test_start_is_found_upstream_in_the_program(self) -> None:
        program = self.upstream(
            hlo_proto.op("copy-start.1", "copy-start"),
            hlo_proto.op("f", "fusion", "copy-start.1", "all-gather-start.5"),
            hlo_proto.op("g", "get-tuple-element", "f"),
            last="g",
        )
        wait = done("g", 10, 5, category="all-gather-done", name="all-gather-done.7")
        begun = [start("all-gather-start.5", 0), start("copy-start.1", 2)]
        # The operand is math, so it starts no transfer, whether or not the trace contains it.
        ops = [*begun, math(4, 1, name="g"), wait]
        self.assertEqual(pairs(ops, program), (1, 0))
        ops = [*begun, wait]
        self.assertEqual(pairs(ops, program), (1, 0))
        self.assertEqual(row(ops, program)["in_flight_ps"], 15)
        self.assertEqual(pairs(ops), (0, 1))

    def test_wait_is_paired_by_operand_then_by_program_then_by_name(self) -> None:
        program = self.upstream(last="all-gather-start.5")
        by_name = start("all-gather-start.7", 4)
        by_program = start("all-gather-start.5", 2)
        by_operand = start("all-gather-start.6", 0)
        wait = done("all-gather-start.6", 10, 5, name="all-gather-done.7")
        for ops, in_flight in (
            ([by_operand, by_program, by_name, wait], 15),
            ([by_program, by_name, wait], 13),
            # The start in the program takes precedence, even if the trace lacks this start.
            ([by_name, wait], None),
        ):
            self.assertEqual(row(ops, program)["in_flight_ps"], in_flight)
        self.assertEqual(row([by_program, by_name, wait])["in_flight_ps"], 11)

    def test_wait_is_paired_by_name_if_its_operand_is_unknown(self) -> None:
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
            self.assertEqual(pairs(ops), (1, 0), end)
            self.assertEqual(row(ops)["groups"], "1 x 2, stride 1", end)
            # This program has the wait, but not its start.
            self.assertEqual(pairs(ops, {"main": [hlo_proto.op(end, "async-done")]}), (1, 0))

    def test_ops_of_different_programs_are_not_paired(self) -> None:
        name = "all-gather-start.5"
        ops = [start(name, 0, program_id=1), done(name, 10, 5, program_id=2)]
        self.assertEqual(pairs(ops), (0, 1))

    def test_unpaired_wait_has_the_groups_of_a_start_before_the_step(self) -> None:
        groups = ", replica_groups={{0,1},{2,3}}"
        name = "all-gather-start.5"
        ops = [start(name, 0, attributes=groups), done(name, 100, 5)]
        result = row(ops, steps=[("s", 50, 100)])
        self.assertEqual(result["pairs"], {"paired": 0, "unpaired": 1})
        self.assertEqual(result["groups"], "2 x 2, stride 1")

    def test_groups_come_from_the_first_start_in_the_step_or_else_in_the_trace(self) -> None:
        name = "all-gather-start.5"
        ops = [
            start(name, at, attributes=f", replica_groups=[{8 // n},{n}]<=[8]")
            for at, n in ((0, 8), (10, 4), (60, 2), (70, 1))
        ]
        for begin, size in ((50, 2), (90, 8)):
            result = row([*ops, done(name, 100, 5)], steps=[("s", begin, 100)])
            self.assertEqual(result["group_size"], size)


class Executions(unittest.TestCase):
    NAME = "all-gather-start.5"

    def begin(self, at: int, dur: int = 0) -> Op:
        return start(self.NAME, at, dur)

    def end(self, at: int, dur: int = 5) -> Op:
        return done(self.NAME, at, dur)

    def test_wait_is_paired_with_the_oldest_open_start(self) -> None:
        ops = [self.begin(0), self.begin(10), math(12, 5), self.end(30), self.end(50)]
        result = row(ops)
        self.assertEqual(result["pairs"], {"paired": 2, "unpaired": 0})
        self.assertEqual(result["in_flight_ps"], 35 + 45)
        self.assertEqual((result["covered_ps"], result["other_ps"]), (5 + 5, 25 + 35))

    def test_start_of_a_flight_that_never_ends_is_paired_first(self) -> None:
        result = row([self.begin(0), self.begin(5), self.end(10)])
        self.assertEqual(result["pairs"], {"paired": 1, "unpaired": 0})
        self.assertEqual(result["in_flight_ps"], 15)

    def test_start_precedes_a_wait_at_the_same_instant(self) -> None:
        ops = [self.end(10), self.begin(10)]
        self.assertEqual(pairs(ops), (1, 0))

    def test_wait_without_a_start_is_unpaired(self) -> None:
        ops = [self.end(5), self.begin(10), self.end(30)]
        result = row(ops)
        self.assertEqual(result["pairs"], {"paired": 1, "unpaired": 1})
        self.assertEqual(result["in_flight_ps"], 25)

    def test_wait_is_not_paired_with_a_start_in_a_program_that_has_ended(self) -> None:
        ops = [self.begin(0), self.end(30)]
        for modules, paired in (
            ([(0, 20), (20, 60)], 0),
            ([(0, 31)], 1),
            # The end of a program precedes ops that start at the same instant.
            ([(0, 30)], 0),
            ([(0, 20), (5, 60)], 0),
            # Programs need not end in the order in which they start.
            ([(0, 70), (1, 60), (2, 20)], 0),
            ([(40, 60)], 1),
        ):
            self.assertEqual(pairs(ops, modules=modules)[0], paired, modules)

    def test_start_at_the_end_of_a_program_belongs_to_the_next_program(self) -> None:
        ops = [self.begin(0), self.begin(20), self.end(30)]
        result = row(ops, modules=[(0, 20), (20, 60)])
        self.assertEqual(result["pairs"], {"paired": 1, "unpaired": 0})
        self.assertEqual(result["in_flight_ps"], 15)

    def timed(self, *times: tuple[int, int, int]) -> Json:
        """Return the answer for a start, a wait and math.

        For each op, `times` has its start on the trace clock, then its start and duration on the
        device clock.
        """
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

    def test_flight_times_are_measured_on_the_device_clock(self) -> None:
        result = self.timed((0, 100, 2), (0, 130, 20), (0, 110, 5))
        (only,) = result["rows"]
        self.assertEqual((only["in_flight_ps"], only["wait_dur_ps"]), (50, 20))
        self.assertEqual(only["covered_ps"], 5)

    def test_note_appears_if_the_clocks_place_a_wait_before_its_start(self) -> None:
        result = self.timed((0, 200, 2), (10, 100, 20), (5, 130, 50))
        (only,) = result["rows"]
        self.assertEqual(only["pairs"]["paired"], 1)
        for name in ("in_flight_ps", "in_flight_union_ps", "covered_ps", "other_ps"):
            self.assertEqual(only[name], 0, name)
        self.assertIsNone(only["bus_gbps"])
        # The start occupies the core.
        self.assertEqual(result["totals"]["in_flight_union_ps"], 2)
        self.assertEqual(result["totals"]["hidden_union_ps"], 0)

    def test_whole_flight_is_waiting_time_if_the_wait_begins_before_the_start(self) -> None:
        result = self.timed((0, 110, 2), (10, 100, 20), (5, 130, 50))
        (only,) = result["rows"]
        self.assertEqual((only["in_flight_ps"], only["in_flight_union_ps"]), (10, 10))
        self.assertEqual((only["covered_ps"], only["other_ps"]), (0, 0))


class Time(unittest.TestCase):
    NAME = "all-gather-start.5"

    def test_start_is_time_of_the_communication_that_it_starts(self) -> None:
        fusion = op("async-collective-start.1", "loop fusion", 0, 64)
        end = op("async-collective-done.1", "loop fusion", 100, 6)
        update = op("async-collective-update.1", "async-update", 80, 1)
        result = answer(file_of([fusion, math(70, 5), update, end]), "comm")
        (only,) = result["rows"]
        self.assertEqual(
            (only["sync_dur_ps"], only["wait_dur_ps"], only["n_executions"]), (65, 6, 1)
        )
        self.assertEqual(result["totals"]["exposed_ps"], 71)
        self.assertEqual(result["totals"]["comm_duration_ps"], 71)

    def test_start_without_an_end_in_the_step_is_a_row_without_executions(self) -> None:
        result = answer(file_of([start(self.NAME, 0, 3)]), "comm")
        (only,) = result["rows"]
        figures = (
            "mode",
            "sync_dur_ps",
            "wait_dur_ps",
            "n_executions",
            "payload_bytes",
            "bus_gbps",
        )
        self.assertEqual([only[name] for name in figures], ["async", 3, 0, 0, None, None])
        self.assertEqual(result["totals"]["exposed_ps"], 3)

    def test_flight_time_is_split_into_waiting_covered_and_other_time(self) -> None:
        ops = [
            start(self.NAME, 0, 1),
            math(10, 20),
            op("copy.1", "copy", 25, 10),  # The overlap with the math counts once.
            op("copy-done.1", "copy-done", 40, 10),  # Another wait does not cover the flight.
            op("all-reduce.1", "all-reduce", 50, 10),  # A collective does not cover the flight.
            done(self.NAME, 70, 30),
        ]
        result = {entry["collective"]: entry for entry in rows(ops)}["all-gather"]
        self.assertEqual(result["in_flight_ps"], 100)
        self.assertEqual((result["wait_dur_ps"], result["sync_dur_ps"]), (30, 1))
        self.assertEqual((result["covered_ps"], result["other_ps"]), (25, 45))
        self.assertEqual(result["pct_of_step"], 3.1)

    def test_only_math_between_start_and_wait_covers_the_flight(self) -> None:
        ops = [start(self.NAME, 10), math(0, 15), math(50, 100, name="f"), done(self.NAME, 60, 10)]
        self.assertEqual(row(ops)["covered_ps"], 5 + 10)

    def test_flight_can_extend_beyond_the_step(self) -> None:
        ops = [start(self.NAME, 900), done(self.NAME, 990, 100)]
        result = answer(file_of(ops), "comm")
        self.assertEqual(result["rows"][0]["in_flight_ps"], 190)
        self.assertEqual(result["totals"]["in_flight_union_ps"], 190)

    def test_unpaired_and_synchronous_ops_have_no_flight_time(self) -> None:
        for ops in ([done(self.NAME, 60, 10)], [op("all-reduce.1", "all-reduce", 50, 10)]):
            result = row(ops)
            for name in ("in_flight_ps", "in_flight_union_ps", "covered_ps", "other_ps"):
                self.assertIsNone(result[name], name)
        self.assertIsNone(result["pairs"])

    def test_overlapping_flights_are_merged_separately_for_devices_and_host(self) -> None:
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
        self.assertEqual((totals["exposed_pct_of_step"], totals["host_pct_of_step"]), (2, 1))

    def test_synchronous_collective_is_in_flight_while_it_runs(self) -> None:
        ops = [
            start("all-gather-start.1", 0),
            op("all-reduce.2", "all-reduce", 90, 30),
            done("all-gather-start.1", 120, 10),
            op("all-reduce.2", "all-reduce", 200, 30),
            op("send.3", "host send", 300, 40),
        ]
        totals = answer(file_of(ops), "comm")["totals"]
        self.assertEqual(totals["in_flight_union_ps"], 130 + 30)
        self.assertEqual((totals["hidden_union_ps"], totals["exposed_ps"]), (0, 70))
        self.assertEqual((totals["host_ps"], totals["host_in_flight_union_ps"]), (40, 40))


PAIRS_OF_TWO = ", channel_id=1, replica_groups={{0,1},{2,3}}"
OF_FOUR = ", channel_id=1, replica_groups=[2,4]<=[8], use_global_device_ids=true"


class Payload(unittest.TestCase):
    def test_synchronous_collectives_have_payload_and_bus_bytes(self) -> None:
        # In groups of 4, an all-gather turns 8 * 128 elements into 32 * 128; a reduce-scatter does
        # the opposite.
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
            ran = op(f"{name}.1", name, 0, 1000, shape=out, operands=f"{into} %x",
                      attributes=OF_FOUR)  # fmt: skip
            result = row([ran, op(ran.text[1:].split()[0], name, 0, 1000, text=ran.text)])
            self.assertEqual(result["n_executions"], 2)
            for figure, of_one in (("payload_bytes", payload), ("bus_bytes", bus)):
                self.assertEqual(result[figure], None if of_one is None else 2 * of_one, name)
            gbps = None if bus is None else round(2 * bus / 2000 * 1000, 3)
            self.assertEqual(result["bus_gbps"], gbps)

    def test_narrow_elements_are_packed_into_bytes(self) -> None:
        for shape, size in (
            *(("s4[5]", 3), ("pred[5]", 5), ("s2[4]", 1), ("f8e4m3fn[3]", 3), ("f4e2m1fn[2]", 1)),
            *(("c64[2]", 16), ("f32[]", 4), ("f32[0]", 0), ("f32[<=8]", None), ("odd[2]", None)),
        ):
            result = row([op("a", "all-reduce", 0, 1, shape=shape)])
            self.assertEqual(result["payload_bytes"], size, shape)

    def sparse(self, name: str, into: str, out: str) -> list[Op]:
        flags = "(s32[8192]{0}, s32[69]{0:S(11)})"
        return [
            op(f"{name}.1.call-start", "async-start", 0, 1, shape=f"((), (), {flags})",
               operands="", attributes=', async_execution_thread="sparsecore", calls=%c'),
            op(f"{name}.1.call-done", "async-done", 90, 10, shape=out,
               operands=f"(({into}), {out}, {flags}) %{name}.1.call-update"),
        ]  # fmt: skip

    def test_payload_of_a_sparse_core_collective_comes_from_the_done(self) -> None:
        small, large = "f32[8]{0}", "f32[32]{0}"
        for name, into, out, payload, n in (
            ("all-gather", small, large, 128, 4),
            ("reduce-scatter", large, small, 128, 4),
            ("all-reduce", small, small, 32, None),
            ("all-to-all", small, small, 32, None),
            ("reduce-scatter", "f32[20]{0}", small, 80, None),
        ):
            result = row(self.sparse(name, into, out))
            self.assertEqual((result["payload_bytes"], result["group_size"]), (payload, n), name)
            self.assertEqual(result["engine"], "sparse_core")
            self.assertEqual(result["pairs"]["paired"], 1)

    def test_group_size_from_shapes_ignores_casts(self) -> None:
        for name, into, out, n in (
            ("reduce-scatter", "bf16[64]{0}", "f32[8]{0}", 8),
            ("reduce-scatter", "f32[64]{0}", "bf16[8]{0}", 8),
            ("reduce-scatter", "f32[12]{0}", "bf16[8]{0}", None),
            ("all-gather", "f32[4]{0}", "bf16[16]{0}", 4),
            # 4-bit elements are packed. The arrays take 1 and 2 bytes, but the group size is the
            # ratio of their elements, 4.
            ("all-gather", "s4[1]{0}", "s4[4]{0}", 4),
            ("all-gather", "f32[0]{0}", "f32[4]{0}", None),
            ("reduce-scatter", "f32[0]{0}", "f32[4]{0}", None),
        ):
            result = row(self.sparse(name, into, out))
            self.assertEqual(result["group_size"], n, out)
        fused = op("fusion.1", "all-reduce-scatter fusion", 0, 10, shape="bf16[32]{0}",
                   operands="f32[64]{0} %x")  # fmt: skip
        self.assertEqual(row([fused])["group_size"], 2)

    def test_rate_includes_only_paired_executions(self) -> None:
        name = "all-gather-start.1"
        ends = [done(name, at, 10, attributes=OF_FOUR) for at in (20, 90)]
        result = row([start(name, 40), *ends])
        self.assertEqual(result["payload_bytes"], 2 * 4096)
        self.assertEqual(result["bus_gbps"], 4096 * 3 / 4 * 1000 / 60)
        self.assertIsNone(row(ends)["bus_gbps"])

    def test_time_of_overlapping_flights_counts_once_in_the_rate(self) -> None:
        ops = [
            start("all-gather-start.1", 0),
            start("all-gather-start.2", 10),
            done("all-gather-start.1", 35, 5, attributes=OF_FOUR),
            done("all-gather-start.2", 40, 10, attributes=OF_FOUR),
            # The third flight overlaps with no other flight.
            start("all-gather-start.3", 70),
            done("all-gather-start.3", 75, 5, attributes=OF_FOUR),
        ]
        result = row(ops)
        self.assertEqual((result["in_flight_ps"], result["in_flight_union_ps"]), (40 + 40 + 10, 60))
        self.assertEqual(result["bus_gbps"], 3 * 4096 * 3 / 4 * 1000 / 60)

    def test_total_payload_is_null_if_a_payload_is_unknown(self) -> None:
        ops = [
            op("all-reduce.1", "all-reduce", 0, 10, shape="f32[8]"),
            op("all-reduce.2", "all-reduce", 10, 10, shape="f32[<=8]"),
        ]
        result = answer(file_of(ops), "comm")
        self.assertIsNone(result["rows"][0]["payload_bytes"])
        self.assertIsNone(result["totals"]["by_collective"]["all-reduce"]["payload_bytes"])

    def test_payload_of_a_collective_that_casts_has_the_narrower_dtype(self) -> None:
        narrow, wide = "bf16[8]{0}", "f32[8]{0}"
        for operand, output in ((narrow, wide), (wide, narrow)):
            result = row([op("all-reduce.1", "all-reduce", 0, 10, shape=output,
                           operands=f"{operand} %x", attributes=OF_FOUR)])  # fmt: skip
            self.assertEqual((result["payload_bytes"], result["bus_bytes"]), (16, 24))
            for name in ("all-to-all", "collective-permute", "collective-broadcast"):
                result = row([op("a", name, 0, 1, shape=output, operands=f"{operand} %x")])
                self.assertEqual(result["payload_bytes"], 16, name)

    def test_payload_of_a_fusion_that_also_casts_or_reduces_is_unknown(self) -> None:
        for name, operand, output, payload in (
            ("all-reduce", "f32[8]{0}", "f32[8]{0}", 32),
            ("all-reduce", "f32[8,16]{1,0}", "f32[16]{0}", None),
            ("all-reduce", "f32[8]{0}", "bf16[8]{0}", None),
            ("all-gather", "f32[4]{0}", "f32[8]{0}", 32),
            ("all-gather", "f32[4]{0}", "bf16[8]{0}", None),
            ("all-reduce-scatter", "f32[8]{0}", "f32[4]{0}", 32),
            ("all-reduce-scatter", "f32[8]{0}", "bf16[4]{0}", None),
        ):
            result = row([op("fusion.1", f"{name} fusion", 0, 10, shape=output,
                           operands=f"{operand} %x")])  # fmt: skip
            self.assertEqual(result["payload_bytes"], payload, (name, operand, output))

    def test_group_of_a_single_device_has_zero_bus_bytes(self) -> None:
        alone = ", replica_groups={{0},{1}}"
        result = row([op("a", "all-reduce", 0, 10, attributes=alone)])
        self.assertEqual((result["group_size"], result["bus_bytes"], result["bus_gbps"]), (1, 0, 0))
        self.assertEqual(result["groups"], "2 x 1")

    def test_host_copies_have_a_direction_and_payload(self) -> None:
        host, here = "f32[8]{0:S(5)}", "f32[8]{0}"
        for shape, other, name in ((host, here, "to_host"), (here, host, "from_host")):
            ops = [
                start("copy-start.1", 0, shape=f"({shape}, {other}, u32[])", operands=other),
                done("copy-start.1", 10, 6, shape=shape,
                     operands=f"({shape}, {other}, u32[]) %copy-start.1"),
            ]  # fmt: skip
            result = row(ops)
            self.assertEqual((result["collective"], result["mode"]), (name, "async"))
            self.assertEqual((result["payload_bytes"], result["bus_bytes"]), (32, 32))
            self.assertEqual((result["group_size"], result["groups"], result["bus_gbps"]),
                             (None, None, 2000))  # fmt: skip

    def test_payload_of_a_host_buffer_update_is_only_the_update(self) -> None:
        host, piece = "f32[800]{0:S(5)}", "f32[8]{0}"
        name = "dynamic-update-slice-start.1"
        whole = f"(({host}, {piece}, s32[]), {host}, u32[])"
        end = op("dynamic-update-slice-done.1", "async-done", 10, 6, shape=host,
                 operands=f"{whole} %{name}")  # fmt: skip
        begin = start(name, 0, category="async-start", shape=whole,
                      operands=f"{host} %a, {piece} %b, s32[] %c")  # fmt: skip
        for ops in ([begin, end], [end]):
            result = row(ops)
            self.assertEqual((result["collective"], result["payload_bytes"]), ("to_host", 32))

    def test_payload_of_an_in_place_permute_is_unknown(self) -> None:
        # An in-place permute writes slices of one input into another.
        sent, into, at = "f32[64]{0}", "f32[128]{0}", "(s32[], s32[])"
        name, sizes = "collective-permute-start.1", ", slice_sizes={{4},{4}}"
        whole = f"({sent}, {into}, {at}, {at})"
        shapes = [array("f32", 64), array("f32", 128), *[tuple_of(array("s32"), array("s32"))] * 2]
        program: Program = {
            "main": [
                *(hlo_proto.op(f"p.{i}", "parameter", shape=x) for i, x in enumerate(shapes)),
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
        # A single input is sent as a whole, even if the output is unknown.
        alone = op("a", "collective-permute", 0, 1, shape="()", operands=f"{sent} %a")
        self.assertEqual(row([alone])["payload_bytes"], 256)
        # A permute can send several arrays together.
        both = f"({sent}, {into})"
        together = op("a", "collective-permute", 0, 1, shape=both, operands=f"{sent} %a, {into} %b")
        self.assertEqual(row([together])["payload_bytes"], 768)

    def test_send_and_recv_have_payloads(self) -> None:
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
        found = {(entry["collective"], entry["mode"]): entry for entry in rows(ops)}
        self.assertEqual(
            {key: entry["payload_bytes"] for key, entry in found.items()},
            {("send", "sync"): 32, ("recv", "sync"): None, ("send", "async"): 32,
             ("recv", "async"): 32},
        )  # fmt: skip
        self.assertEqual({entry["bus_bytes"] for entry in found.values()}, {None})
        self.assertEqual(found["recv", "async"]["pairs"]["paired"], 1)
        # A send and its done are one transfer, so the totals count its payload once.
        by_collective = answer(file_of(ops), "comm")["totals"]["by_collective"]
        for name in ("send", "recv"):
            of_both = by_collective[name]
            self.assertEqual((of_both["n_executions"], of_both["payload_bytes"]), (2, 32))


class Groups(unittest.TestCase):
    def of(self, written: str, **more: Any) -> tuple[Any, ...]:
        attributes = f", channel_id=3, replica_groups={written}, dimensions={{0}}"
        result = row([op("all-to-all.1", "all-to-all", 0, 10, attributes=attributes)], **more)
        return result["group_size"], result["groups"]

    def test_replica_groups_are_parsed_in_every_notation(self) -> None:
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
            # A label shows up to eight groups.
            ("{{0,16},{1,9},{2,10},{3,11},{4,12},{5,13},{6,14},{7,15}}", 2,
             "{0,16},{1,9},{2,10},{3,11},{4,12},{5,13},{6,14},{7,15}"),
            ("[1,70]<=[70]", 70, "1 x 70, stride 1"),
        ):  # fmt: skip
            with self.subTest(written=written):
                self.assertEqual(self.of(written), (size, label))

    def test_equal_groups_in_different_notations_share_a_row(self) -> None:
        ways = ("[2,4]<=[4,2]T(1,0)", "mesh['axis_0'=4,'axis_1'=2] {'axis_0'}",
                "{{1,3,5,7},{0,2,4,6}}")  # fmt: skip
        ops = [
            op(f"all-reduce.{i}", "all-reduce", 10 * i, 10, attributes=f", replica_groups={way}")
            for i, way in enumerate(ways)
        ]
        self.assertEqual(row(ops)["n_executions"], 3)
        # Different groups of the same size have separate rows.
        ops.append(op("a", "all-reduce", 40, 10, attributes=", replica_groups=[2,4]<=[8]"))
        result = [(entry["n_executions"], entry["groups"]) for entry in rows(ops)]
        self.assertEqual(result, [(3, "2 x 4, stride 2"), (1, "2 x 4, stride 1")])

    def test_contradictory_or_truncated_groups_are_unknown(self) -> None:
        for written in (
            *("{{0,1},{1,2}}", "{{0,0}}", "{{}}", "{{0,1}", "{{0,1},{2", "[3,2]<=[8]", "[4,2]<="),
            *("[4,2]<=[2,4]T(0,0)", "[4,2]<=[2,4]T(1,0,2)", "[2,4]<=[2,4]T(1", "[0,8]<=[8]"),
            *("mesh['a'=2] {'b'}", "mesh['a'=2,'a'=2] {'a'}", "mesh['a'=4] {'a':(3)2}"),
            *("mesh['a'=4]", "all"),
        ):
            with self.subTest(written=written):
                self.assertEqual(self.of(written), (None, None))

    def test_empty_groups_mean_all_devices_of_the_program(self) -> None:
        self.assertEqual(self.of("{}"), (None, None))
        program: Program = {"main": [hlo_proto.op("x", "add")]}
        self.assertEqual(self.of("{}", program=program, devices=(1, 16)), (16, "1 x 16, stride 1"))
        self.assertEqual(self.of("{}", program=program, devices=(1, 1)), (1, "1 x 1"))

    def test_groups_of_the_done_take_precedence_over_those_of_the_start(self) -> None:
        name = "all-gather-start.1"
        begin = start(name, 0, attributes=", replica_groups=[4,2]<=[8]")
        self.assertEqual(row([begin, done(name, 10, 5)])["groups"], "4 x 2, stride 1")
        both = [begin, done(name, 10, 5, attributes=", replica_groups=[2,4]<=[8]")]
        self.assertEqual(row(both)["groups"], "2 x 4, stride 1")
        # A synchronous op does not take over the groups of its operand.
        result = rows([begin, op("a", "all-reduce", 10, 5, operands=f"f32[8]{{0}} %{name}")])
        self.assertEqual([entry["groups"] for entry in result if entry["mode"] == "sync"], [None])

    def test_label_of_a_permute_counts_its_pairs(self) -> None:
        name = "collective-permute-start.1"
        written = ", channel_id=1, source_target_pairs={{0,0},{2,2},{4,1},{1,4}}"
        result = row([start(name, 0, attributes=written), done(name, 10, 5)])
        self.assertEqual((result["group_size"], result["groups"]), (None, "4 pairs, 2 to self"))

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

    def test_groups_and_payload_come_from_the_program_if_the_text_has_none(self) -> None:
        ops = [
            op("a.call-start", "async-start", 0, 1, shape="((), (), ())", operands=""),
            op("a.call-done", "async-done", 10, 5, shape="()", operands="() %a.call-start"),
        ]
        extra = hlo_proto.listed_groups((0, 2), (1, 3))
        result = row(ops, self.program(extra))
        self.assertEqual(result["collective"], "all-to-all")
        self.assertEqual((result["group_size"], result["groups"]), (2, "2 x 2, stride 2"))
        self.assertEqual((result["payload_bytes"], result["bus_bytes"]), (32, 16))
        self.assertEqual(result["engine"], "core")
        self.assertEqual(row(ops, self.program(extra, thread="sparsecore"))["engine"],
                         "sparse_core")  # fmt: skip

        # Without groups, all devices take part, but their number is unknown.
        result = row(ops, self.program(b""))
        self.assertIsNone(result["group_size"])
        self.assertEqual(row(ops, self.program(b""), devices=(2, 3))["groups"], "1 x 6, stride 1")
        # Without the compiled program, the collective that the op calls is unknown.
        self.assertEqual(row(ops)["collective"], "collective")
        self.assertIsNone(row(ops)["payload_bytes"])
        gathered = self.program(extra)
        gathered["called"][1] = hlo_proto.op("x", "all-gather", "p", shape=array("f32", 16))
        self.assertEqual(row(ops, gathered)["payload_bytes"], 64)
        # Sizes in the text take precedence over sizes in the program.
        ops[1] = op(
            "a.call-done", "async-done", 10, 5, shape="f32[32]", operands="() %a.call-start"
        )
        self.assertEqual(row(ops, gathered)["payload_bytes"], 128)

    def test_program_is_ignored_if_it_contradicts_the_collective_in_the_trace(self) -> None:
        ops = [op("a.call-done", "all-gather-done", 10, 5, shape="f32[8]{0}", operands="() %x")]
        program = self.program(hlo_proto.listed_groups((0, 2), (1, 3)))
        for opcode in ("all-to-all", "all-reduce"):
            program["called"][1].instruction.opcode = opcode
            result = row(ops, program)
            self.assertEqual((result["collective"], result["groups"]), ("all-gather", None))

    def test_all_reduce_with_a_slice_in_a_fusion_is_a_reduce_scatter(self) -> None:
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
        result = row([fused], program)
        self.assertEqual((result["collective"], result["mode"]), ("reduce-scatter", "sync"))
        self.assertEqual((result["payload_bytes"], result["bus_bytes"]), (128, 64))
        self.assertEqual(result["groups"], "2 x 2, stride 1")
        self.assertIsNone(row([fused])["payload_bytes"])
        # The dtypes of the fusion's operand and of the scattered data can differ.
        fused = op("fusion.1", "all-reduce-scatter fusion", 0, 10, shape="bf16[32]{0}",
                   operands="f32[64]{0} %x")  # fmt: skip
        self.assertEqual(row([fused], program)["payload_bytes"], 128)
        # Contradictory groups in the program are ignored.
        program["body"][1].instruction.extra = hlo_proto.listed_groups((0, 1), (1, 2))
        result = row([fused], program)
        self.assertEqual(result["group_size"], 2)


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

    def test_rows_are_split_by_collective_mode_line_and_groups(self) -> None:
        result = rows(self.ops())
        keys = ("collective", "mode", "source_inner", "groups", "sync_dur_ps", "wait_dur_ps")
        self.assertEqual(
            [tuple(entry[key] for key in keys) for entry in result],
            [
                ("all-reduce", "sync", "m.py:2", None, 20, 0),
                ("all-reduce", "sync", "m.py:2", "2 x 2, stride 1", 20, 0),
                ("all-reduce", "sync", "m.py:1", None, 10, 0),
                ("all-gather", "async", "m.py:3", None, 0, 5),
                ("all-reduce", "async", "m.py:2", None, 0, 5),
            ],
        )
        self.assertEqual({entry["source_is"] for entry in result}, {"own"})

    def test_source_of_a_row_is_that_of_the_op_with_most_time(self) -> None:
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
            result = row(ops, program)
            self.assertEqual((result["source_inner"], result["source_is"]), ("m.py:1", how))
        # An op with a stack has a line of its own.
        result = row([op("all-gather.1", "all-gather", 0, 5, stack="n.py:7:1")], program)
        self.assertEqual((result["source_inner"], result["source_is"]), ("n.py:7", "own"))


def waits_of(step: Step) -> dict[int, RealOp]:
    return {ran.metadata_id: ran.op for ran in step.leaves if ran.op.is_wait}


def flights_in(step: Step, clock: Clock) -> dict[str, Flights]:
    """Map the name of each wait to the flights of its executions."""
    starts = Starts(step)
    dones = {i: starts.of(wait)[0] for i, wait in waits_of(step).items()}
    begun = {ran.metadata_id: ran.op.place for ran in step.leaves if ran.op.begins}
    plane = step.device.plane
    modules, _ = read_steps(plane, "XLA Modules", step.device.base)
    borders = sorted(module.end for module in modules)
    flights = flights_of(step.admitted.pieces, clock, begun, dones, borders)
    return {wait.name: flights[i] for i, wait in waits_of(step).items()}


def steps_of(path: Any, *names: str) -> Iterator[Step]:
    """Yield each step of each device, or all ops of a device without steps."""
    for name in names:
        with open_trace(str(path)) as (trace,):
            context = context_of(str(path))
            device = open_device(str(path), trace, name, [], context)
            is_training = device.step_source == "steps"
            for picked in device.steps if is_training else [None]:
                yield normalize(device, picked, read_events(device, picked), context)


@unittest.skipUnless(OFFLOADING.exists(), "the capture is not available")
class Offloading(unittest.TestCase):
    """Test a real v6e capture, whose line `Async XLA Ops` shows the flight of each copy."""

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

    def test_flights_equal_those_on_the_line_async_xla_ops(self) -> None:
        by_trace = Clock(ON_TRACE, {})
        found = {
            name: sorted(zip(flights.starts, flights.ends, strict=True))
            for step in steps_of(OFFLOADING, "/device:TPU:0")
            for name, flights in flights_in(step, by_trace).items()
        }
        self.assertEqual(found, {name: sorted(of) for name, of in self.on_async_line().items()})
        self.assertEqual(sum(map(len, found.values())), 600)

    def test_all_reduce_has_the_expected_payload_and_rate(self) -> None:
        for device in range(4):
            options = "--step", "all", "--device", f"/device:TPU:{device}"
            result = answer(OFFLOADING, "comm", *options)
            (summed,) = [entry for entry in result["rows"] if entry["collective"] == "all-reduce"]
            n = summed["n_executions"]
            self.assertEqual(summed["payload_bytes"], n * 5_368_709_120)
            self.assertEqual(summed["bus_bytes"], n * 5_368_709_120)
            self.assertEqual((summed["group_size"], summed["groups"]), (2, "4 x 2, stride 4"))
            self.assertAlmostEqual(summed["bus_gbps"], 44.1, 1)
            for name in ("to_host", "from_host"):
                (copies,) = [entry for entry in result["rows"] if entry["collective"] == name]
                self.assertEqual(copies["pairs"], {"paired": 300, "unpaired": 0})
                self.assertEqual(copies["payload_bytes"], 300 * 5_368_709_120)
            self.assertEqual(result["totals"]["in_flight_union_ps"], result["totals"]["exposed_ps"])


@unittest.skipUnless(TRAINING.exists(), "the capture is not available")
class Training(unittest.TestCase):
    """Test a real TPU7x capture in which the texts of SparseCore collectives show no groups."""

    devices = "/device:TPU:0", "/device:TPU:1"

    def test_all_rows_have_lines_groups_and_payloads(self) -> None:
        for device in self.devices:
            result = answer(TRAINING, "comm", "--device", device, "--top", "1000")
            offloaded = [entry for entry in result["rows"] if entry["engine"] == "sparse_core"]
            self.assertEqual(
                Counter(entry["collective"] for entry in offloaded).keys(),
                {"all-gather", "reduce-scatter", "all-reduce"},
            )
            for entry in result["rows"]:
                self.assertIsNotNone(entry["source_inner"])
                self.assertIsNotNone(entry["groups"])
                self.assertGreater(entry["payload_bytes"], 0)
                is_permute = entry["collective"] == "collective-permute"
                self.assertEqual(entry["bus_bytes"] is None, is_permute)
                if entry["pairs"]:
                    self.assertEqual(
                        entry["in_flight_ps"],
                        entry["wait_dur_ps"] + entry["covered_ps"] + entry["other_ps"],
                    )
