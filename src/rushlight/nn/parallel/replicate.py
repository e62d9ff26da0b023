"""Copies of a module, one on each device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight import Tensor
from rushlight._interface.base import LazyModule
from rushlight._utils import _get_device_index
from rushlight.nn.modules.module import Module

__all__ = ["replicate"]

_functions: Any = LazyModule("rushlight.nn.parallel._functions")  # loads `torch.cuda`


def _copies(tensors: Sequence[Tensor], devices: Sequence[int], detach: bool) -> list[dict[int, Any]]:
    """For each device the copies of tensors by their identities; gradients flow back unless they are detached."""
    if not tensors:
        return [{} for _ in devices]
    if detach:
        rows = _functions.comm.broadcast_coalesced([x.detach() for x in tensors], devices)
    else:
        flat, count = _functions.Broadcast.apply(devices, *tensors), len(tensors)
        rows = tuple(flat[start : start + count] for start in range(0, len(flat), count))
    return [{id(x): copy for x, copy in zip(tensors, row, strict=True)} for row in rows]


def _filled(made: dict[int, Module], module: Module, copies: dict[int, Any]) -> None:
    """Give the replica of a module its children, parameters and buffers; parameters of replicas are plain attributes."""
    replica: Any = made[id(module)]
    replica._former_parameters = {}
    for name, child in module._modules.items():
        replica._modules[name] = None if child is None else made[id(child)]
    for name, parameter in module._parameters.items():
        if parameter is None:
            replica._parameters[name] = None
        else:
            setattr(replica, name, copies[id(parameter)])
            replica._former_parameters[name] = copies[id(parameter)]
    for name, buffer in module._buffers.items():
        replica._buffers[name] = None if buffer is None else copies[id(buffer)]


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Module]:
    """A copy of `network` for each device, whose gradients flow to its parameters, unless `detach`.

    Buffers on the first device are the module's own.  None for no devices; ValueError for the CPU, AssertionError for a
    module that is not on an accelerator.
    """
    if not list(devices):
        return []
    places = [_get_device_index(d, True) for d in devices]
    parameters, buffers = list(network.parameters()), list(network.buffers())
    if not all(x.is_cuda for x in parameters + buffers):
        raise AssertionError("Broadcast function not implemented for CPU tensors")
    followed = [b for b in buffers if b.requires_grad and not detach]
    others = [b for b in buffers if not b.requires_grad or detach]
    groups = (_copies(parameters, places, detach), _copies(followed, places, detach), _copies(others, places, True))
    modules = list(network.modules())
    replicas = []
    for rows in zip(*groups, strict=True):
        made = {id(m): m._replicate_for_data_parallel() for m in modules}
        copies = {key: copy for row in rows for key, copy in row.items()}
        for module in modules:
            _filled(made, module, copies)
        replicas.append(made[id(network)])
    return replicas
