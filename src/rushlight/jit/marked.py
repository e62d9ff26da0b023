"""Classes of `ScriptModule` whose methods are marked with `script_method`: compiled when their `__init__` is done."""

from __future__ import annotations

import functools
from typing import Any

from rushlight._interface.base import LazyModule

scripting: Any = LazyModule("rushlight.jit.scripting")

__all__ = ["keep_attribute", "prepare"]


def prepare(cls: Any) -> None:
    """Take the marked methods out of a new class, and compile its objects behind `__init__`."""
    marked: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        marked |= vars(base).get("_marked_methods", {})
    for name, held in list(vars(cls).items()):
        if getattr(held, "_script_method", False):
            delattr(cls, name)
            marked[name] = held
    cls._marked_methods = marked
    cls.__init__ = _then_compiled(cls, cls.__init__)


def _then_compiled(cls: type, initialise: Any) -> Any:
    @functools.wraps(initialise)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **kwargs)
        if type(self) is cls and "_type" not in self.__dict__:
            scripting.compile_object(self)

    return __init__


def keep_attribute(module: Any, name: str, attribute: Any) -> None:
    """Keep the value of a `torch.jit.Attribute`, and its type for the compiler."""
    module.__dict__.setdefault("_attribute_types", {})[name] = attribute.type
    setattr(module, name, attribute.value)
