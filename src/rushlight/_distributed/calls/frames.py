"""Messages between workers: frames of a kind, a number, integers, and parts of bytes.

A frame is a head (kind, number of integers, number of parts, number of the request), its integers of eight bytes (little
endian), the lengths of its parts, and the parts.  Each kind says how many integers and parts it has; what differs ends
the connection.  Parts are what users send: they are unpickled above, and only after the other side has shown that it knows
the job's token (see `links`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["FRAME_TYPES", "MOST_INTEGERS", "Frame", "FrameType", "Malformed", "packed_frame", "read_frame"]

_HEAD = struct.Struct("<BBHIQ")  # kind, zero, integers, parts, number
MOST_INTEGERS, MOST_PARTS = 60_000, 1 << 20
LONGEST_PART = 1 << 40
_LONGEST_COPY = 32 << 10  # parts up to this length are joined with the head: one call of the system


class Malformed(Exception):
    """The bytes that came are no frame."""


class FrameType:
    """Types of frames."""

    (
        ANSWER, FAILURE, CALL, REMOTE, FETCH, FORK, ACCEPT, DELETE, GRADIENTS, MARK, CLEANUP, GOODBYE,
    ) = range(1, 13)  # fmt: skip


class Shape(NamedTuple):
    """How many integers and parts a frame has: at least, at most."""

    integers: tuple[int, int]
    parts: tuple[int, int]


_SOME = (1, MOST_PARTS)
FRAME_TYPES = {
    FrameType.ANSWER: Shape((0, MOST_INTEGERS), (0, MOST_PARTS)),  # to the request with this number
    FrameType.FAILURE: Shape((0, 0), (1, 1)),  # the error of a request, as text
    FrameType.CALL: Shape((2, 2), _SOME),  # autograd context, message; function and arguments
    FrameType.REMOTE: Shape((4, 4), _SOME),  # context, message, reference, fork; function and arguments
    FrameType.FETCH: Shape((2, 2), (0, 0)),  # context, reference
    FrameType.FORK: Shape((2, 2), (0, 0)),  # reference, fork
    FrameType.ACCEPT: Shape((1, 1), (0, 0)),  # fork
    FrameType.DELETE: Shape((2, 2), (0, 0)),  # reference, fork
    FrameType.GRADIENTS: Shape((4, 4), _SOME),  # context, pass, message, whether the graph is kept; gradients
    FrameType.MARK: Shape((3, MOST_INTEGERS), (0, 0)),  # context, pass, messages
    FrameType.CLEANUP: Shape((1, 1), (0, 0)),  # context
    FrameType.GOODBYE: Shape((0, 0), (0, 0)),  # this worker ends on purpose
}


class Frame(NamedTuple):
    """One message."""

    kind: int
    number: int
    integers: tuple[int, ...]
    parts: list[Any]


def packed_frame(frame: Frame) -> list[Any]:
    """The buffers of a frame, to be sent one behind the other."""
    kind, number, integers, parts = frame
    lengths = [memoryview(part).nbytes for part in parts]
    head = bytearray(_HEAD.pack(kind, 0, len(integers), len(parts), number))
    head += struct.pack(f"<{len(integers)}q{len(parts)}Q", *integers, *lengths)
    buffers: list[Any] = [head]
    for part, length in zip(parts, lengths, strict=True):
        if length <= _LONGEST_COPY and len(buffers[-1]) <= _LONGEST_COPY and isinstance(buffers[-1], bytearray):
            buffers[-1] += memoryview(part).cast("B") if length else b""
        elif length:
            buffers.append(memoryview(part).cast("B"))
    return buffers


def read_frame(stream: Any) -> Frame | None:
    """The next frame of a buffered stream; None at its end, Malformed for anything else."""
    head = stream.read(_HEAD.size)
    if not head:
        return None
    kind, zero, n_integers, n_parts, number = _HEAD.unpack(_whole(head, _HEAD.size))
    shape = FRAME_TYPES.get(kind)
    if shape is None or zero:
        raise Malformed(f"no frame has the kind {kind}")
    for count, (least, most), what in ((n_integers, shape.integers, "integers"), (n_parts, shape.parts, "parts")):
        if not least <= count <= most:
            raise Malformed(f"a frame of kind {kind} has {count} {what}")
    size = 8 * (n_integers + n_parts)
    numbers: Sequence[int] = struct.unpack(f"<{n_integers}q{n_parts}Q", _whole(stream.read(size), size)) if size else ()
    parts = [_part(stream, length) for length in numbers[n_integers:]]
    return Frame(kind, number, tuple(numbers[:n_integers]), parts)


def _part(stream: Any, length: int) -> bytearray:
    if length > LONGEST_PART:
        raise Malformed(f"a part of {length} bytes")
    part = bytearray(length)
    view, at = memoryview(part), 0
    while at < length:
        came = stream.readinto(view[at:])
        if not came:
            raise Malformed("the connection ended within a frame")
        at += came
    return part


def _whole(data: bytes, size: int) -> bytes:
    if len(data) < size:
        raise Malformed("the connection ended within a frame")
    return data
