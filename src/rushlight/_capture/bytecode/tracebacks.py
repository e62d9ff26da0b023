"""Tracebacks that show the frames of the program: entries for interpreted frames in, those of the interpreter out."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rushlight._capture.bytecode.real_frames import is_call_stub, raised_in

if TYPE_CHECKING:
    from rushlight._capture.bytecode.frame import Frame

__all__ = ["add_entry", "program_part"]

OURS = "rushlight._capture."


def program_part(entry: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of modules under `rushlight._capture`."""
    first = last = None
    while entry is not None:
        following = entry.tb_next
        frame = entry.tb_frame
        module = frame.f_globals.get("__name__")
        ours = isinstance(module, str) and module.startswith(OURS)
        if not ours and not is_call_stub(frame.f_code):
            if last is None:
                first = entry
            elif last.tb_next is not entry:
                last.tb_next = entry
            last = entry
        entry = following
    if last is not None and last.tb_next is not None:
        last.tb_next = None
    return first


def add_entry(error: BaseException, frame: Frame) -> None:
    """Put an entry for an interpreted frame at the head of an exception's traceback."""
    offset = frame.decoded.offsets[max(frame.ip - 1, 0)]
    error.__traceback__ = TracebackType(error.__traceback__, raised_in(frame), offset, frame.line)
