"""Storages, and what files and pickles are made of."""

from __future__ import annotations

from rushlight._engine.core.memory import MEMORY, device_of, empty_spec, fresh_storage, is_host_memory, own
from rushlight._engine.core.storage import TYPED_STORAGES
from rushlight._engine.indexing.rows import stack_rows
from rushlight._engine.sharing.pickling import SAVING, form_there
from rushlight._host.checksum import crc32, joined
from rushlight._types.dtype import BY_NAME

__all__ = [
    # Storages.
    "MEMORY",  # the allocator
    "empty_spec",  # a tensor without values
    "fresh_storage",  # bytes on a device
    "device_of",  # of a storage
    "is_host_memory",  # whether the host reads what a spec describes
    "own",  # give a lazy clone memory of its own
    "TYPED_STORAGES",  # class name -> class, as `torch.FloatStorage`
    "stack_rows",  # `stack` of samples into one batch
    "BY_NAME",  # name -> dtype
    # Files and pickles.
    "SAVING",  # how tensors are pickled while a file is written
    "form_there",  # the form of a tensor in a file that is being written
    "crc32",
    "joined",  # the checksum of two parts together
]
