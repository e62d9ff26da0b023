"""Convolutions over integers: one description for one, two and three dims, plain and transposed."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight._interface.tensors import STATE
from rushlight.ao.nn import intrinsic as nni
from rushlight.ao.nn.quantized.sources import Quantized, output_parameters, quantized_weight, weight_observer
from rushlight.ao.operators.namespace import operators as ops
from rushlight.ao.operators.packed import ConvPackedParams
from rushlight.nn import functional
from rushlight.nn.utils.fusion import fuse_conv_bn_weights

__all__: list[str] = []


def _each(value: Any, n: int) -> tuple[int, ...]:
    return (value,) * n if isinstance(value, int) else tuple(value)


class _ConvNd(Quantized):
    """A convolution of integers; `_DIMS` is the number of its dims."""

    _DIMS, _NAME, _RELU, _TRANSPOSED = 2, "QuantizedConv2d", False, False
    _FLOAT_MODULE: Any = nn.Conv2d
    _OPERATOR = "conv2d"
    _packed_params: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        kind = "conv_transpose" if cls._TRANSPOSED else "conv"
        cls._OPERATOR = f"{kind}{cls._DIMS}d{'_relu' if cls._RELU else ''}"

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._begin((in_channels, out_channels), (kernel_size, stride, padding, dilation), groups, bias, padding_mode)

    def _begin(
        self, channels: tuple[int, int], sizes: Any, groups: int, bias: bool, padding_mode: str, outer: Any = 0
    ) -> None:
        n = self._DIMS
        self.in_channels, self.out_channels = channels
        if self.in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if self.out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        self.groups, self.padding_mode, self.transposed = groups, padding_mode, self._TRANSPOSED
        self.kernel_size, self.stride, self.padding, self.dilation = (_each(v, n) for v in sizes)
        self.output_padding = _each(outer, n)
        depth = (
            (self.in_channels, self.out_channels // groups)
            if self._TRANSPOSED
            else (self.out_channels, self.in_channels // groups)
        )
        weight = torch.quantize_per_tensor(torch.zeros(*depth, *self.kernel_size), 1.0, 0, torch.qint8)
        self.set_weight_bias(weight, torch.zeros(self.out_channels) if bias else None)

    def _get_name(self) -> str:
        return self._NAME

    def set_weight_bias(self, w: Any, b: Any) -> None:
        """Pack another weight and bias."""
        padding = self.padding if self.padding_mode == "zeros" else (0,) * self._DIMS
        self._packed_params = ConvPackedParams(
            w, b, self.stride, padding, self.dilation, self.groups, self.output_padding, self._TRANSPOSED
        )

    def _weight_bias(self) -> Any:
        return self._packed_params.unpack()

    def weight(self) -> Any:
        """The weight, quantized."""
        return self._packed_params.unpack()[0]

    def bias(self) -> Any:
        """The bias in floats, or None."""
        return self._packed_params.unpack()[1]

    def forward(self, input: Any) -> Any:
        """The convolution of quantized numbers [N, C, *S]."""
        if input.dim() != self._DIMS + 2:
            raise ValueError(
                f"Input shape must be `(N, C, {', '.join('DHW'[3 - self._DIMS :])})`!".replace("(N, C, W)", "(N, C, L)")
            )
        if not STATE.function_modes:
            return self._packed_params.apply(self._surrounded(input), self.scale, self.zero_point, self._RELU)
        run = getattr(ops, self._OPERATOR)
        return run(self._surrounded(input), self._packed_params, self.scale, self.zero_point)

    def _surrounded(self, input: Any) -> Any:
        """The input, with a border where it is not zeros."""
        if self.padding_mode == "zeros":
            return input
        around = [p for size in reversed(self.padding) for p in (size, size)]
        return functional.pad(input, around, mode=self.padding_mode)

    def extra_repr(self) -> str:
        """Sizes, scale and zero point."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, scale={self.scale}, zero_point={self.zero_point}"
        n = self._DIMS
        for name, usual in (("padding", (0,) * n), ("dilation", (1,) * n), ("output_padding", (0,) * n), ("groups", 1)):
            if getattr(self, name) != usual:
                text += f", {name}={getattr(self, name)}"
        return text + ("" if self.bias() is not None else ", bias=False")

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        nn.Module._save_to_state_dict(self, destination, prefix, keep_vars)
        destination[prefix + "weight"], destination[prefix + "bias"] = self._packed_params.unpack()
        destination[prefix + "scale"] = torch.tensor(self.scale)
        destination[prefix + "zero_point"] = torch.tensor(self.zero_point)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: Any,
        unexpected_keys: Any,
        error_msgs: Any,
    ) -> None:
        if prefix + "weight" not in state_dict:
            missing_keys.append(prefix + "weight")
            return
        self.set_weight_bias(state_dict.pop(prefix + "weight"), state_dict.pop(prefix + "bias", None))
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    @classmethod
    def _sized_as(cls, mod: Any) -> Any:
        return cls(
            mod.in_channels, mod.out_channels, mod.kernel_size, mod.stride, mod.padding, mod.dilation, mod.groups,
            mod.bias is not None, mod.padding_mode,
        )  # fmt: skip

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The convolution of an observed float module, fused or trained ones included."""
        layer = mod
        if hasattr(mod, "weight_fake_quant"):
            if hasattr(mod, "bn"):
                mod.weight, mod.bias = mod._folded(fuse_conv_bn_weights)
        elif isinstance(mod, nni._FusedModule):
            layer = mod[0]
            layer.qconfig = getattr(layer, "qconfig", None) or mod.qconfig
        if not hasattr(layer, "qconfig"):
            raise AssertionError("Input float module must have qconfig defined.")
        observer = weight_observer(layer, layer.weight, use_precomputed_fake_quant)
        made = cls._sized_as(layer)
        made.set_weight_bias(quantized_weight(layer.weight.float(), observer), layer.bias)
        made.scale, made.zero_point = output_parameters(mod)
        return made

    @classmethod
    def from_reference(cls, ref_qconv: Any, output_scale: Any, output_zero_point: Any) -> Any:
        """The convolution of a reference module."""
        made = cls._sized_as(ref_qconv)
        made.set_weight_bias(ref_qconv.get_quantized_weight(), ref_qconv.bias)
        made.scale, made.zero_point = float(output_scale), int(output_zero_point)
        return made

    @classmethod
    def get_qconv(cls, mod: Any, activation_post_process: Any, weight_post_process: Any = None) -> Any:
        """The convolution of a float module and its observers."""
        observer = weight_post_process if weight_post_process is not None else mod.qconfig.weight()
        observer(mod.weight)
        made = cls._sized_as(mod)
        made.set_weight_bias(quantized_weight(mod.weight.float(), observer), mod.bias)
        if activation_post_process is not None and activation_post_process.dtype is not torch.float:
            scale, zero = activation_post_process.calculate_qparams()
            made.scale, made.zero_point = float(scale), int(zero)
        return made


class Conv1d(_ConvNd):
    """A convolution of integers [N, C, L], quantized by `scale` and `zero_point`."""

    _DIMS, _NAME, _FLOAT_MODULE = 1, "QuantizedConv1d", nn.Conv1d


class Conv2d(_ConvNd):
    """A convolution of integers [N, C, H, W], quantized by `scale` and `zero_point`."""


class Conv3d(_ConvNd):
    """A convolution of integers [N, C, D, H, W], quantized by `scale` and `zero_point`."""

    _DIMS, _NAME, _FLOAT_MODULE = 3, "QuantizedConv3d", nn.Conv3d


class _ConvTransposeNd(_ConvNd):
    """A transposed convolution of integers."""

    _TRANSPOSED = True

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        Quantized.__init__(self)
        sizes = (kernel_size, stride, padding, dilation)
        self._begin((in_channels, out_channels), sizes, groups, bias, padding_mode, output_padding)

    @classmethod
    def _sized_as(cls, mod: Any) -> Any:
        return cls(
            mod.in_channels, mod.out_channels, mod.kernel_size, mod.stride, mod.padding, mod.output_padding, mod.groups,
            mod.bias is not None, mod.dilation, mod.padding_mode,
        )  # fmt: skip


class ConvTranspose1d(_ConvTransposeNd):
    """A transposed convolution of integers [N, C, L], quantized by `scale` and `zero_point`."""

    _DIMS, _NAME, _FLOAT_MODULE = 1, "QuantizedConvTranspose1d", nn.ConvTranspose1d


class ConvTranspose2d(_ConvTransposeNd):
    """A transposed convolution of integers [N, C, H, W], quantized by `scale` and `zero_point`."""

    _DIMS, _NAME, _FLOAT_MODULE = 2, "QuantizedConvTranspose2d", nn.ConvTranspose2d


class ConvTranspose3d(_ConvTransposeNd):
    """A transposed convolution of integers [N, C, D, H, W], quantized by `scale` and `zero_point`."""

    _DIMS, _NAME, _FLOAT_MODULE = 3, "QuantizedConvTranspose3d", nn.ConvTranspose3d
