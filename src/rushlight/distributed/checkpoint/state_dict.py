"""State dicts of models and optimizers by the names of parameters, whatever wraps the model: to save, and to load with
another number of processes.

Wrappers (`DistributedDataParallel`, `compile`, activation checkpoints) leave no trace in the names, and optimizers name
parameters as the model does instead of counting them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.base import trace_marks
from rushlight.compiler.optimized_module import OptimizedModule
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.checkpoint._nested_dict import flatten_state_dict, unflatten_state_dict
from rushlight.distributed.fsdp import FullyShardedDataParallel, StateDictType
from rushlight.distributed.tensor import DTensor, distribute_tensor
from rushlight.nn import Module
from rushlight.nn.modules.module import _IncompatibleKeys
from rushlight.nn.parallel import DistributedDataParallel
from rushlight.optim import Optimizer
from rushlight.utils._pytree import tree_map

__all__ = [
    "FQNS_T", "DictValueType", "ListDictValueType", "OptimizerStateType", "PrimitiveType", "StateDictOptions", "ValueType",
    "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict", "set_optimizer_state_dict",
    "set_state_dict",
]  # fmt: skip

FQNS_T = set[str]
PrimitiveType = DTensor | Tensor | int | float | str
ValueType = Any  # of these, and lists, tuples and dicts of them
DictValueType = dict[str, ValueType]
ListDictValueType = list[DictValueType]
OptimizerStateType = dict[str, DictValueType | ListDictValueType]

_STATE, _GROUPS, _PARAMS = "state", "param_groups", "params"


@dataclass
class StateDictOptions:
    """How state dicts are given and taken.

    `full_state_dict`: whole tensors instead of parts.  `cpu_offload`: tensors on the CPU; with `full_state_dict` on rank 0
    only, others get {}.  `ignore_frozen_params`: without parameters that want no gradient.  `strict`: names must be those
    of the model.  `broadcast_from_rank0`: whole tensors are taken from rank 0, which alone needs to have them.
    `flatten_optimizer_state_dict`: one flat dict, with a value for each parameter.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def _checked(options: StateDictOptions | None) -> StateDictOptions:
    options = options or StateDictOptions()
    if options.broadcast_from_rank0 and not options.full_state_dict:
        raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")
    return options


class _Names:
    """The names of a model's parameters without what wrappers add to them."""

    def __init__(self, model: Module) -> None:
        self.model = model
        self._added = set()
        for path, module in model.named_modules():
            inner = "module" if isinstance(module, DistributedDataParallel) else ""
            inner = "_orig_mod" if isinstance(module, OptimizedModule) else inner
            if inner:
                self._added.add(f"{path}.{inner}" if path else inner)

    def clean(self, name: str) -> str:
        """A name without wrappers."""
        kept: list[str] = []
        parts = name.split(".")
        for count, part in enumerate(parts, 1):
            wraps = part in ("_checkpoint_wrapped_module", "_fsdp_wrapped_module")
            if not wraps and ".".join(parts[:count]) not in self._added:
                kept.append(part)
        return ".".join(kept)

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Names and parameters; one that has several names comes with each of them."""
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            yield self.clean(name), parameter

    def of_parameters(self) -> dict[int, list[str]]:
        """The names of each parameter by its identity."""
        found: dict[int, list[str]] = {}
        for name, parameter in self.parameters():
            found.setdefault(id(parameter), []).append(name)
        return found

    def prefixes(self, submodules: Iterable[Module]) -> list[str]:
        """How the names in some submodules begin."""
        wanted = {id(module) for module in submodules}
        return [f"{self.clean(name)}." for name, module in self.model.named_modules() if id(module) in wanted]


# ***** whole tensors and parts *****


def _as_asked(state: Any, options: StateDictOptions) -> Any:
    """A state dict with whole tensors, or on the CPU, as the options say."""
    if options.full_state_dict:
        state = tree_map(lambda x: x.full_tensor() if isinstance(x, DTensor) else x, state)
    if options.cpu_offload:
        if options.full_state_dict and dist.is_initialized() and dist.get_rank() != 0:
            return {}
        state = tree_map(lambda x: x.cpu() if isinstance(x, Tensor) else x, state)
    return state


def _like(whole: Any, local: Any) -> Any:
    """A whole tensor as the model has it: in parts where that is spread."""
    if isinstance(whole, Tensor) and isinstance(local, DTensor) and not isinstance(whole, DTensor):
        return distribute_tensor(whole.detach(), local.device_mesh, local.placements, src_data_rank=None)
    return whole


def _from_rank0(whole: dict[str, Any], local: dict[str, Any]) -> dict[str, Any]:
    """Broadcast the state of rank 0 to all ranks, one tensor after the other, each as `local` has it."""
    first = dist.get_rank() == 0

    def described(value: Any) -> Any:
        spread = isinstance(value, Tensor) and not isinstance(value, DTensor)
        return ("tensor", tuple(value.shape), value.dtype) if spread else ("value", value, None)

    about = [{name: described(value) for name, value in whole.items()} if first else None]
    dist.broadcast_object_list(about, 0)
    found: dict[str, Any] = {}
    for name, (kind, value, dtype) in (about[0] or {}).items():
        if kind == "tensor":
            sent = whole[name].detach().contiguous() if first else rushlight.empty(value, dtype=dtype)
            dist.broadcast(sent, 0)
            value = _like(sent, local.get(name))
        found[name] = value
    return found


def _taken(state: dict[str, Any], local: dict[str, Any], options: StateDictOptions) -> dict[str, Any]:
    """A flat state dict as the model has it."""
    if options.broadcast_from_rank0 and dist.is_initialized():
        return _from_rank0(state, local)
    if options.full_state_dict:
        return {name: _like(value, local.get(name)) for name, value in state.items()}
    return state


# ***** models *****


@contextmanager
def _in_parts(model: Module) -> Iterator[None]:
    """Let modules of `FullyShardedDataParallel` give their parts, and not gather."""
    if not FullyShardedDataParallel.fsdp_modules(model):
        yield
        return
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        yield


@rushlight.no_grad()
def get_model_state_dict(
    model: Module, *, submodules: set[Module] | None = None, options: StateDictOptions | None = None
) -> dict[str, ValueType]:
    """The parameters and buffers of a model, by names without wrappers.

    >>> import rushlight as torch
    >>> list(get_model_state_dict(torch.compile(torch.nn.Linear(2, 1))))
    ['weight', 'bias']
    """
    options, names = _checked(options), _Names(model)
    with _in_parts(model):
        state = {names.clean(key): value for key, value in model.state_dict().items()}
    if submodules:
        state = _within(state, names.prefixes(submodules), options)
    if options.ignore_frozen_params:
        for name, parameter in names.parameters():
            if not parameter.requires_grad:
                state.pop(name, None)
    return _as_asked(state, options)


def _within(state: dict[str, Any], prefixes: list[str], options: StateDictOptions) -> dict[str, Any]:
    warnings.warn(
        "Getting submodules only model/optim state_dict is deprecated and will be removed in 2.5. This feature can be achieved by manually "
        "filtering out the state_dict returned from get_state_dict.",
        FutureWarning,
        stacklevel=3,
    )
    return {
        name if options.keep_submodule_prefixes else name[len(prefix) :]: value
        for prefix in prefixes
        for name, value in state.items()
        if name.startswith(prefix)
    }


@rushlight.no_grad()
@trace_marks.changes_later_calls
def set_model_state_dict(
    model: Module, model_state_dict: dict[Any, ValueType], *, options: StateDictOptions | None = None
) -> _IncompatibleKeys:
    """Load what `get_model_state_dict` gave; the names that were missing or not expected.

    Parameters on the meta device become the tensors that are loaded.
    """
    options, names = _checked(options), _Names(model)
    state = _by_name(names, model_state_dict)
    if not state and not options.broadcast_from_rank0:
        if (
            options.strict
            and not options.ignore_frozen_params
            and not (options.cpu_offload and options.full_state_dict)
        ):
            raise RuntimeError(
                "The option indicates that model state_dict is required to save or load, but model state_dict is empty."
            )
        return _IncompatibleKeys([], [])
    with _in_parts(model):
        held = model.state_dict()
    keys = {names.clean(key): key for key in held}
    state = _taken(state, {name: held[key] for name, key in keys.items()}, options)
    meta = any(isinstance(value, Tensor) and value.is_meta for value in held.values())
    state = {keys.get(name, name): value for name, value in state.items()}
    with _in_parts(model):
        return model.load_state_dict(state, strict=options.strict, assign=meta)


def _by_name(names: _Names, state: dict[Any, Any]) -> dict[str, Any]:
    """A state dict by names; PyTorch once took one for each submodule."""
    if not state or not isinstance(next(iter(state)), Module):
        return state
    warnings.warn(
        "Passing model_state_dict as a ``Dict[nn.Module, Dict[str, Any]]``is deprecated and will be removed in 2.5. If you need this "
        "feature, please preprocess the model_state_dict to achieve the same functionality.",
        FutureWarning,
        stacklevel=3,
    )
    return {
        prefix + name: value
        for module, part in state.items()
        for prefix in names.prefixes([module])
        for name, value in part.items()
    }


# ***** optimizers *****


def _optimizers(optimizers: Optimizer | Iterable[Optimizer]) -> list[Optimizer]:
    return [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)


def _init_optim_state(optimizer: Any) -> None:
    """Let an optimizer make its state, by a step that changes nothing."""
    parameters = [p for group in optimizer.param_groups for p in group[_PARAMS]]
    if optimizer.state or any(p.grad is not None for p in parameters):
        return
    for p in parameters:
        if p.requires_grad:
            p.grad = rushlight.zeros_like(p)
    rates = [group.get("lr") for group in optimizer.param_groups]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if rate is not None:
            group["lr"] = rushlight.zeros_like(rate) if isinstance(rate, Tensor) else 0.0
    optimizer.step(closure=None)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if rate is not None:
            group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    for state in optimizer.state.values():  # none of the steps of the training is done
        if "step" in state:
            state["step"] = rushlight.zeros_like(state["step"]) if isinstance(state["step"], Tensor) else 0


def _named_state(optimizer: Any, of_parameters: dict[int, list[str]]) -> dict[str, Any]:
    """The state of an optimizer by the names of parameters."""
    _init_optim_state(optimizer)
    parameters = [p for group in optimizer.param_groups for p in group[_PARAMS]]
    if any(id(p) not in of_parameters for p in parameters):
        raise RuntimeError("an optimizer has a parameter that the model has not")
    name_of = {number: of_parameters[id(p)][0] for number, p in enumerate(parameters)}
    held = optimizer.state_dict()
    return {
        _STATE: {name_of[number]: state for number, state in held[_STATE].items()},
        _GROUPS: [{**group, _PARAMS: [name_of[n] for n in group[_PARAMS]]} for group in held[_GROUPS]],
    }


@rushlight.no_grad()
def get_optimizer_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> OptimizerStateType:
    """The state of optimizers together: "state" by names of parameters, and "param_groups" with names.

    An optimizer that has no state yet makes it.  `submodules` choose nothing here, as in PyTorch.
    """
    options, names = _checked(options), _Names(model)
    of_parameters = names.of_parameters()
    found: dict[str, Any] = {_STATE: {}, _GROUPS: []}
    for optimizer in _optimizers(optimizers):
        state = _named_state(optimizer, of_parameters)
        found[_STATE].update(state[_STATE])
        found[_GROUPS].extend(state[_GROUPS])
    return _as_asked(_flat(found) if options.flatten_optimizer_state_dict else found, options)


def _flat(state: dict[str, Any]) -> dict[str, Any]:
    """A value for each parameter: "state.<name>.<key>" and "param_groups.<name>.<key>"."""
    flat: dict[str, Any] = {}

    def add(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                add(inner, f"{name}.{key}")
        elif isinstance(value, (Tensor, int, float)):
            flat[name] = value
        else:
            raise NotImplementedError(
                f"Flattening optimizer state_dict only supports tensor, int, float, dict states now. Type is {type(value)}."
            )

    add(state[_STATE], _STATE)
    for group in state[_GROUPS]:
        for name in group[_PARAMS]:
            flat.update({f"{_GROUPS}.{name}.{key}": value for key, value in group.items() if key != _PARAMS})
    return flat


def _deep(flat: dict[str, Any], optimizer: Any, of_parameters: dict[int, list[str]]) -> dict[str, Any]:
    """Undo `_flat` for an optimizer's state."""
    found: dict[str, Any] = {_STATE: {}, _GROUPS: []}
    for group in optimizer.param_groups:
        parts: list[dict[str, Any]] = []
        known: list[str] = []
        for p in group[_PARAMS]:
            for name in of_parameters[id(p)]:
                keys = [key for key in group if key != _PARAMS and f"{_GROUPS}.{name}.{key}" in flat]
                if not keys:
                    continue
                known.append(name)
                parts.append({key: flat[f"{_GROUPS}.{name}.{key}"] for key in keys})
                state = _inner(flat, f"{_STATE}.{name}.", optimizer.state.get(p, {}))
                if state:
                    found[_STATE][name] = state
        if any(part != parts[0] for part in parts):
            raise RuntimeError(f"the parameters {known[:5]} of one group have different settings: {parts[:2]}")
        found[_GROUPS].append({**(parts[0] if parts else {}), _PARAMS: known})
    return found


def _inner(flat: dict[str, Any], prefix: str, like: dict[Any, Any]) -> dict[Any, Any]:
    """The values below a prefix, as a nested dict of the form of `like`."""
    found: dict[Any, Any] = {}
    for key, held in like.items():
        name = f"{prefix}{key}"
        if isinstance(held, dict):
            found[key] = _inner(flat, f"{name}.", held)
        elif name in flat:
            found[key] = flat[name]
    return found


@rushlight.no_grad()
@trace_marks.changes_later_calls
def set_optimizer_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    optim_state_dict: OptimizerStateType,
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Load what `get_optimizer_state_dict` gave, flat or not, into one or several optimizers."""
    options, names = _checked(options), _Names(model)
    of_parameters = names.of_parameters()
    state: Any = optim_state_dict
    if not state and not options.broadcast_from_rank0:
        if options.cpu_offload and options.full_state_dict:
            return
        raise RuntimeError(
            f"The option indicates that model state_dict is required to save, or load but optim state_dict is empty. {state}"
        )
    given = _optimizers(optimizers)
    if options.full_state_dict:
        state = _spread(state, given, of_parameters, options)
    for optimizer in given:
        _init_optim_state(optimizer)
        held = state if _STATE in state else _deep(state, optimizer, of_parameters)
        optimizer.load_state_dict(_counted(held, optimizer, of_parameters, options.strict))


def _spread(
    state: dict[str, Any], optimizers: list[Any], of_parameters: dict[int, list[str]], options: StateDictOptions
) -> dict[str, Any]:
    """A whole state as the optimizers have it: in parts where parameters are."""
    local: dict[str, Any] = {}
    for optimizer in optimizers:
        named = _named_state(optimizer, of_parameters)
        local.update(_leaves(named[_STATE], (_STATE,)))
    flat, paths = flatten_state_dict(state)
    taken = _taken(flat, local, options)
    if options.broadcast_from_rank0 and dist.is_initialized():
        shared = [paths if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(shared, 0)
        paths = shared[0] or {}
    return unflatten_state_dict(taken, paths)


def _leaves(value: Any, path: tuple[Any, ...]) -> dict[str, Any]:
    """The values of nested dicts by their paths joined by dots."""
    if not isinstance(value, dict):
        return {".".join(map(str, path)): value}
    return {name: leaf for key, inner in value.items() for name, leaf in _leaves(inner, (*path, key)).items()}


def _counted(
    state: dict[str, Any], optimizer: Any, of_parameters: dict[int, list[str]], strict: bool
) -> dict[str, Any]:
    """The part of a named state that is one optimizer's, with parameters counted as it counts them."""
    if state[_STATE] and all(isinstance(key, int) for key in state[_STATE]):
        return state
    found: dict[str, Any] = {_STATE: {}, _GROUPS: []}
    number = 0
    for group in optimizer.param_groups:
        numbers = list(range(number, number + len(group[_PARAMS])))
        settings = _settings(state[_GROUPS], group, of_parameters)
        for number, p in zip(numbers, group[_PARAMS], strict=True):
            name = next((name for name in of_parameters[id(p)] if name in state[_STATE]), None)
            if name is not None:
                found[_STATE][number] = state[_STATE][name]
            elif strict and p.requires_grad and optimizer.state.get(p):
                raise RuntimeError(
                    f"Missing optimizer state for parameter '{of_parameters[id(p)][0]}' in checkpoint. The parameter requires gradients but has no "
                    "saved optimizer state. To load anyway, use StateDictOptions(strict=False)."
                )
        number = numbers[-1] + 1 if numbers else number
        found[_GROUPS].append({**settings, _PARAMS: numbers})
    return found


def _settings(
    saved: list[dict[str, Any]], group: dict[str, Any], of_parameters: dict[int, list[str]]
) -> dict[str, Any]:
    """The settings of the saved group that has a parameter of this one; for one without parameters of the other such."""
    names = {name for p in group[_PARAMS] for name in of_parameters[id(p)]}
    for one in saved:
        if names.intersection(one[_PARAMS]) or (not names and not one[_PARAMS]):
            return {key: value for key, value in one.items() if key != _PARAMS}
    if not names:
        raise ValueError("the checkpoint has no group without parameters, and the optimizer has one")
    return {key: value for key, value in group.items() if key != _PARAMS}


# ***** both *****


def get_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, ValueType], OptimizerStateType]:
    """`get_model_state_dict` and `get_optimizer_state_dict`.

    >>> import rushlight as torch
    >>> model = torch.nn.Linear(2, 1)
    >>> of_model, of_optimizer = get_state_dict(model, torch.optim.Adam(model.parameters()))
    >>> of_optimizer["param_groups"][0]["params"], sorted(of_optimizer["state"]["bias"])
    (['weight', 'bias'], ['exp_avg', 'exp_avg_sq', 'step'])
    """
    given = _optimizers(optimizers)
    of_model = get_model_state_dict(model, submodules=submodules, options=options)
    if not given:
        return of_model, {}
    return of_model, get_optimizer_state_dict(model, given, submodules=submodules, options=options)


@trace_marks.changes_later_calls
def set_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    model_state_dict: dict[str, ValueType],
    optim_state_dict: OptimizerStateType,
    options: StateDictOptions | None = None,
) -> _IncompatibleKeys:
    """`set_model_state_dict` and `set_optimizer_state_dict`."""
    given = _optimizers(optimizers)
    found = set_model_state_dict(model, model_state_dict, options=options)
    if given:
        set_optimizer_state_dict(model, given, optim_state_dict, options=options)
    return found
