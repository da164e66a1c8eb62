"""Damage traces randomly and check how the program handles them.

    python3 -m tests.fuzz [--seed N] [--first N] [--cases N]

A case depends only on the seed and its number. A failing case is printed with the command that
repeats it.

Answers are checked with protobuf. If protobuf decodes a file without dropping a field, the file
is encoded again, and the program must find the same number of events in both files. If protobuf
rejects a file, the program must reject it, too, unless no mode needs the damaged part.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import struct
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from _breakdown.pipeline.no_answer import DEVICE_NOT_FOUND, EXIT_STATUS
from _proto import columns_pb2 as columns, xplane_pb2 as pb
from _proto.errors import Damage
from _proto.trace import lines, wire
from tests import harness
from tests.builders import random_xspace
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    compressed,
    encode,
    op,
    ref,
    tpu_plane,
    varint,
)
from tests.harness import MODES
from tests.naive.wire import every, fields, read_varint

DEVICE = "/device:TPU:0"
N_CASES = 400
# Each run may take at most this much CPU time, in seconds.
SECONDS = 2
VARINT, FIXED64, LENGTH, GROUP, GROUP_END, FIXED32 = range(6)
FIXED_SIZE = {FIXED64: 8, FIXED32: 4}


DETAIL_RE = re.compile(r"(?P<file>.*): byte (?P<at>\d+): (?P<what>.+)", re.DOTALL)


def check(condition: object, complaint: str) -> None:
    if not condition:
        raise AssertionError(complaint)


def check_outcome(outcome: harness.Outcome, options: Sequence[str] = ()) -> None:
    """Check that status, reason, exit status and stderr of a run with the given options are
    consistent."""
    result = outcome.object
    if result["status"] == "ok":
        check(outcome.status == 0 and not outcome.stderr, f"ok, but {outcome[1:]}")
        return
    check(result["status"] == "absent", f"status {result['status']!r}")
    check({"mode", "profile_dir", "device", "notes"} <= result.keys(), f"fields missing: {result}")
    # A missing device is an error only if an option names it.
    is_named = result["reason"] == DEVICE_NOT_FOUND and "--device" in options
    expected = 1 if is_named else EXIT_STATUS[result["reason"]]
    check(outcome.status == expected, f"exit {outcome.status}: {result}")
    lines = outcome.stderr.split("\n")
    check(all(map(str.isprintable, lines)), f"raw control characters: {outcome.stderr!r}")
    check("detail" in result or not outcome.status, f"no detail: {result}")
    check(lines[-1] == "" and f": {result['reason']}" in lines[-2], f"no complaint: {outcome}")
    check(len(lines) == 2 or result["reason"] == "bad_arguments", f"not one line: {lines}")
    if result["reason"] == "unreadable_xplane_pb":
        check(DETAIL_RE.fullmatch(result["detail"]), f"no byte offset: {result['detail']!r}")


def damaged_at(outcome: harness.Outcome) -> int | None:
    """Return the offset of the reported damage, or None if no damage is reported."""
    if outcome.object.get("reason") != "unreadable_xplane_pb":
        return None
    detail = DETAIL_RE.fullmatch(outcome.object["detail"])
    check(detail, f"no byte offset: {outcome.object['detail']!r}")
    return int(detail["at"]) if detail else None


# For each message type, the fields that contain messages.
MESSAGES = {
    "space": {1: "plane"},
    "plane": {3: "line", 4: "event entry", 5: "stat entry", 6: "stat"},
    "line": {4: "event"},
    "event": {4: "stat"},
    "event entry": {2: "event metadata"},
    "event metadata": {5: "stat"},
    "stat entry": {2: "stat metadata"},
}
EDGES = (0, 1, 127, 128, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)
BAD_TEXTS = (
    b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82",
    b"\x00\x1b[31m\x07", b"</script>", "\u202e\u2028\x85".encode(), b"",
)  # fmt: skip


class Node:
    """Represent a field that can be modified and encoded again."""

    def __init__(
        self, tag: bytes, wire: int, payload: bytes, children: list[Node] | None = None
    ) -> None:
        self.tag = tag
        self.wire = wire
        self.payload = payload
        self.children = children
        # If not None, this length is written instead of the true length.
        self.length: bytes | None = None

    def encode(self) -> bytes:
        payload = self.payload if self.children is None else join(self.children)
        if self.wire == LENGTH:
            length = varint(len(payload)) if self.length is None else self.length
            return self.tag + length + payload
        return self.tag + payload


def join(nodes: list[Node]) -> bytes:
    return b"".join(node.encode() for node in nodes)


def parse(data: bytes, message: str = "space") -> list[Node]:
    nodes = []
    held = wire.HeldBytes(data)
    for at, number, wire_type, value, stop in wire.fields(held, 0, len(data)):
        start = at + len(varint(number << 3))
        payload = data[start:stop] if wire_type != LENGTH else data[value:stop]
        inner = MESSAGES.get(message, {}).get(number)
        children = parse(payload, inner) if inner else None
        nodes.append(Node(varint(number << 3 | wire_type), wire_type, payload, children))
    return nodes


Place = tuple[list[Node], int]


def places(nodes: list[Node]) -> list[Place]:
    """Return all nodes in a tree, each as (list of siblings, index)."""
    found: list[Place] = []
    for i, node in enumerate(nodes):
        found.append((nodes, i))
        found += places(node.children or [])
    return found


def wrong_length(rng: random.Random, siblings: list[Node], i: int) -> None:
    node = siblings[i]
    size = len(node.payload)
    near = (size + 1, size - 1, size + 2, 2 * size, size + 200)
    node.length = varint(rng.choice((*near, *EDGES)))


def wrong_wire(rng: random.Random, siblings: list[Node], i: int) -> None:
    node, wire_type = siblings[i], rng.randrange(8)
    number, _ = read_varint(node.tag, 0)
    node.tag = varint(number & ~7 | wire_type)
    if rng.random() < 0.7:
        # Usually, replace the payload with one of the new wire type, so that the following fields
        # stay readable.
        node.wire, node.children, node.length = wire_type, None, None
        fixed = bytes(FIXED_SIZE.get(wire_type, 1))
        packed = b"".join(varint(rng.randrange(300)) for _ in range(rng.randrange(4)))
        node.payload = packed if wire_type == LENGTH else fixed


def repeat(rng: random.Random, siblings: list[Node], i: int) -> None:
    siblings.insert(rng.randrange(len(siblings) + 1), siblings[i])


def drop(rng: random.Random, siblings: list[Node], i: int) -> None:
    del siblings[i]


def edge_number(rng: random.Random, siblings: list[Node], i: int) -> None:
    node = siblings[i]
    if node.wire == VARINT:
        node.payload = varint(rng.choice(EDGES))
    elif node.wire == FIXED64:
        node.payload = struct.pack("<d", rng.choice((float("inf"), float("nan"), -1.0, 1e300)))


def bad_text(rng: random.Random, siblings: list[Node], i: int) -> None:
    node = siblings[i]
    if node.wire == LENGTH and node.children is None:
        at = rng.randrange(len(node.payload) + 1)
        node.payload = node.payload[:at] + rng.choice(BAD_TEXTS) + node.payload[at:]


TREE_MUTATORS: tuple[Callable[[random.Random, list[Node], int], None], ...] = (
    wrong_length, wrong_wire, wrong_wire, repeat, drop, edge_number, bad_text,
)  # fmt: skip


def truncate(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def flip(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        if out:
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def insert(rng: random.Random, data: bytes) -> bytes:
    at, size = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 16, 300))
    run = rng.choice((rng.randbytes(size), bytes(size), b"\xff" * size, data[:size]))
    return data[:at] + run + data[at:]


def delete(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.choice((1, 2, 4, 16, 300)) :]


RAW_MUTATORS = (truncate, flip, flip, insert, delete)


def mutate(rng: random.Random, data: bytes) -> tuple[bytes, list[str]]:
    """Damage a valid file one to three times; return it and the names of the mutators."""
    done = []
    tree = parse(data)
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        if all_places := places(tree):
            mutator = rng.choice(TREE_MUTATORS)
            mutator(rng, *rng.choice(all_places))
            done.append(mutator.__name__)
    data = join(tree)
    if not done or rng.random() < 0.1:
        raw_mutator = rng.choice(RAW_MUTATORS)
        data = raw_mutator(rng, data)
        done.append(raw_mutator.__name__)
    return data, done


def sample() -> bytes:
    """Return a small file that contains every kind of message."""
    stack = "train.py:1:2\nmodel.py:7:3"
    tpu = tpu_plane(
        [
            op("fusion.1", ref("loop fusion"), 0, 90, flops=800, bytes_accessed=64, stack=stack),
            op("copy.2", "data formatting", 100, 50, opcode="copy", stack=compressed(stack)),
            op("dot.3", compressed("convolution"), 200, 300, flops=1e6, tf_op="jit(f)/dot:"),
            op("all-reduce.4", "all-reduce", 600, 2, program_id=2**63 + 1),
            op("fusion.1", ref("loop fusion"), 1000, 5, flops=800, bytes_accessed=64, stack=stack),
        ],
        [("0", 0, 1000), ("1", 1000, 10)],
        stats={"device_type_string": "TPU v7x", "peak_teraflops_per_second": 1153.5},
    )
    tpu.lines.append(Line("Overlay", [Event(1, 5, 5)]))
    host = Plane("/host:CPU", [Line("main", [Event(1, 5, 5)], 10**18)], [EventMetadata(1, "x")])
    return encode(Space([tpu, host, Plane("/device:TPU:1")], ["host"]))


class StuckError(BaseException):
    """Report that the program takes too long. This is not a subclass of Exception, so that the
    program does not catch it.
    """


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limit the CPU time to `seconds` and the elapsed time to a minute, both scaled by
    `harness.bound`."""
    most_work, most_waiting = harness.bound(seconds), harness.bound(60)

    def stop(*_: object) -> None:
        raise StuckError(f"still busy after {most_work:.0f} s")

    # The main limit applies to CPU time, so that a busy machine causes no failures.
    limits = (
        (signal.SIGPROF, signal.ITIMER_PROF, most_work),
        (signal.SIGALRM, signal.ITIMER_REAL, most_waiting),
    )
    before = [signal.signal(number, stop) for number, _, _ in limits]
    for _, timer, limit in limits:
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(limits, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


@contextmanager
def small_pieces(rng: random.Random) -> Iterator[None]:
    """In half of the cases, read in tiny pieces, so that even a small file has many pieces."""
    if rng.random() < 0.5:
        yield
        return
    with (
        mock.patch.object(lines, "_PIECE_BYTES", rng.choice((1, 16, 100, 400))),
        mock.patch.object(wire, "_WINDOW", rng.choice((20, 64))),
    ):
        yield


def judge(data: bytes, folder: Path, device: str, mode: str, options: Sequence[str]) -> str:
    """Run the program on damaged data and check the answer; return its reason, or `ok`.

    Only the number of events is compared, because protobuf reorders and merges map entries.
    """
    path = folder / "test.xplane.pb"
    path.write_bytes(data)
    outcome = harness.run(path, mode, *options)
    check_outcome(outcome, options)
    word = str(outcome.object.get("reason", "ok"))
    at = damaged_at(outcome)
    check(at is None or at <= len(data), f"damage after the end of the file: {outcome.object}")
    try:
        space = pb.XSpace.FromString(data)
    except DecodeError:
        if at is None:
            check_needed_parts(data, device)
        return word
    try:
        wire.explain(pb.XSpace.DESCRIPTOR, data, 0)
    except Damage:
        # Protobuf ignores fields of a wrong type and accepts groups, but the program may reject
        # both.
        return word
    if any(len(UnknownFieldSet(plane)) for plane in space.planes):
        # Protobuf drops map entries with unknown fields.
        return word
    space.DiscardUnknownFields()
    path.write_bytes(space.SerializeToString())
    expected = harness.run(path, mode, *options)
    n_events, n_expected = (n_events_in(run_of.object) for run_of in (outcome, expected))
    if n_events is not None and n_expected is not None:
        check(n_events == n_expected, f"{n_events} events, protobuf reads {n_expected}")
    return word


def n_events_in(answer: dict[str, Any]) -> int | None:
    """Return the number of events in an answer, including those reported as left out."""
    totals = answer.get("totals", {})
    names = ("n_events_total", "n_events_container", "n_events_unresolved")
    return sum(totals[name] for name in names) if totals.keys() >= set(names) else None


def check_needed_parts(data: bytes, device: str) -> None:
    """Check that the parts that every mode needs are readable."""
    try:
        for plane in every(fields(data), 1):
            if name_of(pb.XPlane, plane) == device:
                for line in every(fields(plane), 3):
                    if name_of(pb.XLine, line) in ("Steps", "XLA Ops"):
                        columns.LineStarts.FromString(line)
                return
    except (ValueError, DecodeError, Damage) as error:
        raise AssertionError("damage in what every answer needs went unseen") from error


def name_of(kind: type[Message], data: bytes) -> str:
    """Return the first name in a plane or line, even if later bytes are damaged."""
    for _, name, start, end in wire.known_fields(kind, wire.HeldBytes(data), 0, len(data)):
        if name == "name":
            return data[start:end].decode(errors="replace")
    return ""


def run_case(seed: int, number: int, folder: Path) -> str:
    """Run a fuzz case; return the reason of the answer, or `ok`."""
    rng = random.Random(f"{seed}:{number}")
    data, mode, device = sample(), rng.choice(MODES), DEVICE
    options = list(rng.choice(((), (), ("--step", "0"), ("--step", "-1"), ("--step-id", "1"))))
    if rng.random() < 0.5:
        data, mode, drawn = random_xspace.random_case(rng)
        device = drawn.get("device", DEVICE)
        options = random_xspace.command_line(drawn)
    data, damage = mutate(rng, data)
    # Each case runs the program twice.
    with time_limit(2 * SECONDS), small_pieces(rng):
        try:
            return judge(data, folder, device, mode, options)
        except (Exception, StuckError) as error:
            raise AssertionError(f"{damage} {mode} {options}") from error


def fuzz(seed: int, cases: Iterable[int], complain: Callable[[str], None]) -> Counter[str]:
    """Run the cases and return the number of cases by reason."""
    words: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for number in cases:
            try:
                words[run_case(seed, number, Path(folder))] += 1
            except (Exception, StuckError) as error:
                words["failed"] += 1
                again = f"python3 -m tests.fuzz --seed {seed} --first {number} --cases 1"
                complain(again + "\n" + "".join(traceback.format_exception(error)))
    return words


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--cases", type=int, default=N_CASES, help="(default: %(default)s)")
    given = parser.parse_args()
    words = fuzz(given.seed, range(given.first, given.first + given.cases), print)
    print(f"{given.cases} cases:", ", ".join(f"{n} {word}" for word, n in words.most_common()))
    return 1 if words["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
