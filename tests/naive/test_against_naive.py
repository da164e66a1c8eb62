"""Holds the program against the naive second implementation: on random legal XSpaces, exactly."""

from __future__ import annotations

import random
import re
import unittest
from collections.abc import Iterator
from typing import Any

import _peaks
import compute_breakdown
from _pipeline import vocabulary
from tests import naive
from tests.builders.random_anatomy import random_anatomy_case
from tests.builders.random_xspace import OPTIONS, command_line, random_case, random_record_case
from tests.harness import MODES, PROFILES, run, sampled
from tests.naive import op as naive_op
from tests.naive import roofline as naive_roofline

N_CASES, N_RECORDS, N_ANATOMIES = 600, 100, 250
# Real captures, which aren't part of the repository; looked at where they lie beside it.
FILE_FIELDS = ("profile_dir", "xplane_file", "run", "host", "detail")
ADVICE = (
    "One of the two is wrong; or a field is new: then teach tests/naive what it says, by the"
    " definition alone."
)
SPECIFIED_NOTES = (
    *("auto-picked", "no Steps line", "no op starts in this step", "asynchronous communication"),
    "order of stack frames unknown",
)
SPECIFIED_ENDS = (
    "have a source that is not their stack's innermost frame: the stack may be false",
    "of the capture) are in no step",
)
NO_OPS = re.compile(r"\d steps have no op \(\d+ ps\)\Z")


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what names files, and without notes of unspecified wording; their order
    isn't specified either."""
    kept = {k: v for k, v in answer.items() if k not in FILE_FIELDS}
    if "capture" in kept:
        kept["capture"] = {k: v for k, v in kept["capture"].items() if k != "hosts"}
    if kept["mode"] == "record":
        # Which device a note is about isn't specified.
        kept["notes"] = []
    kept["notes"] = sorted(
        note
        for note in kept["notes"]
        if note.startswith(SPECIFIED_NOTES) or note.endswith(SPECIFIED_ENDS) or NO_OPS.search(note)
    )
    return kept


def differences(ours: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """Where two answers differ, and how."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in {**ours, **theirs}:
            if key not in theirs:
                yield f"{where}.{key}: only the program has it"
            elif key not in ours:
                yield f"{where}.{key}: only the naive one has it"
            else:
                yield from differences(ours[key], theirs[key], f"{where}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for i, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(our, their, f"{where}[{i}]")
    elif ours != theirs or isinstance(ours, bool) != isinstance(theirs, bool):
        yield f"{where}: the program says {str(ours)[:300]!r}, the naive one {str(theirs)[:300]!r}"


def ledger_faults(ledger: dict[str, Any]) -> Iterator[str]:
    """Where picoseconds of a bottleneck's ledger are lost or count twice, by any definition."""
    budget, findings, tail = ledger["budget"], ledger["findings"], ledger["tail"]
    if sum(row["dur_ps"] for row in budget) != ledger["step_duration_ps"]:
        yield ".budget: isn't the step"
    classes = budget[:-2]
    for figure in ("dur_ps", "lost_ps"):
        shown = sum(row[figure] or 0 for row in findings) + tail[figure]
        if shown != sum(row[figure] or 0 for row in classes):
            yield f".findings and .tail: their {figure} isn't that of the classes"
    for row in (*classes, *findings):
        if row["lost_ps"] is not None and row["at_roof_ps"] + row["lost_ps"] != row["dur_ps"]:
            yield f"{row['class']}: at_roof_ps and lost_ps aren't dur_ps"
    for row in [] if tail["n_findings_omitted"] else classes:
        found = [finding for finding in findings if finding["class"] == row["class"]]
        for figure in ("dur_ps", "n_executions"):
            if sum(finding[figure] for finding in found) != row[figure]:
                yield f".findings: the {figure} of {row['class']} isn't the budget's"


def memory_faults(said: dict[str, Any]) -> Iterator[str]:
    """Where bytes of a peak are lost or count twice, by any definition."""
    tables = {name: said[name] for name in ("by_source", "by_opcode", "by_argument")}
    tables["buffers and .tail"] = [*said["buffers"], said["tail"]]
    for name, rows in tables.items():
        if sum(row["bytes"] for row in rows) != said["peak_bytes"]:
            yield f".{name}: isn't the peak"
    if sum(said["by_kind"].values()) != said["peak_bytes"]:
        yield ".by_kind: isn't the peak"
    if said["fragmentation_bytes"] < 0:
        yield ".fragmentation_bytes: more is live than is reserved"


def scope_faults(said: dict[str, Any]) -> Iterator[str]:
    """Where time of scopes is lost or counts twice, by any definition."""
    rows = said["scopes"]
    leaves = said["totals"]["non_while_duration_ps_sum"]
    if not rows[0]["depth"] and rows[0]["total_dur_ps"] + said["no_scope"]["dur_ps"] != leaves:
        yield ".scopes: the root and .no_scope aren't all leaves"
    for row in rows if not said["n_scopes_omitted"] else []:
        below = f"{row['scope']}/" if row["scope"] else ""
        children = [r for r in rows if r["depth"] == row["depth"] + 1]
        total = sum(r["total_dur_ps"] for r in children if r["scope"] == below + r["name"])
        if row["self_dur_ps"] + total != row["total_dur_ps"]:
            yield f".scopes: {row['scope']} isn't what stands in it and below"


def op_faults(said: dict[str, Any]) -> Iterator[str]:
    """Where time of ops is lost or counts twice, by any definition."""
    shown = sum(row["total_dur_ps"] for row in said["ops"])
    if shown + said["tail"]["dur_ps"] != said["totals"]["non_while_duration_ps_sum"]:
        yield ".ops and .tail: aren't all leaves"
    for row in said["ops"]:
        known = [row[figure] for figure in ("at_roof_ps", "lost_ps")]
        if None not in known and sum(known) != row["total_dur_ps"]:
            yield f"{row['hlo_op']}: at_roof_ps and lost_ps aren't total_dur_ps"


class AgainstNaive(unittest.TestCase):
    def assert_agree(self, case: str, data: bytes, mode: str, options: dict[str, Any]) -> None:
        theirs = comparable(naive.analyse(data, mode, **options))
        ours = comparable(run(data, mode, *command_line(options)).object)
        found = list(differences(ours, theirs))
        for key in ("container_durations_ps", "unknown_categories"):
            if "totals" in ours and not found:
                our, their = (list(each["totals"][key].items()) for each in (ours, theirs))
                found += differences(our, their, f".totals.{key}, in order")
        if "budget" in ours:
            found += ledger_faults(ours)
        if "peak_bytes" in ours:
            found += memory_faults(ours)
        if "no_scope" in ours:
            found += scope_faults(ours)
        if "ops" in ours:
            found += op_faults(ours)
        if found:
            self.fail("\n".join(["", f"{case}: {mode} {options}", *found[:10], ADVICE]))

    def test_random_xspaces(self) -> None:
        """Ends with the first case that differs."""
        for seed in sampled(range(N_CASES), 80):
            self.assert_agree(
                f"random_case(random.Random({seed}))", *random_case(random.Random(seed))
            )

    def test_random_records(self) -> None:
        for seed in sampled(range(N_RECORDS), 20):
            data, options = random_record_case(random.Random(seed))
            self.assert_agree(f"random_record_case(random.Random({seed}))", data, "record", options)

    def test_random_anatomies(self) -> None:
        for seed in sampled(range(N_ANATOMIES), 50):
            data, options = random_anatomy_case(random.Random(seed))
            case = f"random_anatomy_case(random.Random({seed}))"
            self.assert_agree(case, data, "anatomy", options)

    def test_real_captures(self) -> None:
        # Of the larger ones only what asks for most of them: the naive reading takes seconds.
        cases = [
            *(("v6e-host-offload", mode) for mode in (*MODES, "record")),
            ("tpu7x-dense-train", "bottleneck"),
            ("tpu7x-dense-train", "memory"),
            ("tpu7x-dense-train", "by_op"),
            ("vllm-bf16", "by_source"),
            ("vllm-bf16", "by_scope"),
            ("vllm-bf16", "bottleneck"),
            ("vllm-fp4-tuned", "record"),
            *(("v6e-pallas-kernel", mode) for mode in (*MODES, "record", "anatomy")),
            ("v6e-host-offload", "anatomy"),
            ("vllm-bf16", "anatomy"),
        ]
        for name, mode in sampled(cases, 1):
            path = PROFILES / f"{name}.xplane.pb"
            with self.subTest(name=name, mode=mode):
                if not path.exists():
                    self.skipTest("the capture isn't here")
                self.assert_agree(name, path.read_bytes(), mode, {})

    def test_it_knows_what_is_known(self) -> None:
        """Chips, categories and modes that are new would otherwise rarely be drawn, or never."""
        for name, chip in _peaks.CHIPS.items():
            self.assertEqual(
                naive_roofline.DEVICE_TYPES.get(name),
                chip.device_types,
                "tests/naive/roofline.py has to know each chip, by CHIPS and DEVICE_TYPES",
            )
            tflops, gibps = naive_roofline.CHIPS[name]
            peaks = _peaks.builtin(name)
            known = {dtype: peaks.tflops(dtype) for dtype in _peaks.DTYPES}
            self.assertEqual(tflops, {k: v for k, v in known.items() if v is not None}, name)
            self.assertEqual(gibps, peaks.hbm_gibps, name)
        self.assertEqual(set(naive_roofline.CHIPS), set(_peaks.CHIPS))
        for category in vocabulary.KIND_OF:
            for op_name in ("fusion.1", "slice-done.2", "async-collective-done", ""):
                ours = vocabulary.kind_of(category, op_name)
                their_kind = naive_op.kind_of(category, op_name or None)
                is_container = category in naive_op.CONTAINERS
                self.assertEqual(
                    ours,
                    "container" if is_container else their_kind,
                    f"tests/naive/op.py has to know the kind of {category!r}, of an op {op_name!r}",
                )

    def test_every_option_is_drawn(self) -> None:
        of_step = [mode for mode in compute_breakdown.MODES if mode.name in MODES]
        taken = {flag for mode in of_step for flag in mode.options}
        self.assertEqual(
            set(OPTIONS),
            taken - set(compute_breakdown.STEP_OPTIONS),
            "give each option a line in OPTIONS of tests/builders/random_xspace.py",
        )


if __name__ == "__main__":
    unittest.main()
