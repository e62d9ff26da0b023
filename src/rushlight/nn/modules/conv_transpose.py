"""Transposed convolutions: the gradients of convolutions as layers, for upsampling."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.nn import functional as F
from rushlight.nn.modules.argument_shapes import spread
from rushlight.nn.modules.conv import _Conv
from rushlight.nn.parameter import Parameter

__all__ = ["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _ConvTranspose(_Conv):
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

    def forward(self, input: Any, output_size: Any = None) -> Any:
        """Upsample `input`; `output_size` chooses among the sizes that the stride leaves open."""
        extra = self._output_padding(input, output_size)
        convolve = getattr(F, self._operator)
        return convolve(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution of (N, C_in, L) with `weight` (C_in, C_out / groups, kernel_size); see `ConvTranspose2d`."""

    _ndim = 1
    _operator = "conv_transpose1d"


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution of (N, C_in, H, W) with `weight` (C_in, C_out / groups, kH, kW).

    Each output size is (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1.

    Example: `nn.ConvTranspose2d(16, 33, 3, stride=2)(torch.randn(20, 16, 50, 100)).shape  # (20, 33, 101, 201)`
    """

    _ndim = 2
    _operator = "conv_transpose2d"


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution of (N, C_in, D, H, W); see `ConvTranspose2d`."""

    _ndim = 3
    _operator = "conv_transpose3d"
