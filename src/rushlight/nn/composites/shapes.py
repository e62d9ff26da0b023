"""Functions that move elements: padding with the input's own values, resizing, pixel shuffling, one-hot vectors."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight.nn.modules.argument_shapes import spread

__all__ = ["interpolate", "one_hot", "pad", "pixel_shuffle", "pixel_unshuffle", "upsample"]


# ***** padding *****


def pad(input: Any, pad: Any, mode: str = "constant", value: float | None = None) -> Any:
    """Pad the last dimensions of `input`: `pad` is (left, right) of the last one, then of the one before, and so on.

    `mode` is "constant" (with `value`, default 0; negative numbers cut), "reflect", "replicate" or "circular". Raises
    `RuntimeError` for paddings that the mode cannot give.

    Example: `F.pad(torch.ones(2, 3), (1, 1)).shape  # (2, 5)`
    """
    amounts = [int(n) for n in pad]
    if len(amounts) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(amounts) // 2 > input.dim():
        raise RuntimeError(f"Padding length should be less than or equal to two times the input dimension but got {len(amounts)}")
    if mode == "constant":
        return _constant_pad(input, amounts, 0.0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if input.dim() - len(amounts) // 2 not in (1, 2):
        raise NotImplementedError("Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now")
    for i in range(0, len(amounts), 2):
        dim = input.dim() - 1 - i // 2
        if amounts[i] or amounts[i + 1]:
            input = _pad_dim(input, dim, amounts[i], amounts[i + 1], mode)
    return input


def _constant_pad(input: Any, amounts: list[int], value: float) -> Any:
    for i in range(0, len(amounts), 2):
        dim = input.dim() - 1 - i // 2
        before, after = amounts[i], amounts[i + 1]
        size = input.shape[dim]
        if size + before + after < 0:
            raise RuntimeError(
                f"The input size {size}, plus negative padding {before} and {after} resulted in a negative output size, "
                f"which is invalid. Check dimension {dim} of your input."
            )
        cut_before, cut_after = max(-before, 0), max(-after, 0)
        if cut_before or cut_after:
            input = input.narrow(dim, min(cut_before, size), max(size - cut_before - cut_after, 0))
        shape = list(input.shape)
        parts = []
        for amount in (before, after):
            shape[dim] = max(amount, 0)
            parts.append(input.new_full(shape, value) if amount > 0 else None)
        if parts[0] is not None or parts[1] is not None:
            input = rushlight.cat([part for part in (parts[0], input, parts[1]) if part is not None], dim)
    return input.clone() if not any(n > 0 for n in amounts) else input


def _pad_dim(input: Any, dim: int, before: int, after: int, mode: str) -> Any:
    size = input.shape[dim]
    if mode == "reflect" and (before >= size or after >= size):
        raise RuntimeError(
            "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding "
            f"({before}, {after}) at dimension {dim} of input {list(input.shape)}"
        )
    if mode == "circular" and (before > size or after > size):
        raise RuntimeError("Padding value causes wrapping around more than once.")
    if size == 0 or size + before + after < 0:
        raise RuntimeError(f"cannot pad dimension {dim} of input {list(input.shape)} by ({before}, {after})")
    places = range(-before, size + after)
    if mode == "replicate":
        chosen = [min(max(i, 0), size - 1) for i in places]
    elif mode == "circular":
        chosen = [i % size for i in places]
    else:
        chosen = [size - 1 - abs(size - 1 - abs(i)) for i in places]
    return input.index_select(dim, rushlight.tensor(chosen, dtype=rushlight.int64, device=input.device))


# ***** resizing *****


def interpolate(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """Resize the spatial dimensions of `input` (N, C, *) to `size` or by `scale_factor`.

    Modes: "nearest", "nearest-exact", "linear" (3-D), "bilinear" (4-D), "trilinear" (5-D) and "area". Raises
    `NotImplementedError` for "bicubic" and for antialiasing, `ValueError` for arguments that contradict each other.

    Example: `F.interpolate(torch.randn(1, 3, 8, 8), scale_factor=2).shape  # (1, 3, 16, 16)`
    """
    spatial = input.dim() - 2
    linear = {"linear": 1, "bilinear": 2, "trilinear": 3}
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError(
                "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
            )
    elif mode not in linear or antialias:
        raise NotImplementedError(f"interpolate with mode={mode!r}, antialias={antialias} is not supported yet")
    if spatial not in (1, 2, 3) or linear.get(mode, spatial) != spatial:
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
            input = _resize_linear(input, dim, out, scales[i], bool(align_corners))
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


def upsample(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Any:
    """The old name of `interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def pixel_shuffle(input: Any, upscale_factor: int) -> Any:
    """(*, C * r², H, W) to (*, C, H * r, W * r), r = `upscale_factor`."""
    r = upscale_factor
    if input.dim() < 3:
        raise RuntimeError(f"pixel_shuffle expects input to have at least 3 dimensions, but got input with {input.dim()} dimension(s)")
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    *batch, channels, height, width = input.shape
    if channels % (r * r):
        raise RuntimeError(
            f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
            f"but input.size(-3)={channels} is not divisible by {r * r}"
        )
    n = len(batch)
    parts = input.reshape(*batch, channels // (r * r), r, r, height, width)
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return parts.permute(order).reshape(*batch, channels // (r * r), height * r, width * r)


def pixel_unshuffle(input: Any, downscale_factor: int) -> Any:
    """(*, C, H * r, W * r) to (*, C * r², H, W), r = `downscale_factor`."""
    r = downscale_factor
    if input.dim() < 3:
        raise RuntimeError(f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with {input.dim()} dimension(s)")
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    *batch, channels, height, width = input.shape
    if height % r or width % r:
        raise RuntimeError(f"pixel_unshuffle expects height and width to be divisible by downscale_factor, but got {height} and {width}")
    n = len(batch)
    parts = input.reshape(*batch, channels, height // r, r, width // r, r)
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return parts.permute(order).reshape(*batch, channels * r * r, height // r, width // r)


# ***** one-hot *****


def one_hot(tensor: Any, num_classes: int = -1) -> Any:
    """Integers (*) to vectors (*, num_classes) of zeros with a one at that place; -1 takes the largest value plus one.

    Raises `RuntimeError` for negative values, for values that are too large, and for other dtypes than int64.

    Example: `F.one_hot(torch.tensor([0, 2]), 3)`
    """
    if tensor.dtype is not rushlight.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if tensor.numel() == 0:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return rushlight.empty((*tensor.shape, num_classes), dtype=rushlight.int64, device=tensor.device)
    if int(tensor.min()) < 0:
        raise RuntimeError("Class values must be non-negative.")
    largest = int(tensor.max())
    if num_classes == -1:
        num_classes = largest + 1
    elif num_classes < 1:
        raise RuntimeError("num_classes should be positive")
    elif largest >= num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    places = rushlight.arange(num_classes, device=tensor.device)
    return (tensor.unsqueeze(-1) == places).to(rushlight.int64)
