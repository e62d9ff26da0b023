"""What files and programs know of a `DTensor` beside its elements: mesh, placements, and the whole tensor's sizes."""

from __future__ import annotations

from typing import Any, NamedTuple

from rushlight import Size
from rushlight.distributed.tensor.placement_types import Placement, Shard, nesting

__all__ = ["DTensorSpec", "ShardOrderEntry", "TensorMeta"]


class TensorMeta(NamedTuple):
    """The whole tensor."""

    shape: Size
    stride: tuple[int, ...]
    dtype: Any


class ShardOrderEntry(NamedTuple):
    """The axes of the mesh that divide a dim, in their order."""

    tensor_dim: int
    mesh_dims: tuple[int, ...]


class DTensorSpec:
    """Where a tensor lies: `mesh`, `placements`, and `tensor_meta` of the whole.

    >>> from rushlight.distributed.tensor import Shard
    >>> DTensorSpec("a mesh", (Shard(0),)).shard_order
    (ShardOrderEntry(tensor_dim=0, mesh_dims=(0,)),)
    """

    def __init__(
        self, mesh: Any, placements: tuple[Placement, ...], tensor_meta: TensorMeta | None = None, shard_order: Any = None,
        use_strided_shard_as_shard_order: Any = None,
    ) -> None:  # fmt: skip
        self.mesh, self.placements, self.tensor_meta = mesh, tuple(placements), tensor_meta
        self.shard_order = _order_of(self.placements) if shard_order is None else shard_order
        self.use_strided_shard_as_shard_order = bool(use_strided_shard_as_shard_order)
        self._hash = None  # PyTorch keeps its hash here, and reads it from files

    @property
    def device_mesh(self) -> Any:
        """The mesh."""
        return self.mesh

    @property
    def shape(self) -> Size:
        """The whole tensor's."""
        return self._meta().shape

    @property
    def stride(self) -> tuple[int, ...]:
        """The whole tensor's."""
        return self._meta().stride

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self._meta().shape)

    def _meta(self) -> TensorMeta:
        if self.tensor_meta is None:
            raise ValueError("tensor_meta is not set")
        return self.tensor_meta

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DTensorSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> Any:
        return self.mesh, self.placements, self.tensor_meta

    def __repr__(self) -> str:
        return f"DTensorSpec(mesh={self.mesh}, placements={self.placements}, tensor_meta={self.tensor_meta})"


def _order_of(placements: tuple[Placement, ...]) -> tuple[ShardOrderEntry, ...]:
    axes: dict[int, list[int]] = {}
    for axis in nesting(placements):
        here = placements[axis]
        if isinstance(here, Shard):
            axes.setdefault(here.dim, []).append(axis)
    return tuple(ShardOrderEntry(dim, tuple(found)) for dim, found in sorted(axes.items()))
