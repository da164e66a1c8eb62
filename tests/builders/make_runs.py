"""Write two runs of the demo's program, before and after an edit, for the examples on the pages.

    python3 -m tests.builders.make_runs FOLDER

FOLDER/before and FOLDER/after become log directories, each with one run of six steps on two
devices. The edit moves all lines of train.py down by three, and makes line 49 (52 after the edit)
12 % slower. The traces are reproducible byte for byte.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.builders import records, rewrite
from tests.builders.records import Program

FILE, LINE, SLOWER, SHIFT = "/home/dev/model/train.py", 49, 1.12, 3
HOST = "t1v-n-0"
DEVICES = ("/device:TPU:0", "/device:TPU:1")
N_STEPS, JITTER = 6, 0.01


def changed(program: Program) -> Program:
    slow = {
        op.key
        for op in program
        if op.frames and (op.frames[-1].file, op.frames[-1].line) == (FILE, LINE)
    }
    edits = [records.slow_down(key, SLOWER) for key in sorted(slow)]
    return records.chain(*edits, records.shift(FILE, SHIFT))(program)


def write_run(folder: Path, run: str, program: Program, seed: int) -> Path:
    """Write a log directory with one run of one host and return the path of the trace."""
    there = folder / "plugins" / "profile" / run
    there.mkdir(parents=True, exist_ok=True)
    data = rewrite.trace(program, N_STEPS, host=HOST, devices=DEVICES, jitter=JITTER, seed=seed)
    (there / f"{HOST}.xplane.pb").write_bytes(data)
    return folder


def write_runs(folder: Path) -> dict[str, Path]:
    """Write both runs; return the path of each trace, with the key `before` or `after`."""
    program = records.of_demo()
    return {
        "before": write_run(folder / "before", "2026_11_21_10_00_00", program, seed=1),
        "after": write_run(folder / "after", "2026_11_21_11_00_00", changed(program), seed=2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="make_runs")
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    write_runs(parser.parse_args().folder)


if __name__ == "__main__":
    main()
