"""Convolutions and their transposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._interface.base import LazyModule
from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.values import Value

np: Any = LazyModule("numpy")

Sizes = Sequence[int] | int


def spread(sizes: Sizes, count: int) -> list[int]:
    """A size for each dim of an image."""
    sizes = [sizes] if isinstance(sizes, int) else list(sizes)
    return sizes * count if len(sizes) == 1 else sizes


def _batched(call: Call, x: Value, images: int) -> tuple[Value, bool]:
    """With a batch dim; and whether it has one itself."""
    alone = x.ndim == images + 1
    return (call.unsqueeze(x, [0]) if alone else x), alone


def _finished(call: Call, made: Value, alone: bool) -> Value:
    if not alone:
        made.shape = call.shape
        return made
    made.shape = (1, *(call.shape or ()))
    return call.squeeze(made, [0])


def convolve(
    call: Call, x: Value, weight: Value, bias: Value | None, stride: Sizes, padding: Any, dilation: Sizes, groups: int
) -> Value:
    """Conv over as many dims as the weight has images' dims."""
    images = weight.ndim - 2
    x, alone = _batched(call, x, images)
    attrs: dict[str, Any] = {"strides": spread(stride, images), "dilations": spread(dilation, images), "group": groups}
    if isinstance(padding, str):
        attrs["pads"] = _same(weight, attrs["dilations"]) if padding == "same" else [0] * (2 * images)
    else:
        attrs["pads"] = spread(padding, images) * 2
    attrs["kernel_shape"] = list((weight.shape or ())[2:])
    return _finished(call, call.op("Conv", x, weight, bias, **attrs), alone)


def _same(weight: Value, dilation: Sequence[int]) -> list[int]:
    """Padding that keeps the size: the odd element comes last."""
    totals = [d * (k - 1) for d, k in zip(dilation, (weight.shape or ())[2:], strict=True)]  # type: ignore[operator]
    return [t // 2 for t in totals] + [t - t // 2 for t in totals]


def convolve_back(
    call: Call,
    x: Value,
    weight: Value,
    bias: Value | None,
    sizes: tuple[Sizes, Sizes, Sizes],
    extra: Sizes,
    groups: int,
) -> Value:
    """ConvTranspose; `sizes` are stride, padding and dilation."""
    images = weight.ndim - 2
    x, alone = _batched(call, x, images)
    stride, padding, dilation = (spread(s, images) for s in sizes)
    made = call.op(
        "ConvTranspose", x, weight, bias, strides=stride, pads=padding * 2, dilations=dilation, group=groups,
        output_padding=spread(extra, images), kernel_shape=list((weight.shape or ())[2:]),
    )  # fmt: skip
    return _finished(call, made, alone)


@translates("aten::convolution", "aten::_convolution")
def convolution(call: Call, x: Value, weight: Value, bias: Value | None, stride: Sizes, padding: Sizes, dilation: Sizes, transposed: bool,
                output_padding: Sizes, groups: int, *_: Any) -> Value:  # fmt: skip
    if transposed:
        return convolve_back(call, x, weight, bias, (stride, padding, dilation), output_padding, groups)
    return convolve(call, x, weight, bias, stride, padding, dilation, groups)


_OVERLOADS = ("conv1d", "conv2d", "conv3d")


@translates(*[f"aten::{n}" for n in _OVERLOADS], *[f"aten::{n}.padding" for n in _OVERLOADS])
def conv(
    call: Call,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sizes = 1,
    padding: Any = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Value:
    return convolve(call, x, weight, bias, stride, padding, dilation, groups)


@translates("aten::conv_transpose1d", "aten::conv_transpose2d.input", "aten::conv_transpose3d.input")
def conv_transpose(call: Call, x: Value, weight: Value, bias: Value | None = None, stride: Sizes = 1, padding: Sizes = 0, output_padding: Sizes = 0,
                   groups: int = 1, dilation: Sizes = 1) -> Value:  # fmt: skip
    return convolve_back(call, x, weight, bias, (stride, padding, dilation), output_padding, groups)


def _six(x: Value) -> Value:
    x.shape = tuple("ncklmo")  # rows and columns of patches beside those of the image
    return x


@translates("aten::im2col")
def im2col(call: Call, x: Value, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Value:
    """Patches as columns: rows of a table of indices, then columns."""
    x, alone = _batched(call, x, 2)
    kernel, dilation, padding, stride = (spread(s, 2) for s in (kernel, dilation, padding, stride))
    n, c, *image = call.dims(x)
    if not all(isinstance(i, int) for i in image):
        raise call.refuse("an image of symbolic size")
    if any(padding):
        x = call.op("Pad", x, call.ints([0, 0, *padding] * 2))
    for axis in (0, 1):
        span = image[axis] + 2 * padding[axis] - dilation[axis] * (kernel[axis] - 1)
        starts = np.arange(0, span, stride[axis], dtype=np.int64)
        places = np.arange(kernel[axis], dtype=np.int64)[:, None] * dilation[axis] + starts
        x = call.op("Gather", x, call.array(places), axis=2 + 2 * axis)
    x = call.transpose(_six(x), [0, 1, 2, 4, 3, 5])
    count = call.shape[-1]
    return _finished(
        call,
        call.reshape(x, [n, c * kernel[0] * kernel[1] if isinstance(c, int) else -1, count], shape=("n", "c", "l")),
        alone,
    )


@translates("aten::col2im")
def col2im(call: Call, x: Value, size: Sizes, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Value:
    call.need(18)
    x, alone = _batched(call, x, 1)
    kernel, dilation, padding, stride = (spread(s, 2) for s in (kernel, dilation, padding, stride))
    made = call.op(
        "Col2Im", x, call.ints(spread(size, 2)), call.ints(kernel), dilations=dilation, pads=padding * 2, strides=stride
    )
    return _finished(call, made, alone)
