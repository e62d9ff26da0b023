"""`register_sharding`: how an operator may be divided, said by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.distributed.tensor._by_hand import REGISTERED

__all__ = ["register_sharding"]


def register_sharding(op: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for a function that says how an operator (or each of a list) may be divided along one axis of a mesh.

    The function gets the call's arguments, with a `DTensorSpec` (`shape`, `ndim`, `placements`, `mesh`) for each tensor,
    and returns a list of (placements of the outputs, placements of the arguments), with None for arguments that are no
    tensors.  For each axis the one is taken that moves the fewest bytes.  What is said replaces the rules that follow
    from the operator's graph.

    >>> import rushlight as torch
    >>> from rushlight.distributed.tensor import Replicate, Shard
    >>> from rushlight.distributed.tensor.experimental import register_sharding
    >>> @register_sharding(torch.ops.aten.relu.default)
    ... def rows(x):
    ...     return [([Replicate()], [Replicate()]), ([Shard(0)], [Shard(0)])]
    >>> from rushlight.distributed.tensor._by_hand import REGISTERED
    >>> del REGISTERED[torch.ops.aten.relu.default]
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for each in op if isinstance(op, (list, tuple)) else [op]:
            REGISTERED[each] = function
        return function

    return register
