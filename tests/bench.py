"""Measure CPU time, wall time and peak memory, as medians of runs that alternate with other runs.

    python3 tests/bench.py [FILE.xplane.pb ...] [--only TABLE ...] [--against CHECKOUT]

start: the time to start, in multiples of an empty Python program.
modes: all modes on a trace of 120 MB, in multiples of the floor: a script that starts Python,
imports protobuf, and decodes one `XLA Ops` line with protobuf's C parser.
program: frequent modes on a trace of one step with its program, in multiples of the floor.
files: frequent modes on the given files, in multiples of `summary`.
growth: traces with more events, instructions, devices and steps.

Runs alternate, so that other load on the machine affects all of them. With `--against`, another
checkout takes turns, too, and the last column has the time in multiples of its time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DEMO = str(ROOT / "tests/data/demo")
ROUNDS = 9
# `ru_maxrss` is in bytes on macOS, and in KiB elsewhere.
MAXRSS_PER_MIB = 1 << (20 if sys.platform == "darwin" else 10)

# This process imports neither protobuf nor the program, because a child's peak memory includes the
# memory of its parent.
ABOUT = """
import google.protobuf, os, platform
from google.protobuf.internal import api_implementation
print(f"protobuf {google.protobuf.__version__} ({api_implementation.Type()}),"
      f" Python {platform.python_version()}, {os.cpu_count()} cores")
"""
MODES = """
from _breakdown import modes
print(*(name for name in modes.NAMES if name != "compare"))
"""
LOCATE = """
import sys
from _proto.trace import open_trace
with open_trace(sys.argv[1]) as (trace,):
    print(*trace.plane("/device:TPU:0")._lines["XLA Ops"][0])
"""
FLOOR = """
import os, sys
from _proto import xplane_pb2
start, end = map(int, sys.argv[2:])
with open(sys.argv[1], "rb") as file:
    xplane_pb2.XLine.FromString(os.pread(file.fileno(), end - start, start))
"""
# Modes of the tables `program` and `files`, with their options.
FREQUENT = (
    *("summary", "by_source", "non_compute", "roofline", "bottleneck --no-peers", "bottleneck"),
    *("by_array", "page"),
)
# Arguments of `tests.builders.make_trace`, and the mode that reads the trace.
GROWTH = {
    "bytes": ([f"--factor {n}" for n in (1, 2, 4)], "summary"),
    "instructions": ([f"--instructions {n}" for n in (12_500, 25_000, 50_000)], "by_array"),
    "devices": ([f"--factor 0.1 --devices {n}" for n in (1, 4, 16)], "record"),
    "steps": ([f"--factor {0.01 * n:.2f} --devices 1 --steps {n}" for n in (1, 10, 100)], "record"),
}
Command = Sequence[str]


class Run(NamedTuple):
    cpu: float
    wall: float
    mib: float


def ask(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def measured(command: Command) -> Run | None:
    """Run Python with the given arguments, without keeping what it prints. Return None if the
    command fails."""
    to_null = [(os.POSIX_SPAWN_OPEN, file, os.devnull, os.O_WRONLY, 0) for file in (1, 2)]
    begin = perf_counter()
    pid = os.posix_spawn(
        sys.executable, [sys.executable, *command], os.environ, file_actions=to_null
    )
    _, status, usage = os.wait4(pid, 0)
    wall = perf_counter() - begin
    if status:
        return None
    cpu = usage.ru_utime + usage.ru_stime
    return Run(cpu, wall, usage.ru_maxrss / MAXRSS_PER_MIB)


def in_turn(commands: Sequence[Command]) -> list[Run | None]:
    """Return the medians of each command's times, and its highest peak memory; None if it fails.
    All commands run once before the first measured run."""
    for command in commands:
        measured(command)
    runs: list[list[Run]] = [[] for _ in commands]
    for _ in range(ROUNDS):
        for command, of_command in zip(commands, runs, strict=True):
            run = measured(command)
            if run is not None:
                of_command.append(run)
    return [summed_up(of_command) for of_command in runs]


def summed_up(runs: Sequence[Run]) -> Run | None:
    if not runs:
        return None
    cpu, wall, mib = zip(*runs, strict=True)
    return Run(statistics.median(cpu), statistics.median(wall), max(mib))


class Bench:
    def __init__(self, folder: Path, against: str | None) -> None:
        self.folder = folder
        self.against = Path(against).resolve() if against else None

    def command(self, path: str, mode: str, root: Path = ROOT) -> Command:
        words = [str(root / "compute_breakdown.py"), path, "--mode", *mode.split()]
        if mode in ("page", "export"):
            words += ["--out", str(self.folder / mode)]
        return words

    def print_head(self, title: str, base: str) -> None:
        against = f"  x {self.against.name}" if self.against else ""
        print(f"\n{title:32} cpu s  wall s     MiB  x {base}{against}")

    def print_row(self, name: str, own: Command, base: Command, other: Command) -> None:
        """Measure a command in turn with the one that it is compared with, and with the same
        command of the other checkout, which may be too old to have it."""
        run, *others = in_turn([own, base, *([other] if self.against else [])])
        if run is None:
            sys.exit(f"failed: {' '.join(own)}")
        ratios = (f"{run.cpu / other.cpu:9.2f}" if other else f"{'-':>9}" for other in others)
        print(f"{name:30}{run.cpu:8.3f}{run.wall:8.3f}{run.mib:8.1f}{''.join(ratios)}", flush=True)

    def print_mode(self, name: str, path: str, mode: str, base: Command) -> None:
        other = self.command(path, mode, self.against or ROOT)
        self.print_row(name, self.command(path, mode), base, other)

    def print_start(self) -> None:
        self.print_head("start", "python -c pass")
        script = "compute_breakdown.py"
        for name, words in (
            ("--help", ["--help"]),
            ("summary of the demo", [DEMO, "--mode", "summary"]),
            ("bottleneck of the demo", [DEMO, "--mode", "bottleneck"]),
        ):
            other = (str((self.against or ROOT) / script), *words)
            self.print_row(name, (str(ROOT / script), *words), ("-c", "pass"), other)

    def print_modes(self, made: str, modes: Sequence[str]) -> None:
        path = self.made(made)
        self.print_head(f"{os.path.getsize(path) / 1e6:.0f} MB, {made}", "floor")
        floor = ("-c", FLOOR, path, *ask(LOCATE, path).split())
        for mode in modes:
            self.print_mode(mode, path, mode, floor)

    def print_file(self, path: str) -> None:
        self.print_head(os.path.basename(path)[:32], "summary")
        for mode in FREQUENT:
            self.print_mode(mode, path, mode, self.command(path, "summary"))

    def print_growth(self) -> None:
        self.print_head("growth", "smallest")
        for name, (kinds, mode) in GROWTH.items():
            smallest = self.command(self.made(kinds[0]), mode)
            for kind in kinds:
                what = f"{mode}, {name} x {float(kind.split()[-1]) / float(kinds[0].split()[-1]):g}"
                self.print_mode(what, self.made(kind), mode, smallest)

    def made(self, arguments: str) -> str:
        """Return the path of a synthetic trace."""
        path = self.folder / f"{arguments.replace(' ', '')}.xplane.pb"
        if not path.exists():
            module = "tests.builders.make_trace"
            words = [sys.executable, "-m", module, str(path), *arguments.split()]
            subprocess.run(words, cwd=ROOT, check=True)
        return str(path)


def main() -> None:
    tables = ("start", "modes", "program", "files", "growth")
    parser = argparse.ArgumentParser(description="CPU time, wall time and peak memory of all modes")
    parser.add_argument("files", nargs="*", metavar="FILE.xplane.pb")
    parser.add_argument("--only", nargs="+", choices=tables, default=tables)
    parser.add_argument("--against", metavar="CHECKOUT")
    given = parser.parse_args()
    print(ask(ABOUT))
    with tempfile.TemporaryDirectory() as folder:
        # Keep compiled modules between runs, as for a user, but outside the repository.
        cache = os.path.join(folder, "compiled")
        os.environ |= {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": cache}
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        bench = Bench(Path(folder), given.against)
        if "start" in given.only:
            bench.print_start()
        if "modes" in given.only:
            bench.print_modes("--factor 1", [*ask(MODES).split(), "bottleneck --no-peers"])
        if "program" in given.only:
            bench.print_modes("--instructions 25000", FREQUENT)
        for path in given.files if "files" in given.only else ():
            bench.print_file(os.path.abspath(path))
        if "growth" in given.only:
            bench.print_growth()


if __name__ == "__main__":
    main()
