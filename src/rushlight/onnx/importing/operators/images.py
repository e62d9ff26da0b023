"""Operators on images: resizing, sampling grids, regions, boxes, decoding."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import rushlight as torch
import rushlight.nn.functional as F
from rushlight._interface.base import LazyModule
from rushlight.onnx.importing.operators.shapes import as_list
from rushlight.onnx.importing.table import Numbers, operator

pillow: Any = LazyModule("PIL.Image", extra="onnx")

__all__: list[str] = []

_LARGEST = 1 << 24  # of a resized axis

# ***** Resize *****


class _Axis(NamedTuple):
    """How one axis is resized."""

    size: int
    result: int
    scale: float
    start: float
    end: float

    def coordinate(self, i: int, mode: str) -> float:
        """Where the middle of the i-th result stands in the input."""
        length = self.scale * self.size
        if mode == "asymmetric":
            return i / self.scale
        if mode == "align_corners":
            return 0.0 if length <= 1 else i * (self.size - 1) / (length - 1)
        if mode == "tf_crop_and_resize":
            reach = self.size - 1
            if self.result == 1:
                return 0.5 * (self.start + self.end) * reach
            return self.start * reach + i * (self.end - self.start) * reach / (self.result - 1)
        if mode == "tf_half_pixel_for_nn":
            return (i + 0.5) / self.scale
        place = (i + 0.5) / self.scale - 0.5
        if mode == "half_pixel":
            return place
        if mode == "pytorch_half_pixel":
            return place if self.result > 1 else 0.0
        if mode == "half_pixel_symmetric":
            return self.size / 2 * (1 - self.result / length) + place
        raise ValueError(f"unknown coordinate_transformation_mode {mode!r}")


def _nearest(x: float, mode: str) -> int:
    if mode == "round_prefer_floor":
        return math.ceil(x - 0.5)
    if mode == "round_prefer_ceil":
        return math.floor(x + 0.5)
    if mode not in ("floor", "ceil"):
        raise ValueError(f"unknown nearest_mode {mode!r}")
    return math.floor(x) if mode == "floor" else math.ceil(x)


def _triangle(t: float, a: float) -> float:
    return max(0.0, 1.0 - abs(t))


def _cubic(t: float, a: float) -> float:
    t = abs(t)
    if t <= 1:
        return ((a + 2) * t - (a + 3)) * t * t + 1
    return (((t - 5) * t + 8) * t - 4) * a if t < 2 else 0.0


class _Filter(NamedTuple):
    """How elements between others are computed."""

    function: Callable[[float, float], float]
    reach: int
    coefficient: float
    antialias: bool
    exclude_outside: bool

    def row(self, x: float, axis: _Axis) -> dict[int, float]:
        """Weights of the input's elements for a result at `x`; they sum to 1."""
        squeeze = min(axis.scale, 1.0) if self.antialias else 1.0
        reach = self.reach / squeeze
        weights: dict[int, float] = {}
        for i in range(math.ceil(x - reach), math.floor(x + reach) + 1):
            weight = self.function((i - x) * squeeze, self.coefficient)
            if not 0 <= i < axis.size:
                if self.exclude_outside:
                    continue
                i = min(max(i, 0), axis.size - 1)
            weights[i] = weights.get(i, 0.0) + weight
        total = sum(weights.values())
        return {i: weight / total for i, weight in weights.items()} if total else weights


def _resized_axis(x: Any, dim: int, places: list[float], axis: _Axis, rule: _Filter) -> Any:
    """One axis as a product with a matrix that has a row of weights for every result."""
    table = [[0.0] * axis.size for _ in places]
    for i, place in enumerate(places):
        for j, weight in rule.row(place, axis).items():
            table[i][j] = weight
    matrix = torch.tensor(table, dtype=x.dtype if x.dtype == torch.float64 else torch.float32)
    moved = x.transpose(dim, x.ndim - 1).to(matrix.dtype)
    return torch.matmul(moved, matrix.T).transpose(dim, x.ndim - 1)


def _axes(x: Any, roi: Any, scales: Any, sizes: Any, axes: list[int], policy: str) -> dict[int, _Axis]:
    if sizes:
        sizes = as_list(sizes)
        ratios = [size / x.shape[axis] for size, axis in zip(sizes, axes, strict=True)]
        if policy != "stretch":
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            ratios = [ratio] * len(axes)
            sizes = [int(ratio * x.shape[axis] + 0.5) for axis in axes]
    elif scales:
        ratios = as_list(scales)
        sizes = [math.floor(x.shape[axis] * ratio) for ratio, axis in zip(ratios, axes, strict=True)]
    else:
        raise ValueError("Resize has neither scales nor sizes")
    if any(not 0 <= size <= _LARGEST for size in sizes):
        raise ValueError(f"sizes {sizes} of a resized image")
    count = len(axes)
    bounds = as_list(roi) if roi else [0.0] * count + [1.0] * count
    return {
        axis: _Axis(x.shape[axis], sizes[i], ratios[i], bounds[i], bounds[i + count]) for i, axis in enumerate(axes)
    }


@operator("Resize", since=11)
def resize(
    x: Any,
    roi: Numbers = None,
    scales: Numbers = None,
    sizes: Numbers = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Any:
    """Resize axes one after the other; linear and cubic modes are products with matrices of weights."""
    chosen = list(range(x.ndim)) if axes is None else [axis % x.ndim for axis in axes]
    plan = _axes(x, roi, scales, sizes, chosen, keep_aspect_ratio_policy)
    transform = coordinate_transformation_mode
    quick = _interpolated(x, plan, mode, transform, nearest_mode, bool(antialias))
    if quick is not None:
        return quick
    dtype, outside = x.dtype, []
    for dim, axis in plan.items():
        places = [axis.coordinate(i, transform) for i in range(axis.result)]
        if transform == "tf_crop_and_resize":
            outside.append((dim, [not 0 <= place <= axis.size - 1 for place in places]))
        elif axis.size == axis.result and axis.scale == 1.0:
            continue
        if mode == "nearest":
            indices = [min(max(_nearest(place, nearest_mode), 0), axis.size - 1) for place in places]
            x = torch.index_select(x, dim, torch.tensor(indices, dtype=torch.int64))
            continue
        function, reach = (_triangle, 1) if mode == "linear" else (_cubic, 2)
        rule = _Filter(function, reach, cubic_coeff_a, bool(antialias), bool(exclude_outside))
        x = _resized_axis(x, dim, places, axis, rule)
    if not dtype.is_floating_point and x.is_floating_point():
        limits = torch.iinfo(dtype)
        x = torch.clamp(torch.round(x), limits.min, limits.max)
    x = x.to(dtype)
    for dim, flags in outside:
        mask = torch.tensor(flags).reshape([-1 if i == dim else 1 for i in range(x.ndim)])
        x = torch.where(mask, torch.tensor(extrapolation_value, dtype=dtype), x)
    return x


def _interpolated(x: Any, plan: dict[int, _Axis], mode: str, transform: str, nearest: str, antialias: bool) -> Any:
    """The common cases of images by `interpolate`, which has kernels for them; None for others."""
    fixed = [axis for dim, axis in plan.items() if dim < 2]
    moved = [plan[dim] for dim in range(2, x.ndim) if dim in plan]
    whole = x.ndim == 4 and len(moved) == 2 and x.is_floating_point() and not antialias
    if (
        not whole
        or any(axis.result != axis.size for axis in fixed)
        or any(axis.scale * axis.size != axis.result for axis in moved)
    ):
        return None
    sizes = [axis.result for axis in moved]
    if mode == "nearest" and transform == "asymmetric" and nearest == "floor":
        return F.interpolate(x, size=sizes, mode="nearest")
    if mode == "linear" and transform in ("half_pixel", "align_corners") and min(sizes) > 1:
        # Below an element, half_pixel of ONNX looks at the edge as PyTorch does.
        return F.interpolate(x, size=sizes, mode="bilinear", align_corners=transform == "align_corners")
    return None


@operator("Resize", since=10)
@operator("Upsample", since=9)
def upsample(x: Any, scales: Numbers, *, mode: str = "nearest") -> Any:
    return resize(x, None, scales, coordinate_transformation_mode="asymmetric", mode=mode, nearest_mode="floor")


@operator("Upsample", since=7)
def upsample_by_attribute(x: Any, *, scales: list[float], mode: str = "nearest") -> Any:
    return upsample(x, scales, mode=mode)


@operator("Upsample")
def upsample_by_two_attributes(x: Any, *, height_scale: float, width_scale: float, mode: str = "nearest") -> Any:
    return upsample(x, [1.0, 1.0, height_scale, width_scale], mode={"bilinear": "linear"}.get(mode, mode))


# ***** grids *****


@operator("GridSample", since=16)
def grid_sample(x: Any, grid: Any, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros") -> Any:
    kind = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return F.grid_sample(x, grid.to(x.dtype), mode=kind, padding_mode=padding_mode, align_corners=bool(align_corners))


# ***** regions *****


@operator("RoiAlign", since=16)
def roi_align(
    x: Any,
    rois: Any,
    batches: Any,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Any:
    """Average or maximum of interpolated points of a grid in each cell of each region."""
    half = coordinate_transformation_mode == "half_pixel"
    found = []
    for box, batch in zip(rois.tolist(), batches.tolist(), strict=True):
        left, top, right, bottom = [side * spatial_scale - (0.5 if half else 0.0) for side in box]
        height, width = bottom - top, right - left
        if not half:
            height, width = max(height, 1.0), max(width, 1.0)
        rows, row_weights = _grid(top, height, output_height, sampling_ratio, x.shape[2])
        columns, column_weights = _grid(left, width, output_width, sampling_ratio, x.shape[3])
        image = x[batch]
        corners = [
            image[:, r][:, :, c] * torch.outer(torch.tensor(a), torch.tensor(b)).to(x.dtype)
            for r, a in zip(rows, row_weights)
            for c, b in zip(columns, column_weights)
        ]
        points: Any = sum(corners) if mode == "avg" else torch.stack(corners).amax(0)
        cells = points.reshape(x.shape[1], output_height, -1, output_width, len(columns[0]) // output_width)
        found.append(cells.mean((2, 4)) if mode == "avg" else cells.amax((2, 4)))
    return torch.stack(found) if found else x.new_zeros(0, x.shape[1], output_height, output_width)


@operator("RoiAlign", since=10)
def roi_align_old(x: Any, rois: Any, batches: Any, **attributes: Any) -> Any:
    return roi_align(x, rois, batches, coordinate_transformation_mode="output_half_pixel", **attributes)


def _grid(start: float, extent: float, cells: int, ratio: int, size: int) -> tuple[list[list[int]], list[list[float]]]:
    """The two neighbours of every sampled point along an axis, and their weights; points far outside weigh nothing."""
    samples = ratio if ratio > 0 else math.ceil(extent / cells)
    samples = max(samples, 1)
    if samples * cells > 1 << 20:
        raise ValueError(f"a region of {extent} elements is too large to be sampled")
    low, high, low_weight, high_weight = [], [], [], []
    for cell in range(cells):
        for i in range(samples):
            place = start + extent / cells * (cell + (i + 0.5) / samples)
            inside = -1.0 <= place <= size
            place = min(max(place, 0.0), size - 1.0)
            first = min(int(place), size - 1)
            low.append(first)
            high.append(min(first + 1, size - 1))
            low_weight.append((1.0 - (place - first)) * inside)
            high_weight.append((place - first) * inside)
    return [low, high], [low_weight, high_weight]


@operator("NonMaxSuppression", since=10)
def non_max_suppression(
    boxes: Any,
    scores: Any,
    count: Numbers = None,
    overlap: Numbers = None,
    threshold: Numbers = None,
    *,
    center_point_box: int = 0,
) -> Any:
    """(batch, class, box) of the best boxes that overlap no better one of their class by more than a ratio."""
    count, overlap = as_list(count or 0)[0], as_list(overlap or 0.0)[0]
    found = []
    for batch in range(boxes.shape[0]):
        corners = _corners(boxes[batch], bool(center_point_box))
        ratios = _overlaps(corners)
        for kind in range(scores.shape[1]):
            line = scores[batch, kind]
            order = torch.argsort(line, descending=True, stable=True)
            if threshold is not None:
                order = order[line[order] > as_list(threshold)[0]]
            kept: list[int] = []
            for box in order.tolist():
                if len(kept) >= count:
                    break
                if not kept or float(ratios[box, torch.tensor(kept)].amax()) <= overlap:
                    kept.append(box)
            found += [[batch, kind, box] for box in kept]
    return torch.tensor(found, dtype=torch.int64).reshape(-1, 3)


def _corners(boxes: Any, centred: bool) -> Any:
    if centred:
        middle, half = boxes[:, :2], boxes[:, 2:] / 2
        return torch.cat([middle - half, middle + half], 1)
    return torch.cat([torch.minimum(boxes[:, :2], boxes[:, 2:]), torch.maximum(boxes[:, :2], boxes[:, 2:])], 1)


def _overlaps(boxes: Any) -> Any:
    """Intersection over union of all pairs."""
    low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    common = torch.clamp(high - low, min=0).prod(-1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    union = areas[:, None] + areas[None, :] - common
    return torch.where(
        union > 0, common / torch.where(union > 0, union, torch.ones_like(union)), torch.zeros_like(union)
    )


@operator("MaxRoiPool")
def max_roi_pool(x: Any, rois: Any, *, pooled_shape: list[int], spatial_scale: float = 1.0) -> Any:
    """The largest element of each cell of each region; regions are (batch, x1, y1, x2, y2)."""
    found = []
    for batch, *box in rois.tolist():
        left, top, right, bottom = [math.floor(side * spatial_scale + 0.5) for side in box]
        image = x[int(batch)]
        rows = _cells(top, bottom, pooled_shape[0], x.shape[2])
        columns = _cells(left, right, pooled_shape[1], x.shape[3])
        cells = [
            image[:, a:b, c:d].amax((1, 2)) if b > a and d > c else x.new_zeros(x.shape[1])
            for a, b in rows
            for c, d in columns
        ]
        found.append(torch.stack(cells, 1).reshape(-1, *pooled_shape))
    return torch.stack(found)


def _cells(first: int, last: int, count: int, size: int) -> list[tuple[int, int]]:
    step = max(last - first + 1, 1) / count
    edges = [(math.floor(i * step) + first, math.ceil((i + 1) * step) + first) for i in range(count)]
    return [(min(max(a, 0), size), min(max(b, 0), size)) for a, b in edges]


# ***** decoding *****


@operator("ImageDecoder", since=20)
def image_decoder(encoded: Any, *, pixel_format: str = "RGB") -> Any:
    """An encoded image (bytes) as (height, width, channels); Pillow decodes it."""
    if pixel_format not in ("RGB", "BGR", "Grayscale"):
        raise ValueError(f"unknown pixel_format {pixel_format!r}")
    with pillow.open(io.BytesIO(encoded.numpy().tobytes())) as image:
        wanted = image.convert("L" if pixel_format == "Grayscale" else "RGB")
        pixels = torch.tensor(list(wanted.tobytes()), dtype=torch.uint8)
        pixels = pixels.reshape(wanted.height, wanted.width, -1)
    return torch.flip(pixels, [2]) if pixel_format == "BGR" else pixels
