"""Test that several processes give the same result as one, and that no child process is left."""

from __future__ import annotations

import json
import os
import signal
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

from _breakdown.analysis import processes
from tests.builders.peers import with_slow_device
from tests.harness import run

NUMBERS = list(range(5))


@unittest.skipUnless(hasattr(os, "fork"), "needs fork")
class Processes(unittest.TestCase):
    def setUp(self) -> None:
        self.use_cores(2)
        self.pids: list[int] = []
        self.parent = os.getpid()
        fork = os.fork

        def recorded_fork() -> int:
            pid = fork()
            if pid:
                self.pids.append(pid)
            return pid

        patch = mock.patch.object(os, "fork", recorded_fork)
        patch.start()
        self.addCleanup(patch.stop)

    def use_cores(self, n: int) -> None:
        patch = mock.patch.object(processes, "n_cores", lambda: n)
        patch.start()
        self.addCleanup(patch.stop)

    def assert_none_is_left(self, n: int = 1) -> None:
        self.assertEqual(len(self.pids), n)
        for pid in self.pids:
            with self.assertRaises(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def check(self, in_child: Callable[[int], Any]) -> None:
        """Check that results are correct even if the child processes run `in_child` instead of
        doing their work."""

        def work(number: int) -> Any:
            return number * 10 if os.getpid() == self.parent else in_child(number)

        for n in (2, 5):
            self.pids.clear()
            with self.subTest(n=n):
                found = processes.in_processes(work, NUMBERS[:n])
                self.assertEqual(found, [number * 10 for number in NUMBERS[:n]])
                self.assert_none_is_left()

    def test_results_have_the_order_of_the_items(self) -> None:
        self.check(lambda number: number * 10)

    def test_parent_repeats_work_that_failed_in_a_child(self) -> None:
        def fail(number: int) -> int:
            raise ValueError(number)

        self.check(fail)
        self.check(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        # A lambda cannot be pickled, so the child cannot return it.
        self.check(lambda _: lambda: None)

    def test_number_of_processes_does_not_exceed_cores_items_or_eight(self) -> None:
        for n_cores, n_items, n in (
            *((2, 0, 1), (1, 5, 1), (3, 5, 3), (100, 3, 3), (100, 30, 8), (4, 1, 1)),
        ):
            with self.subTest(n_cores=n_cores, n_items=n_items):
                self.pids.clear()
                self.use_cores(n_cores)
                pids = processes.in_processes(lambda _: os.getpid(), range(n_items))
                self.assertEqual(pids, ([self.parent, *self.pids] * n_items)[:n_items])
                self.assert_none_is_left(n - 1)

    def test_parent_does_the_remaining_work_if_no_more_processes_can_start(self) -> None:
        self.use_cores(4)
        fork, n_left = os.fork, 2

        def scarce() -> int:
            nonlocal n_left
            n_left -= 1
            if n_left < 0:
                raise OSError("no more")
            return fork()

        with mock.patch.object(os, "fork", scarce):
            pids = processes.in_processes(lambda _: os.getpid(), NUMBERS)
        self.assertEqual(pids, [self.parent, *self.pids, self.parent, self.parent])

    def test_error_in_the_parent_terminates_the_child_processes(self) -> None:
        def work(number: int) -> int:
            if os.getpid() == self.parent:
                raise KeyError(number)
            signal.pause()
            return number

        with self.assertRaises(KeyError):
            processes.in_processes(work, NUMBERS)
        self.assert_none_is_left()

    def test_record_does_not_depend_on_the_number_of_processes(self) -> None:
        def record(n_cores: int) -> str:
            with (
                mock.patch.object(processes, "SMALL_FILE", 0),
                mock.patch.object(processes, "n_cores", lambda: n_cores),
            ):
                found = run(with_slow_device(), "record").object
            self.assertEqual((found["status"], len(found["devices"])), ("ok", 3))
            return json.dumps(found)

        expected = record(1)
        self.assertEqual(self.pids, [])
        self.assertEqual(record(2), expected)
        self.assert_none_is_left(1)
