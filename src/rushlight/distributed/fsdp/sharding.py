"""`fully_shard`: each process keeps a part of a module's parameters, gradients and optimizer state.

ZeRO (Rajbhandari et al., 2019), in the manner of PyTorch's FSDP2: a module's parameters are gathered before its forward,
given back after it, gathered again for its backward, and their gradients are reduced to parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.device_mesh import init_device_mesh
from rushlight.distributed.fsdp.groups import Group
from rushlight.distributed.fsdp.meshes import Axes
from rushlight.distributed.fsdp.parameters import Managed
from rushlight.distributed.fsdp.policies import MixedPrecisionPolicy, OffloadPolicy
from rushlight.distributed.fsdp.states import Context, State, root_context
from rushlight.distributed.tensor import Shard
from rushlight.nn import Module

__all__ = [
    "FSDPModule", "UnshardHandle", "become", "check_modules", "fully_shard", "groups_of", "register_fsdp_forward_method", "share_comm_ctx",
]  # fmt: skip

_CLASSES: dict[tuple[type, type], type] = {}


class UnshardHandle:
    """A gathering that `FSDPModule.unshard(async_op=True)` began."""

    def __init__(self, state: State | None = None) -> None:
        self._state = state

    def wait(self) -> None:
        """Put the whole parameters in their places."""
        if self._state is not None:
            for group in self._state.groups:
                group.unshard()
                group.place()
            self._state = None


class FSDPModule:
    """Additions of `fully_shard` to the class of a module."""

    _fsdp_state: State
    _plain_class: type

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A module of the class as it was: parts of containers (`model[:2]`) are made by calling the container's class."""
        return cls._plain_class(*args, **kwargs)

    def _states(self, recurse: bool) -> list[State]:
        assert isinstance(self, Module)
        found: list[State] = []
        for part in self.modules() if recurse else [self]:
            state = getattr(part, "_fsdp_state", None)
            if state is not None and state not in found:
                found.append(state)
        return found

    def _groups(self, recurse: bool) -> list[Group]:
        return [group for state in self._states(recurse) for group in state.groups]

    def _get_fsdp_state(self) -> State:
        return self._fsdp_state

    def _context(self) -> Context:
        return root_context(self._fsdp_state)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """As for every module, on the sharded parameters."""
        for group in self._groups(False):
            group.reshard()
        return super()._apply(fn, recurse)  # type: ignore[misc]

    def __deepcopy__(self, memo: Any) -> Any:
        raise AssertionError("FSDP does not support deepcopy. Please use state dict for serialization.")

    # ***** parameters *****

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gather the parameters now; with `async_op` the handle's `wait`, or the next forward, puts them in their places."""
        for group in self._fsdp_state.groups:
            group.begin(ahead=async_op)
        handle = UnshardHandle(self._fsdp_state)
        if async_op:
            return handle
        handle.wait()
        return None

    def reshard(self) -> None:
        """Give the whole parameters back."""
        for group in self._fsdp_state.groups:
            group.reshard()

    def reset_iter_state(self) -> None:
        """Make a fresh start after an exception in forward or backward; gradients that were not reduced are dropped.

        RuntimeError for a module that is not the root.
        """
        context = self._context()
        if context.root is not self._fsdp_state:
            raise RuntimeError("reset_iter_state must be called on the root FSDP module")
        context.reset()

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether the whole parameters are given back between forward and backward.  ValueError for other than a bool."""
        if not isinstance(reshard_after_forward, bool):
            raise ValueError(f"reshard_after_forward should be a bool, got {type(reshard_after_forward)}")
        for state in self._states(recurse):
            state.reshards, state.decides = reshard_after_forward, False
            for group in state.groups:
                group.near = None

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Whether they are given back after backward.  Kept ones are not gathered for the next forward: for several
        backward calls before a step of the optimizer.
        """
        for state in self._states(recurse):
            state.reshards_after_backward = reshard_after_backward

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Whether backward gathers the parameters: not needed where no operator reads them (an embedding).

        RuntimeError in backward where one does.
        """
        self._fsdp_state.unshards_in_backward = unshard_in_backward

    def set_modules_to_forward_prefetch(self, modules: Sequence[Any]) -> None:
        """Modules whose gathering this one's forward begins, instead of the one that came next in the iteration before."""
        self._fsdp_state.forward_ahead = _states_of(modules)

    def set_modules_to_backward_prefetch(self, modules: Sequence[Any]) -> None:
        """Modules whose gathering this one's backward begins, instead of the one whose forward came before."""
        self._fsdp_state.backward_ahead = _states_of(modules)

    # ***** gradients *****

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether backward reduces gradients; without, whole gradients are summed until it does."""
        for group in self._groups(recurse):
            group.reduction.syncs = group.reduction.reduces_all = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Whether replicas of a mesh of two axes reduce gradients among them; without, parts are summed until they do."""
        for group in self._groups(recurse):
            group.reduction.reduces_all = requires_all_reduce

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Whether the end of backward waits for the reductions: only the last of several backward calls needs to."""
        self._context().is_last = is_last_backward

    def set_gradient_divide_factor(self, factor: float) -> None:
        """By what sums of gradients are divided, instead of the number of processes."""
        for group in self._groups(False):
            group.reduction.factor = factor

    def set_reduce_scatter_divide_factor(self, factor: float) -> None:
        """`set_gradient_divide_factor`, by its older name."""
        self.set_gradient_divide_factor(factor)

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        """Nothing: reductions are always sums, divided afterwards."""

    def set_reduce_scatter_unused_params(self, reduce_scatter_unused_params: bool, *, recurse: bool = True) -> None:
        """Nothing: a parameter that only some processes used always takes part in the reduction, with zeros."""

    def set_reduce_scatter_max_input_buffers(self, max_input_buffers: int, *, recurse: bool = True) -> None:
        """How many reductions may run at once (1).  TypeError for other than an int, ValueError for less than 1."""
        if isinstance(max_input_buffers, bool) or not isinstance(max_input_buffers, int):
            raise TypeError(f"max_input_buffers must be an int, got {type(max_input_buffers).__name__}")
        if max_input_buffers < 1:
            raise ValueError(f"max_input_buffers must be a positive int, got {max_input_buffers}")
        for state in self._states(recurse):
            state.buffers = max_input_buffers

    # ***** communication *****

    def set_custom_all_gather(self, comm: Any) -> None:
        """Gather by an object with `allocate(size, *, dtype, device)` that is called with `output_tensor`, `input_tensor`,
        `group` and `async_op`, and gives a `Work` or None.
        """
        for group in self._one_group("set_custom_all_gather"):
            group.gatherer = comm

    def set_custom_reduce_scatter(self, comm: Any) -> None:
        """Reduce by an object with `allocate(size, *, dtype, device)` that is called with `output_tensor`, `input_tensor`,
        `group`, `op` and `async_op`, and gives a `Work` or None.
        """
        for group in self._one_group("set_custom_reduce_scatter"):
            group.reduction.scatterer = comm

    def set_all_reduce_hook(self, hook: Callable[[Any], None], *, stream: Any = None) -> None:
        """Call `hook(tensor)` with the sums of gradients that this process gets, before they are divided."""
        for group in self._one_group("set_all_reduce_hook"):
            if stream is not None and group.axes.replicas > 1:
                raise ValueError("stream cannot be set when using native HSDP")
            group.reduction.hook = hook

    def _one_group(self, name: str) -> list[Group]:
        groups = self._groups(False)
        if len(groups) > 1:
            raise ValueError(f"{name} is not supported where parameters have several dtypes: they are several groups")
        return groups

    def set_separate_reduce_scatter_group(self, enable: bool = True, *, recurse: bool = True) -> None:
        """Reduce by process groups of their own, so that gathering need not wait for reductions before it."""
        made: dict[tuple[int, ...], Any] = {}
        for group in self._groups(recurse):
            ranks = tuple(dist.get_process_group_ranks(group.axes.group))
            if enable and ranks not in made:
                made[ranks] = dist.new_group(list(ranks), use_local_synchronization=True, sort_ranks=False)
            group.reduction.separate = made[ranks] if enable else None

    def set_post_optim_event(self, event: Any) -> None:
        """Wait for an event, recorded after the optimizer's step, before the next forward gathers."""
        self._context().event = event

    def set_allocate_memory_from_process_group_for_comm(self, enable: bool) -> None:
        """Nothing on a CPU: no process group has memory of its own."""

    def set_symm_mem_for_comm(self, backend: str = "NCCL") -> None:
        """NotImplementedError: symmetric memory belongs to NCCL."""
        raise NotImplementedError("FSDPModule.set_symm_mem_for_comm: symmetric memory needs NCCL and a GPU")


def _states_of(modules: Sequence[Any]) -> list[State]:
    for module in modules:
        if not isinstance(module, FSDPModule):
            raise ValueError(f"Expects FSDPModule but got {type(module)}: {module}")
    return [module._fsdp_state for module in modules]


# ***** fully_shard *****


def _found(modules: Sequence[Module], ignored: set[Any]) -> dict[Any, tuple[str, list[tuple[Module, str]]]]:
    """The parameters of modules and their parts, with a name and all places of each; without those of parts that are
    sharded by themselves.
    """
    found: dict[Any, tuple[str, list[tuple[Module, str]]]] = {}
    seen: set[Module] = set()

    def visit(part: Module, prefix: str) -> None:
        if part in seen:
            return
        seen.add(part)
        for name, p in part._parameters.items():
            if p is not None and p not in ignored:
                found.setdefault(p, (prefix + name, []))[1].append((part, name))
        for name, child in part._modules.items():
            if child is not None and not isinstance(child, FSDPModule):
                visit(child, f"{prefix}{name}.")

    for module in modules:
        visit(module, "")
    return found


def _dim_of(parameter: Any, name: str, placement: Callable[[Any], Any] | None) -> int:
    """Along which dim a parameter is divided."""
    if not parameter.ndim:
        raise ValueError(
            f"fully_shard doesn't support scalar parameters. Change {name} to a 1D tensor with numel equal to 1."
        )
    chosen = placement(parameter) if placement is not None else None
    chosen = Shard(0) if chosen is None else chosen
    if not isinstance(chosen, Shard):
        raise ValueError(f"shard_placement_fn gives Shard or None, got {chosen}")
    if not -parameter.ndim <= chosen.dim < parameter.ndim:
        raise ValueError(f"shard_placement_fn gives {chosen} for a parameter of shape {tuple(parameter.shape)}")
    return chosen.dim % int(parameter.ndim)


def fully_shard(
    module: Any,
    *,
    mesh: Any = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[Any], Any] | None = None,
    mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(),
    offload_policy: OffloadPolicy = OffloadPolicy(),
    ignored_params: Iterable[Any] | None = None,
    dp_mesh_dims: Any = None,
) -> Any:
    """A module whose parameters are divided among the processes of a mesh; it is changed in place, and returned.

    Call it on parts first (blocks of a transformer), then on the whole: each call makes one group that is gathered and
    reduced at once.  A list of modules is one group.  `mesh` has one axis, or two: replicas of sharded groups.
    Gradients are means over all processes.  With `reshard_after_forward` (the default for parts, not for the root) the
    gathered parameters are given back until backward; a number says among how many neighbours they stay divided.
    `ignored_params` stay as they are.  Parameters that are `DTensor`s of another axis of the same mesh (tensor parallel)
    are divided further.

    ValueError for scalar parameters, meshes of other numbers of axes, and numbers that do not divide the mesh.

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
    if dp_mesh_dims is not None:
        raise NotImplementedError(
            "fully_shard along named axes of a larger mesh is not built yet; give `mesh` the axes"
        )
    modules = list(module) if isinstance(module, (list, tuple)) else [module]
    check_modules(modules, "fully_shard")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),)) if mesh is None else mesh
    if mesh.ndim == 2 and mesh.mesh_dim_names is None:
        raise AssertionError("Please init the 2D mesh for HSDP with mesh_dim_names specified")
    axes, near = Axes(mesh), None
    if isinstance(reshard_after_forward, int) and not isinstance(reshard_after_forward, bool):
        axes.check_divides(reshard_after_forward)
        if reshard_after_forward in (1, axes.part.size):
            reshard_after_forward = reshard_after_forward != 1
        else:
            near, place = axes.near(reshard_after_forward)
    groups = groups_of(modules, axes, mp_policy, ignored_params, shard_placement_fn)
    reshards = None if reshard_after_forward is None else bool(reshard_after_forward)
    for group in groups if near is not None else ():
        group.near = near, place, int(reshard_after_forward or 0)
    become(State(modules, groups, mp_policy, reshards), FSDPModule, "FSDP")
    return module


def check_modules(modules: Sequence[Any], function: str) -> None:
    """ValueError for what is no module with a forward, AssertionError for one that is managed already."""
    if not modules:
        raise ValueError(f"{function} does not support an empty list of modules")
    for part in modules:
        if not isinstance(part, Module):
            raise ValueError(f"{function} expects modules, got {type(part)}")
        if type(part).__name__ in ("ModuleList", "ModuleDict"):
            raise ValueError(f"{function} does not support containers that do not implement forward: {part}")
        if isinstance(part, FSDPModule):
            raise AssertionError(
                f"Each distinct composable distributed API can only be applied to a module once. {function} has already been"
                f" applied to the following module:\n{part}"
            )


def groups_of(
    modules: Sequence[Module],
    axes: Axes,
    policy: MixedPrecisionPolicy,
    ignored: Iterable[Any] | None,
    placement: Callable[[Any], Any] | None = None,
) -> list[Group]:
    """The parameters of modules in groups, one for each dtype."""
    found = _found(modules, set(ignored or ()))
    dims = {p: _dim_of(p, name, placement) for p, (name, _) in found.items()}
    kinds: dict[Any, list[Managed]] = {}
    for p, (name, places) in found.items():
        kinds.setdefault(p.dtype, []).append(Managed(places, name, dims[p], axes))
    return [Group(managed, axes, policy) for managed in kinds.values()]


def become(state: State, added: type, prefix: str) -> None:
    """Let the classes of a state's modules have what `added`, a kind of `FSDPModule`, adds, and their calls gather."""
    for module in state.modules:
        _become(module, state, added, prefix)


def _become(module: Module, state: State, added: type, prefix: str) -> None:
    kind = type(module)
    if (added, kind) not in _CLASSES:
        _CLASSES[added, kind] = type(
            f"{prefix}{kind.__name__}", (added, kind), {"__module__": kind.__module__, "_plain_class": kind}
        )
    module.__class__ = _CLASSES[added, kind]
    object.__setattr__(module, "_fsdp_state", state)
    module.register_forward_pre_hook(state.before, prepend=True, with_kwargs=True)
    module.register_forward_hook(state.after, always_call=True)

    def sharded(*args: Any) -> None:
        for group in state.groups:
            group.reshard()

    module.register_state_dict_pre_hook(sharded)
    module.register_load_state_dict_pre_hook(sharded)


def _state(module: Any) -> State | None:
    """State that `fully_shard` keeps for a module; None for other modules."""
    return getattr(module, "_fsdp_state", None)


fully_shard.state = _state  # type: ignore[attr-defined]


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Let another method of a sharded module count as its forward: parameters are gathered around it."""
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueError(f"{type(module)} does not have a method {method_name}")
    method, state = getattr(module, method_name), module._fsdp_state

    def gathered(*args: Any, **kwargs: Any) -> Any:
        changed = state.before(module, args, kwargs)
        if changed is not None:
            args, kwargs = changed
        outputs = None
        try:
            outputs = method(*args, **kwargs)
        finally:
            outputs = state.after(module, args, outputs)
        return outputs

    object.__setattr__(module, method_name, gathered)


def share_comm_ctx(modules: Sequence[Any]) -> None:
    """Let several roots (stages of a pipeline in one process) take turns as one: their collectives never wait for each
    other's memory.  On a CPU each collective has its own, so this only checks that all are sharded modules.
    """
    _states_of(modules)
