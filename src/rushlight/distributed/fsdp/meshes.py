"""Along which axes of a mesh parameters are divided and gradients are reduced."""

from __future__ import annotations

from typing import Any

from rushlight import Tensor
from rushlight._interface.sharding import Part
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.device_mesh import DeviceMesh
from rushlight.distributed.tensor import DTensor, Placement, Replicate, Shard
from rushlight.distributed.tensor.placement_types import _StridedShard
from rushlight.nn import Parameter

__all__ = ["Axes", "replicas"]


def replicas(mesh: DeviceMesh) -> DeviceMesh:
    """The processes of an axis as replicas, each of which has the only part."""
    alone = dist.new_group([dist.get_rank()], use_local_synchronization=True)
    return DeviceMesh.from_group([mesh.get_group(0), alone], mesh.device_type, mesh.mesh.view(-1, 1))


class Axes:
    """A mesh of one axis (parts), or two (replicas of parts)."""

    keeps_whole = False  # whether parameters lie undivided over the mesh

    def __init__(self, mesh: DeviceMesh) -> None:
        if mesh.ndim not in (1, 2):
            raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
        coordinate = mesh.get_coordinate()
        if coordinate is None:
            raise ValueError(f"rank {mesh.get_rank()} is not in {mesh}")
        last = mesh.ndim - 1
        self.mesh, self.group = mesh, mesh.get_group(last)
        self.part = Part(mesh.shape[last], coordinate[last])
        self.replicas = mesh.shape[0] if last else 1
        self.replica_group = mesh.get_group(0) if last else None

    @classmethod
    def of_replicas(cls, mesh: DeviceMesh) -> Axes:
        """One axis of processes each of which keeps the whole: parameters are `DTensor`s that lie on all of them."""
        made = cls(replicas(mesh))
        made.mesh, made.keeps_whole = mesh, True
        return made

    def check_divides(self, size: int) -> None:
        """ValueError for a number that does not divide that of the processes which have parts."""
        if size < 1 or self.part.size % size:
            raise ValueError(
                f"If passing reshard_after_forward as an int, it should be a factor of {self.part.size}, not {size}"
            )

    def near(self, size: int) -> tuple[Any, int]:
        """The group of `size` consecutive processes among those that have parts, and this one's number in it."""
        place = self.part.coordinate
        ranks = dist.get_process_group_ranks(self.group)
        first = place - place % size
        group = dist.new_group(ranks[first : first + size], use_local_synchronization=True, sort_ranks=False)
        return group, place % size

    def divided(self, parameter: Any, dim: int) -> Any:
        """A parameter of which this process keeps its part along a dim, as a `DTensor`.

        One that is a `DTensor` already is divided further: it then lies over the axes of both meshes.
        """
        local = parameter._local_tensor if isinstance(parameter, DTensor) else parameter.detach()
        start, stop = self.part.span(local.shape[dim])
        local = local.narrow(dim, start, stop - start).clone()
        placed: tuple[Placement, ...] = (Replicate(),) * (self.mesh.ndim - 1) + (Shard(dim),)
        if self.keeps_whole:
            placed = (Replicate(),)
        mesh = self.mesh
        if isinstance(parameter, DTensor):
            mesh, inner = _joined(self.mesh, parameter.device_mesh), parameter.placements
            factor = 1
            for size, placement in zip(parameter.device_mesh.shape, inner, strict=True):
                factor *= size if placement.is_shard(dim) else 1
            if factor > 1 and not self.keeps_whole:  # parts of what the inner axes have divided
                placed = (*placed[:-1], _StridedShard(dim, split_factor=factor))
            placed = placed + inner
        made = DTensor(_contiguous(local), mesh, placed, parameter.shape, parameter.stride())
        return Parameter(made, parameter.requires_grad)


def _contiguous(x: Tensor) -> Tensor:
    return x if x.is_contiguous() else x.contiguous()


def _joined(outer: DeviceMesh, inner: DeviceMesh) -> DeviceMesh:
    """The mesh with the axes of both, which are parts of one."""
    root = outer._get_root_mesh()
    if root is outer or root != inner._get_root_mesh():
        raise ValueError(
            "FSDP requires the data parallel and the tensor parallel mesh to be parts of one mesh, made by"
            f" init_device_mesh with mesh_dim_names; got {outer} and {inner}"
        )
    return DeviceMesh._concatenate([outer, inner])
