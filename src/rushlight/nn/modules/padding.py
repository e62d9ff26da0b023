"""Padding: with one value, by reflection, with copies of the ends, or periodically."""

from __future__ import annotations

from typing import Any

from rushlight import Tensor
from rushlight.nn import functional as F
from rushlight.nn.modules.argument_shapes import spread
from rushlight.nn.modules.module import Module

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "ReflectionPad1d",
    "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d",
    "ZeroPad3d",
]  # fmt: skip


class _ConstantPadNd(Module):
    """Padding with one value; an int pads every side, a tuple is (left, right, top, bottom, front, back)."""

    __constants__ = ["padding", "value"]

    _ndim = 0

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__()
        self.value = value
        self.padding = spread(padding, 2 * self._ndim)

    def forward(self, input: Tensor) -> Tensor:
        """Pad the last dimensions of `input`."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPadNd):
    """Base of paddings with zeros: they take no value, and do not print one."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.padding}"


class ConstantPad1d(_ConstantPadNd):
    """Pads the last dimension with `value`.

    >>> import rushlight as torch
    >>> torch.nn.ConstantPad1d(1, 9.0)(torch.tensor([[[1.0, 2.0, 3.0]]]))
    tensor([[[9., 1., 2., 3., 9.]]])
    """

    _ndim = 1


class ConstantPad2d(_ConstantPadNd):
    """Pads the last two dimensions with `value`.

    >>> import rushlight as torch
    >>> torch.nn.ConstantPad2d((1, 1, 0, 0), 9.0)(torch.arange(3.0).reshape(1, 1, 1, 3)).flatten()
    tensor([9., 0., 1., 2., 9.])
    """

    _ndim = 2


class ConstantPad3d(_ConstantPadNd):
    """Pads the last three dimensions with `value`.

    >>> import rushlight as torch
    >>> torch.nn.ConstantPad3d((1, 1, 0, 0, 0, 0), 9.0)(torch.arange(3.0).reshape(1, 1, 1, 1, 3)).flatten()
    tensor([9., 0., 1., 2., 9.])
    """

    _ndim = 3


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """Pads the last dimension with zeros.

    >>> import rushlight as torch
    >>> torch.nn.ZeroPad1d(1)(torch.tensor([[[1.0, 2.0, 3.0]]]))
    tensor([[[0., 1., 2., 3., 0.]]])
    """


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """Pads the last two dimensions with zeros.

    Example: `nn.ZeroPad2d(2)(torch.randn(1, 1, 3, 3)).shape  # (1, 1, 7, 7)`
    """


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """Pads the last three dimensions with zeros.

    >>> import rushlight as torch
    >>> torch.nn.ZeroPad3d((1, 1, 0, 0, 0, 0))(torch.arange(3.0).reshape(1, 1, 1, 1, 3)).flatten()
    tensor([0., 0., 1., 2., 0.])
    """


class _ModePad(Module):
    """Padding with values taken from the input itself."""

    __constants__ = ["padding"]

    _ndim = 0
    _mode = ""

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = spread(padding, 2 * self._ndim)

    def forward(self, input: Tensor) -> Tensor:
        """Pad the last dimensions of `input`."""
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.padding}"


class _ReflectionPadNd(_ModePad):
    _mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """Pads the last dimension by reflection at the ends, which are not repeated.

    >>> import rushlight as torch
    >>> torch.nn.ReflectionPad1d(1)(torch.tensor([[[1.0, 2.0, 3.0]]]))
    tensor([[[2., 1., 2., 3., 2.]]])
    """

    _ndim = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Pads the last two dimensions by reflection at the ends, which are not repeated.

    >>> import rushlight as torch
    >>> torch.nn.ReflectionPad2d((1, 1, 0, 0))(torch.arange(3.0).reshape(1, 1, 1, 3)).flatten()
    tensor([1., 0., 1., 2., 1.])
    """

    _ndim = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Pads the last three dimensions by reflection at the ends, which are not repeated.

    >>> import rushlight as torch
    >>> torch.nn.ReflectionPad3d((1, 1, 0, 0, 0, 0))(torch.arange(3.0).reshape(1, 1, 1, 1, 3)).flatten()
    tensor([1., 0., 1., 2., 1.])
    """

    _ndim = 3


class _ReplicationPadNd(_ModePad):
    _mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """Pads the last dimension with copies of the ends.

    >>> import rushlight as torch
    >>> torch.nn.ReplicationPad1d(1)(torch.tensor([[[1.0, 2.0, 3.0]]]))
    tensor([[[1., 1., 2., 3., 3.]]])
    """

    _ndim = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Pads the last two dimensions with copies of the ends.

    >>> import rushlight as torch
    >>> torch.nn.ReplicationPad2d((1, 1, 0, 0))(torch.arange(3.0).reshape(1, 1, 1, 3)).flatten()
    tensor([0., 0., 1., 2., 2.])
    """

    _ndim = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Pads the last three dimensions with copies of the ends.

    >>> import rushlight as torch
    >>> torch.nn.ReplicationPad3d((1, 1, 0, 0, 0, 0))(torch.arange(3.0).reshape(1, 1, 1, 1, 3)).flatten()
    tensor([0., 0., 1., 2., 2.])
    """

    _ndim = 3


class _CircularPadNd(_ModePad):
    _mode = "circular"

    def _check_input_dim(self, input: Any) -> None:
        n = self._ndim
        if input.dim() not in (n + 1, n + 2):
            raise ValueError(f"expected {n + 1}D or {n + 2}D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        """Pad the last dimensions of `input`."""
        self._check_input_dim(input)
        return super().forward(input)


class CircularPad1d(_CircularPadNd):
    """Pads the last dimension as if the input were periodic.

    >>> import rushlight as torch
    >>> torch.nn.CircularPad1d(1)(torch.tensor([[[1.0, 2.0, 3.0]]]))
    tensor([[[3., 1., 2., 3., 1.]]])
    """

    _ndim = 1


class CircularPad2d(_CircularPadNd):
    """Pads the last two dimensions as if the input were periodic.

    >>> import rushlight as torch
    >>> torch.nn.CircularPad2d((1, 1, 0, 0))(torch.arange(3.0).reshape(1, 1, 1, 3)).flatten()
    tensor([2., 0., 1., 2., 0.])
    """

    _ndim = 2


class CircularPad3d(_CircularPadNd):
    """Pads the last three dimensions as if the input were periodic.

    >>> import rushlight as torch
    >>> torch.nn.CircularPad3d((1, 1, 0, 0, 0, 0))(torch.arange(3.0).reshape(1, 1, 1, 1, 3)).flatten()
    tensor([2., 0., 1., 2., 0.])
    """

    _ndim = 3
