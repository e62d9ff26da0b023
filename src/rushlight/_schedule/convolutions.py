"""Convolutions as windows and products of matrices, for targets and cases without a routine."""

from __future__ import annotations

from typing import Any

from rushlight._prims import build
from rushlight._prims.record import PRIMITIVES
from rushlight._types.layout import numel

__all__ = ["image_conv", "spread_conv"]


def spread_conv(x: Any, w: Any, pad: Any, shape: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Multiply before spreading: every element of an image gives a window of results, and overlaps are added up."""
    n, kernel, places = len(stride), w.shape[2:], x.shape[2:]
    batch, outs, depth = x.shape[0], w.shape[0], w.shape[1]
    flipped = PRIMITIVES["flip"](w, dims=tuple(range(2, n + 2)))
    taps = build.reshape(flipped, (groups, outs // groups, depth, numel(kernel)))
    images = build.reshape(x, (batch, groups, depth, numel(places)))
    steps = tuple(g + 1 for g in pad["interior"][2:])
    full = [(i - 1) * s + (k - 1) * d + 1 for i, s, k, d in zip(places, steps, kernel, dilation, strict=True)]
    if numel(places) == 1:  # one product of all images, and nothing overlaps
        rows = build.reshape(build.transpose(images, (1, 0, 3, 2)), (groups, batch, depth))
        taps = build.reshape(build.transpose(taps, (0, 2, 1, 3)), (groups, depth, outs // groups * numel(kernel)))
        made = build.transpose(build.dot(rows, taps), (1, 0, 2))
        made = build.reshape(made, (batch, outs, *kernel))
        whole = build.pad(made, (0,) * (n + 2), (0,) * (n + 2), (0, 0, *(d - 1 for d in dilation)))
    else:
        taps = build.reshape(build.transpose(taps, (0, 1, 3, 2)), (1, groups, outs // groups * numel(kernel), depth))
        made = build.dot(build.broadcast_to(taps, (batch, *taps.shape[1:])), images)
        made = build.reshape(made, (batch, outs, *kernel, *places))
        made = build.transpose(made, (0, 1, *range(n + 2, 2 * n + 2), *range(2, n + 2)))
        whole = PRIMITIVES["unwindow"](
            made,
            shape=(batch, outs, *full),
            dims=tuple(range(2, n + 2)),
            size=tuple(kernel),
            stride=steps,
            dilation=tuple(dilation),
        )
    cut = [(k - 1) * d - lo for k, d, lo in zip(kernel, dilation, pad["lo"][2:], strict=True)]
    rest = [c + want - have for c, want, have in zip(cut, shape[2:], full, strict=True)]
    if min(cut) >= 0 >= max(rest):  # a plain cut can be taken before the overlaps are added up
        starts, stops = (0, 0, *cut), (batch, outs, *(c + want for c, want in zip(cut, shape[2:], strict=True)))
        return PRIMITIVES["slice"](whole, starts=starts, stops=stops, steps=(1,) * (n + 2))
    return build.pad(whole, [0, 0, *(-c for c in cut)], [0, 0, *rest], [0] * (n + 2))


def image_conv(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """One product per image, whose result lies as the convolution's does; a 1x1 kernel copies nothing."""
    n, kernel = len(stride), tuple(w.shape[2:])
    batch, channels, outs, depth = x.shape[0], x.shape[1], w.shape[0], w.shape[1]
    if any(padding):
        x = build.pad(x, (0, 0, *padding), (0, 0, *padding), (0,) * (n + 2))
    if numel(kernel) == 1 and all(s == 1 for s in stride):
        places, columns = tuple(x.shape[2:]), x
    else:
        columns = PRIMITIVES["window"](
            x, dims=tuple(range(2, n + 2)), size=kernel, stride=tuple(stride), dilation=tuple(dilation)
        )
        places = tuple(columns.shape[2 : n + 2])
        columns = build.transpose(columns, (0, 1, *range(n + 2, 2 * n + 2), *range(2, n + 2)))
    columns = build.reshape(columns, (batch, groups, channels // groups * numel(kernel), numel(places)))
    taps = build.reshape(w, (1, groups, outs // groups, depth * numel(kernel)))
    made = build.dot(build.broadcast_to(taps, (batch, *taps.shape[1:])), columns)
    return build.reshape(made, (batch, outs, *places))
