"""Test the parser of HLO texts, and the fields that depend on these texts."""

from __future__ import annotations

import unittest
from typing import Any

from _proto.hlo.text import HloText, dtype_and_layout_change
from tests.builders.xspace import Op, StatValue, op, trace
from tests.harness import answer

BF16, S8, F32 = "bf16[4]{0}", "s8[4]{0}", "f32[4]{0}"

# Each text with its expected name, opcode, output arrays and operand arrays.
PARSED: dict[str, tuple[str, str, list[str], list[str]]] = {
    # The TPU compiler wrote these texts.
    "%copy-start.10 = (bf16[16000,256]{1,0:T(16,128)(2,1)}, bf16[16000,256]{1,0:T(16,128)(2,1)"
    "S(1)}, u32[]{:S(2)}) copy-start(bf16[16000,256]{1,0:T(16,128)(2,1)S(1)} "
    "%convert_element_type.811)": (
        "copy-start.10",
        "copy-start",
        [
            "bf16[16000,256]{1,0:T(16,128)(2,1)}",
            "bf16[16000,256]{1,0:T(16,128)(2,1)S(1)}",
            "u32[]{:S(2)}",
        ],
        ["bf16[16000,256]{1,0:T(16,128)(2,1)S(1)}"],
    ),
    "%all-gather.200.cloned.1.call-start = ((), (), (s32[8192]{0:T(1024)}, s32[69]{0:T(1)S(11)}, "
    "s32[0]{0:T(1)S(12)}, s32[101]{0:S(8)}, s32[0]{0:S(10)}, /*index=5*/s32[0]{0}, s32[0]{0}, "
    "s32[128]{0:T(1)L(128)S(4)})) async-start(), async_execution_thread="
    '"sparsecore", calls=%async_computation.28': (
        "all-gather.200.cloned.1.call-start",
        "async-start",
        [
            *("s32[8192]{0:T(1024)}", "s32[69]{0:T(1)S(11)}", "s32[0]{0:T(1)S(12)}"),
            *("s32[101]{0:S(8)}", "s32[0]{0:S(10)}", "s32[0]{0}", "s32[0]{0}"),
            "s32[128]{0:T(1)L(128)S(4)}",
        ],
        [],
    ),
    "%slice-done.10 = s8[4194304]{0:T(1024)(128)(4,1)S(1)} async-done(((s8[8388608]{0:T(1024)(128)"
    "(4,1)}), s8[4194304]{0:T(1024)(128)(4,1)S(1)}, s32[]{:S(2)}) %slice-start.10)": (
        "slice-done.10",
        "async-done",
        ["s8[4194304]{0:T(1024)(128)(4,1)S(1)}"],
        [
            "s8[8388608]{0:T(1024)(128)(4,1)}",
            "s8[4194304]{0:T(1024)(128)(4,1)S(1)}",
            "s32[]{:S(2)}",
        ],
    ),
    "%flash_attention.3 = (bf16[4,4,2048,128]{3,2,1,0:T(16,128)(2,1)S(1)}, f32[4,4,2048,128]"
    "{3,2,1,0:T(8,128)}, f32[4,4,2048,128]{3,2,1,0:T(8,128)}) custom-call(bf16[4,4,2048,128]"
    "{3,2,1,0:T(16,128)(2,1)} %fusion.544, …), custom_call_target="
    '"tpu_custom_call", operand_layout_constraints={…}': (
        "flash_attention.3",
        "custom-call",
        [
            "bf16[4,4,2048,128]{3,2,1,0:T(16,128)(2,1)S(1)}",
            *["f32[4,4,2048,128]{3,2,1,0:T(8,128)}"] * 2,
        ],
        ["bf16[4,4,2048,128]{3,2,1,0:T(16,128)(2,1)}"],
    ),
    "%constant_dynamic-slice_fusion.3 = …": ("constant_dynamic-slice_fusion.3", "", [], []),
    # These texts have unusual forms.
    "ROOT %x.1 = pred[2]{0} compare(f32[2]{0} %a, f32[2]{0} %b), direction=LT": (
        "x.1",
        "compare",
        ["pred[2]{0}"],
        ["f32[2]{0}", "f32[2]{0}"],
    ),
    # Tokens have no data, so they are not arrays.
    "%t = token[] after-all()": ("t", "after-all", [], []),
    "%s = token[] send-done((f32[8]{0}, u32[], token[]) %a)": (
        *("s", "send-done"),
        *([], ["f32[8]{0}", "u32[]"]),
    ),
    "%e = () tuple()": ("e", "tuple", [], []),
    "%n = ((((s4[8]{0:T(8)E(4)})))) tuple(((s4[8]{0})) %a)": (
        "n",
        "tuple",
        ["s4[8]{0:T(8)E(4)}"],
        ["s4[8]{0}"],
    ),
    # Attributes are not operands.
    "%q = s32[1]{0} custom-call(), custom_call_target="
    '"x", operand_layout_constraints={f32[2]{0}}': ("q", "custom-call", ["s32[1]{0}"], []),
    # These texts contain only a name.
    "%only.a-name_1": ("only.a-name_1", "", [], []),
    "only.a-name": ("only.a-name", "", [], []),
    "%x = ": ("x", "", [], []),
    # These texts are truncated.
    "%x = f32[8": ("x", "", [], []),
    "%x = f32[8]{0:T(8,1": ("x", "", ["f32[8]"], []),
    "%x = f32[8]{0} fusion(": ("x", "fusion", ["f32[8]{0}"], []),
    "%x = f32[8]{0} fusion(f32[8]{0} %a, f32[4]{0": (
        "x",
        "fusion",
        ["f32[8]{0}"],
        ["f32[8]{0}", "f32[4]"],
    ),
}

NO_INSTRUCTION = ["", " ", "=", "% = f32[8]", "(f32[8])", "\0\xff", "what is this?", "…", "%a %b"]


def group(category: StatValue | None, *, mode: str = "by_source", **of_op: Any) -> dict[str, Any]:
    """Return the only group in the answer for a trace with one op."""
    data = trace([op(of_op.pop("name", "x.1"), category, 0, 5, **of_op)])
    options = {
        "by_source": ["--include-data-move", "--include-comm"],
        "non_compute": ["--include-comm"],
    }[mode]
    key = {"by_source": "groups", "non_compute": "by_source_within_category"}[mode]
    (only,) = answer(data, mode, *options)[key]
    row: dict[str, Any] = only
    return row


class Parser(unittest.TestCase):
    def test_name_opcode_and_arrays_are_parsed(self) -> None:
        for text, (name, opcode, outputs, operands) in PARSED.items():
            with self.subTest(text=text):
                hlo = HloText(text)
                self.assertEqual((hlo.name, hlo.opcode), (name, opcode))
                self.assertEqual([array.text for array in hlo.outputs], outputs)
                self.assertEqual([array.text for array in hlo.operands], operands)

    def test_text_without_an_instruction_has_empty_parts(self) -> None:
        for text in NO_INSTRUCTION:
            with self.subTest(text=text):
                hlo = HloText(text)
                self.assertEqual((hlo.name, hlo.opcode, hlo.shape, hlo.base_name), ("",) * 4)
                self.assertEqual((hlo.outputs, hlo.operands), ([], []))
                self.assertIsNone(hlo.target)
                self.assertIsNone(hlo.moved_array)
                self.assertIs(hlo.is_on_chip, False)

    def test_truncated_text_keeps_the_arrays_before_the_cut(self) -> None:
        def arrays(hlo: HloText) -> list[str]:
            return [f"{a.dtype}[{a.dims}]" for a in [*hlo.outputs, *hlo.operands]]

        for text in PARSED:
            whole = arrays(HloText(text))
            for end in range(len(text)):
                seen = arrays(HloText(text[:end]))
                self.assertEqual(seen, whole[: len(seen)], text[:end])

    def test_custom_call_target_can_contain_any_character_but_a_quote(self) -> None:
        for target in (
            "tpu_custom_call",
            "TODO(b/522284627)",
            "a{b},c = f32[1]",
            "ünïcode ⚙",
            ")(",
        ):
            with self.subTest(target=target):
                text = f'%x = f32[] custom-call(f32[] %a), custom_call_target="{target}"'
                self.assertEqual(HloText(text).target, target)


class OfOps(unittest.TestCase):
    """Test the fields that modes print for an op with a given HLO text."""

    def test_signature_is_name_target_or_opcode_depending_on_the_category(self) -> None:
        call = ', custom_call_target="TODO(b/5)"'
        for category, signature, of_op in (
            # The signature of a fusion or asynchronous op is its name without the numeric suffix.
            ("loop fusion", "fusion [loop fusion]", {"name": "fusion.48.clone.3"}),
            ("loop fusion", "add_fusion [loop fusion]", {"name": "add_fusion.1.remat2.cloned"}),
            ("loop fusion", "flash.fwd [loop fusion]", {"name": "flash.fwd.7"}),
            ("loop fusion", "fusion.3a.remats [loop fusion]", {"name": "fusion.3a.remats"}),
            ("async-done", "slice-done [async-done]", {"name": "slice-done.10"}),
            ("custom-call", "custom-call:TODO(b/5)", {"opcode": "custom-call", "attributes": call}),
            ("data formatting", "transpose [data formatting]", {"opcode": "transpose"}),
            ("loop fusion", "<no text> [loop fusion]", {"text": ""}),
        ):
            with self.subTest(signature=signature):
                (row,) = group(category, **of_op)["hlo_op_breakdown"]
                self.assertEqual(row["signature"], signature)

    def test_dtype_is_the_class_of_the_largest_array(self) -> None:
        for shape, dtype in (
            *(("bf16[8]", "bf16"), ("f32[8]", "fp32"), ("f16[8]", "fp16"), ("f8e4m3fn[8]", "fp8")),
            *(("f8e4m3b11fnuz[8]", "fp8"), ("f64[8]", "other"), ("s32[8]", "other")),
            *(("s8[8]", "int8"), ("u8[8]", "int8"), ("s4[8]", "int4"), ("u4[8]", "int4")),
            ("(s32[4]{0}, bf16[5]{0})", "bf16"),
            ("(bf16[2,2]{1,0}, f32[4]{0}, f16[4]{0})", "bf16"),
            ("(f32[], bf16[0]{0})", "fp32"),
            ("((u32[]), (f16[2]{0}), ())", "fp16"),
            ("(f32[3]{0}, bf16[<=4]{0})", "bf16"),
            ("()", "other"),
        ):
            with self.subTest(shape=shape):
                self.assertEqual(group("loop fusion", shape=shape)["dtypes"], {dtype: 1})
        # Without an HLO text, the shape comes from the stat.
        row = group("loop fusion", text="", shape="(s32[2]{0}, bf16[4]{0})")
        self.assertEqual(row["dtypes"], {"bf16": 1})

    def test_matmul_dtype_is_uncertain_unless_inputs_and_output_have_the_same_class(self) -> None:
        for category, uncertain in (
            *(("convolution", True), ("dot", True), ("output fusion", True), ("custom-call", True)),
            *(("loop fusion", False), ("reduce", False), ("all-gather fusion", False)),
        ):
            with self.subTest(category=category):
                row = group(category, shape=BF16, operands=f"{S8} %a")
                self.assertIs(row["dtype_uncertain"], uncertain)
        for shape, operands, uncertain in (
            (BF16, f"{BF16} %a, {BF16} %b", False),
            (BF16, f"{BF16} %a, {S8} %b", True),
            (BF16, f"{F32} %a", True),
            # Scalars, wide integers and predicates do not count as matmul operands.
            (BF16, f"{BF16} %a, f32[] %b, s32[4]{{0}} %c, pred[4]{{0}} %d, u16[4]{{0}} %e", False),
            (BF16, f"{BF16} %a, s4[4]{{0}} %b", True),
            ("f8e4m3fn[4]{0}", "f8e5m2[4]{0} %a", False),
            # The HLO text does not contain the shapes of the inputs.
            (BF16, "%a, %b", True),
            # No chip has a peak for s32 outputs, so the dtype of the inputs does not matter.
            ("s32[4]{0}", f"{BF16} %a", False),
        ):
            with self.subTest(shape=shape, operands=operands):
                row = group("convolution fusion", shape=shape, operands=operands)
                self.assertIs(row["dtype_uncertain"], uncertain)

    def test_operand_dtypes_come_from_the_largest_operand_that_can_be_a_matmul_input(self) -> None:
        for operands, expected in (
            (f"{BF16} %a, f32[5]{{0}} %b", {"fp32": 5}),
            (f"{BF16} %a, {F32} %b", {"bf16": 5}),
            ("s8[8]{0} %a, bf16[4]{0} %b", {"int8": 5}),
            ("f64[8]{0} %a", {"f64": 5}),
            ("s32[99]{0} %a, pred[99]{0} %b, f16[2]{0} %c", {"fp16": 5}),
            ("f32[] %a, s32[4]{0} %b", {}),
        ):
            with self.subTest(operands=operands):
                row = group("loop fusion", operands=operands)
                self.assertEqual(row["operand_dtypes"], expected)


class Changes(unittest.TestCase):
    """Test `dtype_change` and `layout_change`, which are null if the text lacks one of the
    arrays."""

    def test_first_operand_is_compared_with_the_output(self) -> None:
        for after, before, expected in (
            ("f32[8,4]{1,0}", "f32[8,4]{1,0}", (False, False)),
            ("bf16[8,4]{1,0}", "f32[8,4]{1,0}", (True, False)),
            ("f32[8,4]{0,1}", "f32[8,4]{1,0}", (False, True)),
            ("f32[8,4]{1,0:T(8,128)}", "f32[8,4]{1,0:T(8,128)(2,1)}", (False, True)),
            ("f32[8,4]{1,0:T(8,128)}", "f32[8,4]{1,0:T(2,128)}", (False, True)),
            # A different memory space does not count as a change of layout.
            ("f32[8,4]{1,0:T(8,128)L(128)S(1)}", "f32[8,4]{1,0:T(8,128)}", (False, False)),
            # Layouts are compared even if the dimensions differ, but not if the ranks differ.
            ("f32[2,4]{1,0}", "f32[8,4]{1,0}", (False, False)),
            ("bf16[32]{0}", "f32[8,4]{1,0}", (True, None)),
            ("f32[8,4]", "f32[8,4]{1,0}", (False, None)),
            # For tuples, only the first array of each is compared.
            ("(bf16[4]{0}, f32[4]{0})", "((), (f32[4]{0}))", (True, False)),
            # Different dtypes of the same class still count as a change.
            ("f8e5m2[4]{0}", "f8e4m3fn[4]{0}", (True, False)),
        ):
            with self.subTest(after=after, before=before):
                text = HloText(f"%copy.1 = {after} copy({before} %a)")
                self.assertEqual(dtype_and_layout_change(text), expected)

    def test_changes_are_null_without_both_arrays(self) -> None:
        for text in (
            "",
            "%copy.1",
            "%iota.1 = s32[8]{0} iota(), iota_dimension=0",
            "%copy.1 = f32[8]{0} copy(%a)",
            "%tuple.1 = () copy(f32[8]{0} %a)",
            "%s = token[] send-done((f32[8]{0}, u32[], token[]) %a)",
        ):
            with self.subTest(text=text):
                self.assertEqual(dtype_and_layout_change(HloText(text)), (None, None))

    def test_output_of_copy_done_is_compared_with_the_source_of_the_copy(self) -> None:
        # The operand of a copy-done is a tuple (destination, source, context). The destination and
        # the source can be tuples, too.
        out = "f32[8,4]{1,0}"
        for after, source, expected in (
            (out, "f32[8,4]{0,1:S(1)}", (False, True)),
            (out, "f32[8,4]{1,0:S(5)}", (False, False)),
            (out, "bf16[8,4]{1,0}", (True, False)),
            (f"({out}, bf16[4]{{0}})", "(f16[8,4]{1,0}, bf16[4]{0})", (True, False)),
            (f"({out}, bf16[4]{{0}})", "(f32[8,4]{0,1}, bf16[4]{0})", (False, True)),
        ):
            with self.subTest(after=after, source=source):
                text = f"%c.1 = {after} copy-done(({after}, {source}, u32[]{{:S(2)}}) %c)"
                row = group("copy-done", mode="non_compute", text=text)
                self.assertEqual((row["dtype_change"], row["layout_change"]), expected)
                self.assertEqual(row["shapes_in"], [source.strip("()").partition(", ")[0]])

    def test_layout_change_of_a_group_is_true_if_any_op_changes_the_layout(self) -> None:
        same, other, unknown = ("f32[4]{0}", "f32[4]{0:T(128)}", "f32[4]")
        for sources, expected in (
            ((same, other, unknown), True),
            ((unknown, same), False),
            ((unknown, unknown), None),
        ):
            with self.subTest(sources=sources):
                ops: list[Op] = [
                    op("x", "copy", 5 * i, 5, shape=same, operands=f"{source} %a", stack="m.py:1:1")
                    for i, source in enumerate(sources)
                ]
                (row,) = answer(trace(ops), "non_compute")["by_source_within_category"]
                self.assertIs(row["layout_change"], expected)
                self.assertIs(row["dtype_change"], False)
