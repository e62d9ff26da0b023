"""Context parallel: each process has a part of the sequence, and attention goes over all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.operators import INSTEAD
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.tensor.experimental.ring import Ring, attend

__all__ = ["context_parallel", "context_parallel_unshard", "set_rotate_method"]


class _RotateMethod(Enum):
    """How keys and values reach the other processes: one part after the other, or all at once."""

    ALL_TO_ALL = auto()
    ALL_GATHER = auto()


@dataclass
class _ContextParallelOptions:
    """Settings of attention over divided sequences; results are always joined in float32 or wider."""

    convert_to_f32: bool = True
    enable_load_balance: bool = True
    rotate_method: _RotateMethod = _RotateMethod.ALL_GATHER


_cp_options = _ContextParallelOptions()


def set_rotate_method(rotate_method: str) -> None:
    """`"alltoall"`: keys and values go round a ring, so that no process holds all of them; `"allgather"` (the default):
    all at once.  NotImplementedError for another.
    """
    names = {"allgather": _RotateMethod.ALL_GATHER, "alltoall": _RotateMethod.ALL_TO_ALL}
    if rotate_method not in names:
        raise NotImplementedError(f"Context Parallel does not support using {rotate_method} for kv shards rotation")
    _cp_options.rotate_method = names[rotate_method]


class _LoadBalancer:
    """An order of the places of a sequence, of which each process takes an equal part."""

    def _generate_indices(self, restore: bool = False) -> Tensor | None:
        """The places in the new order; with `restore` where each place is in it.  None for the order as it is."""
        raise NotImplementedError


class _HeadTailLoadBalancer(_LoadBalancer):
    """Each process has a piece from the front and its mirror image from the end: under a causal mask all have as much to
    do.

    >>> from rushlight.distributed.tensor.experimental._attention import _HeadTailLoadBalancer
    >>> _HeadTailLoadBalancer(8, 2)._generate_indices()
    tensor([0, 1, 6, 7, 2, 3, 4, 5])
    """

    def __init__(self, seq_length: int, world_size: int, device: Any = "cpu") -> None:
        if seq_length % (2 * world_size):
            raise ValueError(
                f"a sequence of {seq_length} places cannot be divided into {2 * world_size} equal pieces, two for each of {world_size} processes;"
                " pad it, or turn balancing off (_cp_options.enable_load_balance = False)"
            )
        self.seq_length, self.world_size, self.device = seq_length, world_size, device

    def _generate_indices(self, restore: bool = False) -> Tensor:
        pieces = rushlight.arange(self.seq_length, device=self.device).chunk(2 * self.world_size)
        order = rushlight.cat([x for k in range(self.world_size) for x in (pieces[k], pieces[-1 - k])])
        return order.argsort() if restore else order


def _balancer(length: int, world: int, device: Any) -> _LoadBalancer | None:
    if _cp_options.enable_load_balance and world > 1:
        return _HeadTailLoadBalancer(length, world, device)
    if length % world:
        raise ValueError(f"a sequence of {length} places cannot be divided equally among {world} processes; pad it")
    return None


def _part(x: Tensor, dim: int, mesh: Any, balancer: _LoadBalancer | None) -> Tensor:
    """This process's part of a whole tensor."""
    world = mesh.size()
    chosen = balancer if balancer is not None else _balancer(x.shape[dim], world, x.device)
    order = None if chosen is None else chosen._generate_indices()
    size = x.shape[dim] // world
    start = size * mesh.get_local_rank()
    if order is None:
        return x.narrow(dim, start, size).clone(memory_format=rushlight.contiguous_format)
    return x.index_select(dim, order[start : start + size].to(x.device))


def _context_parallel_shard(mesh: Any, buffers: Any, seq_dims: Any, load_balancer: _LoadBalancer | None = None) -> Any:
    """This process's parts of whole tensors, as a list, or as a dict where dicts are given."""
    if isinstance(buffers, dict):
        return {k: _part(x, seq_dims[k], mesh, load_balancer) for k, x in buffers.items()}
    if len(buffers) != len(seq_dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    return [_part(x, dim, mesh, load_balancer) for x, dim in zip(buffers, seq_dims, strict=True)]


def context_parallel_unshard(
    mesh: Any, buffers: Sequence[Tensor], seq_dims: Sequence[int], load_balancer: _LoadBalancer | None = None
) -> list[Tensor]:
    """Whole tensors from each process's parts, in the order of the sequence; on all processes, without gradients.

    - `seq_dims`: the sequence's dim in each
    """
    if len(buffers) != len(seq_dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    world, found = mesh.size(), []
    for x, dim in zip(buffers, seq_dims, strict=True):
        x = x.detach().contiguous()
        rows = [rushlight.empty_like(x) for _ in range(world)]
        dist.all_gather(rows, x, group=mesh.get_group())
        whole = rushlight.cat(rows, dim)
        chosen = load_balancer if load_balancer is not None else _balancer(whole.shape[dim], world, x.device)
        order = None if chosen is None else chosen._generate_indices(restore=True)
        found.append(whole if order is None else whole.index_select(dim, order.to(x.device)))
    return found


@contextmanager
def context_parallel(
    mesh: Any,
    *,
    buffers: Sequence[Tensor] | None = None,
    buffer_seq_dims: Sequence[int] | None = None,
    no_restore_buffers: Any = None,
) -> Iterator[None]:
    """Inside, `scaled_dot_product_attention` takes each process's part of a sequence and attends to all of it.

    - `mesh`: of one axis, over which the sequence (dim -2 of queries, keys and values) is divided
    - `buffers`, `buffer_seq_dims`: tensors that hold the whole sequence, and its dim in each: inputs, labels, encodings of
      places.  Inside they hold this process's part, in place; afterwards they are whole again, except
      `no_restore_buffers`

    Parts are balanced for a causal mask: a process has a piece from the front and its mirror image from the end, so a
    loss is a mean over places in any order, and what depends on the place (encodings) must be among the buffers.
    Compiled functions run as they are written inside.
    ValueError for a sequence that does not divide; NotImplementedError inside for masks other than `is_causal` and for
    dropout.

    >>> import rushlight as torch
    >>> import rushlight.distributed as dist
    >>> from rushlight.distributed.tensor.experimental import context_parallel
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> mesh, x = dist.init_device_mesh("cpu", (1,)), torch.randn(1, 2, 8, 4)
    >>> with context_parallel(mesh, buffers=[x], buffer_seq_dims=[2]):
    ...     torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True).shape
    torch.Size([1, 2, 8, 4])
    >>> dist.destroy_process_group()
    """
    if mesh.ndim != 1:
        raise ValueError(f"context_parallel takes a mesh of one axis, got {mesh}: name the axis, mesh['cp']")
    held, dims = list(buffers or ()), list(buffer_seq_dims or ())
    kept = list(no_restore_buffers or ())
    if len(held) != len(dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    if any(all(x is not y for y in held) for x in kept):
        raise ValueError("`no_restore_buffers` must be a subset of `buffers`.")
    if any(x.requires_grad for x in held):
        raise RuntimeError("cannot resize variables that require grad: divide inputs before they get a gradient")
    wholes = [x.detach() for x in held]
    parts = _context_parallel_shard(mesh, wholes, dims)
    for x, part in zip(held, parts, strict=True):
        x.data = part
    balanced = _cp_options.enable_load_balance and mesh.size() > 1
    ring = Ring(mesh.get_group(), balanced, _cp_options.rotate_method is _RotateMethod.ALL_GATHER)
    around = _Around(ring)
    INSTEAD.append(around)
    try:
        with rushlight.compiler.set_stance("force_eager"):
            yield
    finally:
        INSTEAD.remove(around)
        for x, whole in zip(held, wholes, strict=True):
            if all(x is not y for y in kept):
                x.data = whole


class _Around:
    """`scaled_dot_product_attention` over a divided sequence."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Attention of this process's queries to the keys of all."""
        if attn_mask is not None:
            raise NotImplementedError(
                "context_parallel: attention over a divided sequence takes is_causal, no attn_mask"
            )
        if dropout_p > 0.0:
            raise NotImplementedError("context_parallel: attention over a divided sequence has no dropout")
        return attend(self.ring, query, key, value, is_causal, scale, enable_gqa)
