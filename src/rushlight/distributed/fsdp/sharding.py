"""`fully_shard`: each process keeps a part of a module's parameters, gradients and optimizer state.

ZeRO (Rajbhandari et al., 2019), in the manner of PyTorch's FSDP2: a module's parameters are gathered before its forward,
given back after it, gathered again for its backward, and their gradients are reduced to parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.autograd.graph import saved_tensors_hooks
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.device_mesh import init_device_mesh
from rushlight.distributed.fsdp.groups import Group, Managed, sharded
from rushlight.distributed.fsdp.policies import MixedPrecisionPolicy, OffloadPolicy
from rushlight.distributed.tensor import DTensor, Shard
from rushlight.nn import Module
from rushlight.utils._pytree import tree_map

__all__ = ["FSDPModule", "UnshardHandle", "fully_shard", "register_fsdp_forward_method"]


class UnshardHandle:
    """A gathering that `FSDPModule.unshard(async_op=True)` began."""

    def __init__(self, group: Group | None) -> None:
        self._group = group

    def wait(self) -> None:
        """Put the whole parameters in their places."""
        if self._group is not None:
            self._group.enter()
            self._group = None


class FSDPModule:
    """What `fully_shard` adds to the class of a module."""

    _fsdp_group: Group | None

    def _groups(self, recurse: bool) -> list[Group]:
        assert isinstance(self, Module)
        parts = self.modules() if recurse else [self]
        found = [getattr(part, "_fsdp_group", None) for part in parts]
        return [group for group in found if group is not None]

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gather the parameters now; with `async_op` the handle's `wait` puts them in their places."""
        group = self._fsdp_group
        if group is not None:
            group.begin()
        handle = UnshardHandle(group)
        if async_op:
            return handle
        handle.wait()
        return None

    def reshard(self) -> None:
        """Give the whole parameters back."""
        if self._fsdp_group is not None:
            self._fsdp_group.leave()
            self._fsdp_group.again = None

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether backward reduces gradients; without, whole gradients are summed until it does."""
        for group in self._groups(recurse):
            group.syncs = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Whether replicas of a mesh of two axes reduce gradients among them."""
        for group in self._groups(recurse):
            group.reduces_all = requires_all_reduce

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether the whole parameters are given back between forward and backward."""
        for group in self._groups(recurse):
            group.reshards = reshard_after_forward

    def set_gradient_divide_factor(self, factor: float) -> None:
        """By what sums of gradients are divided, instead of the number of processes."""
        if self._fsdp_group is not None:
            self._fsdp_group.factor = factor

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Nothing: each backward ends with its own reductions."""

    def set_modules_to_forward_prefetch(self, modules: Sequence[Any]) -> None:
        """Modules whose gathering this one's forward begins."""
        self._ahead = [m._fsdp_group for m in modules if m._fsdp_group is not None]


def _managed(module: Module, ignored: set[Any], placement: Callable[[Any], Any] | None) -> list[Managed]:
    """The parameters of a module and its parts, without those of parts that are sharded by themselves."""
    found: list[Managed] = []

    def visit(part: Module) -> None:
        for name, p in part._parameters.items():
            if p is None or p in ignored:
                continue
            if isinstance(p, DTensor):
                raise NotImplementedError(
                    "fully_shard of parameters that are DTensors already (tensor parallel before FSDP) is not built yet"
                )
            chosen = placement(p) if placement is not None else None
            chosen = Shard(0) if chosen is None else chosen
            if not isinstance(chosen, Shard):
                raise ValueError(f"shard_placement_fn gives Shard or None, got {chosen}")
            if not p.ndim:
                raise ValueError(
                    "fully_shard doesn't support scalar parameters. Change it to a 1D tensor with numel equal to 1."
                )
            found.append(Managed(part, name, chosen.dim % p.ndim))
        for child in part.children():
            if not isinstance(child, FSDPModule):
                visit(child)

    visit(module)
    return found


def fully_shard(
    module: Any,
    *,
    mesh: Any = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[Any], Any] | None = None,
    mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(),
    offload_policy: OffloadPolicy | None = None,
    ignored_params: Iterable[Any] | None = None,
    dp_mesh_dims: Any = None,
) -> Any:
    """A module whose parameters are divided among the processes of a mesh; it is changed in place, and returned.

    Call it on parts first (blocks of a transformer), then on the whole: each call makes one group that is gathered and
    reduced at once.  `mesh` has one axis, or two: replicas of sharded groups.  Gradients are means over all processes.
    With `reshard_after_forward` (the default for parts, not for the whole) the gathered parameters are given back
    until backward.

    >>> import rushlight as torch
    >>> import rushlight.distributed as dist
    >>> from rushlight.distributed.fsdp import fully_shard
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    >>> for part in net:
    ...     _ = fully_shard(part)
    >>> _ = fully_shard(net)
    >>> net(torch.ones(1, 4)).sum().backward()
    >>> type(net[0]).__name__, net[1].weight.placements, net[1].bias.grad.full_tensor()
    ('FSDPLinear', (Shard(dim=0),), tensor([1., 1.]))
    >>> dist.destroy_process_group()
    """
    if isinstance(module, (list, tuple)):
        raise NotImplementedError("fully_shard of several modules as one group is not built yet; give them one by one")
    if isinstance(reshard_after_forward, int) and not isinstance(reshard_after_forward, bool):
        raise NotImplementedError("fully_shard to a smaller world (an int for reshard_after_forward) is not built yet")
    if dp_mesh_dims is not None:
        raise NotImplementedError(
            "fully_shard along named axes of a larger mesh is not built yet; give `mesh` the axes"
        )
    if isinstance(module, FSDPModule):
        raise AssertionError("Each distinct module can only be fully sharded once; this one is")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),)) if mesh is None else mesh
    if mesh.ndim not in (1, 2):
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    found = _managed(module, set(ignored_params or ()), shard_placement_fn)
    seen: dict[int, Any] = {}
    for m in found:  # a parameter that several modules share stays one
        p = m.module._parameters[m.name]
        if id(p) not in seen:
            seen[id(p)] = p, sharded(p, mesh, m.dim)
        m.module._parameters[m.name] = seen[id(p)][1]
    whole = not any(isinstance(part, FSDPModule) for part in module.modules())
    reshards = whole if reshard_after_forward is None else bool(reshard_after_forward)
    kind = type(module)
    module.__class__ = type(f"FSDP{kind.__name__}", (FSDPModule, kind), {"__module__": kind.__module__})
    group = Group(found, mesh, mp_policy, reshards) if found else None
    module._fsdp_group, module._ahead = group, []
    _hook(module, group, mp_policy)
    return module


def _hook(module: Any, group: Group | None, policy: MixedPrecisionPolicy) -> None:
    """Gather before forward, and put the parts back after it, whatever happens in it."""
    contexts: list[Any] = []

    def before(part: Any, args: Any, kwargs: Any) -> Any:
        for ahead in module._ahead:
            ahead.begin()
        if group is not None:
            group.enter()
            if rushlight.is_grad_enabled():
                contexts.append(saved_tensors_hooks(group.pack, group.unpack))
                contexts[-1].__enter__()
        if policy.param_dtype is None or not policy.cast_forward_inputs:
            return None
        return tree_map(lambda x: _cast(x, policy.param_dtype), (args, kwargs))

    def after(part: Any, args: Any, outputs: Any) -> Any:
        if contexts:
            contexts.pop().__exit__(None, None, None)
        if group is not None:
            group.leave()
        return None if policy.output_dtype is None else tree_map(lambda x: _cast(x, policy.output_dtype), outputs)

    module.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
    module.register_forward_hook(after, always_call=True)


def _cast(x: Any, dtype: Any) -> Any:
    return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Let another method of a sharded module count as its forward: parameters are gathered around it."""
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueError(f"{type(module)} does not have a method {method_name}")
    method = getattr(module, method_name)

    def gathered(*args: Any, **kwargs: Any) -> Any:
        group = module._fsdp_group
        if group is None:
            return method(*args, **kwargs)
        group.enter()
        try:
            with saved_tensors_hooks(group.pack, group.unpack):
                return method(*args, **kwargs)
        finally:
            group.leave()

    setattr(module, method_name, gathered)
