"""`torch.distributed.tensor`: tensors that are spread over the processes of a mesh.

>>> import rushlight as torch
>>> import rushlight.distributed as dist
>>> from rushlight.distributed.tensor import Shard, distribute_tensor, init_device_mesh
>>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
>>> mesh = init_device_mesh("cpu", (1,))
>>> x = distribute_tensor(torch.arange(6.0).reshape(2, 3), mesh, [Shard(0)])
>>> x.sum(dim=1).placements, x.sum().full_tensor()
((Shard(dim=0),), tensor(15.))
>>> dist.destroy_process_group()
"""

from __future__ import annotations

from rushlight.distributed.device_mesh import DeviceMesh as DeviceMesh
from rushlight.distributed.device_mesh import init_device_mesh as init_device_mesh
from rushlight.distributed.tensor._api import DTensor, distribute_tensor, empty, full, ones, rand, randn, zeros
from rushlight.distributed.tensor._modules import distribute_module
from rushlight.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__ = [
    "DTensor",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_module",
    "distribute_tensor",
    "empty",
    "full",
    "ones",
    "rand",
    "randn",
    "zeros",
]
