"""Collectives with gradients.

The loss is taken to be the sum of the losses of all processes: a tensor that went to many gets the sum of what comes back
from them.  All processes must run backward, since its steps are collectives too.
"""

from __future__ import annotations

from typing import Any

import rushlight
import rushlight.distributed as dist
from rushlight import Tensor
from rushlight.autograd import Function
from rushlight.distributed import ReduceOp as ReduceOp
from rushlight.distributed import group as group

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce", "reduce_scatter", "scatter",
]  # fmt: skip


def _place(rank: int, group: Any) -> int:
    """The place in a group of a rank of the job."""
    return rank if group is None else dist.get_group_rank(group, rank)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: Any, tensor: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        made = tensor.clone()
        dist.broadcast(made, src, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        total = _Reduce.apply(ctx.src, dist.ReduceOp.SUM, ctx.group, grad)
        if dist.get_rank(ctx.group) != _place(ctx.src, ctx.group):
            total = total * 0
        return None, None, total


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, op: Any, group: Any, tensor: Tensor) -> Tensor:
        ctx.dst, ctx.group = dst, group
        made = tensor.clone()
        dist.reduce(made, dst, op, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, None, _Broadcast.apply(ctx.dst, ctx.group, grad)


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, tensor: Tensor) -> Tensor:
        ctx.op, ctx.group = op, group
        made = tensor.clone()
        dist.all_reduce(made, op, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, _AllReduce.apply(ctx.op, ctx.group, grad)


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, tensor: Tensor) -> Any:
        ctx.group = group
        rows = [rushlight.empty_like(tensor) for _ in range(dist.get_world_size(group))]
        dist.all_gather(rows, tensor.contiguous(), group=group)
        return tuple(rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        made = rushlight.empty_like(grads[dist.get_rank(ctx.group)])
        return None, _ReduceScatter.apply(dist.ReduceOp.SUM, ctx.group, made, *grads)


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, output: Tensor, *parts: Tensor) -> Tensor:
        ctx.group = group
        made = rushlight.empty_like(output)
        dist.reduce_scatter(made, [part.contiguous() for part in parts], op, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, None, *_AllGather.apply(ctx.group, grad)


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, shapes: Any, *parts: Tensor) -> Any:
        ctx.group, ctx.shapes = group, [part.shape for part in parts]
        made = [parts[0].new_empty(shape) for shape in shapes]
        dist.all_to_all(made, [part.contiguous() for part in parts], group=group)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, *_AllToAll.apply(ctx.group, ctx.shapes, *grads)


class _AllToAllSingle(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, shape: Any, output_splits: Any, input_splits: Any, tensor: Tensor) -> Tensor:
        ctx.group, ctx.shape, ctx.splits = group, tensor.shape, (input_splits, output_splits)
        made = tensor.new_empty(shape)
        dist.all_to_all_single(made, tensor.contiguous(), output_splits, input_splits, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, None, None, _AllToAllSingle.apply(ctx.group, ctx.shape, *ctx.splits, grad)


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, group: Any, tensor: Tensor) -> Any:
        ctx.dst, ctx.group = dst, group
        rows = [rushlight.zeros_like(tensor) for _ in range(dist.get_world_size(group))]
        here = dist.get_rank(group) == _place(dst, group)
        dist.gather(tensor.contiguous(), rows if here else None, dst, group=group)
        return tuple(rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, _Scatter.apply(ctx.dst, ctx.group, *grads)


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: Any, *parts: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        made = rushlight.empty_like(parts[0])
        here = dist.get_rank(group) == _place(src, group)
        dist.scatter(made, [part.contiguous() for part in parts] if here else None, src, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, *_Gather.apply(ctx.src, ctx.group, grad)


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """Rank `src`'s tensor, on all; backward adds the gradients of all on `src`."""
    return _Broadcast.apply(src, group, tensor)


def reduce(tensor: Tensor, dst: int, op: Any = dist.ReduceOp.SUM, group: Any = None) -> Tensor:
    """The reduction on rank `dst`, elsewhere the tensor itself; backward sends `dst`'s gradient to all."""
    return _Reduce.apply(dst, op, group, tensor)


def all_reduce(tensor: Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None) -> Tensor:
    """The reduction, on all, as a new tensor; backward reduces the gradients of all."""
    return _AllReduce.apply(op, group, tensor)


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """Every process's tensor; backward adds up what came back for this one's."""
    return _AllGather.apply(group, tensor)


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """Every process's tensor on rank `dst`, zeros elsewhere."""
    return _Gather.apply(dst, group, tensor)


def scatter(tensors: Any, src: int = 0, group: Any = None) -> Tensor:
    """This process's place in rank `src`'s tensors."""
    return _Scatter.apply(src, group, *tensors)


def reduce_scatter(output: Tensor, input_list: Any, op: Any = dist.ReduceOp.SUM, group: Any = None) -> Tensor:
    """The reduction of this process's place in everybody's list; `output` says its shape."""
    return _ReduceScatter.apply(op, group, output, *input_list)


def all_to_all(output_tensor_list: Any, input_tensor_list: Any, group: Any = None) -> tuple[Tensor, ...]:
    """Each process's tensor for this one; the output list says the shapes."""
    return _AllToAll.apply(group, [x.shape for x in output_tensor_list], *input_tensor_list)


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None, group: Any = None
) -> Tensor:
    """Pieces of one tensor to all, and theirs as one; `output` says the shape."""
    return _AllToAllSingle.apply(group, output.shape, output_split_sizes, input_split_sizes, input)
