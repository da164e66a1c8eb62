"""Describe the output of mode `compare`: what changed between two captures."""

from __future__ import annotations

from typing import Final

from _output.screen import Column, End, Part, Says, Table

MAIN: Final = "rows"

P_VALUE = Column("p", "p_value", "chance")
SIGNIFICANT = Column("significant", "significant", "word")
STEP = "totals.step_duration.before_ps"
BEFORE_AFTER = (
    Column("before", "before_ps", "time"),
    Column("after", "after_ps", "time"),
    Column("change", "delta_ps", "delta"),
    Column("%", "delta_pct", "change"),
)
LINE = ("source_inner", "agg_keys_after.0", "agg_keys_before.0")

PARTS: tuple[Part, ...] = (
    Says("{mode:word}: {baseline_dir:file} before, {profile_dir:file} after"),
    *(
        Says(
            f"{side}: {{{side}.device}} of {{{side}.host}} ({{{side}.device_type}}),"
            f" {{{side}.xplane_file:file}}; captures: {{{side}.n_captures:count}},"
            f" steps: {{{side}.n_steps:count}}, clock: {{{side}.clock:word}}"
        )
        for side in ("before", "after")
    ),
    Table(
        "changes in the compiled program",
        "program_changes.rows",
        (
            Column("what", "what", "word"),
            Column("before", "before", "values", null="-"),
            Column("after", "after", "values", null="-"),
            Column("name", "name", null=""),
        ),
    ),
    Says("The devices are of different types.", when="!same_device_type"),
    Table(
        "means over the steps, + is slower; significant means more than noise between steps",
        "totals",
        (Column("total", "key", "word"), *BEFORE_AFTER, P_VALUE, SIGNIFICANT),
    ),
    Table(
        "by file",
        "by_file",
        (
            *BEFORE_AFTER,
            P_VALUE,
            SIGNIFICANT,
            Column("rows", "n_rows", "count"),
            Column("file", ("file", "before_file"), "file", "(none known)"),
        ),
        size="delta_ps",
        whole=STEP,
        what="file",
        tail={"before": "", "after": "", "change": ""},
    ),
    Table(
        "by line; significant if p is at most {noise.alpha:word}",
        "rows",
        (
            *BEFORE_AFTER,
            P_VALUE,
            Column("kind", "kind", "word"),
            Column("matched by", "matched_by", "word"),
            Column("line", LINE, "file"),
        ),
        size="delta_ps",
        whole=STEP,
        what="row",
        tail={"before": "", "after": "", "change": ""},
        ends=(
            *(
                End(
                    f"tail.by_kind.{kind}.before_ps",
                    {
                        "before": f"tail.by_kind.{kind}.before_ps",
                        "after": f"tail.by_kind.{kind}.after_ps",
                        "change": f"tail.by_kind.{kind}.delta_ps",
                        "kind": kind,
                        "line": "in omitted rows",
                    },
                )
                for kind in ("compute", "data_move", "comm", "other")
            ),
            End("tail.n_rows_omitted", {"line": "{tail.n_rows_omitted:count} rows beyond --top"}),
        ),
    ),
    Says(
        "\nlines without a counterpart: {unmatched.before_ps:time} before"
        " ({unmatched.before_pct:percent}), {unmatched.after_ps:time} after"
        " ({unmatched.after_pct:percent})"
    ),
    Table(
        "how lines were matched",
        "by_match",
        (
            Column("matched by", "key", "word"),
            Column("rows", "n_rows", "count"),
            Column("before", "before_ps", "time"),
            Column("after", "after_ps", "time"),
        ),
        unless_0="n_rows",
    ),
)
