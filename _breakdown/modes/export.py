"""Write the step to an SQLite database, for questions that no mode answers.

question: the step as an SQLite database, for questions that no mode answers
reads: a step
options: --out, peaks, --kernel-cost
example: --out step.db
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from operator import itemgetter
from typing import Any

from _breakdown.analysis.arrays.of_step import StepArray, StepArrays
from _breakdown.analysis.idle.launches import Launches
from _breakdown.analysis.idle.periods import periods_of
from _breakdown.analysis.report import head_of
from _breakdown.analysis.roof.costs import (
    OPAQUE,
    KernelCost,
    cost_of,
    costs_by_kernel,
    declared_notes,
)
from _breakdown.analysis.roof.ledger import LedgerEntry, is_declared, ledger_of
from _breakdown.analysis.roof.roofs import roofs_of
from _breakdown.analysis.source.likely_lines import line_of
from _breakdown.analysis.source.rows import chip_fields, op_name, peaks_used
from _breakdown.output.phrases import Next, short_path
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.host import Host
from _breakdown.pipeline.no_answer import MISSING_DEPENDENCY, NoAnswer
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.out_file import cant_write, replacing
from _breakdown.pipeline.step_durations import durations_of
from _breakdown.pipeline.timeline import events_of
from _breakdown.pipeline.vocabulary import COMPUTE
from _breakdown.units import counted, size
from _proto.errors import Damage
from _proto.hlo.text import DtypeClass
from _proto.trace.trace import thread_planes

Json = dict[str, Any]
Row = tuple[int | str | None, ...]
# Maps a stack's frames to the stack's number.
Stacks = Mapping[tuple[str, ...], int]

# Identifies a file as an export. SQLite stores this number in bytes 68 to 71 of the file, in
# big-endian order.
APPLICATION_ID = 1667392622

# SQLite keeps comments inside statements, so `.schema` shows them, too.
TABLES = f"""\
PRAGMA application_id = {APPLICATION_ID};
CREATE TABLE ops (
  -- The executed ops, excluding containers: a loop's time is the time of the ops inside it.
  op INTEGER PRIMARY KEY,        -- from 1, in order of appearance
  name TEXT NOT NULL,            -- the same as hlo_op in by_op
  program TEXT,                  -- program_id, an unsigned 64-bit integer
  category TEXT NOT NULL,
  kind TEXT NOT NULL,
  class TEXT NOT NULL,
  phase TEXT NOT NULL,
  scope TEXT,
  source_inner TEXT,             -- likely lines for ops without a stack, as in by_op
  source_user TEXT,
  agg_key TEXT NOT NULL,
  stack INTEGER,                 -- the stack in frames
  dtype TEXT NOT NULL,
  flops INTEGER,                 -- per execution, like the bytes
  bytes INTEGER,                 -- bytes_accessed, in all memories
  hbm_bytes INTEGER,
  n_executions INTEGER NOT NULL,
  dur_ps INTEGER NOT NULL,       -- summed over executions, like the next two
  at_roof_ps INTEGER,
  lost_ps INTEGER,
  text TEXT NOT NULL             -- HLO
);
CREATE TABLE executions (
  op INTEGER NOT NULL REFERENCES ops,
  start_ps INTEGER NOT NULL,     -- on the scale of step_window_ps
  dur_ps INTEGER NOT NULL
);
CREATE TABLE frames (
  stack INTEGER NOT NULL,        -- from 1
  depth INTEGER NOT NULL,        -- from 0, outermost first
  frame TEXT NOT NULL,           -- file:line:column
  PRIMARY KEY (stack, depth)
) WITHOUT ROWID;
CREATE TABLE gaps (
  -- Idle intervals, each with one cause; adjacent intervals can belong to one idle gap.
  start_ps INTEGER NOT NULL,     -- on the scale of step_window_ps
  dur_ps INTEGER NOT NULL,
  cause TEXT NOT NULL            -- as in idle_by_cause
);
CREATE TABLE arrays (
  -- The arrays that move through HBM, as in by_array with --no-merge; none without a program.
  array INTEGER PRIMARY KEY,     -- from 1
  shape TEXT NOT NULL,           -- dtype and dimensions
  kind TEXT NOT NULL,
  name TEXT                      -- path of a parameter
);
CREATE TABLE accesses (
  array INTEGER NOT NULL REFERENCES arrays,
  op INTEGER NOT NULL REFERENCES ops,
  is_write INTEGER NOT NULL,     -- 1 if the op writes the array, 0 if it reads it
  hbm_bytes INTEGER NOT NULL,    -- per execution of the op
  dur_ps INTEGER NOT NULL        -- the array's share of the op's time, if HBM limits the op
);
CREATE TABLE steps (
  -- All steps of the device, as in summary.
  idx INTEGER PRIMARY KEY,
  name TEXT,
  start_ps INTEGER NOT NULL,     -- on the trace clock: step_window_ps can use the device clock
  dur_ps INTEGER NOT NULL,       -- on the clock in the field clock, if the step has measured ops
  n_ops INTEGER NOT NULL,        -- events that start in the step, also those of containers
  picked INTEGER NOT NULL        -- 1 for the step of this file, otherwise 0
);
CREATE TABLE host_events (
  -- What the host's threads did from the start of the step to the start of the next one.
  thread TEXT NOT NULL,
  start_ps INTEGER NOT NULL,     -- like the start of a step, corrected if the clocks disagree
  dur_ps INTEGER NOT NULL,       -- events nest, like calls
  name TEXT NOT NULL
);
CREATE TABLE answer (
  -- The fields that all answers have, and the chip's peaks.
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL            -- strings unchanged, other values as JSON
);
"""
MAGIC = b"SQLite format 3\0"


def export(
    step: Step,
    context: Context,
    *,
    out: str,
    chip: str | None = None,
    peaks: Sequence[tuple[str, float]] = (),
    kernel_cost: Sequence[tuple[str, int, int, DtypeClass | None]] = (),
) -> Json:
    roofs = roofs_of(step.device, chip, dict(peaks))
    by_user = costs_by_kernel(step.by_kind[COMPUTE], kernel_cost, context)
    ledger = ledger_of(step, roofs, by_user)
    context.warn(*declared_notes({entry.kernel for entry in ledger if is_declared(entry)}))
    context.note(*roofs.choice.notes)
    stacks = numbered_stacks(ledger)
    chip_used, rates = chip_fields(roofs), peaks_used(roofs)
    arrays = StepArrays(ledger, roofs)
    moved = [array for array in arrays if array.moved]
    rows = {
        "ops": op_rows(ledger, by_user, stacks),
        "executions": execution_rows(step, context),
        "frames": frame_rows(stacks),
        "gaps": ((start, end - start, cause) for start, end, cause in step.idle_causes.stretches()),
        "arrays": array_rows(arrays, moved),
        "accesses": access_rows(moved, ledger),
        "steps": step_rows(step),
        "host_events": host_rows(step, context),
        "answer": answer_rows(step, context, {**chip_used, "peaks_used": rates}),
    }
    with replacing(out, "an export", is_export) as path:
        n_rows = write_tables(path, out, rows)
        n_bytes = os.path.getsize(path)
    return {
        **chip_used,
        "peaks_used": rates,
        "out": out,
        "bytes": n_bytes,
        "n_rows": n_rows,
    }


def is_export(begin: bytes) -> bool:
    return begin.startswith(MAGIC) and begin[68:72] == APPLICATION_ID.to_bytes(4, "big")


def write_tables(path: str, out: str, rows: Mapping[str, Iterable[Row]]) -> dict[str, int]:
    """Write each table to the empty file `path`, and return the number of rows by table."""
    try:
        import sqlite3
    except ImportError:
        detail = "this Python was built without SQLite (module sqlite3); use another Python"
        raise NoAnswer(MISSING_DEPENDENCY, detail=detail) from None
    n_rows = {}
    try:
        with closing(sqlite3.connect(path)) as database:
            # No journal is needed: the file is renamed to its final name only when complete.
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("PRAGMA synchronous = OFF")
            database.executescript(TABLES)
            for table, rows_of_table in rows.items():
                columns = database.execute(f"SELECT * FROM {table}").description
                values = ", ".join("?" * len(columns))
                database.executemany(f"INSERT INTO {table} VALUES ({values})", rows_of_table)
                (n_rows[table],) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
            database.commit()
    except sqlite3.Error as error:
        raise cant_write(f"{out}: {error}") from None
    return n_rows


def numbered_stacks(ledger: Iterable[LedgerEntry]) -> Stacks:
    stacks = (entry.ran.op.stack for entry in ledger)
    frames = dict.fromkeys(stack.frames for stack in stacks if stack)
    return {of_stack: number for number, of_stack in enumerate(frames, 1)}


def op_rows(
    ledger: Iterable[LedgerEntry], by_user: Mapping[str, KernelCost], stacks: Stacks
) -> Iterator[Row]:
    for number, entry in enumerate(ledger, 1):
        op = entry.ran.op
        cost = entry.cost or cost_of(op, by_user)
        line = line_of(op)
        yield (
            number,
            op_name(op),
            None if op.program_id is None else str(op.program_id),
            op.category,
            op.kind,
            entry.name,
            op.phase,
            op.scope.name if op.scope else None,
            line.line,
            line.line_user,
            op.agg_key,
            stacks[op.stack.frames] if op.stack else None,
            cost.precision.dtype,
            # The flops in the trace exclude the work inside an opaque op.
            None if cost.source == OPAQUE else cost.flops,
            cost.bytes_accessed,
            cost.hbm_bytes,
            entry.ran.n,
            entry.total,
            entry.at_roof,
            entry.lost,
            op.text,
        )


def execution_rows(step: Step, context: Context) -> Iterator[Row]:
    """Yield the leaves' executions in file order, and show progress."""
    number_of = {ran.metadata_id: number for number, ran in enumerate(step.leaves, 1)}
    pieces = step.admitted.pieces
    for n_done, piece in enumerate(pieces, 1):
        for start, duration, metadata_id in events_of([piece], step.clock, number_of.keys()):
            yield number_of[metadata_id], start, duration
        context.show_progress("writing", n_done, len(pieces))


def frame_rows(stacks: Stacks) -> Iterator[Row]:
    for frames, number in stacks.items():
        for depth, frame in enumerate(frames):
            yield number, depth, frame


def array_rows(arrays: StepArrays, moved: Iterable[StepArray]) -> Iterator[Row]:
    for number, array in enumerate(moved, 1):
        yield number, array.shape.text, arrays.kind_of(array), array.name


def access_rows(moved: Iterable[StepArray], ledger: Iterable[LedgerEntry]) -> Iterator[Row]:
    number_of = {id(entry.ran): number for number, entry in enumerate(ledger, 1)}
    for number, array in enumerate(moved, 1):
        uses = ((number_of[id(use.ran)], use) for use in array.uses)
        for number_of_op, use in sorted(uses, key=itemgetter(0)):
            n_bytes = use.n_bytes // use.ran.n
            if n_bytes:
                yield number, number_of_op, use.is_write, n_bytes, use.time


def step_rows(step: Step) -> Iterator[Row]:
    durations = durations_of(step)
    for event in step.device.steps:
        duration, is_picked = durations[event.index], event is step.picked
        yield event.index, event.name, event.start, duration, event.n_events, is_picked


def host_rows(step: Step, context: Context) -> Iterator[Row]:
    """Yield the events of the host's threads in the step's period, by thread; none if they cannot
    be read."""
    device = step.device
    periods = periods_of(device, step.picked)
    window = (periods.of_picked if periods else None) or step.edges
    try:
        names = thread_planes(device.rank) if device.rank else []
        planes = [device.trace.plane(name) for name in names]
        launches = Launches(device, planes)
        host = Host(planes, [launches.window(*window)])
        shift = host.start - launches.window(0, 0)[0]
        for thread in host.threads():
            for track in thread.tracks:
                for start, end, name in zip(track.starts, track.ends, track.names):  # noqa: B905
                    yield thread.name, start + shift, end - start, host.names[name]
    except Damage as error:
        context.warn(f"the host's events cannot be read: {device.trace.in_file(error)}")
        return
    context.warn(*launches.notes)


def answer_rows(step: Step, context: Context, own: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the fields that all answers have. Compute the other rows first, so that the notes are
    complete."""
    for key, value in {**head_of(step, context), **own}.items():
        # File names can contain bytes that are not UTF-8, and SQLite rejects such text.
        is_text = isinstance(value, str)
        text = value if is_text else json.dumps(value, allow_nan=False)
        yield key, text.encode(errors="backslashreplace").decode()


def sentences(answer: Json) -> Iterator[str]:
    n_rows = answer["n_rows"]
    ops = counted(n_rows["ops"], "op")
    executions = counted(n_rows["executions"], "execution")
    file = f"{short_path(answer['out'])} ({size(answer['bytes'])})"
    yield f"Wrote {file}: {ops}, {executions}."


def next_steps(answer: Json) -> Iterator[Next]:
    yield from ()
