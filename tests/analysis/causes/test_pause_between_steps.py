"""Test the cause `pause_between_steps`: the gain, and the host's activity during the pause."""

from __future__ import annotations

import unittest
from typing import Any

from tests.builders import cycles
from tests.builders.drawn import Calls, drawn_line, host
from tests.builders.pauses import (
    FEED,
    LAUNCH,
    LAUNCHES,
    MS,
    STEPS,
    TOKENIZE,
    answer_of,
    device,
    thread,
)
from tests.builders.xspace import Space, encode, tpu_plane
from tests.harness import answer
from tests.modes.small_steps import leaf
from tests.shown import text_of


def rows(*threads: Calls, **more: Any) -> list[dict[str, Any]]:
    """Return the causes `pause_between_steps`."""
    causes = answer_of(*threads, **more)["causes"]
    return [row for row in causes if row["cause"] == "pause_between_steps"]


def row(*threads: Calls, steps: list[tuple[str, int, int]] = STEPS) -> dict[str, Any] | None:
    return next(iter(rows(*threads, steps=steps)), None)


def lines(*threads: Calls, options: tuple[str, ...] = ()) -> tuple[str | None, str | None]:
    found = rows(*threads, options=options)[0]
    return found["source_user"], found["source_inner"]


class PauseBetweenSteps(unittest.TestCase):
    def test_line_of_a_pause_is_the_function_by_which_other_files_enter_the_file(self) -> None:
        # The call of `main` spans all periods, so it is no reason for the pause.
        main = ("$feed.py:20 main", -10, 300)
        calls = [(FEED, 100 * i + 5, 100 * i + 99) for i in range(2)]
        inner = [(TOKENIZE, 100 * i + 6, 100 * i + 98) for i in range(2)]
        found = row(thread(main, *calls, *inner, ("$log.py:3 log", 98, 99)))
        assert found is not None
        self.assertEqual((found["gain_ps"], found["gain_pct_of_step"]), (20 * MS, 20.0))
        self.assertEqual(found["source_user"], "feed.py:17")
        self.assertEqual(found["source_inner"], "feed.py:44")
        self.assertEqual((found["confidence"], found["scope"]), ("seen", None))
        self.assertEqual(
            found["says"],
            "The device waits 20.0 ms between steps (20.0 % of the 100.0 ms period), while the host"
            " is in feed.py:17 get_batch > feed.py:44 tokenize. The call of get_batch takes 94.0"
            " ms.",
        )
        self.assertEqual((found["evidence"]["ops"], found["evidence"]["dur_ps"]), ([], 0))

    def test_line_of_a_pause_is_the_innermost_own_code(self) -> None:
        hook, save = ("$hooks.py:61 on_step", 75, 99), ("$save.py:58 save", 76, 99)
        numpy, lock = ("$fromnumeric.py:207 sum", 77, 99), ("$threading.py:9 wait", 78, 99)
        self.assertEqual(lines(thread(hook, save, numpy)), ("save.py:58", "fromnumeric.py:207"))
        self.assertEqual(
            lines(thread(hook, save, lock, *LAUNCHES)), ("save.py:58", "threading.py:9")
        )
        self.assertEqual(lines(thread(hook, numpy))[0], "hooks.py:61")
        frozen = ("$<frozen abc>:3 check", 76, 99)
        self.assertEqual(lines(thread(hook, frozen))[0], "hooks.py:61")

    def test_function_that_also_launches_a_step_is_not_reported_for_its_file(self) -> None:
        step, save = ("$train.py:9 one_step", 78, 130), ("$train.py:58 save", 79, 99)
        launch = ("PjitFunction(f)", 99, 100)
        self.assertEqual(lines(thread(step, save))[0], "train.py:9")
        self.assertEqual(lines(thread(step, save, launch))[0], "train.py:58")
        # Without a call inside it, the loop itself is the likely reason.
        found = row(thread(step, launch))
        assert found is not None
        self.assertEqual((found["source_user"], found["confidence"]), ("train.py:9", "likely"))

    def test_files_of_jax_below_own_code_are_not_own(self) -> None:
        insert, at_set = ("$kv.py:7 insert", 75, 99), ("$array_methods.py:1193 set", 76, 99)
        scatter = ("$scatter.py:95 _scatter_impl", 77, 99)
        self.assertEqual(lines(thread(insert, at_set, scatter)), ("kv.py:7", "scatter.py:95"))

    def test_working_ahead_is_advised_unless_a_result_is_read(self) -> None:
        def helps(*calls: tuple[str, int, int]) -> str:
            later = [(name, 100 + start, 100 + end) for name, start, end in calls]
            found = row(thread(*calls, *later, *LAUNCHES))
            assert found is not None
            return str(found["what_helps"])[:21]

        self.assertEqual(helps((FEED, 79, 99)), "Let the host work ahe")
        value = "$array.py:615 _value"
        for start, end in (70, 81), (95, 99):
            read = helps((value, start, end), (FEED, 82, 94))
            self.assertEqual(read, "Launch the next step ")
        self.assertEqual(helps((value, 60, 70), (FEED, 79, 99)), "Let the host work ahe")
        put = ("$api.py:2035 device_put", 79, 98)
        self.assertEqual(helps((FEED, 78, 99), put), "Transfer only arrays ")

    def test_sentence_says_how_often_a_function_calls_another(self) -> None:
        def says(*calls: tuple[str, int, int]) -> str:
            found = row(thread((FEED, 79, 99), *calls, *LAUNCHES))
            assert found is not None
            return str(found["says"])

        twice = ((TOKENIZE, 80, 88), (TOKENIZE, 89, 98))
        self.assertIn("get_batch > feed.py:44 tokenize (2 calls).", says(*twice))
        inner = (("$core.py:3 run", 80, 88), ("$core.py:3 run", 89, 98))
        self.assertIn("tokenize (2 calls) > core.py:3 run.", says(*twice, *inner))
        self.assertNotIn(" calls)", says(twice[1]))

    def test_own_selects_files_of_the_host(self) -> None:
        calls = thread(("$hooks.py:61 on_step", 75, 99), ("$core.py:58 run", 76, 99))
        self.assertEqual(lines(calls)[0], "hooks.py:61")
        self.assertEqual(lines(calls, options=("--own", "core.py"))[0], "core.py:58")
        # If `--own` selects no frame of the pause, the default applies.
        self.assertEqual(lines(calls, options=("--own", "other/"))[0], "hooks.py:61")

    def test_files_that_stacks_show_only_in_plumbing_are_not_own(self) -> None:
        stack = "/usr/lib/python3.11/site-packages/flax/special_name.py:3:1"
        ops = [leaf(start, dur, stack=stack) for _, start, dur in STEPS]
        calls = thread(("$hooks.py:61 on_step", 75, 99), ("$special_name.py:58 run", 76, 99))
        data = encode(Space([tpu_plane(ops, STEPS), host(calls)]))
        self.assertEqual(answer(data, "bottleneck")["causes"][0]["source_user"], "hooks.py:61")
        self.assertEqual(lines(calls)[0], "special_name.py:58")

    def test_whole_capture_contains_the_pauses(self) -> None:
        calls = [(FEED, 100 * i + 5, 100 * i + 99) for i in range(2)]
        result = answer(encode(Space([device(), host(thread(*calls))])), "bottleneck", "--step=all")
        (found,) = result["causes"]
        self.assertEqual((found["gain_ps"], found["gain_pct_of_step"]), (40 * MS, 14.286))
        # The budget has the pauses as idle time, so they do not count twice.
        self.assertEqual((result["bottleneck"], result["step_duration_ps"]), ("unjudged", 280 * MS))
        self.assertIn(" waits 40.0 of 280.0 ms (14.3 %) for the host.", result["headline"])
        self.assertIn("14.3  pause_between_steps", text_of(result, "utf-8"))
        self.assertNotIn("--step all", str(result["notes"]))
        self.assertIn("--step all includes this time", str(answer_of(thread(*calls))["notes"]))

    def test_call_must_overlap_half_of_the_pause(self) -> None:
        self.assertEqual(lines(thread((FEED, 50, 90))), ("feed.py:17", "feed.py:17"))
        self.assertEqual(lines(thread((FEED, 50, 89))), (None, None))

    def test_call_without_source_line_is_reported_by_name(self) -> None:
        found = row(thread(("prefetch", 50, 99), (FEED, 60, 99)))
        assert found is not None
        self.assertIn("is in prefetch > feed.py:17 get_batch.", found["says"])
        self.assertEqual(found["source_user"], "feed.py:17")

    def test_calls_outside_the_thread_that_launches_programs_are_ignored(self) -> None:
        writer: Calls = ("writer", [("$write.py:1 write", 0, 100 * MS)])
        self.assertEqual(lines(writer, thread((FEED, 50, 99))), ("feed.py:17", "feed.py:17"))
        found = row(writer, thread((FEED, 50, 89), *LAUNCHES))
        assert found is not None
        self.assertEqual((found["source_user"], found["confidence"]), (None, "likely"))
        self.assertIn("No single call on the way to the next launch covers half", found["says"])

    def test_wait_of_a_thread_that_launched_the_step_before_is_no_reason(self) -> None:
        # The thread waits for a result of an earlier step while the next one is queued.
        found = row(thread(("$array.py:615 _value", 50, 150)))
        assert found is not None
        self.assertEqual((found["source_user"], found["confidence"]), (None, "likely"))
        self.assertIn("The next step was launched before", found["says"])

    def test_pause_below_half_a_percent_is_not_reported(self) -> None:
        for pause, is_cause in ((5 * MS, True), (5 * MS - 1, False)):
            steps = [(str(i), 1000 * MS * i, 1000 * MS - pause) for i in range(3)]
            self.assertEqual(row(steps=steps) is not None, is_cause)

    def test_pause_excludes_time_in_other_steps(self) -> None:
        others = [("eval", (100 * i + 80) * MS, 20 * MS) for i in range(2)]
        steps = sorted([*STEPS, *others], key=lambda step: step[1])
        result = answer(encode(Space([device(steps)])), "bottleneck", "--step-id", "0")
        self.assertEqual(result["causes"], [])

    def test_single_step_has_no_pause(self) -> None:
        self.assertEqual(rows(steps=[("eval", 0, MS), *STEPS[1:2]]), [])

    def test_gap_between_programs_of_one_step_is_not_a_pause(self) -> None:
        plane = tpu_plane([leaf(0, MS), leaf(50 * MS, 30 * MS)], [("0", 0, 80 * MS)])
        plane.lines.append(drawn_line("XLA Modules", [("m", 0, MS)], plane))
        self.assertEqual(answer(encode(Space([plane])), "bottleneck")["causes"], [])


class ManyPrograms(unittest.TestCase):
    """Small programs between the executions of a large one."""

    def found(
        self,
        n: int,
        *,
        pause: int = 2,
        around: tuple[int, int] = (60, 90),
        main: str = "step",
        call: str = "$scatter.py:95 _scatter_impl",
        late: int = 0,
    ) -> list[dict[str, Any]]:
        """Return the causes. Every 100 ms, a program takes 60 ms, and `n` programs of 1 ms follow,
        each after a pause; the host is `around` in `insert`."""
        programs, events = [], [("$serve.py:3 run", -10, 500)]
        for start in range(0, 500, 100):
            programs.append(("jit_step(1)", start * MS, (start + 60) * MS))
            events.append((f"PjitFunction({main})", start + 1, start + 2))
            events.append(("$kv.py:7 insert", start + around[0], start + around[1]))
            for i in range(n):
                ran = start + 60 + pause + i * (1 + pause)
                begin = start + late + i if late else ran
                programs.append(("jit_scatter(2)", begin * MS, (begin + 1) * MS))
                if i % 2:
                    events.append(("$core.py:1924 typeof", min(ran - pause, ran - 1), ran - 1))
                events.append((call, ran - 1, ran))
                # The call of a program is recorded several times.
                events += [("PjitFunction(scatter)", ran - 1, ran)] * 3
        plane = tpu_plane([leaf(start, end - start) for _, start, end in programs])
        plane.lines.append(drawn_line("XLA Modules", programs, plane))
        events.sort(key=lambda event: (event[1], -event[2]))
        calls: Calls = ("main", [(name, a * MS, b * MS) for name, a, b in events])
        found = answer(encode(Space([plane, host(calls)])), "bottleneck")["causes"]
        assert isinstance(found, list)
        return found

    def test_function_that_launches_many_programs_is_to_be_jitted(self) -> None:
        found = self.found(9)[0]
        self.assertEqual((found["source_user"], found["confidence"]), ("kv.py:7", "seen"))
        self.assertIn("launches at least 9 programs, one by one, in kv.py:7 insert.", found["says"])
        self.assertTrue(found["what_helps"].startswith("Put the JAX ops of this function into"))
        self.assertIn("launches at least 8 programs", str(self.found(8)))

    def test_near_misses_of_many_programs(self) -> None:
        for causes in (
            self.found(7),
            # The device does not wait for most of them.
            self.found(9, pause=0),
            self.found(9, late=88),
            # The function calls the large program, too, or it is unknown who calls it.
            self.found(9, around=(0, 90)),
            self.found(9, main="other"),
            # Reading results takes the time.
            self.found(9, call="$array.py:615 _value"),
        ):
            self.assertTrue(causes)
            self.assertNotIn("one by one", str(causes))


class SeveralReasons(unittest.TestCase):
    """Pauses that do not occur after every step, and pauses with different reasons."""

    def capture(self, pauses: list[int], *calls: str) -> bytes:
        """Return a capture of steps of 80 ms with the given pauses in milliseconds; during each
        pause, the host is in one of the calls."""
        steps, events = [("0", 0, 80 * MS)], []
        end = 80
        for i, (pause, call) in enumerate(zip(pauses, calls * len(pauses), strict=False), 1):
            if pause:
                events.append((call, end - 3, end + pause - 1))
                events.append((LAUNCH, end + pause - 1, end + pause))
            steps.append((str(i), (end + pause) * MS, 80 * MS))
            end += 80 + pause
        main = ("$train.py:20 main", -10, end)
        return encode(Space([device(steps), host(thread(main, *events))]))

    def found(self, data: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        result = answer(data, "bottleneck")
        return result, [row for row in result["causes"] if row["cause"] == "pause_between_steps"]

    def test_pause_after_every_second_step(self) -> None:
        result, (cause,) = self.found(self.capture([0, 24, 0, 20, 0, 22], "$hook.py:12 on_step"))
        self.assertEqual((cause["gain_ps"], cause["gain_pct_of_step"]), (11 * MS, 12.088))
        self.assertEqual((result["period_ps"], result["between_steps_ps"]), (91 * MS, 11 * MS))
        self.assertEqual(cause["source_user"], "hook.py:12")
        self.assertEqual(cause["evidence"]["pauses"]["when"], "after every second step")
        self.assertEqual(
            cause["says"],
            "The device waits 20.0 to 24.0 ms after every second step (12.1 % of the time),"
            " while the host is in hook.py:12 on_step. The call of on_step takes 26.0 ms.",
        )
        self.assertIn(
            "Start at hook.py:12: the device waits 20.0 to 24.0 ms for the host after every second"
            " step, on average 11.0 of 91.0 ms (12.1 %) per step.",
            result["headline"],
        )

    def test_whole_capture_contains_all_pauses(self) -> None:
        data = self.capture([0, 24, 0, 20, 0, 22], "$hook.py:12 on_step")
        self.assertIn(
            " waits 20.0 to 24.0 ms for the host after every second step, 66.0 of 626.0 ms (10.5 %)"
            " in all.",
            answer(data, "bottleneck", "--step=all")["headline"],
        )

    def test_single_pause_is_not_a_cost_of_every_step(self) -> None:
        pauses = [0, 0, 0, 300, 0, 0, 0, 0, 0]
        result, (cause,) = self.found(self.capture(pauses, "$save.py:7 save"))
        self.assertEqual(cause["evidence"]["pauses"]["n"], 1)
        self.assertIn(
            "The device waits 300.0 ms a single time, after the step with index 3 (29.4 % of the"
            " time), while the host saves a checkpoint in save.py:7 save.",
            cause["says"],
        )
        self.assertIn(
            "Start at save.py:7: the device waits 300.0 ms for the host a single time, after the"
            " step with index 3 (29.4 %).",
            result["headline"],
        )

    def test_first_pause_without_a_reason_fills_the_pipeline(self) -> None:
        for wait in ("$queue.py:154 get", "$api.py:9 block_until_ready"):
            result, causes = self.found(self.capture([200, *[0] * 9], wait))
            self.assertEqual(causes, [], wait)
            self.assertNotIn("train.py", result["headline"])
        # The reason of this one is known.
        _, causes = self.found(self.capture([200, *[0] * 9], "$save.py:7 save"))
        self.assertEqual(causes[0]["source_user"], "save.py:7")

    def test_single_pause_without_a_reason_counts_if_it_is_a_large_loss(self) -> None:
        for pause, n in (60, 0), (200, 1):
            _, causes = self.found(self.capture([0, 0, 0, pause, *[0] * 6], "$queue.py:154 get"))
            self.assertEqual(len(causes), n, pause)

    def test_pauses_that_no_call_explains_count_if_they_are_a_large_loss(self) -> None:
        loop = thread(("$train.py:20 main", -10, 300), *LAUNCHES)
        for pause, is_found in (5, False), (20, True):
            steps = [(str(i), 100 * MS * i, (100 - pause) * MS) for i in range(3)]
            self.assertEqual(bool(rows(loop, steps=steps)), is_found, pause)

    def test_pauses_are_grouped_by_reason(self) -> None:
        calls = ["$feed.py:17 get_batch", "$save.py:7 save"]
        result, causes = self.found(self.capture([10, 40] * 3, *calls))
        self.assertEqual(
            [(row["source_user"], row["gain_ps"]) for row in causes],
            [("save.py:7", 20 * MS), ("feed.py:17", 5 * MS)],
        )
        self.assertEqual(sum(row["gain_ps"] for row in causes), result["between_steps_ps"])
        self.assertEqual(
            [row["evidence"]["pauses"]["when"] for row in causes], ["after every second step"] * 2
        )

    def test_single_pause_is_separate_from_other_pauses(self) -> None:
        _, causes = self.found(self.capture([10] * 5 + [200] + [10] * 4, "$feed.py:17 next"))
        self.assertEqual([row["gain_ps"] for row in causes], [20 * MS, 9 * MS])
        self.assertIn("a single time, after the step with index 5", causes[0]["says"])
        self.assertIn("in 9 of 10 gaps between steps", causes[1]["says"])

    def test_pause_in_one_of_two_similar_gaps_is_not_single(self) -> None:
        _, (cause,) = self.found(self.capture([22, 20], "$feed.py:17 next"))
        self.assertEqual(cause["evidence"]["pauses"]["when"], "after every step")
        _, (cause,) = self.found(self.capture([22], "$feed.py:17 next"))
        self.assertNotIn("single", cause["says"])

    def test_pauses_in_a_loop_are_grouped_by_the_call_in_the_loop(self) -> None:
        calls = ["$fromnumeric.py:7 sum", "$threading.py:9 wait"]
        _, causes = self.found(self.capture([10, 40] * 3, *calls))
        self.assertEqual([row["source_user"] for row in causes], ["train.py:20"] * 2)
        self.assertIn("only waits, in train.py:20 main > threading.py:9 wait,", causes[0]["says"])
        self.assertEqual([row["confidence"] for row in causes], ["likely", "seen"])
        self.assertIn("train.py:20 main > fromnumeric.py:7 sum.", causes[1]["says"])

    def test_pauses_before_and_after_a_step_of_another_name_have_their_own_reasons(self) -> None:
        # Each period has pauses from 60 to 64 ms and from 84 to 100 ms.
        train = [("train", 100 * i * MS, 60 * MS) for i in range(4)]
        others = [("eval", (100 * i + 64) * MS, 20 * MS) for i in range(3)]
        events = [
            *((("$log.py:3 log", 100 * i + 59, 100 * i + 64)) for i in range(3)),
            *((("$feed.py:17 get", 100 * i + 84, 100 * i + 99)) for i in range(3)),
        ]
        plane = device(sorted([*train, *others], key=lambda step: step[1]))
        data = encode(Space([plane, host(thread(*events))]))
        result = answer(data, "bottleneck", "--step-id", "train")
        self.assertEqual((result["period_ps"], result["between_steps_ps"]), (100 * MS, 20 * MS))
        self.assertEqual(
            [(row["source_user"], row["gain_ps"]) for row in result["causes"]],
            [("feed.py:17", 16 * MS), ("log.py:3", 4 * MS)],
        )

    def test_workers_that_launch_nothing_are_no_reason(self) -> None:
        workers = [(f"worker {i}", [("$write.py:1 write", 0, 300 * MS)]) for i in range(3)]
        calls = [(FEED, 100 * i + 81, 100 * i + 99) for i in range(2)]
        (cause,) = rows(*workers, thread(*calls))
        self.assertEqual(cause["source_user"], "feed.py:17")
        # Without a thread that launches programs, any thread can be the reason.
        (cause,) = rows(*workers)
        self.assertEqual(cause["source_user"], "write.py:1")


class Cycles(unittest.TestCase):
    """Pauses in steps of several programs: 14 ms forward, 1 ms pause, 3 ms sample, 1 ms pause."""

    def found(self, *in_each: tuple[str, float, float], step: str = "1") -> dict[str, Any]:
        calls = [
            (name, round((19 * i + start) * MS), round((19 * i + end) * MS))
            for i in range(5)
            for name, start, end in (
                ("PjitFunction(forward)", -0.15, -0.05),
                ("PjitFunction(sample)", 14.85, 14.95),
                *in_each,
            )
        ]
        main = ("main", [("$serve.py:20 main", -9 * MS, 200 * MS), *calls])
        device = cycles.device(["forward", "pause", "sample", "pause"] * 5)
        return answer(encode(Space([device, host(main)])), "bottleneck", "--step", step)

    def test_function_that_launches_one_program_of_a_cycle_explains_the_pause_before_it(
        self,
    ) -> None:
        call, read, rows_of = (f"$sampler.py:{at}" for at in ("9 sample", "4 read", "6 rows"))
        listed = ("$sampler.py:7 <listcomp>", 14.56, 14.84)
        inside = (call, 1, 14.96), (read, 1.1, 14.27), (rows_of, 14.28, 14.55), listed
        feed = ("$feed.py:17 get_batch", 17.5, 18.8)
        whole = self.found(feed, *inside, step="all")
        self.assertIn(": between programs, the device waits 4.00 of 94.0 ms", whole["headline"])
        result = self.found(feed, *inside)
        self.assertEqual(
            [(row["source_user"], row["gain_ps"]) for row in result["causes"]],
            [("feed.py:17", MS), ("sampler.py:9", MS)],
        )
        self.assertEqual([row["confidence"] for row in result["causes"]], ["seen"] * 2)
        self.assertIn(
            "waits 1.00 ms between forward and sample (5.3 % of the 19.0 ms period), while the host"
            " is in sampler.py:9 sample (read and rows).",
            result["causes"][1]["says"],
        )
        self.assertIn(" between sample and forward (5.3 %", result["causes"][0]["says"])
        self.assertIn(": between programs, the device waits 1.00 of 19.0 ms", result["headline"])

    def test_function_that_launches_all_programs_of_a_cycle_is_only_a_likely_reason(self) -> None:
        result = self.found(("$serve.py:9 one_cycle", -0.2, 18.9))
        self.assertEqual([row["confidence"] for row in result["causes"]], ["likely"])
        self.assertIn("waits 2.00 ms between programs (", result["causes"][0]["says"])

    def test_launch_of_a_program_is_no_work_before_it(self) -> None:
        causes = self.found(("PjitFunction(sample)", 14.05, 14.97))["causes"]
        self.assertEqual([row["confidence"] for row in causes], ["likely"])
