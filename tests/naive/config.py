"""The naive implementation's reading of backend_config."""

from __future__ import annotations

import json
from typing import Any

from tests.naive.program import Instruction, Program, count_of, known


def config_of(instruction: Instruction) -> Any:
    try:
        return json.loads(instruction.config)
    except (ValueError, RecursionError):
        return None


def at(said: Any, *path: str) -> Any:
    for key in path:
        said = said.get(key) if isinstance(said, dict) else None
    return said


def objects(said: Any) -> list[Any]:
    return [each for each in said if isinstance(each, dict)] if isinstance(said, list) else []


def number(said: Any) -> int | None:
    """Numbers stand there as such or as texts of digits alone."""
    if isinstance(said, bool) or not isinstance(said, (int, float, str)):
        return None
    is_digits = isinstance(said, str) and said.isascii() and said.isdecimal()
    return None if isinstance(said, str) and not is_digits else count_of(said)


def vmem(config: Any, key: str) -> int | None:
    of_vmem = [each for each in objects(at(config, key)) if number(each.get("memory_space")) == 1]
    sizes = [number(each.get("size")) for each in of_vmem]
    return sum(known(sizes)) if sizes and None not in sizes else None


def plan_in(config: Any) -> list[str]:
    algorithm = at(config, "collective_algorithm_config")
    found = [at(algorithm, "emitter"), at(algorithm, "strategy")]
    offload = at(config, "collective_offload_config")
    for name in offload if isinstance(offload, dict) else []:
        if not name.endswith("_offload_config") or not isinstance(offload[name], dict):
            continue
        found.append("sparse_core")
        for color in objects(at(offload[name], "ici_strategy_config", "color_strategies")):
            for ring in objects(color.get("phase_rings")):
                dim = ring.get("ring_dim") or ring.get("explicit_strategy_ring_dim")
                direction = ring.get("ring_type")
                if isinstance(dim, str):
                    found.append(dim.removeprefix("ICI_RING_DIM_"))
                if isinstance(direction, str):
                    found.append(direction.removeprefix("ICI_RING_TYPE_"))
    return [text for text in found if isinstance(text, str) and text]


def plan_of(program: Program, instruction: Instruction) -> list[str]:
    inside = program.collective_of(instruction)
    asked = [instruction, *program.parts(instruction), *known([inside])]
    return sorted({text for each in asked for text in plan_in(config_of(each))})
