"""`torch.ao.nn.quantized.reference`: float modules that keep the scales of their weight, for other backends to read."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight.nn import functional

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Embedding", "EmbeddingBag", "Linear",
]  # fmt: skip


class _Reference:
    """A float module whose weight is rounded as its integers would be, and knows their scales."""

    weight: Any
    is_decomposed = False

    def _init_weight_qparams(self, weight_qparams: Any, device: Any = None) -> None:
        given = weight_qparams or {
            "qscheme": torch.per_tensor_affine,
            "dtype": torch.quint8,
            "scale": 1.0,
            "zero_point": 0,
        }
        self.weight_qscheme, self.weight_dtype = given["qscheme"], given["dtype"]
        if self.weight_qscheme is None:
            return
        kept = {
            torch.per_channel_symmetric: torch.per_channel_affine,
            torch.per_tensor_symmetric: torch.per_tensor_affine,
        }
        self.weight_qscheme = kept.get(self.weight_qscheme, self.weight_qscheme)
        for name in ("scale", "zero_point"):
            value = given[name]
            value = value.clone().detach() if isinstance(value, torch.Tensor) else torch.tensor(value)
            self.register_buffer(f"weight_{name}", value)  # type: ignore[attr-defined]
        self.weight_axis_int = int(given.get("axis", 0))
        self.register_buffer("weight_axis", torch.tensor(self.weight_axis_int))  # type: ignore[attr-defined]

    def get_quantized_weight(self) -> Any:
        """The weight, quantized."""
        weight = self.weight.detach()
        scale, zero = self.weight_scale, self.weight_zero_point  # type: ignore[attr-defined]
        if self.weight_qscheme == torch.per_tensor_affine:
            return torch.quantize_per_tensor(weight, float(scale), int(zero), self.weight_dtype)
        if self.weight_qscheme == torch.per_channel_affine:
            return torch.quantize_per_channel(
                weight, scale.double(), zero.long(), self.weight_axis_int, self.weight_dtype
            )
        if self.weight_qscheme == torch.per_channel_affine_float_qparams:
            return torch.quantize_per_channel(
                weight, scale.float(), zero.float(), self.weight_axis_int, self.weight_dtype
            )
        raise ValueError(f"Unsupported qscheme: {self.weight_qscheme}")

    def get_weight(self) -> Any:
        """The weight, rounded."""
        if self.weight_dtype in (torch.quint8, torch.qint8, torch.qint32, torch.quint4x2):
            return self.get_quantized_weight().dequantize()
        return self.weight.to(self.weight_dtype).float() if self.weight_dtype is torch.float16 else self.weight

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}(Reference)"

    @classmethod
    def _like(cls, mod: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def from_float(cls, float_mod: Any, weight_qparams: Any) -> Any:
        """The reference module of a float one, whose weight has these scales."""
        made = cls._like(float_mod)
        made._init_weight_qparams(weight_qparams)
        made.weight = nn.Parameter(float_mod.weight.detach())
        if getattr(float_mod, "bias", None) is not None:
            made.bias = nn.Parameter(float_mod.bias.detach())
        return made


class Linear(_Reference, nn.Linear):
    """A linear layer with a rounded weight."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias_: bool = True,
        device: Any = None,
        dtype: Any = None,
        weight_qparams: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias_)
        self._init_weight_qparams(weight_qparams)

    def forward(self, x: Any) -> Any:
        """The layer of floats."""
        return functional.linear(x, self.get_weight(), self.bias)

    @classmethod
    def _like(cls, mod: Any) -> Any:
        return cls(mod.in_features, mod.out_features, mod.bias is not None)


class _ConvNd(_Reference):
    """A convolution with a rounded weight."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
        weight_qparams: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(  # type: ignore[call-arg]
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode
        )
        self._init_weight_qparams(weight_qparams)

    def forward(self, x: Any) -> Any:
        """The convolution of floats."""
        return self._conv_forward(x, self.get_weight(), self.bias)  # type: ignore[attr-defined]

    @classmethod
    def _like(cls, mod: Any) -> Any:
        return cls(
            mod.in_channels, mod.out_channels, mod.kernel_size, mod.stride, mod.padding, mod.dilation, mod.groups,
            mod.bias is not None, mod.padding_mode,
        )  # fmt: skip


class Conv1d(_ConvNd, nn.Conv1d):
    """A convolution [N, C, L] with a rounded weight."""


class Conv2d(_ConvNd, nn.Conv2d):
    """A convolution [N, C, H, W] with a rounded weight."""


class Conv3d(_ConvNd, nn.Conv3d):
    """A convolution [N, C, D, H, W] with a rounded weight."""


class _ConvTransposeNd(_Reference):
    """A transposed convolution with a rounded weight."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
        weight_qparams: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(  # type: ignore[call-arg]
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            output_padding,
            groups,
            bias,
            dilation,
            padding_mode,
        )
        self._init_weight_qparams(weight_qparams)

    def forward(self, x: Any, output_size: Any = None) -> Any:
        """The transposed convolution of floats."""
        made: Any = self
        n = len(made.kernel_size)
        outer = made.output_padding
        if output_size is not None:
            outer = made._output_padding(x, output_size, made.stride, made.padding, made.kernel_size, n, made.dilation)
        run = getattr(functional, f"conv_transpose{n}d")
        return run(x, self.get_weight(), made.bias, made.stride, made.padding, outer, made.groups, made.dilation)

    @classmethod
    def _like(cls, mod: Any) -> Any:
        return cls(
            mod.in_channels, mod.out_channels, mod.kernel_size, mod.stride, mod.padding, mod.output_padding, mod.groups,
            mod.bias is not None, mod.dilation, mod.padding_mode,
        )  # fmt: skip


class ConvTranspose1d(_ConvTransposeNd, nn.ConvTranspose1d):
    """A transposed convolution [N, C, L] with a rounded weight."""


class ConvTranspose2d(_ConvTransposeNd, nn.ConvTranspose2d):
    """A transposed convolution [N, C, H, W] with a rounded weight."""


class ConvTranspose3d(_ConvTransposeNd, nn.ConvTranspose3d):
    """A transposed convolution [N, C, D, H, W] with a rounded weight."""


class Embedding(_Reference, nn.Embedding):
    """An embedding with a rounded weight."""

    def forward(self, input: Any) -> Any:
        """The rows."""
        return functional.embedding(
            input,
            self.get_weight(),
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    @classmethod
    def _like(cls, mod: Any) -> Any:
        return cls(
            mod.num_embeddings,
            mod.embedding_dim,
            mod.padding_idx,
            mod.max_norm,
            mod.norm_type,
            mod.scale_grad_by_freq,
            mod.sparse,
        )


class EmbeddingBag(_Reference, nn.EmbeddingBag):
    """Bags of an embedding with a rounded weight."""

    def forward(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        """The bags."""
        return functional.embedding_bag(
            input, self.get_weight(), offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse,
            per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    @classmethod
    def _like(cls, mod: Any) -> Any:
        return cls(
            mod.num_embeddings, mod.embedding_dim, mod.max_norm, mod.norm_type, mod.scale_grad_by_freq, mod.mode, mod.sparse, None,
            mod.include_last_offset, mod.padding_idx,
        )  # fmt: skip
