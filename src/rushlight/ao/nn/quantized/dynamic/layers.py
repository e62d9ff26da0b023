"""Linear layers and convolutions whose input is quantized on the way."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight._interface.tensors import STATE
from rushlight.ao.nn import intrinsic as nni
from rushlight.ao.nn import quantized as nnq
from rushlight.ao.nn.quantized.sources import quantized_weight
from rushlight.ao.operators.namespace import operators as ops

__all__: list[str] = []


def dynamic_weight(mod: Any, weight: Any) -> tuple[Any, Any]:
    """(dtype, weight quantized or as it is for float16) by a module's qconfig."""
    qconfig = getattr(mod, "qconfig", None)
    if qconfig is not None and qconfig.weight is not None:
        observer = qconfig.weight()
    else:
        observer = torch.ao.quantization.default_dynamic_qconfig.weight()
    if observer.dtype not in (torch.qint8, torch.float16):
        raise AssertionError(
            f"The only supported dtypes for dynamic quantized linear are qint8 and float16 got: {observer.dtype}"
        )
    observer(weight.detach())
    return observer.dtype, quantized_weight(
        weight.float(), observer
    ) if observer.dtype is torch.qint8 else weight.float()


class Linear(nnq.Linear):
    """A linear layer of floats with a weight of integers (or of float16).

    >>> import rushlight as torch
    >>> torch.ao.nn.quantized.dynamic.Linear(4, 2)(torch.ones(1, 4)).dtype
    torch.float32
    """

    _version = 4
    _NAME = "DynamicQuantizedLinear"

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = torch.qint8) -> None:
        super().__init__(in_features, out_features, bias_, dtype=dtype)
        self.version = 4

    def forward(self, x: Any) -> Any:
        """The layer of floats [..., K]."""
        version_takes_range = self.version is None or self.version < 4
        packed = self._packed_params._packed_params
        if not STATE.function_modes:
            return packed.apply_dynamic(x, not version_takes_range, self._RELU).to(x.dtype)
        if self._packed_params.dtype is torch.float16:
            run = ops.linear_relu_dynamic_fp16 if self._RELU else ops.linear_dynamic_fp16
            return run(x, packed).to(x.dtype)
        run = ops.linear_relu_dynamic if self._RELU else ops.linear_dynamic
        return run(x, packed, not version_takes_range).to(x.dtype)

    def extra_repr(self) -> str:
        """Sizes and dtype."""
        text = f"in_features={self.in_features}, out_features={self.out_features}, dtype={self._packed_params.dtype}"
        return text + (f", qscheme={self.weight().qscheme()}" if self._packed_params.dtype is torch.qint8 else "")

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *more: Any) -> None:
        self.version = local_metadata.get("version", None)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *more)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of a float module."""
        if isinstance(mod, nni.LinearReLU):
            qconfig, mod = getattr(mod, "qconfig", None), mod[0]
            mod.qconfig = getattr(mod, "qconfig", None) or qconfig
        dtype, weight = dynamic_weight(mod, mod.weight)
        made = cls(mod.in_features, mod.out_features, dtype=dtype)
        made.set_weight_bias(weight, mod.bias)
        return made

    @classmethod
    def from_reference(cls, ref_qlinear: Any) -> Any:  # type: ignore[override]
        """The layer of a reference module."""
        made = cls(ref_qlinear.in_features, ref_qlinear.out_features, dtype=ref_qlinear.weight_dtype)
        made.set_weight_bias(ref_qlinear.get_quantized_weight(), ref_qlinear.bias)
        return made


class _Dynamic:
    """A convolution of floats with a weight of integers."""

    def forward(self, input: Any, reduce_range: bool = True) -> Any:
        """The convolution of floats [N, C, *S]."""
        if input.dim() != self._DIMS + 2:  # type: ignore[attr-defined]
            raise ValueError(f"Input shape must have {self._DIMS + 2} dims")  # type: ignore[attr-defined]
        run = getattr(ops, f"{self._OPERATOR}_dynamic")  # type: ignore[attr-defined]
        return run(self._surrounded(input), self._packed_params, reduce_range)  # type: ignore[attr-defined]

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The convolution of a float module."""
        _, weight = dynamic_weight(mod, mod.weight)
        made = cls._sized_as(mod)  # type: ignore[attr-defined]
        made.set_weight_bias(weight, mod.bias)
        return made


class Conv1d(_Dynamic, nnq.Conv1d):
    """A convolution of floats [N, C, L] with a weight of integers."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
        reduce_range: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode)


class Conv2d(_Dynamic, nnq.Conv2d):
    """A convolution of floats [N, C, H, W] with a weight of integers."""


class Conv3d(_Dynamic, nnq.Conv3d):
    """A convolution of floats [N, C, D, H, W] with a weight of integers."""


class ConvTranspose1d(_Dynamic, nnq.ConvTranspose1d):
    """A transposed convolution of floats [N, C, L] with a weight of integers."""


class ConvTranspose2d(_Dynamic, nnq.ConvTranspose2d):
    """A transposed convolution of floats [N, C, H, W] with a weight of integers."""


class ConvTranspose3d(_Dynamic, nnq.ConvTranspose3d):
    """A transposed convolution of floats [N, C, D, H, W] with a weight of integers."""
