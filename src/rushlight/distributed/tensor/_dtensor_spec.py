"""Metadata of a `DTensor`: mesh, placements, and the whole tensor's sizes."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight import Size
from rushlight._interface.base import LazyModule
from rushlight._interface.tensors import Spec
from rushlight.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, _StridedShard, nesting

_texts: Any = LazyModule("rushlight.fx.codegen")

__all__ = ["DTensorSpec", "PlacedSpec", "ShardOrderEntry", "TensorMeta"]


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

    @property
    def dim_map(self) -> list[int]:
        """For each dim of the tensor the axis of the mesh that divides it, -1 for none; ValueError for one that several
        axes divide.
        """
        found = [-1] * self.ndim
        for axis, dim in self._divided():
            if found[dim] != -1:
                raise ValueError(
                    f"Tensor dim {dim} is already sharded on mesh dim {found[dim]}, DTensor operator implementation does not support"
                    " things like hybrid sharding strategies yet (i.e. [Shard(0), Shard(0)])"
                )
            found[dim] = axis
        return found

    @property
    def num_shards_map(self) -> list[int]:
        """Into how many parts each dim of the tensor is divided."""
        found = [1] * self.ndim
        for axis, dim in self._divided():
            found[dim] *= self.mesh.size(axis)
        return found

    def _divided(self) -> list[tuple[int, int]]:
        """(axis of the mesh, dim that it divides), axis by axis."""
        return [(axis, here.dim) for axis, here in enumerate(self.placements) if isinstance(here, Shard)]

    @property
    def num_shards(self) -> int:
        """Into how many parts the tensor is divided."""
        return math.prod(self.mesh.size(axis) for axis, _ in self._divided())

    @property
    def sums(self) -> list[int]:
        """The axes of the mesh along which there are terms of a reduction."""
        return [axis for axis, here in enumerate(self.placements) if here.is_partial()]

    def is_replicated(self) -> bool:
        """Whether every process has the whole tensor."""
        return all(here.is_replicate() for here in self.placements)

    def is_sharded(self) -> bool:
        """Whether a dim is divided."""
        return bool(self._divided())

    @staticmethod
    def from_dim_map(
        mesh: Any, dim_map: Sequence[int], sums: Sequence[int], tensor_meta: TensorMeta | None = None
    ) -> DTensorSpec:
        """The spec with such a `dim_map` and `sums`; RuntimeError for an axis that would do two things."""
        found: list[Placement] = [Replicate()] * mesh.ndim
        for axis in sums:
            found[axis] = Partial()
        for dim, axis in enumerate(dim_map):
            if axis < 0:
                continue
            here = found[axis]
            if isinstance(here, Shard):
                raise RuntimeError(
                    f"DeviceMesh dimension can't be mapped to two dimension of the same tensor: {dim} and {here.dim}"
                )
            if here.is_partial():
                raise RuntimeError(f"DeviceMesh dimension {axis} cannot be both shard and partial!")
            found[axis] = Shard(dim)
        return DTensorSpec(mesh, tuple(found), tensor_meta)

    def shallow_copy_with_tensor_meta(self, tensor_meta: TensorMeta | None) -> DTensorSpec:
        """The same of another tensor."""
        return DTensorSpec(self.mesh, self.placements, tensor_meta)

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

    def __str__(self) -> str:
        meta = self.tensor_meta
        whole = "unknown dtypeunknown shape" if meta is None else _texts.described(meta)
        return f"Spec({whole}({''.join(self._turns())}))"

    def _turns(self) -> list[str]:
        """The placements as texts, with the turn in which axes divide a dim that several of them divide."""
        found = [str(here) for here in self.placements]
        if any(type(here) is _StridedShard for here in self.placements):
            return found
        for _, axes in self.shard_order:
            for turn, axis in enumerate(axes if len(axes) > 1 else ()):
                found[axis] += f"[{turn}]"
        return found

    def __repr__(self) -> str:
        return (
            f"DTensorSpec(mesh={self.mesh!r}, placements={self.placements}, tensor_meta={self.tensor_meta}, shard_order={self.shard_order},"
            f" use_strided_shard_as_shard_order={self.use_strided_shard_as_shard_order})"
        )


class PlacedSpec(Spec, DTensorSpec):
    """The spec of a `DTensor`, `DTensor._spec`: the whole tensor's, with where it lies.

    Make one with `PlacedSpec.on`: for one mesh equal specs are one object, which calls made before are found by.
    """

    whole: Spec
    mesh: Any
    placements: tuple[Placement, ...]
    use_strided_shard_as_shard_order = False

    @staticmethod
    def on(spec: Spec, mesh: Any, placements: tuple[Placement, ...]) -> PlacedSpec:
        """The spec of a tensor of `spec` that lies so; placements are those of `interned`."""
        if type(spec) is PlacedSpec:
            if spec.mesh is mesh and spec.placements is placements:
                return spec
            spec = spec.whole
        key = spec, id(mesh), id(placements)
        known = _PLACED.get(key)
        if known is None:
            known = _PLACED[key] = PlacedSpec.__new__(PlacedSpec)
            for name in Spec.__slots__:
                if name != "__weakref__":
                    setattr(known, name, getattr(spec, name))
            known.whole, known.mesh, known.placements = spec, mesh, placements
        return known

    def __init__(self) -> None:
        raise TypeError("a PlacedSpec is made by PlacedSpec.on")

    @property
    def tensor_meta(self) -> TensorMeta:  # type: ignore[override]
        """The whole tensor."""
        return TensorMeta(self.shape, self.strides, self.dtype)

    @property
    def shard_order(self) -> tuple[ShardOrderEntry, ...]:  # type: ignore[override]
        """For each divided dim the axes of the mesh that divide it, in their order."""
        return _order_of(self.placements)

    def __reduce__(self) -> Any:
        return DTensorSpec, (self.mesh, self.placements, self.tensor_meta)

    __eq__ = object.__eq__
    __hash__ = object.__hash__
    __repr__ = DTensorSpec.__repr__
    __str__ = DTensorSpec.__str__


# A key holds ids: its spec keeps mesh and placements alive.
_PLACED: weakref.WeakValueDictionary[tuple[Spec, int, int], PlacedSpec] = weakref.WeakValueDictionary()


def _order_of(placements: tuple[Placement, ...]) -> tuple[ShardOrderEntry, ...]:
    axes: dict[int, list[int]] = {}
    for axis in nesting(placements):
        here = placements[axis]
        if isinstance(here, Shard):
            axes.setdefault(here.dim, []).append(axis)
    return tuple(ShardOrderEntry(dim, tuple(found)) for dim, found in sorted(axes.items()))
