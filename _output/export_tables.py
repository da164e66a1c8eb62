"""Define the tables of the database that the mode `export` writes.

SQLite keeps comments that are inside statements, so `.schema` shows these comments, too.
"""

from __future__ import annotations

# This number identifies an export. SQLite stores the number in bytes 68 to 71 of the file, in
# big-endian order.
APPLICATION_ID = 1667392622

TABLES = f"""\
PRAGMA application_id = {APPLICATION_ID};
CREATE TABLE ops (
  -- The ops that ran, without containers: the time of a loop is the time of the ops inside.
  op INTEGER PRIMARY KEY,        -- from 1, in order of appearance
  name TEXT NOT NULL,            -- as hlo_op in by_op
  program TEXT,                  -- program_id, an unsigned integer of 64 bits
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
  flops INTEGER,                 -- of one execution, as are the bytes
  bytes INTEGER,                 -- bytes_accessed, in all memories
  hbm_bytes INTEGER,
  n_executions INTEGER NOT NULL,
  dur_ps INTEGER NOT NULL,       -- sum over the executions, as are the next two
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
  -- Stretches of idle time under one cause; adjacent ones can belong to one gap of idle.
  start_ps INTEGER NOT NULL,     -- on the scale of step_window_ps
  dur_ps INTEGER NOT NULL,
  cause TEXT NOT NULL            -- as in idle_by_cause
);
CREATE TABLE steps (
  -- All steps of the device, as in summary, on the trace's clock.
  idx INTEGER PRIMARY KEY,
  name TEXT,
  start_ps INTEGER NOT NULL,     -- on the scale of step_window_ps if the field clock is trace
  dur_ps INTEGER NOT NULL,
  n_ops INTEGER NOT NULL,        -- events that start in the step, also those of containers
  picked INTEGER NOT NULL        -- 1 for the step of this file, otherwise 0
);
CREATE TABLE answer (
  -- What every answer has, and the peaks.
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL            -- a text as it is, all else as JSON
);
"""
