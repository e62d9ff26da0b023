"""The kernel that this thread compiles: where the functions of the language put their operations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Protocol

from rushlight._interface.blocks import BlockBuilder

from .constants import unwrap_deep

__all__ = ["Compilation", "builder", "builtin", "compilation", "compiling", "is_compiling"]


class Compilation(Protocol):
    """A kernel under construction."""

    builder: BlockBuilder
    options: Any
    target: Any
    rounds_float32: bool  # whether `dot` may round float32 operands to TF32

    def call(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of a jit function (or of a Python function) on values of the kernel."""


class _Stack(threading.local):
    def __init__(self) -> None:
        self.open: list[Compilation] = []


_stack = _Stack()


@contextmanager
def compiling(one: Compilation) -> Any:
    """Functions of the language write into `one` within the `with`."""
    _stack.open.append(one)
    try:
        yield one
    finally:
        _stack.open.pop()


def is_compiling() -> bool:
    return bool(_stack.open)


def compilation() -> Compilation:
    """The kernel under construction; ValueError outside of one."""
    if not _stack.open:
        raise ValueError("Did you forget to add @triton.jit ? Functions of triton.language run within kernels alone")
    return _stack.open[-1]


def builder() -> BlockBuilder:
    return compilation().builder


def builtin(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the language: constexpr arguments arrive as their values."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("_semantic", None)
        return function(*map(unwrap_deep, args), **{key: unwrap_deep(value) for key, value in kwargs.items()})

    vars(called)["__triton_builtin__"] = True
    return called
