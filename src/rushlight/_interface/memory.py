"""Storages, and tensors over them."""

from __future__ import annotations

from rushlight._engine.core.memory import MEMORY, bytes_at, device_of, empty_spec, fresh_storage, is_host_memory, own
from rushlight._engine.core.storage import TYPED_STORAGES
from rushlight._engine.indexing.rows import stack_rows
from rushlight._types.dtype import BY_NAME

__all__ = [
    "MEMORY",  # the allocator
    "bytes_at",  # what a storage holds at an address
    "empty_spec",  # a tensor without values
    "fresh_storage",  # bytes on a device
    "device_of",  # of a storage
    "is_host_memory",  # whether the host reads what a spec describes
    "own",  # give a lazy clone memory of its own
    "TYPED_STORAGES",  # class name -> class, as `torch.FloatStorage`
    "stack_rows",  # `stack` of samples into one batch
    "BY_NAME",  # name -> dtype
]
