"""Print one CSV row per capture in a folder: the step duration and the largest loss.

Pass the folder as argument. The script requires only this package and the standard library.
"""

import csv
import sys
from pathlib import Path

import compute_breakdown

table = csv.writer(sys.stdout, lineterminator="\n")
table.writerow(["capture", "step_ms", "bottleneck", "headline"])
for path in sorted(Path(sys.argv[1]).rglob("*.xplane.*")):
    try:
        answer = compute_breakdown.analyse(path, "bottleneck", top=1)
    except compute_breakdown.NoAnswer as failure:
        print(f"{path}: {failure}", file=sys.stderr)
        continue
    step_ms = answer["step_duration_ps"] / 1e9
    table.writerow([path.name, step_ms, answer["bottleneck"], answer["headline"]])
