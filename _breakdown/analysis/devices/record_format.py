"""Read the JSON records that the mode `record` prints.

A record is a JSON object whose numbers are all integers. It has a row for each group of ops and,
for each step of each device, the time of every group. FIELDS.md declares all fields.
The classes in this module contain only the fields that `compare` and `spread` need.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar

from _breakdown.analysis.devices.cohort import StepSums
from _breakdown.light import NamedTuple
from _breakdown.pipeline.clocks import ClockName
from _breakdown.pipeline.device import StepSource
from _breakdown.pipeline.vocabulary import KeyKind, LeafKind

T = TypeVar("T")
# A property of a program: an object with several figures, a hash, or a number.
Fact: TypeAlias = "dict[str, Any] | str | int"

FORMAT: Final = 1
KINDS: tuple[LeafKind, ...] = ("compute", "data_move", "comm", "other")
AGG_KEY_KINDS: tuple[KeyKind, ...] = ("stack", "tf_op", "no_source")
CLOCKS: tuple[ClockName, ...] = ("device", "trace")
STEP_SOURCES: tuple[StepSource | None, ...] = ("steps", "cycles", "modules", None)
# Properties of a program; `other` if only the fingerprints differ.
ProgramWhat = Literal[
    "collective",
    "kernel",
    "kernel_code",
    "parameter",
    "donation",
    "memory",
    "opcode",
    "fusion",
    "other",
]
# The type of the values of each program property; None if the property is a single number, which
# has no name.
KINDS_OF_FACTS: dict[ProgramWhat, type | None] = {
    "collective": dict,
    "kernel": dict,
    "kernel_code": str,
    "parameter": dict,
    "donation": None,
    "memory": None,
    "opcode": int,
    "fusion": None,
}
# Upper limit of integers in a record. Sums of picoseconds stay far below this limit, and even the
# limit's square does not overflow a float.
INT_LIMIT = 1 << 100
GZIP_MAGIC = b"\x1f\x8b"


class UnreadableRecord(Exception):
    """Raised if bytes or a JSON value are not a valid record."""


class RecordedGroup(NamedTuple):
    """A group of ops that share a source line."""

    kind: LeafKind
    agg_key: str
    agg_key_kind: KeyKind
    # Frames as `file:line:column`, outermost first.
    frames: list[str]
    source: str | None
    tf_ops: list[str]
    # Name of the custom kernel; missing from records written by version 2.0.
    kernel: str | None


class RecordedProgram(NamedTuple):
    """The digest of a compiled program. `facts` maps each property, such as `kernel`, to a map from
    names to values."""

    fingerprint: str
    facts: dict[ProgramWhat, dict[str, Fact]]


class RecordedStep(NamedTuple):
    """A step of a device; times are in picoseconds. If the step is not used, its sums are 0, except
    for the duration."""

    # Index of the step in order of time.
    number: int
    name: str | None
    used: bool
    sums: StepSums
    # Time and number of executions of each group; trailing zeros are omitted.
    durs: list[int]
    ns: list[int]
    # Time until the next step starts; None if unknown, or if the step's program is not compared.
    period: int | None = None


class RecordedCause(NamedTuple):
    """A cause of lost time; its fields are those of an answer of `bottleneck`."""

    cause: str
    # None if unknown.
    gain_ps: int | None
    # Time of the affected ops if the gain is unknown; None for other causes.
    unknown_ps: int | None
    # Memory that can be saved; None if the cause costs time.
    gain_bytes: int | None
    source_user: str | None
    scope: str | None
    # The slow device; None for other causes.
    device: str | None


class RecordedCauses(NamedTuple):
    """The causes of a step, and the names of all causes that the capture can show."""

    found: list[RecordedCause]
    examined: list[str]


class RecordedDevice(NamedTuple):
    """A device and its steps in order of time."""

    name: str
    device_type: str | None
    clock: ClockName
    step_source: StepSource | None
    # Hash of the HLO texts of all ops.
    program: str
    # Missing from records written by version 2.0.
    hlo: RecordedProgram | None
    # The next two are missing from records of older versions, and for devices after the first.
    causes: RecordedCauses | None
    mfu_at_least: float | None
    steps: list[RecordedStep]


class HostRecord(NamedTuple):
    """The record of one host."""

    xplane_file: str
    host: str
    groups: list[RecordedGroup]
    devices: list[RecordedDevice]


def decode(data: bytes) -> HostRecord:
    """Read a record from the bytes of a file, plain or gzipped."""
    if data.startswith(GZIP_MAGIC):
        data = inflate(data)
    try:
        value = json.loads(data)
    except RecursionError:
        raise UnreadableRecord("not JSON: nested too deeply") from None
    except ValueError as error:
        raise UnreadableRecord(f"not JSON: {str(error)[:200]}") from None
    return record_of(value)


def inflate(data: bytes) -> bytes:
    """Decompress all members of gzip data."""
    members = []
    while data:
        inflater = zlib.decompressobj(wbits=31)
        try:
            members.append(inflater.decompress(data))
        except zlib.error as error:
            raise UnreadableRecord(f"bad gzip data: {error}") from None
        if not inflater.eof:
            raise UnreadableRecord("bad gzip data: the file is cut off")
        data = inflater.unused_data
    return b"".join(members)


def record_of(value: Any) -> HostRecord:
    """Read a record from a JSON object; raise UnreadableRecord if the object is not a record."""
    top = JsonObject(value, "record")
    if top.get("status") == "absent":
        texts = [top.get(name) for name in ("reason", "detail")]
        reasons = [text for text in texts if isinstance(text, str)]
        raise UnreadableRecord(": ".join(["the file holds an error instead of a record", *reasons]))
    top.choice("status", ("ok",))
    top.choice("mode", ("record",))
    top.choice("format", (FORMAT,))
    frames = top.texts("frames")
    groups = [group_of(row, frames) for row in top.rows("groups")]
    if len({(group.kind, group.agg_key) for group in groups}) < len(groups):
        raise top.wrong(
            "groups", "two groups have the same kind and agg_key; each pair must occur only once"
        )
    programs = [program_of(row) for row in top.rows("programs")] if top.has("programs") else []
    devices = [device_of(row, programs) for row in top.rows("devices")]
    if len({device.name for device in devices}) < len(devices):
        raise top.wrong("devices", "two devices have the same name")
    for row in top.rows("steps"):
        place = row.number("device")
        if place >= len(devices):
            raise row.wrong("device", f"no device has the index {place}")
        steps = devices[place].steps
        step = step_of(row, len(groups))
        if steps and step.number <= steps[-1].number:
            raise row.wrong("index", f"{step.number} is not above the index of the preceding step")
        steps.append(step)
    return HostRecord(top.text("xplane_file"), top.text("host"), groups, devices)


def group_of(row: JsonObject, frames: Sequence[str]) -> RecordedGroup:
    places = row.numbers("frames")
    if max(places, default=-1) >= len(frames):
        raise row.wrong("frames", f"no frame has the index {max(places)}")
    return RecordedGroup(
        kind=row.choice("kind", KINDS),
        agg_key=row.text("agg_key"),
        agg_key_kind=row.choice("agg_key_kind", AGG_KEY_KINDS),
        frames=[frames[place] for place in places],
        source=row.text_or_null("source"),
        tf_ops=row.texts("tf_ops"),
        kernel=row.text_or_null("kernel") if row.has("kernel") else None,
    )


def program_of(row: JsonObject) -> RecordedProgram:
    facts: dict[ProgramWhat, dict[str, Fact]] = {}
    for what, wanted in KINDS_OF_FACTS.items():
        if wanted is None:
            # A property that is a single number has no name.
            number = row.number_or_null(what)
            facts[what] = {} if number is None else {"": number}
        else:
            facts[what] = row.map_of(what, wanted)
    return RecordedProgram(row.text("fingerprint"), facts)


def device_of(row: JsonObject, programs: Sequence[RecordedProgram]) -> RecordedDevice:
    """Read the fields of a device; its steps are added later."""
    place = row.number_or_null("hlo")
    if place is not None and place >= len(programs):
        raise row.wrong("hlo", f"there is no program {place}")
    return RecordedDevice(
        name=row.text("device"),
        device_type=row.text_or_null("device_type"),
        clock=row.choice("clock", CLOCKS),
        step_source=row.choice("step_source", STEP_SOURCES),
        program=row.text("program"),
        hlo=None if place is None else programs[place],
        causes=causes_of(row) if row.get("causes") is not None else None,
        mfu_at_least=row.share_or_null("mfu_at_least"),
        steps=[],
    )


def causes_of(row: JsonObject) -> RecordedCauses:
    found = [
        RecordedCause(
            cause=cause.text("cause"),
            gain_ps=cause.number_or_null("gain_ps"),
            unknown_ps=cause.number_or_null("unknown_ps"),
            gain_bytes=cause.number_or_null("gain_bytes"),
            source_user=cause.text_or_null("source_user"),
            scope=cause.text_or_null("scope"),
            device=cause.text_or_null("device"),
        )
        for cause in row.rows("causes")
    ]
    return RecordedCauses(found, row.texts("examined"))


def step_of(row: JsonObject, n_groups: int) -> RecordedStep:
    number, name = row.number("index"), row.text_or_null("name")
    duration = row.number("duration_ps")
    period = row.number_or_null("period_ps")
    if not row.flag("used"):
        if row.text_or_null("why_not") in ("other_program", "not_asked"):
            period = None
        return RecordedStep(number, name, False, StepSums(duration, 0, 0, 0, 0, 0), [], [], period)
    busy, durs, ns = row.number("busy_ps"), row.numbers("durs_ps"), row.numbers("ns")
    if busy > duration:
        raise row.wrong("busy_ps", f"{busy} is longer than the step ({duration} ps)")
    for field, figures in (("durs_ps", durs), ("ns", ns)):
        if len(figures) > n_groups:
            raise row.wrong(field, f"has {len(figures)} figures, but there are {n_groups} groups")
    comm, host, wait = (row.number(f"{part}_ps") for part in ("comm", "host", "wait"))
    # Missing from records written by version 4.
    barrier = row.number_or_null("barrier_ps") or 0
    sums = StepSums(duration, busy, comm, host, wait, barrier)
    return RecordedStep(number, name, True, sums, durs, ns, period)


class JsonObject:
    """Reads the fields of a JSON object; if a field is invalid, raises UnreadableRecord with the
    field's position."""

    def __init__(self, value: Any, where: str) -> None:
        self.where = where
        if not isinstance(value, dict):
            raise UnreadableRecord(f"not a record: {where} is not an object")
        self.get = value.get
        self.has = value.__contains__

    def wrong(self, name: str, what: str) -> UnreadableRecord:
        return UnreadableRecord(f"not a record: {self.where}.{name}: {what}")

    def of_type(self, name: str, wanted: type[T]) -> T:
        value = self.get(name, ...)
        # Compare the exact type, because a bool is also an int in Python.
        if type(value) is not wanted:
            what = (
                "is missing"
                if value is ...
                else f"must be of type {wanted.__name__}, got {value!r:.40}"
            )
            raise self.wrong(name, what)
        typed: T = value
        return typed

    def text(self, name: str) -> str:
        return self.of_type(name, str)

    def text_or_null(self, name: str) -> str | None:
        return None if self.get(name, ...) is None else self.text(name)

    def flag(self, name: str) -> bool:
        return self.of_type(name, bool)

    def choice(self, name: str, choices: Sequence[T]) -> T:
        value = self.get(name, ...)
        for choice in choices:
            if type(value) is type(choice) and value == choice:
                return choice
        what = "is missing" if value is ... else f"must be one of {choices}, got {value!r:.40}"
        raise self.wrong(name, what)

    def number(self, name: str) -> int:
        number = self.of_type(name, int)
        if not 0 <= number < INT_LIMIT:
            raise self.wrong(name, "must be at least 0 and less than 2**100")
        return number

    def number_or_null(self, name: str) -> int | None:
        """Return a number, or None if the field is null or missing, as in records of older
        versions."""
        return None if self.get(name) is None else self.number(name)

    def share_or_null(self, name: str) -> float | None:
        value = self.get(name)
        # Other programs write 1.0 as 1.
        if value is not None and (type(value) not in (int, float) or not 0 <= value < INT_LIMIT):
            raise self.wrong(name, f"must be a number of at least 0, got {value!r:.40}")
        return None if value is None else float(value)

    def texts(self, name: str) -> list[str]:
        return self.list_of(name, str)

    def numbers(self, name: str) -> list[int]:
        numbers = self.list_of(name, int)
        if numbers and not (min(numbers) >= 0 and max(numbers) < INT_LIMIT):
            raise self.wrong(name, "all numbers must be at least 0 and less than 2**100")
        return numbers

    def list_of(self, name: str, wanted: type[T]) -> list[T]:
        values: list[T] = self.of_type(name, list)
        # Check the types of all values at once, because records have many figures.
        if not set(map(type, values)) <= {wanted}:
            raise self.wrong(name, f"all values must be of type {wanted.__name__}")
        return values

    def map_of(self, name: str, wanted: type) -> dict[str, Any]:
        values: dict[str, Any] = self.of_type(name, dict)
        if not set(map(type, values.values())) <= {wanted}:
            raise self.wrong(name, f"all values must be of type {wanted.__name__}")
        return values

    def rows(self, name: str) -> list[JsonObject]:
        values = self.of_type(name, list)
        return [JsonObject(value, f"{self.where}.{name}[{i}]") for i, value in enumerate(values)]
