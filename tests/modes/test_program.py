"""What the compiler decided, by small programs: a case for each rule; what launch scripts set."""

from __future__ import annotations

import json
import os
import unittest
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.builders import hlo_proto
from tests.builders.hlo_proto import (
    MANUAL,
    MAXIMAL,
    REPLICATED,
    TILED,
    TUPLE,
    UNKNOWN,
    UNREDUCED,
    Shape,
    aliases,
    array,
    donors,
    metadata_plane,
    named_sharding,
    sharding,
    shardings,
    tuple_of,
)
from tests.builders.hlo_proto import op as instruction
from tests.builders.xspace import Op, Space, encode, op, tpu_plane
from tests.harness import DEMO, FULL, OFFLOADING, TRAINING, InFolder, answer, run
from tests.naive.program_mode import flags_in

Json = dict[str, Any]
DAMAGED = "the program's HLO can't be read: jit_f(7): "
PLAN = {"collective_algorithm_config": {"emitter": "RingEmitter", "strategy": "StrategyRing"}}
RAN = (op("y", "loop fusion", 100, 10),)
BF16 = "bf16[8,128]{1,0}"
FLAGS = DEMO.parent / "flags"


def config(**said: object) -> bytes:
    return json.dumps(said).encode()


def offload(*rings: Json, kind: str = "all_gather_offload_config") -> Json:
    strategy = {"color_strategies": [{"phase_rings": list(rings)}]}
    return {"collective_offload_config": {kind: {"ici_strategy_config": strategy}}}


def traced(
    computations: dict[str, list[hlo_proto.Op]] | bytes, ran: Sequence[Op] = RAN, **more: Any
) -> bytes:
    """A trace of these ops, and their program beside it."""
    for each in ran:
        each.stats.setdefault("program_id", 7)
    program = computations
    if isinstance(program, dict):
        program = hlo_proto.hlo_proto(program, **more)
    plane = tpu_plane(list(ran), [("s", 90, 200)])
    return encode(Space([plane, metadata_plane({7: ("jit_f(7)", program)})]))


def say(
    computations: dict[str, list[hlo_proto.Op]], *options: str, ran: Sequence[Op] = RAN, **more: Any
) -> Json:
    return answer(traced(computations, ran, **more), "program", *options)


def columns(rows: Sequence[Json], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def damage(said: Json) -> list[str]:
    return [note for note in said["notes"] if note.startswith("the program's HLO")]


class Counts(unittest.TestCase):
    def test_what_no_fusion_calls_is_counted_by_opcode(self) -> None:
        said = say(
            {
                "inner": [instruction("deep", "tanh")],
                "body": [
                    instruction("neg", "negate"),
                    instruction("f.2", "fusion", calls=["inner"]),
                ],
                "reducer": [instruction("sum", "add")],
                "main": [
                    instruction("x", "parameter"),
                    instruction("f.1", "fusion", "x", calls=["body"]),
                    instruction("f.3", "fusion", "x"),
                    instruction("r", "reduce", "f.1", calls=["reducer"]),
                ],
            },
            devices=(2, 4),
        )
        self.assertEqual(
            list(said["opcodes"].items()),
            [("fusion", 2), ("add", 1), ("parameter", 1), ("reduce", 1)],
        )
        self.assertEqual((said["n_computations"], said["n_instructions"]), (4, 8))
        self.assertEqual((said["n_fusions"], said["n_devices"]), (2, 8))
        self.assertEqual((said["name"], said["program_id"]), ("jit_f(7)", "7"))

    def test_what_is_not_told_is_null(self) -> None:
        said = say({"main": [instruction("x", "parameter")]})
        self.assertEqual((said["n_fusions"], said["n_devices"], said["flags"]), (0, None, None))
        self.assertEqual((said["collectives"], said["kernels"], said["retries"]), ([], [], []))


class Collectives(unittest.TestCase):
    def assert_moved(
        self, computations: dict[str, list[hlo_proto.Op]], *expected: tuple[Any, ...], **more: Any
    ) -> list[Json]:
        rows: list[Json] = say(computations, **more)["collectives"]
        self.assertEqual(columns(rows, "collective", "how", "n_instructions"), list(expected))
        return rows

    def test_synchronous_ones(self) -> None:
        self.assert_moved(
            {
                "sum": [instruction("add", "add")],
                "main": [
                    instruction("ar.1", "all-reduce", calls=["sum"]),
                    instruction("ar.2", "all-reduce", calls=["sum"]),
                    instruction("ag", "all-gather"),
                    instruction("send.1", "send"),
                    instruction("send-done.1", "send-done", "send.1"),
                ],
            },
            ("all-gather", "sync", 1),
            ("all-reduce", "sync", 2),
        )

    def test_a_fusion_counts_and_not_what_it_calls(self) -> None:
        inside = [instruction("ar", "all-reduce"), instruction("slice", "dynamic-slice", "ar")]
        for name, collective in (
            ("all-reduce-scatter.3", "reduce-scatter"),
            ("fused_computation", "all-reduce"),
        ):
            self.assert_moved(
                {name: inside, "main": [instruction("fusion.1", "fusion", calls=[name])]},
                (collective, "sync", 1),
            )

    def test_what_lies_deep_in_a_fusion_counts_once(self) -> None:
        self.assert_moved(
            {
                "inner": [instruction("ag", "all-gather")],
                "body": [instruction("f.2", "fusion", calls=["inner"])],
                "main": [instruction("f.1", "fusion", calls=["body"])],
            },
            ("all-gather", "sync", 1),
        )

    def test_asynchronous_ones_count_where_they_end(self) -> None:
        self.assert_moved(
            {
                "wrapped": [instruction("rs", "reduce-scatter")],
                "main": [
                    instruction("cp", "collective-permute-start"),
                    instruction("cp.done", "collective-permute-done", "cp"),
                    instruction("s", "async-start", calls=["wrapped"]),
                    instruction("u", "async-update", "s", calls=["wrapped"]),
                    instruction("d", "async-done", "u", calls=["wrapped"]),
                    # Of another computation: a done tells what it is by itself.
                    instruction("ag.done", "all-gather-done"),
                ],
            },
            ("all-gather", "async", 1),
            ("collective-permute", "async", 1),
            ("reduce-scatter", "async", 1),
        )

    def test_of_a_sparse_core(self) -> None:
        by_thread = instruction("s", "async-start", calls=["outer"], thread="sparsecore")
        wrapped = {
            "inner": [instruction("ag", "all-gather")],
            "outer": [instruction("call", "custom-call", calls=["inner"])],
        }
        done = instruction("d", "async-done", "s")
        self.assert_moved({**wrapped, "main": [by_thread, done]}, ("all-gather", "sparse_core", 1))
        start = instruction("s", "async-start", calls=["outer"])
        self.assert_moved(
            {**wrapped, "main": [start, done]},
            ("all-gather", "sparse_core", 1),
            threads={"outer": "sparsecore"},
        )

    def test_a_copy_or_other_work_of_a_sparse_core_is_none(self) -> None:
        self.assert_moved(
            {
                "slice": [instruction("sl", "slice")],
                "main": [
                    instruction("s", "async-start", calls=["slice"], thread="sparsecore"),
                    instruction("d", "async-done", "s"),
                    instruction("c", "copy-start"),
                    instruction("c.done", "copy-done", "c"),
                ],
            }
        )

    def test_asynchronous_fusions(self) -> None:
        """Three pieces of one collective, and nothing but the last counts."""
        self.assert_moved(
            {
                "a": [instruction("ag.1", "all-gather")],
                "async_collective_fusion.2": [instruction("ag.2", "all-gather")],
                "c": [instruction("ag.3", "all-gather")],
                "main": [
                    instruction("async-collective-start.1", "fusion", calls=["a"]),
                    instruction(
                        "fusion.2",
                        "fusion",
                        "async-collective-start.1",
                        calls=["async_collective_fusion.2"],
                    ),
                    instruction("async-collective-done.1", "fusion", "fusion.2", calls=["c"]),
                ],
            },
            ("all-gather", "async_fusion", 1),
        )

    def test_a_fusion_that_waits_for_something_untold(self) -> None:
        self.assert_moved(
            {"main": [instruction("async-collective-done.1", "fusion")]},
            ("collective", "async_fusion", 1),
        )

    def test_times_and_payload_are_those_of_comm(self) -> None:
        groups = ", replica_groups={{0,1},{2,3}}"
        ran = [
            op("ag-start.1", "all-gather-start", 100, 1, opcode="all-gather-start"),
            op("fusion.9", "loop fusion", 101, 20),
            op("ag-done.1", "all-gather-done", 121, 9, shape=BF16, opcode="all-gather-done"),
            op("ar.1", "all-reduce", 130, 30, shape=BF16, attributes=groups, opcode="all-reduce"),
            op("ar.1", "all-reduce", 160, 10, shape=BF16, attributes=groups, opcode="all-reduce"),
        ]
        main = [
            instruction("ag-start.1", "all-gather-start"),
            instruction("ag-done.1", "all-gather-done", "ag-start.1"),
            instruction("ar.1", "all-reduce"),
            instruction("ar.2", "all-reduce"),
            instruction("rs.1", "reduce-scatter"),
        ]
        rows = say({"main": main}, ran=ran)["collectives"]
        names = "collective n_instructions n_executions sync_dur_ps wait_dur_ps payload_bytes"
        self.assertEqual(
            columns(rows, *names.split()),
            [
                ("all-reduce", 2, 2, 40, 0, 2 * 2048),
                ("all-gather", 1, 1, 0, 9, 2048),
                ("reduce-scatter", 1, 0, 0, 0, None),
            ],
        )
        of_comm = answer(traced({"main": main}, ran), "comm")["totals"]["by_collective"]
        for row in rows[:2]:
            told = of_comm[row["collective"]]
            self.assertEqual(told, {name: row[name] for name in told})

    def test_times_are_of_this_program_alone(self) -> None:
        ran = [
            op("ar.1", "all-reduce", 100, 30, shape=BF16, program_id=7),
            op("ar.1 ", "all-reduce", 130, 20, shape=BF16, program_id=8),
        ]
        (row,) = say({"main": [instruction("ar.1", "all-reduce")]}, ran=ran)["collectives"]
        self.assertEqual((row["n_executions"], row["sync_dur_ps"]), (1, 30))


class Plans(unittest.TestCase):
    def plan(self, said: object) -> list[str] | None:
        main = [instruction("ar.1", "all-reduce", config=json.dumps(said).encode())]
        ran = [op("ar.1", "all-reduce", 100, 30, shape=BF16)]
        row = say({"main": main}, ran=ran)["collectives"][0]
        (of_row,) = answer(traced({"main": main}, ran), "comm")["rows"]
        self.assertEqual(of_row["plan"], row["plan"])
        plan: list[str] | None = row["plan"]
        return plan

    def test_of_algorithms(self) -> None:
        self.assertEqual(self.plan(PLAN), ["RingEmitter", "StrategyRing"])
        nothing: Json = {"collective_algorithm_config": {"emitter": "", "strategy": 5}}
        others: list[object] = [{"collective_algorithm_config": []}, {}, [], None]
        for said in (nothing, *others):
            self.assertIsNone(self.plan(said))

    def test_of_offloads(self) -> None:
        first = {"ring_type": "ICI_RING_TYPE_UNIDIR_CW", "ring_dim": "ICI_RING_DIM_X_MESH"}
        second = {"ring_dim": "", "explicit_strategy_ring_dim": "ICI_RING_DIM_Y_MESH"}
        self.assertEqual(
            self.plan(offload(first, second, first)),
            ["UNIDIR_CW", "X_MESH", "Y_MESH", "sparse_core"],
        )
        self.assertEqual(
            self.plan({**PLAN, **offload()}), ["RingEmitter", "StrategyRing", "sparse_core"]
        )
        self.assertIsNone(self.plan(offload(first, kind="something_else")))
        settings = {"is_conditional_collective_offload": True, "all_gather_offload_config": ""}
        self.assertIsNone(self.plan({"collective_offload_config": settings}))

    def test_what_is_no_json_is_a_note(self) -> None:
        for text in (b"{", b"\xff", b"[" * 99_999):
            said = say({"main": [instruction("ar", "all-reduce", config=text)]})
            self.assertEqual(columns(said["collectives"], "plan"), [(None,)])
            note = f"{DAMAGED}the backend_config of ar; answered without it"
            self.assertEqual(damage(said), [note])

    def test_of_all_parts_and_what_they_run(self) -> None:
        emitters = [config(collective_algorithm_config={"emitter": name}) for name in "EDCBA"]
        rows = say(
            {
                "wrapped": [
                    instruction("ag", "all-gather", config=emitters[0]),
                    instruction("other", "all-gather", config=config(**offload())),
                ],
                "main": [
                    instruction("s", "async-start", calls=["wrapped"], config=emitters[1]),
                    instruction("u", "async-update", "s", config=emitters[2]),
                    instruction("neg", "negate", "u", config=config(**PLAN)),
                    instruction("d", "async-done", "u", config=emitters[3]),
                ],
            }
        )["collectives"]
        self.assertEqual(columns(rows, "plan"), [(["B", "C", "D", "E"],)])

    def test_a_row_for_each_plan_and_null_first(self) -> None:
        rows = say(
            {
                "main": [
                    instruction("a", "all-reduce", config=config(**PLAN)),
                    instruction("b", "all-reduce"),
                    instruction("c", "all-reduce", config=config(**PLAN)),
                    instruction("d", "all-reduce", config=config(**offload())),
                ]
            }
        )["collectives"]
        self.assertEqual(
            columns(rows, "plan", "n_instructions"),
            [(None, 1), (["RingEmitter", "StrategyRing"], 2), (["sparse_core"], 1)],
        )


class Kernels(unittest.TestCase):
    def kernel(
        self, name: str, target: str | None = "tpu_custom_call", **said: object
    ) -> hlo_proto.Op:
        return instruction(name, "custom-call", target=target, config=config(**said))

    def test_vmem_and_what_is_declared(self) -> None:
        used = [
            {"memory_space": "1", "offset": "0", "size": "589824"},
            {"memory_space": "0", "size": "9"},
        ]
        limit = [{"memory_space": "1", "size": "33554432"}]
        cost = {"flops": "5", "transcendentals": "6", "bytes_accessed": "7"}
        said = say(
            {
                "main": [
                    self.kernel("flash.1"),
                    self.kernel("flash.2", used_scoped_memory_configs=used),
                    self.kernel("flash.3", custom_call_config={"cost_estimate": cost}),
                    self.kernel(
                        "flash.4", used_scoped_memory_configs=used, scoped_memory_configs=limit
                    ),
                    self.kernel("flash.5.clone.1", used_scoped_memory_configs=used),
                    self.kernel(
                        "matmul.1", used_scoped_memory_configs=[], scoped_memory_configs=[]
                    ),
                    self.kernel("AllocateBuffer.1", target="AllocateBuffer"),
                    self.kernel("bare", target=None),
                ]
            },
            ran=[op("matmul.1", "custom-call", 100, 10), op("matmul.1", "custom-call", 120, 15)],
        )
        names = "kernel vmem_used_bytes vmem_limit_bytes declared n_instructions n_executions"
        self.assertEqual(
            columns(said["kernels"], *names.split(), "total_dur_ps"),
            [
                ("matmul", None, None, None, 1, 2, 25),
                ("flash", None, None, None, 1, 0, 0),
                (
                    *("flash", None, None),
                    {"flops": 5, "bytes_accessed": 7, "transcendentals": 6},
                    *(1, 0, 0),
                ),
                ("flash", 589824, None, None, 2, 0, 0),
                ("flash", 589824, 33554432, None, 1, 0, 0),
            ],
        )

    def test_what_is_no_size_is_null(self) -> None:
        one = {"memory_space": "1", "size": "8"}
        for listed, size in (
            ([one, one], 16),
            ([one, {"memory_space": 1, "size": 2}], 10),
            ([one, {"memory_space": "1"}], None),
            ([one, {"memory_space": "1", "size": "-2"}], None),
            ([{"memory_space": "0", "size": "8"}], None),
            *(({"memory_space": "1"}, None), ([5, "x", None], None), (None, None)),
        ):
            kernel = self.kernel("k", used_scoped_memory_configs=listed)
            (row,) = say({"main": [kernel]})["kernels"]
            self.assertEqual(row["vmem_used_bytes"], size, listed)

    def test_retries(self) -> None:
        used = [{"memory_space": "1", "size": "8"}]
        counts = {"a": "2", "b": "0", "c": 1, "d": "1", "e": "many", "f": None}
        said = say(
            {
                "main": [
                    instruction(
                        name,
                        "fusion",
                        config=config(
                            retry_config={"retry_count": count}, used_scoped_memory_configs=used
                        ),
                    )
                    for name, count in counts.items()
                ]
            },
            ran=[op("d", "loop fusion", 100, 10)],
        )
        names = "hlo_op retry_count n_executions total_dur_ps vmem_used_bytes vmem_limit_bytes"
        self.assertEqual(
            columns(said["retries"], *names.split()),
            [("d", 1, 1, 10, 8, None), ("a", 2, 0, 0, 8, None), ("c", 1, 0, 0, 8, None)],
        )


def parameter(
    number: int = 0, shape: Shape | None = None, path: str | None = "w['a']", name: str = ""
) -> hlo_proto.Op:
    return instruction(
        name or f"p{number}",
        "parameter",
        shape=shape or array("bf16", 16, 128),
        tf_op=path,
        number=number,
    )


AXES = (("fsdp", 4), ("tp", 2))


class Shardings(unittest.TestCase):
    def read(self, written: bytes, shape: Shape | None = None) -> tuple[Any, ...]:
        """The text, and the whole array's shape."""
        said = say({"main": [parameter(0, shape)]}, extra=shardings(written), devices=(1, 8))
        (row,) = said["parameters"]
        self.assertEqual(row["shape"], "bf16[16,128]")
        self.assertEqual(damage(said), [])
        return row["sharding"], row["global_shape"]

    def test_by_tiles(self) -> None:
        for written, text, whole in (
            (sharding(REPLICATED), "{replicated}", "bf16[16,128]"),
            (sharding(MAXIMAL, devices=[3]), "{maximal device=3}", "bf16[16,128]"),
            (sharding(UNREDUCED), "{unreduced}", "bf16[16,128]"),
            (sharding(MANUAL), "{manual}", None),
            (sharding(UNKNOWN), "{unknown}", None),
            (sharding(TILED, [4, 2], iota=[8]), "{devices=[4,2]<=[8]}", "bf16[64,256]"),
            (
                sharding(TILED, [2, 4], iota=[4, 2], order=[1, 0]),
                "{devices=[2,4]<=[4,2]T(1,0)}",
                "bf16[32,512]",
            ),
            (sharding(TILED, [2, 1], devices=[1, 0]), "{devices=[2,1]1,0}", "bf16[32,128]"),
            (
                sharding(TILED, [4, 1, 2], iota=[8], shares_last=True),
                "{devices=[4,1,2]<=[8] last_tile_dim_replicate}",
                "bf16[64,128]",
            ),
            (
                sharding(TILED, [1, 2, 2, 2], iota=[8], subgroups=[UNREDUCED, REPLICATED]),
                "{devices=[1,2,2,2]<=[8] last_tile_dims={unreduced, replicated}}",
                "bf16[16,256]",
            ),
            (
                sharding(TILED, [4, 1, 2], iota=[8], subgroups=[MANUAL]),
                "{devices=[4,1,2]<=[8] last_tile_dims={manual}}",
                None,
            ),
            (
                sharding(TILED, [4, 1, 2], iota=[8], subgroups=[UNKNOWN]),
                "{devices=[4,1,2]<=[8] last_tile_dims={unknown}}",
                None,
            ),
            # Of another rank, or of none.
            (sharding(TILED, [8], iota=[8]), "{devices=[8]<=[8]}", None),
            (sharding(TILED, [4, 2, 1], iota=[8]), "{devices=[4,2,1]<=[8]}", None),
            (sharding(TILED, [0, 4], iota=[4]), "{devices=[0,4]<=[4]}", None),
            (sharding(TILED, shares_last=True), "{devices=[] last_tile_dim_replicate}", None),
            *((sharding(9), None, None), (sharding(TUPLE, parts=[sharding(TUPLE)]), None, None)),
        ):
            self.assertEqual(self.read(written), (text, whole), text)

    def test_by_names(self) -> None:
        mesh = "mesh['fsdp'=4,'tp'=2]"
        for written, text, whole in (
            (named_sharding(AXES, [[0], []]), f"{mesh}, [{{'fsdp'}}, {{}}]", "bf16[64,128]"),
            (
                named_sharding(AXES, [[], [0, 1]], is_closed=False),
                f"{mesh}, [{{?}}, {{'fsdp', 'tp', ?}}]",
                "bf16[16,1024]",
            ),
            (
                named_sharding(AXES, [[(0, 2, 2)], [1]], device_ids=[1, 0, 2, 3, 4, 5, 6, 7]),
                f"{mesh}, device_ids=(1,0,2,3,4,5,6,7), [{{'fsdp':(2)2}}, {{'tp'}}]",
                "bf16[32,256]",
            ),
            (named_sharding(AXES, [[], []]), f"{mesh}, replicated", "bf16[16,128]"),
            (
                named_sharding(AXES, replicated=[0, 1]),
                f"{mesh}, [], replicated={{'fsdp', 'tp'}}",
                "bf16[16,128]",
            ),
            (
                named_sharding(AXES, [[1], []], unreduced=[0]),
                f"{mesh}, [{{'tp'}}, {{}}], unreduced={{'fsdp'}}",
                "bf16[32,128]",
            ),
            (named_sharding(AXES, unreduced=[0, 1]), f"{mesh}, unreduced", "bf16[16,128]"),
            (named_sharding(AXES, manual=[0, 1]), f"{mesh}, manual", None),
            (
                named_sharding(AXES, [[1], []], manual=[0]),
                f"{mesh}, [{{'tp'}}, {{}}], manual={{'fsdp'}}",
                None,
            ),
            (named_sharding([], device_ids=[3]), "maximal_mesh[device_id=3]", "bf16[16,128]"),
            (named_sharding(AXES, [[0]]), f"{mesh}, [{{'fsdp'}}]", None),
            (named_sharding([("x", 0)], [[0], []]), "mesh['x'=0], [{'x'}, {}]", None),
        ):
            # Whatever stands beside it is void.
            for kind in (REPLICATED, MANUAL):
                found = self.read(sharding(kind, [7], named=written))
                self.assertEqual(found, (f"{{{text}}}", whole))
        found = self.read(sharding(REPLICATED, named=named_sharding(AXES, [[2], []])))
        self.assertEqual(found, (None, None))

    def test_without_one(self) -> None:
        for devices, whole in (((1, 1), "bf16[16,128]"), ((1, 8), None), (None, None)):
            (row,) = say({"main": [parameter()]}, devices=devices)["parameters"]
            self.assertEqual((row["sharding"], row["global_shape"]), (None, whole))

    def test_of_a_tuple(self) -> None:
        """One parameter, as of more than 2 000 arguments."""
        cut, whole = sharding(TILED, [2], iota=[2]), sharding(REPLICATED)
        inner = tuple_of(array("token"), array("f32", 4), array("opaque"))
        shape = tuple_of(array("f32", 16), inner, array("bf16", 8, space=5))
        by_name = [named_sharding([("x", 2)], [[0]]), *[named_sharding([("x", 2)])] * 4]
        for written in (
            sharding(TUPLE, parts=[cut, whole, whole, whole, whole]),
            sharding(MANUAL, named=named_sharding([], parts=by_name)),
        ):
            said = say(
                {"main": [parameter(0, shape)]},
                extra=shardings(written) + aliases((0, (1, 1))) + donors((0, (0,)), (0, (2,))),
                devices=(1, 2),
            )
            names = "shape_index path shape global_shape bytes memory_space aliased_to_output"
            self.assertEqual(
                columns(said["parameters"], *names.split()),
                [
                    ([0], None, "f32[16]", "f32[32]", 64, 0, False),
                    ([1, 1], None, "f32[4]", "f32[4]", 16, 0, True),
                    ([2], None, "bf16[8]", "bf16[8]", 16, 5, False),
                ],
            )
            self.assertEqual((said["aliased_bytes"], said["donated_unused_bytes"]), (16, 64))
            self.assertEqual(damage(said), [])

    def test_of_another_shape_is_a_note(self) -> None:
        shape = tuple_of(array("f32", 16), array("f32", 4))
        for written in (sharding(TUPLE, parts=[sharding(REPLICATED)]), b"\xff"):
            said = say({"main": [parameter(0, shape)]}, extra=shardings(written), devices=(1, 2))
            self.assertEqual(
                columns(said["parameters"], "sharding", "global_shape"), [(None, None)] * 2
            )
            self.assertEqual(damage(said), [f"{DAMAGED}the sharding of p0; answered without it"])


class Parameters(unittest.TestCase):
    def test_most_bytes_first(self) -> None:
        said = say(
            {
                "body": [parameter(9, name="inner")],
                "main": [
                    parameter(3, array("f32", 4)),
                    parameter(2, array("s4", 7), None),
                    parameter(1, array("pred", 16)),
                    parameter(0, Shape("f32", (1 << 40,), dynamic=(True,))),
                    instruction("f", "fusion", "p3", calls=["body"]),
                ],
            },
            "--top=3",
        )
        self.assertEqual(
            columns(said["parameters"], "number", "path", "bytes"),
            [(1, "w['a']", 16), (3, "w['a']", 16), (2, None, 4)],
        )
        # The size of the fourth only a run knows.
        self.assertEqual(said["tail"], {"n_parameters_omitted": 1, "bytes": None})

    def test_memory_that_is_lent(self) -> None:
        said = say(
            {
                "main": [
                    parameter(0, array("f32", 1)),
                    parameter(1, array("f32", 2)),
                    parameter(2, array("f32", 4)),
                    parameter(3, array("f32", 8)),
                    parameter(4, array("f32", 16, space=5)),
                    parameter(5, array("f32", 32, space=5)),
                ]
            },
            extra=aliases((0, ()), (1, ()), (4, ())) + donors((1, ()), (2, ()), (5, ())),
        )
        # Of 1 both is said, so it is used; 4 and 5 lie in the host's memory.
        self.assertEqual((said["aliased_bytes"], said["donated_unused_bytes"]), (12, 16))
        aliased = [row["number"] for row in said["parameters"] if row["aliased_to_output"]]
        self.assertEqual(aliased, [4, 1, 0])
        self.assertEqual(damage(said), [])

    def test_a_shape_that_cannot_be_read(self) -> None:
        broken = hlo_proto.op("p0", "parameter", extra=b"\x1a\x01\xff", number=0)
        said = say({"main": [broken]}, extra=aliases((0, ())), devices=(1, 1))
        (row,) = said["parameters"]
        self.assertEqual(
            {name for name, value in row.items() if value is None},
            {"path", "shape", "global_shape", "sharding", "bytes", "memory_space"},
        )
        self.assertIsNone(said["aliased_bytes"])
        self.assertEqual(damage(said), [f"{DAMAGED}the shape of p0; answered without it"])

    def test_a_program_that_contradicts_itself(self) -> None:
        what = "two parameters have the same number, or an alias has no parameter"
        note = f"{DAMAGED}{what}; answered without it"
        for extra in (aliases((7, ())), aliases((0, (1,))), donors((7, ())), donors((0, (0,)))):
            said = say({"main": [parameter()]}, extra=extra)
            self.assertEqual((len(said["parameters"]), damage(said)), (1, [note]))
        said = say({"main": [parameter(0, name="a"), parameter(0, name="b")]})
        self.assertEqual((len(said["parameters"]), damage(said)), (2, [note]))
        for number in ((1 << 63) - 1, -1):
            far = parameter()
            far.instruction.number = number % (1 << 64)
            said = say({"main": [far]}, extra=shardings(sharding(REPLICATED)))
            self.assertEqual(columns(said["parameters"], "number", "sharding"), [(number, None)])

    def test_without_an_entry_nothing_is_known(self) -> None:
        one = hlo_proto.module({"main": [parameter()]})
        for entry_id in (None, 99):
            one.entry_id = entry_id
            said = answer(traced(encode(hlo_proto.HloProto(one))), "program")
            names = ("parameters", "tail", "aliased_bytes", "donated_unused_bytes")
            self.assertEqual([said[name] for name in names], [None] * 4)
            what = f"no single computation has the id {entry_id or 0}"
            note = f"{DAMAGED}{what}; answered without it"
            self.assertEqual(damage(said), [note])
            self.assertEqual(said["n_instructions"], 1)


class Damage(unittest.TestCase):
    def test_without_a_program(self) -> None:
        whole = hlo_proto.hlo_proto({"main": [parameter()]})
        for data in (traced(whole[:-2]), encode(Space([tpu_plane(list(RAN), [("s", 90, 200)])]))):
            outcome = run(data, "program")
            self.assertEqual((outcome.object["reason"], outcome.status), ("no_program", 0))


# --- flags ---------------------------------------------------------------------------------------


class Flags(InFolder):
    def said(self, text: str | bytes, computations: Any = None) -> Json:
        data = text if isinstance(text, bytes) else text.encode()
        path = self.write("flags.txt", data)
        return say(computations or {"main": [parameter()]}, "--flags", str(path))

    def set_by(self, text: str | bytes) -> Json:
        found: Json = self.said(text)["flags"]["set"]
        return found

    def notes_on(self, text: str | bytes) -> list[str]:
        return [note for note in self.said(text)["notes"] if "flags.txt" in note]

    def test_in_scripts(self) -> None:
        self.assertEqual(
            self.said((FLAGS / "launch.sh").read_bytes())["flags"]["set"],
            {
                "xla_tpu_enable_async_collective_fusion": "true",
                "xla_tpu_enable_async_collective_fusion_fuse_all_gather": "true",
                "xla_tpu_overlap_compute_collective_tc": "False",
                "xla_tpu_scoped_vmem_limit_kib": "81920",
                "xla_enable_async_all_gather": "true",
                "xla_tpu_enable_sparse_core_collective_offload_all_gather": "true",
                "xla_dump_to": "/tmp/dump",
                "xla_enable_async_collective_permute": "1",
                "xla_tpu_spmd_rng_bit_generator_unsafe": "$(id",
                "xla_tpu_data_parallel_opt_different_sized_ops": "a b",
            },
        )
        self.assertEqual(
            self.notes_on((FLAGS / "launch.sh").read_bytes()),
            [
                "set more than once in flags.txt; the last value counts:"
                " xla_tpu_scoped_vmem_limit_kib",
                "1 flags without a value (=) in flags.txt are left out",
            ],
        )

    def test_in_yaml(self) -> None:
        self.assertEqual(
            self.set_by((FLAGS / "pod.yaml").read_bytes()),
            {
                "xla_enable_async_all_gather": "false",
                "xla_enable_async_all_reduce": "yes",
                "xla_tpu_enable_sparse_core_collective_offload_all_gather": "off",
                "xla_tpu_enable_sparse_core_collective_offload_reduce_scatter": "auto",
                "xla_tpu_enable_sparse_core_collective_offload_all_reduce": "on",
                "xla_tpu_enable_async_collective_fusion": "off",
                "xla_enable_async_collective_permute": "0",
                "xla_tpu_enable_async_collective_fusion_fuse_all_reduce": "True",
            },
        )

    def test_how_a_value_ends(self) -> None:
        for text, value in (
            ("--xla_a=1 --b", "1"),
            ("--xla_a=1\\\n2", "1"),
            ("--xla_a=1\\\r\n2", "1"),
            ("--xla_a=1\rb", "1"),
            ("--xla_a=", ""),
            ("--xla_a= 1", ""),
            ("X='--xla_a=1'", "1"),
            ('["--xla_a=1", 2]', "1"),
            ("[--xla_a=1,]", "1"),
            ("f(--xla_a=(1;2]);,\\", "(1;2"),
            ("--xla_a=1,2,", "1,2"),
            ("--xla_a=${B[0]}; x", "${B[0]};"),
            ("--xla_a=$B[0]\\", "$B[0]"),
            ("--xla_a='b c', d", "b c"),
            ("--xla_a='b c,' d", "b c,"),
            ('"--xla_a=\\"b c\\" --d"', "b c"),
            ("'--xla_a=\"b\" --c'", "b"),
            ('--xla_a="b\n', ""),
            ("`--xla_a=1`", "1"),
            ("--xla_a=b=c", "b=c"),
            ("--xla_a=b#c", "b#c"),
            ("--xla_a=b #c --xla_a=2", "b"),
            ("LIBTPU_INIT_ARGS=--xla_a=1", "1"),
            ("---xla_a=1", "1"),
        ):
            with self.subTest(text=text):
                self.assertEqual(self.set_by(text), {"xla_a": value})
                self.assertEqual(flags_in(text), {"xla_a": value})

    def test_comments(self) -> None:
        for text in ("#--xla_a=1", " # --xla_a=1", "x\t#y --xla_a=1", "'b #' --xla_a=1"):
            self.assertEqual(self.set_by(text), {}, text)
            self.assertEqual(self.notes_on(text), ["no flag --xla…=value in flags.txt"])
        self.assertEqual(
            self.set_by("# a \\\n--xla_a=1\nb#c --xla_b=2"), {"xla_a": "1", "xla_b": "2"}
        )

    def test_junk(self) -> None:
        junk = (FLAGS / "junk").read_bytes()
        self.assertEqual(self.set_by(junk), flags_in(junk.decode(errors="replace")))
        self.assertEqual(self.set_by(b""), {})
        self.assertEqual(self.set_by(bytes(range(256)) * 1000), {})
        n = 10**6 if FULL else 10**5
        for text in ('--xla_a="' + "\\" * n, "\\" * n, "--xla" * n, '--xla_a="' * n, "# " * n):
            self.assertLess(self.said(text)["flags"]["n"], 2)

    def test_many(self) -> None:
        """As libtpu writes all it has."""
        names = [f"xla_tpu_made_up_{i}" for i in range(1500)]
        text = "".join(f"--{name}='{i}'\n" for i, name in enumerate(names))
        said = self.said(text + "--xla_tpu_made_up_0=last\n--megascale_x=1\n")
        flags = said["flags"]
        self.assertEqual((flags["n"], list(flags["set"])), (1500, names[:200]))
        self.assertEqual(flags["set"]["xla_tpu_made_up_0"], "last")
        self.assertEqual({row["says"] for row in flags["findings"]}, {None})
        again = self.said(text * 2)["notes"][-1]
        self.assertIn(f"{', '.join(names[:8])} and 1492 more", again)

    def test_a_file_that_cannot_be_read(self) -> None:
        folder = str(self.folder)
        large = self.write("large", b"\n" * ((16 << 20) + 1))
        # Nobody writes to it.
        os.mkfifo(f"{folder}/fifo")
        for path, what in (
            (f"{folder}/fifo", "not a regular file; copy its text into one"),
            ("/dev/zero", "not a regular file; copy its text into one"),
            (f"{folder}/none", "No such file or directory"),
            (folder, "Is a directory"),
            (str(large), "too large for a flags file (limit 16 MiB)"),
        ):
            outcome = run(traced({"main": [parameter()]}), "program", "--flags", path)
            said = outcome.object
            self.assertEqual((said["reason"], outcome.status), ("unreadable_flags", 1))
            self.assertEqual(said["detail"], f"{path}: {what}")
            self.assertEqual(outcome.stderr.count("\n"), 1)

    # what a flag says

    GATHER = "xla_tpu_enable_sparse_core_collective_offload_all_gather"

    def finding(self, flag: str, value: str | None, main: Sequence[str]) -> Json:
        """Of a program that has these collectives."""
        ops = {
            "sync": [instruction("sync", "all-gather")],
            "async": [
                instruction("s.a", "all-gather-start"),
                instruction("d.a", "all-gather-done", "s.a"),
            ],
            "async_fusion": [instruction("async-collective-done.1", "fusion", calls=["ag"])],
            "sparse_core": [
                instruction("s.sc", "async-start", calls=["ag"], thread="sparsecore"),
                instruction("d.sc", "async-done", "s.sc"),
            ],
            "permute": [
                instruction("s.p", "collective-permute-start"),
                instruction("d.p", "collective-permute-done", "s.p"),
            ],
        }
        computations = {"main": [each for name in main for each in ops[name]]}
        if any("ag" in each.calls for each in computations["main"]):
            computations = {"ag": [instruction("ag", "all-gather")], **computations}
        text = "" if value is None else f"--{flag}={value}"
        rows = self.said(text, computations)["flags"]["findings"]
        (row,) = (row for row in rows if row["flag"] == flag)
        self.assertEqual(row["set_to"], value)
        found: Json = row
        return found

    def test_each_word_has_a_case(self) -> None:
        cases: list[tuple[str | None, list[str], int, int, str | None]] = [
            (None, ["sparse_core", "sync"], 2, 1, None),
            ("true", ["sparse_core", "sync"], 2, 1, "consistent"),
            ("1", ["sparse_core"], 1, 1, "consistent"),
            ("off", ["sync", "async"], 2, 0, "consistent"),
            ("False", ["sparse_core"], 1, 1, "contradicts"),
            ("0", ["sparse_core", "sync"], 2, 1, "contradicts"),
            ("yes", ["sync"], 1, 0, "no_effect"),
            ("ON", ["async_fusion", "async"], 2, 0, "no_effect"),
            ("auto", ["sparse_core"], 1, 1, "unknown"),
            ("", ["sparse_core"], 1, 1, "unknown"),
            ("true", ["permute"], 0, 0, "unknown"),
            ("no", [], 0, 0, "unknown"),
        ]
        for value, main, n, n_seen, says in cases:
            with self.subTest(value=value, main=main):
                row = self.finding(self.GATHER, value, main)
                found = row["n_instructions"], row["n_seen"], row["says"]
                self.assertEqual(found, (n, n_seen, says))

    def test_what_shows_each_flag(self) -> None:
        everything = ["sync", "async", "async_fusion", "sparse_core", "permute"]
        for flag, n, n_seen in (
            ("xla_tpu_enable_async_collective_fusion", 5, 1),
            ("xla_tpu_overlap_compute_collective_tc", 5, 1),
            ("xla_tpu_enable_async_collective_fusion_fuse_all_gather", 4, 1),
            ("xla_tpu_enable_async_collective_fusion_fuse_all_reduce", 0, 0),
            (self.GATHER, 4, 1),
            ("xla_tpu_enable_sparse_core_collective_offload_reduce_scatter", 0, 0),
            ("xla_tpu_enable_sparse_core_collective_offload_all_reduce", 0, 0),
            ("xla_enable_async_all_gather", 4, 2),
            ("xla_enable_async_all_reduce", 0, 0),
            ("xla_enable_async_collective_permute", 1, 1),
        ):
            row = self.finding(flag, "true", everything)
            self.assertEqual((row["n_instructions"], row["n_seen"]), (n, n_seen), flag)

    def test_what_the_others_cost(self) -> None:
        ran = [
            op("ag.1", "all-gather", 100, 30, shape=BF16),
            op("ag-start.2", "all-gather-start", 130, 1),
            op("ag-done.2", "all-gather-done", 140, 7, shape=BF16),
        ]
        main = [
            instruction("ag.1", "all-gather"),
            instruction("ag-start.2", "all-gather-start"),
            instruction("ag-done.2", "all-gather-done", "ag-start.2"),
        ]
        path = self.write("flags.txt", b"")
        rows = say({"main": main}, "--flags", str(path), ran=ran)["flags"]["findings"]
        exposed = {row["flag"]: row["exposed_ps"] for row in rows}
        self.assertEqual(exposed["xla_enable_async_all_gather"], 30)
        self.assertEqual(exposed[self.GATHER], 37)
        self.assertEqual(exposed["xla_enable_async_all_reduce"], 0)


# --- real programs -------------------------------------------------------------------------------


class Demo(unittest.TestCase):
    """TPU7x, of which the figures can be counted by hand in a dump of the program."""

    said: Json

    @classmethod
    def setUpClass(cls) -> None:
        cls.said = answer(DEMO, "program")

    def test_collectives(self) -> None:
        counted = Counter[tuple[str, str]]()
        for row in self.said["collectives"]:
            counted[row["collective"], row["how"]] += row["n_instructions"]
            self.assertEqual("sparse_core" in (row["plan"] or ()), row["how"] == "sparse_core")
        self.assertEqual(
            counted,
            {
                ("all-gather", "sparse_core"): 23,
                ("reduce-scatter", "sparse_core"): 14,
                ("all-reduce", "sparse_core"): 1,
                ("all-reduce", "sync"): 13,
                ("all-to-all", "sync"): 2,
                ("collective-permute", "async"): 4,
            },
        )

    def test_time_is_that_of_comm(self) -> None:
        comm = answer(DEMO, "comm", "--top=1000")
        sync = sum(row["sync_dur_ps"] for row in self.said["collectives"])
        wait = sum(row["wait_dur_ps"] for row in self.said["collectives"])
        self.assertEqual(sync + wait, comm["totals"]["exposed_ps"])
        for name, told in comm["totals"]["by_collective"].items():
            rows = [row for row in self.said["collectives"] if row["collective"] == name]
            for figure, value in told.items():
                self.assertEqual(sum(row[figure] for row in rows), value)
        offloaded = [row for row in comm["rows"] if "sparse_core" in (row["plan"] or ())]
        self.assertEqual({row["engine"] for row in offloaded}, {"sparse_core"})

    def test_kernels(self) -> None:
        names = "kernel vmem_used_bytes vmem_limit_bytes n_instructions n_executions"
        self.assertEqual(
            columns(self.said["kernels"], *names.split())[0],
            ("flash_attention", 589_824, 33_554_432, 2, 8),
        )
        of_summary = answer(DEMO, "summary")["kernels"]
        self.assertEqual(
            columns(self.said["kernels"], "kernel", "n_executions", "total_dur_ps"),
            columns(of_summary, "kernel", "n_executions", "total_dur_ps"),
        )

    def test_parameters(self) -> None:
        said = answer(DEMO, "program", "--top=100")
        rows = {row["path"]: row for row in said["parameters"]}
        # Of the source beside the capture: weights, two moments of each, and tokens.
        whole = {
            "w['emb']": "f32[32000,1024]",
            "w['blk']['w1']": "f32[4,1024,4096]",
            "w['blk']['n2']": "f32[4,1024]",
            "tok": "s32[16,2048]",
        }
        self.assertEqual({path: rows[path]["global_shape"] for path in whole}, whole)
        self.assertEqual(len(rows), 31)
        self.assertEqual(rows["w['emb']"]["sharding"], "{devices=[2,4]<=[4,2]T(1,0)}")
        aliased = [row for row in rows.values() if row["aliased_to_output"]]
        self.assertEqual(len(aliased), 21)
        self.assertEqual(said["aliased_bytes"], sum(row["bytes"] for row in aliased))
        self.assertEqual(self.said["tail"]["n_parameters_omitted"], 11)
        self.assertEqual(
            said["tail"]["bytes"] + sum(row["bytes"] for row in rows.values()),
            self.said["tail"]["bytes"] + sum(row["bytes"] for row in self.said["parameters"]),
        )


class Captures(unittest.TestCase):
    def need(self, path: Path) -> Path:
        if not path.exists():
            self.skipTest("the capture isn't here")
        return path

    def test_v6e(self) -> None:
        said = answer(self.need(OFFLOADING), "program")
        names = "path shape global_shape sharding memory_space aliased_to_output"
        shape = "f32[5,1024,1024,256]"
        self.assertEqual(
            columns(said["parameters"], *names.split()),
            [(f"ws[{i}]", shape, shape, "{replicated}", 5, True) for i in range(3)],
        )
        # The host's memory is lent, not HBM.
        self.assertEqual((said["aliased_bytes"], said["collectives"]), (0, []))

    def test_v6e_with_a_collective(self) -> None:
        step = "jit__psum(9646411105960254074)"
        said = answer(self.need(OFFLOADING), "program", "--step-id", step)
        (row,) = said["collectives"]
        self.assertEqual(
            (row["collective"], row["how"], row["n_instructions"]), ("all-reduce", "sync", 1)
        )
        (of_comm,) = answer(OFFLOADING, "comm", "--step-id", step)["rows"]
        for name in ("n_executions", "sync_dur_ps", "wait_dur_ps", "payload_bytes", "plan"):
            self.assertEqual(row[name], of_comm[name])
        (parameter,) = said["parameters"]
        self.assertEqual(
            parameter["sharding"], "{devices=[2,1,1,1,1,4]<=[8] last_tile_dim_replicate}"
        )
        self.assertEqual(parameter["global_shape"], "f32[2,5,1024,1024,256]")

    def test_the_demo_is_that_capture(self) -> None:
        of_capture, of_demo = answer(self.need(TRAINING), "program"), answer(DEMO, "program")
        for name in ("collectives", "kernels", "parameters", "opcodes"):
            self.assertEqual(of_capture[name], of_demo[name])


if __name__ == "__main__":
    unittest.main()
