"""The names of `torch.distributed.tensor` for `isinstance` and annotations: no tensor is spread over processes here."""

from __future__ import annotations

from rushlight._interface.base import absent_class, absent_function

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

_WHY = "there are no process groups yet"
DTensor, DeviceMesh = (
    absent_class("torch.distributed.tensor.DTensor", _WHY),
    absent_class("torch.distributed.tensor.DeviceMesh", _WHY),
)
Placement = absent_class("torch.distributed.tensor.Placement", _WHY)
Shard, Replicate, Partial = (
    absent_class(f"torch.distributed.tensor.{name}", _WHY, (Placement,)) for name in ("Shard", "Replicate", "Partial")
)
distribute_tensor = absent_function("torch.distributed.tensor.distribute_tensor", _WHY)
distribute_module = absent_function("torch.distributed.tensor.distribute_module", _WHY)
init_device_mesh = absent_function("torch.distributed.init_device_mesh", _WHY)
