"""Kernels of the CPU, and native functions around them, as Python callables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._backends.cpu.runtime import runtime as _runtime
from rushlight._host import stubs
from rushlight._native import jit
from rushlight._native.compiled import compile_native
from rushlight._native.function import NativeFunction

__all__ = ["bind", "bind_ahead", "load_kernel", "make_kernel_callable", "native_address"]


def make_kernel_callable(address: int, name: str, keepalive: object = None, words: int = -1) -> Callable[..., Any]:
    """The callable `K(ints, *words)` of the kernel at `address`.

    `ints` is the address of the call's constants (or a Storage that holds them); each word is an int, a float (passed
    as the bits of a double) or a Storage (passed as its address).  The outputs that `ints` asks for are allocated, put
    before the words, and returned: a Storage, a tuple of them, or None.  `keepalive` lives as long as the callable.
    With `words` >= 0 a call with another number of words is a TypeError.
    """
    counted = words + 1 if words >= 0 else -1
    runtime = _runtime.runtime()
    return runtime.make_callable(address, name.encode(), keepalive, counted, runtime.stub)


def load_kernel(data: bytes, symbol: str, words: int = -1) -> Callable[..., Any]:
    """The callable of a kernel in object code; the code is unloaded when the callable dies."""
    loaded = jit.load(data, [symbol], _runtime.runtime().symbols)
    return make_kernel_callable(loaded[symbol], symbol, loaded, words)


bind_ahead = stubs.bind_ahead
_ADDRESSES: dict[int, tuple[NativeFunction, jit.Loaded | jit.Image]] = {}


def native_address(function: NativeFunction) -> int:
    """The address of a native function, compiled (or found in the disk cache) and loaded once, and kept."""
    found = _ADDRESSES.get(id(function))
    if found is None:
        loaded = jit.load(compile_native([function]), [function.symbol], _runtime.runtime().symbols)
        # Another thread may have been quicker; what it got is in use, and must not be unloaded.
        found = _ADDRESSES.setdefault(id(function), (function, loaded))
    return found[1][function.symbol]


def bind(function: NativeFunction, *, nogil: bool = False, opt: str = "native") -> Callable[..., Any]:
    """A built-in function that calls a native one, which may use what kernels use; see `_host.stubs.bind`."""
    return stubs.bind(function, nogil=nogil, unit=_runtime.runtime(), opt=opt)
