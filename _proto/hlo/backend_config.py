"""Read an instruction's backend_config: JSON with the compiler's settings for the backend.

64-bit numbers are stored as text. Keys differ between compiler versions, so a value that is missing
or has an unexpected type is None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from _breakdown.light import NamedTuple

_VMEM = 1
_ALGORITHM = ("emitter", "strategy")
_OFFLOADED = "sparse_core"
_RING_DIM, _RING_TYPE = "ICI_RING_DIM_", "ICI_RING_TYPE_"


class DeclaredCost(NamedTuple):
    """The cost of one kernel execution, as declared by the kernel's author. Missing values are
    None."""

    flops: int | None
    bytes_accessed: int | None


class BackendConfig:
    """The decoded JSON of a backend_config."""

    __slots__ = ("_json",)

    def __init__(self, decoded: Any) -> None:
        self._json = decoded

    @property
    def declared_cost(self) -> DeclaredCost | None:
        """Return the cost declared by the kernel's author, or None if no cost is declared."""
        estimate = _at(self._json, "custom_call_config", "cost_estimate")
        if not isinstance(estimate, dict):
            return None
        return DeclaredCost(*(_as_count(estimate.get(name)) for name in DeclaredCost._fields))

    @property
    def plan(self) -> frozenset[str]:
        """Return the compiler's plan for a collective: algorithm, offloading and rings."""
        found = [_at(self._json, "collective_algorithm_config", key) for key in _ALGORITHM]
        offload = _at(self._json, "collective_offload_config")
        for key, value in offload.items() if isinstance(offload, dict) else ():
            # Other settings in the offload config do not describe the collective.
            if key.endswith("_offload_config") and isinstance(value, dict):
                found.append(_OFFLOADED)
                for ring in _rings(value):
                    # A ring without a dimension means that neighbours exchange data in pairs.
                    dim = ring.get("ring_dim") or ring.get("explicit_strategy_ring_dim")
                    found.append(_without(_RING_DIM, dim))
                    found.append(_without(_RING_TYPE, ring.get("ring_type")))
        return frozenset(text for text in found if text and isinstance(text, str))

    @property
    def vmem_used(self) -> int | None:
        """Return the bytes of scoped VMEM that the instruction uses."""
        return self._vmem("used_scoped_memory_configs")

    @property
    def vmem_limit(self) -> int | None:
        """Return the bytes of scoped VMEM that the instruction may use, or None if the compiler did
        not record this limit."""
        return self._vmem("scoped_memory_configs")

    def _vmem(self, key: str) -> int | None:
        sizes = [
            _as_count(memory.get("size"))
            for memory in _objects(_at(self._json, key))
            if _as_count(memory.get("memory_space")) == _VMEM
        ]
        known = [size for size in sizes if size is not None]
        return sum(known) if sizes and len(known) == len(sizes) else None


def read_config(text: bytes) -> BackendConfig | None:
    """Decode a backend_config; return None if the text is not JSON."""
    try:
        return BackendConfig(json.loads(text) if text else None)
    except (ValueError, RecursionError):
        return None


def _as_count(value: Any) -> int | None:
    """Convert a text or number to a count, or return None for an invalid value."""
    if isinstance(value, str):
        value = int(value) if re.fullmatch("[0-9]{1,20}", value) else -1
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if 0 <= value < 1 << 63 else None


def _at(decoded: Any, *keys: str) -> Any:
    for key in keys:
        decoded = decoded.get(key) if isinstance(decoded, dict) else None
    return decoded


def _objects(listed: Any) -> Iterator[dict[str, Any]]:
    if isinstance(listed, list):
        yield from (item for item in listed if isinstance(item, dict))


def _rings(offload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for color in _objects(_at(offload, "ici_strategy_config", "color_strategies")):
        yield from _objects(color.get("phase_rings"))


def _without(prefix: str, text: Any) -> str:
    return text.removeprefix(prefix) if isinstance(text, str) else ""
