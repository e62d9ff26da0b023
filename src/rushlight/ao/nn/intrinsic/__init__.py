"""`torch.ao.nn.intrinsic`: modules that will be one kernel once they are quantized."""

from __future__ import annotations

from rushlight._interface.base import lazy_files
from rushlight.ao.nn.intrinsic.fused import (
    BNReLU2d,
    BNReLU3d,
    ConvAdd2d,
    ConvAddReLU2d,
    ConvBn1d,
    ConvBn2d,
    ConvBn3d,
    ConvBnReLU1d,
    ConvBnReLU2d,
    ConvBnReLU3d,
    ConvReLU1d,
    ConvReLU2d,
    ConvReLU3d,
    LinearBn1d,
    LinearLeakyReLU,
    LinearReLU,
    LinearTanh,
    _FusedModule,
)

__all__ = [
    "BNReLU2d", "BNReLU3d", "ConvAdd2d", "ConvAddReLU2d", "ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d", "ConvBnReLU2d",
    "ConvBnReLU3d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "LinearBn1d", "LinearLeakyReLU", "LinearReLU", "LinearTanh",
]  # fmt: skip

__getattr__ = lazy_files(__name__, {}, ["fused", "qat", "quantized"])
