"""What the compiler wrote down of an instruction for those behind it, its backend_config: JSON.

Numbers of 64 bits stand there as texts. Keys come and go with the compiler: what isn't there, or
isn't what it should be, says nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

# Kernels bring their code along, and objects of Python take twenty times their JSON.
_MAX_BYTES = 4 << 20
# Python reads long numbers slowly, and none of these is a count.
_COUNT_RE = re.compile(r"[0-9]{1,20}")
_LONGEST_NUMBER = 20
_VMEM = 1
_ALGORITHM = ("emitter", "strategy")
_OFFLOADED = "sparse_core"
_RING_DIM, _RING_TYPE = "ICI_RING_DIM_", "ICI_RING_TYPE_"


class DeclaredCost(NamedTuple):
    """What the author of a kernel says that one run of it costs; None where nothing is said."""

    flops: int | None
    bytes_accessed: int | None
    transcendentals: int | None = None


class Config:
    """What a backend_config says."""

    __slots__ = ("_said",)

    def __init__(self, said: Any) -> None:
        self._said = said

    @property
    def declared_cost(self) -> DeclaredCost | None:
        """What a kernel's author declared; None without a declaration."""
        estimate = _at(self._said, "custom_call_config", "cost_estimate")
        if not isinstance(estimate, dict):
            return None
        return DeclaredCost(*(_as_count(estimate.get(name)) for name in DeclaredCost._fields))

    @property
    def plan(self) -> frozenset[str]:
        """By what means a collective is carried out."""
        said = [_at(self._said, "collective_algorithm_config", key) for key in _ALGORITHM]
        offload = _at(self._said, "collective_offload_config")
        for key, value in offload.items() if isinstance(offload, dict) else ():
            # Beside the one for the collective at hand stand settings that tell nothing.
            if key.endswith("_offload_config") and isinstance(value, dict):
                said.append(_OFFLOADED)
                for ring in _rings(value):
                    # None where neighbours of a pair exchange.
                    dim = ring.get("ring_dim") or ring.get("explicit_strategy_ring_dim")
                    said.append(_without(_RING_DIM, dim))
                    said.append(_without(_RING_TYPE, ring.get("ring_type")))
        return frozenset(text for text in said if text and isinstance(text, str))

    @property
    def vmem_used(self) -> int | None:
        """The scoped VMEM that the instruction takes."""
        return self._vmem("used_scoped_memory_configs")

    @property
    def vmem_limit(self) -> int | None:
        """What it may take; often that isn't told."""
        return self._vmem("scoped_memory_configs")

    @property
    def retry_count(self) -> int | None:
        """How many times the compiler had to try again; it doesn't say why."""
        return _as_count(_at(self._said, "retry_config", "retry_count"))

    def _vmem(self, key: str) -> int | None:
        sizes = [
            _as_count(each.get("size"))
            for each in _objects(_at(self._said, key))
            if _as_count(each.get("memory_space")) == _VMEM
        ]
        known = [size for size in sizes if size is not None]
        return sum(known) if sizes and len(known) == len(sizes) else None


def read_config(text: bytes) -> Config | None:
    """None where the bytes aren't JSON, or so much that they can't be a config."""
    if not text:
        return Config(None)
    if len(text) > _MAX_BYTES:
        return None
    try:
        return Config(json.loads(text, parse_int=_number))
    except (ValueError, RecursionError):
        return None


def _number(digits: str) -> int | None:
    return int(digits) if len(digits) <= _LONGEST_NUMBER else None


def _as_count(value: Any) -> int | None:
    """A number of flops or bytes, as text or number; None for what can't be one."""
    if isinstance(value, str):
        value = int(value) if _COUNT_RE.fullmatch(value) else -1
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if 0 <= value < 1 << 63 else None


def _at(said: Any, *keys: str) -> Any:
    for key in keys:
        said = said.get(key) if isinstance(said, dict) else None
    return said


def _objects(listed: Any) -> Iterator[dict[str, Any]]:
    if isinstance(listed, list):
        yield from (each for each in listed if isinstance(each, dict))


def _rings(offload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for color in _objects(_at(offload, "ici_strategy_config", "color_strategies")):
        yield from _objects(color.get("phase_rings"))


def _without(prefix: str, text: Any) -> str:
    return text.removeprefix(prefix) if isinstance(text, str) else ""
