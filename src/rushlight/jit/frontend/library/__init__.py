"""Functions and layers in the typed subset: what scripts compile where they call functions of `nn.functional` and layers
whose own Python is not in the subset.

Every function here is read by the compiler, and never run as it stands.  Operators are called by their schemas.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import rushlight
from rushlight.jit.frontend.errors import own_place

__all__ = ["function_form", "functions", "method", "method_of", "overload_of", "with_indices"]

_FUNCTIONS: dict[str, Any] = {}
_METHODS: dict[str, Callable[..., Any]] = {}


def function_form(function: Any) -> Any:
    """Note the form of a function of `nn.functional`."""
    _FUNCTIONS[function.__name__] = function
    return function


def overload_of(name: str) -> Callable[[Any], Any]:
    """Note a further form of a function."""

    def note(function: Any) -> Any:
        first = _FUNCTIONS[name]
        _FUNCTIONS[name] = [*(first if isinstance(first, list) else [first]), function]
        return function

    return note


def with_indices(name: str, place: int) -> Callable[[Any], Any]:
    """Note the form of a function that gives indices too; `place` is where calls say so."""

    def note(function: Any) -> Any:
        _FUNCTIONS[name] = {"without": _FUNCTIONS[name], "with": function, "place": place}
        return function

    return note


def method(name: str) -> Callable[[Any], Any]:
    """Note the form of a layer's method: `Class.method`."""

    def note(function: Any) -> Any:
        _METHODS[name] = function
        return function

    return note


@cache
def _load() -> None:
    """Read the forms: each page notes its own."""
    for page in ("functional", "layers", "attention"):
        import_module(f"rushlight.jit.frontend.library.{page}")


@cache
def functions() -> dict[Any, Any]:
    """The forms by the functions of the package."""
    _load()
    space = rushlight.nn.functional
    made = {getattr(space, n): f for n, f in _FUNCTIONS.items() if hasattr(space, n)}
    for name in ("_assert", "unique"):
        made[getattr(rushlight, name)] = _FUNCTIONS[name]
    return made


def method_of(cls: type, name: str) -> Any:
    """The form of a layer's method, looked up along its bases; None where its own Python is compiled."""
    _load()
    for base in cls.__mro__:
        if own_place(base):
            found = _METHODS.get(f"{base.__name__}.{name}")
            if found is not None:
                return found
        if name in vars(base):
            return None
    return None
