"""The backend of the meta device, whose tensors have no memory: there is nothing to compile, to run or to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._backends.protocol import Backend
from rushlight._types.device import Device
from rushlight._types.dtype import DType

__all__ = ["MetaBackend"]


class MetaBackend(Backend):
    """Of tensors that have a spec and nothing else."""

    type = "meta"
    shapes_only = True
    accelerator = False

    def allocate(self, nbytes: int, device: Device) -> Any:
        """None: a meta tensor has no storage."""
        return None

    zeros = allocate

    def reader(self, dtype: DType) -> Callable[[int], Any]:
        """RuntimeError: there are no elements."""
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")
