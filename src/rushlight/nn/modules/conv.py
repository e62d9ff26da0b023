"""Convolutions over 1, 2 and 3 dimensions, and the transposed ones, for upsampling."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.nn import functional as F
from rushlight.nn import init
from rushlight.nn.modules.argument_shapes import reverse_repeat_tuple, spread
from rushlight.nn.modules.module import Module
from rushlight.nn.parameter import Parameter

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _ConvNd(Module):
    """What the convolutions share; subclasses say how many spatial dimensions they have."""

    __constants__ = [
        "stride", "padding", "dilation", "groups", "padding_mode", "output_padding", "in_channels", "out_channels",
        "kernel_size",
    ]  # fmt: skip

    _ndim = 0
    _operator = ""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        n = self._ndim
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = spread(kernel_size, n)
        self.stride = spread(stride, n)
        self.padding = padding if isinstance(padding, str) else spread(padding, n)
        self.dilation = spread(dilation, n)
        self.transposed = False
        self.output_padding = (0,) * n
        self.groups = groups
        self.padding_mode = padding_mode
        self._check()
        self._reversed_padding_repeated_twice = self._edge_padding()
        self.weight = self._make_weight(device, dtype)
        if bias:
            self.bias = Parameter(rushlight.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _make_weight(self, device: Any, dtype: Any) -> Any:
        size = (self.out_channels, self.in_channels // self.groups, *self.kernel_size)
        return Parameter(rushlight.empty(size, device=device, dtype=dtype))

    def _check(self) -> None:
        if self.groups <= 0:
            raise ValueError("groups must be a positive integer")
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if self.out_channels % self.groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(self.padding, str):
            if self.padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {self.padding!r}, should be one of {{'same', 'valid'}}")
            if self.padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        modes = ("zeros", "reflect", "replicate", "circular")
        if self.padding_mode not in modes:
            raise ValueError(f"padding_mode must be one of {modes}, but got padding_mode='{self.padding_mode}'")

    def _edge_padding(self) -> list[int]:
        """The padding as `F.pad` takes it: (left, right) for each dimension, the last dimension first."""
        if not isinstance(self.padding, str):
            return reverse_repeat_tuple(self.padding, 2)
        pads: list[int] = []
        for dilation, kernel in zip(reversed(self.dilation), reversed(self.kernel_size), strict=True):
            total = dilation * (kernel - 1) if self.padding == "same" else 0
            # An odd total puts the extra element on the right.
            pads += [total // 2, total - total // 2]
        return pads

    def reset_parameters(self) -> None:
        """Draw new initial values, uniform on [-1/sqrt(fan_in), 1/sqrt(fan_in)]."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Any:
        convolve = getattr(F, self._operator)
        if self.padding_mode == "zeros":
            return convolve(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return convolve(padded, weight, bias, self.stride, (0,) * self._ndim, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        """Convolve `input` (N, C, *) or (C, *)."""
        return self._conv_forward(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The sizes, and the options that are not at their defaults."""
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        )
        if self.padding != (0,) * len(self.padding):
            text += f", padding={self.padding}"
        if self.dilation != (1,) * len(self.dilation):
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * len(self.output_padding):
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("padding_mode", "zeros")


class Conv1d(_ConvNd):
    """Convolution of (N, C_in, L) with `weight` (C_out, C_in / groups, kernel_size); see `Conv2d`.

    Example: `nn.Conv1d(16, 33, 3, stride=2)(torch.randn(20, 16, 50)).shape  # (20, 33, 24)`
    """

    _ndim = 1
    _operator = "conv1d"


class Conv2d(_ConvNd):
    """Convolution of (N, C_in, H, W) or (C_in, H, W) with `weight` (C_out, C_in / groups, kH, kW).

    Each output size is floor((size + 2 * padding - dilation * (kernel - 1) - 1) / stride) + 1. `padding` may be
    "valid" (none) or "same" (the output keeps the input's size; stride 1 only). `padding_mode` is "zeros", "reflect",
    "replicate" or "circular".

    Example: `nn.Conv2d(16, 33, 3, padding=1)(torch.randn(20, 16, 50, 100)).shape  # (20, 33, 50, 100)`
    """

    _ndim = 2
    _operator = "conv2d"


class Conv3d(_ConvNd):
    """Convolution of (N, C_in, D, H, W) with `weight` (C_out, C_in / groups, kD, kH, kW); see `Conv2d`."""

    _ndim = 3
    _operator = "conv3d"


# ***** transposed *****


class _ConvTransposeNd(_ConvNd):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )
        self.transposed = True
        self.output_padding = spread(output_padding, self._ndim)

    def _make_weight(self, device: Any, dtype: Any) -> Any:
        size = (self.in_channels, self.out_channels // self.groups, *self.kernel_size)
        return Parameter(rushlight.empty(size, device=device, dtype=dtype))

    def _output_padding(self, input: Any, output_size: Any) -> tuple[int, ...]:
        """What to add on one side so that the result has the size asked for."""
        if output_size is None:
            return self.output_padding
        n = self._ndim
        batched = input.dim() == n + 2
        wanted = list(output_size)[-n:] if len(output_size) == n + (2 if batched else 1) else list(output_size)
        if len(wanted) != n:
            raise ValueError(
                f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} or "
                f"{n + (2 if batched else 1)} elements (got {len(output_size)})"
            )
        extra = []
        for i, size in enumerate(wanted):
            least = (
                (input.size(i + input.dim() - n) - 1) * self.stride[i]
                - 2 * int(self.padding[i])
                + self.dilation[i] * (self.kernel_size[i] - 1)
                + 1
            )
            if not least <= size <= least + self.stride[i] - 1:
                raise ValueError(
                    f"requested an output size of {wanted}, but valid sizes of dimension {i} range from {least} to "
                    f"{least + self.stride[i] - 1} (for an input of {list(input.size()[-n:])})"
                )
            extra.append(size - least)
        return tuple(extra)

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """Upsample `input`; `output_size` chooses among the sizes that the stride leaves open."""
        extra = self._output_padding(input, output_size)
        convolve = getattr(F, self._operator)
        return convolve(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution of (N, C_in, L) with `weight` (C_in, C_out / groups, kernel_size); see `ConvTranspose2d`."""

    _ndim = 1
    _operator = "conv_transpose1d"


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution of (N, C_in, H, W) with `weight` (C_in, C_out / groups, kH, kW).

    Each output size is (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1.

    Example: `nn.ConvTranspose2d(16, 33, 3, stride=2)(torch.randn(20, 16, 50, 100)).shape  # (20, 33, 101, 201)`
    """

    _ndim = 2
    _operator = "conv_transpose2d"


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution of (N, C_in, D, H, W); see `ConvTranspose2d`."""

    _ndim = 3
    _operator = "conv_transpose3d"
