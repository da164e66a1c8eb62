"""Records: what one trace file comes down to, and how that is read.

A record is a JSON object of integers with a row for each source line (group) and, for each step of
each device, the time that every line took. It is small enough to be committed, and all that
`compare` and `spread` need.
"""

from __future__ import annotations

import json
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    # As RECORD says.
    Record = dict[str, Any]

KINDS = ("compute", "data_move", "comm", "other")


class UnreadableRecord(Exception):
    """The bytes or the object are no record."""


# Each field by what its value is: a type, or the one value that it can have; `(X, None)` is X or
# null, `[X]` a list of X. Other fields may stand beside them.
RECORD = {
    "status": "ok",
    "mode": "record",
    "format": 1,
    "xplane_file": str,
    "run": (str, None),
    "host": str,
    # `file:line:column`
    "frames": [str],
    "groups": [
        {
            "kind": str,
            "agg_key": str,
            "agg_key_kind": str,
            # Places in the list of frames, outermost first.
            "frames": [int],
            "source": (str, None),
            "tf_ops": [str],
            "signatures": [str],
            "ops": str,
        }
    ],
    "devices": [
        {
            "device": str,
            "device_type": (str, None),
            "clock": str,
            "step_source": (str, None),
            "program": str,
        }
    ],
    # Those of one device by time.
    "steps": [
        {
            "device": int,
            "index": int,
            "name": (str, None),
            "used": bool,
            "duration_ps": int,
            # Of used steps only; the lists by group, trailing zeros left out.
            "busy_ps": (int, None),
            "comm_ps": (int, None),
            "host_ps": (int, None),
            "wait_ps": (int, None),
            "durs_ps": ([int], None),
            "ns": ([int], None),
        }
    ],
}
# No sum of picoseconds comes near it, and floats hold its square.
INT_LIMIT = 1 << 100
# Gzipped records unpack to some 6 times their size, and have a bracket for some 50 bytes. Beyond
# these, data is made to fill the memory: that of an object takes 30 times its two brackets.
INFLATED_LIMIT = 1 << 30
INFLATED_SMALL, INFLATION = 1 << 24, 64
FEW_BRACKETS, BYTES_OF_BRACKET = 1 << 18, 16
# The steps that are used of a device run much the same ops, so few zeros are left out of them.
FEW_FIGURES, FIGURES_FILLED_IN = 1 << 20, 4
GZIP_MAGIC = b"\x1f\x8b"


def decode(data: bytes) -> Record:
    """A record from the bytes of its file, plain or gzipped."""
    if data.startswith(GZIP_MAGIC):
        data = inflate(data)
    n_brackets = data.count(b"[") + data.count(b"{")
    if n_brackets > max(FEW_BRACKETS, len(data) // BYTES_OF_BRACKET):
        raise UnreadableRecord(f"not a record: {n_brackets} brackets in {len(data)} bytes")
    try:
        return record_of(json.loads(data))
    except RecursionError:
        raise UnreadableRecord("not JSON: nested too deep") from None
    except ValueError as error:
        raise UnreadableRecord(f"not JSON: {str(error)[:200]}") from None


def inflate(data: bytes) -> bytes:
    """All members of gzip data."""
    members = []
    left = limit = min(INFLATED_LIMIT, INFLATED_SMALL + INFLATION * len(data))
    while data:
        inflater = zlib.decompressobj(wbits=31)
        try:
            members.append(inflater.decompress(data, left + 1))
        except zlib.error as error:
            raise UnreadableRecord(f"bad gzip data: {error}") from None
        left -= len(members[-1])
        if left < 0:
            raise UnreadableRecord(f"gzip data expands past the limit of {limit} bytes")
        if not inflater.eof:
            raise UnreadableRecord("bad gzip data: it ends too early")
        data = inflater.unused_data
    return b"".join(members)


def record_of(value: Any) -> Record:
    """The object that the mode `record` prints, once it is known to be one."""
    if isinstance(value, dict) and value.get("status") == "absent":
        said = [value[name] for name in ("reason", "detail") if isinstance(value.get(name), str)]
        raise UnreadableRecord(": ".join(["no record could be made", *said]))
    check(value, RECORD, "record")
    groups, devices = value["groups"], value["devices"]
    if len({(group["kind"], group["agg_key"]) for group in groups}) < len(groups):
        wrong("groups", "one is there twice")
    if len({device["device"] for device in devices}) < len(devices):
        wrong("devices", "one is there twice")
    for index, group in enumerate(groups):
        if group["kind"] not in KINDS:
            wrong(f"groups[{index}]", "there is no such kind")
        if max(group["frames"], default=-1) >= len(value["frames"]):
            wrong(f"groups[{index}]", "there is no such frame")
    last = [-1] * len(devices)
    n_figures: list[list[int]] = [[] for _ in devices]
    for index, step in enumerate(value["steps"]):
        where = f"steps[{index}]"
        if step["device"] >= len(devices):
            wrong(where, "there is no such device")
        if step["index"] <= last[step["device"]]:
            wrong(where, "it is not in the order of time")
        last[step["device"]] = step["index"]
        if step["used"]:
            if None in step.values() and any(step[name] is None for name in FIGURES):
                wrong(where, "it is used and has no figures")
            n_of_step = max(len(step["durs_ps"]), len(step["ns"]))
            if n_of_step > len(groups):
                wrong(where, "there are more figures than groups")
            n_figures[step["device"]].append(n_of_step)
            if step["busy_ps"] > step["duration_ps"]:
                wrong(where, "it is busy for longer than it lasts")
    for index, of_steps in enumerate(n_figures):
        n_all = len(of_steps) * max(of_steps, default=0)
        if n_all > max(FEW_FIGURES, FIGURES_FILLED_IN * sum(of_steps)):
            wrong(f"devices[{index}]", "its steps leave out most figures")
    record: Record = value
    return record


FIGURES = ("busy_ps", "comm_ps", "host_ps", "wait_ps", "durs_ps", "ns")


def check(value: Any, wanted: Any, where: str) -> None:
    """Raise where the value isn't what is wanted, in the notation of RECORD."""
    if isinstance(wanted, tuple):
        if value is None:
            return
        wanted = wanted[0]
    if isinstance(wanted, dict):
        check(value, dict, where)
        for name, each in wanted.items():
            check(value.get(name, ...), each, f"{where}.{name}")
    elif isinstance(wanted, list):
        check(value, list, where)
        if isinstance(wanted[0], dict):
            for index, each in enumerate(value):
                check(each, wanted[0], f"{where}[{index}]")
        # At once, since there are many.
        elif not set(map(type, value)) <= {wanted[0]}:
            wrong(where, "not all of it is of one type")
        elif value and wanted[0] is int:
            check(min(value), int, where)
            check(max(value), int, where)
    else:
        kind = wanted if isinstance(wanted, type) else type(wanted)
        # The very type: to Python, true is an int.
        if type(value) is int and not 0 <= value < INT_LIMIT:
            wrong(where, "it is out of range")
        if type(value) is not kind:
            wrong(where, "it is missing" if value is ... else "it is of another type")
        if wanted is not kind and value != wanted:
            wrong(where, f"it is not {wanted}")


def wrong(where: str, what: str) -> NoReturn:
    raise UnreadableRecord(f"not a record: {where}: {what}")
