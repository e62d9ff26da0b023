"""`FullyShardedDataParallel`: sharded parameters by a wrapper around a module, on the machinery of `fully_shard`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.device_mesh import DeviceMesh, init_device_mesh
from rushlight.distributed.fsdp import _state_dicts as forms
from rushlight.distributed.fsdp.api import (
    CONFIGS,
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from rushlight.distributed.fsdp.groups import Group
from rushlight.distributed.fsdp.meshes import Axes, replicas
from rushlight.distributed.fsdp.parameters import Managed
from rushlight.distributed.fsdp.policies import MixedPrecisionPolicy
from rushlight.distributed.fsdp.states import State, root_context
from rushlight.distributed.fsdp.wrap import wrap_parts
from rushlight.distributed.tensor import DTensor, Replicate
from rushlight.distributed.tensor._redistribute import redistribute
from rushlight.nn import Module, Parameter
from rushlight.utils._pytree import tree_map

__all__ = [
    "BackwardPrefetch", "CPUOffload", "FullOptimStateDictConfig", "FullStateDictConfig", "FullyShardedDataParallel",
    "LocalOptimStateDictConfig", "LocalStateDictConfig", "MixedPrecision", "OptimStateDictConfig", "OptimStateKeyType",
    "ShardedOptimStateDictConfig", "ShardedStateDictConfig", "ShardingStrategy", "StateDictConfig", "StateDictSettings",
    "StateDictType",
]  # fmt: skip

_HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
_KEPT = (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2)  # whole until backward
FULL = StateDictType.FULL_STATE_DICT


class FullyShardedDataParallel(Module):
    """A module whose parameters are divided among processes, as a wrapper (`fully_shard` changes a module itself).

    `auto_wrap_policy` says which parts are wrapped by themselves first.  Parameters are `DTensor`s of their own shapes,
    with and without `use_orig_params`; with it they are the same objects as before, so that an optimizer made before
    wrapping trains them.  `sync_module_states` sends the first process's values to the others;
    `param_init_fn(module)` gives memory and values to parts on the meta device (by default `to_empty` and
    `reset_parameters`).  `device_id`, `limit_all_gathers` and `cpu_offload` change nothing on a CPU.

    ValueError for a `device_mesh` beside a `process_group`, and settings that contradict.

    >>> import rushlight as torch
    >>> import rushlight.distributed as dist
    >>> from rushlight.distributed.fsdp import FullyShardedDataParallel as FSDP
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = FSDP(torch.nn.Linear(2, 1))
    >>> model(torch.ones(1, 2)).sum().backward()
    >>> list(model.state_dict()), model.clip_grad_norm_(1.0)
    (['weight', 'bias'], tensor(1.7321))
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        module: Module,
        process_group: Any = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None,
        auto_wrap_policy: Any = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Callable[[Module], None] | None = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Iterable[Any] | None = None,
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        super().__init__()
        options = {
            "process_group": process_group, "sharding_strategy": sharding_strategy, "cpu_offload": cpu_offload,
            "backward_prefetch": backward_prefetch, "mixed_precision": mixed_precision, "param_init_fn": param_init_fn,
            "device_id": device_id, "sync_module_states": sync_module_states, "forward_prefetch": forward_prefetch,
            "limit_all_gathers": limit_all_gathers, "use_orig_params": use_orig_params, "device_mesh": device_mesh,
        }  # fmt: skip
        self.sharding_strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        self.mixed_precision = mixed_precision or MixedPrecision()
        self.cpu_offload, self.backward_prefetch = cpu_offload or CPUOffload(), backward_prefetch
        self.forward_prefetch, self.limit_all_gathers = forward_prefetch, limit_all_gathers
        self._use_orig_params = use_orig_params
        if param_init_fn is not None and not callable(param_init_fn):
            raise ValueError(f"Expected {param_init_fn} to be callable, but got {type(param_init_fn)}")
        if self.mixed_precision.keep_low_precision_grads:
            raise NotImplementedError(
                "MixedPrecision(keep_low_precision_grads=True) is not built: gradients have the parameters' dtype"
            )
        ignored = _ignored(module, ignored_modules, ignored_states)
        mesh = _mesh(self.sharding_strategy, process_group, device_mesh)
        if auto_wrap_policy is not None:
            options["process_group"], options["device_mesh"] = None, mesh
            options["sharding_strategy"] = self.sharding_strategy
            options["ignored_states"] = list(ignored[1])
            _keep_dtypes(module, self.mixed_precision, options, ignored)
            wrap_parts(module, auto_wrap_policy, FullyShardedDataParallel, ignored, options)
        _materialize(module, param_init_fn, ignored[0])
        axes = Axes(mesh)
        if sync_module_states:
            _send(module, axes, ignored[1])
        self._fsdp_wrapped_module = module
        self.process_group = axes.group
        object.__setattr__(self, "_fsdp_state", self._sharded(axes, ignored[1]))
        self._settings = StateDictSettings(FULL, FullStateDictConfig(), FullOptimStateDictConfig())
        self._summoned = False
        self._buffer_dtypes: dict[str, Any] | None = None
        self._register_state_dict_hook(_show)
        self.register_state_dict_pre_hook(lambda m, *rest: m._reshard())
        self.register_load_state_dict_pre_hook(_take)

    def _sharded(self, axes: Axes, ignored: set[Any]) -> State:
        """The groups of the parameters that no part has taken."""
        precision = self.mixed_precision
        policy = MixedPrecisionPolicy(
            precision.param_dtype, precision.reduce_dtype, cast_forward_inputs=precision.cast_forward_inputs
        )
        kinds: dict[Any, list[Managed]] = {}
        for p, (name, places) in _own(self._fsdp_wrapped_module, ignored).items():
            if not p.ndim:
                raise ValueError(
                    f"FSDP doesn't support scalar parameters. Change {name} to a 1D tensor with numel equal to 1."
                )
            made = Managed(places, name, 0, axes)
            kinds.setdefault(made.sharded.dtype, []).append(made)
            if self._use_orig_params:
                made.keep(p)
        reshards = False if self.sharding_strategy in _KEPT else None
        state = State([self], [Group(managed, axes, policy) for managed in kinds.values()], policy, reshards)
        if self.backward_prefetch is not BackwardPrefetch.BACKWARD_PRE:
            state.backward_ahead = ()
        return state

    @property
    def _state(self) -> State:
        state: State = self.__dict__["_fsdp_state"]
        return state

    # ***** the module within *****

    @property
    def module(self) -> Module:
        """The wrapped module."""
        inner: Module = self._fsdp_wrapped_module
        return inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_fsdp_wrapped_module":  # not there yet
                raise
            return getattr(self._fsdp_wrapped_module, name)

    def __getitem__(self, key: Any) -> Any:
        inner: Any = self._fsdp_wrapped_module
        return inner[key]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped module's result, computed with whole parameters."""
        state, precision = self._state, self.mixed_precision
        root = root_context(state).root is state
        self._cast_buffers()
        changed = state.before(self, args, kwargs)
        if changed is not None:
            args, kwargs = changed
        elif root and precision.param_dtype is not None and precision.cast_root_forward_inputs:
            args, kwargs = tree_map(lambda x: _cast(x, precision.param_dtype), (args, kwargs))
        outputs = None
        try:
            outputs = self._fsdp_wrapped_module(*args, **kwargs)
        finally:
            outputs = state.after(self, args, outputs)
        return outputs

    def _cast_buffers(self) -> None:
        """Buffers in their dtype, from the first forward on."""
        dtype = self.mixed_precision.buffer_dtype
        if self._buffer_dtypes is not None:
            return
        self._buffer_dtypes = {}
        if dtype is None:
            return
        for part in _own_modules(self._fsdp_wrapped_module):
            for name, buffer in part._buffers.items():
                if buffer is not None and buffer.is_floating_point() and not hasattr(part, "_fsdp_keeps_dtypes"):
                    self._buffer_dtypes[f"{id(part)}.{name}"] = buffer.dtype
                    part._buffers[name] = buffer.to(dtype)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._reshard()
        return super()._apply(fn, recurse)

    def _reshard(self) -> None:
        for group in self._state.groups:
            group.reshard()

    # ***** the tree *****

    def check_is_root(self) -> bool:
        """Whether this is the outermost wrapper."""
        return root_context(self._state).root is self._state

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """The wrappers in a module; with `root_only` those that are in no other."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        if root_only:
            inner = {part for m in found for part in m.modules() if part is not m}
            found = [m for m in found if m not in inner]
        return found

    def apply(self, fn: Callable[[Module], None]) -> FullyShardedDataParallel:
        """Call a function with every module, while parameters are whole; what it changes stays."""
        with FullyShardedDataParallel.summon_full_params(self, writeback=True):
            super().apply(fn)
        return self

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Parameter]]:
        """As for every module; while parameters are whole, without the names of wrappers."""
        for name, p in super().named_parameters(*args, **kwargs):
            yield name.replace(forms.PREFIX, "") if self._summoned else name, p

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Tensor]]:
        """As for every module; while parameters are whole, without the names of wrappers."""
        for name, buffer in super().named_buffers(*args, **kwargs):
            yield name.replace(forms.PREFIX, "") if self._summoned else name, buffer

    @staticmethod
    @contextmanager
    def summon_full_params(
        module: Module,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:
        """Within it the modules have whole parameters, in their own dtypes.  With `writeback` changes of this process's
        part stay; with `rank0_only` only the first process has whole ones.

        NotImplementedError for `writeback` with `rank0_only`, and for `with_grads` without `use_orig_params`.
        """
        if rank0_only and writeback:
            raise NotImplementedError("writeback=True and rank0_only=True is not supported")
        wrappers = FullyShardedDataParallel.fsdp_modules(module)
        if not recurse:
            wrappers = [m for m in wrappers if m is module]
        if with_grads and any(not m._use_orig_params for m in wrappers):
            raise NotImplementedError("with_grads=True is only supported for use_orig_params=True")
        if with_grads and (offload_to_cpu or writeback and rank0_only):
            raise NotImplementedError("with_grads=True is not supported with offload_to_cpu=True")
        put: list[tuple[Managed, Parameter]] = []
        for wrapper in wrappers:
            for group in wrapper._state.groups:
                group.reshard()
                for m in group.managed:
                    put.append((m, _whole(m, with_grads)))
            wrapper._summoned = True
        try:
            if not rank0_only or dist.get_rank() == 0:
                for m, whole in put:
                    for part, key in m.places:
                        part._parameters[key] = whole
            yield
        finally:
            for m, whole in put:
                m.restore()
                if writeback:
                    _write_back(m, whole, with_grads)
            for wrapper in wrappers:
                wrapper._summoned = False

    # ***** gradients *****

    def _check_root(self, name: str) -> None:
        if not self.check_is_root():
            raise RuntimeError(f"`{name}()` should only be called on a root FSDP instance")

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward calls within sum whole gradients, without communication.  RuntimeError but for the root."""
        if not self.check_is_root():
            raise RuntimeError(
                "`no_sync()` on inner FSDP instances is not supported. Please call `no_sync()` on root FSDP module."
            )
        groups = [group for state in root_context(self._state).states for group in state.groups]
        before = [group.reduction.syncs for group in groups]
        for group in groups:
            group.reduction.syncs = False
        try:
            yield
        finally:
            for group, syncs in zip(groups, before, strict=True):
                group.reduction.syncs = syncs

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scale all gradients so that their common norm is at most `max_norm`; gives the norm.  RuntimeError but for
        the root.
        """
        self._check_root("clip_grad_norm_")
        max_norm, norm_type = float(max_norm), float(norm_type)
        grads = [p.grad for p in self.parameters() if p.grad is not None]
        norms = []
        for some in ([g for g in grads if isinstance(g, DTensor)], [g for g in grads if not isinstance(g, DTensor)]):
            if some:
                total = rushlight.nn.utils.get_total_norm(some, norm_type)
                norms.append(total.full_tensor() if isinstance(total, DTensor) else total)
        if not norms:
            return rushlight.tensor(0.0)
        total = rushlight.linalg.vector_norm(rushlight.stack(norms), norm_type)
        factor = rushlight.clamp(max_norm / (total + 1e-6), max=1.0)
        with rushlight.no_grad():
            for g in grads:
                (g._local_tensor if isinstance(g, DTensor) else g).mul_(factor)
        return total

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """Reduce gradients by `hook(state, grad, output)`, which writes this process's part of the mean into `output`;
        with `NO_SHARD` by `hook(state, grad)`, in place.

        AssertionError but for the root, and for hybrid strategies; ValueError where there is a hook.
        """
        if not self.check_is_root():
            raise AssertionError("register_comm_hook can only be called on a root instance.")
        states = root_context(self._state).states
        if any(g.axes.replicas > 1 and g.axes.part.size > 1 for s in states for g in s.groups):
            raise AssertionError("Communication hook is currently not supported for hybrid sharding strategies.")
        for group in (g for s in states for g in s.groups):
            if group.reduction.reducer is not None:
                raise AssertionError("A communication hook is already registered")
            group.reduction.reducer = lambda *given: hook(state, *given)

    # ***** state dicts *****

    @staticmethod
    def set_state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> StateDictSettings:
        """Set the form of the state dicts of all wrappers in a module; gives the settings before.

        RuntimeError for options of another form.
        """
        kinds = CONFIGS[state_dict_type]
        given: list[Any] = [state_dict_config or kinds[0](), optim_state_dict_config or kinds[1]()]
        for name, kind, value in zip(("state_dict_config", "optim_state_dict_config"), kinds, given, strict=True):
            if type(value) is not kind:
                raise RuntimeError(f"Expected {name} of type {kind} but got {type(value)}")
        before = FullyShardedDataParallel.get_state_dict_type(module)
        for wrapper in FullyShardedDataParallel.fsdp_modules(module):
            wrapper._settings = StateDictSettings(state_dict_type, *given)
        return before

    @staticmethod
    def get_state_dict_type(module: Module) -> StateDictSettings:
        """The form of the state dicts of all wrappers in a module; AssertionError where they differ."""
        found = [wrapper._settings for wrapper in FullyShardedDataParallel.fsdp_modules(module)]
        if any(settings != found[0] for settings in found):
            raise AssertionError("All FSDP modules must have the same state dict settings.")
        return found[0] if found else StateDictSettings(FULL, FullStateDictConfig(), FullOptimStateDictConfig())

    @staticmethod
    @contextmanager
    def state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> Iterator[None]:
        """As `set_state_dict_type`, within it."""
        before = FullyShardedDataParallel.set_state_dict_type(
            module, state_dict_type, state_dict_config, optim_state_dict_config
        )
        try:
            yield
        finally:
            FullyShardedDataParallel.set_state_dict_type(
                module, before.state_dict_type, before.state_dict_config, before.optim_state_dict_config
            )

    @staticmethod
    def optim_state_dict(model: Module, optim: Any, optim_state_dict: Any = None, group: Any = None) -> dict[str, Any]:
        """The state dict of an optimizer by the names of parameters, in the form that is set for the model."""
        return forms.optimizer_state(
            model, optim, FullyShardedDataParallel.get_state_dict_type(model), optim_state_dict
        )

    @staticmethod
    def optim_state_dict_to_load(
        model: Module,
        optim: Any,
        optim_state_dict: dict[str, Any],
        is_named_optimizer: bool = False,
        load_directly: bool = False,
        group: Any = None,
    ) -> dict[str, Any]:
        """Argument of `optim.load_state_dict` from a state dict by names, whatever its form; with `load_directly` it is
        loaded at once.
        """
        found = forms.state_to_load(model, optim, optim_state_dict)
        if load_directly:
            optim.load_state_dict(found)
        return found

    @staticmethod
    def full_optim_state_dict(
        model: Module, optim: Any, optim_input: Any = None, rank0_only: bool = True, group: Any = None
    ) -> dict[str, Any]:
        """`optim_state_dict` with whole tensors; empty on other processes with `rank0_only`."""
        settings = StateDictSettings(FULL, FullStateDictConfig(), FullOptimStateDictConfig(rank0_only=rank0_only))
        return forms.optimizer_state(model, optim, settings)

    @staticmethod
    def sharded_optim_state_dict(model: Module, optim: Any, group: Any = None) -> dict[str, Any]:
        """`optim_state_dict` with `DTensor`s."""
        sharded = StateDictType.SHARDED_STATE_DICT
        settings = StateDictSettings(sharded, ShardedStateDictConfig(), ShardedOptimStateDictConfig())
        return forms.optimizer_state(model, optim, settings)

    @staticmethod
    def shard_full_optim_state_dict(
        full_optim_state_dict: dict[str, Any], model: Module, optim_input: Any = None, optim: Any = None
    ) -> dict[str, Any]:
        """Argument of `optim.load_state_dict` from whole tensors by names."""
        return forms.state_to_load(model, _given(optim), full_optim_state_dict)

    @staticmethod
    def flatten_sharded_optim_state_dict(
        sharded_optim_state_dict: dict[str, Any], model: Module, optim: Any
    ) -> dict[str, Any]:
        """Argument of `optim.load_state_dict` from `DTensor`s by names."""
        return forms.state_to_load(model, optim, sharded_optim_state_dict)

    @staticmethod
    def scatter_full_optim_state_dict(
        full_optim_state_dict: dict[str, Any] | None,
        model: Module,
        optim_input: Any = None,
        optim: Any = None,
        group: Any = None,
    ) -> dict[str, Any]:
        """Argument of `optim.load_state_dict` from whole tensors that only the first process of the group has."""
        given = [full_optim_state_dict]
        dist.broadcast_object_list(given, group=group, group_src=0)
        assert given[0] is not None
        return forms.state_to_load(model, _given(optim), given[0])

    @staticmethod
    def rekey_optim_state_dict(
        optim_state_dict: dict[str, Any],
        optim_state_key_type: OptimStateKeyType,
        model: Module,
        optim_input: Any = None,
        optim: Any = None,
    ) -> dict[str, Any]:
        """A state dict of an optimizer by names, or by numbers."""
        names: dict[Any, Any] = dict(forms.names_of(model, _given(optim)))
        by_name = optim_state_key_type is OptimStateKeyType.PARAM_NAME
        keys = names if by_name else {name: number for number, name in names.items()}
        state = {keys.get(key, key): row for key, row in optim_state_dict["state"].items()}
        groups = [{**g, "params": [keys.get(k, k) for k in g["params"]]} for g in optim_state_dict["param_groups"]]
        return {"state": state, "param_groups": groups}


def _given(optimizer: Any) -> Any:
    if optimizer is None:
        raise ValueError("pass the optimizer as `optim`: lists of parameters (`optim_input`) are not taken")
    return optimizer


def _cast(x: Any, dtype: Any) -> Any:
    return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x


# ***** making a wrapper *****


def _mesh(strategy: ShardingStrategy, process_group: Any, device_mesh: DeviceMesh | None) -> DeviceMesh:
    """One axis of parts, or replicas of parts."""
    if device_mesh is not None and process_group is not None:
        raise ValueError(
            "Cannot pass both process_group and device_mesh at the same time. Please just pass only one of them."
        )
    hybrid = strategy in _HYBRID
    if device_mesh is not None:
        if hybrid and device_mesh.ndim != 2:
            raise ValueError(f"{strategy} needs a device_mesh of two axes: replicas, parts; got {device_mesh}")
        return replicas(device_mesh) if strategy is ShardingStrategy.NO_SHARD and device_mesh.ndim == 1 else device_mesh
    if hybrid and process_group is None:
        size = dist.get_world_size()
        here = int(os.environ.get("LOCAL_WORLD_SIZE", size))
        return init_device_mesh("cpu", (size // here, here))
    if hybrid:
        if not isinstance(process_group, tuple) or len(process_group) != 2:
            raise ValueError(
                f"Expected process_group to be passed in as either None or a tuple of two process groups for {strategy}"
            )
        parts, copies = process_group
        ranks = [None] * dist.get_world_size(copies)
        dist.all_gather_object(ranks, dist.get_process_group_ranks(parts), group=copies)
        return DeviceMesh.from_group([copies, parts], "cpu", ranks)
    group = process_group or dist.group.WORLD
    mesh = DeviceMesh.from_group(group, "cpu")
    return replicas(mesh) if strategy is ShardingStrategy.NO_SHARD else mesh


def _ignored(module: Module, modules: Any, states: Any) -> tuple[set[Module], set[Any]]:
    """Modules and parameters that are left as they are."""
    if modules is not None and states is not None:
        raise ValueError("Cannot pass both ignored_modules and ignored_states at the same time.")
    given = list(modules if modules is not None else states or ())
    kinds = {isinstance(x, Module) for x in given}
    if len(kinds) > 1:
        raise ValueError("ignored_states expects all nn.Parameter or all nn.Module list elements")
    if given and not kinds.pop():
        return set(), set(given)
    left = {part for m in given for part in m.modules() if not isinstance(part, FullyShardedDataParallel)}
    return left, {p for part in left for p in part._parameters.values() if p is not None}


def _own_modules(module: Module) -> list[Module]:
    """A module and its parts, without those that are wrapped by themselves."""
    found: list[Module] = []

    def visit(part: Module) -> None:
        if part in found or "_fsdp_state" in part.__dict__:
            return
        found.append(part)
        for child in part.children():
            visit(child)

    visit(module)
    return found


def _own(module: Module, ignored: set[Any]) -> dict[Any, tuple[str, list[tuple[Module, str]]]]:
    """The parameters of these, with a name and all places of each."""
    names = {part: name for name, part in module.named_modules()}
    found: dict[Any, tuple[str, list[tuple[Module, str]]]] = {}
    for part in _own_modules(module):
        for key, p in part._parameters.items():
            if p is not None and p not in ignored:
                name = f"{names[part]}.{key}" if names[part] else key
                found.setdefault(p, (name, []))[1].append((part, key))
    return found


def _keep_dtypes(
    module: Module, precision: MixedPrecision, options: dict[str, Any], ignored: tuple[set[Module], set[Any]]
) -> None:
    """Wrap modules of classes that keep their dtypes apart, and cast what goes in and out."""
    dtype = precision.param_dtype
    kinds: Any = tuple(precision._module_classes_to_ignore)
    if dtype is None or not kinds:
        return
    own = {**options, "mixed_precision": MixedPrecision()}
    for part in list(module.modules()):
        for name, child in list(part._modules.items()):
            if child is None or not isinstance(child, kinds) or child in ignored[0]:
                continue
            child._fsdp_keeps_dtypes = True
            child.register_forward_pre_hook(
                lambda m, args: tree_map(lambda x: _cast(x, rushlight.float32), args), prepend=True
            )
            child.register_forward_hook(lambda m, args, out: tree_map(lambda x: _cast(x, dtype), out))
            part._modules[name] = FullyShardedDataParallel(child, **own)


def _materialize(module: Module, init: Callable[[Module], None] | None, ignored: set[Module]) -> None:
    """Give memory and values to parts on the meta device."""
    for part in _own_modules(module):
        held = [t for t in (*part._parameters.values(), *part._buffers.values()) if t is not None]
        if part in ignored or not any(t.is_meta for t in held):
            continue
        if init is not None:
            init(part)
        else:
            part.to_empty(device="cpu", recurse=False)
            reset: Any = getattr(part, "reset_parameters", None)
            if reset is None:
                raise RuntimeError(
                    f"{type(part).__name__} has parameters on the meta device and no reset_parameters(): pass param_init_fn"
                )
            reset()


def _send(module: Module, axes: Axes, ignored: set[Any]) -> None:
    """The first process's parameters and buffers to all others."""
    for part in _own_modules(module):
        for t in (*part._parameters.values(), *part._buffers.values()):
            if t is None or t in ignored:
                continue
            for group in (axes.replica_group, axes.group):
                if group is not None:
                    dist.broadcast(t.detach(), group=group, group_src=0)


# ***** whole parameters by hand *****


def _whole(m: Managed, with_grads: bool) -> Parameter:
    """A parameter as a tensor of its own."""
    m.refresh()
    whole = Parameter(m.sharded.full_tensor().detach().clone(), m.sharded.requires_grad)
    if with_grads and m.sharded.grad is not None:
        whole.grad = m.sharded.grad.full_tensor()
    return whole


def _write_back(m: Managed, whole: Parameter, with_grads: bool) -> None:
    """This process's part of a whole parameter into the sharded one."""
    p = m.sharded

    def part(x: Any) -> Tensor:
        mesh = p.device_mesh
        return redistribute(x.detach(), x.shape, mesh, (Replicate(),) * mesh.ndim, p.placements)

    with rushlight.no_grad():
        p._local_tensor.copy_(part(whole))
        if with_grads and p.grad is not None and whole.grad is not None:
            p.grad._local_tensor.copy_(part(whole.grad))


# ***** hooks of state dicts *****


def _show(module: Any, state_dict: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Names without this wrapper, tensors in the form that is set."""
    settings = module._settings
    kind, config = settings.state_dict_type, settings.state_dict_config
    own = prefix + forms.PREFIX
    keep = forms.is_kept(config)
    dtypes = {}
    for name, part in module._fsdp_wrapped_module.named_modules():
        for key in part._buffers:
            before = (module._buffer_dtypes or {}).get(f"{id(part)}.{key}")
            if before is not None:
                dtypes[own + (f"{name}.{key}" if name else key)] = before
    for key in [k for k in state_dict if k.startswith(own)]:
        value = state_dict.pop(key)
        if key in dtypes:
            value = value.to(dtypes[key])
        value = forms.shown(value, kind, config.offload_to_cpu)
        if keep:
            state_dict[prefix + key[len(own) :]] = value


def _take(module: Any, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Names with this wrapper, tensors that lie as the parameters."""
    module._reshard()
    own = prefix + forms.PREFIX
    parameters = {
        forms.clean(name): p for name, p in Module.named_parameters(module._fsdp_wrapped_module, remove_duplicate=False)
    }
    for key in [k for k in state_dict if k.startswith(prefix) and not k.startswith(own)]:
        value = state_dict.pop(key)
        name = key[len(prefix) :]
        p = parameters.get(forms.clean(name))
        state_dict[own + name] = forms.like(value, p) if p is not None else value
