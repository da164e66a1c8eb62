"""Test which thread's work a pause waits for: the critical path to the next launch."""

from __future__ import annotations

import itertools
import unittest
from typing import Any

from _breakdown.analysis.causes.shared.pauses import modes_of
from tests.builders.host_threads import (
    LAUNCH,
    MS,
    PERIOD,
    STEP,
    US,
    Call,
    N,
    device,
    each_pause,
    host,
    launching,
    waiting_for_a_loader,
)
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Space,
    Stat,
    StatMetadata,
    encode,
    tpu_plane,
    uint64,
)
from tests.harness import answer
from tests.modes.small_steps import leaf
from tests.shown import text_of

PAUSE_CAUSES = ("pause_between_steps", "host_sync", "recompilation")


def rows(threads: dict[str, list[Call]]) -> list[dict[str, Any]]:
    found = answer(encode(Space([device(), host(threads)])), "bottleneck")
    causes = [row for row in found["causes"] if row["cause"] in PAUSE_CAUSES]
    # What the rows say adds up to the pauses.
    assert sum(row["gain_ps"] for row in causes) == found["between_steps_ps"] == 20 * MS
    return causes


class OtherThread(unittest.TestCase):
    def row(self, wait: Call, **workers: list[Call]) -> dict[str, Any]:
        (found,) = rows({"main": launching(wait), **workers})
        return found

    def test_pause_is_due_to_the_thread_whose_work_ends_when_the_wait_ends(self) -> None:
        wait = ("$queue.py:154 get", 79_000, 99_700)
        loader = each_pause(("$loader.py:7 load", 60_000, 99_680))
        # This thread works longer during the wait, but in other calls.
        writer = each_pause(("$writer.py:3 write", 70_000, 120_000))
        found = self.row(wait, loader=loader, writer=writer)
        self.assertEqual((found["source_user"], found["confidence"]), ("loader.py:7", "seen"))
        self.assertEqual(
            (found["evidence"]["thread"], found["evidence"]["waiting_thread"]), ("loader", "main")
        )
        self.assertIn(
            "while thread loader is in loader.py:7 load (78.7 of 80.0 ms in all), for which the"
            " launching thread main waits in queue.py:154 get.",
            found["says"],
        )
        self.assertTrue(found["what_helps"].startswith("Start this work earlier"))
        # The user cannot change when the runtime begins its work.
        runtime = each_pause(("tpu::System::Execute", 60_000, 99_680))
        self.assertTrue(self.row(wait, t=runtime)["what_helps"].startswith("Let the host work"))

    def test_work_of_one_function_is_one_row_named_after_most_of_its_time(self) -> None:
        for n_reads, cause in (1, "pause_between_steps"), (N - 1, "host_sync"):
            calls = launching(("$log.py:12 log", 79_000, 99_700))
            reads = each_pause(("$array.py:615 _value", 79_100, 99_600))[:n_reads]
            (found,) = rows({"main": [*calls, *reads]})
            self.assertEqual((found["cause"], found["source_user"]), (cause, "log.py:12"))

    def test_call_too_short_for_a_wait_is_no_wait(self) -> None:
        # `dict.get` has the name of a queue's `get`, and a thread of the runtime ends just then.
        batch = ("$feed.py:3 batch", 79_000, 99_700)
        runtime = each_pause(("ExecuteLaunch", 94_990, 95_002))
        for end, gains in (95_009, 19.7), (95_011, None):
            calls = launching(batch, ("$<unknown> get", 95_000, end))
            (found,) = rows({"main": calls, "runtime": runtime})
            self.assertEqual(found["source_user"], "feed.py:3" if gains else None)
            if gains:
                self.assertEqual(found["gain_range_ps"][0], int(gains * MS))

    def test_call_that_wakes_the_thread_can_end_after_the_wait(self) -> None:
        wait = ("$queue.py:154 get", 79_000, 99_700)
        loader = each_pause(("$loader.py:7 load", 60_000, 99_730))
        self.assertEqual(self.row(wait, loader=loader)["source_user"], "loader.py:7")

    def test_threads_that_wait_or_go_on_are_not_blamed(self) -> None:
        wait = ("$queue.py:154 get", 79_000, 99_700)
        loader = each_pause(("$loader.py:7 load", 80_000, 99_690))
        also_waits = each_pause(("$queue.py:154 get", 20_000, 99_700))
        goes_on = each_pause(
            ("$other.py:3 evaluate", 20_000, 119_000), ("$other.py:9 log", 99_690, 99_990)
        )
        found = self.row(wait, also_waits=also_waits, goes_on=goes_on, loader=loader)
        self.assertEqual(found["source_user"], "loader.py:7")

    def test_thread_that_calls_the_program_goes_before_one_that_calls_another(self) -> None:
        metrics = each_pause(
            ("$metrics.py:3 log", 79_000, 99_920), ("PjitFunction(mean)", 99_930, 99_990)
        )
        calls = {"main": launching(("$feed.py:3 batch", 79_000, 99_700)), "metrics": metrics}
        plane = device()
        plane.lines = [line for line in plane.lines if line.name != "Steps"]
        plane.event_metadata.append(EventMetadata(951, "jit_train(1)"))
        runs = [Event(951, PERIOD * i * US, STEP * US) for i in range(N + 1)]
        plane.lines.append(Line("XLA Modules", runs))
        (found,) = answer(encode(Space([plane, host(calls)])), "bottleneck")["causes"]
        self.assertEqual(found["source_user"], "feed.py:3")

    def test_call_that_wakes_the_thread_tells_more_than_a_long_call(self) -> None:
        wait = ("$queue.py:154 get", 79_000, 99_700)
        loader = [
            ("$loader.py:7 run", -PERIOD, (N + 1) * PERIOD),
            *each_pause(
                ("$loader.py:9 parse", 60_000, 99_200), ("$queue.py:122 put", 99_660, 99_690)
            ),
        ]
        other = each_pause(("$other.py:3 evaluate", 10_000, 99_690))
        self.assertEqual(self.row(wait, loader=loader, other=other)["source_user"], "loader.py:9")

    def test_chain_of_waiting_threads_is_followed(self) -> None:
        wait = ("$_base.py:428 result", 79_000, 99_700)
        pool = each_pause(
            ("$pool.py:5 job", 70_000, 99_680), ("$threading.py:323 wait", 71_000, 99_600)
        )
        reader = each_pause(("$reader.py:8 read", 75_000, 99_590))
        found = self.row(wait, pool=pool, reader=reader)
        self.assertEqual(found["source_user"], "reader.py:8")
        self.assertEqual(found["evidence"]["waiting_thread"], "main")

    def test_thread_that_only_waits_need_not_be_the_launching_one(self) -> None:
        wait = ("$queue.py:154 get", 20_000, 99_700)
        reader = each_pause(
            ("$decode.py:7 decode", 20_000, 99_680), ("$socket.py:9 recv", 21_000, 99_000)
        )
        found = self.row(wait, reader=reader)
        self.assertEqual(found["source_user"], "decode.py:7")
        self.assertIn("waits for thread reader, which only waits, in decode.py:7", found["says"])

    def test_work_that_the_threads_of_a_pool_share_is_one_row(self) -> None:
        wait = ("$_base.py:263 wait", 79_000, 99_700)
        work = each_pause(("$decode.py:7 decode", 60_000, 99_680))
        found = self.row(wait, pool_1=work[::2], pool_2=work[1::2])
        self.assertEqual((found["source_user"], found["confidence"]), ("decode.py:7", "seen"))

    def test_wait_without_work_on_another_thread_is_not_seen(self) -> None:
        wait = ("$queue.py:154 get", 79_000, 99_700)
        # Another thread works, but its work does not end with the wait.
        found = self.row(wait, other=each_pause(("$other.py:3 work", 70_000, 95_000)))
        self.assertEqual(found["confidence"], "likely")
        self.assertIn("only waits", found["says"])
        self.assertNotIn("thread main is", found["says"])

    def test_lock_that_leaves_no_event_is_assumed(self) -> None:
        # Python's `with lock` is no call, so the time is the caller's.
        launch = ("$serve.py:11 launch", 79_000, 99_950)
        holder = each_pause(("$metrics.py:3 render", 75_000, 99_700))
        found = self.row(launch, metrics=holder)
        self.assertEqual((found["source_user"], found["confidence"]), ("metrics.py:3", "likely"))
        self.assertIn("thread main waits in serve.py:11 launch.", found["says"])
        # A short call without inner ones is no wait, and works itself.
        short = ("$serve.py:11 launch", 93_000, 99_950)
        found = self.row(short, metrics=each_pause(("$metrics.py:3 render", 92_000, 99_700)))
        self.assertNotEqual(found["source_user"], "metrics.py:3")
        # A thread that compiles does not wait.
        compile_ = ("$pxla.py:9 backend_compile", 79_000, 99_780)
        (found,) = rows({"main": launching(launch, compile_), "metrics": holder})
        self.assertEqual((found["cause"], found["source_user"]), ("recompilation", "serve.py:11"))

    def test_thread_that_waits_after_the_launch_does_not_delay_it(self) -> None:
        calls = launching(("$feed.py:3 batch", 79_000, 99_700))
        calls += each_pause(("$queue.py:154 get", 99_920, 178_000))
        (found,) = rows({"main": calls, "other": each_pause(("$other.py:3 work", 0, 99_990))})
        self.assertEqual((found["source_user"], found["confidence"]), ("feed.py:3", "seen"))


class Idle(unittest.TestCase):
    def test_idle_has_the_causes_of_pauses_that_bottleneck_has(self) -> None:
        data = waiting_for_a_loader()
        (cause,) = answer(data, "bottleneck")["causes"]
        (row,) = answer(data, "idle")["pause_causes"]
        for name in ("cause", "gain_ps", "source_user", "says"):
            self.assertEqual(row[name], cause[name])
        self.assertEqual((row["thread"], row["waiting_thread"]), ("loader", "main"))
        self.assertIn("loader.py:7", text_of(answer(data, "idle"), "utf-8"))


class SelfTime(unittest.TestCase):
    def test_short_read_is_not_the_reason_for_a_long_pause(self) -> None:
        calls = launching(
            ("$log.py:5 report", 79_000, 99_700), ("np.asarray(jax.Array)", 79_500, 81_000)
        )
        (found,) = rows({"main": calls})
        self.assertEqual(
            (found["cause"], found["source_user"]), ("pause_between_steps", "log.py:5")
        )

    def calling(self, *inside: Call) -> dict[str, Any]:
        """Return the row of pauses in which a thread calls a program."""
        calls = each_pause((LAUNCH, 80_000, 99_900), *inside)
        (found,) = rows({"main": [("$train.py:20 main", -PERIOD, (N + 1) * PERIOD), *calls]})
        return found

    def test_compilation_in_the_call_of_a_program_is_no_sending(self) -> None:
        found = self.calling(("$pxla.py:9 backend_compile", 80_100, 99_800))
        self.assertEqual(found["cause"], "recompilation")

    def test_read_counts_if_no_thread_is_known_to_launch(self) -> None:
        calls = [("$train.py:20 main", -PERIOD, (N + 1) * PERIOD)]
        calls += each_pause(("np.asarray(jax.Array)", 79_000, 99_000))
        (found,) = rows({"main": calls})
        self.assertEqual((found["cause"], found["source_user"]), ("host_sync", "train.py:20"))

    def test_sending_many_arguments_has_its_own_words(self) -> None:
        shards = [("shard_arg", 80_100 + 64 * i, 80_110 + 64 * i) for i in range(300)]
        self.assertNotIn("sends", self.calling(*shards[:3])["says"])
        found = self.calling(*shards)
        self.assertIn("sends 300 arguments to train in", found["says"])
        self.assertIn("Pass fewer arguments", found["what_helps"])


class Collection(unittest.TestCase):
    def test_garbage_collection_is_named_with_its_thread_and_callers(self) -> None:
        mark = "$__init__.py:132 _xla_gc_callback"
        work = [
            ("$tokens.py:8 process", 79_000, 99_680),
            ("$tokens.py:3 to_list", 79_100, 89_000),
            (mark, 79_200, 79_204),
            (mark, 88_900, 88_904),
            ("$queueing.py:5 enqueue", 89_100, 99_000),
            (mark, 89_200, 89_204),
            (mark, 98_900, 98_904),
        ]
        calls = launching(("$queue.py:154 get", 78_000, 99_700))
        (found,) = rows({"main": calls, "detokenize": each_pause(*work)})
        self.assertEqual((found["source_user"], found["confidence"]), ("tokens.py:8", "seen"))
        self.assertIn(
            "while thread detokenize collects garbage in tokens.py:8 process (enqueue and to_list)",
            found["says"],
        )
        self.assertIn("gc.freeze", found["what_helps"])

    def test_collections_in_several_functions_are_one_row(self) -> None:
        mark = "$__init__.py:132 _xla_gc_callback"
        calls = launching((mark, 79_200, 79_204), (mark, 99_500, 99_504))
        for i in range(N):
            function = f"$file{i % 2}.py:4 work"
            calls.append((function, 79_000 + PERIOD * i, 99_700 + PERIOD * i))
        (found,) = rows({"main": calls})
        self.assertIn("collects garbage", found["says"])

    def test_collection_that_began_before_the_pause_is_recognised(self) -> None:
        mark = "$__init__.py:132 _xla_gc_callback"
        calls = launching(
            ("$feed.py:4 batch", 70_000, 99_700), (mark, 71_000, 71_004), (mark, 99_500, 99_504)
        )
        (found,) = rows({"main": calls})
        self.assertIn("collects garbage", found["says"])


class Modes(unittest.TestCase):
    def test_short_and_long_pauses_are_told_apart(self) -> None:
        starts = [0, 85, 170, 320, 405, 555]
        steps = [(str(i), start * MS, 80 * MS) for i, start in enumerate(starts)]
        plane = tpu_plane([leaf(start, length) for _, start, length in steps], steps)
        calls = [("$train.py:20 main", -PERIOD, 7 * PERIOD)]
        for start, after in itertools.pairwise(starts):
            calls += [("$feed.py:3 batch", (start + 79) * 1000, after * 1000 - 200)]
            calls += [(LAUNCH, after * 1000 - 190, after * 1000 - 10)]
        (found,) = answer(encode(Space([plane, host({"main": calls})])), "bottleneck")["causes"]
        self.assertIn("; 3 gaps of 5.00 ms, 2 of 70.0 ms)", found["says"])
        # One pause is enough to be a kind, and no pauses in between are needed.
        for times, said in (([5, 70, 71], "1 gap of 5.00 ms, 2 of 70.0 to 71.0 ms"), ([5, 8], "")):
            self.assertEqual(modes_of([MS * time for time in times]), said)


class Clocks(unittest.TestCase):
    def found(
        self, ahead: int, *, first_ahead: int | None = None, n_devices: int = 1
    ) -> dict[str, Any]:
        """Return the answer for a host whose clock is ahead by some microseconds, and which
        launches each step on some devices."""
        plane = device()
        plane.stat_metadata.append(StatMetadata(950, "run_id"))
        plane.event_metadata.append(EventMetadata(951, "jit_train(1)"))
        runs = [
            Event(951, PERIOD * i * US, STEP * US, stats=[Stat(950, uint64(i))])
            for i in range(N + 1)
        ]
        plane.lines.append(Line("XLA Modules", runs))
        calls = [
            (name, start + ahead, end + ahead)
            for name, start, end in launching(
                ("$feed.py:3 batch", 79_000, 91_000), ("$save.py:9 other", 91_000, 99_700)
            )
        ]
        of_host = host({"main": calls})
        of_host.stat_metadata.append(StatMetadata(1, "run_id"))
        of_host.event_metadata += [
            EventMetadata(901, "DoEnqueueProgram"),
            EventMetadata(902, "CompleteCallbacks"),
        ]
        events = []
        for i in range(1, N + 1):
            shift = first_ahead if first_ahead is not None and i == 1 else ahead
            stats = [Stat(1, uint64(i))]
            launch = Event(901, (PERIOD * i + shift) * US, 5 * US, stats=stats)
            events += [launch] * n_devices
            done = (PERIOD * i + STEP + 20 + shift) * US
            events.append(Event(902, done, 5 * US, stats=stats))
        of_host.lines.append(Line("runtime", events))
        return answer(encode(Space([plane, of_host])), "bottleneck")

    def test_offset_between_the_clocks_is_corrected(self) -> None:
        for ahead in (0, 8_000, -8_000):
            found = self.found(ahead)
            row = found["causes"][0]
            self.assertEqual(row["source_user"], "feed.py:3", ahead)
            noted = [note for note in found["notes"] if "the host's clock is at least" in note]
            self.assertEqual(bool(noted), bool(ahead), ahead)

    def test_launches_that_several_devices_number_alike_tell_nothing(self) -> None:
        notes = str(self.found(8_000, n_devices=2)["notes"])
        self.assertNotIn("clock is at least", notes)
        self.assertNotIn("mends", notes)

    def test_no_call_is_blamed_if_pairs_contradict_each_other(self) -> None:
        found = self.found(0, first_ahead=9_000)
        row = found["causes"][0]
        self.assertEqual((row["source_user"], row["confidence"]), (None, "likely"))
        self.assertIn("which no offset between the clocks mends", str(found["notes"]))
