"""Storages, as `torch.storage`."""

from rushlight._engine.storage import TypedStorage as TypedStorage
from rushlight._engine.storage import UntypedStorage as UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
