"""`torch._dynamo.compiled_autograd`: backward calls that no compiled function holds are compiled too.

The engine's walk over a history becomes a function, which `compile` treats like a user's: one program for histories of
the same structure, hooks and accumulation included.  Nodes of a `Function`, nodes with hooks of their own and packed
tensors run as they are, between two programs.  Backward calls with `create_graph=True`, under function transforms or
with anomaly detection are made as without it.

>>> import rushlight as torch
>>> weight = torch.ones(2, requires_grad=True)
>>> with torch._dynamo.compiled_autograd._enable(torch.compile):
...     (weight * weight).sum().backward()
>>> weight.grad
tensor([2., 2.])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rushlight._interface.base import LazyModule
from rushlight._interface.compiling import Walks

compilation: Any = LazyModule("rushlight.compiler.compilation")

__all__ = ["enable", "reset"]

_WALKS: dict[Any, Any] = {}
_ACTIVE: list[Any] = [None]


def _walks(compiler_fn: Callable[..., Any]) -> Any:
    """The walks that a compiler has compiled."""
    if compiler_fn not in _WALKS:
        _WALKS[compiler_fn] = Walks(compiler_fn)
    return _WALKS[compiler_fn]


@contextmanager
def _switched(walks: Any) -> Iterator[None]:
    _ACTIVE.append(walks)
    Walks.switch(walks)
    try:
        yield
    finally:
        _ACTIVE.pop()
        Walks.switch(_ACTIVE[-1])


def _enable(compiler_fn: Callable[..., Any], dynamic: bool = True, ignore_active_disable_ctx: bool = True) -> Any:
    """A context in which backward calls are compiled by `compiler_fn(function)`, such as `torch.compile`.

    `dynamic` is accepted: sizes become symbols as they do elsewhere.  Inside of `_disable()` it does nothing unless
    `ignore_active_disable_ctx`.
    """
    if not ignore_active_disable_ctx and len(_ACTIVE) > 1 and _ACTIVE[-1] is None:
        return _switched(None)
    return _switched(_walks(compiler_fn))


enable = _enable


def _disable() -> Any:
    """A context in which backward calls are made as without any of this."""
    return _switched(None)


def reset() -> None:
    """Forget what was compiled, and compile no longer."""
    _WALKS.clear()
    _ACTIVE[:] = [None]
    Walks.switch(None)


def _set_by_settings(on: bool) -> None:
    """Follow `torch._dynamo.config.compiled_autograd`."""
    _ACTIVE[0] = _walks(compilation.compile) if on else None
    Walks.switch(_ACTIVE[-1])
