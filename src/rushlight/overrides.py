"""How objects take part in functions of the package: `__torch_function__` of their class, and modes that see every call.

>>> import rushlight as torch
>>> class Names(torch.overrides.TorchFunctionMode):
...     def __torch_function__(self, func, types, args=(), kwargs=None):
...         print(func.__name__)
...         return func(*args, **(kwargs or {}))
>>> x = torch.ones(2)
>>> with Names():
...     y = x.exp()
exp
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from rushlight._engine.override import as_arguments, dispatch, has_override
from rushlight._engine.state import FUNCTION_MODE, STATE
from rushlight._engine.tensor import Tensor

__all__ = [
    "BaseTorchFunctionMode", "TorchFunctionMode", "handle_torch_function", "has_torch_function", "has_torch_function_unary",
    "has_torch_function_variadic", "is_tensor_like", "is_tensor_method_or_property", "resolve_name", "wrap_torch_function",
]  # fmt: skip


def is_tensor_like(inp: Any) -> bool:
    """Whether functions take this object as a tensor: it is one, or its class has `__torch_function__`."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of these arguments wants a say, or a function mode is on."""
    return bool(STATE.word & FUNCTION_MODE) or not STATE.overrides_off and bool(has_override(tuple(relevant_args), {}))


def has_torch_function_unary(arg: Any) -> bool:
    """`has_torch_function` of one argument."""
    return has_torch_function((arg,))


def has_torch_function_variadic(*args: Any) -> bool:
    """`has_torch_function` of loose arguments."""
    return has_torch_function(args)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Hand a call over to the mode or class that wants it; TypeError where all of them decline.

    For functions written in Python that want to be overridable: see `has_torch_function`.
    """
    return dispatch(public_api, as_arguments(relevant_args), args, kwargs)


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: makes a function overridable; `dispatcher(*args)` says which of its arguments are asked."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether a function given to `__torch_function__` belongs to Tensor (the getter of a property does too)."""
    name = getattr(func, "__name__", "")
    return name == "__get__" or getattr(Tensor, name, None) is func


def resolve_name(f: Callable[..., Any]) -> str | None:
    """The public name of a function, as `torch.Tensor.add`; None for what is not ours."""
    name = getattr(f, "__name__", "")
    if name and getattr(Tensor, name, None) is f:
        return f"torch.Tensor.{name}"
    from rushlight._surface import SPACES

    for space, names in SPACES.items():
        if name in names and names.get(name) is f:
            return f"torch.{name}" if space == "torch" else f"torch.{space}.{name}"
    return None


class TorchFunctionMode:
    """A context in which every call of a function of the package goes through `__torch_function__(func, types, args, kwargs)`.

    Inside that method the mode is off; modes nest, the innermost sees a call first.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __torch_function__")

    def __enter__(self) -> TorchFunctionMode:
        STATE.function_modes.append(self)
        STATE.word |= FUNCTION_MODE
        return self

    def __exit__(self, *exc: object) -> None:
        STATE.function_modes.pop()
        if not STATE.function_modes:
            STATE.word &= ~FUNCTION_MODE


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))
