"""Test that the light named tuples behave like those of the standard library."""

from __future__ import annotations

import pickle
import typing
import unittest
from copy import copy

from _breakdown.light import NamedTuple


class Light(NamedTuple):
    name: str
    size: int = 1
    kinds: tuple[str, ...] = ()

    @property
    def double(self) -> int:
        return 2 * self.size


class Original(typing.NamedTuple):
    name: str
    size: int = 1
    kinds: tuple[str, ...] = ()

    @property
    def double(self) -> int:
        return 2 * self.size


class NamedTuples(unittest.TestCase):
    def test_values_are_those_of_the_original(self) -> None:
        for arguments, named in ((("a",), {}), (("a", 2), {}), ((), {"size": 3, "name": "b"})):
            with self.subTest(arguments=arguments, named=named):
                light = Light(*arguments, **named)  # type: ignore[arg-type]
                original = Original(*arguments, **named)  # type: ignore[arg-type]
                self.assertEqual(light, original)
                self.assertEqual(hash(light), hash(original))
                self.assertEqual(light.double, original.double)
                self.assertEqual(repr(light).replace("Light", "Original"), repr(original))
                self.assertEqual(light._replace(size=9), original._replace(size=9))

    def test_values_can_be_sent_to_other_processes(self) -> None:
        light = Light("a", 2)
        for same in (pickle.loads(pickle.dumps(light)), copy(light)):
            self.assertIs(type(same), Light)
            self.assertEqual(same, light)
