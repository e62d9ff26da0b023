"""Convolutions: plain, transposed, deformed, of integers; Col2Im."""

from __future__ import annotations

import itertools
import math
from typing import Any

import rushlight as torch
import rushlight.nn.functional as F
from rushlight.onnx.importing.operators.shapes import padded
from rushlight.onnx.importing.table import Numbers, operator

__all__ = ["conv", "pads_of"]

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def pads_of(sizes: Any, kernel: Any, strides: Any, dilations: Any, auto_pad: str, pads: Any) -> list[tuple[int, int]]:
    """(before, after) of every spatial dim, from `pads` or by the rule that `auto_pad` names."""
    rank = len(kernel)
    if auto_pad == "VALID":
        return [(0, 0)] * rank
    if auto_pad in ("NOTSET", ""):
        pads = pads or [0] * (2 * rank)
        return [(pads[i], pads[i + rank]) for i in range(rank)]
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise ValueError(f"unknown auto_pad {auto_pad!r}")
    found = []
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size)
        small, large = total // 2, total - total // 2
        found.append((small, large) if auto_pad == "SAME_UPPER" else (large, small))
    return found


@operator("Conv")
def conv(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    rank = x.ndim - 2
    kernel = list(weight.shape[2:])
    if rank not in _CONV:
        raise NotImplementedError(f"convolutions over {rank} spatial dims")
    if kernel_shape is not None and kernel_shape != kernel:
        raise ValueError(f"kernel_shape {kernel_shape} differs from the weight's {kernel}")
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    widths = pads_of(x.shape[2:], kernel, strides, dilations, auto_pad, pads)
    if any(before != after or before < 0 for before, after in widths):
        x = padded(x, {i + 2: width for i, width in enumerate(widths)}, "constant", 0)
        widths = [(0, 0)] * rank
    padding = [before for before, _ in widths]
    return _CONV[rank](x, weight, bias, strides, padding, dilations, group)


@operator("ConvInteger", since=10)
def conv_integer(x: Any, weight: Any, x_zero: Any = None, w_zero: Any = None, **attributes: Any) -> Any:
    """A convolution of integers less their zero points, as int32: the padding has the zero point's value."""
    x, weight = x.to(torch.int32), weight.to(torch.int32)
    if x_zero is not None:
        x = x - x_zero.to(torch.int32)
    if w_zero is not None:
        w_zero = w_zero.to(torch.int32)
        weight = weight - (w_zero.reshape(-1, *[1] * (weight.ndim - 1)) if w_zero.ndim else w_zero)
    return conv(x, weight, **attributes)


@operator("ConvTranspose")
def conv_transpose(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    """The whole result is made, and the pads are cut off (or, where they are negative, zeros added)."""
    rank = x.ndim - 2
    if rank not in _TRANSPOSED:
        raise NotImplementedError(f"convolutions over {rank} spatial dims")
    kernel = list(weight.shape[2:])
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    extra = output_padding or [0] * rank
    full = [(x.shape[i + 2] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 for i in range(rank)]
    same = auto_pad in ("SAME_UPPER", "SAME_LOWER")
    wanted = output_shape[-rank:] if output_shape else [n * s for n, s in zip(x.shape[2:], strides)] if same else None
    if wanted is None:
        cuts = pads_of(x.shape[2:], kernel, strides, dilations, auto_pad, pads)
    else:
        totals = [size + extra[i] - wanted[i] for i, size in enumerate(full)]
        # What is asked for beyond the result is added behind it.
        halves = [(total // 2, total - total // 2) if total > 0 else (0, total) for total in totals]
        cuts = [(b, a) if total > 0 and auto_pad != "SAME_UPPER" else (a, b) for total, (a, b) in zip(totals, halves)]
    symmetric = all(before == after >= 0 for before, after in cuts)
    if symmetric and all(one < max(s, d) for one, s, d in zip(extra, strides, dilations)):
        padding = [before for before, _ in cuts]
        return _TRANSPOSED[rank](x, weight, bias, strides, padding, extra, group, dilations)
    y = _TRANSPOSED[rank](x, weight, None, strides, [0] * rank, [0] * rank, group, dilations)
    widths = {i + 2: (-before, extra[i] - after) for i, (before, after) in enumerate(cuts)}
    y = padded(y, widths, "constant", 0)
    return y if bias is None else y + bias.reshape(-1, *[1] * rank)


@operator("Col2Im", since=18)
def col2im(
    x: Any,
    image: Numbers,
    block: Numbers,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    """Add the columns of a matrix to the places of an image from which they were taken."""
    rank = len(image)
    strides, dilations, pads = strides or [1] * rank, dilations or [1] * rank, pads or [0] * (2 * rank)
    whole = [image[i] + pads[i] + pads[i + rank] for i in range(rank)]
    counts = [(whole[i] - (block[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(rank)]
    n, channels = x.shape[0], x.shape[1] // math.prod(block)
    columns = x.reshape(n, channels, *block, *counts)
    result = torch.zeros(n, channels, *whole, dtype=x.dtype)
    for offset in itertools.product(*map(range, block)):
        index = [slice(None), slice(None)]
        for i, at in enumerate(offset):
            start = at * dilations[i]
            index.append(slice(start, start + (counts[i] - 1) * strides[i] + 1, strides[i]))
        result[tuple(index)] += columns[(slice(None), slice(None), *offset)]
    inner = tuple(slice(pads[i], pads[i] + image[i]) for i in range(rank))
    return result[(slice(None), slice(None), *inner)].contiguous()


@operator("DeformConv", since=19)
def deform_conv(
    x: Any,
    weight: Any,
    offset: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    """A convolution whose points are moved by offsets; elements between are interpolated, outside are zeros."""
    if x.ndim != 4:
        raise NotImplementedError(f"deformed convolutions over {x.ndim - 2} spatial dims")
    n, channels, height, width = x.shape
    kh, kw = kernel_shape or weight.shape[2:]
    (sh, sw), (dh, dw), pads = strides or (1, 1), dilations or (1, 1), pads or [0] * 4
    oh, ow = offset.shape[-2:]
    offset = offset.reshape(n, offset_group, kh * kw, 2, oh, ow)
    rows = (torch.arange(oh) * sh - pads[0]).reshape(1, oh, 1) + (torch.arange(kh * kw) // kw * dh).reshape(-1, 1, 1)
    columns = (torch.arange(ow) * sw - pads[1]).reshape(1, 1, ow) + (torch.arange(kh * kw) % kw * dw).reshape(-1, 1, 1)
    y, z = offset[:, :, :, 0] + rows, offset[:, :, :, 1] + columns
    # Pixel positions as grid_sample counts them with aligned corners: -1 is the first centre, 1 the last.
    grid = torch.stack([z * (2.0 / max(width - 1, 1)) - 1, y * (2.0 / max(height - 1, 1)) - 1], -1)
    grid = grid.reshape(n * offset_group, kh * kw * oh, ow, 2).to(x.dtype)
    parts = x.reshape(n * offset_group, channels // offset_group, height, width)
    if height == 1 or width == 1:
        parts, grid = _wider(parts, y, z, grid)
    taken = F.grid_sample(parts, grid, mode="bilinear", padding_mode="zeros", align_corners=True)
    taken = taken.reshape(n, offset_group, channels // offset_group, kh * kw, oh, ow)
    if mask is not None:
        taken = taken * mask.reshape(n, offset_group, 1, kh * kw, oh, ow)
    taken = taken.reshape(n, group, channels // group * kh * kw, oh * ow)
    filters = weight.reshape(group, weight.shape[0] // group, -1)
    result = torch.matmul(filters, taken).reshape(n, weight.shape[0], oh, ow)
    return result if bias is None else result + bias.reshape(-1, 1, 1)


def _wider(parts: Any, y: Any, z: Any, grid: Any) -> tuple[Any, Any]:
    """Images of one row or column have no scale: add a row and a column of zeros."""
    parts = F.pad(parts, (0, 1, 0, 1))
    height, width = parts.shape[-2:]
    wide = torch.stack([z * (2.0 / (width - 1)) - 1, y * (2.0 / (height - 1)) - 1], -1)
    return parts, wide.reshape(grid.shape).to(parts.dtype)
