"""Context parallel: each process has a part of the sequence, and attention goes over all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.base import trace_marks
from rushlight._interface.operators import INSTEAD
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.tensor._api import DTensor
from rushlight.distributed.tensor.experimental._context_parallel._load_balancer import (
    _HeadTailLoadBalancer,
    _LoadBalancer,
)
from rushlight.distributed.tensor.experimental._context_parallel.ring import Ring, attend
from rushlight.distributed.tensor.placement_types import Shard
from rushlight.nn.attention.flex_attention import _DEFAULT_SPARSE_BLOCK_SIZE, BlockMask, create_block_mask
from rushlight.utils._pytree import tree_flatten, tree_unflatten

__all__ = [
    "_RotateMethod",
    "_context_parallel_shard",
    "_cp_options",
    "_disable_context_parallel_dispatcher",
    "_enable_context_parallel_dispatcher",
    "context_parallel",
    "context_parallel_unshard",
    "set_rotate_method",
]


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

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self.note()

    def note(self) -> None:
        """Settings on which compiled programs depend: whether attention of divided sequences goes round a ring, and how."""
        INSTEAD.note(*vars(self).values())


_cp_options = _ContextParallelOptions()


@trace_marks.changes_later_calls
def set_rotate_method(rotate_method: str) -> None:
    """`"alltoall"`: keys and values go round a ring, so that no process holds all of them; `"allgather"` (the default):
    all at once.  NotImplementedError for another.
    """
    names = {"allgather": _RotateMethod.ALL_GATHER, "alltoall": _RotateMethod.ALL_TO_ALL}
    if rotate_method not in names:
        raise NotImplementedError(f"Context Parallel does not support using {rotate_method} for kv shards rotation")
    _cp_options.rotate_method = names[rotate_method]


def _default_balancer(length: int, world: int, device: Any) -> _LoadBalancer | None:
    """The order where none is given: balanced for a causal mask, where that is asked for and the length allows it."""
    if _cp_options.enable_load_balance and world > 1 and length % (2 * world) == 0:
        return _HeadTailLoadBalancer(length, world, device)
    return None


# ***** parts and wholes *****


def _order_of(balancer: _LoadBalancer | None, restore: bool = False) -> Tensor | None:
    """The order of places (1 or batch, length), None for the order as it is."""
    order = None if balancer is None else balancer._generate_indices(restore)
    if order is not None and order.ndim != 2:
        raise AssertionError(
            f"load balance index expects shape (1, seq_len) or (B, seq_len) but got {tuple(order.shape)}."
        )
    return order


def _ordered(x: Tensor, dim: int, order: Tensor) -> Tensor:
    """A tensor with the places along `dim` in another order, for each item of the batch (dim 0) where there are several."""
    order = order.to(x.device)
    if dim == 0 or order.size(0) == 1:
        if order.size(0) != 1:
            raise ValueError(
                f"Cannot rearrange buffer: the order has shape {order.shape}, but buffer has shape {x.shape}."
            )
        return x.index_select(dim, order[0])
    if order.size(0) != x.size(0):
        raise ValueError(f"Cannot rearrange buffer: the order has shape {order.shape}, but buffer has shape {x.shape}.")
    index = order.long().view(order.size(0), *(1,) * (dim - 1), order.size(1), *(1,) * (x.ndim - dim - 1))
    return x.gather(dim, index.expand(x.shape))


def _part(x: Tensor, dim: int, mesh: Any, order: Tensor | None) -> Tensor:
    """This process's part of a whole tensor."""
    world = mesh.size()
    if x.shape[dim] % world:
        raise ValueError(
            f"a sequence of {x.shape[dim]} places cannot be divided equally among {world} processes; pad it"
        )
    size = x.shape[dim] // world
    start = size * mesh.get_local_rank()
    if order is None:
        return x.narrow(dim, start, size).clone(memory_format=rushlight.contiguous_format)
    return _ordered(x, dim, order).narrow(dim, start, size).clone(memory_format=rushlight.contiguous_format)


def _context_parallel_shard(mesh: Any, buffers: Any, seq_dims: Any, load_balancer: _LoadBalancer | None = None) -> Any:
    """This process's parts of whole tensors and block masks, in the structure in which they are given.

    - `seq_dims`: the sequence's dim in each, in the same structure; of a `BlockMask` its queries are divided
    - `load_balancer`: the order in which places are divided; None for the order as it is.  Attention over the parts
      (`_ContextParallel`) takes them as they were divided last

    ValueError for structures that differ, or a length that does not divide; NotImplementedError for a `BlockMask` whose
    parts would be no whole blocks.
    """
    _cp_options.enable_load_balance = load_balancer is not None
    if len(buffers) != len(seq_dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    flat, tree = tree_flatten(buffers)
    dims = tree_flatten(seq_dims)[0]
    if len(flat) != len(dims):
        raise ValueError("`seq_dims` must have the pytree structure as `buffers`.")
    order = _order_of(load_balancer)
    made: list[Any] = []
    for x, dim in zip(flat, dims, strict=True):
        if isinstance(x, Tensor):
            made.append(_part(x, dim, mesh, order))
        elif isinstance(x, BlockMask):
            batches, heads = x.kv_num_blocks.shape[:2]
            queries, keys = x.seq_lengths
            made.append(_create_cp_block_mask(x.mask_mod, batches, heads, queries, keys, mesh, load_balancer))
        else:
            raise ValueError(f"Unknown buffer type: {type(x)}")
    return tree_unflatten(made, tree)


def _create_cp_block_mask(
    mask_mod: Any, B: int, H: int, Q_LEN: int, KV_LEN: int, device_mesh: Any, load_balancer: _LoadBalancer | None = None
) -> BlockMask:
    """The mask of this process's queries and all keys, both in the order of the load balancer.

    `mask_mod` is that of the whole in the order of the sequence.  NotImplementedError for queries that do not divide
    into whole blocks for each process.
    """
    world, rank, size = device_mesh.size(), device_mesh.get_local_rank(), _DEFAULT_SPARSE_BLOCK_SIZE
    if Q_LEN % (world * size):
        raise NotImplementedError(
            f"Q_LEN {Q_LEN} is not divisible by CP mesh world size {world} * BLOCK_SIZE {size}. This is not supported yet. "
        )
    chosen = load_balancer or _default_balancer(Q_LEN, world, device_mesh.device_type)
    order, mine = _order_of(chosen), Q_LEN // world

    def place(b: Any, index: Any) -> Any:
        """Where in the sequence a place of the order is."""
        if order is None:
            return index
        return order[0][index] if order.size(0) == 1 else order[b, index]

    return create_block_mask(
        lambda b, h, q_idx, kv_idx: mask_mod(b, h, place(b, q_idx + mine * rank), place(b, kv_idx)),
        B,
        H,
        mine,
        KV_LEN,
        device=device_mesh.device_type,
        BLOCK_SIZE=size,
    )


@rushlight.no_grad()
def context_parallel_unshard(
    mesh: Any, buffers: Sequence[Tensor], seq_dims: Sequence[int], load_balancer: _LoadBalancer | None = None
) -> list[Tensor]:
    """Whole tensors from each process's parts, in the order of the sequence; on all processes, without gradients.

    - `seq_dims`: the sequence's dim in each
    - `load_balancer`: in which order they were divided, by default that of `context_parallel`
    """
    if len(buffers) != len(seq_dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    world, found = mesh.size(), []
    for x, dim in zip(buffers, seq_dims, strict=True):
        x = x.detach().contiguous()
        rows = [rushlight.empty_like(x) for _ in range(world)]
        dist.all_gather(rows, x, group=mesh.get_group())
        whole = rushlight.cat(rows, dim)
        order = _order_of(load_balancer or _default_balancer(whole.shape[dim], world, x.device), restore=True)
        found.append(whole if order is None else _ordered(whole, dim, order))
    return found


# ***** attention over parts *****


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
    Functions that are compiled go over parts as well; one that enters the context itself ends its program there.
    ValueError for a sequence that does not divide among the processes (one that does not divide into two pieces for each
    is not balanced); NotImplementedError inside for masks other than `is_causal` and for
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
    wholes, before = [x.detach() for x in held], _cp_options.enable_load_balance
    if held:
        balancer = _default_balancer(held[0].shape[dims[0]], mesh.size(), held[0].device)
        _cp_options.enable_load_balance = balancer is not None
        order = _order_of(balancer)
        for x, whole, dim in zip(held, wholes, dims, strict=True):
            x.data = _part(whole, dim, mesh, order)
    around = _Around(_ring(mesh))
    INSTEAD.append(around)
    _cp_options.note()
    try:
        yield
    finally:
        INSTEAD.remove(around)
        _cp_options.enable_load_balance = before
        for x, whole in zip(held, wholes, strict=True):
            if all(x is not y for y in kept):
                x.data = whole


def _ring(mesh: Any) -> Ring:
    """How sequences lie on the processes of a mesh of one axis."""
    balanced = _cp_options.enable_load_balance and mesh.size() > 1
    return Ring(mesh.get_group(), balanced, _cp_options.rotate_method is _RotateMethod.ALL_GATHER)


@dataclass(frozen=True)
class _Around:
    """`scaled_dot_product_attention` over a divided sequence.  Equal ones make equal programs."""

    ring: Ring

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
        _check_plain(attn_mask, dropout_p)
        return attend(self.ring, query, key, value, is_causal, scale, enable_gqa)


def _check_plain(attn_mask: Tensor | None, dropout_p: float) -> None:
    if attn_mask is not None:
        raise NotImplementedError("context_parallel: attention over a divided sequence takes is_causal, no attn_mask")
    if dropout_p > 0.0:
        raise NotImplementedError("context_parallel: attention over a divided sequence has no dropout")


def _over_parts(
    query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float, is_causal: bool, scale: Any, enable_gqa: bool
) -> Any:
    """Attention of `DTensor`s that are divided along the sequence (dim 2), in a ring; NotImplemented for others."""
    divided = (Shard(2),)
    if not all(isinstance(x, DTensor) and tuple(x.placements) == divided and x.ndim == 4 for x in (query, key, value)):
        return NotImplemented
    _check_plain(attn_mask, dropout_p)
    mesh = query.device_mesh
    local = attend(_ring(mesh), query.to_local(), key.to_local(), value.to_local(), is_causal, scale, enable_gqa)
    return DTensor.from_local(local, mesh, divided, run_check=False)


@trace_marks.changes_later_calls
def _enable_context_parallel_dispatcher() -> None:
    """From now on `scaled_dot_product_attention` of `DTensor`s that are divided along the sequence (dim 2 of 4) goes
    round a ring, over parts that lie as `_context_parallel_shard` divided them last.
    """
    if _over_parts not in INSTEAD:
        INSTEAD.insert(0, _over_parts)
    _cp_options.note()


@trace_marks.changes_later_calls
def _disable_context_parallel_dispatcher() -> None:
    """Let it be computed as other operators are again."""
    if _over_parts in INSTEAD:
        INSTEAD.remove(_over_parts)
    _cp_options.note()
