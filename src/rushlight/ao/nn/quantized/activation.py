"""Activations over integers whose result has a scale of its own."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight.ao.nn.quantizable.modules import MultiheadAttention as _Quantizable
from rushlight.ao.nn.quantized.sources import Quantized, output_parameters
from rushlight.ao.operators.namespace import operators as ops

__all__ = ["ELU", "Hardswish", "LeakyReLU", "MultiheadAttention", "PReLU", "ReLU6", "Sigmoid", "Softmax"]


class ReLU6(nn.ReLU):
    """min(max(0, x), 6), quantized as the input is."""

    def forward(self, input: Any) -> Any:
        """The clamped numbers."""
        return ops.relu6(input, self.inplace)

    def _get_name(self) -> str:
        return "QuantizedReLU6"

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The same for a float module."""
        return ReLU6(mod.inplace)


class _Activation(Quantized):
    """An activation; `_settings` are the float module's attributes that it takes."""

    _NAME: str = ""
    _settings: tuple[str, ...] = ()

    def __init__(self, scale: Any, zero_point: Any) -> None:
        nn.Module.__init__(self)
        self.register_buffer("scale", torch.tensor(scale))
        self.register_buffer("zero_point", torch.tensor(zero_point))

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        nn.Module._save_to_state_dict(self, destination, prefix, keep_vars)

    def _load_from_state_dict(self, *args: Any) -> None:
        nn.Module._load_from_state_dict(self, *args)

    def _get_name(self) -> str:
        return self._NAME

    def _to(self) -> tuple[float, int]:
        return float(self.scale), int(self.zero_point)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The activation of an observed float module."""
        return cls(*output_parameters(mod), *(getattr(mod, name) for name in cls._settings))

    @classmethod
    def from_reference(cls, mod: Any, scale: Any, zero_point: Any) -> Any:
        """The activation of a module of a reference model."""
        return cls(float(scale), int(zero_point), *(getattr(mod, name) for name in cls._settings))


class Hardswish(_Activation):
    """x relu6(x + 3) / 6, quantized by `scale` and `zero_point`."""

    _NAME = "QuantizedHardswish"

    def __init__(self, scale: Any, zero_point: Any, device: Any = None, dtype: Any = None) -> None:
        super().__init__(scale, zero_point)

    def forward(self, input: Any) -> Any:
        """The activation of quantized numbers."""
        return ops.hardswish(input, *self._to())


class ELU(_Activation):
    """x or alpha (e^x - 1), quantized by `scale` and `zero_point`."""

    _NAME, _settings = "QuantizedELU", ("alpha",)

    def __init__(self, scale: Any, zero_point: Any, alpha: float = 1.0) -> None:
        super().__init__(scale, zero_point)
        self.alpha = alpha

    def forward(self, input: Any) -> Any:
        """The activation of quantized numbers."""
        return ops.elu(input, *self._to(), self.alpha)


class LeakyReLU(_Activation):
    """x or negative_slope x, quantized by `scale` and `zero_point`."""

    _NAME, _settings = "QuantizedLeakyReLU", ("negative_slope", "inplace")

    def __init__(
        self,
        scale: Any,
        zero_point: Any,
        negative_slope: float = 1e-2,
        inplace: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(scale, zero_point)
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Any) -> Any:
        """The activation of quantized numbers."""
        return ops.leaky_relu(input, self.negative_slope, self.inplace, *self._to())


class Sigmoid(nn.Sigmoid):
    """The logistic function, quantized by a fixed scale."""

    def __init__(self, output_scale: float, output_zero_point: int) -> None:
        super().__init__()
        self.output_scale, self.output_zero_point = output_scale, output_zero_point

    def forward(self, input: Any) -> Any:
        """The activation of quantized numbers."""
        return ops.sigmoid(input, self.output_scale, self.output_zero_point)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The activation of an observed float module."""
        return cls(*output_parameters(mod))


class Softmax(nn.Softmax):
    """The softmax along `dim`, quantized by `scale` and `zero_point`."""

    def __init__(self, dim: Any = None, scale: float = 1.0, zero_point: int = 0) -> None:
        super().__init__(dim)
        self.scale, self.zero_point = scale, zero_point

    def forward(self, input: Any) -> Any:
        """The softmax of quantized numbers."""
        dim = self.dim if self.dim is not None else (0 if input.dim() in (0, 1, 3) else 1)
        return ops.softmax(input, dim, self.scale, self.zero_point)

    def _get_name(self) -> str:
        return "QuantizedSoftmax"

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The softmax of an observed float module."""
        return Softmax(mod.dim, *output_parameters(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: Any, zero_point: Any) -> Any:
        """The softmax of a module of a reference model."""
        return cls(mod.dim, float(scale), int(zero_point))


class PReLU(nn.Module):
    """x or weight x, quantized by `scale` and `zero_point`; the weight is quantized too."""

    def __init__(self, output_scale: float, output_zero_point: int, num_parameters: int = 1) -> None:
        super().__init__()
        self.num_parameters, self.scale, self.zero_point = num_parameters, output_scale, output_zero_point
        self.weight = torch.quantize_per_tensor(torch.randn(num_parameters), 1.0, 0, torch.quint8)

    def set_weight(self, w: Any) -> None:
        """Another weight, quantized."""
        self.weight = w

    def forward(self, input: Any) -> Any:
        """The activation of quantized numbers."""
        return ops.prelu(input, self.weight, self.scale, self.zero_point)

    def _get_name(self) -> str:
        return "QuantizedPReLU"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The activation of an observed float module."""
        return cls.from_reference(mod, *output_parameters(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: Any, zero_point: Any) -> Any:
        """The activation of a module of a reference model."""
        made = cls(float(scale), int(zero_point), mod.num_parameters)
        watch = mod.qconfig.weight()
        weight = mod.weight.detach().float()
        watch(weight)
        factor, zero = watch.calculate_qparams()
        made.set_weight(torch.quantize_per_tensor(weight, float(factor), int(zero), torch.quint8))
        return made


class MultiheadAttention(_Quantizable):
    """Attention whose products and projections are of integers: what an observed one becomes."""

    _FLOAT_MODULE = _Quantizable

    def _get_name(self) -> str:
        return "QuantizedMultiheadAttention"

    @classmethod
    def from_float(cls, other: Any) -> Any:
        """NotImplementedError: floats are observed first."""
        raise NotImplementedError(
            "It looks like you are trying to convert a non-observed MHA module. Please, see the examples on quantizable MHAs."
        )

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """The attention of an observed one."""
        made = torch.ao.quantization.convert(other, inplace=False, convert_custom_config_dict=None)
        made.__class__ = cls
        for name in ("bias_k", "bias_v"):
            held = getattr(other, name, None)
            if held is not None:
                made._parameters.pop(name)
                watch = torch.ao.quantization.default_observer()
                watch(held)
                scale, zero = watch.calculate_qparams()
                setattr(made, name, torch.quantize_per_tensor(held.detach(), float(scale), int(zero), torch.quint8))
        return made
