"""Declare the functions of the Python API for type checkers and editors.

Imports are relative, because this folder becomes part of a package when it is installed.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, overload

from typing_extensions import Required, Unpack

from .fields import (
    anatomy,
    bottleneck,
    by_op,
    by_scope,
    by_source,
    comm,
    compare,
    export,
    idle,
    kernel,
    memory,
    non_compute,
    page,
    program,
    record,
    roofline,
    spread,
    summary,
)

Path: TypeAlias = str | PathLike[str]
Profile: TypeAlias = Path | bytes | bytearray | memoryview
# `record.Answer` and `Mapping` are records as dicts; a record can also be JSON in bytes.
Capture: TypeAlias = Profile | Mapping[str, Any] | record.Answer
Captures: TypeAlias = Capture | Sequence[Capture]
Form: TypeAlias = Literal["json", "text", "markdown", "csv"]
Texts: TypeAlias = str | Sequence[str] | None
Number: TypeAlias = int | float

class Common(TypedDict, total=False):
    device: str | int | None
    host: str | int | None
    processes: int | None

class OfStep(Common, total=False):
    step: int | Literal["all"] | None
    step_id: str | None
    own: Texts

class Top(TypedDict, total=False):
    top: int | None

class PeakRates(TypedDict, total=False):
    bf16: Number
    fp8: Number
    fp32: Number
    fp16: Number
    hbm_gibps: Number

class Peaks(TypedDict, total=False):
    chip: str | None
    peaks: PeakRates | Mapping[str, Number] | None
    peak_tflops_bf16: Number | None
    peak_tflops_fp8: Number | None
    peak_tflops_fp32: Number | None
    peak_tflops_fp16: Number | None
    peak_hbm_gibps: Number | None
    kernel_cost: Texts

class Bottleneck(OfStep, Top, Peaks, total=False):
    peers: bool | None
    no_peers: bool
    model_flops: Number | None
    tokens: Number | None
    flops_per_token: Number | None
    params: Number | None
    n_devices: int | None

class Summary(OfStep, Top, total=False):
    include_comm: bool

class BySource(OfStep, Top, total=False):
    include_data_move: bool
    include_comm: bool

class ByScope(OfStep, total=False):
    depth: int | Literal["all"] | None
    below: str | None
    merge_layers: bool

class ByOp(OfStep, Top, Peaks, total=False):
    no_merge: bool
    op: str | None

class NonCompute(OfStep, Top, total=False):
    no_comm_stalls: bool
    include_comm: bool

class Roofline(OfStep, Top, Peaks, total=False):
    bytes: Literal["accessed", "hbm"] | None

class Comm(OfStep, Top, total=False):
    peers: bool

class Memory(OfStep, Top, total=False): ...
class Idle(OfStep, Top, total=False): ...

class Program(OfStep, Top, total=False):
    flags: Path | None

class Kernel(OfStep, Top, Peaks, total=False):
    kernel: str | None

class Page(OfStep, total=False):
    out: Required[Path]
    open: bool | None
    baseline: Capture | None
    baseline_device: str | int | None
    baseline_host: str | int | None

class Export(OfStep, Peaks, total=False):
    out: Required[Path]

class Record(Common, total=False):
    steps: slice | str | None

class Compare(Common, Top, total=False):
    baseline: Required[Captures]
    baseline_device: str | int | None
    baseline_host: str | int | None
    steps: slice | str | None
    fail_over: float | None

class Spread(Common, Top, total=False):
    steps: slice | str | None

class Anatomy(Common, total=False):
    plane: str | int | None
    line: str | None
    grep: str | None
    sample: int | None

class Analyse(Protocol):
    """Return a mode's answer as a dict, with the same fields that the command prints."""
    @overload
    def __call__(
        self, profile: Profile, mode: Literal["bottleneck"], **options: Unpack[Bottleneck]
    ) -> bottleneck.Answer: ...
    @overload
    def __call__(
        self, profile: Profile, mode: Literal["summary"], **options: Unpack[Summary]
    ) -> summary.Answer: ...
    @overload
    def __call__(
        self, profile: Profile, mode: Literal["by_source"], **options: Unpack[BySource]
    ) -> by_source.Answer: ...
    @overload
    def __call__(
        self, profile: Profile, mode: Literal["by_scope"], **options: Unpack[ByScope]
    ) -> by_scope.Answer: ...
    @overload
    def __call__(
        self, profile: Profile, mode: Literal["by_op"], **options: Unpack[ByOp]
    ) -> by_op.Answer: ...
    @overload
    def __call__(
        self, profile: Profile, mode: Literal["non_compute"], **options: Unpack[NonCompute]
    ) -> non_compute.Answer: ...
    @overload
    def __call__(
        self, profile: Profile, mode: Literal["roofline"], **options: Unpack[Roofline]
    ) -> roofline.Answer: ...
    @overload
    def __call__(
        self, profile: Profile, mode: Literal["comm"], **options: Unpack[Comm]
    ) -> comm.Answer: ...
    @overload
    def __call__(
        self, profile: Profile, mode: Literal["memory"], **options: Unpack[Memory]
    ) -> memory.Answer: ...
    @overload
    def __call__(
        self, profile: Profile, mode: Literal["idle"], **options: Unpack[Idle]
    ) -> idle.Answer: ...
    @overload
    def __call__(
        self, profile: Profile, mode: Literal["program"], **options: Unpack[Program]
    ) -> program.Answer: ...
    @overload
    def __call__(
        self, profile: Profile, mode: Literal["kernel"], **options: Unpack[Kernel]
    ) -> kernel.Answer: ...
    @overload
    def __call__(
        self, profile: Profile, mode: Literal["page"], **options: Unpack[Page]
    ) -> page.Answer: ...
    @overload
    def __call__(
        self, profile: Profile, mode: Literal["export"], **options: Unpack[Export]
    ) -> export.Answer: ...
    @overload
    def __call__(
        self, profile: Profile, mode: Literal["record"], **options: Unpack[Record]
    ) -> record.Answer: ...
    @overload
    def __call__(
        self, profile: Captures, mode: Literal["compare"], **options: Unpack[Compare]
    ) -> compare.Answer: ...
    @overload
    def __call__(
        self, profile: Captures, mode: Literal["spread"], **options: Unpack[Spread]
    ) -> spread.Answer: ...
    @overload
    def __call__(
        self, profile: Profile, mode: Literal["anatomy"], **options: Unpack[Anatomy]
    ) -> anatomy.Answer: ...

class Render(Protocol):
    """Return the text that the command would print to a pipe for this answer."""

    def __call__(self, answer: Mapping[str, object], format: Form) -> str: ...
