"""Modules that are loaded by their first use.

`import rushlight` must not pay for NumPy (60 ms) or LLVM (50 ms): those are loaded by the first operation
that needs them.  A `LazyModule` stands for the module until then.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from rushlight._base.errors import MissingExtraError

__all__ = ["LazyModule", "llvm", "numpy", "require"]


class LazyModule(ModuleType):
    """A module that is imported when one of its attributes is first asked for.

    After the first use the real module's attributes are copied into this object, so later accesses cost the same as on
    the module itself.
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
    """Import `name`; when it is absent and belongs to an extra of ours, say which one to install."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if extra is None or (error.name or "").split(".")[0] != name.split(".")[0]:
            raise
        raise MissingExtraError(name, extra) from error


numpy: Any = LazyModule("numpy")
llvm: Any = LazyModule("llvmlite.binding")
