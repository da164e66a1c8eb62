"""Write the headline and next steps for mode `anatomy`: file size, planes, devices and programs."""

from __future__ import annotations

from collections.abc import Iterator

from _output.phrases import Next
from _units import counted, size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.anatomy import Answer


def headline(answer: Answer) -> str:
    planes = [plane["name"] for plane in answer["planes"]]
    devices = sum(name.startswith("/device:TPU:") for name in planes)
    jax = answer["versions"].get("jax_version")
    version = f" (JAX {jax})" if jax else ""
    return (
        f"The file{version} is {size(answer['file_bytes'])}, with {counted(len(planes), 'plane')}"
        f" ({devices} of TPUs) and {counted(len(answer['programs']), 'program')}."
    )


def next_steps(answer: Answer) -> Iterator[Next]:
    if any(plane["name"].startswith("/device:TPU:") for plane in answer["planes"]):
        yield Next("where a step's time goes", ("--mode", "bottleneck"))
