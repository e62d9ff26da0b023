"""Names of PyTorch that programs mention (in imports, in `isinstance`) but that rushlight does not implement: using one
raises an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from rushlight._base.errors import MissingFeatureError

__all__ = ["absent_class", "absent_function", "absent_value", "refuse"]


def refuse(name: str, why: str, error: type[Exception] = MissingFeatureError) -> NoReturn:
    """Raise the error for an absent feature: its name, and what is missing or what works instead."""
    raise error(f"rushlight has no {name} yet: {why}")


def absent_function(name: str, why: str, error: type[Exception] = MissingFeatureError) -> Callable[..., Any]:
    """A function that may be mentioned; a call raises NotImplementedError, or the `error` that PyTorch has there."""

    def function(*args: Any, **kwargs: Any) -> NoReturn:
        refuse(f"{name}()", why, error)

    function.__name__ = function.__qualname__ = name.rpartition(".")[2]
    function.__module__ = name.rpartition(".")[0].replace("torch", "rushlight", 1)
    function.__doc__ = f"Not there yet: {why}.  Raises {error.__name__}."
    return function


def absent_class(name: str, why: str, bases: tuple[type, ...] = (), **members: Any) -> type:
    """A class without objects: `isinstance` is False, it may be inherited from, an attempt to create one raises
    NotImplementedError."""

    def new(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        refuse(name, why)

    module, _, word = name.rpartition(".")
    space = {
        "__new__": new,
        "__module__": module.replace("torch", "rushlight", 1),
        "__doc__": f"Not there yet: {why}.",
        **members,
    }
    return type(word, bases, space)


class _Absent:
    """A constant that may be mentioned; a call, or an attribute, raises NotImplementedError."""

    def __init__(self, name: str, why: str) -> None:
        self.__name__, self.__doc__ = name, why

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse(self.__name__, str(self.__doc__))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse(self.__name__, str(self.__doc__))

    def __repr__(self) -> str:
        return f"<{self.__name__}: not there yet>"


def absent_value(name: str, why: str) -> Any:
    """A constant that may be mentioned and imported; any use raises NotImplementedError."""
    return _Absent(name, why)
