"""How the dims of a `DeviceMesh` count ranks, in the words of PyTorch's files: sizes and strides for each dim."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

__all__ = ["grid_of", "layout_of"]


class _FlatLayout:
    """One dim: sizes and strides, of several numbers where dims were flattened into one."""

    def __init__(self, shape: tuple[int, ...] = (), stride: tuple[int, ...] = ()) -> None:
        self.shape, self.stride = shape, stride

    def offsets(self) -> list[int]:
        """The places along the dim, the last of its sizes fastest."""
        sizes, steps = _as_tuple(self.shape), _as_tuple(self.stride)
        return [
            sum(i * step for i, step in zip(at, steps, strict=True)) for at in itertools.product(*map(range, sizes))
        ]


class _MeshLayout:
    """The dims of a mesh."""

    def __init__(self, axes: tuple[_FlatLayout, ...] = ()) -> None:
        self.axes = axes


def _as_tuple(numbers: Any) -> tuple[int, ...]:
    return tuple(numbers) if isinstance(numbers, (tuple, list)) else (int(numbers),)


def layout_of(shape: Sequence[int]) -> _MeshLayout:
    """The row-major layout of a grid."""
    axes, step = [], 1
    for size in reversed(shape):
        axes.append(_FlatLayout((size,), (step,)))
        step *= size
    return _MeshLayout(tuple(reversed(axes)))


def grid_of(layout: _MeshLayout, ranks: Sequence[int], rank: int) -> tuple[list[int], tuple[int, ...]]:
    """The ranks of a mesh in row-major order, and its shape: of the meshes that a layout cuts `ranks` into, the one with
    `rank`, else the first.
    """
    places = [axis.offsets() for axis in layout.axes]
    offsets = [sum(at) for at in itertools.product(*places)]
    left, grids = set(range(len(ranks))), []
    for start in range(len(ranks)):
        block = {start + offset for offset in offsets}
        if start in left and block <= left:
            left -= block
            grids.append([ranks[start + offset] for offset in offsets])
    if not grids:
        raise ValueError(f"corrupt file: {len(ranks)} ranks are no mesh of {[len(p) for p in places]}")
    return next((grid for grid in grids if rank in grid), grids[0]), tuple(len(p) for p in places)
