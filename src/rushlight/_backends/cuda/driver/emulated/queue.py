"""The emulated driver's C functions, loaded, and the rows of what native code gave it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

from rushlight._backends.cuda.driver.emulated import queue_native
from rushlight._backends.cuda.driver.emulated.queue_native import (
    CATCH_UP,
    DRAIN,
    EAGER,
    FAILED,
    LAUNCH,
    LAUNCH_GRAPH,
    LEND,
    MEMSET,
    NOTED,
    QUEUE,
    QUEUE_WORDS,
    SET_NODE,
    TAKE_BACK,
)
from rushlight._host.dispatch_words import HOST
from rushlight._host.runtime import Unit
from rushlight._host.runtime import runtime as host_runtime
from rushlight._native import jit, native
from rushlight._native.compiled import compile_native

__all__ = ["LAUNCH", "LAUNCH_GRAPH", "LEND", "MEMSET", "SET_NODE", "TAKE_BACK", "Queue"]


@native("ptr()")
def queue_table():
    """Where the table of the queue lies."""
    return QUEUE


_ROOTS = (
    queue_table,
    queue_native.emulated_launch,
    queue_native.emulated_launch_graph,
    queue_native.emulated_set_node,
    queue_native.emulated_query,
    queue_native.emulated_encode_map,
    queue_native.emulated_encode_windows,
    queue_native.emulated_lend,
    queue_native.emulated_memset,
    queue_native.emulated_take_back,
    queue_native.py_rows,
    queue_native.py_thread,
)


class Queue(Unit):
    """Calls of the driver by native code that nobody has run yet; `functions` are addresses by names."""

    def __init__(self, drain: Callable[[], None], catch_up: Callable[[], None]) -> None:
        host = host_runtime()
        data = compile_native(_ROOTS, imported=(HOST.symbol,))
        self._loaded = jit.load(data, [f.symbol for f in _ROOTS], {HOST.symbol: host.table})
        self._loaded.pin()
        self.make_callable = host.make_callable
        self.words = (ctypes.c_int64 * QUEUE_WORDS).from_address(self.plain("queue_table", result=ctypes.c_uint64)())
        self._rows, self.thread = self.method("py_rows", "rows"), self.method("py_thread", "thread")
        self._zero = (ctypes.c_int64 * 1)()
        self._keep = (drain, catch_up, self._zero)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._keep))
        self.words[DRAIN], self.words[CATCH_UP] = id(drain), id(catch_up)
        self.words[NOTED] = ctypes.addressof(self._zero)
        self.functions = {
            "cuLaunchKernel": self.address("emulated_launch"), "cuMemsetD8Async": self.address("emulated_memset"), "lend": self.address("emulated_lend"),
            "take_back": self.address("emulated_take_back"), "cuGraphLaunch": self.address("emulated_launch_graph"),
            "cuGraphExecKernelNodeSetParams": self.address("emulated_set_node"), "cuStreamQuery": self.address("emulated_query"),
            "cuTensorMapEncodeTiled": self.address("emulated_encode_map"),
            "cuTensorMapEncodeIm2col": self.address("emulated_encode_windows"),
        }  # fmt: skip

    def count_notes(self, address: int) -> None:
        """Where the number of launches that were noted stands."""
        self.words[NOTED] = address

    def fail(self) -> None:
        """A device stopped: Python is asked what becomes of further launches."""
        self.words[FAILED] = 1

    @property
    def eager(self) -> bool:
        """Whether every launch is looked at as it is given, so that the call that is wrong raises the error."""
        return self.words[EAGER] != 0

    @eager.setter
    def eager(self, value: bool) -> None:
        self.words[EAGER] = value

    def rows(self) -> Iterator[list[Any]]:
        """Take the rows, each [kind, words, ...]."""
        words = self._rows()
        at = 0
        while words is not None and at < len(words):
            size = words[at + 1]
            yield words[at : at + size]
            at += size
