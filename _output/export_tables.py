"""Define the tables of the database that mode `export` writes.

SQLite keeps comments inside statements, so `.schema` shows them, too.
"""

from __future__ import annotations

# Identifies a file as an export. SQLite stores this number in bytes 68 to 71 of the file, in
# big-endian order.
APPLICATION_ID = 1667392622

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
CREATE TABLE steps (
  -- All steps of the device, as in summary.
  idx INTEGER PRIMARY KEY,
  name TEXT,
  start_ps INTEGER NOT NULL,     -- on the trace clock: step_window_ps can use the device clock
  dur_ps INTEGER NOT NULL,       -- on the clock in the field clock, if the step has measured ops
  n_ops INTEGER NOT NULL,        -- events that start in the step, also those of containers
  picked INTEGER NOT NULL        -- 1 for the step of this file, otherwise 0
);
CREATE TABLE answer (
  -- The fields that all answers have, and the chip's peaks.
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL            -- strings unchanged, other values as JSON
);
"""
