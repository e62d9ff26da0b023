"""Storages, as `torch.storage`."""

from __future__ import annotations

import io
from typing import Any

from rushlight._engine.core.storage import TypedStorage as TypedStorage
from rushlight._engine.core.storage import UntypedStorage as UntypedStorage
from rushlight._interface.base import LazyModule
from rushlight._interface.memory import TYPED_STORAGES

_StorageBase = UntypedStorage
_LegacyStorage = TYPED_STORAGES["FloatStorage"].__base__

serialization: Any = LazyModule("rushlight.serialization")

__all__ = ["TypedStorage", "UntypedStorage"]


def _load_from_bytes(b: bytes) -> Any:
    """A storage in a pickle: a small file in PyTorch's older format."""
    return serialization.load(io.BytesIO(b), weights_only=False)
