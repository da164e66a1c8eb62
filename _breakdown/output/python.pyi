"""Declare the functions of the Python API for type checkers and editors.

Imports are absolute only for packages outside of this project, because this folder becomes part of
a package when it is installed.
"""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, overload

from typing_extensions import Unpack

Path: TypeAlias = str | PathLike[str]
# A mapping is a record; a record can also be JSON in bytes.
Capture: TypeAlias = Path | bytes | bytearray | memoryview | Mapping[str, Any]
Captures: TypeAlias = Capture | Sequence[Capture]
Form: TypeAlias = Literal["json", "text", "markdown", "csv"]
Texts: TypeAlias = str | Sequence[str] | None
Number: TypeAlias = int | float

class PeakRates(TypedDict, total=False):
    bf16: Number
    fp8: Number
    int8: Number
    int4: Number
    fp32: Number
    fp16: Number
    hbm_gibps: Number

class Options(TypedDict, total=False):
    """The options of all modes; `analyse` checks that the mode has the option."""

    baseline: Captures | None
    baseline_device: str | int | None
    baseline_host: str | int | None
    below: str | None
    bytes: Literal["accessed", "hbm"] | None
    chip: str | None
    code: Path | None
    depth: int | Literal["all"] | None
    device: str | int | None
    fail_over: Number | None
    flags: Path | None
    flops_per_token: Number | None
    grep: str | None
    host: str | int | None
    include_comm: bool
    include_data_move: bool
    kernel: str | None
    kernel_cost: Texts
    line: str | None
    merge_layers: bool
    model_flops: Number | None
    n_devices: int | None
    no_comm_stalls: bool
    no_merge: bool
    no_peers: bool
    op: str | None
    open: bool | None
    out: Path
    own: Texts
    params: Number | None
    peak_hbm_gibps: Number | None
    peak_tflops_bf16: Number | None
    peak_tflops_fp16: Number | None
    peak_tflops_fp32: Number | None
    peak_tflops_fp8: Number | None
    peak_tflops_int4: Number | None
    peak_tflops_int8: Number | None
    peaks: PeakRates | Mapping[str, Number] | None
    peers: bool | None
    plane: str | int | None
    processes: int | None
    sample: int | None
    step: int | Literal["all"] | None
    step_id: str | None
    steps: slice | str | None
    tokens: Number | None
    top: int | None

class Analyse(Protocol):
    """Return a mode's answer as a dict, with the same fields that the command prints."""

    def __call__(
        self, profile: Captures, mode: str | None = None, **options: Unpack[Options]
    ) -> dict[str, Any]: ...

class Traced(Protocol):
    """Trace what runs inside `with`; the answer is known at its end."""

    @property
    def answer(self) -> dict[str, Any]: ...
    def __enter__(self) -> Traced: ...
    def __exit__(self, *failure: object) -> None: ...

class CaptureSteps(Protocol):
    """Trace steps of a JAX program, and return a mode's answer."""

    @overload
    def __call__(
        self, *, folder: Path | None = None, mode: str = "bottleneck", **options: Unpack[Options]
    ) -> Traced: ...
    @overload
    def __call__(
        self,
        step: Callable[..., Any],
        /,
        *args: Any,
        n: int = 3,
        carry: Callable[[Any, Sequence[Any]], Sequence[Any]] | None = None,
        folder: Path | None = None,
        mode: str = "bottleneck",
        **options: Unpack[Options],
    ) -> dict[str, Any]: ...

class Render(Protocol):
    """Return the text that the command would print to a pipe for this answer."""

    def __call__(self, answer: Mapping[str, object], format: Form) -> str: ...
