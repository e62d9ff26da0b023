"""Modes that see every call of a function, and what functions written in Python need to be overridable:
`rushlight.overrides` shows them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rushlight._base.trace_marks import changes_later_calls
from rushlight._engine.core.state import FUNCTION_MODE, STATE
from rushlight._engine.core.tensor import plain_classes
from rushlight._engine.dispatch.override import (
    WATCH,
    DisableTorchFunctionSubclass,
    as_arguments,
    dispatch,
    has_override,
)
from rushlight._surface.registry import row_of

__all__ = [
    "BaseTorchFunctionMode", "TorchFunctionMode", "enable_reentrant_dispatch", "handle_torch_function", "has_torch_function",
    "has_torch_function_unary", "has_torch_function_variadic", "redispatch_function", "wrap_torch_function",
]  # fmt: skip

_SKIP = [False]  # set by `redispatch_function`: the next question is answered with no


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of these arguments wants a say, or a function mode is on."""
    if _SKIP[0]:
        _SKIP[0] = False
        return False
    if STATE.function_modes and STATE.word & FUNCTION_MODE:
        return True
    asked = [a for a in relevant_args if type(a) not in plain_classes]
    return bool(asked) and not STATE.overrides_off and bool(has_override(asked, {}))


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
    """Decorator: makes a function overridable; `dispatcher(*args)` returns the arguments whose classes take part."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


class TorchFunctionMode:
    """A context in which every call of a function of the package goes through `__torch_function__(func, types, args,
    kwargs)`.

    What tensors are asked is seen too: `x.shape` is a call of `Tensor.shape.__get__`, `x.grad = g` one of
    `Tensor.grad.__set__`; so are methods such as `numpy`, `backward` and `repr`.  (Flags that are the same for every
    tensor of a class, as `x.is_cuda`, are not.)

    Inside that method the mode is off; modes nest, the innermost sees a call first.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __torch_function__")

    def __enter__(self) -> TorchFunctionMode:
        WATCH.enter()
        STATE.function_modes.append(self)
        STATE.word |= FUNCTION_MODE
        return self

    def __exit__(self, *exc: object) -> None:
        STATE.function_modes.pop()
        if not STATE.function_modes and not STATE.dispatch_modes:
            STATE.word &= ~FUNCTION_MODE
        WATCH.leave()


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


# ***** one level further in *****


@contextlib.contextmanager
@changes_later_calls
def enable_reentrant_dispatch() -> Iterator[None]:
    """A context in which calls made by an override are dispatched again.  They always are here: it changes nothing."""
    yield


def redispatch_function(
    func: Callable[..., Any], types: Iterable[type], args: Iterable[Any], kwargs: dict[str, Any] | None
) -> Any:
    """Run `func` without asking its arguments' classes or the modes a first time; what it calls inside asks again.

    For a `__torch_function__` that lets a composite function run and still sees its parts.
    """
    plain = inspect.unwrap(func)
    if plain is func and row_of(func) is not None:  # a row of the table: one step, with nothing inside that could ask
        before = STATE.word
        STATE.word = before & ~FUNCTION_MODE
        try:
            with DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        finally:
            STATE.word = before
    # Behind the check of a composite of ours, or with the function's own check answered
    with _skipping_one(plain is func):
        return plain(*args, **(kwargs or {}))


@contextlib.contextmanager
def _skipping_one(wanted: bool) -> Iterator[None]:
    """The next question whether somebody wants a say is answered with no."""
    before = _SKIP[0]
    _SKIP[0] = wanted
    try:
        yield
    finally:
        _SKIP[0] = before
