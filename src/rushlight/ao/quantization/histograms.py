"""Histograms of values: moved to a wider range, and the error of rounding what they count."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight._interface.base import numpy as np

__all__ = ["error_of_range", "spread_over"]


def spread_over(histogram: Any, old: tuple[Any, Any], new: tuple[Any, Any], rate: int) -> Any:
    """Counts of the range `old` as counts of the wider range `new`: each bin is divided into `rate` equal parts, which go
    to the bins that their middles fall into.
    """
    bins = histogram.numel()
    parts = histogram.repeat_interleave(rate) / rate
    step = (old[1] - old[0]) / (bins * rate)
    middles = torch.linspace(old[0], old[1], bins * rate + 1)[:-1] + 0.5 * step
    edges = torch.linspace(new[0], new[1], bins + 1)
    places = (torch.bucketize(middles, edges, right=True) - 1).clamp(0, bins - 1)
    return torch.bincount(places, weights=parts, minlength=bins).to(histogram.dtype)


def error_of_range(counts: Any, width: float, first: int, last: int, levels: int) -> float:
    """The squared error of numbers whose bins are `counts`, when those of bins `first` to `last` become `levels` integers.

    Numbers are spread evenly over their bin, so that the error is a sum of cubes at the ends of pieces.
    """
    single = np.float32
    width = single(width)
    step = single(width * (last - first + 1) / levels)
    if step == 0.0:
        return 0.0
    begin = (np.arange(len(counts), dtype=single) - first) * width
    end = begin + width
    density = counts / width
    low, high = (np.clip(np.floor(x / step), 0, levels - 1) for x in (begin, end))
    half = single(step / 2)

    def cubes(a: Any, b: Any) -> Any:
        return density * (b * b * b - a * a * a) / single(3)

    norm = cubes(begin - (low * step + half), half)
    norm = norm + (high - low - 1) * cubes(-half, half)
    norm = norm + cubes(-half, end - (high * step + half))
    return float(norm.sum())
