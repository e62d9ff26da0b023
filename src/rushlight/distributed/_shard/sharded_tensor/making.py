"""Functions that make sharded tensors, and what keeps them in the files of modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.distributed._shard.sharded_tensor import _ops as operators
from rushlight.distributed._shard.sharded_tensor.api import Shard, ShardedTensor
from rushlight.distributed._shard.sharding_spec import ShardingSpec
from rushlight.nn import Module, init

__all__ = [
    "custom_sharded_op_impl", "empty", "full", "init_from_local_shards", "ones", "pre_load_state_dict_hook", "rand", "randn",
    "state_dict_hook", "zeros",
]  # fmt: skip

custom_sharded_op_impl = operators.custom_sharded_op_impl


def empty(sharding_spec: ShardingSpec, *size: Any, **options: Any) -> ShardedTensor:
    """A sharded tensor whose elements mean nothing; `options` are those of `ShardedTensor`."""
    return ShardedTensor(sharding_spec, *size, **options)


def full(sharding_spec: ShardingSpec, size: Any, fill_value: Any, **options: Any) -> ShardedTensor:
    """A sharded tensor of one value."""
    return _filled(lambda x: init.constant_(x, fill_value), sharding_spec, size, **options)


def zeros(sharding_spec: ShardingSpec, *size: Any, **options: Any) -> ShardedTensor:
    """A sharded tensor of zeros."""
    return full(sharding_spec, size[0] if _is_sequence(size) else size, 0, **options)


def ones(sharding_spec: ShardingSpec, *size: Any, **options: Any) -> ShardedTensor:
    """A sharded tensor of ones."""
    return full(sharding_spec, size[0] if _is_sequence(size) else size, 1, **options)


def rand(sharding_spec: ShardingSpec, *size: Any, **options: Any) -> ShardedTensor:
    """A sharded tensor of numbers between 0 and 1, drawn by each process."""
    return _filled(lambda x: init.uniform_(x, 0, 1), sharding_spec, *size, **options)


def randn(sharding_spec: ShardingSpec, *size: Any, **options: Any) -> ShardedTensor:
    """A sharded tensor of normal numbers, drawn by each process."""
    return _filled(lambda x: init.normal_(x, 0, 1), sharding_spec, *size, **options)


def _is_sequence(size: Any) -> bool:
    return len(size) == 1 and isinstance(size[0], (list, tuple))


def _filled(fill: Callable[[Tensor], Any], *args: Any, **options: Any) -> ShardedTensor:
    made = ShardedTensor(*args, **options)
    with rushlight.no_grad():
        for shard in made.local_shards():
            fill(shard.tensor)
    return made


def init_from_local_shards(
    local_shards: list[Shard], *global_size: Any, process_group: Any = None, init_rrefs: bool = False
) -> ShardedTensor:
    """A sharded tensor of each process's parts; a dim of `global_size` that is None is found by all together."""
    return ShardedTensor._init_from_local_shards(
        local_shards, *global_size, process_group=process_group, init_rrefs=init_rrefs
    )


def state_dict_hook(module: Module, destination: Any, prefix: str, local_metadata: Any) -> None:
    """Put sharded tensors that are attributes of parts into a state dict."""
    for name, part in module.named_modules():
        for key, value in part.__dict__.items():
            if isinstance(value, ShardedTensor):
                destination[f"{prefix}{name}{'.' if name else ''}{key}"] = value


def pre_load_state_dict_hook(
    module: Module,
    state_dict: Any,
    prefix: str,
    local_metadata: Any,
    strict: bool,
    missing_keys: Any,
    unexpected_keys: Any,
    error_msgs: Any,
) -> None:
    """Take sharded tensors that are attributes of parts from a state dict."""
    for name, part in module.named_modules():
        for key in part.__dict__:
            place = f"{prefix}{name}{'.' if name else ''}{key}"
            if isinstance(state_dict.get(place), ShardedTensor):
                setattr(part, key, state_dict[place])
