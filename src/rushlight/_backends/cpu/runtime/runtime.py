"""The CPU's runtime: one object file, loaded by the first use of `runtime()`.

It holds the memory pool, the worker threads, the stub of kernels, and what reads and writes elements for Python
(`pool_native`, `threads_native`, `stub_native`, `elements_native`).  The host reaches it through the functions of
`device`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rushlight._backends.cpu.runtime import (
    elements,
    elements_native,
    limits,
    pool_native,
    program_native,
    stub_native,
    threads_native,
)
from rushlight._backends.cpu.runtime.pool_native import STATE, block_alloc, block_alloc_zeroed, block_free
from rushlight._backends.cpu.runtime.stub_native import launch, rl_raise
from rushlight._backends.cpu.runtime.threads_native import THREADS
from rushlight._base.errors import OutOfMemoryError
from rushlight._base.lazy import LazyModule
from rushlight._host.device_records import DEVICE, NativeDevice
from rushlight._host.dispatch_words import HOST
from rushlight._host.runtime import Unit
from rushlight._host.runtime import runtime as host_runtime
from rushlight._native import jit, native, static
from rushlight._native.compiled import compile_native, native_ahead
from rushlight._native.objectcode import begins_empty

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = LazyModule("ctypes")

__all__ = ["CpuRuntime", "is_loaded", "runtime"]

FUNCTIONS = static("rl_cpu_functions", 8 * len(DEVICE))


@native("void(ptr)")
def cpu_tables(out):
    """Where the runtime's tables lie; fills in the functions that the host calls."""
    FUNCTIONS[DEVICE.allocate] = block_alloc
    FUNCTIONS[DEVICE.allocate_zeroed] = block_alloc_zeroed
    FUNCTIONS[DEVICE.release] = block_free
    FUNCTIONS[DEVICE.launch] = launch
    FUNCTIONS[DEVICE.fail] = rl_raise
    out.ptr[0] = STATE
    out.ptr[1] = THREADS
    out.ptr[2] = FUNCTIONS


_ROOTS = (
    cpu_tables,
    pool_native.py_alloc, pool_native.py_alloc_zeroed, pool_native.py_empty_cache, pool_native.py_resize,
    pool_native.block_alloc, pool_native.block_alloc_zeroed, pool_native.block_free,
    program_native.program_stub, program_native.over_tensors_stub,
    stub_native.kernel_stub, stub_native.launch, stub_native.rl_fail, stub_native.rl_raise,
    threads_native.rl_parallel_for, threads_native.threads_hold, threads_native.threads_init, threads_native.threads_stop,
    threads_native.threads_forked, threads_native.flush_denormals, threads_native.spin_many,
    elements_native.py_nested, elements_native.py_of_numbers, elements_native.py_coordinates,
    *elements_native.READERS.values(),
)  # fmt: skip

# what kernels and bound native functions may call here
_SHARED = ("rl_fail", "rl_raise", "rl_parallel_for")
_METHODS = ("alloc", "alloc_zeroed", "empty_cache", "resize", "nested", "of_numbers", "coordinates")


class CpuRuntime(Unit):
    """The loaded runtime.  `state` and `threads` are its tables, as arrays of 64-bit integers.

    `alloc(nbytes)` and `alloc_zeroed(nbytes)` return a `Storage`; `empty_cache()` gives free memory back;
    `resize(storage, nbytes)` changes a Storage of the pool, keeping what fits.  `symbols` are addresses for kernels to
    link to, those of the host among them; `device` is what native plans know of the CPU.
    """

    def __init__(self) -> None:
        if begins_empty():  # the host's unit and this one are compiled side by side
            native_ahead(_ROOTS, imported=(HOST.symbol,))
        host = host_runtime()
        data = compile_native(_ROOTS, imported=(HOST.symbol,))
        self._loaded = jit.load(data, [f.symbol for f in _ROOTS], {HOST.symbol: host.table})
        self._loaded.pin()  # worker threads live in it
        self.symbols = {**host.symbols, **{name: self._loaded[name] for name in _SHARED}}
        host.symbols.update(self.symbols)
        self.make_callable, self.kernel_address = host.make_callable, host.kernel_address
        self.Storage, self.from_owner = host.Storage, host.from_owner
        out = (ctypes.c_uint64 * 3)()
        self.plain("cpu_tables", ctypes.c_void_p)(ctypes.addressof(out))
        self.state = (ctypes.c_int64 * pool_native.STATE_WORDS).from_address(out[0])
        self.threads = (ctypes.c_int64 * 64).from_address(out[1])
        self.state[pool_native.OOM_ERROR] = id(OutOfMemoryError)
        for name in _METHODS:
            setattr(self, name, self.method(f"py_{name}", name))
        self.stub, self.program_stub = self.address("kernel_stub"), self.address("program_stub")
        self.over_tensors_stub = self.address("over_tensors_stub")
        self.device: NativeDevice = elements.CpuElements(
            out[2], {name: self.address(reader.symbol) for name, reader in elements_native.READERS.items()}, self
        )

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


_RUNTIME: list[CpuRuntime] = []


def runtime() -> CpuRuntime:
    """The CPU's runtime in this process; the first call loads it and sets its limits."""
    if not _RUNTIME:
        loaded = CpuRuntime()
        limits.configure(loaded)
        _RUNTIME.append(loaded)
    return _RUNTIME[0]


def is_loaded() -> bool:
    """Whether this process has the CPU's runtime already."""
    return bool(_RUNTIME)
