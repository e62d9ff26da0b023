"""Keys and values of all processes, for attention whose queries alone are divided."""

from __future__ import annotations

from typing import Any

from rushlight import Tensor
from rushlight.autograd import Function
from rushlight.distributed import distributed_c10d as dist

__all__ = ["flex_cp_allgather"]


class _Gathered(Function):
    """A tensor of which each process has a part along `dim`; the gradient is the sum of all processes' for the part."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: Any) -> Tensor:
        ctx.settings = dim, group
        rows = x.movedim(dim, 0).contiguous()
        whole = rows.new_empty((rows.shape[0] * dist.get_world_size(group), *rows.shape[1:]))
        dist.all_gather_into_tensor(whole, rows, group=group)
        return whole.movedim(0, dim).contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        dim, group = ctx.settings
        rows = grad.movedim(dim, 0).contiguous()
        mine = rows.new_empty((rows.shape[0] // dist.get_world_size(group), *rows.shape[1:]))
        dist.reduce_scatter_tensor(mine, rows, group=group)
        return mine.movedim(0, dim).contiguous(), None, None


def flex_cp_allgather(k: Tensor, v: Tensor, seq_dim: int, pg_name: str) -> tuple[Tensor, Tensor]:
    """The whole keys and values from each process's parts along `seq_dim`.  Differentiable.

    - `pg_name`: the name of the group of processes
    """
    group = dist._resolve_process_group(pg_name)
    return _Gathered.apply(k, seq_dim, group), _Gathered.apply(v, seq_dim, group)
