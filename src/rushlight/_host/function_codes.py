"""Word of functions that are given other code or defaults: `f.__code__ = g.__code__`, as tools do that load a module again.

Later versions of CPython tell watchers of functions, but of each that is made, too.  Here the descriptors of
`__code__`, `__defaults__` and `__kwdefaults__` get another setter, which calls CPython's own and then who asked.
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

__all__ = ["tells_of_functions"]

_DEFINITION = 40  # where a descriptor has the address of its definition: name, getter, setter, text, closure
_ATTRIBUTES = ("__code__", "__defaults__", "__kwdefaults__")
_TOLD: list[Callable[[Any], None]] = []
_KEPT: list[Any] = []


def tells_of_functions(told: Callable[[Any], None]) -> bool:
    """Whether `told(function)` is called from now on after a function was given other code or other defaults."""
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
    """Give the descriptors our setter; whether that tells."""
    if not supported():
        return False
    places = [id(FunctionType.__dict__[name]) + _DEFINITION for name in _ATTRIBUTES]
    theirs = [word_at(at) for at in places]
    words = [[word_at(definition + 8 * k) for k in range(5)] for definition in theirs]
    for name, (text, _, _, _, closure) in zip(_ATTRIBUTES, words, strict=True):
        if ctypes.string_at(text) != name.encode() or closure:
            return False
    setter = runtime().address("function_changed")
    # The getter does not read its closure, so this is the place for CPython's setter.
    ours = [(ctypes.c_uint64 * 5)(text, getter, setter, doc, old) for text, getter, old, doc, _ in words]
    _KEPT.extend((*ours, _tell))
    # They are called as long as there are functions: longer than modules hold anything.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_KEPT))
    runtime().plain("tell_of_functions", ctypes.c_void_p)(id(_tell))
    for at, definition in zip(places, ours, strict=True):
        ctypes.c_uint64.from_address(at).value = ctypes.addressof(definition)
    if _tells():
        return True
    for at, old in zip(places, theirs, strict=True):
        ctypes.c_uint64.from_address(at).value = old
    return False


def _tells() -> bool:
    """Whether word comes of a function that is changed, and errors are CPython's own."""
    seen: list[Any] = []

    def one(x: int = 1, *, y: int = 1) -> int:
        return 1

    def two(x: int, *, y: int) -> int:
        return x + y

    _TOLD.append(seen.append)
    try:
        one.__code__ = two.__code__
        one.__defaults__, one.__kwdefaults__ = (3,), {"y": 4}
        held: Any = one
        for name in _ATTRIBUTES:
            try:
                setattr(held, name, 1)
            except TypeError:
                continue
            return False
        if held() != 7 or held.__defaults__ != (3,):
            return False
        del held.__defaults__
        return seen == [one] * 4 and held.__defaults__ is None
    finally:
        _TOLD.remove(seen.append)
