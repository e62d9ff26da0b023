"""Calls on spread tensors that were made before: one look-up finds how they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight.distributed.tensor.placement_types import BY_ID, interned

__all__ = ["KNOWN", "look_up", "remember"]

# By operator, layouts of the tensors and other arguments: a function of the arguments and their tensors.
KNOWN: dict[Any, Callable[[Sequence[Any], list[Any]], Any]] = {}
_MOST = 8192
_VALUES = frozenset((int, bool, str, type(None), rushlight.dtype, rushlight.layout, rushlight.device))


def look_up(func: Any, args: Sequence[Any], dtensor: Any) -> tuple[Any, list[Any]]:
    """(key, tensors of the call); no key for a call of which more than that matters."""
    parts: list[Any] = [func]
    tensors: list[Any] = []
    mesh = None
    for x in args:
        kind = type(x)
        if kind is dtensor:
            if x._mesh is not mesh:
                if mesh is not None:
                    return None, tensors
                mesh = x._mesh
                parts.append(mesh)
            for number, other in enumerate(tensors):
                if other is x:
                    parts.append(number)
                    break
            else:
                tensors.append(x)
                parts.append(x._spec)
                placed = x._placed
                if BY_ID.get(id(placed)) is not placed:  # what comes of a pickle or a copy
                    placed = x._placed = interned(placed)
                parts.append(id(placed))
        elif kind in _VALUES:
            parts.append(kind)
            parts.append(x)
        elif kind is float:
            parts.append(float)
        elif kind is list or kind is tuple:
            if any(type(y) is not int for y in x):
                return None, tensors
            parts.append(list)
            parts.append(tuple(x))
        else:
            return None, tensors
    return (tuple(parts), tensors) if tensors else (None, tensors)


def remember(key: Any, run: Callable[[Sequence[Any], list[Any]], Any]) -> None:
    """Keep how calls of a key run; all are forgotten where there are too many."""
    if len(KNOWN) >= _MOST:
        KNOWN.clear()
    KNOWN[key] = run
