"""`torch.ao.nn.intrinsic.quantized`: fused modules over integers: one kernel each."""

from __future__ import annotations

from typing import Any

from rushlight import qint8
from rushlight._interface.base import lazy_files
from rushlight.ao.nn import intrinsic as nni
from rushlight.ao.nn import quantized as nnq
from rushlight.ao.operators.namespace import operators as ops

__all__ = [
    "BNReLU2d", "BNReLU3d", "ConvAdd2d", "ConvAddReLU2d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "LinearLeakyReLU", "LinearReLU",
    "LinearTanh",
]  # fmt: skip


class LinearReLU(nnq.Linear):
    """relu of a linear layer of integers."""

    _FLOAT_MODULE, _NAME, _RELU = nni.LinearReLU, "QuantizedLinearReLU", True


class LinearLeakyReLU(nnq.Linear):
    """leaky_relu of a linear layer of integers."""

    _FLOAT_MODULE, _NAME = nni.LinearLeakyReLU, "QuantizedLinearLeakyReLU"

    def __init__(
        self, in_features: int, out_features: int, negative_slope: float = 0.01, bias: bool = True, dtype: Any = qint8
    ) -> None:
        super().__init__(in_features, out_features, bias, dtype)
        self.negative_slope = negative_slope

    def forward(self, x: Any) -> Any:
        """The layer of quantized numbers."""
        return ops.linear_leaky_relu(
            x, self._packed_params._packed_params, self.scale, self.zero_point, self.negative_slope
        )

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of an observed float module."""
        made = super().from_float(mod, use_precomputed_fake_quant)
        made.negative_slope = mod[1].negative_slope
        return made


class LinearTanh(nnq.Linear):
    """tanh of a linear layer of integers."""

    _FLOAT_MODULE, _NAME = nni.LinearTanh, "QuantizedLinearTanh"

    def forward(self, x: Any) -> Any:
        """The layer of quantized numbers."""
        return ops.linear_tanh(x, self._packed_params._packed_params, self.scale, self.zero_point)


class ConvReLU1d(nnq.Conv1d):
    """relu of a convolution of integers [N, C, L]."""

    _FLOAT_MODULE, _NAME, _RELU = nni.ConvReLU1d, "QuantizedConvReLU1d", True


class ConvReLU2d(nnq.Conv2d):
    """relu of a convolution of integers [N, C, H, W]."""

    _FLOAT_MODULE, _NAME, _RELU = nni.ConvReLU2d, "QuantizedConvReLU2d", True


class ConvReLU3d(nnq.Conv3d):
    """relu of a convolution of integers [N, C, D, H, W]."""

    _FLOAT_MODULE, _NAME, _RELU = nni.ConvReLU3d, "QuantizedConvReLU3d", True


class ConvAdd2d(nnq.Conv2d):
    """A convolution of integers, plus another tensor of them."""

    _FLOAT_MODULE: Any = nni.ConvAdd2d
    _NAME = "QuantizedConvAdd2d"

    def forward(self, input: Any, extra_input: Any = None) -> Any:
        """conv(input) + extra_input."""
        if extra_input is None:
            raise TypeError("forward() missing 1 required positional argument: 'extra_input'")
        run = ops.conv2d_add_relu if self._RELU else ops.conv2d_add
        return run(self._surrounded(input), extra_input, self._packed_params, self.scale, self.zero_point)


class ConvAddReLU2d(ConvAdd2d):
    """relu of a convolution of integers plus another tensor of them."""

    _FLOAT_MODULE, _NAME, _RELU = nni.ConvAddReLU2d, "QuantizedConvAddReLU2d", True


class BNReLU2d(nnq.BatchNorm2d):
    """relu of batch norm over integers [N, C, H, W]."""

    _RELU = True


class BNReLU3d(nnq.BatchNorm3d):
    """relu of batch norm over integers [N, C, D, H, W]."""

    _RELU = True


__getattr__ = lazy_files(__name__, {}, ["dynamic"])
