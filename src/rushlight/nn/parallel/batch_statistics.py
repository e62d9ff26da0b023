"""Batch normalisation over the batches of several processes: what `SyncBatchNorm` computes."""

from __future__ import annotations

from typing import Any

import rushlight
import rushlight.distributed as dist
from rushlight import Tensor
from rushlight.autograd import Function

__all__ = ["group_of_several", "normalised"]


def group_of_several(group: Any) -> Any:
    """The group whose processes normalise together; None where there is one process."""
    if not dist.is_initialized():
        return None
    chosen = dist._get_default_group() if group is None else group
    return chosen if dist.get_world_size(chosen) > 1 else None


class _Normalised(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Any, bias: Any, running: Any, settings: Any) -> Tensor:
        eps, group = settings
        dims = [0, *range(2, x.ndim)]
        channels, count = x.shape[1], x.numel() // max(x.shape[1], 1)
        wide = x.float() if x.dtype in (rushlight.float16, rushlight.bfloat16) else x
        if count:
            var, mean = rushlight.var_mean(wide, dims, correction=0)
        else:  # a process may have no samples
            var = mean = wide.new_zeros(channels)
        own = rushlight.cat([mean, var, mean.new_full((1,), float(count))])
        rows = own.new_empty((dist.get_world_size(group), own.shape[0]))
        dist.all_gather_into_tensor(rows, own, group=group)
        counts = rows[:, -1:]
        total = counts.sum()
        means, variances = rows[:, :channels], rows[:, channels : 2 * channels]
        mean = (means * counts).sum(0) / total
        var = ((variances + (means - mean) ** 2) * counts).sum(0) / total
        if running is not None:
            running_mean, running_var, momentum = running
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_((var * total / (total - 1)).to(running_var.dtype), momentum)
        scale = rushlight.rsqrt(var + eps)
        ctx.group, ctx.dims, ctx.total = group, dims, total
        ctx.save_for_backward(x, weight, mean, scale)
        shape = [1, channels] + [1] * (x.ndim - 2)
        y = (wide - mean.view(shape)) * scale.view(shape)
        y = y if weight is None else y * weight.view(shape)
        return (y if bias is None else y + bias.view(shape)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, mean, scale = ctx.saved_tensors
        shape = [1, x.shape[1]] + [1] * (x.ndim - 2)
        wide = grad.to(mean.dtype)
        centred = x.to(mean.dtype) - mean.view(shape)
        sums = rushlight.stack([wide.sum(ctx.dims), (wide * centred).sum(ctx.dims)])
        grad_bias, grad_weight = sums[0].clone(), sums[1] * scale
        dist.all_reduce(sums, group=ctx.group)
        along = (sums / ctx.total).view([2, *shape])
        factor = scale if weight is None else scale * weight
        grad_x = (wide - along[0] - centred * (scale * scale).view(shape) * along[1]) * factor.view(shape)
        return grad_x.to(x.dtype), grad_weight if weight is not None else None, grad_bias, None, None


def normalised(x: Tensor, weight: Any, bias: Any, running: Any, eps: float, group: Any) -> Tensor:
    """`x` (N, C, *) normalised by the statistics of the batches of all processes.

    `running` is (mean, variance, momentum) to be updated, or None.  ValueError where all of them together have no more
    than one value for a channel.
    """
    return _Normalised.apply(x, weight, bias, running, (eps, group))
