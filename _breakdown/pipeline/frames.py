"""Parse stacks, and find their frame order and the frames in the user's own code.

Own code is code that says what a model does: the user's files, and installed packages with models,
such as Levanter or vLLM. All other code is plumbing: Python itself, and packages that models are
written with.

A capture from March 2025 lists the outermost frame first; captures from January 2026 list the
innermost frame first. A trace does not declare the order, but most ops also have a `source`, which
is the innermost frame.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, Literal

from _breakdown.light import cached_property
from _breakdown.pipeline.texts import digest_of

StackOrder = Literal["outermost_first", "innermost_first"]

OUTERMOST_FIRST: Final = "outermost_first"
INNERMOST_FIRST: Final = "innermost_first"

NUMBERS_RE = re.compile(r"(?::\d+){1,2}\Z")
# Packages whose frames never say what a model does, by the name of their folder or file.
PLUMBING = frozenset(
    # Arrays, layers, optimizers and compilers.
    "jax jaxlib jax_plugins libtpu flax haiku equinox haliax keras tf_keras chex optax jmp numpy"
    " scipy ml_dtypes opt_einsum einops torch torch_xla torch_xla2 torchax torchvision functorch"
    " tensorflow sonnet penzai treescope metrax aqt qwix tokamax optree tree"
    # Types and tools for functions and classes.
    " jaxtyping beartype typeguard typing_extensions wadler_lindig pydantic attr attrs wrapt"
    " decorator toolz cytoolz cloudpickle absl etils fiddle ml_collections simple_parsing draccus"
    " tyro fire click typer hydra omegaconf tqdm rich"
    # Data, checkpoints, logs, networks and processes.
    " orbax grain tensorstore array_record datasets tensorflow_datasets torchdata webdataset"
    " safetensors huggingface_hub tokenizers sentencepiece tiktoken accelerate pandas pyarrow"
    " sklearn matplotlib PIL cv2 h5py msgpack google grpc requests urllib3 httpx aiohttp fsspec"
    " gcsfs clu wandb tensorboard tensorboardX mlflow ray psutil zmq tornado"
    # Notebooks, debuggers and tests.
    " IPython ipykernel traitlets debugpy pytest _pytest pluggy".split()
)
# Matches the package's name below the last folder of packages or archive in a path.
PACKAGE_RE = re.compile(
    r"(?:.*/)?(?:(?:site|dist)-packages|third_party/py|[^/]+\.(?:egg|whl|zip|pyz|pex))/([^/]+)"
)
# Matches files of Python itself. Installed packages are in a folder below.
PYTHON_RE = re.compile(
    r"/(?:lib(?:64)?/python3\.[^/]+|python3\d+\.zip|Python3\d+/Lib)/(?!(?:site|dist)-packages/)"
)
# Matches a clone of a plumbing package, in folders that only this package has. A folder with just
# the package's name can be the user's own.
CLONE_RE = re.compile(
    r"(?:\A|/)(?:([^/]+)/_src|flax/(?:core|linen|nnx)|keras/src"
    r"|jax/experimental/pallas|equinox/(?:_module|internal|nn)|haliax/(?:nn|src/haliax)"
    r"|torch/nn/modules|torchax/ops|tensorflow/python)/"
)
NOTEBOOK = "<ipython-input-"


class Stack:
    """A stack of at least one frame, each in the form `file:line:column`."""

    def __init__(self, frames: tuple[str, ...]) -> None:
        self.frames = frames
        self._own_lines: dict[Callable[[str], bool], str | None] = {}

    @cached_property
    def backwards(self) -> Stack:
        return Stack(self.frames[::-1])

    @cached_property
    def text(self) -> str:
        return "\n".join(self.frames)

    @cached_property
    def digest(self) -> str:
        return digest_of(self.text)

    @cached_property
    def files(self) -> set[str]:
        return set(map(file_of, self.frames))

    def innermost_own(self, is_own: Callable[[str], bool]) -> str | None:
        """Return the innermost line in the user's own code. The stack must be outermost first."""
        # Remember the result, because many ops share a stack.
        if is_own not in self._own_lines:
            self._own_lines[is_own] = innermost_own(self.frames, is_own)
        return self._own_lines[is_own]


# Cache results, because many ops share a stack.
@lru_cache(maxsize=1 << 12)
def stack_of(text: str) -> Stack | None:
    """Parse a stack, keeping the trace's frame order; return None if the text has no frames."""
    frames = tuple(frame for line in text.split("\n") if (frame := line.strip()))
    return Stack(frames) if frames else None


def line_of(frame: str) -> str:
    """Return `file:line` of a frame."""
    line, _, column = frame.rpartition(":")
    is_whole = column.isdecimal() and line.rpartition(":")[2].isdecimal() and ":" in line
    return line if is_whole else frame


@lru_cache(maxsize=1 << 12)
def file_of(frame: str) -> str:
    numbers = NUMBERS_RE.search(frame)
    return frame[: numbers.start()] if numbers else frame


def fits(source: str, frame: str) -> bool:
    """Return whether a frame is at `source`. Some profilers omit the folder in `source`."""
    line = line_of(frame)
    return line == source or line.endswith(f"/{source}")


def order_shown_by(stack: Stack, source: str | None) -> StackOrder | None:
    """Return a stack's frame order if `source` matches either its first or its last frame, but not
    both."""
    if not source:
        return None
    is_first, is_last = fits(source, stack.frames[0]), fits(source, stack.frames[-1])
    if is_first == is_last:
        return None
    return INNERMOST_FIRST if is_first else OUTERMOST_FIRST


def majority(orders: Iterable[StackOrder | None]) -> StackOrder | None:
    """Return the more frequent order, or None if neither is more frequent."""
    lead = 0
    for order in orders:
        lead += (order == INNERMOST_FIRST) - (order == OUTERMOST_FIRST)
    return (INNERMOST_FIRST if lead > 0 else OUTERMOST_FIRST) if lead else None


# Cache results, because all stacks of a program are made of a few files.
@lru_cache(maxsize=1 << 12)
def is_not_plumbing(file: str) -> bool:
    """Return whether a file can say what a model does: the user's file, or a package with models.

    Names in angle brackets, such as `<frozen runpy>`, are no files, except cells of a notebook.
    """
    if file.startswith("<"):
        return file.startswith(NOTEBOOK)
    path = file.replace("\\", "/")
    if PYTHON_RE.search(path) or package_of(path) in PLUMBING:
        return False
    # A match without a group is a folder of one package.
    return not any(found[1] is None or found[1] in PLUMBING for found in CLONE_RE.finditer(path))


def package_of(path: str) -> str | None:
    """Return the installed package that a file belongs to, or None."""
    package = PACKAGE_RE.match(path.replace("\\", "/"))
    return package[1].removesuffix(".py") if package else None


@lru_cache(maxsize=1 << 12)
def is_in_no_package(file: str) -> bool:
    """Return whether a file is the user's, and no part of an installed package with models."""
    return is_not_plumbing(file) and package_of(file) is None


def own_code(texts: Sequence[str]) -> Callable[[str], bool]:
    """Return a predicate that recognises the user's own files.

    A file is the user's own if its name contains one of the texts. If no texts are given, every
    file that is not plumbing is the user's own.
    """
    return (lambda file: any(text in file for text in texts)) if texts else is_not_plumbing


def innermost_own(frames: Sequence[str], is_own: Callable[[str], bool]) -> str | None:
    """Return `file:line` of the innermost frame in the user's own code. Frames must be listed
    outermost first."""
    return next((line_of(frame) for frame in reversed(frames) if is_own(file_of(frame))), None)
