"""Names for annotations, as `torch.types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, Union

from rushlight._engine.tensor import Tensor as Tensor
from rushlight._types.device import Device as _DeviceObject
from rushlight._types.dtype import DType
from rushlight._types.layout import Size

__all__ = ["Device", "Number", "Tensor"]

Number: TypeAlias = Union[int, float, bool]
Device: TypeAlias = Union[_DeviceObject, str, int, None]

_dtype: TypeAlias = DType
_device: TypeAlias = _DeviceObject
_int: TypeAlias = int
_float: TypeAlias = float
_bool: TypeAlias = bool
_size: TypeAlias = Union[Size, Sequence[int]]
_TensorOrTensors: TypeAlias = Union[Tensor, Sequence[Tensor]]
_dispatchkey: TypeAlias = Any
