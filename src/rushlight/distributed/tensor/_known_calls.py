"""Calls on spread tensors that were made before: one look-up finds how they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight.distributed.tensor._dtensor_spec import PlacedSpec
from rushlight.distributed.tensor.placement_types import interned

__all__ = ["look_up", "remember"]

Call = Callable[[Sequence[Any], list[Any]], Any]  # of the arguments and their tensors
_MOST = 8192
_VALUES = frozenset((int, bool, str, type(None), rushlight.dtype, rushlight.layout, rushlight.device))


def look_up(func: Any, args: Sequence[Any], dtensor: Any) -> tuple[Call | None, Any, list[Any]]:
    """(how the call runs if that is known, key, tensors of the call); no key for a call of which more than that matters."""
    parts: list[Any] = [func]
    tensors: list[Any] = []
    mesh = None
    for x in args:
        kind = type(x)
        if kind is dtensor:
            if x._mesh is not mesh:
                if mesh is not None:
                    return None, None, tensors
                mesh = x._mesh
            for number, other in enumerate(tensors):
                if other is x:
                    parts.append(number)
                    break
            else:
                tensors.append(x)
                spec = x._spec
                if type(spec) is not PlacedSpec or spec.mesh is not mesh:  # a copy
                    x._placed = interned(x._placed)
                    spec = x._spec = PlacedSpec.on(spec, mesh, x._placed)
                parts.append(spec)
        elif kind in _VALUES:
            parts.append(kind)
            parts.append(x)
        elif kind is float:
            parts.append(float)
        elif kind is list or kind is tuple:
            if any(type(y) is not int for y in x):
                return None, None, tensors
            parts.append(list)
            parts.append(tuple(x))
        else:
            return None, None, tensors
    if mesh is None:
        return None, None, tensors
    key = tuple(parts)
    return mesh._known_calls.get(key), key, tensors


def remember(mesh: Any, key: Any, run: Call) -> None:
    """Keep how calls of a key run, as long as the mesh; all are forgotten where there are too many."""
    known = mesh._known_calls
    if len(known) >= _MOST:
        known.clear()
    known[key] = run
