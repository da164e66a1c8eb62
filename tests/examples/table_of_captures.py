"""Print one line of CSV per capture below a folder: the time of a step and its largest loss.

Pass a folder as argument. The script needs this package and the standard library.
"""

import csv
import sys
from pathlib import Path

import compute_breakdown

SUFFIXES = (".xplane.pb", ".xplane.pb.gz", ".xplane.riegeli")

table = csv.writer(sys.stdout, lineterminator="\n")
table.writerow(["capture", "step_ms", "busy_ms", "idle_pct", "bottleneck", "line"])
for path in sorted(Path(sys.argv[1]).rglob("*.xplane.*")):
    if not path.name.endswith(SUFFIXES):
        continue
    try:
        answer = compute_breakdown.analyse(path, "bottleneck", top=1)
    except compute_breakdown.NoAnswer as failure:
        print(f"{path}: {failure}", file=sys.stderr)
        continue
    totals = answer["totals"]
    table.writerow(
        [
            path.name,
            round(answer["step_duration_ps"] / 1e9, 3),
            round(totals["busy_duration_ps"] / 1e9, 3),
            totals["idle_pct_of_step"],
            answer["bottleneck"],
            *(finding["source_user"] for finding in answer["findings"]),
        ]
    )
