"""Collectives that change nothing in place and give new tensors: the functions under DTensor and FSDP.

They wait before they return, so `wait_tensor` gives back what it gets.  A group is a process group, its name, a list of
ranks, a mesh of one dim, or a mesh and a dim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
import rushlight.distributed as dist
from rushlight import Tensor
from rushlight.distributed.c10d.observing import functional
from rushlight.distributed.c10d.world import WORLD as world
from rushlight.distributed.nn import functional as differentiable

__all__ = [
    "AsyncCollectiveTensor", "all_gather_into_tensor_coalesced", "all_gather_single", "all_gather_tensor", "all_gather_tensor_autograd",
    "all_reduce", "all_reduce_coalesced", "all_to_all_single", "all_to_all_single_autograd", "broadcast", "permute_tensor",
    "reduce_scatter_tensor", "reduce_scatter_tensor_autograd", "reduce_scatter_tensor_coalesced", "wait_tensor",
]  # fmt: skip

_OPS = {
    "sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX,
    "band": dist.ReduceOp.BAND, "bor": dist.ReduceOp.BOR, "bxor": dist.ReduceOp.BXOR,
}  # fmt: skip
_LISTED: dict[tuple[int, ...], Any] = {}


class AsyncCollectiveTensor(Tensor):
    """A result that may not be there yet.  Results here always are: nothing makes one."""


def _group_of(group: Any) -> Any:
    if group is None or isinstance(group, dist.ProcessGroup):
        return group
    if isinstance(group, str):
        return dist._resolve_process_group(group)
    if isinstance(group, tuple) and len(group) == 2 and isinstance(group[1], int) and hasattr(group[0], "get_group"):
        return group[0].get_group(group[1])
    if hasattr(group, "get_group"):
        return group.get_group()
    if isinstance(group, (list, tuple)) and group and all(isinstance(rank, int) for rank in group):
        key = tuple(group)
        if _LISTED.get(key) not in world.groups:
            _LISTED[key] = dist.new_group(key, use_local_synchronization=True)
        return _LISTED[key]
    raise ValueError(
        f"Invalid type for group, must be one of List, ProcessGroup, DeviceMesh, or (DeviceMesh, int), got {group!r}"
    )


def _op(name: Any) -> Any:
    if not isinstance(name, str):
        return name
    if name.lower() not in _OPS:
        raise ValueError(f"Invalid reduce operation {name}: one of {', '.join(_OPS)}")
    return _OPS[name.lower()]


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor, when it is there: at once."""
    return tensor


@functional("all_reduce")
def all_reduce(self: Tensor, reduceOp: str, group: Any, tag: str = "") -> Tensor:
    """The reduction over a group, as a new tensor with a gradient."""
    return differentiable.all_reduce(self, _op(reduceOp), _group_of(group))


def all_reduce_coalesced(self: Sequence[Tensor], reduceOp: str, group: Any, tag: str = "") -> list[Tensor]:
    """`all_reduce` of several tensors."""
    return [all_reduce(x, reduceOp, group, tag) for x in self]


@functional("broadcast")
def broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Tensor:
    """Rank `src`'s tensor as a new one."""
    return differentiable.broadcast(self, src, _group_of(group))


@functional("all_gather_into_tensor")
def all_gather_tensor(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """The tensors of all processes, joined along a dim."""
    return rushlight.cat(differentiable.all_gather(self, _group_of(group)), gather_dim)


all_gather_single = all_gather_tensor_autograd = all_gather_tensor


def all_gather_into_tensor_coalesced(self: Sequence[Tensor], group: Any, tag: str = "") -> list[Tensor]:
    """`all_gather_tensor` of several tensors, along the first dim."""
    return [all_gather_tensor(x, 0, group, tag) for x in self]


@functional("reduce_scatter_tensor")
def reduce_scatter_tensor(self: Tensor, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Tensor:
    """The reduction of this process's part along a dim."""
    chosen = _group_of(group)
    size = dist.get_world_size(chosen)
    if self.shape[scatter_dim] % size:
        raise AssertionError(
            f"input dimension {scatter_dim} ({self.shape[scatter_dim]}) must be a multiple of group_size {size}"
        )
    parts = [part.contiguous() for part in self.chunk(size, scatter_dim)]
    return differentiable.reduce_scatter(parts[0].detach(), parts, _op(reduceOp), chosen)


reduce_scatter_tensor_autograd = reduce_scatter_tensor


def reduce_scatter_tensor_coalesced(
    inputs: Sequence[Tensor], reduceOp: str, scatter_dim: Sequence[int], group: Any, tag: str = ""
) -> list[Tensor]:
    """`reduce_scatter_tensor` of several tensors, each along a dim of its own."""
    return [reduce_scatter_tensor(x, reduceOp, dim, group, tag) for x, dim in zip(inputs, scatter_dim, strict=True)]


@functional("all_to_all_single")
def all_to_all_single(
    self: Tensor,
    output_split_sizes: Sequence[int] | None,
    input_split_sizes: Sequence[int] | None,
    group: Any,
    tag: str = "",
) -> Tensor:
    """Pieces along the first dim to all processes, and theirs as one tensor."""
    shape = list(self.shape)
    if output_split_sizes is not None:
        shape[0] = sum(output_split_sizes)
    like = self.detach().new_empty(shape)
    return differentiable.all_to_all_single(like, self, output_split_sizes, input_split_sizes, _group_of(group))


all_to_all_single_autograd = all_to_all_single


def permute_tensor(self: Tensor, src_dst: Sequence[int], group: Any, tag: str = "") -> Tensor:
    """Every process's tensor goes to place `src_dst[its place]`."""
    chosen = _group_of(group)
    rank, size = dist.get_rank(chosen), dist.get_world_size(chosen)
    count = self.numel()
    sent, got = [0] * size, [0] * size
    sent[src_dst[rank]] = count
    got[list(src_dst).index(rank)] = count
    return all_to_all_single(self.reshape(-1), got, sent, chosen).view(self.shape)
