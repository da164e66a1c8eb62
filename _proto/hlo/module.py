"""One compiled program: its instructions by name, and what each says of itself.

All is a view, made from the message when asked for, and nothing of the message gets out. Opening
a program finds its instructions; their shapes, frames and links are looked at one by one.

What no compiler writes, such as an id that two instructions have, or none, is damage only where
an answer meets it: it leads nowhere then, and `Program.complain` hears of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from google.protobuf.message import Message

from _proto import hlo_pb2 as pb
from _proto.errors import Damage
from _proto.hlo.configs import Config, DeclaredCost, read_config
from _proto.hlo.facts import Collective, Dot, collective_of, dot_of, plan_of
from _proto.hlo.search import (
    LikelyLine,
    Tangled,
    chains_of,
    has_loop,
    likely_line,
    lines_inside,
    stage_of,
)
from _proto.hlo.shapes import Array, read_arrays, read_arrays_at, read_leaves, shape_text
from _proto.hlo.stacks import BYTES_A_STEP, Frames
from _proto.record import cached_property
from _proto.trace.wire import explain, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _proto.hlo.buffers import BufferAssignment
    from _proto.hlo.parameters import Parameter
    from _proto.hlo.replica_groups import Participants

M = TypeVar("M", bound=Message)
T = TypeVar("T")
_Links = dict["Instruction", list["Instruction"]]

# Few instructions are harmless however small they are. Many make objects much larger than their
# bytes, and no compiler writes them: name, opcode, shape and id alone take some 20.
_FEW = 100_000
_LEAST_BYTES = 32
# Finding what is wrong with more bytes would take seconds.
_EXPLAINED = 4 << 20

# How many steps all searches of a program may take together, to begin with and for each
# instruction. Those of a training step take one or two for each.
_STEPS = 1_000_000
_STEPS_EACH = 30

_SPARSE_CORE = "sparsecore"
_COST_KEY, _RETRY_KEY = b'"cost_estimate"', b'"retry_count"'
_KERNEL = b"tpu_custom_call"


class Program:
    """A compiled program. `complain` is told what of it can't be read, whenever that is met."""

    def __init__(
        self,
        data: bytes,
        offset: int,
        read_buffers: Callable[[], bytes | None],
        complain: Callable[[str], None],
    ) -> None:
        """Read a HloModuleProto that stands at `offset`; raise Damage if it isn't one."""
        self.complain = complain
        self._read_buffers = read_buffers
        self._module = _read_module(data, offset)
        self.computations = [Computation(self, message) for message in self._module.computations]
        # Where each name stands, None where several do. Most instructions are never looked at:
        # they are parts of fusions.
        self._place_of: dict[str, tuple[Computation, int] | None] = {}
        for computation in self.computations:
            for place, name in enumerate(computation.names()):
                self._place_of[name] = None if name in self._place_of else (computation, place)
        self._steps_left = _STEPS + _STEPS_EACH * len(self._place_of)
        # What is known of collectives, where they are found, what each instruction says of how
        # they are carried out, and of those that take part in them by how that is written.
        self.collectives: dict[Instruction, Collective] = {}
        self.collective_in: dict[Instruction, Instruction | None] = {}
        self.plans: dict[Instruction, frozenset[str]] = {}
        self.participants: dict[tuple[bytes, ...], Participants | None] = {}

    def instruction(self, name: str) -> Instruction | None:
        """The instruction of that name, with or without `%`, in whatever computation."""
        name = name.removeprefix("%")
        if name not in self._place_of:
            return None
        found = self._place_of[name]
        if found is None:
            self.complain(f"more than one instruction is called {name}")
            return None
        computation, place = found
        return computation.instructions[place]

    @cached_property
    def n_devices(self) -> int | None:
        """How many devices run it together; None if it doesn't say."""
        assignment = self.read(pb.DeviceAssignment, self._module.device_assignment)
        if assignment is None:
            return None
        return max(0, assignment.replica_count) * max(0, assignment.computation_count) or None

    def buffers(self) -> BufferAssignment | None:
        """What its memory holds; None where it doesn't tell."""
        from _proto.hlo.buffers import read_buffers

        data = self._read_buffers()
        return None if data is None else read_buffers(self, data)

    def parameters(self) -> list[Parameter] | None:
        """The arrays that it is called with; None where it doesn't tell."""
        from _proto.hlo.parameters import read_parameters

        entry = self._computation_of.get(self._module.entry_computation_id)
        if entry is None:
            self.complain("it has no entry computation, or more than one")
            return None
        return read_parameters(self, self._module, entry)

    @cached_property
    def has_lines(self) -> bool:
        """Whether any instruction has a line of its own."""
        return any(each.line for some in self.computations for each in some.instructions)

    # For the views of this package.

    def instruction_by_id(self, instruction_id: int) -> Instruction | None:
        """The instruction of that id, in whatever computation; None where several have it."""
        found = self._instruction_of.get(instruction_id)
        if found is None:
            self.complain(f"no instruction, or more than one, has the id {instruction_id}")
        return found

    @cached_property
    def _instruction_of(self) -> dict[int, Instruction | None]:
        by_id: dict[int, Instruction | None] = {}
        for computation in self.computations:
            for each_id, each in computation.instruction_of.items():
                by_id[each_id] = None if each_id in by_id else each
        return by_id

    def spend(self, steps: int = 1) -> None:
        """Pay for steps of a search. What costs nothing is to be had when all are spent, too."""
        self._steps_left -= steps
        if steps and self._steps_left < 0:
            raise Tangled

    def answer(self, search: Callable[[], T], otherwise: T) -> T:
        """What a search finds, if it ends in time."""
        try:
            return search()
        except Tangled:
            self.complain("its instructions are too tangled to be searched")
            return otherwise

    def read(self, kind: type[M], data: bytes) -> M | None:
        """Decode a part that is kept as bytes; None if there is none, or none to be read."""
        message = parse(kind, data) if data else None
        if data and message is None:
            self.complain(f"a {kind.DESCRIPTOR.name} that the protobuf parser refuses")
        return message

    @cached_property
    def frames(self) -> Frames:
        index = self.read(pb.StackFrameIndex, self._module.stack_frame_index)
        return Frames(index or pb.StackFrameIndex(), self.complain, self.spend)

    def computation(self, computation_id: int) -> Computation | None:
        found = self._computation_of.get(computation_id)
        if found is None:
            self.complain(f"no computation, or more than one, has the id {computation_id}")
        return found

    @cached_property
    def _computation_of(self) -> dict[int, Computation | None]:
        by_id: dict[int, Computation | None] = {}
        for each in self.computations:
            by_id[each.id] = None if each.id in by_id else each
        return by_id

    def caller(self, computation: Computation) -> Instruction | None:
        """The one instruction that calls a computation; None if there are none or several."""
        return self._caller_of.get(computation)

    @cached_property
    def _caller_of(self) -> dict[Computation, Instruction | None]:
        callers: dict[Computation, Instruction | None] = {}
        for computation in self.computations:
            for each in computation.instructions:
                for called in each.called:
                    callers[called] = None if called in callers else each
        return callers


def _read_module(data: bytes, offset: int) -> pb.HloModule:
    frame = parse(pb.ModuleFrame, data)
    n = sum(1 + len(each.instructions) for each in frame.computations) if frame else 0
    if n > max(_FEW, len(data) // _LEAST_BYTES):
        raise Damage(offset, f"{n} instructions in {len(data)} bytes")
    module = parse(pb.HloModule, data)
    if module is None:
        if len(data) <= _EXPLAINED:
            explain(pb.HloModule.DESCRIPTOR, data, offset)
        raise Damage(offset, "the protobuf parser refuses the module")
    return module


class Computation:
    """A computation of a program, with its instructions in their order."""

    def __init__(self, program: Program, message: pb.HloComputation) -> None:
        self.program = program
        self.id = message.id
        self.name = message.name
        self._message = message

    @cached_property
    def instructions(self) -> list[Instruction]:
        return [Instruction(self, each) for each in self._message.instructions]

    def names(self) -> Iterator[str]:
        """Those of its instructions."""
        return (each.name.removeprefix("%") for each in self._message.instructions)

    @cached_property
    def instruction_of(self) -> dict[int, Instruction | None]:
        by_id: dict[int, Instruction | None] = {}
        for each in self.instructions:
            each_id = each._message.id
            by_id[each_id] = None if each_id in by_id else each
        return by_id

    @property
    def on_sparse_core(self) -> bool:
        return self._message.execution_thread == _SPARSE_CORE

    @property
    def caller(self) -> Instruction | None:
        return self.program.caller(self)

    @property
    def root(self) -> Instruction | None:
        root_id = self._message.root_id
        # Without one it is 0, an id that some programs use.
        return self.instruction(root_id) if root_id else self.instruction_of.get(0)

    def instruction(self, instruction_id: int) -> Instruction | None:
        found = self.instruction_of.get(instruction_id)
        if found is None:
            self.program.complain(
                f"no instruction, or more than one, of {self.name} has the id {instruction_id}"
            )
        return found

    def operands(self, instruction: Instruction) -> Sequence[Instruction]:
        return self._links[0][instruction]

    def users(self, instruction: Instruction) -> Sequence[Instruction]:
        return self._links[1].get(instruction, ())

    def chain(self, instruction: Instruction) -> tuple[Instruction, ...]:
        return self._chains.get(instruction, (instruction,))

    @cached_property
    def _chains(self) -> dict[Instruction, tuple[Instruction, ...]]:
        return self.program.answer(lambda: chains_of(self), {})

    @cached_property
    def _links(self) -> tuple[_Links, _Links]:
        """The operands and the users of all instructions."""
        operands_of: _Links = {}
        users_of: _Links = {}
        is_in_order = True
        for each in self.instructions:
            found = [self.instruction(operand_id) for operand_id in each._message.operand_ids]
            operands = [operand for operand in found if operand is not None]
            for operand in dict.fromkeys(operands):
                users_of.setdefault(operand, []).append(each)
                is_in_order = is_in_order and operand in operands_of
            operands_of[each] = operands
        # Compilers write operands before their users, so few programs need the closer look.
        if not is_in_order and has_loop(operands_of, users_of):
            self.program.complain(f"the operands of {self.name} go in a circle")
        return operands_of, users_of


class Instruction:
    """An instruction of a program."""

    __slots__ = ("_message", "computation", "name", "opcode")

    def __init__(self, computation: Computation, message: pb.HloInstruction) -> None:
        self.computation = computation
        # In texts a sign marks names; it is no part of them, and here it should not stand.
        self.name = message.name.removeprefix("%")
        self.opcode = message.opcode
        self._message = message

    @property
    def program(self) -> Program:
        return self.computation.program

    # What it says of itself.

    @property
    def line(self) -> str | None:
        """Its own line, as `file:line`; searches ask for it, and pay."""
        metadata = self._message.metadata
        if metadata.stack_frame_id:
            line = self.program.frames.line(metadata.stack_frame_id)
            if line:
                return line
        file = metadata.source_file
        self.program.spend(len(file) // BYTES_A_STEP)
        return f"{file}:{metadata.source_line}" if file and metadata.source_line > 0 else None

    @property
    def own_line(self) -> str | None:
        """The same, for whoever doesn't search."""
        return self.program.answer(lambda: self.line, None)

    @property
    def has_frames(self) -> bool:
        frame_id = self._message.metadata.stack_frame_id
        if not frame_id:
            return False
        return self.program.answer(lambda: self.program.frames.line(frame_id), None) is not None

    def line_where(self, is_wanted: Callable[[str], bool]) -> str | None:
        """The line of its innermost frame whose file is wanted."""
        frame_id = self._message.metadata.stack_frame_id
        return self.program.answer(
            lambda: self.program.frames.line_where(frame_id, is_wanted), None
        )

    @property
    def stack(self) -> str | None:
        """Its stack as a trace has it: `file:line:column` a line, outermost first."""
        frame_id = self._message.metadata.stack_frame_id
        return self.program.answer(lambda: self.program.frames.stack(frame_id), None)

    @property
    def tf_op(self) -> str | None:
        """The op of the framework as a trace has it: with a colon, behind which is its type."""
        return f"{self.op_name}:" if self.op_name else None

    @property
    def op_name(self) -> str | None:
        """The same as the program has it; of a parameter what the user's code calls it."""
        return self._message.metadata.op_name or None

    @property
    def shape(self) -> str | None:
        """Its output's shape, as HLO texts have it but for layouts; None where it can't be read."""
        return shape_text(self._message.shape)

    @property
    def arrays(self) -> list[Array] | None:
        """The arrays of its output, tuples flattened; None where they can't be read."""
        arrays = read_arrays(self._message.shape)
        if arrays is None:
            self.program.complain(f"the shape of {self.name}")
        return arrays

    def arrays_at(self, paths: Sequence[tuple[int, ...]]) -> list[Array | None]:
        """The arrays at places of its output: a path has the places to take in nested tuples.

        None for a tuple, for what has no data, and for what isn't there.
        """

        def read() -> list[Array | None]:
            # All of the shape is copied and read.
            shape = self._message.shape
            self.program.spend(1 + len(shape) // BYTES_A_STEP + sum(map(len, paths)))
            return read_arrays_at(shape, paths)

        return self.program.answer(read, [None] * len(paths))

    @property
    def parameter_number(self) -> int | None:
        return self._message.parameter_number if self.opcode == "parameter" else None

    @property
    def leaves(self) -> list[tuple[tuple[int, ...], Array | None]] | None:
        """All that its output is made of, each with its place in nested tuples, None for what has
        no data; None where that can't be read."""
        leaves = read_leaves(self._message.shape)
        if leaves is None:
            self.program.complain(f"the shape of {self.name}")
        return leaves

    @property
    def is_kernel(self) -> bool:
        """Whether it runs a custom (Pallas) kernel."""
        return self.opcode == "custom-call" and self._message.custom_call_target == _KERNEL

    @property
    def config(self) -> Config:
        """What the compiler wrote down of it; read whenever it is asked for."""
        config = read_config(self._message.backend_config)
        if config is None:
            self.program.complain(f"the backend_config of {self.name}")
        return config or Config(None)

    @property
    def declared_cost(self) -> DeclaredCost | None:
        """What a kernel's author declared of it; None without a declaration."""
        if self.opcode != "custom-call" or _COST_KEY not in self._message.backend_config:
            return None
        return self.config.declared_cost

    @property
    def retried(self) -> Config | None:
        """What the compiler wrote down of it, if it had to try again; else None."""
        config = self.config if _RETRY_KEY in self._message.backend_config else None
        return config if config and config.retry_count else None

    # How it hangs together with others.

    @property
    def operands(self) -> Sequence[Instruction]:
        return self.computation.operands(self)

    @property
    def users(self) -> Sequence[Instruction]:
        """Those that have it as an operand, in the order of the computation."""
        return self.computation.users(self)

    @property
    def called(self) -> Sequence[Computation]:
        """The computations that it calls: a fusion's body, a loop's body and condition."""
        ids = self._message.called_computation_ids
        if not ids:
            return ()
        found = (self.program.computation(each) for each in dict.fromkeys(ids))
        return [computation for computation in found if computation is not None]

    @property
    def chain(self) -> tuple[Instruction, ...]:
        """The parts of an asynchronous op that it is a part of: start, updates, done.

        Those that are found: the start is the nearest along the operands of the done. Any other
        instruction is a chain by itself.
        """
        return self.computation.chain(self) if self.is_asynchronous else (self,)

    @property
    def is_asynchronous(self) -> bool:
        return stage_of(self) is not None

    @property
    def on_sparse_core(self) -> bool:
        """Whether a SparseCore runs it, or what it starts or waits for."""
        return any(
            part._message.async_execution_thread == _SPARSE_CORE
            or any(computation.on_sparse_core for computation in (part.computation, *part.called))
            for part in self.chain
        )

    def likely_line(
        self, producer_first: bool, sources: Mapping[str, str] | None = None
    ) -> LikelyLine | None:
        """The line whose data it most likely moves or waits for.

        Its own or its start's; else that of the collective inside it, if it is asynchronous; else
        that of its nearest producer or consumer. `sources` has the lines that the trace gives, by
        name, for instructions of which the program has none.
        """
        return self.program.answer(lambda: likely_line(self, producer_first, sources or {}), None)

    def lines_inside(self) -> Counter[tuple[str, str]]:
        """How many instructions of a fusion, at any depth, have which line and opcode."""

        if self.opcode != "fusion":
            return Counter()
        return self.program.answer(lambda: lines_inside(self), Counter[tuple[str, str]]())

    def dot(self) -> Dot | None:
        """The dot that it is or has inside; None if there is none, or it can't be judged."""
        return self.program.answer(lambda: dot_of(self), None)

    def collective(self) -> Collective | None:
        """The collective that it is or has inside, all parts of an asynchronous op looked at."""
        return self.program.answer(lambda: collective_of(self), None)

    @property
    def plan(self) -> frozenset[str]:
        """By what means the collective that it is or has inside is carried out."""
        return self.program.answer(lambda: plan_of(self), frozenset())
