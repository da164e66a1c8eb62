"""Tell the user's own code from libraries in the host's Python frames.

With the Python tracer, an event of a host thread is a frame such as `$data.py:88 next_batch`: the
name of a file without its folder, the line where the function begins, and the function's name. So
the rule for paths in `frames.py` cannot be applied, and only the file's name is known.

A file counts as a library's if it has the name of a module of the standard library, a name below,
or a name that the stacks of the device's ops show only in plumbing. If such a file is the user's
own, the frame that calls it is reported instead, which is the user's, too. All other files count as
own code. `--own` selects files by their name, or by the paths that the stacks show.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache

from _breakdown.light import NamedTuple
from _breakdown.pipeline.frames import Stack, file_of, is_not_plumbing

_FRAME_RE = re.compile(r"\$(?P<line>(?P<file>.+):\d+) (?P<function>.+)")
# Files of packages that call the device or wait for it, without `.py`: modules of JAX, NumPy,
# Orbax, tqdm and absl that users hardly name a file after.
_LIBRARY = frozenset(
    # JAX.
    "abstract_arrays ad ad_checkpoint ad_util api_util array_constructors array_creation"
    " array_methods basearray batching cache_key checkify cloud_tpu_init compilation_cache"
    " compilation_cache_interface custom_derivatives deprecations dlpack dtypes eval_jaxpr ffi"
    " flatten_util lax lax_numpy linear_util literals lru_cache mesh_utils mlir monitoring"
    " named_sharding op_shardings partial_eval partition_spec pjit pmap prng pxla"
    " scalar_types setops shard_map sharding_impls source_info_util stages traceback_util"
    " tree_util ufunc_api ufuncs xla_bridge xla_client xla_metadata"
    # JAX's functions on arrays, such as `.at[].set` in scatter.py.
    " conditionals control_deps convolution custom_batching custom_partitioning einsum hijax"
    " index_tricks lax_reference multihost_utils polynomial scatter shard_alike sorting"
    " tensor_contractions tensorstore_impl threefry2x32 vectorize window_functions"
    " windowed_reductions xla_transform"
    # NumPy.
    " _arraypad_impl _arraysetops_impl _asarray _function_base_impl _index_tricks_impl _methods"
    " _histograms_impl _nanfunctions_impl _npyio_impl _polynomial_impl _shape_base_impl"
    " _stride_tricks_impl _twodim_base_impl"
    " _ufunc_config arrayprint defchararray einsumfunc fromnumeric function_base getlimits memmap"
    " multiarray npyio numeric numerictypes overrides shape_base stride_tricks umath"
    # Python's own packages, Orbax, tqdm and absl.
    " _base _weakrefset connection epoll poll async_checkpointer checkpoint_manager"
    " base_pytree_checkpoint_handler pytree_checkpoint_handler type_handlers tensorstore_utils"
    " _monitor _tqdm".split()
)
# Names of libraries' files that users give to their own files, too.
_SHARED = frozenset(
    "__init__ api array callback compiler config convert core debugging decoder dispatch"
    " distributed effects encoder error errors indexing layout linalg mesh parallel path process"
    " profiler random reductions sharding slicing std thread tree typing util utils"
    # Modules of the standard library.
    " cmd code copy email numbers operator platform profile queue resource select signal"
    " statistics string token tokenize trace types".split()
)


class Frame(NamedTuple):
    """A function that a host thread runs."""

    file: str
    # The file, and the line where the function begins.
    line: str
    function: str


# Cache results, because the same frames run in each step.
@lru_cache(maxsize=1 << 12)
def frame_of(event_name: str) -> Frame | None:
    """Parse the name of a host event; return None if the event is not a Python frame with a
    line."""
    found = _FRAME_RE.fullmatch(event_name)
    return Frame(found["file"], found["line"], found["function"]) if found else None


class OwnFiles:
    """Recognises the user's own files by their names.

    `asked` has the values of `--own`, and `stacks` the stacks of the device's ops.
    """

    def __init__(self, asked: Sequence[str], stacks: Iterable[Stack]) -> None:
        paths = {file_of(frame) for stack in stacks for frame in stack.frames}
        own, plumbing = set[str](), set[str]()
        for path in paths:
            (own if is_not_plumbing(path) else plumbing).add(base_name(path))
        self._plumbing = plumbing - own
        self._asked = asked
        self._selected = {base_name(path) for path in paths if any(text in path for text in asked)}

    def is_asked_for(self, file: str) -> bool:
        """Return whether `--own` selects a file."""
        return file in self._selected or any(text in file for text in self._asked)

    def is_own(self, file: str) -> bool:
        """Return whether a file counts as the user's own if `--own` selects none."""
        stem = file.removesuffix(".py")
        return (
            is_not_plumbing(file)
            and file not in self._plumbing
            and stem not in sys.stdlib_module_names
            and stem not in _LIBRARY
            and stem not in _SHARED
        )


def base_name(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]
