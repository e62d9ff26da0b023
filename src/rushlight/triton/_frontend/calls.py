"""Calls within kernels: of jit functions, of the language, of Python's builtins, of Python at compile time."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from .._semantics.arithmetic import cast, maximum, minimum
from .._semantics.constants import constexpr, is_runtime, unwrap, unwrap_deep
from .._semantics.dtypes import BY_TRITON_NAME
from .._semantics.mathematics import abs as tl_abs
from .._semantics.program import device_print
from .._semantics.program import range as tl_range
from .._semantics.values import tensor
from .frame import Frame, wrapped

__all__ = ["call"]


def call(frame: Frame, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The result of a call, as a value of the compiler."""
    function = unwrap(function)
    if getattr(function, "__jit_source__", None) is not None:
        return frame.inliner.call(function, args, kwargs)
    own = _BUILTINS.get(function) if _hashable(function) else None
    if own is not None:
        return wrapped(own(*args, **kwargs))
    if function is constexpr:
        return constexpr(*args)
    if _takes_values(function):
        return wrapped(function(*args, **kwargs))
    if not callable(function):
        raise TypeError(f"{function!r} is no function")
    return wrapped(function(*map(unwrap_deep, args), **{key: unwrap_deep(v) for key, v in kwargs.items()}))


def _hashable(function: Any) -> bool:
    return getattr(type(function), "__hash__", None) is not None and not is_runtime(function)


def _takes_values(function: Any) -> bool:
    """Whether a function takes values of the compiler: those of the language, and methods of its values."""
    if getattr(function, "__triton_builtin__", False) or (
        isinstance(function, type) and issubclass(function, tl_range)
    ):
        return True
    return is_runtime(getattr(function, "__self__", None))


# ***** Python's builtins *****


def _extreme(numbers: Callable[..., Any], tensors: Callable[..., tensor]) -> Callable[..., Any]:
    def function(*values: Any) -> Any:
        if len(values) == 1 and isinstance(values[0], tuple):
            values = values[0]
        if not any(map(is_runtime, values)):
            return numbers(*map(unwrap, values)) if len(values) > 1 else unwrap(values[0])
        result = values[0]
        for value in values[1:]:
            result = tensors(result, value)
        return result

    return function


def _length(value: Any) -> int:
    return value.shape[0] if isinstance(value, tensor) else len(unwrap(value))


def _number(kind: type, name: str) -> Callable[..., Any]:
    def function(*values: Any) -> Any:
        if values and isinstance(values[0], tensor):
            return cast(values[0], BY_TRITON_NAME[name])
        return kind(*map(unwrap, values))

    return function


def _is_instance(value: Any, kinds: Any) -> bool:
    kinds = unwrap_deep(kinds)
    return isinstance(value, kinds) or isinstance(unwrap(value), kinds)


def _print(*values: Any, **kwargs: Any) -> None:
    texts = [v for v in values if isinstance(unwrap(v), str)]
    device_print(
        " ".join(unwrap(text) for text in texts), *(v for v in values if not isinstance(unwrap(v), str)), **kwargs
    )


def _absolute(value: Any) -> Any:
    return tl_abs(value) if isinstance(value, tensor) else abs(unwrap(value))


def _sum(values: Any, start: Any = 0) -> Any:
    for value in unwrap(values):
        start = value if unwrap(start) == 0 and not is_runtime(start) else start + value
    return start


_BUILTINS: dict[Any, Callable[..., Any]] = {
    builtins.min: _extreme(builtins.min, minimum),
    builtins.max: _extreme(builtins.max, maximum),
    builtins.len: _length,
    builtins.int: _number(int, "int32"),
    builtins.float: _number(float, "fp32"),
    builtins.bool: _number(bool, "int1"),
    builtins.range: tl_range,
    builtins.print: _print,
    builtins.abs: _absolute,
    builtins.sum: _sum,
    builtins.isinstance: _is_instance,
    builtins.tuple: lambda value=(): tuple(unwrap(value)),
    builtins.list: lambda value=(): tuple(unwrap(value)),
    builtins.zip: lambda *columns: tuple(zip(*map(unwrap, columns), strict=False)),
    builtins.enumerate: lambda value: tuple((constexpr(i), item) for i, item in enumerate(unwrap(value))),
    builtins.getattr: lambda value, name, *rest: getattr(unwrap(value), unwrap(name), *rest),
    builtins.hasattr: lambda value, name: hasattr(unwrap(value), unwrap(name)),
    builtins.type: lambda value: value.type if is_runtime(value) else type(unwrap(value)),
}
