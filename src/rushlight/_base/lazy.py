"""Modules that are loaded on first use.

`import rushlight` must not pay for NumPy (60 ms) or LLVM (50 ms): those are loaded by the first operation that needs
them.  A `LazyModule` replaces the module until then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Mapping
from types import ModuleType
from typing import Any

from rushlight._base.errors import MissingExtraError
from rushlight._base.forking import LOADED_LATE
from rushlight._base.importing import import_whole
from rushlight._base.naming import no_name
from rushlight._base.tracebacks import shorten

__all__ = ["LazyModule", "lazy_files", "lazy_names", "llvm", "numpy", "require"]


class LazyModule(ModuleType):
    """A module that is imported when one of its attributes is first read.

    After that the real module's attributes are copied into this object, so later accesses cost the same as on the
    module itself.
    """

    def __init__(self, name: str, extra: str | None = None) -> None:
        super().__init__(name)
        self.__dict__["_lazy"] = (name, extra)

    def __getattr__(self, attribute: str) -> Any:
        name, extra = self.__dict__["_lazy"]
        if attribute.startswith("__") and attribute not in ("__version__", "__file__"):
            raise AttributeError(attribute)
        module = require(name, extra)
        value = getattr(module, attribute)
        self.__dict__[attribute] = value
        return value


def require(name: str, extra: str | None = None) -> ModuleType:
    """Import `name`; if it is missing and belongs to an extra of ours, the error says which one to install."""
    LOADED_LATE.add(name.partition(".")[0])
    try:
        return import_whole(name)
    except ModuleNotFoundError as error:
        if extra is None or (error.name or "").split(".")[0] != name.split(".")[0]:
            raise
        raise MissingExtraError(name, extra) from error


def lazy_names(page: str, find: Callable[[str], Any]) -> Callable[[str], Any]:
    """The `__getattr__` of a module by its full name: the value of `find` for a name is stored in the module; None
    raises AttributeError."""

    def __getattr__(name: str) -> Any:
        try:
            value = find(name)
            if value is None:
                raise no_name(page, name)
            setattr(sys.modules[page], name, value)
            return value
        except BaseException as error:
            shorten(error)
            raise

    return __getattr__


def lazy_files(page: str, homes: Mapping[str, str], modules: Container[str] = ()) -> Callable[[str], Any]:
    """`lazy_names` of a package: `homes` maps names to its modules, `modules` are attributes themselves."""

    def find(name: str) -> Any:
        if name in modules:
            return import_whole(f"{page}.{name}")
        return getattr(import_whole(f"{page}.{homes[name]}"), name) if name in homes else None

    return lazy_names(page, find)


numpy: Any = LazyModule("numpy")
llvm: Any = LazyModule("llvmlite.binding")
