"""Contexts that are decorators too, as `torch.utils._contextlib`: packages make their own of these."""

from __future__ import annotations

from typing import Any

from rushlight._interface.tensors import Decorating

__all__ = ["_DecoratorContextManager", "_NoParamDecoratorContextManager"]


class _DecoratorContextManager(Decorating):
    """Base of contexts that also decorate functions: each call runs in a `clone()`."""

    def clone(self) -> Any:
        """Another context like this one."""
        return type(self)()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One without parameters: `@context` decorates as `@context()` does."""

    def __new__(cls, orig_func: Any = None) -> Any:
        return super().__new__(cls) if orig_func is None else cls()(orig_func)
