"""Read a compiled program: computations, instructions, and the links between instructions.

The parser decodes all instructions at once, but most of them are inside fusions, and few answers
need objects for those. Shapes, stack frames and links are decoded on demand.
Damage, such as a duplicate id, is reported to `Program.complain` when the damaged part is used. A
damaged link is treated as missing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from sys import intern
from typing import Any, TypeVar

from google.protobuf.message import Message

from _breakdown.light import cached_property
from _proto import hlo_pb2 as pb
from _proto.hlo.async_chains import chains_among, stage_of, stage_of_fusion
from _proto.hlo.backend_config import BackendConfig, DeclaredCost, read_config
from _proto.hlo.shapes import Array, Path, layout_of, read_leaves, shape_text
from _proto.hlo.stack_frames import StackFrame, StackFrames
from _proto.trace.wire import decode, parse

K = TypeVar("K")
V = TypeVar("V")
M = TypeVar("M", bound=Message)

_SPARSE_CORE = "sparsecore"
_COST_KEY = b'"cost_estimate"'
KERNEL_TARGET = b"tpu_custom_call"
# Opcodes that run other computations op by op.
_CONTROL = frozenset("while conditional call async-start async-update async-done".split())
# Frequent opcodes that call no computation. Asking protobuf takes longer than this set.
_WITHOUT_CALLS = frozenset(
    "parameter constant iota broadcast reshape bitcast transpose copy convert tuple slice pad"
    " get-tuple-element dynamic-slice dynamic-update-slice concatenate gather dot convolution add"
    " subtract multiply divide maximum minimum negate compare select and or exponential rsqrt tanh"
    " copy-start copy-done slice-start slice-done".split()
)


class Program:
    """A compiled program; `complain` is called with a message whenever damage is found."""

    def __init__(
        self,
        data: bytes,
        offset: int,
        read_buffer_assignment: Callable[[], bytes | None],
        complain: Callable[[str], None],
    ) -> None:
        """Read the HloModuleProto at `offset` of the trace; raise Damage if it is unreadable."""
        self.message = decode(pb.HloModule, data, offset)
        self.read_buffer_assignment = read_buffer_assignment
        self.complain = complain
        # What other packages derive from the program, by the function that derives it.
        self.derived: dict[object, Any] = {}
        self.computations = [Computation(self, part) for part in self.message.computations]

    def instructions(self) -> Iterator[Instruction]:
        return (found for computation in self.computations for found in computation.instructions)

    def instruction(self, name: str) -> Instruction | None:
        """Return the instruction with the given name, which may begin with `%`."""
        name = name.removeprefix("%")
        named = self._ops_by_name if name in self._ops_by_name else self._all_by_name
        found = named.get(name)
        if found is None and name in named:
            self.complain(f"several instructions are named {name}")
        return found

    @cached_property
    def _ops_by_name(self) -> dict[str, Instruction | None]:
        return _if_unique((here.name, here) for part in self._run for here in part.instructions)

    @cached_property
    def _all_by_name(self) -> dict[str, Instruction | None]:
        return _if_unique((here.name, here) for here in self.instructions())

    @cached_property
    def _run(self) -> dict[Computation, list[Instruction]]:
        """Return the computations whose instructions run as ops, with their callers: the entry, and
        those that loops, conditionals, calls and asynchronous ops run."""
        entry = self._computation_of.get(self.message.entry_computation_id)
        run: dict[Computation, list[Instruction]] = {entry: []} if entry else {}
        to_do = list(run)
        for computation in to_do:
            for here in computation.instructions:
                if here.opcode in _CONTROL:
                    to_do += [called for called in here.called if called not in run]
                    for called in here.called:
                        run.setdefault(called, []).append(here)
        return run

    def instruction_by_id(self, instruction_id: int) -> Instruction | None:
        """Return the only instruction with the given id in any computation, or None."""
        known = self._ops_by_id if instruction_id in self._ops_by_id else self._all_by_id
        found = known.get(instruction_id)
        if found is None:
            self.complain(f"instruction id {instruction_id} is missing or not unique")
        return found

    @cached_property
    def _ops_by_id(self) -> dict[int, Instruction | None]:
        return _if_unique(pair for part in self._run for pair in part.instruction_of.items())

    @cached_property
    def _all_by_id(self) -> dict[int, Instruction | None]:
        return _if_unique((found.message.id, found) for found in self.instructions())

    def computation(self, computation_id: int) -> Computation | None:
        found = self._computation_of.get(computation_id)
        if found is None:
            self.complain(f"computation id {computation_id} is missing or not unique")
        return found

    @cached_property
    def _computation_of(self) -> dict[int, Computation | None]:
        return _if_unique((found.message.id, found) for found in self.computations)

    def caller(self, computation: Computation) -> Instruction | None:
        """Return the instruction that calls a computation, or None if there is not exactly one."""
        if computation in self._run:
            # Fusions do not call what ops run.
            callers = self._run[computation]
            return callers[0] if len(callers) == 1 else None
        places = self._calling.get(computation, ())
        return places[0].caller_of[computation] if len(places) == 1 else None

    @cached_property
    def _calling(self) -> dict[Computation, list[Computation]]:
        """Map computations to those that call them."""
        calling: dict[Computation, list[Computation]] = {}
        for part in self.computations:
            for called in part.called:
                calling.setdefault(called, []).append(part)
        return calling

    @cached_property
    def n_devices(self) -> int | None:
        """Return the number of devices that run the program together, or None if unknown."""
        assignment = self._assignment
        if assignment is None:
            return None
        return max(0, assignment.replica_count) * max(0, assignment.computation_count) or None

    @cached_property
    def device_ids(self) -> list[int] | None:
        """Return the device id at each position of the device assignment, or None if the program
        has no device assignment.

        Replica groups consist of positions, where position = replica * number of partitions +
        partition. Also return None if the program has several replicas and several partitions,
        because group members can then be replicas or partitions.
        """
        assignment = self._assignment
        if assignment is None or min(assignment.replica_count, assignment.computation_count) != 1:
            return None
        ids = [
            device_id
            for partition in assignment.computation_devices
            for device_id in partition.replica_device_ids
        ]
        return ids if len(ids) == len(set(ids)) == self.n_devices else None

    @cached_property
    def _assignment(self) -> pb.DeviceAssignment | None:
        return self.read(pb.DeviceAssignment, self.message.device_assignment)

    @cached_property
    def has_lines(self) -> bool:
        return any(instruction.line for instruction in self.instructions())

    @cached_property
    def frames(self) -> StackFrames:
        index = self.read(pb.StackFrameIndex, self.message.stack_frame_index)
        return StackFrames(index or pb.StackFrameIndex(), self.complain)

    def read(self, kind: type[M], data: bytes) -> M | None:
        """Decode a part of the program that is stored as bytes; return None if it is empty or
        unreadable."""
        message = parse(kind, data) if data else None
        if data and message is None:
            self.complain(f"the protobuf parser rejects a {kind.DESCRIPTOR.name}")
        return message


def _if_unique(pairs: Iterable[tuple[K, V]]) -> dict[K, V | None]:
    """Map keys to values; a key with several values maps to None."""
    listed = list(pairs)
    unique: dict[K, V | None] = dict(listed)
    if len(unique) < len(listed):
        n_values = Counter([key for key, _ in listed])
        unique |= {key: None for key, n in n_values.items() if n > 1}
    return unique


class Computation:
    """A computation of a program, with its instructions in schedule order."""

    def __init__(self, program: Program, message: pb.HloComputation) -> None:
        self.program = program
        self.message = message
        self.name = message.name

    @cached_property
    def instructions(self) -> list[Instruction]:
        return [Instruction(self, message) for message in self.message.instructions]

    @cached_property
    def opcodes(self) -> frozenset[str]:
        # Read the messages, because few answers need objects for the instructions inside fusions.
        return frozenset(map(intern, {message.opcode for message in self.message.instructions}))

    @cached_property
    def called(self) -> Sequence[Computation]:
        """Return the computations that the instructions call, each of them once."""
        if self.opcodes <= _WITHOUT_CALLS:
            return ()
        calling = (part for part in self.message.instructions if part.opcode not in _WITHOUT_CALLS)
        ids = dict.fromkeys(called for part in calling for called in part.called_computation_ids)
        return tuple(filter(None, map(self.program.computation, ids)))

    @cached_property
    def caller_of(self) -> dict[Computation, Instruction | None]:
        """Map the called computations to the instruction that calls them; None if several do."""
        return _if_unique((called, here) for here in self.instructions for called in here.called)

    def instruction(self, instruction_id: int) -> Instruction | None:
        found = self.instruction_of.get(instruction_id)
        if found is None:
            what = f"instruction id {instruction_id} is missing or not unique in {self.name}"
            self.program.complain(what)
        return found

    @cached_property
    def instruction_of(self) -> dict[int, Instruction | None]:
        return _if_unique((found.message.id, found) for found in self.instructions)

    @cached_property
    def parameters(self) -> dict[int, Instruction]:
        """Map the numbers of the parameters to the parameters; the first of equal ones counts."""
        return {
            here.message.parameter_number: here
            for here in reversed(self.instructions)
            if here.opcode == "parameter"
        }

    @cached_property
    def root(self) -> Instruction | None:
        root_id = self.message.root_id
        # The root id of a computation without a root is 0, but some programs also use 0 as an id.
        return self.instruction(root_id) if root_id else self.instruction_of.get(0)

    @property
    def caller(self) -> Instruction | None:
        return self.program.caller(self)

    @property
    def on_sparse_core(self) -> bool:
        return self.message.execution_thread == _SPARSE_CORE

    @cached_property
    def users_of(self) -> dict[Instruction, list[Instruction]]:
        users_of: dict[Instruction, list[Instruction]] = defaultdict(list)
        for instruction in self.instructions:
            for operand in instruction.operands:
                users = users_of[operand]
                # An instruction can use an operand twice.
                if not users or users[-1] is not instruction:
                    users.append(instruction)
        return dict(users_of)

    @cached_property
    def chains(self) -> dict[Instruction, tuple[Instruction, ...]]:
        """Map each part of an asynchronous op to the tuple of all parts: start, updates, done."""
        return chains_among(self.instructions)


class Instruction:
    """An instruction of a program. The class has slots because programs have many instructions."""

    __slots__ = (
        *("computation", "message", "name", "opcode", "program", "stage"),
        *("_called", "_inside", "_leaves", "_line", "_opcodes", "_operands"),
    )

    def __init__(self, computation: Computation, message: pb.HloInstruction) -> None:
        self.computation = computation
        self.program = computation.program
        self.message = message
        # Remove the %, which HLO texts put before each name.
        self.name = message.name.removeprefix("%")
        # A program has few opcodes, but each message makes a new string.
        self.opcode = opcode = intern(message.opcode)
        # The kind of an asynchronous op, and the name of its part; None for other instructions.
        self.stage = stage_of_fusion(self.name) if opcode == "fusion" else stage_of(opcode)
        # Values of properties that are read often, or None before the first use; "" for the line.
        self._called: Sequence[Computation] | None = None
        self._inside: Sequence[Instruction] | None = None
        self._leaves: Sequence[tuple[Path, Array | None]] | None = None
        self._line: str | None = ""
        self._opcodes: frozenset[str] | None = None
        self._operands: Sequence[Instruction] | None = None

    # The following properties link to other instructions.

    @property
    def operands(self) -> Sequence[Instruction]:
        if self._operands is None:
            ids = self.message.operand_ids
            found = tuple(filter(None, map(self.computation.instruction_of.get, ids)))
            if len(found) < len(ids):
                # Report the ids that are missing or not unique.
                found = tuple(filter(None, map(self.computation.instruction, ids)))
            self._operands = found
        return self._operands

    @property
    def users(self) -> Sequence[Instruction]:
        """Return the instructions that have this instruction as an operand, in schedule order."""
        return self.computation.users_of.get(self, ())

    @property
    def called(self) -> Sequence[Computation]:
        """Return the computations that the instruction calls, such as the body of a fusion."""
        if self._called is None:
            ids = () if self.opcode in _WITHOUT_CALLS else self.message.called_computation_ids
            self._called = tuple(filter(None, map(self.program.computation, dict.fromkeys(ids))))
        return self._called

    def inside(self) -> Sequence[Instruction]:
        """Return the instructions of all called computations, depth first, each of them once."""
        if self._inside is None:
            self._inside = self._read_inside() if self.called else ()
        return self._inside

    def _read_inside(self) -> Sequence[Instruction]:
        if len(self.called) == 1 and not self.called[0].called:
            return self.called[0].instructions
        inside: list[Instruction] = []
        entered: set[Computation] = set()
        to_do = [self]
        while to_do:
            here = to_do.pop()
            if here is not self:
                inside.append(here)
            for computation in reversed(here.called):
                if computation not in entered:
                    entered.add(computation)
                    to_do.extend(reversed(computation.instructions))
        return inside

    @property
    def opcodes(self) -> frozenset[str]:
        """Return the opcodes of the instruction and of all instructions inside it."""
        if self._opcodes is None:
            reached, to_do = set(self.called), list(self.called)
            for computation in to_do:
                to_do += [called for called in computation.called if called not in reached]
                reached.update(computation.called)
            self._opcodes = frozenset([self.opcode]).union(*(part.opcodes for part in reached))
        return self._opcodes

    def parts_with(self, opcodes: Set[str]) -> list[Instruction]:
        """Return which of the instruction and all instructions inside it have these opcodes."""
        if opcodes.isdisjoint(self.opcodes):
            return []
        return [part for part in (self, *self.inside()) if part.opcode in opcodes]

    @property
    def is_asynchronous(self) -> bool:
        return self.stage is not None

    @property
    def chain(self) -> tuple[Instruction, ...]:
        """Return the parts of the instruction's asynchronous op: start, updates, done.

        Parts that cannot be found are omitted. The chain of a synchronous instruction contains only
        the instruction itself.
        """
        return self.computation.chains.get(self, (self,)) if self.stage else (self,)

    # The following properties decode the fields of the instruction.

    @property
    def op_name(self) -> str | None:
        """Return the framework's name for the op or, for a parameter, the path of the argument in
        the user's code."""
        return self.message.metadata.op_name or None

    @property
    def tf_op(self) -> str | None:
        """Return `op_name` in the notation of traces, which has a colon at the end."""
        name = self.message.metadata.op_name
        return f"{name}:" if name else None

    @property
    def line(self) -> str | None:
        """Return the instruction's own source line, as `file:line`."""
        if self._line == "":
            frame, metadata = self.frame, self.message.metadata
            has_own = not frame and metadata.source_file and metadata.source_line > 0
            own = f"{metadata.source_file}:{metadata.source_line}" if has_own else None
            self._line = frame.place if frame else own
        return self._line

    @property
    def frame(self) -> StackFrame | None:
        """Return the innermost frame of the instruction's stack."""
        frame_id = self.message.metadata.stack_frame_id
        return self.program.frames.frame(frame_id) if frame_id else None

    @property
    def stack(self) -> str | None:
        """Return the stack in the notation of traces: one frame `file:line:column` per line,
        outermost first."""
        frames, is_whole = self.program.frames.stack(self.message.metadata.stack_frame_id)
        if not frames or not is_whole:
            return None
        return "\n".join(f"{frame.place}:{frame.column}" for frame in reversed(frames))

    def line_where(self, is_wanted: Callable[[str], bool]) -> str | None:
        """Return the source line of the innermost frame in a wanted file."""
        return self.program.frames.line_where(self.message.metadata.stack_frame_id, is_wanted)

    @property
    def shape(self) -> str | None:
        """Return the output's shape as in HLO texts, without layouts, or None if it is
        unreadable."""
        return shape_text(self.message.shape)

    @property
    def layout(self) -> bytes | None:
        """Encode the order of an array's dimensions in memory, and its tiles, as bytes."""
        return layout_of(self.message.shape)

    @property
    def leaves(self) -> Sequence[tuple[Path, Array | None]] | None:
        """Return the output's arrays, each with its path in nested tuples.

        The array of a part without data is None. The result is None if the shape is unreadable.
        """
        if self._leaves is None:
            self._leaves = read_leaves(self.message.shape)
            if self._leaves is None:
                self.program.complain(f"the shape of {self.name} is unreadable")
        return self._leaves

    @property
    def arrays(self) -> list[Array] | None:
        """Return the output's arrays with tuples flattened, or None if the shape is unreadable."""
        leaves = self.leaves
        return None if leaves is None else [array for _, array in leaves if array]

    @property
    def operand_arrays(self) -> list[list[Array] | None]:
        """Return the arrays of each operand, or None for an operand that is missing or
        unreadable."""
        operands = map(self.computation.instruction, self.message.operand_ids)
        return [operand.arrays if operand else None for operand in operands]

    @property
    def is_kernel(self) -> bool:
        """Return whether the instruction runs a custom (Pallas) kernel."""
        return self.opcode == "custom-call" and self.message.custom_call_target == KERNEL_TARGET

    @property
    def on_sparse_core(self) -> bool:
        """Return whether a SparseCore runs the instruction or any part of its asynchronous op."""
        return any(
            part.message.async_execution_thread == _SPARSE_CORE
            or any(computation.on_sparse_core for computation in (part.computation, *part.called))
            for part in self.chain
        )

    @property
    def config(self) -> BackendConfig:
        """Return the compiler's settings for the backend. Each access parses them again."""
        config = read_config(self.message.backend_config)
        if config is None:
            self.program.complain(f"the backend_config of {self.name} is unreadable")
        return config or BackendConfig(None)

    @property
    def declared_cost(self) -> DeclaredCost | None:
        """Return the cost declared by the kernel's author."""
        if self.opcode != "custom-call" or _COST_KEY not in self.message.backend_config:
            return None
        return self.config.declared_cost
