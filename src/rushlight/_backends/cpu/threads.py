"""How many threads run a kernel, and when they start and stop.  The pool itself is in `threads_native`."""

from __future__ import annotations

import atexit
import os
import time
from typing import TYPE_CHECKING

from rushlight._backends.cpu import runtime as _runtime
from rushlight._backends.cpu import threads_native
from rushlight._backends.cpu.target import usable_cores
from rushlight._base.knobs import Knob
from rushlight._base.log import log

if TYPE_CHECKING:
    from rushlight._backends.cpu.runtime import Runtime

__all__ = ["NUM_THREADS", "get_num_threads", "set_num_threads", "stop_threads"]

_SPIN_SECONDS = 40e-6  # about what a sleep and a wake-up cost


def _default_threads() -> int:
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(text) if text.isdigit() and int(text) > 0 else usable_cores()


NUM_THREADS: Knob[int] = Knob(
    "num_threads", env="RUSHLIGHT_NUM_THREADS", kind=int, default=_default_threads,
    doc="Threads that run a kernel (default: OMP_NUM_THREADS, else the cores this process may use).",
)  # fmt: skip


def _clamp(count: int) -> int:
    return max(1, min(count, threads_native.MAX_THREADS))


def configure(runtime: Runtime) -> None:
    """Prepare the pool of a fresh runtime; threads start with the first kernel that has work for them."""
    import ctypes

    runtime.plain("threads_init")()
    spin_many = runtime.plain("spin_many", ctypes.c_int64)
    spin_many(1)
    start = time.perf_counter()
    spin_many(500)
    step = max((time.perf_counter() - start) / 500, 1e-9)
    runtime.threads[threads_native.WANTED] = _clamp(NUM_THREADS.get())
    # with more threads than cores, a spinning thread keeps a working one from running
    crowded = NUM_THREADS.get() > usable_cores()
    runtime.threads[threads_native.SPIN] = 0 if crowded else int(_SPIN_SECONDS / step)
    forked = runtime.plain("threads_forked")
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forked)
    atexit.register(stop_threads)


def get_num_threads() -> int:
    """The number of threads that run a kernel, the calling one included."""
    return int(_runtime.runtime().threads[threads_native.WANTED]) if _runtime._RUNTIME else _clamp(NUM_THREADS.get())


def set_num_threads(count: int) -> None:
    """Let `count` threads, the calling one included, run a kernel.  Results do not depend on it, to the last bit.

    Raises TypeError unless `count` is an int, and RuntimeError unless it is positive.
    """
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"set_num_threads expects an int, but got {type(count).__name__}")
    if count <= 0:
        raise RuntimeError("set_num_threads expects a positive integer")
    NUM_THREADS.set(count)
    if _runtime._RUNTIME:
        _stop(_clamp(count))
        log("threads", f"{_clamp(count)} threads")


def stop_threads() -> None:
    """Stop the worker threads and wait for them; the next parallel kernel starts them again."""
    if _runtime._RUNTIME:
        _stop(0)


def _stop(wanted: int) -> None:
    import ctypes

    _runtime.runtime().plain("threads_stop", ctypes.c_int64)(wanted)
