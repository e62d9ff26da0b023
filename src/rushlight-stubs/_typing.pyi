"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool, complex as _complex, float as _float, int as _int, str as _str
from collections.abc import Sequence as _Sequence
from types import EllipsisType as _EllipsisType
from typing import Any as _Any, SupportsIndex as _SupportsIndex, TypeAlias as _TypeAlias, Union as _Union

from numpy import ndarray as _ndarray

from rushlight._engine.tensor import Tensor as _Tensor
from rushlight._types.device import Device as _Device

Number: _TypeAlias = _Union[_int, _float, _bool]
Scalar: _TypeAlias = _Union[_int, _float, _bool, _complex]
DeviceLike: _TypeAlias = _Union[_Device, _str, _int, None]
Index: _TypeAlias = _Union[_SupportsIndex, None, slice, _EllipsisType, _Tensor, _ndarray, _Sequence[_Any]]
