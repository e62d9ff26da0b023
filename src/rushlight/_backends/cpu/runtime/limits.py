"""The limits of the runtime, as knobs, and how a fresh runtime gets them: memory to keep, memory to hold, threads."""

from __future__ import annotations

import atexit
import os
import time
from functools import partial
from typing import TYPE_CHECKING

from rushlight._backends.cpu.runtime import pool_native, threads_native
from rushlight._base.knobs import Knob
from rushlight._base.lazy import LazyModule
from rushlight._native.target import host_target, usable_cores

if TYPE_CHECKING:
    import ctypes

    from rushlight._backends.cpu.runtime.runtime import CpuRuntime
else:
    ctypes = LazyModule("ctypes")

__all__ = [
    "MEMORY_LIMIT_MB",
    "NUM_THREADS",
    "POOL_CAP_MB",
    "QUANTUM_SECONDS",
    "SPIN_SECONDS",
    "apply_threads",
    "configure",
    "wanted_threads",
]


def _default_cap() -> int:
    """A quarter of the memory: enough for the buffers of a training step, little enough to leave room for others."""
    return max(64, host_target().memory_bytes // 4 >> 20)


def _default_threads() -> int:
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(text) if text.isdigit() and int(text) > 0 else usable_cores()


POOL_CAP_MB: Knob[int] = Knob(
    "pool_cap_mb",
    env="RUSHLIGHT_POOL_CAP_MB",
    kind=int,
    default=_default_cap,
    doc="Most megabytes of freed CPU memory to keep for reuse (default: a quarter of the machine's memory).",
)
MEMORY_LIMIT_MB: Knob[int] = Knob(
    "memory_limit_mb",
    env="RUSHLIGHT_MEMORY_LIMIT_MB",
    kind=int,
    default=0,
    doc="Most megabytes of CPU memory to hold in all; 0 for no limit but the system's.",
)
NUM_THREADS: Knob[int] = Knob(
    "num_threads",
    env="RUSHLIGHT_NUM_THREADS",
    kind=int,
    default=_default_threads,
    doc="Threads that run a kernel (default: OMP_NUM_THREADS, else the cores this process may use).",
)

SPIN_SECONDS = 40e-6  # about what a sleep and a wake-up cost
QUANTUM_SECONDS = 3e-3  # no scheduler's slice is much shorter; where one is, the pool adapts
_STEP: list[float] = []  # seconds that one step of spinning takes


def wanted_threads() -> int:
    """The number of threads that the knob asks for, within what the pool can hold."""
    return max(1, min(NUM_THREADS.get(), threads_native.MAX_THREADS))


def apply_threads(runtime: CpuRuntime) -> None:
    """Let the pool use the wanted number of threads; with more of them than cores they do not spin while they wait.

    (A thread that spins would keep one that has work from running.)
    """
    count = wanted_threads()
    runtime.threads[threads_native.SPIN] = 0 if count > usable_cores() else int(SPIN_SECONDS / _STEP[0])
    runtime.plain("threads_stop", ctypes.c_int64)(count)


def configure(runtime: CpuRuntime) -> None:
    """Prepare a fresh runtime.  Worker threads start with the first kernel that has work for them."""
    runtime.state[pool_native.CAP] = POOL_CAP_MB.get() << 20
    runtime.state[pool_native.LIMIT] = MEMORY_LIMIT_MB.get() << 20
    target = host_target()
    runtime.state[pool_native.RESERVE] = target.memory_bytes // 16
    runtime.state[pool_native.GROUP_LIMIT] = target.group_bytes
    runtime.plain("threads_init")()
    spin_many = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(runtime.address("spin_many"))
    spin_many(1)
    start = time.perf_counter()
    ticks = spin_many(500)
    spent = time.perf_counter() - start
    _STEP[:] = [max(spent / 500, 1e-9)]
    longest = int(ticks * QUANTUM_SECONDS / spent)
    runtime.threads[threads_native.LONGEST_QUANTUM] = longest
    runtime.threads[threads_native.QUANTUM] = longest // 2
    apply_threads(runtime)
    stop = runtime.plain("threads_stop", ctypes.c_int64)
    if hasattr(os, "register_at_fork"):
        # The workers stop before a fork, and start again with the next kernel: a process of one thread is copied whole,
        # while Python warns (from 3.12 on) where others are running that the copy will lack.
        os.register_at_fork(before=partial(stop, 0), after_in_child=runtime.plain("threads_forked"))
    atexit.register(stop, 0)
