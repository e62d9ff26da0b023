"""Resizing of images, signals and volumes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.operators import function_of
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

    Modes: "nearest", "nearest-exact", "linear" (3-D), "bilinear", "bicubic" and "lanczos" (4-D), "trilinear" (5-D) and
    "area". With `antialias` (4-D, "bilinear", "bicubic" and "lanczos") the filter grows with the reduction, so that
    nothing is skipped. Floats and uint8.  Raises `ValueError` for arguments that contradict each other,
    `NotImplementedError` for a mode that the number of dims has not.

    Example: `F.interpolate(torch.randn(1, 3, 8, 8), scale_factor=2).shape  # (1, 3, 16, 16)`
    """
    spatial = input.dim() - 2
    _check_mode(input, spatial, mode, align_corners, antialias)
    sizes, scales = _target(input, spatial, size, scale_factor, recompute_scale_factor)
    if mode == "area":
        pool = getattr(rushlight.nn.functional, f"adaptive_avg_pool{spatial}d")
        return pool(input, sizes)
    if any(n < 1 for n in (*sizes, *input.shape[2:])):
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input {tuple(input.shape[2:])} output {tuple(sizes)} in interpolate()"
        )
    align = bool(align_corners)
    steps = [_step(n, out, scale, align) for n, out, scale in zip(input.shape[2:], sizes, scales, strict=True)]
    width = _WIDTHS.get(mode, 0) if antialias or input.dtype is rushlight.uint8 else 0
    grown = [max(step, 1.0) if antialias else 1.0 for step in steps]
    taps = [math.ceil(width / 2 * g) * 2 + 1 if antialias else width for g in grown] if width else [0] * spatial
    if mode in ("nearest", "nearest-exact"):
        taps = [_times(n, out, step) for n, out, step in zip(input.shape[2:], sizes, steps, strict=True)]
    steps += [1.0] * (3 - spatial)
    plain = "linear" if mode in ("bilinear", "trilinear") else mode
    return _upsample(input, tuple(sizes), tuple(taps), *steps, plain, align, antialias)


_upsample = function_of("upsample")
_SPATIAL = {"linear": 1, "bilinear": 2, "bicubic": 2, "lanczos": 2, "trilinear": 3}
_WIDTHS = {"bilinear": 2, "bicubic": 4, "lanczos": 6}  # elements under the filters that antialiasing widens


def _check_mode(input: Any, spatial: int, mode: str, align_corners: bool | None, antialias: bool) -> None:
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError(
                "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
            )
    if antialias and not (mode in _WIDTHS and input.dim() == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input"
        )
    if mode == "lanczos" and not antialias:
        raise ValueError("lanczos interpolation needs antialias=True")
    if mode == "lanczos" and align_corners:
        raise ValueError("Lanczos mode does not support align_corners=True")
    needed = _SPATIAL.get(mode)
    if needed is not None and spatial in (1, 2, 3) and needed != spatial:
        raise NotImplementedError(f"Got {spatial + 2}D input, but {mode} mode needs {needed + 2}D input")
    if spatial not in (1, 2, 3) or (needed is None and mode not in ("nearest", "area", "nearest-exact")):
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.dim()}D) for the modes: nearest | linear | "
            f"bilinear | bicubic | trilinear | lanczos | area | nearest-exact (got {mode})"
        )


def _step(size: int, out: int, scale: float | None, align: bool) -> float:
    """How far apart in the input the elements of the result lie."""
    if align:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    return size / out if scale is None else 1.0 / scale


def _times(size: int, out: int, step: float) -> int:
    """How often each element is the nearest, where that is a power of two for all of them (so that places are computed
    exactly); else 0.
    """
    times = out // size
    return times if times * size == out and times & (times - 1) == 0 and times * step == 1.0 else 0


def scaled(size: int, factor: float) -> int:
    """A size times a factor, rounded down; a formula of a symbolic size."""
    if isinstance(size, rushlight.SymInt):
        return size * int(factor) if factor == int(factor) else rushlight.sym_int(size * factor)
    return math.floor(float(size) * factor)


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
            raise ValueError(
                f"Input and output must have the same number of spatial dimensions, but got output size {sizes}"
            )
        return [rushlight.sym_int(n) for n in sizes], [None] * spatial
    if scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    factors = spread(scale_factor, spatial)
    if len(factors) != spatial:
        raise ValueError(f"Input and scale_factor must have the same number of spatial dimensions, but got {factors}")
    made = [scaled(n, factor) for n, factor in zip(input.shape[2:], factors, strict=True)]
    return made, [None] * spatial if recompute else [float(factor) for factor in factors]


def upsample_nearest(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """The old name of `interpolate` with mode "nearest"."""
    _warn_renamed("upsample_nearest")
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
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
