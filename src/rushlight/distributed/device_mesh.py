"""`torch.distributed.device_mesh`: there are no process groups to arrange."""

from __future__ import annotations

from rushlight.distributed.tensor import DeviceMesh, init_device_mesh

__all__ = ["DeviceMesh", "init_device_mesh"]
