"""Holds the program against the naive second implementation: on random legal XSpaces, exactly."""

from __future__ import annotations

import random
import unittest
from typing import Any

from tests import naive
from tests.harness import run
from tests.random_xspace import random_case

N_CASES = 1000
FILE_FIELDS = ("profile_dir", "xplane_file", "detail")
SPECIFIED_NOTES = (
    *("auto-picked", "no Steps line", "no op starts in this step", "asynchronous communication"),
)


def options_of(options: dict[str, Any]) -> list[str]:
    """The command line for options given by name."""
    words = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif isinstance(value, (list, tuple)):
            words += [word for item in value for word in (flag, str(item))]
        elif value is not None and value is not False:
            words += [flag, str(value)]
    return words


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what names files, and without notes of unspecified wording."""
    kept = {k: v for k, v in answer.items() if k not in FILE_FIELDS}
    kept["notes"] = [note for note in kept["notes"] if note.startswith(SPECIFIED_NOTES)]
    return kept


def ordered(value: Any) -> Any:
    """Maps as lists of pairs, so that their order counts too."""
    if isinstance(value, dict):
        return [(key, ordered(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [ordered(item) for item in value]
    return value


class AgainstNaive(unittest.TestCase):
    maxDiff = 4000

    def test_random_xspaces(self) -> None:
        for seed in range(N_CASES):
            with self.subTest(seed=seed):
                data, mode, options = random_case(random.Random(seed))
                theirs = comparable(naive.analyse(data, mode, **options))
                ours = comparable(run(data, mode, *options_of(options)).object)
                self.assertEqual(ours, theirs)
                for key in ("container_durations_ps", "unknown_categories"):
                    if "totals" in ours:
                        self.assertEqual(
                            ordered(ours["totals"][key]), ordered(theirs["totals"][key])
                        )


if __name__ == "__main__":
    unittest.main()
