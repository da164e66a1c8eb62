"""Write the headline and next steps of anatomy: the numbers of planes, devices and programs in the
file."""

from __future__ import annotations

from _output.leads.phrases import Next, counted, size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from _output.fields.anatomy import Answer


def headline(answer: Answer) -> str:
    planes = [plane["name"] for plane in answer["planes"]]
    devices = sum(name.startswith("/device:TPU:") for name in planes)
    jax = answer["versions"].get("jax_version")
    version = f" of JAX {jax}" if jax else ""
    return (
        f"A file{version} with {size(answer['file_bytes'])}: {counted(len(planes), 'plane')},"
        f" of them {counted(devices, 'TPU plane')}, and"
        f" {counted(len(answer['programs']), 'program')}."
    )


def next_steps(answer: Answer) -> Iterator[Next]:
    if any(plane["name"].startswith("/device:TPU:") for plane in answer["planes"]):
        yield Next("where the time of a step goes", ("--mode", "bottleneck"))
