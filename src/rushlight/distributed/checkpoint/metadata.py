"""Contents of a checkpoint: tensors in boxes ("chunks"), other objects as bytes, and where each of them lies.

The classes have PyTorch's names and fields; a `.metadata` file is a pickle of one `Metadata`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributed.checkpoint.stateful import StatefulT as StatefulT

__all__ = [
    "BytesStorageMetadata",
    "ChunkStorageMetadata",
    "Metadata",
    "MetadataIndex",
    "StorageMeta",
    "TensorProperties",
    "TensorStorageMetadata",
]


@dataclass
class ChunkStorageMetadata:
    """A box of a tensor: where it begins in the whole, and its shape."""

    offsets: Size
    sizes: Size


class _MEM_FORMAT_ENCODING(Enum):
    """How files name memory formats."""

    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


def _formats() -> list[tuple[Any, _MEM_FORMAT_ENCODING]]:
    return list(
        zip(
            (rushlight.contiguous_format, rushlight.channels_last, rushlight.preserve_format),
            _MEM_FORMAT_ENCODING,
            strict=True,
        )
    )


@dataclass
class TensorProperties:
    """The dtype of a tensor; the other fields are kept for old files.

    >>> import rushlight as torch
    >>> TensorProperties.create_from_tensor(torch.ones(2, dtype=torch.float64)).dtype
    torch.float64
    """

    dtype: Any = field(default_factory=rushlight.get_default_dtype)
    layout: Any = field(default_factory=lambda: rushlight.strided)
    requires_grad: bool = False
    memory_format: Any = field(default_factory=lambda: rushlight.contiguous_format)
    pin_memory: bool = False

    def __getstate__(self) -> tuple[Any, ...]:
        encoded = next((code for kind, code in _formats() if kind == self.memory_format), None)
        if encoded is None:
            raise RuntimeError(f"Invalid torch.memory_format: {self.memory_format}")
        return self.dtype, self.layout, self.requires_grad, encoded, self.pin_memory

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype, self.layout, self.requires_grad, encoded, self.pin_memory = state
        found = next((kind for kind, code in _formats() if code is encoded), None)
        if found is None:
            raise RuntimeError(f"Invalid torch.memory_format encoding: {encoded}")
        self.memory_format = found

    @staticmethod
    def create_from_tensor(tensor: rushlight.Tensor) -> TensorProperties:
        """The properties of a tensor."""
        return TensorProperties(
            dtype=tensor.dtype, layout=tensor.layout, requires_grad=tensor.requires_grad, pin_memory=tensor.is_pinned()
        )


@dataclass
class TensorStorageMetadata:
    """A tensor: its dtype, its shape, and the boxes it was saved in."""

    properties: TensorProperties
    size: Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """An object that is no tensor, saved as `torch.save` writes it."""


STORAGE_TYPES = TensorStorageMetadata | BytesStorageMetadata
STATE_DICT_TYPE = dict[str, Any]


@dataclass
class StorageMeta:
    """Which checkpoint this is, which save made it and which load reads it."""

    checkpoint_id: str | os.PathLike[str] | None = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """Contents of a checkpoint by name, and notes of the planner and the storage."""

    state_dict_metadata: dict[str, STORAGE_TYPES]
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


@dataclass(frozen=True, init=False)
class MetadataIndex:
    """The key of a thing in a checkpoint: its name, and for a box of a tensor where it begins.

    `index` says where to look for the box first; it counts neither for equality nor for the hash.

    >>> MetadataIndex("w", [0, 2], 1) == MetadataIndex("w", [0, 2])
    True
    """

    fqn: str
    offset: Size | None = None
    index: int | None = field(hash=False, compare=False, default=None)

    def __init__(self, fqn: str, offset: Sequence[int] | None = None, index: int | None = None) -> None:
        object.__setattr__(self, "fqn", fqn)
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "offset", None if offset is None else Size(offset))
