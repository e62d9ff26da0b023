"""Windows as columns, and back: `Unfold` and `Fold`."""

from __future__ import annotations

from typing import Any

from rushlight import Tensor
from rushlight.nn import functional as F
from rushlight.nn.modules.module import Module

__all__ = ["Fold", "Unfold"]


class Unfold(Module):
    """(N, C, H, W) to (N, C * kernel elements, windows): every window becomes a column.

    Example: `nn.Unfold(kernel_size=(2, 3))(torch.randn(2, 5, 3, 4)).shape  # (2, 30, 4)`
    """

    __constants__ = ["kernel_size", "dilation", "padding", "stride"]

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """Take the windows of `input`."""
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Fold(Module):
    """(N, C * kernel elements, windows) to (N, C, *output_size): overlapping windows are summed.

    >>> import rushlight as torch
    >>> torch.nn.Fold(output_size=(2, 2), kernel_size=(2, 1))(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
    tensor([[[[1., 2.],
              [3., 4.]]]])
    """

    __constants__ = ["output_size", "kernel_size", "dilation", "padding", "stride"]

    def __init__(
        self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """Sum the windows."""
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """The arguments."""
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )
