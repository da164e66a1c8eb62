"""List the causes. Each is a file of this folder: a rule that finds a pattern that costs time.

Helpers that several rules share are in the folder `shared`. docs/CAUSES.md has a section for each
cause, which `--explain` prints.

The file of a rule defines the function `find`, which yields a `Cause` for each place that has the
pattern. Its argument is the program that the step runs (`StepProgram`), the pauses between steps
(groups of them), or the step with the time of its ops (`StepFacts`), followed by what else the rule
needs. A cause has the changes of the program that remove it; the engine, `arrays/engine.py`,
computes what they gain. Gains, places, ranks, floors, names and the wording of gains are the
business of `shared/find.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from _breakdown.light import NamedTuple

PROGRAM, DEVICES, PAUSES, REGIONS, NOTHING = (
    "a program",
    "several devices",
    "a pause between steps",
    "regions inside kernels",
    "only the trace",
)
# Causes that gain less than 1 / `SMALLEST_PART` of the step or period are omitted. Programs that
# take less than this share of the step are not examined.
SMALLEST_PART = 200


class Rule(NamedTuple):
    """A cause: its name, what the rule needs, and how a headline names it. A cause without these
    words is in no headline."""

    name: str
    needs: str
    headline: str | None = None

    @property
    def module(self) -> Any:
        """Import the rule's file."""
        return import_module(f"_breakdown.analysis.causes.{self.name}")


# In this order, because a rule can leave out ops that a rule above has explained.
RULES = (
    Rule("recompilation", PAUSES, "Compiling between steps"),
    Rule("host_sync", PAUSES, "Reading results between steps"),
    Rule("pause_between_steps", PAUSES, "Waiting for the host"),
    Rule("recomputed_repeatedly", NOTHING, "Recomputing the same work more than once"),
    Rule("recompute", NOTHING, "Running forward work again in the backward pass"),
    Rule("kernel_waits_for_input", REGIONS, "Waiting for copies in a kernel"),
    Rule("slow_device", DEVICES, "A slow device"),
    Rule("collective_in_loop", PROGRAM, "Communication that a loop repeats"),
    Rule("sort_for_a_few", PROGRAM, "Sorting a whole array to read a few elements"),
    Rule("wide_parameter", PROGRAM, "Reading parameters in a wider dtype than needed"),
    Rule("parameter_relayout", PROGRAM, "Changing the layout of parameters or results"),
    Rule("aliased_copy", PROGRAM, "Copying buffers that are updated in place"),
    Rule("rewritten_buffer", PROGRAM, "Rewriting whole buffers to change a few elements"),
    Rule("one_hot_matmul", PROGRAM, "A matmul with a one-hot matrix"),
    Rule("resharding", PROGRAM, "Resharding arrays"),
    Rule("sum_too_late", PROGRAM, "Reducing arrays too late"),
    Rule("oversized_transfer", PROGRAM, "Moving larger arrays between devices than needed"),
    Rule("wide_transfer", PROGRAM, "Moving values between devices in a wider dtype than needed"),
    Rule("lost_batch_sharding", PROGRAM, "Losing the sharding of the batch"),
    Rule("duplicated_work", PROGRAM, "Work that several devices repeat"),
    Rule("reduce_then_slice", PROGRAM, "A full collective whose result is then sliced"),
    Rule("precise_matmul", PROGRAM, "Matmuls in higher precision"),
    Rule("widened_dtype", PROGRAM, "Widening values to f32"),
    Rule("repeated_rows", PROGRAM, "Working on repeated rows"),
    Rule("matmul_on_vector_unit", PROGRAM, "A matmul on the vector unit"),
    Rule("broadcast_in_memory", PROGRAM, "Writing an array that repeats a smaller one"),
    Rule("large_intermediate", PROGRAM, "Writing and re-reading a large array"),
    Rule("computed_then_dropped", PROGRAM, "Computing results that are dropped"),
    Rule("second_pass", PROGRAM, "Reading a large array a second time"),
    Rule("array_of_one_number", PROGRAM, "Writing arrays of one number"),
    Rule("kept_for_little", PROGRAM, "Keeping an array of all rounds for little of it"),
    Rule("collective_matmul", PROGRAM),
    Rule("sparse_core_wait", PROGRAM, "Waiting for a SparseCore"),
    Rule("synchronous_collective", PROGRAM),
    Rule("expanded_then_reduced", PROGRAM, "Combining arrays into a large one that is reduced"),
    Rule("random_bits", PROGRAM, "Making random bits"),
    Rule("array_of_pairs", PROGRAM, "Work on pairs in the last dimension"),
    Rule("layout_change", PROGRAM, "Changing the layout of arrays"),
    Rule("not_donated", PROGRAM, "Not donating arguments"),
)
RULE_NAMED = {rule.name: rule for rule in RULES}
