"""Functions of tensors that know sharded ones: copies, comparisons, and first values."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed._shard.sharded_tensor.api import _CUSTOM_SHARDED_OPS, _SHARDED_OPS, ShardedTensor
from rushlight.nn import init

__all__ = ["custom_sharded_op_impl"]


def _registers(table: dict[Any, Callable[..., Any]], func: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        table[func] = implementation
        return implementation

    return register


def custom_sharded_op_impl(func: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let `implementation(types, args, kwargs, process_group)`, which is decorated, compute a function of tensors where
    one is sharded.
    """
    return _registers(_CUSTOM_SHARDED_OPS, func)


# ***** copies *****


def _wants(types: Any, args: Any, kwargs: Any, group: Any) -> ShardedTensor:
    """`requires_grad_`."""
    x: ShardedTensor = args[0]
    wants = kwargs.get("requires_grad", args[1] if len(args) > 1 else True)
    for shard in x.local_shards():
        shard.tensor.requires_grad_(wants)
    x._rg = wants
    x._metadata.tensor_properties.requires_grad = wants
    return x


methods: Any = Tensor
_SHARDED_OPS[methods.requires_grad_] = _wants
_SHARDED_OPS[methods.detach] = lambda types, args, kwargs, group: args[0].with_parts(lambda x: x.detach(), False)
_SHARDED_OPS[methods.clone] = lambda types, args, kwargs, group: args[0].with_parts(lambda x: x.detach().clone(), False)


def _deep(types: Any, args: Any, kwargs: Any, group: Any) -> ShardedTensor:
    x: ShardedTensor = args[0]
    wants = x._metadata.tensor_properties.requires_grad
    return x.with_parts(lambda part: part.detach().clone().requires_grad_(wants))


_SHARDED_OPS[methods.__deepcopy__] = _deep


# ***** comparisons *****


def _compares(function: Callable[..., bool]) -> Callable[..., bool]:
    """A comparison of whole tensors from one of parts: the same answer on every process."""

    def compare(types: Any, args: Any, kwargs: Any, group: Any) -> bool:
        a, b, *more = args
        if not isinstance(a, ShardedTensor) or not isinstance(b, ShardedTensor):
            raise TypeError("Both two arguments need to be of type ShardedTensor")
        if a is b:
            return True
        ours, theirs = (deepcopy(x.metadata()) for x in (a, b))
        same = (ours.shards_metadata, tuple(ours.size)) == (theirs.shards_metadata, tuple(theirs.size))
        same = same and ours.tensor_properties.dtype is theirs.tensor_properties.dtype
        same = same and all(
            function(x.tensor.detach(), y.tensor.detach(), *more, **kwargs)
            for x, y in zip(a.local_shards(), b.local_shards(), strict=True)
        )
        found = rushlight.tensor([int(same)])
        dist.all_reduce(found, dist.ReduceOp.MIN, group=group)
        return bool(found.item())

    return compare


for _function in (rushlight.equal, rushlight.allclose):
    _SHARDED_OPS[_function] = _compares(_function)


# ***** first values *****


def _fills(function: Callable[..., Any]) -> Callable[..., Any]:
    def fill(types: Any, args: Any, kwargs: Any, group: Any) -> ShardedTensor:
        given = {**kwargs}
        x: ShardedTensor = args[0] if args else given.pop("tensor")
        for shard in x.local_shards():
            function(shard.tensor, *args[1:], **given)
        return x

    return fill


for _function in (init.constant_, init.normal_, init.uniform_, init.kaiming_uniform_):
    _SHARDED_OPS[_function] = _fills(_function)
