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


class _ConstantPad(Module):
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


class ConstantPad1d(_ConstantPad):
    """Pads the last dimension with `value`."""

    _ndim = 1


class ConstantPad2d(_ConstantPad):
    """Pads the last two dimensions with `value`."""

    _ndim = 2


class ConstantPad3d(_ConstantPad):
    """Pads the last three dimensions with `value`."""

    _ndim = 3


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad):
    """Pads the last dimension with zeros."""

    _ndim = 1


class ZeroPad2d(_ZeroPad):
    """Pads the last two dimensions with zeros.

    Example: `nn.ZeroPad2d(2)(torch.randn(1, 1, 3, 3)).shape  # (1, 1, 7, 7)`
    """

    _ndim = 2


class ZeroPad3d(_ZeroPad):
    """Pads the last three dimensions with zeros."""

    _ndim = 3


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


class ReflectionPad1d(_ModePad):
    """Pads the last dimension by reflection at its ends, which are not repeated."""

    _ndim = 1
    _mode = "reflect"


class ReflectionPad2d(ReflectionPad1d):
    """Pads the last two dimensions by reflection."""

    _ndim = 2


class ReflectionPad3d(ReflectionPad1d):
    """Pads the last three dimensions by reflection."""

    _ndim = 3


class ReplicationPad1d(_ModePad):
    """Pads the last dimension with copies of its ends."""

    _ndim = 1
    _mode = "replicate"


class ReplicationPad2d(ReplicationPad1d):
    """Pads the last two dimensions with copies of their ends."""

    _ndim = 2


class ReplicationPad3d(ReplicationPad1d):
    """Pads the last three dimensions with copies of their ends."""

    _ndim = 3


class CircularPad1d(_ModePad):
    """Pads the last dimension as if the input were periodic: (N, C, L) or (C, L)."""

    _ndim = 1
    _mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        """Pad the last dimensions of `input`."""
        n = self._ndim
        if input.dim() not in (n + 1, n + 2):
            raise ValueError(f"expected {n + 1}D or {n + 2}D input (got {input.dim()}D input)")
        return super().forward(input)


class CircularPad2d(CircularPad1d):
    """Pads the last two dimensions periodically: (N, C, H, W) or (C, H, W)."""

    _ndim = 2


class CircularPad3d(CircularPad1d):
    """Pads the last three dimensions periodically."""

    _ndim = 3
