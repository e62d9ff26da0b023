"""`torch.ao.nn.intrinsic.quantized.dynamic`: fused modules of floats whose weight is of integers."""

from __future__ import annotations

from typing import Any

from rushlight import qint8
from rushlight.ao.nn import intrinsic as nni
from rushlight.ao.nn.quantized import dynamic as nnqd

__all__ = ["LinearReLU"]


class LinearReLU(nnqd.Linear):
    """relu of a linear layer whose input is quantized on the way.

    >>> import rushlight as torch
    >>> layer = torch.ao.nn.intrinsic.quantized.dynamic.LinearReLU(4, 2)
    >>> bool((layer(torch.ones(3, 4)) >= 0).all())
    True
    """

    _FLOAT_MODULE, _NAME, _RELU = nni.LinearReLU, "DynamicQuantizedLinearReLU", True

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = qint8) -> None:
        super().__init__(in_features, out_features, bias, dtype)
