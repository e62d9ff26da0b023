"""`torch.cuda.nvtx`: marks for NVIDIA's profilers, through the library of the wheel `nvidia-nvtx-cu12` or the toolkit.

Where that is not installed nobody can read marks, and making them does nothing.  Without a GPU it raises RuntimeError;
`torch.profiler.record_function` names ranges there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from rushlight._interface.base import require
from rushlight.cuda.access import on_gpu

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


class _Depth(threading.local):
    value = 0


_depth, _identities = _Depth(), count(1)


def _library() -> Any:
    """The library, or None."""
    return require("rushlight._backends.cuda.driver.nvtx").library()


@on_gpu
def mark(msg: str) -> None:
    """Mark this moment."""
    found = _library()
    if found is not None:
        found.nvtxMarkA(msg.encode())


@on_gpu
def range_push(msg: str) -> int:
    """Begin a range within those that are open; how many were."""
    found = _library()
    if found is not None:
        found.nvtxRangePushA(msg.encode())
    _depth.value += 1
    return _depth.value - 1


@on_gpu
def range_pop() -> int:
    """End the range that began last; how many are still open, -1 where none was."""
    found = _library()
    if found is not None:
        found.nvtxRangePop()
    _depth.value = max(_depth.value, 0) - 1
    left = _depth.value
    _depth.value = max(left, 0)
    return left


@on_gpu
def range_start(msg: str) -> int:
    """Begin a range that may end in another thread; what `range_end` takes."""
    found = _library()
    return next(_identities) if found is None else int(found.nvtxRangeStartA(msg.encode()))


@on_gpu
def range_end(range_id: int) -> None:
    """End such a range."""
    found = _library()
    if found is not None:
        found.nvtxRangeEnd(range_id)


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A context and decorator: a range of what runs inside; the message is formatted with the arguments."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
