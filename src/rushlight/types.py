"""Names for annotations, as `torch.types`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO, Any, TypeAlias, Union

from rushlight import Size
from rushlight import device as _DeviceObject
from rushlight import dtype as DType
from rushlight._engine.core.tensor import Tensor as Tensor

__all__ = ["Device", "FileLike", "Number", "Storage", "Tensor"]

Number: TypeAlias = Union[int, float, bool]
Device: TypeAlias = Union[_DeviceObject, str, int, None]

FileLike: TypeAlias = Union[str, "os.PathLike[str]", IO[bytes]]

_dtype: TypeAlias = DType
_device: TypeAlias = _DeviceObject
_int: TypeAlias = int
_float: TypeAlias = float
_bool: TypeAlias = bool
_size: TypeAlias = Union[Size, Sequence[int]]
_TensorOrTensors: TypeAlias = Union[Tensor, Sequence[Tensor]]
_dispatchkey: TypeAlias = Any


class Storage:
    """The name of storages in annotations: the methods that typed and untyped ones share.  It has no objects of its
    own.
    """

    device: _device
    dtype: _dtype
    _cdata: int

    def __deepcopy__(self, memo: dict[int, Any]) -> Storage:
        raise NotImplementedError("Storage.__deepcopy__")

    def element_size(self) -> int:
        """Bytes of one element."""
        raise NotImplementedError("Storage.element_size")

    def is_shared(self) -> bool:
        """Whether other processes see the memory."""
        raise NotImplementedError("Storage.is_shared")

    def share_memory_(self) -> Storage:
        """Move into memory that other processes see."""
        raise NotImplementedError("Storage.share_memory_")

    def nbytes(self) -> int:
        """Size in bytes."""
        raise NotImplementedError("Storage.nbytes")

    def cpu(self) -> Storage:
        """On the CPU."""
        raise NotImplementedError("Storage.cpu")

    def data_ptr(self) -> int:
        """Address of the first byte."""
        raise NotImplementedError("Storage.data_ptr")

    def from_file(self, filename: str, shared: bool = False, nbytes: int = 0) -> Storage:
        """Over the bytes of a file."""
        raise NotImplementedError("Storage.from_file")
