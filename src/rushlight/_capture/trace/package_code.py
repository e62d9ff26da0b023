"""Which functions are code of the package itself: they run as they are where others are followed."""

from __future__ import annotations

import types
from typing import Any

from rushlight._base.own_names import own_module
from rushlight._capture.trace.settings import HOOKS

__all__ = [
    "PACKAGE",
    "function_of",
    "is_foreign",
    "is_foreign_attribute",
    "is_inlined",
    "is_leaf",
    "is_module_getattr",
    "module_of_class",
]

PACKAGE = __name__.partition(".")[0]


def is_inlined(module: str) -> bool:
    """Whether functions of this module of ours are followed."""
    return module.startswith(HOOKS.inlined) or f"{module}.".startswith(HOOKS.inlined)


def is_leaf(function: types.FunctionType) -> bool:
    """Whether a Python function is one of ours that runs as it is."""
    module = own_module(function.__globals__.get("__name__"))
    return module.partition(".")[0] == PACKAGE and not is_inlined(module)


def module_of_class(kind: type) -> str:
    """The module that defines a class: of ours that of its methods, as the class may be shown on another page."""
    module = own_module(getattr(kind, "__module__", None))
    if module.partition(".")[0] == PACKAGE:
        for each in vars(kind).values():
            if isinstance(each, types.FunctionType) and not is_foreign(each):  # those of named tuples are foreign
                return own_module(each.__globals__.get("__name__"))
    return module


def is_module_getattr(function: Any) -> bool:
    """Whether this is the `__getattr__` of our modules, which looks into their tables."""
    return (
        isinstance(function, types.FunctionType)
        and function.__qualname__ == "Module.__getattr__"
        and not is_foreign(function)
    )


def is_foreign(function: types.FunctionType) -> bool:
    """Whether a function is not of our package."""
    return own_module(function.__globals__.get("__name__")).partition(".")[0] != PACKAGE


def is_foreign_class(kind: type) -> bool:
    """Whether a class is not of our package."""
    return own_module(kind.__module__).partition(".")[0] != PACKAGE


def function_of(attribute: Any) -> Any:
    """The function of a method of a class or a property; other attributes as they are."""
    held = getattr(attribute, "__func__", attribute)
    return held.fget if isinstance(held, property) else held


def is_foreign_attribute(attribute: Any) -> bool:
    """Whether an attribute of a class is a function that is not of our package."""
    held = function_of(attribute)
    return isinstance(held, types.FunctionType) and is_foreign(held)
