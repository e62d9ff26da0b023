"""State dicts of wrapped modules: names without the wrappers, tensors whole, local or as `DTensor`s."""

from __future__ import annotations

from typing import Any

from rushlight import Tensor
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.fsdp.api import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    StateDictSettings,
    StateDictType,
)
from rushlight.distributed.tensor import DTensor, Replicate
from rushlight.distributed.tensor._redistribute import redistribute
from rushlight.nn import Module

__all__ = ["PREFIX", "clean", "is_kept", "like", "optimizer_state", "shown", "state_to_load"]

PREFIX = "_fsdp_wrapped_module."
_OTHERS = (PREFIX, "_checkpoint_wrapped_module.")


def clean(name: str) -> str:
    """A parameter's name without what wrappers add."""
    for part in _OTHERS:
        name = name.replace(part, "")
    return name


def shown(value: Any, kind: StateDictType, offload: bool) -> Any:
    """A tensor as a state dict of this form has it."""
    if isinstance(value, DTensor):
        if kind is StateDictType.SHARDED_STATE_DICT:
            return value
        value = value.full_tensor() if kind is StateDictType.FULL_STATE_DICT else value.to_local()
        return value.detach()
    return value.detach().clone() if offload and isinstance(value, Tensor) else value


def is_kept(config: Any) -> bool:
    """Whether this process gets the whole state."""
    first = isinstance(config, (FullStateDictConfig, FullOptimStateDictConfig)) and config.rank0_only
    return not first or dist.get_rank() == 0


def like(value: Any, parameter: Any) -> Any:
    """A tensor of a state dict that lies as a parameter: what is whole is divided, what is this process's part taken so."""
    if not isinstance(parameter, DTensor) or not isinstance(value, Tensor):
        return value
    mesh, placed = parameter.device_mesh, parameter.placements
    if isinstance(value, DTensor):
        return value if value.device_mesh == mesh else like(value.full_tensor(), parameter)
    value = value.detach()
    if value.shape == parameter.shape:
        local = redistribute(value, value.shape, mesh, (Replicate(),) * mesh.ndim, placed)
        local = local.clone() if local is value else local
    elif value.shape == parameter._local_tensor.shape:
        local = value
    else:
        return value
    return DTensor(local, mesh, placed, parameter.shape, parameter.stride())


# ***** optimizers *****


def names_of(model: Module, optimizer: Any) -> dict[int, str]:
    """The clean names of an optimizer's parameters, by the number that its state dict has for them."""
    names = {p: clean(name) for name, p in model.named_parameters()}
    found, number = {}, 0
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p not in names:
                raise ValueError("an optimizer has a parameter that is not one of the model's")
            found[number] = names[p]
            number += 1
    return found


def optimizer_state(model: Module, optimizer: Any, settings: StateDictSettings, given: Any = None) -> dict[str, Any]:
    """The state dict of an optimizer by names of parameters; empty where only the first process keeps it."""
    names = names_of(model, optimizer)
    held = optimizer.state_dict() if given is None else given
    kind, config = settings.state_dict_type, settings.optim_state_dict_config
    state = {
        names.get(key, key): {k: shown(v, kind, config.offload_to_cpu) for k, v in row.items()}
        for key, row in held["state"].items()
    }
    groups = [{**g, "params": [names.get(key, key) for key in g["params"]]} for g in held["param_groups"]]
    return {"state": state, "param_groups": groups} if is_kept(config) else {}


def state_to_load(model: Module, optimizer: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The state dict that an optimizer loads, from one by names."""
    names = names_of(model, optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state = {}
    for number, p in enumerate(parameters):
        row = given["state"].get(names[number])
        if row is not None:
            state[number] = {k: v if _is_count(v) else like(v, p) for k, v in row.items()}
    numbers = {name: number for number, name in names.items()}
    groups = []
    for saved in given["param_groups"]:
        unknown = [name for name in saved["params"] if name not in numbers]
        if unknown:
            raise KeyError(f"the optimizer has no parameter {unknown[0]}")
        groups.append({**saved, "params": [numbers[name] for name in saved["params"]]})
    return {"state": state, "param_groups": groups}


def _is_count(value: Any) -> bool:
    return not isinstance(value, Tensor) or not value.ndim
