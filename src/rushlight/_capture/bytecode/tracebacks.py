"""Tracebacks that show the frames of the program: entries for interpreted frames in, those of the interpreter out."""

from __future__ import annotations

from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any

from rushlight._capture.bytecode.real_frames import frame_of, is_call_stub, raised_in, waiting

if TYPE_CHECKING:
    from rushlight._capture.bytecode.frame import Frame

__all__ = ["Entry", "add_entry", "entries", "program_part", "traceback_of"]

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


Entry = tuple[CodeType, dict[str, Any], int, int]


def entries(traceback: TracebackType | None) -> tuple[Entry, ...]:
    """Entries from which `traceback_of` makes the same traceback, without the values of locals."""
    found: list[Entry] = []
    while traceback is not None:
        frame = traceback.tb_frame
        line = traceback.tb_lineno if traceback.tb_lineno is not None else -1  # an instruction of no line
        found.append((waiting(frame.f_code), frame.f_globals, traceback.tb_lasti, line))
        traceback = traceback.tb_next
    return tuple(found)


def traceback_of(entries: tuple[Entry, ...], held: tuple[dict[str, Any], ...] = ()) -> TracebackType | None:
    """A traceback with the same files, names, lines and columns as that of which `entries` were taken; `held`, if
    given, are locals of each of its frames.
    """
    found: TracebackType | None = None
    for (code, namespace, offset, line), names in zip(
        reversed(entries), reversed(held or ({},) * len(entries)), strict=True
    ):
        stub = waiting(code, tuple(names)) if names else code
        found = TracebackType(found, frame_of(stub, namespace, names), offset, line)
    return found
