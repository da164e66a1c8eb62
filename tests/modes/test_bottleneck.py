"""How the findings of bottleneck are shown."""

from __future__ import annotations

import unittest

from tests.builders.xspace import trace
from tests.harness import answer
from tests.modes.small_steps import HERE, STEP, leaf


class Findings(unittest.TestCase):
    def test_a_long_tf_op_ends_as_it_does(self) -> None:
        for size, shown in ((199, "x" * 199), (200, "x" * 200), (201, "…" + "x" * 200)):
            with self.subTest(size=size):
                data = trace([leaf(0, 9, stack=HERE, tf_op="x" * size)], STEP)
                (row,) = answer(data, "bottleneck")["findings"]
                self.assertEqual(row["tf_op"], shown)


if __name__ == "__main__":
    unittest.main()
