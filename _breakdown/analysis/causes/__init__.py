"""List the causes. Each is a file of this folder: a rule that finds a pattern that costs time.

Helpers that several rules share are in the folder `shared`. The docstring of a rule's file is its
page in CAUSES.md, and what `--explain` prints. It begins with a sentence, and then has

    needs: what the rule reads, one of `NEEDS`
    headline: how a headline names the cause; a cause without this line is in no headline

and one paragraph or more for each of `HEADINGS`; the example is code before and after the change.

The file defines the function `find`, which yields a `Cause` for each place that has the pattern.
Its argument is the program that the step runs (`StepProgram`), the pauses between steps (groups of
them), or the step with the time of its ops (`StepFacts`), followed by what else the rule needs. A
cause has the changes of the program that remove it; the engine, `arrays/engine.py`, computes
what they gain. Gains, places, ranks, floors, names and the wording of gains are the
business of `shared/find.py`.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import Any

from _breakdown.light import NamedTuple

# In this order, because a rule can leave out ops that a rule above has explained.
NAMES = (
    "recompilation",
    "host_sync",
    "pause_between_steps",
    "recomputed_repeatedly",
    "recompute",
    "kernel_waits_for_input",
    "slow_device",
    "collective_in_loop",
    "loop_of_tiny_ops",
    "hoistable_matmul",
    "sort_for_a_few",
    "masked_work",
    "wide_parameter",
    "parameter_relayout",
    "aliased_copy",
    "rewritten_buffer",
    "one_hot_matmul",
    "matmul_order",
    "weights_read_twice",
    "resharding",
    "oversized_transfer",
    "wide_transfer",
    "duplicated_work",
    "reduce_then_slice",
    "repeated_kernel",
    "precise_matmul",
    "widened_dtype",
    "broadcast_in_memory",
    "large_intermediate",
    "computed_then_dropped",
    "second_pass",
    "kept_for_little",
    "synchronous_collective",
    "repeated_rows",
    "expanded_then_reduced",
    "random_bits",
    "array_of_pairs",
    "flat_array",
    "layout_change",
    "not_donated",
)
PROGRAM, DEVICES, PAUSES, REGIONS, NOTHING = (
    "a program",
    "several devices",
    "a pause between steps",
    "regions inside kernels",
    "only the trace",
)
NEEDS = (PROGRAM, DEVICES, PAUSES, REGIONS, NOTHING)
HEADINGS = (
    "What it finds",
    "Why it costs",
    "How the program shows it",
    "What to change",
    "When it is intended",
    "Example",
)
# Causes that gain less than 1 / `SMALLEST_PART` of the step or period are omitted. Programs that
# take less than this share of the step are not examined.
SMALLEST_PART = 200


class Rule(NamedTuple):
    """A cause as its docstring describes it, without importing its file."""

    name: str
    docstring: str

    @property
    def facts(self) -> dict[str, str]:
        """Return the lines of the second paragraph by name."""
        lines = self.docstring.split("\n\n")[1].splitlines()
        return dict(line.split(": ", 1) for line in lines)

    @property
    def needs(self) -> str:
        return self.facts["needs"]

    @property
    def headline(self) -> str | None:
        return self.facts.get("headline")

    @property
    def summary(self) -> str:
        """Return the first sentence."""
        return " ".join(self.docstring.partition("\n\n")[0].split())

    @property
    def sections(self) -> dict[str, str]:
        """Return the text below each heading."""
        _, *parts = re.split(rf"^({'|'.join(HEADINGS)}):\s", self.docstring, flags=re.MULTILINE)
        texts = [text.strip("\n") for text in parts[1::2]]
        return dict(zip(parts[::2], texts, strict=True))

    @property
    def explanation(self) -> str:
        """Return the text that `--explain` prints."""
        return f"{self.name}\n\n" + re.sub("(?m)^headline: .*\n", "", self.docstring)

    @property
    def module(self) -> Any:
        """Import the rule's file."""
        return import_module(f"_breakdown.analysis.causes.{self.name}")


def rule_named(name: str) -> Rule:
    path = os.path.join(os.path.dirname(__file__), f"{name}.py")
    # Use the loader, because it can also read from a zip archive.
    source = __loader__.get_data(path).decode()  # type: ignore[name-defined]
    return Rule(name, source.split('"""', 2)[1])
