"""The stack frames of a program, as its instructions name them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from _proto import hlo_pb2 as pb
from _proto.trace.wire import parse

# How much of a text is copied in the time that a step of a search takes.
BYTES_A_STEP = 100
# No stack that a compiler records is deeper.
_MAX_FRAMES = 4096


class Frames:
    """The stack frames of a program, whose ids count from 1. A frame tells its own caller."""

    def __init__(
        self,
        index: pb.StackFrameIndex,
        complain: Callable[[str], None],
        spend: Callable[[int], None],
    ) -> None:
        self._complain = complain
        self._spend = spend
        self._index = index
        # Each of them once, as many frames as there are in it.
        self._files = list(index.file_names)
        self._known: dict[int, tuple[str, int, int, int] | None] = {}
        self._lines: dict[int, str | None] = {}
        self._wanted: dict[tuple[int, Callable[[str], bool]], str | None] = {}

    def line(self, frame_id: int) -> str | None:
        """Kept, since many instructions may share one."""
        if frame_id not in self._lines:
            frame = self._frame(frame_id)
            # Characters take up to four bytes.
            self._spend(4 * len(frame[0]) // BYTES_A_STEP if frame else 0)
            self._lines[frame_id] = f"{frame[0]}:{frame[1]}" if frame else None
        return self._lines[frame_id]

    def stack(self, frame_id: int) -> str | None:
        """The frames from the outermost in; None where they don't end."""
        frames: list[str] = []
        for each in self._outward(frame_id):
            if each is None:
                return None
            _, file, line, column = each
            self._spend(len(file) // BYTES_A_STEP)
            frames.append(f"{file}:{line}:{column}")
        return "\n".join(reversed(frames)) or None

    def line_where(self, frame_id: int, is_wanted: Callable[[str], bool]) -> str | None:
        """The line of the innermost frame whose file is wanted; kept as others are."""
        key = frame_id, is_wanted
        if key not in self._wanted:
            self._wanted[key] = None
            for each in filter(None, self._outward(frame_id)):
                found, file, _, _ = each
                self._spend(len(file) // BYTES_A_STEP)
                if is_wanted(file):
                    self._wanted[key] = self.line(found)
                    break
        return self._wanted[key]

    def _outward(self, frame_id: int) -> Iterator[tuple[int, str, int, int] | None]:
        """Id, file, line and column of a frame and its callers; None last if they don't end."""
        seen: set[int] = set()
        while frame_id:
            frame = self._frame(frame_id)
            if frame is None or frame_id in seen or len(seen) >= _MAX_FRAMES:
                if frame is not None:
                    self._complain(f"stack frame {frame_id} has no outermost caller")
                yield None
                return
            seen.add(frame_id)
            self._spend(1)
            file, line, column, caller_id = frame
            yield frame_id, file, line, column
            frame_id = caller_id

    def _frame(self, frame_id: int) -> tuple[str, int, int, int] | None:
        """File, line, column, and the id of the caller's frame."""
        if frame_id not in self._known:
            self._known[frame_id] = frame = self._read(frame_id)
            if frame is None:
                self._complain(f"stack frame {frame_id} has no file and line")
        return self._known[frame_id]

    def _read(self, frame_id: int) -> tuple[str, int, int, int] | None:
        index = self._index
        if not 0 < frame_id <= len(index.stack_frames):
            return None
        frame = parse(pb.StackFrame, index.stack_frames[frame_id - 1])
        if frame is None or not 0 < frame.file_location_id <= len(index.file_locations):
            return None
        location = parse(pb.FileLocation, index.file_locations[frame.file_location_id - 1])
        if location is None or not 0 < location.file_name_id <= len(self._files):
            return None
        file = self._files[location.file_name_id - 1]
        if not file or location.line <= 0:
            return None
        return file, location.line, location.column, frame.parent_frame_id
