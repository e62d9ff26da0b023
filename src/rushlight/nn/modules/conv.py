"""Convolutions over 1, 2 and 3 dimensions, and the transposed ones, for upsampling."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.nn import functional as F
from rushlight.nn import init
from rushlight.nn.modules.argument_shapes import reverse_repeat_tuple, spread
from rushlight.nn.modules.lazy import LazyModuleMixin
from rushlight.nn.modules.module import Module
from rushlight.nn.parameter import Parameter

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
    "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
]  # fmt: skip


class _ConvNd(Module):
    """Common base of the convolutions. The arguments that are tuples say how many spatial dimensions there are."""

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
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: Any,
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        self._check()
        self._reversed_padding_repeated_twice = self._edge_padding()
        self.weight = Parameter(rushlight.empty(self._weight_size(), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(rushlight.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _weight_size(self) -> tuple[int, ...]:
        """The outputs come first, or the inputs in a transposed convolution; a group connects only its own channels."""
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        return first, second // self.groups, *self.kernel_size

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

    def _edge_padding(self) -> tuple[int, ...]:
        """The padding as `F.pad` takes it: (left, right) for each dimension, the last dimension first."""
        if not isinstance(self.padding, str):
            return reverse_repeat_tuple(self.padding, 2)
        totals = []
        if self.padding == "same":  # of unlike lists the shorter counts: it is the first forward that refuses them
            totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=False)]
        totals += [0] * (len(self.kernel_size) - len(totals))
        # An odd total puts the extra element on the right.
        return tuple(part for total in reversed(totals) for part in (total // 2, total - total // 2))

    def reset_parameters(self) -> None:
        """Draw new initial values, uniform on [-1/sqrt(fan_in), 1/sqrt(fan_in)]."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        convolve = getattr(F, self._operator)
        if self.padding_mode == "zeros":
            return convolve(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return convolve(padded, weight, bias, self.stride, 0, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        """Convolve `input` (N, C, *) or (C, *)."""
        return self._conv_forward(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The sizes, and the options that are not at their defaults."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
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


class _Convolution(_ConvNd):
    """The constructor of the convolutions that are not transposed."""

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
        n = self._ndim
        edges = padding if isinstance(padding, str) else spread(padding, n)
        super().__init__(
            in_channels, out_channels, spread(kernel_size, n), spread(stride, n), edges, spread(dilation, n), False, spread(0, n), groups,
            bias, padding_mode, device, dtype,
        )  # fmt: skip


class Conv1d(_Convolution):
    """Convolution of (N, C_in, L) with `weight` (C_out, C_in / groups, kernel_size); see `Conv2d`.

    Example: `nn.Conv1d(16, 33, 3, stride=2)(torch.randn(20, 16, 50)).shape  # (20, 33, 24)`
    """

    _ndim = 1
    _operator = "conv1d"


class Conv2d(_Convolution):
    """Convolution of (N, C_in, H, W) or (C_in, H, W) with `weight` (C_out, C_in / groups, kH, kW).

    Each output size is floor((size + 2 * padding - dilation * (kernel - 1) - 1) / stride) + 1. `padding` may be
    "valid" (none) or "same" (the output keeps the input's size; stride 1 only). `padding_mode` is "zeros", "reflect",
    "replicate" or "circular".

    Example: `nn.Conv2d(16, 33, 3, padding=1)(torch.randn(20, 16, 50, 100)).shape  # (20, 33, 50, 100)`
    """

    _ndim = 2
    _operator = "conv2d"


class Conv3d(_Convolution):
    """Convolution of (N, C_in, D, H, W) with `weight` (C_out, C_in / groups, kD, kH, kW); see `Conv2d`.

    >>> import rushlight as torch
    >>> torch.nn.Conv3d(2, 4, 3, padding=1)(torch.randn(1, 2, 5, 6, 7)).shape
    torch.Size([1, 4, 5, 6, 7])
    """

    _ndim = 3
    _operator = "conv3d"


# ***** transposed *****


class _ConvTransposeNd(_ConvNd):
    """Common base of the transposed convolutions."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding, groups, bias, padding_mode, device,
            dtype,
        )  # fmt: skip

    def _output_padding(
        self,
        input: Any,
        output_size: Any,
        stride: Any,
        padding: Any,
        kernel_size: Any,
        num_spatial_dims: int,
        dilation: Any = None,
    ) -> tuple[int, ...]:
        """Output padding: elements to add on one side so that the result has the size asked for."""
        if output_size is None:
            return spread(self.output_padding, num_spatial_dims)
        n = num_spatial_dims
        extras = 2 if input.dim() == n + 2 else 1
        wanted = list(output_size)[extras:] if len(output_size) == n + extras else list(output_size)
        if len(wanted) != n:
            raise ValueError(
                f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} or {n + extras} elements (got {len(output_size)})"
            )
        found = []
        for i, size in enumerate(wanted):
            span = kernel_size[i] - 1 if dilation is None else dilation[i] * (kernel_size[i] - 1)
            least = (input.size(i + extras) - 1) * stride[i] - 2 * padding[i] + span + 1
            if not least <= size <= least + stride[i] - 1:
                raise ValueError(
                    f"requested an output size of {wanted}, but valid sizes of dimension {i} range from {least} to "
                    f"{least + stride[i] - 1} (for an input of {list(input.size()[extras:])})"
                )
            found.append(size - least)
        return tuple(found)


class _TransposedConvolution(_ConvTransposeNd):
    """The constructor and the call of the transposed convolutions."""

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
        n = self._ndim
        super().__init__(
            in_channels, out_channels, spread(kernel_size, n), spread(stride, n), spread(padding, n), spread(dilation, n), True,
            spread(output_padding, n), groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """Upsample `input`; `output_size` chooses among the sizes that the stride leaves open."""
        extra = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, self._ndim, self.dilation
        )
        convolve = getattr(F, self._operator)
        return convolve(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)


class ConvTranspose1d(_TransposedConvolution):
    """Transposed convolution of (N, C_in, L) with `weight` (C_in, C_out / groups, kernel_size); see `ConvTranspose2d`.

    >>> import rushlight as torch
    >>> torch.nn.ConvTranspose1d(2, 4, 3, stride=2)(torch.randn(1, 2, 5)).shape
    torch.Size([1, 4, 11])
    """

    _ndim = 1
    _operator = "conv_transpose1d"


class ConvTranspose2d(_TransposedConvolution):
    """Transposed convolution of (N, C_in, H, W) with `weight` (C_in, C_out / groups, kH, kW).

    Each output size is (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1.

    Example: `nn.ConvTranspose2d(16, 33, 3, stride=2)(torch.randn(20, 16, 50, 100)).shape  # (20, 33, 101, 201)`
    """

    _ndim = 2
    _operator = "conv_transpose2d"


class ConvTranspose3d(_TransposedConvolution):
    """Transposed convolution of (N, C_in, D, H, W); see `ConvTranspose2d`.

    >>> import rushlight as torch
    >>> torch.nn.ConvTranspose3d(2, 4, 3, stride=2)(torch.randn(1, 2, 3, 3, 3)).shape
    torch.Size([1, 4, 7, 7, 7])
    """

    _ndim = 3
    _operator = "conv_transpose3d"


# ***** lazy *****


class _LazyConvXdMixin(LazyModuleMixin):
    """Common base of the lazy convolutions: the number of input channels comes with the first input."""

    def reset_parameters(self: Any) -> None:
        """Draw new initial values, if the parameters have shapes."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self: Any, input: Any, *args: Any, **kwargs: Any) -> None:
        """Make the parameters for an input (N, C_in, *) or (C_in, *)."""
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._get_in_channels(input)
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        self.weight.materialize(self._weight_size())
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()

    def _get_in_channels(self: Any, input: Any) -> int:
        without_batch = self._get_num_spatial_dims() + 1
        if input.dim() not in (without_batch, without_batch + 1):
            raise RuntimeError(
                f"Expected {without_batch}D (unbatched) or {without_batch + 1}D (batched) input to {type(self).__name__}, "
                f"but got input of size: {input.shape}"
            )
        return int(input.shape[input.dim() - without_batch])

    def _get_num_spatial_dims(self: Any) -> int:
        return int(self._ndim)

    def _forget_shapes(self: Any, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        """Put parameters without shapes in the places of those that the constructor made for no channels."""
        self.weight = rushlight.nn.UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = rushlight.nn.UninitializedParameter(device=device, dtype=dtype)


class _LazyConvolution(_LazyConvXdMixin):
    """The constructor of the lazy convolutions that are not transposed."""

    def __init__(
        self,
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
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self._forget_shapes(out_channels, bias, device, dtype)


class _LazyTransposedConvolution(_LazyConvXdMixin):
    """The constructor of the lazy transposed convolutions."""

    def __init__(
        self,
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
        super().__init__(0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode)
        self._forget_shapes(out_channels, bias, device, dtype)


class LazyConv1d(_LazyConvolution, Conv1d):
    """A `Conv1d` that takes `in_channels` from its first input, and is a `Conv1d` from then on."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConvolution, Conv2d):
    """A `Conv2d` that takes `in_channels` from its first input, and is a `Conv2d` from then on.

    >>> import rushlight as torch
    >>> layer = torch.nn.LazyConv2d(4, 3)
    >>> layer(torch.randn(1, 2, 6, 6)).shape
    torch.Size([1, 4, 4, 4])
    >>> layer
    Conv2d(2, 4, kernel_size=(3, 3), stride=(1, 1))
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConvolution, Conv3d):
    """A `Conv3d` that takes `in_channels` from its first input, and is a `Conv3d` from then on."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyTransposedConvolution, ConvTranspose1d):
    """A `ConvTranspose1d` that takes `in_channels` from its first input, and is a `ConvTranspose1d` from then on."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposedConvolution, ConvTranspose2d):
    """A `ConvTranspose2d` that takes `in_channels` from its first input, and is a `ConvTranspose2d` from then on."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposedConvolution, ConvTranspose3d):
    """A `ConvTranspose3d` that takes `in_channels` from its first input, and is a `ConvTranspose3d` from then on."""

    cls_to_become = ConvTranspose3d
