"""Convert the arguments of an API call to the words of a command line.

The command-line parser then checks the words, so that each check exists only once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import _peaks
from _breakdown.light import NamedTuple
from _breakdown.pipeline.command_line import Option
from _breakdown.pipeline.names import suggestion
from _breakdown.pipeline.options import OF_CAPTURES
from _proto.trace import STDIN

PEAKS = {name: f"--peak-tflops-{name}" for name in _peaks.DTYPES} | {
    "hbm_gibps": "--peak-hbm-gibps"
}


class Call(NamedTuple):
    """The words of a command line, and values that words cannot express."""

    words: list[str]
    # Traces and records in memory, by the word used as their path.
    in_memory: dict[str, bytes | Mapping[str, Any]]
    processes: int


class Sources:
    """Collects in-memory traces and records, and assigns names to them."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self.in_memory: dict[str, bytes | Mapping[str, Any]] = {}

    def words(self, captures: Any, *, takes_records: bool) -> list[str]:
        """Return a command-line word for each capture."""
        if not isinstance(captures, (list, tuple)):
            return [self._word(captures, takes_records)]
        if self._mode not in OF_CAPTURES:
            raise TypeError(
                f"mode {self._mode} accepts one profile, got a {type(captures).__name__}"
            )
        if not captures:
            raise ValueError("the list of profiles is empty; pass at least one")
        return [self._word(capture, takes_records) for capture in captures]

    def _word(self, capture: Any, takes_records: bool) -> str:
        if isinstance(capture, (str, os.PathLike)):
            return os.fsdecode(capture)
        if isinstance(capture, (bytearray, memoryview)):
            capture = bytes(capture)
        is_record = isinstance(capture, Mapping) and takes_records
        if not isinstance(capture, bytes) and not is_record:
            accepted = "path, bytes or record" if takes_records else "path or bytes"
            raise TypeError(f"a profile must be a {accepted}, got {type(capture).__name__}")
        name = f"<capture {len(self.in_memory) + 1}>" if self.in_memory else STDIN
        self.in_memory[name] = capture
        return name


def call_of(
    profile: Any, mode: str, given: Mapping[str, Any], options: Mapping[str, Option]
) -> Call:
    """Convert an API call to a command line.

    `options` are those that the mode accepts. If `mode` does not exist, they are only --device and
    --host.
    """
    if not isinstance(mode, str):
        raise TypeError(f"mode must be a string, got {type(mode).__name__}")
    sources = Sources(mode)
    profiles = sources.words(profile, takes_records=mode in OF_CAPTURES)
    names = {flag.removeprefix("--").replace("-", "_"): flag for flag in options}
    words = [f"--mode={mode}"]
    processes = 1
    # If `mode` does not exist, drop all options so that the parser reports only the mode.
    for name, value in given.items() if len(options) > 2 else ():
        if value is False and f"no_{name}" in names:
            words.append(names[f"no_{name}"])
        if value is None or value is False:
            continue
        if name == "processes":
            processes = n_processes(value)
        elif name == "peaks" and "peak_hbm_gibps" in names:
            words += words_of_peaks(value)
        elif name not in names:
            known = [*names, *(["peaks"] if "peak_hbm_gibps" in names else []), "processes"]
            raise TypeError(f"mode {mode} has no option {name!r}{suggestion(name, known)}")
        elif name == "baseline":
            captures = sources.words(value, takes_records=True)
            words += words_of(names[name], captures, options[names[name]].repeats)
        else:
            words += words_of(names[name], value, options[names[name]].repeats)
    return Call([*words, "--", *profiles], sources.in_memory, processes)


def words_of(flag: str, value: Any, repeats: bool) -> Iterator[str]:
    """Yield the words that give an option its value on a command line."""
    if value is True:
        yield flag
        return
    values = value if isinstance(value, (list, tuple)) else [value]
    if len(values) != 1 and not repeats:
        raise ValueError(f"{flag} accepts one value, got {len(values)}")
    for one in values:
        yield f"{flag}={text_of(flag, one)}"


def words_of_peaks(peaks: Any) -> Iterable[str]:
    if not isinstance(peaks, Mapping):
        raise TypeError(f"peaks must be a dict, got {type(peaks).__name__}")
    for name, peak in peaks.items():
        if name not in PEAKS:
            raise ValueError(f"peaks must have the keys {', '.join(PEAKS)}, got {name!r}")
        yield from words_of(PEAKS[name], peak, repeats=False)


def text_of(flag: str, value: Any) -> str:
    if isinstance(value, slice):
        parts = [value.start, value.stop, *([] if value.step is None else [value.step])]
        return ":".join("" if part is None else str(part) for part in parts)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, (bytes, Mapping)) or value is None:
        given = type(value).__name__
        raise TypeError(f"{flag} does not accept a value of type {given}; pass text, as in --help")
    return str(value)


def n_processes(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"processes must be a whole number above 0, got {value!r}")
    return value
