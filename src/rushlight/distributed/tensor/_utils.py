"""Which part of a spread tensor a process has: `torch.distributed.tensor._utils`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight import Size, Tensor, tensor, zeros_like
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.tensor._redistribute import global_shape
from rushlight.distributed.tensor.placement_types import Placement, Shard, nesting

__all__ = [
    "compute_global_tensor_info", "compute_global_tensor_shape", "compute_local_shape_and_global_offset", "compute_local_stride",
    "compute_local_tensor_info", "normalize_to_torch_size",
]  # fmt: skip


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int], mesh: Any, placements: Sequence[Placement], skip_offset: bool = False
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of this process's part of a tensor of `global_shape`, and where in the tensor it begins.

    `placements` has one placement for each dim of `mesh`; a dim of the tensor that several of them cut is cut by the
    first one first, but for strided parts.  A process outside of the mesh has the shape (0,) and no offset; an empty part
    begins at the end.  `skip_offset`: the offset is not wanted, and is ().
    """
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return (0,), ()
    shape, offset = list(global_shape), [0] * len(global_shape)
    for number in nesting(placements):
        placement = placements[number]
        if isinstance(placement, Shard):
            size, begin = Shard.local_shard_size_and_offset(shape[placement.dim], mesh.size(number), coordinate[number])
            shape[placement.dim] = size
            offset[placement.dim] += begin
    if skip_offset:
        return tuple(shape), ()
    return tuple(shape), tuple(end if not n else o for o, n, end in zip(offset, shape, global_shape, strict=True))


def compute_local_stride(global_stride: Sequence[int], local_shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a part of a shape, whose dims lie in memory in the order of the whole's."""
    found, step = [0] * len(global_stride), 1
    for d in sorted(range(len(global_stride)), key=lambda d: (global_stride[d], -d)):
        found[d] = step
        step *= local_shape[d]
    return tuple(found)


def compute_local_tensor_info(
    global_tensor: Tensor, mesh: Any, placements: Sequence[Placement]
) -> tuple[list[int], list[int]]:
    """Shape and strides of this process's part of a tensor."""
    shape = compute_local_shape_and_global_offset(global_tensor.shape, mesh, placements, skip_offset=True)[0]
    return list(shape), list(compute_local_stride(global_tensor.stride(), shape))


def compute_global_tensor_info(
    tensor: Tensor, mesh: Any, placements: Sequence[Placement]
) -> tuple[list[int], list[int]]:
    """Shape and strides of the whole, from a process's part; parts are equal."""
    strides = list(tensor.stride())
    for axis, here in enumerate(placements):
        if isinstance(here, Shard):
            before, size = strides[here.dim], mesh.size(axis)
            strides = [n * size if d != here.dim and n >= before else n for d, n in enumerate(strides)]
    return global_shape(tensor.shape, mesh, placements), strides


def compute_global_tensor_shape(local_shape: Size, mesh: Any, placements: Sequence[Placement]) -> Size:
    """The shape of the whole from all processes' parts, along one axis: they may differ along the dim that is divided.

    NotImplementedError for several placements, or one of terms; RuntimeError for parts that do not fit together.
    """
    if len(placements) != 1:
        raise NotImplementedError("compute_global_tensor_shape only supports 1 placement for now.")
    (here,) = placements
    if here.is_replicate():
        return local_shape
    if not isinstance(here, Shard):
        raise NotImplementedError(f"Placement type {type(here)} not supported.")
    mine = tensor([*local_shape], device=mesh.device_type)
    rows = [zeros_like(mine) for _ in range(mesh.size(0))]
    dist.all_gather(rows, mine, group=mesh.get_group(0))
    shapes = [row.tolist() for row in rows]
    if any(
        a != b for shape in shapes for d, (a, b) in enumerate(zip(shape, local_shape, strict=True)) if d != here.dim
    ):
        raise RuntimeError("Non-sharded dimensions should have identical size across ranks.")
    return Size([sum(shape[d] for shape in shapes) if d == here.dim else n for d, n in enumerate(local_shape)])


def normalize_to_torch_size(size: Any) -> Size:
    """A shape that is given as a `Size`, a number, numbers, or one sequence of numbers."""
    if isinstance(size, Size):
        return size
    if isinstance(size, int):
        return Size([size])
    return Size(size[0] if len(size) == 1 and isinstance(size[0], Sequence) else size)
