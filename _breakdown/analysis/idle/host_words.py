"""Tell from the name of a host event what it does: wait, compile, read a result, and so on.

Names are Python frames, such as `$queue.py:154 get`, calls of built-in functions, such as
`$time sleep`, or events of the runtime, such as `PjitFunction(f)`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

Kind = Literal[
    "collecting",
    "compiling",
    "loading",
    "reading",
    "sending arguments",
    "transferring",
    "saving",
    "profiling",
    "other",
]
COLLECTING: Final = "collecting"
COMPILING: Final = "compiling"
LOADING: Final = "loading"
READING: Final = "reading"
SENDING: Final = "sending arguments"
TRANSFERRING: Final = "transferring"
SAVING: Final = "saving"
PROFILING: Final = "profiling"
OTHER: Final = "other"

_NAME_RE = re.compile(r"\$(?P<file>\S+?)(?:\.py)?(?::\d+)? (?P<function>\S+)")
# Functions of the standard library in which a thread waits for another one.
_WAITS = frozenset(
    "wait wait_for acquire __enter__ get join result exception poll select sleep recv recv_bytes"
    " recv_into accept as_completed _recv _poll _wait_for_tstate_lock lock futex".split()
)
# Files of these functions, without `.py`; built-in functions have the name of a module, or none.
_WAITING_FILES = frozenset(
    "queue _queue threading _thread thread selectors select _base connection synchronize time"
    " socket tasks futures locks queues base_events events subprocess pool <unknown> built-in"
    " builtins <built-in>".split()
)
_WAITING_EVENTS = ("Acquire semaphore", "BlockingCounter::Wait", "Notification::Wait", "Semaphore")
# Functions of the standard library that end the wait of another thread.
_WAKES = frozenset(
    "put put_nowait set set_result set_exception notify notify_all release __exit__ send send_bytes"
    " call_soon_threadsafe task_done".split()
)
_COLLECTS = "_xla_gc_callback"
# The functions of JAX and the events of the runtime that tell what the host does.
_FUNCTIONS: dict[str, Kind] = {
    # These functions lower or compile a program.
    **dict.fromkeys(
        "_cached_compilation _pjit_lower _resolve_and_lower backend_compile"
        " backend_compile_and_load compile_or_get_cached lower_sharding_computation".split(),
        COMPILING,
    ),
    # These wait for a result of the device.
    **dict.fromkeys(
        "_value __array__ __bool__ __float__ __index__ __int__ _item item tolist device_get"
        " _device_get block_until_ready try_to_block".split(),
        READING,
    ),
    **dict.fromkeys("shard_args shard_arg _shard_arg cpp_pjit_shard_arg_fallback".split(), SENDING),
    **dict.fromkeys("device_put _device_put_impl batched_device_put".split(), TRANSFERRING),
    **dict.fromkeys("start_trace stop_trace stop_and_export".split(), PROFILING),
}
_EVENTS: dict[str, Kind] = {
    "Client::Compile": COMPILING,
    "Client::CompileAndLoad": COMPILING,
    "lower_sharding_computation": COMPILING,
    "np.asarray(jax.Array)": READING,
    "Buffer::Await": READING,
    "shard_args": SENDING,
    "shard_arg": SENDING,
    "LoadProgram": LOADING,
    "Defragment": LOADING,
    "BufferFromHostBuffer": TRANSFERRING,
    "H2D Dispatch": TRANSFERRING,
    "DevicePut": TRANSFERRING,
}
# Files of Orbax, and names that users give to functions that save a checkpoint.
_SAVING_FILES = re.compile(
    r"async_checkpointer|checkpointer|checkpoint_manager|\w*checkpoint_handler|tensorstore_utils"
    r"|type_handlers|ocdbt\w*"
)
_SAVING_FUNCTIONS = re.compile(r"_?save(_\w*)?|\w*_checkpoint")


# Cache results, because the same frames run in each step.
@lru_cache(maxsize=1 << 12)
def _parsed(name: str) -> tuple[str, str] | None:
    """Return the file, without `.py`, and the function of a Python frame; None for other events."""
    found = _NAME_RE.match(name)
    return (found["file"], found["function"]) if found else None


def is_wait(name: str) -> bool:
    """Return whether a thread waits for another one in this event."""
    parsed = _parsed(name)
    if parsed is None:
        return name.startswith(_WAITING_EVENTS)
    file, function = parsed
    return function in _WAITS and file in _WAITING_FILES


def wakes(name: str) -> bool:
    parsed = _parsed(name)
    return parsed is not None and parsed[1] in _WAKES and parsed[0] in _WAITING_FILES


def is_collection(name: str) -> bool:
    """Return whether an event is a mark of Python's garbage collector."""
    return name.endswith(_COLLECTS)


@lru_cache(maxsize=1 << 12)
def kind_of(name: str) -> Kind:
    """Return what the host does in an event; `OTHER` if its name does not tell."""
    if is_collection(name):
        return COLLECTING
    parsed = _parsed(name)
    if parsed is None:
        return next((kind for end, kind in _EVENTS.items() if name.endswith(end)), OTHER)
    file, function = parsed
    if _SAVING_FILES.fullmatch(file) or _SAVING_FUNCTIONS.fullmatch(function):
        return SAVING
    return _FUNCTIONS.get(function, OTHER)
