"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool, float as _float, int as _int
from rushlight._types.dtype import DType as _DType
from rushlight.ao.nn import quantized as _quantized
from rushlight.ao.nn.intrinsic.quantized import ConvAdd2d as _ConvAdd2d
from typing import Any as _Any

class BNReLU2d(_quantized.BatchNorm2d):
    ...
class BNReLU3d(_quantized.BatchNorm3d):
    ...
class ConvAdd2d(_quantized.Conv2d):
    _FLOAT_MODULE: _Any

    def forward(self, input: _Any, extra_input: _Any=...) -> _Any:
        ...
class ConvAddReLU2d(_ConvAdd2d):
    ...
class ConvReLU1d(_quantized.Conv1d):
    ...
class ConvReLU2d(_quantized.Conv2d):
    ...
class ConvReLU3d(_quantized.Conv3d):
    ...
class LinearLeakyReLU(_quantized.Linear):

    def __init__(self, in_features: _int, out_features: _int, negative_slope: _float=..., bias: _bool=..., dtype: _Any=...) -> None:
        ...

    def forward(self, x: _Any) -> _Any:
        ...

    @classmethod
    def from_float(cls, mod: _Any, use_precomputed_fake_quant: _bool=...) -> _Any:
        ...
class LinearReLU(_quantized.Linear):
    ...
class LinearTanh(_quantized.Linear):

    def forward(self, x: _Any) -> _Any:
        ...
from rushlight.ao.nn.intrinsic.quantized import dynamic as dynamic
qint8: _DType
