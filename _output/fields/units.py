"""Define the units of printed figures, and fixed sets of values."""

from typing import Annotated, Literal, NamedTuple


class Unit(NamedTuple):
    """A unit, which the JSON Schema contains as `x-unit`, and the smallest value that a field with
    this unit can have."""

    name: str
    minimum: int | None = None


Picoseconds = Annotated[int, Unit("ps")]
Nanoseconds = Annotated[int, Unit("ns")]
Count = Annotated[int, Unit("count", 0)]
Bytes = Annotated[int, Unit("bytes", 0)]
Flops = Annotated[int, Unit("flops", 0)]
Percent = Annotated[float, Unit("percent")]
Fraction = Annotated[float, Unit("fraction")]
FlopsPerByte = Annotated[float, Unit("flops/byte")]
Tflops = Annotated[float, Unit("TFLOP/s")]
Gbps = Annotated[float, Unit("GB/s")]
Gibps = Annotated[float, Unit("GiB/s")]
TokensPerSecond = Annotated[float, Unit("tokens/s")]
Executions = Annotated[float, Unit("executions")]

# Absolute times beyond 2**53 are decimal strings, because JSON readers may round them.
BigInteger = int | str
BigPicoseconds = Annotated[BigInteger, Unit("ps")]
BigNanoseconds = Annotated[BigInteger, Unit("ns")]

Clock = Literal["device", "trace"]
StackOrder = Literal["outermost_first", "innermost_first"]
StepSource = Literal["steps", "modules"]
NoiseUnit = Literal["step", "capture"]
Kind = Literal["compute", "data_move", "comm", "other"]
KindOrContainer = Literal[Kind, "container"]
Phase = Literal["forward", "backward", "recompute", "other", "unknown"]
AggKeyKind = Literal["stack", "tf_op", "no_source"]
SourceIs = Literal["own", "inside", "producer", "consumer", "likely", "doubtful"]
OpClass = Literal[
    "collective",
    "host",
    "data_movement",
    "compute_bound",
    "memory_bound",
    "kernel",
    "unjudged",
    "other",
]
Dtype = Literal["bf16", "fp8", "fp32", "fp16", "other"]
DtypeSource = Literal["program", "output", "user"]
CostSource = Literal["xla", "declared", "user"]
Bound = Literal["compute", "memory"]
