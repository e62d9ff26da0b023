"""How objects take part in functions of the package: `__torch_function__` of their class, and modes that see every
call.

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

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.dispatch import plain_attribute
from rushlight._interface.operators import SPACES, is_function, row_of
from rushlight._surface.function_modes import (
    BaseTorchFunctionMode,
    TorchFunctionMode,
    enable_reentrant_dispatch,
    handle_torch_function,
    has_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
    redispatch_function,
    wrap_torch_function,
)

__all__ = [
    "BaseTorchFunctionMode", "TorchFunctionMode", "enable_reentrant_dispatch", "get_default_nowrap_functions", "get_ignored_functions", "get_overridable_functions",
    "get_testing_overrides", "handle_torch_function", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic",
    "is_tensor_like", "is_tensor_method_or_property", "redispatch_function", "resolve_name", "wrap_torch_function",
]  # fmt: skip


def is_tensor_like(inp: Any) -> bool:
    """Whether functions take this object as a tensor: it is one, or its class has `__torch_function__`."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether a function given to `__torch_function__` belongs to Tensor (the getter of a property does too)."""
    func = getattr(func, "asked", func)
    name = getattr(func, "__name__", "")
    return name == "__get__" or getattr(Tensor, name, None) is func or _static_name(func) is not None


def resolve_name(f: Callable[..., Any]) -> str | None:
    """The public name of a function, as `torch.add`, of a method (`torch.Tensor.add_`) or of a property's getter
    (`torch.Tensor.shape.__get__`); None for what is not ours.  What is a function and a method alike here goes by the
    function's name.
    """
    f = getattr(f, "asked", f)
    name = getattr(f, "__name__", "")
    if name in ("__get__", "__set__", "__delete__"):
        found = _static_name(getattr(f, "__self__", None))
        return None if found is None else f"torch.Tensor.{found}.{name}"
    page = (getattr(f, "__module__", None) or "").partition(".")[2]
    if (
        page in _PAGES
        and name not in _METHODS
        and name in vars(import_module(f"rushlight.{page}"))
        and getattr(import_module(f"rushlight.{page}"), name) is f
    ):
        return f"torch.{page}.{name}"
    # A function of both pages goes by the name of `nn.functional`, whichever page loaded it first.
    if (
        page in ("", "nn.functional")
        and name
        and name not in _METHODS
        and getattr(import_module("rushlight.nn.functional"), name, None) is f
    ):
        return f"torch.nn.functional.{name}"
    for space, names in SPACES.items():
        if name in names and names.get(name) is f:
            return f"torch.{name}" if space == "torch" else f"torch.{space}.{name}"
    if name and vars(rushlight).get(name) is f:  # written in Python, and loaded when it is first asked for
        return f"torch.{name}"
    if name and getattr(Tensor, name, None) is f:
        return f"torch.Tensor.{name}"
    found = _static_name(f)
    return None if found is None else f"torch.Tensor.{found}"


# The pages whose functions go by their names there, though the package has some of them too.
_PAGES = ("nn.functional", "nn.init")
# PyTorch's `nn.functional` only calls the methods of these: they go by the names that they have in the package.
_METHODS = ("sigmoid", "tanh")


def _static_name(value: Any) -> str | None:
    """The name of an attribute of Tensor."""
    for cls in Tensor.__mro__[:-1]:
        for name in cls.__dict__:
            if value is not None and (plain_attribute(name) if cls is Tensor else cls.__dict__[name]) is value:
                return name
    return None


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
    """Getters whose results `Tensor.__torch_function__` hands over as they are, not as objects of the asking class:
    gradients and bases.
    """
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
