"""Padding, upsampling and pixel shuffling."""

from __future__ import annotations

from typing import Any

from rushlight.nn import functional as F
from rushlight.nn.modules.argument_shapes import spread
from rushlight.nn.modules.module import Module

__all__ = [
    "ChannelShuffle", "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "PixelShuffle", "PixelUnshuffle", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d",
    "ReplicationPad2d", "ReplicationPad3d", "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d", "ZeroPad1d",
    "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


# ***** padding *****


class _ConstantPad(Module):
    """Padding with one value; an int pads every side, a tuple is (left, right, top, bottom, front, back)."""

    __constants__ = ["padding", "value"]

    _ndim = 0

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__()
        self.value = value
        self.padding = spread(padding, 2 * self._ndim)

    def forward(self, input: Any) -> Any:
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

    def forward(self, input: Any) -> Any:
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

    def forward(self, input: Any) -> Any:
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


# ***** upsampling *****


class Upsample(Module):
    """Resizes the spatial dimensions to `size` or by `scale_factor`; see `nn.functional.interpolate`.

    Example: `nn.Upsample(scale_factor=2)(torch.randn(1, 1, 2, 2)).shape  # (1, 1, 4, 4)`
    """

    __constants__ = ["size", "scale_factor", "mode", "align_corners", "name", "recompute_scale_factor"]

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor: Any = tuple(float(factor) for factor in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Any) -> Any:
        """Resize `input` (N, C, *)."""
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        """The arguments."""
        wanted = f"size={self.size!r}" if self.scale_factor is None else f"scale_factor={self.scale_factor!r}"
        return f"{wanted}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """`Upsample` with mode "nearest"."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """`Upsample` with mode "bilinear" and aligned corners."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class PixelShuffle(Module):
    """(*, C * r², H, W) to (*, C, H * r, W * r), r = `upscale_factor`."""

    __constants__ = ["upscale_factor"]

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Any) -> Any:
        """Move channels into space."""
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(*, C, H * r, W * r) to (*, C * r², H, W), r = `downscale_factor`."""

    __constants__ = ["downscale_factor"]

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Any) -> Any:
        """Move space into channels."""
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Takes the channels of (*, C, H, W) group by group in turn: `groups` groups become interleaved."""

    __constants__ = ["groups"]

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Any) -> Any:
        """Reorder the channels."""
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"groups={self.groups}"
