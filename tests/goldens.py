"""Compute the golden answers for the demo, which are committed as JSON and as text.

    python -m tests.goldens

`python -m tests.goldens` rewrites the golden answers in tests/data/goldens/. Look at the diff
before you commit.
"""

from __future__ import annotations

import json
from typing import Any

from tests.answers import demo
from tests.harness import DEMO, LISTED_MODES, answer
from tests.shown import text_of as text_of_answer

FOLDER = DEMO.parent / "goldens"
BEFORE, AFTER = (DEMO.parent / f"{name}.json.gz" for name in ("before", "after"))
# For each golden answer, by file name: the profile, the mode and options, and the fields to keep.
GOLDENS: dict[str, tuple[Any, tuple[str, ...], str]] = {
    "by_scope": (DEMO, ("by_scope", "--depth", "all"), "scopes n_scopes_omitted no_scope"),
    "by_scope_merged": (DEMO, ("by_scope", "--merge-layers", "--depth", "3"), "scopes"),
    "by_op": (DEMO, ("by_op", "--top", "12"), "ops tail containers"),
    "by_op_of_wait": (DEMO, ("by_op", "--top", "0", "--op", "copy-done.8"), "op"),
    "by_op_of_fusion": (DEMO, ("by_op", "--top", "0", "--op", "fusion.115"), "op"),
    "program": (
        DEMO,
        ("program", "--top", "12"),
        "n_computations n_instructions n_fusions n_devices opcodes collectives kernels "
        "parameters tail aliased_bytes donated_unused_bytes",
    ),
    "kernel": (DEMO, ("kernel",), "kernels tail"),
    "anatomy": (DEMO, ("anatomy",), "hostnames versions profile_options planes programs"),
    "anatomy_of_plane": (DEMO, ("anatomy", "--plane", "0", "--sample", "1"), "planes"),
    "by_array": (DEMO, ("by_array", "--top", "6"), "arrays tail"),
    "non_compute": (DEMO, ("non_compute", "--top", "4"), "by_category by_source_within_category"),
    "by_source": (DEMO, ("by_source", "--top", "1"), "groups tail"),
    "by_file": (AFTER, ("compare", "--baseline", str(BEFORE)), "by_file unmatched totals"),
}


TEXTS = tuple(mode.name for mode in LISTED_MODES if mode.name not in ("record", "page", "export"))


def text_made(mode: str) -> str:
    """Return a mode's answer for the demo as text, without next steps."""
    if mode == "compare":
        fields = answer(AFTER, mode, "--baseline", str(BEFORE))
    else:
        # Only in `by_op` does the answer depend on the format.
        fields = demo(mode, *(["--format", "text"] if mode == "by_op" else []))
    # Commands and paths depend on where the tests run.
    fixed: dict[str, Any] = {"next_steps": [], "profile_dir": "demo", "baseline_dir": "before"}
    return text_of_answer(fields | fixed, "utf-8")


def made(name: str) -> dict[str, Any]:
    """Return the program's current answer, reduced to the fields to keep."""
    profile, words, kept = GOLDENS[name]
    result = answer(profile, *words)
    return {field: result[field] for field in kept.split()}


def text_of(value: Any, depth: int = 0) -> str:
    """Return JSON with one line per field of the answer and per row of a table."""
    if depth < 2 and isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {text_of(part, depth + 1)}" for key, part in value.items()]
        return "{\n" + ",\n".join(parts) + "\n}"
    if depth < 2 and isinstance(value, list):
        return "[\n" + ",\n".join(json.dumps(row) for row in value) + "\n]"
    return json.dumps(value)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in GOLDENS:
        (FOLDER / f"{name}.json").write_text(text_of(made(name)) + "\n")
    for mode in TEXTS:
        (FOLDER / f"{mode}.txt").write_text(text_made(mode), encoding="utf-8")
