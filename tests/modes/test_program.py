"""Test the mode `program`: counts, collectives, kernels, parameters, flags, and real programs."""

from __future__ import annotations

import json
import unittest
from collections.abc import Sequence
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
    op as instruction,
    sharding,
    shardings,
    tuple_of,
)
from tests.builders.xspace import Op, Space, encode, op, tpu_plane
from tests.harness import DEMO, InFolder, Json, answer, run
from tests.modes.small_steps import column

DAMAGED = "the program's HLO can't be read: jit_f(7): "
NOTE_END = "; fields that depend on it are null"
PLAN = {"collective_algorithm_config": {"emitter": "RingEmitter", "strategy": "StrategyRing"}}
RAN = (op("y", "loop fusion", 100, 10),)
BF16 = "bf16[8,128]{1,0}"
FLAGS = DEMO.parent / "flags"


def config(**settings: object) -> bytes:
    return json.dumps(settings).encode()


def offload(*rings: Json, kind: str = "all_gather_offload_config") -> Json:
    strategy = {"color_strategies": [{"phase_rings": list(rings)}]}
    return {"collective_offload_config": {kind: {"ici_strategy_config": strategy}}}


def traced(
    computations: dict[str, list[hlo_proto.Op]] | bytes, ran: Sequence[Op] = RAN, **more: Any
) -> bytes:
    """Encode a trace of the given ops with their program."""
    for execution in ran:
        execution.stats.setdefault("program_id", 7)
    program = computations
    if isinstance(program, dict):
        program = hlo_proto.hlo_proto(program, **more)
    plane = tpu_plane(list(ran), [("s", 90, 200)])
    return encode(Space([plane, metadata_plane({7: ("jit_f(7)", program)})]))


def result_of(
    computations: dict[str, list[hlo_proto.Op]], *options: str, ran: Sequence[Op] = RAN, **more: Any
) -> Json:
    return answer(traced(computations, ran, **more), "program", *options)


def damage(result: Json) -> list[str]:
    return [note for note in result["notes"] if note.startswith("the program's HLO")]


def parsed(**computations: str) -> dict[str, list[hlo_proto.Op]]:
    """Parse instructions such as `done async-done start calls=body`, separated by semicolons.

    A called computation must precede its caller; the last computation is the entry.
    """
    found = {}
    for computation, text in computations.items():
        ops = []
        for part in text.split(";"):
            name, opcode, *rest = part.split()
            operands = [word for word in rest if "=" not in word]
            calls = [word.removeprefix("calls=") for word in rest if word.startswith("calls=")]
            thread = "sparsecore" if "on=sparsecore" in rest else None
            ops.append(instruction(name, opcode, *operands, calls=calls, thread=thread))
        found[computation] = ops
    return found


class Counts(unittest.TestCase):
    def test_instructions_outside_fusions_are_counted_by_opcode(self) -> None:
        result = result_of(
            parsed(
                inner="deep tanh",
                body="neg negate; f.2 fusion calls=inner",
                reducer="sum add",
                main="x parameter; f.1 fusion x calls=body; f.3 fusion x;"
                "r reduce f.1 calls=reducer",
            ),
            devices=(2, 4),
        )
        opcodes = [("fusion", 2), ("add", 1), ("parameter", 1), ("reduce", 1)]
        self.assertEqual(list(result["opcodes"].items()), opcodes)
        self.assertEqual((result["n_computations"], result["n_instructions"]), (4, 8))
        self.assertEqual((result["n_fusions"], result["n_devices"]), (2, 8))
        self.assertEqual(result["program"]["name"], "jit_f(7)")


class Collectives(unittest.TestCase):
    def assert_moved(
        self, computations: dict[str, list[hlo_proto.Op]], *expected: tuple[Any, ...], **more: Any
    ) -> None:
        rows = result_of(computations, **more)["collectives"]
        self.assertEqual(column(rows, "collective", "how", "n_instructions"), list(expected))

    def test_synchronous_collectives_are_counted_by_opcode(self) -> None:
        main = "ar.1 all-reduce calls=sum; ar.2 all-reduce calls=sum; ag all-gather;"
        main += "send.1 send; send-done.1 send-done send.1"
        self.assert_moved(
            parsed(sum="add add", main=main), ("all-gather", "sync", 1), ("all-reduce", "sync", 2)
        )

    def test_fusion_with_a_collective_counts_once(self) -> None:
        for name, collective in (
            ("all-reduce-scatter.3", "reduce-scatter"),
            ("fused_computation", "all-reduce"),
        ):
            inside = {name: "ar all-reduce; slice dynamic-slice ar"}
            computations = parsed(**inside, main=f"fusion.1 fusion calls={name}")
            self.assert_moved(computations, (collective, "sync", 1))

    def test_asynchronous_collectives_are_counted_by_their_done(self) -> None:
        # The last done has no start, so only its opcode names the collective.
        main = (
            "cp collective-permute-start; cp.done collective-permute-done cp;"
            "s async-start calls=wrapped; u async-update s calls=wrapped;"
            "d async-done u calls=wrapped; ag.done all-gather-done"
        )
        names = ("all-gather", "collective-permute", "reduce-scatter")
        expected = [(name, "async", 1) for name in names]
        self.assert_moved(parsed(wrapped="rs reduce-scatter", main=main), *expected)

    def test_thread_of_start_or_body_identifies_the_sparse_core(self) -> None:
        wrapped = {"inner": "ag all-gather", "outer": "call custom-call calls=inner"}
        expected = ("all-gather", "sparse_core", 1)
        main = "s async-start calls=outer on=sparsecore; d async-done s"
        self.assert_moved(parsed(**wrapped, main=main), expected)
        main = "s async-start calls=outer; d async-done s"
        self.assert_moved(parsed(**wrapped, main=main), expected, threads={"outer": "sparsecore"})

    def test_copies_and_slices_are_not_collectives(self) -> None:
        main = "s async-start calls=slice on=sparsecore; d async-done s;"
        self.assert_moved(parsed(slice="sl slice", main=main + "c copy-start; e copy-done c"))

    def test_asynchronous_fusions_of_one_collective_count_once(self) -> None:
        bodies = {"a": "ag.1 all-gather", "async_collective_fusion.2": "ag.2 all-gather"}
        main = (
            "async-collective-start.1 fusion calls=a;"
            "fusion.2 fusion async-collective-start.1 calls=async_collective_fusion.2;"
            "async-collective-done.1 fusion fusion.2 calls=c"
        )
        computations = parsed(**bodies, c="ag.3 all-gather", main=main)
        self.assert_moved(computations, ("all-gather", "async_fusion", 1))

    def test_asynchronous_fusion_with_an_unknown_body_counts_as_a_collective(self) -> None:
        computations = parsed(main="async-collective-done.1 fusion")
        self.assert_moved(computations, ("collective", "async_fusion", 1))

    def test_times_and_payload_equal_those_in_comm(self) -> None:
        groups = ", replica_groups={{0,1},{2,3}}"
        ran = [
            op("ag-start.1", "all-gather-start", 100, 1, opcode="all-gather-start"),
            op("fusion.9", "loop fusion", 101, 20),
            op("ag-done.1", "all-gather-done", 121, 9, shape=BF16, opcode="all-gather-done"),
            op("ar.1", "all-reduce", 130, 30, shape=BF16, attributes=groups, opcode="all-reduce"),
            op("ar.1", "all-reduce", 160, 10, shape=BF16, attributes=groups, opcode="all-reduce"),
        ]
        main = "ag-start.1 all-gather-start; ag-done.1 all-gather-done ag-start.1;"
        main += "ar.1 all-reduce; ar.2 all-reduce; rs.1 reduce-scatter"
        rows = result_of(parsed(main=main), ran=ran)["collectives"]
        names = "collective n_instructions n_executions sync_dur_ps wait_dur_ps payload_bytes"
        expected = [
            ("all-reduce", 2, 2, 40, 0, 2 * 2048),
            ("all-gather", 1, 1, 1, 9, 2048),
            ("reduce-scatter", 1, 0, 0, 0, None),
        ]
        self.assertEqual(column(rows, *names.split()), expected)
        of_comm = answer(traced(parsed(main=main), ran), "comm")["totals"]["by_collective"]
        for row in rows[:2]:
            figures = of_comm[row["collective"]]
            self.assertEqual(figures, {name: row[name] for name in figures})

    def test_times_in_other_programs_are_excluded(self) -> None:
        ran = [
            op("ar.1", "all-reduce", 100, 30, shape=BF16, program_id=7),
            op("ar.1 ", "all-reduce", 130, 20, shape=BF16, program_id=8),
        ]
        (row,) = result_of(parsed(main="ar.1 all-reduce"), ran=ran)["collectives"]
        self.assertEqual((row["n_executions"], row["sync_dur_ps"]), (1, 30))


class Plans(unittest.TestCase):
    def plan(self, settings: object) -> list[str] | None:
        main = [instruction("ar.1", "all-reduce", config=json.dumps(settings).encode())]
        ran = [op("ar.1", "all-reduce", 100, 30, shape=BF16)]
        row = result_of({"main": main}, ran=ran)["collectives"][0]
        (of_row,) = answer(traced({"main": main}, ran), "comm")["rows"]
        self.assertEqual(of_row["plan"], row["plan"])
        plan: list[str] | None = row["plan"]
        return plan

    def test_plan_of_an_offload_has_rings_and_sparse_core(self) -> None:
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

    def test_plan_combines_all_parts_of_an_asynchronous_collective(self) -> None:
        emitters = [config(collective_algorithm_config={"emitter": name}) for name in "EDCBA"]
        rows = result_of(
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
        self.assertEqual(column(rows, "plan"), [["B", "C", "D", "E"]])


class Kernels(unittest.TestCase):
    def kernel(
        self, name: str, target: str | None = "tpu_custom_call", **settings: object
    ) -> hlo_proto.Op:
        return instruction(name, "custom-call", target=target, config=config(**settings))

    def test_kernels_are_grouped_by_vmem_and_declared_cost(self) -> None:
        used = [
            {"memory_space": "1", "offset": "0", "size": "589824"},
            {"memory_space": "0", "size": "9"},
        ]
        limit = [{"memory_space": "1", "size": "33554432"}]
        cost = {"flops": "5", "transcendentals": "6", "bytes_accessed": "7"}
        result = result_of(
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
            column(result["kernels"], *names.split(), "total_dur_ps"),
            [
                ("matmul", None, None, None, 1, 2, 25),
                ("flash", None, None, None, 1, 0, 0),
                (*("flash", None, None), {"flops": 5, "bytes_accessed": 7}, *(1, 0, 0)),
                ("flash", 589824, None, None, 2, 0, 0),
                ("flash", 589824, 33554432, None, 1, 0, 0),
            ],
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
        """Return the text of a sharding and the global shape that follows from it."""
        result = result_of(
            {"main": [parameter(0, shape)]}, extra=shardings(written), devices=(1, 8)
        )
        (row,) = result["parameters"]
        self.assertEqual(row["shape"], "bf16[16,128]")
        self.assertEqual(damage(result), [])
        return row["sharding"], row["global_shape"]

    def test_tiled_shardings_have_text_and_global_shape(self) -> None:
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
            # These shardings do not fit the array.
            (sharding(TILED, [8], iota=[8]), "{devices=[8]<=[8]}", None),
            (sharding(TILED, [4, 2, 1], iota=[8]), "{devices=[4,2,1]<=[8]}", None),
            (sharding(TILED, [0, 4], iota=[4]), "{devices=[0,4]<=[4]}", None),
            (sharding(TILED, shares_last=True), "{devices=[] last_tile_dim_replicate}", None),
            *((sharding(9), None, None), (sharding(TUPLE, parts=[sharding(TUPLE)]), None, None)),
        ):
            with self.subTest(text=text):
                self.assertEqual(self.read(written), (text, whole))

    def test_named_shardings_have_text_and_global_shape(self) -> None:
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
            # The named sharding takes precedence over the older fields.
            for kind in (REPLICATED, MANUAL):
                found = self.read(sharding(kind, [7], named=written))
                self.assertEqual(found, (f"{{{text}}}", whole))
        found = self.read(sharding(REPLICATED, named=named_sharding(AXES, [[2], []])))
        self.assertEqual(found, (None, None))

    def test_tuple_parameter_has_a_row_for_each_array(self) -> None:
        cut, whole = sharding(TILED, [2], iota=[2]), sharding(REPLICATED)
        inner = tuple_of(array("token"), array("f32", 4), array("opaque"))
        shape = tuple_of(array("f32", 16), inner, array("bf16", 8, space=5))
        by_name = [named_sharding([("x", 2)], [[0]]), *[named_sharding([("x", 2)])] * 4]
        for written in (
            sharding(TUPLE, parts=[cut, whole, whole, whole, whole]),
            sharding(MANUAL, named=named_sharding([], parts=by_name)),
        ):
            result = result_of(
                {"main": [parameter(0, shape)]},
                extra=shardings(written) + aliases((0, (1, 1))) + donors((0, (0,)), (0, (2,))),
                devices=(1, 2),
            )
            names = "shape_index path shape global_shape bytes memory_space aliased_to_output"
            self.assertEqual(
                column(result["parameters"], *names.split()),
                [
                    ([0], None, "f32[16]", "f32[32]", 64, 0, False),
                    ([1, 1], None, "f32[4]", "f32[4]", 16, 0, True),
                    ([2], None, "bf16[8]", "bf16[8]", 16, 5, False),
                ],
            )
            self.assertEqual((result["aliased_bytes"], result["donated_unused_bytes"]), (16, 64))
            self.assertEqual(damage(result), [])

    def test_unreadable_sharding_is_null_with_a_note(self) -> None:
        shape = tuple_of(array("f32", 16), array("f32", 4))
        for written in (sharding(TUPLE, parts=[sharding(REPLICATED)]), b"\xff"):
            result = result_of(
                {"main": [parameter(0, shape)]}, extra=shardings(written), devices=(1, 2)
            )
            self.assertEqual(
                column(result["parameters"], "sharding", "global_shape"), [(None, None)] * 2
            )
            self.assertEqual(
                damage(result), [f"{DAMAGED}the sharding of p0 is unreadable{NOTE_END}"]
            )


class Parameters(unittest.TestCase):
    def test_parameters_are_ordered_by_size(self) -> None:
        result = result_of(
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
            column(result["parameters"], "number", "path", "bytes"),
            [(1, "w['a']", 16), (3, "w['a']", 16), (2, None, 4)],
        )
        # The omitted parameter has a dynamic size, so the sum is unknown.
        self.assertEqual(result["tail"], {"n_parameters_omitted": 1, "bytes": None})

    def test_aliased_and_unused_donated_bytes_include_only_hbm(self) -> None:
        result = result_of(
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
        # Parameter 1 is aliased and donated, so its donation is used; parameters 4 and 5 are in
        # host memory.
        self.assertEqual((result["aliased_bytes"], result["donated_unused_bytes"]), (12, 16))
        aliased = [row["number"] for row in result["parameters"] if row["aliased_to_output"]]
        self.assertEqual(aliased, [4, 1, 0])
        self.assertEqual(damage(result), [])

    def test_contradictory_parameters_are_noted(self) -> None:
        what = "two parameters have the same number, or an alias has no parameter"
        note = f"{DAMAGED}{what}{NOTE_END}"
        for extra in (aliases((7, ())), aliases((0, (1,))), donors((7, ())), donors((0, (0,)))):
            result = result_of({"main": [parameter()]}, extra=extra)
            self.assertEqual((len(result["parameters"]), damage(result)), (1, [note]))
        result = result_of({"main": [parameter(0, name="a"), parameter(0, name="b")]})
        self.assertEqual((len(result["parameters"]), damage(result)), (2, [note]))
        for number in ((1 << 63) - 1, -1):
            far = parameter()
            far.instruction.number = number % (1 << 64)
            result = result_of({"main": [far]}, extra=shardings(sharding(REPLICATED)))
            self.assertEqual(column(result["parameters"], "number", "sharding"), [(number, None)])


class Damage(unittest.TestCase):
    def test_answer_is_absent_without_a_readable_program(self) -> None:
        whole = hlo_proto.hlo_proto({"main": [parameter()]})
        for data in (traced(whole[:-2]), encode(Space([tpu_plane(list(RAN), [("s", 90, 200)])]))):
            outcome = run(data, "program")
            self.assertEqual((outcome.object["reason"], outcome.status), ("no_program", 0))


class Flags(InFolder):
    def result(self, text: str | bytes, computations: Any = None) -> Json:
        data = text if isinstance(text, bytes) else text.encode()
        path = self.write("flags.txt", data)
        return result_of(computations or {"main": [parameter()]}, "--flags", str(path))

    def set_by(self, text: str | bytes) -> Json:
        found: Json = self.result(text)["flags"]["set"]
        return found

    def notes_on(self, text: str | bytes) -> list[str]:
        return [note for note in self.result(text)["notes"] if "flags.txt" in note]

    def test_flags_are_read_from_shell_scripts(self) -> None:
        self.assertEqual(
            self.result((FLAGS / "launch.sh").read_bytes())["flags"]["set"],
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
                "flags set more than once in flags.txt (the last value counts):"
                " xla_tpu_scoped_vmem_limit_kib",
                "flags.txt: ignoring 1 flag without a value (=)",
            ],
        )

    def test_flags_are_read_from_yaml(self) -> None:
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

    def test_value_of_a_flag_ends_at_quotes_blanks_and_separators(self) -> None:
        for text, value in (
            ("--xla_a=1 --b", "1"),
            ("--xla_a=1\\\n2", "1"),
            ("--xla_a=", ""),
            ("--xla_a= 1", ""),
            ("X='--xla_a=1'", "1"),
            ('["--xla_a=1", 2]', "1"),
            ("f(--xla_a=(1;2]);,\\", "(1;2"),
            ("--xla_a=1,2,", "1,2"),
            ("--xla_a=${B[0]}; x", "${B[0]};"),
            ("--xla_a='b c', d", "b c"),
            ('"--xla_a=\\"b c\\" --d"', "b c"),
            ("'--xla_a=\"b\" --c'", "b"),
            ('--xla_a="b\n', ""),
            ("--xla_a=b=c", "b=c"),
            ("--xla_a=b#c", "b#c"),
            ("--xla_a=b #c --xla_a=2", "b"),
            ("LIBTPU_INIT_ARGS=--xla_a=1", "1"),
        ):
            with self.subTest(text=text):
                self.assertEqual(self.set_by(text), {"xla_a": value})

    GATHER = "xla_tpu_enable_sparse_core_collective_offload_all_gather"

    def finding(self, flag: str, value: str | None, main: Sequence[str]) -> Json:
        """Return the finding about a flag in a program with the given collectives."""
        found = self.findings("" if value is None else f"--{flag}={value}", main)[flag]
        self.assertEqual(found["set_to"], value)
        return found

    def findings(self, text: str, main: Sequence[str]) -> dict[str, Json]:
        """Return the findings by flag in a program with the given collectives."""
        ops = {
            "sync": "sync all-gather",
            "async": "s.a all-gather-start; d.a all-gather-done s.a",
            "async_fusion": "async-collective-done.1 fusion calls=ag",
            "sparse_core": "s.sc async-start calls=ag on=sparsecore; d.sc async-done s.sc",
            "permute": "s.p collective-permute-start; d.p collective-permute-done s.p",
        }
        written = "; ".join(ops[name] for name in main) or "x parameter"
        called = {"ag": "ag all-gather"} if "calls=ag" in written else {}
        computations = parsed(**called, main=written)
        rows = self.result(text, computations)["flags"]["findings"]
        return {row["flag"]: row for row in rows}

    def test_finding_compares_the_flag_with_the_program(self) -> None:
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

    def test_rings_contradict_the_two_flags_that_turn_them_off(self) -> None:
        names = ("all_gather", "reduce_scatter")
        flags = [f"xla_tpu_{name}_collective_matmul_mode" for name in names]
        sent = {"ring": "jit(f)/dot_general", "own": "jit(f)/ppermute", "": ""}
        for name, values, n_seen, says in (
            ("ring", ("none", "none"), 1, ["contradicts", "contradicts"]),
            ("ring", ("none", "auto"), 1, ["unknown", "unknown"]),
            ("ring", ("none", None), 1, ["unknown", None]),
            ("own", ("none", "none"), 0, ["consistent", "unknown"]),
            ("", ("none", "none"), 0, ["consistent", "unknown"]),
        ):
            path = sent[name] or None
            main = [instruction("all", "all-gather"), parameter()]
            main += [instruction(name, "collective-permute", tf_op=path)] if name else []
            pairs = zip(flags, values, strict=True)
            text = " ".join(f"--{flag}={value}" for flag, value in pairs if value)
            found = self.result(text, {"main": main})["flags"]["findings"]
            rows = {row["flag"]: row for row in found}
            with self.subTest(name=name, values=values):
                self.assertEqual([rows[flag]["says"] for flag in flags], says)
                self.assertEqual([rows[flag]["n_seen"] for flag in flags], [n_seen] * 2)

    def test_each_flag_counts_the_instructions_that_show_its_effect(self) -> None:
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

    def test_exposed_time_of_a_flag_excludes_instructions_that_show_its_effect(self) -> None:
        ran = [
            op("ag.1", "all-gather", 100, 30, shape=BF16),
            op("ag-start.2", "all-gather-start", 130, 1),
            op("ag-done.2", "all-gather-done", 140, 7, shape=BF16),
        ]
        main = "ag.1 all-gather; ag-start.2 all-gather-start;"
        main += "ag-done.2 all-gather-done ag-start.2"
        path = self.write("flags.txt", b"")
        rows = result_of(parsed(main=main), "--flags", str(path), ran=ran)["flags"]["findings"]
        exposed = {row["flag"]: row["exposed_ps"] for row in rows}
        self.assertEqual(exposed["xla_enable_async_all_gather"], 30)
        self.assertEqual(exposed[self.GATHER], 38)
        self.assertEqual(exposed["xla_enable_async_all_reduce"], 0)
