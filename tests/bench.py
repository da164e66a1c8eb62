"""Measure every mode's elapsed time and peak memory relative to a minimal reader, the floor.

    python3 tests/bench.py [FILE.xplane.pb]

The floor starts Python, imports protobuf, and decodes one `XLA Ops` line with protobuf's C parser.
It runs alternately with each mode, so that other load on the machine affects both. Without a file,
the benchmark writes a trace with tests/builders/make_trace.py.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 5
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
import _modes
# `compare` and `spread` read the same as `record`.
print(*(name for name in _modes.NAMES if name not in ("compare", "spread")))
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


def ask(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def measure(*arguments: str) -> tuple[float, float]:
    """Run Python with the given arguments; return the seconds and the peak memory in MiB."""
    to_null = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
    begin = time.perf_counter()
    pid = os.posix_spawn(
        sys.executable, [sys.executable, *arguments], os.environ, file_actions=[to_null]
    )
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - begin
    if status:
        sys.exit(f"failed: {' '.join(arguments)}")
    return seconds, usage.ru_maxrss / MAXRSS_PER_MIB


def print_table(path: str) -> None:
    """Print each mode's wall time and peak memory, and the median ratio of its time to the floor's
    time.
    """
    floor = ("-c", FLOOR, path, *ask(LOCATE, path).split())
    print(f"\n{os.path.getsize(path) / 1e6:.0f} MB\n")
    print("mode          wall s   x floor   peak MiB")
    floors = [measure(*floor)]
    for mode in ask(MODES).split():
        command: tuple[str, ...] = (str(ROOT / "compute_breakdown.py"), path, "--mode", mode)
        if mode in ("page", "export"):
            command += ("--out", f"{path}.{mode}")
        measure(*command)
        turns = [(measure(*floor), measure(*command)) for _ in range(ROUNDS)]
        floors += [of_floor for of_floor, _ in turns]
        ratio = statistics.median(of_mode[0] / of_floor[0] for of_floor, of_mode in turns)
        print_row(mode, [of_mode for _, of_mode in turns], f"{ratio:.2f}")
    print_row("floor", floors[1:], "")
    print_row("python -c pass", [measure("-c", "pass") for _ in range(ROUNDS)], "")


def print_row(name: str, measured: list[tuple[float, float]], ratio: str) -> None:
    wall = statistics.median(seconds for seconds, _ in measured)
    peak = max(mib for _, mib in measured)
    print(f"{name:14}{wall:6.3f}{ratio:>10}{peak:11.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Wall time and peak memory of every mode that reads a trace."
    )
    parser.add_argument("file", nargs="?", metavar="FILE.xplane.pb")
    given: str | None = parser.parse_args().file
    print(ask(ABOUT))
    with tempfile.TemporaryDirectory() as folder:
        # Keep compiled modules between runs, as for a user, but outside the repository.
        os.environ |= {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": folder}
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        path = os.path.abspath(given or Path(folder, "bench.xplane.pb"))
        if not given:
            subprocess.run(
                [sys.executable, "-m", "tests.builders.make_trace", path], cwd=ROOT, check=True
            )
        print_table(path)


if __name__ == "__main__":
    main()
