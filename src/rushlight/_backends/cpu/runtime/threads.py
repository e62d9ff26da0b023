"""How many threads run a kernel.  The pool itself is in `threads_native`, the knob in `limits`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rushlight._backends.cpu.runtime import limits
from rushlight._backends.cpu.runtime import runtime as _runtime
from rushlight._backends.cpu.runtime.limits import NUM_THREADS
from rushlight._backends.cpu.runtime.threads_native import WANTED
from rushlight._base.lazy import LazyModule
from rushlight._base.log import log

__all__ = ["NUM_THREADS", "alone", "get_num_threads", "set_flush_denormal", "set_num_threads", "stop_threads"]

_ctypes = LazyModule("ctypes")


def get_num_threads() -> int:
    """The number of threads that run a kernel, the calling one included."""
    return int(_runtime.runtime().threads[WANTED]) if _runtime.is_loaded() else limits.wanted_threads()


def set_num_threads(count: int) -> None:
    """Let `count` threads, the calling one included, run a kernel.  Results do not depend on it, to the last bit.

    Raises TypeError unless `count` is an int, and RuntimeError unless it is positive.
    """
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"set_num_threads expects an int, but got {type(count).__name__}")
    if count <= 0:
        raise RuntimeError("set_num_threads expects a positive integer")
    NUM_THREADS.set(count)
    if _runtime.is_loaded():
        limits.apply_threads(_runtime.runtime())
    log("threads", f"{limits.wanted_threads()} threads")


def set_flush_denormal(mode: bool) -> bool:
    """Take denormal numbers for zero, or not, in this thread and the pool's workers; False where that cannot be."""
    runtime = _runtime.runtime()
    supported = _ctypes.CFUNCTYPE(_ctypes.c_int64, _ctypes.c_int64)(runtime.address("flush_denormals"))(int(mode))
    stop_threads()  # they inherit the setting when they start again
    return bool(supported)


@contextmanager
def alone() -> Iterator[None]:
    """Within it every kernel runs on the thread that calls it."""
    hold = _runtime.runtime().plain("threads_hold", _ctypes.c_int64)
    try:
        hold(1)  # in here: an interrupt may come as soon as it returns
        yield
    finally:
        hold(0)


def stop_threads() -> None:
    """Stop the worker threads and wait for them; the next parallel kernel starts them again."""
    if _runtime.is_loaded():
        _runtime.runtime().plain("threads_stop", _ctypes.c_int64)(0)
