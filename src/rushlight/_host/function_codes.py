"""Word of functions that are given other code: `f.__code__ = g.__code__`, as tools do that load a module again.

Later versions of CPython tell watchers of functions, but of each that is made, too.  Here the descriptor of
`__code__` gets another setter, which calls CPython's own and then who asked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

from rushlight._base.lazy import LazyModule
from rushlight._host.runtime import runtime
from rushlight._native.mutable_objects import supported, word_at

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = LazyModule("ctypes")

__all__ = ["tells_of_codes"]

_DEFINITION = 40  # where a descriptor has the address of its definition: name, getter, setter, text, closure
_TOLD: list[Callable[[Any], None]] = []
_KEPT: list[Any] = []


def tells_of_codes(told: Callable[[Any], None]) -> bool:
    """Whether `told(function)` is called from now on after a function was given other code."""
    if not _watched():
        return False
    if told not in _TOLD:
        _TOLD.append(told)
    return True


def _tell(function: Any) -> None:
    for told in _TOLD:
        told(function)


@cache
def _watched() -> bool:
    """Give the descriptor our setter; whether that tells."""
    if not supported():
        return False
    at = id(FunctionType.__dict__["__code__"]) + _DEFINITION
    theirs = word_at(at)
    words = [word_at(theirs + 8 * k) for k in range(5)]
    if ctypes.string_at(words[0]) != b"__code__":
        return False
    ours = (ctypes.c_uint64 * 5)(*words)
    ours[2] = runtime().address("code_assigned")
    _KEPT.extend((ours, _tell))
    # They are called as long as there are functions: longer than modules hold anything.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_KEPT))
    runtime().plain("tell_of_codes", ctypes.c_void_p, ctypes.c_void_p)(words[2], id(_tell))
    ctypes.c_uint64.from_address(at).value = ctypes.addressof(ours)
    if _tells():
        return True
    ctypes.c_uint64.from_address(at).value = theirs
    return False


def _tells() -> bool:
    """Whether word comes of a function that is given other code, and errors are CPython's own."""
    seen: list[Any] = []

    def one() -> int:
        return 1

    def two() -> int:
        return 2

    _TOLD.append(seen.append)
    try:
        one.__code__ = two.__code__
        try:
            two.__code__ = None  # type: ignore[assignment]
        except TypeError:
            return seen == [one] and one() == 2
    finally:
        _TOLD.remove(seen.append)
    return False
