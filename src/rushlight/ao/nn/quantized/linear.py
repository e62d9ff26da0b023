"""Linear layers over integers."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight._interface.tensors import STATE
from rushlight.ao.nn import intrinsic as nni
from rushlight.ao.nn.intrinsic import qat as nniqat
from rushlight.ao.nn.quantized.sources import Quantized, output_parameters, quantized_weight, weight_observer
from rushlight.ao.operators.namespace import operators as ops
from rushlight.nn.utils.fusion import fuse_linear_bn_weights

__all__ = ["Linear", "LinearPackedParams"]


class LinearPackedParams(nn.Module):
    """The packed weight and bias of a linear layer: their state is the two tensors."""

    _version = 3

    def __init__(self, dtype: Any = torch.qint8) -> None:
        super().__init__()
        self.dtype = dtype
        self._packed_params: Any = None

    def set_weight_bias(self, weight: Any, bias: Any) -> None:
        """Pack a weight (qint8, or floats for float16) and a bias."""
        pack = (
            torch.ops.quantized.linear_prepack if self.dtype is torch.qint8 else torch.ops.quantized.linear_prepack_fp16
        )
        self._packed_params = pack(weight, bias)

    def _weight_bias(self) -> Any:
        return self._packed_params.unpack()

    def forward(self, x: Any) -> Any:
        """The input: this module holds a state and computes nothing."""
        return x

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_params"] = self._weight_bias()

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
        for name in ("dtype", "_packed_params"):
            if prefix + name not in state_dict:
                missing_keys.append(prefix + name)
                return
        self.dtype = state_dict.pop(prefix + "dtype")
        self.set_weight_bias(*state_dict.pop(prefix + "_packed_params"))
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, False, missing_keys, unexpected_keys, error_msgs
        )


class Linear(Quantized):
    """A linear layer of integers, quantized by `scale` and `zero_point`: one product with its requantization.

    >>> import rushlight as torch
    >>> layer = torch.ao.nn.quantized.Linear(4, 2)
    >>> x = torch.quantize_per_tensor(torch.ones(1, 4), 0.1, 0, torch.quint8)
    >>> layer(x).shape, layer(x).dtype
    (torch.Size([1, 2]), torch.quint8)
    """

    _version = 3
    _FLOAT_MODULE: Any = (nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear)
    _NAME, _RELU = "QuantizedLinear", False

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = torch.qint8) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        bias = torch.zeros(out_features, dtype=torch.float) if bias_ else None
        if dtype is torch.qint8:
            weight = torch.quantize_per_tensor(torch.zeros(out_features, in_features), 1.0, 0, torch.qint8)
        elif dtype is torch.float16:
            weight = torch.zeros(out_features, in_features)
        else:
            raise RuntimeError("Unsupported dtype specified for quantized Linear!")
        self._packed_params = LinearPackedParams(dtype)
        self._packed_params.set_weight_bias(weight, bias)

    def _get_name(self) -> str:
        return self._NAME

    def extra_repr(self) -> str:
        """Sizes, scale and zero point."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, scale={self.scale}, zero_point={self.zero_point}, "
            f"qscheme={self.weight().qscheme()}"
        )

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def forward(self, x: Any) -> Any:
        """The layer of quantized numbers [..., K]."""
        if not STATE.function_modes:
            return self._packed_params._packed_params.apply(x, self.scale, self.zero_point, self._RELU)
        run = ops.linear_relu if self._RELU else ops.linear
        return run(x, self._packed_params._packed_params, self.scale, self.zero_point)

    def _weight_bias(self) -> Any:
        return self._packed_params._weight_bias()

    def weight(self) -> Any:
        """The weight [N, K], quantized."""
        return self._weight_bias()[0]

    def bias(self) -> Any:
        """The bias [N] in floats, or None."""
        return self._weight_bias()[1]

    def set_weight_bias(self, w: Any, b: Any) -> None:
        """Pack another weight and bias."""
        self._packed_params.set_weight_bias(w, b)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of an observed float module, fused or trained ones included."""
        layer = mod
        if hasattr(mod, "weight_fake_quant"):
            if type(mod) is nniqat.LinearBn1d:
                mod.weight, mod.bias = mod._folded(fuse_linear_bn_weights)
        elif isinstance(mod, nni._FusedModule):
            layer = mod[0]
            layer.qconfig = getattr(layer, "qconfig", None) or mod.qconfig
        if not hasattr(layer, "qconfig"):
            raise AssertionError("Input float module must have qconfig defined")
        observer = weight_observer(layer, layer.weight, use_precomputed_fake_quant)
        made = cls(layer.in_features, layer.out_features, dtype=torch.qint8)
        made.set_weight_bias(quantized_weight(layer.weight.float(), observer), layer.bias)
        made.scale, made.zero_point = output_parameters(mod)
        return made

    @classmethod
    def from_reference(cls, ref_qlinear: Any, output_scale: Any, output_zero_point: Any) -> Any:
        """The layer of a reference module."""
        made = cls(ref_qlinear.in_features, ref_qlinear.out_features)
        made.set_weight_bias(ref_qlinear.get_quantized_weight(), ref_qlinear.bias)
        made.scale, made.zero_point = float(output_scale), int(output_zero_point)
        return made
