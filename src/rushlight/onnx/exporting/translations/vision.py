"""Operators of torchvision."""

from __future__ import annotations

import rushlight
from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.values import Value


@translates("torchvision::nms")
def nms(call: Call, boxes: Value, scores: Value, limit: float) -> Value:
    """NonMaxSuppression of one batch and one class; the boxes' corners may be in either order."""
    wide = call.unsqueeze(boxes, [0]), call.unsqueeze(scores, [0, 1])
    most = call.const([2**31 - 1], rushlight.int64)
    found = call.op(
        "NonMaxSuppression", *wide, most, call.const([float(limit)], rushlight.float32), dtype=rushlight.int64
    )
    return call.op("Gather", found, call.const(2, rushlight.int64), axis=1, shape=call.shape)


def _regions(call: Call, rois: Value) -> tuple[Value, Value]:
    """(boxes, the image of each)."""
    images = call.op("Squeeze", call.slice(rois, 1, 0, 1), call.ints([1]))
    return call.slice(rois, 1, 1, 5), call.cast(images, rushlight.int64)


@translates("torchvision::roi_align")
def roi_align(
    call: Call, x: Value, rois: Value, scale: float, height: int, width: int, ratio: int = -1, aligned: bool = False
) -> Value:
    boxes, images = _regions(call, rois)
    return call.out(
        "RoiAlign", x, boxes, images, spatial_scale=float(scale), output_height=height, output_width=width, sampling_ratio=max(ratio, 0),
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )  # fmt: skip


@translates("torchvision::roi_pool")
def roi_pool(call: Call, x: Value, rois: Value, scale: float, height: int, width: int) -> list[Value]:
    made = call.op("MaxRoiPool", x, rois, pooled_shape=[height, width], spatial_scale=float(scale))
    return [made, call.full(call.dims(rois)[:1], 0, rushlight.int32)]
