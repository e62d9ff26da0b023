"""Operators whose ways to be divided were said by `register_sharding`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import rushlight
from rushlight import Tensor
from rushlight.distributed.tensor._redistribute import redistribute
from rushlight.distributed.tensor.placement_types import Placement, Replicate
from rushlight.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["REGISTERED", "DTensorSpec", "run"]

REGISTERED: dict[Any, Callable[..., Any]] = {}


class DTensorSpec(NamedTuple):
    """A tensor of a call, without its elements."""

    mesh: Any
    placements: tuple[Placement, ...]
    shape: tuple[int, ...]
    dtype: Any

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)


def run(func: Any, flat: list[Any], tree: Any, mesh: Any, dtensor: Any) -> Any:
    """The call on parts, divided as its function says."""

    def spec_of(x: Any) -> Any:
        return DTensorSpec(mesh, x.placements, tuple(x.shape), x.dtype) if isinstance(x, dtensor) else x

    args, kwargs = tree_unflatten([spec_of(x) for x in flat], tree)
    ways = REGISTERED[func](*args, **kwargs)
    tensors = [x for x in flat if isinstance(x, dtensor)]
    chosen = [_cheapest(func, ways, tensors, mesh, axis) for axis in range(mesh.ndim)]
    inputs = [tuple(way[1][n] for way in chosen) for n in range(len(tensors))]
    local = iter(
        redistribute(x._local_tensor, x.shape, mesh, x.placements, placed)
        for x, placed in zip(tensors, inputs, strict=True)
    )
    args, kwargs = tree_unflatten([next(local) if isinstance(x, dtensor) else x for x in flat], tree)
    found, layout = tree_flatten(func(*args, **kwargs))
    shapes = _whole_shapes(func, flat, tree, dtensor)
    made = []
    for n, (x, shape) in enumerate(zip(found, shapes, strict=True)):
        placed = tuple(way[0][n] for way in chosen)
        made.append(dtensor._wrapped(x, mesh, placed, shape.shape, shape.stride()) if isinstance(x, Tensor) else x)
    return tree_unflatten(made, layout)


def _whole_shapes(func: Any, flat: list[Any], tree: Any, dtensor: Any) -> list[Any]:
    """The results of the call on whole tensors without elements."""

    def empty(x: Any) -> Any:
        if not isinstance(x, dtensor):
            return x
        return rushlight.empty_strided(tuple(x.shape), tuple(x.stride()), dtype=x.dtype, device="meta")

    args, kwargs = tree_unflatten([empty(x) for x in flat], tree)
    leaves: list[Any] = tree_flatten(func(*args, **kwargs))[0]
    return leaves


def _cheapest(
    func: Any, ways: Sequence[Any], tensors: Sequence[Any], mesh: Any, axis: int
) -> tuple[list[Placement | None], list[Placement]]:
    """The way of which the arguments need the fewest bytes; RuntimeError where none fits."""
    best: Any = None
    for outputs, inputs in ways:
        wanted = [placement for placement in inputs if placement is not None]
        if len(wanted) != len(tensors):
            raise RuntimeError(
                f"register_sharding of {func}: a way names {len(wanted)} placements of tensors, the call has {len(tensors)}"
            )
        if not all(_fits(x, p, mesh, axis) for x, p in zip(tensors, wanted, strict=True)):
            continue
        cost = sum(_cost(x, p, axis) for x, p in zip(tensors, wanted, strict=True))
        if best is None or cost < best[0]:
            best = cost, list(outputs), wanted
    if best is None:
        raise RuntimeError(f"register_sharding of {func}: no way fits {[x.placements for x in tensors]}")
    return best[1], best[2]


def _fits(x: Any, placement: Any, mesh: Any, axis: int) -> bool:
    """Whether a tensor may lie so: terms cannot be made of a tensor, and a dim must be large enough."""
    if placement.is_partial():
        return bool(x.placements[axis] == placement)
    return not placement.is_shard() or x.shape[placement.dim] >= mesh.size(axis)


def _cost(x: Any, wanted: Placement, axis: int) -> float:
    """Bytes that a process gets, roughly."""
    here = x.placements[axis]
    if here == wanted or isinstance(here, Replicate):
        return 0.0
    size = math.prod(x.shape) * x.dtype.itemsize
    return size * (2.0 if here.is_partial() and wanted.is_replicate() else 1.0)
