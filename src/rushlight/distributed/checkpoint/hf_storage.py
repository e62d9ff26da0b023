"""The names of `torch.distributed.checkpoint.hf_storage`; see `torch.distributed.checkpoint`."""

from __future__ import annotations

from rushlight._interface.base import absent_class

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]

_WHY = "checkpoints of several processes are not written yet; `torch.save` on one of them is"
HuggingFaceStorageReader, HuggingFaceStorageWriter = (
    absent_class(f"torch.distributed.checkpoint.hf_storage.{name}", _WHY)
    for name in ("HuggingFaceStorageReader", "HuggingFaceStorageWriter")
)
