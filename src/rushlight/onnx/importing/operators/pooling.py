"""Pooling: average, maximum, p-norm, over windows or over everything; MaxUnpool."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import rushlight as torch
import rushlight.nn.functional as F
from rushlight.onnx.importing.operators.convolution import pads_of
from rushlight.onnx.importing.operators.shapes import padded
from rushlight.onnx.importing.table import Numbers, operator

__all__: list[str] = []

_AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_MAXIMUM = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


class _Windows(NamedTuple):
    """Where the windows of a pooling operator stand."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[tuple[int, int]]
    counts: list[int]

    def fits_ours(self, sizes: Any) -> bool:
        """Whether a plain pooling operator with symmetric pads computes these windows."""
        return all(
            before == after and 2 * before <= k and count == (n + 2 * before - (k - 1) * d - 1) // s + 1
            for n, k, s, d, (before, after), count in zip(sizes, *self[:4], self.counts)
        )


def _windows(x: Any, kernel: list[int], strides: Any, dilations: Any, auto_pad: str, pads: Any, ceil: int) -> _Windows:
    rank = len(kernel)
    if x.ndim != rank + 2:
        raise ValueError(f"a kernel of {rank} dims over an input of {x.ndim}")
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    widths = pads_of(x.shape[2:], kernel, strides, dilations, auto_pad, pads)
    counts = []
    for n, k, s, d, (before, after) in zip(x.shape[2:], kernel, strides, dilations, widths):
        room = n + before + after - (k - 1) * d - 1
        count = (-(-room // s) if ceil else room // s) + 1
        # A window that starts in the padding behind is none.
        counts.append(count - 1 if ceil and (count - 1) * s >= n + before else count)
    if min(counts) < 1:
        raise ValueError(f"a window of {kernel} does not fit into {tuple(x.shape)}")
    return _Windows(list(kernel), list(strides), list(dilations), widths, counts)


def _views(x: Any, w: _Windows, fill: Any) -> list[Any]:
    """For every place in the kernel the elements that all windows have there; `fill` outside of the input."""
    reach = [(c - 1) * s + (k - 1) * d + 1 for c, s, k, d in zip(w.counts, w.strides, w.kernel, w.dilations)]
    widths = {i + 2: (b, reach[i] - b - x.shape[i + 2]) for i, (b, _) in enumerate(w.pads)}
    x = padded(x, widths, "constant", fill)
    found = []
    for place in itertools.product(*map(range, w.kernel)):
        index = [slice(None), slice(None)]
        for at, d, s, c in zip(place, w.dilations, w.strides, w.counts):
            index.append(slice(at * d, at * d + (c - 1) * s + 1, s))
        found.append(x[tuple(index)])
    return found


@operator("AveragePool")
def average_pool(
    x: Any,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    w = _windows(x, kernel_shape, strides, dilations, auto_pad, pads, ceil_mode)
    rank = len(kernel_shape)
    if rank in _AVERAGE and set(w.dilations) == {1} and w.fits_ours(x.shape[2:]):
        padding = [before for before, _ in w.pads]
        return _AVERAGE[rank](x, w.kernel, w.strides, padding, count_include_pad=bool(count_include_pad))
    # How many elements a window averages: those of the input, or of the padding that was asked for too.
    inside = torch.ones(1, 1, *x.shape[2:], dtype=x.dtype)
    if count_include_pad:
        inside = padded(inside, {i + 2: width for i, width in enumerate(w.pads)}, "constant", 1)
        counted = w._replace(pads=[(0, 0)] * rank)
    else:
        counted = w
    return sum(_views(x, w, 0)) / sum(_views(inside, counted, 0))


@operator("LpPool")
def lp_pool(
    x: Any,
    *,
    kernel_shape: list[int],
    p: float = 2,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    w = _windows(x, kernel_shape, strides, dilations, auto_pad, pads, ceil_mode)
    powers: Any = sum(_views(torch.abs(x) ** p, w, 0))
    return powers ** (1.0 / p)


def _lowest(x: Any) -> Any:
    return -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min


@operator("MaxPool")
def max_pool(
    x: Any,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
    outputs: list[bool],
) -> Any:
    w = _windows(x, kernel_shape, strides, dilations, auto_pad, pads, ceil_mode)
    rank = len(kernel_shape)
    if len(outputs) < 2:
        if rank in _MAXIMUM and w.fits_ours(x.shape[2:]) and x.is_floating_point():
            padding = [before for before, _ in w.pads]
            return _MAXIMUM[rank](x, w.kernel, w.strides, padding, w.dilations)
        return torch.stack(_views(x, w, _lowest(x))).amax(0)
    values = torch.stack(_views(x, w, _lowest(x)))
    sizes = x.shape[2:]
    order = range(rank) if storage_order else range(rank - 1, -1, -1)
    step, places = 1, torch.zeros(sizes, dtype=torch.int64)
    for i in order:
        places = places + (torch.arange(sizes[i]) * step).reshape([-1 if j == i else 1 for j in range(rank)])
        step *= sizes[i]
    batches = torch.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], *[1] * rank) * step
    every = torch.stack(_views(places + batches, w, -1))
    # Padding is never chosen, even where the input has the lowest number.
    best = torch.where(every >= 0, (values == values.amax(0)).to(torch.int32), -1).argmax(0, keepdim=True)
    return values.amax(0), torch.gather(every, 0, best)[0]


@operator("MaxUnpool", since=9)
def max_unpool(
    x: Any,
    indices: Any,
    size: Numbers = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    """Put the elements back where their windows had the largest; zeros elsewhere."""
    rank = len(kernel_shape)
    strides, pads = strides or [1] * rank, pads or [0] * (2 * rank)
    inferred = [(x.shape[i + 2] - 1) * strides[i] + kernel_shape[i] - pads[i] - pads[i + rank] for i in range(rank)]
    small = [*x.shape[:2], *inferred]
    flat = torch.zeros(math.prod(small), dtype=x.dtype)
    flat = torch.scatter(flat, 0, indices.reshape(-1), x.reshape(-1)).reshape(small)
    if size is None or list(size) == small:
        return flat
    # Indices count in the inferred shape; a larger one asked for is filled at its end.
    return padded(flat, {i: (0, size[i] - small[i]) for i in range(len(small))}, "constant", 0)


def _spatial(x: Any) -> list[int]:
    return list(range(2, x.ndim))


@operator("GlobalAveragePool")
def global_average_pool(x: Any) -> Any:
    return torch.mean(x, _spatial(x), keepdim=True)


@operator("GlobalMaxPool")
def global_max_pool(x: Any) -> Any:
    return torch.amax(x, _spatial(x), keepdim=True)


@operator("GlobalLpPool")
def global_lp_pool(x: Any, *, p: float = 2) -> Any:
    return torch.sum(torch.abs(x) ** p, _spatial(x), keepdim=True) ** (1.0 / p)
