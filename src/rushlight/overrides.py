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

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any

from rushlight._engine.core.state import FUNCTION_MODE, STATE
from rushlight._engine.core.tensor import Tensor, plain_classes
from rushlight._engine.dispatch.native_plans import is_function
from rushlight._engine.dispatch.override import (
    WATCH,
    DisableTorchFunctionSubclass,
    as_arguments,
    dispatch,
    has_override,
    plain_attribute,
)
from rushlight._surface.registry import SPACES, row_of

__all__ = [
    "BaseTorchFunctionMode", "TorchFunctionMode", "enable_reentrant_dispatch", "get_default_nowrap_functions", "get_ignored_functions", "get_overridable_functions",
    "get_testing_overrides", "handle_torch_function", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic",
    "is_tensor_like", "is_tensor_method_or_property", "redispatch_function", "resolve_name", "wrap_torch_function",
]  # fmt: skip

_SKIP = [False]  # set by `redispatch_function`: the next question is answered with no


def is_tensor_like(inp: Any) -> bool:
    """Whether functions take this object as a tensor: it is one, or its class has `__torch_function__`."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of these arguments wants a say, or a function mode is on."""
    if _SKIP[0]:
        _SKIP[0] = False
        return False
    if STATE.word & FUNCTION_MODE:
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
    func = getattr(func, "asked", func)
    name = getattr(func, "__name__", "")
    return name == "__get__" or getattr(Tensor, name, None) is func or _static_name(func) is not None


def resolve_name(f: Callable[..., Any]) -> str | None:
    """The public name of a function, as `torch.add`, of a method (`torch.Tensor.add_`) or of a property's getter (`torch.Tensor.shape.__get__`);
    None for what is not ours.  What is a function and a method alike here goes by the function's name.
    """
    f = getattr(f, "asked", f)
    name = getattr(f, "__name__", "")
    if name in ("__get__", "__set__", "__delete__"):
        found = _static_name(getattr(f, "__self__", None))
        return None if found is None else f"torch.Tensor.{found}.{name}"
    page = (getattr(f, "__module__", None) or "").partition(".")[2]
    if (
        page in _PAGES
        and name in vars(import_module(f"rushlight.{page}"))
        and getattr(import_module(f"rushlight.{page}"), name) is f
    ):
        return f"torch.{page}.{name}"
    for space, names in SPACES.items():
        if name in names and names.get(name) is f:
            return f"torch.{name}" if space == "torch" else f"torch.{space}.{name}"
    if name and getattr(Tensor, name, None) is f:
        return f"torch.Tensor.{name}"
    found = _static_name(f)
    return None if found is None else f"torch.Tensor.{found}"


# The pages whose functions go by their names there, though the package has some of them too.
_PAGES = ("nn.functional", "nn.init")


def _static_name(value: Any) -> str | None:
    """The name of an attribute of Tensor."""
    for cls in Tensor.__mro__[:-1]:
        for name in cls.__dict__:
            if value is not None and (plain_attribute(name) if cls is Tensor else cls.__dict__[name]) is value:
                return name
    return None


class TorchFunctionMode:
    """A context in which every call of a function of the package goes through `__torch_function__(func, types, args, kwargs)`.

    What tensors are asked is seen too: `x.shape` is a call of `Tensor.shape.__get__`, `x.grad = g` one of `Tensor.grad.__set__`; so are
    methods such as `numpy`, `backward` and `repr`.  (Flags that are the same for every tensor of a class, as `x.is_cuda`, are not.)

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
        if not STATE.function_modes:
            STATE.word &= ~FUNCTION_MODE
        WATCH.leave()


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


# ***** one level further in *****


@contextlib.contextmanager
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
    with _skipping_one(
        plain is func
    ):  # behind the check of a composite of ours, or with the function's own check answered
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


# ***** which functions ask *****


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """Namespace -> the functions in it that ask `__torch_function__`: the package, its pages of functions, and Tensor."""
    rushlight = import_module("rushlight")
    found: dict[Any, list[Callable[..., Any]]] = {}
    for space, names in SPACES.items():
        page = rushlight if space == "torch" else import_module(f"rushlight.{space}")
        found[page] = [function for function in dict(names).values() if _asks(function)]
    found[Tensor] = [
        getattr(Tensor, name) for name in dir(Tensor) if not isinstance(inspect.getattr_static(Tensor, name), property)
    ]
    found[Tensor] = [function for function in found[Tensor] if _asks(function)]
    return found


def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """Getters whose results `Tensor.__torch_function__` hands over as they are, not as objects of the asking class: gradients and bases."""
    return {plain_attribute(name).__get__ for name in ("_base", "grad")}


def _asks(function: Any) -> bool:
    """Whether calls of a function go through `__torch_function__` where an argument's class has one."""
    return is_function(function) and (
        hasattr(function, "operator") or hasattr(function, "__wrapped__") and getattr(function, "overridable", True)
    )


def get_ignored_functions() -> set[Callable[..., Any]]:
    """Functions of the package that never ask: they take no tensors, or make new ones."""
    torch = dict(SPACES["torch"])
    return {function for function in torch.values() if callable(function) and not _asks(function)}


def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """For each function that asks, one with the same signature that returns -1."""
    return {
        function: _returns_minus_one(function)
        for functions in get_overridable_functions().values()
        for function in functions
    }


def _returns_minus_one(function: Callable[..., Any]) -> Callable[..., Any]:
    def override(*args: Any, **kwargs: Any) -> int:
        return -1

    override.__name__ = override.__qualname__ = getattr(function, "__name__", "override")
    override.__signature__ = _signature(function)  # type: ignore[attr-defined]
    return override


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    row = row_of(function)
    if row is None:
        return inspect.signature(inspect.unwrap(function))
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    declared = [
        inspect.Parameter(a.name, kinds[a.keyword_only], default=inspect.Parameter.empty if a.required else a.default)
        for a in row[1].schema.arguments
    ]
    return inspect.Signature(declared)
