"""Settings of capture for a part of a program: `error_on_graph_break` and `patch_dynamo_config`, as contexts or
decorators.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rushlight.compiler.settings import Patch, settings

__all__ = ["error_on_graph_break", "patch_dynamo_config"]

_strict: list[bool | None] = [None]


class error_on_graph_break:
    """Within this, a graph break raises `Unsupported` (True) or does not (False), whatever `fullgraph` says; a context
    or a decorator.

    >>> import rushlight as torch
    >>> with torch._dynamo.error_on_graph_break(False):
    ...     pass
    """

    def __init__(self, error_on_graph_break: bool) -> None:
        if not isinstance(error_on_graph_break, bool):
            raise AssertionError(f"expected bool, got {type(error_on_graph_break)}")
        self.error_on_graph_break = error_on_graph_break
        self.before: list[bool | None] = []

    def __enter__(self) -> None:
        self.before.append(_strict[0])
        _strict[0] = self.error_on_graph_break

    def __exit__(self, *_: object) -> None:
        _strict[0] = self.before.pop()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return inside


def strict() -> bool | None:
    """The setting of the innermost `error_on_graph_break`; None outside."""
    return _strict[0]


def patch_dynamo_config(arg1: Any = None, arg2: Any = None, **kwargs: Any) -> Patch:
    """Settings of `torch._dynamo.config` that hold within a `with` or a decorated function."""
    if isinstance(arg1, str):
        changes = {arg1: arg2}
    else:
        changes = {**dict(arg1 or {}), **kwargs}
    return Patch(settings("torch._dynamo.config"), changes)
