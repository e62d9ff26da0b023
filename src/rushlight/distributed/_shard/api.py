"""Cut tensors, parameters and modules into parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rushlight import Tensor
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed._shard.sharded_tensor import making as making
from rushlight.distributed._shard.sharded_tensor.api import LOADING, ShardedTensor
from rushlight.distributed._shard.sharder import Sharder
from rushlight.distributed._shard.sharding_plan import ShardingPlan
from rushlight.distributed._shard.sharding_spec import ChunkShardingSpec, ShardingSpec
from rushlight.nn import Module, Parameter

__all__ = ["_shard_tensor", "load_with_process_group", "shard_module", "shard_parameter"]


def _shard_tensor(
    tensor: Tensor, sharding_spec: ShardingSpec, src_rank: int = 0, process_group: Any = None
) -> ShardedTensor:
    """The parts of a tensor of `src_rank`; all processes give one of this shape, and the same spec.

    ValueError for a tensor that is not row-major, or that is sharded.
    """
    if isinstance(tensor, ShardedTensor):
        raise ValueError("the tensor is sharded already; use reshard()")
    if not tensor.is_contiguous():
        raise ValueError("input tensor is not a contiguous Tensor")
    told: list[Any] = [None] * dist.get_world_size(process_group)
    dist.all_gather_object(told, (src_rank, sharding_spec), group=process_group)
    for rank, (root, spec) in enumerate(told):
        if root != src_rank:
            raise ValueError(
                f"src_rank={src_rank} on rank: {dist.get_rank()} does not match with src_rank={root} on rank: {rank}"
            )
        if spec != sharding_spec:
            raise ValueError(
                f"sharding_spec={sharding_spec} on rank: {dist.get_rank()} does not match with sharding_spec={spec} on rank: {rank}"
            )
    made: ShardedTensor = sharding_spec.shard(tensor, src_rank=src_rank, process_group=process_group)
    return made


def shard_parameter(
    module: Module, param_name: str, sharding_spec: ShardingSpec, src_rank: int = 0, process_group: Any = None
) -> None:
    """Let a parameter of a module be a `ShardedTensor`.

    AttributeError where there is none of this name; ValueError for what is no tensor, or not row-major.
    """
    if not hasattr(module, param_name):
        raise AttributeError(f"{module._get_name()} has no attribute `{param_name}`")
    tensor = getattr(module, param_name)
    if not isinstance(tensor, Tensor):
        raise ValueError(
            f"Expected {type(module).__name__}.{param_name} to be a Tensor, but found {type(tensor).__name__}"
        )
    if not tensor.is_contiguous():
        raise ValueError(f"param: {param_name} is not a contiguous Tensor")
    made = _shard_tensor(tensor, sharding_spec, src_rank, process_group)
    module.register_parameter(param_name, Parameter(made))


@contextmanager
def load_with_process_group(process_group: Any) -> Iterator[Any]:
    """Inside, sharded tensors that are loaded from files belong to this group.  RuntimeError inside of another one."""
    if LOADING:
        raise RuntimeError('ProcessGroup already set by previous "load_with_process_group" context manager')
    LOADING.append(process_group)
    try:
        yield process_group
    finally:
        LOADING.pop()


# ***** modules *****


def shard_module(module: Module, plan: ShardingPlan, src_rank: int = 0, process_group: Any = None) -> None:
    """Cut parameters as a plan says, in place.

    TypeError for values of the plan that say nothing of how, RuntimeError for a parameter of a module that a `Sharder` has.
    """
    taken = [name for name, how in plan.plan.items() if isinstance(how, Sharder)]
    for name, how in plan.plan.items():
        home, _, last = name.rpartition(".")
        if isinstance(how, ShardingSpec):
            if any(home.startswith(path) for path in taken):
                raise RuntimeError(f"ShardingPlan is in-valid: the parameter {name} belongs to a module with a Sharder")
            shard_parameter(module.get_submodule(home), last, how, src_rank, process_group)
        elif isinstance(how, Sharder):
            if not name:
                raise KeyError("Module path must not be empty for custom sharder!")
            setattr(module.get_submodule(home), last, how.shard(module.get_submodule(name)))
        else:
            raise TypeError(f"Only `ShardingSpec` and `Sharder` are supported to shard '{name}'")
    for name, spec in (plan.output_plan or {}).items():
        if not isinstance(spec, ShardingSpec):
            raise TypeError(f"Only `ShardingSpec` is supported as output_plan for '{name}'")
        _reshard_output(module.get_submodule(name), spec)
    for name in plan.return_local_tensor or ():
        _collect_local_shard(module.get_submodule(name))


def _reshard_output(module: Module, resharding_spec: ShardingSpec) -> Module:
    """Let the results of a module be cut in another way."""
    module.register_forward_hook(
        lambda _, inputs, out: out.reshard(resharding_spec) if isinstance(out, ShardedTensor) else out
    )
    return module


def _collect_local_shard(module: Module) -> Module:
    """Let the results of a module be this process's part; without the dim along which it is cut, where that is one."""

    def local(_: Module, inputs: Any, out: Any) -> Any:
        if not isinstance(out, ShardedTensor):
            return out
        part, spec = out.local_tensor(), out.sharding_spec()
        if isinstance(spec, ChunkShardingSpec) and isinstance(spec.dim, int) and part.size(spec.dim) == 1:
            return part.squeeze(spec.dim)
        return part

    module.register_forward_hook(local)
    return module
