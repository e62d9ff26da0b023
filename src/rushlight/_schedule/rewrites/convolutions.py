"""Convolutions as windows and products of matrices, for targets and cases without a routine."""

from __future__ import annotations

from typing import Any

from rushlight._prims import build
from rushlight._prims.record import PRIMITIVES
from rushlight._types.layout import numel

__all__ = ["image_conv", "spread_conv"]


def spread_conv(x: Any, w: Any, pad: Any, shape: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """A convolution of images that zeros spread: each element gives a window of results, and overlapping windows are
    added.
    """
    n, kernel, positions = len(stride), w.shape[2:], x.shape[2:]
    batch, outs, depth = x.shape[0], w.shape[0], w.shape[1]
    flipped = PRIMITIVES["flip"](w, dims=tuple(range(2, n + 2)))
    taps = build.reshape(flipped, (groups, outs // groups, depth, numel(kernel)))
    images = build.reshape(x, (batch, groups, depth, numel(positions)))
    steps = tuple(g + 1 for g in pad["interior"][2:])
    full = [(i - 1) * s + (k - 1) * d + 1 for i, s, k, d in zip(positions, steps, kernel, dilation, strict=True)]
    if numel(positions) == 1:  # one product of all images, without overlaps
        rows = build.reshape(build.transpose(images, (1, 0, 3, 2)), (groups, batch, depth))
        taps = build.reshape(build.transpose(taps, (0, 2, 1, 3)), (groups, depth, outs // groups * numel(kernel)))
        product = build.transpose(build.dot(rows, taps), (1, 0, 2))
        product = build.reshape(product, (batch, outs, *kernel))
        whole = build.pad(product, (0,) * (n + 2), (0,) * (n + 2), (0, 0, *(d - 1 for d in dilation)))
    else:
        taps = build.reshape(build.transpose(taps, (0, 1, 3, 2)), (1, groups, outs // groups * numel(kernel), depth))
        product = build.dot(build.broadcast_to(taps, (batch, *taps.shape[1:])), images)
        product = build.reshape(product, (batch, outs, *kernel, *positions))
        product = build.transpose(product, (0, 1, *range(n + 2, 2 * n + 2), *range(2, n + 2)))
        whole = PRIMITIVES["unwindow"](
            product,
            shape=(batch, outs, *full),
            dims=tuple(range(2, n + 2)),
            size=tuple(kernel),
            stride=steps,
            dilation=tuple(dilation),
        )
    cut = [(k - 1) * d - lo for k, d, lo in zip(kernel, dilation, pad["lo"][2:], strict=True)]
    rest = [c + want - have for c, want, have in zip(cut, shape[2:], full, strict=True)]
    if min(cut) >= 0 >= max(rest):  # a slice can be taken before overlaps are added
        starts, stops = (0, 0, *cut), (batch, outs, *(c + want for c, want in zip(cut, shape[2:], strict=True)))
        return PRIMITIVES["slice"](whole, starts=starts, stops=stops, steps=(1,) * (n + 2))
    return build.pad(whole, [0, 0, *(-c for c in cut)], [0, 0, *rest], [0] * (n + 2))


def image_conv(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """A convolution as one product for each image, in the layout of the result.  A 1x1 kernel copies nothing."""
    n, kernel = len(stride), tuple(w.shape[2:])
    batch, channels, outs, depth = x.shape[0], x.shape[1], w.shape[0], w.shape[1]
    if any(padding):
        x = build.pad(x, (0, 0, *padding), (0, 0, *padding), (0,) * (n + 2))
    if numel(kernel) == 1 and all(s == 1 for s in stride):
        positions, columns = tuple(x.shape[2:]), x
    else:
        columns = PRIMITIVES["window"](
            x, dims=tuple(range(2, n + 2)), size=kernel, stride=tuple(stride), dilation=tuple(dilation)
        )
        positions = tuple(columns.shape[2 : n + 2])
        columns = build.transpose(columns, (0, 1, *range(n + 2, 2 * n + 2), *range(2, n + 2)))
    columns = build.reshape(columns, (batch, groups, channels // groups * numel(kernel), numel(positions)))
    taps = build.reshape(w, (1, groups, outs // groups, depth * numel(kernel)))
    product = build.dot(build.broadcast_to(taps, (batch, *taps.shape[1:])), columns)
    return build.reshape(product, (batch, outs, *positions))
