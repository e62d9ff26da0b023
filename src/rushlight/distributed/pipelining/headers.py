"""What a stage tells the next one before the first activations of a step: shapes and dtypes, as whole numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import rushlight
from rushlight import Tensor
from rushlight.distributed.tensor import DTensor

__all__ = ["Meta", "meta_of", "packed", "unpacked"]

LENGTH = 512
DTYPES = tuple(sorted({v for v in vars(rushlight).values() if isinstance(v, rushlight.dtype)}, key=str))


class Meta(NamedTuple):
    """Shape and dtype of a tensor, and whether it has a gradient."""

    shape: tuple[int, ...]
    dtype: Any
    requires_grad: bool

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def meta_of(x: Any) -> Meta:
    """NotImplementedError for tensors of special kinds."""
    if isinstance(x, DTensor):
        raise NotImplementedError(
            "a DTensor between two stages of a pipeline is not built yet: let a stage return its `to_local()`"
        )
    if x.layout is not rushlight.strided:
        raise NotImplementedError(f"a tensor of layout {x.layout} between two stages of a pipeline is not built yet")
    return Meta(tuple(x.shape), x.dtype, bool(x.requires_grad))


def packed(metas: tuple[Meta, ...]) -> Tensor:
    """An int64 tensor of `LENGTH` elements.  ValueError for more than fits."""
    numbers = [len(metas)]
    for shape, dtype, wants in metas:
        numbers += [DTYPES.index(dtype), int(wants), len(shape), *shape]
    if len(numbers) > LENGTH:
        raise ValueError(f"{len(metas)} tensors between two stages are too many")
    return rushlight.tensor(numbers + [0] * (LENGTH - len(numbers)), dtype=rushlight.int64)


def unpacked(header: Tensor) -> tuple[Meta, ...]:
    """What `packed` was given."""
    count, *numbers = header.tolist()
    found, at = [], 0
    for _ in range(count):
        dtype, wants, ndim = numbers[at : at + 3]
        found.append(Meta(tuple(numbers[at + 3 : at + 3 + ndim]), DTYPES[dtype], bool(wants)))
        at += 3 + ndim
    return tuple(found)
