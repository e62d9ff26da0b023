"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool, complex as _complex, float as _float, int as _int, str as _str
from types import EllipsisType as _EllipsisType
from typing import Any as _Any, Protocol as _Protocol, SupportsIndex as _SupportsIndex, TypeAlias as _TypeAlias, Union as _Union

from rushlight._engine.core.tensor import Tensor as _Tensor
from rushlight._types.device import Device as _Device

Number: _TypeAlias = _Union[_int, _float, _bool]
Scalar: _TypeAlias = _Union[_int, _float, _bool, _complex]
DeviceLike: _TypeAlias = _Union[_Device, _str, _int, None]

class Array(_Protocol):
    def __array__(self, *args: _Any, **kwargs: _Any) -> _Any: ...

Index: _TypeAlias = _Union[_SupportsIndex, None, slice, _EllipsisType, _Tensor, Array, list[_Any], tuple[_Any, ...], range]
