"""What `python -m unittest discover -s tests -t .` finds, it runs on all cores.

Of what is random or adversarial it runs a sample, always the same. All of it runs where
COMPUTE_BREAKDOWN_TESTS=full is in the environment.
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
