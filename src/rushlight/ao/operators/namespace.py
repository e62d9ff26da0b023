"""`torch.ops.quantized`: the operators by name."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from rushlight._interface.dispatch import HOOKS
from rushlight._interface.tensors import FUNCTION_MODE, STATE
from rushlight.ao.operators import arithmetic, layers

__all__ = ["QuantizedNamespace", "QuantizedOperator", "operators"]


class QuantizedOperator:
    """One operator; it has one form, which is its `default` too."""

    __module__ = "torch._ops.quantized"

    def __init__(self, name: str, function: Any) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__, self._function = function.__doc__, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if STATE.function_modes and STATE.word & FUNCTION_MODE:
            handled, made = HOOKS.override(self, args, kwargs)
            if handled:
                return made
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"quantized.{self.__name__}"

    def __reduce__(self) -> Any:
        return _by_name, (self.__name__,)

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    @property
    def default(self) -> Any:
        """The operator itself."""
        return self


def _by_name(name: str) -> Any:
    return getattr(QuantizedNamespace.instance(), name)


class QuantizedNamespace(ModuleType):
    """`torch.ops.quantized`."""

    _one: Any = None

    @classmethod
    def instance(cls) -> Any:
        """The only one."""
        if cls._one is None:
            cls._one = cls("torch.ops.quantized")
        return cls._one

    def __getattr__(self, name: str) -> Any:
        for page in (layers, arithmetic):
            function = page.__dict__.get(name)
            if callable(function) and not name.startswith("_") and function.__module__ == page.__name__:
                made = self.__dict__[name] = QuantizedOperator(name, function)
                return made
        raise AttributeError(f"'_OpNamespace' 'quantized' object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        pages = (layers, arithmetic)
        return sorted(
            n
            for p in pages
            for n, f in p.__dict__.items()
            if callable(f) and n[0] != "_" and f.__module__ == p.__name__
        )


operators: Any = QuantizedNamespace.instance()  # as layers call them: modes are asked
