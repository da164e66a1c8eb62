"""Read the stack frames of a program."""

from __future__ import annotations

from collections.abc import Callable

from _breakdown.light import NamedTuple
from _proto import hlo_pb2 as pb
from _proto.trace.wire import parse


class StackFrame(NamedTuple):
    """A stack frame; `place` is `file:line`, and `caller_id` is the id of the calling frame (0 for
    the outermost frame)."""

    place: str
    file: str
    column: int
    caller_id: int


class StackFrames:
    """A program's stack frames by id; ids start at 1."""

    def __init__(self, index: pb.StackFrameIndex, complain: Callable[[str], None]) -> None:
        self._index = index
        self._complain = complain
        # Caches by id, because many instructions share a frame.
        self._frames: dict[int, StackFrame | None] = {}
        self._stacks: dict[int, tuple[list[StackFrame], bool]] = {}
        self._lines: dict[tuple[int, Callable[[str], bool]], str | None] = {}

    def frame(self, frame_id: int) -> StackFrame | None:
        if frame_id not in self._frames:
            self._frames[frame_id] = self._read(frame_id)
            if self._frames[frame_id] is None:
                self._complain(f"stack frame {frame_id} has no file and line")
        return self._frames[frame_id]

    def stack(self, frame_id: int) -> tuple[list[StackFrame], bool]:
        """Return a frame and its callers, innermost first, and whether the stack reaches the
        outermost frame."""
        if frame_id not in self._stacks:
            self._stacks[frame_id] = self._read_stack(frame_id)
        return self._stacks[frame_id]

    def line_where(self, frame_id: int, is_wanted: Callable[[str], bool]) -> str | None:
        """Return the line of the innermost frame of a stack that is in a wanted file."""
        key = frame_id, is_wanted
        if key not in self._lines:
            frames, _ = self.stack(frame_id)
            wanted = (frame.place for frame in frames if is_wanted(frame.file))
            self._lines[key] = next(wanted, None)
        return self._lines[key]

    def _read_stack(self, frame_id: int) -> tuple[list[StackFrame], bool]:
        frames: dict[int, StackFrame] = {}
        while frame_id:
            frame = self.frame(frame_id)
            if frame_id in frames:
                self._complain(f"stack frame {frame_id} calls itself")
            if frame is None or frame_id in frames:
                return list(frames.values()), False
            frames[frame_id] = frame
            frame_id = frame.caller_id
        return list(frames.values()), True

    def _read(self, frame_id: int) -> StackFrame | None:
        index = self._index
        if not 0 < frame_id <= len(index.stack_frames):
            return None
        frame = parse(pb.StackFrame, index.stack_frames[frame_id - 1])
        if frame is None or not 0 < frame.file_location_id <= len(index.file_locations):
            return None
        location = parse(pb.FileLocation, index.file_locations[frame.file_location_id - 1])
        if location is None or not 0 < location.file_name_id <= len(index.file_names):
            return None
        file = index.file_names[location.file_name_id - 1]
        if not file or location.line <= 0:
            return None
        place = f"{file}:{location.line}"
        return StackFrame(place, file, location.column, frame.parent_frame_id)
