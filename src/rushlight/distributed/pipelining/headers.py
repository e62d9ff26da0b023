"""Headers that a stage sends before the first activations of a step: shapes, dtypes, and how DTensors lie, as whole
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import rushlight
from rushlight import Tensor
from rushlight.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

__all__ = ["Meta", "Spread", "joined", "local_of", "meta_of", "packed", "settled", "unpacked"]

LENGTH = 512
DTYPES = tuple(sorted({v for v in vars(rushlight).values() if isinstance(v, rushlight.dtype)}, key=str))
_TERMS = ("sum", "avg", "product", "max", "min", "band", "bor", "bxor")


class Spread(NamedTuple):
    """Of a DTensor: the dims of its mesh, the shape and strides of the whole, its placements."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    placements: tuple[Placement, ...]

    def __str__(self) -> str:
        mesh = ", ".join(f"{name}={size}" for name, size in zip(self.names, self.sizes, strict=True))
        return f" of {list(self.shape)} over ({mesh}) as {self.placements}"


class Meta(NamedTuple):
    """Shape and dtype of a tensor (of a DTensor: of the part here), whether it has a gradient, and how it lies."""

    shape: tuple[int, ...]
    dtype: Any
    requires_grad: bool
    spread: Spread | None = None

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}{self.spread or ''}"


def meta_of(x: Any) -> Meta:
    """NotImplementedError for tensors of special kinds."""
    if isinstance(x, DTensor):
        mesh = x.device_mesh
        names = mesh.mesh_dim_names or ("",) * mesh.ndim
        spread = Spread(names, tuple(mesh.shape), tuple(x.shape), tuple(x.stride()), x.placements)
        return Meta(tuple(x._local_tensor.shape), x.dtype, bool(x.requires_grad), spread)
    if x.layout is not rushlight.strided:
        raise NotImplementedError(f"a tensor of layout {x.layout} between two stages of a pipeline is not built yet")
    return Meta(tuple(x.shape), x.dtype, bool(x.requires_grad))


# ***** DTensors on the way *****


def local_of(x: Tensor) -> Tensor:
    """The part of a tensor that is sent: of a DTensor the part that is here."""
    return (x._local_tensor if isinstance(x, DTensor) else x).detach().contiguous()


def joined(local: Tensor, spread: Spread | None, mesh: Any) -> Tensor:
    """The tensor of which a part has come."""
    return local if spread is None else DTensor._wrapped(local, mesh, spread.placements, spread.shape, spread.stride)


def settled(placements: Sequence[Placement]) -> tuple[Placement, ...]:
    """How a gradient travels: as its tensor, whole where that lies as terms."""
    return tuple(Replicate() if p.is_partial() else p for p in placements)


# ***** as numbers *****


def packed(metas: tuple[Meta, ...]) -> Tensor:
    """An int64 tensor of `LENGTH` elements.  ValueError for more than fits."""
    numbers = [len(metas)]
    for shape, dtype, wants, spread in metas:
        numbers += [DTYPES.index(dtype), int(wants), len(shape), *shape, *_of_spread(spread)]
    if len(numbers) > LENGTH:
        raise ValueError(f"{len(metas)} tensors between two stages are too many")
    return rushlight.tensor(numbers + [0] * (LENGTH - len(numbers)), dtype=rushlight.int64)


def _of_spread(spread: Spread | None) -> list[int]:
    """The number of dims of the mesh, 0 for a plain tensor; for each its name, its size, the placement; then the whole."""
    if spread is None:
        return [0]
    found = [len(spread.sizes)]
    for name, size, placement in zip(spread.names, spread.sizes, spread.placements, strict=True):
        text = name.encode()
        found += [len(text), *text, size, *_of_placement(placement)]
    return [*found, len(spread.shape), *spread.shape, *spread.stride]


def _of_placement(placement: Placement) -> tuple[int, int]:
    if type(placement) is Shard:
        return 0, placement.dim
    if isinstance(placement, Partial) and placement.reduce_op in _TERMS:
        return 2, _TERMS.index(placement.reduce_op)
    if isinstance(placement, Replicate):
        return 1, 0
    raise NotImplementedError(f"a DTensor that lies as {placement} between two stages of a pipeline is not built yet")


def unpacked(header: Tensor) -> tuple[Meta, ...]:
    """The value that `packed` was given."""
    numbers = iter(header.tolist())

    def some(count: int) -> tuple[int, ...]:
        return tuple(next(numbers) for _ in range(count))

    found = []
    for _ in range(next(numbers)):
        dtype, wants, ndim = some(3)
        found.append(Meta(some(ndim), DTYPES[dtype], bool(wants), _spread(some)))
    return tuple(found)


def _spread(some: Any) -> Spread | None:
    (ndim,) = some(1)
    if not ndim:
        return None
    dims = []
    for _ in range(ndim):
        name = bytes(some(some(1)[0])).decode()
        (size,) = some(1)
        dims.append((name, size, _placement(*some(2))))
    (count,) = some(1)
    names, sizes, placements = zip(*dims, strict=True)
    return Spread(names, sizes, some(count), some(count), placements)


def _placement(kind: int, value: int) -> Placement:
    return (Shard(value), Replicate(), Partial(_TERMS[value] if kind == 2 else "sum"))[kind]
