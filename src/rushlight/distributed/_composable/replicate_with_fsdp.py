"""`replicate` by the machinery of `fully_shard`: every process keeps all parameters, and gradients are means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.device_mesh import init_device_mesh
from rushlight.distributed.fsdp.meshes import Axes
from rushlight.distributed.fsdp.policies import MixedPrecisionPolicy, OffloadPolicy
from rushlight.distributed.fsdp.sharding import FSDPModule, become, check_modules, groups_of
from rushlight.distributed.fsdp.states import State

__all__ = ["ReplicateModule", "replicate"]


class ReplicateModule(FSDPModule):
    """Additions of `replicate` to the class of a module: settings and collectives as those of `FSDPModule`."""


def replicate(
    module: Any,
    *,
    mesh: Any = None,
    mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(),
    offload_policy: OffloadPolicy = OffloadPolicy(),
    ignored_params: Iterable[Any] | None = None,
    dp_mesh_dims: Any = None,
) -> Any:
    """A module whose parameters are `DTensor`s that lie whole on each process of a mesh of one axis, and whose gradients
    are means over all processes; it is changed in place, and returned.  A list of modules is one group.

    Parameters are what each process has: give all the same ones.  Those that are `DTensor`s of another axis of the same
    mesh (tensor parallel) lie over both.  RuntimeError for a module that `fully_shard` has, ValueError for a mesh of
    another number of axes.

    >>> import rushlight as torch
    >>> import rushlight.distributed as dist
    >>> from rushlight.distributed._composable.replicate_with_fsdp import replicate
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> net = replicate(torch.nn.Linear(4, 2))
    >>> net(torch.ones(1, 4)).sum().backward()
    >>> type(net).__name__, net.weight.placements, net.bias.grad.to_local()
    ('ReplicateLinear', (Replicate(),), tensor([1., 1.]))
    >>> dist.destroy_process_group()
    """
    if dp_mesh_dims is not None:
        raise NotImplementedError("replicate along named axes of a larger mesh is not built yet; give `mesh` the axis")
    modules = list(module) if isinstance(module, (list, tuple)) else [module]
    if any(isinstance(part, FSDPModule) and not isinstance(part, ReplicateModule) for part in modules):
        raise RuntimeError("Cannot apply `replicate()` on a Module already managed by `fully_shard`")
    check_modules(modules, "replicate")
    if mesh is None:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("replicate",))
    if mesh.ndim != 1:
        raise ValueError(f"replicate expects a 1D DeviceMesh but got {mesh}")
    groups = groups_of(modules, Axes.of_replicas(mesh), mp_policy, ignored_params)
    become(State(modules, groups, mp_policy, False), ReplicateModule, "Replicate")
    return module


def _state(module: Any) -> State | None:
    """State that `replicate` keeps for a module; None for other modules."""
    return getattr(module, "_fsdp_state", None) if isinstance(module, ReplicateModule) else None


replicate.state = _state  # type: ignore[attr-defined]
