"""Run all tests on all cores with `python -m unittest discover -s tests -t .`.

By default, a random test runs a fixed sample of its cases. Set COMPUTE_BREAKDOWN_TESTS=full to run
all cases.
"""

from __future__ import annotations

import os
import unittest


def load_tests(
    loader: unittest.TestLoader, tests: unittest.TestSuite, pattern: str | None
) -> unittest.TestSuite:
    from tests.parallel import OnAllCores

    here = os.path.dirname(__file__)
    found = loader.discover(here, pattern or "test*.py", os.path.dirname(here))
    return OnAllCores([*tests, found])
