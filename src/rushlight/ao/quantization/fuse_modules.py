"""Fusing of modules by name."""

from __future__ import annotations

import copy
from typing import Any

from rushlight import nn
from rushlight.ao.quantization.fuser_method_mappings import get_fuser_method

__all__ = ["fuse_known_modules", "fuse_modules", "fuse_modules_qat"]


def _get_module(model: Any, name: str) -> Any:
    return model.get_submodule(name)


def _set_module(model: Any, name: str, module: Any) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)


def fuse_known_modules(mod_list: Any, is_qat: bool, additional_fuser_method_mapping: Any = None) -> list[Any]:
    """The fused module in the place of the first, and identities in the others'; hooks of the ends are kept."""
    types = tuple(type(m) for m in mod_list)
    fuse = get_fuser_method(types, additional_fuser_method_mapping)
    if fuse is None:
        raise NotImplementedError(f"Cannot fuse modules: {types}")
    made = fuse(is_qat, *mod_list)
    for hook in mod_list[0]._forward_pre_hooks.values():
        made.register_forward_pre_hook(hook)
    mod_list[0]._forward_pre_hooks.clear()
    for hook in mod_list[-1]._forward_hooks.values():
        made.register_forward_hook(hook)
    mod_list[-1]._forward_hooks.clear()
    rest = []
    for old in mod_list[1:]:
        identity = nn.Identity()
        identity.training = mod_list[0].training
        rest.append(identity)
        del old
    return [made, *rest]


def _fuse(model: Any, names: Any, is_qat: bool, fuser_func: Any, custom: Any) -> None:
    mapping = (custom or {}).get("additional_fuser_method_mapping", {})
    modules = [_get_module(model, name) for name in names]
    for name, module in zip(names, fuser_func(modules, is_qat, mapping), strict=True):
        _set_module(model, name, module)


def _fused(model: Any, modules_to_fuse: Any, is_qat: bool, inplace: bool, fuser_func: Any, custom: Any) -> Any:
    model = model if inplace else copy.deepcopy(model)
    lists = [modules_to_fuse] if all(isinstance(name, str) for name in modules_to_fuse) else modules_to_fuse
    for names in lists:
        _fuse(model, names, is_qat, fuser_func, custom)
    return model


def fuse_modules(
    model: Any,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Any = fuse_known_modules,
    fuse_custom_config_dict: Any = None,
) -> Any:
    """The model with the named modules fused: each list of names becomes one module, and identities.

    >>> import rushlight as torch
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU()).eval()
    >>> [type(m).__name__ for m in torch.ao.quantization.fuse_modules(net, ["0", "1", "2"])]
    ['ConvReLU2d', 'Identity', 'Identity']
    """
    return _fused(model, modules_to_fuse, False, inplace, fuser_func, fuse_custom_config_dict)


def fuse_modules_qat(
    model: Any,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Any = fuse_known_modules,
    fuse_custom_config_dict: Any = None,
) -> Any:
    """`fuse_modules` for training: batch norm is kept and trained."""
    return _fused(model, modules_to_fuse, True, inplace, fuser_func, fuse_custom_config_dict)
