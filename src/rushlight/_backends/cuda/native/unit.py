"""The native half of a GPU, loaded: one unit of machine code a device, and a table that all of them share."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.native import launch_native, memory_native
from rushlight._backends.cuda.native.launch_native import allocate_zeroed, fail, launch
from rushlight._backends.cuda.native.memory_native import STATISTICS, allocate, release
from rushlight._backends.cuda.native.words_native import AT, MOST_DEVICES, STATE, STATE_WORDS, THREAD_WORDS, THREADS
from rushlight._backends.protocol import Block
from rushlight._host.device_records import DEVICE, NativeDevice
from rushlight._host.dispatch_words import HOST
from rushlight._host.runtime import Unit
from rushlight._host.runtime import runtime as host_runtime
from rushlight._native import jit, native, static
from rushlight._native.compiled import compile_native

if TYPE_CHECKING:
    from rushlight._types.spec import Spec

__all__ = ["MOST_DEVICES", "DeviceUnit", "GpuPlans", "Shared"]

FUNCTIONS = static("rl_cuda_functions", 8 * len(DEVICE))


@native("void(ptr)")
def cuda_tables(out):
    """Where the unit's tables lie; fills in the functions that the host calls."""
    FUNCTIONS[DEVICE.allocate] = allocate
    FUNCTIONS[DEVICE.allocate_zeroed] = allocate_zeroed
    FUNCTIONS[DEVICE.release] = release
    FUNCTIONS[DEVICE.launch] = launch
    FUNCTIONS[DEVICE.fail] = fail
    out.ptr[0] = STATE
    out.ptr[1] = STATISTICS
    out.ptr[2] = FUNCTIONS


_METHODS = {
    name: f"py_{name}"
    for name in (
        "admit", "best", "lend", "note", "notes", "ready", "state", "take", "take_back", "tell_thread", "thread", "withdraw",
    )
}  # fmt: skip
_ROOTS = (
    cuda_tables, launch_native.program_stub, launch_native.no_launch, launch_native.py_note, launch_native.py_notes, launch_native.py_tell_thread,
    launch_native.py_thread, memory_native.py_admit, memory_native.py_best, memory_native.py_lend, memory_native.py_ready,
    memory_native.py_state, memory_native.py_take, memory_native.py_take_back, memory_native.py_withdraw,
)  # fmt: skip


class Shared:
    """State of all units of a process: the streams of its threads, and who started the last launches."""

    def __init__(self) -> None:
        self.threads = (ctypes.c_int64 * (THREADS * THREAD_WORDS))(*[-1] * (THREADS * THREAD_WORDS))
        self.notes = (ctypes.c_int64 * (3 * launch_native.NOTES))()
        self.count = (ctypes.c_int64 * 1)()


class DeviceUnit(Unit):
    """The unit of one device.  `words` is its table (see `words_native.AT`), `statistics` five numbers by four for the
    small pool, for the large one and for both.

    The functions that Python calls are described in `memory_native` and `launch_native`.
    """

    def __init__(self, index: int, shared: Shared) -> None:
        host = host_runtime()
        data = compile_native(_ROOTS, imported=(HOST.symbol,))
        self._loaded = jit.load(data, [f.symbol for f in _ROOTS], {HOST.symbol: host.table})
        self._loaded.pin()  # storages may live as long as the process
        self.make_callable, self.index, self.shared = host.make_callable, index, shared
        out = (ctypes.c_uint64 * 3)()
        self.plain("cuda_tables", ctypes.c_void_p)(ctypes.addressof(out))
        self.words = (ctypes.c_int64 * STATE_WORDS).from_address(out[0])
        self.statistics = (ctypes.c_int64 * memory_native.STATISTIC_WORDS).from_address(out[1])
        self.functions = out[2]
        self.stub = self.address("program_stub")
        for name, symbol in _METHODS.items():
            setattr(self, name, self.method(symbol, name))
        self.words[AT.slow], self.words[AT.index] = 1, index
        self.words[AT.threads] = ctypes.addressof(shared.threads)
        self.words[AT.notes], self.words[AT.note_count] = ctypes.addressof(shared.notes), ctypes.addressof(shared.count)
        self._keep: list[Any] = [shared]
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._keep))  # native code points to all of it

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def hold(self, value: Any) -> int:
        """Keep an object for as long as the process lives; its address."""
        self._keep.append(value)
        return id(value)

    def use(self, word: int, function: Callable[..., Any]) -> None:
        """Let native code call a function of Python, by a word of `AT`."""
        self.words[word] = self.hold(function)


class GpuPlans(NativeDevice):
    """A GPU as native plans know it: numbers and elements go through Python."""

    readers: dict[str, int] = {}
    codes: dict[str, int] = {}

    def __init__(self, unit: DeviceUnit, owner: Block) -> None:
        self.unit, self.owner, self.functions = unit, owner, unit.functions
        (ctypes.c_int64 * len(DEVICE)).from_address(unit.functions)[DEVICE.owner.place] = unit.hold(owner)

    def nested_reader(self, spec: Spec) -> None:
        """There is none: elements are copied to the host first."""
        return
