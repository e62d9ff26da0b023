"""Modules whose parameters are spread over a mesh; compiled functions follow their hooks."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import rushlight
from rushlight._interface.base import warn_user
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.device_mesh import DeviceMesh, current_mesh, init_device_mesh
from rushlight.distributed.tensor._api import DTensor, distribute_tensor

__all__ = ["distribute_module"]


def distribute_module(
    module: Any,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, Any, DeviceMesh], None] | None = None,
    input_fn: Callable[[Any, Any, DeviceMesh], Any] | None = None,
    output_fn: Callable[[Any, Any, DeviceMesh], Any] | None = None,
) -> Any:
    """A module whose parameters and buffers are spread over a mesh: by `partition_fn(name, submodule, mesh)`, and replicated
    where that leaves them.  `input_fn(module, inputs, mesh)` and `output_fn(module, outputs, mesh)` change those.
    """
    mesh = device_mesh or current_mesh() or init_device_mesh("cpu", (dist.get_world_size(),))
    before, after = _with_module("input_fn", input_fn), _with_module("output_fn", output_fn)
    for name, part in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, part, mesh)
        for key, parameter in part._parameters.items():
            if parameter is not None and not isinstance(parameter, DTensor):
                placed = distribute_tensor(parameter.detach(), mesh)
                part.register_parameter(key, rushlight.nn.Parameter(placed, parameter.requires_grad))
        for key, buffer in part._buffers.items():
            if buffer is not None and not isinstance(buffer, DTensor):
                part._buffers[key] = distribute_tensor(buffer, mesh)
    if before is not None:
        module.register_forward_pre_hook(lambda m, inputs: before(m, inputs, mesh))
    if after is not None:
        module.register_forward_hook(lambda m, inputs, outputs: after(m, outputs, mesh))
    return module


def _with_module(name: str, function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """A function of (module, values, mesh): of an older one of (values, mesh), with a warning; ValueError for others."""
    if function is None:
        return None
    count = len(signature(function).parameters)
    if count == 3:
        return function
    if count != 2:
        raise ValueError(f"{name} should take in 3 arguments, but got {count} arguments!")
    warn_user(
        f"Deprecating {name} that takes two arguments (inputs, device_mesh), please use {name} that takes in (module, inputs, device_mesh) instead!",
        FutureWarning,
    )
    return lambda module, values, mesh: function(values, mesh)
