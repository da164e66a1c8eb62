"""Test captures in which a text conversion replaced each non-UTF-8 byte with U+FFFD."""

from __future__ import annotations

import gzip
import itertools
import random
import subprocess
import sys
from pathlib import Path

from tests import harness
from tests.builders.random_xspace import random_case
from tests.builders.xspace import op, trace
from tests.fuzz import check_outcome

SMALL = trace([op(f"f.{i}", "loop fusion", 300 * i, 200, tf_op="x" * 300) for i in range(9)])
SIGNATURE = bytes.fromhex("83af70d10d884a3f 0000000000000000 4000000000000000 91ba c23c9287e1a9")
SAYS = ": mangled by a text conversion, which replaced bytes with U+FFFD and cannot be undone;"


def mangled(data: bytes) -> bytes:
    return data.decode(errors="replace").encode()


def noise(n_bytes: int) -> bytes:
    return random.Random(1).randbytes(n_bytes)


# Map a suitable file name to a mangled file of each format.
FORMS = {
    "plain.xplane.pb": mangled(SMALL),
    "packed.xplane.pb.gz": mangled(gzip.compress(SMALL)),
    "packed-but-not-named-so.xplane.pb": mangled(gzip.compress(SMALL)),
    "mangled-before-packing.xplane.pb.gz": gzip.compress(mangled(SMALL)),
    "records.xplane.riegeli": mangled(SIGNATURE + noise(1000)),
    # The program reads this file in pieces, some of which end in the middle of a three-byte
    # character.
    "large.xplane.riegeli": mangled(SIGNATURE + noise(2_000_000)),
}


class Mangled(harness.InFolder):
    def detail_of(self, path: Path, mode: str = "summary") -> str:
        outcome = harness.run(path, mode)
        check_outcome(outcome)
        self.assertEqual(outcome.object["reason"], "unreadable_xplane_pb")
        detail: str = outcome.object["detail"]
        return detail

    def test_mangled_files_of_every_format_are_reported_as_mangled(self) -> None:
        for (name, data), mode in itertools.product(FORMS.items(), ("summary", "anatomy")):
            with self.subTest(name=name, mode=mode):
                detail = self.detail_of(self.write(name, data), mode)
                self.assertIn(SAYS, detail)
                self.assertIn("copy the original file again in binary mode", detail)
                self.assertTrue(detail.startswith(f"{name}: byte "), detail)

    def test_mangled_stdin_is_reported_as_mangled(self) -> None:
        for name in ("plain.xplane.pb", "packed.xplane.pb.gz"):
            with self.subTest(name=name):
                done = subprocess.run(
                    [sys.executable, str(harness.SCRIPT), "-", "--mode", "summary"],
                    input=FORMS[name], capture_output=True, check=False,
                )  # fmt: skip
                self.assertEqual(done.returncode, 1)
                self.assertIn(SAYS, done.stderr.decode())

    def test_random_mangled_captures_are_reported_as_mangled(self) -> None:
        n_unreadable = 0
        for seed in harness.sampled(range(100), 20):
            data = random_case(random.Random(seed))[0]
            path = self.write("x.xplane.pb", mangled(data))
            if path.read_bytes() == data:
                continue
            outcome = harness.run(path, "anatomy")
            if outcome.object.get("reason") == "unreadable_xplane_pb":
                n_unreadable += 1
                self.assertIn(SAYS, outcome.object["detail"], seed)
        self.assertGreater(n_unreadable, 8)

    def test_other_damage_is_not_reported_as_mangled(self) -> None:
        for what, data in {
            "UTF-8 without a replacement": SMALL.decode("latin-1").encode(),
            "cut off": SMALL[:-9],
            "zeros": bytes(2_000_000),
        }.items():
            with self.subTest(what):
                self.assertNotIn("mangled", self.detail_of(self.write("x.xplane.pb", data)))
