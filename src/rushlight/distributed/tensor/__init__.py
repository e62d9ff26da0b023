"""The names of `torch.distributed.tensor` for `isinstance` and annotations: no tensor is spread over processes yet."""

from __future__ import annotations

from rushlight._interface.base import absent_class, absent_function
from rushlight.distributed.device_mesh import DeviceMesh, init_device_mesh

__all__ = [
    "DTensor",
    "DeviceMesh",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_module",
    "distribute_tensor",
    "init_device_mesh",
]

_WHY = "tensors are not spread over processes yet"
DTensor = absent_class("torch.distributed.tensor.DTensor", _WHY)
Placement = absent_class("torch.distributed.tensor.Placement", _WHY)
Shard, Replicate, Partial = (
    absent_class(f"torch.distributed.tensor.{name}", _WHY, (Placement,)) for name in ("Shard", "Replicate", "Partial")
)
distribute_tensor = absent_function("torch.distributed.tensor.distribute_tensor", _WHY)
distribute_module = absent_function("torch.distributed.tensor.distribute_module", _WHY)
