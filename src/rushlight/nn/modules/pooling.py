"""Pooling: the maximum or mean over windows."""

from __future__ import annotations

from typing import Any

from rushlight import Tensor
from rushlight.nn import functional as F
from rushlight.nn.modules.argument_shapes import spread
from rushlight.nn.modules.module import Module

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d",
    "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip


class _MaxPoolNd(Module):
    __constants__ = ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"]

    _operator = ""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Any) -> Any:
        """Take the maximum of each window; with `return_indices` also where it was."""
        return getattr(F, self._operator)(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )

    def extra_repr(self) -> str:
        """The arguments."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """Maximum over windows of (N, C, L) or (C, L).

    >>> import rushlight as torch
    >>> torch.nn.MaxPool1d(2)(torch.tensor([[[1.0, 4.0, 2.0, 3.0]]]))
    tensor([[[4., 3.]]])
    """

    _operator = "max_pool1d"


class MaxPool2d(_MaxPoolNd):
    """Maximum over windows of (N, C, H, W) or (C, H, W). The stride is the kernel's size by default.

    Example: `nn.MaxPool2d(2)(torch.randn(20, 16, 50, 32)).shape  # (20, 16, 25, 16)`
    """

    _operator = "max_pool2d"


class MaxPool3d(_MaxPoolNd):
    """Maximum over windows of (N, C, D, H, W) or (C, D, H, W).

    >>> import rushlight as torch
    >>> torch.nn.MaxPool3d(2)(torch.arange(64.0).reshape(1, 1, 4, 4, 4)).flatten()
    tensor([21., 23., 29., 31., 53., 55., 61., 63.])
    """

    _operator = "max_pool3d"


class _MaxUnpoolNd(Module):
    """Undoes a maximum pooling that returned indices."""

    _ndim = 0

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = spread(kernel_size, self._ndim)
        self.stride = spread(kernel_size if stride is None else stride, self._ndim)
        self.padding = spread(padding, self._ndim)

    def forward(self, input: Tensor, indices: Any, output_size: Any = None) -> Tensor:
        """Put the values of `input` where the maxima were, and zeros elsewhere."""
        unpool = getattr(F, f"max_unpool{self._ndim}d")
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """Undoes `MaxPool1d(return_indices=True)`.

    >>> import rushlight as torch
    >>> values, places = torch.nn.MaxPool1d(2, return_indices=True)(torch.tensor([[[1.0, 4.0, 2.0, 3.0]]]))
    >>> torch.nn.MaxUnpool1d(2)(values, places)
    tensor([[[0., 4., 0., 3.]]])
    """

    _ndim = 1


class MaxUnpool2d(_MaxUnpoolNd):
    """Undoes `MaxPool2d(return_indices=True)`.

    Example: `nn.MaxUnpool2d(2)(*nn.MaxPool2d(2, return_indices=True)(torch.randn(1, 1, 4, 4))).shape  # (1, 1, 4, 4)`
    """

    _ndim = 2


class MaxUnpool3d(_MaxUnpoolNd):
    """Undoes `MaxPool3d(return_indices=True)`.

    >>> import rushlight as torch
    >>> values, places = torch.nn.MaxPool3d(2, return_indices=True)(torch.arange(64.0).reshape(1, 1, 4, 4, 4))
    >>> torch.nn.MaxUnpool3d(2)(values, places).shape
    torch.Size([1, 1, 4, 4, 4])
    """

    _ndim = 3


class _LPPoolNd(Module):
    """The p-norm over windows."""

    __constants__ = ["norm_type", "kernel_size", "stride", "ceil_mode"]

    _operator = ""

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        """Take the norm of each window."""
        return getattr(F, self._operator)(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, ceil_mode={self.ceil_mode}"


class LPPool1d(_LPPoolNd):
    """p-norm over windows of (N, C, L) or (C, L).

    >>> import rushlight as torch
    >>> torch.nn.LPPool1d(2, 2)(torch.tensor([[[3.0, 4.0, 0.0, 5.0]]]))
    tensor([[[5., 5.]]])
    """

    _operator = "lp_pool1d"


class LPPool2d(_LPPoolNd):
    """p-norm over windows of (N, C, H, W) or (C, H, W).

    >>> import rushlight as torch
    >>> torch.nn.LPPool2d(2, 2)(torch.ones(1, 1, 4, 4))
    tensor([[[[2., 2.],
              [2., 2.]]]])
    """

    _operator = "lp_pool2d"


class LPPool3d(_LPPoolNd):
    """p-norm over windows of (N, C, D, H, W) or (C, D, H, W).

    >>> import rushlight as torch
    >>> torch.nn.LPPool3d(2, 2)(torch.ones(1, 1, 4, 4, 4)).shape
    torch.Size([1, 1, 2, 2, 2])
    """

    _operator = "lp_pool3d"


class _AvgPoolNd(Module):
    def extra_repr(self) -> str:
        """The arguments."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """Mean over windows of (N, C, L) or (C, L).

    >>> import rushlight as torch
    >>> torch.nn.AvgPool1d(2)(torch.tensor([[[1.0, 4.0, 2.0, 3.0]]]))
    tensor([[[2.5000, 2.5000]]])
    """

    __constants__ = ["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = spread(kernel_size, 1)
        self.stride = spread(kernel_size if stride is None else stride, 1)
        self.padding = spread(padding, 1)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """Take the mean of each window."""
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPoolDivided(_AvgPoolNd):
    """Means whose divisor may be given."""

    __constants__ = ["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"]

    _operator = ""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """Take the mean of each window."""
        return getattr(F, self._operator)(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool2d(_AvgPoolDivided):
    """Mean over windows of (N, C, H, W) or (C, H, W). `count_include_pad=False` leaves the padding out of the mean.

    >>> import rushlight as torch
    >>> torch.nn.AvgPool2d(2)(torch.arange(16.0).reshape(1, 1, 4, 4))
    tensor([[[[ 2.5000,  4.5000],
              [10.5000, 12.5000]]]])
    """

    _operator = "avg_pool2d"


class AvgPool3d(_AvgPoolDivided):
    """Mean over windows of (N, C, D, H, W) or (C, D, H, W).

    >>> import rushlight as torch
    >>> torch.nn.AvgPool3d(2)(torch.arange(64.0).reshape(1, 1, 4, 4, 4)).flatten()
    tensor([10.5000, 12.5000, 18.5000, 20.5000, 42.5000, 44.5000, 50.5000, 52.5000])
    """

    _operator = "avg_pool3d"


class _Adaptive(Module):
    """Pooling with windows chosen so that the output has a given size; None keeps the input's."""

    __constants__ = ["output_size"]

    _operator = ""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Any) -> Any:
        """Pool `input` to `output_size`."""
        return getattr(F, self._operator)(input, self.output_size)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"output_size={self.output_size}"


class _AdaptiveAvgPoolNd(_Adaptive):
    """Common base of the adaptive means."""


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Mean pooling of (N, C, L) to the given length.

    >>> import rushlight as torch
    >>> torch.nn.AdaptiveAvgPool1d(2)(torch.tensor([[[1.0, 4.0, 2.0, 3.0]]]))
    tensor([[[2.5000, 2.5000]]])
    """

    _operator = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Mean pooling of (N, C, H, W) to the given size; `1` is global average pooling.

    Example: `nn.AdaptiveAvgPool2d((5, 7))(torch.randn(1, 64, 8, 9)).shape  # (1, 64, 5, 7)`
    """

    _operator = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Mean pooling of (N, C, D, H, W) to the given size.

    >>> import rushlight as torch
    >>> torch.nn.AdaptiveAvgPool3d(1)(torch.arange(64.0).reshape(1, 1, 4, 4, 4)).flatten()
    tensor([31.5000])
    """

    _operator = "adaptive_avg_pool3d"


class _AdaptiveMaxPoolNd(_Adaptive):
    __constants__ = ["output_size", "return_indices"]

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Any) -> Any:
        """Pool `input` to `output_size`; with `return_indices` also say where the maxima were."""
        return getattr(F, self._operator)(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Maximum pooling of (N, C, L) to the given length.

    >>> import rushlight as torch
    >>> torch.nn.AdaptiveMaxPool1d(2)(torch.tensor([[[1.0, 4.0, 2.0, 3.0]]]))
    tensor([[[4., 3.]]])
    """

    _operator = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Maximum pooling of (N, C, H, W) to the given size.

    >>> import rushlight as torch
    >>> torch.nn.AdaptiveMaxPool2d((2, 1))(torch.arange(16.0).reshape(1, 1, 4, 4)).flatten()
    tensor([ 7., 15.])
    """

    _operator = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Maximum pooling of (N, C, D, H, W) to the given size.

    >>> import rushlight as torch
    >>> torch.nn.AdaptiveMaxPool3d(1)(torch.arange(64.0).reshape(1, 1, 4, 4, 4)).flatten()
    tensor([63.])
    """

    _operator = "adaptive_max_pool3d"


class _FractionalMaxPool(Module):
    """Maximum over windows laid at random steps."""

    __constants__ = ["kernel_size", "return_indices", "output_size", "output_ratio"]

    _ndim = 0
    _empty_windows = True  # whether the constructor takes them, and leaves it to the function to refuse

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:
        name, n = type(self).__name__, self._ndim
        sizes = (
            kernel_size
            if isinstance(kernel_size, (tuple, list))
            else (kernel_size,)
            if isinstance(kernel_size, int)
            else ()
        )
        if not self._empty_windows and any(size <= 0 for size in sizes):
            raise ValueError(f"kernel_size must be greater than 0, but got {kernel_size}")
        super().__init__()
        self.kernel_size = spread(kernel_size, n)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else spread(output_size, n)
        self.output_ratio = None if output_ratio is None else spread(output_ratio, n)
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < self.output_ratio[i] < 1 for i in range(n)):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Any) -> Any:
        """Take the maximum of each window; with `return_indices` also where it was."""
        pool = getattr(F, f"fractional_max_pool{self._ndim}d")
        return pool(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """Maximum over windows of (N, C, H, W) or (C, H, W) at random steps (Graham, Fractional Max-Pooling, 2014).

    The result has `output_size`, or the input's size times `output_ratio`, numbers in (0, 1). ValueError unless one is
    given.

    Example: `nn.FractionalMaxPool2d(3, output_ratio=(0.5, 0.5))(torch.randn(20, 16, 50, 32)).shape  # (20, 16, 25, 16)`
    """

    _ndim = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Maximum over windows of (N, C, T, H, W) or (C, T, H, W) at random steps.

    >>> import rushlight as torch
    >>> torch.nn.FractionalMaxPool3d(2, output_size=(3, 3, 3))(torch.randn(1, 2, 8, 8, 8)).shape
    torch.Size([1, 2, 3, 3, 3])

    ValueError for a window without elements.
    """

    _ndim = 3
    _empty_windows = False
