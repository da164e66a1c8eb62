"""Find on which devices the ops of a program compute the same.

All devices run one program on different parts of arrays. An op computes the same on two devices if
its operands are equal there. A parameter is equal where its sharding puts the same part of an
array. The result of an all-gather or all-reduce is equal on all devices of a group. Values that are
computed from constants alone, such as masks and zeros, say nothing: each device may make another
part of an array that is the same everywhere. All values about which the program says too little
count as different.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from _breakdown.analysis.arrays.graph import STRUCTURE, WHILE, Value, producers
from _proto.hlo.collectives import COLLECTIVES, Collective, collective_of
from _proto.hlo.parameters import read_parameters
from _proto.hlo.program import Computation, Instruction, Program
from _proto.hlo.replica_groups import Groups
from _proto.hlo.shapes import Path

# For each device, the first device with an equal value; None for values made of constants alone.
Equal: TypeAlias = "tuple[int, ...] | None"
# The value of an instruction by path in its output. A part that is not listed is like the part that
# contains it.
Parts: TypeAlias = "Mapping[Path, Equal]"

# Instructions whose results differ between devices, or come from outside of the program.
_DIFFERENT = frozenset(
    "conditional infeed partition-id recv recv-done replica-id rng rng-get-and-update-state".split()
)
_SPECIAL = _DIFFERENT | COLLECTIVES
_ON_ALL_DEVICES = ("all-gather", "all-reduce")
_SAME = frozenset(("bitcast", "copy", "opt-barrier"))
# The compiler says so in the settings of kernels that send data to other devices.
_SENDS = b'"has_communication": true'
_COPIES = ("copy-done", "slice-done")
# Nested loops run their bodies a few times for each change of the loops around them.
_MOST_RUNS = 256


class EqualCopies:
    """The values of a program that are equal on several devices."""

    def __init__(self, program: Program, n_devices: int) -> None:
        self._of: dict[Instruction, Parts] = {}
        self._inputs_of: dict[Instruction, Equal] = {}
        # Remember results, because a program has only a few different values.
        self._together: dict[tuple[int, int], Equal] = {}
        self._exchanged: dict[tuple[str, Groups, int], Equal] = {}
        # Each value once, so that equal values, which can be long, are the same object.
        self._known: dict[Equal, Equal] = {}
        self._n_alike: dict[int, int] = {}
        self._collectives: dict[Instruction, Collective | None] = {}
        # The state before and after the last run of a loop, by its body.
        self._after: dict[Computation, tuple[Parts, Parts]] = {}
        self._running: set[Computation] = set()
        self._n_runs: Counter[Computation] = Counter()
        self._unknown: Parts = {(): self._alike(range(n_devices))}
        entry = program.computation(program.message.entry_computation_id)
        if entry is not None:
            self._run(entry, self._parameters(program, n_devices))

    def n_alike(self, here: Instruction) -> int:
        """Return how many devices compute the same in an instruction that is not inside a fusion.

        If there are several groups of such devices, return the number for the smallest.
        """
        if here not in self._of:
            return 1
        equal = self._inputs_of.get(here) or self._inputs(here)
        if equal is None:
            return 1
        if id(equal) not in self._n_alike:
            self._n_alike[id(equal)] = min(Counter(equal).values())
        return self._n_alike[id(equal)]

    def equal_at(self, here: Instruction) -> Equal:
        """Return the first device with an equal value for each device, if that is known."""
        return _at(self._of.get(here, {}), ())

    def are_equal(self, starts: Iterable[Instruction], exchange: Instruction) -> bool:
        """Return whether the devices of each group of a collective have the same values, which can
        be inside fusions."""
        collective = collective_of(exchange)
        groups = (collective.who.groups if collective and collective.who else None) or ()
        to_do = [Value(start) for start in starts]
        for value in to_do:
            known = self._of.get(value.instruction)
            if known is None:
                to_do += [each for each in producers(value) if each not in to_do]
            elif equal := _at(known, value.path):
                for group in groups or [range(len(equal))]:
                    if len({equal[i] for i in group if i < len(equal)}) > 1:
                        return False
        return True

    def _parameters(self, program: Program, n_devices: int) -> dict[int, Parts]:
        found: dict[int, dict[Path, Equal]] = {}
        # Most parameters have one of a few shardings.
        equal_in: dict[str | None, Equal] = {None: self._unknown[()]}
        for parameter in read_parameters(program) or ():
            text = parameter.sharding.text if parameter.sharding else None
            if parameter.sharding and text not in equal_in:
                groups = parameter.sharding.groups(n_devices) or ()
                first = {device: group[0] for group in groups for device in group}
                equal_in[text] = self._alike(first.get(i, i) for i in range(n_devices))
            found.setdefault(parameter.number, {})[parameter.shape_index] = equal_in[text]
        return dict(found)

    def _run(self, computation: Computation, given: Mapping[int, Parts]) -> Parts:
        """Follow values through a computation, and return its result."""
        of, chains = self._of, computation.chains
        self._n_runs[computation] += 1
        if computation in self._running or self._n_runs[computation] > _MOST_RUNS:
            # A damaged program can call itself, or call a computation from very many places.
            return self._unknown
        self._running.add(computation)
        for here in computation.instructions:
            if here.opcode == "parameter":
                of[here] = given.get(here.message.parameter_number, self._unknown)
            elif here in chains:
                # Only the last part of an asynchronous op has a result.
                of[here] = self._exchange(here) if chains[here][-1] is here else self._passed(here)
            else:
                of[here] = self._result(here)
        self._running.remove(computation)
        root = computation.root
        return of.get(root, self._unknown) if root else self._unknown

    def _result(self, here: Instruction) -> Parts:
        opcode = here.opcode
        is_run = opcode == "call" or (opcode == "fusion" and not _SPECIAL.isdisjoint(here.opcodes))
        if opcode in COLLECTIVES:
            return self._exchange(here)
        if opcode in _DIFFERENT or (
            opcode == "custom-call" and _SENDS in here.message.backend_config
        ):
            return self._unknown
        if not is_run and opcode not in STRUCTURE and opcode not in _SAME:
            return self._passed(here)
        given = [self._of.get(each, self._unknown) for each in here.operands]
        if opcode == "get-tuple-element" and given:
            return _part(given[0], here.message.tuple_index)
        if opcode == "tuple":
            return {(i, *path): equal for i, of in enumerate(given) for path, equal in of.items()}
        if opcode in _SAME and given:
            return given[0]
        if opcode == WHILE and here.called and given:
            return self._after_loop(here.called[0], given[0])
        if is_run:
            called = here.called
            return self._run(called[0], dict(enumerate(given))) if called else self._unknown
        return self._passed(here)

    def _after_loop(self, body: Computation, state: Parts) -> Parts:
        before, (last, after) = state, self._after.get(body, (None, state))
        if last == before:
            # A loop around this one runs it again with the same state.
            return after
        # Each change makes more devices differ, so there are few.
        while True:
            after = self._run(body, {0: state})
            both = {
                path: self._where_both(equal, _at(after, path)) for path, equal in state.items()
            }
            if both == state:
                self._after[body] = before, state
                return state
            state = both

    def _passed(self, here: Instruction) -> Parts:
        equal = self._inputs_of[here] = self._inputs(here)
        return {(): equal}

    def _inputs(self, here: Instruction) -> Equal:
        equal: Equal = None
        for source in here.operands:
            for part in self._of.get(source, self._unknown).values():
                if part is not equal:
                    equal = self._where_both(equal, part)
        return equal

    def _where_both(self, one: Equal, other: Equal) -> Equal:
        if one is None or other is None or one is other:
            return one or other
        key = id(one), id(other)
        if key not in self._together:
            self._together[key] = self._alike(zip(one, other, strict=True))
        return self._together[key]

    def _alike(self, values: Iterable[object]) -> Equal:
        """Return the index of the first equal value for each value."""
        first: dict[object, int] = {}
        equal = tuple(first.setdefault(value, i) for i, value in enumerate(values))
        return self._known.setdefault(equal, equal)

    def _exchange(self, here: Instruction) -> Parts:
        """Return the result of a collective, or of another asynchronous op."""
        equal = self._inputs_of[here] = self._inputs(here)
        if equal is None or here.opcode in _COPIES:
            return {(): equal}
        if here not in self._collectives:
            self._collectives[here] = collective_of(here)
        collective = self._collectives[here]
        if collective is None:
            return {(): equal}
        groups = collective.who.groups if collective.who else None
        if groups is None or collective.opcode not in _ON_ALL_DEVICES:
            return self._unknown
        sent = collective.opcode, groups, id(equal)
        if sent not in self._exchanged:
            received: dict[int, object] = {}
            for group in groups or [range(len(equal))]:
                parts = tuple(equal[i] for i in group if i < len(equal))
                received.update(dict.fromkeys(group, parts))
            self._exchanged[sent] = self._alike(received.get(i, i) for i in range(len(equal)))
        return {(): self._exchanged[sent]}


def _part(parts: Parts, index: int) -> Parts:
    if (index,) in parts:
        return {(): parts[index,]}
    return {path[1:]: equal for path, equal in parts.items() if path[:1] in ((), (index,))}


def _at(parts: Parts, path: Path) -> Equal:
    """Return the value at a path, or of the part that contains it."""
    return next((parts[path[:n]] for n in range(len(path), -1, -1) if path[:n] in parts), None)
