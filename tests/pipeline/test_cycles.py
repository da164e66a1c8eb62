"""Test how the programs of a capture without a `Steps` line become cycles."""

from __future__ import annotations

import random
import unittest
from collections.abc import Sequence

from _breakdown.pipeline.cycles import cycles_of
from _breakdown.pipeline.step_event import StepEvent, main_kind
from tests.harness import sampled, within
from tests.naive.cycles import cycles_of as naive_cycles
from tests.naive.op import Span
from tests.naive.step import Step as NaiveStep

# Durations of the programs; others take 10.
TIMES = {"forward": 100, "prefill": 80, "train": 5000}
PAUSE, LONG_PAUSE = 1, 50


def programs(text: str) -> list[StepEvent]:
    """Return programs by name, one after the other; `|` is a long pause."""
    found: list[StepEvent] = []
    now = 0
    for name in text.split():
        if name == "|":
            now += LONG_PAUSE
            continue
        end = now + TIMES.get(name.partition("(")[0], 10)
        found.append(StepEvent(len(found), name, now, end, (now + 7, end + 7), name))
        now = end + PAUSE
    return found


def steps_of(ran: Sequence[StepEvent]) -> list[StepEvent]:
    cycles = cycles_of(ran)
    return cycles.steps if cycles else []


def cut(text: str) -> list[str]:
    """Return the programs of each cycle, separated by spaces."""
    ran = programs(text)
    return [
        " ".join(str(one.name) for one in ran if step.start <= one.start < step.end)
        for step in steps_of(ran)
    ]


def note(text: str) -> str:
    cycles = cycles_of(programs(text))
    return cycles.note if cycles else ""


class OneKind(unittest.TestCase):
    def test_cycle_begins_with_the_longest_program_if_no_pause_is_clearly_longer(self) -> None:
        self.assertEqual(cut("forward convert sample " * 3), ["forward convert sample"] * 3)
        self.assertEqual(
            cut("sample " + "forward convert sample " * 3 + "forward"),
            ["forward convert sample"] * 3,
        )

    def test_cycle_begins_after_the_longest_pause(self) -> None:
        self.assertEqual(cut("a forward b | " * 3), ["a forward b"] * 3)
        self.assertEqual(cut("forward b | " + "a forward b | " * 3 + "a"), ["a forward b"] * 3)

    def test_program_that_runs_twice_in_a_cycle_does_not_cut_it(self) -> None:
        self.assertEqual(cut("forward b sample b | " * 4), ["forward b sample b"] * 4)

    def test_programs_of_one_function_in_a_fixed_order_belong_to_one_cycle(self) -> None:
        self.assertEqual(cut("forward(1) a forward(2) a | " * 3), ["forward(1) a forward(2) a"] * 3)
        self.assertEqual(cut("forward(1) forward(2) " * 3), ["forward(1) forward(2)"] * 3)

    def test_two_alternating_models_are_one_cycle(self) -> None:
        self.assertEqual(cut("forward prefill " * 4), ["forward prefill"] * 4)

    def test_cycle_has_the_name_and_the_times_of_its_programs(self) -> None:
        first, _ = steps_of(programs("a forward b | " * 2))
        self.assertEqual((first.index, first.name, first.kind), (0, "forward", "forward"))
        self.assertEqual((first.start, first.end), (0, 122))
        self.assertEqual(first.device_span, (7, 129))


class NoCycles(unittest.TestCase):
    def test_programs_that_run_once_are_no_cycle(self) -> None:
        self.assertIsNone(cycles_of(programs("forward a b c")))
        self.assertIsNone(cycles_of([]))

    def test_programs_before_a_training_loop_are_no_cycle(self) -> None:
        self.assertIsNone(cycles_of(programs("a b c c c " + "train " * 20)))


class OptionalPrograms(unittest.TestCase):
    def test_rare_program_belongs_to_the_cycle_in_which_it_runs(self) -> None:
        found = cut(("prefill forward sample " + "forward sample " * 3) * 3)
        # The first cycle can have begun before the capture, so it is used without its prefill.
        self.assertEqual(found.count("forward sample"), 10)
        self.assertEqual(found.count("prefill forward sample"), 2)

    def test_program_of_every_fourth_training_step_does_not_join_steps(self) -> None:
        found = cut(("train " * 4 + "evaluate ") * 3 + "train")
        self.assertEqual(found[:8], ["train"] * 4 + ["evaluate train"] + ["train"] * 3)


class Kinds(unittest.TestCase):
    def test_cycles_with_other_programs_are_of_other_kinds(self) -> None:
        text = "prefill gather sample | " + "decode gather sample | " * 2
        kinds = [step.kind for step in steps_of(programs(text * 4))]
        self.assertEqual(kinds, ["prefill", "decode", "decode"] * 4)

    def test_batch_sizes_are_kinds(self) -> None:
        sizes = [1, 2, 2, 1, 1, 2, 2, 2]
        ran = programs(" ".join(f"forward({n}) sample({n})" for n in sizes))
        steps = steps_of(ran)
        self.assertEqual([step.kind for step in steps], [f"forward({n})" for n in sizes])
        self.assertEqual(main_kind(steps), "forward(2)")

    def test_kinds_with_one_name_are_told_apart(self) -> None:
        text = "forward sample | forward a sample | "
        kinds = [step.kind for step in steps_of(programs(text * 3))]
        self.assertEqual(kinds, ["forward", "forward, kind 2"] * 3)


class Notes(unittest.TestCase):
    def test_note_lists_programs_and_those_outside(self) -> None:
        self.assertTrue(
            note("b " + "forward(1) b b | " * 3 + "forward(1)").endswith(
                ": 3 cycles of forward 100 ps, b x 2 20 ps; 2 programs ran in no whole cycle"
            )
        )


class AgainstNaive(unittest.TestCase):
    def test_random_programs_make_the_same_cycles(self) -> None:
        seeds = sampled(range(2000), 300)
        n_with_cycles = 0
        for seed in seeds:
            ran = programs(random_text(random.Random(seed)))
            found = steps_of(ran)
            naive = naive_cycles([naive_step(one) for one in ran])
            with self.subTest(seed=seed, programs=[one.name for one in ran]):
                self.assertEqual(list(map(facts_of, found)), list(map(naive_facts_of, naive)))
                kinds = [step.kind for step in found], [step.kind for step in naive]
                self.assertEqual(*[list(map(list(of).index, of)) for of in kinds])
            n_with_cycles += bool(found)
        self.assertGreater(n_with_cycles, len(seeds) // 4)


def random_text(choice: random.Random) -> str:
    """Return a repeated pattern with rare programs and varying repetitions, cut off anywhere."""
    words = "a b c a(1) forward prefill train forward(1) forward(2) |".split()
    some = choice.sample(words, choice.randint(1, 6))
    pattern = choice.choices(some, k=choice.randint(1, 6))
    ran: list[str] = []
    for _ in range(choice.randint(1, 12)):
        rare = choice.choices(words, k=choice.randint(1, 2)) if choice.random() < 0.2 else []
        ran += [*rare, *pattern, *pattern[-1:] * choice.choice([0, 0, 0, 1])]
    return " ".join(ran[choice.randint(0, len(pattern)) :])


def naive_step(one: StepEvent) -> NaiveStep:
    on_device = Span(*one.device_span) if one.device_span else None
    return NaiveStep(one.index, one.name, Span(one.start, one.end), on_device)


def facts_of(step: StepEvent) -> object:
    return step.index, step.name, (step.start, step.end), step.device_span


def naive_facts_of(step: NaiveStep) -> object:
    on_device = step.on_device and (step.on_device.start, step.on_device.end)
    return step.index, step.name, (step.on_trace.start, step.on_trace.end), on_device


class Cost(unittest.TestCase):
    def test_many_programs_are_read_in_linear_time(self) -> None:
        ran = programs("forward a b c c | " * 20_000)
        with within(2):
            self.assertEqual(len(steps_of(ran)), 20_000)
