"""Define columns and sentences that several modes share."""

from __future__ import annotations

from _breakdown.output.phrases import LINE as LINE_FIELDS
from _breakdown.output.screen import Column, Says

# Shows the line of the user's own code, else the innermost line, else the group's key.
LINE = Column("line", (*LINE_FIELDS, "agg_key"), "file", least=24)
# Like LINE, but for ops and kernels, whose rows have no key.
OP_LINE = Column("line", LINE_FIELDS, "file", least=24)
LIKELY = Column("line", LINE_FIELDS, "file", "(none known)", least=20)
LOOP = Column("trips", "loop.trips", "trips", null="", gives_way=True)
KIND = Column("kind", "kind", "word", least=9)
CLASS = Column("class", "class", "word", least=13)
STEP_SHARE = Column("% step", "pct_of_step", "percent")
RUNS = Column("runs", "n_executions", "count")
TOTAL = Column("time", "total_dur_ps", "time")
# The time of the whole line, beside that of the ops of one kind.
ALL_OPS = Column("all ops", "line_dur_ps", "time", null="", gives_way=True)
TIME = Column("time", "dur_ps", "time")
LOST = Column("lost", "lost_ps", "time")
# A field that the tables of ops and lines compute.
OF_ROOF = Column("% of roof", "pct_of_roof", "percent", of="pct_of_roof")
LIMIT = Column("limit", "limited_by", "word", null="", gives_way=True)
AVERAGE = Column("avg", "avg_dur_ps", "time")
CATEGORY = Column("category", "hlo_category")
PHASE_INITIALS = Column("phases", "phases", "initials", null="", gives_way=True)
SCOPE = Column("scope", "scope", "file", null="", least=10)
MOSTLY = Column("mostly", "hlo_op_breakdown.0.signature", "what")
BYTES = Column("size", "bytes", "bytes")


# Columns that have values only with `--peers`.
PEERS = Says(
    "\nexposed communication: {totals.peers.transfer_ps:time} transfer,"
    " {totals.peers.peer_wait_ps:time} waiting for a late device,"
    " {totals.peers.unmatched_ps:time} unknown",
    when="totals.peers.by_device",
)
PEAKS = Says(
    "\npeaks of {chip:word}: {peaks_used.peak_tflops_bf16:decimal} TFLOP/s in bf16,"
    " {peaks_used.peak_tflops_fp8:decimal} in fp8, {peaks_used.peak_tflops_int8:decimal} in int8;"
    " {peaks_used.peak_hbm_gibps:decimal} GiB/s of HBM"
)
