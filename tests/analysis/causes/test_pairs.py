"""Test causes on pairs of captures: a step with a planted fault, and the same step without it.

The captures are in the folder `shared` next to the repository. Tests skip them if it is missing.
"""

from __future__ import annotations

import lzma
import unittest

from tests.harness import PROFILES, Json, answer, sampled

CORPUS = PROFILES.parent / "corpus"
# For each pair: the capture with the fault, the one without, the cause, and the lines to name.
PAIRS = (
    ("a", "fixed_a", "large_intermediate", ("train/loss.py:9", "train/loss.py:10")),
    ("b", "fixed_b", "resharding", ("layers/attention.py:33", "layers/attention.py:34")),
    ("c", "fixed_c", "pause_between_steps", ("data.py:88", "data.py:54", "data.py:41")),
    ("d", "fixed_b", "widened_dtype", ("layers/norm.py:9", "layers/norm.py:8")),
    ("e", "fixed_e", "slow_device", ("layers/attention.py:38",)),
    ("f", "fixed_f", "one_hot_matmul", ("transformer.py:20", "transformer.py:19")),
    ("g", "fixed_g", "collective_in_loop", ("train/step.py:13", "train/step.py:17")),
    ("h", "fixed_h", "recomputed_repeatedly", ("transformer.py:12", "transformer.py:26")),
    ("resnet", "resnet_onepass", "second_pass", ("train_resnet.py:22",)),
)


def found(capture: str, cause: str, lines: tuple[str, ...]) -> list[Json]:
    data = lzma.decompress((CORPUS / f"{capture}.xplane.pb.xz").read_bytes())
    return [
        row
        for row in answer(data, "bottleneck")["causes"]
        if row["cause"] == cause and (row["source_user"] or "").endswith(lines)
    ]


@unittest.skipUnless(CORPUS.is_dir(), "needs the pairs of captures")
class Pairs(unittest.TestCase):
    takes_seconds = 5

    def test_cause_is_found_only_with_the_fault(self) -> None:
        for faulty, repaired, cause, lines in sampled(PAIRS, 1):
            with self.subTest(cause):
                self.assertEqual(len(found(faulty, cause, lines)), 1)
                self.assertEqual(found(repaired, cause, lines), [])
