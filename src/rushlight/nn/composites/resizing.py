"""Resizing of images, signals and volumes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.nn.modules.argument_shapes import spread

__all__ = ["interpolate", "upsample", "upsample_bilinear", "upsample_nearest"]


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize the spatial dimensions of `input` (N, C, *) to `size` or by `scale_factor`.

    Modes: "nearest", "nearest-exact", "linear" (3-D), "bilinear" and "bicubic" (4-D), "trilinear" (5-D) and "area". Raises
    `NotImplementedError` for antialiasing, `ValueError` for arguments that contradict each other.

    Example: `F.interpolate(torch.randn(1, 3, 8, 8), scale_factor=2).shape  # (1, 3, 16, 16)`
    """
    spatial = input.dim() - 2
    smooth = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError(
                "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
            )
    elif mode not in smooth or antialias:
        raise NotImplementedError(f"interpolate with mode={mode!r}, antialias={antialias} is not supported yet")
    if spatial not in (1, 2, 3) or smooth.get(mode, spatial) != spatial:
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.dim()}D) for the modes: nearest | linear | "
            f"bilinear | bicubic | trilinear | area | nearest-exact (got {mode})"
        )
    sizes, scales = _target(input, spatial, size, scale_factor, recompute_scale_factor)
    if mode == "area":
        pool = getattr(rushlight.nn.functional, f"adaptive_avg_pool{spatial}d")
        return pool(input, sizes)
    for i in range(spatial):
        dim, out = i + 2, sizes[i]
        if mode.startswith("nearest"):
            input = _resize_nearest(input, dim, out, scales[i], 0.5 if mode == "nearest-exact" else 0.0)
        else:
            resize = _resize_cubic if mode == "bicubic" else _resize_linear
            input = resize(input, dim, out, scales[i], bool(align_corners))
    return input


def _target(
    input: Any, spatial: int, size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[list[int], list[float | None]]:
    """The sizes to make, and the scales to compute positions with (None: the ratio of the sizes)."""
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is not None:
        if recompute:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        sizes = spread(size, spatial)
        if len(sizes) != spatial:
            raise ValueError(f"Input and output must have the same number of spatial dimensions, but got output size {sizes}")
        return [int(n) for n in sizes], [None] * spatial
    if scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    factors = spread(scale_factor, spatial)
    if len(factors) != spatial:
        raise ValueError(f"Input and scale_factor must have the same number of spatial dimensions, but got {factors}")
    made = [math.floor(float(n) * factor) for n, factor in zip(input.shape[2:], factors, strict=True)]
    return made, [None] * spatial if recompute else [float(factor) for factor in factors]


def _positions(input: Any, out: int) -> Any:
    kind = rushlight.float64 if input.dtype is rushlight.float64 else rushlight.float32
    return rushlight.arange(out, dtype=kind, device=input.device)


def _resize_nearest(input: Any, dim: int, out: int, scale: float | None, shift: float) -> Any:
    size = input.shape[dim]
    step = size / out if scale is None else 1.0 / scale
    places = ((_positions(input, out) + shift) * step).floor().clamp(max=size - 1)
    return input.index_select(dim, places.to(rushlight.int64))


def _resize_linear(input: Any, dim: int, out: int, scale: float | None, align_corners: bool) -> Any:
    size = input.shape[dim]
    if align_corners:
        places = _positions(input, out) * ((size - 1) / (out - 1) if out > 1 else 0.0)
    else:
        step = size / out if scale is None else 1.0 / scale
        places = ((_positions(input, out) + 0.5) * step - 0.5).clamp(min=0.0)
    low = places.to(rushlight.int64).clamp(max=size - 1)
    high = (low + 1).clamp(max=size - 1)
    shape = [1] * input.dim()
    shape[dim] = out
    share = (places - low.to(places.dtype)).to(input.dtype).reshape(shape)
    return input.index_select(dim, low) * (1 - share) + input.index_select(dim, high) * share


def _resize_cubic(input: Any, dim: int, out: int, scale: float | None, align_corners: bool) -> Any:
    """Cubic convolution over the four nearest elements, with PyTorch's constant -0.75."""
    size = input.shape[dim]
    if align_corners:
        places = _positions(input, out) * ((size - 1) / (out - 1) if out > 1 else 0.0)
    else:
        places = (_positions(input, out) + 0.5) * (size / out if scale is None else 1.0 / scale) - 0.5
    first = places.floor()
    share = places - first
    shape = [1] * input.dim()
    shape[dim] = out
    result = None
    for step, weight in zip((-1, 0, 1, 2), _cubic_weights(share), strict=True):
        chosen = (first + step).clamp(min=0, max=size - 1).to(rushlight.int64)
        part = input.index_select(dim, chosen) * weight.to(input.dtype).reshape(shape)
        result = part if result is None else result + part
    return result


def _cubic_weights(t: Any, a: float = -0.75) -> tuple[Any, Any, Any, Any]:
    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return far(t + 1), near(t), near(1 - t), far(2 - t)


def upsample_nearest(input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None) -> Tensor:
    """The old name of `interpolate` with mode "nearest"."""
    _warn_renamed("upsample_nearest")
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None) -> Tensor:
    """The old name of `interpolate` with mode "bilinear" and aligned corners."""
    _warn_renamed("upsample_bilinear")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def _warn_renamed(name: str) -> None:
    warnings.warn(f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=3)


def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The old name of `interpolate`."""
    _warn_renamed("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)
