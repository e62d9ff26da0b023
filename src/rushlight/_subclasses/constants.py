"""Elements that are known while a function is traced: those of `torch.tensor(2.0)` and of what is computed of such tensors.

A number that a program reads of them is part of the graph. Only single elements are followed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from rushlight import Tag, Tensor
from rushlight._interface.base import tree_flatten, tree_map
from rushlight.utils._python_dispatch import _disable_current_modes

__all__ = ["UNKNOWN", "applied", "carry", "living"]

UNKNOWN: Any = object()
_MOST = 1  # elements of a constant
_SPOILT: Any = weakref.WeakSet()  # storages of constants


def living(constant: Any) -> Any:
    """A constant; None once something that is not known was written into its memory, through it or a view."""
    return None if constant is None or constant._storage in _SPOILT else constant


def applied(func: Any, args: Any, kwargs: Any, constant_of: Callable[[Any], Any]) -> Any:
    """An operator's result on the constants behind its tensors; UNKNOWN where one has none, or numbers are drawn.

    Constants are written where the operator writes.
    """
    leaves = [v for v in tree_flatten((list(args), kwargs))[0] if isinstance(v, Tensor)]
    if not leaves or any(constant_of(v) is None for v in leaves) or Tag.nondeterministic_seeded in func.tags:
        return UNKNOWN

    def constant(value: Any) -> Any:
        return constant_of(value) if isinstance(value, Tensor) else value

    with _disable_current_modes():
        return func(*tree_map(constant, list(args)), **{k: tree_map(constant, v) for k, v in kwargs.items()})


def carry(
    func: Any, args: Any, kwargs: Any, made: Any, constant_of: Callable[[Any], Any], put: Callable[[Any, Any], None]
) -> None:
    """Note the constants of an operator's results with `put(tensor, constant)`, and that those are none any more into
    which something is written that is not known.
    """
    if func._opname in ("lift_fresh", "lift_fresh_copy"):
        if isinstance(made, Tensor) and args[0].numel() <= _MOST and made is not args[0]:
            with _disable_current_modes():
                put(made, args[0].detach().clone())
        return
    results = [v for v in tree_flatten(made)[0] if isinstance(v, Tensor)]
    if not any(constant_of(v) is not None for v in tree_flatten((list(args), kwargs))[0] if isinstance(v, Tensor)):
        return
    known = UNKNOWN
    if all(type(n) is int for v in results for n in v.shape) and all(v.numel() <= _MOST for v in results):
        known = applied(func, args, kwargs, constant_of)
    if known is not UNKNOWN:
        for result, constant in zip(results, tree_flatten(known)[0], strict=False):
            put(result, constant)
        return
    for argument, value in zip(func._schema.arguments, args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            for tensor in tree_flatten(value)[0]:
                if isinstance(tensor, Tensor) and (constant := constant_of(tensor)) is not None:
                    _SPOILT.add(constant._storage)
