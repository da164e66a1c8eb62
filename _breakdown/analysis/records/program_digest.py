"""Build the digest of a compiled program for records: its fingerprint, and the properties that
reveal changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from _breakdown.analysis.comm.collective_plans import collectives_in
from _breakdown.analysis.memory.memory_peak import peak_of_program
from _breakdown.pipeline.groups import grouped, sum_if_known
from _proto.hlo.collectives import collective_of
from _proto.hlo.fingerprint import fingerprint_of
from _proto.hlo.parameters import Parameter, read_parameters
from _proto.hlo.program import Instruction, Program
from _proto.hlo.text import HBM, base_name

Json = dict[str, Any]

# Maximum number of shapes listed for each kernel.
N_SHAPES = 4


def digest_of_program(program: Program) -> Json | None:
    """Return the digest of a program; None if its entry computation is unknown."""
    fingerprint = fingerprint_of(program)
    parameters = read_parameters(program)
    if fingerprint is None or parameters is None:
        return None
    instructions = list(program.instructions())
    opcodes = opcodes_outside_fusions(program)
    return {
        "fingerprint": fingerprint.text,
        "collective": collective_facts(program),
        "kernel": kernel_facts(instructions),
        "kernel_code": fingerprint.kernel_code,
        "parameter": parameter_facts(parameters),
        "donation": donated_bytes(parameters),
        "memory": memory_bytes(program),
        "opcode": dict(sorted(opcodes.items())),
        "fusion": opcodes["fusion"],
    }


def opcodes_outside_fusions(program: Program) -> Counter[str]:
    """Count a program's instructions by opcode, except those inside fusions."""
    fusions = (each for each in program.instructions() if each.opcode == "fusion")
    fused = {called for fusion in fusions for called in fusion.called}
    return Counter(
        instruction.opcode
        for computation in program.computations
        if computation not in fused
        for instruction in computation.instructions
    )


def collective_facts(program: Program) -> dict[str, Json]:
    """Return the number and the output bytes of collectives, by opcode and how they run."""
    alike = grouped(
        (f"{opcode} {how}", instruction) for instruction, opcode, how in collectives_in(program)
    )
    return {
        name: {"n": len(found), "bytes": sum_if_known((1, output_bytes(part)) for part in found)}
        for name, found in sorted(alike.items())
    }


def output_bytes(instruction: Instruction) -> int | None:
    collective = collective_of(instruction)
    if collective is None or collective.outputs is None:
        return None
    return sum_if_known((1, array.n_bytes) for array in collective.outputs)


def kernel_facts(instructions: Iterable[Instruction]) -> dict[str, Json]:
    kernels = (instruction for instruction in instructions if instruction.is_kernel)
    alike = grouped((base_name(kernel.name), kernel) for kernel in kernels)
    return {
        name: {
            "n": len(found),
            "vmem_used_bytes": sum_if_known((1, part.config.vmem_used) for part in found),
            "shapes": sorted({part.shape or "?" for part in found})[:N_SHAPES],
        }
        for name, found in sorted(alike.items())
    }


def parameter_facts(parameters: Iterable[Parameter]) -> dict[str, Json]:
    """Return the parameters by path, or by number and tuple position if there is no unique path."""
    facts: dict[str, Json] = {}
    for parameter in parameters:
        name = parameter.path
        if name is None or name in facts:
            name = ".".join(map(str, (parameter.number, *parameter.shape_index)))
        facts[name] = {
            "shape": parameter.array.text if parameter.array else None,
            "sharding": parameter.sharding.text if parameter.sharding else None,
            "donated": parameter.is_aliased or parameter.is_donor,
        }
    return facts


def donated_bytes(parameters: Iterable[Parameter]) -> int | None:
    """Return the total size, in bytes, of HBM parameters whose memory is reused for outputs."""
    return sum_if_known(
        (1, parameter.array.n_bytes if parameter.array else None)
        for parameter in parameters
        if parameter.is_aliased and (parameter.array is None or parameter.array.memory_space == HBM)
    )


def memory_bytes(program: Program) -> int | None:
    """Return the peak use of HBM, as in the mode `memory`; None without a consistent buffer
    assignment."""
    peak = peak_of_program(program)
    return peak.size if peak else None
