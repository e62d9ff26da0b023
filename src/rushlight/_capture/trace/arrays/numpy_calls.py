"""Calls of NumPy in a trace, and calls that hand tensors to NumPy or take arrays from it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from rushlight._capture.trace.arrays.array_functions import CREATING, FUNCTIONS
from rushlight._capture.trace.arrays.arrays import ATTRIBUTES, METHODS, TracedArray, is_array, like
from rushlight._capture.trace.outside import ABSENT, is_plain
from rushlight._capture.trace.reports.events import Break
from rushlight._capture.trace.settings import HOOKS
from rushlight._engine.core.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rushlight._capture.trace.tracer import Tracer

__all__ = ["ArrayMethod", "attribute", "call", "handed", "method_called"]

_OURS = tuple(__name__.replace("numpy_calls", name) for name in ("arrays", "array_functions"))


def call(tracer: Tracer, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function of NumPy with traced arrays or plain values; ABSENT for other calls."""
    given = [tracer.real(x) for x in args]
    named = {key: tracer.real(x) for key, x in kwargs.items()}
    traced = _any_array([*given, *named.values()])
    if isinstance(function, type) and issubclass(function, np.generic) and len(given) == 1 and not named:
        return _number(tracer, function, given[0])
    ours = FUNCTIONS.get(id(function))
    if ours is None:
        if traced:
            raise Break(
                f"calls {getattr(function, '__module__', 'numpy')}.{getattr(function, '__name__', function)}() of an array"
            )
        return ABSENT
    if traced or (id(function) in CREATING and all(_is_fixed(x) for x in (*given, *named.values()))):
        return computed(tracer, ours, given, named)
    return ABSENT


def _number(tracer: Tracer, kind: Any, value: Any) -> Any:
    """A number of one of NumPy's classes."""
    if is_array(value):
        return computed(tracer, METHODS["astype"], (value, kind), {})
    return tracer.wrap_constant(kind(value)) if is_plain(value) else ABSENT


def computed(tracer: Tracer, ours: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call our function in place of NumPy's; where ours refuses, the trace breaks and NumPy runs the call."""
    name = getattr(ours, "__name__", "function").strip("_")
    try:
        inspect.signature(ours).bind(*args, **kwargs)
        return tracer.native(ours, *args, **kwargs)
    except Exception as error:
        raise Break(f"NumPy is not traced here: {name}: {type(error).__name__}: {error}") from None


def handed(tracer: Tracer, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function of ours that takes or returns an array; ABSENT for other calls."""
    name, owner = getattr(function, "__name__", ""), getattr(function, "__self__", None)
    if getattr(function, "__func__", function) is HOOKS.public.Tensor.numpy and not kwargs and len(args) <= 1:
        x = owner if isinstance(owner, Tensor) else args[0]
        if tracer.rec.is_recorded(x) and not x._rg:
            return computed(tracer, like, (x,), {})
        return ABSENT
    if not _any_array([*args, *kwargs.values(), owner]):
        return ABSENT
    if getattr(function, "__module__", None) in _OURS:
        return computed(tracer, function, args, kwargs)
    if name in ("from_numpy", "as_tensor", "asarray", "tensor") and is_array(args[0]) and not args[0].scalar:
        held = args[0].tensor
        if name == "from_numpy" or not kwargs:
            return tracer.native(held.clone) if name == "tensor" else held
        if kwargs.keys() == {"dtype"}:
            return tracer.native(held.to, kwargs["dtype"], copy=name == "tensor")
    raise Break(f"{name}() is given a NumPy array")


def attribute(tracer: Tracer, array: TracedArray, name: str) -> Any:
    """An attribute of an array."""
    if name in ATTRIBUTES:
        found = tracer.native(getattr, array, name)
        return found if is_plain(found) or isinstance(found, (tuple, TracedArray)) else tracer.wrap_constant(found)
    method = METHODS.get(name) or getattr(TracedArray, name, None) if name in METHODS or name.startswith("__") else None
    if method is None:
        raise Break(f"uses '{name}' of a NumPy array")
    return ArrayMethod(method, array, name)


class ArrayMethod:
    """A method of an array."""

    __slots__ = ("array", "function", "name")

    def __init__(self, function: Callable[..., Any], array: TracedArray, name: str) -> None:
        self.function, self.array, self.name = function, array, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self.array, *args, **kwargs)


def method_called(tracer: Tracer, method: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a method of an array; ABSENT for other objects."""
    if type(method) is not ArrayMethod:
        return ABSENT
    given = [method.array, *[tracer.real(x) for x in args]]
    return computed(tracer, method.function, given, {key: tracer.real(x) for key, x in kwargs.items()})


def _any_array(values: Sequence[Any]) -> bool:
    return any(is_array(x) or (isinstance(x, (list, tuple)) and _any_array(x)) for x in values)


def _is_fixed(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_fixed, value))
    return is_plain(value) or isinstance(value, type) or type(value).__module__.startswith("numpy")
