"""Modules whose parameters are spread over a mesh; compiled functions follow their hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.device_mesh import DeviceMesh, init_device_mesh
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
    where that leaves them.  `input_fn` and `output_fn` change inputs and outputs.
    """
    mesh = device_mesh or init_device_mesh("cpu", (dist.get_world_size(),))
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
    if input_fn is not None:
        module.register_forward_pre_hook(lambda m, inputs: input_fn(m, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda m, inputs, outputs: output_fn(m, outputs, mesh))
    return module
